"""The parts of an encoder that come in kinds, each a frozen value with the settings of its own. Imports no torch.

    positions   learned, relative, sinusoidal, none         how an encoder knows the order of its tokens
    attention   full, window, block_sparse                  which tokens a token attends to
    layer       residual, bottleneck                        how a layer is built
    sharing     none, groups                                which layers have the same weights

A new kind is a class here, a name in its union, and a function in models/layers.py that makes the module. No two unions
have a setting of the same name, so that overrides and files stay flat: `attention_window=64`.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

from bertie.errors import DataError

MOST = 2**28  # of anything; whoever asks for more has a damaged file, and a product of two still counts in 64 bits
MOST_LAYERS = 10_000  # shared layers cost no memory, so nothing else would stop a file that asks for a billion
Activation = Literal["gelu", "gelu_tanh", "relu", "silu", "geglu", "reglu", "swiglu"]
GATED = ("geglu", "reglu", "swiglu")  # activations that take two matrices


def within(name: str, value: float, low: float, high: float) -> None:
    """Raise DataError unless a field's value lies between two bounds, both included."""
    if not low <= value <= high:  # also false for NaN
        raise DataError(f"EncoderConfig.{name} is {value:.6g}; it must be {low:,} to {high:,}.")


class Shape(Protocol):
    """What a kind is held against: an EncoderConfig, which imports this module."""

    @property
    def hidden_size(self) -> int: ...  # noqa: D102
    @property
    def num_hidden_layers(self) -> int: ...  # noqa: D102
    @property
    def num_attention_heads(self) -> int: ...  # noqa: D102
    @property
    def hidden_act(self) -> Activation: ...  # noqa: D102
    @property
    def max_position_embeddings(self) -> int: ...  # noqa: D102
    @property
    def pad_token_id(self) -> int: ...  # noqa: D102
    @property
    def position_offset(self) -> int: ...  # noqa: D102
    @property
    def max_length(self) -> int: ...  # noqa: D102
    @property
    def positions(self) -> "Positions": ...  # noqa: D102
    @property
    def attention(self) -> "Attention": ...  # noqa: D102
    @property
    def sharing(self) -> "Sharing": ...  # noqa: D102


@dataclass(frozen=True, kw_only=True)
class Learned:
    """A learned vector for each of max_position_embeddings places, added to the word embeddings. Devlin et al. 2018."""

    kind: Literal["learned"] = "learned"
    positions_after_pad: bool = False
    """Positions count from pad_token_id + 1 (RoBERTa)."""

    def check(self, config: Shape) -> None:
        """Raise DataError for what the rest of the config does not allow."""
        if self.positions_after_pad and config.max_length < 1:
            raise DataError(
                f"max_position_embeddings is {config.max_position_embeddings}; it must be above "
                f"{config.position_offset}, since positions start after pad_token_id {config.pad_token_id}."
            )


