"""Every route of the server: what it answers is what the library answers, in the shape its clients expect."""

import base64
import json
import pickle
import re
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import bertie
from bertie.apps.search.models import passage_relevance
from bertie.apps.serve import pipelines
from bertie.apps.serve.golden import difference
from bertie.apps.serve.routes import ROUTES, pipeline_of
from bertie.errors import DataError, UsageError
from bertie.infer import fill
from bertie.infer.pairs import PairHead
from bertie.infer.predict import Predictor
from bertie.io.columns import find_columns
from bertie.io.table_format import Columns
from bertie.runs.weights import load_model
from bertie.tasks.embed import EmbedTask
from bertie.training_facts import read_training_facts, write_training_facts
from serving import MAX_LENGTH, TASK_NAMES, Live, LocalWorker, live, make_models

pytest.importorskip("starlette")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return make_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def server(folders):
    with live(folders) as running:
        yield running


def library(folders, name: str) -> Predictor:
    return Predictor(load_model(folders[name]))


def vectors(folders, texts, *, normalize=True) -> np.ndarray:
    predictor = library(folders, "embed").replace(task_or_none=EmbedTask(normalize=normalize))
    return np.array([answer.label for answer in predictor.predict(texts)], np.float32)


ROWS = {
    "choice": {"context": "ab", "ending0": "c", "ending1": "d"},
    "span": {"question": "ab", "context": "cd ef"},
    "rank": {"question": "ab", "sentence": "cd"},
}


@pytest.mark.promise("neighbors-in-a-batch")
@pytest.mark.parametrize("name", TASK_NAMES)
def test_every_task_answers_as_the_library_does(server, folders, name):
    row = ROWS.get(name, {"text": "ab cd"})
    found = server.ok("/answer", {"inputs": row, "model": name})
    texts = tuple(row.values())
    expected = library(folders, name).predict([texts])[0].as_json()
    (answer,) = found["answers"]
    assert found["model"] == name
    assert answer.pop("tokens") > 0
    assert answer.pop("truncated") is False
    assert difference(json.loads(json.dumps(expected)), answer, tolerance=3e-6) == ""


def test_vectors(server, folders):
    texts = ["ab cd", "e", "f g h i j"]
    unit, raw = vectors(folders, texts), vectors(folders, texts, normalize=False)
    np.testing.assert_allclose(server.ok("/embed", {"inputs": texts}), unit, atol=2e-6)
    np.testing.assert_allclose(server.ok("/embed", {"inputs": "e"}), unit[1:2], atol=2e-6)
    np.testing.assert_allclose(server.ok("/embed", {"inputs": texts, "normalize": False}), raw, atol=1e-5)
    short = server.ok("/embed", {"inputs": texts, "dimensions": 4})
    np.testing.assert_allclose(short, raw[:, :4] / np.linalg.norm(raw[:, :4], axis=1, keepdims=True), atol=2e-6)
    found = server.ok("/similarity", {"inputs": {"source_sentence": texts[0], "sentences": texts[1:]}})
    np.testing.assert_allclose(found, unit[1:] @ unit[0], atol=2e-6)
    for inputs in ([[5, 6]], [[2, 5, 6, 3]]):  # token ids, with special tokens or without
        np.testing.assert_allclose(server.ok("/embed", {"inputs": inputs}), vectors(folders, ["a b"]), atol=2e-6)


def test_vectors_of_tokens(server, folders):
    model = load_model(folders["embed"])
    (found,) = server.ok("/embed_all", {"inputs": "ab c"})
    encoding = model.tokenizer.encode("ab c")
    import torch

    with torch.no_grad():
        output = model.encoder(torch.tensor([encoding.ids]), output_hidden_states=True)
    np.testing.assert_allclose(found, output.last_hidden_state[0].numpy(), atol=1e-5)
    last = len(output.hidden_states) - 1
    for layer in range(-last - 1, last + 1):
        (found,) = server.ok("/embed_all", {"inputs": "ab c", "layer": layer})
        np.testing.assert_allclose(found, output.hidden_states[layer][0].numpy(), atol=1e-5)


