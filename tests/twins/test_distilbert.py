"""DistilBERT against `transformers`."""

from pathlib import Path
from typing import Any

import parity
import pytest
import torch
import transformers

from bertie.families.distilbert import DISTILBERT
from bertie.models import families
from bertie.nn.layout import Padded


def tiny(**changes: Any) -> transformers.DistilBertConfig:
    return transformers.DistilBertConfig(
        **{
            "vocab_size": 99,
            "dim": 32,
            "n_layers": 3,
            "n_heads": 4,
            "hidden_dim": 48,
            "dropout": 0.0,
            "attention_dropout": 0.0,
            "seq_classif_dropout": 0.0,
            "qa_dropout": 0.0,
            "max_position_embeddings": 20,
            "initializer_range": 0.1,
        }
        | changes
    )


@pytest.mark.parametrize("architecture", DISTILBERT.architectures)
def test_same_numbers(architecture: str, tmp_path: Path) -> None:
    parity.check(architecture, tiny(), tmp_path)


def test_its_own_keys(tmp_path: Path) -> None:
    names = tiny(activation="relu", dropout=0.3, attention_dropout=0.2, seq_classif_dropout=0.4, qa_dropout=0.25)
    names.save_pretrained(tmp_path)
    config = families.config(tmp_path)
    assert (config.hidden_act, config.hidden_dropout_prob, config.attention_probs_dropout_prob) == ("relu", 0.3, 0.2)
    assert (config.get("sequence_dropout"), config.get("span_dropout"), config.type_vocab_size) == (0.4, 0.25, 0)


def test_sizes() -> None:
    """As `transformers` counts the published models."""
    assert parity.parameters("distilbert-base-uncased") == 66_362_880
    assert parity.parameters("distilbert-base-cased") == 65_190_912
    assert parity.parameters("distilbert-base-multilingual-cased") == 134_734_080


def test_published_names() -> None:
    """distilbert-base-uncased: names of its file as `transformers` writes them, the tied projector twice."""
    layer = {
        **{k: v for p in "qkv" for k, v in parity.both(f"attention.{p}_lin", 768, 768).items()},
        **parity.both("attention.out_lin", 768, 768),
        **parity.both("sa_layer_norm", 768),
        **parity.both("ffn.lin1", 3072, 768),
        **parity.both("ffn.lin2", 768, 3072),
        **parity.both("output_layer_norm", 768),
    }
    recorded = {
        "distilbert.embeddings.word_embeddings.weight": (30_522, 768),
        "distilbert.embeddings.position_embeddings.weight": (512, 768),
        **parity.both("distilbert.embeddings.LayerNorm", 768),
        **{f"distilbert.transformer.layer.{i}.{name}": shape for i in range(6) for name, shape in layer.items()},
        **parity.both("vocab_transform", 768, 768),
        **parity.both("vocab_layer_norm", 768),
        **parity.both("vocab_projector", 30_522, 768),
    }
    parity.published("distilbert", "distilbert-base-uncased", ("mlm",), recorded, pooler=False)


def test_dropout_stands_where_the_release_has_it() -> None:
    """After the feed-forward network and the embeddings, not after attention."""
    config = families.config("distilbert-base-uncased", vocab_size=99, hidden_size=32, num_attention_heads=4)
    config = config.replace(num_hidden_layers=1, hidden_dropout_prob=0.5, attention_probs_dropout_prob=0.0)
    layer = families.build(config, variant="distilbert").encoder.layers[0]
    hidden, layout = torch.randn(2, 5, 32), Padded.of(torch.ones(2, 5, dtype=torch.long), None)

    def halves(training: bool) -> tuple[torch.Tensor, torch.Tensor]:
        layer.train(training)
        attended, _ = layer.attend(hidden, layout, None, cache=None, output_attentions=False)
        return attended, layer.feed_forward(hidden)

    (attended, fed), (attended_in_training, fed_in_training) = map(halves, (False, True))
    torch.testing.assert_close(attended_in_training, attended)
    assert not torch.allclose(fed_in_training, fed)
