"""The files for production: they parse, keep to safe settings, and name commands that exist."""

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import venv
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from bertie.apps.cli.table import app
from bertie.apps.serve.errors import STATUS_CODES
from bertie.apps.serve.metrics import Metrics
from bertie.console import console

pytest.importorskip("starlette")
DEPLOY = Path(__file__).parents[2] / "deploy"
DOCS, SOURCE = DEPLOY.parent / "docs", DEPLOY.parent / "src" / "bertie"
ROOT_COMMAND: Any = typer.main.get_command(app)


def check_command(words: list[str]) -> None:
    """Raise for an unknown option of `bertie serve` or `bertie reload`."""
    assert words[0] in ("serve", "reload")
    before = vars(console.verbosity).copy()
    ROOT_COMMAND.commands[words[0]].make_context(words[0], words[1:])
    vars(console.verbosity).update(before)


@pytest.mark.parametrize("page", ["serving.md", "serving.ko.md"])
def test_the_page_lists_every_status_of_an_error(page: str) -> None:
    sources = [path.read_text() for path in (SOURCE / "apps" / "serve").glob("*.py")]
    sent = {int(status) for text in sources for status in re.findall(r"\bstatus=(\d{3})\b", text)}
    listed = {int(status) for status in re.findall(r"^\| (\d{3}) \|", (DOCS / page).read_text(), re.M)}
    assert 421 in sent
    assert listed == sent | {*STATUS_CODES.values()}


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"\\\n\s*", "", (DEPLOY / "Dockerfile").read_text())
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines)]


def test_the_image():
    found = instructions()
    known = {"FROM", "ARG", "WORKDIR", "COPY", "RUN", "ENV", "USER", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK"}
    assert {name for name, _ in found} <= known | {"ENTRYPOINT", "CMD"}
    last = found[max(i for i, (name, _) in enumerate(found) if name == "FROM") :]
    told = dict(last)
    assert all("slim" in rest and "latest" not in rest for name, rest in found if name == "FROM")
    assert int(told["USER"]) > 0
    assert "readyz" in told["HEALTHCHECK"]
    command = [*json.loads(told["ENTRYPOINT"]), *json.loads(told["CMD"])]
    assert command[0] == "bertie"
    check_command(command[1:])
    assert told["EXPOSE"] == command[command.index("--port") + 1]
    compile(json.loads(told["HEALTHCHECK"].partition("CMD ")[2])[2], "healthcheck", "exec")


@pytest.mark.slow
def test_the_commands_of_the_image_work_in_an_empty_environment(tmp_path):
    """The wheel with its static files, the entry point on a model, the health check. Dependencies are shared."""
    from serving import make_models

    model = make_models(tmp_path / "models")["sequence"]
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*command: object) -> None:
        subprocess.run(list(map(str, command)), cwd=tmp_path, env=environment, check=True, timeout=300)

    run(*pip, "wheel", DEPLOY.parent, "--no-deps", "--quiet", "--wheel-dir", "dist")
    (wheel,) = (tmp_path / "dist").glob("bertie-*.whl")
    venv.create(tmp_path / "empty", with_pip=False)
    run(*pip, "--python", tmp_path / "empty/bin/python", "install", "--quiet", "--no-deps", wheel)
    (site,) = (tmp_path / "empty/lib").glob("python*/site-packages")
    shared = next(path for path in map(Path, sys.path) if (path / "torch").is_dir())
    (site / "shared.pth").write_text(f"{shared}\n")
    run(tmp_path / "empty/bin/python", "-m", "bertie.infer.native.library")
    environment |= {"PATH": str(tmp_path / "nothing"), "XDG_CACHE_HOME": str(tmp_path / "cache")}  # without a compiler
    run(tmp_path / "empty/bin/python", "-c", "from bertie.infer.native.library import open_library; open_library()")
    told = dict(instructions()[-9:])
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    entry = [word.replace("0.0.0.0", "127.0.0.1").replace("3000", str(port)) for word in json.loads(told["ENTRYPOINT"])]
    check = json.loads(told["HEALTHCHECK"].partition("CMD ")[2])[2].replace("3000", str(port))
    server = subprocess.Popen([tmp_path / "empty/bin/bertie", *entry[1:], model], cwd=tmp_path, env=environment)
    try:
        done = None
        for _ in range(120):
            time.sleep(0.5)
            done = subprocess.run([sys.executable, "-c", check], capture_output=True, check=False)
            if done.returncode == 0:
                break
        assert done is not None
        assert done.returncode == 0
        page = urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5).read()
        assert b"page.js" in page
        server.send_signal(signal.SIGTERM)
        assert server.wait(20) == 0
    finally:
        server.kill()


