"""Inference: predictions for texts, tokens for masks, metrics of a labeled file.

    rows -> chunks -> Encoded -> Engine, in batches of similar length -> logits -> Prediction, in the order of the rows

The task of the model defines examples, predictions and metrics (tasks/base.py). An engine runs the model. Everything is
streamed in bounded memory. A row that cannot be used returns its reason in its position. In float32 (the default), the
probabilities of a text depend on the other texts of its batch only by rounding, a few millionths.

W sequences · T tokens · L outputs of the head
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, get_args

import numpy as np

from bertie import console
from bertie.console import counted
from bertie.data.tables import Columns, Example, InvalidRow, SkipReport, TableFormat, in_both_forms
from bertie.errors import DataError, UsageError, arguments, nearest
from bertie.infer.batching import CHUNK, as_they_come, chunks, run
from bertie.infer.engine import Array, Engine, check_max_length
from bertie.infer.fill import MaskPrediction, fill
from bertie.metrics.base import Scores
from bertie.tasks import Prediction, Task, name_of, task_of
from bertie.tasks.capabilities import Parts
from bertie.tasks.source import Encoded, TooLong
from bertie.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from bertie.data.features import FeatureConfig
    from bertie.infer.findings import Findings
    from bertie.models.model import Model

LABELLED = TableFormat()
Row = Example | InvalidRow
Text = str | tuple[str, ...]
AnyText = TypeVar("AnyText", bound=Text)


@dataclass
class TextCount:
    """Counts the texts that are longer than `max_length` tokens, and those with half or more of unknown tokens.

    cut: questions that are longer than what the model reads of one.
    """

    policy: TooLong
    max_length: int
    rows: int = 0
    long: int = 0
    cut: int = 0
    unknown: int = 0

    DONE: ClassVar = {"truncate": "truncated", "window": "read in windows", "error": "refused"}

    def add(self, encoded: Encoded, tokenizer: Tokenizer) -> None:
        """Counts encoded texts."""
        self.rows += len(encoded)
        self.long += len(encoded.too_long)
        self.cut += len(encoded.cut)
        unk = tokenizer.special_id("unk")
        others = {tokenizer.special_id("eos"), tokenizer.special_id("sep")}  # GPT-2 has one token for all
        if unk is not None and unk not in others:
            unknown, special = encoded.count([unk]), encoded.count(tokenizer.special_ids - {unk})
            self.unknown += int(((unknown > 0) & (2 * unknown >= encoded.tokens - special)).sum())

    @property
    def notes(self) -> list[str]:
        """What a user should know, in sentences without a period."""
        longer = (
            f"{self.long:,} of {self.rows:,} texts are longer than {self.max_length} tokens: "
            f"{self.DONE[self.policy]} (too_long={self.policy})"
        )
        cut = f"{self.cut:,} of {self.rows:,} questions are longer than the model reads them: truncated (max_question)"
        unknown = (
            f"{self.unknown:,} of {self.rows:,} texts consist mostly of words or characters that the vocabulary of the "
            "model lacks: it cannot read them"
        )
        return [note for note, count in ((longer, self.long), (cut, self.cut), (unknown, self.unknown)) if count]


def _unheard(encoded: Encoded, policy: TooLong) -> None:
    """Nobody asked for the encoded texts. A function with a name, so that a predictor can be pickled."""


class Predictor:
    """A model with a tokenizer and the settings for inference. The defaults are those of the training.

    Args:
        model: A torch model with its tokenizer, or any engine together with `tokenizer`.
        tokenizer: The tokenizer. Default: that of the model.
        max_length: Maximum number of tokens of a sequence.
        too_long: Handling of longer texts: truncate, window or error.
        head: The head of a model of several tasks. Default: all of them.

    Raises:
        UsageError: There is no tokenizer, or max_length is larger than the number of positions, or no such head.
    """

    @arguments()
    def __init__(
        self,
        model: "Model | Engine",
        tokenizer: Tokenizer | None = None,
        *,
        max_length: int | None = None,
        too_long: TooLong | None = None,
        head: str = "",
    ) -> None:
        self.engine: Engine
        if isinstance(model, Engine):
            self.engine, tokenizer = model, tokenizer or getattr(model, "tokenizer", None)
        else:
            from bertie.infer.choose import engine_of

            self.engine, tokenizer = engine_of(model), tokenizer or model.tokenizer
        if tokenizer is None:
            raise UsageError(
                "The model has no tokenizer, so it cannot read text. Copy the files of its tokenizer "
                "(tokenizer.json or vocab.txt) into its folder, and open the folder with bertie.load."
            )
        self.on_encoded: Callable[[Encoded, TooLong], object] = _unheard
        self.tokenizer, facts = tokenizer, self.engine.facts
        found = task_of(facts, tokenizer)
        self._task = None if found is None else found.with_tokenizer(tokenizer)
        trained = training_facts(tokenizer)
        self.features: FeatureConfig | None = trained["features"]
        self.columns: tuple[tuple[str, ...], str] = trained["columns"]
        self.label_separator: str = trained["label_separator"]
        self.encoding: str = trained["encoding"]
        positions = facts.max_length
        check_max_length(max_length, positions)
        self.max_length = max_length or min(positions, facts.sentence.max_length or trained["max_length"])
        usual = self._task.too_long if self._task else "truncate"
        self.too_long: TooLong = too_long or trained["too_long"] or usual
        scores_pairs = facts.sentence.activation is not None
        self.texts: int = 2 if scores_pairs else trained["texts"]
        self.texts_known: bool = scores_pairs or trained["texts_known"]
        if self._task and len(self._task.input_texts) == 1:
            self.texts, self.texts_known = self._task.input_texts[0], True
        elif self._task and self.texts not in self._task.input_texts:
            self.texts_known = False  # the columns of a context are joined, so their number is free
        if isinstance(self._task, Parts):
            several, asked = self._task, [head] if head else list(self._task.members)
            self._task = several.part(head) if head else several
            counts = {several.members[name].texts for name in asked}
            self.texts, self.texts_known = min(counts), len(counts) == 1
        elif head:
            raise UsageError(f"This model has no head {head!r}: it was trained for one task. Omit head.")
        if self.too_long not in get_args(TooLong):
            raise UsageError(
                f"Unknown value {self.too_long!r} of too_long. {nearest(self.too_long, get_args(TooLong))}"
            )

    @property
    def task(self) -> Task:
        """The task of the model. Raises UsageError for a model without a task head."""
        if self._task is None:
            raise UsageError(
                "This model has no task head: it is a pre-trained model. Fine-tune it first: "
                "bertie finetune MODEL --train FILE -o RUN"
            )
        return self._task

    @task.setter
    def task(self, task: Task) -> None:
        self._task = task

    @property
    def task_or_none(self) -> Task | None:
        """The task of the model; None for a model without a task head."""
        return self._task

    @property
    def answers(self) -> bool:
        """Whether the model has a task head."""
        return self._task is not None

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the labels."""
        return self.task.labels

    def reading(self, format: TableFormat) -> TableFormat:
        """Returns the format of a table with the feature vectors, columns and names of labels of the training.

        Raises UsageError for a label name that is not a label of the model.
        """
        known = self.task.given_names
        if format.label_separator and not self.task.several_labels:
            raise UsageError("label_separator has no effect for this model, with one label a row. Omit it.")
        if unknown := next((name for name in format.label_names.values() if name not in known), None):
            raise UsageError(f"{unknown!r} of the label names is not a label of the model. {nearest(unknown, known)}")
        means = format.meanings
        if (
            means
            and not format.label_names
            and set(means.values()) <= set(self.labels)
            and not set(means) & set(self.labels)
        ):
            format = replace(format, label_names=means)
        format = replace(format, label_names=in_both_forms(known, format.label_names))
        usual_text, usual_label = self.columns
        format = replace(
            format,
            usual_text=usual_text,
            usual_label=usual_label,
            usual_encoding=self.encoding,
            label_separator=format.label_separator or self.label_separator,
        )
        return format if self.features is None else replace(format, features=self.features)

    def predict(self, texts: Iterable[Text], vectors: Sequence[Array] | None = None) -> list[Prediction]:
        """Returns one `Prediction` per text, or per tuple of texts. That of a text that cannot be read has an `error`.

        Raises UsageError for what is not a list of texts. Raises DataError where no text can be read, and for a pair
        where the model reads single texts, or the reverse.

        vectors: the feature vectors (N, D) of each text, for a model that reads them; the texts may then be empty.
        """
        if vectors is None:
            given: Iterable[Any] = each_row(texts, tuples=True)
        else:
            given = each_text(texts, tuples=True)  # which may be empty
        rows: list[Row] = [
            one if isinstance(one, InvalidRow) else self._example(one, number) for number, one in enumerate(given, 1)
        ]
        if vectors is not None:
            rows = with_arrays([row for row in rows if isinstance(row, Example)], vectors)
        answers = [answer for _, answer in self.stream(rows)]
        tell_unread([one for one in answers if isinstance(one, InvalidRow)], len(answers))
        return [Prediction(None, error=one.reason) if isinstance(one, InvalidRow) else one for one in answers]

    def stream(
        self, rows: Iterable[Row], *, eager: bool = False, count: TextCount | None = None
    ) -> Iterator[tuple[Row, Prediction | InvalidRow]]:
        """Yields each row with its `Prediction`, or with the reason why it has none, in order.

        Args:
            rows: Examples and invalid rows.
            eager: Whether to predict rows as soon as they arrive, for interactive input, instead of in full chunks.
            count: Counts the texts, those that are too long, and those that consist mostly of unknown tokens.
        """
        for chunk, answers, _ in self._answered(rows, eager=eager, count=count):
            yield from zip(chunk, answers, strict=True)

    def _answered(
        self, rows: Iterable[Row], *, eager: bool = False, count: TextCount | None = None
    ) -> Iterator[tuple[list[Row], list[Prediction | InvalidRow], Encoded]]:
        """Yields chunks of rows with their predictions, and the encoding of the rows that are examples."""
        size = self.task.at_once or CHUNK
        for given in as_they_come(rows, size) if eager else chunks(rows, size):
            chunk = [self.readable(row) for row in given]
            good = [row for row in chunk if isinstance(row, Example)]
            encoded = self.encode(good)
            refused = set(encoded.too_long.tolist()) if self.too_long == "error" else set()
            if count is not None:
                count.add(encoded, self.tokenizer)
            decoded = self.task.decode(self.logits(encoded), encoded, good) if good else []
            found = enumerate(decoded)
            answers: list[Prediction | InvalidRow] = []
            for row in chunk:
                if isinstance(row, InvalidRow):
                    answers.append(row)
                    continue
                number, answer = next(found)
                long_row = number in refused
                answers.append(InvalidRow(row.line, f"longer than {self.max_length} tokens") if long_row else answer)
            yield chunk, answers, encoded

    def logits(self, encoded: Encoded) -> Array:
        """Returns the logits of all sequences in order. -> (W, L), or (T, L) for a task of tokens"""
        arrays = run(self.engine, encoded.packed(), self.task.outputs)
        return np.concatenate([arrays[name] for name in self.task.outputs], -1)

    def evaluate(
        self,
        rows: Iterable[Row],
        *,
        skipped: SkipReport | None = None,
        count: TextCount | None = None,
        findings: "Findings | None" = None,
    ) -> Scores:
        """Counts true and predicted labels of labeled rows. Invalid rows are added to `skipped`.

        count: also counts the texts, as in `stream`. findings: also receives the predictions.
        """
        scores = self.task.scores()
        for chunk, answers, encoded in self._answered(rows, count=count):
            examples, predictions, read, number = list[Example](), list[Prediction](), list[int](), -1
            for row, answer in zip(chunk, answers, strict=True):
                number += isinstance(row, Example)
                if skipped is not None:
                    skipped.rows += 1
                    if isinstance(answer, InvalidRow):
                        skipped.add(answer)
                if isinstance(row, Example) and isinstance(answer, Prediction) and row.label is not None:
                    examples.append(row)
                    predictions.append(answer)
                    read.append(number)
            self.task.count(scores, examples, predictions)
            if findings is not None:
                findings.add(examples, predictions, encoded.tokens[read].tolist(), encoded.fits[read].tolist())
        if not scores.total:
            why = f" {skipped}" if skipped and skipped.total else ""
            raise DataError(f"There is no labeled example to evaluate on.{why}")
        return scores

    def score(
        self,
        path: Path | str,
        format: TableFormat = LABELLED,
        *,
        on_columns: Callable[[Columns], None] = lambda columns: None,
        findings: "Findings | None" = None,
    ) -> dict[str, Any]:
        """Returns the metrics of a labeled file (Scores.report), with skipped rows and texts that are too long."""
        skipped, long = SkipReport(), TextCount(self.too_long, self.max_length)
        rows = self.task.rows(path, self.reading(format), on_columns=on_columns)
        report = self.evaluate(rows, skipped=skipped, count=long, findings=findings).report()
        report["left_out"] = {"rows": skipped.rows, "total": skipped.total, "reasons": skipped.counts}
        report["too_long"] = {"policy": long.policy, "max_length": long.max_length, "texts": long.long}
        report["notes"] = [*skipped.notes, *long.notes]
        return report

    def fill_mask(self, text: str, *, top: int = 5) -> list[list[MaskPrediction]]:
        """Returns the most probable tokens for each mask in `text`, best first (fill.py)."""
        check_text(text, "text")
        check_top(top)
        return fill(self.engine, self.tokenizer, text, top=top, max_length=self.max_length)

    def readable(self, row: Row) -> Row:
        """Returns a row, as an invalid one where the model cannot read its feature vectors."""
        if isinstance(row, InvalidRow) or row.vectors is None:
            return row
        facts, (count, size), reason = self.engine.facts, row.vectors.shape, ""
        reads, most = facts.feature_size, facts.max_together
        if reads is not None and reads != size:
            reason = f"its vectors have {size:,} numbers, and the model reads vectors of {reads:,}"
        elif most is not None and count + self.max_length > most:
            alone = self.task.encode([row], self.tokenizer, max_length=self.max_length, too_long=self.too_long)
            if alone.lengths.max() > most:
                reason = f"its text and vectors are longer than the model's {most:,} positions"
        return InvalidRow(row.line, reason, source=row.source) if reason else row

    def _example(self, text: Text, number: int) -> Example:
        """Returns the example of a text or of a tuple of texts. Raises DataError for another number of texts than the
        model reads."""
        texts = (text,) if isinstance(text, str) else tuple(text)
        counts, wants = self._reads()
        if len(texts) not in counts:
            given = "a single text" if len(texts) == 1 else f"a tuple of {len(texts)} texts"
            raise DataError(f"The model reads {wants}, and text {number} is {given}.")
        return Example(texts, None, number)

    @property
    def fixed_texts(self) -> int | None:
        """The number of texts of every input, if it is known and does not vary."""
        return self.texts if self.texts_known and not (self._task and self._task.texts_vary) else None

    def _reads(self) -> tuple[range, str]:
        """Returns how many texts one input may have, and how a message calls them."""
        counts = self.task.input_texts
        if counts.start > 2:
            return counts, "a context with two or more choices"
        if (fixed := self.fixed_texts) is not None:
            return range(fixed, fixed + 1), "pairs of texts" if fixed == 2 else "single texts"
        return counts, "single texts or pairs of texts"

    def encode(self, examples: Sequence[Example], too_long: TooLong | None = None) -> Encoded:
        """Returns the token ids of examples, which `on_encoded` gets too. too_long: default of the predictor."""
        too_long = too_long or self.too_long
        if self.features is not None and any(example.vectors is None for example in examples):
            raise UsageError(_no_vectors(self.features, "a text alone is not its input"))
        encoded = self.task.encode(examples, self.tokenizer, max_length=self.max_length, too_long=too_long)
        self.on_encoded(encoded, too_long)
        return encoded


