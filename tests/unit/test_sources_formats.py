"""Sources: every format gives the same documents, whatever the compression; what is bad is dropped with its place."""

import bz2
import gzip
import json
import lzma
import time
import zipfile
from collections import Counter
from pathlib import Path

import openpyxl
import pyarrow
import pyarrow.parquet
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from bertie.errors import DataError, UsageError
from bertie.io import blocks, lines, sources, streams
from bertie.io.blocks import ReadOptions
from bertie.io.lines import BadRecord

DOCUMENTS = [
    "The first one. It has two sentences.",
    "두 번째 문서.\n두 줄이다.",
    'Third: "quotes", commas; and 日本語。',
]
COMPRESS = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}


def read(*inputs, counts=None, **reading):
    reading = ReadOptions(**reading)
    units, _ = sources.plan_units(map(str, inputs), reading)
    return [
        found for unit in units for found in sources.read_unit(unit, reading, Counter() if counts is None else counts)
    ]


def texts(found):
    return [document.strip() for document in found if isinstance(document, str)]


def dropped(found):
    return [(drop.reason, drop.line) for drop in found if isinstance(drop, BadRecord)]


def parquet(documents):
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.table({"n": range(len(documents)), "text": documents}), sink, row_group_size=2)
    return sink.getvalue().to_pybytes()


def encoded(kind, documents):
    if kind == "txt":
        return "\n\n".join(documents).encode()
    if kind == "jsonl":
        return "".join(json.dumps({"id": 1, "text": d}, ensure_ascii=False) + "\n" for d in documents).encode()
    if kind in ("csv", "tsv"):
        quoted = (
            [d.replace('"', '""') for d in documents] if kind == "csv" else [d.replace("\n", " ") for d in documents]
        )
        mark, tab = ('"', ",") if kind == "csv" else ("", "\t")
        return "".join([f"id{tab}text\n", *(f"1{tab}{mark}{d}{mark}\n" for d in quoted)]).encode()
    if kind == "parquet":
        return parquet(documents)
    return "".join(f'<doc id="1" url="u" title="T &amp; t">\nT & t\n\n{d}\n</doc>\n' for d in documents).encode()


@pytest.mark.parametrize("compression", COMPRESS)
@pytest.mark.parametrize("kind", ["txt", "jsonl", "csv", "tsv", "parquet", "wiki"])
def test_every_format_and_compression_gives_the_same_documents(tmp_path, kind, compression):
    path = tmp_path / ("wiki_00" if kind == "wiki" else f"a.{kind}")
    path = path.with_name(path.name + compression)
    path.write_bytes(COMPRESS[compression](encoded(kind, DOCUMENTS)))
    found = read(path)
    expected = [d.replace("\n", " ") for d in DOCUMENTS] if kind == "tsv" else DOCUMENTS
    assert not dropped(found)
    assert texts(found) == expected


@pytest.mark.parametrize("unit", [1, 30, blocks.UNIT])
@pytest.mark.parametrize("kind", ["txt", "jsonl", "csv", "tsv", "wiki"])
def test_carriage_returns_end_the_lines_of_old_macs(tmp_path, kind, unit, monkeypatch):
    monkeypatch.setattr(blocks, "UNIT", unit)
    plain, mac = (tmp_path / folder / ("wiki_00" if kind == "wiki" else f"a.{kind}") for folder in "ab")
    for path, end in ((plain, b"\n"), (mac, b"\r")):
        path.parent.mkdir()
        path.write_bytes(encoded(kind, DOCUMENTS).replace(b"\n", end))
    assert texts(read(mac)) == texts(read(plain))
    assert not dropped(read(mac))


