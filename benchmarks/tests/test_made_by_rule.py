"""Pairs and documents that benchmarks make by rule are what their tables say."""

import random
import re
from collections import Counter

import pytest

from benchmarks.long_documents import BAD, GOOD, documents
from benchmarks.prepositions import KINDS, pairs, right_first


@pytest.mark.parametrize("name", KINDS)
def test_both_passages_have_the_same_words_and_nobody_learns_from_the_tested_ones(name: str) -> None:
    tested = pairs(KINDS[name], 50, random.Random(0))
    assert len({(one.query, one.right) for one in tested}) == 50
    for one in tested:
        assert one.right != one.wrong
        assert Counter(re.findall(r"\w+", one.right)) == Counter(re.findall(r"\w+", one.wrong))
    taught = pairs(KINDS[name], 50, random.Random(0), taught=True)
    assert not {one.right for one in taught} & {text for one in tested for text in (one.right, one.wrong)}
    assert not set(KINDS[name].names[:10]) & {word for one in taught for word in one.right.split()}


@pytest.mark.parametrize(
    ("query", "right"),
    [("flights to kenya", "Flights from Peru to Kenya"), ("flights from peru", "Flights from Peru to Kenya")],
)
def test_a_query_means_the_passage_that_is_called_right(query: str, right: str) -> None:
    kind = KINDS["from or to"]
    same = [one for one in pairs(kind, 10_000, random.Random(0)) if one.query == query]
    assert right in {one.right.partition(" are ")[0] for one in same}


def test_equal_scores_count_as_half() -> None:
    some = pairs(KINDS["by or for"], 4, random.Random(0))
    assert right_first(lambda query, both: [0.0, 0.0], some) == 0.5
    assert right_first(lambda query, both: [1.0, 0.0], some) == 1.0


def test_the_deciding_sentence_is_beyond_the_first_quarter() -> None:
    sentences = [f"Sentence {number} has words of its own." for number in range(100)]
    for one in documents(sentences, 400, 20, random.Random(0)):
        words = one["text"].split()
        deciding = [place for place, word in enumerate(words) if word in (*GOOD, *BAD)]
        assert len(deciding) == 1
        assert deciding[0] > len(words) // 4
        assert (words[deciding[0]] in GOOD) == (one["label"] == "approved")
