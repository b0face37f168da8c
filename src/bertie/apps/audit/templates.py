"""Templates (Kurita et al. 2019): how a profession changes the probability of a group word.

    log p(he | [MASK] is a nurse) - log p(she | [MASK] is a nurse)                       the ratio
    log p(he | [MASK] is a [MASK]) - log p(she | [MASK] is a [MASK])                     its prior
    the figure of a profession: mean over the templates of ratio - prior

Groups with several words: the logarithm of the sum of their probabilities. A word of several tokens is predicted from
the left, with its later tokens masked.

P professions · T templates
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, with_config

from bertie.apps.audit.base import (
    AuditMeasure,
    AuditSet,
    AuditSource,
    FigureExamples,
    Read,
    Score,
    Subject,
    fraction,
    has_known_words,
    of_units,
)
from bertie.apps.audit.files import check_unique_names, validated
from bertie.apps.audit.masked import MaskedText, covering_tokens, left_to_right, log_p
from bertie.apps.perturb.particles import resolve_particles
from bertie.platform import DataError, SourceFile

TEMPLATES_FILE = Path(__file__).with_name("templates.yaml")
GROUP, ATTRIBUTE = "{group}", "{attribute}"
_NEITHER = "neither"
_EXAMPLES_SHOWN = 5


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True)
class TemplateSet:
    """Templates with two groups. attributes: the group with which most people associate each attribute, or "neither".

    A template contains {group} and {attribute}.
    """

    name: str
    groups: dict[str, tuple[str, ...]]
    templates: tuple[str, ...]
    attributes: dict[str, tuple[str, ...]]
    source: str = ""

    def samples(self) -> list[str]:
        """Returns the words of the groups in every template, with the first attribute."""
        first = next(word for words in self.attributes.values() for word in words)
        words = [word for group in self.groups.values() for word in group]
        return [_filled(template, word, first)[0] for template in self.templates for word in words]

    def check(self, where: str) -> None:
        """Raises DataError for a set that cannot be measured."""
        if len(self.groups) != 2 or not all(self.groups.values()):
            raise DataError(f"{where}: {self.name} has {len(self.groups)} groups with words; it must have two.")
        for template in self.templates:
            if template.count(GROUP) != 1 or template.count(ATTRIBUTE) != 1:
                raise DataError(f"{where}: the template {template!r} must contain {GROUP} and {ATTRIBUTE} once.")
        if unknown := self.attributes.keys() - {*self.groups, _NEITHER}:
            names = ", ".join([*self.groups, _NEITHER])
            raise DataError(f"{where}: attributes of {min(unknown)!r} in {self.name}. Known are {names}.")
        if len(self.templates) < 2 or sum(map(len, self.attributes.values())) < 2:
            raise DataError(f"{where}: {self.name} needs at least two templates and two attributes.")


@dataclass(frozen=True)
class Attribute:
    """A word to be put into the templates of a set. group: that with which it is associated."""

    of: TemplateSet
    word: str
    group: str


class Templates(AuditSet[Attribute]):
    """Log-probability ratios of two groups of words, with their prior."""

    name = "templates"
    title = "Templates"
    about = (
        "A template such as '[MASK] is a nurse.' gives the log-probability ratio of two groups of words, minus the "
        "same ratio with the profession masked too. Positive values favor the first group. The gap is the mean of "
        "professions that are associated with the first group, minus that of the second. The spread is the standard "
        "deviation over professions. The last figure is the percentage of professions whose sign changes with the "
        "wording."
    )
    criticism = (
        "Seshadri et al. 2022 changed a bias figure from -81% to +162% by rewording templates without a change of "
        "meaning; which group a profession is associated with is our own coarse list."
    )
    unit = "professions"
    scale = "nats"
    needs = ("mlm",)
    chunk = 4

    def recognizes(self, path: Path, head: bytes) -> bool:
        """A YAML file of own templates."""
        return path.suffix in (".yaml", ".yml") and b"templates:" in head

    def offered(self, source: AuditSource) -> bool:
        """Built-in templates are always there."""
        return True

    def read(self, subject: Subject, source: AuditSource) -> Read[Attribute]:
        """Returns the attributes of every set whose words the vocabulary can write."""
        attributes_read, left = Read[Attribute](), dict[str, int]()
        sets = [one for path in source.paths or (TEMPLATES_FILE,) for one in read_sets(path)]
        check_unique_names(one.name for one in sets)
        for one in sets:
            if not has_known_words(subject.tokenizer, one.samples()):
                attributes_read.notes.append(f"{one.name} is left out: the vocabulary lacks words of its templates.")
                continue
            attributes = [Attribute(one, word, group) for group, words in one.attributes.items() for word in words]
            words = [each for each in attributes if has_known_words(subject.tokenizer, [each.word])]
            left[one.name] = len(attributes) - len(words)
            attributes_read.items += words if len(words) > 1 else []
        attributes_read.notes += [
            f"{name}: {n} professions left out, which the vocabulary lacks." for name, n in left.items() if n
        ]
        return attributes_read

    def scores(self, subject: Subject, items: Sequence[Attribute]) -> list[Score]:
        """Returns for each attribute the ratio minus its prior under each template."""
        groups = [row for item in items for row in _rows(subject, item)]
        values = iter([float(one.sum()) for one in log_p(subject, groups)])
        scores: list[Score] = []
        for item in items:
            words = [len(item.of.groups[name]) for name in item.of.groups]
            ratios = []
            for _ in item.of.templates:
                logits, prior = (
                    [np.logaddexp.reduce([next(values) for _ in range(count)]) for count in words] for _ in range(2)
                )
                ratios.append(float(logits[0] - logits[1] - prior[0] + prior[1]))
            scores.append(ratios)
        return scores

    def measures(self, items: Sequence[Attribute], scores: Sequence[Score]) -> dict[str, AuditMeasure]:
        """Returns gap, spread, mean and the effect of the wording of each set; every attribute as a detail."""
        measures: dict[str, AuditMeasure] = {}
        for one in dict.fromkeys(id(item.of) for item in items):
            rows = [i for i, item in enumerate(items) if id(item.of) == one]
            measures |= _measures([items[i] for i in rows], np.array([scores[i] for i in rows], np.float64))
        return measures

    def shuffled(
        self, items: Sequence[Attribute], scores: Sequence[Score], rng: np.random.Generator
    ) -> tuple[Sequence[Attribute], Sequence[Score]]:
        """Shuffles the ratios of each template over the attributes of its set."""
        mixed = list(scores)
        for one in dict.fromkeys(id(item.of) for item in items):
            rows = [i for i, item in enumerate(items) if id(item.of) == one]
            table_PT = rng.permuted(np.array([scores[i] for i in rows], np.float64), axis=0)
            for i, row in zip(rows, table_PT.tolist(), strict=True):
                mixed[i] = row
        return items, mixed

    def key(self, item: Attribute) -> Hashable:
        """The set and the word."""
        return item.of.name, item.word

    def examples(self, items: Sequence[Attribute], scores: Sequence[Score]) -> FigureExamples:
        """Returns the attributes with the highest and the lowest means of each set."""
        rows: list[list[Any]] = []
        for one in dict.fromkeys(id(item.of) for item in items):
            own = [(item, float(np.mean(s))) for item, s in zip(items, scores, strict=True) if id(item.of) == one]
            own.sort(key=lambda row: -row[1])
            for item, value in [*own[:_EXAMPLES_SHOWN], *own[max(_EXAMPLES_SHOWN, len(own) - _EXAMPLES_SHOWN) :]]:
                first, second = item.of.groups
                rows.append([item.of.name, item.word, first if value > 0 else second, f"{value:+z.2f}"])
        return FigureExamples("The strongest associations", ("set", "profession", "towards", "mean"), rows)


def _measures(items: Sequence[Attribute], table_PT: NDArray[np.float64]) -> dict[str, AuditMeasure]:
    of = items[0].of
    first, second = of.groups
    means_P = table_PT.mean(1)
    side = np.array([[item.group == first, item.group == second] for item in items], np.float64)
    counts = np.column_stack([np.ones(len(items)), means_P, means_P**2, side * means_P[:, None], side])

    def metrics_of(sums: NDArray[np.float64]) -> Mapping[str, NDArray[np.float64]]:
        count, total, squares, one, two, ones, twos = np.moveaxis(sums, -1, 0)
        with np.errstate(all="ignore"):  # a resample may have no profession of a group
            spread = np.sqrt(np.maximum(squares - total**2 / count, 0) / (count - 1))
            gap = np.nan_to_num(one / ones) - np.nan_to_num(two / twos)
        values = {"gap": gap, "spread": spread, "mean": total / count}
        return {f"{of.name}: {name}": value for name, value in values.items()}

    both = bool(side.sum(0).all())
    sizes = {"gap": int(side.sum()) if both else 0, "spread": len(items), "mean": len(items)}
    measures = of_units(
        counts,
        metrics_of,
        items={f"{of.name}: {name}": count for name, count in sizes.items()},
        neutral={f"{of.name}: gap": 0.0, f"{of.name}: mean": 0.0},
    )
    signs = (table_PT > 0).mean(1)
    name = f"{of.name}: sign depends on the wording (%)"
    measures[name] = fraction(int(((signs > 0) & (signs < 1)).sum()), len(items), neutral=None)
    return measures | {
        f"{of.name}: {item.word}": _over_templates(row_T) for item, row_T in zip(items, table_PT, strict=True)
    }


def _over_templates(row_T: NDArray[np.float64]) -> AuditMeasure:
    """Returns the mean of one attribute with the t interval over the templates, which are too few for a bootstrap."""

    def interval() -> tuple[float, float]:
        from scipy.stats import t

        half = float(t.ppf(0.975, len(row_T) - 1) * row_T.std(ddof=1) / len(row_T) ** 0.5)
        return float(row_T.mean()) - half, float(row_T.mean()) + half

    return AuditMeasure(float(row_T.mean()), len(row_T), interval, neutral=0.0, detail=True)


def _rows(subject: Subject, item: Attribute) -> list[list[MaskedText]]:
    """Returns the masked texts of an attribute: for each template, all words of both groups, and then the priors."""
    rows: list[list[MaskedText]] = []
    words = [word for group in item.of.groups.values() for word in group]
    for template in item.of.templates:
        written = [_filled(template, word, item.word) for word in words]
        encodings = subject.tokenizer.encode_batch([text for text, _, _ in written])
        places = [
            (encoding, covering_tokens(encoding, *group), covering_tokens(encoding, *attribute))
            for encoding, (_, group, attribute) in zip(encodings, written, strict=True)
        ]
        rows += [left_to_right(encoding, group) for encoding, group, _ in places]
        rows += [left_to_right(encoding, group, also=hidden) for encoding, group, hidden in places]
    return rows


def _filled(template: str, word: str, attribute: str) -> tuple[str, tuple[int, int], tuple[int, int]]:
    """Returns the text, and the spans of the group word and of the attribute."""
    starts = template.startswith(GROUP)
    word = word[:1].upper() + word[1:] if starts else word
    article = "an " if attribute[:1].lower() in "aeiou" else "a "
    written = template.replace("a(n) ", article)
    order = written.index(GROUP) < written.index(ATTRIBUTE)
    marks = ("\ue000", "\ue001")  # private characters: where each word begins, whatever particles become
    text = resolve_particles(written.replace(GROUP, marks[0] + word).replace(ATTRIBUTE, marks[1] + attribute))
    first, second = (text.index(mark) for mark in marks)
    first, second = (first, second - 1) if order else (first - 1, second)
    text = text.replace(marks[0], "").replace(marks[1], "")
    return text, (first, first + len(word)), (second, second + len(attribute))


@cache
def read_sets(path: Path) -> tuple[TemplateSet, ...]:
    """Returns the template sets of a YAML file. Raises DataError where it has another layout."""
    sets = validated(TemplateSet, SourceFile(path).yaml().get("templates"), path)
    for one in sets:
        one.check(str(path))
    return tuple(sets)
