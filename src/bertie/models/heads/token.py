"""Heads on tokens: a label, whether a generator replaced the token, the start and end of an answer, a dependency.

SpanHead: Devlin et al. 2018, 4.2. ParseHead is biaffine, and its products are computed later (models/biaffine.py):

    word -> its vector as a dependent, its vector as a head; the score of a pair is the product of the two

Dozat and Manning 2017, 3.2. It computes the vectors of each word once, so its output grows with the number of words,
not of pairs.

T tokens · B sequences · S longest sequence · H hidden size · L relations · F size of a word
"""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertie.models.biaffine import COMPARED_WIDTH, RELATION_RANK
from bertie.models.config import EncoderConfig
from bertie.models.encoder import EncoderOutput
from bertie.models.heads.base import Head, Needs, label_dropout, label_reader, label_transform, mark_question_tokens
from bertie.nn.dropout import add_dropout, dropout
from bertie.nn.layer import ACTIVATIONS
from bertie.nn.layout import on_rounded
from bertie.nn.linear import LayerNorm, Linear


class ParseHead(Head):
    """The input of `arc_scores` and `relation_scores` for each word."""

    rows = "token"

    def __init__(self, config: EncoderConfig, num_labels: int) -> None:
        super().__init__()
        self.dropout_p = label_dropout(config)
        width = 2 * config.hidden_size
        self.arc_dependent, self.arc_head = Linear(width, COMPARED_WIDTH), Linear(width, COMPARED_WIDTH)
        self.arc = Linear(
            COMPARED_WIDTH, COMPARED_WIDTH
        )  # what is added to it tells how likely a word is a head at all
        self.relation_dependent, self.relation_head = Linear(width, COMPARED_WIDTH), Linear(width, COMPARED_WIDTH)
        self.classifier = Linear(COMPARED_WIDTH, num_labels)  # what the dependent alone tells
        self.query, self.key = (
            Linear(COMPARED_WIDTH, RELATION_RANK * num_labels),
            Linear(COMPARED_WIDTH, RELATION_RANK * num_labels),
        )

    def forward(self, output: EncoderOutput, word_embeddings: Tensor | None = None) -> Tensor:
        """Returns the vectors from last_hidden_state (..., 2 H) of the first and the last token of each word. ->
        (..., F)"""
        x = dropout(output.last_hidden_state, self.dropout_p, self.training)

        def space(layer: Linear) -> Tensor:
            return dropout(F.elu(layer(x)), self.dropout_p, self.training)

        arcs = self.arc(space(self.arc_dependent)), space(self.arc_head)
        dependent, head = space(self.relation_dependent), space(self.relation_head)
        return torch.cat([*arcs, self.classifier(dependent), self.query(dependent), self.key(head)], -1)


def with_last_pieces(output: EncoderOutput, last_T: Tensor) -> EncoderOutput:
    """Returns each token with the last token of its word. last_T: the distance (below 0: none)."""
    hidden_TH = output.last_hidden_state
    rows_T = torch.arange(hidden_TH.shape[0], device=hidden_TH.device) + last_T.clamp(min=0)
    return replace(output, last_hidden_state=torch.cat([hidden_TH, hidden_TH[rows_T]], -1))


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
