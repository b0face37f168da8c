"""`bertie serve` as a process: signals, reloads, workers that are killed, and what it says when it cannot begin."""

import asyncio
import fcntl
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import psutil
import pytest

from bertie import checksums
from bertie.apps.serve.commands.reload import signal_to
from bertie.apps.serve.fleet import Fleet, parse_named_folders
from bertie.apps.serve.remote import Worker, WorkerSettings
from bertie.apps.serve.server import Options, run_server
from bertie.errors import DataError, UsageError
from serving import Load, Process, live, make_models, until

pytest.importorskip("starlette")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return make_models(tmp_path_factory.mktemp("models"))


def test_a_process_that_ended_does_not_come_back_with_another_model(folders, tmp_path):
    """The server keeps the tokenizer and the labels of the old one, so the answers would be wrong."""
    model = Path(shutil.copytree(folders["sequence"], tmp_path / "model"))

    async def go():
        worker = Worker(WorkerSettings(str(model), engine="torch", device="cpu", threads=1))
        await worker.start()
        psutil.Process(worker.pid).kill()
        shutil.rmtree(model)
        shutil.copytree(folders["multilabel"], model)
        told = list[str]()
        await worker.restart(told.append, lambda: not told)
        assert "contains another model now" in told[0]
        assert not worker.alive

    asyncio.run(go())


def test_a_model_whose_process_cannot_start_again_is_refused_at_once(folders, tmp_path):
    """Requests waited for --request-seconds, 60 s."""
    model = Path(shutil.copytree(folders["sequence"], tmp_path / "model"))
    with live({"m": model}, Worker) as server:
        server.ok("/predict", {"inputs": "a"})
        (worker,) = server.fleet.models["m"].batcher.workers
        weights = (model / "model.safetensors").read_bytes()
        (model / "model.safetensors").write_bytes(weights[:100])
        psutil.Process(worker.pid).kill()
        until(lambda: server.get("/readyz").json()["models"] == {"m": "failed"})
        begun = time.monotonic()
        answer = server.post("/predict", {"inputs": "a"})
        assert (answer.status_code, "cannot be started again" in answer.text) == (503, True)
        assert time.monotonic() - begun < 5
        (model / "model.safetensors").write_bytes(weights)
        until(lambda: server.get("/readyz").status_code == 200)
        server.ok("/predict", {"inputs": "a"})


def test_a_reload_of_a_damaged_folder_keeps_the_old_model(folders, tmp_path):
    model = Path(shutil.copytree(folders["sequence"], tmp_path / "model"))
    checksums.write_checksums(model, "model folder")
    with live({"m": model}) as server:
        before = server.ok("/predict", {"inputs": "a"})
        data = bytearray((model / "model.safetensors").read_bytes())
        data[-1] ^= 1  # a flipped bit, with which the model opens
        (model / "model.safetensors").write_bytes(data)
        (model / "README.md").write_text("A card may be edited.")
        done = asyncio.run_coroutine_threadsafe(server.fleet.reload(), server.loop).result(30)
        assert "failed: " in done["m"]
        assert "its hash differs" in done["m"]
        assert server.get("/info").json()["generation"] == 1
        assert server.ok("/predict", {"inputs": "a"}) == before
        data[-1] ^= 1
        (model / "model.safetensors").write_bytes(data)
        done = asyncio.run_coroutine_threadsafe(server.fleet.reload(), server.loop).result(30)
        assert done == {"m": "done"}


def test_a_reload_waits_while_models_load(monkeypatch):
    """The usual action of SIGHUP is to end the process."""
    ended, begun = list[int](), list[str]()

    async def start(fleet):
        async with fleet._reloading:
            os.kill(os.getpid(), signal.SIGHUP)
            await asyncio.sleep(0.05)
            raise DataError("the end of this test")

    async def load(fleet, name, path, generation=1):
        begun.append(name)

    monkeypatch.setattr(Fleet, "start", start)
    monkeypatch.setattr(Fleet, "load", load)
    usual = signal.signal(signal.SIGHUP, lambda number, frame: ended.append(number))
    try:
        with pytest.raises(DataError, match="the end"):
            run_server(Options({"m": Path("m")}, port=0))
    finally:
        signal.signal(signal.SIGHUP, usual)
    assert not ended
    assert not begun


