"""Heads: from the output of the encoder to logits. One file per head or group of heads, and this table.

    HEADS["sequence"](config, num_labels=3)(output)

A new head is one file and one row: docs/add-a-head.md.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import nn

from bertie.models.config import EncoderConfig
from bertie.models.head_config import FEATURES_PREFIX as PREFIX
from bertie.models.heads.base import Head, Needs
from bertie.models.heads.bilm import BiLMHead
from bertie.models.heads.decoder import Decoder
from bertie.models.heads.features import FEATURES, FeatureHead
from bertie.models.heads.parse import ParseHead
from bertie.models.heads.sequence import ChoiceHead, PairHead, SequenceHead, sequence_head
from bertie.models.heads.span import SpanHead
from bertie.models.heads.token import ReplacedTokenHead, TokenHead
from bertie.models.heads.vocabulary import (
    MaskedLMHead,
    NextTokenHead,
    PermutationLMHead,
    VocabularyHead,
    next_token_head,
)
from bertie.registry import Registry

__all__ = [
    "HEADS",
    "BiLMHead",
    "ChoiceHead",
    "Decoder",
    "FeatureHead",
    "Head",
    "HeadSpec",
    "MaskedLMHead",
    "Needs",
    "NextTokenHead",
    "PairHead",
    "ParseHead",
    "PermutationLMHead",
    "ReplacedTokenHead",
    "SequenceHead",
    "SpanHead",
    "TokenHead",
    "VocabularyHead",
    "labelled",
    "own_classes",
]

POOLS, READS = ("label_pooling",), ("label_lstm",)


@dataclass(frozen=True)
class HeadSpec:
    """A row of the table of heads."""

    make: Callable[[EncoderConfig, int], nn.Module]  # a `Head`, but for the decoder
    labelled: bool = False  # its outputs have names in config.json
    pipeline: str | None = None  # what a model card calls a model that has it
    own_class: str | None = None  # what config.json names where no public class has such a head
    settings: tuple[str, ...] = ()  # of `LabelConfig`, those that it follows

    def __call__(self, config: EncoderConfig, num_labels: int = 0) -> nn.Module:
        """Returns a new head."""
        return self.make(config, num_labels)


HEADS: Registry[HeadSpec] = Registry(
    "head",
    [  # of the heads a model has, the first in this order says what the model is for
        ("sequence", HeadSpec(sequence_head, labelled=True, pipeline="text-classification", settings=(*POOLS, *READS))),
        ("token", HeadSpec(TokenHead, labelled=True, pipeline="token-classification", settings=READS)),
        ("span", HeadSpec(SpanHead, pipeline="question-answering", settings=READS)),
        ("choice", HeadSpec(ChoiceHead, pipeline="multiple-choice", settings=(*POOLS, *READS))),
        ("mlm", HeadSpec(MaskedLMHead, pipeline="fill-mask")),
        ("decoder", HeadSpec(Decoder, pipeline="text2text-generation")),
        ("lm", HeadSpec(next_token_head, pipeline="text-generation")),
        ("plm", HeadSpec(PermutationLMHead, pipeline="text-generation")),
        ("bilm", HeadSpec(BiLMHead)),
        ("rtd", HeadSpec(ReplacedTokenHead, own_class="BertieReplacedTokens")),
        ("pair", HeadSpec(PairHead)),
        ("parse", HeadSpec(ParseHead, labelled=True, own_class="BertieParser")),
        *(
            (
                f"{PREFIX}{kind}",
                HeadSpec(partial(FeatureHead, kind=kind), labelled=True, own_class=f"BertieFeatures:{kind}"),
            )
            for kind in FEATURES
        ),
    ],
    group="bertie.heads",
)


def labelled() -> tuple[str, ...]:
    """Returns the heads whose outputs have names in config.json."""
    return tuple(name for name, row in HEADS.items() if row.labelled)


def own_classes() -> dict[str, tuple[str, ...]]:
    """Returns the heads that only Bertie has: the class name in config.json -> the head."""
    return {row.own_class: (name,) for name, row in HEADS.items() if row.own_class}