@pytest.mark.promise("hostile-archives")
@pytest.mark.parametrize("compression", [c for c in COMPRESS if c])
def test_what_stands_before_a_cut_is_kept_and_the_rest_is_said(tmp_path, compression):
    documents = [f"document {i} " + str(i * 7919 % 10007) for i in range(5000)]
    data = COMPRESS[compression](encoded("txt", documents))
    path = tmp_path / f"a.txt{compression}"
    path.write_bytes(data[: len(data) // 2])
    found = read(path)
    assert texts(found) == documents[: len(texts(found))]
    assert dropped(found) == [("the file is truncated; it was not read to its end", 0)]


@pytest.mark.promise("hostile-archives")
def test_a_cut_parquet_file_is_one_dropped_record(tmp_path):
    path = tmp_path / "a.parquet"
    path.write_bytes(parquet(DOCUMENTS)[:200])
    (drop,) = read(path)
    assert "not a readable parquet file" in drop.reason


@pytest.mark.promise("hostile-archives")
@pytest.mark.parametrize("compression", [".gz", ".zst"])
def test_a_bomb_is_stopped_long_before_its_end(tmp_path, compression, monkeypatch):
    monkeypatch.setattr(streams, "BOMB_BYTES", 1 << 20)
    path = tmp_path / f"bomb.jsonl{compression}"
    path.write_bytes(COMPRESS[compression](b" \n" * (8 << 20)))
    (drop,) = read(path)
    assert "grows more than" in drop.reason


@pytest.mark.promise("hostile-archives")
def test_an_archive_is_refused_and_nothing_of_it_is_written(tmp_path):
    """No archive is unpacked, so none can name a file outside; what is in one is not guessed at either."""
    archive = tmp_path / "in" / "texts.zip"
    archive.parent.mkdir()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("../outside.txt", "text")
    with pytest.raises(UsageError, match=r"the extension .zip is unknown"):
        sources.plan_units([str(archive)], ReadOptions())
    with pytest.raises(DataError, match="contains no file of a known format"):
        sources.plan_units([str(archive.parent)], ReadOptions())
    renamed = archive.rename(archive.with_suffix(".txt"))
    (unit,), _ = sources.plan_units([str(renamed)], ReadOptions())
    assert all(isinstance(found, BadRecord) for found in sources.read_unit(unit, ReadOptions(), Counter()))
    assert [path.name for path in tmp_path.rglob("*")] == ["in", "texts.txt"]


@pytest.mark.parametrize(
    ("documents", "expected"),
    [("blank", ["a\nb", "c"]), ("line", ["a", "b", "c"]), ("file", ["a\nb\n \t\nc"])],
)
def test_what_ends_a_document_is_chosen(tmp_path, documents, expected):
    path = tmp_path / "a.txt"
    path.write_bytes(b"a\nb\n \t\nc\n")
    assert texts(read(path, documents=documents)) == expected


def test_byte_order_mark_line_ends_and_zero_bytes_do_no_harm(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeffone\r\nstill one\r\n\r\ntwo \0 here is more text\r\n".encode())
    assert texts(read(path)) == ["one\r\nstill one", "two \0 here is more text"]


def test_cp949_is_named_and_never_guessed(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("ascii first\n\n이것은 한국어 문서입니다.\n둘째 줄.\n".encode("cp949"))
    found = read(path)
    assert texts(found) == ["ascii first"]
    assert dropped(found) == [("not UTF-8 but reads as CP949: pass --encoding cp949", 3)]
    assert texts(read(path, encoding="cp949"))[1] == "이것은 한국어 문서입니다.\n둘째 줄."
    path.write_text("ascii first\n\n이것은 한국어 문서입니다.\n", "utf-8")
    assert dropped(read(path, encoding="cp949")) == [("not CP949 but reads as UTF-8: omit --encoding", 3)]


@pytest.mark.parametrize("mark", [True, False])
def test_utf16_is_named(tmp_path, mark):
    path = tmp_path / "a.txt"
    path.write_bytes("some text in it".encode("utf-16" if mark else "utf-16-le"))
    (drop,) = read(path)
    assert "UTF-16" in drop.reason
    with pytest.raises(UsageError, match="iconv"):
        read(path, encoding="utf-16")


def test_bad_records_are_dropped_with_their_lines(tmp_path):
    path = tmp_path / "a.jsonl"
    rows = [
        b'{"text": "good"}',
        b"",
        b"nonsense",
        b'{"body": "x"}',
        b'{"text": 5}',
        b"[]",
        b'{"text": "\xff\xfe"}',
        b"[" * 9999,
    ]
    path.write_bytes(b"\n".join(rows))
    found = read(path)
    assert texts(found) == ["good"]
    assert dropped(found) == [
        ("not JSON", 3),
        ("no field 'text' (name it: --text FIELD)", 4),
        ("the field 'text' is not a text", 5),
        ("not a JSON object", 6),
        ("not UTF-8", 7),
        ("not JSON", 8),
    ]
    assert texts(read(path, text="body")) == ["x"]


def test_one_list_in_place_of_json_lines_is_named(tmp_path):
    path = tmp_path / "a.jsonl"
    for text in ('[{"text": "a"}, {"text": "b"}]', '[\n{"text": "a"}]'):
        path.write_text(text)
        assert "write one object per line" in dropped(read(path))[0][0]


def test_wrong_columns_are_refused_before_the_work_and_name_the_choices(tmp_path):
    (tmp_path / "a.csv").write_text("id,body\n1\n1,x\n")  # also where the first row is bad
    (tmp_path / "a.tsv.gz").write_bytes(gzip.compress(b"id\tbody\n1\tx\n"))
    (tmp_path / "b.parquet").write_bytes(parquet(["only text"]))
    for name in ("a.csv", "a.tsv.gz"):
        with pytest.raises(UsageError, match=rf"{name} has no column 'text'\. Choices: body, id\. Pass --text COLUMN"):
            sources.plan_units([str(tmp_path / name)], ReadOptions())
    with pytest.raises(UsageError, match="has no column 'body'"):
        sources.plan_units([str(tmp_path / "b.parquet")], ReadOptions(text="body"))


def test_wiki_titles_and_markup_lines_go_and_are_counted(tmp_path):
    path = tmp_path / "wiki_00"
    path.write_text(
        'stray\n<doc id="1" title="A&quot;B">\nA"B\n\nProse | with a bar.\n'
        '{| class="x"\n|-\n| a = b\n|}\n[[Category:Things]]\n'
        "<br>\n1 < 2 and <b>bold</b> stays.\n[[link]] stays.\n</doc>\n"
        '<doc id="2" title="C">\nNot the title.\n</doc>\n<doc id="3" title="D">\nnever closed\n'
    )
    counts = Counter()
    found = read(path, counts=counts, format="wiki")
    assert texts(found) == ["Prose | with a bar.\n1 < 2 and <b>bold</b> stays.\n[[link]] stays.", "Not the title."]
    assert dropped(found) == [("text outside <doc> ... </doc>", 1), ("text outside <doc> ... </doc>", 18)]
    assert counts == {"lines of wiki markup removed": 6}


@given(
    documents=st.lists(st.text("ab \né\r", min_size=1, max_size=40).filter(str.strip), min_size=1, max_size=30),
    unit=st.integers(1, 60),
    data=st.data(),
)
@pytest.mark.parametrize("kind", ["txt", "jsonl", "wiki"])
def test_units_of_any_size_give_the_records_of_the_whole(tmp_path_factory, kind, documents, unit, data):
    path = tmp_path_factory.mktemp("sources") / ("wiki_00" if kind == "wiki" else f"a.{kind}")
    path.write_bytes(encoded(kind, documents))
    whole = texts(read(path))
    small = data.draw(st.integers(16, 64))
    before = blocks.UNIT, blocks.READ_BYTES
    try:
        blocks.UNIT, blocks.READ_BYTES = unit, small
        assert texts(read(path)) == whole
    finally:
        blocks.UNIT, blocks.READ_BYTES = before


def test_a_line_beyond_the_limit_is_dropped_and_its_neighbors_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "LIMIT", 1000)
    monkeypatch.setattr(blocks, "READ_BYTES", 300)
    long = "x" * 5000
    (tmp_path / "a.jsonl").write_text(f'{{"text": "one"}}\n{{"text": "{long}"}}\n{{"text": "two"}}\n')
    (tmp_path / "b.txt").write_text(f"one\n\nbefore\n{long}\nafter\n\ntwo\n")
    for name, kept, line in [("a.jsonl", ["one", "two"], 2), ("b.txt", ["one", "before", "after", "two"], 4)]:
        found = read(tmp_path / name)
        assert texts(found) == kept
        assert [line for _, line in dropped(found)] == [line]


@pytest.mark.parametrize("end", ["", "\n"])
def test_the_last_line_of_a_table_beyond_the_limit_is_counted(tmp_path, monkeypatch, end):
    monkeypatch.setattr(lines, "LIMIT", 1000)
    (tmp_path / "a.csv").write_text(f"id,text\n1,one\n2,{'x' * 5000}{end}")
    (tmp_path / "b.csv").write_text(f"id,text{'x' * 5000}{end}")
    assert texts(read(tmp_path / "a.csv")) == ["one"]
    assert [line for _, line in dropped(read(tmp_path / "a.csv"))] == [3]
    assert [line for _, line in dropped(read(tmp_path / "b.csv"))] == [1]


def test_a_document_beyond_the_limit_is_cut_at_a_line_and_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "LIMIT", 1000)
    monkeypatch.setattr(blocks, "READ_BYTES", 300)
    path = tmp_path / "a.txt"
    lines = [f"line {i}" for i in range(500)]
    path.write_text("\n".join(lines))
    counts = Counter()
    found = read(path, counts=counts)
    assert "\n".join(texts(found)).split("\n") == lines
    assert sum(counts.values()) == len(found) - 1 > 2


def test_folders_and_globs_give_known_files_in_order_once(tmp_path):
    for name in ("b.txt", "a.txt", "sub/c.jsonl", ".hidden.txt", "d.pdf"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text('{"text": "in c"}\n' if name.endswith("jsonl") else f"in {name}")
    names, passed_over, _ = sources.SourceFiles.of([str(tmp_path), str(tmp_path / "*.txt")], sources.formats())
    assert [name.removeprefix(f"{tmp_path}/") for name in names] == ["a.txt", "b.txt", "sub/c.jsonl"]
    assert passed_over == [str(tmp_path / "d.pdf")]
    assert texts(read(tmp_path)) == ["in a.txt", "in b.txt", "in c"]


def seconds_to_plan(folder, count):
    folder.mkdir()
    for number in range(count):
        (folder / f"{number:06d}.txt").write_text("x")
        if number % 10 == 0:
            (folder / f"{number:06d}.bin").touch()
    begun = time.perf_counter()
    units, (_, passed_over, _) = sources.plan_units([str(folder)], ReadOptions())
    elapsed_s = time.perf_counter() - begun
    assert [Path(item[0]).name for unit in units for item in unit.items] == [f"{n:06d}.txt" for n in range(count)]
    assert len(passed_over) == -(-count // 10)
    return elapsed_s


def test_many_small_files_are_looked_at_once_each(tmp_path, monkeypatch):
    looked = Counter()
    usual = Path.__hash__

    def counted(path):
        looked["hashes"] += 1
        return usual(path)

    monkeypatch.setattr(Path, "__hash__", counted)
    seconds_to_plan(tmp_path / "many", 300)
    assert looked["hashes"] < 10 * 330


@pytest.mark.slow
def test_a_hundred_thousand_small_files_are_planned_in_linear_time(tmp_path):
    few, many = seconds_to_plan(tmp_path / "few", 10_000), seconds_to_plan(tmp_path / "many", 100_000)
    assert many < 30 * max(few, 0.1)


def test_missing_and_unknown_inputs_are_answered(tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "image.png").write_text("x")
    with pytest.raises(DataError, match=r"does not exist. Did you mean 'notes\.txt'\?"):
        read(tmp_path / "note.txt")
    with pytest.raises(UsageError, match="--format"):
        read(tmp_path / "image.png")
    with pytest.raises(UsageError, match="Did you mean 'jsonl'"):
        read(tmp_path / "notes.txt", format="jsonls")
    with pytest.raises(UsageError, match="Unknown encoding"):
        read(tmp_path / "notes.txt", encoding="utf-9")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no file of a known format"):
        read(tmp_path / "empty")


def test_the_documentation_of_a_package_is_a_source():
    found = read("python:json")
    assert any("JSON" in document for document in texts(found))
    assert {reason for reason, _ in dropped(found)} <= {"a module without documentation"}


def test_any_format_of_tables_is_a_source(tmp_path):
    """Also one that corpora do not name, by its extension or by --format."""
    book = openpyxl.Workbook()
    for row in (("id", "text"), (1, "one"), (2, None), (3, "three")):
        book.active.append(row)
    book.save(tmp_path / "a.xlsx")
    assert texts(read(tmp_path / "a.xlsx")) == ["one", "", "three"]
    (tmp_path / "b.csv").write_text("id,text,text\n1,a,b\n")
    assert [reason for reason, _ in dropped(read(tmp_path / "b.csv"))] == [
        f"{tmp_path / 'b.csv'}: columns 2 and 3 have the same name 'text'. Rename or remove all but one."
    ]
    names, _, _ = sources.SourceFiles.of([str(tmp_path)], sources.formats())
    assert [Path(name).name for name in names] == ["a.xlsx", "b.csv"]
