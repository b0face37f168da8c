"""Sentence embeddings: a vector for each text, so that texts with similar meanings are close. Reimers and Gurevych
2019.

    [CLS] text [SEP] -> encoder -> pooling: the mean of the tokens, the first token ... -> vector

There is no head: only the encoder is trained, on pairs of texts. The loss "cosine" trains the cosine of a pair to equal
its label. "contrastive" uses the other pairs of the batch as negatives (Henderson et al. 2017, 4.4). The folder opens
in `sentence-transformers`, and folders of `sentence-transformers` open here.

E examples · W sequences, one or two per example · P pairs of a batch · H hidden size
"""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from bertie.data.sequences import Sequences
from bertie.errors import DataError, UsageError
from bertie.io.columns import LookAhead, find_columns, no_rows
from bertie.io.header import LABELS
from bertie.io.lines import BadRecord
from bertie.io.table_format import Columns, TableFormat
from bertie.io.tables import Example
from bertie.metrics.base import Scores
from bertie.metrics.numbers import Numbers
from bertie.models.config import EncoderConfig
from bertie.models.facts import Facts
from bertie.models.sentence import (
    MODES,
    MODULES,
    POOLING,
    SETTINGS,
    Dense,
    SentenceModules,
)
from bertie.tasks.answerer import Logits, Prediction
from bertie.tasks.arrays import unit
from bertie.tasks.base import Reader, Task
from bertie.tasks.regression import RegressionTask
from bertie.tasks.render import RenderedExample, numbers
from bertie.tasks.source import Targets, encode
from bertie.text.sentence import LENGTHS
from bertie.text.tokenizer import Tokenizer
from bertie.training_facts import TooLong

if TYPE_CHECKING:
    from torch import Tensor, nn

    from bertie.data.batch import Batch
    from bertie.models.encoder import EncoderOutput
    from bertie.models.loss import LossReport
    from bertie.models.model import TorchModel

Pooling = Literal["mean", "cls", "max", "mean_sqrt_len", "weighted_mean", "last"]
Similarity = Literal["cosine", "dot", "euclidean", "manhattan"]
TRIPLES = tuple((first, "positive", "negative") for first in ("anchor", "query", "question", "text"))
TOGETHER = (*TRIPLES, *((first, "positive") for first in ("anchor", "query", "question", "text")))


