"""Numbers of README and of the pages of results and benchmarks are those of benchmarks/results/*.jsonl."""

import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))

import generate_results  # noqa: E402 (in docs/)

PAGES = ["README.md", "README.ko.md", "docs/results.md", "docs/results.ko.md", "docs/benchmarks.md", "docs/how-long.md"]
FILES = ("scores", "speeds", "times")
# A decimal, a number with commas, or a size; versions, dates, rates and sizes of commands are in code.
NUMBER = re.compile(r"(?<![\w./])(\d[\d,]*\.\d+|\d{1,3}(?:,\d{3})+|\d+(?= MB))(?![\w/]|\.\d)")
OTHERS = {
    "README.md": {"0.2", "2.0", "3.11", "3.14", "0.03"},  # versions; the tutorial on domains
    "README.ko.md": {"0.2", "2.0", "3.11", "3.14", "0.03"},
    "docs/benchmarks.md": {"1,000", "10,000", "100,000", "1,000,000"},  # texts and passages of the measurements
}
PROSE = {"10,000", "35,389", "872", "2,000"}  # rows of few seeds, the vocabulary of e5-small, sizes of sets


def known() -> set[str]:
    """Every number of the files, as pages may show it."""
    found = set[str]()
    for name in FILES:
        for row in generate_results.lines(name):
            found |= set(re.findall(r"\d[\d,]*(?:\.\d+)?", json.dumps(row)))
            for value in row.values():
                if isinstance(value, float | int) and not isinstance(value, bool):
                    found |= {f"{value:.2f}", f"{value:.3f}", f"{value:,.0f}", f"{value:g}"}
    return found


def test_the_tables_of_pages_are_made_from_the_files_of_results():
    assert not generate_results.changed(), "run python docs/generate_results.py"


@pytest.mark.parametrize("page", PAGES)
def test_a_number_on_a_page_is_in_the_files_of_results(page: str):
    text = (ROOT / page).read_text(encoding="utf-8")
    text = re.sub(r"```.*?```|`[^`\n]*`|\]\([^)]*\)|^ {4,}.*$", " ", text, flags=re.DOTALL | re.MULTILINE)
    unknown = set(NUMBER.findall(text)) - known() - OTHERS.get(page, set()) - PROSE
    assert not unknown, f"{page}: {sorted(unknown)} are in no file of benchmarks/results"


@pytest.mark.parametrize("name", FILES)
def test_a_row_of_results_says_where_it_comes_from(name: str):
    for row in generate_results.lines(name):
        assert row["date"], row
        assert row["source"], row
        if not row["source"].startswith(("http", "counts ")):
            assert (ROOT / row["source"]).exists(), row["source"]
        if row.get("program", "Bertie") == "Bertie" and name != "times":
            assert row["command"], row
            assert row["machine"] or row.get("area") == "size", row


def test_every_decision_has_a_date():
    for page in (ROOT / "docs" / "decisions").glob("*.md"):
        text = page.read_text(encoding="utf-8")
        assert text.count("\n## ") == len(generate_results.RECORD.findall(text)), page.name
