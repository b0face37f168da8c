"""Permutation language model: predicts some tokens one after another in random order. Yang et al. 2019, 2.

    the cat sat on the mat    order: mat, cat    mat from "the sat on the", cat from "the sat on the mat"

Nothing is masked: an attention mask defines from which tokens a token is predicted. Tokens that are not predicted
attend to each other, and all tokens attend to them. A predicted token attends to those and to the predicted tokens
before it in the order. Special tokens are in the order too, as in the release, but are not predicted. The memory of
earlier segments (2.4) is not implemented.

Labels in a batch: plm_positions (N,) int64, ascending flattened positions in input_ids of the predicted tokens;
plm_targets (N,) int64, the tokens; plm_order, same shape as input_ids: indices in the order, -1 for tokens that all
tokens attend to.

B sequences · S longest sequence · M most predictions of a sequence · N predictions · T real tokens
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from bertie.data.masking import Vocabulary, choose_tokens, ngram, prediction_counts
from bertie.errors import WrongModel, WrongValue
from bertie.models.batch import Batch
from bertie.models.config import EncoderConfig
from bertie.models.heads import HEADS
from bertie.models.xlnet import XLNetConfig
from bertie.objectives.base import LossReport, LossTerm, Objective
from bertie.order import Draws
from bertie.text.sequences import Sequences

if TYPE_CHECKING:
    from bertie.models.encoder import EncoderOutput
    from bertie.models.model import TorchModel

_ORDER_STREAM = 7  # stream of draws (data/masking.py lists them)


@dataclass(frozen=True)
class PermutationLM(Objective):
    """Predicts a fraction `rate` of the tokens, in n-grams of up to `longest` words, in random order."""

    name: ClassVar[str] = "plm"
    on_tokens: ClassVar[bool] = True
    own_forward: ClassVar[bool] = True

    rate: float = 1 / 6
    """Fraction of a sequence's tokens, including special tokens, that are predicted. Source: Yang et al. 2019, 2.3:
    K = 6."""
    longest: int = 5
    """Maximum number of words of an n-gram; p(n) is proportional to 1 / n. Source: XLNet's code, data_utils.py,
    _sample_mask."""

    def __post_init__(self) -> None:
        if not 0 < self.rate < 1:
            raise WrongValue(f"plm.rate is {self.rate}; it must be between 0 and 1.")
        if not 1 <= self.longest <= 100:
            raise WrongValue(f"plm.longest is {self.longest}; it must be 1 to 100.")

    def heads(self, config: EncoderConfig) -> dict[str, nn.Module]:
        """Returns the softmax over the vocabulary. Raises UsageError for a model without two-stream attention."""
        if not isinstance(config, XLNetConfig):
            raise WrongModel("plm needs a model with two-stream attention: model=xlnet-base-cased.")
        return {"plm": HEADS["plm"](config)}

    def corrupt(self, batch: Sequences, rng: Draws, vocabulary: Vocabulary) -> Sequences:
        """Returns the sequences with an order of prediction. Their tokens do not change."""
        places_T, tokens = batch.without_vectors()
        special_T = vocabulary.structure[tokens.input_ids]
        candidates_B = np.bincount(tokens.sequence[~special_T], minlength=len(batch))
        count_B = prediction_counts(tokens.lengths, candidates_B, rate=self.rate, most=None)
        chosen_N, _ = choose_tokens(ngram(self.longest), tokens, count_B, vocabulary, rng)
        hidden_T = special_T.copy()
        hidden_T[chosen_N] = True
        in_order = np.lexsort((rng.bits_at(_ORDER_STREAM, tokens.sequence, tokens.column), tokens.sequence))
        rank_T = np.empty(len(in_order), np.int64)
        rank_T[in_order] = tokens.column  # 0, 1, 2 ... in each sequence
        order = np.full(len(batch.input_ids), -1)
        order[places_T] = np.where(hidden_T, rank_T, -1)
        positions = places_T[chosen_N]
        targets = batch.input_ids[positions].astype(np.int64)
        return batch.with_labels(plm_positions=positions, plm_targets=targets, plm_order=order)

    def counts(self, batch: Batch) -> dict[str, int]:
        """Returns the number of predictions, N."""
        return {"plm": len(batch.labels["plm_targets"])}

    def answers(self, batch: Sequences) -> dict[int, list[int]]:
        """Returns the predicted tokens, which are visible in the text."""
        places, targets = batch.labels["plm_positions"].tolist(), batch.labels["plm_targets"].tolist()
        return {place: [target] for place, target in zip(places, targets, strict=True)}

    def forward(self, model: "TorchModel", batch: Batch) -> "EncoderOutput":
        """Returns the hidden states of the queries, (B, M, H)."""
        order_BS, predicted_BS = self._laid_out(batch)
        most = int(self._asked(batch).max())
        asked_BM = predicted_BS.int().argsort(dim=1, descending=True, stable=True)[:, :most]
        return model.encode(batch, perm_mask=unseen(order_BS, predicted_BS), target_positions=asked_BM)

    def loss(self, model: "TorchModel", output: "EncoderOutput", batch: Batch) -> LossReport:
        """Returns the cross-entropy of the predicted tokens."""
        hidden_BMH, targets_N = output.last_hidden_state, batch.labels["plm_targets"]
        asked_BM = torch.arange(hidden_BMH.shape[1]) < self._asked(batch)[:, None]
        hidden_NH = hidden_BMH.flatten(0, 1)[batch.where(asked_BM)]
        head = model.vocabulary_head("plm")
        total, correct = head.loss(hidden_NH, model.word_embeddings, targets_N)
        return {"plm": LossTerm(total, len(targets_N), correct)}

    def _asked(self, batch: Batch) -> Tensor:
        """Returns the number of predicted tokens of each sequence. -> (B,), in main memory"""
        return self._laid_out(batch.host)[1].sum(1)

    def _laid_out(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Returns the order, and which tokens are predicted. -> (B, S), (B, S) bool"""
        predicted = torch.zeros_like(batch.input_ids.flatten(), dtype=torch.bool)
        predicted = predicted.index_fill(0, batch.labels["plm_positions"], True).view(batch.input_ids.shape)
        return batch.layout.rectangle(batch.labels["plm_order"]), batch.layout.rectangle(predicted)


def unseen(order_BS: Tensor, predicted_BS: Tensor) -> Tensor:
    """Returns the mask (B, S, S), true where token i must not attend to token j: j is in the order, and not before i.

    A token that is not predicted counts as directly after its own position. XLNet's code, data_utils.py, _local_perm.
    """
    own_BS = torch.where(predicted_BS, order_BS, order_BS + 1)
    return (own_BS[:, :, None] <= order_BS[:, None, :]) & (order_BS >= 0)[:, None, :]
