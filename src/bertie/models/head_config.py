"""The settings of heads that differ between families, one small config per head. Imports no torch.

A family has only the settings that differ from BERT's (`HeadConfigs` in its file). config.json has the settings under
their public names. All settings have different names, also from those of kinds (models/kinds.py), so that overrides and
files are flat: `mlm_act=relu`. A head that is the same in every family has no config.
"""

from dataclasses import dataclass
from typing import Literal

from bertie.models.kinds import Activation, within

RowUnit = Literal["token", "sequence", "position"]
"""The unit of a row of an array: each token, each sequence, or each requested position."""
FEATURES_PREFIX = "features_"
"""The prefix of the names of heads that read the features of a frozen encoder."""
FeatureKind = Literal["embeddings", "second_to_last", "last", "weighted_last_four", "concat_last_four", "weighted_all"]
"""The layers that such a head reads: FEATURES of models/heads/features.py."""
HeadActivation = Literal["gelu", "gelu_tanh", "relu", "silu", "tanh", "hidden_act"]
"""The activation of a dense layer before the classifier; "hidden_act" is that of the encoder's layers."""


@dataclass(frozen=True, kw_only=True)
class MaskedLMConfig:
    """Settings of the masked-LM head."""

    mlm_act: Activation | None = None
    """None: hidden_act."""
    mlm_biases: bool = True
    """Of its dense layer and its norm."""
    mlm_tied: bool = True
    """The decoder is the word embeddings; False: a matrix of its own."""
    mlm_widened: bool = False
    """Whether the decoder has its own columns in addition to narrow word embeddings (MobileBERT)."""


@dataclass(frozen=True, kw_only=True)
class NextTokenConfig:
    """Settings of the next-token head."""

    lm_transform: bool = True
    """Whether the head is built as the masked-LM head. Otherwise it is only a matrix (GPT, T5)."""
    lm_tied: bool = True
    """Whether that matrix is the word embeddings."""
    lm_scale: bool = False
    """Whether hidden states are first divided by the square root of hidden_size (T5)."""


Pooled = Literal["cls", "first", "mean", "max", "last", "cls_layers", "attention"]
"""What of a sequence a label is read from."""


@dataclass(frozen=True, kw_only=True)
class LabelConfig:
    """Settings that classification heads share."""

    label_pooling: Pooled = "cls"
    """What heads on sequences read. cls: the first token, through the pooler where the family has one; first: without
    it. cls_layers: the largest values of the first token in the last label_layers layers; attention: what the first
    token attends to, in a layer of the head's own (Behrendt et al. 2025, MaxPoolBERT)."""
    label_layers: int = 3
    label_transform: HeadActivation | None = None
    """The activation between a dense layer and a norm, both without biases, before the classifier (ModernBERT)."""
    label_lstm: int = 0
    """Layers of a bidirectional LSTM between the encoder and the classifier, with half of hidden_size units in each
    direction. Label pooling "cls" then reads the first token without the pooler. Devlin et al. 2018, 5.1."""

    def __post_init__(self) -> None:
        within("label_layers", self.label_layers, 1, 10_000)
        within("label_lstm", self.label_lstm, 0, 100)


@dataclass(frozen=True, kw_only=True)
class PairConfig:
    """Settings of the head for sentence pairs."""

    pair_dropout: bool = False
    """Whether its input has dropout, as that of a classifier (ALBERT)."""


@dataclass(frozen=True, kw_only=True)
class SequenceConfig:
    """Settings of the sequence classification head."""

    sequence_act: HeadActivation | None = None
    """Activation of a dense layer on the sequence's token. Not set: the head reads the pooler."""
    sequence_matrix_only: bool = False
    """Whether the head is only a matrix, without dense layer, pooler, bias and dropout (GPT)."""
    sequence_mlp: bool = False
    """Whether a dense layer of twice the size, GELU and a norm precede the classifier (ViLBERT, LXMERT)."""
    sequence_input_dropout: bool = True
    """Whether dropout is applied before the dense layer too."""
    sequence_dropout: float | None = None
    """Dropout probability. Not set: classifier_dropout."""

    def __post_init__(self) -> None:
        within("sequence_dropout", self.sequence_dropout or 0.0, 0.0, 0.999)


@dataclass(frozen=True, kw_only=True)
class ChoiceConfig:
    """Settings of the multiple-choice head."""

    choice_act: HeadActivation | None = None
    """Activation, as sequence_act."""
    choice_dropout: float | None = None
    """Dropout probability. Not set: that of the sequence head."""
    choice_drops_hidden: bool = False
    """Whether dropout is hidden_dropout_prob, independent of classifier_dropout (RoBERTa)."""

    def __post_init__(self) -> None:
        within("choice_dropout", self.choice_dropout or 0.0, 0.0, 0.999)


@dataclass(frozen=True, kw_only=True)
class SpanConfig:
    """Settings of the question answering head."""

    span_dropout: float | None = 0.0
    """None: classifier_dropout."""
    span_layer: bool = False
    """Whether the head has a feed-forward layer (BigBird)."""

    def __post_init__(self) -> None:
        within("span_dropout", self.span_dropout or 0.0, 0.0, 0.999)


@dataclass(frozen=True, kw_only=True)
class HeadConfigs:
    """The configs of all heads that have one. The defaults are BERT's."""

    mlm: MaskedLMConfig = MaskedLMConfig()
    lm: NextTokenConfig = NextTokenConfig()
    label: LabelConfig = LabelConfig()
    pair: PairConfig = PairConfig()
    sequence: SequenceConfig = SequenceConfig()
    choice: ChoiceConfig = ChoiceConfig()
    span: SpanConfig = SpanConfig()
