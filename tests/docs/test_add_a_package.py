"""The package of docs/add-a-package.md, installed by pip, adds an objective, a format of tables and a command."""

import json
from pathlib import Path

import pytest

from packages import blocks, install, python, run

PAGE = Path(__file__).parents[2] / "docs" / "add-a-package.md"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (code,), (pyproject,) = blocks(PAGE, "python"), blocks(PAGE, "toml")
    return install(pyproject, code, tmp_path_factory.mktemp("package"))


def test_the_command(site: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("one two\nthree")
    assert run(site, "count-words", tmp_path / "notes.txt").strip() == "3 words"
    assert "Of the package bertie-extras." in run(site, "--help")
    assert "Count the words of a file." in run(site, "count-words", "--help")
    assert "count-words" not in run(None, "--help")


def test_the_reader(site: Path, tmp_path: Path) -> None:
    (tmp_path / "new.cards").write_text("text: It was good.\nid: 1\n\ntext: It was bad.\nid: 2\n")
    rows = python(
        site,
        "from bertie.io.rows import records, TableFormat\n"
        f"for row in records({str(tmp_path / 'new.cards')!r}, TableFormat()): print(row)",
    )
    assert rows.splitlines() == ["(1, {'text': 'It was good.', 'id': '1'})", "(4, {'text': 'It was bad.', 'id': '2'})"]
    told = run(None, "predict", "sentiment-ko", tmp_path / "new.cards", code=2)
    assert "Unknown table format 'cards'" in told


def test_the_objective(site: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("\n\n".join(f"It is day {n}.\nThe sun shines." for n in range(30)))
    run(site, "corpus", tmp_path / "texts.txt", "-o", tmp_path / "corpus")
    run(site, "tokenizer", "train", tmp_path / "corpus", "-o", tmp_path / "tokenizer", "--size", 60)
    command = (
        "pretrain",
        "--corpus",
        tmp_path / "corpus",
        "--tokenizer",
        tmp_path / "tokenizer",
        "-o",
        tmp_path / "run",
    )
    settings = ("objectives.mlm=null", "objectives.nsp=null", "objectives.always_masked.rate=0.2", "--steps", 2)
    sizes = ("--model", "bert-tiny", "--batch-size", 4, "--max-length", 16)
    run(site, *command, *settings, *sizes)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert any("mlm_loss" in line for line in lines)
    assert "Unknown objective 'always_masked'" in run(None, *command, *settings, *sizes, "--overwrite", code=2)


def test_a_package_that_cannot_be_imported_stops_nothing_else(tmp_path: Path) -> None:
    pyproject = """
[project]
name = "bertie-broken"
version = "1.0"
[project.entry-points."bertie.tasks"]
broken = "bertie_broken:Task"
sequence = "bertie_broken:Task"
[project.entry-points."bertie.commands"]
predict = "bertie_broken:predict"
"""
    broken = install(pyproject, "import nothing_of_this_name", tmp_path)
    script = """
from bertie.errors import UsageError
from bertie.tasks import TASKS
print(TASKS["sequence"].__name__, "broken" in TASKS)
try:
    TASKS["broken"]
except UsageError as error:
    print(error)
"""
    printed = python(broken, script)
    assert printed.startswith("SequenceTask True")
    assert "The package bertie-broken offers bertie_broken:Task, which cannot be imported" in printed
    assert "Predict labels" in run(broken, "predict", "--help")
