"""Extractive question answering: the start and the end of the answer in a text. SQuAD 1.1 and 2.0, KorQuAD, KLUE-MRC.

    [CLS] question [SEP] context [SEP]     S.T_i + E.T_j for a span, S.C + E.C for "there is no answer"

Devlin et al. 2018, 4.2 and 4.3; google-research/bert, run_squad.py. A long context is split into windows; the target of
a window without the answer is [CLS]. Answers are substrings of the context.

B sequences · S longest · T tokens · C tokens of a context · L longest answer in tokens
"""

import json
import math
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from bertie.errors import DataError, UsageError
from bertie.io.columns import LookAhead, find_columns, no_rows
from bertie.io.lines import BadRecord
from bertie.io.questions import MISPLACED, questions
from bertie.io.rows import table_kind
from bertie.io.streams import suffix_of
from bertie.io.table_format import Columns, TableFormat
from bertie.io.tables import Example
from bertie.metrics.answers import SCRIPTS, AnswerScores, QaPrediction, best_threshold
from bertie.metrics.base import ScoreCounter
from bertie.models.loss import LabelAxis, LossReport, LossTerm, right
from bertie.tasks.answerer import Logits, Prediction
from bertie.tasks.base import Task
from bertie.tasks.places import encode_places, fullest
from bertie.tasks.render import GIVEN, TRUE, RenderedExample, mark_text, render_plain_text
from bertie.tasks.source import Targets
from bertie.tasks.view import length_slice
from bertie.text.sequences import Sequences
from bertie.text.tokenizer import Tokenizer
from bertie.training_facts import TooLong

if TYPE_CHECKING:
    from torch import Tensor

    from bertie.models.batch import Batch

Float = NDArray[np.float32]
CONTEXT = 1  # the second text
SILENT = "no answer"
ELSEWHERE = "that is not at the given position"
_SEVERAL_TIMES = "that occurs several times in the context, and not at a given position"
_QUESTION_WORD = re.compile(
    r"\b(?:what|who|whom|whose|which|when|where|why|how)\b|무엇|누구|누가|언제|어디|왜|어떻게|어떤|어느|몇",
    re.IGNORECASE,
)
FRAMES = ("json", "jsonl", "ndjson")


@dataclass(frozen=True)
class Span:
    """A span of the context, and the sum of its logits. `probability` is among all spans of allowed length and no
    answer."""

    text: str
    start: int
    end: int
    score: float
    probability: float

    def as_json(self) -> dict[str, Any]:
        """Returns the fields as JSON values."""
        score, probability = round(self.score, 6), round(self.probability, 6)
        return {"text": self.text, "start": self.start, "end": self.end, "score": score, "probability": probability}


@dataclass(frozen=True)
class SpanPrediction(Prediction):
    """A prediction of extractive question answering, whose `label` is a `QaPrediction`.

    spans: the best spans, none of which overlap, best first. threshold: of the no-answer score; None: every question is
    answered.
    """

    label: QaPrediction
    spans: tuple[Span, ...] = ()
    threshold: float | None = None

    @property
    def answer(self) -> str:
        """The text of the answer, empty for no answer."""
        return str(self.label.text)

    def as_json(self) -> dict[str, Any]:
        """Returns the answer, its characters in the context (null without an answer), scores, and the best spans.

        no_answer_score is null where the context has no span. no_answer_probability is computed against the best span
        only.
        """
        place = self.spans[0].as_json() if self.answer else {"start": None, "end": None}
        return {
            **place,
            "answer": self.answer,
            "no_answer_score": round(self.label.no_answer, 6) if self.spans else None,
            **({} if self.threshold is None else {"threshold": round(self.threshold, 6)}),
            "no_answer_probability": 1 / (1 + math.exp(-min(max(self.label.no_answer, -500), 500))),
            "n_best": [span.as_json() for span in self.spans],
        }

    def render(self, texts: Sequence[str]) -> RenderedExample:
        """Returns the question, and the context with the answer marked."""
        question, context = texts
        marks = [(self.spans[0].start, self.spans[0].end, GIVEN)] if self.answer else []
        return RenderedExample(
            (render_plain_text(question), mark_text(context, marks)),
            "",
            self.answer or SILENT,
            self.probability if self.answer else None,
        )


