"""Every command is listed, and every example of every --help is a command line that parses."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import bertie.apps.cli
from bertie.apps.cli.table import app
from bertie.errors import nearest

# What may surround an example: another program before a pipe, a file after it, a remark.
_EXAMPLE = re.compile(r"(?:^|\| |-m |Examples?: )bertie (.*?)(?:\s+[<|(].*)?$", re.MULTILINE)


def leaves(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """(words, command) of every command that does something itself."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from leaves(command, (*path, name))
        else:
            yield (*path, name), command


COMMANDS = {" ".join(path): command for path, command in leaves(typer.main.get_command(app))}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_of_help_are_command_lines(name: str):
    """One of this command at least; others may show what comes next."""
    command = COMMANDS[name]
    text = f"{command.help}\n{command.epilog or ''}"
    examples = [shlex.split(line.strip()) for line in _EXAMPLE.findall("\n".join(map(str.strip, text.splitlines())))]
    assert examples, f"bertie {name} --help shows no example"
    named = [
        next(words for words in map(str.split, COMMANDS) if example[: len(words)] == words) for example in examples
    ]
    assert name.split() in named
    for words, example in zip(named, examples, strict=True):  # raises for an unknown option or a missing argument
        COMMANDS[" ".join(words)].make_context(name, example[len(words) :])


@pytest.mark.parametrize("name", COMMANDS)
def test_80_columns_are_enough_for_every_name(name: str):
    shown = CliRunner().invoke(app, [*name.split(), "--help"], terminal_width=80, env={"COLUMNS": "80"}).output
    for parameter in COMMANDS[name].params:
        for option in (*parameter.opts, *parameter.secondary_opts):
            assert not option.startswith("--") or re.search(rf"{option}(?![\w-])", shown), option
    assert "…" not in shown


def test_of_many_choices_an_error_lists_those_that_are_alike():
    names = [f"preset-{n}" for n in range(50)] + ["other"]
    answer = nearest("othr", names)
    assert "Did you mean 'other'?" in answer
    assert "(51 in all)" in answer
    assert "preset-20" not in answer
    assert nearest("b", ["a", "b2"]) == "Did you mean 'b2'? Choices: a, b2."
    assert nearest("H100", ["a100", "h100", "v100"]).startswith("Did you mean 'h100'?")


def test_no_command_function_has_twenty_parameters():
    """Options that commands share are groups (apps/cli/groups.py), or fields of a config (apps/cli/options.py)."""
    for path in [
        *Path(bertie.__file__).parent.glob("apps/cli/*.py"),
        *Path(bertie.__file__).parent.glob("apps/*/command*/*.py"),
    ]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                assert len(node.args.args) + len(node.args.kwonlyargs) < 20, f"{path.name}: {node.name}"