# Facts in the folder of a model ------------------------------------------------------------------------------------


def training_facts(tokenizer: Tokenizer) -> dict[str, Any]:
    """Returns how a fine-tuned model reads texts, from its tokenizer_config.json, with BERT's limits as default.

    max_length: tokens; too_long: truncate, window, error or None; texts: text columns, 2 for pairs; texts_known:
    whether the folder says how many; features: how feature vectors are read, or None; columns: the names that the user
    gave for the text and the label, empty where they were recognized; label_separator: what separates the labels of a
    cell, empty for a comma; encoding: of the training files where they were not UTF-8, or ""; task: its name, or "".
    """
    length, ours = tokenizer.settings.get("model_max_length"), tokenizer.settings.get("bertie")
    ours = ours if isinstance(ours, dict) else {}
    return {
        "max_length": length if isinstance(length, int) and 3 < length < 1 << 20 else 512,
        "too_long": too_long if isinstance(too_long := ours.get("too_long"), str) else None,
        "texts": texts if type(texts := ours.get("texts")) is int else 1,
        "texts_known": "texts" in ours,
        "features": _features(ours.get("features")),
        "columns": _columns(ours.get("columns")),
        "label_separator": mark if isinstance(mark := ours.get("label_separator"), str) else "",
        "encoding": encoding if isinstance(encoding := ours.get("encoding"), str) else "",
        "task": task.get("name", "") if isinstance(task := ours.get("task"), dict) else "",
    }


