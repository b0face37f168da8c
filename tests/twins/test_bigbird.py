"""BigBird against `transformers`, and its blocks against full attention with a block mask."""

from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import parity
import pytest
import torch
import transformers
from torch import Tensor
from transformers.models.big_bird.modeling_big_bird import BigBirdBlockSparseAttention

from bertie.errors import UsageError
from bertie.families.bigbird import BIGBIRD
from bertie.models import families
from bertie.nn.blocks import block_sparse_attention, random_blocks

TINY: dict[str, Any] = {
    **parity.TINY,
    "initializer_range": 0.3,
    "max_position_embeddings": 64,
    "block_size": 2,
    "num_random_blocks": 1,
    "sep_token_id": 3,  # not in the text: in `transformers`, no answer may precede it
}
SPARSE = (22, 9, 16, 1)  # longer than 14 tokens, (5 + 2) blocks, and a multiple of the block


@pytest.mark.parametrize("architecture", BIGBIRD.architectures)
def test_same_numbers(architecture: str, tmp_path: Path) -> None:
    parity.check(architecture, transformers.BigBirdConfig(**TINY), tmp_path, lengths=SPARSE)


@pytest.mark.parametrize(
    "changes",
    [
        {"attention_type": "original_full"},
        {"num_random_blocks": 2, "block_size": 1},
        {"use_bias": False, "rescale_embeddings": True, "initializer_range": 0.1},
        {"hidden_act": "relu", "classifier_dropout": 0.0},
    ],
)
def test_its_own_choices(changes: dict[str, Any], tmp_path: Path) -> None:
    for architecture in ("BigBirdForPreTraining", "BigBirdForSequenceClassification"):
        config = transformers.BigBirdConfig(**TINY | changes)
        parity.check(architecture, config, tmp_path / architecture, lengths=SPARSE)


@pytest.mark.parametrize("lengths", [(31, 29, 2), (28, 3), (5,)])
def test_no_whole_blocks_and_too_few(lengths: tuple[int, ...], tmp_path: Path) -> None:
    """Up to 28 tokens attention is full; there `transformers` shows no attentions, and stays full for good."""
    theirs = transformers.BigBirdModel(transformers.BigBirdConfig(**TINY | {"block_size": 4})).eval()
    theirs.save_pretrained(tmp_path)
    ours, _ = families.load(tmp_path)
    batch = parity.inputs(ours.config, lengths=lengths)
    real = batch["attention_mask"].bool()
    with torch.no_grad():
        mine, other = ours.encoder(**batch, output_attentions=True), theirs(**batch)
    assert (theirs.attention_type == "block_sparse") == (lengths[0] == 31)
    parity.close(mine.last_hidden_state[real], other.last_hidden_state[real], "last_hidden_state")
    assert mine.attentions[0].shape == (len(lengths), 4, lengths[0], lengths[0])


def sees(random_NMR: Tensor, blocks: int, b: int) -> Tensor:
    """How often a token's list of blocks names each token, (N, Q, K): the definition."""
    heads, _, _ = random_NMR.shape
    times = torch.zeros(heads, blocks, blocks)
    times[:, 0] = times[:, -1] = 1
    for i in range(1, blocks - 1):
        for j in {0, i - 1, i, i + 1, blocks - 1}:
            times[:, i, j] += 1
        for head in range(heads):
            for j in random_NMR[head, i - 1].tolist():
                times[head, i, j] += 1
    return times.repeat_interleave(b, 1).repeat_interleave(b, 2)


@pytest.mark.parametrize("seed", [None, 0, 5])
@pytest.mark.parametrize(("blocks", "b", "num_random"), [(10, 3, 2), (6, 2, 0), (8, 1, 1), (14, 4, 3)])
def test_blocks_are_full_attention_with_a_block_mask(blocks: int, b: int, num_random: int, seed: int | None) -> None:
    torch.manual_seed(1)
    length, heads = blocks * b, 3
    chosen = random_blocks(blocks, num_random, heads, block_size=b, max_length=length, seed=seed)
    random_NMR = torch.from_numpy(chosen)
    mask_BS = torch.arange(length)[None] < torch.tensor([length, length - 2 * b - 1, 1])[:, None]
    qkv = torch.randn(3, 3, heads, length, 8, requires_grad=True)
    weights = torch.randn(3, heads, length, 8) * mask_BS[:, None, :, None]

    def plain() -> tuple[Tensor, Tensor]:
        q, k, v = qkv
        times = sees(random_NMR, blocks, b) * mask_BS[:, None, None]
        scores = q @ k.mT / sqrt(8) + times.log()
        probs = scores.softmax(-1)
        return probs @ v, probs / times.clamp_min(1)

    results = []
    for run in (plain, lambda: block_sparse_attention(*qkv, mask_BS, random_NMR, output_attentions=True)):
        qkv.grad = None
        context, probs = run()
        (context * weights).sum().backward()
        real = mask_BS[:, None, :, None]
        results.append([context * real, probs * real, qkv.grad])
    for reference, fast in zip(*results, strict=True):
        parity.close(fast, reference, "block-sparse")