def test_openai_embeddings(server, folders):
    expected = vectors(folders, ["ab", "c"])
    found = server.ok("/v1/embeddings", {"input": ["ab", "c"], "model": "embed"})
    assert (found["object"], found["model"]) == ("list", "embed")
    assert [row["index"] for row in found["data"]] == [0, 1]
    np.testing.assert_allclose([row["embedding"] for row in found["data"]], expected, atol=1e-5)
    assert found["usage"] == {"prompt_tokens": 7, "total_tokens": 7}
    coded = server.ok("/v1/embeddings", {"input": "ab", "encoding_format": "base64"})["data"][0]["embedding"]
    np.testing.assert_allclose(np.frombuffer(base64.b64decode(coded), "<f4"), expected[0], atol=1e-5)
    for ids in ([5, 6], [[5, 6]]):
        assert len(server.ok("/v1/embeddings", {"input": ids})["data"]) == 1
    assert {row["id"] for row in server.get("/v1/models").json()["data"]} >= {"embed", "span"}


def test_classification(server, folders):
    answer = library(folders, "sequence").predict(["ab cd"])[0]
    ranked = [{"score": p, "label": label} for label, p in sorted(answer.scores.items(), key=lambda one: -one[1])]
    assert server.ok("/predict", {"inputs": "ab cd"}) == [pytest.approx(one, abs=2e-6) for one in ranked]
    batch = server.ok("/predict", {"inputs": [["ab cd"], ["e"]]})
    assert batch[0] == [pytest.approx(one, abs=2e-6) for one in ranked]
    assert len(batch) == 2
    raw = server.ok("/predict", {"inputs": "ab cd", "raw_scores": True})
    logits = np.array([one["score"] for one in raw])
    np.testing.assert_allclose(np.exp(logits) / np.exp(logits).sum(), [one["score"] for one in ranked], atol=2e-6)
    assert server.ok("/", {"inputs": "ab cd", "parameters": {"top_k": 1}}) == [[pytest.approx(ranked[0], abs=2e-6)]]
    found = server.ok("/classify", {"input": ["ab cd"]})["data"][0]
    assert found["label"] == answer.label
    pair = server.ok("/predict", {"inputs": ["ab", "cd"], "model": "rank"})
    assert {one["label"] for one in pair} == {"0", "1"}
    several = server.ok("/predict", {"inputs": "ab", "model": "multilabel"})
    assert sum(one["score"] for one in several) != pytest.approx(1)


def test_reranking(server, folders):
    texts = ["c d", "e", "ab"]
    scores = [one.scores["1"] for one in library(folders, "rank").predict([("ab", text) for text in texts])]
    found = server.ok("/rerank", {"query": "ab", "texts": texts, "return_text": True})
    assert [row["score"] for row in found] == pytest.approx(sorted(scores, reverse=True), abs=2e-6)
    assert all(row["text"] == texts[row["index"]] for row in found)
    assert [row["score"] for row in found] == pytest.approx([scores[row["index"]] for row in found], abs=2e-6)
    raw = server.ok("/rerank", {"query": "ab", "texts": texts, "raw_scores": True})
    assert [1 / (1 + np.exp(-row["score"])) for row in raw] == pytest.approx([row["score"] for row in found], abs=1e-5)
    for path in ("/v1/rerank", "/rerank"):
        cohere = server.ok(path, {"query": "ab", "documents": texts, "top_n": 2, "return_documents": True})
        assert len(cohere["results"]) == 2
        assert cohere["results"][0]["document"]["text"] == texts[cohere["results"][0]["index"]]


def test_a_model_of_lists_ranks(server, folders):
    texts = ["c d", "e", "f g h"]
    expected = passage_relevance(library(folders, "choice"), "ab", texts)
    found = server.ok("/rerank", {"model": "choice", "query": "ab", "texts": texts, "raw_scores": True})
    assert [one["score"] for one in found] == pytest.approx(sorted(expected, reverse=True), abs=2e-6)
    assert [one["index"] for one in found] == sorted(range(3), key=lambda i: -expected[i])


