"""Distillation for a task: a student learns the logits, hidden states and token relations of its teacher.

    soft        mean squared difference of logits, at every row the head answers for (Kim et al. 2021, arXiv:2105.08919)
    hidden      1 - cosine of the last hidden states; both must be as wide (Sanh et al. 2019)
    relations   KL of the softmax of q q', k k', v v' in the last layer, for any width (Wang et al. 2021, MiniLMv2)
    features    mean squared difference of the last hidden states; both must be as wide (Sun et al. 2020, MobileBERT)
    attention   KL of the attention of each head of the last layer; both must have as many heads (the same)
    hard        the task's own loss, where there are labels

The teacher runs once on every text, before training, and its answers are kept in files. Texts need no labels.

W sequences · T tokens · B sequences of a batch · S longest · L outputs · H hidden size · R relation heads
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
import xxhash
from torch import Tensor

from bertie.errors import UsageError
from bertie.infer.batching import batches
from bertie.models.batch import Batch
from bertie.models.encoder import Encoder, EncoderOutput
from bertie.models.loss import LossTerm
from bertie.models.model import TorchModel
from bertie.tasks import Example, Task
from bertie.tasks.source import Targets, TaskSource, batch_of_examples
from bertie.text.sequences import Sequences
from bertie.train.callbacks import Callback
from bertie.train.config import OptimConfig, TrainConfig
from bertie.train.loop import fit

LOGITS, HIDDEN, QKV = "teacher_logits", "teacher_hidden", "teacher_qkv"
OF_TOKENS = ("hidden", "relations", "features", "attention")  # parts that compare each token
MOST_RELATION_HEADS = 12
_MAX_FLOAT16 = 6e4  # of float16, in which answers are kept


@dataclass(frozen=True)
class StudentLoss:
    """The loss of a student, for `fit`. The fields are the weights of the parts above; 0 leaves a part out."""

    task: Task
    soft: float = 1.0
    hidden: float = 0.0
    relations: float = 1.0
    features: float = 0.0
    attention: float = 0.0
    hard: float = 0.5
    label_axes: ClassVar[None] = None  # its batches have the teacher's answers

    @property
    def answers(self) -> tuple[str, ...]:
        """The names of the teacher's answers that the parts read."""
        weights = {LOGITS: self.soft, HIDDEN: self.hidden or self.features, QKV: self.relations or self.attention}
        return tuple(name for name, weight in weights.items() if weight)

    def counts(self, batch: Batch) -> dict[str, float]:
        """Returns the number of labels, rows of logits and tokens, by part."""
        own = self.task.counts(batch) if self.hard else {}
        others = {"soft": len(batch.labels[LOGITS])} if self.soft else {}
        return {**own, **others, **{name: batch.tokens for name in OF_TOKENS if getattr(self, name)}}

    def forward(self, model: TorchModel, batch: Batch) -> EncoderOutput:
        """Returns the encoder's output, with all layers if heads are compared."""
        every = self.relations or self.attention
        return model.encode(batch, output_hidden_states=True) if every else self.task.forward(model, batch)

    def loss(self, model: TorchModel, output: EncoderOutput, batch: Batch) -> Mapping[str, LossTerm]:
        """Returns the parts that have a weight."""
        counts, targets = self.counts(batch.host), batch.labels
        report = dict[str, LossTerm]()
        if self.soft or self.hard:
            logits = self.task.logits(model, output).float()
        if self.hard:
            own = self.task.losses(logits, batch)
            report |= {name: replace(part, weight=part.weight * self.hard) for name, part in own.items()}
        apart = dict[str, Tensor]()
        if self.soft:
            apart["soft"] = (logits - targets[LOGITS].float()).square().flatten(1).mean(1).sum()
        if self.hidden:
            cosine = F.cosine_similarity(output.last_hidden_state.float(), targets[HIDDEN].float(), dim=-1)
            apart["hidden"] = (1 - cosine).sum()
        if self.features:
            difference = output.last_hidden_state.float() - targets[HIDDEN].float()
            apart["features"] = difference.square().mean(-1).sum()
        if self.relations or self.attention:
            qkv = last_qkv(model, output)
        if self.relations:
            apart["relations"] = relations_loss(qkv, targets[QKV], output)
        if self.attention:
            apart["attention"] = attention_loss(qkv, targets[QKV], output, model.config.num_attention_heads)
        terms = {name: LossTerm(total, counts[name], weight=getattr(self, name)) for name, total in apart.items()}
        return {**report, **terms}

    def check(self, student: TorchModel, teacher: TorchModel) -> None:
        """Raises UsageError for a student that cannot learn from this teacher."""
        if (self.hidden or self.features) and student.config.hidden_size != teacher.config.hidden_size:
            raise UsageError(
                f"The student is {student.config.hidden_size:,} wide, the teacher {teacher.config.hidden_size:,}. "
                "Hidden states of different widths cannot be compared. Compare relations instead: hidden=0, features=0."
            )
        heads = student.config.num_attention_heads, teacher.config.num_attention_heads
        if self.attention and heads[0] != heads[1]:
            raise UsageError(
                f"The student has {heads[0]} attention heads, the teacher {heads[1]}. Their attention cannot be "
                "compared. Compare relations instead: attention=0."
            )
        plain = all(type(one.encoder) is Encoder and one.config.attends_to_all for one in (student, teacher))
        if (self.relations or self.attention) and not plain:
            raise UsageError(
                "Relations and attention need full attention, which this model does not have. Leave them out: "
                "relations=0, attention=0."
            )
        if student.config.vocab_size != teacher.config.vocab_size:
            raise UsageError(
                "Student and teacher have different vocabularies. Use a student with the tokenizer of the teacher."
            )


