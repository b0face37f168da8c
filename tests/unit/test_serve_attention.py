"""POST /attention returns the probabilities that the library computes."""

import numpy as np
import pytest

from bertie.apps.explain.attention import attentions, telling
from bertie.apps.serve.remote import WorkerSettings
from bertie.apps.serve.worker import attention_of
from bertie.errors import UsageError
from bertie.models import families
from bertie.runs.weights import load_model
from bertie.text.tokenizer import Tokenizer
from serving import LETTERS, Process, live, make_models
from toys import toy_model

pytest.importorskip("starlette")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return make_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def server(folders):
    models = {name: folders[name] for name in ("sequence", "rank")}
    with live(models, worker=WorkerSettings("", attention=True)) as running:
        yield running


@pytest.mark.parametrize(("name", "texts"), [("sequence", ["ab cd e"]), ("rank", ["ab c", "d ef g"])])
def test_as_the_library(server, folders, name, texts):
    model = load_model(folders[name]).eval()
    encoding = model.tokenizer.encode(*texts)
    wanted = attentions(model, encoding.ids, encoding.type_ids)
    body = {"inputs": texts if len(texts) > 1 else texts[0], "model": name}
    for layer, head in np.ndindex(wanted.shape[:2]):
        found = server.ok("/attention", {**body, "layer": layer + 1, "head": head + 1})
        np.testing.assert_allclose(found["weights"], wanted[layer, head], atol=2e-5)
    assert [one["text"] for one in found["tokens"]] == encoding.tokens
    assert [one["input"] for one in found["tokens"]] == encoding.sequence_ids
    assert (found["layers"], found["heads"]) == wanted.shape[:2]
    found = server.ok("/attention", body)
    words = np.array([text is not None for text in encoding.sequence_ids])
    assert (found["layer"] - 1, found["head"] - 1) == telling(wanted, words)


def test_what_is_refused(server):
    assert server.post("/attention", {"inputs": "ab", "layer": 99}).status_code == 422
    assert server.post("/attention", {"inputs": "ab", "layer": 1, "head": 0}).status_code == 422
    assert server.post("/attention", {"inputs": ""}).status_code == 422
    assert "no words" in server.post("/attention", {"inputs": "\u200b"}).json()["error"]
    assert "needs `layer`" in server.post("/attention", {"inputs": "ab", "head": 2}).json()["error"]
    response = server.post("/attention", {"inputs": "ab " * 300})
    assert response.json()["truncated"] is True
    assert len(response.json()["tokens"]) <= 64
    assert server.get("/info").json()["attention"] is True


def test_without_the_option_there_is_none(folders):
    with live({"m": folders["sequence"]}) as plain:
        assert plain.post("/attention", {"inputs": "ab"}).status_code == 404
        assert plain.get("/info").json()["attention"] is False


def test_a_family_without_attention_is_refused_at_the_start(tmp_path):
    start = toy_model(tmp_path / "start", LETTERS)
    tokenizer = Tokenizer.load(start)
    sizes = {"vocab_size": tokenizer.vocab_size, "hidden_size": 8, "intermediate_size": 8, "filters": ((1, 4),)}
    elmo = families.build("elmo-small", **sizes)
    elmo.encoder.spell([tokenizer.id_to_token(i) for i in range(tokenizer.vocab_size)])
    families.save(elmo, tmp_path / "elmo", tokenizer=tokenizer)
    with pytest.raises(UsageError, match="Omit --attention"):
        attention_of(tmp_path / "elmo")


@pytest.mark.slow
def test_from_a_worker_process(folders, tmp_path):
    with Process(tmp_path / "log", f"m={folders['sequence']}", "--threads", "1", "--attention") as server:
        found = server.post("/attention", {"inputs": "ab cd"}).json()
        assert np.sum(found["weights"], -1) == pytest.approx(1, abs=1e-3)
        assert server.post("/predict", {"inputs": "ab cd"}).status_code == 200
