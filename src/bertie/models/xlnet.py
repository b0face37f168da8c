"""XLNet's encoder: the usual layers with relative attention (nn/relative.py), and a second stream of queries.

To predict a token, a position must not attend to itself, but positions later in the order must attend to it. A
predicted position therefore occurs twice: as a token, and as a query that knows only its position.

    tokens    the  cat  sat  on          keys of the next layer
    queries             ?2   ?4          attend to what is before them in the order; nothing attends to them

Both streams share all weights, and all modules but attention process each row separately. So the M queries are M more
rows after the S tokens, and no layer needs to know about them. Yang et al. 2019, 2.3.

B sequences · S longest sequence · M predictions per sequence · H hidden size · N heads
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn, zeros

from bertie.errors import UsageError
from bertie.models.config import ENCODER_CHOICES, EncoderConfig
from bertie.models.count import forward_flops, parameters
from bertie.models.encoder import EncoderOutput
from bertie.models.kinds import NoPositions, Positions
from bertie.nn.dropout import dropout
from bertie.nn.layer import Layer
from bertie.nn.layout import Layout, Padded
from bertie.nn.linear import Linear
from bertie.nn.relative import Relations, RelativeAttention, relations


@dataclass(frozen=True, kw_only=True)
class XLNetConfig(EncoderConfig):
    """An EncoderConfig with relative attention (nn/relative.py)."""

    unread: ClassVar = frozenset({*ENCODER_CHOICES, "embedding_size"})
    positions: Positions = NoPositions()

    @property
    def summary_last(self) -> bool:
        """XLNet's <cls> is the last token."""
        return True


class XLNetEncoder(nn.Module):
    """Has the interface of `Encoder`. Its pooler reads the last token, which is XLNet's <cls>.

    Yang et al. 2019; XLNet's code, modeling.py, transformer_xl.
    """

    layered: ClassVar[bool] = True

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        size, dropout_p = config.hidden_size, config.hidden_dropout_prob
        self.config = config
        self.compute_dtype: torch.dtype | None = None  # as of Encoder
        self.embeddings = nn.ModuleDict({"word": nn.Embedding(config.vocab_size, size)})
        self.mask_embedding = nn.Parameter(zeros(1, 1, size))  # what a query is before it has seen anything
        self.layers = nn.ModuleList(
            Layer(
                size,
                config.intermediate_size,
                attention=RelativeAttention(
                    size, config.num_attention_heads, dropout_p=config.attention_probs_dropout_prob
                ),
                activation=config.hidden_act,
                eps=config.layer_norm_eps,
                dropout_p=dropout_p,
                dropout_inside=True,
            )
            for _ in range(config.num_hidden_layers)
        )
        self.pooler = Linear(size, size) if config.pooler else None

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None = None,
        layout: Layout | None = None,
        *,
        attention_mask: Tensor | None = None,
        perm_mask: Tensor | None = None,
        target_positions: Tensor | None = None,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
    ) -> EncoderOutput:
        """Computes hidden states. Inputs as of `Encoder.forward`; token_type_ids are only compared for equality.

        perm_mask (B, S, S): true where token j comes after token i in the order of prediction, so that i must not
        attend to it. target_positions (B, M) int64: the positions to predict; last_hidden_state is then that of the
        queries, (B, M, H), and hidden_states and attentions have M more rows. Packed batches are padded for this.
        Raises UsageError for targets without an order.
        """
        if layout is None:
            layout = Padded.of(input_ids, attention_mask)
        if target_positions is not None and perm_mask is None:
            raise UsageError(
                "target_positions need perm_mask: without an order, a query would attend to its own target."
            )
        if perm_mask is not None:
            input_ids = layout.rectangle(input_ids)
            token_type_ids = None if token_type_ids is None else layout.rectangle(token_type_ids)
            layout = Padded(layout.mask())
        hidden = self.embeddings["word"](input_ids)
        if target_positions is not None:
            hidden = torch.cat([hidden, self.mask_embedding.expand(*target_positions.shape, -1)], 1)
        hidden = dropout(hidden.to(self.compute_dtype or hidden.dtype), self.config.hidden_dropout_prob, self.training)
        relations = self._relations(layout, token_type_ids, perm_mask, target_positions, hidden.dtype)
        hidden_states, attentions = [hidden], []
        for layer in self.layers:
            hidden, probs = layer(hidden, layout, relations, output_attentions=output_attentions)
            hidden_states.append(hidden)
            attentions.append(probs)
        if two := target_positions is not None:
            hidden = hidden[:, relations.keys :]
        hidden = dropout(hidden, self.config.hidden_dropout_prob, self.training)
        return EncoderOutput(
            last_hidden_state=hidden,
            layout=layout,
            pooler_output=None if self.pooler is None or two else torch.tanh(self.pooler(layout.last(hidden))),
            hidden_states=tuple(hidden_states) if output_hidden_states else None,
            attentions=tuple(attentions) if output_attentions else None,
            summary_last=self.config.summary_last,
        )

    def _relations(
        self,
        layout: Layout,
        token_type_ids: Tensor | None,
        perm_mask: Tensor | None,
        target_positions: Tensor | None,
        dtype: torch.dtype,
    ) -> Relations:
        mask_BS = layout.mask()
        size = mask_BS.shape[1]
        positions = torch.arange(size, device=mask_BS.device)[None]
        segments = None if token_type_ids is None else layout.rectangle(token_type_ids)
        hidden = None if layout.full else ~mask_BS[:, None, :]
        if perm_mask is not None:
            later = perm_mask.bool()
            hidden = later if hidden is None else later | hidden
            themselves = torch.eye(size, dtype=torch.bool, device=later.device)
            tokens = hidden & ~themselves  # a token knows itself, a query does not
            if target_positions is not None:
                rows = target_positions[:, :, None].expand(-1, -1, size)
                hidden = torch.cat([tokens, hidden.gather(1, rows)], 1)
                positions = torch.cat([positions.expand(len(mask_BS), -1), target_positions], 1)
                if segments is not None:
                    segments = torch.cat([segments, segments.gather(1, target_positions)], 1)
            else:
                hidden = tokens
        relation = relations(hidden, positions, segments, keys=size, size=self.config.hidden_size, dtype=dtype)
        p = self.config.hidden_dropout_prob
        return replace(relation, distances=dropout(relation.distances, p, self.training))


@parameters.register
def _(config: XLNetConfig) -> dict[str, int]:
    h, i = config.hidden_size, config.intermediate_size
    attention = 5 * h * h + 3 * h + 2 * h  # five projections, three questions, two kinds of segment
    return {
        "word embeddings": config.vocab_size * h,
        "mask embedding": h,
        "layers": config.num_hidden_layers * (attention + (h * i + i) + (i * h + h) + 2 * 2 * h),
        **({"pooler": h * h + h} if config.pooler else {}),
    }


@forward_flops.register
def _(config: XLNetConfig, *, length: float, predicted: float = 0.0) -> dict[str, float]:
    """Returns the operations of the content stream; `predicted` adds those of the query stream."""
    h, layers = config.hidden_size, config.num_hidden_layers
    rows = 1 + predicted
    return {
        "projections": 2 * layers * h * h * (2 * rows + 2),
        "distances": 2 * layers * 2 * h * h,  # 2 S of them for S tokens, the same for all sequences of a batch
        "feed-forward": 2 * layers * rows * 2 * h * config.intermediate_size,
        "attention": 2 * layers * rows * h * length * 4,  # two products as everywhere, one of 2 S distances
        "LM head": predicted * 2 * h * config.vocab_size,
    }
