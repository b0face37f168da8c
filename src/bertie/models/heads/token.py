"""Heads on tokens: a label, or whether a generator replaced the token.

T tokens · B sequences · S longest sequence
"""

from torch import Tensor

from bertie.models.config import EncoderConfig
from bertie.models.encoder import EncoderOutput
from bertie.models.heads.base import Head, label_dropout, label_reader, label_transform
from bertie.nn.dropout import dropout
from bertie.nn.layer import ACTIVATIONS
from bertie.nn.layout import on_rounded
from bertie.nn.linear import Linear


class TokenHead(Head):
    """A label for each token. Devlin et al. 2018, 5.3."""

    rows = "token"

    def __init__(self, config: EncoderConfig, num_labels: int) -> None:
        super().__init__()
        self.dropout_p = label_dropout(config)
        self.reader = label_reader(config)
        self.transform = label_transform(config)
        self.classifier = Linear(config.hidden_size, num_labels)

    def forward(self, output: EncoderOutput, word_embeddings: Tensor | None = None) -> Tensor:
        """-> logits (T, num_labels) packed or (B, S, num_labels) padded"""
        hidden = self.reader(output).last_hidden_state
        return on_rounded(self.classifier, dropout(self.transform(hidden), self.dropout_p, self.training))


class ReplacedTokenHead(Head):
    """Whether a generator replaced a token: one logit per token, above 0 if so. Clark et al. 2020, 2."""

    rows = "token"

    def __init__(self, config: EncoderConfig, num_labels: int = 0) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[config.hidden_act]
        self.dense = Linear(config.hidden_size, config.hidden_size)
        self.classifier = Linear(config.hidden_size, 1)

    def forward(self, output: EncoderOutput, word_embeddings: Tensor | None = None) -> Tensor:
        """Returns logits (T,) packed or (B, S) padded."""
        hidden = output.last_hidden_state
        return on_rounded(lambda x: self.classifier(self.activation(self.dense(x))), hidden).squeeze(-1)
