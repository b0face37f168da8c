"""How often a head attends from a word to its syntactic head: heads beside dependency relations.

    for each word   the word it attends to most, and the word that attends to it most, by every head
    right           that word is the word's head in the tree

Attention to a split word is the sum over its tokens, and attention from it is their mean. Words do not count for
themselves, and special tokens do not count. Clark et al. 2019, 4.2.

The best head of a relation is chosen on one half of the sentences and scored on the other, and the reverse. Three
baselines are chosen in the same way: the best fixed offset, the best head of a model with random weights, and the best
head for a control task. In the control task (after Hewitt and Liang 2019), every word points to a distance drawn from
those of its relation.

L layers · N heads · S tokens · W words of a sentence
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

from bertie.apps.explain.attention import Floats, HeadStatistics, attentions
from bertie.platform import Example, ModelInternals, TorchModel, UsageError

ALL, LEFT_OUT = "all", "punct"  # every relation but punctuation; a root has no head
OFFSETS = tuple(offset for offset in range(-10, 11) if offset)
_WAYS = ("to its head", "from its head")
_MIN_WORDS = 50  # words of a relation that is shown


def word_attention(probs_LNSS: Floats, first_W: NDArray[np.int64], last_W: NDArray[np.int64]) -> Floats:
    """Returns attention between words: sums over the tokens of the word attended to, means over those of the other.

    first_W, last_W: the first and the last token of each word. -> (L, N, W, W)
    """
    at = np.arange(probs_LNSS.shape[-1])
    of_word_WS = ((at >= first_W[:, None]) & (at <= last_W[:, None])).astype(probs_LNSS.dtype)
    words_LNWW: Floats = (of_word_WS / of_word_WS.sum(1, keepdims=True)) @ probs_LNSS @ of_word_WS.T
    return words_LNWW


def guess_words(words_LNWW: Floats) -> NDArray[np.int64]:
    """Returns the word that each word attends to most, and the word that attends to it most. -> (2, L, N, W)"""
    others = words_LNWW.copy()
    at = np.arange(others.shape[-1])
    others[..., at, at] = -1.0
    guesses: NDArray[np.int64] = np.stack([others.argmax(-1), others.argmax(-2)])
    return guesses


NO_HEAD = -1  # of a word whose head is not read


@dataclass
class RelationCount:
    """The words of one relation, and how many each guess gets right. The first axis is the half of the sentences."""

    words: NDArray[np.int64]  # (2,)
    right: NDArray[np.int64]  # (2, ...)

    def crossed(self) -> int:
        """Returns the right guesses of the best one, chosen on one half and counted on the other, both ways."""
        flat = self.right.reshape(2, -1)
        return int(flat[1, flat[0].argmax()] + flat[0, flat[1].argmax()])

    def best(self) -> tuple[int, ...]:
        """Returns the place of the best guess over both halves."""
        whole = self.right.sum(0)
        return tuple(map(int, np.unravel_index(int(whole.argmax()), whole.shape)))


@dataclass
class RelationCounts:
    """Counts by relation: of heads, of offsets, and of heads on the control task."""

    heads: dict[str, RelationCount] = field(default_factory=dict)
    offsets: dict[str, RelationCount] = field(default_factory=dict)
    control: dict[str, RelationCount] = field(default_factory=dict)
    sentences: int = 0

    def add(self, table: str, relation: str, half: int, right_XW: NDArray[np.bool_]) -> None:
        """Counts the guesses (..., W) of some words of a relation."""
        counts: dict[str, RelationCount] = getattr(self, table)
        for name in (relation, *((ALL,) if relation != LEFT_OUT else ())):
            shape = (2, *right_XW.shape[:-1])
            count = counts.setdefault(name, RelationCount(np.zeros(2, np.int64), np.zeros(shape, np.int64)))
            count.words[half] += right_XW.shape[-1]
            count.right[half] += right_XW.sum(-1)


def control_heads(examples: Sequence[Example], seed: int = 0) -> list[NDArray[np.int64]]:
    """Returns the heads of the control task for each sentence, from 0; NONE outside the sentence and for roots.

    The distances of a relation are dealt to its words at random: how far heads are is kept, and which word belongs to
    which is not.
    """
    distances: dict[str, list[int]] = defaultdict(list)
    for example in examples:
        for place, (head, relation) in enumerate(example.label):
            if head:
                distances[relation].append(head - 1 - place)
    rng = np.random.default_rng(seed)
    dealt = {relation: iter(rng.permutation(one).tolist()) for relation, one in distances.items()}
    heads = []
    for example in examples:
        count = len(example.label)
        at = [place + next(dealt[name]) if head else NO_HEAD for place, (head, name) in enumerate(example.label)]
        heads.append(np.array([one if 0 <= one < count else NO_HEAD for one in at], np.int64))
    return heads


def count_relations(
    model: TorchModel,
    examples: Sequence[Example],
    *,
    max_length: int,
    statistics: HeadStatistics | None = None,
) -> RelationCounts:
    """Counts the right guesses of every head for every relation of parsed sentences (io/conll.py).

    Words that are cut at max_length, and words whose head is cut, do not count. statistics: also receives the
    attention. Raises UsageError as `attentions`.
    """
    counts, control = RelationCounts(), control_heads(examples)
    for number, (read, probs_LNSS, ids, first, last) in enumerate(_read(model, examples, max_length)):
        if statistics is not None:
            statistics.add(probs_LNSS, ids)
        if len(read) < 2:
            continue
        counts.sentences += 1
        place_of = {int(word): place for place, word in enumerate(read)}
        guess = guess_words(word_attention(probs_LNSS, first, last))
        by_relation: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
        for place, word in enumerate(read.tolist()):
            head, relation = examples[number].label[word]
            if head - 1 in place_of:
                drawn = place_of.get(int(control[number][word]), NO_HEAD)
                by_relation[relation].append((place, place_of[head - 1], drawn))
        for relation, rows in by_relation.items():
            at, true, drawn_W = np.array(rows).T
            counts.add("heads", relation, number % 2, guess[..., at] == true)
            counts.add("offsets", relation, number % 2, np.array(OFFSETS)[:, None] + at == true)
            pointed = drawn_W != NO_HEAD
            counts.add("control", relation, number % 2, guess[..., at[pointed]] == drawn_W[pointed])
    return counts


def _read(
    model: TorchModel, examples: Sequence[Example], max_length: int
) -> Iterator[tuple[NDArray[np.int64], Floats, list[int], NDArray[np.int64], NDArray[np.int64]]]:
    """Yields for each sentence the words that are read, the attention, the ids, and the words' tokens."""
    encoded, first_N, last_N = ModelInternals(model).word_places(examples, max_length=max_length)
    at = 0
    for number, example in enumerate(examples):
        start, end = encoded.starts[number : number + 2].tolist()
        rows = slice(at, at + len(example.label))
        at = rows.stop
        read = np.flatnonzero(first_N[rows] != NO_HEAD)
        ids, types = encoded.input_ids[start:end].tolist(), encoded.token_type_ids[start:end].tolist()
        probs = attentions(model, ids, types)
        yield read, probs, ids, first_N[rows][read] - start, last_N[rows][read] - start


