"""The Korean pages: those that a Korean developer reads, written for that reader. docs/README.ko.md lists them.

A page `x.ko.md` is the Korean form of `x.md` in the same folder. `make prose` reports, section by section, where the
two differ in code, tables, pictures, links and names. That is no fault: examples in Korean are welcome.
"""

import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MADE = re.compile(r"docs/(reference/|project/|_build/|index(\.ko)?\.md)")  # written by docs/generate.py
PAGES = {
    str(path.relative_to(ROOT))
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    if not MADE.match(str(path.relative_to(ROOT)))
}
KOREAN = sorted(page for page in PAGES if page.endswith(".ko.md"))
# Their examples are Korean, so their code differs.
OWN_CODE = set(KOREAN) - {"docs/bert-in-the-code.ko.md"}
ALONE = {"docs/get-started/korean.ko.md"}  # has no English form

_FENCE = re.compile(r"^( *)```.*?^\1```$", re.DOTALL | re.MULTILINE)
_INDENTED = re.compile(r"(?<=\n\n)(?: {4,}\S.*\n)+")
_HEADING = re.compile(r"^(#+) (.*)$", re.MULTILINE)
_DECIMAL = re.compile(r"\d+\.\d+(?!\d|\s(?:M\b|million))")  # Korean counts 31.4 million in units of 10,000
_LINK = re.compile(r"(?<!!)\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)\s]+)\)")


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def english(page: str) -> str:
    return page.replace(".ko.", ".")  # pages and the notebook


def slugs(page: str) -> list[str]:
    """The anchors of a page's headings, as Git hosts and the site make them."""
    headings = [text for _, text in _HEADING.findall(_FENCE.sub("", read(page)))]
    return [re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-") for text in headings]


def normalized(link: str, page: str) -> str:
    """A link as the English page has it: to the English page, with the number of a heading instead of its name."""
    target, _, anchor = link.partition("#")
    if re.match(r"https?:|mailto:", link):
        return link
    path = (ROOT / page).parent / target if target else ROOT / page
    if anchor and path.suffix == ".md" and not MADE.match(str(path.resolve().relative_to(ROOT))):
        names = slugs(str(path.resolve().relative_to(ROOT)))
        anchor = str(names.index(anchor)) if anchor in names else f"no heading {anchor}"
    return f"{english(target)}#{anchor}"


@dataclass
class Section:
    """What a section of a page must have in both languages."""

    level: int
    code: list[str]
    tables: list[tuple[int, int]]
    pictures: list[str]
    links: Counter[str]
    names: set[str]
    decimals: set[str]


def sections(page: str) -> list[Section]:
    text = read(page)
    kept: list[str] = []

    def keep(match: re.Match[str]) -> str:
        kept.append(re.sub(r"\s+# .*", "", match[0]))  # remarks are in the language of the page
        return f"\nCODE{len(kept) - 1}\n"

    text = _INDENTED.sub(keep, _FENCE.sub(keep, text))
    found = []
    for part in re.split(r"^(?=#+ )", text, flags=re.MULTILINE):
        head = _HEADING.match(part)
        own = (page, english(page), english(page).replace(".md", ".ko.md"))
        links = _LINK.findall(re.sub(r"`[^`]*`", "", part))
        sisters = {Path(name).name for name in own}
        tables = re.findall(r"(?:^ *\|.*\n?)+", part, re.MULTILINE)
        prose = re.sub(r"\]\([^)]*\)", "]", part)
        found.append(
            Section(
                level=len(head[1]) if head else 0,
                code=[kept[int(number)] for number in re.findall(r"^CODE(\d+)$", part, re.MULTILINE)],
                tables=[(len(table.splitlines()), table.splitlines()[0].count("|")) for table in tables],
                pictures=re.findall(r"!\[.*\]\((.*)\)", part),
                links=Counter(normalized(link, page) for link in links if link not in sisters),
                names={" ".join(name.split()) for name in re.findall(r"`([^`]+)`", prose)},
                decimals=set(_DECIMAL.findall(re.sub(r"`[^`]*`", "", prose))),
            )
        )
    return found


@pytest.mark.prose
@pytest.mark.parametrize("page", [page for page in KOREAN if page not in ALONE])
def test_a_korean_page_is_in_step_with_the_english_one(page: str):
    ours, theirs = sections(page), sections(english(page))
    assert [one.level for one in ours] == [one.level for one in theirs], f"{page}: other headings"
    for number, (here, there) in enumerate(zip(ours, theirs, strict=True)):
        if page in OWN_CODE:
            there.code, there.names, there.links = here.code, here.names, here.links
        for what in vars(there):
            mine, other = getattr(here, what), getattr(there, what)
            enough = other <= mine if isinstance(other, set) else mine == other  # a Korean page may say more
            assert enough, f"{page}, heading {number}, {what}: {mine} instead of {other}"


def test_korean_pages_keep_to_the_list_of_terms():
    rows = re.findall(
        r"^\|[^|]+\|[^|]+\| ([^|]+) \|$", read("docs/glossary.ko.md").partition("## 번역 용어")[2], re.MULTILINE
    )
    unwanted = [term for row in rows[1:] for term in row.split(", ") if term and not term.startswith("-")]
    assert len(unwanted) >= 10
    found = {(page, term) for page in KOREAN for term in unwanted if term in read(page).partition("## 번역 용어")[0]}
    assert not found


@pytest.mark.parametrize("page", KOREAN)
def test_a_korean_page_links_to_korean_pages(page: str):
    for link in _LINK.findall(re.sub(r"`[^`]*`", "", _FENCE.sub("", read(page)))):
        target = link.partition("#")[0]
        if re.match(r"https?:|#|mailto:", link) or not target.endswith(".md") or target == Path(english(page)).name:
            continue
        sister = (ROOT / page).parent / target.replace(".md", ".ko.md")
        assert target.endswith(".ko.md") or not sister.exists(), f"{page}: {target} has a Korean page"


@pytest.mark.parametrize("page", [page for page in KOREAN if page not in ALONE])
def test_both_pages_link_to_each_other_below_the_title(page: str):
    here, there = Path(page).name, Path(english(page)).name
    assert read(page).splitlines()[1:4] == ["", f"[English]({there})", ""]
    assert read(english(page)).splitlines()[1:4] == ["", f"[한국어]({here})", ""]


def test_the_korean_notebook_has_the_same_code_and_outputs():
    notebooks = [ROOT / "docs/tutorials" / f"bert-in-ten-minutes{language}.ipynb" for language in ("", ".ko")]
    there, here = (json.loads(path.read_text(encoding="utf-8"))["cells"] for path in notebooks)
    assert len(here) == len(there)
    for ours, theirs in zip(here, there, strict=True):
        if theirs["cell_type"] == "code":
            assert ours == theirs
        else:
            texts = ["".join(cell["source"]) for cell in (ours, theirs)]
            assert ours["id"] == theirs["id"]
            assert len(_HEADING.findall(texts[0])) == len(_HEADING.findall(texts[1]))
            assert set(re.findall(r"`[^`]+`", texts[0])) == set(re.findall(r"`[^`]+`", texts[1]))
