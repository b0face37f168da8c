"""Parsers in a process of their own: what takes too long, too much memory or crashes costs its own file."""

import os
import time
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from bertie.apps.search.readers import Reading, SourceDocument, read_documents
from bertie.errors import DataError
from bertie.io import books, documents, isolated, pages
from bertie.io.blocks import ReadOptions
from bertie.io.header import header
from bertie.io.lines import BadRecord
from bertie.io.streams import Unreadable


def count(most: int) -> Iterator[int]:
    yield from range(most)


def spin() -> None:
    while True:
        pass


def fill() -> int:
    return len(bytearray(isolated.MEMORY))


def nest(depth: int = 0) -> int:
    return nest(depth + 1)


def wrong() -> None:
    raise DataError("a reason", hint="a hint")


def test_results_come_one_at_a_time_and_the_process_stays() -> None:
    assert list(isolated.results(count, 1000)) == list(range(1000))
    first = isolated.call(os.getpid)
    begun = isolated.results(count, 1000)
    assert [next(begun), next(begun)] == [0, 1]
    begun.close()  # before its end
    assert isolated.call(os.getpid) == first != os.getpid()


def test_two_at_once_are_two_processes() -> None:
    one, two = isolated.results(count, 5), isolated.results(count, 5)
    assert list(zip(one, two, strict=True)) == [(n, n) for n in range(5)]


def test_every_way_to_fail_has_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolated, "TIME_S", 1)
    for function, reason in (
        (spin, "its parser takes more than 1 s of processor time"),
        (fill, "its parser needs more than 4 GiB of memory"),
        (nest, "it is nested too deep: its parser needs more than 10,000 calls inside one another"),
        (os.abort, "its parser was killed or crashed (SIGABRT)"),
    ):
        with pytest.raises(Unreadable) as caught:
            isolated.call(function)
        assert str(caught.value) == reason
    with pytest.raises(DataError, match="a reason a hint"):
        isolated.call(wrong)
    assert isolated.call(abs, -1) == 1


def test_a_page_that_takes_too_long_is_left_out_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolated, "TIME_S", 1)
    monkeypatch.setattr(isolated, "S_PER_MIB", 0)
    attributes = " ".join(f"a{n}=1" for n in range(200_000))  # the library compares each with all before it
    (tmp_path / "a.html").write_text(f"<html><body><p {attributes}>Hello there.</p></body></html>")
    (found,) = read_documents(str(tmp_path / "a.html"), Reading())
    assert isinstance(found, BadRecord)
    assert "takes more than 1 s of processor time" in found.reason


def test_a_page_of_more_than_10_mb_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(f"<html><body><p>{'Hello you. ' * 1_000_000}</p></body></html>")
    (found,) = read_documents(str(tmp_path / "a.html"), Reading())
    assert isinstance(found, SourceDocument)
    assert len(found.text) > 10_000_000


def test_a_large_page_without_text_says_its_size(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(f"<html><body><script>{'hello();' * 1_000_000}</script></body></html>")
    (found,) = read_documents(str(tmp_path / "a.html"), Reading())
    assert isinstance(found, BadRecord)
    assert found.reason == "a page without text that can be read, of 8 MB"


WEATHER = "This is sentence number {}, about the weather of the day and what people did in the village."


@pytest.mark.parametrize("tag", ["div", "ul><li", "blockquote"])
@pytest.mark.parametrize("depth", [100, 250, 260, 1000, 3000])
def test_no_text_of_nested_elements_is_lost_without_a_word(tmp_path: Path, tag: str, depth: int) -> None:
    ends = "".join(f"</{one}>" for one in reversed(tag.split("><")))
    first, deep, last = (f"<p>{WEATHER.format(n)}</p>" for n in range(3))
    page = f"<html><body>{first}{f'<{tag}>' * depth}{deep}{ends * depth}{last}</body></html>"
    (tmp_path / "a.html").write_text(page)
    (found,) = read_documents(str(tmp_path / "a.html"), Reading())
    if depth < 2000:
        assert isinstance(found, SourceDocument)
        assert all(WEATHER.format(n) in found.text for n in range(3))
        assert all(WEATHER.format(n) in books.chapter_paragraphs(page.encode()) for n in range(3))
    else:
        assert isinstance(found, BadRecord)
        assert "its elements are nested more than 2,048 deep" in found.reason
        with pytest.raises(Unreadable, match="2,048"):
            books.chapter_paragraphs(page.encode())


def test_a_workbook_of_empty_rows_takes_no_memory(tmp_path: Path) -> None:
    """A sheet of one cell far down, in a file that states a grid of 16,383 columns: 137 GB of empty cells."""
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.cell(1_048_576, 1).value = "a"
    book.save(tmp_path / "whole.xlsx")
    with zipfile.ZipFile(tmp_path / "whole.xlsx") as whole, zipfile.ZipFile(tmp_path / "a.xlsx", "w") as stated:
        for name in whole.namelist():
            content = whole.read(name)
            if name.endswith("sheet1.xml"):
                before, _, after = content.partition(b'<dimension ref="')
                content = before + b'<dimension ref="A1:XFC1048576"' + after[after.index(b'"') + 1 :]
            stated.writestr(name, content)
    assert not list(read_documents(str(tmp_path / "a.xlsx"), Reading()))  # a header alone


BRIEF_S = 20  # the time that each needs is far below a second; with the square of the length, minutes to days


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.md", "# " + "# " * 300_000 + "b"),
        ("a.html", "<title>" * 300_000),
        ("a.html", "<title" * 300_000),
        ("wiki_00", "<doc " * 400_000 + "\n"),
        ("wiki_00", "<doc>\n</doc>" * 200_000),
    ],
)
def test_no_expression_takes_time_with_the_square_of_a_text(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    began = time.process_time()
    for found in read_documents(str(tmp_path / name), Reading()):
        assert isinstance(found, SourceDocument | BadRecord)
    pages._title(content)
    assert time.process_time() - began < BRIEF_S


@pytest.mark.parametrize("content", [b"\xff\n\n" * 300_000, b"<doc>\n\xff</doc>\n" * 100_000])
def test_lines_of_many_damaged_documents_are_counted_once(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a").write_bytes(content)
    reader = documents.wiki if content.startswith(b"<doc") else documents.read_plain_text
    began = time.process_time()
    found = list(reader([str(tmp_path / "a"), 0, -1], ReadOptions(), Counter()))
    assert (
        [one.line for one in found if isinstance(one, BadRecord)][:3] == [1, 3, 5]
        if reader is documents.read_plain_text
        else [2, 4, 6]
    )
    assert time.process_time() - began < BRIEF_S


def test_one_name_among_many_is_told_in_time() -> None:
    with pytest.raises(DataError, match="columns 1 and 100001 have the same name 'a0'"):
        header([*(f"a{i}" for i in range(100_000)), "a0"], "t")
