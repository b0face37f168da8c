"""Distillation: a smaller model learns to say what a trained one says, and to see it alike. Sanh et al. 2019, 2.

    objectives: {mlm: {weight: 2}, nsp: null, distil: {teacher: models/bert-base, layers: [0, 2, 4, 7, 9, 11]}}

Its two losses, beside masked LM, are DistilBERT's: soft targets, which are the teacher's probabilities of every
vocabulary entry at a temperature, and the cosine between both models' last hidden states. The teacher reads the very
batch the student reads, masks and all, without dropout. It adds no labels.

B sequences · T real tokens of the batch · N tokens compared · H hidden size
"""

import re
from collections.abc import Callable, Mapping
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
from bertie.models.count import forward_flops
from bertie.models.encoder import EncoderOutput
from bertie.models.heads import HEADS, VocabularyHead
from bertie.models.model import Model
from bertie.models.surgery import take_layers
from bertie.nn.layout import where
from bertie.nn.soft_targets import Decoder, soft_targets_loss
from bertie.objectives.base import LossReport, LossTerm, Objective

NOT_FRESH = r"encoder\.(?!pooler\.)|heads\.mlm\."  # weights a student is given with its layers


@dataclass(frozen=True)
class Distillation(Objective):
    """Learn from a teacher. Weights and temperature are those of DistilBERT's release (distillation/README.md)."""

    name: ClassVar[str] = "distil"

    teacher: str = field(default="", repr=False)  # no batch changes with it; its weights are in the run's identity
    """Folder of the model to learn from; it has a masked-LM head and the student's vocabulary."""
    temperature: float = 2.0
    """Probabilities are made softer by it, on both sides."""
    weight: float = 5.0
    """Of the soft targets' loss."""
    cosine: float = 1.0
    """Weight of the loss of hidden states; 0: they are not compared, and may differ in width."""
    positions: Literal["all", "masked"] = "all"
    """Where soft targets are compared: at every token, as published, or where mlm predicts, which takes less time."""
    layers: tuple[int, ...] = ()
    """The teacher's layers, from 0, that a student made from a preset starts with, beside its embeddings and vocabulary
    head; none: from random weights. The release: 0, 2, 4, 7, 9, 11 of 12 (scripts/extract_distilbert.py)."""
    loaded: Model | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.temperature > 0 or not self.weight > 0 or not self.cosine >= 0:
            raise UsageError("distil.temperature and distil.weight must be above 0, distil.cosine 0 or more.")
        if self.positions not in ("all", "masked"):
            raise UsageError(f"distil.positions is {self.positions!r}; it must be all or masked.")

    @property
    def reads(self) -> dict[str, str]:
        """The teacher."""
        return {"distil.teacher": self.teacher}

    def load_dependencies(self, load: Callable[[str], Model]) -> "Distillation":
        """With its teacher. Raises UsageError when none is named or it cannot say words."""
        if not self.teacher:
            raise UsageError("distil.teacher is missing. Set it to the folder of the teacher model.")
        found, teacher = copy(self), load(self.teacher)
        if "mlm" not in teacher.heads:
            raise UsageError(f"{self.teacher} has no masked-LM head, which a teacher needs.")
        object.__setattr__(found, "loaded", teacher.eval().requires_grad_(False))
        return found

    def prepare(self, model: Model, seed: int) -> None:
        """Compare student and teacher, and give a fresh student its first layers.

        Raises DataError or UsageError when one cannot learn from the other, or cannot start from its layers.
        """
        ours, theirs = model.config, self._teacher.config
        if ours.vocab_size != theirs.vocab_size:
            raise DataError(
                f"The vocabulary of {self.teacher} has {theirs.vocab_size:,} entries, and the student's "
                f"{ours.vocab_size:,}. Both must be the same: use the teacher's tokenizer."
            )
        if self.cosine and ours.hidden_size != theirs.hidden_size:
            raise UsageError(
                f"The hidden size of {self.teacher} is {theirs.hidden_size:,}, and the student's "
                f"{ours.hidden_size:,}. The cosine loss needs equal sizes: objectives.distil.cosine=0."
            )
        if self.layers:
            self._start(model)

    def _start(self, student: Model) -> None:
        """Copy layers, embeddings and vocabulary head; heads of other objectives, and a pooler, stay fresh."""
        if student.public:
            raise UsageError(
                "distil.layers initializes a student made from a preset, but this student is a model folder "
                "with weights. Omit one of them: objectives.distil.layers=[]."
            )
        if len(self.layers) != student.config.num_hidden_layers:
            raise UsageError(
                f"distil.layers has {len(self.layers)} layers of {self.teacher}, and the student has "
                f"{student.config.num_hidden_layers}. List as many, or change "
                "model_overrides.num_hidden_layers."
            )
        taken = take_layers(self._teacher, self.layers, variant=student.variant).state_dict()
        ours = student.state_dict()
        given = {name: tensor for name, tensor in taken.items() if name in ours and tensor.shape == ours[name].shape}
        if lacking := [name for name in ours if re.match(NOT_FRESH, name) and name not in given]:
            raise UsageError(
                f"Cannot initialize the student from {self.teacher}: weight {lacking[0]} is missing or has a "
                "different size."
            )
        student.load_state_dict(ours | given)

    def heads(self, config: EncoderConfig) -> dict[str, nn.Module]:
        """The vocabulary head, which masked LM trains too."""
        return {"mlm": HEADS["mlm"](config)}

    def corrupt(self, batch: Batch, rng: Draws, vocabulary: Vocabulary) -> Batch:
        """Nothing to do: what the student reads, others say. Raises UsageError for masks that nobody makes."""
        if self.positions == "masked" and "mlm_positions" not in batch.labels:
            raise UsageError("distil.positions=masked needs objectives.mlm, listed before distil.")
        return batch

    def extra_cost(self, config: EncoderConfig, *, length: float, shares: Mapping[str, float]) -> dict[str, float]:
        """The teacher's forward pass; nothing is known of a teacher that is not loaded."""
        if self.loaded is None:
            return {}
        return {"teacher": sum(forward_flops(self.loaded.config, length=length, predicted=shares["distil"]).values())}

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
        real = None if batch.input_ids.ndim == 1 else where(batch.host.layout.mask(), ours.device)
        places = batch.labels["mlm_positions"] if self.positions == "masked" else real
        student_NH, teacher_NH = (x if places is None else x[places] for x in (ours, seen))
        with torch.no_grad():
            theirs = decoder(teacher, teacher_NH)
        soft, agreed = soft_targets_loss(decoder(model, student_NH), theirs, temperature=self.temperature)
        counts = self.counts(batch.host)
        report = {"distil": LossTerm(soft, counts["distil"], agreed, self.weight)}
        if self.cosine:
            ours, seen = (x.float() if real is None else x[real].float() for x in (ours, seen))
            apart = 1 - F.cosine_similarity(ours, seen, dim=-1)
            report["cosine"] = LossTerm(apart.sum(), counts["cosine"], weight=self.cosine)
        return report

    @property
    def _teacher(self) -> Model:
        if self.loaded is None:
            raise UsageError("The teacher is not loaded. Call `load_dependencies` first.")
        return self.loaded


def decoder(model: Model, hidden: Tensor) -> Decoder:
    """What a model's masked-LM logits are made of. hidden (N, H) -> (N, E), (V, E), (V,)"""
    head = model.heads["mlm"]
    assert isinstance(head, VocabularyHead)
    return head.parts(hidden, model.word_embeddings)
