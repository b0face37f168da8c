"""--help lists every command below a heading, and `bertie` alone shows the first three."""

import re
from pathlib import Path

import pytest

import bertie
from bertie.apps.cli.table import COMMAND_ROWS, GROUPS, load_command


def test_a_name_is_one_command():
    assert len(COMMAND_ROWS) == sum(map(len, GROUPS.values()))


@pytest.mark.parametrize("row", COMMAND_ROWS.values(), ids=COMMAND_ROWS)
def test_the_table_says_what_a_command_says_of_itself(row):
    """--help prints the table, so that it need not import 50 modules."""
    first = load_command(row).help.split("\n\n")[0]
    assert " ".join(first.split()).split(". ")[0].rstrip(".") == row.help.rstrip(".")


def test_every_module_of_commands_is_in_the_table():
    """A file that has no row would be a command that nobody can call."""
    source = Path(bertie.__file__).parent
    files = [*source.glob("apps/cli/*.py"), *source.glob("apps/*/command.py"), *source.glob("apps/*/commands/*.py")]
    modules = {".".join(("bertie", *path.relative_to(source).with_suffix("").parts)) for path in files}
    shared = {
        f"bertie.apps.cli.{name}"
        for name in ("app", "groups", "options", "parsing", "screen", "shared", "tables", "table")
    }
    rows = {row.target.partition(":")[0] for row in COMMAND_ROWS.values()}
    assert {name for name in modules if not name.endswith("__init__")} - shared - rows == set()


def test_help_lists_the_commands_below_their_headings(bertie):
    lines = bertie.good("--help").splitlines()
    headings = [line.rstrip(":") for line in lines if re.fullmatch(r"\w[\w -]*:", line)]
    assert headings == ["Options", *GROUPS]
    at = {name: next(i for i, line in enumerate(lines) if re.match(rf"  {name} ", line)) for name in COMMAND_ROWS}
    assert sorted(COMMAND_ROWS, key=at.__getitem__) == [*COMMAND_ROWS]


def test_bertie_alone_shows_where_to_begin(bertie):
    shown = bertie.good()
    assert re.findall(r"^  bertie ([\w-]+) ", shown, re.MULTILINE) == [
        "finetune",
        "predict",
        "serve",
    ]
    assert "bertie --help" in shown
