"""`bertie index`, `bertie search` and `bertie evaluate INDEX`, as a user types them; and the metrics of retrieval."""

import json
import os
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertie.apps.search import models
from bertie.apps.search.evaluate import evaluate_stages
from bertie.apps.search.index import IndexConfig, drop_documents
from bertie.apps.search.index import index as make
from bertie.apps.search.questions import read_questions
from bertie.apps.search.retrieval import RETRIEVAL_METRICS, of_ranking
from bertie.apps.search.searcher import SearchDepth, Searcher
from bertie.errors import DataError, UsageError

CORPUS = [
    {"_id": "a", "title": "Nile", "text": "The river Nile flows north to the sea."},
    {"_id": "b", "title": "Rhine", "text": "The Rhine flows through Basel. Basel is in Switzerland."},
    {"_id": "c", "title": "Moon", "text": "The moon pulls the water of the sea."},
]


def name_of(text: str) -> str:
    return next(row["_id"] for row in CORPUS if row["text"] in text)


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in CORPUS) + "broken\n")
    return tmp_path


def test_from_files_to_answers_on_the_command_line(corpus: Path, bertie: Any) -> None:
    code, out, err = bertie("index", "corpus.jsonl", "-o", "index")
    assert code == 0
    assert "3 new documents, 3 passages" in out
    assert "1 records could not be read" in err
    code, out, _ = bertie("search", "index", "where does the Rhine flow?", "-n", "1")
    assert (code, out.splitlines()[0]) == (0, "1. corpus.jsonl:2 (b)  Rhine")
    assert "flows through Basel" in out
    _, out, _ = bertie("search", "index", "moon", "--json")
    (hit,) = json.loads(out)["hits"]
    assert (hit["name"], [hit["text"][slice(*mark)] for mark in hit["marks"]]) == ("c", ["moon"])
    _, out, _ = bertie("index", "corpus.jsonl", "-o", "index")
    assert "1 unchanged" in out
    _, out, _ = bertie("index", "-o", "index", "--check")
    assert "not read: corpus.jsonl:4: not JSON" in out
    assert "No damage found." in out
    _, out, _ = bertie("index", "corpus.jsonl", "-o", "index", "--remove")
    assert "1 removed" in out
    _, out, _ = bertie("search", "index", "moon")
    assert "No passage matches the question" in out


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("index", "corpus.jsonl"), 2, "Pass -o INDEX"),
        (("index", "missing", "-o", "index"), 3, "does not exist"),
        (("index", "-o", "index"), 2, "No documents"),
        (("index", "corpus.jsonl", "-o", "index", "--korean", "syllables"), 2, "Unknown value 'syllables'"),
        (("index", "corpus.jsonl", "-o", "index", "--vectors", "fast"), 2, "Unknown value 'fast'"),
        (("index", "corpus.jsonl", "-o", "index", "--vectors", "approximate"), 2, "Pass --embed"),
        (("index", "corpus.jsonl", "-o", "index", "--text", "body"), 3, "no text in column 'body'"),
        (("index", "empty.txt", "-o", "index"), 3, "no text in this file (1)"),
        (("index", "corpus.jsonl", "-o", "index", "--embed", "nomodel"), 3, "nomodel is not a folder"),
        (("search", "missing", "moon"), 3, "is not a search index"),
        (("search", "ready", ""), 2, "empty"),
        (("search", "ready", "moon", "--no-words"), 2, "has no vectors"),
        (
            ("negatives", "ready", "--questions", "bare.jsonl", "-o", "x.jsonl", "--answer", "."),
            2,
            "--answer changes no",
        ),
        (("search", "ready", "moon", "--embed", "corpus.jsonl"), 2, "has no vectors"),
        (("index", "corpus.jsonl", "-o", "ready", "--passage-words", "50"), 2, "other settings (passage_words)"),
        (("evaluate-search", "ready", "none.json"), 3, "does not exist"),
        (("evaluate-search", "ready", "bare.jsonl"), 3, "no question with a document"),
        (("evaluate-search", "ready", "others.jsonl"), 3, "No question has a document in this index"),
        (("evaluate-search", "ready", "others.jsonl", "--embed", "."), 2, "has no vectors. Make them"),
        (("evaluate", "ready", "others.jsonl"), 3, "ready is a search index, not a model"),
    ],
)
def test_a_wrong_call_says_what_is_wrong(corpus: Path, bertie: Any, words: list[str], code: int, told: str) -> None:
    assert bertie("index", "corpus.jsonl", "-o", "ready")[0] == 0
    Path("empty.txt").touch()
    Path("bare.jsonl").write_text('{"question": "x"}\n')
    Path("others.jsonl").write_text('{"question": "x", "relevant": ["z"]}\n')
    found = bertie(*words)
    assert (found[0], told in " ".join(found[2].split())) == (code, True), found
    assert not (corpus / "index").exists()
    assert bertie("search", "ready", "moon")[0] == 0