@dataclass(frozen=True, kw_only=True)
class Relative:
    """A learned bias to the attention scores for each bucket of distances, the same in all layers. Raffel et al. 2020.

    Texts can have any length.
    """

    kind: Literal["relative"] = "relative"
    relative_attention_num_buckets: int = 32
    relative_attention_max_distance: int = 128

    def check(self, config: Shape) -> None:
        """Raise DataError for what the rest of the config does not allow."""
        buckets = self.relative_attention_num_buckets
        within("relative_attention_num_buckets", buckets, 4, MOST)
        # beyond the distances that have a bucket of their own
        within("relative_attention_max_distance", self.relative_attention_max_distance, buckets // 2 + 1, MOST)
        if not isinstance(config.attention, Full):
            raise DataError(
                f"positions=relative needs attention=full, but this model has {config.attention.kind}. Choose "
                "positions=learned."
            )


@dataclass(frozen=True, kw_only=True)
class Sinusoidal:
    """Fixed sines and cosines of each position, added to the word embeddings. Vaswani et al. 2017, 3.5.

    Texts can have any length. The vectors are of length sqrt(size / 2): rescale_embeddings=true makes words as large.
    """

    kind: Literal["sinusoidal"] = "sinusoidal"

    def check(self, config: Shape) -> None:
        """Goes with everything."""


@dataclass(frozen=True, kw_only=True)
class NoPositions:
    """Nothing says where a token stands, or the attention does so itself (XLNet). Texts can have any length."""

    kind: Literal["none"] = "none"

    def check(self, config: Shape) -> None:
        """Goes with everything."""


@dataclass(frozen=True, kw_only=True)
class Full:
    """Every token attends to every token of its sequence."""

    kind: Literal["full"] = "full"

    def check(self, config: Shape) -> None:
        """Goes with everything."""

    def tokens_seen(self, layer: int, length: float) -> float:
        """How many tokens a token attends to, at most."""
        return length


@dataclass(frozen=True, kw_only=True)
class Window:
    """Each token attends to those around it and to a few global tokens. Beltagy et al. 2020, 3.1."""

    kind: Literal["window"] = "window"
    attention_window: int | tuple[int, ...]
    """Tokens that a token sees, both sides together; one number for all layers, or one for each."""
    attention_dilation: int | tuple[int, ...] = 1
    """The step from one token of the window to the next; 1: all tokens."""

    def check(self, config: Shape) -> None:
        """Raise DataError for what the rest of the config does not allow."""
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
                within(name, one, 1, MOST)
                if name == "attention_window" and one % 2:
                    raise DataError(f"attention_window is {one}; it must be even, since half of it lies on each side.")

    def reach(self, layer: int) -> tuple[int, int]:
        """How many tokens to each side a layer sees, and the step from one of them to the next."""
        window, dilation = self.attention_window, self.attention_dilation
        return (
            (window if isinstance(window, int) else window[layer]) // 2,
            dilation if isinstance(dilation, int) else dilation[layer],
        )

    def tokens_seen(self, layer: int, length: float) -> float:
        """How many tokens a token attends to, at most; global ones are left out."""
        return min(length, 2 * self.reach(layer)[0] + 1)


@dataclass(frozen=True, kw_only=True)
class BlockSparse:
    """Each block of tokens attends to its neighbours, the first, the last and some at random. Zaheer et al. 2020, 2."""

    kind: Literal["block_sparse"] = "block_sparse"
    block_size: int = 64
    num_random_blocks: int = 3

    def check(self, config: Shape) -> None:
        """Raise DataError for what the rest of the config does not allow."""
        within("block_size", self.block_size, 1, MOST)
        within("num_random_blocks", self.num_random_blocks, 0, MOST)
        if config.max_length == MOST:
            raise DataError(
                "attention=block_sparse needs positions=learned, which limits the number of blocks; this "
                f"model has positions={config.positions.kind}."
            )

    def tokens_seen(self, layer: int, length: float) -> float:
        """How many tokens a token attends to, at most: all of a text that is too short for blocks to save anything."""
        blocks = 5 + self.num_random_blocks
        return min(length, blocks * self.block_size) if length > self.shortest else length

    @property
    def shortest(self) -> int:
        """Texts of up to so many tokens are attended to in full."""
        return (5 + 2 * self.num_random_blocks) * self.block_size


@dataclass(frozen=True, kw_only=True)
class Residual:
    """Attention, then a feed-forward network, each beside a residual connection. Vaswani et al. 2017, 3.1."""

    kind: Literal["residual"] = "residual"
    norm: Literal["post", "pre"] = "post"
    """post: norm(x + f(x)), as BERT; pre: x + f(norm(x)), and one norm more behind the last layer."""
    bias: bool = True
    """Of every linear layer."""
    attention_bias: bool = True
    """Of the projections to query, key and value."""
    attention_head_size: int | None = None
    """None: hidden_size / num_attention_heads."""
    scale_attention: bool = True
    """Scores are divided by the root of the head size."""
    dropout_inside: bool = False
    """Also inside the feed-forward network and behind the last norm (T5)."""

    def check(self, config: Shape) -> None:
        """Raise DataError for what the rest of the config does not allow."""
        within("attention_head_size", 1 if self.attention_head_size is None else self.attention_head_size, 1, MOST)
        if self.attention_head_size is None:
            _divides("hidden_size", config.hidden_size, config.num_attention_heads)

    def attention_size(self, config: Shape) -> int:
        """Width of all attention heads together."""
        return config.num_attention_heads * self.attention_head_size if self.attention_head_size else config.hidden_size


@dataclass(frozen=True, kw_only=True)
class Bottleneck:
    """Narrow inside, hidden_size wide between layers. Sun et al. 2020 (MobileBERT)."""

    norm: ClassVar[Literal["post"]] = "post"
    dropout_inside: ClassVar[bool] = False
    kind: Literal["bottleneck"] = "bottleneck"
    bottleneck_size: int
    """Width inside a layer."""
    bottleneck_attention: bool = False
    """All that attention reads has passed the bottleneck, values too."""
    num_feedforward_networks: int = 1
    """One after the other in a layer."""

    def check(self, config: Shape) -> None:
        """Raise DataError for what the rest of the config does not allow."""
        within("bottleneck_size", self.bottleneck_size, 1, MOST)
        within("num_feedforward_networks", self.num_feedforward_networks, 1, MOST_LAYERS)
        _divides("bottleneck_size", self.bottleneck_size, config.num_attention_heads)
        if not isinstance(config.attention, Full):
            raise DataError(f"layer=bottleneck needs attention=full, but this model has {config.attention.kind}.")
        if config.hidden_act in GATED:
            raise DataError(
                "layer=bottleneck does not support gated activations; hidden_act is "
                f"{config.hidden_act}. Choose gelu or relu."
            )

    def attention_size(self, config: Shape) -> int:
        """Width of all attention heads together."""
        return self.bottleneck_size


@dataclass(frozen=True, kw_only=True)
class Unshared:
    """Each layer has weights of its own."""

    kind: Literal["none"] = "none"

    def check(self, config: Shape) -> None:
        """Goes with everything."""


@dataclass(frozen=True, kw_only=True)
class Groups:
    """Layers of a group share their weights. Lan et al. 2019, 3.1 (ALBERT)."""

    kind: Literal["groups"] = "groups"
    num_hidden_groups: int
    inner_group_num: int = 1
    """Layers with weights of their own in a group, passed one after the other each time."""

    def check(self, config: Shape) -> None:
        """Raise DataError for what the rest of the config does not allow."""
        within("num_hidden_groups", self.num_hidden_groups, 1, max(1, config.num_hidden_layers))
        within("inner_group_num", self.inner_group_num, 1, MOST_LAYERS)


Positions = Learned | Relative | Sinusoidal | NoPositions
Attention = Full | Window | BlockSparse
LayerKind = Residual | Bottleneck
Sharing = Unshared | Groups


def _divides(name: str, width: int, heads: int) -> None:
    if width % heads:
        raise DataError(f"{name} ({width}) must be divisible by num_attention_heads ({heads}).")
