"""Distillation: a smaller model learns the probabilities and the hidden states of a teacher. Sanh et al. 2019, 2.

    objectives: {mlm: {weight: 2}, nsp: null, distil: {teacher: models/bert-base, layers: [0, 2, 4, 7, 9, 11]}}

Its two losses, in addition to masked LM, are those of DistilBERT: soft targets (the teacher's probabilities of all
vocabulary entries at a temperature), and the cosine between the last hidden states of both models. The teacher reads
the same masked batch as the student, without dropout. The objective adds no labels.

B sequences · T real tokens of the batch · N compared tokens · H hidden size
"""

import re
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertie.data.masking import Vocabulary
from bertie.errors import DataError, UsageError, WrongModel, WrongValue
from bertie.models.batch import Batch
from bertie.models.config import EncoderConfig
from bertie.models.count import forward_flops
from bertie.models.encoder import EncoderOutput
from bertie.models.heads import HEADS
from bertie.models.loss import right
from bertie.models.model import TorchModel
from bertie.models.surgery import take_layers
from bertie.models.vocabulary_loss import rows_at_a_time
from bertie.objectives.base import LossReport, LossTerm, Objective, OpensModel
from bertie.order import Draws
from bertie.text.sequences import Sequences

LogitOperands = tuple[Tensor, Tensor, Tensor]
"""The operands of logits: hidden states (N, H), weight (V, H), bias (V,)."""
NOT_FRESH = r"encoder\.(?!pooler\.)|heads\.mlm\."  # weights a student is given with its layers


@dataclass(frozen=True)
class Taught(Objective):
    """An objective with a teacher, whose weights are in the run's identity, so that no batch changes with its name."""

    teacher: str = field(default="", repr=False)
    loaded: TorchModel | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def reads(self) -> dict[str, str]:
        """The folder of the teacher."""
        return {f"{self.name}.teacher": self.teacher}

    def taught_by(self, teacher: TorchModel) -> Self:
        """Returns the objective with its teacher."""
        objective = copy(self)
        object.__setattr__(objective, "loaded", teacher.eval().requires_grad_(False))
        return objective

    @property
    def _teacher(self) -> TorchModel:
        if self.loaded is None:
            raise UsageError("The teacher is not loaded. Call `load_dependencies` first.")
        return self.loaded


@dataclass(frozen=True)
class Distillation(Taught):
    """Learns from a teacher. Weights and temperature are those of DistilBERT's code (distillation/README.md)."""

    name: ClassVar[str] = "distil"
    whole_run: ClassVar[tuple[str, ...]] = ("teacher", "temperature", "weight", "cosine", "positions", "layers")

    teacher: str = field(default="", repr=False)  # no batch changes with it; its weights are in the run's identity
    """Folder of the teacher. It needs a masked-LM head and the student's vocabulary."""
    temperature: float = 2.0
    """Temperature of the softmax of teacher and student. Source: DistilBERT's code, train.py."""
    weight: float = 5.0
    """Weight of the loss of the soft targets. Source: DistilBERT's code, README.md."""
    cosine: float = 1.0
    """Weight of the cosine loss of hidden states. With 0, hidden sizes may differ. Source: DistilBERT's code,
    README.md."""
    positions: Literal["all", "masked"] = "all"
    """Positions of the soft targets: all tokens, or only the masked positions of mlm, which is faster. Source:
    DistilBERT's code, train.py, restrict_ce_to_mask."""
    layers: tuple[int, ...] = ()
    """Layers of the teacher, counted from 0, that initialize a student made from a preset, together with the embeddings
    and the vocabulary head. Empty: random weights. Source: DistilBERT's code, extract_distilbert.py: 0, 2, 4, 7, 9, 11.
    """

    def __post_init__(self) -> None:
        if not self.temperature > 0 or not self.weight > 0 or not self.cosine >= 0:
            raise UsageError("distil.temperature and distil.weight must be above 0, distil.cosine 0 or more.")
        if self.positions not in ("all", "masked"):
            raise WrongValue(f"distil.positions is {self.positions!r}; it must be all or masked.")

    def load_dependencies(self, load: OpensModel) -> "Distillation":
        """Loads the teacher. Raises UsageError when none is named, or when it has no masked-LM head."""
        if not self.teacher:
            raise UsageError("distil.teacher is missing. Set it to the folder of the teacher model.")
        teacher = load(self.teacher)
        if "mlm" not in teacher.heads:
            raise WrongModel(f"{self.teacher} has no masked-LM head, which a teacher needs.")
        return self.taught_by(teacher)

    def prepare(self, model: TorchModel, seed: int) -> None:
        """Checks that student and teacher match, and initializes a new student from the teacher's layers.

        Raises DataError or UsageError when they do not match.
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

    def _start(self, student: TorchModel) -> None:
        """Copies layers, embeddings and vocabulary head. The pooler and the heads of other objectives keep random
        weights."""
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
        matching = {name: tensor for name, tensor in taken.items() if name in ours and tensor.shape == ours[name].shape}
        if lacking := [name for name in {**ours, **taken} if re.match(NOT_FRESH, name) and name not in matching]:
            raise UsageError(
                f"Cannot initialize the student from {self.teacher}: weight {lacking[0]} is missing or has a "
                "different size."
            )
        student.load_state_dict(ours | matching)

    def heads(self, config: EncoderConfig) -> dict[str, nn.Module]:
        """Returns the vocabulary head, which masked LM trains too."""
        return {"mlm": HEADS["mlm"](config)}

    def corrupt(self, batch: Sequences, rng: Draws, vocabulary: Vocabulary) -> Sequences:
        """Returns the sequences unchanged. Raises UsageError for masked positions without an objective that masks."""
        if self.positions == "masked" and "mlm_positions" not in batch.labels:
            raise UsageError("distil.positions=masked needs objectives.mlm, listed before distil.")
        return batch

    def extra_cost(self, config: EncoderConfig, *, length: float, shares: Mapping[str, float]) -> dict[str, float]:
        """Returns the operations of the teacher's forward pass, or nothing when the teacher is not loaded."""
        if self.loaded is None:
            return {}
        return {"teacher": sum(forward_flops(self.loaded.config, length=length, predicted=shares["distil"]).values())}

    def counts(self, batch: Batch) -> dict[str, int]:
        """Returns N for the soft targets and T for the cosine loss."""
        soft = batch.tokens if self.positions == "all" else len(batch.labels["mlm_positions"])
        return {"distil": soft} | ({"cosine": batch.tokens} if self.cosine else {})

    def loss(self, model: TorchModel, output: EncoderOutput, batch: Batch) -> LossReport:
        """Returns the Kullback-Leibler divergence from the teacher's probabilities, and one minus the cosine."""
        teacher = self._teacher.to(output.last_hidden_state.device)
        teacher.compute_dtype = model.compute_dtype
        with torch.no_grad():
            theirs_TH = teacher.encode(batch).last_hidden_state
        ours, theirs_TH = output.last_hidden_state.flatten(0, -2), theirs_TH.flatten(0, -2)
        real = None if batch.input_ids.ndim == 1 else batch.where(batch.host.layout.mask())
        places = batch.labels["mlm_positions"] if self.positions == "masked" else real
        student_NH, teacher_NH = (x if places is None else x[places] for x in (ours, theirs_TH))
        with torch.no_grad():
            theirs = decoder(teacher, teacher_NH)
        soft, agreed = soft_targets_loss(decoder(model, student_NH), theirs, temperature=self.temperature)
        counts = self.counts(batch.host)
        report = {"distil": LossTerm(soft, counts["distil"], agreed, self.weight)}
        if self.cosine:
            ours, theirs_TH = (x.float() if real is None else x[real].float() for x in (ours, theirs_TH))
            apart = 1 - F.cosine_similarity(ours, theirs_TH, dim=-1)
            report["cosine"] = LossTerm(apart.sum(), counts["cosine"], weight=self.cosine)
        return report