def check_reads_texts(tokenizer: Tokenizer | None, what: str) -> None:
    """Raises UsageError for a model that was fine-tuned on feature vectors. what: the command, which reads only
    texts."""
    features: FeatureConfig | None = training_facts(tokenizer)["features"] if tokenizer is not None else None
    if features is not None:
        raise UsageError(_no_vectors(features, f"{what} reads only texts"))


def _no_vectors(features: "FeatureConfig", why: str) -> str:
    return (
        f"This model was trained on feature vectors (column {features.column!r}), and {why}. Pass a table with this "
        "column to bertie predict or bertie evaluate, or the vectors to Predictor.predict."
    )


def _columns(saved: Any) -> tuple[tuple[str, ...], str]:
    text, label = (saved.get("text"), saved.get("label")) if isinstance(saved, dict) else (None, None)
    names = text if isinstance(text, list) and all(isinstance(name, str) for name in text) else []
    return tuple(names), label if isinstance(label, str) else ""


def _features(saved: Any) -> "FeatureConfig | None":
    if not isinstance(saved, dict):
        return None
    from pydantic import ValidationError

    from bertie.data.features import FeatureConfig

    try:
        return FeatureConfig.model_validate(saved)
    except ValidationError as error:
        raise DataError(f"tokenizer_config.json, bertie.features: {error.errors()[0]['msg']}.") from None