@dataclass(frozen=True)
class EmbedTask(Task):
    """Computes a vector for each text. The prediction for a pair is its similarity.

    Attributes:
        pooling: How the vectors of the tokens are combined; the results of several ways are joined.
        loss_kind: cosine or contrastive.
        highest: The label of a pair with the same meaning, by default the maximum in training. Contrastive training
            uses the pairs from 0.8 of it as positives.
        scale: Factor of the cosines before the softmax of contrastive training.
        normalize: Whether vectors have length 1.
        truncate_dim: Number of dimensions to keep, from the first (Kusupati et al. 2022). Not set: all.
        unit_length: Whether the result has length 1, after truncation.
        prompt: Text that is put before every text.
        prompts: Texts to put before a text instead, by the names under which they are saved.
        similarity: Similarity of a pair; distances are negative.
        dense: Matrices that follow the pooling in a published model.
    """

    pooling: Pooling | tuple[Pooling, ...] = "mean"
    loss_kind: Literal["cosine", "contrastive"] = "cosine"
    highest: float = 1.0
    scale: float = 20.0
    normalize: bool = False
    truncate_dim: int | None = None
    unit_length: bool = False
    prompt: str = ""
    prompts: Mapping[str, str] = field(default_factory=dict)
    similarity: Similarity = "cosine"
    dense: tuple[Any, ...] = ()

    reads_columns = False
    head = "embed"
    command = "embed"
    texts_vary = True
    no_windows = "Embeddings do not support windows"
    metrics = ("spearman", "pearson")
    baselines = ("overlap",)

    example = RegressionTask.example

    @classmethod
    def columns(cls, names: Sequence[str], columns: Columns, where: str, look: LookAhead = no_rows) -> Columns:
        """Returns the columns of a pair and its score; of positive pairs; or of an anchor, a positive and a negative.

        Two texts without a label are a positive pair.
        """
        scored = columns.label or any(name in names for name in (columns.usual_label, *LABELS))
        if not columns.labelled or scored:
            return find_columns(names, columns, where, look)
        text = columns.text or next((some for some in TOGETHER if set(some) <= set(names)), ())
        if len(text) != 3:
            found = find_columns(names, replace(columns, text=text, label=None), where)
            return found if len(found.text) == 2 else find_columns(names, columns, where)
        for name in text:
            find_columns(names, replace(columns, text=(name,), label=None), where)  # says which one there is not
        return Columns(text, None)

    @classmethod
    def rows(
        cls, path: Path | str, format: TableFormat, *, on_columns: Callable[[Columns], None] = lambda columns: None
    ) -> Iterator[Example | BadRecord]:
        """Yields pairs. An anchor with a positive and a negative text is two of them, with the scores 1 and 0."""
        for row in super().rows(path, format, on_columns=on_columns):
            if isinstance(row, BadRecord) or not format.columns.labelled or row.label is not None:
                yield row
                continue
            anchor, *others = row.texts
            for score, other in zip((1.0, 0.0), others, strict=False):
                yield replace(row, texts=(anchor, other), label=score, group=f"line {row.line}")

    def __post_init__(self) -> None:
        if self.truncate_dim is not None and self.truncate_dim < 1:
            raise UsageError(f"truncate_dim is {self.truncate_dim}; it must be a number from 1.")
        for name, value in (("highest", self.highest), ("scale", self.scale)):
            if not value > 0:
                raise UsageError(f"{name} is {value:g}; it must be above 0.")
        if not self.outputs:
            raise UsageError(f"pooling is empty; it must name one way at least. Known: {', '.join(MODES)}.")
        if not all(isinstance(one, Dense) for one in self.dense):
            raise UsageError("dense cannot be set: the matrices are read from a model folder.")

    @classmethod
    def reads_sets_of(cls, own: type[Reader]) -> bool:
        """Returns whether the published sets have pairs with a score, or are of this task."""
        return own is RegressionTask or super().reads_sets_of(own)

    @classmethod
    def from_examples(cls, examples: Sequence[Example], names: tuple[str, ...], options: Mapping[str, object]) -> Self:
        """Returns the task. The maximum label means the same text. Raises DataError for single texts, or no label
        above 0."""
        _check_pairs(examples, "trained")
        highest = max(float(example.label) for example in examples)
        if highest <= 0:
            raise DataError("No pair has a label above 0, so no texts are similar.")
        # Pairs that are positive, each for itself or beside a negative one, are learned from the others of the batch.
        known = {"highest": highest} | ({"loss_kind": "contrastive"} if all(e.group for e in examples) else {})
        return cls.make((), {**known, **options})

    @property
    def output(self) -> str:
        """The vectors, pooled by the engine."""
        return self.outputs[0]

    @property
    def outputs(self) -> tuple[str, ...]:
        """One array per pooling."""
        return (self.pooling,) if isinstance(self.pooling, str) else self.pooling

    @classmethod
    def as_trained(cls, task: Task | None) -> "EmbedTask":
        """Returns the task of a model if it embeds, otherwise the mean of the tokens."""
        return task if isinstance(task, EmbedTask) else cls()

    def with_prompt(self, prompt: str) -> Self:
        """Returns the task with another text before every text."""
        return replace(self, prompt=prompt)

    def width(self, hidden_size: int) -> int:
        """The number of dimensions of a vector."""
        whole = self.whole_width(hidden_size)
        return min(whole, self.truncate_dim or whole)

    def whole_width(self, hidden_size: int) -> int:
        """The number of dimensions of a vector before truncation."""
        return len(self.dense[-1].weight) if self.dense else len(self.outputs) * hidden_size

    def settings(self) -> dict[str, Any]:
        """All but the matrices, which stay in their own files."""
        return {
            name: value for name, value in asdict(replace(self, dense=())).items() if name not in ("labels", "dense")
        }

    @property
    def least_batch(self) -> int:
        """Two where the other pairs of a batch are the wrong answers."""
        return 2 if self.loss_kind == "contrastive" else 1

    def continued(self, sentence: SentenceModules, given: Collection[str] = ()) -> tuple[Self, list[str]]:
        """Returns the task with the settings of the start model's folder, except those in `given`, and a note of
        them."""
        own = {name: value for name, value in _settings(sentence).items() if name not in given}
        shown = {**own, "prompts": [name for name, text in own.get("prompts", {}).items() if text]}
        told = ", ".join(f"{name} {json.dumps(value, ensure_ascii=False)}" for name, value in shown.items() if value)
        notes = [f"the start model's settings are kept: {told}"] if told else []
        notes += ["the start model's Dense modules are not continued"] if sentence.dense else []
        return replace(self, **own), notes

    def heads(self, config: EncoderConfig) -> "dict[str, nn.Module]":
        """Returns no head, since the vectors are the encoder's."""
        return {}

    def encode(
        self, examples: Sequence[Example], tokenizer: Tokenizer, *, max_length: int, too_long: TooLong
    ) -> Sequences:
        """Returns each text as a separate sequence. Raises UsageError for windows: a text has one vector."""
        self.check_windows(too_long)
        texts = [Example((self.prompt + text,)) for example in examples for text in example.texts]
        found = encode(texts, tokenizer, max_length=max_length, too_long=too_long)
        return found.grouped([len(example.texts) for example in examples])

    def targets(self, examples: Sequence[Example], encoded: Sequences) -> Targets:
        """Returns "alike" (W,) float32: the pair's label relative to the maximum, for both of its sequences."""
        alike_E = np.array([float(example.label or 0) / self.highest for example in examples], np.float32)
        return Targets(sequence={"alike": alike_E[encoded.example]})

    def counts(self, batch: "Batch") -> dict[str, int]:
        """Returns the number of pairs in the loss."""
        alike_P = batch.labels["alike"][::2]
        return {self.loss_kind: int((alike_P >= 0.8).sum()) if self.loss_kind == "contrastive" else len(alike_P)}

    def logits(self, model: "TorchModel", output: "EncoderOutput") -> "Tensor":
        """The texts' vectors. -> (B, H)"""
        import torch

        from bertie.models.pooling import pool

        return torch.cat([pool(output, name) for name in self.outputs], -1)

    def losses(self, logits: "Tensor", batch: "Batch") -> "LossReport":
        """Returns the loss. logits (B, H), with the texts of a pair in consecutive rows; reads the label "alike"."""
        import torch
        from torch import nn

        from bertie.models.loss import LossTerm
        from bertie.nn.loss import right

        if len(logits) == 0:
            return {self.loss_kind: LossTerm(logits.sum(), 0)}
        first_PH, second_PH = nn.functional.normalize(logits, dim=-1).view(-1, 2, logits.shape[-1]).unbind(1)
        alike_P, count = batch.labels["alike"][::2], self.counts(batch.host)[self.loss_kind]
        if self.loss_kind == "cosine":
            error_P = ((first_PH * second_PH).sum(-1) - alike_P) ** 2
            return {"cosine": LossTerm(error_P.sum(), count)}
        scores_PP = self.scale * first_PH @ second_PH.T
        own_P = torch.arange(len(scores_PP), device=logits.device)
        loss_P = nn.functional.cross_entropy(scores_PP, own_P, reduction="none")
        together_P = (alike_P >= 0.8).float()
        correct = (together_P * right(scores_PP, own_P)).sum()
        return {"contrastive": LossTerm((together_P * loss_P).sum(), count, correct.detach())}

    def decode(self, logits: Logits, encoded: Sequences, examples: Sequence[Example]) -> list[Prediction]:
        """Returns the similarity of each pair, or the vector of a single text."""
        vectors_WH, answers = self.finished(logits), []
        for number, example in enumerate(examples):
            at = int(encoded.windows[number])
            pair = len(example.texts) == 2
            alike = similarity(vectors_WH[[at]], vectors_WH[[at + 1]], self.similarity) if pair else None
            answers.append(Prediction(vectors_WH[at].tolist() if alike is None else float(alike[0, 0])))
        return answers

    def finished(self, pooled: Logits) -> Logits:
        """The vectors from what was pooled. (W, I) -> (W, `width`)"""
        for dense in self.dense:
            pooled = dense(pooled)
        vectors = (unit(pooled) if self.normalize else pooled)[:, : self.truncate_dim]
        return unit(vectors) if self.unit_length else vectors

    def scores(self) -> Scores:
        """Returns a counter of labels and cosines."""
        return Numbers()

    def count(self, scores: Scores, examples: Sequence[Example], predictions: Sequence[Prediction]) -> None:
        """Adds relative labels and cosines. Raises DataError for single texts."""
        _check_pairs(examples, "measured")
        relative = [float(example.label) / self.highest for example in examples]
        scores.add(relative, [prediction.label for prediction in predictions])

    def error_score(self, example: Example, prediction: Prediction) -> float:
        """Returns the difference between the cosine and the relative label."""
        return abs(prediction.number - float(example.label) / self.highest)

    @classmethod
    def sample(cls, texts: int) -> str:
        """Returns one text, since a trained model is used for single texts."""
        return super().sample(1)

    def render(self, example: Example, prediction: Prediction) -> RenderedExample:
        """Renders the label and the cosine."""
        return numbers(example.texts, float(example.label), prediction.number, self.error_score(example, prediction))

    def scatter_point(self, example: Example, prediction: Prediction) -> tuple[float, float]:
        """Returns the relative label and the cosine."""
        return float(example.label) / self.highest, prediction.number

    @classmethod
    def of_model(cls, facts: Facts, settings: Mapping[str, object]) -> Self | None:
        """Only where the folder says so: any encoder has vectors, few have good ones.

        Settings that `sentence-transformers` reads have precedence over those that Bertie wrote.
        """
        found = cls.told(facts.sentence, settings)
        return found or (cls.make((), settings) if settings and not facts.heads else None)

    @classmethod
    def told(cls, sentence: SentenceModules, settings: Mapping[str, Any] = MappingProxyType({})) -> Self | None:
        """Returns the task that the files of `sentence-transformers` describe; None where they describe no vectors."""
        found = _settings(sentence)
        return replace(cls.make((), {**settings, **found}), dense=sentence.dense) if found else None

    def files(self, config: EncoderConfig, max_length: int) -> dict[str, Any]:
        """Returns the files that `sentence-transformers` reads in addition to the model."""
        modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
        modules += [("2_Normalize", "Normalize")] if self.normalize else []
        kind = "sentence_transformers.models"
        in_order = self.outputs == tuple(mode for mode in MODES if mode in self.outputs)
        prompts = {**self.prompts}
        if self.prompt and self.prompt not in prompts.values():
            prompts["default"] = self.prompt
        default = next((name for name, text in prompts.items() if text and text == self.prompt), None)
        return {
            MODULES: [
                {"idx": n, "name": str(n), "path": path, "type": f"{kind}.{name}"}
                for n, (path, name) in enumerate(modules)
            ],
            POOLING: {
                "word_embedding_dimension": config.hidden_size,
                **{f"pooling_mode_{public}": mode in self.outputs for mode, (_, public) in MODES.items()},
                # which older versions do not read
                **({} if in_order else {"pooling_mode": [MODES[mode][0] for mode in self.outputs]}),
            },
            LENGTHS[0]: {"max_seq_length": max_length, "do_lower_case": False},
            SETTINGS: {
                "prompts": prompts,
                "default_prompt_name": default,
                "similarity_fn_name": self.similarity,
                **({"truncate_dim": self.truncate_dim} if self.truncate_dim else {}),
            },
        }