def list_relations(counts: RelationCounts, random: RelationCounts, least: int = _MIN_WORDS) -> list[dict[str, Any]]:
    """Returns one record for each relation with at least this many words, the largest gain over the offset first.

    A record has the accuracy of the best head, with its 95% interval. It also has the accuracies of the best offset, of
    the random model's best head, and of the best head on the control task. Raises UsageError where no relation has as
    many words.
    """
    rows = []
    for relation, count in counts.heads.items():
        words = int(count.words.sum())
        if words < least or not count.words.all():
            continue
        way, layer, head = count.best()
        right = count.crossed()
        control = counts.control[relation]
        rows.append(
            {
                "relation": relation,
                "words": words,
                "head": f"{layer + 1}.{head + 1}",
                "way": _WAYS[way],
                "accuracy": right / words,
                "interval_95": [*binomtest(right, words).proportion_ci(method="wilson")],
                "offset": OFFSETS[counts.offsets[relation].best()[0]],
                "offset_accuracy": counts.offsets[relation].crossed() / words,
                "random_accuracy": _accuracy(random.heads, relation),
                "control_accuracy": control.crossed() / max(1, int(control.words.sum())),
            }
        )
    if not rows:
        raise UsageError(f"No relation has {least} words in each half of the file. Pass a larger file.")
    return sorted(rows, key=lambda row: (row["relation"] != ALL, row["offset_accuracy"] - row["accuracy"]))


def _accuracy(counts: Mapping[str, RelationCount], relation: str) -> float | None:
    count = counts.get(relation)
    return count.crossed() / int(count.words.sum()) if count else None