def test_tags_answers_and_masks(server, folders):
    text = "ab 가 cd"
    for one in server.ok("/ner", {"inputs": text}):
        assert one["word"] == text[one["start"] : one["end"]]
        assert set(one) == {"entity_group", "score", "word", "start", "end"}
    words = server.ok("/ner", {"inputs": [text], "parameters": {"aggregation_strategy": "none", "ignore_labels": []}})
    assert [one["word"] for one in words[0]] == ["ab", "가", "cd"]
    question = {"question": "ab", "context": "cd ef. gh"}
    found = server.ok("/qa", {"inputs": question})
    expected = library(folders, "span").predict([tuple(question.values())])[0].as_json()
    assert (found["answer"], found["start"], found["end"]) == tuple(expected[k] for k in ("answer", "start", "end"))
    assert found["no_answer_score"] == pytest.approx(expected["no_answer_score"], abs=1e-5)
    assert len(server.ok("/qa", {"inputs": question, "parameters": {"top_k": 3}})) == 3
    masks = server.ok("/fill_mask", {"inputs": "ab [MASK] c", "parameters": {"top_k": 3}})
    (filled,) = bertie.fill_mask(bertie.load(folders["pretrained"]), "ab [MASK] c", top=3)
    assert [(one["token_str"], one["sequence"]) for one in masks] == [(one.token, one.text) for one in filled]
    assert [one["score"] for one in masks] == pytest.approx([one.probability for one in filled], abs=2e-6)
    assert len(server.ok("/fill_mask", {"inputs": "[MASK] b [MASK]"})) == 2


def test_words_that_have_been_split(server, folders):
    """As `bertie predict` reads them from .jsonl."""
    split = {"tokens": ["a-b", "cd."]}
    (answer,) = server.ok("/answer", {"model": "tagging", "inputs": split})["answers"]
    assert [word["text"] for word in answer["words"]] == ["a-b", "cd."]
    assert server.ok("/answer", {"model": "tagging", "inputs": [split | {"text": "x"}]})["answers"] == [answer]
    for bad in ([], ["a", 1], [""]):
        assert server.post("/answer", {"model": "tagging", "inputs": {"tokens": bad}}).status_code == 422


def test_masks_of_several_texts_are_filled_as_alone(server, monkeypatch):
    texts = ["ab [MASK] c", "[MASK] b [MASK]", "c [MASK]", "a b c [MASK] a"]
    alone = [server.ok("/fill_mask", {"inputs": text}) for text in texts]
    for size in (fill.GROUP_TOKENS, 12):
        monkeypatch.setattr(fill, "GROUP_TOKENS", size)
        for found, expected in zip(server.ok("/fill_mask", {"inputs": texts}), alone, strict=True):
            for one, other in zip(np.ravel(found), np.ravel(expected), strict=True):
                assert {**one, "score": 0} == {**other, "score": 0}
                assert one["score"] == pytest.approx(other["score"], abs=2e-6)


def test_many_fillings_are_made_in_a_thread_and_too_many_refused(server, monkeypatch):
    body = {"inputs": "[MASK] a [MASK]", "parameters": {"top_k": 20}}
    expected = server.ok("/fill_mask", body)
    monkeypatch.setattr(pipelines, "INLINE_FILLED", 0)
    assert server.ok("/fill_mask", body) == expected
    monkeypatch.setattr(pipelines, "FILLED_BYTES", 1 << 22)
    response = server.post("/fill_mask", body)
    assert (response.status_code, "in parts" in response.json()["error"]) == (413, True), response.text


def test_choices_relations_and_next_sentences(server, folders):
    found = server.ok("/choose", {"inputs": {"context": "ab", "choices": ["c", "d", "e"]}})["answers"][0]
    expected = library(folders, "choice").predict([("ab", "c", "d", "e")])[0]
    assert found["scores"] == pytest.approx(dict(expected.scores), abs=2e-6)
    names = {"text": "ab cd ef", "subject": {"start": 0, "end": 2}, "object": {"start": 6, "end": 8}}
    marked = library(folders, "relation").predict(["<subj>ab</subj> cd <obj>ef</obj>"])[0]
    found = server.ok("/relate", {"inputs": names})["answers"][0]
    assert found["scores"] == pytest.approx(dict(marked.scores), abs=2e-6)
    (verdict,) = server.ok("/next_sentence", {"inputs": {"first": "ab", "second": "cd"}})["answers"]
    assert verdict["kind"] == "nsp"
    assert verdict["probability"] == pytest.approx(max(verdict["yes"], 1 - verdict["yes"]))
    assert PairHead("sop").verdicts(np.array([[0, 2]], np.float32))[0].verdict == "swapped"