def _settings(sentence: SentenceModules) -> dict[str, Any]:
    """Returns the options of the task that the files of `sentence-transformers` describe; none for no vectors."""
    if not sentence.pooling:
        return {}
    return {
        "pooling": sentence.pooling[0] if len(sentence.pooling) == 1 else sentence.pooling,
        "normalize": sentence.normalize,
        "truncate_dim": sentence.truncate_dim,
        "similarity": sentence.similarity,
        "prompt": sentence.default_prompt,
        "prompts": dict(sentence.prompts),
    }


def _check_pairs(examples: Sequence[Example], done: str) -> None:
    if any(len(example.texts) != 2 for example in examples):
        raise DataError(
            f"Embeddings are {done} on pairs of texts, but the examples have one text. Pass --text for both columns."
        )


def similarity(a_AH: Logits, b_BH: Logits, kind: Similarity = "cosine") -> Logits:
    """Returns the similarity of each vector of `a` to each of `b`, (A, B). Distances are negative."""
    if kind == "cosine":
        return unit(a_AH) @ unit(b_BH).T
    if kind == "dot":
        return a_AH @ b_BH.T
    order = 2 if kind == "euclidean" else 1
    rows = [np.linalg.norm(b_BH - a_H, ord=order, axis=-1) for a_H in a_AH]
    return -np.array(rows, np.float32).reshape(len(a_AH), len(b_BH))