def last_qkv(model: TorchModel, output: EncoderOutput) -> Tensor:
    """Computes query, key and value of the last layer from its input. -> (T, 3 H)"""
    layer, x = list(model.encoder.plain_layers())[-1], output.all_states[-2]
    qkv: Tensor = layer.attention.get_submodule("qkv")(layer.attention_norm(x) if layer.pre_norm else x)
    return qkv


def relations_loss(ours_T3H: Tensor, theirs_T3H: Tensor, output: EncoderOutput) -> Tensor:
    """Returns the sum over tokens of the mean over q, k, v and relation heads of KL(theirs || ours)."""
    widths = ours_T3H.shape[-1] // 3, theirs_T3H.shape[-1] // 3
    heads = max(n for n in range(1, MOST_RELATION_HEADS + 1) if gcd(*widths) % n == 0)
    return _apart(ours_T3H, theirs_T3H, output, heads, [0, 1, 2], [0, 1, 2])


def attention_loss(ours_T3H: Tensor, theirs_T3H: Tensor, output: EncoderOutput, heads: int) -> Tensor:
    """Returns the sum over tokens of the mean over heads of KL(theirs || ours) of the attention probabilities."""
    return _apart(ours_T3H, theirs_T3H, output, heads, [0], [1])


def _apart(
    ours_T3H: Tensor, theirs_T3H: Tensor, output: EncoderOutput, heads: int, first: list[int], second: list[int]
) -> Tensor:
    """Compares the products of `first` and `second` of query, key and value."""
    layout = output.layout
    mask_BS = layout.mask()

    def relations(qkv_T3H: Tensor) -> Tensor:  # -> (kinds, B, heads, S, S)
        x = layout.rectangle(qkv_T3H.float()).unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4)  # type: ignore[no-untyped-call]
        scores = x[first] @ x[second].mT / x.shape[-1] ** 0.5
        logs: Tensor = scores.masked_fill(~mask_BS[None, :, None, None], -1e9).log_softmax(-1)
        return logs

    target = relations(theirs_T3H)
    apart = (target.exp() * (target - relations(ours_T3H))).sum(-1)  # (kinds, B, heads, S)
    total: Tensor = (apart.mean((0, 2)) * mask_BS).sum()
    return total


