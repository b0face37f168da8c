"""The kernels of training on a GPU against the formulas in float64: values, gradients, and the very masks of dropout.

Without a GPU, triton's interpreter runs them on the CPU (conftest.py sets TRITON_INTERPRET).
"""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bertie.models.encoder import Encoder
from bertie.nn import fused, graphs
from bertie.nn.fused import AddNorm, BiasAct, Dropout, Rotate, ShortAttention, Skipped, short_attention
from bertie.nn.graphs import GraphedLayers, Stack, sequence_bounds
from bertie.nn.init import initialize
from bertie.nn.layer import ACTIVATIONS, GATES
from bertie.nn.layout import Packed
from bertie.nn.linear import Linear
from bertie.nn.seeds import using_kernels
from bertie.nn.varlen import Varlen
from tests.twins.test_attention_kinds import SMALL

pytest.importorskip("triton", reason="triton is for Linux on x86")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LENGTHS = [7, 70, 1, 33, 0, 128, 12]
MODERN = {
    "positions": "rotary",
    "attention": "alternating",
    "local_attention": 8,
    "norm": "pre",
    "hidden_act": "geglu_erf",
    "bias": False,
    "norm_type": "unbiased",
    "first_attention_norm": False,
}


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def dropout_of(p: float, seed: int = 1) -> Dropout:
    generator = torch.Generator().manual_seed(seed)
    return Dropout(p, torch.randint(2**31 - 1, (2,), generator=generator, dtype=torch.int32).to(DEVICE))


WHOLE = 2**32 - 1


def mixed(dropout: Dropout, number: Tensor) -> Tensor:
    """The hash of the kernels in torch's int64."""
    low, high = dropout.seed.tolist()
    x = (number & WHOLE) ^ low
    x ^= x >> 16
    x = (x * 0x7FEB352D) & WHOLE
    x = (x + high) & WHOLE
    x ^= x >> 15
    x = (x * 0x846CA68B) & WHOLE
    return x ^ (x >> 16)


def masks(dropout: Dropout, number: Tensor) -> Tensor:
    """`kernels.keep_scale` in torch's int64."""
    _, threshold, scale = dropout.arguments
    return ((mixed(dropout, number) >> 1) >= threshold).double() * scale


def masks_of_scores(dropout: Dropout, row: Tensor, place: Tensor) -> Tensor:
    """`kernels.keep_scale_of_scores` in torch's int64. row (..., Q), place (K,) -> (..., Q, K)"""
    _, threshold, scale = dropout.arguments
    x = mixed(dropout, row)[..., None] ^ mixed(dropout, place + 0x40000000)
    return ((((x * 0x9E3779B1) & WHOLE) >> 1) >= threshold).double() * scale


def assert_like(
    ours: Callable[..., Tensor], formula: Callable[..., Tensor], tensors: Sequence[Tensor | None], atol: float = 2e-5
) -> None:
    """Values and gradients of `ours` in float32 and of `formula` in float64."""
    results = []
    for function, dtype in ((ours, torch.float32), (formula, torch.float64)):
        leaves = [x if x is None else x.detach().to(DEVICE, dtype, copy=True).requires_grad_() for x in tensors]
        # a step away from the leaves: one kernel writes over its input
        y = function(*[x if x is None else x * 1 for x in leaves])
        y.backward(drawn(*y.shape, seed=1).to(y))  # type: ignore[no-untyped-call]
        results.append([y.detach(), *(x.grad for x in leaves if x is not None)])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one.double(), other, atol=atol, rtol=1e-4)


@pytest.mark.parametrize("p", [0.0, 0.3])
@pytest.mark.parametrize("shape", [(5, 24), (3, 4, 64), (60, 7)], ids=str)
@pytest.mark.parametrize("kind", ["layer", "rms", "unbiased", "no residual"])
def test_norm_of_a_residual(kind: str, shape: tuple[int, ...], p: float) -> None:
    size = shape[-1]
    dropout = dropout_of(p)
    shift = drawn(size, seed=2) if kind == "layer" else None
    residual = None if kind == "no residual" else drawn(*shape)
    bias = drawn(size, seed=3) if kind == "layer" else None
    keep = masks(dropout, torch.arange(drawn(*shape).numel())).view(shape).to(DEVICE) if dropout.on else 1.0

    def ours(residual: Tensor | None, x: Tensor, bias: Tensor | None, weight: Tensor, shift: Tensor | None) -> Tensor:
        return AddNorm.apply(residual, x, bias, weight, shift, 1e-5, kind != "rms", dropout, Skipped(), None)  # type: ignore[no-any-return, no-untyped-call]

    def formula(
        residual: Tensor | None, x: Tensor, bias: Tensor | None, weight: Tensor, shift: Tensor | None
    ) -> Tensor:
        x = x if bias is None else x + bias
        x = x if residual is None else residual + x * keep
        return F.rms_norm(x, (size,), weight, 1e-5) if kind == "rms" else F.layer_norm(x, (size,), weight, shift, 1e-5)

    if residual is None and p:
        pytest.skip("without a residual there is no dropout")
    assert_like(ours, formula, (residual, drawn(*shape, seed=4), bias, drawn(size, seed=5), shift))


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("name", fused.FUSED_ACTIVATIONS)
def test_activations(name: str, has_bias: bool) -> None:
    gated = name in GATES
    bias = drawn(140 if gated else 70, seed=1) if has_bias else None

    def ours(x: Tensor, bias: Tensor | None) -> Tensor:
        return BiasAct.apply(x, bias, fused.FUSED_ACTIVATIONS[name], gated)  # type: ignore[no-any-return, no-untyped-call]

    def formula(x: Tensor, bias: Tensor | None) -> Tensor:
        return fused.bias_act(x, bias, name, ACTIVATIONS[name], gated=gated)

    assert_like(ours, formula, (drawn(37, 140 if gated else 70), bias))


