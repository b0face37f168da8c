"""The encoder. `EncoderConfig` has all differences between BERT and its variants; this file has no model names.

Token ids become vectors (nn/embeddings.py), pass L layers (nn/layer.py), and are returned as `last_hidden_state`. All
modules but attention process only real tokens and do not depend on the layout of the batch. Heads are in heads/, losses
in objectives/ and tasks/.

B sequences · T real tokens of the batch · S longest sequence · H hidden size · N heads
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from bertie.errors import TextTooLong, UsageError
from bertie.models.config import EncoderConfig
from bertie.models.kinds import Alternating, Groups, Learned, LearnedRelative, Rotary, Sinusoidal, Window
from bertie.models.layers import feature_embeddings, final_norm, make_layer, relative_positions, rotations
from bertie.nn.attention import attention_bias
from bertie.nn.cache import Cache
from bertie.nn.disentangled import Distances
from bertie.nn.dropout import dropout
from bertie.nn.embeddings import Embeddings, positions_after_pad
from bertie.nn.features import Features
from bertie.nn.fused import norm
from bertie.nn.graphs import GraphedLayers
from bertie.nn.groups import LayoutGroups as AttentionGroups
from bertie.nn.layer import AttentionPlan, Layer
from bertie.nn.layout import Layout, Padded, rows_at
from bertie.nn.linear import Linear
from bertie.nn.rotary import Views, turns
from bertie.nn.varlen import Varlen, unpadded
from bertie.nn.window import window_mask


@dataclass(frozen=True)
class EncoderOutput:
    """The output of an encoder. Hidden states are (T, H) packed or (B, S, H) padded; attentions are (B, N, S, S)."""

    last_hidden_state: Tensor
    layout: Layout
    pooler_output: Tensor | None = None  # (B, H)
    hidden_states: tuple[Tensor, ...] | None = (
        None  # the embeddings, then each layer: L + 1; the last is the first above
    )
    attentions: tuple[Tensor, ...] | None = None  # one per layer; of windowed layers nn.window.WindowProbs' parts
    global_attentions: tuple[Tensor, ...] | None = None  # of windowed layers
    cross_attentions: tuple[Tensor, ...] | None = None  # a decoder's, to the memory: (B, N, S, K), one per layer
    summary_last: bool = False  # whether the last token represents its sequence, not the first ([CLS])

    @property
    def all_states(self) -> tuple[Tensor, ...]:
        """The hidden states of all layers. Raises ValueError where they were not asked for."""
        if self.hidden_states is None:
            raise ValueError("The hidden states of all layers are returned with output_hidden_states=True alone.")
        return self.hidden_states

    def at(self, positions: Tensor) -> Tensor:
        """Returns the last hidden states at flattened positions without repeats. -> (N, H)"""
        return rows_at(self.last_hidden_state.flatten(0, -2), positions)

    def summary(self) -> Tensor:
        """The hidden state (B, H) of the token that represents its sequence."""
        return pick_summary(self.last_hidden_state, self.layout, last=self.summary_last)


def pick_summary(hidden: Tensor, layout: Layout, *, last: bool) -> Tensor:
    """Returns the hidden state of each sequence's last or first token. hidden (T, H) or (B, S, H) -> (B, H)"""
    return layout.last(hidden) if last else layout.first(hidden)


ComputeLayer = Callable[..., tuple[Tensor, Any]]


