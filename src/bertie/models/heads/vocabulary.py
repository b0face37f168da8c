"""Heads over the vocabulary: masked LM, next token, permutation LM, and the next and the previous word.

The decoder of most is the word embedding matrix, passed in at the call. BiLMHead is that of two language
models with a shared softmax (Peters et al. 2018, 3.1).

N predictions · H hidden size · P half of it · E size of the word embeddings · V vocabulary
"""

from collections.abc import Mapping
from math import sqrt

import torch
import torch.nn.functional as F
from torch import Tensor, nn, zeros

from bertie.errors import UsageError
from bertie.models.config import EncoderConfig
from bertie.models.encoder import EncoderOutput
from bertie.models.heads.base import Axes, Head, Needs
from bertie.models.vocabulary_loss import linear_cross_entropy
from bertie.nn.dropout import dropout
from bertie.nn.layer import ACTIVATIONS
from bertie.nn.layout import rounded, with_rows
from bertie.nn.linear import NORMS, LayerNorm, Linear


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


TRANSFORM: Mapping[str, Axes] = {
    "dense.weight": ("written", "read"),
    "dense.bias": ("written",),
    "norm.weight": ("decoded",),  # the word embeddings read what it gives
    "norm.bias": ("decoded",),
    "weight": (None, "decoded"),
    "bias": (None,),
}
NARROW: Mapping[str, Axes] = {
    **dict.fromkeys(TRANSFORM, (None,)),
    "weight": (None, None),
    "dense.weight": (None, "read"),
}
"""Where word embeddings have a width of their own."""


