"""Raw text as it comes: dumps of Wikipedia, web archives, web pages and books, whole, cut and hostile."""

import bz2
import gzip
import lzma
import zipfile
from collections import Counter

import pytest
import zstandard

from bertie.data import corpus
from bertie.errors import DataError
from bertie.io import blocks, books, sources, streams
from bertie.io.blocks import ReadOptions
from bertie.io.dumps import plain_text
from bertie.io.lines import BadRecord
from bertie.io.pages import decode_page, main_text
from bertie.io.streams import Unreadable

HEAD = (
    '<mediawiki xml:lang="ko"><siteinfo><namespaces><namespace key="0" case="x" />'
    '<namespace key="6" case="x">파일</namespace></namespaces></siteinfo>\n'
)
PROSE = (
    "The mill stood beside the river for many years. People came from every village with their grain. "
    "In winter the wheel froze, and the miller told stories to the children by the fire."
)


def page(number, text="", *, ns=0, more=""):
    text = text or f"'''Page {number}''' stands for itself. {PROSE}"
    return (
        f"  <page>\n <title>Page {number}</title>\n <ns>{ns}</ns>{more}\n <revision><model>wikitext</model>"
        f"<text>{text}</text></revision>\n  </page>\n"
    )


def read(*inputs, counts=None, **options):
    reading = ReadOptions(**options)
    units, _ = sources.plan_units(map(str, inputs), reading)
    return [
        found for unit in units for found in sources.read_unit(unit, reading, Counter() if counts is None else counts)
    ]


def texts(found):
    return [document for document in found if isinstance(document, str)]


def dropped(found):
    return [drop.reason for drop in found if isinstance(drop, BadRecord)]


# Dumps of Wikipedia --------------------------------------------------------------------------------------------------

WIKITEXT = """{{Infobox | a = b
* x}}
'''Foo''' ({{lang-fr|x}}; ) is a [[city|town]] in [[France]].<ref name="a">A note {{x}}</ref> It
has&nbsp;{{convert|10|km}} of roads [[File:a.jpg|thumb|A [[link]] here]] and [[파일:b.jpg]]{{nowrap|two rivers}} .

== Heading ==
* one
*# item '''two'''
: indented
{| class="wikitable"
! a
|-
| b || c
|}
See [http://x.y the label] and <!-- no --> <b>bold</b> words. __NOTOC__
[[Category:Foo]]
"""


def test_paragraphs_stay_and_lists_tables_headings_go():
    counts = Counter()
    text = plain_text(WIKITEXT, frozenset({"file", "category", "파일"}), counts)
    assert " ".join(text.split()) == (
        "Foo is a town in France. It has\xa010 km of roads and two rivers. See the label and bold words.".replace(
            "\xa0", " "
        )
    )
    assert counts["lines of wiki lists removed"] == 3
    assert counts["wiki tables removed"] == counts["wiki headings removed"] == 1


def test_links_that_are_shown_are_shown_as_in_the_wiki():
    hidden = frozenset({"file", "category"})
    text = "See [[:Category:Towns]], [[ :File:a.jpg|a picture]] and [[:fr:Paris]].\n[[en:Seoul]]\n[[zh-yue:Seoul]]"
    assert plain_text(text, hidden, Counter()).strip() == "See Category:Towns, a picture and fr:Paris."
    text = "<onlyinclude>One.</onlyinclude> <noinclude>Two.</noinclude> <includeonly>Three.</includeonly>"
    assert plain_text(text, hidden, Counter()).split() == ["One.", "Two."]


def test_media_is_recognized_in_any_language_and_categories_with_spaces():
    text = "[[그림:Foo.jpg|thumb|설명이다]]\n[[Bild:Foo.PNG|Ein Text]]\nSeoul.\n[[ Category : Towns ]][[a.b:c|kept]]"
    assert plain_text(text, frozenset({"file", "category"}), Counter()).split() == ["Seoul.", "kept"]


def test_switches_of_pages_go_and_the_text_behind_them_stays():
    text = "__목차숨김__ 하나.\n__NOTOC__Two.\n__БЕЗ_ОГЛАВЛЕНИЯ__ Три.\n__init__ stays."
    assert plain_text(text, frozenset(), Counter()).split() == ["하나.", "Two.", "Три.", "__init__", "stays."]


