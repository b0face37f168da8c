"""Every task through the command line: rows that hold nothing, JSON lines from a file and from a pipe."""

import json
import shlex
import shutil
import string
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from bertie.api.run import commands_after
from bertie.infer.predict import Predictor
from bertie.models import families
from bertie.runs.weights import load_model
from bertie.tasks import TASKS, with_task
from bertie.text.tokenizer import Tokenizer
from bertie.training_facts import TrainingFacts, read_training_facts, write_training_facts
from toys import TASK_OPTIONS, CommandLine, toy_model, toy_writer

LETTERS = [*string.ascii_lowercase, *("##" + c for c in string.ascii_lowercase)]
LABELS = {"sequence": ("no", "yes"), "multilabel": ("x", "y"), "rank": ("0", "1"), "relation": ("no_relation", "of")}
LABELS |= {
    "few-shot": ("no", "yes"),
    "soft": ("no", "yes"),
    "tagging": ("O", "B-X"),
    "parse": ("root", "x"),
    "regression": ("score",),
}
PAIRS = ("rank", "span")
NAMES = [name for name, _ in TASKS.items()]
ROWS = {
    "choice": {"context": "ab", "ending0": "c", "ending1": "d"},
    "span": {"question": "ab", "context": "cd ef"},
    "rank": {"question": "ab", "sentence": "cd"},
}


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Path:
    """A model for every task, of random weights."""
    home = tmp_path_factory.mktemp("models")
    starts = {"text2text": toy_writer(home / "writer")}
    for name in NAMES:
        start = starts.get(name) or toy_model(home / "start", LETTERS)
        task = TASKS[name].make(LABELS.get(name, ()), TASK_OPTIONS.get(name, {}))
        tokenizer = Tokenizer.load(start)
        model, _ = families.load(start, heads=task.heads, seed=0)
        model.labels, model.problem_type = task.labels, task.problem_type
        texts = 2 if name in PAIRS else 1
        model.training_facts = with_task(TrainingFacts(max_length=24, too_long=task.too_long, texts=texts), task)
        families.save(model, home / name, tokenizer=tokenizer)
    return home


@pytest.fixture
def cli(monkeypatch, capsys) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


def row(name: str) -> dict[str, str]:
    return ROWS.get(name, {"text": "ab c"})


@pytest.mark.parametrize("name", NAMES)
def test_blank_lines_alone_are_told_and_break_nothing(models, cli, name):
    """A model of choices needs a table: lines are refused by name."""
    code, out, err = cli("predict", models / name, stdin="\n \n\n")
    if name == "choice":
        assert (code, out) == (3, "")
        assert "--text CONTEXT" in err
        return
    assert code == 0, err
    assert [json.loads(line)["line"] for line in out.splitlines()] == [1, 2, 3]
    assert all("error" in json.loads(line) for line in out.splitlines())
    assert "3 of 3 rows skipped" in err


@pytest.mark.parametrize("name", NAMES)
def test_a_table_of_unusable_rows_breaks_nothing(models, cli, name, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join([json.dumps(dict.fromkeys(row(name), " ")), "{", "[]"]) + "\n")
    code, out, err = cli("predict", models / name, path, "-o", tmp_path / "out.jsonl")
    assert code == 0, err
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert ["error" in record for record in found] == [True, True, True]
    code, out, err = cli("evaluate", models / name, path)
    assert code == 3, (out, err)
    assert "Traceback" not in err


@pytest.mark.parametrize("text", ["\n", " \n\n", ""])
def test_vectors_of_blank_lines_alone(models, cli, text):
    code, out, _ = cli("embed", models / "embed", stdin=text)
    assert code == 0
    assert len(out.splitlines()) == text.count("\n")


@pytest.mark.parametrize("name", NAMES)
def test_json_lines_are_known_by_their_first_line(models, cli, name, tmp_path):
    """The same answers from a .jsonl file, from a .txt file, and through a pipe; the braces are no text."""
    text = json.dumps(row(name)) + "\n"
    answers = [cli.good("predict", models / name, stdin=text)]
    for file in ("rows.jsonl", "rows.txt", "rows"):
        (tmp_path / file).write_text(text)
        answers.append(cli.good("predict", models / name, tmp_path / file))
    assert "error" not in json.loads(answers[0]), answers[0]
    assert len(set(answers)) == 1


@pytest.mark.parametrize("name", NAMES)
def test_the_line_shown_after_a_run_works_in_a_shell(models, cli, name):
    """`echo LINE | bertie predict MODEL`: an answer for one row, without an error."""
    echo, _, rest = commands_after(models / name)[0].partition(" | ")
    line = subprocess.run(["bash", "-c", echo], capture_output=True, text=True, check=True).stdout
    program, *arguments = shlex.split(rest)
    assert program == "bertie"
    (record,) = cli.good(*arguments, stdin=line).splitlines()
    assert "error" not in json.loads(record), record


@pytest.mark.parametrize("name", ["sequence", "multilabel", "regression"])
def test_the_line_shown_for_pairs_is_a_pair(models, cli, name, tmp_path):
    shutil.copytree(models / name, tmp_path / "pairs")
    write_training_facts(tmp_path / "pairs", replace(read_training_facts(tmp_path / "pairs"), texts=2))
    echo, _, rest = commands_after(tmp_path / "pairs")[0].partition(" | ")
    (record,) = cli.good(*shlex.split(rest)[1:], stdin=shlex.split(echo)[1] + "\n").splitlines()
    assert "error" not in json.loads(record), record


@pytest.mark.parametrize("name", NAMES)
def test_no_rows_are_no_answers(models, name):
    assert list(Predictor(load_model(models / name)).stream([])) == []


def test_a_context_with_a_line_separator_is_one_question(models, cli, tmp_path):
    """U+2028 and U+0085 occur inside texts. They do not end a line of a file."""
    context = "ab\u2028cd\u0085ef\x0bgh\x1cij"
    path = tmp_path / "rows.jsonl"
    rows = [{"id": "one", "question": "ab", "context": context}, {"id": "two", "question": "cd", "context": "ef"}]
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    found = [json.loads(line) for line in cli.good("predict", models / "span", path).split("\n")[:-1]]
    assert [record["id"] for record in found] == ["one", "two"]
    assert found[0]["answer"] == context[found[0]["start"] : found[0]["end"]]
