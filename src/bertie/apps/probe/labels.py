"""Probes that predict a label from a vector: logistic regression, with a control task.

The control task gives every word (every first word of a sentence) a random label. The label is the same in training
and test (Hewitt and Liang 2019, arXiv:1909.03368). A probe that learns this task has memorized words. Selectivity is
the difference.

W words · H hidden size · N items · S sentences
"""

import random
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertie.apps.probe.pooling import pooled
from bertie.apps.probe.sentences import Sentence, spaced_sentence
from bertie.platform import tag_entities

FEWEST_WORDS = 5  # of a sentence whose order is probed
_BINS = 6  # of sentence length


@dataclass(frozen=True)
class Items:
    """What a probe classifies.

    rows (N, 2): first and last + 1 row of the words whose mean is the item's vector. labels, keys (N,): the label, and
    the word that the control task gives a label to. sentence (N,): the sentence of each, of `sentences` ones.
    """

    rows: NDArray[np.int64]
    labels: NDArray[np.str_]
    keys: NDArray[np.str_]
    sentence: NDArray[np.int64]
    sentences: int

    def vectors(self, words: NDArray[np.float32]) -> NDArray[np.float32]:
        """Returns the vectors of the items. words (W, H) -> (N, H)"""
        starts, ends = self.rows.T
        if (ends == starts + 1).all():
            rows: NDArray[np.float32] = words[starts]
            return rows
        sizes = ends - starts
        inside = np.concatenate([np.arange(start, end) for start, end in self.rows])
        return pooled(words[inside], np.repeat(np.arange(len(sizes)), sizes))


def _items(rows: Sequence[tuple[int, int, str, str, int]], sentences: int) -> Items:
    """rows: first row, last + 1, label, key, sentence"""
    first, last, labels, keys, numbers = zip(*rows, strict=True) if rows else ((),) * 5
    bounds = np.array([first, last], np.int64).T
    return Items(bounds, np.array(labels, np.str_), np.array(keys, np.str_), np.array(numbers, np.int64), sentences)


def label_words(values: Callable[[Sentence], Sequence[str]]) -> Callable[[Sequence[Sentence]], Items]:
    """Returns what makes an item of each word that has a value. The control task labels words."""

    def items(sentences: Sequence[Sentence]) -> Items:
        rows, row = [], 0
        for number, sentence in enumerate(sentences):
            for word, value in zip(sentence.words, values(sentence), strict=False):
                rows.append((row, row + 1, value, word, number))
                row += 1
            row += len(sentence.words) - len(values(sentence))
        return _items(rows, len(sentences))

    return items


def mentions(sentences: Sequence[Sentence]) -> Items:
    """Makes an item of each tagged name: the mean of its words. The control task labels names."""
    rows, row = [], 0
    for number, sentence in enumerate(sentences):
        for kind, start, end in tag_entities(sentence.tags):
            rows.append((row + start, row + end, kind, " ".join(sentence.words[start:end]), number))
        row += len(sentence.words)
    return _items(rows, len(sentences))


def orders(sentences: Sequence[Sentence]) -> Items:
    """Makes an item of each sentence, the first half in order and the second half shuffled (`with_shuffled`)."""
    half = len(sentences) // 2
    rows = [
        (n, n + 1, "shuffled" if n >= half else "in order", sentence.words[0].lower(), n % half)
        for n, sentence in enumerate(sentences)
    ]
    return _items(rows, half)


def lengths(sentences: Sequence[Sentence]) -> Items:
    """Makes an item of each sentence in order. The label is the number of words; `binned` makes it a range."""
    half = len(sentences) // 2
    rows = [
        (n, n + 1, str(len(sentence.words)), sentence.words[0].lower(), n)
        for n, sentence in enumerate(sentences[:half])
    ]
    return _items(rows, half)


def with_shuffled(sentences: Sequence[Sentence], seed: int) -> list[Sentence]:
    """Returns the sentences of at least FEWEST_WORDS words, and after them the same with their words shuffled.

    All of them have a space between words, so that only the order differs.
    """
    rng = random.Random(seed)
    long = [list(one.words) for one in sentences if len(set(one.words)) >= FEWEST_WORDS]
    mixed = []
    for words in long:
        order = list(words)
        while order == words:
            rng.shuffle(order)
        mixed.append(order)
    return [spaced_sentence(words) for words in (*long, *mixed)]


def binned_items(train: Items, test: Items) -> tuple[Items, Items]:
    """Returns items whose numbers became ranges that are equally frequent in training."""
    numbers = train.labels.astype(np.int64)
    edges = np.unique(np.quantile(numbers, np.linspace(0, 1, _BINS + 1)[1:-1], method="higher"))

    def with_names(items: Items) -> Items:
        places = np.searchsorted(edges, items.labels.astype(np.int64), "right")
        return Items(items.rows, places.astype(np.str_), items.keys, items.sentence, items.sentences)

    return with_names(train), with_names(test)


def unchanged(train: Items, test: Items) -> tuple[Items, Items]:
    """Returns the items as they are."""
    return train, test


def control_labels(train: Items, test: Items, seed: int) -> tuple[NDArray[np.str_], NDArray[np.str_]]:
    """Returns a random label for each key, drawn as often as labels occur in training, for both sets."""
    keys = np.unique(np.concatenate([train.keys, test.keys]))
    drawn = np.random.default_rng(seed).choice(train.labels, len(keys))
    return drawn[np.searchsorted(keys, train.keys)], drawn[np.searchsorted(keys, test.keys)]


def predicted_labels(
    train: NDArray[np.float32], labels: NDArray[np.str_], test: NDArray[np.float32]
) -> NDArray[np.str_]:
    """Returns the labels that a logistic regression predicts (L2, C = 1). train (N, H), test (M, H) -> (M,)

    Every dimension is scaled to mean 0 and variance 1 in training.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    if len(np.unique(labels)) < 2:
        return np.full(len(test), labels[0])
    mean, scale = train.mean(0), train.std(0) + 1e-6
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a hundred steps are enough, and the same for all
        probe = LogisticRegression(max_iter=100).fit((train - mean) / scale, labels)
    predicted: NDArray[np.str_] = probe.predict((test - mean) / scale)
    return predicted


def item_counts(items: Items, predicted: NDArray[np.str_], truth: NDArray[np.str_]) -> NDArray[np.float64]:
    """Returns for each sentence the number of items that are right, and of all. -> (S, 2)"""
    right = np.bincount(items.sentence, predicted == truth, minlength=items.sentences)
    return np.stack([right, np.bincount(items.sentence, minlength=items.sentences)], -1).astype(np.float64)
