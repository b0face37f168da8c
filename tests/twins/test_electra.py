"""ELECTRA against `transformers`, and its generator and discriminator together."""

from pathlib import Path

import parity
import pytest
import torch
import transformers

from bertie.errors import UsageError
from bertie.families.electra import ELECTRA
from bertie.models import families
from bertie.models.heads import HEADS
from bertie.objectives.rtd import tie_embeddings


@pytest.mark.parametrize("architecture", ELECTRA.architectures)
@pytest.mark.parametrize("embedding_size", [16, 32])
def test_same_numbers(architecture: str, embedding_size: int, tmp_path: Path) -> None:
    config = transformers.ElectraConfig(**parity.TINY, embedding_size=embedding_size, summary_last_dropout=0.0)
    parity.check(architecture, config, tmp_path)


def test_generator_and_discriminator_share_embeddings(tmp_path: Path) -> None:
    small = ELECTRA.base.replace(vocab_size=99, hidden_size=32, embedding_size=16, num_hidden_layers=2)
    make = {name: lambda config, name=name: {name: HEADS[name](config, 0)} for name in ("mlm", "rtd")}
    generator = families.build(
        small.replace(hidden_size=16, num_attention_heads=1), heads=make["mlm"], variant="electra", seed=1
    )
    discriminator = families.build(small, heads=make["rtd"], variant="electra", seed=2)
    tie_embeddings(generator.encoder, discriminator.encoder)
    batch = parity.inputs(small)
    generator(**batch)["mlm"].sum().backward()
    word = discriminator.encoder.embeddings.word.weight
    assert word.grad is not None
    assert word.grad.abs().sum() > 0
    assert generator.word_embeddings is word
    generator.save_pretrained(tmp_path)
    again, report = families.load(tmp_path)
    assert not report.fresh
    assert torch.equal(again.word_embeddings, word)


def test_embeddings_of_two_shapes_are_not_shared() -> None:
    small = ELECTRA.base.replace(vocab_size=99, num_hidden_layers=0)
    with pytest.raises(UsageError, match="embedding_size"):
        tie_embeddings(
            families.build(small.replace(embedding_size=64), variant="electra").encoder,
            families.build(small, variant="electra").encoder,
        )


def test_sizes() -> None:
    """As `transformers` counts the published models, without heads."""
    assert parity.parameters("electra-small-discriminator") == 13_483_008
    assert parity.parameters("electra-base-discriminator") == 108_891_648
    assert parity.parameters("electra-large-discriminator") == 334_092_288


def recorded() -> dict[str, tuple[int, ...]]:
    """What google/electra-small-generator and -discriminator have in common, as their files name it."""
    layer = {
        **{k: v for p in ("query", "key", "value") for k, v in parity.both(f"attention.self.{p}", 256, 256).items()},
        **parity.both("attention.output.dense", 256, 256),
        **parity.both("attention.output.LayerNorm", 256),
        **parity.both("intermediate.dense", 1024, 256),
        **parity.both("output.dense", 256, 1024),
        **parity.both("output.LayerNorm", 256),
    }
    return {
        "electra.embeddings.position_ids": (1, 512),
        "electra.embeddings.word_embeddings.weight": (30_522, 128),
        "electra.embeddings.position_embeddings.weight": (512, 128),
        "electra.embeddings.token_type_embeddings.weight": (2, 128),
        **parity.both("electra.embeddings.LayerNorm", 128),
        **parity.both("electra.embeddings_project", 256, 128),
        **{f"electra.encoder.layer.{i}.{name}": shape for i in range(12) for name, shape in layer.items()},
    }


def test_published_names() -> None:
    generator = {
        **recorded(),
        **parity.both("generator_predictions.LayerNorm", 128),
        **parity.both("generator_predictions.dense", 128, 256),
        **parity.both("generator_lm_head", 30_522, 128),
    }
    discriminator = {
        **recorded(),
        **parity.both("discriminator_predictions.dense", 256, 256),
        **parity.both("discriminator_predictions.dense_prediction", 1, 256),
    }
    parity.published("electra", "electra-small-generator", ("mlm",), generator, pooler=False)
    parity.published("electra", "electra-small-discriminator", ("rtd",), discriminator, pooler=False)