def set_training_facts(
    tokenizer: Tokenizer,
    task: Task,
    *,
    max_length: int,
    too_long: TooLong,
    texts: int,
    features: "FeatureConfig | None" = None,
    columns: tuple[tuple[str, ...], str] = ((), ""),
    label_separator: str = "",
    encoding: str = LABELLED.encoding,
) -> None:
    """Stores the task of a model and how it reads texts and feature vectors, so that inference needs no options.

    columns: the names that the user gave for the columns of the text and of the label, or nothing. encoding: of the
    training files.
    """
    tokenizer.settings["model_max_length"] = max_length
    ours = tokenizer.settings.get("bertie")
    ours = ours if isinstance(ours, dict) else {}
    saved = {"name": name_of(task), **task.settings()}
    tokenizer.settings["bertie"] = {**ours, "too_long": too_long, "texts": texts, "task": saved}
    text, label = columns
    more = {
        "features": features and features.model_dump(mode="json"),
        "columns": {"text": [*text], "label": label} if text or label else None,
        "label_separator": label_separator or None,
        "encoding": None if encoding == LABELLED.encoding else encoding,
    }
    for name, value in more.items():
        tokenizer.settings["bertie"].pop(name, None)
        if value is not None:
            tokenizer.settings["bertie"][name] = value


