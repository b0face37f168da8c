"""Every kind of attention, crossed with causal and with every setting of its layer, against a dense mask.

B sequences · S tokens · N heads · D head size
"""

from math import sqrt
from typing import Any

import pytest
import torch
from torch import Tensor

from bertie.models.config import EncoderConfig
from bertie.models.encoder import Encoder
from bertie.nn.attention import Cache, SelfAttention, split_heads
from bertie.nn.blocks import BlockSparseAttention, _lists, random_blocks
from bertie.nn.init import initialize
from bertie.nn.layout import Packed, Padded
from bertie.nn.window import WindowAttention, window_mask

SMALL = EncoderConfig(
    vocab_size=60,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=24,
    max_position_embeddings=64,
    initializer_range=0.3,  # large enough that what is seen shows
)
KINDS: dict[str, dict[str, Any]] = {
    "full": {},
    "window": {"attention_window": 4},
    "windows": {"attention_window": (2, 6), "attention_dilation": (2, 1)},
    "blocks": {"attention": "block_sparse", "block_size": 2, "num_random_blocks": 1},
    "relative": {"positions": "relative"},
    "bottleneck": {"bottleneck_size": 8},
    "shared": {"num_hidden_groups": 1, "inner_group_num": 2},
}
OPTIONS: list[dict[str, Any]] = [
    {},
    {"norm": "pre"},
    {"bias": False},
    {"attention_bias": False},
    {"attention_head_size": 4},
    {"scale_attention": False},
    {"dropout_inside": True},
    {"hidden_act": "geglu", "norm_type": "rms"},
    {"positions": "sinusoidal"},
    {"positions": "none"},
    {"embedding_size": 6},
]
LENGTHS = torch.tensor([31, 17, 1, 24])  # blocks of 2 are sparse from 15 tokens on


def encoder(**changes: Any) -> Encoder:
    model = Encoder(SMALL.replace(**changes))
    initialize(model, std=SMALL.initializer_range)
    return model.eval()


def fits(kind: str, options: dict[str, Any]) -> bool:
    """Whether the two can be written down together."""
    placed = options.get("positions")
    if kind == "blocks":
        return placed is None  # needs a table
    if kind == "relative":
        return placed is None
    return kind != "bottleneck" or options.keys() <= {"positions", "embedding_size"}


CROSSED = [
    pytest.param(kind, options, id=f"{kind}-{'-'.join(f'{k}={v}' for k, v in options.items())}")
    for kind in KINDS
    for options in OPTIONS
    if fits(kind, options)
]


@pytest.mark.parametrize(("kind", "options"), CROSSED)
def test_causal_means_that_no_token_moves_those_before(kind: str, options: dict[str, Any]) -> None:
    """And that a token moves those before it where the model is not causal: the test can fail."""
    ids = torch.randint(5, 60, (2, 31), generator=torch.Generator().manual_seed(1))
    later = ids.clone()
    later[:, 20:] = (later[:, 20:] + 8) % 55 + 5  # all of them others
    for causal in (True, False):
        model = encoder(**KINDS[kind], **options, causal=causal)
        for flags in ({}, {"global_attention_mask": (torch.arange(31) % 9 == 1).expand(2, -1)}):
            if flags and "window" not in kind:
                continue
            with torch.no_grad():
                before, after = (model(x, **flags).last_hidden_state[:, :20] for x in (ids, later))
            assert torch.equal(before, after) == causal or (before - after).abs().max() < 1e-5 * causal


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("kind", "options"), CROSSED)
def test_packed_padded_and_gradients_agree(kind: str, options: dict[str, Any], causal: bool) -> None:
    model = encoder(**KINDS[kind], **options, causal=causal).double()
    ids = torch.randint(5, 60, (int(LENGTHS.sum()),))
    padded = torch.nn.utils.rnn.pad_sequence(list(ids.split(LENGTHS.tolist())), batch_first=True)
    real = torch.arange(31)[None] < LENGTHS[:, None]
    packed = model(ids, layout=Packed.from_lengths(LENGTHS)).last_hidden_state
    rectangle = model(padded, attention_mask=real).last_hidden_state[real]
    torch.testing.assert_close(packed, rectangle, atol=1e-10, rtol=0)
    weights = torch.linspace(-1, 1, packed.numel(), dtype=torch.float64).view_as(packed)
    names = [name for name, parameter in model.named_parameters()]
    first, second = (
        torch.autograd.grad((x * weights).sum(), list(model.parameters()), allow_unused=True)
        for x in (packed, rectangle)
    )
    for name, a, b in zip(names, first, second, strict=True):
        assert (a is None) == (b is None), name
        if a is not None and b is not None:
            torch.testing.assert_close(a, b, atol=1e-9, rtol=0, msg=name)