def test_only_what_is_given_is_compared_with_the_settings_of_an_index(corpus: Path, bertie: Any) -> None:
    assert bertie("index", "corpus.jsonl", "-o", "own", "--passage-words", "50", "--korean", "words")[0] == 0
    assert bertie("index", "corpus.jsonl", "-o", "own")[0] == 0
    assert bertie("index", "corpus.jsonl", "-o", "own", "--korean", "words")[0] == 0
    code, _, err = bertie("index", "corpus.jsonl", "-o", "own", "--passage-words", "180")  # what a new index would have
    assert (code, "other settings (passage_words)" in " ".join(err.split())) == (2, True)
    assert bertie("index", "corpus.jsonl", "-o", "own", "--passage-words", "180", "--overwrite")[0] == 0


def test_a_refused_model_replaces_no_index(corpus: Path, bertie: Any) -> None:
    assert bertie("index", "corpus.jsonl", "-o", "index")[0] == 0
    assert bertie("index", "corpus.jsonl", "-o", "index", "--embed", "nomodel", "--overwrite")[0] == 3
    assert bertie("search", "index", "moon")[0] == 0


def test_files_that_were_deleted_are_named_and_folders_removed_however_written(corpus: Path, bertie: Any) -> None:
    for name in ("a.txt", "b.txt", "sub/c.txt"):
        Path("docs", name).parent.mkdir(parents=True, exist_ok=True)
        Path("docs", name).write_text("A text.")
    assert bertie("index", "./docs/", "-o", "index")[0] == 0
    Path("docs/sub/c.txt").unlink()
    code, _, err = bertie("index", "docs", "-o", "index")
    assert (code, "1 deleted file (docs/sub/c.txt)" in err) == (0, True)
    assert "deleted" not in bertie("index", "docs/a.txt", "-o", "index")[2]
    assert bertie("index", "", "-o", "index", "--remove")[0] == 3
    for folder in ("./docs/sub", "."):
        assert "removed" in bertie("index", folder, "-o", "index", "--remove")[1]
    assert "0 documents" in bertie("index", "-o", "index", "--check")[1]


