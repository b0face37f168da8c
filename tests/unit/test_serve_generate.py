"""Generated texts, whole and as events, and the heads of a model of several tasks."""

import asyncio
import json
from pathlib import Path

import httpx
import numpy as np
import pytest

import bertie
from bertie.apps.serve.batcher import Batcher, Failed
from bertie.apps.serve.remote import WorkerDied
from bertie.infer.engine import Facts
from bertie.infer.predict import Predictor
from bertie.models import families
from bertie.models.generation import GenerationConfig, written_output
from bertie.runs.weights import load_model
from bertie.tasks import with_task
from bertie.tasks.text2text import Text2TextTask
from bertie.text.sequences import NOWHERE, Sequences
from bertie.text.tokenizer import Tokenizer
from bertie.training_facts import TrainingFacts
from serving import LocalWorker, Process, live, make_models, until
from toys import toy_writer

pytest.importorskip("starlette")
OUTPUT = written_output(GenerationConfig())
TEXTS = ["a b c", "d", "e f g h i k l m"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    home = tmp_path_factory.mktemp("models")
    made = make_models(home)
    names = ("text2text", "several", "sequence")
    causal = toy_writer(home / "gpt2", "gpt2")
    tokenizer = Tokenizer.load(causal)
    model, _ = families.load(causal)
    model.training_facts = with_task(
        TrainingFacts(max_length=30, too_long="truncate", texts=1), Text2TextTask(max_target_length=12)
    )
    families.save(model, causal, tokenizer=tokenizer)
    return {**{name: made[name] for name in names}, "causal": causal}


@pytest.fixture(scope="module")
def server(folders):
    with live(folders) as running:
        yield running


def events(response: httpx.Response) -> list[dict]:
    """The records of server-sent events, as they come."""
    lines = (line for line in response.iter_lines() if line)
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def streamed(server, path: str, body: dict) -> list[dict]:
    with server.client.stream("POST", server.url + path, json=body) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["x-bertie-truncated"] == "0"
        return events(response)


@pytest.mark.parametrize("model", ["text2text", "causal"])
@pytest.mark.parametrize("options", [{}, {"num_beams": 3, "length_penalty": 0.5}, {"do_sample": False}])
def test_texts_are_those_of_the_library(server, folders, model, options):
    """In a batch and alone; `bertie predict` gives the same."""
    given = {"max_new_tokens": 9, **options}
    ours = {"num_beams": "beams", "do_sample": "sample"}
    expected = bertie.write(folders[model], TEXTS, **{ours.get(name, name): value for name, value in given.items()})
    found = server.ok("/generate", {"model": model, "inputs": TEXTS, "parameters": given})
    assert [one["generated_text"] for one in found] == expected
    alone = server.ok("/generate", {"model": model, "inputs": TEXTS[0], "parameters": given})
    assert alone == found[:1]


def test_without_options_it_is_what_was_trained(server, folders):
    expected = Predictor(load_model(folders["text2text"])).predict(TEXTS)
    found = server.ok("/generate", {"inputs": TEXTS})
    assert [one["generated_text"] for one in found] == [one.label for one in expected]
    assert server.ok("/answer", {"inputs": TEXTS, "model": "text2text"})["answers"][0]["label"] == expected[0].label


@pytest.mark.parametrize("path", ["/generate", "/generate_stream", "/models/text2text"])
@pytest.mark.parametrize("options", [{}, {"num_beams": 2}])
def test_a_stream_gives_the_same_text(server, path, options):
    body = {"model": "text2text", "inputs": TEXTS[0], "parameters": {"max_new_tokens": 12, **options}}
    (whole,) = server.ok("/generate", body)
    found = streamed(server, path, {**body, "stream": True})
    assert "".join(one["token"]["text"] for one in found) == found[-1]["generated_text"] == whole["generated_text"]
    assert [one["index"] for one in found] == [*range(1, len(found) + 1)]
    assert all(one["generated_text"] is None for one in found[:-1])
    reason = "length" if len(found) == 12 else "eos_token"
    assert found[-1]["details"] == {"finish_reason": reason, "generated_tokens": len(found), "seed": None}
    assert server.ok("/decode", {"model": "text2text", "ids": [one["token"]["id"] for one in found]}) == [
        whole["generated_text"]
    ]


def test_the_kind_of_answer_is_described(server):
    paths = server.get("/openapi.json").json()["paths"]
    for path in ("/generate", "/generate_stream"):
        assert {"application/json", "text/event-stream"} <= set(paths[path]["post"]["responses"]["200"]["content"])


def test_drawn_tokens(server):
    """temperature, top_k and top_p draw; the likeliest of one is the greedy text."""
    body = {"inputs": TEXTS[0], "parameters": {"max_new_tokens": 9}}
    greedy = server.ok("/generate", body)
    assert server.ok("/generate", {**body, "parameters": {"max_new_tokens": 9, "top_k": 1}}) == greedy
    hot = {"max_new_tokens": 9, "temperature": 5.0}
    assert len({json.dumps(server.ok("/generate", {**body, "parameters": hot})) for _ in range(5)}) > 1


REFUSED = [
    ({"inputs": ["a", "b"], "stream": True}, 422),
    ({"inputs": []}, 400),
    ({"inputs": [], "stream": True}, 400),
    ({"inputs": "a", "parameters": {"max_new_tokens": 513}}, 422),
    ({"inputs": "a", "parameters": {"num_beams": 2, "do_sample": True}}, 422),
    ({"inputs": "a", "parameters": {"num_beams": 2, "top_k": 3}}, 422),
    ({"inputs": "a", "parameters": {"seed": 1}}, 422),
    ({"inputs": "a", "model": "sequence"}, 424),
    ({"inputs": "a b " * 40, "model": "causal", "parameters": {"max_new_tokens": 40}, "stream": True}, 424),
    ({"inputs": "a b " * 40, "model": "causal", "parameters": {"max_new_tokens": 40}}, 424),  # positions are missing
]


@pytest.mark.parametrize(("body", "status"), REFUSED)
def test_refusals(server, body, status):
    response = server.post("/generate", body)
    assert response.status_code == status, response.text
    assert len(response.json()["error"]) > 15
    assert server.fleet.admission.texts.used == 0


def test_the_client_of_hugging_face(server, monkeypatch):
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)  # the server is on this machine
    client = hub.InferenceClient(f"{server.url}/models/text2text")
    whole = client.text_generation("a b c", max_new_tokens=9)
    assert (
        whole == server.ok("/generate", {"inputs": "a b c", "parameters": {"max_new_tokens": 9}})[0]["generated_text"]
    )
    assert "".join(client.text_generation("a b c", max_new_tokens=9, stream=True)) == whole
    last = [*client.text_generation("a b c", max_new_tokens=9, stream=True, details=True)][-1]
    assert last.generated_text == whole


