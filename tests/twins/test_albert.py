"""ALBERT against `transformers`."""

from pathlib import Path
from typing import Any

import parity
import pytest
import transformers

from bertie.families.albert import ALBERT

TINY: dict[str, Any] = {**parity.TINY, "embedding_size": 16, "classifier_dropout_prob": 0.0}


@pytest.mark.parametrize("architecture", ALBERT.architectures)
def test_same_numbers(architecture: str, tmp_path: Path) -> None:
    parity.check(architecture, transformers.AlbertConfig(**TINY), tmp_path)


@pytest.mark.parametrize(("layers", "groups", "inner"), [(6, 2, 1), (5, 3, 1), (4, 2, 2), (1, 1, 3)])
def test_groups_of_shared_layers(layers: int, groups: int, inner: int, tmp_path: Path) -> None:
    shape = {**TINY, "num_hidden_layers": layers, "num_hidden_groups": groups, "inner_group_num": inner}
    shape |= {"embedding_size": 32}  # as wide as the layers, and projected all the same
    model = parity.check("AlbertForPreTraining", transformers.AlbertConfig(**shape), tmp_path)
    assert [len(group) for group in model.encoder.layers] == [inner] * groups


def test_sizes() -> None:
    """As `transformers` counts the published models."""
    assert parity.parameters("albert-base-v2") == 11_683_584
    assert parity.parameters("albert-large-v2") == 17_683_968
    assert parity.parameters("albert-xlarge-v2") == 58_724_864
    assert parity.parameters("albert-xxlarge-v2") == 222_595_584


def test_published_names() -> None:
    """albert-base-v2: names of its file as `transformers`' conversion from TensorFlow wrote them."""
    layer = {
        **{
            k: v for p in ("query", "key", "value", "dense") for k, v in parity.both(f"attention.{p}", 768, 768).items()
        },
        **parity.both("attention.LayerNorm", 768),
        **parity.both("ffn", 3072, 768),
        **parity.both("ffn_output", 768, 3072),
        **parity.both("full_layer_layer_norm", 768),
    }
    recorded = {
        "albert.embeddings.position_ids": (1, 512),
        "albert.embeddings.word_embeddings.weight": (30_000, 128),
        "albert.embeddings.position_embeddings.weight": (512, 128),
        "albert.embeddings.token_type_embeddings.weight": (2, 128),
        **parity.both("albert.embeddings.LayerNorm", 128),
        **parity.both("albert.encoder.embedding_hidden_mapping_in", 768, 128),
        **{f"albert.encoder.albert_layer_groups.0.albert_layers.0.{name}": shape for name, shape in layer.items()},
        **parity.both("albert.pooler", 768, 768),
        "predictions.bias": (30_000,),
        **parity.both("predictions.dense", 128, 768),
        **parity.both("predictions.LayerNorm", 128),
        **parity.both("predictions.decoder", 30_000, 128),
    }
    parity.published("albert", "albert-base-v2", ("mlm",), recorded, pooler=True)
