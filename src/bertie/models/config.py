"""`EncoderConfig`: everything that makes one encoder differ from another, as values. Imports no torch.

The planner prices a config without building it; a family is a set of these values (families/).
"""

from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from bertie.errors import DataError, UsageError, nearest

Activation = Literal["gelu", "gelu_tanh", "relu", "silu", "geglu", "reglu", "swiglu"]
HeadActivation = Literal["gelu", "gelu_tanh", "relu", "silu", "tanh", "hidden_act"]  # the last: whatever that is
MOST = 2**28  # of anything; whoever asks for more has a damaged file, and a product of two still counts in 64 bits
DROPOUTS = ("hidden_dropout_prob", "attention_probs_dropout_prob", "embedding_dropout", "span_dropout")
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
    pooler_dense: bool = True  # False: the first token's vector as it is (MobileBERT)
    positions_after_pad: bool = False  # positions count from pad_token_id + 1 (RoBERTa)
    project_embeddings: bool = False  # even where embedding_size is hidden_size (ALBERT)
    num_hidden_groups: int | None = None  # groups of layers with shared weights (ALBERT); None: nothing is shared
    inner_group_num: int = 1  # layers of their own in a group
    # bottleneck layers (MobileBERT): narrow inside, hidden_size wide between
    bottleneck_size: int | None = None  # width inside a layer; None: no bottleneck
    bottleneck_attention: bool = False  # whether attention reads what has passed the bottleneck, values too
    num_feedforward_networks: int = 1  # one after the other in a layer
    trigram_embeddings: bool = False  # a token's vector is made from its neighbours' too; positions are not narrow
    # attention that does not grow with the square of the length
    attention_window: int | tuple[int, ...] | None = None  # tokens a token sees, both sides; one for all layers or each
    attention_dilation: int | tuple[int, ...] = 1  # every how manieth token of the window; 1: all of them
    attention_type: Literal["original_full", "block_sparse"] = "original_full"  # the latter: BigBird
    block_size: int = 64  # of block-sparse attention
    num_random_blocks: int = 3
    attention_bias: bool = True  # of the projections to query, key and value
    rescale_embeddings: bool = False  # token vectors by the root of hidden_size
    dropout_before_norm: bool = False  # of the embeddings
    sep_token_id: int = 102  # ends the question, which all tokens see where attention is windowed
    # what GPT and T5 do in another way
    embedding_norm: bool = True
    embedding_dropout: float | None = None  # None: hidden_dropout_prob
    norm_type: Literal["layer", "rms", "affine"] = "layer"  # affine: a scale and a shift of each feature (MobileBERT)
    bias: bool = True  # of every linear layer
    attention_head_size: int | None = None  # None: hidden_size / num_attention_heads
    scale_attention: bool = True  # scores by the root of the head size
    positions: Literal["learned", "relative"] = "learned"  # relative: a bias to the scores by distance, in buckets
    relative_attention_num_buckets: int = 32
    relative_attention_max_distance: int = 128
    dropout_inside: bool = False  # also inside the feed-forward network and behind the last norm (T5)
    num_decoder_layers: int | None = None  # of an encoder-decoder model
    decoder_start_token_id: int = 0
    eos_token_id: int | None = None  # ends what a model writes
    # heads
    mlm_widened: bool = False  # the decoder has columns of its own beside narrow word embeddings (MobileBERT)
    mlm_act: Activation | None = None  # None: hidden_act
    pair_dropout: bool = False  # whether the pair head drops out what it reads, as a classifier does (ALBERT)
    sequence_act: HeadActivation | None = None  # of a dense layer on the first token; None: the pooler is read
    sequence_input_dropout: bool = True  # before that dense layer too
    sequence_dropout: float | None = None  # of sequence and choice heads; None: classifier_dropout
    choice_act: HeadActivation | None = None  # as sequence_act
    choice_dropout: float | None = None  # of the choice head; None: as of the sequence head
    choice_drops_hidden: bool = False  # the choice head's is hidden_dropout_prob, whatever classifiers have (RoBERTa)
    span_dropout: float = 0.0
    span_layer: bool = False  # a feed-forward layer of the span head's own (BigBird)
    sequence_last: bool = False  # the sequence head reads the last token; by a matrix alone without an act (GPT)
    lm_transform: bool = True  # the next-token head is built as the masked-LM head; False: a matrix alone (GPT, T5)
    lm_tied: bool = True  # that matrix is the word embeddings
    lm_scale: bool = False  # what it reads is first divided by the root of hidden_size (T5)

    def __post_init__(self) -> None:
        sizes = ("vocab_size", "hidden_size", "num_attention_heads", "intermediate_size", "max_position_embeddings")
        for name in sizes:
            within(name, getattr(self, name), 1, MOST)
        for name in ("type_vocab_size", "pad_token_id", "sep_token_id", "num_random_blocks", "decoder_start_token_id"):
            within(name, getattr(self, name), 0, MOST)
        within("eos_token_id", self.eos_token_id or 0, 0, MOST)
        within("num_decoder_layers", self.num_decoder_layers or 0, 0, MOST_LAYERS)
        within("relative_attention_num_buckets", self.relative_attention_num_buckets, 4, MOST)
        fewest = self.relative_attention_num_buckets // 2 + 1  # beyond those that have a bucket of their own
        within("relative_attention_max_distance", self.relative_attention_max_distance, fewest, MOST)
        within("num_hidden_layers", self.num_hidden_layers, 0, MOST_LAYERS)
        for name in ("inner_group_num", "num_feedforward_networks"):
            within(name, getattr(self, name), 1, MOST_LAYERS)
        within("block_size", self.block_size, 1, MOST)
        for name in ("embedding_size", "num_hidden_groups", "bottleneck_size", "attention_head_size"):
            within(name, 1 if (value := getattr(self, name)) is None else value, 1, MOST)
        for name in (*DROPOUTS, "classifier_dropout", "sequence_dropout", "choice_dropout"):
            within(name, getattr(self, name) or 0.0, 0.0, 0.999)
        for name in ("initializer_range", "layer_norm_eps"):
            within(name, getattr(self, name), 0.0, 10.0)
        width = self.bottleneck_size or self.hidden_size
        if self.attention_head_size is None and width % self.num_attention_heads:
            name = "hidden_size" if self.bottleneck_size is None else "bottleneck_size"
            raise DataError(f"{name} {width} does not divide into num_attention_heads {self.num_attention_heads}.")
        self._check_windows()
        if self.positions_after_pad and self.max_length < 1:
            raise DataError(
                f"max_position_embeddings {self.max_position_embeddings} leaves no position after the "
                f"{self.position_offset} up to pad_token_id {self.pad_token_id}."
            )

    def _check_windows(self) -> None:
        for name in ("attention_window", "attention_dilation"):
            value = getattr(self, name)
            if isinstance(value, tuple) and len(value) != self.num_hidden_layers:
                raise DataError(f"{name} has {len(value):,} values for {self.num_hidden_layers:,} layers.")
            for one in value if isinstance(value, tuple) else (value,):
                within(name, 2 if one is None else one, 1, MOST)
                if name == "attention_window" and one is not None and one % 2:
                    raise DataError(f"attention_window {one} is odd; it is as far to the left as to the right.")

    def replace(self, **changes: Any) -> "EncoderConfig":
        """The same config with some fields changed. Raises UsageError for a field there is not."""
        names = [field.name for field in fields(self)]
        for name in changes:
            if name not in names:
                raise UsageError(f"EncoderConfig has no field {name!r}. {nearest(name, names)}")
        return replace(self, **changes)

    @property
    def attention_size(self) -> int:
        """Width of all attention heads together."""
        if self.attention_head_size is not None:
            return self.num_attention_heads * self.attention_head_size
        return self.bottleneck_size or self.hidden_size

    @property
    def head_size(self) -> int:
        """Width of one attention head."""
        return self.attention_size // self.num_attention_heads

    @property
    def attends_to_all(self) -> bool:
        """Whether every token sees all of its sequence, near or far alike, by `SelfAttention`."""
        narrowed = self.attention_window or self.bottleneck_size or self.attention_type == "block_sparse"
        return not (narrowed or self.causal or self.positions == "relative")

    def window(self, layer: int) -> tuple[int, int]:
        """How many tokens to each side a layer of a windowed model sees, and every how manieth."""
        window, dilation = self.attention_window, self.attention_dilation
        assert window is not None, "asked of a model without windows"
        return (
            (window if isinstance(window, int) else window[layer]) // 2,
            dilation if isinstance(dilation, int) else dilation[layer],
        )

    @property
    def position_offset(self) -> int:
        """The position of a sequence's first token."""
        return self.pad_token_id + 1 if self.positions_after_pad else 0

    @property
    def max_length(self) -> int:
        """The most tokens a sequence can have."""
        return MOST if self.positions == "relative" else self.max_position_embeddings - self.position_offset


def within(name: str, value: float, low: float, high: float) -> None:
    """Raise DataError unless a field's value lies between two bounds, both included."""
    if not low <= value <= high:  # also false for NaN
        raise DataError(f"EncoderConfig.{name} is {value:.6g}; it must be {low:,} to {high:,}.")