def test_a_client_that_leaves_frees_its_place(folders):
    class Slow(LocalWorker):
        token_s = 0.05

    with live({"m": folders["text2text"]}, Slow) as server:
        body = {"inputs": "a b c", "parameters": {"max_new_tokens": 40, "temperature": 5.0}}
        with server.client.stream("POST", server.url + "/generate_stream", json=body) as response:
            next(response.iter_lines())
        until(lambda: server.fleet.admission.texts.used == 0, 10)
        assert server.fleet.models["m"].calls == 0
        assert server.fleet.admission.tokens["m"].used == 0


def test_a_stream_that_takes_too_long_ends_with_the_reason(folders):
    class Slow(LocalWorker):
        token_s = 0.6

    with live({"m": folders["text2text"]}, Slow, request_s=3.0) as server:
        body = {"inputs": "a b c", "parameters": {"max_new_tokens": 12, "temperature": 5.0}}
        for _ in range(9):  # a drawn text may end before the time does, and what was cut off goes on unseen
            found = server.post("/generate_stream", body)  # whose body is complete
            *tokens, last = [json.loads(line[6:]) for line in found.text.splitlines() if line]
            if "error_type" in last:
                break
        assert tokens
        assert last["error_type"] == "Overloaded"


def test_a_stream_whose_process_ends_is_not_begun_again():
    """What was sent cannot be taken back. Other requests of the process are repeated."""

    class Ending:
        facts = Facts(64, 1, {}, writes=True)
        alive, lanes, starts, runs = True, 1, 0, 0

        async def run(self, ids, outputs, on_token=None, adapter=""):
            self.runs += 1
            on_token(5)
            raise WorkerDied

        async def stop(self):
            return None

    async def work():
        worker, found = Ending(), []
        batcher = Batcher([worker], max_tokens=100, report=lambda *told: None)
        ids = Sequences(np.arange(3), np.zeros(3, np.int64), np.array([3]), NOWHERE)
        with pytest.raises(Failed, match="ended with this request"):
            await batcher.run(ids, (OUTPUT,), found.append)
        await batcher.kill()
        return found, worker.runs

    assert asyncio.run(work()) == ([5], 1)