class Encoder(nn.Module):
    """A transformer encoder. Devlin et al. 2018, section 3; google-research/bert, modeling.py, BertModel.

    Weights stay float32. `compute_dtype = torch.bfloat16` computes everything after the embeddings in bfloat16.
    """

    computes_part: ClassVar[bool] = True
    """Whether the argument `read` of `forward` leaves out tokens."""
    layered: ClassVar[bool] = True
    """Whether its hidden states are the embeddings and one of each layer."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.compute_dtype: torch.dtype | None = None  # None: that of the weights
        self.graphs: GraphedLayers | None = None  # set in training on a GPU
        self.recomputes = False  # set in training: the layers are computed again in the backward pass
        self.embeddings = Embeddings(
            config.vocab_size,
            config.hidden_size,
            max_positions=config.max_position_embeddings
            if isinstance(config.positions, Learned | LearnedRelative)
            else 0,
            sinusoidal=isinstance(config.positions, Sinusoidal),
            num_segments=config.type_vocab_size,
            embedding_size=config.embedding_size,
            project=config.project_embeddings,
            has_norm=config.embedding_norm,
            trigram=config.trigram_embeddings,
            norm_type=config.norm_type,
            rescale=config.rescale_embeddings,
            dropout_before_norm=config.dropout_before_norm,
            eps=config.layer_norm_eps,
            dropout_p=config.hidden_dropout_prob if config.embedding_dropout is None else config.embedding_dropout,
            features=feature_embeddings(config),
        )
        self.viewed = isinstance(config.positions, Rotary) or isinstance(config.attention, Alternating)
        self.relative = relative_positions(config, both_sides=not config.causal)
        sharing = config.sharing
        if isinstance(sharing, Groups):
            self.layers = nn.ModuleList(
                nn.ModuleList(make_layer(config.layer, config, i) for _ in range(sharing.inner_group_num))
                for i in range(sharing.num_hidden_groups)
            )
        else:
            self.layers = nn.ModuleList(make_layer(config.layer, config, i) for i in range(config.num_hidden_layers))
        self.final_norm = final_norm(config) if config.layer.norm == "pre" else None
        everywhere = config.layer.dropout_inside and config.layer.fed_dropout
        self.final_dropout_p = config.hidden_dropout_prob if everywhere else 0.0
        dense = config.pooler and config.pooler_dense
        self.pooler = Linear(config.hidden_size, config.hidden_size) if dense else None

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None = None,
        layout: Layout | None = None,
        *,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        global_attention_mask: Tensor | None = None,
        features: Features | None = None,
        cache: Cache | None = None,
        read: Tensor | None = None,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
    ) -> EncoderOutput:
        """Computes hidden states.

        Args:
            input_ids: Token ids (T,) with a `Packed` layout, or (B, S) with a `Padded` layout or an attention_mask.
            token_type_ids: Segment ids, same shape as input_ids. Default: zeros.
            layout: The positions of the sequences in input_ids.
            attention_mask: (B, S), 1 for real tokens and 0 for padding, instead of a layout.
            position_ids: Positions, same shape as input_ids. Default: 0, 1, 2 ... in every sequence.
            global_attention_mask: Same shape as input_ids, 1 for tokens with global attention, for windowed attention.
            features: Vectors in the place of some tokens, for a model with inputs=regions or inputs=frames.
            cache: Keys and values of earlier tokens of a causal model, for a padded batch. The new tokens are added to
                it.
            read: Flattened positions (N,) int64 in input_ids, without repeats, of the tokens whose last hidden states
                are needed. The last layer computes these alone, and the other states mean nothing. None: all.
            output_hidden_states: Whether to return the output of every layer. `read` then has no effect.
            output_attentions: Whether to return the attention probabilities.

        Returns:
            Hidden states (T, H) for a packed batch and (B, S, H) for a padded batch.

        Raises:
            DataError: A sequence is longer than the number of positions of the model.
        """
        rows = Padded.of(input_ids, attention_mask) if layout is None else layout
        layout = rows.roomy()
        positions = self._positions(input_ids, layout, position_ids, cache)
        self.check_length(layout.max_seqlen if cache is None else int(cache.mask().sum(1).max()))
        types = None if token_type_ids is None else layout.fill(token_type_ids)
        hidden = self.embeddings(layout.fill(input_ids), types, positions, layout, features)
        hidden = hidden.to(self.compute_dtype or hidden.dtype)
        plan = self._plan(rows, layout, hidden, positions, cache, global_attention_mask, formula=output_attentions)
        whole = read is None or output_hidden_states or output_attentions or cache is not None
        hidden_states, attentions = [hidden], []
        layers: Sequence[nn.Module] = list(self.in_order())
        if self.graphs is not None and not output_hidden_states:
            layers, hidden = self.graphs.run(layers, hidden, plan)
        for i, layer in enumerate(layers):
            reads = {} if cache is None else {"cache": cache.layer(i)}
            part = layout if whole or i + 1 < len(layers) else replace(layout, part=read)
            again = self.recomputes and torch.is_grad_enabled() and cache is None
            compute: ComputeLayer = partial(checkpoint, layer, use_reentrant=False) if again else layer
            states, probs = compute(hidden, part, plan, output_attentions=output_attentions, **reads)
            hidden = part.spread(states, hidden)
            if output_hidden_states:  # or they would stay in memory
                hidden_states.append(hidden)
            if output_attentions:
                attentions.append(probs)
        windowed = isinstance(self.config.attention, Window)
        if self.final_norm is not None:
            hidden = dropout(norm(hidden, self.final_norm), self.final_dropout_p, self.training)
            hidden_states[-1] = hidden
        return EncoderOutput(
            last_hidden_state=layout.real(hidden),
            layout=rows,
            pooler_output=self.pool(pick_summary(hidden, layout, last=self.config.summary_last)),
            hidden_states=tuple(map(layout.real, hidden_states)) if output_hidden_states else None,
            attentions=tuple(a.window if windowed else a for a in attentions) if output_attentions else None,
            global_attentions=tuple(a.of_global for a in attentions) if output_attentions and windowed else None,
            summary_last=self.config.summary_last,
        )

    def _positions(self, input_ids: Tensor, layout: Layout, position_ids: Tensor | None, cache: Cache | None) -> Tensor:
        """Returns the positions of all rows; those of a cache's new tokens follow the ones in it."""
        positions = layout.position_ids() if cache is None else cache.extend(layout.mask())
        if position_ids is not None:
            return layout.fill(position_ids)
        if not self.config.position_offset:
            return positions
        after_pad = positions_after_pad(layout.fill(input_ids), layout, self.config.pad_token_id)
        return after_pad if cache is None else after_pad + positions[:, :1]

    def _plan(
        self,
        rows: Layout,
        layout: Layout,
        hidden: Tensor,
        positions: Tensor,
        cache: Cache | None,
        global_mask: Tensor | None,
        *,
        formula: bool,
    ) -> AttentionPlan:
        """Returns which tokens attend to which.

        formula: whether probabilities are needed, which attention without padding does not have.
        """
        config = self.config
        if isinstance(config.attention, Window):
            return window_mask(rows, global_mask, causal=config.causal, cache=cache)
        plan: Tensor | AttentionGroups | Varlen | Distances | None = None
        if config.attends_to_all and cache is None and not formula:
            plan = unpadded(layout, hidden, config.num_attention_heads, config.head_size)
        if plan is None:
            bias = attention_bias(layout, hidden.dtype, causal=config.causal, cache=cache)
            plan = bias
            if self.relative is not None:
                mask_BK = None if cache is None else cache.mask()
                keys = layout.max_seqlen if mask_BK is None else mask_BK.shape[1]
                plan = self.relative.added(bias, layout.max_seqlen, keys, mask_BK, hidden.dtype)
        if not self.viewed:
            return plan
        assert not isinstance(plan, Distances), "EncoderConfig has one kind of positions"
        turned = {theta: turns(positions, config.head_size, theta) for theta in rotations(config)}
        return Views(plan, window_mask(rows, None, causal=config.causal, cache=cache), turned)

    def pool(self, token: Tensor) -> Tensor | None:
        """Returns the pooler's output for hidden states of summary tokens (B, H), or None without a pooler."""
        if self.pooler is not None:
            return torch.tanh(self.pooler(token))
        return None if self.config.pooler_dense else token

    def in_order(self) -> Iterator[nn.Module]:
        """The layers in the order of computation. Layers of a group occur repeatedly (Lan et al. 2019, 3.1)."""
        sharing, rounds = self.config.sharing, self.config.num_hidden_layers
        if isinstance(sharing, Groups):
            for i in range(rounds):
                yield from cast(nn.ModuleList, self.layers[i * sharing.num_hidden_groups // rounds])
        else:
            yield from self.layers

    def plain_layers(self) -> Iterator[Layer]:
        """The layers in the order of computation, where they are those of BERT. Raises UsageError for others."""
        for layer in self.in_order():
            if not isinstance(layer, Layer):
                raise UsageError(f"A layer of this model is a {type(layer).__name__}, and one as BERT's is needed.")
            yield layer

    def check_length(self, longest: int) -> None:
        """Raises DataError when a sequence is longer than the number of positions of the model."""
        most = self.config.max_length
        if longest > most:
            raise TextTooLong(
                f"A sequence of {longest:,} tokens is longer than the model's {most:,} positions. Truncate it "
                f"or use windows: max_length={most}."
            )
