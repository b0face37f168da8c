"""Batches, budgets and overload: who is let in, who goes together, and that nobody waits for a lost answer."""

import asyncio
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest

from bertie.apps.serve import wire
from bertie.apps.serve.admission import Admission, Budget, TokenRate
from bertie.apps.serve.batcher import Batcher, BatchJob, Failed, join_parts, split
from bertie.apps.serve.errors import Refused
from bertie.apps.serve.remote import BatchFailed, WorkerDied
from bertie.apps.serve.ticket import Ticket
from bertie.infer.engine import Facts
from bertie.text.sequences import Sequences
from serving import LocalWorker, live, make_models, until

pytest.importorskip("starlette")
ROWS = {"cls": "sequence", "hidden": "token", "mlm": "position"}


def some_ids(lengths, seed=0) -> Sequences:
    rng = np.random.default_rng(seed)
    total = sum(lengths)
    positions = np.flatnonzero(rng.random(total) < 0.3)
    extra = {"last": rng.integers(0, 3, total)}
    return Sequences(rng.integers(0, 50, total), np.zeros(total, np.int64), np.array(lengths), positions, extra)


def echoed(ids: Sequences) -> dict:
    """Arrays that tell what they are of."""
    return {
        "cls": ids.input_ids[ids.starts[:-1]].astype(np.float32)[:, None],
        "hidden": np.stack([ids.input_ids, ids.extra.get("last", ids.input_ids)], 1).astype(np.float32),
        "mlm": ids.input_ids[ids.positions].astype(np.float32)[:, None],
    }


class Echo:
    """A worker that gives ids back. fails: told of each batch's lengths, what is to be raised, if anything."""

    facts = Facts(64, 1, {"cls": 1, "hidden": 2, "mlm": 1}, rows=ROWS)
    alive, lanes = True, 1

    def __init__(self, fails=lambda lengths: None, delay_s=0.0):
        self.fails, self.delay_s, self.batches, self.starts = fails, delay_s, [], 0

    async def run(self, ids, outputs, on_token=None, adapter=""):
        self.batches.append(ids.lengths.tolist())
        await asyncio.sleep(self.delay_s)
        if error := self.fails(ids.lengths.tolist()):
            self.alive = not isinstance(error, WorkerDied)
            raise error
        return {name: echoed(ids)[name] for name in outputs}

    async def stop(self):
        self.alive = False

    async def restart(self, on_failure, wanted):
        self.starts += 1
        self.alive = True


def run(*jobs: Sequences, worker=None, max_tokens=64, outputs=("cls", "hidden", "mlm")):
    """Answers of these requests, sent at once; an error in its place."""

    async def go():
        batcher = Batcher([worker or Echo()], max_tokens=max_tokens, report=lambda *told: None)
        found = await asyncio.gather(*(batcher.run(ids, outputs) for ids in jobs), return_exceptions=True)
        assert not batcher.busy
        await batcher.kill()
        return found

    return asyncio.run(go())


def test_every_request_gets_its_own_rows():
    jobs = [some_ids(lengths, seed) for seed, lengths in enumerate([[3], [5, 9, 2], [30, 1], [64], [7] * 20])]
    worker = Echo()
    for ids, (arrays, _) in zip(jobs, run(*jobs, worker=worker), strict=True):
        for name, array in echoed(ids).items():
            np.testing.assert_array_equal(arrays[name], array)
    assert len(worker.batches) < 20
    assert all(len(batch) * max(batch) <= 64 for batch in worker.batches)


def test_the_oldest_goes_first_with_its_like():
    worker = Echo(delay_s=0.01)
    run(some_ids([60]), some_ids([4, 4]), some_ids([50]), some_ids([3] * 4), worker=worker)
    assert worker.batches[0] == [60]
    assert sorted(worker.batches[1]) == [3, 3, 3, 3, 4, 4]
    assert worker.batches[2] == [50]


