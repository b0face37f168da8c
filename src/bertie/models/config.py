"""`EncoderConfig`: everything that makes one encoder differ from another, as values. Imports no torch.

Positions, attention, layers and weight sharing have several kinds (models/kinds.py, which has the sizes too). Each kind
has its own settings, so settings without an effect cannot be written. Overrides and files use flat names
(models/flat.py). The cost of a config is computed without building the model. A family is a set of these values
(families/).
"""

from dataclasses import dataclass, field, fields
from typing import ClassVar, Literal, Self

from bertie.errors import DataError, UsageError
from bertie.models import flat
from bertie.models.head_config import HeadConfigs
from bertie.models.kinds import (
    MAX_SETTING,
    MOST_LAYERS,
    Alibi,
    Alternating,
    Disentangled,
    EncoderShape,
    Full,
    LearnedRelative,
    Relative,
    Residual,
    Rotary,
    Tokens,
    within,
)

ENCODER_CHOICES = (  # what `Encoder` reads, and an encoder of another build does not
    *("positions", "attention", "layer", "sharing", "inputs", "causal", "norm_type", "pooler_dense"),
    "max_position_embeddings",
    *("project_embeddings", "trigram_embeddings", "rescale_embeddings", "embedding_norm", "embedding_dropout"),
    *("dropout_before_norm", "num_decoder_layers"),
)
DROPOUTS = ("hidden_dropout_prob", "attention_probs_dropout_prob", "embedding_dropout", "classifier_dropout")


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(EncoderShape):
    """The shape and the variant of an encoder. The defaults are BERT-base uncased (Devlin et al. 2018, section 3).

    Example:
        >>> shape = bertie.EncoderConfig(hidden_size=128, num_attention_heads=2, intermediate_size=512)
        >>> shape.replace(num_hidden_layers=4).num_hidden_layers
        4
    """

    unread: ClassVar[frozenset[str]] = frozenset()
    """Fields that this kind of encoder does not use. They cannot be changed."""

    norm_type: Literal["layer", "rms", "affine", "unbiased"] = "layer"
    """affine: a scale and a shift of each feature (MobileBERT); unbiased: layer norm without a shift."""
    pooler: bool = True
    pooler_dense: bool = True  # False: the first token's vector as it is (MobileBERT)
    # embeddings
    embedding_size: int | None = None  # None: hidden_size; smaller: factorized embeddings (ALBERT, ELECTRA)
    project_embeddings: bool = False  # even where embedding_size is hidden_size (ALBERT)
    trigram_embeddings: bool = False  # a token's vector is made from its neighbors' too; positions are not narrow
    rescale_embeddings: bool = False  # token vectors by the root of hidden_size
    embedding_norm: bool = True
    embedding_dropout: float | None = None  # None: hidden_dropout_prob
    dropout_before_norm: bool = False  # of the embeddings
    # special tokens
    sep_token_id: int = 102  # ends the question, which all tokens see where attention is windowed
    eos_token_id: int | None = None  # ends what a model writes
    # an encoder-decoder model
    num_decoder_layers: int | None = None
    decoder_start_token_id: int = 0
    heads: HeadConfigs = field(default=HeadConfigs())
    """Settings of the heads that differ from BERT's."""

    def __post_init__(self) -> None:
        sizes = ("vocab_size", "hidden_size", "num_attention_heads", "intermediate_size", "max_position_embeddings")
        for name in sizes:
            within(name, getattr(self, name), 1, MAX_SETTING)
        for name in ("type_vocab_size", "pad_token_id", "sep_token_id", "decoder_start_token_id"):
            within(name, getattr(self, name), 0, MAX_SETTING)
        within("eos_token_id", self.eos_token_id or 0, 0, MAX_SETTING)
        within("num_decoder_layers", self.num_decoder_layers or 0, 0, MOST_LAYERS)
        within("num_hidden_layers", self.num_hidden_layers, 0, MOST_LAYERS)
        within("embedding_size", 1 if self.embedding_size is None else self.embedding_size, 1, MAX_SETTING)
        for name in DROPOUTS:
            within(name, getattr(self, name) or 0.0, 0.0, 0.999)
        for name in ("initializer_range", "layer_norm_eps"):
            within(name, getattr(self, name), 0.0, 10.0)
        for kind in (self.layer, self.positions, self.attention, self.sharing, self.inputs):
            kind.check(self)
        if not (self.plain_embeddings or isinstance(self.inputs, Tokens)):
            raise DataError(f"inputs={self.inputs.kind} needs embeddings as wide as hidden_size, as BERT has.")
        if self.trigram_embeddings and self.causal:
            raise DataError("trigram_embeddings reads the next token, which causal=true hides. Omit one of them.")
        plain = (self.layer.norm, self.attention, self.embedding_size) == ("pre", Full(), None)
        plain = plain and not isinstance(self.positions, Disentangled | Rotary | Alibi)
        if self.num_decoder_layers is not None and not plain:
            raise DataError(
                "A decoder (num_decoder_layers) needs norm=pre, attention=full and embedding_size=null, as T5 has, "
                "and no positions=disentangled, rotary or alibi."
            )
        if self.heads.mlm.mlm_widened and (self.embedding_size or 1) > self.hidden_size:
            raise DataError(
                f"embedding_size is {self.embedding_size} and hidden_size {self.hidden_size}; with mlm_widened, "
                "embeddings can be at most as wide as hidden states."
            )
        if self.heads.label.label_lstm and (self.hidden_size % 2 or self.heads.label.label_pooling == "cls_layers"):
            raise DataError("label_lstm needs an even hidden_size, and a label_pooling other than cls_layers.")
        if self.heads.label.label_pooling == "attention" and self.hidden_size % self.num_attention_heads:
            raise DataError(
                f"label_pooling=attention needs a hidden_size that num_attention_heads divides: {self.hidden_size} and "
                f"{self.num_attention_heads}."
            )
        for one in fields(self):
            if one.name in self.unread and getattr(self, one.name) != one.default:
                raise UsageError(f"{one.name} has no effect in {type(self).__name__.removesuffix('Config')}. Omit it.")

    def replace(self, **changes: object) -> Self:
        """Returns the same config with some fields changed, by their flat names (models/flat.py).

        Raises:
            UsageError: A field is unknown or does not apply to this config, or a value has the wrong type.
            DataError: A value is out of range.
        """
        return flat.changed(self, changes)

    def flat(self) -> dict[str, object]:
        """Returns every field by its flat name. A kind is its name and its settings."""
        return flat.flatten_config(self)

    def get(self, name: str, default: object = None) -> object:
        """Returns a field by its flat name, or the default where this config's kinds have no such setting."""
        return self.flat().get(name, default)

    @property
    def plain_embeddings(self) -> bool:
        """Whether a token's embedding is a sum of vectors of hidden_size, without a projection."""
        narrow = self.embedding_size not in (None, self.hidden_size)
        return not (narrow or self.project_embeddings or self.trigram_embeddings)

    @property
    def feature_size(self) -> int | None:
        """Numbers of a feature vector; None for a model that reads only tokens."""
        return self.inputs.feature_size

    @property
    def max_together(self) -> int | None:
        """Maximum number of tokens and feature vectors of a sequence together; None: vectors have no positions."""
        return self.max_length

    @property
    def summary_last(self) -> bool:
        """Whether the last token represents a sequence, not the first: in a causal model, only it has seen all."""
        return self.causal

    @property
    def attends_to_all(self) -> bool:
        """Whether in some layers every token sees all of its sequence, near or far alike, by `SelfAttention`."""
        plain = isinstance(self.attention, Full | Alternating) and isinstance(self.layer, Residual)
        return plain and not (
            self.causal or isinstance(self.positions, Relative | LearnedRelative | Disentangled | Alibi)
        )
