"""What differs between the heads of families, one small config a head. Imports no torch.

A family states only what it does in another way than BERT (`HeadConfigs` in its file); config.json holds the settings
under the public names. No two have a setting of the same name, nor of one that a kind has (models/kinds.py), so that
overrides and files stay flat: `mlm_act=relu`. A head that is the same in every family needs none.
"""

from dataclasses import dataclass
from typing import Literal

from bertie.models.kinds import Activation, within

Rows = Literal["token", "sequence", "place"]
"""What a row of an array answers for: each token, each sequence, or each place that was asked."""
FEATURES = "features_"
"""What the names of heads begin with that read the features of a frozen encoder."""
HeadActivation = Literal["gelu", "gelu_tanh", "relu", "silu", "tanh", "hidden_act"]
"""Of a dense layer before the classifier; "hidden_act": that of the encoder's layers."""


@dataclass(frozen=True, kw_only=True)
class MaskedLMConfig:
    """The masked-LM head."""

    mlm_act: Activation | None = None
    """None: hidden_act."""
    mlm_widened: bool = False
    """The decoder has columns of its own beside narrow word embeddings (MobileBERT)."""


@dataclass(frozen=True, kw_only=True)
class NextTokenConfig:
    """The next-token head."""

    lm_transform: bool = True
    """It is built as the masked-LM head; False: a matrix alone (GPT, T5)."""
    lm_tied: bool = True
    """That matrix is the word embeddings."""
    lm_scale: bool = False
    """Hidden states are first divided by the root of hidden_size (T5)."""


@dataclass(frozen=True, kw_only=True)
class PairConfig:
    """The head on two segments."""

    pair_dropout: bool = False
    """Whether its input is dropped out, as a classifier's is (ALBERT)."""


@dataclass(frozen=True, kw_only=True)
class SequenceConfig:
    """The head on whole sequences."""

    sequence_act: HeadActivation | None = None
    """Of a dense layer on the sequence's token; None: the pooler is read."""
    sequence_matrix_only: bool = False
    """No dense layer, pooler, bias or dropout: a matrix on the sequence's token (GPT)."""
    sequence_input_dropout: bool = True
    """Before the dense layer too."""
    sequence_dropout: float | None = None
    """None: classifier_dropout."""

    def __post_init__(self) -> None:
        within("sequence_dropout", self.sequence_dropout or 0.0, 0.0, 0.999)


@dataclass(frozen=True, kw_only=True)
class ChoiceConfig:
    """The head on the choices of a question."""

    choice_act: HeadActivation | None = None
    """As sequence_act."""
    choice_dropout: float | None = None
    """None: as of the sequence head."""
    choice_drops_hidden: bool = False
    """It is hidden_dropout_prob, whatever classifiers have (RoBERTa)."""

    def __post_init__(self) -> None:
        within("choice_dropout", self.choice_dropout or 0.0, 0.0, 0.999)


@dataclass(frozen=True, kw_only=True)
class SpanConfig:
    """The head on answers in a text."""

    span_dropout: float = 0.0
    span_layer: bool = False
    """A feed-forward layer of its own (BigBird)."""

    def __post_init__(self) -> None:
        within("span_dropout", self.span_dropout, 0.0, 0.999)


@dataclass(frozen=True, kw_only=True)
class HeadConfigs:
    """The configs of all heads that have one; the defaults are BERT's."""

    mlm: MaskedLMConfig = MaskedLMConfig()
    lm: NextTokenConfig = NextTokenConfig()
    pair: PairConfig = PairConfig()
    sequence: SequenceConfig = SequenceConfig()
    choice: ChoiceConfig = ChoiceConfig()
    span: SpanConfig = SpanConfig()
