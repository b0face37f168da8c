"""Bidirectional language model: predicts the next and the previous word, from both directions. Peters et al. 2018, 3.1.

    <S> the cat sat </S>      the forward state at "cat" predicts "sat"; the backward state predicts "the"

Label in a batch, where it is missing: bilm_words, the ids of its words, same shape as input_ids. (A batch of characters
must contain it.) The input is not corrupted, since no state has seen the word that it predicts.

B sequences · S longest sequence · P half of the hidden size · N predictions
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import nn

from bertie.data.batch import Batch
from bertie.data.draws import Draws
from bertie.data.masking import Vocabulary
from bertie.data.sequences import Sequences
from bertie.models.config import EncoderConfig
from bertie.models.heads import HEADS
from bertie.models.heads.bilm import BiLMHead
from bertie.objectives.base import LossReport, LossTerm, Objective

if TYPE_CHECKING:
    from bertie.models.encoder import EncoderOutput
    from bertie.models.model import TorchModel


@dataclass(frozen=True)
class BiLanguageModel(Objective):
    """Predicts every word of a sequence in both directions, except the first and the last word, which have one."""

    name: ClassVar[str] = "bilm"
    on_tokens: ClassVar[bool] = True

    def heads(self, config: EncoderConfig) -> dict[str, nn.Module]:
        """Returns the softmax over words, shared by both directions."""
        return {"bilm": HEADS["bilm"](config)}

    def corrupt(self, batch: Sequences, rng: Draws, vocabulary: Vocabulary) -> Sequences:
        """Returns the sequences with their own words as labels."""
        return batch if "bilm_words" in batch.labels else batch.with_labels(bilm_words=batch.input_ids)

    def counts(self, batch: Batch) -> dict[str, int]:
        """Returns the number of predictions in both directions, N."""
        return {"bilm": 2 * int((batch.layout.mask().sum(1) - 1).clamp_min(0).sum())}

    def loss(self, model: "TorchModel", output: "EncoderOutput", batch: Batch) -> LossReport:
        """Returns the cross-entropy of both directions, from the states of the top layer."""
        words_BS = batch.layout.rectangle(batch.labels["bilm_words"])
        forward_BSP, backward_BSP = batch.layout.rectangle(output.all_states[-1]).chunk(2, -1)
        at = batch.where(batch.host.layout.mask()[:, 1:])  # where a word follows another
        states_NP = torch.cat([x.flatten(0, 1)[at] for x in (forward_BSP[:, :-1], backward_BSP[:, 1:])])
        targets_N = torch.cat([x.flatten()[at] for x in (words_BS[:, 1:], words_BS[:, :-1])])
        total, correct = model.head("bilm", BiLMHead).loss(states_NP, targets_N)
        return {"bilm": LossTerm(total, len(targets_N), correct)}