@dataclass(frozen=True)
class SpanTask(Task):
    """Predicts the span of a context that answers a question.

    Attributes:
        threshold: The minimum difference between the scores of "no answer" and of the best span for predicting no
            answer.
            None: every question has an answer.
        stride: Tokens between the starts of two windows, as in run_squad.py.
        max_question: Maximum number of tokens of a question.
        max_answer: Maximum number of tokens of an answer.
        n_best: Number of spans in a prediction.
    """

    reads_columns = False
    head = "span"
    label_axes: ClassVar[Mapping[str, LabelAxis]] = {"start": "sequence", "end": "sequence", "weight": "sequence"}
    input_texts = range(2, 3)
    metrics = ("f1", "exact_match")
    too_long = "window"
    csv_columns = ("answer", "start", "end", "score", "no_answer_score")

    threshold: float | None = None
    script: str = "squad2.0"
    stride: Annotated[int, Field(ge=1)] = 128
    max_question: Annotated[int, Field(ge=1)] = 64
    max_answer: Annotated[int, Field(ge=1)] = 30
    n_best: Annotated[int, Field(ge=1)] = 5

    def __post_init__(self) -> None:
        SCRIPTS[self.script]  # a UsageError names the choices

    @classmethod
    def rows(
        cls, path: Path | str, format: TableFormat, *, on_columns: Callable[[Columns], None] = lambda columns: None
    ) -> Iterator[Example | BadRecord]:
        """Reads questions in SQuAD format (.json), one in a line (.jsonl) or in a row (.parquet); without answers also
        from other tables."""
        has_columns = (
            bool(format.columns.text or format.file.names) and not format.columns.labelled
        )  # columns of a table
        kind = format.file.kind or table_kind(path)
        framed = kind in FRAMES or suffix_of(path) == "json" or (kind == "parquet" and format.columns.labelled)
        if has_columns or not framed:
            if format.columns.labelled:
                raise UsageError(
                    f"{path}: questions with answers must be in a .json (SQuAD format), .jsonl or .parquet file."
                )
            yield from super().rows(path, format, on_columns=on_columns)
            return
        other = {
            "--text": format.columns.text not in ((), ("question", "context")),
            "--label": format.columns.label not in ("", "answers"),
            "--columns": bool(format.file.names),
            "--label-names": bool(format.labels.names),
        }
        if format.columns.labelled and (option := next((option for option, value in other.items() if value), "")):
            raise UsageError(
                f"{path}: questions are read by their names in SQuAD's format (question, context, answers). Rename the "
                f"fields of the file, and omit {option}."
            )
        on_columns(Columns(("question", "context"), "answers" if format.columns.labelled else None))
        for row in questions(path, format):
            unlabelled = format.columns.labelled and isinstance(row, Example) and row.label is None
            yield BadRecord(row.line, "no answers") if unlabelled else row

    @classmethod
    def columns(cls, names: Sequence[str], columns: Columns, where: str, look: LookAhead = no_rows) -> Columns:
        """Returns the columns of a question and its context."""
        roles = find_columns(names, columns, where, look)
        if len(roles.text) != 2:
            raise DataError(
                f"{where}: a question and a context are needed, but only {roles.text[0]!r} was recognized "
                f"among {', '.join(map(repr, names))}.",
                hint="Pass both columns: --text question --text context.",
            )
        return roles

    @classmethod
    def stratify_by(cls, example: Example) -> bool:
        """The dev set is stratified by questions with and without an answer."""
        return bool(example.label)

    @classmethod
    def group(cls, example: Example) -> Hashable:
        """The group of an example is its context, since one question about it helps with the others."""
        return example.texts[CONTEXT] if example.group is None else example.group

    @classmethod
    def from_examples(cls, examples: Sequence[Example], names: tuple[str, ...], options: Mapping[str, object]) -> Self:
        """Returns the task. With unanswerable questions, predicting no answer is allowed, with a threshold of 0 at
        first."""
        may_be_none = any(not example.label for example in examples)
        return cls.make((), {**({"threshold": 0.0} if may_be_none else {}), **options})

    def spans_of(self, prediction: Prediction) -> SpanPrediction:
        """Returns one of its predictions, which has spans."""
        assert isinstance(prediction, SpanPrediction)
        return prediction

    def best(self, starts_S: Logits, ends_S: Logits) -> tuple[int, int]:
        """Returns the first and last token of the best answer. starts_S, ends_S: logits, -inf where none may be."""
        possible_SS = np.tril(np.triu(np.ones((len(starts_S), len(ends_S)), bool)), self.max_answer - 1)
        scores_SS = np.where(possible_SS, starts_S[:, None] + ends_S[None, :], -np.inf)
        first, last = divmod(int(scores_SS.argmax()), len(ends_S))
        return first, last

    def check(self, train: Sequence[Example], remedy: str = "") -> None:
        """Raises DataError where no question has an answer whose place is known, and none is unanswerable."""
        if all(example.label and _misplaced(example) for example in train):
            raise DataError(
                "No training question has an answer whose place in its context is known. Each needs an `answer_start`, "
                "or a text that occurs exactly once in the context.",
                hint=self.notes(train, ())[0] + ".",
            )

    def notes(self, train: Sequence[Example], dev: Sequence[Example]) -> list[str]:
        """Warns about answers that are not at the given position, or have several places."""
        notes = []
        for what, examples in (("training", train), ("dev", dev)):
            reasons: dict[str, list[int]] = {}
            for e in examples:
                if e.label and _misplaced(e):
                    often = any(e.texts[CONTEXT].count(text) > 1 for text, _ in e.label if text.strip())
                    reasons.setdefault(_SEVERAL_TIMES if often else ELSEWHERE, []).append(e.line)
            for why, lines in reasons.items():
                shown = ", ".join(map(str, lines[:5]))
                notes.append(
                    f"{len(lines):,} of {len(examples):,} {what} questions have an answer {why} "
                    f"(question {shown}{', ...' if len(lines) > 5 else ''}); they are not used for training"
                )
        return notes

    def encode(
        self, examples: Sequence[Example], tokenizer: Tokenizer, *, max_length: int, too_long: TooLong
    ) -> Sequences:
        """Returns windows over the context, with the question in each."""
        return encode_places(
            examples,
            tokenizer,
            max_length=max_length,
            too_long=too_long,
            stride=self.stride,
            max_first=self.max_question,
        )

    def targets(self, examples: Sequence[Example], encoded: Sequences) -> Targets:
        """Returns "start", "end" (W,) int64: positions in the sequence, 0 if the answer is not in it; "weight" (W,)
        float32."""
        windows = len(encoded.lengths)
        start_W, end_W = np.zeros(windows, np.int64), np.zeros(windows, np.int64)
        weight_W = np.ones(windows, np.float32)
        text_T, starts_T, ends_T = (encoded.places[name] for name in ("text", "start", "end"))
        for number, example in enumerate(examples):
            span = slice(int(encoded.windows[number]), int(encoded.windows[number + 1]))
            answer = next((a for a in example.label or () if a[1] != MISPLACED), None)
            if answer is None:
                weight_W[span] = 0.0 if example.label or example.label is None else 1.0
                continue
            first, last = answer[1], answer[1] + len(answer[0])
            for window in range(span.start, span.stop):
                begin, stop = int(encoded.starts[window]), int(encoded.starts[window + 1])
                rows = begin + np.flatnonzero(text_T[begin:stop] == CONTEXT)
                inside = rows[(ends_T[rows] > first) & (starts_T[rows] < last)]
                whole = len(rows) and starts_T[rows[0]] <= first and last <= ends_T[rows[-1]]
                if whole and len(inside):
                    start_W[window], end_W[window] = inside[0] - begin, inside[-1] - begin
        return Targets(sequence={"start": start_W, "end": end_W, "weight": weight_W})

    def counts(self, batch: "Batch") -> dict[str, int]:
        """Returns the number of windows in the loss."""
        return {"span": round(float(batch.labels["weight"].sum()))}

    def losses(self, logits: "Tensor", batch: "Batch") -> LossReport:
        """Returns the mean of the cross-entropies of the start and of the end. logits (T, 2)"""
        import torch

        mask_BS = batch.layout.mask()
        scores_BS2 = batch.layout.rectangle(logits).masked_fill(~mask_BS[..., None], -torch.inf)
        weight_B, right_B = batch.labels["weight"], torch.ones_like(batch.labels["weight"], dtype=torch.bool)
        total_B = torch.zeros_like(weight_B)
        for scores_BS, name in zip(scores_BS2.unbind(-1), ("start", "end"), strict=True):
            target_B = batch.labels[name]
            total_B = total_B + torch.nn.functional.cross_entropy(scores_BS, target_B, reduction="none") / 2
            right_B = right_B & right(scores_BS, target_B)
        correct = (weight_B * right_B).sum()
        return {"span": LossTerm((weight_B * total_B).sum(), self.counts(batch.host)["span"], correct.detach())}

    def decode(self, logits: Logits, encoded: Sequences, examples: Sequence[Example]) -> list[Prediction]:
        """Returns the best spans of each example over all its windows, or no answer. logits (T, 2)"""
        start_T, end_T = logits.T
        cls_W = encoded.starts[:-1]
        none_E: Float = (start_T + end_T)[cls_W]
        none_E = np.minimum.reduceat(none_E, encoded.windows[:-1])
        rows_P = fullest(encoded, CONTEXT)
        example_P = encoded.example[np.searchsorted(encoded.starts, rows_P, side="right") - 1]
        cuts = np.searchsorted(example_P, np.arange(encoded.examples + 1))
        scores_PL = self._scores(start_T, end_T, encoded, rows_P)
        answers: list[Prediction] = []
        for number, example in enumerate(examples):
            part = slice(cuts[number], cuts[number + 1])
            places = {name: encoded.places[name] for name in ("start", "end")}
            answers.append(self._answer(example, scores_PL[part], rows_P[part], places, float(none_E[number])))
        return answers

    def _scores(self, start_T: Float, end_T: Float, encoded: Sequences, rows_P: NDArray[np.int64]) -> Float:
        """Returns (P, L): token p of a context as the start, in its window with the most context, and the end l tokens
        later."""
        window_P = np.searchsorted(encoded.starts, rows_P, side="right") - 1
        text_T, ends_PL = encoded.places["text"], rows_P[:, None] + np.arange(self.max_answer)
        within_PL = ends_PL < encoded.starts[window_P + 1][:, None]
        ends_PL = np.where(within_PL, ends_PL, rows_P[:, None])
        empty_T = encoded.places["end"] <= encoded.places["start"]
        allowed_PL = within_PL & (text_T[ends_PL] == CONTEXT) & ~empty_T[ends_PL] & ~empty_T[rows_P][:, None]
        return np.where(allowed_PL, start_T[rows_P][:, None] + end_T[ends_PL], -np.inf).astype(np.float32)

    def _answer(
        self, example: Example, scores_CL: Float, rows_C: NDArray[np.int64], places: Mapping[str, Any], none: float
    ) -> SpanPrediction:
        context = example.texts[CONTEXT]
        lowest = float(np.finfo(np.float32).min) if self.threshold is None else none
        highest = float(scores_CL.max(initial=lowest))  # of what has a share of the mass, which is then not zero
        mass = float(np.exp(scores_CL.astype(np.float64) - highest).sum())
        mass += float(np.exp(none - highest)) if self.threshold is not None else 0.0
        spans = []
        for first, length in best_spans(scores_CL, self.n_best):
            start, end = int(places["start"][rows_C[first]]), int(places["end"][rows_C[first] + length])
            text = context[start:end]
            start += len(text) - len(text.lstrip())
            text, score = text.strip(), float(scores_CL[first, length])
            if text:
                spans.append(Span(text, start, start + len(text), score, float(np.exp(score - highest)) / mass))
        if not spans:
            return SpanPrediction(QaPrediction("", "", float("inf")), threshold=self.threshold)
        odds = none - spans[0].score
        silent = self.threshold is not None and odds > self.threshold
        answer = QaPrediction("" if silent else spans[0].text, spans[0].text, odds)
        sure = None if silent else spans[0].probability
        return SpanPrediction(answer, sure, spans=tuple(spans), threshold=self.threshold)

    def by_id(self) -> Mapping[str, str]:
        """Returns the files for the official scripts: the answers, and, with unanswerable questions, their
        probabilities."""
        return {"": "answer"} | ({} if self.threshold is None else {"-na-prob": "no_answer_probability"})

    def scores(self) -> AnswerScores:
        """Returns a counter of true and predicted answers by the published script."""
        return AnswerScores(self.script)

    def count(self, scores: ScoreCounter, examples: Sequence[Example], predictions: Sequence[Prediction]) -> None:
        """Adds the answers, grouped by context, so that intervals resample contexts."""
        super().count(scores, examples, predictions)
        assert isinstance(scores, AnswerScores)
        scores.groups += [hash(self.group(example)) for example in examples]

    @property
    def tunes(self) -> bool:
        """Whether questions may be unanswerable."""
        return self.threshold is not None

    def tune_on_dev(self, answers: Iterable[tuple[Example, Prediction]]) -> Self:
        """Returns the task with the threshold for the best dev F1, where questions may be unanswerable."""
        if self.threshold is None:
            return self
        rows = [
            (self._f1(example, one.best), one.no_answer, bool(example.label))
            for example, one in ((example, cast(SpanPrediction, answer).label) for example, answer in answers)
        ]
        if not rows:
            return self
        return replace(self, threshold=best_threshold(*zip(*rows, strict=True))[1])

    def _f1(self, example: Example, text: str) -> float:
        return SCRIPTS[self.script].score(text, [true for true, _ in example.label or ()])[1]

    def error_score(self, example: Example, prediction: Prediction) -> float:
        """Returns 1 minus the F1 of the answer, times its probability."""
        answer = cast(SpanPrediction, prediction).label
        sure, odds = prediction.probability, answer.no_answer
        if sure is None:
            sure = 1 / (1 + math.exp(-max(odds, -700.0)))
        return (1 - self._f1(example, answer.text)) * sure

    @classmethod
    def sample(cls, texts: int) -> str:
        """Returns a question and its context."""
        return json.dumps({"question": "Where is the library?", "context": "The library is in the old town hall."})

    def render(self, example: Example, prediction: Prediction) -> RenderedExample:
        """Renders the context with the true answers and the predicted one marked."""
        assert isinstance(prediction, SpanPrediction)
        question, context = example.texts
        texts = list(dict.fromkeys(text for text, _ in example.label or ()))
        spans = [(start, start + len(text), TRUE) for text, start in example.label or () if start != MISPLACED]
        if prediction.label.text:
            spans.append((prediction.spans[0].start, prediction.spans[0].end, GIVEN))
        return RenderedExample(
            (render_plain_text(question), mark_text(context, spans)),
            " / ".join(texts) or SILENT,
            prediction.label.text or SILENT,
            prediction.probability,
            {span.text: span.probability for span in prediction.spans},
            f"{SCRIPTS[self.script].name} {self._f1(example, prediction.label.text):.2f}",
        )

    def slices(self, example: Example, prediction: Prediction, tokens: int, long: bool) -> dict[str, str]:
        """Subgroups also by whether there is an answer, its length, and the question word."""
        answers = [len(text.split()) for text, _ in example.label or ()]
        match = _QUESTION_WORD.search(example.texts[0])
        return {
            **super().slices(example, prediction, tokens, long),
            "words of the answer": length_slice(min(answers), 1) if answers else SILENT,
            "question word": match[0].lower() if match else "another",
        }


def best_spans(scores_CL: Float, count: int) -> Iterator[tuple[int, int]]:
    """Returns (first token, number of following tokens) of the best spans, best first, without overlap."""
    left_CL = scores_CL.copy()
    longest = left_CL.shape[1]
    for _ in range(count if left_CL.size else 0):
        first, more = divmod(int(left_CL.argmax()), longest)
        if left_CL[first, more] == -np.inf:
            return
        yield first, more
        left_CL[first : first + more + 1] = -np.inf
        before = np.arange(max(0, first - longest + 1), first)
        reaches_in = np.arange(longest) >= (first - before)[:, None]
        left_CL[before] = np.where(reaches_in, -np.inf, left_CL[before])


def _misplaced(example: Example) -> bool:
    """Returns whether no answer of an example has a known place."""
    return all(start == MISPLACED for _, start in example.label)
