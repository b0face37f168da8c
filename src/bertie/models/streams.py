"""An encoder with two streams, a text and the regions of a picture, which attend to each other.

    text     -> layers   -> [ co-attention -> layer ] ... -> (T, H)
    regions  -> v_layers -> [ co-attention -> layer ] ...

In co-attention, the queries of each stream meet the keys and values of the other. All else is BERT's: the layers of a
stream are those of `Encoder`. Lu et al. 2019 (ViLBERT), 2.2; Tan and Bansal 2019 (LXMERT), 2.2.

B sequences · T tokens and regions of the batch, t tokens, R regions · D numbers of a region · H, V sizes of the streams
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn, relu

from bertie.errors import UsageError
from bertie.models.config import ENCODER_CHOICES, EncoderConfig
from bertie.models.count import forward_flops, parameters
from bertie.models.encoder import Encoder, EncoderOutput
from bertie.models.kinds import MAX_SETTING, MOST_LAYERS, within
from bertie.models.layers import make_layer
from bertie.nn.attention import CrossAttention, attention_bias
from bertie.nn.dropout import add_dropout, dropout
from bertie.nn.features import Features, LocatedRegions
from bertie.nn.layer import Layer
from bertie.nn.layout import Layout, Packed, Padded
from bertie.nn.linear import LayerNorm, Linear
from bertie.nn.varlen import unpadded


@dataclass(frozen=True, kw_only=True)
class TwoStreamConfig(EncoderConfig):
    """An EncoderConfig of the text's stream, with the sizes of the other one. num_hidden_layers: before co-attention.

    A region's vector has visual_feat_dim numbers, then the visual_pos_dim numbers of its location.
    """

    unread: ClassVar = frozenset({*ENCODER_CHOICES, "embedding_size"}) - {"max_position_embeddings"}
    visual_feat_dim: int = 2048
    visual_pos_dim: int = 5
    image_location: tuple[float, ...] | None = None
    """The location of the whole picture. If set, the mean of the regions precedes them (<IMG>), and the pooler's output
    is the product of both streams' first vectors."""
    norm_each: bool = False
    """Whether a region's features and its location are normalized each alone."""
    v_num_hidden_layers: int = 0
    v_hidden_size: int | None = None
    """Sizes of the regions' stream. Not set: those of the text."""
    v_num_attention_heads: int | None = None
    v_intermediate_size: int | None = None
    co_layers: int = 6
    """Number of blocks of co-attention and one layer of each stream."""
    co_attention: Literal["layers", "shared"] = "layers"
    """layers: each stream has its own, with a feed-forward network (ViLBERT); shared: one attention for both streams
    (LXMERT)."""
    co_hidden_size: int | None = None
    """Size of the heads of co-attention together. Not set: hidden_size."""
    co_num_attention_heads: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("visual_feat_dim", "visual_pos_dim"):
            within(name, getattr(self, name), 1, MAX_SETTING)
        for name in ("v_num_hidden_layers", "co_layers"):
            within(name, getattr(self, name), 0, MOST_LAYERS)
        optional = ("v_hidden_size", "v_num_attention_heads", "v_intermediate_size", "co_hidden_size")
        for name in (*optional, "co_num_attention_heads"):
            within(name, 1 if getattr(self, name) is None else getattr(self, name), 1, MAX_SETTING)
        within("co_hidden_size % co_num_attention_heads", self.co_size % self.co_heads, 0, 0)
        if self.co_attention == "shared":
            within("v_hidden_size - hidden_size, with co_attention=shared", self.v_size - self.hidden_size, 0, 0)
        if self.image_location is not None:
            within("len(image_location) - visual_pos_dim", len(self.image_location) - self.visual_pos_dim, 0, 0)
        self.of_regions()

    @property
    def feature_size(self) -> int:
        """Numbers of a feature vector."""
        return self.visual_feat_dim + self.visual_pos_dim

    @property
    def max_together(self) -> None:
        """Only the text has positions."""
        return

    @property
    def v_size(self) -> int:
        """Size of the regions' stream."""
        return self.v_hidden_size or self.hidden_size

    @property
    def co_size(self) -> int:
        """Size of the heads of co-attention together."""
        return self.co_hidden_size or self.hidden_size

    @property
    def co_heads(self) -> int:
        """Number of heads of co-attention."""
        return self.co_num_attention_heads or self.num_attention_heads

    def of_regions(self) -> EncoderConfig:
        """Returns the shape of the layers of the regions' stream."""
        return EncoderConfig(
            hidden_size=self.v_size,
            num_attention_heads=self.v_num_attention_heads or self.num_attention_heads,
            intermediate_size=self.v_intermediate_size or self.intermediate_size,
            hidden_act=self.hidden_act,
            hidden_dropout_prob=self.hidden_dropout_prob,
            attention_probs_dropout_prob=self.attention_probs_dropout_prob,
            layer_norm_eps=self.layer_norm_eps,
        )


