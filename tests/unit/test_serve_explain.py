"""POST /explain gives words the values that the library's occlusion gives them."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

from bertie.apps.explain.attribution import by_word, occlusion
from bertie.apps.explain.targets import question_of
from bertie.apps.serve.remote import WorkerSettings
from bertie.runs.weights import load_model
from bertie.tasks.span import SpanTask
from bertie.training_facts import read_training_facts, write_training_facts
from serving import live, make_models

pytest.importorskip("starlette")
CASES = {
    "sequence": "ab cd e",
    "multilabel": "ab cd e",
    "regression": "ab cd e",
    "rank": ["ab c", "d ef g"],
    "tagging": "ab cd e fg",
    "span": ["ab c", "d ef g h"],
    "pretrained": "ab [MASK] de",
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return make_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def server(folders):
    with live({name: folders[name] for name in (*CASES, "embed")}) as running:
        yield running


@pytest.mark.parametrize("name", CASES)
def test_as_the_library(server, folders, name):
    texts = CASES[name]
    given = [texts] if isinstance(texts, str) else texts
    explained = question_of(load_model(folders[name]).eval(), given)
    wanted = occlusion(explained.question)
    found = server.ok("/explain", {"inputs": texts, "model": name})
    assert (found["explained"], found["method"], found["truncated"]) == (explained.about, "occlusion", False)
    assert found["value"] == pytest.approx(wanted.value, abs=1e-5)
    assert found["baseline"] == pytest.approx(wanted.baseline, abs=1e-5)
    values = [row for row in by_word(explained.question.encoding, wanted.values, given) if not row[0].startswith("[")]
    shown = [word for word in found["words"] if not word["text"].startswith("[")]
    assert [word["text"] for word in shown] == [text for text, _ in values]
    assert [word["value"] for word in shown] == pytest.approx([value for _, value in values], abs=1e-5)
    assert any(abs(word["value"]) > 1e-3 for word in shown)
    for word in shown:
        assert given[word["input"]][word["start"] : word["end"]] == word["text"]


def test_places_are_those_of_the_text_without_its_markup(folders, tmp_path):
    shutil.copytree(folders["sequence"], tmp_path / "m")
    write_training_facts(tmp_path / "m", replace(read_training_facts(tmp_path / "m"), markup="html"))
    with live({"m": tmp_path / "m"}, worker=WorkerSettings("", attention=True)) as server:
        for path, name in (("/explain", "words"), ("/attention", "tokens")):
            answer = server.ok(path, {"inputs": "<p>ab <b>cd</b> &amp; e</p>"})
            assert answer["texts"] == ["ab cd & e"]
            places = [(one["start"], one["end"]) for one in answer[name] if one["input"] == 0]
            words = [answer["texts"][0][start:end] for start, end in places]
            assert ("ab" if name == "words" else "a", "e") == (words[0], words[-1])


def test_an_answer_has_at_most_the_length_of_the_models(server, folders):
    texts = ["ab c", " ".join("abcdefgh" * 7)]
    explained = question_of(load_model(folders["span"]).eval(), texts)
    assert server.ok("/explain", {"inputs": texts, "model": "span"})["explained"] == explained.about


def test_best_answers():
    rng = np.random.default_rng(0)
    for most in (1, 3, 30):
        starts, ends = rng.normal(size=(2, 12))
        starts[:4] = ends[:4] = -np.inf
        pairs = [(a, b) for a in range(12) for b in range(a, min(12, a + most))]
        assert SpanTask(max_answer=most).best(starts, ends) == max(pairs, key=lambda at: starts[at[0]] + ends[at[1]])


def test_another_label_and_another_word(server, folders):
    one = server.ok("/explain", {"inputs": "ab cd", "model": "sequence", "label": "no"})
    other = server.ok("/explain", {"inputs": "ab cd", "model": "sequence", "label": "yes"})
    assert (one["explained"], other["explained"]) == ("label no", "label yes")
    assert one["value"] != other["value"]
    tag = server.ok("/explain", {"inputs": "ab cd", "model": "tagging", "word": 2, "label": "B-X"})
    assert tag["explained"] == "word 2 (cd): B-X"
    mask = server.ok("/explain", {"inputs": "ab [MASK]", "model": "pretrained", "label": "q"})
    assert mask["explained"] == "masked word 'q'"


def test_what_cannot_be_explained(server):
    for body, message in [
        ({"inputs": "ab", "model": "sequence", "label": "perhaps"}, "Unknown label"),
        ({"inputs": "ab", "model": "tagging", "word": 9}, "words 1 to 1"),
        ({"inputs": "ab", "model": "pretrained"}, "has no [MASK]"),
        ({"inputs": "ab [MASK]", "model": "pretrained", "label": "abc"}, "3 tokens"),
        ({"inputs": ["a", "b", "c"], "model": "sequence"}, "inputs"),
        ({"inputs": "ab", "model": "rank"}, "pairs of texts"),
        ({"inputs": " ", "model": "sequence"}, "empty text"),
        ({"inputs": "\u200b", "model": "tagging"}, "no words to explain"),
        ({"inputs": "ab " * 300 + "[MASK]", "model": "pretrained"}, "tokens that are read"),
        ({"inputs": "ab", "model": "sequence", "word": 1}, "no tags"),
        ({"inputs": "ab", "model": "regression", "label": "x"}, "this model has none"),
        ({"inputs": ["ab", "cd"], "model": "span", "label": "cd"}, "this model has none"),
        ({"inputs": ["ab", "\u200b"], "model": "span"}, "no answer to explain"),
        ({"inputs": "ab [MASK]", "model": "pretrained", "label": "漢"}, "not in the vocabulary"),
    ]:
        response = server.post("/explain", body)
        assert (response.status_code, message in response.json()["error"]) == (422, True), response.text
    assert server.post("/explain", {"inputs": "ab", "model": "embed"}).status_code == 424


def test_a_long_text_is_cut_and_it_is_said(server):
    response = server.post("/explain", {"inputs": "ab " * 300, "model": "sequence"})
    assert response.json()["truncated"] is True
    assert response.headers["x-bertie-truncated"] == "1"
    assert response.json()["tokens"] <= 128
