"""The head of two language models with a shared softmax: the next and the previous word. Peters et al. 2018, 3.1.

N predictions · P half of the hidden size · V vocabulary
"""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn, zeros

from bertie.models.config import EncoderConfig
from bertie.models.encoder import EncoderOutput
from bertie.models.heads.base import Head, Needs
from bertie.nn.dropout import dropout
from bertie.nn.loss import linear_cross_entropy


class BiLMHead(Head):
    """Predicts the next and the previous word with one matrix."""

    needs = Needs(hidden_states=True)
    rows = "token"
    vocabulary: Mapping[str, int] = {"weight": 0, "bias": 0}

    def __init__(self, config: EncoderConfig, num_labels: int = 0) -> None:
        super().__init__()
        self.dropout_p = config.hidden_dropout_prob
        self.weight = nn.Parameter(zeros(config.vocab_size, config.hidden_size // 2))
        self.bias = nn.Parameter(zeros(config.vocab_size))

    def forward(self, output: EncoderOutput, word_embeddings: Tensor | None = None) -> Tensor:
        """Returns logits (T, 2, V) packed or (B, S, 2, V) padded: of the next word, of the previous word."""
        directions = torch.stack(output.all_states[-1].chunk(2, -1), -2)
        return F.linear(directions, self.weight.to(directions.dtype), self.bias.to(directions.dtype))

    def loss(self, states: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """states (N, P) of either direction, targets (N,) int64 -> summed cross-entropy in nats, number of correct
        predictions"""
        states = dropout(states, self.dropout_p, self.training)
        return linear_cross_entropy(states, self.weight, self.bias, targets)
