"""Attention by groups of similar length is attention: values, gradients and dropout are those of the formula."""

import pytest
import torch
from torch import Tensor

from bertie.models import families
from bertie.models.config import EncoderConfig
from bertie.models.model import TorchModel
from bertie.nn import groups as module
from bertie.nn.attention import attention_bias, formula, split_heads
from bertie.nn.dropout import DropoutMask, keep_mask
from bertie.nn.groups import LayoutGroups
from bertie.nn.layout import Packed

HEADS, SIZE = 2, 4
RAGGED, EQUAL, SOME_EMPTY = [13, 70, 32, 5, 64, 1, 33], [32, 32, 32], [0, 13, 0, 40]


def by_formula(qkv: Tensor, layout: Packed, *, scaled: bool = True) -> Tensor:
    """The reference implementation, on the padded batch."""
    bias = attention_bias(layout, qkv.dtype)
    q, k, v = split_heads(layout.rectangle(qkv), 3, HEADS)
    return layout.flat(formula(q, k, v, bias, scaled=scaled)[0].transpose(1, 2).flatten(2))


def batch(lengths: list[int], dtype: torch.dtype = torch.float64) -> tuple[Packed, Tensor, Tensor]:
    """A layout with rows after the last token, the projections of its tokens, and a gradient that comes back."""
    layout = Packed.from_lengths(torch.tensor(lengths))
    layout = Packed(layout.cu_seqlens, layout.max_seqlen, num_rows=layout.num_tokens + 3)
    torch.manual_seed(1)
    qkv = torch.randn(layout.num_rows, 3 * HEADS * SIZE, dtype=dtype, requires_grad=True)
    grad = layout.fill(torch.randn(layout.num_tokens, HEADS * SIZE, dtype=dtype))
    return layout, qkv, grad


@pytest.mark.parametrize("scores", [1, 20_000, 1 << 22])
@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("lengths", [RAGGED, EQUAL, SOME_EMPTY], ids=["ragged", "equal", "some empty"])
def test_groups_are_the_formula(lengths: list[int], scaled: bool, scores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SCORES", scores)
    layout, qkv, grad = batch(lengths)
    groups = LayoutGroups.of(layout, HEADS, qkv.dtype)
    if scores == 1:
        assert len(groups.groups) == sum(length > 0 for length in lengths)
    found, want = groups.attention(qkv, scaled=scaled), by_formula(qkv, layout, scaled=scaled)
    torch.testing.assert_close(found, want)
    torch.testing.assert_close(
        torch.autograd.grad(found, qkv, grad)[0], torch.autograd.grad(want, qkv, grad)[0], msg="gradients differ"
    )


def test_bf16_is_as_close_as_the_formula_in_bf16() -> None:
    layout, qkv, grad = batch(RAGGED, torch.bfloat16)
    exact = by_formula(qkv.double(), layout)
    want = torch.autograd.grad(exact, qkv, grad.double())[0].double()
    for values in (LayoutGroups.of(layout, HEADS, qkv.dtype).attention(qkv), by_formula(qkv, layout)):
        assert float((values - exact).detach().abs().max()) < 0.03  # values up to 3; bf16 has 8 bits
        assert float((torch.autograd.grad(values, qkv, grad)[0].double() - want).abs().max()) < 0.06


def test_dropout_has_the_gradient_of_what_it_computes() -> None:
    layout, qkv, _ = batch([5, 33, 2])
    groups = LayoutGroups.of(layout, HEADS, qkv.dtype)

    def drawn_again(qkv: Tensor) -> Tensor:
        torch.manual_seed(5)
        return layout.real(groups.attention(qkv, dropout_p=0.25))

    assert torch.autograd.gradcheck(drawn_again, (qkv,), fast_mode=True)
    assert not torch.equal(drawn_again(qkv), layout.real(by_formula(qkv, layout)))


def test_dropout_keeps_the_mean() -> None:
    layout, qkv, _ = batch([5, 2])
    groups = LayoutGroups.of(layout, HEADS, qkv.dtype)
    torch.manual_seed(0)
    with torch.no_grad():
        draws = torch.stack([groups.attention(qkv, dropout_p=0.25) for _ in range(2_000)])
    error = (draws.mean(0) - by_formula(qkv, layout).detach()).abs() / (draws.std(0) / 2_000**0.5 + 1e-12)
    assert float(layout.real(error).max()) < 5  # standard errors


@pytest.mark.parametrize("p", [1e-6, 0.1, 0.5, 0.9])
def test_what_is_kept_is_kept_at_the_rate_asked_for(p: float) -> None:
    torch.manual_seed(0)
    keep = DropoutMask(p)
    for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.float64):
        mask = keep.draw((7, 30_001), dtype, 1.25)
        assert mask.dtype == dtype
        assert set(mask.flatten().tolist()) <= {0.0, 1.25}
        assert float(mask.double().mean()) / 1.25 * keep.scale == pytest.approx(1, abs=0.03)
    assert float(keep_mask(torch.zeros(30_001, dtype=torch.bfloat16), p).max()) == pytest.approx(keep.scale, rel=4e-3)


@pytest.mark.parametrize("family", ["bert", "albert"])
def test_a_model_learns_the_same_by_groups(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole encoder, in training mode; dropout of hidden states is drawn alike, that of attention is off."""
    small = {"vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = EncoderConfig(
        **small,  # type: ignore[arg-type]
        intermediate_size=32,
        attention_probs_dropout_prob=0.0,
    ).replace(num_hidden_groups=1 if family == "albert" else None)
    model = families.build(config).train()
    layout = Packed.from_lengths(torch.tensor(RAGGED))
    ids = torch.randint(5, 60, (layout.num_tokens,))

    def gradients(model: TorchModel) -> dict[str, Tensor]:
        model.zero_grad()
        torch.manual_seed(3)
        output = model.encoder(ids, None, layout)
        (output.last_hidden_state.square().sum() + output.pooler_output.sum()).backward()
        found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        return {"output": output.last_hidden_state.detach(), **found}

    calls: list[LayoutGroups] = []
    attention = LayoutGroups.attention
    monkeypatch.setattr(
        LayoutGroups, "attention", lambda self, qkv, **options: calls.append(self) or attention(self, qkv, **options)
    )
    quick = gradients(model)
    assert len(calls) == 2
    monkeypatch.setattr("bertie.models.encoder.unpadded", lambda *_: None)
    plain = gradients(model)
    assert len(calls) == 2
    for name, value in plain.items():
        torch.testing.assert_close(quick[name], value, rtol=2e-4, atol=2e-4, msg=name)
