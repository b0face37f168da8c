"""The parts of an encoder that have several kinds. Each kind is a frozen value with its own settings. Imports no torch.

    positions   learned, relative, learned_relative, disentangled,
                sinusoidal, none, rotary, alibi             how an encoder knows the order of its tokens
    attention   full, window, block_sparse, alternating     which tokens a token attends to
    layer       residual, bottleneck, recurrent,
                convolutional                               how a layer is built
    sharing     none, groups                                which layers share weights
    inputs      tokens, regions, frames                     what stands for a token besides words

A new kind is a class here, a name in its union, and a function in models/layers.py that makes the module. Settings of
different unions have different names, so that overrides and files are flat: `attention_window=64`.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from bertie.errors import DataError

MAX_SETTING = (
    2**28
)  # of anything; whoever asks for more has a damaged file, and a product of two still counts in 64 bits
MOST_LAYERS = 10_000  # shared layers cost no memory, so nothing else would stop a file that asks for a billion
Activation = Literal[
    "gelu",
    "gelu_tanh",
    "relu",
    "silu",
    "geglu",
    "reglu",
    "swiglu",
    "geglu_erf",
    "quick_gelu",
    "tanh",
    "sigmoid",
    "linear",
]
GATED_ACTIVATIONS = ("geglu", "reglu", "swiglu", "geglu_erf")  # activations that take two matrices


def within(name: str, value: float, low: float, high: float) -> None:
    """Raises DataError unless a field's value is between two bounds, inclusive."""
    if not low <= value <= high:  # also false for NaN
        raise DataError(f"EncoderConfig.{name} is {value:.6g}; it must be {low:,} to {high:,}.")


class _Unconditional:
    """What kinds share that go with all others."""

    def check(self, config: "EncoderShape") -> None:
        """Accepts every config."""


@dataclass(frozen=True, kw_only=True)
class Learned:
    """A learned vector for each of max_position_embeddings positions, added to the word embeddings. Devlin et al.
    2018."""

    kind: Literal["learned"] = "learned"
    positions_after_pad: bool = False
    """Positions are counted from pad_token_id + 1 (RoBERTa)."""

    def check(self: "Learned | LearnedRelative", config: "EncoderShape") -> None:
        """Raise DataError for what the rest of the config does not allow."""
        if self.positions_after_pad and config.max_length < 1:
            raise DataError(
                f"max_position_embeddings is {config.max_position_embeddings}; it must be above "
                f"{config.position_offset}, since positions start after pad_token_id {config.pad_token_id}."
            )


