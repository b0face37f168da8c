"""Passages cover a document and stay small; readers give documents with places, or reasons."""

import gzip
import json
import re
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertie.apps.search import readers
from bertie.apps.search.passages import OVERLAP_WORDS, passages
from bertie.apps.search.readers import Reading, SourceDocument, expand, read_documents
from bertie.apps.search.snippets import snippet
from bertie.apps.search.terms import Terms
from bertie.errors import DataError
from bertie.io.lines import BadRecord

WORDS = st.lists(
    st.sampled_from(["a", "word", "끝이다.", "end.", "End?", "\n", "\n\n", " \n \n", "U.S.", "Dr."]), max_size=120
)


@given(WORDS, st.integers(16, 40))
def test_passages_cover_the_text_and_have_at_most_their_size(words: list[str], size: int) -> None:
    text = " ".join(words)
    found = list(passages(text, size))
    covered = set[int]()
    for start, stop in found:
        assert text[start:stop] == text[start:stop].strip() != ""
        assert len(text[start:stop].split()) <= size
        covered.update(range(start, stop))
    assert all(place in covered for place, character in enumerate(text) if not character.isspace())
    assert [start for start, _ in found] == sorted(start for start, _ in found)
    assert [stop for _, stop in found] == sorted({stop for _, stop in found}), "each passage has something new"


def test_paragraphs_stay_whole_and_parts_share_a_sentence() -> None:
    heading, short = "A heading", "One two three."
    long = " ".join(f"This sentence has number {i}." for i in range(30))
    text = f"{short}\n\n{short}\n\n{heading}\n\n{long}"
    found = [text[start:stop] for start, stop in passages(text, 45)]
    assert found[0].startswith(f"{short}\n\n{short}\n\n{heading}\n\nThis sentence")
    for one, other in pairwise(found):
        shared = re.findall(r"This sentence has number \d+\.", one)[-1]
        assert other.startswith(shared)
        assert len(shared.split()) <= OVERLAP_WORDS


def test_terms_are_stems_and_pairs() -> None:
    cut = Terms()
    assert cut("The RESUMED runs, don't") == ["the", "resum", "run", "don", "t"]
    assert cut("학교에서 3분 A형 한") == ["학교", "교에", "에서", "3", "분", "a", "형", "한"]
    assert cut("한국") == cut("\u1112\u1161\u11ab\u1100\u116e\u11a8"), "composed and decomposed"
    assert cut("東京") == ["東京"]
    assert cut.asked("This was the tide") == ["tide"]
    assert cut.asked("To be") == ["to", "be"], "there are no others"
    assert Terms("words", "words")("Runs 학교에서") == ["runs", "학교에서"]


def test_terms_with_morphemes() -> None:
    pytest.importorskip("kiwipiepy")
    assert {"학교", "교에", "가"} <= set(Terms(korean="kiwi")("학교에 갔다"))
    assert Terms(korean="kiwi").of_word()("학교에") == {"학교", "교에"}, "no analysis of each word of a snippet"


def test_documents_have_names_titles_and_lines(tmp_path: Path) -> None:
    asked = [{"question": "q", "answers": []}]
    files = {
        "corpus.jsonl": '{"_id": "d1", "title": "T", "text": "One."}\nbad\n{"_id": "d2", "text": ""}\n{"other": "x"}\n',
        "table.csv": "id,title,text\n7,Seven,Hello\n",
        "wiki_00": '<doc id="1" title="A">\nA\n\nText of A.\n</doc>\n<doc id="2" title="B">\nB\n\nText of B.\n</doc>\n',
        "a.md": "\n```\n# comment\n```\n\n# Head #\n\nBody.\n",
        "table.csv.gz": gzip.compress(b"text\nHello\n"),
        "squad.json": json.dumps({"data": [{"paragraphs": [{"context": "C1", "qas": asked}] * 2}]}),
        "korean.txt": "안녕하세요".encode("cp949"),
    }
    found = {}
    for name, text in files.items():
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        found[name] = list(read_documents(str(tmp_path / name), Reading()))
    good, bad = found["corpus.jsonl"][0], found["corpus.jsonl"][1:]
    assert good == SourceDocument("One.", "d1", "T", row=1)
    assert [(one.line, isinstance(one, BadRecord)) for one in bad] == [(2, True), (3, True), (4, True)]
    assert found["table.csv"] == [SourceDocument("Hello", "7", "Seven", row=2)]
    assert [one.text.strip() for one in found["wiki_00"]] == ["Text of A.", "Text of B."]
    assert [one.title for one in found["wiki_00"]] == ["A", "B"]
    assert found["table.csv.gz"] == [SourceDocument("Hello", row=2)]
    assert found["a.md"][0].title == "Head"
    assert [one.text for one in found["squad.json"]] == ["C1"]
    assert "CP949" in found["korean.txt"][0].reason
    names, passed_over, _ = expand([str(tmp_path)])
    assert len(names) == len(files)
    assert not passed_over
    (tmp_path / "x.exe").touch()
    assert expand([str(tmp_path)])[1] == [str(tmp_path / "x.exe")]
    with pytest.raises(DataError, match="unknown format"):
        expand([str(tmp_path / "x.exe")])
    with pytest.raises(DataError, match="does not exist"):
        expand([str(tmp_path / "missing")])


