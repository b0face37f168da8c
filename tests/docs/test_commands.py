"""Every command of the READMEs and the pages is one that exists, with arguments and settings that it takes."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from benchmarks.__main__ import bench
from bertie.apps.cli.table import app
from bertie.console import console
from bertie.runs.config import FinetuneConfig, PretrainConfig

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", "README.ko.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))]
PAGES = [
    page for page in PAGES if not re.match(r"docs/(reference/|project/|_build/|index(\.ko)?\.md)", page)
]  # made ones
CONFIGS = {"pretrain": PretrainConfig, "finetune": FinetuneConfig}

_CODE = re.compile(r"```(?:\w*)\n(.*?)```|^((?: {4,}\S.*\n?)+)", re.DOTALL | re.MULTILINE)
_COMMAND = re.compile(r"(?:^\s*|\| |until )(?:python -m )?(bertie|benchmarks) (?=[a-z])(.*)", re.MULTILINE)
# What ends a command in a shell line: a pipe, a file, a remark, the next command.
_END = re.compile(r"\s+[<|#]|;|\s+\(or|\s{3,}(?=\S)")


def command_lines(page: str) -> Iterator[str]:
    """The commands in the blocks of a page, from the name of the program on, with continued lines joined."""
    for fenced, indented in _CODE.findall((ROOT / page).read_text(encoding="utf-8")):
        for program, line in _COMMAND.findall(re.sub(r"\\\n\s*", "", fenced or indented)):
            yield f"{program} {_END.split(line.replace(' ... ', ' '))[0].strip()}"


def own_lines(page: str) -> list[str]:
    """The lines of a page, without those that the English form of a Korean page has too."""
    english = page.replace(".ko.md", ".md")
    known = set(command_lines(english)) if english != page and (ROOT / english).exists() else set()
    return [line for line in dict.fromkeys(command_lines(page)) if line not in known]


LINES = [(page, line) for page in PAGES for line in own_lines(page)]

PROGRAMS: dict[str, Any] = {"bertie": typer.main.get_command(app), "benchmarks": typer.main.get_command(bench)}


@pytest.mark.parametrize("page", PAGES)
def test_a_command_named_in_the_text_exists(page: str):
    text = (ROOT / page).read_text(encoding="utf-8")
    for start, program in (("bertie", "bertie"), ("python -m benchmarks", "benchmarks")):
        assert set(re.findall(rf"`{start} ([a-z][a-z-]*)", text)) <= set(PROGRAMS[program].commands)


@pytest.mark.parametrize(("page", "line"), LINES, ids=[f"{page}: {line[:60]}" for page, line in LINES])
def test_a_command_of_the_pages_parses(page: str, line: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        "bertie.models.names.find_named_model", lambda name: None
    )  # models of packages may not be installed
    name, *words = shlex.split(line)
    command = PROGRAMS[name]
    while hasattr(command, "commands"):
        assert words[0] in command.commands, f"{page}: {name} has no command {words[0]}"
        name, command, words = words[0], command.commands[words[0]], words[1:]
    before = vars(console.verbosity).copy()
    try:
        context = command.make_context(name, words)  # raises for an unknown option or a missing argument
    finally:
        vars(console.verbosity).update(before)
    if name in CONFIGS:
        given = [context.params.get("model"), *(context.params.get("overrides") or [])]
        for setting in (str(text) for text in given if text and re.match(r"[\w.]+=", str(text))):
            fields, key = CONFIGS[name].model_fields, setting.split("=")[0].split(".")
            assert key[0] in fields, f"{page}: `{name}` has no setting {key[0]}"
            inner = getattr(fields[key[0]].annotation, "model_fields", None)
            assert len(key) == 1 or inner is None or key[1] in inner, f"{page}: no setting {'.'.join(key)}"
