"""`bertie sample`: tables of made-up reviews, the same on every machine."""

import csv
import json
from pathlib import Path

import pytest
import xxhash
from typer.testing import CliRunner

from bertie import console
from bertie.cli import commands
from bertie.data.sample import GRAMMARS, LABELS, ROWS, reviews
from bertie.errors import UsageError

# Of the rows as JSON. A change of a grammar changes what the pages print: change both together.
FINGERPRINTS = {"en": "2e30516d5cacff3f", "ko": "f00c9ad0d9ddb4bb"}


@pytest.fixture(autouse=True)
def _quiet():
    before = vars(console.verbosity).copy()
    yield
    vars(console.verbosity).update(before)


def run(*words: object) -> tuple[int, str]:
    """(exit code, stdout) of `bertie sample ...`; errors of Bertie's escape, as in `main`."""
    done = CliRunner().invoke(commands.app, ["sample", *map(str, words)], catch_exceptions=False)
    return done.exit_code, done.stdout


@pytest.mark.parametrize("language", list(GRAMMARS))
def test_the_rows_are_balanced_distinct_and_the_same_everywhere(language: str):
    rows = reviews(language)
    assert len(rows) == len({text for text, _ in rows}) == ROWS
    assert [sum(label == one for _, label in rows) for one in LABELS] == [ROWS / 2, ROWS / 2]
    assert xxhash.xxh3_64_hexdigest(json.dumps(rows, ensure_ascii=False).encode()) == FINGERPRINTS[language]


@pytest.mark.parametrize("language", list(GRAMMARS))
def test_labels_follow_from_the_words(language: str):
    """The last judgement of a text has the text's label, whatever came before."""
    words = {word: label for label, found in GRAMMARS[language].words.items() for word in found}
    for text, label in reviews(language):
        last = max((text.rfind(word), word) for word in words)
        assert words[last[1]] == label, text


def test_a_csv_file_that_is_not_replaced_unasked(tmp_path: Path):
    path = tmp_path / "reviews.csv"
    assert run("reviews", "--language", "ko", "-o", path)[0] == 0
    with open(path, encoding="utf-8", newline="") as file:
        assert [tuple(row) for row in csv.reader(file)] == [("text", "label"), *reviews("ko")]
    with pytest.raises(UsageError, match="--overwrite"):
        run("reviews", "-o", path)
    assert run("reviews", "-o", path, "--overwrite")[0] == 0
    assert path.read_text().startswith("text,label\n")


def test_standard_output_is_the_table_or_json_lines():
    assert run("reviews")[1].splitlines()[0] == "text,label"
    first = run("reviews", "--json")[1].splitlines()[0]
    assert json.loads(first) == dict(zip(("text", "label"), reviews()[0], strict=True))


@pytest.mark.parametrize(
    ("words", "said"),
    [(["reveiws"], "reviews"), (["reviews", "--language", "de"], "en, ko"), (["reviews", "-o", "r.parquet"], ".csv")],
)
def test_what_there_is_not_is_named(words: list[str], said: str):
    with pytest.raises(UsageError, match=said):
        run(*words)