def test_tokens(server):
    text = "가 ab"
    (found,) = server.ok("/tokenize", {"inputs": text})
    assert [one["special"] for one in found] == [True, False, False, False, True]
    for one in (one for one in found if not one["special"]):
        piece = text.encode()[one["start"] : one["stop"]].decode()
        assert piece == text[one["char_start"] : one["char_stop"]]
    assert server.ok("/decode", {"ids": [one["id"] for one in found[2:]]}) == ["ab"]


LONG = "a " * 200


def test_windows_are_read_by_the_tasks_that_can(folders):
    with live(folders, too_long="window") as server:
        for name in TASK_NAMES:
            assert server.ok("/answer", {"inputs": ROWS.get(name, {"text": "ab cd"}), "model": name})
        server.ok("/answer", {"inputs": "ab", "model": "several", "head": "x"})
        server.ok("/embed", {"inputs": "ab", "model": "sequence"})
        server.ok("/next_sentence", {"inputs": {"first": "ab", "second": "cd"}})
        windows = server.ok("/answer", {"inputs": LONG, "model": "sequence"})["answers"][0]["windows"]
        assert windows > 1
        assert server.ok("/answer", {"inputs": LONG, "model": "embed"})["answers"][0]["truncated"]
        told = {name: one["too_long"] for name, one in server.get("/info").json()["models"].items()}
        assert (told["sequence"], told["embed"]) == ("window", "truncate")


@pytest.mark.promise("truncation-is-said")
def test_truncation_is_never_silent(server):
    response = server.post("/predict", {"inputs": LONG, "truncate": True})
    assert response.headers["x-bertie-truncated"] == "1"
    assert response.headers["x-compute-tokens"] == str(MAX_LENGTH)
    refused = server.post("/predict", {"inputs": LONG, "truncate": False})
    assert refused.status_code == 422
    assert f"{MAX_LENGTH}" in refused.json()["error"]
    assert server.ok("/answer", {"inputs": LONG, "model": "sequence", "truncate": True})["answers"][0]["truncated"]
    tags = server.post("/answer", {"inputs": LONG, "model": "tagging"})  # windows: nothing is cut
    assert tags.json()["answers"][0]["windows"] > 1
    assert len(tags.json()["answers"][0]["words"]) == 200
    assert tags.headers["x-bertie-truncated"] == "0"
    asked = {"inputs": {"question": LONG, "context": LONG}, "model": "span"}
    found = server.post("/answer", asked)
    answer = found.json()["answers"][0]
    assert (answer["truncated"], found.headers["x-bertie-truncated"]) == (True, "1"), (
        "its question is cut in each window"
    )
    assert answer["windows"] > 1
    assert "question" in server.post("/answer", {**asked, "truncate": False}).json()["error"]
    left = server.ok("/embed", {"inputs": LONG + "b", "truncate": True, "truncation_direction": "Left"})
    right = server.ok("/embed", {"inputs": LONG + "b", "truncate": True})
    same = server.ok("/embed", {"inputs": "a " * (MAX_LENGTH - 3) + "b"})
    np.testing.assert_allclose(left, same, atol=2e-6)
    assert np.abs(np.array(left) - right).max() > 1e-4


@pytest.mark.promise("neighbors-in-a-batch")
def test_neighbors_change_nothing(server):
    texts = [" ".join("abcdefgh"[i % 8] for i in range(n)) for n in (1, 40, 3, 17, 29, 2)]
    together = server.ok("/embed", {"inputs": texts})
    for text, vector in zip(texts, together, strict=True):
        np.testing.assert_allclose(server.ok("/embed", {"inputs": [text]})[0], vector, atol=2e-6)


