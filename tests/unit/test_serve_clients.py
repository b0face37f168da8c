"""The official clients of other servers work unchanged against a live one."""

import json

import numpy as np
import pytest

from serving import live, make_models

pytest.importorskip("starlette")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with live(make_models(tmp_path_factory.mktemp("models"))) as running:
        yield running


def test_openai(server):
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
    found = client.embeddings.create(input=["ab", "cd e"], model="embed")  # the client asks for base64
    direct = server.ok("/v1/embeddings", {"input": ["ab", "cd e"]})["data"]
    np.testing.assert_allclose([one.embedding for one in found.data], [one["embedding"] for one in direct], atol=1e-6)
    assert found.usage.total_tokens == 9
    assert len(client.embeddings.create(input="ab", model="embed", dimensions=4).data[0].embedding) == 4
    assert "embed" in {model.id for model in client.models.list()}
    assert client.models.retrieve("span").id == "span"
    with pytest.raises(openai.UnprocessableEntityError, match="empty text"):
        client.embeddings.create(input=[""], model="embed")
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("none")


def test_hugging_face(server, monkeypatch):
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)  # the server is on this machine

    def client(model: str):
        return hub.InferenceClient(f"{server.url}/models/{model}")

    labels = client("sequence").text_classification("ab cd")
    assert [one.label for one in labels] == [one["label"] for one in server.ok("/predict", {"inputs": "ab cd"})]
    entities = client("tagging").token_classification("ab cd")
    assert entities[0].word == "ab cd"[entities[0].start : entities[0].end]
    answer = client("span").question_answering(question="ab", context="cd ef")
    assert answer.answer == "cd ef"[answer.start : answer.end]
    masks = client("pretrained").fill_mask("ab [MASK]", top_k=2)
    assert [one.sequence for one in masks] == [
        one["sequence"] for one in server.ok("/fill_mask", {"inputs": "ab [MASK]", "parameters": {"top_k": 2}})
    ]
    vectors = client("embed").feature_extraction("ab cd", normalize=True)
    np.testing.assert_allclose(vectors, server.ok("/embed", {"inputs": "ab cd"}), atol=1e-6)
    similar = hub.InferenceClient(f"{server.url}/similarity").sentence_similarity("ab", other_sentences=["ab", "c"])
    assert similar[0] == pytest.approx(1, abs=1e-5)
    endpoint = hub.InferenceClient(server.url, provider="hf-inference")
    assert endpoint.health_check(model=server.url)
    assert endpoint.get_endpoint_info(model=server.url)["model_id"] == "sequence"


def test_text_embeddings_inference_by_hand(server):
    """Its clients send nothing but these fields, and read nothing but these."""
    body = json.loads('{"inputs":["ab","cd"],"normalize":true,"truncate":false,"prompt_name":null}')
    assert len(server.ok("/embed", body)) == 2
    assert [sorted(row) for row in server.ok("/rerank", {"query": "ab", "texts": ["c"]})] == [["index", "score"]]
