"""An index: what it finds, how it changes, and that a process killed at any write leaves it before or after."""

import json
import math
import os
import shutil
import signal
import sqlite3
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertie.apps.search import models
from bertie.apps.search import store as module
from bertie.apps.search.check import verify_index
from bertie.apps.search.index import IndexConfig, drop_documents, index
from bertie.apps.search.models import Embedder
from bertie.apps.search.postings import POSTINGS_BLOCK
from bertie.apps.search.searcher import SearchDepth, Searcher, by_ranks, by_scores
from bertie.apps.search.store import MAX_TERMS, Store
from bertie.apps.search.terms import Terms
from bertie.apps.search.vectors import VectorFile, find_nearest_rows, write_vectors
from bertie.errors import DataError, UsageError
from bertie.models.int8 import nearest_rows

TEXTS = {
    "rivers.txt": "The Nile is a river.\n\nThe Rhine flows through Basel and Cologne.",
    "sea.md": "# The sea\n\nTides rise twice a day. The moon pulls the water.",
    "세종.txt": "세종대왕은 훈민정음을 만들었다.\n\n한강은 서울을 흐른다.",
}


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    for name, text in TEXTS.items():
        (tmp_path / "docs" / name).write_text(text, encoding="utf-8")
    return tmp_path / "docs"


def state(folder: Path) -> list[Any]:
    """All that a reader sees."""
    store = Store(folder)
    rows = "SELECT d.source, d.number, p.start, p.text, p.id FROM passages p JOIN documents d ON d.id = p.document "
    terms: dict[int, dict[str, int]] = {}
    for block, lengths_N, _ in store.words.blocks():
        for term, held, times in store.words.of_block(block):
            for row, count in zip(held.tolist(), times.tolist(), strict=True):
                if lengths_N[row]:
                    terms.setdefault(block * POSTINGS_BLOCK + row, {})[term] = count
    stored = store.db.execute(rows + "ORDER BY 1, 2, 3").fetchall()
    found = [(*facts, sorted(terms.pop(i, {}).items())) for *facts, i in stored]
    vectors = sorted(
        (one.text, file.rows[at].tolist())
        for (name,) in store.db.execute("SELECT file FROM vectors").fetchall()
        for file in [VectorFile.open(folder / name)]
        for at, i in enumerate(file.ids.tolist())
        for one in store.passages([i])
    )
    facts = [store.get("passages"), *store.db.execute("SELECT * FROM sources ORDER BY 1").fetchall()]
    store.close()
    return [found, terms, vectors, facts]  # terms: those without a passage


def bag(embedder: object, texts: list[str], role: str = "") -> np.ndarray:
    """Vectors without a model: counts of letters."""
    found = np.array(
        [[text.lower().count(letter) for letter in "abcdefghijklmnopqrstuvwxyz한강서울"] for text in texts]
    )
    return (found / np.maximum(np.linalg.norm(found, axis=-1, keepdims=True), 1e-9)).astype(np.float32)


LETTERS = Embedder("letters", "1", lambda: None)  # type: ignore[arg-type, return-value]


def test_a_passage_is_found_by_stems_and_by_pairs_of_syllables_with_its_place(docs: Path, tmp_path: Path) -> None:
    changes = index([str(docs)], tmp_path / "index")
    assert (changes.added, changes.documents, changes.rejected) == (3, 3, 0)
    searcher = Searcher(tmp_path / "index")
    for question, source, line, mark in (
        ("a rising tide", "sea.md", 1, "Tides"),
        ("flowing", "rivers.txt", 1, "flows"),
        ("훈민정음은 누가", "세종.txt", 1, "훈민정음을"),
    ):
        hit = searcher.search(question).hits[0]
        assert hit.passage.source.endswith(source)
        assert hit.passage.line == line
        assert hit.passage.text in TEXTS[source]
        assert mark in [hit.passage.text[slice(*span)] for span in hit.snippet.marks]
    assert searcher.search("zebra").hits == []
    with pytest.raises(UsageError, match="empty"):
        searcher.search(" ")


