"""The help of commands has headings, and any setting of a run can be written as an option."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

import bertie as bertie_api
from bertie.apps.cli.parsing import MAX_UNGROUPED_OPTIONS, PANELS
from bertie.apps.cli.table import load_command, rows
from bertie.tasks import Prediction
from bertie.tasks.several import SeveralPrediction
from bertie.tasks.span import QaPrediction, Span, SpanPrediction
from bertie.tasks.tagging import TagPrediction
from toys import CommandLine, toy_model


def test_the_help_of_a_long_command_has_headings(bertie: CommandLine) -> None:
    code, out, _ = bertie("finetune", "--help")
    assert code == 0
    places = [out.index(f"\n{heading}:\n") for heading in ("Data", "Training", "Run", "Output")]
    assert places == sorted(places)
    assert places[0] < out.index("  --train ") < places[1] < out.index("  --epochs ") < places[2]
    assert places[2] < out.index("  --dry-run ") < places[3] < out.index("  -o, --output ")
    assert "\nOptions:\n" not in out
    assert "\nOptions:\n" in bertie("info", "--help")[1]


def test_options_of_one_name_have_one_heading() -> None:
    names = [name for listed in PANELS.values() for name in listed.split()]
    assert len(names) == len(set(names))
    used = {
        max(one.opts, key=len).lstrip("-")
        for row in rows().values()
        for one in getattr(load_command(row), "params", ())
    } | {"help"}
    assert not {name for name in names if name not in used}, "an option that no command has"


def test_an_option_takes_values_of_one_kind_in_every_command() -> None:
    """One name has one meaning, so `--layers` is not a number here and a list there."""
    same = {"<path>": "<str>", "<list[path]>": "<str>", "<list[str]>": "<str>", "<en|ko>": "<str>"}
    kinds: dict[str, dict[str, str]] = {}
    for row in rows().values():
        command = load_command(row)
        for inner in getattr(command, "commands", {"": command}).values():
            context = inner.make_context("", [], resilient_parsing=True)
            for one in inner.params:
                if one.param_type_name == "option":
                    kind = one.display_type(context).replace(" range", "")
                    kinds.setdefault(max(one.opts, key=len), {})[same.get(kind, kind)] = row.name
    assert {name: found for name, found in kinds.items() if len(found) > 1} == {}


@pytest.mark.parametrize("command", ["finetune", "pretrain", "predict", "evaluate"])
def test_every_option_of_a_long_command_is_below_a_heading(command: str, bertie: CommandLine) -> None:
    assert len(load_command(rows()[command]).params) > MAX_UNGROUPED_OPTIONS
    assert "\nOptions:\n" not in bertie(command, "--help")[1]


def test_a_setting_is_an_option_or_key_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bertie: CommandLine
) -> None:
    monkeypatch.chdir(tmp_path)
    toy_model(Path("M"), "abc")
    Path("t.csv").write_text("text,label\n" + "".join(f"a b,x\nb c{i % 3},y\n" for i in range(10)))
    usual = ("finetune", "M", "--train", "t.csv", "--epochs", "1", "--max-length", "32")
    ways = {
        "options": ("--optim.eps", "1e-7", "--too-long=window", "--train.log-every", "2"),
        "keys": ("optim.eps=1e-7", "too_long=window", "train.log_every=2"),
    }
    for name, words in ways.items():
        assert bertie(*usual, *words, "-o", name)[0] == 0
    first, second = (Path(name, "run.yaml").read_text() for name in ways)
    assert "log_every: 2" in first
    assert "too_long: window" in first
    assert first == second
    code, out, _ = bertie(
        "finetune", "--optim.eps", "1e-7", "M", "--train", "t.csv", "--max-length", "32", "--dry-run", "--trial", "0"
    )
    assert code == 0
    assert "model: M" in out


def test_a_person_sees_text_and_a_pipe_gets_records(tmp_path: Path) -> None:
    folder = tmp_path / "M"
    toy_model(folder, "abc")
    texts = tmp_path / "t.csv"
    texts.write_text("text,label\n" + "".join(f"a b,x\nb c{i % 3},y\n" for i in range(10)))
    command = [sys.executable, "-m", "bertie"]
    quiet = {"cwd": tmp_path, "check": True, "stderr": subprocess.DEVNULL}
    subprocess.run(
        [*command, "finetune", "M", "--train", "t.csv", "-o", "run", "--epochs", "1", "--max-length", "32"], **quiet
    )  # type: ignore[call-overload]
    predict = [*command, "predict", "run/model", "t.csv"]
    shown = _on_a_terminal(predict, tmp_path)
    lines = shown.splitlines()
    assert len(lines) == 20
    assert "{" not in shown
    assert lines[0].split()[0] in "xy"
    assert lines[0].endswith("  a b")
    assert float(lines[0].split()[1]) > 0.5
    records = subprocess.run(predict, stdout=subprocess.PIPE, **quiet).stdout  # type: ignore[call-overload]
    assert records.startswith(b'{"text": "a b", "label": "x", ')
    assert _on_a_terminal([*predict, "--json"], tmp_path).encode() == records
    assert _on_a_terminal([*predict, "--only-answers"], tmp_path).startswith('{"line": 2, ')


def _on_a_terminal(command: list[str], folder: Path) -> str:
    """Returns what a command prints where its standard output is a terminal."""
    terminal, ours = pty.openpty()
    environment = {**os.environ, "TERM": "dumb", "COLUMNS": "200"}
    process = subprocess.Popen(command, stdout=ours, stderr=subprocess.DEVNULL, cwd=folder, env=environment)
    os.close(ours)
    parts = list[bytes]()
    while True:
        try:
            part = os.read(terminal, 4096)
        except OSError:  # of Linux, at the end
            break
        if not part:
            break
        parts.append(part)
    assert process.wait() == 0
    os.close(terminal)
    return b"".join(parts).decode().replace("\r\n", "\n")


def test_each_kind_of_prediction_is_rendered() -> None:
    text = "Ada met Bob"
    tags = TagPrediction(("B-person", "O", "B-person"), text=text, spans=((0, 3), (4, 7), (8, 11)))
    (parts,) = tags.render((text,)).texts
    assert [(part.text, part.note) for part in parts if part.kind] == [("Ada", "person"), ("Bob", "person")]
    assert "".join(part.text for part in parts) == text

    answer = SpanPrediction(QaPrediction("Bob", "Bob", -3.0), 0.9, spans=(Span("Bob", 8, 11, 3.0, 0.9),))
    shown = answer.render(("Who?", text))
    assert (shown.answer, shown.probability) == ("Bob", 0.9)
    assert [part.text for part in shown.texts[1] if part.kind] == ["Bob"]
    silent = SpanPrediction(QaPrediction("", "Bob", 3.0), 0.9).render(("Who?", text))
    assert (silent.answer, silent.probability) == ("no answer", None)

    assert Prediction(("a", "b")).label_text == "a, b"
    assert Prediction(()).label_text == "none"
    assert Prediction(0.123456).label_text == "0.1235"
    assert Prediction([0.5] * 6).label_text == "[0.500, 0.500, 0.500, 0.500, ...] 6 numbers"
    assert SeveralPrediction({}, parts={"a": Prediction("x"), "b": Prediction(1.0)}).label_text == "a: x, b: 1"


def test_a_function_receives_each_prediction(tmp_path: Path) -> None:
    toy_model(tmp_path / "M", "abc")
    frame = [{"text": "a b", "label": "x"}, {"text": "b c", "label": "y"}] * 6
    run = bertie_api.finetune(str(tmp_path / "M"), frame, output=tmp_path / "run", epochs=1, max_length=32)
    received = list[tuple[tuple[str, ...], Prediction]]()
    written = bertie_api.predict(
        run.model, ["a b", "", "b c"], output=lambda texts, answer: received.append((tuple(texts), answer))
    )
    assert (written.rows, written.answers, written.files) == (3, 2, ())
    assert [texts for texts, _ in received] == [("a b",), (), ("b c",)]
    assert received[1][1].error == "empty text"
    assert [received[0][1], received[2][1]] == [*bertie_api.predict(run.model, ["a b", "b c"])]
