"""The head of extractive question answering: start and end of the answer. Devlin et al. 2018, 4.2.

T tokens · B sequences · S longest sequence
"""

from torch import Tensor, nn

from bertie.models.config import EncoderConfig
from bertie.models.encoder import EncoderOutput
from bertie.models.heads.base import Head, Needs, label_dropout, label_reader, label_transform
from bertie.models.heads.global_tokens import mark_question_tokens
from bertie.nn.dropout import add_dropout, dropout
from bertie.nn.layer import ACTIVATIONS
from bertie.nn.layout import on_rounded
from bertie.nn.linear import LayerNorm, Linear


class SpanHead(Head):
    """The start and the end of an answer: two logits per token."""

    needs = Needs(global_tokens=mark_question_tokens)
    rows = "token"

    def __init__(self, config: EncoderConfig, num_labels: int = 0) -> None:
        super().__init__()
        own = config.heads.span
        own_p = label_dropout(config) if own.span_dropout is None else own.span_dropout
        self.dropout_p = config.hidden_dropout_prob if own.span_layer else own_p
        self.reader, self.transform = label_reader(config), label_transform(config)
        self.layer = _FeedForward(config) if own.span_layer else None
        self.classifier = Linear(config.hidden_size, 2)

    def forward(self, output: EncoderOutput, word_embeddings: Tensor | None = None) -> Tensor:
        """Returns logits (T, 2) packed or (B, S, 2) padded: start, end."""
        hidden = self.reader(output).last_hidden_state
        x = dropout(self.transform(hidden), self.dropout_p, self.training)
        return on_rounded(self.classifier, x if self.layer is None else self.layer(x, hidden))


class _FeedForward(nn.Module):
    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.dropout_p = config.hidden_dropout_prob
        self.activation = ACTIVATIONS[config.hidden_act]
        self.up = Linear(config.hidden_size, config.intermediate_size)
        self.down = Linear(config.intermediate_size, config.hidden_size)
        self.norm = LayerNorm(config.hidden_size, config.layer_norm_eps)

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        x = on_rounded(lambda x: self.down(self.activation(self.up(x))), x)
        normed: Tensor = self.norm(add_dropout(residual, x, self.dropout_p, self.training))
        return normed
