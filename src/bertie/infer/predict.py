"""Inference: predictions for texts, tokens for masks, metrics of a labeled file.

    rows -> chunks -> TextPipeline.encode -> Engine, in batches of similar length -> TextPipeline.decode -> Prediction

An engine runs the model. Everything is streamed in bounded memory. A row that cannot be used returns its reason in its
position. In float32 (the default), the probabilities of a text depend on the other texts of its batch only by rounding,
a few millionths.

W sequences · T tokens · L outputs of the head
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bertie.errors import DataError, NoRows, WrongModel, arguments
from bertie.files import JsonObject
from bertie.infer.batching import CHUNK_ROWS, GPU_CHUNK_ROWS, as_they_come, chunks, one_ahead, run_batches
from bertie.infer.engine import Array, Engine
from bertie.infer.fill import MaskPrediction, fill
from bertie.infer.perplexity import TokenQuery, log_probabilities
from bertie.infer.pipeline import TextCount, TextPipeline
from bertie.infer.texts import Text, TextRow, check_text, check_top, each_row, each_text, tell_unread, with_arrays
from bertie.io.lines import BadRecord
from bertie.io.table_format import Columns, TableFormat
from bertie.io.tables import Example, SkipReport
from bertie.metrics.base import ScoreCounter, called
from bertie.tasks import Prediction, Task
from bertie.tasks.capabilities import Embeds
from bertie.tasks.datasets import DATASETS
from bertie.text.sequences import Sequences
from bertie.text.tokenizer import Tokenizer
from bertie.training_facts import TooLong

if TYPE_CHECKING:
    from bertie.infer.findings import Findings
    from bertie.infer.traffic import Traffic
    from bertie.models.model import TorchModel

LABELLED = TableFormat()
MaskedRow = tuple[NDArray[np.int64], NDArray[np.int64], int, tuple[int, ...]]
"""Token ids, their segments, the position to mask and predict, and other positions that are masked."""


class Predictor:
    """A model with a tokenizer and the settings for inference. The defaults are those of the training.

    Args:
        model: A torch model with its tokenizer, or any engine together with `tokenizer`.
        tokenizer: The tokenizer. Default: that of the model.
        max_length: Maximum number of tokens of a sequence.
        too_long: Handling of longer texts: truncate, window or error.
        head: The head of a model of several tasks. Default: all of them.
        pipeline: What reads and answers instead, without the options above.

    Raises:
        UsageError: There is no tokenizer, or max_length is larger than the number of positions, or no such head.
    """

    @arguments()
    def __init__(
        self,
        model: "TorchModel | Engine",
        tokenizer: Tokenizer | None = None,
        *,
        max_length: int | None = None,
        too_long: TooLong | None = None,
        head: str = "",
        pipeline: TextPipeline | None = None,
    ) -> None:
        self.engine = as_engine(model)
        self.pipeline = pipeline or TextPipeline.of(
            self.engine.facts,
            tokenizer or getattr(model, "tokenizer", None),
            max_length=max_length,
            too_long=too_long,
            head=head,
        )

    def replace(self, **fields: Any) -> "Predictor":
        """Returns the same model with other fields of its `TextPipeline`; a task is prepared for the tokenizer."""
        other, task = copy.copy(self), fields.get("task_or_none")
        own = {"task_or_none": task.with_tokenizer(self.tokenizer)} if task is not None else {}
        other.pipeline = replace(self.pipeline, **(fields | own))
        return other

    @property
    def task(self) -> Task:
        """The task of the model. Raises UsageError for a model without a task head."""
        return self.pipeline.task

    @property
    def embedding(self) -> Embeds:
        """The task, if its answers are vectors. Raises UsageError for another one."""
        if not isinstance(self.task, Embeds):
            raise WrongModel("This model gives no vectors: open it as one: bertie.embed does.")
        return self.task

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the model."""
        return self.pipeline.tokenizer

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the labels."""
        return self.task.labels

    @property
    def metric(self) -> str:
        """The main metric, and of a binary one the label: "f1 of 'spam'"."""
        return called(self.task.metrics[0], {"positive": getattr(self.task.scores(), "positives", {})})

    @property
    def max_length(self) -> int:
        """Maximum number of tokens of a sequence."""
        return self.pipeline.max_length

    @property
    def too_long(self) -> TooLong:
        """Handling of longer texts."""
        return self.pipeline.too_long

    def predict(
        self,
        texts: Iterable[Text],
        vectors: Sequence[Array] | None = None,
        *,
        traffic: "Traffic | None" = None,
    ) -> list[Prediction]:
        """Returns one `Prediction` per text, or per tuple of texts. That of a text that cannot be read has an `error`.

        Raises UsageError for what is not a list of texts. Raises DataError where no text can be read, and for a pair
        where the model reads single texts, or the reverse.

        vectors: the feature vectors (N, D) of each text, for a model that reads them; the texts may then be empty.
        traffic: counts the texts and their answers.
        """
        if vectors is None:
            inputs: Iterable[Any] = each_row(texts, tuples=True)
        else:
            inputs = each_text(texts, tuples=True)  # which may be empty
        rows: list[TextRow] = [
            one if isinstance(one, BadRecord) else self.pipeline.example(one, number)
            for number, one in enumerate(inputs, 1)
        ]
        if vectors is not None:
            rows = with_arrays([row for row in rows if isinstance(row, Example)], vectors)
        answers = [answer for _, answer in self.stream(rows, traffic=traffic)]
        tell_unread([one for one in answers if isinstance(one, BadRecord)], len(answers))
        return [Prediction(None, error=one.reason) if isinstance(one, BadRecord) else one for one in answers]

    def stream(
        self,
        rows: Iterable[TextRow],
        *,
        eager: bool = False,
        count: TextCount | None = None,
        traffic: "Traffic | None" = None,
    ) -> Iterator[tuple[TextRow, Prediction | BadRecord]]:
        """Yields each row with its `Prediction`, or with the reason why it has none, in order.

        Args:
            rows: Examples and invalid rows.
            eager: Whether to predict rows as soon as they arrive, for interactive input, instead of in full chunks.
            count: Counts the texts, those that are too long, and those that consist mostly of unknown tokens.
            traffic: Counts the rows and their answers.
        """
        for chunk, answers, encoded in self._answered(rows, eager=eager, count=count):
            if traffic is not None:
                traffic.count_all(self.pipeline, chunk, encoded, answers, self.engine)
            yield from zip(chunk, answers, strict=True)

    def _answered(
        self, rows: Iterable[TextRow], *, eager: bool = False, count: TextCount | None = None
    ) -> Iterator[tuple[list[TextRow], list[Prediction | BadRecord], Sequences]]:
        """Yields chunks of rows with their predictions, and the encoding of the rows that are examples."""
        for chunk, encoded, logits in self._computed(rows, eager=eager):
            if count is not None:
                count.add(encoded, self.tokenizer)
            yield chunk, self.pipeline.decode(chunk, encoded, logits), encoded

    def _computed(
        self, rows: Iterable[TextRow], *, eager: bool = False
    ) -> Iterator[tuple[list[TextRow], Sequences, Array | None]]:
        """Yields chunks of rows with the encoding and the logits of those that are examples. None: there are none."""
        on_gpu = self.pipeline.facts.on_gpu
        size = self.task.at_once or (GPU_CHUNK_ROWS if on_gpu else CHUNK_ROWS)
        parts = self._encoded(as_they_come(rows, size) if eager else chunks(rows, size))
        several = on_gpu and not eager and not (isinstance(rows, list) and len(rows) <= size)
        for chunk, encoded in one_ahead(parts) if several else parts:
            yield chunk, encoded, self.logits(encoded) if len(encoded) else None

    def vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Returns the vector of each text, of a model that gives vectors. -> (N, W)

        Raises DataError for a model that reads pairs.
        """
        rows: list[TextRow] = [self.pipeline.example(text, number) for number, text in enumerate(texts, 1)]
        parts = [self.embedding.finished(part) for _, _, part in self._computed(rows) if part is not None]
        return np.concatenate(parts)

    def _encoded(self, parts: Iterable[Iterable[TextRow]]) -> Iterator[tuple[list[TextRow], Sequences]]:
        """Yields chunks of rows with the encoding of the rows that are examples."""
        for part in parts:
            chunk = [self.pipeline.readable(row) for row in part]
            yield chunk, self.encode([row for row in chunk if isinstance(row, Example)])

    def encode(self, examples: Sequence[Example]) -> Sequences:
        """Returns the token ids of examples."""
        return self.pipeline.encode(examples)

    def logits(self, encoded: Sequences) -> Array:
        """Returns the logits of all sequences in order. -> (W, L), or (T, L) for a task of tokens"""
        return self.pipeline.logits(run_batches(self.engine, encoded, self.task.outputs), encoded)

    def evaluate(
        self,
        rows: Iterable[TextRow],
        *,
        skipped: SkipReport | None = None,
        count: TextCount | None = None,
        findings: "Findings | None" = None,
    ) -> ScoreCounter:
        """Counts true and predicted labels of labeled rows. Invalid rows are added to `skipped`.

        count: also counts the texts, as in `stream`. findings: also receives the predictions.
        """
        scores = self.task.scores()
        for chunk, answers, encoded in self._answered(rows, count=count):
            examples, predictions, read, number = list[Example](), list[Prediction](), list[int](), -1
            for row, answer in zip(chunk, answers, strict=True):
                number += isinstance(row, Example)
                if skipped is not None:
                    skipped.count(answer)
                if isinstance(row, Example) and isinstance(answer, Prediction) and row.label is not None:
                    examples.append(row)
                    predictions.append(answer)
                    read.append(number)
            self.task.count(scores, examples, predictions)
            if findings is not None:
                findings.add(examples, predictions, encoded.tokens[read].tolist(), encoded.fits[read].tolist())
        if not scores.total:
            why = f" {skipped}" if skipped and skipped.total else ""
            if withheld := getattr(getattr(scores, "selective", None), "withheld", 0):
                raise DataError(f"The model abstains on all {withheld:,} labeled rows. Lower abstain.")
            raise NoRows(f"There is no labeled example to evaluate on.{why}")
        return scores

    def deciding(self, threshold: float | None = None, abstain: float | None = None, positive: str = "") -> "Predictor":
        """Returns the model with other probabilities from which on a label, or any answer, is given; None: as in
        training.

        positive: the label of the threshold. Raises UsageError for a task without them, and for what is no probability.
        """
        task = self.task if threshold is None else self.task.with_threshold(threshold, positive)
        task = task if abstain is None else task.with_abstain(abstain)
        return self if task is self.task else self.replace(task_or_none=task)

    @property
    def abstains(self) -> bool:
        """Whether the model gives no answer where it is not sure."""
        return bool(getattr(self.task, "abstain", None))

    def score(
        self,
        path: Path | str,
        format: TableFormat = LABELLED,
        *,
        on_columns: Callable[[Columns], None] = lambda columns: None,
        findings: "Findings | None" = None,
    ) -> JsonObject:
        """Returns the metrics of a labeled file (Scores.report), with skipped rows and texts that are too long."""
        skipped, long = SkipReport(), TextCount(self.too_long, self.max_length)
        weight = 0.0

        def weighed() -> Iterator[Example | BadRecord]:
            nonlocal weight
            for row in self.task.rows(path, self.pipeline.reading(format), on_columns=on_columns):
                weight += getattr(row, "weight", 0.0)
                yield row

        report = self.evaluate(weighed(), skipped=skipped, count=long, findings=findings).report()
        if format.columns.weight and not weight:
            raise DataError(
                f"The weight column {format.columns.weight!r} is 0 in all rows of {path}, so there is no metric."
            )
        report["left_out"] = {"rows": skipped.rows, "total": skipped.total, "reasons": skipped.counts}
        report["too_long"] = {"policy": long.policy, "max_length": long.max_length, "texts": long.long}
        report["notes"] = [*skipped.notes, *long.notes]
        return report

    def stream_published(
        self, data: str, split: str, data_dir: Path
    ) -> Iterator[tuple[TextRow, Prediction | BadRecord]]:
        """Returns the rows of a split of a published data set with their answers. Raises DataError without its file."""
        path, format = DATASETS[data].table(split, data_dir)
        return self.stream(self.task.rows(path, format))

    def run(self, ids: Sequences, outputs: Sequence[str]) -> dict[str, Array]:
        """Returns arrays of the model for any number of sequences. See `run_batches`."""
        return run_batches(self.engine, ids, outputs)

    def masked_log_probabilities(self, rows: Iterable[MaskedRow]) -> Iterator[NDArray[np.float64]]:
        """Yields log p of the masked tokens in nats, batch after batch. See `log_probabilities`."""
        readings = (TokenQuery(ids, types, np.array([place]), also) for ids, types, place, also in rows)
        return (nats_1N[0] for nats_1N in log_probabilities(self.engine, "mlm", readings, self.tokenizer))

    def fill_mask(self, text: str, *, top: int = 5) -> list[list[MaskPrediction]]:
        """Returns the most probable tokens for each mask in `text`, best first (fill.py)."""
        check_text(text, "text")
        check_top(top)
        return fill(self.engine, self.tokenizer, text, top=top, max_length=self.max_length)


def as_engine(model: "TorchModel | Engine") -> Engine:
    """Returns the engine of a model in torch, or an engine itself. Raises UsageError for what is neither."""
    if isinstance(model, Engine):
        return model
    from bertie.infer.choose import engine_of

    return engine_of(model)
