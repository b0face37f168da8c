"""Token + position + segment embeddings, normalized. Devlin et al. 2018, figure 2."""

import torch.nn.functional as F
from torch import Tensor, nn

from bertie.nn.dropout import dropout
from bertie.nn.linear import LayerNorm, Linear


class Embeddings(nn.Module):
    """The sum of a token's, its position's and its segment's vector, then norm and dropout.

    With `embedding_size` below `hidden_size` the sum is projected up (factorized embeddings, Lan et al. 2019, 3.1);
    with `project` also where they are equal.
    """

    def __init__(
        self,
        vocab_size: int,
        hidden_size: int,
        *,
        max_positions: int = 512,
        num_segments: int = 2,
        embedding_size: int | None = None,
        project: bool = False,
        eps: float = 1e-12,
        dropout_p: float = 0.1,
    ) -> None:
        super().__init__()
        size = embedding_size or hidden_size
        self.dropout_p = dropout_p
        self.word = nn.Embedding(vocab_size, size)
        self.position = nn.Embedding(max_positions, size)
        self.segment = nn.Embedding(num_segments, size) if num_segments else None
        self.norm = LayerNorm(size, eps)
        self.projection = Linear(size, hidden_size) if project or size != hidden_size else None

    def forward(self, input_ids: Tensor, token_type_ids: Tensor | None, position_ids: Tensor) -> Tensor:
        """input_ids, token_type_ids (...), position_ids that broadcast to them, int64 -> (..., hidden_size) float32"""
        summed = self.word(input_ids) + self.position(position_ids)
        if self.segment is not None:
            summed = summed + (self.segment.weight[0] if token_type_ids is None else self.segment(token_type_ids))
        hidden = dropout(self.norm(summed), self.dropout_p, self.training)
        return hidden if self.projection is None else F.linear(hidden, self.projection.weight, self.projection.bias)
