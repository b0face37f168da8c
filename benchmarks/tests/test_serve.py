"""The measurements of servers under load."""

import pytest

from benchmarks.load import Measured, quantile

pytest.importorskip("fastapi")


def test_quantiles():
    assert quantile([], 0.5) == float("inf")
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile(range(100), 0.99) == 99
    load = Measured(10, took=[0.1] * 98, refused=[0.001], failed=1)
    assert load.quantile(0.97) == 0.1
    assert load.quantile(0.98) == float("inf"), "a request that was refused or failed is not answered in time"


def test_what_became_of_an_overload():
    from benchmarks.serve import flooded

    found = flooded(Measured(500.4, took=[], refused=[0.001] * 99 + [0.03], failed=2))
    assert found["answered"] == {"count": 0}
    assert found["refused"] == {"count": 100, "p50_ms": 1.0, "p90_ms": 1.0, "p99_ms": 30.0, "slowest_ms": 30.0}
    assert (found["requests_per_s"], found["failed"]) == (500, 2)


def test_a_rate_is_one_that_was_measured(monkeypatch):
    """Servers that answer in time up to 10, up to 70 and up to no requests per second, of 100 in a closed loop."""
    from benchmarks import serve

    def load(setup, one, rate, seed):
        return Measured(rate, took=[0.01 if rate <= one.port else 1.0])

    monkeypatch.setattr(serve, "load", load)
    server = serve.Server("server", lambda port: [], str.encode)
    running = [serve.Running(server, most, None, 0.0, (), closed_per_s=100.0) for most in (10, 70, 0)]
    for number in range(3):
        serve.search(serve.Setup("m", "/predict", steps=6), running, number, lambda *_, **__: None)
    slow, fast, never = running
    assert 8 < slow.rates[-1] <= 10
    assert 65 < fast.rates[-1] <= 70
    assert never.rates == [0.0] * 3
    assert all(len(one.half) == 3 for one in running)


@pytest.mark.slow
def test_two_servers_in_turn(tmp_path):
    pytest.importorskip("transformers")
    from benchmarks import serve
    from serving import make_models

    model = make_models(tmp_path)["sequence"]
    setup = serve.Setup(str(model), serve.path_of(model), seconds=1, rounds=1, steps=2, overload_s=1)
    own, other = serve.measure(setup)
    assert (own["server"], other["server"]) == ("bertie serve", "FastAPI + transformers pipeline")
    assert own["closed_loop_per_s"] > 0
    assert own["overload"]["failed"] == 0
    assert own["overload"]["answered"]["count"] > 0
    assert other["overload"] is None
