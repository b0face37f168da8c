"""`bertie.serve`: a real server in its own processes, from Python."""

import json
import urllib.request
from pathlib import Path

import pytest

import bertie
from bertie.errors import BertieError, UsageError
from toys import toy_model

pytest.importorskip("uvicorn")


def test_a_model_in_memory_is_served_and_stopped(tmp_path: Path) -> None:
    toy_model(tmp_path / "encoder", "abc")
    rows = [{"text": "a b", "label": "x"}, {"text": "b c", "label": "y"}] * 6
    model = bertie.finetune(str(tmp_path / "encoder"), rows, epochs=1, max_length=32).model
    texts = ["a b", "b c"]
    with bertie.serve({"letters": model}, threads=1) as server:
        assert server.models == ("letters",)
        assert "running" in repr(server)
        body = json.dumps({"inputs": [[text] for text in texts]}).encode()
        request = urllib.request.Request(f"{server.url}/predict", body, {"Content-Type": "application/json"})
        answers = json.loads(urllib.request.urlopen(request).read())
    assert [row[0]["label"] for row in answers] == model.predict(texts).labels
    assert "stopped" in repr(server)
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(server.url)


def test_what_cannot_be_served_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="`models` is empty"):
        bertie.serve({})
    with pytest.raises(BertieError, match="nowhere does not exist"):
        bertie.serve(tmp_path / "nowhere")
    with pytest.raises(UsageError, match=r"no argument 'hosts'\. Did you mean 'host'"):
        bertie.serve(tmp_path, hosts="x")  # type: ignore[call-arg]
