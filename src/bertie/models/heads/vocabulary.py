"""Heads over the vocabulary: which entry stands at a position, comes next, or comes next in a random order.

The decoder of most is the word embedding matrix, passed in at the call.

N predictions · H hidden size · E width of the word embeddings · V vocabulary
"""

from collections.abc import Mapping
from math import sqrt

import torch
import torch.nn.functional as F
from torch import Tensor, nn, zeros

from bertie.models.config import EncoderConfig
from bertie.models.encoder import EncoderOutput
from bertie.models.heads.base import Axes, Head, Needs
from bertie.nn.layer import ACTIVATIONS
from bertie.nn.layout import rounded, with_rows
from bertie.nn.linear import LayerNorm, Linear
from bertie.nn.loss import linear_cross_entropy

TRANSFORM: Mapping[str, Axes] = {
    "dense.weight": ("written", "read"),
    "dense.bias": ("written",),
    "norm.weight": ("decoded",),  # the word embeddings read what it gives
    "norm.bias": ("decoded",),
    "bias": (None,),
}
NARROW: Mapping[str, Axes] = {**dict.fromkeys(TRANSFORM, (None,)), "dense.weight": (None, "read")}
"""Where word embeddings have a width of their own."""


class VocabularyHead(Head):
    """Logits of every vocabulary entry: what `parts` gives, multiplied. May be asked at chosen positions alone."""

    needs = Needs(word_embeddings=True)
    rows = "place"
    vocabulary: Mapping[str, int] = {"bias": 0}
    axes: Mapping[str, Axes] | None = None

    def parts(self, hidden: Tensor, word_embeddings: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """hidden (..., H), word_embeddings (V, E) -> what is compared (..., E'), with what (V, E'), a bias (V,)"""
        raise NotImplementedError

    def forward(self, output: EncoderOutput, word_embeddings: Tensor | None = None) -> Tensor:
        """-> logits at all positions, (T, V) packed or (B, S, V) padded"""
        assert word_embeddings is not None, "a head over the vocabulary is given the word embeddings"
        return self.logits(output.last_hidden_state, word_embeddings)

    def logits(self, hidden: Tensor, word_embeddings: Tensor) -> Tensor:
        """hidden (..., H), word_embeddings (V, E) -> logits (..., V)"""
        x, weight, bias = self.parts(hidden, word_embeddings)
        return F.linear(x, weight.to(x.dtype), bias.to(x.dtype))

    def loss(self, hidden: Tensor, word_embeddings: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """hidden (N, H), word_embeddings (V, E), targets (N,) int64 -> summed cross-entropy in nats, correct."""
        hidden = with_rows(hidden, rounded(len(hidden)))
        return linear_cross_entropy(*self.parts(hidden, word_embeddings), targets)


class MaskedLMHead(VocabularyHead):
    """Which vocabulary entry stands at a position.

    Where word embeddings are narrow, the hidden state is made as narrow, or (mlm_widened) the matrix is widened
    by columns of the head's own (Sun et al. 2020; release file run_pretraining.py, get_masked_lm_output).
    Devlin et al. 2018, 3.1; release file run_pretraining.py, get_masked_lm_output.
    """

    vocabulary: Mapping[str, int] = {"bias": 0, "columns": 1}

    def __init__(self, config: EncoderConfig, num_labels: int = 0) -> None:
        super().__init__()
        own = config.heads.mlm
        narrow = config.embedding_size or config.hidden_size
        size = config.hidden_size if own.mlm_widened else narrow
        self.columns = nn.Parameter(zeros(size - narrow, config.vocab_size)) if own.mlm_widened else None
        self.activation = ACTIVATIONS[own.mlm_act or config.hidden_act]
        self.dense = Linear(config.hidden_size, size)
        self.norm = LayerNorm(size, config.layer_norm_eps)
        self.bias = nn.Parameter(zeros(config.vocab_size))
        self.axes = NARROW if config.embedding_size or config.project_embeddings else TRANSFORM

    def parts(self, hidden: Tensor, word_embeddings: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """As of every head over the vocabulary."""
        decoder = word_embeddings if self.columns is None else torch.cat([word_embeddings, self.columns.T], 1)
        return self.norm(self.activation(self.dense(hidden))), decoder, self.bias


class NextTokenHead(VocabularyHead):
    """Which vocabulary entry comes next, by a matrix alone: the word embeddings, or one of its own.

    Radford et al. 2018, 3.1. With lm_scale what is compared is first divided by the root of H (T5
    with tied weights).
    """

    vocabulary: Mapping[str, int] = {"weight": 0}

    def __init__(self, config: EncoderConfig, num_labels: int = 0) -> None:
        super().__init__()
        self.divisor = sqrt(config.hidden_size) if config.heads.lm.lm_scale else 1.0
        self.weight = None if config.heads.lm.lm_tied else nn.Parameter(zeros(config.vocab_size, config.hidden_size))
        self.axes = None if self.weight is None else {"weight": (None, "read")}

    def parts(self, hidden: Tensor, word_embeddings: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """As of every head over the vocabulary; the bias is zeros."""
        weight = word_embeddings if self.weight is None else self.weight
        return hidden / self.divisor, weight, weight.new_zeros(len(weight))


def next_token_head(config: EncoderConfig, num_labels: int = 0) -> VocabularyHead:
    """The next-token head of a family: built as its masked-LM head, or a matrix alone (GPT, T5)."""
    return MaskedLMHead(config) if config.heads.lm.lm_transform else NextTokenHead(config)


class PermutationLMHead(VocabularyHead):
    """Which vocabulary entry stands at a position, by the word embeddings and a bias alone. Yang et al. 2019, 2.2."""

    def __init__(self, config: EncoderConfig, num_labels: int = 0) -> None:
        super().__init__()
        self.bias = nn.Parameter(zeros(config.vocab_size))

    def parts(self, hidden: Tensor, word_embeddings: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """As of every head over the vocabulary."""
        return hidden, word_embeddings, self.bias
