"""`/search`: what the server finds in an index is what the library finds with the same models."""

import asyncio
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from bertie.apps.search.api import WhereModels, embedder_of
from bertie.apps.search.index import IndexConfig, index
from bertie.apps.search.searcher import Searcher
from bertie.infer.predict import Predictor
from bertie.runs.weights import load_model
from serving import Live, live, make_models, until

pytest.importorskip("starlette")
DOCUMENTS = {"one.txt": "a b c d.\n\ne f g h.", "two.txt": "i j k.\n\na b l m.", "three.md": "# c\n\nn o p a."}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    found = make_models(tmp_path_factory.mktemp("models"))
    return {name: found[name] for name in ("sequence", "embed", "rank", "span")}


@pytest.fixture(scope="module")
def documents(tmp_path_factory, folders):
    home = tmp_path_factory.mktemp("documents")
    for name, text in DOCUMENTS.items():
        (home / name).write_text(text, encoding="utf-8")
    index([str(home)], home / "index", embedder=embedder_of(folders["embed"], WhereModels("fp32", "torch", "cpu")))
    return home


@pytest.fixture(scope="module")
def server(folders, documents):
    with live(folders, indexes={"notes": documents / "index"}) as running:
        yield running


def places(hits):
    return [(hit["source"], hit["start"], hit["snippet"], hit["ranks"]) for hit in hits]


def test_all_stages_as_in_the_library(server: Live, folders, documents):
    embedder = embedder_of(folders["embed"], WhereModels("fp32", "torch", "cpu")).load()
    ranker, reader = (Predictor(load_model(folders[name])) for name in ("rank", "span"))
    expected = Searcher(documents / "index", embedder=embedder, ranker=ranker, reader=reader).search("a b", 5).as_json()
    found = server.ok("/search", {"query": "a b"})
    assert found["index"] == "notes"
    assert places(found["hits"]) == places(expected["hits"])
    assert {"words", "vectors", "fused", "reranked"} <= set(found["hits"][0]["ranks"])
    assert [hit["score"] for hit in found["hits"]] == pytest.approx(
        [hit["score"] for hit in expected["hits"]], abs=1e-4
    )
    assert found["answer"] == expected["answer"] or found["answer"]["text"] == expected["answer"]["text"]
    assert set(found["seconds"]) == set(expected["seconds"])


def test_stages_can_be_left_out_and_named(server: Live):
    found = server.ok("/search", {"query": "a b", "rerank": False, "answer": False, "top": 1})
    assert len(found["hits"]) == 1
    assert "answer" not in found
    assert "reranked" not in found["hits"][0]["ranks"]
    found = server.ok("/search", {"query": "a b", "rerank": "rank", "answer": "span"})
    assert "reranked" in found["hits"][0]["ranks"]
    response = server.post("/search", {"query": "a b"})
    assert int(response.headers["x-compute-tokens"]) > 10


def test_texts_that_a_stage_cuts_are_counted(folders, tmp_path):
    (tmp_path / "long.txt").write_text("a b " * 300 + ".", encoding="utf-8")
    index([str(tmp_path / "long.txt")], tmp_path / "index", IndexConfig(passage_words=500))
    with live({"rank": folders["rank"]}, indexes={"notes": tmp_path / "index"}) as server:
        response = server.post("/search", {"query": "a b", "answer": False})
        assert response.json()["truncated"] == int(response.headers["x-bertie-truncated"]) > 0
        response = server.post("/search", {"query": "a b", "answer": False, "rerank": False})
        assert response.json()["truncated"] == int(response.headers["x-bertie-truncated"]) == 0


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"query": " "}, 422),
        ({}, 422),
        ({"query": "a", "top": 0}, 422),
        ({"query": "a", "index": "other"}, 404),
        ({"query": "a", "rerank": "sequence"}, 424),
        ({"query": "a", "rerank": "nobody"}, 404),
        ({"query": '"a* OR (', "answer": False}, 200),
        ({"query": "a " * 500, "answer": False, "rerank": False}, 200),
        ({"query": "a " * 501}, 422),
    ],
)
def test_bad_requests(server: Live, body, status):
    response = server.post("/search", body)
    assert response.status_code == status, response.text
    until(lambda: server.fleet.admission.texts.used == 0)


def test_a_changed_index_is_found_without_a_restart(server: Live, folders, documents):
    (documents / "new.txt").write_text("q r s t.", encoding="utf-8")
    embedder = embedder_of(folders["embed"], WhereModels("fp32", "torch", "cpu"))
    index([str(documents / "new.txt")], documents / "index", embedder=embedder)
    words = {"query": "q r s", "rerank": False, "answer": False}
    assert server.ok("/search", words)["hits"][0]["source"].endswith("new.txt")
    inputs = [str(documents / name) for name in DOCUMENTS]
    index(inputs, documents / "index", embedder=embedder, overwrite=True)
    assert not any(hit["source"].endswith("new.txt") for hit in server.ok("/search", words)["hits"])


def test_a_failed_reload_keeps_the_vectors(folders, documents, tmp_path):
    model = Path(shutil.copytree(folders["embed"], tmp_path / "embed"))
    with live({"embed": model}, indexes={"notes": documents / "index"}) as server:
        (model / "config.json").write_text("junk")
        done = asyncio.run_coroutine_threadsafe(server.fleet.reload(), server.loop).result(30)
        assert done["embed"].startswith("failed"), done
        assert "vectors" in server.ok("/search", {"query": "a b"})["seconds"]


def test_a_search_in_progress_ends_with_the_models_it_began_with(folders, documents):
    models = {name: folders[name] for name in ("sequence", "embed", "rank", "span")}
    with live(models, indexes={"notes": documents / "index"}, request_s=20.0) as server, ThreadPoolExecutor() as pool:
        (slow,) = server.fleet.models["embed"].batcher.workers
        slow.delay_s = 1.0
        found = pool.submit(server.post, "/search", {"query": "a b"})
        until(lambda: len(slow.batches) > 2)  # the first two were of the check before it was served
        asyncio.run_coroutine_threadsafe(server.fleet.reload(), server.loop).result(30)
        assert found.result().status_code == 200, found.result().text


def test_a_damaged_index_is_told_without_its_path(folders, documents, tmp_path):
    folder = Path(shutil.copytree(documents / "index", tmp_path / "index"))
    with live({"embed": folders["embed"]}, indexes={"notes": folder}) as server:
        for path in folder.glob("vectors-*"):
            path.unlink()
        for _ in range(2):
            response = server.post("/search", {"query": "a b"})
            assert (response.status_code, response.json()["error"]) == (424, "The index cannot be read.")
            shutil.rmtree(folder, ignore_errors=True)


def test_a_model_that_cannot_rank_is_refused_without_options_of_commands(folders, documents, tmp_path_factory):
    models = make_models(tmp_path_factory.mktemp("more"))
    with live({"regression": models["regression"]}, indexes={"notes": documents / "index"}) as server:
        response = server.post("/search", {"query": "a b", "rerank": "regression"})
        assert (response.status_code, "--task" in response.text) == (422, False)
        assert "reads single texts" in response.json()["error"]


def test_without_models_for_it_words_alone(folders, documents):
    with live({"sequence": folders["sequence"]}, indexes={"notes": documents / "index"}) as server:
        found = server.ok("/search", {"query": "a b"})
        assert set(found["seconds"]) == {"words"}
        assert server.get("/info").json()["indexes"]["notes"]["vectors_of"] is None
    with live({"sequence": folders["sequence"]}) as server:
        assert httpx.post(server.url + "/search", json={"query": "a"}).status_code == 404
