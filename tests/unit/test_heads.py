"""Where each family's heads drop out, which no comparison without dropout can see."""

import pytest
import torch

from bertie import families
from bertie.models.encoder import EncoderOutput
from bertie.models.heads import HEADS
from bertie.nn.layout import Padded

PLACES = [  # preset, head, dropout before the head's dense layer, before its last layer (transformers' own classes)
    ("bert-base", "pair", 0.0, 0.0),
    ("bert-base", "sequence", None, 0.1),
    ("bert-base", "choice", None, 0.1),
    ("roberta-base", "sequence", 0.1, 0.1),
    ("roberta-base", "choice", None, 0.1),
    ("albert-base-v2", "pair", None, 0.1),
    ("albert-base-v2", "sequence", None, 0.1),
    ("distilbert-base-uncased", "sequence", 0.0, 0.2),
    ("distilbert-base-uncased", "choice", 0.0, 0.2),
    ("electra-small-discriminator", "sequence", 0.1, 0.1),
    ("electra-small-discriminator", "choice", 0.0, 0.1),
    ("t5-small", "sequence", 0.0, 0.0),
]


@pytest.mark.parametrize(("preset", "name", "first_p", "last_p"), PLACES)
def test_dropout_of_heads_on_sequences(preset, name, first_p, last_p):
    head = HEADS[name](families.config(preset), 3)
    assert head.last_p == last_p
    assert head.dense is None or head.first_p == first_p


@pytest.mark.parametrize(  # of RoBERTa's and BigBird's choice heads `transformers` lets no classifier_dropout speak
    ("preset", "last_p"),
    [
        *(("bert-base", 0.4), ("mobilebert-uncased", 0.4), ("albert-base-v2", 0.4)),
        *(("roberta-base", 0.3), ("xlm-roberta-base", 0.3), ("camembert-base", 0.3), ("longformer-base-4096", 0.3)),
        *(("bigbird-roberta-base", 0.3), ("electra-small-discriminator", 0.1), ("xlnet-base-cased", 0.1)),
    ],
)
def test_which_dropout_a_choice_has(preset, last_p):
    config = families.config(preset, hidden_dropout_prob=0.3, classifier_dropout=0.4)
    assert HEADS["choice"](config, 1).last_p == last_p


@pytest.mark.parametrize(
    ("preset", "token_p", "span_p"),
    [("bert-base", 0.1, 0.0), ("albert-base-v2", 0.1, 0.0), ("distilbert-base-uncased", 0.1, 0.1)],
)
def test_dropout_of_heads_on_tokens(preset, token_p, span_p):
    config = families.config(preset)
    assert HEADS["token"](config, 3).dropout_p == token_p
    assert HEADS["span"](config, 0).dropout_p == span_p


def test_dropout_runs_in_training_alone():
    config = families.config("distilbert-base-uncased", hidden_size=96, sequence_dropout=0.5)
    head = HEADS["sequence"](config, 4)
    output = EncoderOutput(torch.randn(8, 3, 96), Padded(torch.ones(8, 3, dtype=torch.bool)))
    assert not torch.equal(head(output), head(output))
    head.eval()
    assert torch.equal(head(output), head(output))