def test_rotation() -> None:
    cos, sin = drawn(9, 4, seed=1).to(DEVICE), drawn(9, 4, seed=2).to(DEVICE)

    def formula(qkv: Tensor) -> Tensor:
        q_k, v = qkv.view(9, 3, 3, 8).split([2, 1], 1)
        first, second = q_k.chunk(2, -1)
        c, s = cos.double()[:, None, None], sin.double()[:, None, None]
        return torch.cat([torch.cat([first * c - second * s, second * c + first * s], -1), v], 1).flatten(1)

    assert_like(lambda qkv: Rotate.apply(qkv, cos, sin, 3), formula, (drawn(9, 72),))  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("radius", [None, 5])
@pytest.mark.parametrize("p", [0.0, 0.2])
@pytest.mark.parametrize(("lengths", "size"), [(LENGTHS, 16), ([5, 16, 9], 32)], ids=["long", "short"])
def test_attention(
    lengths: list[int], size: int, p: float, radius: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads, longest = 2, max(lengths)
    starts = torch.tensor([0, *lengths]).cumsum(0)
    dropout = dropout_of(p)
    most = max(16, 1 << (longest - 1).bit_length())

    def ours(qkv: Tensor, bias: Tensor | None) -> Tensor:
        at = starts.int().to(DEVICE)
        with using_kernels(dropout.seed[None]):
            return short_attention(
                qkv, bias, at, num_heads=heads, longest=longest, radius=radius, scaled=True, dropout_p=p
            )

    def formula(qkv: Tensor, bias: Tensor | None) -> Tensor:
        qkv = qkv if bias is None else qkv + bias
        contexts = []
        for number, (start, end) in enumerate(zip(starts.tolist(), starts.tolist()[1:], strict=False)):
            place = torch.arange(end - start, device=qkv.device)
            far = (place[:, None] - place).abs() > (longest if radius is None else radius)
            q, k, v = qkv[start:end].view(-1, 3, heads, size).permute(1, 2, 0, 3)
            probs = (q @ k.mT / size**0.5).masked_fill(far, float("-inf")).softmax(-1)
            if p:
                row = (number * heads + torch.arange(heads)[:, None]) * most + place.cpu()
                probs = probs * masks_of_scores(dropout, row, place.cpu()).to(probs)
            contexts.append((probs @ v).transpose(0, 1).flatten(1))
        return torch.cat(contexts)

    bias = None if radius else drawn(3 * heads * size, seed=1)
    assert_like(ours, formula, (drawn(sum(lengths), 3 * heads * size), bias), atol=1e-4)


def test_masks_keep_the_right_share_and_differ_by_seed() -> None:
    number = torch.arange(200_000)
    first, second = (masks(dropout_of(0.1, seed), number) > 0 for seed in (1, 2))
    for kept in (first, second):
        assert abs(float(kept.double().mean()) - 0.9) < 0.003  # four and a half standard errors
        assert abs(float((kept[1:] & kept[:-1]).double().mean()) - 0.81) < 0.005
    assert abs(float((first & second).double().mean()) - 0.81) < 0.005


def test_masks_of_scores_are_as_if_drawn_one_by_one() -> None:
    row, place = torch.arange(4096), torch.arange(128)
    first, second = (masks_of_scores(dropout_of(0.1, seed), row, place) > 0 for seed in (1, 2))
    error = 0.3 / first.numel() ** 0.5  # one standard error of a share of 0.9
    for kept in (first, second):
        assert abs(float(kept.double().mean()) - 0.9) < 5 * error
        for other in (kept.roll(1, 0), kept.roll(1, 1), kept.roll(17, 0), kept.roll(64, 1), kept.roll((1, 1), (0, 1))):
            assert abs(float((kept & other).double().mean()) - 0.81) < 5 * 0.392 / first.numel() ** 0.5 + 1e-4
        for axis, many in ((0, 4096), (1, 128)):  # the shares of rows and of keys scatter as those of free draws
            shares = kept.double().mean(axis)
            assert 0.8 < float(shares.std()) / (0.3 / many**0.5) < 1.25
        quadruple = kept & kept.roll(1, 0) & kept.roll(1, 1) & kept.roll((1, 1), (0, 1))
        assert abs(float(quadruple.double().mean()) - 0.9**4) < 0.003
    assert abs(float((first & second).double().mean()) - 0.81) < 0.003


@pytest.mark.parametrize("changes", [{}, {"norm": "pre", "hidden_act": "geglu"}, MODERN], ids=["post", "pre", "modern"])
@pytest.mark.parametrize("lengths", [[5, 18, 9], [5, 12]], ids=str)  # in rows of the bounds of 32 and 16
def test_layers_run_them(changes: dict[str, Any], lengths: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """All layers but the last run as kernels, with the values and gradients of the formulas; every kernel ran."""
    calls: list[str] = []
    for function in (AddNorm, BiasAct, Rotate, ShortAttention):
        monkeypatch.setattr(function, "apply", counted(function, calls))
    monkeypatch.setattr(
        "bertie.models.encoder.unpadded", lambda layout, _hidden, heads, _size: Varlen.of(layout, heads)
    )
    config = SMALL.replace(
        hidden_size=32, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_hidden_layers=3, **changes
    )
    encoder = Encoder(config).to(DEVICE).train()
    initialize(encoder, std=0.2, seed=0)
    layout = Packed.from_lengths(torch.tensor(lengths)).to(DEVICE)
    ids = torch.randint(5, config.vocab_size, (sum(lengths),), generator=torch.Generator().manual_seed(0)).to(DEVICE)
    results = []
    for layers in (Recorder(), None):
        encoder.zero_grad()
        encoder.graphs = layers
        monkeypatch.setattr("bertie.nn.varlen.flash_attention", formula_of_flash)
        hidden = encoder(ids, layout=layout).last_hidden_state
        hidden.backward(drawn(*hidden.shape, seed=1).to(DEVICE))
        results.append({"hidden": hidden.detach()} | {name: x.grad for name, x in encoder.named_parameters()})
    for name, ours in results[0].items():
        torch.testing.assert_close(
            ours, results[1][name], atol=1e-4, rtol=1e-3, msg=lambda text, name=name: f"{name}: {text}"
        )
    rotated = 2 if changes is MODERN else 0
    counts = [calls.count(function.__name__) for function in (AddNorm, BiasAct, Rotate, ShortAttention)]
    assert counts == [
        4 if changes is not MODERN else 3,
        2,
        rotated,
        2,
    ]  # of two layers; ModernBERT's first has one norm


class Recorder(GraphedLayers):
    """Runs the stack as it is: there are no graphs without a GPU."""

    def _record(self, stack: Stack, inputs: Sequence[Tensor]) -> Stack:
        return stack


def counted(function: Any, calls: list[str]) -> Callable[..., Any]:
    apply = function.apply

    def call(*args: Any) -> Any:
        calls.append(function.__name__)
        return apply(*args)

    return call


def formula_of_flash(q: Tensor, k: Tensor, v: Tensor, starts: Tensor, *_: Any, **options: Any) -> tuple[Tensor]:
    """Attention of each sequence, in the place of the kernel: rows (R, N, D)."""
    radius, contexts = options["window_size_left"], []
    for start, end in zip(starts.tolist(), starts.tolist()[1:], strict=False):
        place = torch.arange(end - start, device=q.device)
        far = (place[:, None] - place).abs() > (end if radius is None else radius)
        of_q, of_k, of_v = (x[start:end].transpose(0, 1) for x in (q, k, v))
        scores = (of_q @ of_k.mT / q.shape[-1] ** 0.5).masked_fill(far, float("-inf"))
        contexts.append((scores.softmax(-1) @ of_v).transpose(0, 1))
    return (torch.cat(contexts),)


def test_bounds_of_sequences_depend_on_rows_alone() -> None:
    for tokens in (993, 1000, 1020, 1023):
        layout = Packed.from_lengths(torch.tensor([300, 400, tokens - 700])).roomy()
        bounds = sequence_bounds(layout, 512)
        assert layout.num_rows == 1024
        assert len(bounds) == 5
        assert bounds[-1] == 1024
        assert int(bounds.diff().max()) <= 512
    tight = Packed.from_lengths(torch.tensor([16] * 62)).roomy()  # 992 of 992 rows
    assert sequence_bounds(tight, 16).tolist()[-2:] == [992, 992]


def test_no_kernel_without_seeds() -> None:
    assert not fused.runs_kernels()
    assert fused.unbiased(Linear(4, 4), torch.zeros(3, 4))[1] is None
    assert not graphs.can_record(torch.device("cpu"), torch.bfloat16)