REFUSED = [
    ("/predict", {"inputs": []}, 400, "Empty"),
    ("/embed", {"inputs": [" "]}, 422, "Validation"),
    ("/embed", {"inputs": ["a"] * 33}, 422, "Validation"),
    ("/embed", {"inputs": [[99999]]}, 422, "Validation"),
    ("/embed", {"inputs": "a", "prompt_name": "x"}, 422, "Validation"),
    ("/embed", {"inputs": "a", "dimensions": 33}, 422, "Validation"),
    ("/embed_all", {"inputs": "a", "layer": 99}, 422, "Validation"),
    ("/embed_all", {"inputs": "a", "layer": -9}, 422, "Validation"),
    ("/predict", {"inputs": ["a", "b"]}, 422, "Validation"),  # a pair for a model of single texts
    ("/predict", {"inputs": 1}, 422, "Validation"),
    ("/answer", {"inputs": [["a", "b", "c"]], "model": "sequence"}, 422, "Validation"),
    ("/answer", {"inputs": [[]], "model": "sequence"}, 422, "Validation"),
    ("/predict", {"inputs": "a", "candidates": ["b"]}, 422, "Validation"),
    ("/predict", {"inputs": "a", "parameters": {"candidate_labels": ["b"]}}, 422, "Validation"),
    ("/predict", {}, 422, "Validation"),
    ("/predict", {"inputs": "a", "model": "span"}, 424, "Backend"),
    ("/predict", {"inputs": "a", "model": "none"}, 404, "NotFound"),
    ("/fill_mask", {"inputs": "a"}, 422, "Validation"),
    ("/fill_mask", {"inputs": "a [MASK]", "parameters": {"targets": ["b"]}}, 422, "Validation"),
    ("/nowhere", {}, 404, "NotFound"),
    ("/embed", {"inputs": "a", "truncation_direction": "up"}, 422, "Validation"),
    ("/ner", {"inputs": "a", "truncation_direction": "left"}, 422, "Validation"),
]


@pytest.mark.parametrize(("path", "body", "status", "kind"), REFUSED)
def test_refusals(server, path, body, status, kind):
    response = server.post(path, body)
    assert (response.status_code, response.json()["error_type"]) == (status, kind), response.text
    assert len(response.json()["error"]) > 15


def test_labels_to_choose_from_are_refused_and_other_unknown_keys_ignored(server):
    for body in ({"candidate_labels": ["b"]}, {"parameters": {"candidate_labels": ["b"]}}):
        for path in ("/predict", "/"):
            told = server.post(path, {"inputs": "a", **body}).json()["error"]
            assert told == "The body: zero-shot classification is not served. Use `bertie predict --candidates`."
    assert server.ok("/predict", {"inputs": "a", "labels": ["b"], "parameters": 1})


def test_errors_name_no_types_and_no_options_of_commands(server):
    told = server.post("/choose", {"inputs": {"context": "a", "choices": ["b"]}}).json()["error"]
    assert told.startswith("inputs.choices: ")
    for model in ("span", "choice", "sequence"):
        told = server.post("/answer", {"inputs": {"other": "a"}, "model": model}).json()["error"]
        assert ("'other'" in told, "--" in told) == (True, False), told
        assert told.endswith(("among 'other'.", "in 'other'.")), told


def test_rows_have_the_columns_of_a_template(folders, tmp_path):
    folder = tmp_path / "template"
    shutil.copytree(folders["sequence"], folder)
    facts = read_training_facts(folder)
    write_training_facts(folder, replace(facts, text_columns=("{title}. {body}",)))
    expected = [answer.scores for answer in library(folders, "sequence").predict(["ab. cd", "cd", "ab. cd"])]
    with live({"template": folder}) as server:
        rows = [{"title": "ab", "body": "cd"}, {"title": None, "body": "cd"}, "ab. cd"]
        answers = server.ok("/answer", {"inputs": rows})["answers"]
        for answer, scores in zip(answers, expected, strict=True):
            assert answer["scores"] == pytest.approx(scores, abs=1e-5)
        for row in ({"title": "ab"}, {"title": "ab", "bdy": "cd"}, {"text": "ab. cd"}, {"title": "ab", "text": "cd"}):
            refused = server.post("/answer", {"inputs": row})
            told = refused.json()["error"]
            assert (refused.status_code, "trained with '{title}. {body}'" in told, "--" in told) == (422, True, False)