def test_a_long_request_does_not_hold_up_short_ones():
    async def go():
        worker = Echo(delay_s=0.01)
        batcher = Batcher([worker], max_tokens=16, report=lambda *told: None)
        order = []

        async def ask(name, ids):
            await batcher.run(ids, ("cls",))
            order.append(name)

        long = asyncio.ensure_future(ask("long", some_ids([16] * 20)))
        await asyncio.sleep(0.015)
        await asyncio.gather(long, *(ask("short", some_ids([4])) for _ in range(3)))
        await batcher.kill()
        return order

    assert asyncio.run(go()) == ["short"] * 3 + ["long"]


@pytest.mark.promise("any-json")
def test_one_bad_request_fails_alone():
    worker = Echo(fails=lambda lengths: BatchFailed("no") if 5 in lengths else None)
    found = run(some_ids([4]), some_ids([5]), some_ids([6]), worker=worker)
    assert isinstance(found[1], Failed)
    assert not isinstance(found[0], Exception)
    assert not isinstance(found[2], Exception)


@pytest.mark.promise("any-json")
def test_values_that_are_no_numbers_are_an_error():
    class Bad(Echo):
        async def run(self, ids, outputs, on_token=None, adapter=""):
            arrays = await super().run(ids, outputs)
            return {name: np.where(array == ids.input_ids[0], np.nan, array) for name, array in arrays.items()}

    one, other = (
        Sequences(np.array([1, 1]), np.zeros(2, int), np.array([2])),
        Sequences(np.array([9]), np.zeros(1, int), np.array([1])),
    )
    found = run(one, other, worker=Bad(), outputs=("cls",))
    assert isinstance(found[0], Failed)
    assert "finite" in str(found[0])


def test_a_worker_that_dies_is_started_again_and_its_batch_repeated():
    deaths = iter([WorkerDied(), None, None])
    worker = Echo(fails=lambda lengths: next(deaths))
    found = run(some_ids([4]), some_ids([3]), worker=worker)
    assert not any(isinstance(one, Exception) for one in found)
    assert worker.starts == 1


def test_who_ends_two_workers_is_refused():
    worker = Echo(fails=lambda lengths: WorkerDied())
    (found,) = run(some_ids([4]), worker=worker)
    assert isinstance(found, Failed)
    assert "twice" in str(found)


def test_a_worker_runs_as_many_batches_at_once_as_it_has_lanes():
    """One process that ends takes the batches of all its lanes with it: each is repeated, and none is refused."""
    running = most = 0
    deaths = iter([True, True])

    class Lanes(Echo):
        lanes = 2

        async def run(self, ids, outputs, on_token=None, adapter=""):
            nonlocal running, most
            running, process = running + 1, self.starts
            most = max(most, running)
            await asyncio.sleep(0.02)
            running -= 1
            if next(deaths, False):
                self.alive = self.starts != process
                raise WorkerDied
            return await super().run(ids, outputs)

    worker = Lanes()
    found = run(some_ids([60, 60]), some_ids([50, 50]), worker=worker)
    assert not any(isinstance(one, Exception) for one in found)
    assert most == 2
    assert worker.starts == 1


def test_a_batch_has_as_much_work_as_is_done_in_a_moment():
    """A slow worker gets small batches, so that short texts do not wait for a large batch."""

    class Slow(Echo):
        async def run(self, ids, outputs, on_token=None, adapter=""):
            await asyncio.sleep(len(ids.input_ids) / 5000)
            return await super().run(ids, outputs)

    worker = Slow()
    run(some_ids([20] * 100), worker=worker, max_tokens=1000)
    assert sum(worker.batches[0]) == 1000, "nothing is known of it yet"
    assert all(sum(batch) <= 160 for batch in worker.batches[1:])