class Other(NamedTuple):
    """The other stream: what co-attention attends to."""

    hidden: Tensor
    layout: Layout
    bias: Tensor | None


class CoAttention(CrossAttention):
    """Attention to the other stream, in the place of self-attention. Nothing is added where that stream is empty."""

    def forward(  # type: ignore[override]
        self, hidden: Tensor, layout: Layout, other: Other, *, output_attentions: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """As of `SelfAttention`, with the other stream instead of a bias."""
        if not other.hidden.numel():
            return self.output(hidden.new_zeros(*hidden.shape[:-1], self.output.in_features)), None
        return super().forward(hidden, layout, *other, output_attentions=output_attentions)


class SharedCoAttention(nn.Module):
    """One attention, with its residual connection and norm, for both directions."""

    def __init__(self, config: TwoStreamConfig) -> None:
        super().__init__()
        self.attention = _co_attention(config, config.hidden_size, config.hidden_size)
        self.norm = LayerNorm(config.hidden_size, config.layer_norm_eps)
        self.dropout_p = config.hidden_dropout_prob

    def forward(self, hidden: Tensor, layout: Layout, other: Other) -> tuple[Tensor, None]:
        """As of `Layer`."""
        added = add_dropout(hidden, self.attention(hidden, layout, other)[0], self.dropout_p, self.training)
        return self.norm(added), None


def _co_attention(config: TwoStreamConfig, size: int, memory_size: int) -> CoAttention:
    return CoAttention(
        size,
        config.co_heads,
        head_size=config.co_size // config.co_heads,
        memory_size=memory_size,
        dropout_p=config.attention_probs_dropout_prob,
    )


def _co_layer(config: TwoStreamConfig, shape: EncoderConfig, memory_size: int) -> Layer:
    return Layer(
        shape.hidden_size,
        shape.intermediate_size,
        attention=_co_attention(config, shape.hidden_size, memory_size),
        activation=config.hidden_act,
        eps=config.layer_norm_eps,
        dropout_p=config.hidden_dropout_prob,
    )


class CoLayer(nn.Module):
    """A block: co-attention of both streams, which reads what both were before, then a layer of each."""

    def __init__(self, config: TwoStreamConfig, number: int) -> None:
        super().__init__()
        regions = config.of_regions()
        self.shared = SharedCoAttention(config) if config.co_attention == "shared" else None
        if self.shared is None:
            self.co_text = _co_layer(config, config, regions.hidden_size)
            self.co_regions = _co_layer(config, regions, config.hidden_size)
        self.text = make_layer(config.layer, config, number)
        self.regions = make_layer(regions.layer, regions, number)

    def meet(self, text: Other, regions: Other) -> tuple[Tensor, Tensor]:
        """Returns the hidden states of both streams after co-attention."""
        to_text, to_regions = (self.co_text, self.co_regions) if self.shared is None else (self.shared, self.shared)
        met = to_regions(regions.hidden, regions.layout, text)[0] if regions.hidden.numel() else regions.hidden
        return to_text(text.hidden, text.layout, regions)[0], met


class ProductPooler(Linear):
    """The product of both streams' first vectors, each projected. Lu et al. 2019, 3.1: h_IMG and h_CLS."""

    def __init__(self, size: int, image_size: int) -> None:
        super().__init__(size, size)
        self.image = Linear(image_size, size)

    def product(self, text_BH: Tensor, image_BV: Tensor) -> Tensor:
        """-> (B, H)"""
        return relu(self(text_BH)) * relu(self.image(image_BV))


class TwoStreamEncoder(Encoder):
    """Has the interface of `Encoder`. Hidden states at regions are zeros where the streams have different sizes.

    The attention probabilities that it returns are those of the text to itself. Sequences without regions attend to
    nothing in co-attention.
    """

    config: TwoStreamConfig
    computes_part = False
    layered = False

    def __init__(self, config: TwoStreamConfig) -> None:
        super().__init__(config)
        regions = config.of_regions()
        self.regions = LocatedRegions(
            config.visual_feat_dim,
            config.visual_pos_dim,
            config.v_size,
            norm_each=config.norm_each,
            eps=config.layer_norm_eps,
        )
        self.v_layers = nn.ModuleList(make_layer(regions.layer, regions, i) for i in range(config.v_num_hidden_layers))
        self.co_layers = nn.ModuleList(CoLayer(config, i) for i in range(config.co_layers))
        if config.pooler and config.image_location is not None:
            self.pooler = ProductPooler(config.hidden_size, config.v_size)

    def forward(  # type: ignore[override]
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None = None,
        layout: Layout | None = None,
        *,
        attention_mask: Tensor | None = None,
        features: Features | None = None,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
    ) -> EncoderOutput:
        """Computes hidden states. Arguments as of `Encoder.forward`.

        Raises:
            DataError: A text is longer than the number of positions of the model.
            UsageError: Masked regions of streams that have different sizes.
        """
        layout = Padded.of(input_ids, attention_mask) if layout is None else layout
        text_rows, text_layout, region_layout = _parted(layout, features, input_ids)
        self.check_length(text_layout.max_seqlen)
        types = None if token_type_ids is None else token_type_ids.flatten()[text_rows]
        ids, positions = input_ids.flatten()[text_rows], text_layout.position_ids()
        text = self.embeddings(ids, types, positions, text_layout)
        text = text.to(self.compute_dtype or text.dtype)
        regions, region_layout, own_rows = self._embedded(features, region_layout, text)

        def whole(text: Tensor, regions: Tensor) -> Tensor:
            """The rows of both streams where their tokens are in the batch. -> as input_ids, (..., H)"""
            rows = text.new_zeros(input_ids.numel(), text.shape[-1]).index_copy(0, text_rows, text)
            if features is not None and regions.shape[-1] == text.shape[-1]:
                rows = rows.index_copy(0, features.rows, regions[own_rows])
            return rows.view(*input_ids.shape, rows.shape[-1])

        hidden_states, attentions = [whole(text, regions)], []
        text_bias, region_bias = (attention_bias(one, text.dtype) for one in (text_layout, region_layout))
        text_seen, region_seen = text_bias, region_bias
        if not output_attentions:
            parts = (self.config, text_layout, text), (self.config.of_regions(), region_layout, regions)
            views = [unpadded(layout, x, of.num_attention_heads, of.head_size) for of, layout, x in parts]
            text_seen, region_seen = views[0] or text_bias, views[1] or region_bias  # type: ignore[assignment]

        def read(layer: nn.Module) -> None:
            """A layer of the text."""
            nonlocal text
            text, probs = layer(text, text_layout, text_seen, output_attentions=output_attentions)
            hidden_states.append(whole(text, regions))
            attentions.append(probs)

        for layer in self.layers:
            read(layer)
        for layer in self.v_layers if regions.numel() else ():
            regions = layer(regions, region_layout, region_seen)[0]
        for block in self.co_layers:
            sides = Other(text, text_layout, text_bias), Other(regions, region_layout, region_bias)
            text, regions = block.meet(*sides)  # type: ignore[operator]
            if regions.numel():
                regions = block.regions(regions, region_layout, region_seen)[0]  # type: ignore[operator]
            read(block.text)  # type: ignore[arg-type]
        pooled = None
        if isinstance(self.pooler, ProductPooler):
            pooled = self.pooler.product(text_layout.first(text), region_layout.first(regions))
        elif self.pooler is not None:
            pooled = self.pool(text_layout.first(text))
        return EncoderOutput(
            last_hidden_state=whole(text, regions),
            layout=layout,
            pooler_output=pooled,
            hidden_states=tuple(hidden_states) if output_hidden_states else None,
            attentions=tuple(attentions) if output_attentions else None,
        )

    def _embedded(
        self, features: Features | None, layout: Packed, text: Tensor
    ) -> tuple[Tensor, Packed, Tensor | None]:
        """Returns the regions' first hidden states, with <IMG> where the model has it, and the rows of the others."""
        size = self.config.visual_feat_dim
        vectors_RD = (
            text.new_zeros(0, self.config.feature_size) if features is None else features.vectors.to(text.dtype)
        )
        if features is not None and features.hidden is not None:
            if self.config.v_size != self.config.hidden_size:
                raise UsageError(
                    f"Masked regions need streams of the same size, and v_hidden_size is {self.config.v_size}. Choose "
                    f"v_hidden_size={self.config.hidden_size}."
                )
            masked_R1 = features.hidden[:, None]  # their features are zeros, and their location is seen: 3.1
            visible = vectors_RD[:, :size].masked_fill(masked_R1, 0)
            vectors_RD = torch.cat([visible, vectors_RD[:, size:]], 1)
        rows_R = torch.arange(len(vectors_RD), device=text.device)
        if self.config.image_location is not None:
            counts_B = layout.lengths
            sequence_R = torch.repeat_interleave(torch.arange(len(counts_B), device=text.device), counts_B)
            sums_BD = vectors_RD.new_zeros(len(counts_B), vectors_RD.shape[1]).index_add(0, sequence_R, vectors_RD)
            image_BD = sums_BD / counts_B.clamp(min=1)[:, None]
            image_BD[:, size:] = torch.tensor(self.config.image_location, dtype=text.dtype, device=text.device)
            rows_R = rows_R + sequence_R + 1
            layout = Packed.from_lengths(counts_B + 1)
            firsts_B = layout.cu_seqlens[:-1].long()
            both = vectors_RD.new_zeros(layout.num_tokens, vectors_RD.shape[1])
            vectors_RD = both.index_copy(0, firsts_B, image_BD).index_copy(0, rows_R, vectors_RD)
        hidden = dropout(self.regions(vectors_RD), self.config.hidden_dropout_prob, self.training)
        return hidden.to(text.dtype), layout, rows_R


def _parted(layout: Layout, features: Features | None, input_ids: Tensor) -> tuple[Tensor, Packed, Packed]:
    """Returns the rows of the text in the flattened batch, and the layouts of the text and of the regions."""
    stands = torch.zeros(input_ids.numel(), dtype=torch.bool, device=input_ids.device)
    if features is not None:
        stands[features.rows] = True
    regions_BS = layout.rectangle(stands.view(input_ids.shape))
    text_BS = layout.mask() & ~regions_BS
    is_text = ~stands if isinstance(layout, Packed) else text_BS.flatten()
    return is_text.nonzero()[:, 0], Packed.from_lengths(text_BS.sum(1)), Packed.from_lengths(regions_BS.sum(1))


@parameters.register
def _(config: TwoStreamConfig) -> dict[str, int]:
    h, v, c, regions = config.hidden_size, config.v_size, config.co_size, config.of_regions()
    text = parameters.dispatch(EncoderConfig)(config)
    layer, v_layer = (_layer(one.hidden_size, one.intermediate_size) for one in (config, regions))
    shared = 4 * h * c + 3 * c + 3 * h
    own = (h + v) * (3 * c + 1) + 2 * 3 * c + (h + v) * c + 2 * (h + v)
    own += _fed(h, config.intermediate_size) + _fed(v, regions.intermediate_size)
    met = shared if config.co_attention == "shared" else own
    image = v * h + h if config.pooler and config.image_location is not None else 0
    return {
        **text,
        "region embeddings": config.feature_size * v + 2 * v + 2 * v * (1 + config.norm_each),
        "region layers": config.v_num_hidden_layers * v_layer,
        "co-attention": config.co_layers * (met + layer + v_layer),
        **({"pooler": text["pooler"] + image} if config.pooler else {}),
    }


def _fed(size: int, inner: int) -> int:
    return 2 * size * inner + inner + size + 2 * size


def _layer(size: int, inner: int) -> int:
    return 4 * size * size + 4 * size + 2 * size + _fed(size, inner)


@forward_flops.register
def _(config: TwoStreamConfig, *, length: float, predicted: float = 0.0) -> dict[str, float]:
    """Returns the operations for a text alone: the layers of the text, and co-attention without regions."""
    layers = config.num_hidden_layers + config.co_layers
    text: dict[str, float] = forward_flops.dispatch(EncoderConfig)(
        replace(config, num_hidden_layers=layers), length=length, predicted=predicted
    )
    fed = 2 * 2 * config.hidden_size * config.intermediate_size if config.co_attention == "layers" else 0
    return {**text, "co-attention": config.co_layers * (2 * 4 * config.hidden_size * config.co_size + fed)}
