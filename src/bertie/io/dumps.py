"""Wikipedia's XML dumps (pages-articles): the paragraphs of every article, without its lists, tables and headings.

A dump is read in parts of whole pages, and every page is parsed by itself. A document type is therefore never read, and
an entity that one defines is an error of the page that uses it: an XML bomb cannot expand.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any
from xml.etree import ElementTree

from bertie.io import isolated
from bertie.io.blocks import EXCERPT, Item, ReadOptions, SourceKind, parts, record_blocks
from bertie.io.documents import WIKI_MARKUP
from bertie.io.lines import BadRecord
from bertie.io.streams import FAILURES, Unreadable, open_bytes
from bertie.registry import library

_BEGIN = rb"<page(?:\s[^>]*)?>"
PAGE = re.compile(_BEGIN)
PAGE_END = re.compile(rb"</page>")
PAGE_BEGINS = re.compile(rb"\s*" + _BEGIN)
FILES, CATEGORIES = "6", "14"  # numbers of namespaces whose links are no text


def pages(path: str, reading: ReadOptions) -> Iterator[tuple[Item, int]]:
    """Yields the parts of a dump. One compressed by bzip2 is split where Wikimedia started a new stream."""
    library("mwparserfromhell", "Dumps of Wikipedia", "corpora")
    yield from parts(path, PAGE_END, PAGE_BEGINS)


def dump_articles(item: Item, reading: ReadOptions, counts: Counter[str]) -> Iterator[str | BadRecord]:
    """Yields the text of the articles in a part of a dump. Redirects and pages of other namespaces are dropped."""
    path, start, _ = item
    hidden = _hidden_links(path)
    for number, (_, block) in enumerate(record_blocks(item, PAGE_END, counts)):
        if isinstance(block, BadRecord):
            yield replace(block, line=0)
            continue
        if start == number == 0 and not re.search(rb"<(mediawiki|page)\b", block[: 1 << 16]):
            raise Unreadable("the file is XML, but not a dump of a wiki: no <mediawiki> and no <page>")
        last = 0
        while begin := PAGE.search(block, last):
            last = block.find(b"</page>", begin.end()) + len(b"</page>")
            if last < begin.end():
                break
            yield _article(block[begin.start() : last], path, hidden, counts)
        if begin:
            excerpt = block[begin.start() :][:EXCERPT].decode("utf-8", "replace")
            yield BadRecord(0, "a page without its end", excerpt, where=path)


MEDIAWIKI = SourceKind(pages, dump_articles)


def _article(raw: bytes, path: str, hidden: frozenset[str], counts: Counter[str]) -> str | BadRecord:
    try:
        page = ElementTree.fromstring(raw)
    except ElementTree.ParseError as error:
        return BadRecord(
            0, "a page that is not XML", f"{error}: {raw[:EXCERPT].decode('utf-8', 'replace')}", where=path
        )
    for element in page.iter():
        element.tag = element.tag.rpartition("}")[2]  # a page may name its namespace
    if page.find("redirect") is not None:
        return BadRecord(0, "a redirect", None, where=path)
    if page.findtext("ns", "0") != "0":
        return BadRecord(0, "a page of another namespace", None, where=path)
    revisions = page.findall("revision")  # of a history, the newest is the last
    if not revisions or revisions[-1].findtext("model", "wikitext") != "wikitext":
        return BadRecord(0, "a page without wikitext", None, where=path)
    wikitext = revisions[-1].findtext("text") or ""
    try:
        text, removed = isolated.call(_read, wikitext, hidden, size=len(wikitext))
    except Exception as error:  # the parser's own, and Unreadable
        reason = str(error) if isinstance(error, Unreadable) else type(error).__name__
        title = page.findtext("title", "")[:EXCERPT]
        return BadRecord(0, f"wikitext that cannot be parsed ({reason})", title, where=path)
    counts.update(removed)
    return text


def _read(wikitext: str, hidden: frozenset[str]) -> tuple[str, Counter[str]]:
    counts = Counter[str]()
    return plain_text(wikitext, hidden, counts), counts


@lru_cache(4)
def _hidden_links(path: str) -> frozenset[str]:
    """Returns the names of the namespaces of files and categories, from the head of the dump, and in English."""
    names = {"file", "image", "media", "category"}
    try:
        with open_bytes(path) as stream:
            head = stream.read(1 << 16)
        for key, name in re.findall(rb'<namespace key="(\d+)"[^>]*>([^<]*)</namespace>', head):
            names |= {name.decode("utf-8", "replace").lower()} if key.decode() in (FILES, CATEGORIES) else set()
    except FAILURES:
        pass  # reading the pages reports what is wrong
    return frozenset(names)


# Wikitext -----------------------------------------------------------------------------------------------------------

LISTS, LIST = ("*", "#", ":", ";"), "\x01"  # the marks of lists, and the character that replaces them (none of XML's)
NO_TEXT_TAGS = (
    "table|ref|references|gallery|math|chem|graph|hiero|imagemap|inputbox|timeline|score|syntaxhighlight|source|code|pre|"
    "templatestyles|mapframe|maplink|categorytree|hr|poem|section|includeonly"
)
_NO_TEXT = re.compile(NO_TEXT_TAGS)
LANGUAGE = re.compile(r"[a-z]{2,3}(-[a-z]+)*:")  # of a link to the same article in another language
MEDIA = re.compile(
    r"[^:]+:.*\.(jpe?g|png|gif|svg|tiff?|webp|webm|og[agv]|wav|mp3|pdf|djvu)", re.IGNORECASE
)  # any language
_SHOWN_ARGUMENTS = {"lang": "2", "nowrap": "1", "nobr": "1", "convert": "12", "cvt": "12"}  # arguments a template shows
RANGES = ("to", "to(-)", "and", "and(-)", "or", "by", "x", "-", "–", "+/-", "±")  # 5 to 10 km: two more arguments
LIST_LINE = re.compile(rf"^[ \t]*{LIST}[^\n]*\n?", re.MULTILINE)
# What removed templates leave: empty parentheses, and commas next to parentheses.
# Also the switches of pages, __NOTOC__, which other languages spell with their own letters.
EMPTY = re.compile(r"[ \t]*(?:\([\s,;:·]*\)|\[\s*\]|__[^\W\da-z_][^\W\da-z]*?__)|(?<=\()[\s,;:]+|[\s,;:]+(?=\))")


def plain_text(wikitext: str, hidden: frozenset[str], counts: Counter[str]) -> str:
    """Returns the paragraphs of a page: no headings, lists, tables, notes or templates; links are their texts.

    hidden: names of namespaces, in lower case, whose links are removed. counts: receives what was removed.
    """
    import mwparserfromhell

    gathered: list[str] = []
    _gather(mwparserfromhell.parse(wikitext), hidden, gathered, counts)
    text, lists = LIST_LINE.subn("", "".join(gathered))
    text, markup = WIKI_MARKUP.subn("", EMPTY.sub("", text))
    counts["lines of wiki lists removed"] += lists
    counts["lines of wiki markup removed"] += markup
    return re.sub(r" +(?=[,.;:)])", "", text.replace(LIST, ""))


def _gather(code: Any, hidden: frozenset[str], out: list[str], counts: Counter[str]) -> None:
    """Appends the texts of parsed wikitext to `out`."""
    from mwparserfromhell import nodes

    for node in code.nodes if code is not None else ():
        if isinstance(node, nodes.Text):
            out.append(node.value)
        elif isinstance(node, nodes.Wikilink):
            title = node.title.strip()
            if title.partition(":")[0].strip().lower() in hidden or MEDIA.fullmatch(title):
                continue
            if node.text is None and LANGUAGE.match(title):
                continue
            start = len(out)
            _gather(node.title if node.text is None else node.text, hidden, out, counts)
            if title.startswith(":") and node.text is None:  # the mark of a link that would not be shown without it
                out[start] = out[start].lstrip().removeprefix(":")
        elif isinstance(node, nodes.Tag):
            tag = str(node.tag).strip().lower()
            counts["wiki tables removed"] += tag == "table"
            if tag == "br":
                out.append("\n")
            elif node.wiki_markup in LISTS:
                out.append(LIST)
            elif not _NO_TEXT.fullmatch(tag):
                _gather(node.contents, hidden, out, counts)
        elif isinstance(node, nodes.Heading):
            counts["wiki headings removed"] += 1
            out.append("\n")
        elif isinstance(node, nodes.ExternalLink):
            _gather(node.title, hidden, out, counts)
        elif isinstance(node, nodes.HTMLEntity):
            out.append(node.normalize())
        elif isinstance(node, nodes.Template):
            for at, value in enumerate(_shown(node)):
                out.append(" " * (at > 0))
                _gather(value, hidden, out, counts)


def _shown(template: Any) -> list[Any]:
    """Returns the values of the arguments that a template shows."""
    names = [*_SHOWN_ARGUMENTS.get(str(template.name).strip().lower(), "")]
    while len(names) > 1 and template.has(names[-1]) and str(template.get(names[-1]).value).strip() in RANGES:
        names += [str(len(names) + 1), str(len(names) + 2)]
    return [template.get(name).value for name in names if template.has(name)]
