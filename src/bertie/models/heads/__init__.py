"""Heads: from the output of the encoder to logits. One file per head or group of heads, and this table.

    HEADS["sequence"](config, num_labels=3)(output)

A new head is one file and one row: docs/add-a-head.md. The table imports no torch; making a head does.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from bertie.models.config import EncoderConfig
from bertie.models.head_config import FEATURES_PREFIX, FeatureKind
from bertie.registry import Later, Registry

if TYPE_CHECKING:
    from torch import nn

    Make = Callable[[EncoderConfig, int], nn.Module]

POOLS, READS = ("label_pooling",), ("label_lstm",)


@dataclass(frozen=True)
class HeadSpec:
    """A row of the table of heads."""

    make: "Make"  # of a `Head`, but for the decoder
    labelled: bool = False  # its outputs have names in config.json
    pipeline: str | None = None  # what a model card calls a model that has it
    own_class: str | None = None  # what config.json names where no public class has such a head
    settings: tuple[str, ...] = ()  # of `LabelConfig`, those that it follows

    def __call__(self, config: EncoderConfig, num_labels: int = 0) -> "nn.Module":
        """Returns a new head."""
        return self.make(config, num_labels)


def _later(module: str, name: str, **options: str) -> "Make":
    """Returns what makes a head. Its module, of this folder, is imported when it is called."""
    kind = Later["Callable[..., nn.Module]"](f"{__name__}.{module}", name)
    return lambda config, num_labels: kind.found()(config, num_labels, **options)


HEADS: Registry[HeadSpec] = Registry(
    "head",
    [  # of the heads a model has, the first in this order says what the model is for
        (
            "sequence",
            HeadSpec(
                _later("sequence", "sequence_head"),
                labelled=True,
                pipeline="text-classification",
                settings=(*POOLS, *READS),
            ),
        ),
        (
            "token",
            HeadSpec(_later("token", "TokenHead"), labelled=True, pipeline="token-classification", settings=READS),
        ),
        ("span", HeadSpec(_later("token", "SpanHead"), pipeline="question-answering", settings=READS)),
        ("choice", HeadSpec(_later("sequence", "ChoiceHead"), pipeline="multiple-choice", settings=(*POOLS, *READS))),
        ("mlm", HeadSpec(_later("vocabulary", "MaskedLMHead"), pipeline="fill-mask")),
        ("decoder", HeadSpec(_later("decoder", "Decoder"), pipeline="text2text-generation")),
        ("lm", HeadSpec(_later("vocabulary", "next_token_head"), pipeline="text-generation")),
        ("plm", HeadSpec(_later("vocabulary", "PermutationLMHead"), pipeline="text-generation")),
        ("bilm", HeadSpec(_later("vocabulary", "BiLMHead"))),
        ("rtd", HeadSpec(_later("token", "ReplacedTokenHead"), own_class="BertieReplacedTokens")),
        ("pair", HeadSpec(_later("sequence", "PairHead"))),
        ("parse", HeadSpec(_later("token", "ParseHead"), labelled=True, own_class="BertieParser")),
        *(
            (
                f"{FEATURES_PREFIX}{kind}",
                HeadSpec(
                    _later("features", "FeatureHead", kind=kind), labelled=True, own_class=f"BertieFeatures:{kind}"
                ),
            )
            for kind in get_args(FeatureKind)
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
