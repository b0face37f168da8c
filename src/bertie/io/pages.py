"""Web pages: the main text of HTML, without menus, footers and forms (trafilatura)."""

import html
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from bertie.io import isolated
from bertie.io.blocks import NO_MATCH, Item, ReadOptions, SourceKind, block_spans
from bertie.io.lines import LIMIT, BadRecord
from bertie.io.streams import Unreadable, open_bytes
from bertie.registry import library

_NO_TEXT = "a page without text"
CHARSET = re.compile(rb"""<meta\b[^>]*\bcharset\s*=\s*["']?\s*([\w-]+)""", re.IGNORECASE)
SELF_CLOSED = re.compile(rb"(<html\b[^<>]*)/>", re.IGNORECASE)  # browsers ignore the slash, and lxml ends the page
DEPTH = 2048  # elements inside one another that libxml2 reads at most
TITLE, TITLE_END = (re.compile(rule, re.IGNORECASE) for rule in ("<title[^<>]*>", "</title"))
NO_PROSE = ["//h1|//h2|//h3|//h4|//h5|//h6|//table"]  # include_tables=False alone leaves those of a short page
AS_BROWSERS_DO = {  # a name of an old encoding means its Windows form (encoding.spec.whatwg.org, 4.2)
    **dict.fromkeys(("euc-kr", "euckr", "ks_c_5601-1987", "ks_c_5601-1989", "ksc5601"), "cp949"),
    **dict.fromkeys(("iso-8859-1", "iso8859-1", "iso_8859-1", "latin1", "latin-1", "ascii", "us-ascii"), "cp1252"),
    **dict.fromkeys(("gb2312", "gb_2312-80", "gbk", "x-gbk"), "gb18030"),
    **dict.fromkeys(("shift_jis", "shift-jis", "sjis", "x-sjis"), "cp932"),
}


def needed() -> None:
    """Raises UsageError unless the extra for web pages is installed."""
    library("trafilatura", "HTML pages", "documents")


def main_text(page: bytes, *, charset: str = "", prose: bool = True) -> tuple[str, str]:
    """Returns the title and the main text of a page, its paragraphs separated by blank lines; "" for what it lacks.

    charset: the encoding that the server named. Otherwise the page names its own, or it is detected from the bytes.
    prose: without headings and tables.
    """
    from trafilatura import extract
    from trafilatura.utils import decode_file

    text = decode_page(page, charset)
    text = text if isinstance(text, str) else decode_file(text)
    if not text.strip():
        return "", ""
    pruned = NO_PROSE if prose else None
    try:
        body = extract(
            html_tree(text.encode("utf-8", "replace")),
            include_comments=False,
            include_tables=not prose,
            favor_recall=True,
            prune_xpath=pruned,
        )
    except (MemoryError, RecursionError, Unreadable):
        raise
    except Exception as error:  # what a damaged page raises inside the parser depends on the damage
        raise Unreadable(f"its parser failed ({type(error).__name__}: {error})") from None
    return _title(text), re.sub(r"(?<!\n)\n(?!\n)", "\n\n", body or "")


def html_tree(page: bytes, encoding: str = "utf-8") -> Any:
    """Returns the root element of HTML (lxml). Raises Unreadable where the parser stops before the end of the page."""
    from lxml import html as parsing

    parser = parsing.HTMLParser(encoding=encoding, huge_tree=True, remove_comments=True, remove_pis=True)
    root = parsing.document_fromstring(SELF_CLOSED.sub(rb"\1>", page, count=1), parser=parser)
    last = parser.error_log.last_error
    if last is not None and last.level_name == "FATAL":
        deep = f"its elements are nested more than {DEPTH:,} deep, the most that are read"
        raise Unreadable(deep if "depth" in last.message else f"its parser stopped ({last.message.strip()})")
    return root


def _title(page: str) -> str:
    begin = TITLE.search(page)
    end = TITLE_END.search(page, begin.end()) if begin else None  # one expression for both would try every <title>
    return " ".join(html.unescape(page[begin.end() : end.start()]).split()) if begin and end else ""


def decode_page(page: bytes, charset: str = "") -> str | bytes:
    """Returns a page as text in the encoding that the server or the page names, or as bytes if that one is wrong."""
    match = CHARSET.search(page, 0, 4096)
    for name in (charset, match[1].decode("ascii", "replace") if match else "", "utf-8"):
        try:
            return page.decode(AS_BROWSERS_DO.get(name.lower(), name or "utf-8"))
        except (LookupError, ValueError):
            continue
    return page


def read_page(path: str) -> bytes:
    """Returns the bytes of a file. Raises Unreadable for one that is longer than LIMIT."""
    with open_bytes(path) as file:
        page = file.read(LIMIT + 1)
    if len(page) > LIMIT:
        raise Unreadable(f"the file is a page of more than {LIMIT >> 20} MiB")
    return page


def no_text(page: bytes) -> str:
    """Returns the reason of a page without text. Large pages say their size."""
    return f"{_NO_TEXT} that can be read, of {len(page) / 1e6:,.0f} MB" if len(page) >= 1e6 else _NO_TEXT


def page_files(path: str, reading: ReadOptions) -> Iterator[tuple[Item, int]]:
    """Yields a file of HTML as one item."""
    needed()
    yield from block_spans(path, NO_MATCH)


def read_web_page(item: Item, reading: ReadOptions, counts: Counter[str]) -> Iterator[str | BadRecord]:
    """Yields the main text of a page as one document. Its title and tables are left out."""
    content = read_page(item[0])
    charset = reading.encoding if reading.encoding != "utf-8" else ""
    _, text = isolated.call(main_text, content, charset=charset, size=len(content))
    yield text or BadRecord(0, no_text(content), where=item[0])


HTML = SourceKind(page_files, read_web_page)