# What callers from Python pass ---------------------------------------------------------------------------------------


def each_row(texts: Iterable[Any], name: str = "texts", *, tuples: bool = False) -> Iterator[Any]:
    """Yields texts, and an `InvalidRow` for one that is missing (None, NaN) or empty. Numbers are texts, as in files.

    tuples, name: as in `each_text`. Raises UsageError as `each_text` does.
    """
    check_texts(texts, name)
    for number, one in enumerate(texts, 1):
        several = tuples and isinstance(one, tuple | list) and len(one) > 0
        parts = [_read(part) for part in (one if several else (one,))]
        if any(part is None for part in parts):
            yield InvalidRow(number, "no text")
            continue
        for part in parts:
            check_text(part, f"Text {number} of {name}")
        yield (
            (tuple(parts) if several else parts[0]) if all(map(str.strip, parts)) else InvalidRow(number, "empty text")
        )


def _read(text: Any) -> Any:
    """Returns a number as a text, and None for what tables of numbers have instead of a missing text."""
    if text is None or type(text).__name__ in ("NAType", "NaTType"):  # of pandas, which is not imported for it
        return None
    if isinstance(text, Real | Decimal) and not isinstance(text, bool):  # those of numpy are neither int nor float
        return str(text) if text == text else None
    return text