def test_a_request_that_is_given_up_leaves_the_queue():
    async def go():
        worker = Echo(delay_s=0.05)
        batcher = Batcher([worker], max_tokens=8, report=lambda *told: None)
        first = asyncio.ensure_future(batcher.run(some_ids([8]), ("cls",)))
        await asyncio.sleep(0.01)
        second = asyncio.ensure_future(batcher.run(some_ids([8] * 50), ("cls",)))
        await asyncio.sleep(0.01)
        second.cancel()
        await first
        await asyncio.sleep(0.12)
        assert not batcher.busy
        await batcher.kill()
        return worker.batches

    assert len(asyncio.run(go())) <= 3


def test_batches_on_the_wire_come_out_as_they_went_in():
    ids = some_ids([3, 5])
    parts = wire.pack_message({"outputs": ["cls"]}, wire.arrays_of(ids))
    message = b"".join(bytes(part) for part in parts)
    header_size, size = wire.PREFIX.unpack(message[:8])
    assert len(message) == 8 + header_size + size
    header, arrays = wire.unpack_message(message[8 : 8 + header_size], message[8 + header_size :])
    found = wire.read_sequences(arrays)
    assert header == {"outputs": ["cls"]}
    for name in ("input_ids", "token_type_ids", "lengths", "positions"):
        np.testing.assert_array_equal(getattr(found, name), getattr(ids, name))
    np.testing.assert_array_equal(found.extra["last"], ids.extra["last"])
    with pytest.raises(ValueError, match="not sent"):
        wire.unpack_message(b'{"arrays": [["a", "|O", [1]]]}', b"x" * 8)


def new_future() -> asyncio.Future:
    return asyncio.Future(loop=asyncio.new_event_loop())


def test_an_unforeseen_error_hangs_nobody():
    worker = Echo(fails=lambda lengths: KeyError("x"))
    assert all(isinstance(found, Failed) for found in run(some_ids([4]), some_ids([3]), worker=worker))


def test_jobs_in_parts_are_joined_and_split():
    jobs = [BatchJob(some_ids(lengths, 7 + len(lengths)), ("hidden", "mlm"), ROWS, new_future())
            for lengths in ([3, 4, 5], [6])]  # fmt: skip
    for job in jobs:
        job.left = len(job.ids)
    for parts in ([(jobs[0], np.array([1, 2])), (jobs[1], np.array([0]))], [(jobs[0], np.array([0]))]):
        batch = join_parts(parts)
        split(parts, {name: echoed(batch)[name] for name in ("hidden", "mlm")})
    for job in jobs:
        for name, array in job.done.result().items():
            np.testing.assert_array_equal(array, echoed(job.ids)[name])


def test_budgets():
    budget = Budget("texts", 10)
    budget.take(6, 1)
    with pytest.raises(Refused, match="6 of 10"):
        budget.take(5, 3)
    budget.give(6)
    assert budget.used == 0
    rate = TokenRate()
    rate.add(1000, 0.5)
    assert rate.wait_s(4000) == pytest.approx(2)
    admission = Admission(Budget("texts", 1), Budget("bytes", 1))
    admission.add("m")
    admission.tokens["m"].take(10, 1)
    admission.rates["m"].add(1, 100)
    assert admission.retry_after_s("m") == 60  # bounded


@pytest.mark.promise("overload")
def test_a_request_that_would_wait_too_long_is_refused():
    """Of several models, one that is free lets requests in."""
    admission = Admission(Budget("texts", 99), Budget("bytes", 99), max_wait_s=2)
    for name in ("busy", "free"):
        admission.add(name)
    with admission.put_ahead("busy", 6_000):
        with admission.put_ahead("busy", 4_000):
            admission.check_room()  # nothing is known of its rate
            admission.rates["busy"].add(1000, 0.25)
            with pytest.raises(Refused, match=r"would wait 2\.5 s") as refused:
                admission.check_wait("busy")
            assert (refused.value.reason, refused.value.retry_after_s) == ("wait", 3)
            admission.check_room()
        admission.check_wait("busy")