@pytest.mark.slow
def test_events_from_a_worker_process(folders, tmp_path):
    """Each token is a message of the process. One that is killed ends the stream with an error, and comes back."""
    with Process(tmp_path / "log", f"m={folders['text2text']}", "--threads", "1") as server:
        body = {"inputs": "a b c", "parameters": {"max_new_tokens": 12}, "stream": True}
        found = events(server.post("/generate", body))
        whole = server.post("/generate", {**body, "stream": False}).json()
        assert [{"generated_text": found[-1]["generated_text"]}] == whole
        long = {"inputs": "a b c", "parameters": {"max_new_tokens": 512, "temperature": 50.0}}
        with server.client.stream("POST", "/generate_stream", json=long) as response:
            lines = response.iter_lines()
            next(lines)
            server.workers()[0].kill()
            last = [json.loads(line.removeprefix("data: ")) for line in lines if line][-1]
        assert "error" in last or last["generated_text"] is not None  # it may have been quicker
        until(lambda: server.ready() == 200, 200)  # it imports torch again
        assert server.post("/generate", {**body, "stream": False}).json() == whole


# Several heads -------------------------------------------------------------------------------------------------------


def heads_of(folder: Path, name: str) -> dict:
    (found,) = Predictor(load_model(folder), head=name).predict(["ab cd"])
    return found.as_json()


def test_each_head_and_all_of_them(server, folders):
    (both,) = server.ok("/answer", {"model": "several", "inputs": "ab cd"})["answers"]
    assert set(both["heads"]) == {"x", "y"}
    assert both["label"]["x"] == both["heads"]["x"]["label"]
    assert both["label"]["y"] == pytest.approx(both["heads"]["y"]["label"], abs=1e-6)
    for name in ("x", "y"):
        (one,) = server.ok("/answer", {"model": "several", "inputs": "ab cd", "head": name})["answers"]
        expected = heads_of(folders["several"], name)
        assert {key: one[key] for key in both["heads"][name]} == both["heads"][name]
        if name == "x":
            assert one["label"] == expected["label"]
            assert one["scores"] == pytest.approx(expected["scores"], abs=2e-6)
        else:
            assert one["label"] == pytest.approx(expected["label"], abs=2e-6)


def test_a_head_that_there_is_not(server):
    response = server.post("/answer", {"model": "several", "inputs": "a", "head": "z"})
    assert (response.status_code, "no head" in response.json()["error"]) == (422, True)
    assert server.post("/answer", {"model": "sequence", "inputs": "a", "head": "x"}).status_code == 422
    assert server.post("/models/several", {"inputs": "ab", "head": "x"}).json()["answers"][0]["label"] in ("no", "yes")