def tell_unread(rows: Sequence[InvalidRow], total: int) -> None:
    """Warns about texts without an answer. Raises DataError where no text has one."""
    if not rows:
        return
    if len(rows) == total:
        raise DataError(f"Text {rows[0].line}: {rows[0].reason}.")
    reasons: dict[str, list[int]] = {}
    for row in rows:
        reasons.setdefault(row.reason, []).append(row.line)
    each = (
        f"{reason} (text {', '.join(map(str, lines[:5]))}{', ...' if len(lines) > 5 else ''})"
        for reason, lines in reasons.items()
    )
    console.warn(f"{len(rows):,} of {total:,} texts have no answer: {'; '.join(each)}")


def each_text(texts: Iterable[AnyText], name: str = "texts", *, tuples: bool = False) -> Iterator[AnyText]:
    """Yields texts. tuples: tuples of texts are allowed; name: of the argument, for messages.

    Raises UsageError for one string, which would be read letter by letter, and for what is not a text.
    """
    check_texts(texts, name)
    for number, one in enumerate(texts, 1):
        parts: Sequence[Any] = one if tuples and isinstance(one, tuple | list) and one else (one,)
        for part in parts:
            check_text(part, f"Text {number} of {name}")
        yield one


def check_texts(texts: Any, name: str) -> None:
    """Raises UsageError for what is not a list of texts. name: of the argument, for the message."""
    if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
        raise UsageError(f'{name} must be a list of texts: ["..."].')
    if isinstance(texts, Mapping) or hasattr(texts, "columns"):  # whose names would be read as texts
        raise UsageError(f'{name} is a {type(texts).__name__}; it must be a list of texts. Pass one column: t["text"].')


def with_arrays(examples: Sequence[Example], vectors: Sequence[Array]) -> list[Row]:
    """Returns examples with the feature vectors of each, as invalid rows where they are none.

    Raises UsageError for another number of arrays than of texts.
    """
    from bertie.data.features import BadFeaturesError, checked

    if len(examples) != len(vectors):
        given = counted(len(vectors), "array")
        raise UsageError(f"There are {given} of vectors for {counted(len(examples), 'text')}. Pass one for each.")
    rows = list[Row]()
    for one, array in zip(examples, vectors, strict=True):
        try:
            rows.append(replace(one, vectors=checked(np.asarray(array), "vectors")))
        except (BadFeaturesError, ValueError) as error:  # ValueError: lists of different lengths
            rows.append(InvalidRow(one.line, str(error)))
    return rows


def check_text(text: Any, name: str) -> None:
    """Raises UsageError for what is not a string. name: of the argument, for the message."""
    if not isinstance(text, str):
        raise UsageError(f"{name} is {text!r:.60}; it must be a string.")


def check_top(top: int | None) -> None:
    """Raises UsageError for what is not a number of results."""
    if top is not None and (not isinstance(top, Integral) or top < 0):
        raise UsageError(f"top is {top!r:.60}; it must be a whole number from 0.")