@pytest.mark.promise("reload")
def test_one_reload_for_many_signals(folders, monkeypatch):
    """One that runs, and one that follows it. Each begins with a line of the log."""
    told = list[str]()
    with live({"m": folders["sequence"]}) as server:
        fleet = server.fleet
        fleet.log = lambda event, **fields: told.append(event)
        load = fleet.load

        async def slow(*arguments: object) -> object:
            await asyncio.sleep(0.3)
            return await load(*arguments)

        monkeypatch.setattr(fleet, "load", slow)
        done = [asyncio.run_coroutine_threadsafe(fleet.reload(), server.loop) for _ in range(10)]
        for one in done:
            one.result(30)
        assert told == ["reload_queued", "reload_started", "reloaded", "reload_started", "reloaded"] or told == [
            "reload_started",
            "reload_queued",
            "reloaded",
            "reload_started",
            "reloaded",
        ]
        assert server.get("/info").json()["generation"] == 3


@pytest.mark.promise("reload")
def test_reload_waits_and_tells(folders, tmp_path, bertie):
    """With a real process, whose log is a full pipe that nobody reads, and which gets SIGHUP while it starts."""
    model = Path(shutil.copytree(folders["sequence"], tmp_path / "model"))
    keys = tmp_path / "keys"
    keys.write_text("secret\n")
    reader, writer = os.pipe()
    os.write(writer, b"x" * fcntl.fcntl(writer, fcntl.F_GETPIPE_SZ))
    command = [sys.executable, "-m", "bertie", "serve", f"m={model}", "--port", "0", "--json", "--threads", "1"]
    environment = {**os.environ, "BERTIE_API_KEY": "secret"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=writer, env=environment)
    try:
        until(lambda: ignores_hangup(process.pid))
        process.send_signal(signal.SIGHUP)
        url = json.loads(process.stdout.readline())["url"]
        (worker,) = psutil.Process(process.pid).children()
        assert "BERTIE_API_KEY" not in worker.environ()
        code, _, err = bertie("reload", url)
        assert (code, "Pass --key-file" in err) == (1, True), err
        code, out, err = bertie("reload", url, "--key-file", keys, "--json")
        assert code == 0, err
        assert json.loads(out) == {"m": "done"}
        (model / "model.safetensors").write_bytes(b"\0" * 100)
        code, _, err = bertie("reload", url, "--key-file", keys)
        assert (code, "m: failed" in err, "Not loaded: m" in err) == (1, True, True), err
        with httpx.Client(base_url=url, headers={"authorization": "Bearer secret"}) as client:
            for _ in range(20):
                assert client.post("/predict", json={"inputs": "ab"}).status_code == 200
            assert client.get("/info").json()["generation"] == 2
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.wait()
        for descriptor in (reader, writer):
            os.close(descriptor)


def ignores_hangup(pid: int) -> bool:
    """Whether a process has come to the first line of Bertie."""
    (mask,) = re.findall(r"SigIgn:\t(\w+)", Path(f"/proc/{pid}/status").read_text())
    return bool(int(mask, 16) & 1 << signal.SIGHUP - 1)


def test_reload_of_what_is_no_server_here(bertie, tmp_path):
    code, _, err = bertie("reload", "http://127.0.0.1:9")
    assert (code, "No server answered" in err) == (1, True), err
    other = {"process": {"pid": os.getpid(), "started": "1"}, "reloads": {"number": 0}}
    with pytest.raises(UsageError, match="not a process of this machine"):
        signal_to(other["process"], "http://x", signal.SIGHUP)
    with pytest.raises(UsageError, match="Ray"):
        signal_to(None, "http://x", signal.SIGHUP)


@pytest.mark.promise("private-texts")
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_log_that_cannot_be_written_stops_nothing(folders):
    command = [sys.executable, "-m", "bertie", "serve", str(folders["sequence"]), "--port", "0", "--json"]
    with open("/dev/full", "w") as full:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=full)
    try:
        url = json.loads(process.stdout.readline())["url"]
        assert httpx.get(url + "/healthz").status_code == 200
        assert httpx.post(url + "/predict", json={"inputs": "ab"}).status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.promise("reload")