def test_a_long_request_keeps_nobody_out(folders):
    """It takes 3 seconds, and the others are let in: each batch of it comes after theirs."""
    with live({"m": folders["embed"]}, max_wait_s=0.5, max_batch_tokens=128) as server:
        (worker,) = server.fleet.models["m"].batcher.workers
        worker.delay_s = 0.3
        long = threading.Thread(target=server.post, args=("/embed", {"inputs": ["a b c d " * 10] * 32}))
        long.start()
        until(lambda: server.fleet.admission.rates["m"].tokens_per_s)
        assert server.fleet.admission.tokens["m"].used > 1000
        assert [server.post("/embed", {"inputs": "a"}).status_code for _ in range(3)] == [200] * 3
        assert long.is_alive()
        long.join()
        until(lambda: server.fleet.admission.ahead["m"] == 0)


def test_a_batch_is_full_when_others_wait_and_it_has_half_its_budget():
    told = []

    async def go():
        batcher = Batcher([Echo(delay_s=0.01)], max_tokens=8, report=lambda *batch: told.append(batch))
        await batcher.run(some_ids([3]), ("cls",))
        await batcher.run(some_ids([8] * 3), ("cls",))
        await asyncio.gather(batcher.run(some_ids([3]), ("cls",)), batcher.run(some_ids([3]), ("hidden",)))
        await batcher.kill()

    asyncio.run(go())
    assert [tokens for _, tokens, *_ in told] == [3, 8, 8, 8, 3, 3]
    assert [full for *_, full in told] == [False, True, True, False, False, False]


@pytest.mark.parametrize("most", [{"max_concurrent": 8}, {"max_wait_s": 0.0}])
def test_a_busy_server_loads_its_models_again(folders, most):
    with live({"m": folders["embed"]}, **most) as server:
        admission = server.fleet.admission
        admission.texts.used, admission.ahead["m"] = 8, 100
        admission.rates["m"].add(1, 1)
        assert server.post("/embed", {"inputs": "a"}).status_code == 429
        done = asyncio.run_coroutine_threadsafe(server.fleet.reload(), server.loop).result(30)
        assert done == {"m": "done"}
        assert server.post("/embed", {"inputs": "a"}).status_code == 429


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return make_models(tmp_path_factory.mktemp("models"))


@pytest.mark.promise("overload")
def test_a_request_is_let_in_whole_or_not_at_all(folders):
    with live({"m": folders["embed"]}, max_concurrent=31) as server:
        (worker,) = server.fleet.models["m"].batcher.workers
        worker.delay_s = 2.0
        worker.batches.clear()
        first = threading.Thread(target=server.post, args=("/embed", {"inputs": "a"}))
        first.start()
        while not server.fleet.admission.texts.used:
            time.sleep(0.01)
        refused = httpx.post(server.url + "/embed", json={"inputs": ["a b"] * 31})
        assert (refused.status_code, refused.json()["error_type"]) == (429, "Overloaded")
        assert int(refused.headers["retry-after"]) >= 1
        first.join()
        assert {*map(tuple, worker.batches)} == {
            (3,)
        }  # the text, and later its vector: no work was done for the others
        until(lambda: server.fleet.admission.texts.used == 0)


@pytest.mark.promise("overload")
def test_the_loop_answers_others_between_two_texts():
    """Many requests that were admitted at once do not hold up a refusal: one text per turn of the event loop."""

    async def go():
        ticket = Ticket(None, Admission(Budget("texts", 9), Budget("bytes", 9)))
        turns, seen = 0, []

        async def others():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.ensure_future(others())
        await asyncio.gather(*(ticket.in_thread(lambda: seen.append(turns), inline=True) for _ in range(5)))
        task.cancel()
        return seen

    seen = asyncio.run(go())
    assert len(set(seen)) == 5


def test_more_tokens_than_there_is_room_for_at_all(folders):
    with live({"m": folders["tagging"]}, max_queued_tokens=100) as server:
        assert server.post("/ner", {"inputs": "a " * 500}).status_code == 413
        assert server.post("/ner", {"inputs": "a " * 20}).status_code == 200


