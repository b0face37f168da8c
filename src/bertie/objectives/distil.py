"""Distillation: a smaller model learns to say what a trained one says, and to see it alike. Sanh et al. 2019, 2.

    objectives: {mlm: {weight: 2}, nsp: null, distil: {teacher: models/bert-base}}

Its two losses, beside masked LM, are DistilBERT's: soft targets, which are the teacher's probabilities of every
vocabulary entry at a temperature, and the cosine between both models' last hidden states. The teacher reads the very
batch the student reads, masks and all, without dropout. It adds no labels.

B sequences · T real tokens of the batch · N tokens compared · H hidden size
"""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertie.data.batch import Batch
from bertie.data.draws import Draws
from bertie.data.masking import Vocabulary
from bertie.errors import DataError, UsageError
from bertie.models.config import EncoderConfig
from bertie.models.encoder import EncoderOutput
from bertie.models.heads import MaskedLMHead
from bertie.models.model import Model
from bertie.nn.soft_targets import Decoder, soft_targets_loss
from bertie.objectives.base import LossReport, Objective, Part


@dataclass(frozen=True)
class Distillation(Objective):
    """Learn from a teacher. Weights and temperature are those of DistilBERT's release (distillation/README.md)."""

    name: ClassVar[str] = "distil"

    teacher: str = ""
    """Folder of the model to learn from; it has a masked-LM head and the student's vocabulary."""
    temperature: float = 2.0
    """Probabilities are made softer by it, on both sides."""
    weight: float = 5.0
    """Of the soft targets' loss."""
    cosine: float = 1.0
    """Weight of the loss of hidden states; 0: they are not compared, and may differ in width."""
    positions: Literal["all", "masked"] = "all"
    """Where soft targets are compared: at every token, as published, or where mlm predicts, which takes less time."""
    loaded: Model | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.temperature > 0 or not self.weight > 0 or not self.cosine >= 0:
            raise UsageError("distil.temperature and distil.weight must be above 0, distil.cosine 0 or more.")
        if self.positions not in ("all", "masked"):
            raise UsageError(f"distil.positions is {self.positions!r}; it is all or masked.")

    def ready(self, load: Callable[[str], Model]) -> "Distillation":
        """With its teacher. Raises UsageError when none is named or it cannot say words."""
        if not self.teacher:
            raise UsageError("distil.teacher is missing: the folder of the model to learn from.")
        found, teacher = copy(self), load(self.teacher)
        if "mlm" not in teacher.heads:
            raise UsageError(f"{self.teacher} has no masked-LM head, so it has no probabilities to learn from.")
        object.__setattr__(found, "loaded", teacher.eval().requires_grad_(False))
        return found

    def prepare(self, model: Model, seed: int) -> None:
        """Compare student and teacher. Raises DataError or UsageError when one cannot learn from the other."""
        ours, theirs = model.config, self._teacher.config
        if ours.vocab_size != theirs.vocab_size:
            raise DataError(
                f"The vocabulary of {self.teacher} has {theirs.vocab_size:,} entries, the student's "
                f"{ours.vocab_size:,}. Probabilities are compared entry by entry: use the teacher's tokenizer."
            )
        if self.cosine and ours.hidden_size != theirs.hidden_size:
            raise UsageError(
                f"{self.teacher} is {theirs.hidden_size:,} wide, the student {ours.hidden_size:,}. Hidden states of "
                "two widths have no cosine: objectives.distil.cosine=0."
            )

    def heads(self, config: EncoderConfig) -> dict[str, nn.Module]:
        """The vocabulary head, which masked LM trains too."""
        return {"mlm": MaskedLMHead(config)}

    def corrupt(self, batch: Batch, rng: Draws, vocabulary: Vocabulary) -> Batch:
        """Nothing to do: what the student reads, others say. Raises UsageError for masks that nobody makes."""
        if self.positions == "masked" and "mlm_positions" not in batch.labels:
            raise UsageError("distil.positions=masked needs objectives.mlm, named before distil.")
        return batch

    def counts(self, batch: Batch) -> dict[str, int]:
        """N of the soft targets, T of the cosine"""
        soft = batch.tokens if self.positions == "all" else len(batch.labels["mlm_positions"])
        return {"distil": soft} | ({"cosine": batch.tokens} if self.cosine else {})

    def loss(self, model: Model, output: EncoderOutput, batch: Batch) -> LossReport:
        """Kullback-Leibler divergence from the teacher's probabilities, and one minus the cosine."""
        teacher = self._teacher.to(output.last_hidden_state.device)
        teacher.compute_dtype = model.compute_dtype
        with torch.no_grad():
            seen = teacher.encode(batch).last_hidden_state
        ours, seen = output.last_hidden_state.flatten(0, -2), seen.flatten(0, -2)
        real = None if batch.input_ids.ndim == 1 else batch.layout.mask().flatten()
        places = batch.labels["mlm_positions"] if self.positions == "masked" else real
        student_NH, teacher_NH = (x if places is None else x[places] for x in (ours, seen))
        with torch.no_grad():
            theirs = decoder(teacher, teacher_NH)
        soft, agreed = soft_targets_loss(decoder(model, student_NH), theirs, temperature=self.temperature)
        counts = self.counts(batch)
        report = {"distil": Part(soft, counts["distil"], agreed, self.weight)}
        if self.cosine:
            ours, seen = (x.float() if real is None else x[real].float() for x in (ours, seen))
            apart = 1 - F.cosine_similarity(ours, seen, dim=-1)
            report["cosine"] = Part(apart.sum(), counts["cosine"], weight=self.cosine)
        return report

    @property
    def _teacher(self) -> Model:
        if self.loaded is None:
            raise UsageError("The teacher is not loaded; call `ready` first.")
        return self.loaded


def decoder(model: Model, hidden: Tensor) -> Decoder:
    """What a model's masked-LM logits are made of. hidden (N, H) -> (N, E), (V, E), (V,)"""
    head = model.heads["mlm"]
    assert isinstance(head, MaskedLMHead)
    return head.transform(hidden), head.decoder(model.word_embeddings), head.bias
