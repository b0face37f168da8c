"""Attention on a GPU without padding is attention. On a CPU, the formula replaces the kernel, sequence by sequence."""

from math import sqrt
from typing import Any

import pytest
import torch
from torch import Tensor

from bertie.models import families
from bertie.models.model import TorchModel
from bertie.nn import varlen
from bertie.nn.attention import attention_bias, formula, split_heads
from bertie.nn.layout import Packed
from bertie.nn.varlen import Varlen

HEADS, SIZE = 2, 8
RAGGED, EQUAL, SOME_EMPTY = [13, 70, 32, 5, 64, 1, 33], [32, 32, 32], [0, 13, 0, 40]
LENGTHS = pytest.mark.parametrize("lengths", [RAGGED, EQUAL, SOME_EMPTY], ids=["ragged", "equal", "some empty"])


def stand_in(q: Tensor, k: Tensor, v: Tensor, starts: Tensor, *rest: Any, **options: Any) -> tuple[Tensor]:
    """torch's kernel by its formula. Rows that belong to no sequence have no finite numbers."""
    left, longest = options["window_size_left"], rest[1]
    context = torch.full_like(q, torch.nan)
    for start, stop in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        assert 0 <= stop - start <= longest
        one_q, one_k, one_v = (x[start:stop].transpose(0, 1).float() for x in (q, k, v))
        scores = one_q @ one_k.mT * (1 / sqrt(q.shape[-1]) if options["scale"] is None else options["scale"])
        at = torch.arange(stop - start)
        if left is not None:
            scores = scores.masked_fill((at[:, None] - at).abs() > left, -torch.inf)
        context = context.index_copy(0, start + at, (scores.softmax(-1) @ one_v).transpose(0, 1).to(q.dtype))
    return (context,)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel of a GPU, by its formula on this CPU."""
    monkeypatch.setattr(varlen, "flash_attention", stand_in)
    monkeypatch.setattr(varlen, "has_kernel", lambda device: True)


@LENGTHS
def test_the_rows_after_the_last_token_are_sequences(lengths: list[int]) -> None:
    layout = Packed.from_lengths(torch.tensor(lengths))
    for more in (0, 1, layout.max_seqlen, layout.max_seqlen + 1, 3 * layout.max_seqlen):
        rows = layout.num_tokens + more
        ends = Varlen.of(Packed(layout.cu_seqlens, layout.max_seqlen, num_rows=rows), HEADS).cu_seqlens
        assert ends.dtype == torch.int32
        assert ends[: len(lengths) + 1].equal(layout.cu_seqlens)
        assert int(ends[-1]) == rows
        assert int(ends.diff().min()) >= 0
        assert int(ends.diff().max()) <= layout.max_seqlen


def check_kernel(lengths: list[int], scaled: bool, device: str) -> None:
    layout = Packed.from_lengths(torch.tensor(lengths)).to(device).roomy()
    torch.manual_seed(1)
    qkv = torch.randn(layout.num_rows, 3 * HEADS * SIZE, device=device).bfloat16()
    ours, exact = (x.detach().requires_grad_() for x in (layout.fill(layout.real(qkv)), qkv.double()))
    q, k, v = split_heads(layout.rectangle(exact), 3, HEADS)
    want = layout.flat(formula(q, k, v, attention_bias(layout, q.dtype), scaled=scaled)[0].transpose(1, 2).flatten(2))
    found = Varlen.of(layout, HEADS).attention(ours, scaled=scaled, dropout_p=0.0)
    assert bool(found.isfinite().all())
    grad = layout.fill(torch.randn(layout.num_tokens, HEADS * SIZE, device=device).double())
    found.backward(grad.bfloat16())
    want.backward(grad)
    # values up to 3; bf16 has 8 bits
    torch.testing.assert_close(layout.real(found).double(), layout.real(want), rtol=0.02, atol=0.03)
    torch.testing.assert_close(layout.real(ours.grad).double(), layout.real(exact.grad), rtol=0.02, atol=0.06)


@LENGTHS
@pytest.mark.parametrize("scaled", [True, False])
def test_the_context_is_that_of_the_formula(lengths: list[int], scaled: bool, kernel: None) -> None:
    check_kernel(lengths, scaled, "cpu")


@pytest.mark.skipif(
    not torch.cuda.is_available() or not varlen.has_kernel(torch.device("cuda")), reason="there is no NVIDIA GPU"
)
@LENGTHS
def test_the_kernel_is_the_formula(lengths: list[int]) -> None:
    check_kernel(lengths, True, "cuda")


@pytest.mark.parametrize("preset", ["bert-tiny", "ModernBERT-base"])
def test_a_model_learns_the_same_without_padding(preset: str, kernel: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole encoder in bfloat16, with windows of 9 tokens in some layers of ModernBERT."""
    shape = {"vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": HEADS}
    more = {"local_attention": 8} if preset.startswith("Modern") else {"attention_probs_dropout_prob": 0.0}
    model = families.build(preset, intermediate_size=32, **shape, **more, seed=0).train()
    model.compute_dtype = torch.bfloat16
    layout = Packed.from_lengths(torch.tensor(RAGGED))
    ids, wanted = torch.randint(5, 60, (layout.num_tokens,)), torch.randn(layout.num_tokens, 16)

    def gradients(model: TorchModel) -> dict[str, Tensor]:
        model.zero_grad()
        torch.manual_seed(3)
        output = model.encoder(ids, None, layout)
        (output.last_hidden_state.float() * wanted).sum().backward()
        found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        return {"output": output.last_hidden_state.detach().float(), **found}

    quick = gradients(model)
    monkeypatch.setattr("bertie.models.encoder.unpadded", lambda *_: None)
    plain = gradients(model)
    assert quick.keys() == plain.keys()
    for name, value in plain.items():
        scale = float(value.abs().max())
        assert bool(quick[name].isfinite().all()), name
        assert float((quick[name] - value).abs().max()) < 0.05 * scale + 1e-3, name
