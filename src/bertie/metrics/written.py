"""Scores of generated texts: exact match, places of spaces, BLEU and chrF (sacrebleu), ROUGE (rouge-score).

All are functions of sums over examples, so that their intervals resample counts. BLEU and chrF are from 0 to 100.
Papineni et al. 2002; Popović 2015; Lin 2004.

N examples · K counts
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import accumulate
from typing import Any

import numpy as np

from bertie.errors import NoPackage
from bertie.files import JsonObject
from bertie.metrics.base import Float, MetricsOf, Units
from bertie.metrics.resample import Bootstrap
from bertie.registry import Registry

_Counts = Callable[[str, str], Sequence[float]]
_Value = Callable[[Float, Float], Float]


@dataclass(frozen=True)
class WrittenMeasure:
    """A row of the table of measures.

    make: its name -> the counts (K,) of an answer and its target; and the value, from the sums of counts (..., K) and
    the number of examples (...). package: the module that it needs. chosen: reported only as the main metric, since it
    means nothing for most texts.
    """

    make: Callable[[str], tuple[_Counts, _Value]]
    package: str = ""
    chosen: bool = False


def _mean(sums: Float, examples: Float) -> Float:
    means: Float = sums[..., 0] / np.maximum(examples, 1)
    return means


def _exact(name: str) -> tuple[_Counts, _Value]:
    return (lambda predicted, true: [float(predicted.split() == true.split())]), _mean


def _spaces(name: str) -> tuple[_Counts, _Value]:
    """F1 of the places of spaces. A place is the number of characters before it; it is right where the target has a
    space too, and all characters before it are those of the target."""

    def counts(predicted: str, true: str) -> Sequence[float]:
        (own, own_places), (known, known_places) = map(_places, (predicted, true))
        same = next((i for i, (a, b) in enumerate(zip(own, known, strict=False)) if a != b), min(len(own), len(known)))
        right = sum(place <= same for place in own_places & known_places)
        return [2 * right, len(own_places) + len(known_places)]

    def value(sums: Float, examples: Float) -> Float:
        share: Float = sums[..., 0] / np.maximum(sums[..., 1], 1)
        return share

    return counts, value


def _places(text: str) -> tuple[str, set[int]]:
    """Returns the text without spaces, and the numbers of characters before its spaces."""
    words = text.split()
    return "".join(words), set(accumulate(map(len, words[:-1])))


def _sacrebleu(name: str) -> tuple[_Counts, _Value]:
    """The library's own counts of a sentence, which it sums over a corpus; for its bootstrap too."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    metric: Any = BLEU() if name == "bleu" else CHRF()

    def counts(predicted: str, true: str) -> Sequence[float]:
        statistics: Sequence[float] = metric._extract_corpus_statistics([predicted], [[true]])[0]
        return statistics

    def value(sums: Float, examples: Float) -> Float:
        return np.apply_along_axis(lambda row: metric._compute_score_from_stats(row.tolist()).score, -1, sums)

    return counts, value


def _rouge(name: str) -> tuple[_Counts, _Value]:
    from rouge_score.rouge_scorer import RougeScorer

    scorer = RougeScorer([name])
    return (lambda predicted, true: [scorer.score(true, predicted)[name].fmeasure]), _mean


MEASURES: Registry[WrittenMeasure] = Registry(
    "measure",
    [
        ("exact_match", WrittenMeasure(_exact)),
        ("space_f1", WrittenMeasure(_spaces, chosen=True)),
        ("chrf", WrittenMeasure(_sacrebleu, "sacrebleu")),
        ("bleu", WrittenMeasure(_sacrebleu, "sacrebleu")),
        ("rouge1", WrittenMeasure(_rouge, "rouge_score")),
        ("rouge2", WrittenMeasure(_rouge, "rouge_score")),
        ("rougeL", WrittenMeasure(_rouge, "rouge_score")),
    ],
)


def available(name: str) -> bool:
    """Whether the library of a measure is installed."""
    package = MEASURES[name].package
    return not package or find_spec(package) is not None


@dataclass
class WrittenScores(Units):
    """Counter of target texts and answers. metrics: names of measures, the main one first.

    Raises UsageError for a measure whose library is not installed.
    """

    metrics: tuple[str, ...]
    texts: tuple[set[str], set[str]] = field(default_factory=lambda: (set(), set()))
    """The first two different targets, and answers."""

    def __post_init__(self) -> None:
        for name in self.metrics:
            if not available(name):
                raise NoPackage(f"The metric {name} needs a library: pip install 'bertie[text2text]'.")
        self._made = {name: MEASURES[name].make(name) for name in self.metrics}
        self._rows: dict[str, list[Sequence[float]]] = {name: [] for name in self.metrics}

    @property
    def total(self) -> int:
        """The number of examples."""
        return len(self._rows[self.metrics[0]])

    def add(self, truth: Iterable[str], predicted: Iterable[str]) -> None:
        """Counts more examples."""
        for true, answer in zip(truth, predicted, strict=True):
            for name, (counts, _) in self._made.items():
                self._rows[name].append(counts(answer, true))
            for known, text in zip(self.texts, (true, answer), strict=True):
                if len(known) < 2:
                    known.add(text)

    def compute(self) -> Mapping[str, float]:
        """Returns every metric; 0 without examples, for which a measure has no counts."""
        if not self.total:
            return dict.fromkeys(self.metrics, 0.0)
        return super().compute()

    def report(self) -> JsonObject:
        """Returns every metric with its interval, and the only answer where there is one for different targets."""
        counts, of_sums = self.units()
        intervals = Bootstrap(counts).intervals(of_sums)
        report: JsonObject = {"examples": self.total, **self.compute(), "interval_95": intervals}
        truth, answers = self.texts
        report["all_given"] = next(iter(answers)) if len(answers) == 1 < len(truth) else None
        return report

    def units(self) -> tuple[Float, MetricsOf]:
        """Returns the number 1 and the counts of each measure (N, 1 + K), and the metrics of their sums."""
        parts = [np.array(self._rows[name], np.float64).reshape(self.total, -1) for name in self.metrics]
        ends = np.cumsum([1, *(part.shape[1] for part in parts)])

        def metrics_of(sums: Float) -> dict[str, Float]:
            columns = zip(self.metrics, ends[:-1], ends[1:], strict=True)
            return {name: self._made[name][1](sums[..., a:b], sums[..., 0]) for name, a, b in columns}

        return np.concatenate([np.ones((self.total, 1)), *parts], 1), metrics_of
