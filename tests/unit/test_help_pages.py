"""`bertie help`: pages of the documentation in the terminal, and every message that names one."""

import re
from pathlib import Path

import pytest

from toys import CommandLine

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"docs=\"([\w/-]+)\"|^DOCS = \"([\w/-]+)\"|bertie help ([a-z][\w/-]*)", re.M)


def test_every_page_that_the_program_names_is_there() -> None:
    """And no message names a file of the checkout, which a wheel lacks."""
    sources = {path: path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py")}
    names = {next(filter(None, found)) for text in sources.values() for found in NAMED.findall(text)}
    assert {"evaluation", "objectives", "plan"} <= names
    assert [name for name in sorted(names) if not (ROOT / "docs" / f"{name}.md").is_file()] == []
    messages = [
        line
        for text in sources.values()
        for line in text.splitlines()
        if re.search(r"docs/[\w/-]+\.md[).]*\"(?!\"\")", line)
    ]
    assert messages == []


def test_a_page_is_printed(bertie: CommandLine) -> None:
    english = (ROOT / "docs" / "rare-labels.md").read_text(encoding="utf-8")
    assert bertie.good("help", "rare-labels") == bertie.good("help", "docs/rare-labels.md") == english
    korean = (ROOT / "docs" / "tutorials" / "names.ko.md").read_text(encoding="utf-8")
    assert bertie.good("help", "names", "--language", "ko") == korean


@pytest.mark.parametrize("language", ["en", "ko"])
def test_the_list_has_the_pages_of_the_index(language: str, bertie: CommandLine) -> None:
    end = ".md" if language == "en" else ".ko.md"
    index = (ROOT / "docs" / f"README{end}").read_text(encoding="utf-8")
    pages = re.findall(rf"^\* \[[^\]]+\]\(([\w/-]+){re.escape(end)}\)", index, re.M)
    assert len(pages) > 20
    listed = {line.split()[0] for line in bertie.good("help", "--language", language).splitlines() if line[:2] == "  "}
    assert {*pages} <= listed


def test_an_unknown_page_names_the_nearest(bertie: CommandLine) -> None:
    code, _, error = bertie("help", "rarelabels")
    assert (code, error.count("There is no page 'rarelabels'. Did you mean 'rare-labels'?")) == (2, 1)
    assert bertie("help", "log/serving")[0] == 2
