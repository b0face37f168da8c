"""Standard streams that are closed, of another encoding, or left by their reader; names that look like markup."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.table import Table

from bertie.console import console

BERTIE = f"{sys.executable} -m bertie"


def shell(command: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    env = {**os.environ, "NO_COLOR": "1", **environment}
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"], cwd=folder, env=env, capture_output=True, check=False
    )


@pytest.mark.parametrize("command", ["--help", "families"])
def test_a_reader_that_goes_away_is_no_failure(command: str, tmp_path: Path) -> None:
    done = shell(f"{BERTIE} {command} | true", tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_as_if_it_led_nowhere(closed: str, tmp_path: Path) -> None:
    done = shell(f"{BERTIE} data --json {closed}", tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")
    assert bool(done.stdout) == (">&-" not in closed.replace("2>&-", ""))
    done = shell(f"{BERTIE} info nowhere {closed}", tmp_path)
    assert done.returncode in (2, 3)
    assert (b"error:" in done.stderr) == ("2>&-" not in closed)


@pytest.mark.parametrize("setting", [{"LC_ALL": "C"}, {"PYTHONIOENCODING": "ascii"}])
def test_names_of_any_bytes_are_said_in_any_locale(setting: dict[str, str], tmp_path: Path) -> None:
    done = shell(f"{BERTIE} verify $'한국어\\xff[/red]'", tmp_path, **setting)
    assert done.returncode == 3
    assert "한국어\\xff[/red]".encode() in done.stderr


def test_what_users_give_is_never_read_as_markup(capsys: pytest.CaptureFixture[str]) -> None:
    console.say("runs/[/red] :smile:")
    console.warn("[/nothing]")
    console.show("[bold]text[/bold]")
    table = Table("[label]")
    table.add_row("[/nothing]")
    console.show(table)
    out, err = capsys.readouterr()
    assert "runs/[/red] :smile:" in err
    assert "[/nothing]" in err
    assert "[bold]text[/bold]" in out
    assert "[/nothing]" in out
    assert "[label]" in out
    console.show("[bold]text[/]", markup=True)
    assert capsys.readouterr().out == "text\n"
