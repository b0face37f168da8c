"""What a head is: from what the encoder found to logits, by one way of calling, with what it needs declared.

    output = encoder(...)   ->   head(output, word_embeddings)   ->   logits

H hidden size · V vocabulary
"""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from bertie.models.config import EncoderConfig
from bertie.models.encoder import EncoderOutput
from bertie.models.head_config import Rows
from bertie.models.heads.global_tokens import GlobalTokens


@dataclass(frozen=True)
class Needs:
    """What a head needs of the model beside the last hidden states; by default nothing."""

    word_embeddings: bool = False  # the matrix (V, H) must be given at the call
    pooler: bool = False  # the encoder must have one
    hidden_states: bool = False  # of all layers
    frozen_encoder: bool = False  # the encoder is not trained, and runs without dropout
    global_tokens: GlobalTokens | None = None  # which tokens must see all and be seen by all


NOTHING = Needs()
Axes = tuple[str | None, ...]
"""What each axis of a weight is when a model is made wider: models/widen.py."""
CLASSIFIER: Mapping[str, Axes] = {
    "dense.weight": ("written", "read"),
    "dense.bias": ("written",),
    "classifier.weight": (None, "read"),
    "classifier.bias": (None,),
}


class Head(nn.Module):
    """A head. A subclass is made from (config, num_labels), says what it `needs`, and has `forward`."""

    needs: Needs = NOTHING
    rows: Rows = "sequence"
    """What a row of its logits answers for."""
    vocabulary: Mapping[str, int] = {}
    """Its weights with a row for each entry of the vocabulary, by name, and which of their axes that is."""
    axes: Mapping[str, Axes] | None = CLASSIFIER
    """Its weights by name, for widening; None: it compares hidden states with the word embeddings as they are."""

    def forward(self, output: EncoderOutput, word_embeddings: Tensor | None = None) -> Tensor:
        """-> logits; word_embeddings (V, H) are given to a head that needs them"""
        raise NotImplementedError


def label_dropout(config: EncoderConfig) -> float:
    """The dropout of heads that label: classifier_dropout, or hidden_dropout_prob where it is left out."""
    return config.hidden_dropout_prob if config.classifier_dropout is None else config.classifier_dropout