def test_an_index_is_evaluated_by_stage(corpus: Path, bertie: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bertie("index", "corpus.jsonl", "-o", "index")
    asked = {"1": "Rhine river flows", "2": "pulls the water", "3": "x"}
    Path("q.jsonl").write_text("".join(json.dumps({"_id": i, "text": text}) + "\n" for i, text in asked.items()))
    Path("qrels.tsv").write_text("query-id\tcorpus-id\tscore\n1\tb\t2\n1\tc\t1\n2\tc\t1\n")
    _, out, _ = bertie("evaluate-search", "index", "q.jsonl", "--qrels", "qrels.tsv", "--json")
    bare = bertie("evaluate-search", "index", "q.jsonl", "--qrels", "qrels.tsv", "--no-embed", "--json")[1]
    assert list(json.loads(bare)["stages"]) == ["words"]
    words = json.loads(out)["stages"]["words"]
    assert words["mrr@10"] == 1
    assert words["recall@100"] == pytest.approx((0.5 + 1) / 2)
    scores = {"a": 1.0, "b": 0.0, "c": 2.0}
    monkeypatch.setattr(models, "passage_relevance", lambda *given: [scores[name_of(text)] for text in given[2]])
    searcher = Searcher("index", ranker=object(), rerank_alone=True)  # type: ignore[arg-type]
    found = evaluate_stages(searcher, read_questions("q.jsonl", "qrels.tsv"))
    assert found["questions"] == 2
    assert found["stages"]["reranked"]["mrr@10"] == pytest.approx((1 / 2 + 1) / 2), "the Nile is above the Rhine"
    assert found["stages"]["reranked"]["against_words"]["mrr@10"]["difference"] == pytest.approx(-1 / 4)


def test_a_document_that_is_judged_wrong_answers_nothing(corpus: Path, bertie: Any) -> None:
    bertie.good("index", "corpus.jsonl", "-o", "index")
    Path("q.jsonl").write_text('{"_id": "1", "text": "Rhine river flows"}\n{"_id": "2", "text": "pulls the water"}\n')
    Path("qrels.tsv").write_text("1\tb\t0.0\n1\tc\t1.0\n2\tc\t0\n")  # no header: the first line is a judgment
    first, second = read_questions("q.jsonl", "qrels.tsv")
    store = Searcher("index").store
    assert [question.documents(store) for question in (first, second)] == [{3: 1.0}, {}]


def test_ids_of_judgments_may_have_spaces_between_tabs(tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").write_text('{"_id": "q 1", "text": "one"}\n{"_id": "2", "text": "two"}\n')
    (tmp_path / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq 1\td 1\t2\n\n2\t0\td2\t1\n")
    found = read_questions(tmp_path / "q.jsonl", tmp_path / "qrels.tsv")
    assert [question.relevant for question in found] == [{"d 1": 2.0}, {"d2": 1.0}]


@pytest.mark.skipif(sys.platform == "darwin", reason="file names are UTF-8")
def test_a_file_name_may_be_no_utf8(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"a\xff.txt")
    path.write_text("the moon")
    bad = tmp_path / os.fsdecode(b"b\xff.txt")
    bad.write_bytes(b"\xff")
    made = make([path, bad], tmp_path / "index")
    assert (made.documents, made.rejected) == (1, 1)
    assert make([path, bad], tmp_path / "index").unchanged == 2
    with closing(Searcher(tmp_path / "index")) as searcher:
        assert searcher.search("moon").hits[0].passage.source.endswith("a\\xff.txt")
    assert drop_documents([str(path), str(bad)], tmp_path / "index").removed == 2


def test_the_passages_of_a_row_have_its_line(tmp_path: Path) -> None:
    text = "\n\n".join(f"{number} " + "word " * 150 for number in range(3))
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "x"}) + "\n" + json.dumps({"text": text}) + "\n")
    make([tmp_path / "a.jsonl"], tmp_path / "index")
    hits = Searcher(tmp_path / "index").search("word").hits
    assert [hit.passage.line for hit in hits] == [2, 2, 2]


