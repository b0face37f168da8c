"""`EncoderConfig`: everything that makes one encoder differ from another, as values. Imports no torch.

The planner prices a config without building it; a family is a set of these values (variants/).
"""

from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from bertie.errors import DataError, UsageError, nearest

Activation = Literal["gelu", "gelu_tanh", "relu", "silu"]
HeadActivation = Literal["gelu", "gelu_tanh", "relu", "silu", "tanh"]
MOST = 2**28  # of anything; whoever asks for more has a damaged file, and a product of two still counts in 64 bits
DROPOUTS = ("hidden_dropout_prob", "attention_probs_dropout_prob", "span_dropout")
MOST_LAYERS = 10_000  # shared layers cost no memory, so nothing else would stop a file that asks for a billion


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """An encoder's shape and choices; the defaults are BERT-BASE uncased (Devlin et al. 2018, section 3; release)."""

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: Activation = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    classifier_dropout: float | None = None  # of the heads that label; None: hidden_dropout_prob
    max_position_embeddings: int = 512
    type_vocab_size: int = 2  # 0: no segment embeddings (DistilBERT)
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12  # BERT's release; RoBERTa uses 1e-5
    pad_token_id: int = 0
    embedding_size: int | None = None  # None: hidden_size; smaller: factorized embeddings (ALBERT, ELECTRA)
    norm: Literal["post", "pre"] = "post"
    causal: bool = False  # left-to-right attention (the paper's LTR ablation, GPT)
    pooler: bool = True
    positions_after_pad: bool = False  # positions count from pad_token_id + 1 (RoBERTa)
    project_embeddings: bool = False  # even where embedding_size is hidden_size (ALBERT)
    num_hidden_groups: int | None = None  # groups of layers with shared weights (ALBERT); None: nothing is shared
    inner_group_num: int = 1  # layers of their own in a group
    # heads
    mlm_act: Activation | None = None  # None: hidden_act
    pair_dropout: bool = False  # whether the pair head drops out what it reads, as a classifier does (ALBERT)
    sequence_act: HeadActivation | None = None  # of a dense layer on the first token; None: the pooler is read
    sequence_input_dropout: bool = True  # before that dense layer too
    sequence_dropout: float | None = None  # of sequence and choice heads; None: classifier_dropout
    choice_act: HeadActivation | None = None  # as sequence_act
    span_dropout: float = 0.0

    def __post_init__(self) -> None:
        sizes = ("vocab_size", "hidden_size", "num_attention_heads", "intermediate_size", "max_position_embeddings")
        for name in sizes:
            _within(name, getattr(self, name), 1, MOST)
        for name in ("type_vocab_size", "pad_token_id"):
            _within(name, getattr(self, name), 0, MOST)
        _within("num_hidden_layers", self.num_hidden_layers, 0, MOST_LAYERS)
        _within("inner_group_num", self.inner_group_num, 1, MOST_LAYERS)
        for name in ("embedding_size", "num_hidden_groups"):
            _within(name, 1 if (value := getattr(self, name)) is None else value, 1, MOST)
        for name in (*DROPOUTS, "classifier_dropout", "sequence_dropout"):
            _within(name, getattr(self, name) or 0.0, 0.0, 0.999)
        for name in ("initializer_range", "layer_norm_eps"):
            _within(name, getattr(self, name), 0.0, 10.0)
        if self.hidden_size % self.num_attention_heads:
            raise DataError(
                f"hidden_size {self.hidden_size} does not divide into num_attention_heads {self.num_attention_heads}."
            )
        if self.positions_after_pad and self.max_length < 1:
            raise DataError(
                f"max_position_embeddings {self.max_position_embeddings} leaves no position after the "
                f"{self.position_offset} up to pad_token_id {self.pad_token_id}."
            )

    def replace(self, **changes: Any) -> "EncoderConfig":
        """The same config with some fields changed. Raises UsageError for a field there is not."""
        names = [field.name for field in fields(self)]
        for name in changes:
            if name not in names:
                raise UsageError(f"EncoderConfig has no field {name!r}. {nearest(name, names)}")
        return replace(self, **changes)

    @property
    def head_size(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def position_offset(self) -> int:
        """The position of a sequence's first token."""
        return self.pad_token_id + 1 if self.positions_after_pad else 0

    @property
    def max_length(self) -> int:
        """The most tokens a sequence can have."""
        return self.max_position_embeddings - self.position_offset


def _within(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:  # also false for NaN
        raise DataError(f"EncoderConfig.{name} is {value:.6g}; it must be {low:,} to {high:,}.")