def teacher_answers(
    teacher: TorchModel, objective: StudentLoss, encoded: Sequences, folder: Path, *, max_tokens: int = 4096
) -> Targets:
    """Returns the teacher's answers for all sequences, kept in `folder` as float16 by a hash of the content."""
    key = xxhash.xxh3_64(encoded.input_ids.tobytes() + encoded.starts.tobytes())
    for tensor in teacher.state_dict().values():
        key.update(tensor.contiguous().cpu().numpy().tobytes())
    files = {name: folder / f"{name}-{key.hexdigest()}.npy" for name in objective.answers}
    if not all(path.exists() for path in files.values()):
        folder.mkdir(parents=True, exist_ok=True)
        _write(teacher, objective, encoded, files, max_tokens)
    arrays = {name: np.load(path, mmap_mode="r") for name, path in files.items()}
    of_tokens = _of_tokens(teacher, objective)
    return Targets(
        {name: array for name, array in arrays.items() if name not in of_tokens},
        {name: array for name, array in arrays.items() if name in of_tokens},
    )


def _of_tokens(teacher: TorchModel, objective: StudentLoss) -> set[str]:
    """Returns the names of the answers that have a row per token."""
    head = dict(teacher.heads).get(objective.task.output)
    return {HIDDEN, QKV} | ({LOGITS} if getattr(head, "rows", "sequence") == "token" else set())


def _write(
    teacher: TorchModel, objective: StudentLoss, encoded: Sequences, files: Mapping[str, Path], max_tokens: int
) -> None:
    """Writes under temporary names, so that a file with its final name is complete."""
    parts: dict[str, Any] = {}
    ids, of_tokens = encoded, _of_tokens(teacher, objective)
    for chosen in batches(encoded.lengths, max_tokens=max_tokens):
        for name, answer in _said(
            teacher, objective, batch_of_examples(encoded, chosen).to(teacher.device), files
        ).items():
            array = answer.float().clamp(-_MAX_FLOAT16, _MAX_FLOAT16).cpu().numpy().astype(np.float16)
            if name not in parts:
                shape = (len(ids.input_ids) if name in of_tokens else len(ids), *array.shape[1:])
                part = files[name].with_suffix(".part")
                parts[name] = np.lib.format.open_memmap(part, "w+", np.float16, shape)
            parts[name][ids.rows(chosen) if name in of_tokens else chosen] = array
    for name, path in files.items():
        parts[name].flush()
        path.with_suffix(".part").rename(path)


@torch.inference_mode()
def _said(teacher: TorchModel, objective: StudentLoss, batch: Batch, names: Container[str]) -> dict[str, Tensor]:
    output = teacher.eval().encode(batch, output_hidden_states=QKV in names)
    said = {LOGITS: objective.task.logits(teacher, output)} if LOGITS in names else {}
    said |= {HIDDEN: output.last_hidden_state} if HIDDEN in names else {}
    return said | ({QKV: last_qkv(teacher, output)} if QKV in names else {})


def distil(
    student: TorchModel,
    teacher: TorchModel,
    objective: StudentLoss,
    examples: Sequence[Example],
    run: Path,
    *,
    answers: Path | None = None,
    max_length: int,
    train: TrainConfig,
    optim: OptimConfig,
    callbacks: Sequence[Callback] = (),
) -> None:
    """Trains a student in place. A run folder with a checkpoint is resumed. Examples need no labels.

    answers: folder of the teacher's answers, if several students share them. callbacks: as in `fit`.

    Raises UsageError for a student that cannot learn from the teacher.
    """
    objective.check(student, teacher)
    encoded = objective.task.encode(examples, teacher.text_tokenizer, max_length=max_length, too_long="truncate")
    own, theirs = (
        objective.task.targets(examples, encoded),
        teacher_answers(teacher, objective, encoded, answers or run / "teacher"),
    )
    targets = Targets({**own.sequence, **theirs.sequence}, {**own.token, **theirs.token})
    source = TaskSource(
        encoded, targets, batch_size=train.batch_size, micro_batch_size=train.largest_micro_batch, seed=train.seed
    )
    fit(student, objective, source, train=train, optim=optim, run=run, callbacks=callbacks, allow_change=None)
    student.compute_dtype = None
    student.eval()
