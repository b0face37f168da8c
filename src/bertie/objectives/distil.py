"""Distillation: a smaller model learns the probabilities and the hidden states of a teacher. Sanh et al. 2019, 2.

    objectives: {mlm: {weight: 2}, nsp: null, distil: {teacher: models/bert-base, layers: [0, 2, 4, 7, 9, 11]}}
    objectives: {mlm: {}, nsp: null, distil: {teacher: models/ib-bert, cosine: 0, features: 1, attention: 1}}

Its two losses, in addition to masked LM, are those of DistilBERT: soft targets (the teacher's probabilities of all
vocabulary entries at a temperature), and the cosine between the last hidden states of both models. Two more are those
of MobileBERT (Sun et al. 2020, 3.4), for each layer: its hidden states, and its attention. With fewer layers than the
teacher's, a student's layer learns from the last one of an equal share of them (Jiao et al. 2020, 3.1). The teacher
reads the same masked batch as the student, without dropout. The objective adds no labels.

B sequences · T real tokens of the batch · N compared tokens · H hidden size · A heads · S longest sequence
"""

import re
from collections.abc import Mapping, Sequence
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
from bertie.models.kinds import Bottleneck, Full, Residual
from bertie.models.loss import right
from bertie.models.model import TorchModel
from bertie.models.surgery import take_layers
from bertie.models.vocabulary_loss import rows_at_a_time
from bertie.objectives.base import LossReport, LossTerm, Objective, OpensModel
from bertie.order import Draws
from bertie.text.sequences import Sequences