def test_errors_carry_the_options_of_commands_apart():
    with pytest.raises(DataError) as found:
        find_columns(("other",), Columns(), "a.csv")
    error = found.value
    assert error.message.endswith("among 'other'.")
    assert error.hint.startswith("Pass --text COLUMN")
    for same in (error, pickle.loads(pickle.dumps(error))):
        assert str(same) == f"{error.message} {error.hint}"
    assert str(UsageError("It is wrong.")) == "It is wrong."


PLACES = [  # a body, and where the error is
    ("/embed", {"inputs": ["a", 5]}, "inputs[1]"),
    ("/embed", {"inputs": ["a", " "]}, "inputs[1]"),
    ("/embed", {"inputs": ["a", " "], "truncation_direction": "left"}, "inputs[1]"),
    ("/embed", {"inputs": " "}, "inputs"),
    ("/embed", {"inputs": [[5], [99]]}, "inputs[1]"),
    ("/embed", {"inputs": [[5], []]}, "inputs[1]"),
    ("/embed", {"inputs": [[5, "x"]]}, "inputs[0][1]"),
    ("/v1/embeddings", {"input": ["a", 5]}, "input[1]"),
    ("/v1/embeddings", {"input": [5, 99]}, "input"),
    ("/similarity", {"inputs": {"source_sentence": " ", "sentences": ["a"]}}, "inputs.source_sentence"),
    ("/similarity", {"inputs": {"source_sentence": "a", "sentences": ["a", " "]}}, "inputs.sentences[1]"),
    ("/predict", {"inputs": [["a"], ["a", 5]]}, "inputs[1][1]"),
    ("/predict", {"inputs": [["a"], ["a", "b"]]}, "inputs[1]"),
    ("/predict", {"inputs": ["a", "b", "c"]}, "inputs"),
    ("/predict", {"inputs": [["a"], ["b"] * 200], "truncate": False}, "inputs[1]"),
    ("/predict", {"inputs": [["a"], ["b " * 200]], "truncate": False}, "inputs[1]"),
    ("/classify", {"input": ["a", ["b", 5]]}, "input[1][1]"),
    ("/rerank", {"query": " ", "texts": ["a"]}, "query"),
    ("/rerank", {"query": "a", "texts": ["a", " "]}, "texts[1]"),
    ("/v1/rerank", {"query": "a", "documents": ["a", {"title": "b"}]}, "documents[1].text"),
    ("/v1/rerank", {"query": "a", "documents": ["a", {"text": 5}]}, "documents[1].text"),
    ("/rerank", {"query": "a", "texts": ["b", "b " * 200], "truncate": False}, "texts[1]"),
    ("/rerank", {"query": "a", "texts": ["b", "c"], "model": "regression"}, "texts[0]"),
    ("/v1/embeddings", {"input": ["b"] * 2049}, "input"),
    ("/rerank", {"query": "a", "texts": ["b", "b " * 200], "truncate": False, "model": "choice"}, "texts"),
    ("/qa", {"inputs": [{"question": "a", "context": "b"}, {"question": "a"}]}, "inputs[1].context"),
    ("/qa", {"inputs": {"question": "a"}}, "inputs.context"),
    ("/choose", {"inputs": [{"context": "a", "choices": ["b", "c"]}, {"context": "a"}]}, "inputs[1].choices"),
    ("/explain", {"inputs": ["a", "b", "c"]}, "inputs"),
    ("/fill_mask", {"inputs": ["a [MASK]", "a"]}, "inputs[1]"),
    ("/answer", {"inputs": ["a", {"other": "a"}], "model": "sequence"}, "inputs[1]"),
    ("/answer", {"inputs": ["a", ["a", "b"]], "model": "sequence"}, "inputs[1]"),
    ("/answer", {"inputs": ["a", {"text": " "}], "model": "sequence"}, "inputs[1]"),
    ("/relate", {"inputs": {"text": "a", "subject": {"start": 0}, "object": 5}}, "inputs.subject.end"),
    ("/decode", {"ids": [[5], [99]]}, "ids[1]"),
    ("/", {"inputs": ["a", 5]}, "inputs[1]"),
]


@pytest.mark.parametrize(("path", "body", "place"), PLACES)
def test_errors_tell_the_place_in_the_body(server, path, body, place):
    response = server.post(path, body)
    assert response.status_code == 422, response.text
    told = response.json()["error"]
    if path.startswith("/v1"):
        assert told["param"] == place
        told = told["message"]
    assert re.search(rf"(^|`){re.escape(place)}(:|`)", told), told