def test_a_server_whose_worker_has_gone_is_not_ready(folders):
    with live({"m": folders["embed"]}) as server:
        (worker,) = server.fleet.models["m"].batcher.workers
        facts, worker.facts = worker.facts, None
        worker.start = lambda: asyncio.sleep(60)
        assert server.get("/readyz").status_code == server.get("/health").status_code == 503
        assert server.get("/readyz").json() == {"status": "not ready", "models": {"m": "starting"}}
        assert server.get("/healthz").status_code == 200
        worker.facts = facts
        assert server.get("/readyz").status_code == 200


@pytest.mark.parametrize(
    ("name", "path", "body"),
    [
        ("sequence", "/predict", {"inputs": "ab"}),
        ("multilabel", "/predict", {"inputs": "ab"}),
        ("rank", "/rerank", {"query": "ab", "texts": ["c", "d"]}),
        ("tagging", "/ner", {"inputs": "ab", "parameters": {"ignore_labels": [], "aggregation_strategy": "none"}}),
        ("span", "/qa", {"inputs": {"question": "ab", "context": "cd ef"}}),
        ("choice", "/choose", {"inputs": {"context": "ab", "choices": ["c", "d"]}}),
        ("pretrained", "/fill_mask", {"inputs": "ab [MASK]"}),
        ("pretrained", "/next_sentence", {"inputs": {"first": "ab", "second": "cd"}}),
    ],
)
def test_extreme_logits_are_probabilities_all_the_same(folders, name, path, body):
    """Logits of 10,000 and -10,000: no overflow, and every value of the answer is a number."""

    class Extreme(LocalWorker):
        async def run(self, ids, outputs, on_token=None, adapter=""):
            arrays = await super().run(ids, outputs)
            return {name: np.where(array > np.median(array), 1e4, -1e4).astype("f4") for name, array in arrays.items()}

    with live({"m": folders[name]}, Extreme) as server:
        found = server.ok(path, body)
        scores = list(probabilities(found))
        assert scores
        assert all(0 <= value <= 1 for value in scores), found


def probabilities(value, key=""):
    """The scores and probabilities of an answer, wherever they are. Those of a span model's no answer are logits."""
    if isinstance(value, (dict, list)):
        for name, one in value.items() if isinstance(value, dict) else ((key, one) for one in value):
            yield from probabilities(one, name)
    elif key in ("score", "probability", "no_answer_probability", "yes"):
        yield value


def test_large_answers_are_counted(folders):
    with live({"m": folders["embed"]}, max_held_bytes=60_000) as server:
        assert server.post("/embed_all", {"inputs": "a b c"}).status_code == 200
        assert server.post("/embed_all", {"inputs": ["a " * 40] * 8}).status_code == 413
        assert server.post("/tokenize", {"inputs": "a" * 100_001}).status_code == 413
        until(lambda: server.fleet.admission.content.used == 0)  # given back after the answer has left


@pytest.mark.promise("overload")
def test_ten_times_what_it_can_do(folders):
    """Open loop: those admitted are answered in bounded time, the others refused quickly, and nobody gets a 5xx."""
    with live({"m": folders["embed"]}, max_concurrent=8) as server:
        (worker,) = server.fleet.models["m"].batcher.workers
        worker.delay_s = 0.05
        clients = [httpx.Client(timeout=20) for _ in range(40)]

        def send(number: int) -> tuple[int, float]:
            started = time.perf_counter()
            response = clients[number % 40].post(server.url + "/embed", json={"inputs": "a b c"})
            return response.status_code, time.perf_counter() - started

        with ThreadPoolExecutor(40) as pool:
            found = list(pool.map(send, range(400)))
        counts = Counter(status for status, _ in found)
        assert set(counts) == {200, 429}
        assert counts[429] > 50
        text = server.get("/metrics").text
        assert "te_queue_size 0.0" in text
        assert "bertie_inflight_texts 0.0" in text
        assert f'bertie_rejected_total{{reason="texts"}} {counts[429]:.1f}' in text
        for client in clients:
            client.close()
