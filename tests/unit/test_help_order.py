"""--help lists every command below a heading, and `bertie` alone shows the first three."""

import re

import typer.main

from bertie.cli.app import GROUPS, ORDER, app


def test_every_command_is_below_one_heading():
    assert set(typer.main.get_command(app).list_commands(None)) <= set(ORDER)
    assert len(ORDER) == len(set(ORDER))


def test_help_lists_the_commands_below_their_headings(bertie):
    lines = bertie.good("--help").splitlines()
    headings = [line.rstrip(":") for line in lines if re.fullmatch(r"\w[\w -]*:", line)]
    assert headings == ["Options", *GROUPS]
    at = {name: next(i for i, line in enumerate(lines) if re.match(rf"  {name} ", line)) for name in ORDER}
    assert sorted(ORDER, key=at.__getitem__) == [*ORDER]


def test_bertie_alone_shows_where_to_begin(bertie):
    shown = bertie.good()
    assert re.findall(r"^  bertie ([\w-]+) ", shown, re.MULTILINE) == [
        "finetune",
        "predict",
        "serve",
    ]
    assert "bertie --help" in shown