def decoder(model: TorchModel, hidden: Tensor) -> LogitOperands:
    """Returns the operands of a model's masked-LM logits. hidden (N, H) -> (N, E), (V, E), (V,)"""
    return model.vocabulary_head("mlm").parts(hidden, model.word_embeddings)


def soft_targets_loss(student: LogitOperands, teacher: LogitOperands, *, temperature: float) -> tuple[Tensor, Tensor]:
    """Returns the summed KL(teacher || student) of the probabilities at a temperature, and how often both have the same
    maximum.

    Multiplied by temperature^2, so that gradients have the same size at any temperature (Hinton et al. 2015, 2). -> sum
    in nats, float32 scalar; count, int64 scalar. Only the student has gradients, which are computed in the forward
    pass, a chunk of positions at a time.
    """
    total, agreed = _SoftTargets.apply(*student, *(x.detach() for x in teacher), temperature)  # type: ignore[no-untyped-call]
    return total, agreed


class _SoftTargets(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_NH: Tensor,
        weight_VH: Tensor,
        bias_V: Tensor,
        teacher_NG: Tensor,
        teacher_VG: Tensor,
        teacher_V: Tensor,
        temperature: float,
    ) -> Any:
        ours_VH, ours_V = weight_VH.to(hidden_NH.dtype), bias_V.to(hidden_NH.dtype)
        theirs_VG, theirs_V = teacher_VG.to(teacher_NG.dtype), teacher_V.to(teacher_NG.dtype)
        total = torch.zeros((), device=hidden_NH.device)
        agreed = torch.zeros((), dtype=torch.int64, device=hidden_NH.device)
        grad_hidden_NH = torch.empty_like(hidden_NH)
        grad_weight_VH, grad_bias_V = torch.zeros_like(weight_VH), torch.zeros_like(bias_V)
        chunk = rows_at_a_time(weight_VH)
        for start in range(0, len(hidden_NH), chunk):
            h_CH, g_CG = hidden_NH[start : start + chunk], teacher_NG[start : start + chunk]
            ours_CV = (torch.addmm(ours_V, h_CH, ours_VH.T).float() / temperature).log_softmax(1)
            theirs_CV = (torch.addmm(theirs_V, g_CG, theirs_VG.T).float() / temperature).log_softmax(1)
            wanted_CV = theirs_CV.exp()
            total += (wanted_CV * (theirs_CV - ours_CV)).sum() * temperature**2
            agreed += right(ours_CV, theirs_CV.argmax(1)).sum()
            if any(ctx.needs_input_grad):
                grad_CV = ((ours_CV.exp() - wanted_CV) * temperature).to(h_CH.dtype)  # d total / d logits
                grad_hidden_NH[start : start + chunk] = grad_CV @ ours_VH
                grad_weight_VH += grad_CV.T @ h_CH
                grad_bias_V += grad_CV.sum(0)
        ctx.save_for_backward(grad_hidden_NH, grad_weight_VH, grad_bias_V)
        ctx.mark_non_differentiable(agreed)
        return total, agreed

    @staticmethod
    def backward(ctx: Any, grad_total: Tensor, _: object) -> object:
        hidden_NH, weight_VH, bias_V = ctx.saved_tensors
        grads = hidden_NH * grad_total.to(hidden_NH.dtype), weight_VH * grad_total, bias_V * grad_total
        return *grads, None, None, None, None