def test_numbers_with_units_are_shown_whole():
    text = "{{convert|5|to|10|km|mi}}, {{convert|3|x|4|x|5|m}}, {{convert|abbr=on|7|kg}}, {{nowrap|1=a = b}}"
    assert plain_text(text, frozenset(), Counter()) == "5 to 10 km, 3 x 4 x 5 m, 7 kg, a = b"


def test_what_templates_leave_behind_is_removed():
    text = plain_text("'''세종'''(世宗, {{llang|en|Sejong}})은 (; born) 왕이다 ({{x}}).", frozenset(), Counter())
    assert text == "세종(世宗)은 (born) 왕이다."


def test_redirects_and_other_namespaces_are_counted_out(tmp_path):
    path = tmp_path / "wiki.xml"
    odd = page(3).replace("wikitext<", "json<") + page(5).replace("<page>", '<page xmlns="urn:wiki">')
    path.write_text(
        HEAD + page(1) + page(2, more='<redirect title="X" />') + page(2, ns=1) + odd + page(4) + "</mediawiki>\n"
    )
    found = read(path)
    assert [text.split(" stands")[0] for text in texts(found)] == ["Page 1", "Page 5", "Page 4"]
    assert dropped(found) == ["a redirect", "a page of another namespace", "a page without wikitext"]


def test_links_to_files_are_known_by_the_names_of_the_dump(tmp_path):
    path = tmp_path / "wiki.xml"
    path.write_text(HEAD + page(1, "Before [[파일:a.jpg|caption]] after, [[위키:b|kept]].") + "</mediawiki>\n")
    assert [" ".join(text.split()) for text in texts(read(path))] == ["Before after, kept."]


def multistream(pages, per_stream=2):
    groups = ["".join(pages[i : i + per_stream]) for i in range(0, len(pages), per_stream)]
    return b"".join(bz2.compress(part.encode()) for part in [HEAD, *groups, "</mediawiki>\n"])