def test_of_a_long_question_the_rarest_terms_are_looked_up(tmp_path: Path) -> None:
    rows = [f"sea w{i}" for i in range(MAX_TERMS + 10)] + ["sea alone"]
    (tmp_path / "a.csv").write_text("\n".join(["text", *rows]))
    index([str(tmp_path / "a.csv")], tmp_path / "index")
    store = Store(tmp_path / "index")
    asked = [row.split()[1] for row in rows[: MAX_TERMS - 1]]
    assert len(store.matches([*asked, "sea"], 100)) == len(rows)
    assert len(store.matches([*asked, "w70", "sea"], 100)) == MAX_TERMS
    assert len(store.matches([*asked * 50, "nowhere", "sea"], 100)) == len(rows)
    store.close()


def test_the_line_of_a_passage_is_that_of_its_first_word(tmp_path: Path) -> None:
    lines = [f"word{i} " * 20 if i % 3 else "" for i in range(90)]
    (tmp_path / "long.txt").write_text("\n".join(lines), encoding="utf-8")
    index([str(tmp_path / "long.txt")], tmp_path / "index", IndexConfig(passage_words=50))
    for passage in Store(tmp_path / "index").passages(range(1, 200)):
        assert lines[passage.line - 1].startswith(passage.text.split()[0])


