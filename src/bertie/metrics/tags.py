"""Metrics of tags and their entities, in BIO, IOB1 and BIOES: F1 over entities, accuracy of tags.

An entity is a type with the words start to end. Reading is conlleval's, the script of CoNLL-2000 and 2003, which
seqeval follows: an I or E that cannot continue the tag before it starts an entity. `strict` counts those alone that
open as the scheme demands (KLUE-NER) and, in BIOES, end so. A tag without a prefix, such as a part of speech, is an
entity of one word. Prefixes alone (B, I, O) mark entities of one type without a name, as key phrases.

N sentences · K counts
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from bertie.files import JsonObject
from bertie.metrics.base import Float, MetricsOf, Units
from bertie.metrics.confusion import MATRIX, most_confused
from bertie.metrics.resample import Bootstrap, triples

if TYPE_CHECKING:
    from scipy import sparse

OUTSIDE = "O"
Scheme = Literal["as_given", "bio", "bioes", "iob1"]
_Tags = Sequence[str]
PREFIXES = ("B", "I", "E", "S")
_NAMELESS = "_"  # the type of a prefix alone, as seqeval calls it


class Entity(NamedTuple):
    """An entity: a type, with the words start to end (exclusive)."""

    type: str
    start: int
    end: int


def split_tag(tag: str) -> tuple[str, str]:
    """The prefix and the type of a tag: B-PER -> B, PER; B -> B, _; O -> O, ""; NOUN -> S, NOUN."""
    if tag == OUTSIDE:
        return OUTSIDE, ""
    if tag in PREFIXES:
        return tag, _NAMELESS
    return (tag[0], tag[2:]) if tag[1:2] == "-" and tag[0] in PREFIXES else ("S", tag)


def tag_of(prefix: str, type: str) -> str:
    """The inverse of `split_tag`: B, PER -> B-PER; B, _ -> B."""
    return prefix if type == _NAMELESS else f"{prefix}-{type}"


def renamed(tag: str, names: Mapping[str, str]) -> str:
    """Returns a tag by its new name, or with that of its type: with PER=person, B-PER -> B-person; with PER=O, O."""
    prefix, type = split_tag(tag)
    if tag in names or type not in names:
        return names.get(tag, tag)
    return OUTSIDE if names[type] == OUTSIDE else tag_of(prefix, names[type])


def tag_entities(tags: _Tags, *, strict: bool = False, closed: bool = False) -> list[Entity]:
    """The entities of one sentence, in order, as seqeval has them.

    strict: only those whose first tag is B or S, as in its strict mode of IOB2; closed: and the last E or S, of IOBES.
    """
    entities: list[Entity] = []
    before, of, start, in_scheme = OUTSIDE, "", 0, False
    for i, tag in enumerate([*tags, OUTSIDE]):
        prefix, type = split_tag(tag)
        if prefix in "IE" and before in "BI" and type == of:
            before = prefix
            continue
        if before != OUTSIDE and (in_scheme or not strict) and (before in "ES" or not closed):
            entities.append(Entity(of, start, i))
        before, of, start, in_scheme = prefix, type, i, prefix in "BS"
    return entities


def rewrite(tags: _Tags, scheme: Scheme) -> list[str]:
    """Returns the tags of the same entities in another scheme."""
    if scheme == "as_given":
        return list(tags)
    written, last = [OUTSIDE] * len(tags), Entity("", -1, -1)
    for entity in tag_entities(tags):
        type, start, end = entity
        touches = (last.type, last.end) == (type, start)
        first = "B" if scheme != "iob1" or touches else "I"
        written[start:end] = [tag_of(first, type), *[tag_of("I", type)] * (end - start - 1)]
        if scheme == "bioes":
            written[end - 1] = tag_of("S" if end - start == 1 else "E", type)
        last = entity
    return written


def inside(tag: str) -> str:
    """Returns the tag of a further part of the same entity: B-PER -> I-PER. O and tags without a prefix stay."""
    prefix, type = split_tag(tag)
    return tag_of("I", type) if prefix in "BS" and tag_of(prefix, type) == tag else tag


@dataclass
class TagScores(Units):
    """Counter of true and predicted tags by sentence.

    Its metrics are precision, recall and f1 of all entities; macro_f1, the mean over types; accuracy of tags; and
    tag_macro_f1, the mean F1 of the tags except O, which for character tags is KLUE-NER's character F1.

    labels: of the model; an unknown tag is an error. strict: how entities are read, as in `entities`. scheme: that of
    the predicted tags, to which the true ones are converted.
    """

    labels: tuple[str, ...]
    strict: bool = False
    scheme: Scheme = "as_given"
    sentences: list[dict[tuple[str, str], list[int]]] = field(default_factory=list)
    """Per sentence: ("entity" or "tag", name) -> correct, predicted, true."""
    confused: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(true, predicted) types of entities with a common word; "" where there is none."""

    @property
    def total(self) -> int:
        """The number of sentences."""
        return len(self.sentences)

    def add(self, truth: Iterable[_Tags], predicted: Iterable[_Tags]) -> None:
        """Counts more sentences. Raises ValueError when the numbers of words differ."""
        for true, tags_given in zip(truth, predicted, strict=True):
            true = rewrite(true, self.scheme)
            counts: dict[tuple[str, str], list[int]] = {}
            read = partial(tag_entities, strict=self.strict, closed=self.strict and self._bioes)
            true_entities, given_entities = read(true), read(tags_given)
            right = set(true_entities) & set(given_entities)
            for column, entities in enumerate((right, given_entities, true_entities)):
                for entity in entities:
                    counts.setdefault(("entity", entity.type), [0, 0, 0])[column] += 1
            self.confused.update(_confused(true_entities, given_entities))
            for t, g in zip(true, tags_given, strict=True):
                counts.setdefault(("tag", g), [0, 0, 0])[1] += 1
                counts.setdefault(("tag", t), [0, 0, 0])[2] += 1
                counts["tag", g][0] += t == g
            self.sentences.append(counts)

    def report(self) -> JsonObject:
        """Returns every metric with its interval over resampled sentences, and the metrics of each type of entity."""
        keys = self._keys()
        counts, of_sums = self.units()
        sums = counts.sum(0).reshape(-1, 3)
        types = [i for i, (kind, _) in enumerate(keys) if kind == "entity"]
        tags = {name: sums[i] for i, (kind, name) in enumerate(keys) if kind == "tag"}
        names_given = [name for name, (_, predicted, _) in tags.items() if predicted]
        return {
            "examples": self.total,
            **self.compute(),
            "interval_95": Bootstrap(counts).intervals(of_sums),
            "words": int(sum(true for _, _, true in tags.values())),
            "labels": (names := [keys[i][1] for i in types]),
            "confusion": [[self.confused[true, answer] for answer in (*names, "")] for true in (*names, "")]
            if len(names) <= MATRIX
            else None,
            "most_confused": most_confused(self.confused),
            "per_label": {
                keys[i][1]: {
                    "precision": float(_ratio(sums[i, 0], sums[i, 1])),
                    "recall": float(_ratio(sums[i, 0], sums[i, 2])),
                    "f1": float(_f1(sums[i])),
                    "examples": int(sums[i, 2]),
                }
                for i in types
            },
            "unknown_labels": {n: int(true) for n, (_, _, true) in tags.items() if true and n not in self.labels},
            "all_given": names_given[0]
            if len(names_given) == 1 and sum(true > 0 for _, _, true in tags.values()) > 1
            else None,
            "undefined": {}
            if any(sums[i, 2] for i in types)
            else dict.fromkeys(("f1", "recall", "macro_f1", "tag_macro_f1"), "no sentence has an entity"),
        }

    def units(self) -> tuple["sparse.csr_array", MetricsOf]:
        """Returns per sentence and key: correct, predicted, true. (N, 3 K)"""
        keys = self._keys()
        return triples(self.sentences, keys), partial(self._metrics_of, keys=keys)

    @cached_property
    def _bioes(self) -> bool:
        """Whether the labels end their entities: whether one begins with E, or with an S, an entity of one word."""
        return any(label[:1] in ("E", "S") and label[1:2] in ("", "-") for label in self.labels)

    def _keys(self) -> list[tuple[str, str]]:
        return sorted({key for counts in self.sentences for key in counts})

    def _metrics_of(self, sums: Float, keys: Sequence[tuple[str, str]]) -> dict[str, Float]:
        sums_K3 = sums.reshape(*sums.shape[:-1], len(keys), 3)
        entity = np.array([kind == "entity" for kind, _ in keys], bool)
        inner = np.array([kind == "tag" and name != OUTSIDE for kind, name in keys], bool)
        of_entities, of_tags = sums_K3[..., entity, :], sums_K3[..., ~entity, :]
        both, tags = of_entities.sum(-2), of_tags.sum(-2)
        return {
            "f1": _f1(both),
            "precision": _ratio(both[..., 0], both[..., 1]),
            "recall": _ratio(both[..., 0], both[..., 2]),
            "macro_f1": _mean(of_entities),
            "accuracy": _ratio(tags[..., 0], tags[..., 2]),
            "tag_macro_f1": _mean(sums_K3[..., inner, :]),
        }


def _confused(truth: Sequence[Entity], predicted: Sequence[Entity]) -> Iterator[tuple[str, str]]:
    """Returns the types of entities with a common word, first those with the same words; "" where there is no other."""
    owner = {word: entity for entity in predicted for word in range(entity.start, entity.end)}
    met = set()
    for entity in truth:
        others = [owner[word] for word in range(entity.start, entity.end) if word in owner]
        other = min(others, key=lambda one: one[1:] != entity[1:], default=None)
        met.update(others)
        yield entity.type, other.type if other else ""
    for entity in predicted:
        if entity not in met:
            yield "", entity.type


def _f1(counts: Float) -> Float:
    return _ratio(2 * counts[..., 0], counts[..., 1] + counts[..., 2])


def _mean(counts: Float) -> Float:
    """Returns the mean F1 over the rows that occur, predicted or true. (..., K, 3) -> (...)"""
    occurs = (counts[..., 1] + counts[..., 2]) > 0
    return _ratio((_f1(counts) * occurs).sum(-1), occurs.sum(-1))


def _ratio(above: Float, below: Float) -> Float:
    below = np.asarray(below, np.float64)
    return np.divide(above, below, out=np.zeros(np.broadcast(above, below).shape), where=below > 0)
