"""The packages of docs/add-a-package.md, installed by pip: an objective, a format of tables, a command, an engine and
splitters, in everything that takes one."""

import json
import re
from importlib import import_module
from pathlib import Path
from typing import get_args

import pytest

import bertie
from bertie.api.register import TABLES, _Kind
from bertie.data import corpus
from packages import answer_of_server, blocks, install, python, run

PAGE = Path(__file__).parents[2] / "docs" / "add-a-package.md"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(blocks(PAGE, "toml")[0], blocks(PAGE, "python")[0], tmp_path_factory.mktemp("package"))


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of the package with an engine and splitters. The engine also writes a line to `ran` at every batch."""
    folder = tmp_path_factory.mktemp("code")
    body = "        if ids.extra:"
    module = blocks(PAGE, "python")[1]
    assert body in module
    noted = f"        print(file=open({str(folder / 'ran')!r}, 'a'))\n{body}"
    return install(blocks(PAGE, "toml")[1], module.replace(body, noted), folder)


def test_the_command(site: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("one two\nthree")
    assert run(site, "count-words", tmp_path / "notes.txt", fresh=True).strip() == "3 words"
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


def test_every_kind_is_an_entry_point_a_row_of_the_page_and_a_word_of_register() -> None:
    rows = set(re.findall(r"^\| `bertie\.(\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    plural = {kind: f"{kind.removesuffix('y')}ies" if kind == "family" else f"{kind}s" for kind in TABLES}
    assert rows == {*plural.values(), "commands"}
    assert {*get_args(_Kind)} == {*TABLES}
    for kind, (module, table) in TABLES.items():
        registry = getattr(import_module(module), table)
        assert registry.group == f"bertie.{plural[kind]}"
        assert kind in (bertie.register.__doc__ or "")


ENGINE = """
import bertie, numpy
rows = ["정말 좋다", "별로다", "정말 좋다"]
model = bertie.load("sentiment-ko", engine="remembering")
first, again = model.predict(rows), model.predict(rows)
other = bertie.load("sentiment-ko", engine="torch").predict(rows)
assert first.labels == again.labels == other.labels
numpy.testing.assert_allclose(first.probabilities, other.probabilities, atol=1e-6)
"""


def test_the_engine_in_predict_and_serve(code: Path, tmp_path: Path) -> None:
    ran = code.parent / "ran"
    python(code, ENGINE)
    after_python = ran.stat().st_size
    (tmp_path / "rows.csv").write_text("text\n정말 좋다\n별로다\n")
    command = ("predict", "sentiment-ko", tmp_path / "rows.csv", "--engine")
    assert run(code, *command, "remembering") == run(code, *command, "torch")
    assert ran.stat().st_size > after_python > 0
    assert "Unknown engine 'remembering'. Choices: auto, native, torch." in run(None, *command, "remembering", code=2)
    before_serving = ran.stat().st_size
    assert answer_of_server(code, "sentiment-ko", "정말 좋다", engine="remembering") == "positive"
    assert ran.stat().st_size > before_serving
    refused = run(None, "serve", "sentiment-ko", "--engine", "remembering", code=2)
    assert "Unknown engine 'remembering'" in refused


def test_the_splitter_in_corpora(code: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("It rained; we stayed. The sun came out.\n")
    command = ("corpus", tmp_path / "notes.txt", "-o")
    run(code, *command, tmp_path / "corpus", "--splitter", "clauses")
    assert [*corpus.texts(tmp_path / "corpus")] == ["It rained", "we stayed.", "The sun came out."]
    told = run(None, *command, tmp_path / "other", "--splitter", "clauses", code=2)
    assert "Unknown sentence splitter 'clauses'" in told


def test_the_word_splitter_in_a_tokenizer_and_in_search(code: Path, tmp_path: Path) -> None:
    text = tmp_path / "code.txt"
    text.write_text("\n\n".join(f"call parseHttpRequest or sendHttpAnswer, page {n}" for n in range(40)))
    out = tmp_path / "tokenizer"
    run(code, "tokenizer", "train", text, "-o", out, "--size", 90, "--word-splitter", "names")
    rows = json.loads(run(code, "tokenizer", "encode", out, "parseHttpRequest", "--json"))
    assert [row["token"] for row in rows] == ["[CLS]", "parse", "Http", "Request", "[SEP]"]
    missing = run(None, "tokenizer", "encode", out, "parseHttpRequest", code=2)
    assert "pip install bertie-code" in missing
    run(code, "index", text, "-o", tmp_path / "index", "--word-splitter", "names")
    search = ("search", tmp_path / "index", "request")
    assert "parseHttpRequest" in run(code, *search)
    assert "Unknown word splitter 'names'" in run(None, *search, code=2)
    run(code, "index", text, "-o", tmp_path / "plain")
    assert "parseHttpRequest" not in run(code, "search", tmp_path / "plain", "request")
