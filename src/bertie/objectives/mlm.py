"""Masked language modeling: some tokens are masked, and the model predicts them. Devlin et al. 2018, 3.1.

    the cat sat on the mat   ->   the [MASK] sat on the mat   ->   cat

Labels in a batch: mlm_positions (N,) int64, ascending flattened positions in input_ids of the predicted tokens;
mlm_targets (N,) int64, the original tokens.

B sequences · T real tokens of the batch · N predicted tokens · H hidden size · V vocabulary
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from torch import Tensor, nn

from bertie.data.masking import (
    Masking,
    RateCurve,
    Rates,
    Vocabulary,
    choose_tokens,
    masking_of,
    prediction_counts,
    rate_of,
    replacements,
)
from bertie.errors import WrongValue
from bertie.models.batch import Batch
from bertie.models.config import EncoderConfig
from bertie.models.heads import HEADS
from bertie.models.loss import LabelAxis
from bertie.objectives.base import LossReport, LossTerm, Objective
from bertie.order import Draws
from bertie.text.sequences import Sequences

if TYPE_CHECKING:
    from bertie.models.encoder import EncoderOutput
    from bertie.models.model import TorchModel
    from bertie.text.encoding import Encoding
    from bertie.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class MaskedLM(Objective):
    """Predicts a fraction `rate` of the tokens. Raises UsageError for rates outside 0 to 1."""

    name: ClassVar[str] = "mlm"
    on_tokens: ClassVar[bool] = True
    label_axes: ClassVar[Mapping[str, LabelAxis]] = {"mlm_positions": "position", "mlm_targets": "prediction_target"}
    whole_run: ClassVar[tuple[str, ...]] = ("weight", "z_loss")

    rate: Rates = 0.15
    """Fraction of a sequence's tokens, including special tokens, that are predicted. It may change during the run
    (data/masking.py). Source: Devlin et al. 2018, 3.1. Higher for larger models: Wettig et al. 2022; falling: Ankner et
    al. 2023."""
    replace: tuple[float, float, float] = (0.8, 0.1, 0.1)
    """Fractions of the predicted tokens that become [MASK], become a random token, and stay unchanged. Source: Devlin
    et al. 2018, 3.1."""
    max_predictions: int | None = None
    """Maximum number of predictions per sequence. Not set: no limit. Source: google-research/bert,
    create_pretraining_data.py: 20 at length 128, 77 at 512."""
    masking: str | Mapping[str, Mapping[str, object] | None] = "token"
    """Unit of masking: token, whole_word, ngram or span, optionally with options: {span: {longest: 5}}. Source:
    whole_word google-research/bert, README; ngram Lan et al. 2019, 4.2; span Joshi et al. 2019, 3.1."""
    duplicates: int | None = None
    """Number of different masks per instance (dupe factor): epoch e has those of epoch e % k. Not set: new masks every
    epoch. Source: Liu et al. 2019, 4.1; 10 in google-research/bert, create_pretraining_data.py."""
    weight: float = 1.0
    """Weight of this loss. Source: DistilBERT's code: 2, with a teacher."""
    z_loss: float = 0.0
    """Weight of a penalty, in training only: the squared logarithm of the softmax's denominator, which keeps logits
    small. Source: Chowdhery et al. 2022, 5: 1e-4."""

    def __post_init__(self) -> None:
        if len(self.replace) != 3 or min(self.replace) < 0 or not np.isclose(sum(self.replace), 1):
            raise WrongValue(
                f"mlm.replace is {self.replace}; it must be three fractions that sum to 1: mask, random, keep."
            )
        if not self.weight > 0:
            raise WrongValue(
                f"mlm.weight is {self.weight}; it must be above 0. To remove the objective, set objectives.mlm=null."
            )
        if not 0 <= self.z_loss < 1:
            raise WrongValue(f"mlm.z_loss is {self.z_loss}; it must be at least 0 and below 1.")
        for name in ("max_predictions", "duplicates"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise WrongValue(f"mlm.{name} is {getattr(self, name)}; it must be 1 or more, or null.")
        self.check_options()

    def check_options(self) -> None:
        """Raises UsageError for a rate or a masking that cannot be."""
        rate_of(self.rate, "mlm.rate")
        masking_of(self.masking)

    @cached_property
    def _rate(self) -> RateCurve:
        return rate_of(self.rate, "mlm.rate")

    @cached_property
    def _masking(self) -> Masking:
        return masking_of(self.masking)

    @property
    def corruption_cycle(self) -> int | None:
        """The number of different masks, None for dynamic masking."""
        return self.duplicates

    def heads(self, config: EncoderConfig) -> dict[str, nn.Module]:
        """Returns the vocabulary head, tied to the word embeddings."""
        return {"mlm": HEADS["mlm"](config)}

    def sample(self, encoding: "Encoding", tokenizer: "Tokenizer", seed: int) -> Batch:
        """Returns the batch of one text with its masks, as a rectangle (1, S)."""
        plain = Sequences.of([encoding.ids], [encoding.type_ids])
        return Batch.of(self.corrupt(plain, Draws.of(seed, 0, plain.numbers), Vocabulary.of(tokenizer))).row

    def corrupt(self, batch: Sequences, rng: Draws, vocabulary: Vocabulary) -> Sequences:
        """Masks tokens and adds their labels."""
        places_T, tokens = batch.without_vectors()
        candidates_B = np.bincount(tokens.sequence[~vocabulary.structure[tokens.input_ids]], minlength=len(batch))
        rate_B = self._rate.at(batch.numbers)
        count_B = prediction_counts(tokens.lengths, candidates_B, rate=rate_B, most=self.max_predictions)
        chosen_N, heads_N = choose_tokens(self._masking, tokens, count_B, vocabulary, rng)

        corrupted, positions = batch.input_ids.copy(), places_T[chosen_N]
        corrupted[positions] = replacements(tokens, chosen_N, heads_N, vocabulary, rng, replace=self.replace)
        targets = batch.input_ids[positions].astype(np.int64)
        return replace(batch, input_ids=corrupted).with_labels(mlm_positions=positions, mlm_targets=targets)

    def counts(self, batch: Batch) -> dict[str, int]:
        """Returns the number of predictions, N."""
        return {"mlm": len(batch.labels["mlm_targets"])}

    def answers(self, batch: Sequences) -> dict[int, list[int]]:
        """Returns the original token at each predicted position."""
        places, targets = batch.labels["mlm_positions"].tolist(), batch.labels["mlm_targets"].tolist()
        return {place: [target] for place, target in zip(places, targets, strict=True)}

    def read(self, batch: Batch) -> Tensor | None:
        """Returns the predicted positions."""
        return batch.labels["mlm_positions"]

    def loss(self, model: "TorchModel", output: "EncoderOutput", batch: Batch) -> LossReport:
        """Returns the cross-entropy at the predicted positions. The vocabulary head runs on N rows instead of T."""
        targets_N = batch.labels["mlm_targets"]
        hidden_NH = output.at(batch.labels["mlm_positions"])
        head = model.vocabulary_head("mlm")
        z_loss = self.z_loss if model.training else 0.0
        total, correct = head.loss(hidden_NH, model.word_embeddings, targets_N, z_loss=z_loss)
        return {"mlm": LossTerm(total, len(targets_N), correct, self.weight)}
