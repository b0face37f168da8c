"""Causal language model: predicts every token from the tokens before it. Radford et al. 2018, 3.1; Devlin et al. 5.1.

    the cat sat   ->   the state at "the" predicts "cat", the state at "cat" predicts "sat"

The input is not corrupted. The model must have causal attention (config.causal).

Labels in a batch: ltr_positions (N,) int64, the tokens with a next token, as ascending flattened positions in
input_ids; ltr_targets (N,) int64, the next tokens.

B sequences · T real tokens of the batch · N = T - B predictions · H hidden size
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from torch import nn

from bertie.data.batch import Batch
from bertie.data.draws import Draws
from bertie.data.masking import Vocabulary
from bertie.data.sequences import Sequences
from bertie.errors import UsageError
from bertie.models.config import EncoderConfig
from bertie.models.heads import HEADS
from bertie.objectives.base import LossReport, LossTerm, Objective

if TYPE_CHECKING:
    from bertie.models.encoder import EncoderOutput
    from bertie.models.model import TorchModel


@dataclass(frozen=True)
class LeftToRight(Objective):
    """Predicts the next token at every position."""

    name: ClassVar[str] = "ltr"
    on_tokens: ClassVar[bool] = True

    def heads(self, config: EncoderConfig) -> dict[str, nn.Module]:
        """Returns the next-token head of the family. Raises UsageError for a model without causal attention."""
        if not config.causal:
            raise UsageError(
                "ltr predicts the next token, to which this model can attend. Choose a causal model "
                "(model=gpt2), or make the model causal: model_overrides.causal=true."
            )
        return {"lm": HEADS["lm"](config)}

    def corrupt(self, batch: Sequences, rng: Draws, vocabulary: Vocabulary) -> Sequences:
        """Returns the sequences with their own tokens as labels."""
        positions = np.flatnonzero(batch.column[1:])  # the next token is not the first one of a sequence
        return batch.with_labels(ltr_positions=positions, ltr_targets=batch.input_ids[positions + 1].astype(np.int64))

    def counts(self, batch: Batch) -> dict[str, int]:
        """Returns the number of predictions, N."""
        return {"ltr": len(batch.labels["ltr_targets"])}

    def loss(self, model: "TorchModel", output: "EncoderOutput", batch: Batch) -> LossReport:
        """Returns the cross-entropy of every next token."""
        targets_N = batch.labels["ltr_targets"]
        hidden_NH = output.last_hidden_state.flatten(0, -2)[batch.labels["ltr_positions"]]
        head = model.vocabulary_head("lm")
        total, correct = head.loss(hidden_NH, model.word_embeddings, targets_N)
        return {"ltr": LossTerm(total, len(targets_N), correct)}
