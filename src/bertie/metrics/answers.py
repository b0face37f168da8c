"""Scores of extractive question answering, as in the published scripts: SQuAD 1.1 and 2.0, KorQuAD 1.0, KLUE-MRC.

A prediction is normalized and compared with each true answer; the best score counts, and a metric is the mean over
questions. A script is a row: the normal form, the overlap of two answers, and the score of "no answer".

N questions
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bertie.files import JsonObject
from bertie.metrics.base import Float, MetricsOf, Units
from bertie.metrics.resample import Bootstrap
from bertie.registry import Registry

_PUNCTUATION = str.maketrans("", "", string.punctuation)
ARTICLES = re.compile(r"\b(a|an|the)\b")
KORQUAD_MARKS = str.maketrans(dict.fromkeys("'\"《》<>〈〉()‘’", " "))
# The published pattern asks for a mark that is followed by "()‘’", so it hardly ever matches; it is kept as it scores.
KLUE_MARKS = re.compile(r"['\"《》<>〈〉]\(\)‘’")


@dataclass(frozen=True)
class QaPrediction:
    """The prediction for a question: `text`, empty for no answer. Predictions with the same text are equal.

    best: the text of the best span; no_answer: the score of no answer minus the score of that span.
    """

    text: str
    best: str = field(compare=False)
    no_answer: float = field(default=0.0, compare=False)


# Normal forms and overlaps ------------------------------------------------------------------------------------------


def squad_form(text: str) -> str:
    """Lower case, without punctuation and articles, single spaces. evaluate-v1.1.py and evaluate-v2.0.py."""
    return _spaced(ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)))


def korquad_form(text: str) -> str:
    """Quotation marks and parentheses become spaces, and other punctuation is removed. evaluate-korquad_v1.0.py."""
    return _spaced(text.translate(KORQUAD_MARKS).lower().translate(_PUNCTUATION))


def klue_form(text: str) -> str:
    """Lower case, without ASCII punctuation. KLUE-baseline, metrics/utils.py."""
    return _spaced(KLUE_MARKS.sub(" ", text.lower()).translate(_PUNCTUATION))


def _spaced(text: str) -> str:
    return " ".join(text.split())


def word_f1(predicted: str, true: str) -> float:
    """Returns F1 over the common words of two normal forms, with their multiplicity."""
    return _f1(predicted.split(), true.split())


def word_f1_or_nothing(predicted: str, true: str) -> float:
    """Returns the same, and 1 for two empty forms."""
    return word_f1(predicted, true) if predicted and true else float(predicted == true)


def character_f1(predicted: str, true: str) -> float:
    """Returns F1 over the common characters of two normal forms, without spaces."""
    return _f1("".join(predicted.split()), "".join(true.split()))


def _f1(predicted: Sequence[str], true: Sequence[str]) -> float:
    shared = (Counter(predicted) & Counter(true)).total()
    return 2 * shared / (len(predicted) + len(true)) if shared else 0.0


def rouge_w(predicted: str, true: str) -> float:
    """Returns F1 over the longest common substring of two normal forms, as KLUE-baseline computes its ROUGE-W."""
    if not (predicted and true):
        return float(predicted == true)
    run = SequenceMatcher(None, predicted, true).find_longest_match(0, len(predicted), 0, len(true)).size
    return 2 * run / (len(predicted) + len(true))


@dataclass(frozen=True)
class Script:
    """A published script. form: the normal form of a text; overlap: of two of them, 0 to 1, reported as `name`.

    drop_empty: whether true answers with an empty form are ignored.
    """

    form: Callable[[str], str]
    overlap: Callable[[str, str], float]
    name: str = "f1"
    drop_empty: bool = False

    def score(self, predicted: str, true: Sequence[str]) -> tuple[float, float]:
        """Returns (exact match, overlap) of one answer. Without a true answer, no answer is correct."""
        forms = [form for form in map(self.form, true) if form or not self.drop_empty] or [""]
        form = self.form(predicted)
        return float(form in forms), max(self.overlap(form, other) for other in forms)


SCRIPTS: Registry[Script] = Registry(
    "scoring script",
    [
        ("squad2.0", Script(squad_form, word_f1_or_nothing, drop_empty=True)),
        ("squad1.1", Script(squad_form, word_f1)),
        ("korquad1.0", Script(korquad_form, character_f1)),
        ("klue-mrc", Script(klue_form, rouge_w, name="rouge_w")),
    ],
)


# Counting -----------------------------------------------------------------------------------------------------------


@dataclass
class AnswerScores(Units):
    """Counter of true and predicted answers, scored by one script: exact_match and f1 (or rouge_w); with unanswerable
    questions, also those of each kind.

    truth: (text, start) of every accepted answer per question, empty for an unanswerable one.
    """

    script: str = "squad2.0"
    rows: list[tuple[float, float, float, float]] = field(default_factory=list)
    """Exact match and overlap of the prediction and of the best span, per question."""
    answerable: list[bool] = field(default_factory=list)
    no_answer: list[float] = field(default_factory=list)
    silent: list[bool] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    """The context of each question, by number, for intervals that resample contexts. Empty: they resample questions."""

    @property
    def total(self) -> int:
        """The number of questions."""
        return len(self.rows)

    def add(self, truth: Iterable[Sequence[tuple[str, int]]], predicted: Iterable[QaPrediction]) -> None:
        """Scores more questions."""
        script = SCRIPTS[self.script]
        for answers, answer in zip(truth, predicted, strict=True):
            true = [text for text, _ in answers]
            best = script.score(answer.best, true)
            self.rows.append((*(best if answer.text == answer.best else script.score(answer.text, true)), *best))
            self.answerable.append(bool(true))
            self.no_answer.append(answer.no_answer)
            self.silent.append(not answer.text)

    def report(self) -> JsonObject:
        """Returns every metric with its interval, and the score with the best no-answer threshold."""
        report: JsonObject = {"examples": self.total, **self.compute()}
        counts, of_sums = self.units()
        report["interval_95"] = Bootstrap(counts, self.groups).intervals(of_sums)
        if self.groups:
            report["contexts"] = len(set(self.groups))
        report["answerable"] = sum(self.answerable)
        report["all_given"] = "no answer" if all(self.silent) and any(self.answerable) else None
        of_answers = [name for name in report if name.startswith("has_answer_")]
        report["undefined"] = {} if any(self.answerable) else dict.fromkeys(of_answers, "no question has an answer")
        if not all(self.answerable):
            report |= self._beside_silence(report)
            kinds = Counter(zip(self.answerable, self.silent, strict=True))
            report["labels"] = ["an answer", "no answer"]
            report["confusion"] = [[kinds[there, silent] for silent in (False, True)] for there in (True, False)]
            name = SCRIPTS[self.script].name
            for metric, column in (("exact_match", 2), (name, 3)):
                scores = [row[column] for row in self.rows]
                best, threshold = best_threshold(scores, self.no_answer, self.answerable)
                report |= {f"best_{metric}": best, f"best_{metric}_threshold": threshold}
        return report

    def _beside_silence(self, scores: Mapping[str, float]) -> dict[str, object]:
        """Returns the score of predicting no answer always, and the metrics of answerable and unanswerable
        questions."""
        overlap, silent = SCRIPTS[self.script].name, 1 - sum(self.answerable) / self.total
        kinds = {"questions with an answer": "has_answer_", "questions without": "no_answer_"}
        return {
            "baselines": [
                {"name": "no answer to every question", "figures": {overlap: silent, "exact_match": silent}},
            ],
            "parts": {
                name: {metric: scores[kind + metric] for metric in (overlap, "exact_match")}
                for name, kind in kinds.items()
                if kind == "no_answer_" or any(self.answerable)
            },
        }

    def units(self) -> tuple[Float, MetricsOf]:
        """Returns (N, 6): questions, exact, overlap; and the same for answerable questions."""
        scores = np.array(self.rows, np.float64).reshape(-1, 4)[:, :2]
        all_N3 = np.column_stack([np.ones(len(scores)), scores])
        return np.concatenate([all_N3, all_N3 * np.array(self.answerable, bool)[:, None]], 1), self._metrics_of

    def _metrics_of(self, sums: Float) -> dict[str, Float]:
        names = ("exact_match", SCRIPTS[self.script].name)
        kinds = {"": sums[..., :3]}
        if not all(self.answerable):
            kinds |= {"has_answer_": sums[..., 3:], "no_answer_": sums[..., :3] - sums[..., 3:]}
        return {
            f"{kind}{name}": part[..., 1 + i] / np.maximum(part[..., 0], 1)
            for kind, part in kinds.items()
            for i, name in enumerate(names)
        }


def best_threshold(scores: ArrayLike, no_answer: ArrayLike, answerable: ArrayLike) -> tuple[float, float]:
    """Returns the largest mean score, and the no-answer threshold that reaches it.

    scores (N,): of the best span; no_answer (N,): its no-answer score; answerable (N,) bool. find_best_thresh of
    evaluate-v2.0.py, for texts that are never empty. When no answer is always best, the threshold is below every score:
    0 where that is below, as published, for scores that are probabilities.
    """
    gains_N: NDArray[np.float64] = np.where(answerable, np.asarray(scores, np.float64), -1.0)
    no_answer_N = np.asarray(no_answer, np.float64)
    order = np.argsort(no_answer_N, kind="stable")
    silent = len(gains_N) - np.count_nonzero(answerable)
    totals = silent + np.cumsum(gains_N[order])
    best = int(np.argmax(totals)) if len(totals) else -1
    if best < 0 or totals[best] <= silent:
        lowest = float(no_answer_N.min()) if len(no_answer_N) else 0.0
        return silent / max(1, len(gains_N)), 0.0 if lowest > 0 else float(np.nextafter(lowest, -np.inf))
    return float(totals[best]) / len(gains_N), float(no_answer_N[order[best]])