@pytest.mark.promise("shutdown")
@pytest.mark.promise("private-texts")
@pytest.mark.slow
def test_a_life(folders, tmp_path):
    """A worker is killed under load, the model is reloaded under load, a bad one is refused, SIGTERM drains."""
    model = Path(shutil.copytree(folders["embed"], tmp_path / "model"))
    with Process(tmp_path / "log", f"m={model}", "--threads", "1") as server:
        vector = server.post("/embed", {"inputs": "ab"}).json()
        loads = [Load(server.url, {"inputs": ["ab c", "d"]}) for _ in range(3)]
        for load in loads:
            load.start()

        (worker,) = server.workers()
        worker.kill()
        until(lambda: 'bertie_worker_restarts_total{model="m"}' in server.client.get("/metrics").text)
        until(lambda: server.ready() == 200)
        assert [one.pid for one in server.workers()] != [worker.pid]

        before = server.client.get("/info").json()
        server.process.send_signal(signal.SIGHUP)
        until(lambda: server.client.get("/info").json()["generation"] == 2)
        assert server.client.get("/info").json()["model_sha"] == before["model_sha"]
        until(lambda: len(server.workers()) == 1)

        weights = (model / "model.safetensors").read_bytes()
        (model / "model.safetensors").write_bytes(weights[:-100])
        server.process.send_signal(signal.SIGHUP)
        until(lambda: 'outcome="failed"' in server.client.get("/metrics").text)
        assert server.client.get("/info").json()["generation"] == 2
        (model / "model.safetensors").write_bytes(weights)
        golden = [{"route": "/embed", "request": {"inputs": "ab"}, "answer": [[0.0] * 32]}]
        (model / "golden.json").write_text(json.dumps(golden))
        server.process.send_signal(signal.SIGHUP)
        until(lambda: 'outcome="failed"} 2' in server.client.get("/metrics").text)
        golden[0]["answer"] = vector
        (model / "golden.json").write_text(json.dumps(golden))
        server.process.send_signal(signal.SIGHUP)
        until(lambda: server.client.get("/info").json()["generation"] == 3)
        found = [status for load in loads for status in load.stop()]
        assert len(found) > 20
        assert set(found) == {200}, "no request failed, whatever happened meanwhile"

        loads = [Load(server.url, {"inputs": ["ab c"] * 32}) for _ in range(4)]
        for load in loads:
            load.start()
        time.sleep(0.3)
        server.process.send_signal(signal.SIGTERM)
        each = [load.stop_when_closed() for load in loads]
        assert server.process.wait(20) == 0
        statuses = [status for found in each for status in found]
        assert set(statuses) <= {200, 503, "ConnectError", "RemoteProtocolError", "ReadError"}
        for found in each:  # what was admitted is answered; connections are closed only to requests that come later
            assert next(status for status in found if status != 200) in (503, "ConnectError")
        assert statuses.count(200) > 0
        log = server.log.read_text()
        assert "draining" in log
        assert "ab c" not in log
        assert "worker_restart" in log


@pytest.mark.promise("overload")
@pytest.mark.slow
def test_ten_times_more_than_it_can_do(folders, tmp_path):
    """Open loop for ten seconds: what is admitted is answered in bounded time, the rest refused, nothing remains."""
    from benchmarks.load import closed_loop, open_loop, request_of

    options = ("--threads", "1", "--max-wait-seconds", "0.5", "--no-access-log")
    with Process(tmp_path / "log", f"m={folders['embed']}", *options) as server:
        port = int(server.url.rpartition(":")[2])
        request = request_of("/embed", {"inputs": ["ab " * 40] * 32})
        capacity = asyncio.run(closed_loop(port, [request], 2.0))
        found = asyncio.run(open_loop(port, [request], min(10 * capacity, 1500), 10.0, 0))
        assert found.failed == 0
        assert found.quantile(0) < 10, "the bound of a request's wait is 0.5 s; this one is for a busy machine"
        assert len(found.refused) > len(found.took) > 0
        until(lambda: "te_queue_size 0.0" in server.client.get("/metrics").text, 10)


@pytest.mark.promise("shutdown")
@pytest.mark.slow
def test_a_second_signal_ends_at_once(folders, tmp_path):
    with Process(tmp_path / "log", folders["sequence"], "--threads", "1") as server:
        workers = server.workers()
        os.kill(server.process.pid, signal.SIGSTOP)
        os.kill(server.process.pid, signal.SIGTERM)
        os.kill(server.process.pid, signal.SIGCONT)
        time.sleep(0.05)
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(10) in (0, 130)
        until(lambda: not any(one.is_running() and one.status() != "zombie" for one in workers), 10)


@pytest.mark.slow
def test_a_server_that_is_killed_leaves_no_worker(folders, tmp_path):
    with Process(tmp_path / "log", folders["sequence"], "--threads", "1") as server:
        workers = server.workers()
        server.process.kill()
        server.process.wait()
        until(lambda: not any(one.is_running() and one.status() != "zombie" for one in workers), 10)