def test_scores_are_bm25_with_the_usual_constants(docs: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    texts = [" ".join(f"w{n}" for n in rng.zipf(1.6, rng.integers(3, 40)) % 50) for _ in range(60)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    index([str(tmp_path / "t.jsonl")], tmp_path / "index")
    found = dict(Store(tmp_path / "index").matches(["w3", "w7", "w11"], 100))
    counts, mean = [Counter(text.split()) for text in texts], sum(len(text.split()) for text in texts) / len(texts)
    for i, count in enumerate(counts, 1):
        expected = 0.0
        for term in ("w3", "w7", "w11"):
            holds = sum(term in other for other in counts)
            idf = math.log(1 + (len(texts) - holds + 0.5) / (holds + 0.5))  # as in Lucene
            norm = 1.2 * (1 - 0.75 + 0.75 * count.total() / mean)
            expected += idf * count[term] * 2.2 / (count[term] + norm)
        assert found.get(i, 0.0) == pytest.approx(expected, rel=1e-5)


def test_a_changed_index_equals_one_made_anew(docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "embed_texts", bag)
    index([str(docs)], tmp_path / "index", embedder=LETTERS)
    (docs / "sea.md").write_text("Salt and waves.", encoding="utf-8")
    (docs / "new.txt").write_text("A new lake.", encoding="utf-8")
    changes = index([str(docs)], tmp_path / "index", embedder=LETTERS)
    assert (changes.added, changes.replaced, changes.unchanged) == (1, 1, 2)
    assert drop_documents([str(docs / "rivers.txt")], tmp_path / "index").removed == 1
    (docs / "rivers.txt").rename(tmp_path / "rivers.txt")
    index([str(docs)], tmp_path / "fresh", embedder=LETTERS)
    assert state(tmp_path / "index") == state(tmp_path / "fresh")
    assert index([str(docs)], tmp_path / "index", embedder=LETTERS).unchanged == 3
    with pytest.raises(DataError, match="no documents of other"):
        drop_documents(["other.txt"], tmp_path / "index")
    with pytest.raises(UsageError, match="other settings"):
        index([str(docs)], tmp_path / "index", IndexConfig(Terms(korean="words")), embedder=LETTERS)
    with pytest.raises(UsageError, match="another model"):
        index([str(docs)], tmp_path / "index", embedder=Embedder("x", "2", lambda: None))  # type: ignore[arg-type, return-value]


def killed_at(number: int, work: Any) -> bool:
    """Runs `work` in a process that is killed at its n-th statement, flush or rename. -> whether it was."""
    child = os.fork()
    if child == 0:
        left = [number]

        def step(*_: object) -> None:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        opened, sync, replace = Store._opened, os.fsync, os.replace

        def traced(path: Path, write: bool) -> sqlite3.Connection:
            db = opened(path, write)
            db.set_trace_callback(step)
            return db

        Store._opened = staticmethod(traced)  # type: ignore[method-assign]
        Store.close = step  # type: ignore[assignment, method-assign]
        os.fsync = lambda *a: (step(), sync(*a), step())[1]  # type: ignore[assignment, func-returns-value]
        os.replace = lambda *a: (step(), replace(*a), step())[1]  # type: ignore[assignment, func-returns-value]
        try:
            work()
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_process_killed_at_any_write_leaves_the_index_before_or_after(
    docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overwrite: bool
) -> None:
    monkeypatch.setattr(models, "embed_texts", bag)
    index([str(docs)], tmp_path / "before", embedder=LETTERS)
    (docs / "sea.md").write_text("Salt and waves.", encoding="utf-8")
    (docs / "new.txt").write_text("A new lake.", encoding="utf-8")
    shutil.copytree(tmp_path / "before", tmp_path / "after")
    index([str(docs)], tmp_path / "after", embedder=LETTERS)
    before, after = state(tmp_path / "before"), state(tmp_path / "after")
    assert before != after
    number, seen = 0, Counter[str]()
    while True:
        number += 1
        shutil.rmtree(tmp_path / "index", ignore_errors=True)
        shutil.copytree(tmp_path / "before", tmp_path / "index")
        if not killed_at(number, lambda: index([str(docs)], tmp_path / "index", embedder=LETTERS, overwrite=overwrite)):
            break
        found = state(tmp_path / "index")
        assert found in (before, after), f"killed at step {number}"
        assert number % 5 or verify_index(tmp_path / "index")["damage"] == []
        seen["after" if found == after else "before"] += 1
        if number % 10 == 0:
            index([str(docs)], tmp_path / "index", embedder=LETTERS)
            assert state(tmp_path / "index") == after
    assert seen["before"] > 30
    assert seen["after"] >= 1  # killed after the commit


def test_a_replaced_index_equals_one_made_anew(docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "embed_texts", bag)
    folder, other = tmp_path / "index", tmp_path / "other.txt"
    index([str(docs)], folder, embedder=LETTERS)
    before, searcher = state(folder), Searcher(folder)
    other.write_text("Another text of a lake.", encoding="utf-8")
    (tmp_path / "empty.txt").touch()
    with pytest.raises(DataError, match="No document could be read"):
        index([str(tmp_path / "empty.txt")], folder, overwrite=True)
    assert state(folder) == before
    syllables = IndexConfig(Terms(korean="words"))
    index([str(other)], folder, syllables, overwrite=True)
    assert [hit.passage.text for hit in searcher.search("lake").hits] == ["Another text of a lake."]
    searcher.close()
    index([str(other)], tmp_path / "fresh", syllables)
    assert state(folder) == state(tmp_path / "fresh")
    assert not list(folder.glob("vectors-*"))
    (folder / "index.sqlite").write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    index([str(docs)], folder, embedder=LETTERS, overwrite=True)
    assert state(folder) == before


def test_a_first_call_killed_at_any_write_is_made_good_by_the_next(docs: Path, tmp_path: Path) -> None:
    index([str(docs)], tmp_path / "whole")
    whole, outcomes = state(tmp_path / "whole"), Counter[str]()
    for number in range(1, 200, 3):
        shutil.rmtree(tmp_path / "index", ignore_errors=True)
        if not killed_at(number, lambda: index([str(docs)], tmp_path / "index")):
            break
        try:
            found, told = state(tmp_path / "index"), "whole"
        except DataError as error:
            found, told = whole, str(error)
        assert found == whole
        assert told == "whole" or "without documents" in told or "is not a search index" in told
        outcomes["none" if told != "whole" else "whole"] += 1
        if number % 10 == 0:
            index([str(docs)], tmp_path / "index")
            assert state(tmp_path / "index") == whole
    assert outcomes["none"] > 10


def test_a_log_cut_at_any_place_leaves_the_index_before_or_after(docs: Path, tmp_path: Path) -> None:
    index([str(docs)], tmp_path / "index")
    before = state(tmp_path / "index")
    (docs / "new.txt").write_text("A new lake.", encoding="utf-8")

    def work() -> None:
        Store.close = lambda self: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[method-assign]
        index([str(docs)], tmp_path / "index")

    assert killed_at(10**9, work)
    log = tmp_path / "index" / "index.sqlite-wal"
    data, states = log.read_bytes(), []
    assert len(data) > 10_000
    for cut in [*range(0, len(data), 2500), len(data)]:
        shutil.rmtree(tmp_path / "cut", ignore_errors=True)
        shutil.copytree(tmp_path / "index", tmp_path / "cut")
        (tmp_path / "cut" / "index.sqlite-shm").unlink(missing_ok=True)
        (tmp_path / "cut" / "index.sqlite-wal").write_bytes(data[:cut])
        states.append(state(tmp_path / "cut"))
    assert states[0] == before != states[-1]
    assert all(found in (before, states[-1]) for found in states)


def test_changes_in_the_log_are_not_ignored_in_a_read_only_folder(
    docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index([str(docs)], tmp_path / "index")
    store = Store(tmp_path / "index", write=True)
    with store.writing():
        store.put("config", store.get("config"))
    shutil.copytree(tmp_path / "index", tmp_path / "copy")  # as a full disk leaves it: the log is not empty
    store.close()

    def reader(path: Path, mode: str) -> sqlite3.Connection:
        if mode == "ro":
            raise sqlite3.OperationalError("unable to open database file")
        return opened(path, mode)

    opened = module._reader
    monkeypatch.setattr(module, "_reader", reader)
    with pytest.raises(DataError, match="last changes are still in index"):
        Store(tmp_path / "copy")
    assert Store(tmp_path / "index").get("config")


def test_two_readers_see_whole_states_while_one_writes(docs: Path, tmp_path: Path) -> None:
    many = tmp_path / "many.jsonl"
    index([str(docs)], tmp_path / "index")
    seen: list[set[int]] = [set(), set()]
    done, errors = threading.Event(), list[Exception]()

    def read(mine: set[int]) -> None:
        try:
            searcher = Searcher(tmp_path / "index", depth=SearchDepth(first=1000))
            while not done.is_set():
                found = searcher.search("lake", top=1000)
                assert all("lake" in hit.passage.text for hit in found.hits)
                mine.add(len(found.hits))
            searcher.close()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=read, args=(mine,)) for mine in seen]
    for thread in threads:
        thread.start()
    for size in (100, 200, 50):
        many.write_text("".join(json.dumps({"text": f"lake number {i}"}) + "\n" for i in range(size)))
        index([str(many)], tmp_path / "index")
    done.set()
    for thread in threads:
        thread.join()
    assert not errors
    assert all(mine <= {0, 100, 200, 50} for mine in seen)


def test_another_writer_is_refused(docs: Path, tmp_path: Path) -> None:
    from bertie.apps.search.store import INDEX_KIND
    from bertie.folders import held

    index([str(docs)], tmp_path / "index")
    held_by_another = os.fork()
    if held_by_another == 0:
        with held(tmp_path / "index", INDEX_KIND):
            (tmp_path / "ready").touch()
            signal.pause()
    try:
        while not (tmp_path / "ready").exists():
            pass
        with pytest.raises(UsageError, match="Another process is writing"):
            index([str(docs)], tmp_path / "index")
        assert Searcher(tmp_path / "index").search("river").hits
    finally:
        os.kill(held_by_another, signal.SIGKILL)
        os.waitpid(held_by_another, 0)


def test_vectors_are_searched_exactly(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    vectors_NH = rng.standard_normal((20_000, 48)).astype(np.float32)
    vectors_NH /= np.linalg.norm(vectors_NH, axis=-1, keepdims=True)
    for part in (0, 1):
        write_vectors(
            tmp_path / f"{part}", range(part * 10_000, part * 10_000 + 10_000), vectors_NH[part * 10_000 :][:10_000]
        )
    files = [VectorFile.open(tmp_path / "0"), VectorFile.open(tmp_path / "1")]
    questions_QH = vectors_NH[[5, 15_000]]
    rows_NH, scale_N = nearest_rows(vectors_NH)
    assert np.abs(rows_NH * scale_N[:, None] - vectors_NH).max() <= scale_N.max() / 2 * 1.001
    scores_QN = questions_QH @ (rows_NH * scale_N[:, None]).T
    for found, scores_N in zip(find_nearest_rows(files, questions_QH, 10), scores_QN, strict=True):
        assert [i for i, _ in found] == np.argsort(-scores_N, kind="stable")[:10].tolist()
        assert [score for _, score in found] == pytest.approx(np.sort(scores_N)[::-1][:10].tolist(), abs=1e-6)


def test_fusion_by_ranks_adds_reciprocal_ranks() -> None:
    assert by_ranks([[(1, 9.0), (2, 8.0)], [(2, 0.5), (3, 0.4)]]) == [
        (2, pytest.approx(1 / 62 + 1 / 61)),
        (1, pytest.approx(1 / 61)),
        (3, pytest.approx(1 / 62)),
    ]


def test_fusion_by_scores_is_the_mean_of_both_from_0_to_1() -> None:
    assert by_scores([[(1, 9.0), (2, 8.0), (4, 5.0)], [(2, 0.5), (3, 0.4)]]) == [
        (2, pytest.approx((3 / 4 + 1) / 2)),
        (1, pytest.approx(1 / 2)),
        (3, 0),
        (4, 0),
    ]
    assert by_scores([[], [(7, 0.5)]]) == [(7, 0.5)]


def test_vectors_of_removed_passages_are_not_found(docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "embed_texts", bag)
    index([str(docs)], tmp_path / "index", embedder=LETTERS)
    drop_documents([str(docs / "sea.md")], tmp_path / "index")
    searcher = Searcher(tmp_path / "index", embedder=object())  # type: ignore[arg-type]
    found = searcher.search("the sea tides rise", vector=bag(None, ["the sea tides rise twice a day"])[0])
    assert {hit.passage.source for hit in found.hits} == {str(docs / "rivers.txt"), str(docs / "세종.txt")}
    assert set(found.rankings) == {"words", "vectors", "fused"}
    drop_documents([str(docs)], tmp_path / "index")
    index([str(docs)], tmp_path / "index", embedder=LETTERS)
    assert len(list((tmp_path / "index").glob("vectors-*"))) == 1, "the file without a passage is gone"


def test_damage_is_found_and_named(docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "embed_texts", bag)
    index([str(docs)], tmp_path / "index", embedder=LETTERS)
    assert verify_index(tmp_path / "index")["damage"] == []
    (vectors,) = (tmp_path / "index").glob("vectors-*")
    data = bytearray(vectors.read_bytes())
    data[-1] ^= 1
    vectors.write_bytes(data)
    assert "its hash differs" in verify_index(tmp_path / "index")["damage"][0]
    vectors.unlink()
    assert "is missing" in verify_index(tmp_path / "index")["damage"][0]
    path = tmp_path / "index" / "index.sqlite"
    path.write_bytes(path.read_bytes().replace(b"The Rhine flows", b"The Rhone flows"))
    assert any("does not match its hash" in line for line in verify_index(tmp_path / "index")["damage"])
    for text in (b"", b"not a database" * 100):
        path.write_bytes(text)
        with pytest.raises(DataError):
            Searcher(tmp_path / "index")
    with pytest.raises(DataError, match="is not a search index"):
        Searcher(tmp_path)