@dataclass(frozen=True, kw_only=True)
class Relative:
    """A learned bias of the attention scores for each bucket of distances, shared by all layers. Raffel et al. 2020.

    Texts can have any length.
    """

    kind: Literal["relative"] = "relative"
    relative_attention_num_buckets: int = 32
    relative_attention_max_distance: int = 128

    def check(self: "Relative | LearnedRelative", config: "EncoderShape") -> None:
        """Raise DataError for what the rest of the config does not allow."""
        buckets = self.relative_attention_num_buckets
        within("relative_attention_num_buckets", buckets, 4, MAX_SETTING)
        # beyond the distances that have a bucket of their own
        within("relative_attention_max_distance", self.relative_attention_max_distance, buckets // 2 + 1, MAX_SETTING)
        _needs_full(self.kind, config)


@dataclass(frozen=True, kw_only=True)
class Alibi:
    """Each head lowers the scores in proportion to the distance, by a slope of its own. Press et al. 2022 (ALiBi).

    On both sides alike, as in MosaicBERT. Texts can have any length, also longer ones than in training.
    """

    kind: Literal["alibi"] = "alibi"

    def check(self, config: "EncoderShape") -> None:
        """Raise DataError for what the rest of the config does not allow."""
        _needs_full(self.kind, config)


def _needs_full(kind: str, config: "EncoderShape") -> None:
    if not isinstance(config.attention, Full):
        raise DataError(
            f"positions={kind} needs attention=full; this model's is {config.attention.kind}. Choose positions=learned."
        )


@dataclass(frozen=True, kw_only=True)
class LearnedRelative:
    """A learned vector for each position and, as in `Relative`, a bias for each distance. Song et al. 2020 (MPNet)."""

    kind: Literal["learned_relative"] = "learned_relative"
    positions_after_pad: bool = False
    relative_attention_num_buckets: int = 32
    relative_attention_max_distance: int = 128

    def check(self, config: "EncoderShape") -> None:
        """Raise DataError for what the rest of the config does not allow."""
        Learned.check(self, config)
        Relative.check(self, config)


@dataclass(frozen=True, kw_only=True)
class Disentangled:
    """Attention scores of contents, and of content and distance in both directions. He et al. 2020 (DeBERTa), 3.1.

    Texts can have any length.
    """

    kind: Literal["disentangled"] = "disentangled"
    position_buckets: int = 256
    """Number of distance buckets on each side. 0: no buckets."""
    max_relative_positions: int = 512
    """Largest distance with a bucket of its own; larger distances share the last bucket."""
    relative_norm: bool = True
    """Whether distance embeddings are normalized."""

    def check(self, config: "EncoderShape") -> None:
        """Raise DataError for what the rest of the config does not allow."""
        within("position_buckets", self.position_buckets, 0, MAX_SETTING)
        within("max_relative_positions", self.max_relative_positions, self.position_buckets // 2 + 2, MAX_SETTING)
        if not isinstance(config.attention, Full) or config.layer.kind != "residual" or config.causal:
            raise DataError("positions=disentangled needs attention=full, layer=residual and causal=false.")
        if config.attention_size != config.hidden_size:
            raise DataError("positions=disentangled needs attention heads that are together as wide as hidden_size.")


@dataclass(frozen=True, kw_only=True)
class Sinusoidal(_Unconditional):
    """Fixed sines and cosines of each position, added to the word embeddings. Vaswani et al. 2017, 3.5.

    Texts can have any length. The vectors have the norm sqrt(size / 2); rescale_embeddings=true scales words to the
    same.
    """

    kind: Literal["sinusoidal"] = "sinusoidal"


@dataclass(frozen=True, kw_only=True)
class Rotary:
    """Queries and keys are rotated by angles that grow with the position. Su et al. 2021 (RoFormer), 3.4.

    The maximum length, max_position_embeddings, is that of training.
    """

    kind: Literal["rotary"] = "rotary"
    rope_theta: float = 10_000.0
    """Base of the angles: the longest period is nearly 2π times this number of tokens."""
    local_rope_theta: float | None = None
    """Base for layers with a window (attention=alternating). None: rope_theta."""

    def check(self, config: "EncoderShape") -> None:
        """Raise DataError for what the rest of the config does not allow."""
        within("rope_theta", self.rope_theta, 1, 1e12)
        within("local_rope_theta", self.local_rope_theta or 1.0, 1, 1e12)
        if not isinstance(config.attention, Full | Alternating):
            raise DataError(
                f"positions=rotary needs attention=full or alternating; this model's is {config.attention.kind}."
            )
        if config.layer.kind != "residual" or config.head_size % 2:
            raise DataError("positions=rotary needs layer=residual, and attention heads of an even size.")


@dataclass(frozen=True, kw_only=True)
class NoPositions(_Unconditional):
    """No positions, or positions in the attention itself (XLNet). Texts can have any length."""

    kind: Literal["none"] = "none"


@dataclass(frozen=True, kw_only=True)
class Full(_Unconditional):
    """Every token attends to all tokens of its sequence."""

    kind: Literal["full"] = "full"

    def tokens_seen(self, layer: int, length: float) -> float:
        """Returns the maximum number of tokens that a token attends to."""
        return length


@dataclass(frozen=True, kw_only=True)
class Window:
    """Each token attends to the tokens around it and to a few global tokens. Beltagy et al. 2020, 3.1."""

    kind: Literal["window"] = "window"
    attention_window: int | tuple[int, ...]
    """Number of tokens that a token attends to, on both sides together: one number for all layers, or one per layer."""
    attention_dilation: int | tuple[int, ...] = 1
    """Distance between two tokens of the window; 1 is every token."""

    def check(self, config: "EncoderShape") -> None:
        """Raises DataError for values that contradict the rest of the config."""
        for name, value in (
            ("attention_window", self.attention_window),
            ("attention_dilation", self.attention_dilation),
        ):
            if isinstance(value, tuple) and len(value) != config.num_hidden_layers:
                raise DataError(f"{name} has {len(value):,} values for {config.num_hidden_layers:,} layers.")
            if isinstance(value, tuple) and not isinstance(config.sharing, Unshared):
                raise DataError(
                    f"{name} has one value per layer, but layers that share their weights need a single value."
                )
            for one in value if isinstance(value, tuple) else (value,):
                within(name, one, 1, MAX_SETTING)
                if name == "attention_window" and one % 2:
                    raise DataError(f"attention_window is {one}; it must be even, since half of it lies on each side.")

    def reach(self, layer: int) -> tuple[int, int]:
        """Returns the number of tokens on each side that a layer attends to, and their distance."""
        window, dilation = self.attention_window, self.attention_dilation
        return (
            (window if isinstance(window, int) else window[layer]) // 2,
            dilation if isinstance(dilation, int) else dilation[layer],
        )

    def tokens_seen(self, layer: int, length: float) -> float:
        """Returns the maximum number of tokens that a token attends to, without global tokens."""
        return min(length, 2 * self.reach(layer)[0] + 1)


@dataclass(frozen=True, kw_only=True)
class Alternating:
    """Every n-th layer attends to all tokens, the others to a window. Warner et al. 2024, 2.1 (ModernBERT)."""

    kind: Literal["alternating"] = "alternating"
    local_attention: int
    """Width of the window in tokens, on both sides together."""
    global_attn_every_n_layers: int = 3
    """The distance between two layers that attend to all tokens. The first layer is one of them."""

    def check(self, config: "EncoderShape") -> None:
        """Raise DataError for what the rest of the config does not allow."""
        within("local_attention", self.local_attention, 2, MAX_SETTING)
        within("global_attn_every_n_layers", self.global_attn_every_n_layers, 1, MOST_LAYERS)
        if config.layer.kind != "residual" or not isinstance(config.sharing, Unshared):
            raise DataError("attention=alternating needs layer=residual, and layers with weights of their own.")
        if isinstance(config.positions, Relative | LearnedRelative):
            raise DataError(
                f"attention=alternating does not go with positions={config.positions.kind}. Choose positions=rotary."
            )

    def radius(self, layer: int) -> int | None:
        """Returns the number of tokens on each side that a layer attends to; None: all."""
        return self.local_attention // 2 if layer % self.global_attn_every_n_layers else None

    def tokens_seen(self, layer: int, length: float) -> float:
        """Returns the maximum number of tokens that a token attends to."""
        radius = self.radius(layer)
        return length if radius is None else min(length, 2 * radius + 1)


@dataclass(frozen=True, kw_only=True)
class BlockSparse:
    """Each block of tokens attends to its neighbors, the first, the last and random blocks. Zaheer et al. 2020, 2."""

    kind: Literal["block_sparse"] = "block_sparse"
    block_size: int = 64
    num_random_blocks: int = 3

    def check(self, config: "EncoderShape") -> None:
        """Raises DataError for values that contradict the rest of the config."""
        within("block_size", self.block_size, 1, MAX_SETTING)
        within("num_random_blocks", self.num_random_blocks, 0, MAX_SETTING)
        if config.max_length == MAX_SETTING:
            raise DataError(
                "attention=block_sparse needs positions=learned, which limits the number of blocks; this "
                f"model has positions={config.positions.kind}."
            )

    def tokens_seen(self, layer: int, length: float) -> float:
        """Returns the maximum number of tokens that a token attends to: all tokens of a short text."""
        blocks = 5 + self.num_random_blocks
        return min(length, blocks * self.block_size) if length > self.shortest else length

    @property
    def shortest(self) -> int:
        """Returns the length up to which full attention is used."""
        return (5 + 2 * self.num_random_blocks) * self.block_size


@dataclass(frozen=True, kw_only=True)
class Residual:
    """Attention, then a feed-forward network, each with a residual connection. Vaswani et al. 2017, 3.1."""

    mark: ClassVar[str] = "down.weight"
    """A weight that each layer has, by which those of a file are counted."""
    kind: Literal["residual"] = "residual"
    norm: Literal["post", "pre"] = "post"
    """Layer normalization: post is norm(x + f(x)), as in BERT; pre is x + f(norm(x)), with one norm after the last
    layer."""
    bias: bool = True
    """Whether linear layers have a bias."""
    attention_bias: bool = True
    """Whether the projections to query, key and value have a bias."""
    attention_head_size: int | None = None
    """Size of an attention head. Not set: hidden_size / num_attention_heads."""
    scale_attention: bool = True
    """Scores are divided by the root of the head size."""
    conv_kernel_size: int = 0
    """Kernel size, in tokens, of a convolution next to the first layer; 0: none (DeBERTa v2 has one)."""
    conv_act: Activation = "gelu"
    first_attention_norm: bool = True
    """Whether the first layer has a norm before its attention, whose input the embeddings' norm has made."""
    attended_dropout: Literal["hidden", "attention", "none"] = "hidden"
    """Which dropout follows attention: hidden_dropout_prob, attention_probs_dropout_prob or none (DistilBERT)."""
    fed_dropout: bool = True
    """Whether a dropout follows the feed-forward network."""
    dropout_inside: bool = False
    """Also inside the feed-forward network and, where a dropout follows that, after the last norm (T5)."""

    def check(self, config: "EncoderShape") -> None:
        """Raises DataError for values that contradict the rest of the config."""
        within(
            "attention_head_size", 1 if self.attention_head_size is None else self.attention_head_size, 1, MAX_SETTING
        )
        within("conv_kernel_size", self.conv_kernel_size, 0, 1_001)
        if self.conv_kernel_size and (self.norm, self.conv_kernel_size % 2, config.causal) != ("post", 1, False):
            raise DataError("A convolution (conv_kernel_size) needs norm=post, an odd width and causal=false.")
        if self.attention_head_size is None:
            _divides("hidden_size", config.hidden_size, config.num_attention_heads)

    def attention_size(self, config: "EncoderShape") -> int:
        """Returns the total size of all attention heads."""
        return config.num_attention_heads * self.attention_head_size if self.attention_head_size else config.hidden_size


class _Special:
    """What layers other than residual ones share."""

    norm: ClassVar[Literal["post"]] = "post"
    dropout_inside: ClassVar[bool] = False
    fed_dropout: ClassVar[bool] = True
    mark: ClassVar[str] = "down.weight"

    def attention_size(self, config: "EncoderShape") -> int:
        """Returns the total size of all attention heads."""
        return config.hidden_size

    def plain(self, kind: str, config: "EncoderShape") -> None:
        """Raises DataError for a config with settings of attention."""
        apart = (config.positions.kind, config.attention.kind, config.sharing.kind)
        if config.causal or apart != ("none", "full", "none"):
            raise DataError(f"layer={kind} needs positions=none, attention=full, sharing=none and causal=false.")


@dataclass(frozen=True, kw_only=True)
class Bottleneck(_Special):
    """A layer that is narrow inside, and hidden_size wide between layers. Sun et al. 2020 (MobileBERT)."""

    kind: Literal["bottleneck"] = "bottleneck"
    bottleneck_size: int
    """Size inside a layer."""
    bottleneck_attention: bool = False
    """Whether the inputs of attention pass the bottleneck, including the values."""
    shared_bottleneck: bool = True
    """Whether queries and keys pass a bottleneck of their own. False: they are made of the hidden states, as in the
    paper's teacher."""
    num_feedforward_networks: int = 1
    """Number of consecutive feed-forward networks in a layer."""

    def check(self, config: "EncoderShape") -> None:
        """Raises DataError for values that contradict the rest of the config."""
        within("bottleneck_size", self.bottleneck_size, 1, MAX_SETTING)
        within("num_feedforward_networks", self.num_feedforward_networks, 1, MOST_LAYERS)
        _divides("bottleneck_size", self.bottleneck_size, config.num_attention_heads)
        if self.bottleneck_attention and not self.shared_bottleneck:
            raise DataError("bottleneck_attention=true needs shared_bottleneck=true: its files have both bottlenecks.")
        if not isinstance(config.attention, Full):
            raise DataError(f"layer=bottleneck needs attention=full, but this model has {config.attention.kind}.")
        if config.hidden_act in GATED_ACTIVATIONS:
            raise DataError(
                "layer=bottleneck does not support gated activations; hidden_act is "
                f"{config.hidden_act}. Choose gelu or relu."
            )

    def attention_size(self, config: "EncoderShape") -> int:
        """Returns the total size of all attention heads."""
        return self.bottleneck_size

    def attention_inputs(self, hidden_size: int) -> tuple[int, int]:
        """Returns the sizes of what queries and keys are made of, and of what values are made of."""
        if self.bottleneck_attention:
            return self.bottleneck_size, self.bottleneck_size
        return self.bottleneck_size if self.shared_bottleneck else hidden_size, hidden_size


@dataclass(frozen=True, kw_only=True)
class Recurrent(_Special):
    """An LSTM (Hochreiter and Schmidhuber 1997) or a GRU (Cho et al. 2014) in both directions."""

    mark: ClassVar[str] = "cell.weight_ih_l0"
    kind: Literal["recurrent"] = "recurrent"
    recurrent_cell: Literal["lstm", "gru"] = "lstm"

    def check(self, config: "EncoderShape") -> None:
        """Raises DataError for values that contradict the rest of the config."""
        self.plain(self.kind, config)
        _divides("hidden_size", config.hidden_size, 2, "the number of directions")


@dataclass(frozen=True, kw_only=True)
class Convolutional(_Special):
    """Filters on neighboring tokens, equally many of each width. Kim 2014."""

    mark: ClassVar[str] = "filters.0.weight"
    kind: Literal["convolutional"] = "convolutional"
    filter_widths: tuple[int, ...] = (3, 4, 5)
    """Tokens that a filter reads."""

    def check(self, config: "EncoderShape") -> None:
        """Raises DataError for values that contradict the rest of the config."""
        self.plain(self.kind, config)
        within("number of filter_widths", len(self.filter_widths), 1, 100)
        for width in self.filter_widths:
            within("filter_widths", width, 1, 1_001)
        _divides("hidden_size", config.hidden_size, len(self.filter_widths), "the number of filter_widths")
        if config.hidden_act in GATED_ACTIVATIONS:
            raise DataError(f"layer=convolutional has no gates; hidden_act is {config.hidden_act}. Choose relu.")


@dataclass(frozen=True, kw_only=True)
class Unshared(_Unconditional):
    """Each layer has its own weights."""

    kind: Literal["none"] = "none"


@dataclass(frozen=True, kw_only=True)
class Groups:
    """The layers of a group share their weights. Lan et al. 2019, 3.1 (ALBERT)."""

    kind: Literal["groups"] = "groups"
    num_hidden_groups: int
    inner_group_num: int = 1
    """Number of layers with their own weights in a group, which are repeated in order."""

    def check(self, config: "EncoderShape") -> None:
        """Raises DataError for values that contradict the rest of the config."""
        within("num_hidden_groups", self.num_hidden_groups, 1, max(1, config.num_hidden_layers))
        within("inner_group_num", self.inner_group_num, 1, MOST_LAYERS)


@dataclass(frozen=True, kw_only=True)
class Tokens(_Unconditional):
    """Tokens of a text, and nothing else."""

    kind: Literal["tokens"] = "tokens"
    feature_size: ClassVar[None] = None


@dataclass(frozen=True, kw_only=True)
class Regions:
    """Tokens, then regions of a picture with a segment and a position of their own. Li et al. 2019 (VisualBERT)."""

    kind: Literal["regions"] = "regions"
    visual_embedding_dim: int
    """Numbers of a region's vector."""

    @property
    def feature_size(self) -> int:
        """Numbers of a feature vector."""
        return self.visual_embedding_dim

    def check(self, config: "EncoderShape") -> None:
        """Raises DataError for values that contradict the rest of the config."""
        within("visual_embedding_dim", self.visual_embedding_dim, 1, MAX_SETTING)
        if not isinstance(config.positions, Learned) or config.type_vocab_size < 2:
            raise DataError("inputs=regions needs positions=learned and type_vocab_size of 2 or more, as BERT has.")


@dataclass(frozen=True, kw_only=True)
class Frames:
    """Tokens, then frames of sound, each in the place of a word's vector. Hsu et al. 2021 (HuBERT)."""

    kind: Literal["frames"] = "frames"
    frame_size: int
    """Numbers of a frame's vector."""

    @property
    def feature_size(self) -> int:
        """Numbers of a feature vector."""
        return self.frame_size

    def check(self, config: "EncoderShape") -> None:
        """Raises DataError for values that contradict the rest of the config."""
        within("frame_size", self.frame_size, 1, MAX_SETTING)


Positions = Learned | Relative | LearnedRelative | Disentangled | Sinusoidal | NoPositions | Rotary | Alibi
Attention = Full | Window | BlockSparse | Alternating
LayerKind = Residual | Bottleneck | Recurrent | Convolutional
Sharing = Unshared | Groups
InputKind = Tokens | Regions | Frames


@dataclass(frozen=True, kw_only=True)
class EncoderShape:
    """What the kinds of an encoder must agree with: its sizes, and one another. The rest is in `EncoderConfig`."""

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: Activation = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    classifier_dropout: float | None = None  # of the heads that label; None: hidden_dropout_prob
    max_position_embeddings: int = 512  # of learned positions
    type_vocab_size: int = 2  # 0: no segment embeddings (DistilBERT)
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12  # BERT's release; RoBERTa uses 1e-5
    pad_token_id: int = 0
    positions: Annotated[Positions, Field(discriminator="kind")] = Learned()
    attention: Annotated[Attention, Field(discriminator="kind")] = Full()
    layer: Annotated[LayerKind, Field(discriminator="kind")] = Residual()
    sharing: Annotated[Sharing, Field(discriminator="kind")] = Unshared()
    inputs: Annotated[InputKind, Field(discriminator="kind")] = Tokens()
    causal: bool = False  # left-to-right attention (the paper's LTR ablation, GPT)

    @property
    def attention_size(self) -> int:
        """Total size of all attention heads."""
        return self.layer.attention_size(self)

    @property
    def head_size(self) -> int:
        """Size of one attention head."""
        return self.attention_size // self.num_attention_heads

    @property
    def position_offset(self) -> int:
        """The position of a sequence's first token."""
        after_pad = isinstance(self.positions, Learned | LearnedRelative) and self.positions.positions_after_pad
        return self.pad_token_id + 1 if after_pad else 0

    @property
    def max_length(self) -> int:
        """The most tokens a sequence can have."""
        bounded = isinstance(self.positions, Learned | LearnedRelative | Rotary)
        return self.max_position_embeddings - self.position_offset if bounded else MAX_SETTING


def _divides(name: str, width: int, parts: int, by: str = "num_attention_heads") -> None:
    if width % parts:
        raise DataError(f"{name} ({width}) must be divisible by {by} ({parts}).")
