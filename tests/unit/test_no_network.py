"""No network unless asked: the source cannot open a connection, and the whole pipeline never tries to."""

import ast
import json
import socket
from pathlib import Path

import pytest

from nano import one_thread

SOURCE = Path(__file__).parents[2] / "src" / "bertie"
NETWORK = {
    "socket",
    "ssl",
    "urllib.request",
    "http",
    "http.client",
    "ftplib",
    "smtplib",
    "requests",
    "httpx",
    "aiohttp",
}
NETWORK |= {"urllib3", "huggingface_hub", "transformers", "datasets", "fsspec", "opensearchpy", "qdrant_client"}


def imported(path: Path) -> set[str]:
    """Every module a file imports, with the packages it is in."""
    names = set[str]()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names | {name.partition(".")[0] for name in names}


@pytest.mark.promise("no-network")
def test_nothing_in_the_source_speaks_to_the_network():
    """The server listens, and connects to nobody."""
    files = [*SOURCE.rglob("*.py")]
    assert len(files) > 100
    allowed = {"serve": {"socket"}, "search": {"opensearchpy", "qdrant_client"}}  # a search engine that --url names
    allowed["transfer"] = {"huggingface_hub"}  # `bertie download` and `upload`
    allowed["api"] = {"transformers", "datasets"}  # from and to what the caller has in memory
    asking = {"reload.py": {"urllib.request"}}  # `bertie reload URL` asks the server there how it went
    found = {
        str(path): imported(path) & NETWORK - allowed.get(path.parent.name, set()) - asking.get(path.name, set())
        for path in files
    }
    assert {path: names for path, names in found.items() if names} == {}
    for path in (SOURCE / "apps" / "serve").glob("*.py"):
        assert ".connect(" not in path.read_text(encoding="utf-8"), path


@pytest.fixture
def unplugged(monkeypatch):
    """Every attempt to connect to another machine fails and is recorded."""
    tried = []

    def refuse(*arguments, **options):
        tried.append(arguments)
        raise OSError("no network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "connect_ex", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    return tried


@pytest.mark.promise("no-network")
def test_from_text_to_predictions_without_a_network(bertie, tmp_path, monkeypatch, unplugged):
    monkeypatch.chdir(tmp_path)
    sentence = "The old red cat sees a small bird near the river house {}."
    Path("a.txt").write_text("\n\n".join(" ".join(sentence.format(n * m) for m in range(9)) for n in range(40)))
    Path("train.csv").write_text(
        "text,label\n" + "".join(f"the cat {n},{'odd' if n % 2 else 'even'}\n" for n in range(40))
    )
    model = ["hidden_size=32", "num_hidden_layers=1", "num_attention_heads=2", "intermediate_size=32"]
    short = ["train.steps=2", "train.batch_size=4", "max_length=32", "train.device=cpu"]
    with one_thread():
        bertie.good("corpus", "a.txt", "-o", "corpus", "-q")
        bertie.good("tokenizer", "train", "corpus", "-o", "tokenizer", "--size", "80", "-q")
        overrides = [f"model_overrides.{override}" for override in model]
        bertie.good("pretrain", "corpus=corpus", "tokenizer=tokenizer", *overrides, *short, "-o", "run", "-q")
        settings = ["epochs=1", "train.batch_size=8", "train.device=cpu"]
        bertie.good("finetune", "run/model", "--train", "train.csv", "-o", "fine", *settings, "-q")
        predictions = bertie.good("predict", "fine/model", "train.csv", "--json")
    assert json.loads(predictions.splitlines()[0])
    assert unplugged == []
