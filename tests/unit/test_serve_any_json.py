"""Whatever JSON is sent to whatever route, the answer is 2xx or 4xx, and the server continues."""

import copy
import json
import os
import subprocess
import sys
import time

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertie.apps.serve.routes import ROUTES
from serving import live, make_models

pytest.importorskip("starlette")
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)


def nested(inner: st.SearchStrategy) -> st.SearchStrategy:
    return st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)


ANY = st.recursive(LEAVES, nested, max_leaves=8)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with live(make_models(tmp_path_factory.mktemp("models"))) as running:
        yield running


def places(value, at=()):
    """The positions in a JSON value where another value is possible."""
    yield at
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield from places(inner, (*at, key))


def replaced(value, at, new):
    if not at:
        return new
    changed = copy.deepcopy(value)
    inner = changed
    for key in at[:-1]:
        inner = inner[key]
    inner[at[-1]] = new
    return changed


@st.composite
def bodies(draw):
    """A route, and its example with something else in some place; or anything at all."""
    route = draw(st.sampled_from(ROUTES))
    if draw(st.integers(0, 4)) == 0:
        return route.path, draw(ANY)
    body = route.example
    for _ in range(draw(st.integers(1, 2))):
        body = replaced(body, draw(st.sampled_from(list(places(body)))), draw(ANY))
        if isinstance(body, dict) and draw(st.booleans()):
            extras = st.sampled_from(
                ["model", "truncate", "parameters", "top_n", "dimensions", "prompt_name", "raw_scores"]
            )
            body = {**body, draw(extras): draw(ANY)}
    return route.path, body


def check(server, path: str, body) -> None:
    started = time.monotonic()
    sent = json.dumps(body).encode()
    response = server.client.post(server.url + path, content=sent, headers={"content-type": "application/json"})
    assert 200 <= response.status_code < 500, (path, body, response.text)
    assert time.monotonic() - started < 10
    streamed = response.headers["content-type"].startswith("text/event-stream")
    for one in response.text.removeprefix("data: ").split("\n\ndata: ") if streamed else [response.text]:
        json.loads(one, parse_constant=lambda name: pytest.fail(f"{name} in an answer"))


@pytest.mark.promise("any-json")
@settings(max_examples=120)
@given(bodies())
def test_any_json_to_any_route(server, sent):
    check(server, *sent)


@pytest.mark.slow
@settings(max_examples=5000, derandomize=False)
@given(bodies())
def test_any_json_to_any_route_for_long(server, sent):
    check(server, *sent)


@pytest.mark.slow
def test_schemathesis(server, tmp_path):
    pytest.importorskip("schemathesis")
    command = [sys.executable, "-m", "schemathesis.cli", "run", server.url + "/openapi.json", "--max-examples", "30"]
    checks = "not_a_server_error,status_code_conformance,content_type_conformance"
    environment = {**os.environ, "SCHEMATHESIS_HOOKS": "", "NO_COLOR": "1"}
    done = subprocess.run(
        [*command, "--checks", checks, "--seed", "1", "--phases", "examples,fuzzing"],
        capture_output=True, text=True, timeout=500, check=False, env=environment, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    assert httpx.get(server.url + "/readyz").status_code == 200