@pytest.mark.parametrize(
    ("suffix", "compress"),
    [("", bytes), (".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress), (".bz2", None)],
)
def test_a_dump_is_the_same_in_any_number_of_units(tmp_path, monkeypatch, suffix, compress):
    monkeypatch.setattr(blocks, "UNIT", 400)
    pages = [page(number) for number in range(20)]
    path = tmp_path / f"wiki.xml{suffix}"
    path.write_bytes(
        multistream(pages) if compress is None else compress((HEAD + "".join(pages) + "</mediawiki>\n").encode())
    )
    items = [item for item, _ in sources.SOURCES["mediawiki"].plan(str(path), ReadOptions())]
    assert (len(items) > 3) == (suffix == "" or compress is None)  # one bzip2 stream cannot be split
    assert [text.split(" stands")[0] for text in texts(read(path))] == [f"Page {number}" for number in range(20)]
    assert dropped(read(path)) == []


def test_a_dump_cut_short_gives_its_first_pages(tmp_path):
    pages = [page(number) for number in range(20)]
    whole = multistream(pages)
    (tmp_path / "wiki.xml.bz2").write_bytes(whole[: len(whole) // 2])
    found = read(tmp_path / "wiki.xml.bz2")
    assert 6 <= len(texts(found)) < 20
    assert dropped(found) == ["the file is truncated; it was not read to its end"]
    (tmp_path / "wiki.xml").write_text(HEAD + pages[0] + pages[1][:-30])
    assert dropped(read(tmp_path / "wiki.xml")) == ["a page without its end"]


def test_an_xml_bomb_cannot_expand(tmp_path):
    entities = '<!ENTITY a "aaaaaaaaaa">' + "".join(
        f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    )
    path = tmp_path / "wiki.xml"
    path.write_text(f"<!DOCTYPE mediawiki [{entities}]>" + HEAD + page(1, "&i;") + page(2) + "</mediawiki>")
    found = read(path)
    assert len(texts(found)) == 1
    assert dropped(found) == ["a page that is not XML"]


def test_other_xml_is_refused(tmp_path):
    (tmp_path / "feed.xml").write_text("<rss><item>text</item></rss>")
    assert "not a dump of a wiki" in dropped(read(tmp_path / "feed.xml"))[0]


def test_nested_wikitext_ends(tmp_path):
    path = tmp_path / "wiki.xml"
    path.write_text(HEAD + page(1, "{{" * 3000 + "[[" * 3000 + "{| " * 300) + page(2) + "</mediawiki>")
    assert texts(read(path))[-1].startswith("Page 2")


# Web archives --------------------------------------------------------------------------------------------------------


def record(kind, body, content_type="application/http; msgtype=response", length=None):
    head = (
        f"WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Target-URI: http://a/b\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body) if length is None else length}\r\n\r\n"
    )
    return head.encode() + body + b"\r\n\r\n"


def html(number, text=PROSE):
    return (
        f"<html><head><title>T {number}</title></head><body><nav><a href='/'>Home</a></nav><article><h1>Head</h1>"
        f"<p>Page {number} is a page of text that is long enough to be kept. {text}</p><p>{text}</p></article>"
        "</body></html>"
    )


def answer(text, *, encoding="utf-8", packed=False, chunked=False, status="200 OK", kind="text/html"):
    body, head = text.encode(encoding), f"HTTP/1.1 {status}\r\nContent-Type: {kind}; charset={encoding}\r\n"
    if packed:
        body, head = gzip.compress(body), head + "Content-Encoding: gzip\r\n"
    if chunked:
        body, head = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body), head + "Transfer-Encoding: chunked\r\n"
    return head.encode() + b"\r\n" + body


ARCHIVE = [
    record("warcinfo", b"software: none\r\n", "application/warc-fields"),
    record("request", b"GET / HTTP/1.1\r\n\r\n", "application/http; msgtype=request"),
    record("response", answer(html(1))),
    record("response", answer(html(2, "방앗간은 오랫동안 강가에 서 있었다. " * 5), encoding="euc-kr")),
    record("response", answer(html(3), packed=True)),
    record("response", answer(html(4), packed=True, chunked=True)),
    record("response", answer("gone", status="404 Not Found")),
    record("response", answer("x", kind="image/png")),
    record("response", answer("<html></html>")),
    record("response", answer("A plain text. " * 9, kind="text/plain")),
]
REASONS = [
    "no page: a record of type warcinfo",
    "no page: a record of type request",
    "no page: status 404",
    "no page: neither HTML nor plain text",
    "a page without text",
]


@pytest.mark.parametrize("unit", [blocks.UNIT, 40])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_the_pages_of_a_web_archive(tmp_path, monkeypatch, suffix, unit):
    monkeypatch.setattr(blocks, "UNIT", unit)
    path = tmp_path / f"a.warc{suffix}"
    path.write_bytes(b"".join(map(gzip.compress if suffix else bytes, ARCHIVE)))
    found = read(path)
    assert [text[:6] for text in texts(found)] == ["Page 1", "Page 2", "Page 3", "Page 4", "A plai"]
    assert "방앗간은" in texts(found)[1]
    assert "Head" not in "".join(texts(found))
    assert dropped(found) == REASONS
    items = list(sources.SOURCES["warc"].plan(str(path), ReadOptions()))
    assert (len(items) == len(ARCHIVE)) == (suffix == ".gz" and unit == 40)


def test_a_compression_that_nobody_reads_is_named_and_a_header_left_behind_is_not_believed(tmp_path):
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Encoding: zstd\r\n\r\n"
    bodies = [
        zstandard.compress(html(1).encode()),
        html(2).encode(),
        html(3, "방앗간은 강가에 있었다. " * 9).encode("euc-kr"),
    ]
    (tmp_path / "a.warc").write_bytes(b"".join(record("response", head + body) for body in bodies))
    found = read(tmp_path / "a.warc")
    assert dropped(found) == ["a page in a compression that is not read (Content-Encoding)"]
    assert [text[:6] for text in texts(found)] == ["Page 2", "Page 3"]


def test_texts_of_a_wet_file_and_its_end(tmp_path):
    parts = [gzip.compress(record("conversion", f"Text {n}. 둘째 문장.".encode(), "text/plain")) for n in range(5)]
    (tmp_path / "a.warc.wet.gz").write_bytes(b"".join(parts))
    assert texts(read(tmp_path / "a.warc.wet.gz")) == [f"Text {n}. 둘째 문장." for n in range(5)]
    (tmp_path / "a.warc.wet.gz").write_bytes(b"".join(parts)[:-20])
    found = read(tmp_path / "a.warc.wet.gz")
    assert len(texts(found)) == 4
    assert dropped(found) == ["the file is truncated; it was not read to its end"]


def test_a_page_that_grows_without_end_is_dropped(tmp_path, monkeypatch):
    monkeypatch.setattr("bertie.io.warc.LIMIT", 1 << 16)
    (tmp_path / "a.warc").write_bytes(record("response", answer("a" * (1 << 20), packed=True)) + ARCHIVE[2])
    found = read(tmp_path / "a.warc")
    assert len(texts(found)) == 1
    assert "longer than" in dropped(found)[0]


def test_a_file_that_is_no_archive_and_a_wrong_length(tmp_path, capfd):
    (tmp_path / "a.warc").write_bytes(b"not an archive\n" * 5)
    assert "not a web archive" in dropped(read(tmp_path / "a.warc"))[0]
    (tmp_path / "b.warc").write_bytes(record("conversion", b"text", "text/plain", length=900))
    assert dropped(read(tmp_path / "b.warc")) == ["a record shorter than its length"]
    assert capfd.readouterr().err == ""


# Web pages and books -------------------------------------------------------------------------------------------------


def test_a_web_page_in_the_encoding_that_it_names(tmp_path):
    text = html(1, "방앗간은 오랫동안 강가에 서 있었다. " * 5)
    (tmp_path / "a.html").write_bytes(text.replace("<head>", "<head><meta charset='EUC-KR'>").encode("cp949"))
    assert "방앗간은" in texts(read(tmp_path / "a.html"))[0]
    assert main_text(text.encode())[0] == "T 1"
    assert decode_page(b"\xff\xfe\x00", "nonsense") == b"\xff\xfe\x00"
    assert decode_page(b"don\x92t", "ISO-8859-1") == decode_page(b"<meta charset=latin1>don\x92t")[21:] == "don’t"
    assert decode_page("朱镕基".encode("gbk"), "gb2312") == "朱镕基"
    assert decode_page("①髙".encode("cp932"), "Shift_JIS") == "①髙"


def test_prose_has_no_tables(tmp_path):
    """Also on a page of two short paragraphs, where trafilatura keeps them."""
    text = "<html><body><p>One short paragraph.</p><table><tr><td>a cell</td></tr></table><p>Two.</p></body></html>"
    (tmp_path / "a.html").write_text(text)
    assert "a cell" not in texts(read(tmp_path / "a.html"))[0]
    assert "a cell" in main_text(text.encode(), prose=False)[1]


def epub(path, chapters, *, doctype="", extra=()):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as book:
        book.writestr(
            "META-INF/container.xml",
            '<container xmlns="urn:c"><rootfiles><rootfile full-path="O/c.opf"/></rootfiles></container>',
        )
        items = "".join(f'<item id="i{n}" href="a%20{n}.xhtml"/>' for n in range(len(chapters)))
        order = "".join(f'<itemref idref="i{n}"/>' for n in reversed(range(len(chapters))))
        book.writestr(
            "O/c.opf",
            f'{doctype}<package xmlns="urn:p"><metadata/><manifest>{items}</manifest><spine>{order}</spine></package>',
        )
        for number, chapter in enumerate(chapters):
            book.writestr(f"O/a {number}.xhtml", chapter)
        for name, content in extra:
            book.writestr(name, content)


CHAPTER = (
    '<?xml version="1.0" encoding="utf-8"?><html xmlns="http://www.w3.org/1999/xhtml"><head><title>no</title></head>'
    "<body><h1>Chapter</h1><p>The first\n paragraph<sup><a href='#n'>1</a></sup> of {}.</p><!-- no -->"
    "<p>둘째 <a href='#m' epub:type='noteref'>2</a>문단.<a href='#k' role='doc-noteref'>3</a><br/>새 줄.</p>"
    "<table><tr><td>no</td></tr></table></body></html>"
)


def test_a_book_is_one_document_in_the_order_of_its_spine(tmp_path):
    epub(tmp_path / "a.epub", [CHAPTER.format("one"), CHAPTER.format("two")])
    assert texts(read(tmp_path / "a.epub")) == [
        "The first paragraph of two.\n\n둘째 문단.\n\n새 줄.\n\nThe first paragraph of one.\n\n둘째 문단.\n\n새 줄."
    ]


def test_a_chapter_that_the_book_does_not_have_is_counted(tmp_path):
    whole, path, counts = tmp_path / "whole.epub", tmp_path / "a.epub", Counter()
    epub(whole, [CHAPTER.format("one"), CHAPTER.format("two")])
    with zipfile.ZipFile(whole) as book, zipfile.ZipFile(path, "w") as less:
        for name in book.namelist():
            if name != "O/a 1.xhtml":
                less.writestr(name, book.read(name))
    assert len(texts(read(path, counts=counts))) == 1
    assert counts["chapters that the file does not have"] == 1


def test_encrypted_damaged_and_hostile_books(tmp_path, monkeypatch):
    secret = '<encryption xmlns="urn:e"><CipherReference URI="O/{}"/></encryption>'
    path = tmp_path / "a.epub"
    epub(path, [CHAPTER], extra=[("META-INF/encryption.xml", secret.format("a 0.xhtml"))])
    assert dropped(read(path)) == ["the book is encrypted (DRM or a password); it was not read to its end"]
    epub(path, [CHAPTER], extra=[("META-INF/encryption.xml", secret.format("font.otf"))])  # only a font
    assert len(texts(read(path))) == 1
    epub(path, [CHAPTER], doctype='<!DOCTYPE p [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>')
    assert len(texts(read(path))) == 1
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert "not a readable epub" in dropped(read(path))[0]
    monkeypatch.setattr("bertie.io.books.BOMB_BYTES", 1 << 20)
    epub(path, [CHAPTER], extra=[("big", b" " * (2 << 20))])
    with pytest.raises(Unreadable, match="no text does"):
        books._text(str(path))


# A corpus of all -----------------------------------------------------------------------------------------------------


def test_an_interrupted_build_of_every_new_source_continues_to_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "UNIT", 800)
    monkeypatch.setattr(sources, "UNIT", 200)
    inputs = tmp_path / "in"
    inputs.mkdir()
    (inputs / "wiki.xml.bz2").write_bytes(multistream([page(number) for number in range(20)]))
    (inputs / "a.warc.gz").write_bytes(b"".join(map(gzip.compress, ARCHIVE)))
    (inputs / "b.html").write_text(html(9))
    epub(inputs / "c.epub", [CHAPTER])
    corpus.build_shards([inputs], tmp_path / "whole")
    done, real = [], corpus.prepare

    def interrupted(number, **unit):
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(number)
        return real(number=number, **unit)

    monkeypatch.setattr(corpus, "prepare", interrupted)
    with pytest.raises(KeyboardInterrupt):
        corpus.build_shards([inputs], tmp_path / "cut")
    monkeypatch.setattr(corpus, "prepare", real)
    corpus.build_shards([inputs], tmp_path / "cut")
    for name in ("manifest.json", "quarantine.jsonl", *(p.name for p in (tmp_path / "whole").glob("shard-*"))):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_range_of_members_has_its_own_guard_against_bombs(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "BOMB_BYTES", 1 << 16)
    path = tmp_path / "a.bz2"
    first = bz2.compress(bytes(range(256)) * 4000)
    path.write_bytes(first + bz2.compress(b" " * (1 << 22)))
    with streams.open_bytes(path, len(first), path.stat().st_size) as stream, pytest.raises(streams.Unreadable):
        stream.read()


def test_nothing_of_an_archive_can_be_used(tmp_path):
    (tmp_path / "a.warc").write_bytes(ARCHIVE[0] + ARCHIVE[1])
    with pytest.raises(DataError, match="a record of type warcinfo"):
        corpus.build_shards([tmp_path / "a.warc"], tmp_path / "out")
