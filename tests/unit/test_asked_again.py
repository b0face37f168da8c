"""A command that writes a folder once, asked again: finished work is recognised, anything else is refused."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bertie.apps.cli.table import app
from bertie.errors import OutputExists, UsageError
from bertie.files import read_json
from bertie.folders import FolderKind, made_once
from bertie.models import families
from bertie.models.heads import HEADS
from bertie.runs.weights import load_model
from bertie.text.vocabulary import count_words, train_vocabulary

TEXT = "the small black cat sat on the mat and saw a dog run by the old house near the river\n"
COMMANDS = {  # -> other settings of the same command
    "tokenizer train text.txt --size 80": "--size 81",
    "convert model --precision bfloat16": "--shard-size 1",
    "grow model --layers 4": "--how interleave",
    "shrink model --from-layers 0": "--family distilbert",
    "vocabulary extend model words.txt": None,
    "vocabulary trim model text.txt": None,
    "compress model --layers 1": "--neurons 16",
    "export model": "--force",
}

REFUSED = "out is not empty. Choose another folder, or pass --overwrite to replace it."


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text(TEXT * 3)
    Path("words.txt").write_text("catdog\nriverhouse\n")
    tokenizer = train_vocabulary(count_words([TEXT] * 3), size=90)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = families.config("bert-tiny", vocab_size=tokenizer.vocab_size, pooler=False, **sizes)
    model = families.build(config, heads={"mlm": HEADS["mlm"](config, 0)}, variant="bert")
    model.tokenizer = tokenizer
    model.save_pretrained("model")
    return tmp_path


def run(command: str, *more: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, [*command.split(), "-o", "out", *more, "--json"])
    error = f"{done.exception}" if isinstance(done.exception, UsageError) else done.stderr
    return (2 if isinstance(done.exception, UsageError) else done.exit_code), done.stdout, error


def change(name: str) -> None:
    path = Path(name) / "README.md" if Path(name).is_dir() else Path(name)
    path.write_text(path.read_text() + "one more\n")


SLOW = ("export model",)  # a graph is compared on 200 texts


@pytest.mark.parametrize(
    "command", [pytest.param(one, marks=pytest.mark.slow) if one in SLOW else one for one in COMMANDS]
)
def test_finished_work_is_recognised(command: str, home: Path) -> None:
    code, first, _ = run(command)
    assert code == 0, first
    before = {path: path.stat().st_mtime_ns for path in Path("out").rglob("*")}
    code, again, said = run(command)
    assert (code, json.loads(again)) == (0, json.loads(first))
    assert "nothing to do" in said
    assert before == {path: path.stat().st_mtime_ns for path in Path("out").rglob("*")}
    if other := COMMANDS[command]:
        code, _, error = run(command, *other.split())
        assert code == 2
        assert REFUSED in error
    for name in [word for word in command.split() if Path(word).exists()]:
        kept = Path(name) if Path(name).is_file() else Path(name) / "README.md"
        text = kept.read_text()
        change(name)
        code, _, error = run(command)
        assert code == 2, name
        assert REFUSED in error
        kept.write_text(text)
    assert run(command)[0] == 0
    code, _, said = run(command, "--overwrite")
    assert code == 0
    assert "nothing to do" not in said


def test_the_same_inputs_under_another_name(home: Path) -> None:
    run("grow model --layers 4")
    Path("model").rename("moved")
    assert run("grow moved --layers 4")[0] == 0
    assert load_model("out").config.num_hidden_layers == 4


def test_a_result_that_was_changed_is_not_called_finished(home: Path) -> None:
    run("convert model")
    Path("out/mine.txt").write_text("a note next to it is no change")
    assert run("convert model")[0] == 0
    change("out")
    code, _, error = run("convert model")
    assert code == 2
    assert "out/README.md is damaged" in error
    assert "--overwrite" in error


def test_standard_input_is_not_known_before_it_is_read(home: Path) -> None:
    command = ["tokenizer", "train", "-", "-o", "out", "--size", "80"]
    assert CliRunner().invoke(app, command, input=TEXT).exit_code == 0
    done = CliRunner().invoke(app, command, input=TEXT)
    assert "not empty" in str(done.exception)


def test_what_fails_leaves_nothing_and_is_done_anew(tmp_path: Path) -> None:
    kind, out = FolderKind("toy", ("a.txt",), ("a.txt",)), tmp_path / "above" / "out"

    def write(folder: Path) -> dict[str, int]:
        (folder / "a.txt").write_text("a")
        calls.append(folder)
        return {"calls": len(calls)} if len(calls) > 1 else {"calls": 1 // 0}

    calls: list[Path] = []
    with pytest.raises(ZeroDivisionError):
        made_once(out, kind, "abc", write)
    assert list(tmp_path.iterdir()) == []
    assert [made_once(out, kind, "abc", write) for _ in range(3)] == 3 * [{"calls": 2}]
    assert read_json(out / "checksums.json")["made"] == {"by": "abc", "facts": {"calls": 2}}
    with pytest.raises(OutputExists):
        made_once(out, kind, "", write)
