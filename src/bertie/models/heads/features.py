"""The feature-based way: an encoder that is not trained, and a BiLSTM that reads some of its layers.

    hidden states of chosen layers -> their weighted sum, or one after the other -> 2 x BiLSTM -> label of each token

Devlin et al. 2018, 5.3 and table 7. The encoder's dropout is off, so a text's features are the same in every epoch.

T tokens · B sequences · S longest · K layers · H hidden size · F features of a token: K H
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bertie.models.config import EncoderConfig
from bertie.models.encoder import EncoderOutput
from bertie.models.heads.base import Head, Needs
from bertie.nn.linear import Linear
from bertie.nn.recurrent import TextLSTM, read_states

_LSTM_WIDTH = 768  # of the paper's BiLSTM, in each direction


@dataclass(frozen=True)
class LayerMixture:
    """The chosen layers, counted from the embeddings; weighted: their sum, with learned weights."""

    layers: slice
    weighted: bool = False


FEATURES: Mapping[str, LayerMixture] = {
    "embeddings": LayerMixture(slice(0, 1)),
    "second_to_last": LayerMixture(slice(-2, -1)),
    "last": LayerMixture(slice(-1, None)),
    "weighted_last_four": LayerMixture(slice(-4, None), weighted=True),
    "concat_last_four": LayerMixture(slice(-4, None)),
    "weighted_all": LayerMixture(slice(1, None), weighted=True),
}
"""The rows of table 7."""


class FeatureHead(Head):
    """A label for each token from features: two layers of BiLSTM, `width` in each direction, and a classifier."""

    needs = Needs(hidden_states=True, frozen_encoder=True)
    rows = "token"

    def __init__(self, config: EncoderConfig, num_labels: int, kind: str, *, width: int = _LSTM_WIDTH) -> None:
        super().__init__()
        self.features = FEATURES[kind]
        count = len(range(config.num_hidden_layers + 1)[self.features.layers])
        self.mix = nn.Parameter(torch.ones(count)) if self.features.weighted else None
        size = config.hidden_size * (1 if self.features.weighted else count)
        self.lstm = TextLSTM(size, width, layers=2)
        self.classifier = Linear(2 * width, num_labels)

    def select(self, output: EncoderOutput) -> Tensor:
        """The chosen layers one after the other. -> (T, F) packed or (B, S, F) padded"""
        return torch.cat(output.all_states[self.features.layers], -1)

    def forward(self, output: EncoderOutput, word_embeddings: Tensor | None = None) -> Tensor:
        """-> logits (T, num_labels) packed or (B, S, num_labels) padded

        Where `output` has no hidden states, its last_hidden_state holds what `select` gave before.
        """
        x = output.last_hidden_state if output.hidden_states is None else self.select(output)
        x = x.float()
        if self.mix is not None:
            x_TKH = x.unflatten(-1, (len(self.mix), -1))  # type: ignore[no-untyped-call]
            x = (x_TKH * self.mix.softmax(0)[:, None]).sum(-2)
        logits: Tensor = self.classifier(read_states(self.lstm, x, output.layout))
        return logits
