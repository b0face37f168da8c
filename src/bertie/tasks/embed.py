"""Sentence embeddings: a vector for each text, so that texts with similar meanings are close. Reimers and Gurevych
2019.

    [CLS] text [SEP] -> encoder -> pooling: the mean of the tokens, the first token ... -> vector

There is no head: only the encoder is trained. The rows have one of four forms (embed_rows.py), and each loss
(embed_losses.py) fits some of them. The folder opens in `sentence-transformers`, and folders of it open here.

E examples · W sequences, one for each of their texts · H hidden size
"""

import json
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import xxhash
from numpy.typing import NDArray

from bertie.errors import DataError, UsageError, WrongValue
from bertie.files import JsonObject
from bertie.io.columns import LookAhead, no_rows
from bertie.io.fields import Fields
from bertie.io.lines import BadRecord
from bertie.io.table_format import Columns, TableFormat
from bertie.io.tables import Example
from bertie.metrics.base import ScoreCounter, Units
from bertie.metrics.numbers import Numbers
from bertie.metrics.retrieval import RETRIEVAL_METRICS, Retrieval
from bertie.models.config import EncoderConfig
from bertie.models.facts import Facts
from bertie.models.loss import LossReport, LossTerm
from bertie.models.sentence import (
    MODES,
    MODULES,
    POOLING,
    SETTINGS,
    Dense,
    SentenceModules,
    pool,
)
from bertie.tasks.answerer import Logits, Prediction, unit_vectors
from bertie.tasks.base import Reader, Task
from bertie.tasks.embed_rows import (
    ALIKE,
    FORMS,
    Form,
    LossName,
    as_positive,
    check_labels,
    columns_of_rows,
    example_of_row,
    form_of,
    form_of_all,
    row_of_tuple,
)
from bertie.tasks.regression import RegressionTask
from bertie.tasks.render import RenderedExample, numbers
from bertie.tasks.source import Targets, encode_examples
from bertie.text.formats import LENGTH_KEYS
from bertie.text.sequences import Sequences
from bertie.text.tokenizer import Tokenizer
from bertie.training_facts import TooLong

if TYPE_CHECKING:
    from torch import Tensor, nn

    from bertie.models.batch import Batch
    from bertie.models.encoder import EncoderOutput
    from bertie.models.model import TorchModel

Pooling = Literal["mean", "cls", "max", "mean_sqrt_len", "weighted_mean", "last"]
Similarity = Literal["cosine", "dot", "euclidean", "manhattan"]
LOSSES_OF: Mapping[Form, tuple[LossName, ...]] = {
    "scored": ("cosine", "cosent", "contrastive", "in_batch_negatives"),
    "positive": ("in_batch_negatives", "triplet", "margin_mse", "kl"),
    "judged": ("margin_mse", "kl"),
    "labeled": ("triplet",),
}
"""The losses of each form of rows. The first one is the default."""
TAUGHT: tuple[LossName, ...] = ("margin_mse", "kl")
RETRIEVED = ("positive", "judged")  # forms of rows whose passages are looked for among all
OF_LOSSES: Mapping[str, tuple[LossName, ...]] = {
    "symmetric": ("in_batch_negatives",),
    "guide": ("in_batch_negatives",),
    "teacher": TAUGHT,
    "margin": ("contrastive", "triplet"),
}
"""The losses that settings are for."""
PROMPT_SIDES = (("query",), ("passage", "document"))
"""Names of the prompts of a model whose anchors and whose other texts have prompts of their own."""


@dataclass(frozen=True)
class PairPrediction(Prediction):
    """The similarity of an anchor and another text. vectors (2 or more, H): those of the texts, for retrieval."""

    vectors: Logits | None = field(default=None, kw_only=True, compare=False, repr=False)


class PairScores:
    """Scores of embeddings: correlations of scored pairs, or else retrieval. The first examples say which."""

    def __init__(self, similarity: "Similarity") -> None:
        self.similarity = similarity
        self.counter: Numbers | Retrieval = Numbers()

    @property
    def total(self) -> int:
        """The number of examples."""
        return self.counter.total

    def add(self, truth: Iterable[float], predicted: Iterable[float]) -> None:
        """Adds scores of pairs and their similarities."""
        if not isinstance(self.counter, Numbers):
            raise DataError("Some rows have scores and others have none. Use one table for each.")
        self.counter.add(truth, predicted)

    @property
    def retrieval(self) -> Retrieval:
        """The counter of rows without scores."""
        if isinstance(self.counter, Numbers):
            if self.counter.total:
                raise DataError("Some rows have scores and others have none. Use one table for each.")
            self.counter = Retrieval(partial(compare_vectors, kind=self.similarity))
        return self.counter

    def compute(self) -> Mapping[str, float]:
        """Returns every metric without intervals."""
        return self.counter.compute()

    def report(self) -> JsonObject:
        """Returns JSON values, as `Scores.report`."""
        return self.counter.report()

    @property
    def sums(self) -> Units | None:
        """The counter where its metrics are functions of sums."""
        return self.counter if isinstance(self.counter, Retrieval) else None


