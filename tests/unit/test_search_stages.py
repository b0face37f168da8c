"""The stages of a search that have models: vectors, re-ranking and answers, with toy models of random weights."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertie.apps.search.index import index
from bertie.apps.search.models import embed_texts, passage_relevance, span_answers
from bertie.apps.search.searcher import Searcher
from bertie.errors import UsageError
from bertie.infer.predict import Predictor
from bertie.runs.weights import load_model as load_module
from serving import make_models

TEXTS = ["ada rows a boat", "bo swims in the sea", "the sea is cold", "boats are slow"]
QUESTION = "who swims"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return make_models(tmp_path_factory.mktemp("models"))


def predictor(folder: Path) -> Predictor:
    return Predictor(load_module(folder))


def test_relevance_is_the_log_odds_or_the_score_of_a_pair(models: dict[str, Path]) -> None:
    pairs = [(QUESTION, text) for text in TEXTS]
    p = np.array([one.scores["1"] for one in predictor(models["rank"]).predict(pairs)])
    assert passage_relevance(predictor(models["rank"]), QUESTION, TEXTS) == pytest.approx(np.log(p / (1 - p)), abs=1e-5)
    scorer = predictor(models["regression"])
    with pytest.raises(UsageError, match="it reads single texts"):
        passage_relevance(scorer, QUESTION, TEXTS)
    scorer = scorer.replace(texts=2)
    numbers = [one.label for one in scorer.predict(pairs)]
    assert passage_relevance(scorer, QUESTION, TEXTS) == pytest.approx(numbers, abs=1e-6)
    of_list = predictor(models["choice"]).predict([(QUESTION, *TEXTS)])[0].scores
    scores = np.array(passage_relevance(predictor(models["choice"]), QUESTION, TEXTS))
    assert np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum() == pytest.approx(
        [*of_list.values()], abs=1e-5
    )
    assert passage_relevance(predictor(models["choice"]), QUESTION, []) == []
    with pytest.raises(UsageError, match="gives no vectors"):
        embed_texts(predictor(models["rank"]), TEXTS)
    with pytest.raises(UsageError, match="cannot rank"):
        passage_relevance(predictor(models["span"]), QUESTION, TEXTS)


def test_answers_are_the_best_spans_by_their_score_against_no_answer(models: dict[str, Path]) -> None:
    reader = predictor(models["span"])
    given = reader.predict([(QUESTION, text) for text in TEXTS])
    found = span_answers(reader, QUESTION, TEXTS)
    assert [one.score for one in found] == sorted((-one.label.no_answer for one in given), reverse=True)
    for one in found:
        assert TEXTS[one.passage][one.start : one.end] == one.text == given[one.passage].label.best
    assert span_answers(reader, QUESTION, ["", *TEXTS])[0].passage == found[0].passage + 1, (
        "a document of a title alone"
    )
    assert span_answers(reader, QUESTION, ["", " "]) == []
    with pytest.raises(UsageError, match="gives no answers"):
        span_answers(predictor(models["rank"]), QUESTION, TEXTS)


def test_vectors_have_length_one_and_empty_texts_none(models: dict[str, Path]) -> None:
    found = embed_texts(predictor(models["embed"]), [*TEXTS, " "])
    assert np.linalg.norm(found, axis=-1) == pytest.approx([1, 1, 1, 1, 0], abs=1e-5)


def test_answers_are_measured_on_the_questions_that_have_some(
    models: dict[str, Path], tmp_path: Path, bertie: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [json.dumps({"id": f"d{i}", "text": text}) + "\n" for i, text in enumerate(TEXTS)]
    Path("docs.jsonl").write_text("".join(rows))
    assert bertie("index", "docs.jsonl", "-o", "index")[0] == 0
    asked: list[dict[str, Any]] = [{"question": text, "relevant": [f"d{i}"]} for i, text in enumerate(TEXTS)]
    stages = ("index", "q.jsonl", "--answer", models["span"])
    Path("q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    assert "No question has answers" in bertie("evaluate-search", *stages)[2]
    asked[1]["answers"] = ["the sea"]
    Path("q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    found = json.loads(bertie("evaluate-search", *stages, "--json")[1])
    assert (found["questions"], found["answers"]["questions"]) == (4, 1)
    assert "on 1 question that has answers" in " ".join(bertie("evaluate-search", *stages)[1].split())


def test_every_stage_on_the_command_line(
    models: dict[str, Path], tmp_path: Path, bertie: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("docs.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    code, out, _ = bertie("index", "docs.jsonl", "-o", "index", "--embed", models["embed"])
    assert (code, "4 vectors" in out) == (0, True)
    stages = ("--rerank", models["rank"], "--answer", models["span"])
    code, out, _ = bertie("search", "index", QUESTION, "--json", "--rerank-alone", *stages)
    found = json.loads(out)
    assert set(found["seconds"]) == {"words", "embed", "vectors", "rerank", "read"}
    order = passage_relevance(predictor(models["rank"]), QUESTION, [hit["text"] for hit in found["hits"]])
    assert order == sorted(order, reverse=True)
    assert len(found["hits"]) == 4, "vectors rank every passage"
    hit = found["hits"][found["answer"]["hit"]]
    assert hit["text"][slice(*hit["marks"][0])] == found["answer"]["text"]
    code, out, err = bertie("search", "index", QUESTION, "-v", *stages)
    assert (code, out.startswith("Answer: "), "rerank" in err) == (0, True, True)
    assert "seconds" in json.loads(bertie("search", "index", QUESTION, "--json", "--no-embed")[1])
    code, _, err = bertie("search", "index", QUESTION, "--embed", models["rank"])
    assert (code, "vectors of another model" in " ".join(err.split())) == (2, True)
    edited = Path(shutil.copytree(models["embed"], "edited"))
    (edited / "README.md").write_text("A note on the card.")
    assert bertie("search", "index", QUESTION, "--embed", edited)[0] == 0, "a card is no part of a model"
    (Path(shutil.copytree(models["embed"], "embed")) / "model.safetensors").unlink()
    for command in (("search", "index", QUESTION), ("index", "docs.jsonl", "-o", "index")):
        code, _, err = bertie(*command, "--embed", "embed")
        assert (code, "embed has no model.safetensors" in " ".join(err.split())) == (3, True)
    code, _, err = bertie("search", "index", QUESTION, "--no-words", "--no-embed")
    assert (code, "is searched without its model" in " ".join(err.split())) == (2, True)
    code, _, err = bertie("index", "docs.jsonl", "-o", "index")
    assert (code, "Pass --embed" in " ".join(err.split())) == (2, True)
    Path("q.jsonl").write_text(json.dumps({"question": QUESTION, "context": TEXTS[1], "answers": ["bo"]}) + "\n")
    code, out, _ = bertie("evaluate-search", "index", "q.jsonl", "--json", *stages)
    assert set(json.loads(out)["stages"]) == {"words", "vectors", "fused", "reranked"}
    assert set(json.loads(out)["answers"]) == {"questions", "exact_match", "f1", "answered", "interval_95"}
    Path("index/vectors-000001.safetensors").unlink()
    for command in (("search", "index", QUESTION), ("index", "docs.jsonl", "-o", "index", "--embed", models["embed"])):
        code, _, err = bertie(*command)
        assert (code, "vectors-000001.safetensors is missing" in " ".join(err.split())) == (3, True), err


def test_threads_share_a_searcher(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n\n".join(TEXTS))
    index([tmp_path / "a.txt"], tmp_path / "index")
    searcher = Searcher(tmp_path / "index")
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(searcher.search, [QUESTION] * 400))
    assert {one.hits[0].passage.text for one in found} == {found[0].hits[0].passage.text}
