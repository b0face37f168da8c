"""`bertie serve --on ray`: replicas on a local cluster, one of them killed and all of them replaced under load."""

import asyncio
import os
import shutil
import signal
import warnings
from pathlib import Path

import httpx
import psutil
import pytest

from bertie.apps.serve.server import Options
from serving import Load, Process, make_models, until

pytest.importorskip("starlette")
pytest.importorskip("ray")
with warnings.catch_warnings():  # of pydantic, about Ray's own models
    warnings.simplefilter("ignore")
    from ray.exceptions import ActorDiedError
    from ray.serve.exceptions import BackPressureError

from bertie.apps.serve.on_ray import Front, starting
from bertie.errors import BertieError


class Replicas:
    """Ray Serve's handle of replicas that do one thing after another: raise an error, or answer."""

    def __init__(self, *does: object) -> None:
        self.does, self.asked = list(does), []

    async def remote(self, asked):
        self.asked.append(asked)
        now = self.does.pop(0)
        if isinstance(now, Exception):
            raise now
        return now


ANSWER = (200, [(b"content-type", b"application/json"), (b"x-request-id", b"other")], b"[1]")


def ask(replicas: Replicas, **options) -> httpx.Response:
    front = Front(Options({"m": Path("m")}, **options), replicas)

    async def go():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(front), base_url="http://localhost") as client:
            key = {"Authorization": "Bearer k", "x-request-id": "mine"}
            return await client.post("/predict?a=b", json={"inputs": "text"}, headers=key)

    return asyncio.run(go())


@pytest.mark.promise("reload")
def test_a_request_whose_replica_ended_goes_to_another_one():
    replicas = Replicas(ActorDiedError(), ActorDiedError(), ANSWER)
    response = ask(replicas)
    assert (response.status_code, response.json()) == (200, [1])
    assert response.headers.get_list("x-request-id") == ["mine"]
    assert replicas.asked[0] == replicas.asked[1] == replicas.asked[2]
    one = replicas.asked[0]
    assert (one.method, one.path, one.query, one.body) == ("POST", "/predict", b"a=b", b'{"inputs":"text"}')
    assert dict(one.headers)[b"x-request-id"] == b"mine"
    assert b"authorization" not in dict(one.headers)


def test_a_request_that_ends_every_replica_is_given_up():
    replicas = Replicas(*[ActorDiedError()] * 9)
    response = ask(replicas)
    assert (response.status_code, response.json()["error_type"]) == (503, "Unhealthy")
    assert len(replicas.asked) == 3


def test_a_cluster_that_does_not_answer_is_one_clear_error():
    for error in (ConnectionError("Failed to connect.\nNo cluster at 10.0.0.1:6379."), ActorDiedError()):
        with pytest.raises(BertieError, match=r"Ray could not start: .*RAY_ADDRESS"), starting():
            raise error


def test_what_is_refused_before_a_replica_is_asked():
    busy = ask(Replicas(BackPressureError(num_queued_requests=1, max_queued_requests=1)))
    assert (busy.status_code, busy.headers["retry-after"]) == (429, "1")
    untouched = Replicas()
    assert ask(untouched, keys=("another",)).status_code == 401
    assert ask(untouched, max_body_bytes=5).status_code == 413
    assert untouched.asked == []


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return make_models(tmp_path_factory.mktemp("models"))


def replicas(server: Process) -> set[int]:
    """-> the process ids of the replicas"""
    found = set()
    for one in psutil.Process(server.process.pid).children(recursive=True):
        try:
            if "ServeReplica:bertie-models" in " ".join(one.cmdline()):
                found.add(one.pid)
        except psutil.Error:
            continue
    return found


@pytest.mark.promise("reload")
@pytest.mark.slow
def test_no_request_is_lost(folders, tmp_path):
    """Replicas are added under load, one is killed with requests in its hands, all are replaced: nobody notices."""
    model = Path(shutil.copytree(folders["sequence"], tmp_path / "model"))
    options = ("--on", "ray", "--replicas", "1", "--max-replicas", "2", "--threads", "1")
    with Process(tmp_path / "log", f"m={model}", *options) as server:
        (only,) = replicas(server)
        response = server.post("/predict", {"inputs": "ab c"})
        assert response.status_code == 200
        assert {row["label"] for row in response.json()} == {"no", "yes"}
        assert response.headers["x-content-type-options"] == "nosniff"
        assert server.client.get("/info").json()["models"].keys() == {"m"}
        assert "<html" in server.client.get("/").text
        assert server.client.post("/predict", content=b"{}").status_code == 415
        assert server.post("/predict", {"inputs": [1]}).status_code == 422

        body = {"inputs": [["ab cd " * 12]] * 32}  # work for the replicas, rather than for the clients
        loads = [Load(server.url, body, "/predict") for _ in range(12)]
        for load in loads:
            load.start()
        both = until(lambda: len(found := replicas(server)) == 2 and found, 120)
        until(lambda: len([status for load in loads for status in load.found]) > 40)
        os.kill(only, signal.SIGKILL)
        after = until(lambda: len(found := replicas(server)) == 2 and only not in found and found, 120)
        assert after & both, "the other one stayed"
        server.process.send_signal(signal.SIGHUP)
        until(lambda: len(found := replicas(server)) == 2 and not found & after, 120)
        until(lambda: '"reloaded"' in server.log.read_text(), 120)
        statuses = [status for load in loads for status in load.stop()]
        assert len(statuses) > 60
        assert set(statuses) == {200}, "no request is lost, whatever happened meanwhile"

        weights = (model / "model.safetensors").read_bytes()
        (model / "model.safetensors").write_bytes(weights[:-100])
        before = replicas(server)
        server.process.send_signal(signal.SIGHUP)
        until(lambda: "reload_failed" in server.log.read_text(), 120)
        assert replicas(server) & before, "an old one stays"
        assert server.post("/predict", {"inputs": "ab c"}).status_code == 200

        everything = psutil.Process(server.process.pid).children(recursive=True)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0
        _, left = psutil.wait_procs(everything, 20)
        assert not left
