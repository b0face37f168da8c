"""What a server keeps of its models in use: traffic in metrics and in a file, and two versions that are compared."""

import asyncio
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import bertie
from bertie.errors import UsageError
from bertie.infer.predict import Predictor
from bertie.infer.traffic import Traffic, write_traffic
from bertie.io.tables import Example
from bertie.models import families
from bertie.runs.weights import load_model
from bertie.text.tokenizer import Tokenizer
from serving import LETTERS, Process, live, make_model, make_models, until
from toys import toy_model

pytest.importorskip("starlette")
from bertie.apps.serve.commands.serve import versions_of
from bertie.apps.serve.on_ray import Answered, Replica, ReplicaRequest
from bertie.apps.serve.remote import BatchFailed, WorkerSettings
from bertie.apps.serve.server import Options
from bertie.apps.serve.versions import Versions, agrees
from bertie.tasks import Prediction

TEXTS = [f"{a} {b}" for a in "abcdefgh" for b in "ijklm"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    home = tmp_path_factory.mktemp("versions")
    models = make_models(home, ["sequence", "tagging", "embed"])
    model, _ = families.load(models["sequence"])
    with torch.no_grad():
        model.heads["sequence"].classifier.weight.neg_()
        model.heads["sequence"].classifier.bias.neg_()
    families.save(model, home / "reversed", tokenizer=Tokenizer.load(models["sequence"]))
    return models | {"reversed": home / "reversed"}


def asked(server, name: str = "old", **headers: str) -> list[str]:
    return [
        server.post("/predict", {"inputs": text, "model": name}, headers=headers).headers["x-bertie-model"]
        for text in TEXTS
    ]


def test_the_traffic_is_in_metrics_and_compared_with_training(folders: dict[str, Path]):
    traffic = Traffic.of_model(folders["sequence"])
    [*Predictor(load_model(folders["sequence"])).stream([Example((text,)) for text in TEXTS], traffic=traffic)]
    write_traffic(folders["sequence"] / Traffic.FILE, [traffic])
    with live({"a": folders["sequence"], "tags": folders["tagging"], "vectors": folders["embed"]}) as server:
        for text in TEXTS:
            server.ok("/predict", {"inputs": text, "model": "a"})
        server.ok("/ner", {"inputs": "ab cd", "model": "tags"})
        server.ok("/embed", {"inputs": ["ab", "cd"], "model": "vectors"})
        found = until(lambda: (i := server.get("/traffic").json()["models"])["a"]["differences"].get("vectors") and i)
        assert found["a"]["rows"] == len(TEXTS)
        assert sum(found["a"]["names"]["label"].values()) == len(TEXTS)
        assert found["tags"]["rows"] == 1
        assert found["vectors"]["rows"] == 2
        text = server.get("/metrics").text
    for line in (
        'bertie_answer_confidence_bucket{le="+Inf",model="a"} 40.0',
        'bertie_scripts_total{model="a",script="Latin"} 40.0',
        'bertie_text_tokens_bucket{le="8.0",model="vectors"} 2.0',
    ):
        assert line in text
    drifts = dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("bertie_drift{"))
    assert float(drifts['bertie_drift{model="a",quantity="vectors"}']) < 0.5
    assert "ij" not in text


def test_a_file_has_the_traffic_of_several_servers(folders: dict[str, Path], tmp_path: Path):
    log = tmp_path / "traffic.json"
    for _ in range(2):
        with live({"a": folders["sequence"]}, log=log) as server:
            for text in TEXTS[:10]:
                server.ok("/predict", {"inputs": text})
            until(lambda: server.fleet.watch.models["a"].fresh.vectors.rows)
    (traffic,) = Traffic.read(log).values()
    assert traffic.rows == 20
    assert traffic.model == Traffic.of_model(folders["sequence"]).model
    assert len(traffic.vectors.array) > 0
    bertie.predict(folders["sequence"], TEXTS[:5], log=log)
    assert next(iter(Traffic.read(log).values())).rows == 25


@pytest.mark.filterwarnings("ignore:coroutine 'Replica.__del__'")  # which Python calls once more
def test_a_replica_of_a_cluster_that_stops_adds_what_it_counted(folders: dict[str, Path], tmp_path: Path):
    """Ray Serve awaits its constructor, its destructor, and each request."""
    log = tmp_path / "traffic.json"
    options = Options({"m": folders["sequence"]}, host="", log=log, worker=WorkerSettings("", threads=1))
    headers = [(b"content-type", b"application/json")]

    async def go() -> Answered:
        replica = object.__new__(Replica)
        await replica.__init__(options)
        answered = await replica(ReplicaRequest("POST", "/predict", b"", headers, b'{"inputs": "ab"}'))
        await replica.__del__()
        return answered

    status, _, _ = asyncio.run(go())
    assert (status, [one.rows for one in Traffic.read(log).values()]) == (200, [1])


def test_a_share_of_the_requests_goes_to_the_new_version_by_their_id(folders: dict[str, Path]):
    versions = Versions("old", "new", share=0.5)
    with live({"old": folders["sequence"], "new": folders["reversed"]}, versions=versions) as server:
        names = [asked(server, **{"x-request-id": f"r{number}"})[0] for number in range(12)]
        assert names == [asked(server, **{"x-request-id": f"r{number}"})[0] for number in range(12)]
        assert {*names} == {"old", "new"}
        assert {*asked(server, "new")} == {"new"}
        assert {*asked(server, "whatever a client calls it")} == {"old", "new"}
        found = server.get("/traffic").json()["versions"]
        assert found["answered"]["new"]["requests"] > len(TEXTS)
        assert found["agreement"] is None


