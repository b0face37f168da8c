"""Dependency parsing: a biaffine head whose products are computed later.

    word -> its vector as a dependent, its vector as a head; the score of a pair is the product of the two

Dozat and Manning 2017, 3.2. The head computes the vectors of each word once. `arc_scores` and `relation_scores`
(biaffine.py) compare pairs of them, so the output of the head grows with the number of words, not of pairs.

... any dimensions · H hidden size · L relations · F size of a word
"""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from bertie.models.biaffine import COMPARED_WIDTH, RELATION_RANK
from bertie.models.config import EncoderConfig
from bertie.models.encoder import EncoderOutput
from bertie.models.heads.base import Head, label_dropout
from bertie.nn.dropout import dropout
from bertie.nn.linear import Linear


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
