"""`EncoderConfig`: everything that makes one encoder differ from another, as values. Imports no torch.

The planner prices a config without building it; a family is a set of these values (variants/).
"""

from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from bertie.errors import DataError, UsageError, nearest

Activation = Literal["gelu", "gelu_tanh", "relu", "silu"]
MOST = 2**31 - 1  # of anything; whoever asks for more has a damaged file


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
    classifier_dropout: float | None = None  # of a sequence or token head; None: hidden_dropout_prob
    max_position_embeddings: int = 512
    type_vocab_size: int = 2  # 0: no segment embeddings (DistilBERT)
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12  # BERT's release; RoBERTa uses 1e-5
    pad_token_id: int = 0
    embedding_size: int | None = None  # None: hidden_size; smaller: factorized embeddings (ALBERT, ELECTRA)
    norm: Literal["post", "pre"] = "post"
    causal: bool = False  # left-to-right attention (the paper's LTR ablation, GPT)
    pooler: bool = True

    def __post_init__(self) -> None:
        sizes = ("vocab_size", "hidden_size", "num_attention_heads", "intermediate_size", "max_position_embeddings")
        for name in sizes:
            _within(name, getattr(self, name), 1, MOST)
        for name in ("num_hidden_layers", "type_vocab_size", "pad_token_id"):
            _within(name, getattr(self, name), 0, MOST)
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"):
            _within(name, getattr(self, name) or 0.0, 0.0, 0.999)
        for name in ("initializer_range", "layer_norm_eps"):
            _within(name, getattr(self, name), 0.0, 10.0)
        if self.hidden_size % self.num_attention_heads:
            raise DataError(
                f"hidden_size {self.hidden_size} does not divide into num_attention_heads {self.num_attention_heads}."
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


def _within(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:  # also false for NaN
        raise DataError(f"EncoderConfig.{name} is {value:.6g}; it must be {low:,} to {high:,}.")