LogitOperands = tuple[Tensor, Tensor, Tensor]
"""The operands of logits: hidden states (N, H), weight (V, H), bias (V,)."""
CPU_CHUNKS = 8  # parts of what is in memory at a time; in one, 80 steps of 2 x 128 held 2.7 GB instead of 1.0
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
    whole_run: ClassVar[tuple[str, ...]] = (
        *("teacher", "temperature", "weight", "cosine", "features", "attention", "positions", "layers"),
    )

    teacher: str = field(default="", repr=False)  # no batch changes with it; its weights are in the run's identity
    """Folder of the teacher. It needs a masked-LM head and the student's vocabulary."""
    temperature: float = 2.0
    """Temperature of the softmax of teacher and student. Source: DistilBERT's code, train.py."""
    weight: float = 5.0
    """Weight of the loss of the soft targets; 0: none. Source: DistilBERT's code, README.md."""
    cosine: float = 1.0
    """Weight of the cosine loss of hidden states. With 0, hidden sizes may differ. Source: DistilBERT's code,
    README.md."""
    features: float = 0.0
    """Weight of the mean squared difference of each layer's hidden states. Hidden sizes must be equal. Source:
    MobileBERT, 3.4; there 1."""
    attention: float = 0.0
    """Weight of the divergence of each layer's attention. Numbers of heads must be equal. Source: MobileBERT, 3.4;
    there 1."""
    positions: Literal["all", "masked"] = "all"
    """Positions of the soft targets: all tokens, or only the masked positions of mlm, which is faster. Source:
    DistilBERT's code, train.py, restrict_ce_to_mask."""
    layers: tuple[int, ...] = ()
    """Layers of the teacher, counted from 0, that initialize a student made from a preset, together with the embeddings
    and the vocabulary head. Empty: random weights. Source: DistilBERT's code, extract_distilbert.py: 0, 2, 4, 7, 9, 11.
    """

    def __post_init__(self) -> None:
        weights = (self.weight, self.cosine, self.features, self.attention)
        if not self.temperature > 0 or not all(weight >= 0 for weight in weights) or not any(weights):
            raise UsageError(
                "distil.temperature must be above 0. distil.weight, cosine, features and attention must be 0 or more, "
                "and one of them above."
            )
        if self.positions not in ("all", "masked"):
            raise WrongValue(f"distil.positions is {self.positions!r}; it must be all or masked.")

    @property
    def own_forward(self) -> bool:  # type: ignore[override]
        """Whether all layers are compared, whose states and attention the encoder then returns."""
        return bool(self.features or self.attention)

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
        self._check_layers(ours, theirs)
        if self.layers:
            self._start(model)

    def _check_layers(self, ours: EncoderConfig, theirs: EncoderConfig) -> None:
        """Raises UsageError where layers are compared that cannot be."""
        both = (ours, theirs)
        if self.own_forward and theirs.num_hidden_layers % ours.num_hidden_layers:
            raise UsageError(
                f"{self.teacher} has {theirs.num_hidden_layers} layers, and the student "
                f"{ours.num_hidden_layers}. Layers are compared in equal shares: choose a number that divides "
                f"{theirs.num_hidden_layers}, or omit distil.features and distil.attention."
            )
        if self.features and ours.hidden_size != theirs.hidden_size:
            raise UsageError(
                f"The hidden size of {self.teacher} is {theirs.hidden_size:,}, and the student's "
                f"{ours.hidden_size:,}. distil.features needs equal sizes: objectives.distil.features=0."
            )
        full = all(isinstance(one.attention, Full) and isinstance(one.layer, Residual | Bottleneck) for one in both)
        if self.attention and (ours.num_attention_heads != theirs.num_attention_heads or not full):
            raise UsageError(
                f"The attention of {self.teacher} and of the student cannot be compared: both need full attention and "
                "equally many heads. Omit it: objectives.distil.attention=0."
            )
        if self.attention and ours.attention_probs_dropout_prob:
            raise UsageError(
                "distil.attention compares probabilities, and dropout would set some of the student's to 0. Turn it "
                "off: model_overrides.attention_probs_dropout_prob=0."
            )

    def forward(self, model: TorchModel, batch: Batch) -> EncoderOutput:
        """Runs the encoder, with what the loss reads of its layers."""
        if not self.own_forward:
            return super().forward(model, batch)
        return model.encode(batch, output_hidden_states=True, output_attentions=bool(self.attention))

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
        predicted = shares.get("distil", 0.0)  # there are no soft targets with a weight of 0
        return {"teacher": sum(forward_flops(self.loaded.config, length=length, predicted=predicted).values())}

    def counts(self, batch: Batch) -> dict[str, int]:
        """Returns N for the soft targets and T for the other losses."""
        soft = batch.tokens if self.positions == "all" else len(batch.labels["mlm_positions"])
        others = [name for name in ("cosine", "features", "attention") if getattr(self, name)]
        return ({"distil": soft} if self.weight else {}) | dict.fromkeys(others, batch.tokens)

    def loss(self, model: TorchModel, output: EncoderOutput, batch: Batch) -> LossReport:
        """Returns the divergence from the teacher's probabilities, one minus the cosine, and the losses of layers,
        which are summed over layers."""
        teacher = self._teacher.to(output.last_hidden_state.device)
        teacher.compute_dtype = model.compute_dtype
        with torch.no_grad():
            theirs = self.forward(teacher, batch)
        real = None if batch.input_ids.ndim == 1 else batch.where(batch.host.layout.mask())
        counts, report = self.counts(batch.host), dict[str, LossTerm]()
        if self.weight:
            places = batch.labels["mlm_positions"] if self.positions == "masked" else real
            student_NH, teacher_NH = (_rows(x.last_hidden_state, places) for x in (output, theirs))
            with torch.no_grad():
                targets = decoder(teacher, teacher_NH)
            soft, agreed = soft_targets_loss(decoder(model, student_NH), targets, temperature=self.temperature)
            report["distil"] = LossTerm(soft, counts["distil"], agreed, self.weight)
        if self.cosine:
            ours_TH, theirs_TH = (_rows(x.last_hidden_state, real).float() for x in (output, theirs))
            apart = 1 - F.cosine_similarity(ours_TH, theirs_TH, dim=-1)
            report["cosine"] = LossTerm(apart.sum(), counts["cosine"], weight=self.cosine)
        if self.features:
            pairs = layer_pairs(output.all_states[1:], theirs.all_states[1:])
            squares = [F.mse_loss(_rows(x, real).float(), _rows(y, real).float()) for x, y in pairs]
            total = torch.stack(squares).sum() * counts["features"]
            report["features"] = LossTerm(total, counts["features"], weight=self.features)
        if self.attention:
            pairs = layer_pairs(output.attentions or (), theirs.attentions or ())
            total = torch.stack([attention_divergence(*pair, output.layout.mask()) for pair in pairs]).sum()
            report["attention"] = LossTerm(total, counts["attention"], weight=self.attention)
        return report


def layer_pairs(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Returns each layer of the student with the last one of its share of the teacher's layers."""
    share = len(theirs) // len(ours)
    return list(zip(ours, theirs[share - 1 :: share], strict=True))


def attention_divergence(ours_BASS: Tensor, theirs_BASS: Tensor, mask_BS: Tensor) -> Tensor:
    """Returns the sum over real tokens of the mean over heads of KL(theirs || ours), in nats. float32 scalar"""
    # in bfloat16, probabilities add up to 1 only roughly
    ours_BASS, theirs_BASS = (F.normalize(x.float(), p=1, dim=-1) for x in (ours_BASS, theirs_BASS))
    logs_BASS = ours_BASS.clamp_min(torch.finfo(torch.float32).tiny).log()
    apart_BS = F.kl_div(logs_BASS, theirs_BASS, reduction="none").sum(-1).mean(1)
    return (apart_BS * mask_BS).sum()


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
        if weight_VH.device.type == "cpu":  # whole steps differ in size, and what is freed does not fit the next one
            chunk = max(1, chunk // CPU_CHUNKS)
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


def _rows(states: Tensor, places: Tensor | None) -> Tensor:
    """Returns the rows of tokens; places: their flattened positions, None: all. (..., H) -> (N, H)"""
    rows = states.flatten(0, -2)
    return rows if places is None else rows[places]