def dense(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """softmax(q k / sqrt(D) + bias) v"""
    return (q @ k.mT / sqrt(q.shape[-1]) + bias).softmax(-1) @ v


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("radius", "dilation"), [(1, 1), (3, 1), (2, 3), (40, 1)])
@pytest.mark.parametrize("with_global", [False, True])
def test_a_window_is_a_band_in_a_mask(causal: bool, radius: int, dilation: int, with_global: bool) -> None:
    torch.manual_seed(0)
    module = WindowAttention(8, 2, radius=radius, dilation=dilation).double()
    x, layout = (
        torch.randn(3, 19, 8, dtype=torch.float64),
        Padded(torch.arange(19)[None] < torch.tensor([[19], [11], [2]])),
    )
    real_BS = layout.mask()
    is_global_BS = (torch.rand(3, 19) < 0.2) & real_BS & with_global
    found, _ = module(x, layout, window_mask(layout, is_global_BS if with_global else None, causal=causal))

    ahead_QK = torch.arange(19)[None] - torch.arange(19)[:, None]
    order_QK = (ahead_QK <= 0) if causal else torch.ones(19, 19, dtype=torch.bool)
    band_QK = (ahead_QK.abs() <= radius * dilation) & (ahead_QK % dilation == 0)
    seen_BQK = (band_QK | is_global_BS[:, None]) & order_QK & real_BS[:, None]
    hide = torch.zeros(3, 1, 19, 19, dtype=torch.float64).masked_fill(~seen_BQK[:, None], -1e300)
    local = dense(*split_heads(module.qkv(x), 3, 2), hide)
    hide_all = torch.zeros(3, 1, 19, 19, dtype=torch.float64).masked_fill(
        ~(order_QK & real_BS[:, None])[:, None], -1e300
    )
    of_global = dense(*split_heads(module.qkv_global(x), 3, 2), hide_all)
    context = torch.where(is_global_BS[:, None, :, None], of_global, local).transpose(1, 2).flatten(2)
    torch.testing.assert_close(found[real_BS], module.output(context)[real_BS], atol=1e-10, rtol=0)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_blocks_are_a_mask_that_counts(causal: bool, training: bool) -> None:
    """A block that is listed twice counts twice: the logarithm of the count is added to its scores."""
    torch.manual_seed(0)
    module = BlockSparseAttention(8, 2, block_size=2, num_random=2, max_length=64, seed=3, causal=causal).double()
    module.train(training)
    lengths = torch.tensor([29, 30, 5])
    layout = Padded(torch.arange(30)[None] < lengths[:, None])
    x = torch.randn(3, 30, 8, dtype=torch.float64)
    found, _ = module(x, layout, None)

    options: dict[str, Any] = {"block_size": 2, "max_length": 64, "seed": 3 if training else None}
    lists_NMP, counts_MP = _lists(torch.from_numpy(random_blocks(15, 2, 2, **options)))
    times_NCC = torch.ones(2, 15, 15)
    for n in range(2):
        for m in range(13):
            chosen = lists_NMP[n, m][counts_MP[m]]
            times_NCC[n, m + 1] = torch.bincount(chosen, minlength=15).float()
    times_NQK = times_NCC.repeat_interleave(2, 1).repeat_interleave(2, 2).double()
    bias = times_NQK.log()[None].masked_fill(~layout.mask()[:, None, None], -1e300).clamp_min(-1e300)
    if causal:
        bias = bias.masked_fill(torch.ones(30, 30, dtype=torch.bool).triu(1), -1e300)
    context = dense(*split_heads(module.qkv(x), 3, 2), bias).transpose(1, 2).flatten(2)
    real = layout.mask()
    torch.testing.assert_close(found[real], module.output(context)[real], atol=1e-10, rtol=0)


@pytest.mark.parametrize("kind", ["full", "window", "windows", "relative", "shared"])
def test_reading_on_is_reading_at_once(kind: str) -> None:
    """With a cache, in two parts, after prompts of several lengths."""
    model = encoder(**KINDS[kind], causal=True).double()
    ids, lengths = torch.randint(5, 60, (3, 14)), torch.tensor([9, 4, 1])
    prompt = torch.arange(9)[None] < lengths[:, None]
    cache = Cache()
    with torch.no_grad():
        model(ids[:, :9].masked_fill(~prompt, 0), layout=Padded(prompt), cache=cache)
        rest = model(ids[:, 9:], layout=Padded(torch.ones(3, 5).bool()), cache=cache).last_hidden_state
        for row, n in enumerate(lengths.tolist()):
            text = torch.cat([ids[row, :n], ids[row, 9:]])[None]
            whole = model(text).last_hidden_state[0, n:]
            torch.testing.assert_close(rest[row], whole, atol=1e-10, rtol=0)


def test_a_full_model_differs_from_all_of_them() -> None:
    """That a kind is really built, and not the plain one in its place."""
    ids = torch.randint(5, 60, (1, 31))
    plain = encoder()
    for kind, changes in KINDS.items():
        model = encoder(**changes)
        if kind != "full":
            assert not torch.allclose(model(ids).last_hidden_state, plain(ids).last_hidden_state, atol=1e-3), kind
    assert isinstance(plain.layers[0].attention, SelfAttention)