def test_a_web_page_gives_its_main_text(tmp_path: Path) -> None:
    pytest.importorskip("trafilatura")
    body = "".join(
        f"<p>The tide number {i} rises in the harbor, as it does on every day of the year.</p>" for i in range(8)
    )
    head = "<html><head><title>Tides &amp; moon</title></head><body><nav>Home</nav>"
    page = f"{head}<article>{body}</article></body></html>"
    (tmp_path / "a.html").write_text(page)
    (tmp_path / "empty.html").write_text("<html></html>")
    (found,) = read_documents(str(tmp_path / "a.html"), Reading())
    assert found.title == "Tides & moon"
    assert "The tide number 7 rises" in found.text
    assert isinstance(next(read_documents(str(tmp_path / "empty.html"), Reading())), BadRecord)


def test_a_pdf_gives_its_pages(tmp_path: Path) -> None:
    pytest.importorskip("pypdf")
    text = b"BT /F1 12 Tf 20 50 Td (Tides rise twice.) Tj ET"
    parts = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R 4 0 R] /Count 2 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 200 100] >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 200 100] /Contents 5 0 R"
        b" /Resources << /Font << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >> >>",
        b"<< /Length %d >>\nstream\n%b\nendstream" % (len(text), text),
    ]
    book, places = b"%PDF-1.4\n", []
    for i, part in enumerate(parts, 1):
        places.append(len(book))
        book += b"%d 0 obj\n%b\nendobj\n" % (i, part)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    end = b"xref\n0 6\n0000000000 65535 f \n%btrailer << /Root 1 0 R /Size 6 >>\nstartxref\n%d\n%%%%EOF"
    (tmp_path / "a.pdf").write_bytes(book + end % (table, len(book)))
    (tmp_path / "bad.pdf").write_bytes(b"%PDF-1.4 nothing")
    page, blank = read_documents(str(tmp_path / "a.pdf"), Reading())
    assert (page.text.strip(), page.page) == ("Tides rise twice.", 2)
    assert "1 pages without text" in blank.reason
    assert "not a readable PDF" in next(read_documents(str(tmp_path / "bad.pdf"), Reading())).reason


def test_half_of_a_surrogate_pair_in_a_pdf_can_be_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pypdf = pytest.importorskip("pypdf")
    writer = pypdf.PdfWriter()
    writer.add_blank_page(100, 100)
    writer.write(tmp_path / "a.pdf")
    monkeypatch.setattr(pypdf.PageObject, "extract_text", lambda page: "moon \ud835 \ud835\udc00")
    (found,) = readers._pdf_pages(str(tmp_path / "a.pdf"), "a.pdf")
    assert found.text == "moon \ufffd \U0001d400"


@pytest.mark.parametrize("algorithm", ["RC4-128", "AES-256"])
def test_an_encrypted_pdf_is_called_so_first(tmp_path: Path, algorithm: str) -> None:
    pypdf = pytest.importorskip("pypdf")
    pytest.importorskip("cryptography")
    for password in ("secret", ""):  # without a user's password, anybody may read it
        writer = pypdf.PdfWriter()
        writer.add_blank_page(100, 100)
        writer.encrypt(password, "owner", algorithm=algorithm)
        writer.write(tmp_path / f"{password or 'open'}.pdf")
    (found,) = read_documents(str(tmp_path / "secret.pdf"), Reading())
    assert found.reason.startswith("the PDF is encrypted, and needs its password")
    (found,) = read_documents(str(tmp_path / "open.pdf"), Reading())
    assert found.reason == "1 pages without text (scanned?)"


def test_an_encrypted_pdf_names_the_library_that_decrypts_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pypdf = pytest.importorskip("pypdf")
    writer = pypdf.PdfWriter()
    writer.add_blank_page(100, 100)
    writer.encrypt("", "owner", algorithm="RC4-128")
    writer.write(tmp_path / "a.pdf")

    def lacking(*_: object) -> None:
        raise pypdf.errors.DependencyError("cryptography>=3.1 is required for AES algorithm")

    monkeypatch.setattr(pypdf.PdfReader, "decrypt", lacking)
    (found,) = readers._pdf_pages(str(tmp_path / "a.pdf"), "a.pdf")
    assert found.reason.startswith("the PDF is encrypted")
    assert found.reason.endswith("pip install cryptography")


def test_a_workbook_with_a_password_is_called_so_first(tmp_path: Path) -> None:
    pytest.importorskip("openpyxl")
    (tmp_path / "a.xlsx").write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(512))
    (found,) = read_documents(str(tmp_path / "a.xlsx"), Reading())
    assert "a.xlsx has a password, or is an old .xls file" in found.reason


def test_a_snippet_is_the_best_sentence_with_its_words_marked() -> None:
    text = "Nothing here. " * 30 + "The ferry leaves at noon. Nothing again."
    found = snippet(text, {"ferri", "noon"}, Terms().of_word())
    assert text[found.start : found.stop] == "The ferry leaves at noon."
    assert [text[slice(*mark)] for mark in found.marks] == ["ferry", "noon"]
