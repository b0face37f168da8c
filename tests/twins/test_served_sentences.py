"""Folders of `sentence-transformers` behind HTTP, in processes of their own: the same vectors and scores as there."""

import numpy as np
import pytest

from bertie.apps.serve.remote import Worker, WorkerSettings
from bertie.models import families
from bertie.models.heads import HEADS
from bertie.text.tokenizer import Tokenizer
from serving import live
from toys import toy_model

pytest.importorskip("starlette")
sentence_transformers = pytest.importorskip("sentence_transformers")
torch = pytest.importorskip("torch")

from sentence_transformers.base.modules import Dense, Normalize, Transformer  # noqa: E402
from sentence_transformers.sentence_transformer.modules import Pooling  # noqa: E402

TEXTS = ["a b c", "d", "e f g h i j k l a b c d", "B a ?"]
WIDTH = 32


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return toy_model(tmp_path_factory.mktemp("base"), "abcdefghijkl", max_position_embeddings=32)


@pytest.fixture(scope="module")
def peer(base, tmp_path_factory):
    """A model with matrices, prompts of which one is the default, a longest text and fewer dimensions."""
    torch.manual_seed(1)
    modules = [
        Transformer(str(base), max_seq_length=10),
        Pooling(WIDTH, ("cls", "mean")),
        Dense(2 * WIDTH, 16),
        Dense(16, 12, bias=False),
        Normalize(),
    ]
    settings = {"prompts": {"query": "a b ", "passage": "l "}, "default_prompt_name": "passage", "truncate_dim": 9}
    folder = tmp_path_factory.mktemp("peer")
    sentence_transformers.SentenceTransformer(modules=modules, device="cpu", **settings).save(str(folder))
    return folder, sentence_transformers.SentenceTransformer(str(folder), device="cpu")


@pytest.fixture(scope="module")
def scorer(base, tmp_path_factory):
    """A cross-encoder whose score is the output itself."""
    model = families.build(families.config(base), heads=lambda config: {"sequence": HEADS["sequence"](config, 1)})
    folder = tmp_path_factory.mktemp("scorer")
    families.save(model, folder, tokenizer=Tokenizer.load(base), labels=("LABEL_0",))
    found = sentence_transformers.CrossEncoder(str(folder), device="cpu", activation_fn=torch.nn.Identity())
    found.save(str(folder))
    return folder, found


@pytest.fixture(scope="module")
def server(peer, scorer):
    settings = WorkerSettings("", engine="torch", threads=1)
    with live({"vectors": peer[0], "scores": scorer[0]}, Worker, worker=settings) as running:
        yield running


def same(found, wanted, tolerance=2e-5):
    np.testing.assert_allclose(np.array(found, np.float32), wanted, atol=tolerance)


def test_matrices_and_the_default_prompt(server, peer):
    wanted = peer[1].encode(TEXTS)
    assert wanted.shape == (len(TEXTS), 9)
    unit = peer[1].encode(TEXTS, normalize_embeddings=True)
    same(server.ok("/embed", {"inputs": TEXTS}), unit)
    same([row["embedding"] for row in server.ok("/v1/embeddings", {"input": TEXTS})["data"]], unit)
    same([row["label"] for row in server.ok("/answer", {"inputs": TEXTS, "model": "vectors"})["answers"]], wanted)
    compared = {"source_sentence": TEXTS[0], "sentences": TEXTS[1:]}
    same(server.ok("/similarity", {"inputs": compared}), unit[1:] @ unit[0])


def test_a_named_prompt_takes_the_place_of_the_default(server, peer):
    wanted = peer[1].encode(TEXTS, prompt_name="query", normalize_embeddings=True)
    same(server.ok("/embed", {"inputs": TEXTS, "prompt_name": "query"}), wanted)
    same(server.ok("/embed", {"inputs": TEXTS[:1], "prompt_name": "query", "truncation_direction": "left"}), wanted[:1])
    tokens = peer[1].encode(TEXTS[:2], prompt_name="query", output_value="token_embeddings")
    for found, one in zip(server.ok("/embed_all", {"inputs": TEXTS[:2], "prompt_name": "query"}), tokens, strict=True):
        same(found, one[: len(found)].numpy())
    response = server.post("/embed", {"inputs": "a", "prompt_name": "qerry"})
    assert response.status_code == 422
    assert "passage, query" in response.json()["error"]


def test_other_dimensions_than_the_folder_says(server, peer):
    for dimensions in (4, 12):
        wanted = peer[1].encode(TEXTS, truncate_dim=dimensions, normalize_embeddings=True)
        same(server.ok("/embed", {"inputs": TEXTS, "dimensions": dimensions}), wanted)
    assert server.post("/embed", {"inputs": "a", "dimensions": 13}).status_code == 422


def test_token_ids_get_no_prompt(server, peer):
    ids = Tokenizer.load(peer[0]).ids(["l a b c"])[0]
    same(server.ok("/embed", {"inputs": [ids]}), server.ok("/embed", {"inputs": ["a b c"]}))


def test_long_texts_are_cut_where_the_folder_says(server):
    response = server.post("/embed", {"inputs": TEXTS})
    assert response.headers["x-bertie-truncated"] == "1"
    assert server.get("/info?model=vectors").json()["max_input_length"] == 10


def test_scores_of_a_cross_encoder(server, scorer):
    pairs = [("a b", "c d"), ("a b", "k j i"), ("a b", "a")]
    wanted = scorer[1].predict(pairs)
    found = server.ok("/answer", {"inputs": [list(pair) for pair in pairs], "model": "scores"})["answers"]
    same([row["label"] for row in found], wanted)
    ranked = server.ok("/rerank", {"query": "a b", "texts": [text for _, text in pairs], "raw_scores": True})
    assert [row["index"] for row in ranked] == np.argsort(-wanted).tolist()
    same([row["score"] for row in ranked], np.sort(wanted)[::-1])
    response = server.post("/predict", {"inputs": "a b", "model": "scores"})
    assert (response.status_code, "pairs of texts" in response.json()["error"]) == (422, True)