def test_two_names_of_one_thing_are_refused(server):
    both = {"query": "a", "texts": ["b"], "documents": ["c"]}
    for path in ("/rerank", "/v1/rerank"):
        for body in (both, {**both, "texts": []}, {"query": "a"}):
            assert server.post(path, body).status_code == 422
    returned = server.ok("/rerank", {"query": "a", "texts": ["b"], "return_documents": True})
    assert returned[0]["text"] == "b"
    assert server.post("/models/tagging", {"inputs": "a", "model": "span"}).status_code == 422


def test_the_root_answers_with_the_model_of_the_body(server):
    assert server.ok("/", {"inputs": "ab", "model": "tagging"}) == server.ok("/ner", {"inputs": "ab"})
    assert server.post("/", {"inputs": "ab", "model": "nobody"}).status_code == 404


def test_a_pipeline_in_the_address_must_suit_the_model(server):
    path = "/models/{}/pipeline/{}".format
    assert server.ok(path("sequence", "text-classification"), {"inputs": "a"}) == server.ok("/", {"inputs": "a"})
    for model, task, status in (
        ("sequence", "fill-mask", 424),
        ("sequence", "token-classification", 424),
        ("sequence", "nothing", 404),
        ("nobody", "fill-mask", 404),
    ):
        assert server.post(path(model, task), {"inputs": "a [MASK]"}).status_code == status


def test_a_name_of_any_characters(folders):
    with live({"감성 1": folders["sequence"], "b": folders["text2text"]}) as server:
        response = server.post("/predict", {"inputs": "a", "model": "감성 1"})
        assert (response.status_code, response.headers["x-bertie-model"]) == (200, "%EA%B0%90%EC%84%B1%201")
        assert server.ok("/models/감성 1", {"inputs": "a"})
        assert server.ok("/generate", {"inputs": "a", "model": "b"})


def test_errors_under_v1_are_nested(server):
    response = server.post("/v1/embeddings", {"input": ["a", ""]})
    assert response.status_code == 422
    assert response.json()["error"] == {
        "message": "input[1]: empty text.", "type": "invalid_request_error", "param": "input[1]", "code": "Validation"
    }  # fmt: skip


def test_facts_and_probes(server, folders):
    info = server.get("/info").json()
    assert info["model_type"] == {"classifier": {"id2label": {"0": "no", "1": "yes"}, "label2id": {"no": 0, "yes": 1}}}
    assert info["max_input_length"] == MAX_LENGTH
    assert set(info["models"]) == set(folders)
    assert server.get("/info?model=embed").json()["model_type"] == {"embedding": {"pooling": "mean"}}
    for path in ("/health", "/healthz", "/readyz"):
        assert server.get(path).status_code == 200
        assert server.client.head(server.url + path).status_code == 200
    assert server.client.head(server.url + "/embed").status_code == 405
    assert re.fullmatch(r"[0-9a-f]{16}", server.get("/health").headers["x-request-id"])
    assert server.get("/health", headers={"x-request-id": "mine-1"}).headers["x-request-id"] == "mine-1"


def test_the_routes_are_described(server):
    schema = server.get("/openapi.json").json()
    for route in ROUTES:
        told = schema["paths"][route.path]["post"]
        assert told["summary"]
        assert told["requestBody"]["content"]["application/json"]["schema"]
    page = server.get("/docs")
    assert page.status_code == 200
    assert "http" not in re.sub(r"<!doctype.*?>", "", page.text.replace("/openapi.json", ""))
    assert "unsafe-inline" not in page.headers["content-security-policy"].partition("script-src")[2].partition(";")[0]


@pytest.mark.promise("private-texts")
def test_metrics_are_bounded_and_hold_no_text(server):
    for number in range(1000):
        server.get(f"/made-up-{number}")
    server.ok("/predict", {"inputs": "secret zebra"})
    server.post("/predict", {"inputs": "zebra", "model": "zebra"})
    from prometheus_client.parser import text_string_to_metric_families

    text = server.get("/metrics").text
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert {"te_request_count", "te_request_duration", "te_queue_size", "te_batch_next_tokens"} <= set(families)
    assert "zebra" not in text
    assert "made-up" not in text
    assert all(len(family.samples) < 40 * len(server.fleet.models) for family in families.values())