@pytest.mark.parametrize(
    ("length", "max_length", "b", "num_random"),
    [
        (768, 4096, 64, 3),
        (1024, 4096, 64, 3),
        (1600, 4096, 64, 3),
        (2048, 4096, 64, 3),
        (3072, 4096, 64, 3),
        (4096, 4096, 64, 3),
        (1024, 1024, 32, 2),
        (1024, 2048, 16, 4),
        (30, 64, 2, 1),
        (32, 64, 1, 9),
    ],
)
def test_random_blocks_are_those_of_transformers(length: int, max_length: int, b: int, num_random: int) -> None:
    config = transformers.BigBirdConfig(
        max_position_embeddings=max_length, block_size=b, num_random_blocks=num_random, num_attention_heads=4
    )
    module = BigBirdBlockSparseAttention(config)
    for seed in (0, 11):
        np.random.seed(seed)
        if length in (1024, 3072, 4096):
            draw = lambda: module._bigbird_block_rand_mask(max_length, max_length, b, b, num_random, last_idx=1024)  # noqa: E731
            theirs = [draw()[: length // b - 2] for _ in range(4)]
        else:
            ends, shares = module._get_rand_attn_plan(length, b, num_random)
            theirs = module._bigbird_block_rand_mask_with_head(length, length, b, b, 4, ends, shares)
        state = np.random.get_state()[1].copy()
        ours = random_blocks(length // b, num_random, 4, block_size=b, max_length=max_length, seed=seed)
        np.testing.assert_array_equal(ours, np.stack(theirs))
        np.testing.assert_array_equal(np.random.get_state()[1], state)  # nobody else's draws change


def test_blocks_too_few_to_draw_from_are_named() -> None:
    with pytest.raises(UsageError, match="Choose smaller blocks"):
        random_blocks(16, 3, 2, block_size=256, max_length=4096, seed=0)


def test_sizes() -> None:
    """As `transformers` counts the published models."""
    assert parity.parameters("bigbird-roberta-base") == 127_468_800
    assert parity.parameters("bigbird-roberta-large") == 359_123_968


def test_published_names() -> None:
    """google/bigbird-roberta-base: BERT's names but for the pooler's, as `transformers`' conversion writes them."""
    layer = {
        **{k: v for p in ("query", "key", "value") for k, v in parity.both(f"attention.self.{p}", 768, 768).items()},
        **parity.both("attention.output.dense", 768, 768),
        **parity.both("attention.output.LayerNorm", 768),
        **parity.both("intermediate.dense", 3072, 768),
        **parity.both("output.dense", 768, 3072),
        **parity.both("output.LayerNorm", 768),
    }
    recorded = {
        "bert.embeddings.position_ids": (1, 4096),
        "bert.embeddings.word_embeddings.weight": (50_358, 768),
        "bert.embeddings.position_embeddings.weight": (4096, 768),
        "bert.embeddings.token_type_embeddings.weight": (2, 768),
        **parity.both("bert.embeddings.LayerNorm", 768),
        **{f"bert.encoder.layer.{i}.{name}": shape for i in range(12) for name, shape in layer.items()},
        **parity.both("bert.pooler", 768, 768),
        **parity.both("cls.predictions.transform.dense", 768, 768),
        **parity.both("cls.predictions.transform.LayerNorm", 768),
        **parity.both("cls.predictions.decoder", 50_358, 768),
        "cls.predictions.bias": (50_358,),
        **parity.both("cls.seq_relationship", 2, 768),
    }
    parity.published("big_bird", "bigbird-roberta-base", ("mlm", "pair"), recorded, pooler=True)
