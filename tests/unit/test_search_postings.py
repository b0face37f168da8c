"""Postings in arrays against a plain version: lists of terms, and BM25 as its formula says."""

import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from bertie.apps.search import postings
from bertie.apps.search.check import verify_index
from bertie.apps.search.index import drop_documents, index
from bertie.apps.search.postings import Postings, pack_postings, unpack_postings
from bertie.apps.search.store import Store
from bertie.errors import DataError


def plain(passages: dict[int, list[str]], wanted: Counter[str]) -> dict[int, float]:
    """BM25 of Lucene over lists of terms."""
    mean = sum(map(len, passages.values())) / len(passages)
    scores = dict.fromkeys(passages, 0.0)
    for term, weight in wanted.items():
        holds = sum(term in terms for terms in passages.values())
        idf = math.log(1 + (len(passages) - holds + 0.5) / (holds + 0.5))
        for i, terms in passages.items():
            times = terms.count(term)
            scores[i] += weight * idf * times * 2.2 / (times + 1.2 * (0.25 + 0.75 * len(terms) / mean))
    return {i: score for i, score in scores.items() if score > 0}


@pytest.mark.parametrize("block", [4, 16, 1 << 16])
def test_after_any_changes_scores_are_those_of_the_plain_version(
    tmp_path: Path, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postings, "POSTINGS_BLOCK", block)
    rng = np.random.default_rng(block)
    store = Store(tmp_path, write=True)
    words, passages, last = store.words, dict[int, list[str]](), 0
    for change in range(30):
        gone = [i for i in passages if rng.random() < 0.3]
        for i in gone:
            del passages[i]
        words.remove(gone)
        for _ in range(int(rng.integers(0, 12))):
            last += int(rng.integers(1, 3))  # numbers are left out
            passages[last] = [f"t{n}" for n in rng.zipf(1.5, int(rng.integers(1, 12))) % 20]
            words.add(last, passages[last])
        words.flush()
        wanted = Counter({"t1": 1, "t2": 2, "t7": 1, "nowhere": 1})
        found = words.best(wanted, 5, words.state(change))
        expected = plain(passages, wanted) if passages else {}
        order = sorted(expected, key=lambda i: -expected[i])[:5]
        assert [score for _, score in found] == pytest.approx([expected[i] for i in order], rel=1e-5)
        assert all(score == pytest.approx(expected[i], rel=1e-5) for i, score in found)
        assert words.mean_length() == pytest.approx(np.mean([len(t) for t in passages.values()] or [0]))
    store.close()


def test_removed_passages_leave_the_arrays_when_they_are_the_most(tmp_path: Path) -> None:
    store = Store(tmp_path, write=True)
    for i in range(1, 11):
        store.words.add(i, ["all", f"own{i}"])
    store.words.flush()
    store.words.remove([1, 2, 3, 4, 5])
    assert {term: len(rows) for term, rows, _ in store.words.of_block(0)}["all"] == 10
    store.words.remove([6])
    left = {term: rows.tolist() for term, rows, _ in store.words.of_block(0)}
    assert left == {"all": [7, 8, 9, 10], **{f"own{i}": [i] for i in (7, 8, 9, 10)}}
    store.words.remove([7, 8, 9, 10])
    assert store.words.blocks() == [] and [*store.words.of_block(0)] == []  # noqa: PT018
    store.close()


def test_arrays_are_unpacked_as_they_were_packed() -> None:
    for rows in ([], [0], [0, 1, 65_535]):
        times = [min(255, 1 + row) for row in rows]
        assert [one.tolist() for one in unpack_postings(pack_postings(rows, times))] == [rows, times]


def test_passages_without_terms_are_found_by_no_word_and_can_be_removed(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in ("?!", "...")))
    (tmp_path / "b.jsonl").write_text(json.dumps({"text": "word " * 300}) + "\n")  # more often than is counted
    index([str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")], tmp_path / "index")
    assert verify_index(tmp_path / "index")["damage"] == []
    drop_documents([str(tmp_path / "a.jsonl")], tmp_path / "index")
    store = Store(tmp_path / "index")
    assert len(store.matches(["word"], 9)) == store.count("passages")
    store.close()


def test_damaged_postings_are_found_and_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("The Nile is a river.")
    index([str(tmp_path / "a.txt")], tmp_path / "index")
    for data, told in (
        (pack_postings([1], [9]), "of passage 1 are damaged"),
        (pack_postings([99], [1]), "cannot be read"),
    ):
        store = Store(tmp_path / "index", write=True)
        with store.writing():
            store.db.execute("UPDATE postings SET rows = ? WHERE term = 'nile'", (data,))
        store.close()
        assert any(told in line for line in verify_index(tmp_path / "index")["damage"])
    store = Store(tmp_path / "index", write=True)
    with pytest.raises(DataError, match="is damaged"):
        store.matches(["nile"], 3)
    for change, told in (("DELETE FROM blocks", "passage 1 has no postings"), ("DELETE FROM passages", "")):
        with store.writing():
            store.db.execute(change)
        damage = verify_index(tmp_path / "index")["damage"]
        assert told in damage[0] if told else damage == []
    store.close()


def test_readers_keep_the_norms_of_a_state(tmp_path: Path) -> None:
    store = Store(tmp_path, write=True)
    words: Postings = store.words
    words.add(1, ["a"])
    words.flush()
    first = words.state(1)
    assert words.state(1) is first
    words.add(2, ["a", "b"])
    words.flush()
    assert words.state(2).passages == 2
    store.close()
