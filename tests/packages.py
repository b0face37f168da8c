"""Packages that tests install by pip, as a user would: a module, and a pyproject.toml with entry points."""

import base64
import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import processes

BERTIE = Path(sys.executable).with_name("bertie")


def blocks(page: Path, language: str) -> list[str]:
    """The code blocks of a page."""
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def install(pyproject: str, module: str, folder: Path) -> Path:
    """Builds a wheel of one module, installs it by pip into a folder, and returns that.

    The wheel is written here, so that no build backend is needed; its metadata are those of the pyproject.toml.
    """
    project = tomllib.loads(pyproject)["project"]
    name, version = project["name"], project["version"]
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    points = "".join(
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in rows.items())
        for group, rows in project["entry-points"].items()
    )
    files = {
        f"{name.replace('-', '_')}.py": module,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": points,
    }
    digests = [
        f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b'=').decode()},"
        for path, text in files.items()
    ]
    files[f"{info}/RECORD"] = "\n".join([*digests, f"{info}/RECORD,,"]) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    site = folder / "site"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", str(site)]
    subprocess.run([*command, str(wheel)], check=True)
    return site


def run(site: Path | None, *command: object, code: int = 0, fresh: bool = False) -> str:
    """Runs `bertie` where the packages of a folder are installed. -> what it printed

    fresh: in a process that starts from nothing, as a user's does; a copied one takes a tenth of the time
    """
    environment = {**os.environ, "COLUMNS": "200"}
    if fresh:
        paths = [str(site) if site else "", os.environ.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        whole = [str(BERTIE), *map(str, command)]
        done = subprocess.run(whole, env=environment, capture_output=True, text=True, check=False)
    else:
        done = processes.run(command, packages=[site] if site else [], environment=environment)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def python(site: Path | None, script: str) -> str:
    """Runs a script where the packages of a folder are installed. -> what it printed"""
    done = processes.run([], script=script, packages=[site] if site else [])
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def answer_of_server(site: Path | None, model: object, text: str, **options: str) -> object:
    """Serves a model where the packages of a folder are installed. -> the label of /answer for a text"""
    script = f"""
import json, urllib.request, bertie
with bertie.serve({{"m": {str(model)!r}}}, port=0, **{options!r}) as server:
    body = json.dumps({{"inputs": {text!r}}}).encode()
    request = urllib.request.Request(f"{{server.url}}/answer", body, {{"Content-Type": "application/json"}})
    print(json.dumps(json.load(urllib.request.urlopen(request))))
"""
    return json.loads(python(site, script).splitlines()[-1])["answers"][0]["label"]
