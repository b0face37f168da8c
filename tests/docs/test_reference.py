"""What docs/generate.py makes names everything there is. So does the page of file formats, which is written by hand."""

import dataclasses
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

import bertie
import bertie.sklearn
from bertie.apps.cli.table import app
from bertie.data.corpus import CORPUS, TOKENS_FOLDER
from bertie.folders import FolderKind
from bertie.models.files import MODEL_FOLDER
from bertie.objectives import OBJECTIVES
from bertie.runs.config import FinetuneConfig, PretrainConfig
from bertie.runs.folder import CHECKPOINT, RUN
from bertie.settings import Config
from bertie.tasks.datasets import DATASETS
from bertie.text.vocabulary import TOKENIZER_FOLDER

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Generated page -> its text."""
    folder = tmp_path_factory.mktemp("docs")
    done = subprocess.run([sys.executable, DOCS / "generate.py", folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {path.stem: path.read_text(encoding="utf-8") for path in folder.rglob("*.md")}


def options(group: Any, name: str) -> list[tuple[str, str]]:
    """(command, option) of every command."""
    if hasattr(group, "commands"):
        return [pair for word, inner in group.commands.items() for pair in options(inner, f"{name} {word}")]
    return [(name, option) for parameter in group.params for option in parameter.opts if option.startswith("-")]


def test_every_option_of_every_command_is_in_the_reference(pages: dict[str, str]):
    sections = dict(part.split("\n", 1) for part in pages["command-line"].split("\n## ")[1:])
    found = options(typer.main.get_command(app), "bertie")
    assert len(found) > 200
    assert [pair for pair in found if pair[1] not in sections[pair[0]]] == []


def keys(kind: type[Config], prefix: str = "") -> list[str]:
    """The dotted keys of a config."""
    inner = {name: field.default for name, field in kind.model_fields.items() if isinstance(field.default, Config)}
    below = [key for name, one in inner.items() for key in keys(type(one), f"{prefix}{name}.")]
    return [f"{prefix}{name}" for name in kind.model_fields if name not in inner] + below


def test_every_key_of_every_config_is_in_the_reference(pages: dict[str, str]):
    page = pages["configuration"]
    assert [key for kind in (PretrainConfig, FinetuneConfig) for key in keys(kind) if f"| `{key}` |" not in page] == []
    for name, kind in OBJECTIVES.items():
        assert f"### {name}\n" in page
        assert all(f"| `{field.name}` |" in page for field in dataclasses.fields(kind) if field.init)
    assert "| `optim.lr` | `float` | `3e-05` | \\> 0 | Peak learning rate. |" in page, "fine-tuning's own default"


def test_every_public_name_and_every_set_is_in_the_reference(pages: dict[str, str]):
    assert [name for name in bertie.__all__ if f"}} bertie.{name}" not in pages["python-api"]] == []
    described = re.findall(r"^### (\S+)$", pages["python-api"], re.MULTILINE)
    assert {*bertie.__all__, *(f"sklearn.{name}" for name in bertie.sklearn.__all__)} <= {*described}
    methods = [name for name in dir(bertie.Model) if not name.startswith("_")]
    assert [name for name in methods if f"}} {name}" not in pages["python-api"].partition("} bertie.Model(")[2]] == []
    assert [name for name in DATASETS if f"| `{name}` |" not in pages["datasets"]] == []
    assert all(f"| {code} |" in pages["exit-codes"] for code in (0, 1, 2, 3, 75, 130))


def test_the_home_page_has_a_tree_of_every_page(pages: dict[str, str]):
    for name in ("fine-tuning", "glossary", "reference/command-line"):
        assert re.search(rf"^(.* <)?{name}>?$", pages["index"], re.MULTILINE), name


@pytest.mark.parametrize(
    "kind", [CORPUS, TOKENS_FOLDER, RUN, CHECKPOINT, MODEL_FOLDER, TOKENIZER_FOLDER], ids=lambda k: k.name
)
def test_every_file_that_bertie_writes_is_on_the_page_of_file_formats(kind: FolderKind):
    page = (DOCS / "file-formats.md").read_text(encoding="utf-8")
    assert [name for name in (*kind.files, *kind.folders) if f"`{name}`" not in page] == []
