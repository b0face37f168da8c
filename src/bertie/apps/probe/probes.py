"""The probes: what each asks of the vectors of a layer. A probe is a row of PROBES.

A probe is trained on the vectors of the model and of random weights, for its task and for a control task: four fits per
layer. Its counts per sentence give every figure and its interval, by resampling sentences.

S sentences · K sums · W words · H hidden size
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bertie.apps.probe import labels, trees
from bertie.apps.probe.labels import Items
from bertie.apps.probe.sentences import Sentence
from bertie.platform import Bootstrap, UsageError, nearest


def _share(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the first sum over the second, and 0 where that is 0. (..., 2) -> (...)"""
    right, total = sums[..., 0], sums[..., 1]
    return np.divide(right, total, out=np.zeros(total.shape), where=total > 0)


MetricSums = dict[str, NDArray[np.float64]]
"""Metric -> sums per sentence (S, K)."""
REDUCE: Mapping[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "accuracy": _share,
    "uuas": _share,
    "spearman": trees.mean_over_lengths,
}
"""Metric -> its value from sums (..., K) -> (...)."""
PROBE_PARTS = ("model", "control", "random", "random_control")


@dataclass(frozen=True)
class ProbeSample:
    """Sentences and the vectors of a layer: of their words (W, H), or of the sentences (S, H)."""

    sentences: Sequence[Sentence]
    vectors: NDArray[np.float32]


