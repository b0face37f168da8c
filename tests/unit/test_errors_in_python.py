"""An error that a call from Python raises names arguments; that of a command names options."""

import re
from pathlib import Path
from typing import Any

import pandas
import pytest

import bertie
from bertie.console import console as messages
from bertie.errors import BertieError, DataError, Stopped, UsageError, in_python, speech
from toys import CommandLine, toy_model

FRAME = pandas.DataFrame({"one": ["a b", "c d"] * 20, "two": ["b a", "d c"] * 20, "label": ["x", "y"] * 20})


@pytest.fixture(autouse=True)
def _called_from_python(_usual_messages: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speech, "shell", False)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Pass --text COLUMN.", "Pass `text=COLUMN`."),
        ("Pass --label 2, or --task sequence.", "Pass `label=2`, or `task='sequence'`."),
        ("Pass --max-length 64.", "Pass `max_length=64`."),
        ("Pass --overwrite to replace it.", "Pass `overwrite=True` to replace it."),
        ("Omit --engine, --precision and --device.", "Omit `engine`, `precision` and `device`."),
        ("Pass --head with one of: a, b.", "Pass `head` with one of: a, b."),
        ("Use another folder: -o NEW --resume RUN", "Use another folder: `output=NEW` `resume=RUN`"),
        ("Pass --words good=great,bad=poor, or omit it.", "Pass `words={'good': 'great', 'bad': 'poor'}`, or omit it."),
        ("or both as a pair, --text a --text 'b c'.", "or both as a pair, `text=['a', 'b c']`."),
        ("Pass --columns 'label,text'.", "Pass `columns=['label', 'text']`."),
        ("--perturb typos: unknown, and --columns names too", "`perturb=['typos']`: unknown, and `columns` names too"),
        ("Convert it: bertie convert --unsafe OLD -o NEW. Or pass --format csv", None),
        ("x is saved. The same command resumes from it.", "x is saved. The same call resumes from it."),
        ("a--b, runs/x--y and `--text A` stay", "a--b, runs/x--y and `--text A` stay"),
    ],
)
def test_options_become_arguments(message: str, expected: str | None) -> None:
    usual = "Convert it: bertie convert --unsafe OLD -o NEW. Or pass `format='csv'`"
    for kind in (BertieError, UsageError, DataError, Stopped):
        assert str(kind(message)) == (expected or usual)
    speech.shell = True
    assert str(UsageError(message, hint="Pass --text A.")) == f"{message} Pass --text A."
    assert in_python(message) == message


def test_a_call_and_a_command_name_the_same_thing(tmp_path: Path, bertie: CommandLine) -> None:
    import bertie as library

    model, table = toy_model(tmp_path / "model", "abcd"), tmp_path / "rows.csv"
    FRAME.to_csv(table, index=False)
    with pytest.raises(DataError, match="Pass `text=COLUMN`") as caught:
        library.finetune(model, FRAME, output=tmp_path / "run")
    assert "--" not in str(caught.value)
    code, _, told = bertie("finetune", model, "--train", table, "-o", tmp_path / "run")
    assert (code, "Pass --text COLUMN" in " ".join(told.split())) == (3, True), told
    with pytest.raises(UsageError, match="overwrite=True"):
        library.train_tokenizer(iter(["a b"] * 9), tmp_path / "model")


def test_a_call_warns_and_logs_and_prints_progress_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    start = toy_model(tmp_path / "start", "abcd")
    caplog.set_level("INFO", "bertie")
    options: dict[str, Any] = {"text": "one", "label": "label", "epochs": 1, "max_length": 8}
    bertie.progress(False)
    try:
        run = bertie.finetune(start, FRAME, **options)
        with pytest.warns(UserWarning, match="1 of 2 texts have no answer") as warned:
            bertie.predict(run, ["a b", ""])
    finally:
        bertie.progress(True)
    assert warned[0].filename == __file__
    assert "text column `one`, label column `label`" in caplog.text
    assert capfd.readouterr() == ("", "")
    with messages.progress("reading", 2) as advance:
        advance(2)
    speech.shell = True
    messages.warn("as in a shell")
    assert "warning: as in a shell" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("call", "advice"),
    [
        (lambda model: model.evaluate(FRAME, columns="label,text"), "Pass ['label', 'text']."),
        (lambda model: model.evaluate(FRAME, perturb="typos"), "Pass ['typos']."),
        (lambda model: model.predict(["a b"], ensemble="runs/b"), "Pass ['runs/b']."),
        (lambda model: model.predict(["a b"], candidates="good,bad"), "Pass ['good', 'bad']."),
        (lambda model: finetune(overrides="optim.betas=[0.9, 0.98]"), "Pass ['optim.betas=[0.9, 0.98]']."),
        (lambda model: finetune(tabular="price"), "Pass ['price']."),
    ],
)
def test_a_text_is_no_list_of_its_letters(call: Any, advice: str, tmp_path: Path) -> None:
    model = bertie.load(toy_model(tmp_path / "model", "abcd"))
    with pytest.raises(UsageError, match=re.escape(f" was expected. {advice}")):
        call(model)


def finetune(**options: Any) -> bertie.Run:
    return bertie.finetune("m", FRAME, **options)


def test_notes_and_warnings_of_a_run_name_arguments(tmp_path: Path) -> None:
    rare = FRAME[["one"]].assign(kind=["x"] * 38 + ["y"] * 2)
    run = bertie.finetune(toy_model(tmp_path / "start", "abcd"), rare, text="one", epochs=1, max_length=8)
    scores = run.model.evaluate(rare.assign(kind="z"))
    assert "pass `label`" in " ".join(run.notes)
    assert "`positive='y'`" in " ".join(run.notes)
    assert "`label_names={'z': 'NAME'}`" in " ".join(scores.warnings)
    assert "--" not in " ".join([*run.notes, *run.warnings, *scores.notes, *scores.warnings])