class VocabularyHead(Head):
    """Logits of every vocabulary entry: the product of what `parts` returns. It can be computed at chosen positions
    only."""

    needs = Needs(word_embeddings=True)
    rows = "position"
    vocabulary: Mapping[str, int] = {"bias": 0}
    axes: Mapping[str, Axes] | None = None

    def parts(self, hidden: Tensor, word_embeddings: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """hidden (..., H), word_embeddings (V, E) -> the vectors (..., E'), the matrix (V, E'), a bias (V,)"""
        raise NotImplementedError

    def forward(self, output: EncoderOutput, word_embeddings: Tensor | None = None) -> Tensor:
        """Returns logits at all positions, (T, V) packed or (B, S, V) padded."""
        assert word_embeddings is not None, "a head over the vocabulary is given the word embeddings"
        return self.logits(output.last_hidden_state, word_embeddings)

    def logits(self, hidden: Tensor, word_embeddings: Tensor) -> Tensor:
        """hidden (..., H), word_embeddings (V, E) -> logits (..., V)"""
        x, weight, bias = self.parts(hidden, word_embeddings)
        return F.linear(x, weight.to(x.dtype), bias.to(x.dtype))

    def loss(
        self, hidden: Tensor, word_embeddings: Tensor, targets: Tensor, *, smoothing: float = 0.0, z_loss: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """hidden (N, H), word_embeddings (V, E), targets (N,) int64 -> summed cross-entropy in nats, number of correct
        predictions

        smoothing: the share of the target's probability that all tokens have in equal parts (Szegedy et al. 2016, 7).
        z_loss: as `linear_cross_entropy`.
        """
        hidden = with_rows(hidden, rounded(len(hidden)))
        x, weight, bias = self.parts(hidden, word_embeddings)
        total, correct = linear_cross_entropy(x, weight, bias, targets, z_loss=z_loss)
        if smoothing:  # log-sum-exp is in both losses, so they differ by the target's logit minus the mean logit
            x_NE, weight, bias = x[: len(targets)].float(), weight.float(), bias.float()
            above_NE, above_N = weight[targets] - weight.mean(0), bias[targets] - bias.mean()
            total = total + smoothing * ((x_NE * above_NE).sum() + above_N.sum())
        return total, correct


class MaskedLMHead(VocabularyHead):
    """Masked-language-model head. The output matrix is tied to the word embeddings and passed to `forward`.

    Where word embeddings are narrow, the hidden state is made as narrow. With `mlm_widened`, the matrix is widened
    instead, by columns of the head's own (Sun et al. 2020; release file run_pretraining.py, get_masked_lm_output).
    Where the matrix is not tied, it is the head's own.
    Devlin et al. 2018, 3.1; release file run_pretraining.py, get_masked_lm_output.
    """

    vocabulary: Mapping[str, int] = {"bias": 0, "columns": 1, "weight": 0}

    def __init__(self, config: EncoderConfig, num_labels: int = 0) -> None:
        super().__init__()
        own = config.heads.mlm
        narrow = config.embedding_size or config.hidden_size
        size = config.hidden_size if own.mlm_widened else narrow
        self.columns = nn.Parameter(zeros(size - narrow, config.vocab_size)) if own.mlm_widened else None
        self.weight = None if own.mlm_tied else nn.Parameter(zeros(config.vocab_size, size))
        self.activation = ACTIVATIONS[own.mlm_act or config.hidden_act]
        self.dense = Linear(config.hidden_size, size, bias=own.mlm_biases)
        self.norm = (LayerNorm if own.mlm_biases else NORMS[config.norm_type])(size, config.layer_norm_eps)
        self.bias = nn.Parameter(zeros(config.vocab_size))
        self.axes = NARROW if config.embedding_size or config.project_embeddings else TRANSFORM

    def parts(self, hidden: Tensor, word_embeddings: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the parts, as every head over the vocabulary."""
        decoder = word_embeddings if self.weight is None else self.weight
        if self.columns is not None:
            decoder = torch.cat([word_embeddings, self.columns.T], 1)
        return self.norm(self.activation(self.dense(hidden))), decoder, self.bias


class NextTokenHead(VocabularyHead):
    """Predicts the next token with only a matrix: the word embeddings, or its own.

    Radford et al. 2018, 3.1. With lm_scale, the hidden state is first divided by the square root of H (T5 with tied
    weights). Raises UsageError for word embeddings of another width than the hidden state.
    """

    vocabulary: Mapping[str, int] = {"weight": 0}

    def __init__(self, config: EncoderConfig, num_labels: int = 0) -> None:
        super().__init__()
        if config.heads.lm.lm_tied and config.embedding_size not in (None, config.hidden_size):
            raise UsageError(
                f"The next-token head reads word embeddings of hidden_size ({config.hidden_size}), but embedding_size "
                f"is {config.embedding_size}. Omit embedding_size, or set lm_tied=false."
            )
        self.divisor = sqrt(config.hidden_size) if config.heads.lm.lm_scale else 1.0
        self.weight = None if config.heads.lm.lm_tied else nn.Parameter(zeros(config.vocab_size, config.hidden_size))
        self.axes = None if self.weight is None else {"weight": (None, "read")}

    def parts(self, hidden: Tensor, word_embeddings: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the operands of the logits; the bias is zero."""
        weight = word_embeddings if self.weight is None else self.weight
        return hidden / self.divisor, weight, weight.new_zeros(len(weight))


def next_token_head(config: EncoderConfig, num_labels: int = 0) -> VocabularyHead:
    """Returns the next-token head of a family: built as its masked-LM head, or only a matrix (GPT, T5)."""
    return MaskedLMHead(config) if config.heads.lm.lm_transform else NextTokenHead(config)


class PermutationLMHead(VocabularyHead):
    """Predicts a token with only the word embeddings and a bias. Yang et al. 2019, 2.2."""

    needs = Needs(word_embeddings=True, queries=True)

    def __init__(self, config: EncoderConfig, num_labels: int = 0) -> None:
        super().__init__()
        self.bias = nn.Parameter(zeros(config.vocab_size))

    def parts(self, hidden: Tensor, word_embeddings: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the operands of the logits, as `VocabularyHead.parts`."""
        return hidden, word_embeddings, self.bias