class Probe(Protocol):
    """Protocol of a probe. whole: whether it reads one vector per sentence, of sentences in order and shuffled."""

    @property
    def title(self) -> str:
        """What is probed, in words."""
        ...

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of its metrics, the main one first."""
        ...

    @property
    def whole(self) -> bool:
        """Whether it reads one vector per sentence."""
        ...

    @property
    def needs(self) -> str:
        """What a sentence must have, in words, for an error."""
        ...

    def usable(self, sentence: Sentence) -> bool:
        """Returns whether a sentence has what the probe needs."""
        ...

    def varied(self, train: Sequence[Sentence]) -> bool:
        """Returns whether sentences have more than one answer, so that there is something to learn."""
        ...

    def baseline(self, train: Sequence[Sentence], test: Sequence[Sentence]) -> tuple[str, dict[str, float]]:
        """Returns the name and the metrics of a baseline without a model."""
        ...

    def measure(self, train: ProbeSample, test: ProbeSample, *, control: bool, seed: int) -> MetricSums:
        """Trains on vectors and returns the counts of the test sentences."""
        ...


@dataclass(frozen=True)
class LabelProbe:
    """Predicts a label from a vector (labels.py)."""

    title: str
    items: Callable[[Sequence[Sentence]], Items]
    needs: str
    usable: Callable[[Sentence], bool]
    whole: bool = False
    prepare: Callable[[Items, Items], tuple[Items, Items]] = labels.unchanged
    metrics = ("accuracy",)

    def _both(self, train: Sequence[Sentence], test: Sequence[Sentence]) -> tuple[Items, Items]:
        return self.prepare(self.items(train), self.items(test))

    def varied(self, train: Sequence[Sentence]) -> bool:
        """Returns whether sentences have more than one label."""
        items = self.items(train)
        return len(np.unique(self.prepare(items, items)[0].labels)) > 1

    def baseline(self, train: Sequence[Sentence], test: Sequence[Sentence]) -> tuple[str, dict[str, float]]:
        """Returns the accuracy of the most frequent label of training."""
        a, b = self._both(train, test)
        names, times = np.unique(a.labels, return_counts=True)
        return "most frequent label", {"accuracy": float((b.labels == names[times.argmax()]).mean())}

    def measure(self, train: ProbeSample, test: ProbeSample, *, control: bool, seed: int) -> MetricSums:
        """Trains a logistic regression and counts right labels."""
        a, b = self._both(train.sentences, test.sentences)
        labels_used, truth = labels.control_labels(a, b, seed) if control else (a.labels, b.labels)
        predicted = labels.predicted_labels(a.vectors(train.vectors), labels_used, b.vectors(test.vectors))
        return {"accuracy": labels.item_counts(b, predicted, truth)}


@dataclass(frozen=True)
class TreeProbe:
    """Predicts distances in the dependency tree (trees.py)."""

    title: str = "distance in the dependency tree"
    needs: str = "heads (a .conllu or klue-dp file)"
    whole: bool = False
    metrics = ("uuas", "spearman")

    def usable(self, sentence: Sentence) -> bool:
        """Returns whether a sentence has a tree of at least two words."""
        return len(sentence.heads) > 1

    def varied(self, train: Sequence[Sentence]) -> bool:
        """Returns True: pairs of words have several distances."""
        return True

    def baseline(self, train: Sequence[Sentence], test: Sequence[Sentence]) -> tuple[str, dict[str, float]]:
        """Returns the metrics of a chain: every word next to the one before it."""
        places = (np.arange(len(one.spans), dtype=np.float64) for one in test)
        chains = [np.abs(place[:, None] - place) for place in places]
        counts = self._counts(chains, [trees.sentence_tree(one) for one in test])
        return "words in a chain", {name: float(REDUCE[name](sums.sum(0))) for name, sums in counts.items()}

    def measure(self, train: ProbeSample, test: ProbeSample, *, control: bool, seed: int) -> MetricSums:
        """Trains the structural probe and counts edges and correlations."""
        tree_list, truth = (
            [trees.control_tree(one, seed) if control else trees.sentence_tree(one) for one in sample.sentences]
            for sample in (train, test)
        )
        map_HR = trees.fit_structural_probe(_by_sentence(train), tree_list, seed=seed)
        return self._counts([trees.predicted(x, map_HR) for x in _by_sentence(test)], truth)

    def _counts(self, distances: Sequence[NDArray[np.float64]], targets: Sequence[trees.Tree]) -> MetricSums:
        edges, rho = trees.edge_counts(distances, targets)
        return {"uuas": edges, "spearman": rho}


def _by_sentence(sample: ProbeSample) -> list[NDArray[np.float32]]:
    return np.split(sample.vectors, np.cumsum([len(one.spans) for one in sample.sentences])[:-1])


PROBES: Mapping[str, Probe] = {
    "pos": LabelProbe(
        "part of speech", labels.label_words(lambda one: one.upos), "parts of speech (a .conllu file)",
        lambda one: bool(one.upos)
    ),
    "relation": LabelProbe(
        "dependency label", labels.label_words(lambda one: one.relations), TreeProbe.needs,
        lambda one: bool(one.relations)
    ),
    "distance": TreeProbe(),
    "entity": LabelProbe(
        "type of a name", labels.mentions, "tagged names (a .conll file, or --format conll)",
        lambda one: any(tag != "O" for tag in one.tags)
    ),
    "order": LabelProbe(
        "words in order or shuffled", labels.orders, f"{labels.FEWEST_WORDS} different words",
        lambda one: True, whole=True
    ),
    "length": LabelProbe(
        "sentence length", labels.lengths, f"{labels.FEWEST_WORDS} different words",
        lambda one: True, whole=True, prepare=labels.binned_items
    ),
}  # fmt: skip
"""Name -> probe."""


def chosen_probes(names: Sequence[str]) -> dict[str, Probe]:
    """Returns probes by name, all for no names. Raises UsageError for an unknown name."""
    for name in names:
        if name not in PROBES:
            raise UsageError(f"Unknown probe {name!r}. {nearest(name, PROBES)}")
    return {name: probe for name, probe in PROBES.items() if not names or name in names}


def compute_metric_figures(parts: Mapping[str, MetricSums], metric: str) -> dict[str, Any]:
    """Returns a metric of the model, of the control task and of random weights, with 95% intervals.

    parts: PARTS -> counts of the same sentences. selectivity is model - control, and gain is model - random weights.
    """
    stacked = np.concatenate([parts[part][metric] for part in PROBE_PARTS], 1)

    def metrics_of(sums: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        values = dict(zip(PROBE_PARTS, map(REDUCE[metric], np.split(sums, len(PROBE_PARTS), -1)), strict=True))
        return {
            **values,
            "selectivity": values["model"] - values["control"],
            "random_selectivity": values["random"] - values["random_control"],
            "gain": values["model"] - values["random"],
        }

    return {
        "metric": metric,
        **{name: float(value) for name, value in metrics_of(stacked.sum(0)).items()},
        "interval_95": Bootstrap(stacked).intervals(metrics_of),
    }
