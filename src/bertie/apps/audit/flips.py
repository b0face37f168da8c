"""Counterfactual flips: which predictions of a classifier change when words or names are exchanged."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from bertie.apps.audit.base import (
    AuditMeasure,
    AuditSet,
    AuditSource,
    FigureExamples,
    Read,
    Score,
    Subject,
    fraction,
    mean_of,
)
from bertie.apps.audit.groups import labeled, single_label
from bertie.apps.perturb.swaps import Swaps
from bertie.platform import BadRecord, DataError, Example, SourceFile

SWAPS_FILE = Path(__file__).with_name("swaps.yaml")
_EXAMPLES_SHOWN = 10


@dataclass(frozen=True)
class Swapped:
    """A text before and after an exchange by the pairs of one list."""

    list: str
    before: Example
    after: Example


class Flips(AuditSet[Swapped]):
    """Predictions before and after an exchange of words or names."""

    name = "flips"
    title = "Counterfactual flips"
    about = (
        "Words such as he and she, or names, are exchanged in the texts of the table. A flip is a text whose predicted "
        "label changes. Names are also exchanged within a group, which shows how often any other name changes the "
        "prediction. The shuffled control compares each text with the exchanged form of another text."
    )
    criticism = (
        "An exchange can make a text ungrammatical or untrue, so that a changed prediction is not always wrong; the "
        "lists have two genders and a few names only, and 0% does not show that a model has no bias."
    )
    unit = "texts"
    needs = ("sequence",)
    chunk = 128
    remedy = "Pass --table FILE."

    def missing(self, subject: Subject) -> str:
        """Only classifiers with one label per text can be measured."""
        return super().missing(subject) or single_label(subject)

    def recognizes(self, path: Path, head: bytes) -> bool:
        """A YAML file of own pairs."""
        return path.suffix in (".yaml", ".yml") and b"swaps:" in head

    def offered(self, source: AuditSource) -> bool:
        """A table is needed."""
        return source.table is not None

    def read(self, subject: Subject, source: AuditSource) -> Read[Swapped]:
        """Returns the texts that a list changes, for every list."""
        examples, read = labeled(subject, source)
        read_pairs = Read[Swapped](skipped=read.skipped)
        for path in source.paths or (SWAPS_FILE,):
            for name, swaps in read_lists(path).items():
                for one in examples:
                    texts = tuple(map(swaps, one.texts))
                    if texts != one.texts:
                        read_pairs.items.append(
                            Swapped(name, replace(one, source=None), replace(one, texts=texts, source=None))
                        )
        if not read_pairs.items:
            read_pairs.notes.append(f"{source.table} has no text with a word of the lists of pairs.")
        return read_pairs

    def scores(self, subject: Subject, items: Sequence[Swapped]) -> list[Score]:
        """Returns [label before, label after, change of the probability of the label before]."""
        predictor = subject.predictor
        results: list[Score] = []
        texts = [text for one in items for text in (one.before, one.after)]
        answers = [answer for _, answer in predictor.stream(texts)]
        for before, after in zip(answers[::2], answers[1::2], strict=True):
            if isinstance(before, BadRecord) or isinstance(after, BadRecord):
                results.append(f"longer than {predictor.max_length} tokens")
                continue
            label = str(before.label)
            change = after.label_probabilities.get(label, 0.0) - before.label_probabilities.get(label, 0.0)
            results.append([label, str(after.label), float(change)])
        return results

    def measures(self, items: Sequence[Swapped], scores: Sequence[Score]) -> dict[str, AuditMeasure]:
        """Returns flips and the mean absolute change of the probability, for every list."""
        measures: dict[str, AuditMeasure] = {}
        for name in dict.fromkeys(one.list for one in items):
            rows = [score for one, score in zip(items, scores, strict=True) if one.list == name]
            measures[f"{name}: flips"] = fraction(sum(a != b for a, b, _ in rows), len(rows), neutral=None)
            changes = [100 * abs(change) for *_, change in rows if change is not None]
            measures |= mean_of(f"{name}: mean change of the probability", changes) if changes else {}
        return measures

    def shuffled(
        self, items: Sequence[Swapped], scores: Sequence[Score], rng: np.random.Generator
    ) -> tuple[Sequence[Swapped], Sequence[Score]]:
        """Gives each text the exchanged form of another text of its list. Probabilities are not known then."""
        mixed = list(scores)
        for name in dict.fromkeys(one.list for one in items):
            rows = [i for i, one in enumerate(items) if one.list == name]
            for i, other in zip(rows, rng.permutation(rows).tolist(), strict=True):
                mixed[i] = [scores[i][0], scores[other][1], None]
        return items, mixed

    def examples(self, items: Sequence[Swapped], scores: Sequence[Score]) -> FigureExamples:
        """Returns the flips with the largest changes."""
        flips = [(one, score) for one, score in zip(items, scores, strict=True) if score[0] != score[1]]
        flips.sort(key=lambda row: row[1][2])
        rows: list[list[Any]] = [
            [" | ".join(one.before.texts)[:400], " | ".join(one.after.texts)[:400], *score[:2]]
            for one, score in flips[:_EXAMPLES_SHOWN]
        ]
        return FigureExamples("The flips with the largest changes", ("text", "exchanged", "predicted", "then"), rows)


@cache
def read_lists(path: Path) -> dict[str, Swaps]:
    """Returns the lists of pairs of a YAML file: {"swaps": {name: [[word, partner], ...]}}."""
    lists = SourceFile(path).yaml().get("swaps")
    if not isinstance(lists, dict) or not lists:
        raise DataError(f"{path}: swaps must name lists of pairs. See: bertie help audit.")
    swaps_by_name = {}
    for name, pairs in lists.items():
        good = isinstance(pairs, list) and all(isinstance(one, list) and len(one) == 2 for one in pairs)
        if not good or not all(isinstance(word, str) and word.strip() for one in pairs for word in one):
            raise DataError(f"{path}: {name} must be a list of pairs of words: [[he, she], ...].")
        swaps_by_name[str(name)] = Swaps.of((first.strip(), second.strip()) for first, second in pairs)
    return swaps_by_name