@dataclass(frozen=True)
class EmbedTask(Task):
    """Computes a vector for each text. The prediction for a pair is its similarity.

    Attributes:
        pooling: How the vectors of the tokens are combined; the results of several ways are joined.
        loss_kind: What is learned, of embed_losses.py. By default that of the form of the rows.
        highest: The score of a pair with the same meaning, by default the maximum in training. From 0.8 of it on, a
            pair is positive.
        scale: Factor of the cosines before a softmax.
        margin: By how much two texts differ more than others; by default that of the loss.
        temperature: Divides the scores of a cross-encoder and those that are learned from them.
        symmetric: Whether in-batch negatives are learned from positive texts to anchors too.
        matryoshka: Numbers of first dimensions that are learned besides all of them.
        guide: A model of sentence embeddings that tells in-batch negatives which are positive.
        teacher: A cross-encoder, whose scores of the texts are learned.
        normalize: Whether vectors have length 1.
        truncate_dim: Number of dimensions to keep, from the first (Kusupati et al. 2022). Not set: all.
        unit_length: Whether the result has length 1, after truncation.
        prompt: Text that is put before every text.
        prompts: Texts to put before a text instead, by the names under which they are saved.
        similarity: Similarity of a pair; distances are negative.
        dense: Matrices that follow the pooling in a published model.
    """

    pooling: Pooling | tuple[Pooling, ...] = "mean"
    loss_kind: LossName = "cosine"
    highest: float = 1.0
    scale: float = 20.0
    margin: float | None = None
    temperature: float = 1.0
    symmetric: bool = False
    matryoshka: tuple[int, ...] = ()
    guide: str = ""
    teacher: str = ""
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
    metrics = ("spearman", "pearson", *RETRIEVAL_METRICS)
    baselines = ("overlap", "nearest")
    whole_step = True
    honours = frozenset({"markup"})

    @classmethod
    def columns(cls, names: Sequence[str], columns: Columns, where: str, look: LookAhead = no_rows) -> Columns:
        """Returns the columns of one of the forms. Two texts without a label are a positive pair."""
        return columns_of_rows(names, columns, where, look)

    @classmethod
    def row_of(cls, values: Sequence[object]) -> Mapping[str, object]:
        """Returns the texts of a tuple, and the score or the scores after them, by column."""
        return row_of_tuple(values)

    @classmethod
    def example(cls, fields: Fields, columns: Columns, line: int) -> Example | BadRecord:
        """Returns the example of a row of one of the forms."""
        return example_of_row(fields, columns, line)

    @classmethod
    def rows(
        cls, path: Path | str, format: TableFormat, *, on_columns: Callable[[Columns], None] = lambda columns: None
    ) -> Iterator[Example | BadRecord]:
        """Yields the rows of a file. Where labels are read, texts without one are an anchor, a positive and negative
        texts."""
        for row in super().rows(path, format, on_columns=on_columns):
            positive = format.columns.labelled and isinstance(row, Example) and row.label is None
            yield as_positive(row) if positive and isinstance(row, Example) else row

    @classmethod
    def stratify_by(cls, example: Example) -> Hashable:
        """Returns the label of a single text."""
        return example.label if len(example.texts) == 1 else None

    def __post_init__(self) -> None:
        if self.truncate_dim is not None and self.truncate_dim < 1:
            raise WrongValue(f"truncate_dim is {self.truncate_dim}; it must be a number from 1.")
        for name in ("highest", "scale", "temperature", "margin"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise WrongValue(f"{name} is {value:g}; it must be above 0.")
        for name, losses in OF_LOSSES.items():
            if getattr(self, name) and self.loss_kind not in losses:
                raise UsageError(
                    f"{name} has no effect under loss_kind={self.loss_kind}. Omit it, or choose {' or '.join(losses)}."
                )
        if any(width < 1 for width in self.matryoshka):
            raise UsageError(f"matryoshka has {min(self.matryoshka)}; its numbers must be from 1.")
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
        """Returns the task, by default with the loss of the rows' form.

        Raises UsageError for the loss of another form, DataError for rows that no loss can learn from.
        """
        form, known = form_of_all(examples), dict[str, object]()
        if form == "labeled":
            check_labels(examples)
        if form == "scored":
            known["highest"] = highest = max(float(example.label) for example in examples)
            if highest <= 0:
                raise DataError("No pair has a label above 0, so no texts are similar.")
        taught = form == "positive" and options.get("teacher")
        task = cls.make((), {**known, "loss_kind": LOSSES_OF["judged" if taught else form][0], **options})
        if task.loss_kind not in LOSSES_OF[form]:
            fitting = ", ".join(LOSSES_OF[form])
            raise UsageError(
                f"loss_kind={task.loss_kind} does not learn from {FORMS[form]}, which these rows are. Known: {fitting}."
            )
        negatives = min(len(example.texts) for example in examples) - 2
        if form == "positive" and task.loss_kind != "in_batch_negatives" and negatives < 1:
            raise UsageError(f"loss_kind={task.loss_kind} needs a negative text in every row. Add a column, negative.")
        if form == "positive" and task.loss_kind in TAUGHT and not task.teacher:
            raise UsageError(f"loss_kind={task.loss_kind} learns scores. Add a column of them, or pass teacher=MODEL.")
        return task

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

    def settings(self) -> JsonObject:
        """All but the matrices, which stay in their own files, and the models that training reads."""
        fields = asdict(replace(self, dense=()))
        return {name: value for name, value in fields.items() if name not in ("labels", "dense", "guide", "teacher")}

    @property
    def least_batch(self) -> int:
        """Two where the other texts of a step are the wrong answers."""
        return 2 if self.loss_kind in ("in_batch_negatives", "cosent") else 1

    def continued(self, sentence: SentenceModules, explicit: Collection[str] = ()) -> tuple[Self, list[str]]:
        """Returns the task with the settings of the start model's folder, except those in `explicit`, and a note of
        them."""
        own = {name: value for name, value in _settings(sentence).items() if name not in explicit}
        shown = {**own, "prompts": [name for name, text in own.get("prompts", {}).items() if text]}
        settings = ", ".join(
            f"{name} {json.dumps(value, ensure_ascii=False)}" for name, value in shown.items() if value
        )
        notes = [f"the start model's settings are kept: {settings}"] if settings else []
        notes += ["the start model's Dense modules are not continued"] if sentence.dense else []
        return replace(self, **own), notes

    def heads(self, config: EncoderConfig) -> "dict[str, nn.Module]":
        """Returns no head: the vectors are the encoder's. Raises UsageError for more dimensions than they have."""
        whole = len(self.outputs) * config.hidden_size
        if wide := [width for width in self.matryoshka if width >= whole]:
            raise UsageError(f"matryoshka has {max(wide)}; its numbers must be below {whole}, the size of a vector.")
        return {}

    def encode(
        self, examples: Sequence[Example], tokenizer: Tokenizer, *, max_length: int, too_long: TooLong
    ) -> Sequences:
        """Returns each text as a separate sequence. Raises UsageError for windows: a text has one vector."""
        self.check_windows(too_long)
        query, passage = self.side_prompts
        texts = [
            Example((((passage if place else query) if form_of(example) in RETRIEVED else self.prompt) + text,))
            for example in examples
            for place, text in enumerate(example.texts)
        ]
        encoded = encode_examples(texts, tokenizer, max_length=max_length, too_long=too_long)
        return encoded.grouped([len(example.texts) for example in examples])

    @property
    def side_prompts(self) -> tuple[str, str]:
        """The prompts of anchors and of other texts, where the model has one for either; else that of all texts."""
        query, passage = (next((name for name in side if name in self.prompts), "") for side in PROMPT_SIDES)
        if self.prompt or not (query or passage):
            return self.prompt, self.prompt
        return self.prompts.get(query, ""), self.prompts.get(passage, "")

    def targets(self, examples: Sequence[Example], encoded: Sequences) -> Targets:
        """Returns arrays of W rows: "place" in the example, "score", "key" of the text, and "label" of single texts.

        score: of a scored pair relative to the maximum, of what a cross-encoder says, else 1 for positive texts.
        """
        places = [range(len(example.texts)) for example in examples]
        texts = [xxhash.xxh3_64_intdigest(text.encode()) for example in examples for text in example.texts]
        sequence: dict[str, NDArray[Any]] = {
            "place": np.array([*chain.from_iterable(places)], np.int64),
            "score": np.array([*chain.from_iterable(map(self._scores, examples))], np.float32),
            "key": np.array(texts, np.uint64).view(np.int64),
        }
        if any(len(example.texts) == 1 for example in examples):
            numbers = {label: i for i, label in enumerate(dict.fromkeys(example.label for example in examples))}
            sequence["label"] = np.array([numbers[example.label] for example in examples], np.int64)
        return Targets(sequence=sequence)

    def _scores(self, example: Example) -> Sequence[float]:
        form = form_of(example)
        if form == "judged":
            return (0.0, *example.label)
        if form == "labeled":
            return (0.0,)
        score = 1.0 if form == "positive" else float(example.label or 0) / self.highest
        return (score, score, *([0.0] * (len(example.texts) - 2)))

    def counts(self, batch: "Batch") -> dict[str, int]:
        """Returns the number of examples in the loss, of positive pairs, or of negative texts."""
        place, score = batch.labels["place"], batch.labels["score"]
        counted = {
            "in_batch_negatives": (place == 1) & (score >= ALIKE),
            "triplet": place == 0 if "label" in batch.labels else place > 1,
            "margin_mse": place > 1,
        }
        return {self.loss_kind: int(counted.get(self.loss_kind, place == 0).sum())}

    def logits(self, model: "TorchModel", output: "EncoderOutput") -> "Tensor":
        """The texts' vectors. -> (B, H)"""
        import torch

        return torch.cat([pool(output, name) for name in self.outputs], -1)

    def losses(self, logits: "Tensor", batch: "Batch") -> LossReport:
        """Returns the loss of a step. logits (W, H)"""
        from torch.nn.functional import normalize

        from bertie.tasks.embed_losses import LossSettings, StepTexts, loss_term

        count = self.counts(batch.host)[self.loss_kind]
        if not count:
            return {self.loss_kind: LossTerm(logits.sum() * 0, 0)}
        options = LossSettings(self.scale, self.margin, self.temperature, self.symmetric)
        vectors = normalize(logits, dim=-1) if self.normalize else logits
        return {self.loss_kind: loss_term(self.loss_kind, StepTexts(vectors, batch), options, self.matryoshka, count)}

    def decode(self, logits: Logits, encoded: Sequences, examples: Sequence[Example]) -> list[Prediction]:
        """Returns the similarity of the first two texts, or the vector of a single text."""
        return self.answers(self.finished(logits), examples)

    def answers(self, vectors_WH: Logits, examples: Sequence[Example]) -> list[Prediction]:
        """Returns the predictions from the vectors of all texts, in order."""
        predictions, start = list[Prediction](), 0
        for example in examples:
            own, start = vectors_WH[start : start + len(example.texts)], start + len(example.texts)
            if len(own) == 1:
                predictions.append(Prediction(own[0].tolist()))
                continue
            alike = float(compare_vectors(own[:1], own[1:2], self.similarity)[0, 0])
            predictions.append(PairPrediction(alike, vectors=own if form_of(example) in RETRIEVED else None))
        return predictions

    def finished(self, pooled: Logits) -> Logits:
        """The vectors from what was pooled. (W, I) -> (W, `width`)"""
        for dense in self.dense:
            pooled = dense(pooled)
        vectors = (unit_vectors(pooled) if self.normalize else pooled)[:, : self.truncate_dim]
        return unit_vectors(vectors) if self.unit_length else vectors

    def scores(self) -> PairScores:
        """Returns a counter of scores and similarities, or of rankings."""
        return PairScores(self.similarity)

    def count(self, scores: ScoreCounter, examples: Sequence[Example], predictions: Sequence[Prediction]) -> None:
        """Adds relative scores and similarities; of rows without scores the vectors, of which the nearest are looked
        for.

        Raises DataError for single texts without labels that repeat, and for rows of both kinds.
        """
        if not isinstance(scores, PairScores):
            raise TypeError("scores is not what `scores()` of this task returned.")
        for example, prediction in zip(examples, predictions, strict=True):
            if len(example.texts) == 1:
                scores.retrieval.add_labeled(example.texts[0], example.label, np.array(prediction.label, np.float32))
            elif isinstance(prediction, PairPrediction) and prediction.vectors is not None:
                anchor, *others = example.texts
                scores.retrieval.add(anchor, [(text, i == 0) for i, text in enumerate(others)], prediction.vectors)
            else:
                scores.add([float(example.label) / self.highest], [prediction.number])

    def metrics_for(self, examples: Sequence[Example]) -> tuple[str, ...]:
        """Returns correlations for scored pairs, and measures of retrieval for other rows."""
        return tuple(name for name in self.metrics if (name in RETRIEVAL_METRICS) == self.retrieves(examples))

    def retrieves(self, examples: Sequence[Example]) -> bool:
        """Returns whether rows are measured by retrieval: they have no scores."""
        return bool(examples) and form_of(examples[0]) != "scored"

    def error_score(self, example: Example, prediction: Prediction) -> float:
        """Returns the difference between the similarity and the relative score; 0 for a single text."""
        return 0.0 if len(example.texts) == 1 else abs(prediction.number - self._scores(example)[1])

    def slices(self, example: Example, prediction: Prediction, tokens: int, long: bool) -> dict[str, str]:
        """Returns the subgroups of scored pairs. What is retrieved depends on all rows together."""
        return super().slices(example, prediction, tokens, long) if form_of(example) == "scored" else {}

    @classmethod
    def sample(cls, texts: int) -> str:
        """Returns one text, since a trained model is used for single texts."""
        return super().sample(1)

    def render(self, example: Example, prediction: Prediction) -> RenderedExample:
        """Renders the score and the similarity."""
        if len(example.texts) == 1:
            return super().render(example, prediction)
        return numbers(
            example.texts,
            self._scores(example)[1] * self.highest,
            prediction.number,
            self.error_score(example, prediction),
        )

    def scatter_point(self, example: Example, prediction: Prediction) -> tuple[float, float] | None:
        """Returns the relative score and the similarity of a scored pair."""
        return (self._scores(example)[1], prediction.number) if form_of(example) == "scored" else None

    @classmethod
    def of_model(cls, facts: Facts, settings: Mapping[str, object]) -> Self | None:
        """Only where the folder says so: any encoder has vectors, few have good ones.

        Settings that `sentence-transformers` reads have precedence over those that Bertie wrote.
        """
        task = cls.told(facts.sentence, settings)
        return task or (cls.make((), settings) if settings and not facts.heads else None)

    @classmethod
    def told(cls, sentence: SentenceModules, settings: Mapping[str, object] = MappingProxyType({})) -> Self | None:
        """Returns the task that the files of `sentence-transformers` describe; None where they describe no vectors."""
        stored = _settings(sentence)
        return replace(cls.make((), {**settings, **stored}), dense=sentence.dense) if stored else None

    def files(self, config: EncoderConfig, max_length: int) -> JsonObject:
        """Returns the files that `sentence-transformers` reads in addition to the model."""
        modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
        modules += [("2_Normalize", "Normalize")] if self.normalize else []
        kind = "sentence_transformers.models"
        in_order = self.outputs == tuple(mode for mode in MODES if mode in self.outputs)
        prompts = {**self.prompts}
        if self.prompt and self.prompt not in prompts.values():
            prompts["default"] = self.prompt
        if "passage" in prompts:  # encode_document of `sentence-transformers` knows it by this name only
            prompts.setdefault("document", prompts["passage"])
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
            LENGTH_KEYS[0]: {"max_seq_length": max_length, "do_lower_case": False},
            SETTINGS: {
                "prompts": prompts,
                "default_prompt_name": default,
                "similarity_fn_name": self.similarity,
                **({"truncate_dim": self.truncate_dim} if self.truncate_dim else {}),
            },
        }


def _settings(sentence: SentenceModules) -> JsonObject:
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


def compare_vectors(a_AH: Logits, b_BH: Logits, kind: Similarity = "cosine") -> Logits:
    """Returns the similarity of each vector of `a` to each of `b`, (A, B). Distances are negative."""
    if kind == "cosine":
        return unit_vectors(a_AH) @ unit_vectors(b_BH).T
    if kind == "dot":
        return a_AH @ b_BH.T
    order = 2 if kind == "euclidean" else 1
    rows = [np.linalg.norm(b_BH - a_H, ord=order, axis=-1) for a_H in a_AH]
    return -np.array(rows, np.float32).reshape(len(a_AH), len(b_BH))