def test_answers_and_documents_of_questions(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text(json.dumps({"question": "q?", "context": "c", "answers": {"text": ["x"], "answer_start": [0]}}))
    assert read_questions(path)[0].answers == ("x",)
    for relevant, answers in (("[broken", []), ({"d": "high"}, []), (5, []), ([], [{"span": "x"}]), ([], 5)):
        path.write_text(json.dumps({"question": "q?", "relevant": relevant, "answers": answers}))
        with pytest.raises(DataError, match=r"q\.jsonl:1"):
            read_questions(path)


def test_documents_of_questions_by_text_and_by_file(tmp_path: Path, bertie: Any, monkeypatch: Any) -> None:
    """The text of a file ends in a line break, which the context of a question may lack."""
    monkeypatch.chdir(tmp_path)
    Path("docs").mkdir()
    for name in ("nile", "moon", "salt", "rain"):
        Path(f"docs/{name}.txt").write_text(f"All about the {name} and water.\n")
    assert bertie("index", "docs", "-o", "index")[0] == 0
    asked = [
        {"question": "nile water?", "context": "All about the nile and water."},
        {"question": "salt water?", "relevant": ["docs/salt.txt"]},
    ]
    Path("q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    code, out, _ = bertie("evaluate-search", "index", "q.jsonl", "--json")
    assert (code, json.loads(out)["without_document"]) == (0, 0)
    assert bertie("negatives", "index", "--questions", "q.jsonl", "-o", "n.jsonl", "--count", 2)[0] == 0
    for rows, count, told in (
        (asked, 9, "2 questions have fewer wrong passages than --count"),
        (
            [{"question": "water?", "context": "Of no file."}],
            1,
            "1 questions have no document in this index, and there are no others",
        ),
    ):
        Path("q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        code, _, err = bertie("negatives", "index", "--questions", "q.jsonl", "-o", "none.jsonl", "--count", count)
        assert (code, told in " ".join(err.split())) == (3, True), err
        assert not Path("none.jsonl").exists()


def test_a_second_ranking_is_joined_with_the_first(corpus: Path, bertie: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bertie("index", "corpus.jsonl", "-o", "index")
    scores = {"a": 0.0, "b": 4.0, "c": 3.0}
    monkeypatch.setattr(models, "passage_relevance", lambda *given: [scores[name_of(text)] for text in given[2]])
    found = Searcher("index", ranker=object()).search("Nile sea river moon")  # type: ignore[arg-type]
    (best, most), (last, least) = found.rankings["words"][0], found.rankings["words"][-1]
    assert (len(found.rankings["words"]), best, last) == (2, 1, 3), "the Nile, and the moon"
    assert dict(found.rankings["reranked"]) == {1: pytest.approx((1 + 0) / 2), 3: pytest.approx((0 + 1) / 2)}
    assert most > least


def test_more_passages_than_the_first_stage_finds_by_default(corpus: Path, bertie: Any) -> None:
    Path("corpus.jsonl").write_text("".join(json.dumps({"text": f"moon {i}"}) + "\n" for i in range(130)))
    assert bertie("index", "corpus.jsonl", "-o", "index")[0] == 0
    assert len(Searcher("index").search("moon", top=120).hits) == 120
    for first in (7, 100):
        assert len(Searcher("index", depth=SearchDepth(first=first)).search("moon", top=120).hits) == first
        code, out, _ = bertie("search", "index", "moon", "-n", 120, "--first", first, "--json")
        assert (code, len(json.loads(out)["hits"])) == (0, first)


def test_wrong_values_in_python_get_one_error(corpus: Path) -> None:
    make([Path("corpus.jsonl")], "index")
    for call, told in (
        (lambda: make("corpus.jsonl", "index"), "Pass a list"),
        (lambda: make(["corpus.jsonl"], "index", vectors="fast"), "Unknown value 'fast' of vectors"),
        (lambda: IndexConfig(passage_words=0), "at least 1"),
        (lambda: SearchDepth(first=0), "a number below 1"),
        (lambda: Searcher("index").search(5), "of type int"),
        (lambda: Searcher("index").search("moon", top=-1), "at least 0"),
        (lambda: Searcher("index").search("moon", top="3"), "top is '3'"),  # type: ignore[arg-type]
        (lambda: Searcher("index").search("moon", top=2.0), "top is 2.0"),  # type: ignore[arg-type]
        (lambda: make([], "other"), "inputs is empty"),
    ):
        with pytest.raises(UsageError, match=told):
            call()


def test_questions_in_every_format(tmp_path: Path) -> None:
    qa = {"id": "1", "question": "q", "answers": [{"text": "C", "answer_start": 0}]}
    (tmp_path / "a.json").write_text(json.dumps({"data": [{"paragraphs": [{"context": "C1", "qas": [qa]}]}]}))
    (tmp_path / "b.jsonl").write_text(json.dumps({**qa, "context": "C1"}) + "\n")
    (tmp_path / "c.jsonl").write_text('{"query": "q", "relevant": {"d": 2}, "answers": ["C"]}\n')
    (one,), (other,), (third,) = (read_questions(tmp_path / name) for name in ("a.json", "b.jsonl", "c.jsonl"))
    assert one == other
    assert (one.context, one.answers) == ("C1", ("C",))
    assert (third.relevant, third.answers) == ({"d": 2.0}, ("C",))


def test_metrics_equal_those_of_ir_measures() -> None:
    ir_measures = pytest.importorskip("ir_measures")
    from ir_measures import RR, R, nDCG

    rng = np.random.default_rng(0)
    judged, runs, mine = list[Any](), list[Any](), list[tuple[float, ...]]()
    for question in range(40):
        grades = {
            f"d{i}": int(grade) for i, grade in enumerate(rng.choice([0, 0, 0, 1, 2, 4], 150)) if rng.random() < 0.3
        }
        order = [f"d{i}" for i in rng.permutation(150)[: rng.integers(1, 140)]]
        judged += [ir_measures.Qrel(str(question), name, grade) for name, grade in grades.items()]
        runs += [ir_measures.ScoredDoc(str(question), name, 1000.0 - rank) for rank, name in enumerate(order)]
        mine.append(of_ranking([grades.get(name, 0) for name in order], [*grades.values()]))
    expected = ir_measures.calc_aggregate([RR @ 10, nDCG @ 10, R @ 1, R @ 10, R @ 100], judged, runs)
    for name, value in zip(RETRIEVAL_METRICS, np.mean(mine, 0), strict=True):
        measure = {"mrr": RR, "ndcg": nDCG, "recall": R}[name.partition("@")[0]] @ int(name.partition("@")[2])
        assert value == pytest.approx(expected[measure], abs=1e-9), name


@pytest.mark.parametrize("form", ["lists", "pairs"])
def test_negatives_are_other_passages_without_the_answer(corpus: Path, bertie: Any, form: str) -> None:
    more = [{"_id": f"n{i}", "text": f"The river number {i} flows to the sea."} for i in range(8)]
    rows = [*CORPUS, *more, {"_id": "twin", "text": "Also the Nile flows north."}]
    Path("corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = [
        {"question": "Which river flows to the sea?", "relevant": ["a"], "answers": ["Nile"]},
        {"question": "What flows?", "relevant": ["missing"]},
        {"question": "moon", "relevant": ["c"]},
    ]
    Path("q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    bertie("index", "corpus.jsonl", "-o", "index")
    call = ("negatives", "index", "--questions", "q.jsonl", "--form", form, "-o", "out.jsonl")
    code, _, err = bertie(*call)
    assert code == 0
    assert "2 questions left out: 1 whose document is not in the index, 1 with too few" in " ".join(err.split())
    found = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    texts = found[0]["choices"] if form == "lists" else [row["sentence"] for row in found]
    assert (len(found), len(texts)) == (1 if form == "lists" else 4, 4)
    place = found[0]["label"] if form == "lists" else [row["label"] for row in found].index(1)
    assert texts[place].endswith(CORPUS[0]["text"])
    assert sum("Nile" in text for text in texts) == 1
    bertie(*call[:-1], "triples.jsonl", "--form", "triples")
    (triple,) = map(json.loads, Path("triples.jsonl").read_text().splitlines())
    assert [*triple] == ["anchor", "positive", "negative", "negative_2", "negative_3"]
    assert {*triple.values()} == {asked[0]["question"], *texts}
    assert triple["positive"] == texts[place]
    places = set()
    for seed in range(8):
        bertie(*call, "--overwrite", "--seed", seed)
        rows = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
        places.add(rows[0]["label"] if form == "lists" else [row["label"] for row in rows].index(1))
    assert len(places) > 1, "nothing can go by the place"
    bertie(*call, "--overwrite")
    first = Path("out.jsonl").read_bytes()
    assert bertie(*call)[0] == 2, "nothing is replaced unasked"
    assert bertie(*call, "--overwrite")[0] == 0
    assert Path("out.jsonl").read_bytes() == first


def test_a_model_of_vectors_may_be_a_name_and_is_loaded_when_it_is_needed(
    corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import bertie as library

    with library.build_index("corpus.jsonl", "index", embed="starter-en") as index:
        assert index.changes is not None
        assert index.changes.vectors == 3
        hits = [name_of(hit.passage.text) for hit in index.search("a river", 3).hits]
    with library.open_index("index", embed="starter-en") as index:
        assert [name_of(hit.passage.text) for hit in index.search("a river", 3).hits] == hits
    loads = list[object]()
    monkeypatch.setattr(library, "load", lambda *args: loads.append(args))
    with library.build_index("corpus.jsonl", "index", embed="starter-en") as index:
        assert index.changes is not None
        assert index.changes.unchanged == 1
    assert not loads, "nothing has changed, and nothing was asked"
