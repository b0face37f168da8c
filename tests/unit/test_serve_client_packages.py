"""The code of docs/serving.md runs: LangChain, LlamaIndex and Haystack get the vectors and the ranks of Bertie.

`BERTIE_CLIENTS_PYTHON` is a Python that has these packages. Default: that of the tests.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bertie
from toys import toy_model

PAGE = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
PYTHON = os.environ.get("BERTIE_CLIENTS_PYTHON", sys.executable)
SECTIONS = dict(
    re.findall(r"^### (LangChain|LlamaIndex|Haystack)\n.*?```python\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL)
)
MODULES = {"LangChain": "langchain_openai", "LlamaIndex": "llama_index.embeddings", "Haystack": "haystack"}
TEXTS = ["Where is the library?", "In the town hall.", "Soup is hot."]
PRINTED = "import json\nprint(json.dumps([list(vector), [list(one) for one in vectors], [one.content for one in {}]]))"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    home = tmp_path_factory.mktemp("models")
    words = " ".join(TEXTS).lower().replace("?", " ?").replace(".", " .").split()
    start = toy_model(home / "start", [*words, *(word.capitalize() for word in words)], max_position_embeddings=128)
    rows = [{"sentence1": TEXTS[i % 3], "sentence2": TEXTS[(i + 1) % 3], "score": i % 5 / 4} for i in range(20)]
    for name, task in {"embed": "embed", "rank": "regression"}.items():
        bertie.finetune(start, rows, task=task, epochs=1, output=home / name)
    return {name: home / name / "model" for name in ("embed", "rank")}


@pytest.fixture(scope="module")
def url(folders: dict[str, Path]) -> Iterator[str]:
    with bertie.serve(folders, threads=1) as server:
        yield server.url


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_a_client_gets_the_vectors_of_bertie(name: str, url: str, folders: dict[str, Path]) -> None:
    if subprocess.run([PYTHON, "-c", f"import {MODULES[name]}"], capture_output=True, check=False).returncode:
        pytest.skip(f"{MODULES[name]} is not installed")
    script = f"url = {url!r}\n{SECTIONS[name]}\n" + PRINTED.format("ranked" if name == "Haystack" else "[]")
    done = subprocess.run([PYTHON, "-c", script], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    found: list[Any] = json.loads(done.stdout.splitlines()[-1])
    expected = bertie.embed(folders["embed"], TEXTS)
    unit = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    for vector, row, own in zip([found[0], *found[1]], expected, unit, strict=True):
        assert np.allclose(vector, row, atol=1e-5) or np.allclose(vector, own, atol=1e-5)
    if name == "Haystack":
        ranked = bertie.rank(folders["rank"], TEXTS[0], TEXTS[1:])
        assert found[2] == [one.text for one in ranked]


def test_each_library_has_a_section_and_an_example() -> None:
    assert SECTIONS.keys() == MODULES.keys()