def test_a_shadow_reads_the_same_texts_and_never_answers(folders: dict[str, Path]):
    versions = Versions("old", "new", shadow=True)
    with live({"old": folders["sequence"], "new": folders["reversed"]}, versions=versions) as server:
        assert {*asked(server)} == {"old"}
        found = until(lambda: (v := server.get("/traffic").json()["versions"])["compared"] == len(TEXTS) and v)
        assert found["agreement"] == 0, "all logits are negative of each other"
        assert found["shadowed"]["confidence"] == pytest.approx(found["answered"]["old"]["confidence"], abs=1e-4)
        assert server.get("/traffic").json()["models"]["new"]["rows"] == len(TEXTS)
        text = server.get("/metrics").text
        assert "bertie_shadow_compared_total 40.0" in text
        assert 'bertie_version_requests_total{by="shadow",model="new"} 40.0' in text


def test_a_shadow_that_fails_or_is_slow_delays_no_answer(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("bertie.apps.serve.watching.MOST_CHARACTERS", 30)
    versions = Versions("old", "new", shadow=True)
    with live({"old": folders["sequence"], "new": folders["reversed"]}, versions=versions) as server:

        async def fails(*arguments: object, **options: object) -> None:
            await asyncio.sleep(0.5)
            raise BatchFailed("out of memory")

        server.fleet.models["new"].batcher.workers[0].run = fails  # type: ignore[method-assign]
        began = time.perf_counter()
        assert {*asked(server)} == {"old"}
        assert time.perf_counter() - began < 10
        assert server.fleet.watch.dropped > 0
        until(lambda: server.get("/traffic").json()["versions"]["failed"])
        assert server.ok("/predict", {"inputs": "ab", "model": "old"})
        server.fleet.models["new"].batcher.workers[0].facts = None  # as if its process had ended
        assert server.get("/readyz").status_code == 200
        versions.share = 0.999
        assert {*asked(server)} == {"old"}


def test_versions_of_other_tasks_or_labels_are_refused(folders: dict[str, Path]):
    for new, words in (("tagging", "one task"), ("embed", "one task")):
        with (
            pytest.raises(UsageError, match=words),
            live({"old": folders["sequence"], "new": folders[new]}, versions=Versions("old", "new", share=0.5)),
        ):
            pass
    with (
        pytest.raises(UsageError, match="compares answers"),
        live({"old": folders["embed"], "new": folders["embed"]}, versions=Versions("old", "new", shadow=True)),
    ):
        pass


def test_other_labels_are_refused(folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("serving.LABELS", {"sequence": ("no", "maybe")})
    other = make_model(toy_model(tmp_path / "start", LETTERS), tmp_path / "other", "sequence", {}, 1)
    with (
        pytest.raises(UsageError, match="same labels"),
        live({"old": folders["sequence"], "new": other}, versions=Versions("old", "new", shadow=True)),
    ):
        pass


def test_what_the_options_mean(folders: dict[str, Path]):
    old, new = str(folders["sequence"]), str(folders["reversed"])
    models, versions = versions_of([old], new, None)
    assert [*models] == ["sequence", "reversed"]
    assert (versions.old, versions.new, versions.share, versions.shadow) == ("sequence", "reversed", 0.0, True)
    _, versions = versions_of([f"a={old}", f"b={new}"], None, "b=0.25")
    assert (versions.old, versions.new, versions.share) == ("a", "b", 0.25)
    assert versions_of([old], None, None)[1] is None
    for shadow, split in ((None, "b"), (None, "b=2"), (None, "=0.5"), ("a", None), ("b", "a=0.5")):
        with pytest.raises(UsageError):
            versions_of([f"a={old}", f"b={new}"], shadow, split)


@pytest.mark.parametrize(
    ("one", "two", "same"),
    [("yes", "yes", True), ("yes", "no", False), (0.5, 0.55, True), (0.5, 0.7, False), (("a",), ("a",), True)],
)
def test_answers_that_agree(one: object, two: object, same: bool):
    assert agrees(Prediction(one), Prediction(two)) is same


def test_switch_needs_no_restart(folders: dict[str, Path], tmp_path: Path):
    arguments = (f"old={folders['sequence']}", "--threads", "1", "--engine", "torch", "--device", "cpu")
    log = tmp_path / "traffic.json"
    with Process(tmp_path / "log", *arguments, "--traffic", f"new={folders['reversed']}=0.5", "--log", log) as server:

        def answered() -> set[str]:
            return {
                server.client.post("/predict", json={"inputs": text, "model": "old"}).headers["x-bertie-model"]
                for text in TEXTS[:16]
            }

        assert answered() == {"old", "new"}
        for name in ("old", "new"):
            done = subprocess.run(
                [sys.executable, "-m", "bertie", "switch", name, server.url], capture_output=True, text=True
            )
            assert done.returncode == 0, done.stderr
            assert answered() == {name}
        done = subprocess.run(
            [sys.executable, "-m", "bertie", "switch", "x", server.url], capture_output=True, text=True
        )
        assert done.returncode == 2
        assert "old and new" in done.stderr
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(30)
    assert sum(one.rows for one in Traffic.read(log).values()) == 48
    assert json.loads(log.read_text())["format"] == 1


def test_the_server_process_imports_no_torch():
    code = "import sys, bertie.apps.serve.server, bertie.apps.serve.golden; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