@pytest.mark.slow
def test_memory_threads_and_descriptors_stay(folders, tmp_path):
    """3,000 requests of mixed length: what the server holds does not grow with them."""
    with Process(tmp_path / "log", f"m={folders['embed']}", "--threads", "1", "--no-access-log") as server:
        process = psutil.Process(server.process.pid)

        def send(count: int) -> None:
            for number in range(count):
                assert server.post("/embed", {"inputs": "ab " * (1 + number % 40)}).status_code == 200

        send(1000)
        before = process.memory_info().rss, process.num_threads(), process.num_fds()
        send(3000)
        after = process.memory_info().rss, process.num_threads(), process.num_fds()
        assert (after[0] - before[0]) / 3000 < 1024
        assert after[1] - before[1] <= 1
        assert after[2] - before[2] <= 2


def refused(*arguments: object) -> tuple[int, str]:
    command = [sys.executable, "-m", "bertie", "serve", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.returncode, re.sub(r"\s+", " ", done.stderr)


def test_what_it_says_when_it_cannot_begin(folders, tmp_path):
    code, err = refused(tmp_path / "nothing")
    assert (code, "does not exist" in err) == (3, True), err
    code, err = refused(f"={folders['embed']}")
    assert (code, "has no name before the equals sign" in err) == (3, True), err
    code, err = refused(folders["embed"], "--host", "0.0.0.0")
    assert (code, "--no-key" in err) == (2, True), err
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, err = refused(folders["embed"], "--port", taken.getsockname()[1])
    assert (code, "--port 0" in err) == (1, True), err
    code, err = refused(folders["embed"], "--host", "203.0.113.7", "--no-key")
    assert (code, "not an address of this machine" in err) == (2, True), err
    code, err = refused(folders["embed"], "--max-replicas", "2")
    assert (code, "--on ray" in err) == (2, True), err
    code, err = refused(folders["embed"], "--too-long", "never")
    assert (code, "truncate" in err) == (2, True), err


@pytest.mark.slow
def test_a_model_that_cannot_be_served(folders, tmp_path):
    """A damaged one, one whose weights are no numbers, and a folder that holds no model."""
    import torch
    from safetensors.torch import load_file, save_file

    code, err = refused(tmp_path)
    assert (code, "no config.json" in err) == (3, True), err
    broken = Path(shutil.copytree(folders["embed"], tmp_path / "broken"))
    (broken / "model.safetensors").write_bytes(b"\0" * 100)
    code, err = refused(broken)
    assert code == 3, err
    nan = Path(shutil.copytree(folders["embed"], tmp_path / "nan"))
    weights = load_file(nan / "model.safetensors")
    weights = {name: torch.full_like(weight, float("nan")) for name, weight in weights.items()}
    save_file(weights, nan / "model.safetensors", metadata={"format": "pt"})
    code, err = refused(nan)
    assert (code, "finite" in err) == (3, True), err


@pytest.mark.slow
def test_an_exported_graph_answers_alike(folders, tmp_path):
    """Without torch in the worker."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx_ir")
    texts = tmp_path / "texts.txt"
    texts.write_text("".join(f"{chr(97 + n % 26)}{chr(97 + n % 7)} {chr(97 + n % 13)}\n" for n in range(300)))
    graph = tmp_path / "graph"
    command = [
        sys.executable,
        "-m",
        "bertie",
        "export",
        folders["sequence"],
        "--to",
        "onnx",
        "--texts",
        texts,
        "-o",
        graph,
    ]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    with Process(tmp_path / "log", f"torch={folders['sequence']}", f"onnx={graph}", "--threads", "1") as server:
        ask = {"inputs": [["ab cd"], ["e f g h"]]}
        one, other = (server.post("/predict", {**ask, "model": name}).json() for name in ("torch", "onnx"))
        for first, second in zip(one, other, strict=True):
            assert [row["label"] for row in first] == [row["label"] for row in second]
            assert [row["score"] for row in first] == pytest.approx([row["score"] for row in second], abs=1e-5)


def test_models_have_names_or_folders_and_an_index_has_a_folder(tmp_path):
    assert parse_named_folders(["starter-en", f"b={tmp_path}"]) == {"starter-en": Path("starter-en"), "b": tmp_path}
    assert [parse_named_folders([str(tmp_path)], index=True)] == [{tmp_path.name: tmp_path}]
    for wrong, hint in (("starter-xx", "bertie download --list"), ("a/b", "bertie download a/b")):
        with pytest.raises(DataError, match=f"{wrong} does not exist.*{hint}"):
            parse_named_folders([wrong])
    with pytest.raises(DataError, match="Pass the folder of an index"):
        parse_named_folders(["starter-en"], index=True)
