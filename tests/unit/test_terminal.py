"""What the terminal shows at 80 columns."""

import errno
import io
import re
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from rich.table import Table
from typer.testing import CliRunner

from bertie.apps.cli.table import app
from bertie.apps.search.readers import Reading, read_documents
from bertie.console import console
from bertie.models.families import VARIANTS


def shown(*arguments: str) -> list[str]:
    result = CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1"}).invoke(app, [*arguments])
    assert result.exit_code == 0, result.output
    return result.output.splitlines()


def test_a_family_is_a_line():
    lines = shown("families")
    assert [line.split()[0] for line in lines] == list(VARIANTS)
    assert max(map(len, lines)) <= 80
    assert all(" M" in line or " B" in line for line in lines)


def test_one_family_in_full():
    text = "\n".join(shown("families", "electra"))
    assert "arXiv:2003.10555" in text
    for preset in VARIANTS["electra"].presets:
        assert preset in text
    assert "Did you mean 'electra'" in str(CliRunner().invoke(app, ["families", "elektra"]).exception)


def test_a_preset_is_a_line_whose_name_can_be_copied():
    names = [name for family in VARIANTS for name in VARIANTS[family].presets]
    lines = shown("info", "--presets")
    assert [line.split()[0] for line in lines[1:]] == names
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(("seconds", "lines"), [(0.5, 0), (1.5, 1)])
def test_progress_of_less_than_a_second_leaves_no_trace(monkeypatch, seconds: float, lines: int):
    now = iter([0.0, *[seconds] * 9])
    monkeypatch.setattr("bertie.console.time", SimpleNamespace(monotonic=lambda: next(now)))
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with console.part("fold-2"), console.progress("reading", 0.4, unit="MB") as advance:
        advance(0.4)
    head, *told = sys.stderr.getvalue().splitlines()
    assert head == "fold-2"
    assert len(told) == lines
    assert all("reading fold-2: 0.4/0.4 MB" in line for line in told)


@pytest.mark.parametrize(("columns", "lines"), [(None, 3), ("40", 9)])
def test_a_table_in_a_pipe_is_as_wide_as_its_cells(monkeypatch, capsys, columns, lines):
    from rich.table import Table

    monkeypatch.delenv("COLUMNS", raising=False)
    if columns:
        monkeypatch.setenv("COLUMNS", columns)
    table = Table("a", "b", box=None)
    table.add_row("x " * 40, "y " * 60)
    table.add_row("one", "two")
    console.show(table)
    assert len(capsys.readouterr().out.splitlines()) == lines


def test_no_name_in_a_file_commands_the_terminal(monkeypatch, capsys):
    """Escape codes could write to the clipboard or hide a message, and turn its direction. Bertie's own colors stay."""
    name = "a\x1b]52;c;aGk=\x07b\rc\x9b2J\u202ed\u2067"
    monkeypatch.setenv("FORCE_COLOR", "1")
    for tell in (console.say, console.warn, console.show):
        tell(f"Unknown weight {name}")
    table = Table()
    table.add_column("name", style="red")
    table.add_row(name)
    console.show(table)
    printed = "".join(capsys.readouterr())
    assert "\x1b[31m" in printed
    assert not set(re.sub("\x1b\\[[0-9;]*m", "", printed)) & set("\x1b\x07\r\x9b\u202e\u2067")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.EMFILE, "Too many open files"), "Too many files are open. Raise the limit"),
        (OSError(errno.EMFILE, "Too many open files", "a.txt"), "Too many files are open. Raise the limit"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "There is not enough memory."),
        (MemoryError(), "There is not enough memory."),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to"), "There is not enough memory."),
        (RuntimeError("can't start new thread"), "There is not enough memory."),
        (ImportError("libtorch_cpu.so: failed to map segment from shared object"), "There is not enough memory."),
    ],
)
def test_what_the_machine_lacks_is_one_sentence(bertie, monkeypatch, error, message):
    def fail(*_):
        raise error

    monkeypatch.setattr("bertie.io.sources.plan_units", fail)
    code, _, err = bertie("corpus", "a.txt", "-o", "corpus", "--dry-run")
    assert (code, message in err, "Traceback" in err) == (1, True, False)


def test_a_lack_is_no_fault_of_a_file(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("a")

    def fail(*_):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("bertie.io.documents.record_blocks", fail)
    with pytest.raises(OSError, match="Too many open files"):
        list(read_documents(str(tmp_path / "a.txt"), Reading()))


def test_a_removed_working_directory_is_named(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    program = "import os; os.rmdir(os.getcwd()); from bertie.program import main; main()"
    command = [sys.executable, "-P", "-c", program, "info"]  # -P: sys.path has no "", which fails in Python 3.13.0
    done = subprocess.run(command, cwd=tmp_path / "a", capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "The working directory cannot be used" in done.stderr) == (2, True)


def test_a_step_that_cannot_tell_how_far_it_is_shows_that_it_goes_on(monkeypatch, capsys):
    """In a pipe, where nothing is drawn: a line every few seconds."""
    monkeypatch.setattr("bertie.console.PLAIN_LINE_EVERY_S", 0.5)
    with console.working("tracing the graph"):
        time.sleep(2.3)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) >= 2
    assert lines[0] == "tracing the graph: (1 s)"
    with console.working("a short step"):
        pass
    assert capsys.readouterr().err == ""
