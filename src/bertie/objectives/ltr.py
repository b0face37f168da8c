"""Causal and bidirectional language models: every token is predicted from those before it, and from those after it.

    ltr     the cat sat              the state at "the" predicts "cat", the state at "cat" predicts "sat"
    bilm    <S> the cat sat </S>     the forward state at "cat" predicts "sat"; the backward state predicts "the"

ltr: Radford et al. 2018, 3.1; Devlin et al. 5.1. bilm: Peters et al. 2018, 3.1. The input is not corrupted. For ltr,
the model must have causal attention (config.causal). For bilm, no state has seen the word that it predicts.

Labels in a batch: ltr_positions (N,) int64, the tokens with a next token, as ascending flattened positions in
input_ids; ltr_targets (N,) int64, the next tokens. bilm_words, where it is missing: the ids of the words, same shape as
input_ids. A batch of characters must contain it.

B sequences · S longest sequence · T real tokens · N predictions, T - B of ltr · H hidden size · P half of it
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import nn

from bertie.data.masking import Vocabulary
from bertie.errors import UsageError
from bertie.models.batch import Batch
from bertie.models.config import EncoderConfig
from bertie.models.heads import HEADS
from bertie.models.heads.vocabulary import BiLMHead
from bertie.objectives.base import LossReport, LossTerm, Objective
from bertie.order import Draws
from bertie.text.sequences import Sequences

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