def test_one_model_answers_to_any_name(folders):
    with live({"only": folders["embed"]}) as server:
        assert isinstance(server, Live)
        assert server.ok("/v1/embeddings", {"input": "a", "model": "text-embedding-3-small"})["model"] == "only"
        assert server.post("/predict", {"inputs": "a"}).status_code == 424
        vector = server.ok("/embed", {"inputs": "a"})
        assert server.ok("/models/sentence-transformers/all-MiniLM-L6-v2", {"inputs": "a"}) == vector


class GraphWorker(LocalWorker):
    """An exported classifier, whose graph returns nothing but its logits."""

    async def start(self):
        self.facts = replace(await super().start(), of_encoder={}, layers=0)
        return self.facts


def test_a_graph_without_vectors_is_not_asked_for_them(folders):
    with live({"m": folders["sequence"]}, GraphWorker) as server:
        assert server.get("/info").json()["answers"] == ["sequence"]
        assert server.ok("/predict", {"inputs": "a"})
        for path, body in (
            ("/embed", {"inputs": "a"}),
            ("/embed_all", {"inputs": "a"}),
            ("/v1/embeddings", {"input": "a"}),
            ("/similarity", {"inputs": {"source_sentence": "a", "sentences": ["b"]}}),
        ):
            assert server.post(path, body).status_code == 424
        with pytest.raises(UsageError, match="gives no mean; it gives sequence"):
            server.fleet.models["m"].facts.rows_of("mean")


def test_a_name_of_a_hub(folders):
    with live({"owner/one": folders["embed"], "two": folders["sequence"]}) as server:
        vector = server.ok("/embed", {"inputs": "a"})
        for path in ("/models/owner/one", "/models/owner%2Fone", "/models/owner/one/pipeline/feature-extraction"):
            assert server.ok(path, {"inputs": "a"}) == vector
        assert server.get("/v1/models/owner/one").json()["id"] == "owner/one"
        assert server.post("/models/owner/two", {"inputs": "a"}).status_code == 404


def test_a_flat_list_is_a_pair_only_for_a_model_of_pairs(tmp_path):
    """For others it could be two texts."""
    folder = make_models(tmp_path, ["sequence"])["sequence"]
    with live({"m": folder}) as server:
        told = server.post("/predict", {"inputs": ["ab", "cd"]})
        assert (told.status_code, "[[TEXT], [TEXT]]" in told.json()["error"]) == (422, True)
        assert len(server.ok("/predict", {"inputs": [["ab"], ["cd"]]})) == 2
    write_training_facts(folder, replace(read_training_facts(folder), texts=None))
    (folder / "checksums.json").unlink(missing_ok=True)
    with live({"m": folder}) as server:
        told = server.post("/predict", {"inputs": ["ab", "cd"]})
        assert (told.status_code, "[[TEXT, TEXT]]" in told.json()["error"]) == (422, True)
        for inputs, count in ((["ab"], 2), ([["ab", "cd"]], 1), ([["ab"], ["cd"]], 2), ("ab", 2)):
            assert len(server.ok("/predict", {"inputs": inputs})) == count, inputs


def test_an_address_below_a_model_names_the_route(server):
    name = next(iter(server.fleet.models))
    told = server.post(f"/models/{name}/predict", {"inputs": "ab"})
    assert told.status_code == 404
    assert "/predict with the key" in told.json()["error"]


def test_rows_go_to_the_first_model_with_a_task_and_a_task_of_a_package_has_a_pipeline(folders):
    with live({name: folders[name] for name in ("pretrained", "regression", "sequence")}) as server:
        assert server.ok("/answer", {"inputs": "ab"})["model"] == "regression"
    with live({"m": folders["pretrained"]}) as server:
        told = server.post("/answer", {"inputs": "ab"})
        assert (told.status_code, "needs one for any task" in told.json()["error"]) == (424, True), told.text
    assert pipeline_of(SimpleNamespace(kinds=("theirs", "vectors"))).path == "/answer"
