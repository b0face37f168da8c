"""Heads: hidden states -> logits.

N predictions · T tokens · B sequences · H hidden size · V vocabulary
"""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn, zeros

from bertie.models.config import EncoderConfig
from bertie.nn.dropout import dropout
from bertie.nn.layer import ACTIVATIONS
from bertie.nn.linear import LayerNorm, Linear
from bertie.nn.loss import linear_cross_entropy
from bertie.registry import Registry


class MaskedLMHead(nn.Module):
    """Which vocabulary entry stands at a position; the decoder is the word embedding matrix, passed in at the call.

    Devlin et al. 2018, 3.1; release file run_pretraining.py, get_masked_lm_output.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        size = config.embedding_size or config.hidden_size
        self.activation = ACTIVATIONS[config.hidden_act]
        self.dense = Linear(config.hidden_size, size)
        self.norm = LayerNorm(size, config.layer_norm_eps)
        self.bias = nn.Parameter(zeros(config.vocab_size))

    def transform(self, hidden: Tensor) -> Tensor:
        """hidden (..., H) -> what is compared with the word embeddings (..., H)"""
        transformed: Tensor = self.norm(self.activation(self.dense(hidden)))
        return transformed

    def forward(self, hidden: Tensor, word_embeddings: Tensor) -> Tensor:
        """hidden (..., H), word_embeddings (V, H) -> logits (..., V)"""
        x = self.transform(hidden)
        return F.linear(x, word_embeddings.to(x.dtype), self.bias.to(x.dtype))

    def loss(self, hidden: Tensor, word_embeddings: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """hidden (N, H), word_embeddings (V, H), targets (N,) int64 -> summed cross-entropy in nats, correct."""
        return linear_cross_entropy(self.transform(hidden), word_embeddings, self.bias, targets)


class PairHead(nn.Module):
    """Whether segment B follows segment A: two logits from the pooled [CLS]; 0 means it does (run_pretraining.py)."""

    reads_pooler = True

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.classifier = Linear(config.hidden_size, 2)

    def forward(self, pooler_output: Tensor) -> Tensor:
        """pooler_output (B, H) -> logits (B, 2)"""
        logits: Tensor = self.classifier(pooler_output)
        return logits


class SequenceHead(nn.Module):
    """One label, several or a number for a whole sequence, from the pooled [CLS]. Devlin et al. 2018, 4.1."""

    reads_pooler = True

    def __init__(self, config: EncoderConfig, num_labels: int) -> None:
        super().__init__()
        own = config.classifier_dropout
        self.dropout_p = config.hidden_dropout_prob if own is None else own
        self.classifier = Linear(config.hidden_size, num_labels)

    def forward(self, pooler_output: Tensor) -> Tensor:
        """pooler_output (B, H) -> logits (B, num_labels)"""
        logits: Tensor = self.classifier(dropout(pooler_output, self.dropout_p, self.training))
        return logits


HEADS: Registry[Callable[[EncoderConfig, int], nn.Module]] = Registry(
    "head",
    [
        ("mlm", lambda config, _: MaskedLMHead(config)),
        ("pair", lambda config, _: PairHead(config)),
        ("sequence", SequenceHead),
    ],
)
"""Head name -> what makes it from a config and a number of labels."""
