"""Relative attention: each query attends by content, by distance and by segment.

    score(i, j) = [(q_i + u) k_j  +  (q_i + v) r(i - j)  +  (q_i + w) s(same segment?)] / sqrt(D)

r is a projection of sines of the distance, with its own weights per layer; u, v, w, s are learned. Dai et al. 2019
(Transformer-XL), 3.3; Yang et al. 2019 (XLNet), 2.5.

There may be more queries than keys. After the S tokens of a row, there may be other queries that attend to the tokens
and that nothing attends to (XLNet's query stream). Each of them has its own position.

B sequences · T real tokens · K tokens (keys) · Q queries, K or more · N heads · D head size · H = N D · R distances
"""

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

import torch
from torch import Tensor, nn, zeros

from bertie.nn.attention import lowest_where
from bertie.nn.dropout import dropout
from bertie.nn.layout import Layout
from bertie.nn.positions import sines


@dataclass(frozen=True)
class Relations:
    """The relations of the queries of a batch to its keys; the same in all layers.

    bias: added to the scores, (B or 1, 1, Q or 1, K); distances: the sines of each distance, (R, H); which: the row of
    these for every query and key, (B or 1, 1, Q, K); other_segment: whether the two have different segments, (B, 1, Q,
    K), None where there is one segment.
    """

    bias: Tensor | None
    distances: Tensor
    which: Tensor
    other_segment: Tensor | None

    @property
    def keys(self) -> int:
        """The number of keys, K."""
        return self.which.shape[-1]


def relations(
    hidden_BQK: Tensor | None,
    positions_BQ: Tensor,
    segments_BQ: Tensor | None,
    *,
    keys: int,
    size: int,
    dtype: torch.dtype,
) -> Relations:
    """Returns relations from hidden_BQK, keys that a query does not attend to, and the positions and segments of the
    queries.

    The first K queries are the keys. size: H.
    """
    which_BQK = positions_BQ[:, :, None] - positions_BQ[:, None, :keys] + keys - 1
    distances = sines(torch.arange(1 - keys, keys, device=positions_BQ.device), size).to(dtype)
    other = None if segments_BQ is None else (segments_BQ[:, :, None] != segments_BQ[:, None, :keys])[:, None]
    bias = None if hidden_BQK is None else lowest_where(hidden_BQK[:, None], dtype)
    return Relations(bias, distances, which_BQK[:, None], other)


class RelativeAttention(nn.Module):
    """Self-attention by content, distance and segment. The projections are stored as published, (H, N, D), without
    biases."""

    biases: ClassVar = ("ask_content", "ask_distance", "ask_segment")  # added to every query (train/optim.py)

    def __init__(self, hidden_size: int, num_heads: int, *, dropout_p: float = 0.0) -> None:
        super().__init__()
        self.num_heads, self.dropout_p = num_heads, dropout_p
        shape = hidden_size, num_heads, hidden_size // num_heads
        self.query, self.key, self.value = (nn.Parameter(zeros(shape)) for _ in range(3))
        self.output, self.distance = (nn.Parameter(zeros(shape)) for _ in range(2))
        self.ask_content, self.ask_distance, self.ask_segment = (nn.Parameter(zeros(shape[1:])) for _ in range(3))
        self.segment = nn.Parameter(zeros(2, *shape[1:]))  # the same, another

    def forward(
        self, hidden: Tensor, layout: Layout, relations: Relations, *, output_attentions: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """hidden (T, H) or (B, Q, H) -> the same shape, and the probabilities (B, N, Q, K) on request."""
        tokens = hidden if hidden.ndim == 2 else hidden[:, : relations.keys]
        q_BNQD = layout.rectangle(self._project(hidden, self.query)).transpose(1, 2) / sqrt(self.query.shape[2])
        k_BNKD = layout.rectangle(self._project(tokens, self.key)).transpose(1, 2)
        v_BNKD = layout.rectangle(self._project(tokens, self.value)).transpose(1, 2)
        scores_BNQK = self._scores(q_BNQD, k_BNKD, relations)
        scores_BNQK = scores_BNQK if relations.bias is None else scores_BNQK + relations.bias
        probs_BNQK = dropout(scores_BNQK.softmax(-1), self.dropout_p, self.training)
        context_BQH = (probs_BNQK @ v_BNKD).transpose(1, 2).flatten(2)
        return layout.flat(context_BQH) @ self.output.to(hidden.dtype).flatten(
            1
        ).T, probs_BNQK if output_attentions else None

    def _scores(self, q_BNQD: Tensor, k_BNKD: Tensor, relations: Relations) -> Tensor:
        scale, dtype = sqrt(q_BNQD.shape[-1]), q_BNQD.dtype
        u, v, w = ((ask / scale).to(dtype)[:, None] for ask in (self.ask_content, self.ask_distance, self.ask_segment))
        scores_BNQK = (q_BNQD + u) @ k_BNKD.mT
        r_NRD = self._project(relations.distances, self.distance).transpose(0, 1)
        of_distance_BNQR = (q_BNQD + v) @ r_NRD.mT
        scores_BNQK = scores_BNQK + of_distance_BNQR.gather(-1, relations.which.expand(scores_BNQK.shape))
        if relations.other_segment is not None:
            of_segment_BNQ2 = (q_BNQD + w) @ self.segment.to(dtype).transpose(0, 1).mT
            same, other = of_segment_BNQ2[..., :1], of_segment_BNQ2[..., 1:]
            scores_BNQK = scores_BNQK + torch.where(relations.other_segment, other, same)
        return scores_BNQK

    def _project(self, x: Tensor, weight: Tensor) -> Tensor:
        """x (..., H), weight (H, N, D) -> (..., N, D)"""
        return (x @ weight.to(x.dtype).flatten(1)).view(*x.shape[:-1], *weight.shape[1:])
