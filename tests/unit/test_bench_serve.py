"""The measurements of servers under load."""

import pytest

from bertie.bench.load import Measured, quantile

pytest.importorskip("fastapi")


def test_quantiles():
    assert quantile([], 0.5) == float("inf")
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile(range(100), 0.99) == 99
    load = Measured(10, took=[0.1] * 98, refused=[0.001], failed=1)
    assert load.quantile(0.97) == 0.1
    assert load.quantile(0.98) == float("inf"), "a request that was refused or failed is not answered in time"


def test_what_became_of_an_overload():
    from bertie.bench.serve import flooded

    found = flooded(Measured(500.4, took=[], refused=[0.001] * 99 + [0.03], failed=2))
    assert found["answered"] == {"count": 0}
    assert found["refused"] == {"count": 100, "p50_ms": 1.0, "p90_ms": 1.0, "p99_ms": 30.0, "slowest_ms": 30.0}
    assert (found["requests_per_s"], found["failed"]) == (500, 2)


@pytest.mark.slow
def test_two_servers_in_turn(tmp_path):
    pytest.importorskip("transformers")
    from bertie.bench import serve
    from serving import make_models

    model = make_models(tmp_path)["sequence"]
    setup = serve.Setup(str(model), serve.path_of(model), seconds=1, rounds=1, steps=2, overload_s=1)
    own, other = serve.measure(setup)
    assert (own["server"], other["server"]) == ("bertie serve", "FastAPI + transformers pipeline")
    assert own["closed_loop_per_s"] > 0
    assert own["overload"]["failed"] == 0
    assert own["overload"]["answered"]["count"] > 0
    assert other["overload"] is None
