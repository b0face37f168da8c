"""Longformer against `transformers`, and its window against full attention with a band mask."""

from math import sqrt
from pathlib import Path
from typing import Any

import parity
import pytest
import torch
import transformers
from torch import Tensor

from bertie.families.longformer import LONGFORMER
from bertie.models import families
from bertie.models.config import EncoderConfig
from bertie.models.heads import HEADS
from bertie.models.model import TorchModel
from bertie.nn.layout import Packed, Padded
from bertie.nn.window import WindowAttention, window_mask

TINY: dict[str, Any] = {
    **parity.TINY,
    "attention_window": [4, 8, 4],  # `transformers` cannot do 2, nor those that do not divide the widest
    "type_vocab_size": 1,
    "max_position_embeddings": 40,
    "sep_token_id": 3,
    "layer_norm_eps": 1e-5,
}
LENGTHS = (23, 5, 18, 1)


@pytest.mark.parametrize("architecture", LONGFORMER.architectures)
def test_same_numbers(architecture: str, tmp_path: Path) -> None:
    parity.check(architecture, transformers.LongformerConfig(**TINY), tmp_path, lengths=LENGTHS, dtype=torch.float32)


@pytest.mark.parametrize(("window", "lengths"), [(4, (24, 12)), (8, (3, 2)), (12, (2, 1)), (10, (19, 7))])
def test_one_window_for_all_layers(window: int, lengths: tuple[int, ...], tmp_path: Path) -> None:
    """Also where it is wider than the sequences, and where they are cut into chunks without a rest."""
    config = transformers.LongformerConfig(**TINY | {"attention_window": window})
    model = parity.check("LongformerForMaskedLM", config, tmp_path, lengths=lengths, dtype=torch.float32)
    config = model.config
    assert [config.attention.reach(i) for i in range(3)] == [(window // 2, 1)] * 3


def band(layout: Padded, is_global: Tensor, radius: int, dilation: int) -> Tensor:
    """Which token sees which, (B, Q, K) bool: the definition (paper, figure 2 d)."""
    mask_BS = layout.mask()
    at = torch.arange(mask_BS.shape[1])
    step = at[None] - at[:, None]
    near = (step.abs() <= radius * dilation) & (step % dilation == 0)
    return (near | is_global[:, None, :] | is_global[:, :, None]) & mask_BS[:, None, :]


@pytest.mark.parametrize("dilation", [1, 2, 3])
@pytest.mark.parametrize("radius", [1, 3, 8, 50])
@pytest.mark.parametrize("with_global", [False, True])
def test_windows_are_full_attention_with_a_band_mask(radius: int, dilation: int, with_global: bool) -> None:
    torch.manual_seed(radius)
    module = WindowAttention(16, 4, radius=radius, dilation=dilation)
    layout = Padded(torch.arange(21)[None] < torch.tensor([21, 9, 1])[:, None])
    real = layout.mask()
    is_global = (torch.rand(3, 21) < 0.2) & real if with_global else torch.zeros_like(real)
    hidden = torch.randn(3, 21, 16, requires_grad=True)
    weights = torch.randn(int(real.sum()), 16)

    def reference() -> Tensor:
        local, of_global = (
            linear(hidden).view(3, 21, 3, 4, 4).permute(2, 0, 3, 1, 4) for linear in (module.qkv, module.qkv_global)
        )
        hide = torch.where(band(layout, is_global, radius, dilation), 0.0, torch.finfo(torch.float32).min)[:, None]
        contexts = [(q @ k.mT / sqrt(4) + hide).softmax(-1) @ v for q, k, v in (local, of_global)]
        context = torch.where(is_global[:, None, :, None], contexts[1], contexts[0])
        return module.output(context.transpose(1, 2).flatten(2))

    results = []
    for run in (lambda: module(hidden, layout, window_mask(layout, is_global))[0], reference):
        module.zero_grad()
        hidden.grad = None
        out = run()[real]
        (out * weights).sum().backward()
        gradients = [p.grad for p in module.parameters() if p.grad is not None and (with_global or p.grad.any())]
        results.append([out, hidden.grad, *gradients])
    for fast, plain in zip(*results, strict=True):
        parity.close(fast, plain, "window")


def test_what_is_shown_adds_up_to_one() -> None:
    layout = Padded(torch.ones(2, 13, dtype=torch.bool))
    is_global = torch.zeros(2, 13, dtype=torch.bool)
    is_global[0, 4] = is_global[0, 7] = True
    module = WindowAttention(16, 4, radius=2, dilation=2)
    _, probs = module(torch.randn(2, 13, 16), layout, window_mask(layout, is_global), output_attentions=True)
    assert probs.window.shape == (2, 4, 13, 2 + 5)
    assert probs.of_global.shape == (2, 4, 13, 2)
    torch.testing.assert_close(probs.window.sum(-1), (~is_global).float()[:, None].expand(2, 4, 13))
    torch.testing.assert_close(probs.of_global[0].sum(1), torch.ones(4, 2))


def made(head: str) -> tuple[TorchModel, EncoderConfig]:
    config = families.VARIANTS["longformer"].base.replace(
        **{name: value for name, value in TINY.items() if name != "attention_window"}, attention_window=4
    )
    return families.build(config, heads=lambda c: {head: HEADS[head](c, 2)}, variant="longformer").eval(), config


@pytest.mark.parametrize(
    ("architecture", "head"),
    [
        ("LongformerForSequenceClassification", "sequence"),
        ("LongformerForQuestionAnswering", "span"),
        ("LongformerForMultipleChoice", "choice"),
        ("LongformerForTokenClassification", "token"),
    ],
)
def test_left_out_the_heads_decide_which_tokens_are_global(architecture: str, head: str, tmp_path: Path) -> None:
    """As `transformers`: <s> of what is classified, the question of an answer, the answers of a choice."""
    model, _ = made(head)
    model.save_pretrained(tmp_path)
    theirs = getattr(transformers, architecture).from_pretrained(tmp_path).eval()
    ids = torch.randint(5, 99, (2, 17))
    for row, ends in enumerate(([4, 5, 16], [7, 8, 13])):  # <s> question </s></s> text </s>
        ids[row, ends] = 3
    mask = torch.ones_like(ids)
    ids[1, 14:], mask[1, 14:] = 1, 0
    batch = {"input_ids": ids, "attention_mask": mask}
    with torch.no_grad():
        ours = model(**batch)[head]
        if head == "choice":
            batch = {name: x[None] for name, x in batch.items()}
        output = theirs(**batch)
        packed = model.heads[head](
            model.encode(Inputs(ids[mask.bool()], None, Packed.from_lengths(mask.sum(1))))  # type: ignore[arg-type]
        )
    if head == "span":
        other = torch.stack([output.start_logits, output.end_logits], -1)
    else:
        other = output.logits.flatten() if head == "choice" else output.logits
    ours, other = (x[mask.bool()] if head in ("span", "token") else x for x in (ours, other))
    parity.close(ours, other, head)
    parity.close(packed, ours, f"packed {head}")


class Inputs:
    def __init__(self, input_ids: Tensor, token_type_ids: Tensor | None, layout: Packed) -> None:
        self.input_ids, self.token_type_ids, self.layout = input_ids, token_type_ids, layout


def test_sizes() -> None:
    """As `transformers` counts the published models, pooler included."""
    assert parity.parameters("longformer-base-4096", pooler=True) == 148_659_456
    assert parity.parameters("longformer-large-4096", pooler=True) == 434_600_960


def test_published_names() -> None:
    """allenai/longformer-base-4096: RoBERTa's names, and the global projections, as `transformers`' classes name them.

    The published file is older: it may also hold position_ids and copies of the decoder, which the old names cover.
    """
    layer = {
        **{
            k: v
            for p in ("query", "key", "value", "query_global", "key_global", "value_global")
            for k, v in parity.both(f"attention.self.{p}", 768, 768).items()
        },
        **parity.both("attention.output.dense", 768, 768),
        **parity.both("attention.output.LayerNorm", 768),
        **parity.both("intermediate.dense", 3072, 768),
        **parity.both("output.dense", 768, 3072),
        **parity.both("output.LayerNorm", 768),
    }
    recorded = {
        "longformer.embeddings.position_ids": (1, 4098),
        "longformer.embeddings.word_embeddings.weight": (50_265, 768),
        "longformer.embeddings.position_embeddings.weight": (4098, 768),
        "longformer.embeddings.token_type_embeddings.weight": (1, 768),
        **parity.both("longformer.embeddings.LayerNorm", 768),
        **{f"longformer.encoder.layer.{i}.{name}": shape for i in range(12) for name, shape in layer.items()},
        **parity.both("longformer.pooler.dense", 768, 768),
        **parity.both("lm_head.dense", 768, 768),
        **parity.both("lm_head.layer_norm", 768),
        **parity.both("lm_head.decoder", 50_265, 768),
        "lm_head.bias": (50_265,),
    }
    parity.published("longformer", "longformer-base-4096", ("mlm",), recorded, pooler=True)