def test_compose():
    (service,) = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"].values()
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
    assert all(volume.endswith(":ro") for volume in service["volumes"])


def test_the_unit(tmp_path):
    text = (DEPLOY / "bertie.service").read_text()
    start = re.search(r"^ExecStart=(\S+) (.*)$", text, re.MULTILINE)
    assert start
    check_command(shlex.split(start[2]))
    again = re.search(r"^ExecReload=(\S+) (.*)$", text, re.MULTILINE)
    assert again
    check_command(shlex.split(again[2]))
    assert "\nCacheDirectory=bertie\nEnvironment=XDG_CACHE_HOME=%C\n" in text, "its user has no home for the engine"
    if analyze := shutil.which("systemd-analyze"):
        unit = tmp_path / "bertie.service"
        unit.write_text(text.replace(start[1], "/bin/true"))
        done = subprocess.run([analyze, "verify", "--man=no", unit], capture_output=True, text=True, timeout=60)
        assert "bertie.service" not in done.stderr, done.stderr


def test_kubernetes():
    documents = {one["kind"]: one for one in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())}
    assert set(documents) == {"Deployment", "Service", "PodDisruptionBudget", "HorizontalPodAutoscaler"}
    assert all({"apiVersion", "kind", "metadata", "spec"} <= set(one) for one in documents.values())
    pod = documents["Deployment"]["spec"]["template"]
    labels = pod["metadata"]["labels"]
    for kind in ("Service", "PodDisruptionBudget"):
        selector = documents[kind]["spec"]["selector"]
        assert selector.get("matchLabels", selector) == labels
    (container,) = pod["spec"]["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    mounts = {mount["name"] for mount in container["volumeMounts"]}
    assert mounts == {volume["name"] for volume in pod["spec"]["volumes"]}
    assert pod["spec"]["terminationGracePeriodSeconds"] > 30 + container["lifecycle"]["preStop"]["sleep"]["seconds"]
    scaler = documents["HorizontalPodAutoscaler"]["spec"]
    assert scaler["scaleTargetRef"]["name"] == documents["Deployment"]["metadata"]["name"]
    assert scaler["metrics"][0]["pods"]["metric"]["name"] in metric_names()


def metric_names() -> set[str]:
    """Every name that /metrics has, with the endings of histograms."""
    found = set()
    for family in Metrics().registry.collect():
        endings = ("_bucket", "_sum", "_count") if family.type == "histogram" else ("",)
        found |= {family.name + ending for ending in endings}
    return found


def test_the_dashboard_asks_for_metrics_that_there_are():
    dashboard = json.loads((DEPLOY / "grafana.json").read_text())
    asked = " ".join(target["expr"] for panel in dashboard["panels"] for target in panel["targets"])
    names = set(re.findall(r"\b(?:te|bertie)_\w+", asked))
    assert len(names) > 10
    assert names <= metric_names()
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_the_curl_examples_of_the_page_work(tmp_path_factory):
    curl = shutil.which("curl")
    if not curl:
        pytest.skip("needs curl")
    from bertie.apps.search.index import index
    from serving import live, make_models

    text = (DEPLOY.parent / "docs" / "serving.md").read_text(encoding="utf-8")
    lines = re.findall(r"^    (curl .*)$", re.sub(r" \\\n\s+", " ", text), re.MULTILINE)
    assert len(lines) > 12
    home = tmp_path_factory.mktemp("documents")
    (home / "library.txt").write_text("The library is in the old town hall.")
    index([str(home)], home / "index")
    with live(make_models(tmp_path_factory.mktemp("models")), indexes={"notes": home / "index"}) as server:
        for line in lines:
            words = [word.replace("localhost:3000", f"127.0.0.1:{server.port}") for word in shlex.split(line)]
            done = subprocess.run(
                [curl, "-sS", "--fail-with-body", *words[1:]], capture_output=True, text=True, timeout=60, check=False
            )
            assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
