import bz2
import codecs
import gzip
import io
import itertools
import json
import lzma
import os
import re
import threading
import unicodedata
import zipfile
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from bertie.errors import DataError, UsageError
from bertie.io import lines, sources
from bertie.io.blocks import ReadOptions
from bertie.io.lines import BadRecord
from bertie.io.rows import records, table_kind
from bertie.io.sheets import new_sheet, sheet_rows
from bertie.io.table_format import TableFormat
from bertie.io.tables import Example, read_examples, stream_examples

UNLABELLED = TableFormat.of(labelled=False)


def write(folder: Path, name: str, data: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


COMPRESS = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstandard.ZstdCompressor().compress,
}


def test_every_format_reads_the_same_examples(tmp_path):
    rows = [('a small, quiet "film"', "good"), ("너무 길어요", "bad")]
    quoted = "\n".join('"{}",{}'.format(text.replace('"', '""'), label) for text, label in rows)
    files = [
        write(tmp_path, "a.csv", "text,label\n" + quoted + "\n"),
        write(tmp_path, "bom.csv", b"\xef\xbb\xbf" + f"text,label\r\n{quoted}".encode()),
        write(tmp_path, "a.tsv", "text\tlabel\n" + "".join(f"{t}\t{y}\n" for t, y in rows)),
        write(tmp_path, "a.txt", "text\tlabel\r\n" + "".join(f"{t}\t{y}\r\n" for t, y in rows)),
        write(tmp_path, "a.jsonl", "".join(json.dumps({"text": t, "label": y}) + "\n" for t, y in rows)),
    ]
    table = pa.table({"text": [t for t, _ in rows], "label": [y for _, y in rows]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    files += [
        write(tmp_path, f"{path.name}.{kind}", pack(path.read_bytes()))
        for path, (kind, pack) in itertools.product(files, COMPRESS.items())
    ]
    for path in [*files, tmp_path / "a.parquet"]:
        examples, skipped = read_examples(path)
        assert [(e.texts[0], e.label) for e in examples] == rows, path
        assert skipped.rows == 2
        assert skipped.total == 0


@pytest.mark.parametrize(
    ("header", "text"),
    [
        ("text label", ("text",)),
        ("sentence label", ("sentence",)),
        ("index question sentence label", ("question", "sentence")),
        ("sentence1 sentence2 label", ("sentence1", "sentence2")),
        ("premise hypothesis labels", ("premise", "hypothesis")),
        ("text text_pair label", ("text", "text_pair")),
        ("question context label", ("question", "context")),
    ],
)
def test_columns_are_recognised_by_name(tmp_path, header, text):
    names = header.split()
    path = write(tmp_path, "a.tsv", "\t".join(names) + "\n" + "\t".join(f"<{n}>" for n in names) + "\n")
    found = []
    (only,) = stream_examples(path, on_columns=found.append)
    assert found[0].text == text
    assert only == Example(tuple(f"<{n}>" for n in text), f"<{names[-1]}>", 2)


def test_columns_named_by_flag_and_files_without_a_header(tmp_path):
    path = write(tmp_path, "a.csv", "title,body,kind\nx,y,z\n")
    (only,) = read_examples(path, TableFormat.of(text=("title", "body"), label="kind"))[0]
    assert only.texts == ("x", "y")
    assert only.label == "z"
    bare = write(tmp_path, "b.tsv", "src\t1\t\tHe slept.\n")
    (only,) = read_examples(bare, TableFormat.of(columns=("source", "label", "mark", "sentence")))[0]
    assert only == Example(("He slept.",), "1", 1)


def test_unknown_columns_are_one_clear_error(tmp_path):
    path = write(tmp_path, "a.csv", "id,stars\n7,5\n")
    with pytest.raises(DataError, match=r"no text column was recognized among 'id', 'stars'.*--text"):
        read_examples(path)
    with pytest.raises(DataError, match=r"not a header.*for example --columns label,text\."):
        read_examples(path)
    with pytest.raises(DataError, match=r"not a header.*for example --columns text\."):
        read_examples(path, TableFormat.of(labelled=False))
    path = write(tmp_path, "a.csv", "review,date\nx,5\n")
    with pytest.raises(DataError, match=r"no label column.*--label COLUMN, for example --label date\."):
        read_examples(path, TableFormat.of(text=("review",)))
    path = write(tmp_path, "a.csv", "review,stars\nx,5\n")
    with pytest.raises(DataError, match=r"no column 'star'. Did you mean 'stars'"):
        read_examples(path, TableFormat.of(text=("review",), label="star"))
    with pytest.raises(UsageError, match="Unknown table format 'xyz'"):
        read_examples(path.rename(tmp_path / "a.xyz"))
    with pytest.raises(DataError, match="cannot be read: No such file"):
        read_examples(tmp_path / "absent.csv")


def test_bad_rows_are_counted_with_their_lines_and_the_rest_is_read(tmp_path):
    data = "text\tlabel\ngood\tyes\n \tno\nx\nno label\t\na\tb\tc\nlast\tno\n\n"
    path = write(tmp_path, "a.tsv", data)
    examples, skipped = read_examples(path)
    assert [e.texts[0] for e in examples] == ["good", "last"]
    assert [e.line for e in examples] == [2, 7]
    assert str(skipped) == (
        "5 of 7 rows skipped: empty text (1: line 3); 1 column instead of 2 (1: line 4); "
        "no label (1: line 5); 3 columns instead of 2 (1: line 6); empty line (1: line 8)"
    )


def test_a_file_with_nothing_usable_is_an_error(tmp_path):
    with pytest.raises(DataError, match=r"no usable example. It has no rows"):
        read_examples(write(tmp_path, "a.csv", ""))
    with pytest.raises(DataError, match=r"no usable example. 1 of 1 rows skipped: empty text"):
        read_examples(write(tmp_path, "b.csv", "text,label\n,1\n"))


@pytest.mark.promise("oddities-of-published-files")
def test_quoting_is_on_in_csv_and_off_in_tsv(tmp_path):
    (one,) = read_examples(write(tmp_path, "a.csv", 'text,label\n"two\nlines, one field",x\n'))[0]
    assert one.texts == ("two\nlines, one field",)
    assert one.line == 3
    examples, _ = read_examples(write(tmp_path, "a.tsv", 'text\tlabel\n"an open quote\tx\n"another\ty\n'))
    assert [e.texts[0] for e in examples] == ['"an open quote', '"another']


@pytest.mark.parametrize("count", [3, 20_000])
def test_an_open_quote_costs_its_own_line_alone(tmp_path, count):
    """What it would swallow, to the end of the file or as far as a field may go, is read again without it."""
    path = write(tmp_path, "a.csv", 'text,label\nfine,1\n"open,1\n' + "filler words,1\n" * count)
    examples, skipped = read_examples(path)
    assert [example.texts for example in examples] == [("fine",), *[("filler words",)] * count]
    assert [example.line for example in examples] == [2, *range(4, count + 4)]
    assert skipped.lines == {"a quotation mark left open": [3]}


@pytest.mark.parametrize("end", ["\r", "\r\n", "\n"])
@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.txt"])
def test_lines_end_as_on_any_system(tmp_path, name, end):
    texts = ["good film", "bad film", "나쁜 영화"]
    rows = [json.dumps({"text": text}) for text in texts] if name == "a.jsonl" else texts
    head = ["text"] if name in ("a.csv", "a.tsv") else []
    path = tmp_path / name
    for last in (end, ""):
        path.write_bytes((end.join([*head, *rows]) + last).encode())
        examples, skipped = read_examples(path, TableFormat.of(labelled=False))
        assert [example.texts for example in examples] == [(text,) for text in texts]
        assert not skipped.total


def test_carriage_returns_end_lines_wherever_a_file_is_looked_at(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("첫 줄\rsecond\tline\r".encode())
    assert table_kind(path) == "lines"
    assert lines.nonempty_lines(path) == ["첫 줄", "second\tline"]
    path.write_bytes("첫 줄\r".encode("cp949"))
    with pytest.raises(DataError, match=r"convert it: iconv -f cp949"):
        lines.nonempty_lines(path)


def test_a_line_without_an_end_is_one_bad_row_in_bounded_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "LIMIT", 1000)
    for name, head in [("a.csv", "text\n"), ("a.txt", "")]:
        path = write(tmp_path, name, f"{head}one\n{'x' * 5000}\ntwo\n{'y' * 5000}")
        examples, skipped = read_examples(path, TableFormat.of(labelled=False))
        assert [example.texts for example in examples] == [("one",), ("two",)]
        assert skipped.counts == {"a line longer than 0 MiB": 2}
    path = tmp_path / "mac.txt"
    path.write_bytes(b"one\r" + b"x" * (3 << 20) + b"\rtwo")
    examples, skipped = read_examples(path, TableFormat.of(labelled=False))
    assert [example.texts for example in examples] == [("one",), ("two",)]
    assert skipped.total == 1


@pytest.mark.parametrize(
    "encoding", ["punycode", "undefined", "utf-16", "utf-7", "hex", "idna", "\0", "unicode_escape"]
)
def test_encodings_that_are_none_of_lines_are_refused(tmp_path, encoding):
    path = write(tmp_path, "a.csv", "text\ngood\n")
    with pytest.raises(UsageError, match="Unknown encoding"):
        read_examples(path, TableFormat.of(encoding=encoding, labelled=False))
    with pytest.raises(UsageError, match="Unknown encoding"):
        sources.plan_units([str(path)], ReadOptions(encoding=encoding))


def test_half_a_surrogate_pair_costs_its_own_row(tmp_path):
    rows = ['{"text": "a \\ud83d\\ude00", "label": "x"}', '{"text": "a", "label": "\\udc00"}', '{"text": "\\ud800"}']
    for name, content in [("a.jsonl", "\n".join(rows)), ("a.json", f"[{', '.join(rows)}]")]:
        examples, skipped = read_examples(write(tmp_path, name, content))
        assert [example.texts for example in examples] == [("a 😀",)]
        assert skipped.total == 2


def test_three_columns_of_text_are_refused(tmp_path):
    path = write(tmp_path, "a.csv", "a,b,c\n1,2,3\n")
    with pytest.raises(UsageError, match="names 3 columns"):
        read_examples(path, TableFormat.of(text=("a", "b", "c"), labelled=False))


def test_a_pipe_is_read_once_and_a_device_never(tmp_path):
    """What a look at its first line took from a pipe would be gone."""
    pipe = tmp_path / "pipe.txt"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text("one\ntwo\n"))
    writer.start()
    examples, _ = read_examples(pipe, TableFormat.of(labelled=False, kind=table_kind(pipe)))
    writer.join()
    assert [example.texts for example in examples] == [("one",), ("two",)]
    with pytest.raises(DataError, match="is a device"):
        read_examples(Path("/dev/zero"), TableFormat.of(labelled=False))


@pytest.mark.promise("oddities-of-published-files")
def test_cp949_is_named_and_never_guessed(tmp_path):
    path = write(tmp_path, "a.csv", "text,label\nplain,1\n정말 재미있는 영화,1\n".encode("cp949"))
    with pytest.raises(DataError, match=r"line 3.*CP949.*--encoding cp949"):
        read_examples(path)
    examples, _ = read_examples(path, TableFormat.of(encoding="cp949"))
    assert examples[1].texts == ("정말 재미있는 영화",)
    path = write(tmp_path, "c.csv", "text,label\n진짜,1\n정말 재미있는 영화,1\n".encode())
    assert "진짜".encode().decode("cp949")  # some lines can be read as both
    with pytest.raises(DataError, match=r"line 3: this is UTF-8, not cp949\. Omit --encoding"):
        read_examples(path, TableFormat.of(encoding="cp949"))
    with pytest.raises(DataError, match="UTF-16 without a byte order mark"):
        read_examples(write(tmp_path, "d.csv", "text,label\nx,1\n".encode("utf-16-le")))
    with pytest.raises(UsageError, match="Unknown encoding 'utf-9'"):
        read_examples(path, TableFormat.of(encoding="utf-9"))


def test_a_parquet_file_of_the_library_datasets_has_names_of_classes(tmp_path):
    """-1 stands for an unknown class in it. A file with other metadata is read as it is."""
    table = pa.table({"text": ["good", "bad", "what", "odd"], "label": [1, 0, -1, 7]})
    kind = {"_type": "ClassLabel", "names": ["neg", "pos"]}
    for features, labels in (({"label": kind}, ["pos", "neg", None, None]), ({"label": 3}, ["1", "0", "-1", "7"])):
        metadata = {"huggingface": json.dumps({"info": {"features": features}})}
        pyarrow.parquet.write_table(table.replace_schema_metadata(metadata), tmp_path / "a.parquet")
        rows = [*stream_examples(tmp_path / "a.parquet", TableFormat())]
        assert [row.label if isinstance(row, Example) else None for row in rows] == labels


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
@pytest.mark.parametrize("mark", [codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE])
def test_utf16_with_its_mark_is_read_as_windows_writes_it(tmp_path, name, mark):
    encoding = "utf-16-le" if mark == codecs.BOM_UTF16_LE else "utf-16-be"
    rows = "text,label\r\n정말 😀,1\r\nhalf \ud83d of a pair,1\r\n" + "길다 " * 30_000 + ",0\r\n"
    data = mark + rows.encode(encoding, "surrogatepass")
    examples, skipped = read_examples(write(tmp_path, name, gzip.compress(data) if name.endswith("gz") else data))
    assert [(example.texts[0][:4], example.label) for example in examples] == [("정말 😀", "1"), ("길다 길", "0")]
    assert skipped.counts == {"not utf-8": 1}
    with pytest.raises(DataError, match=r"damaged.*ends within a character"):
        read_examples(write(tmp_path, "b.csv", data[:-1]))


def test_a_stray_byte_in_utf8_loses_its_own_row_alone(tmp_path):
    data = "text,label\n첫째 줄,1\n".encode() + b"bad \xff byte,1\n" + "끝,0\n".encode()
    examples, skipped = read_examples(write(tmp_path, "a.csv", data))
    assert [e.texts[0] for e in examples] == ["첫째 줄", "끝"]
    assert skipped.lines == {"not utf-8": [3]}


def test_json_rows_of_every_shape(tmp_path):
    lines = [
        '{"label": 1, "text": "number"}',
        '{"text": "no label here"}',
        '{"text": "truth", "label": true, "other": 3}',
        '{"text": "many", "label": ["a", "b"]}',
        '["not", "an", "object"]',
        '{"text": "cut off',
        "[" * 100_000,
    ]
    examples, skipped = read_examples(write(tmp_path, "a.jsonl", "\n".join(lines)))
    assert [(e.texts[0], e.label) for e in examples] == [("number", "1"), ("truth", "true")]
    told = "several labels in label, which --task multilabel reads"
    assert skipped.lines == {"no label": [2], told: [4], "not a JSON object": [5], "not JSON": [6, 7]}
    with pytest.raises(DataError, match="one JSON value over many lines"):
        read_examples(write(tmp_path, "b.jsonl", '[\n{"text": "x"}\n]\n'))


def test_one_json_list_with_nested_fields(tmp_path):
    content = '[\n{"text": "x", "labels": {"real": 3.5}},\n7, {"text": "y", "labels": {"real": null}}\n]\n'
    examples, skipped = read_examples(write(tmp_path, "b.json", content), TableFormat.of(label="labels.real"))
    assert examples == [Example(("x",), "3.5", 1)]
    assert skipped.lines == {"not a JSON object": [2], "no labels.real": [3]}
    with pytest.raises(DataError, match="truncated"):
        read_examples(write(tmp_path, "c.json", content[:-20]))
    with pytest.raises(DataError, match="line 3: not utf-8"):  # what is left is a valid list with fewer rows
        read_examples(
            write(tmp_path, "d.json", content.replace("7", '{"text": "\udcff"}').encode("utf-8", "surrogateescape"))
        )


def test_a_cut_off_parquet_file_is_one_error(tmp_path):
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pa.table({"text": ["x"] * 1000, "label": [1.0, None] * 500}), path)
    examples, skipped = read_examples(path)
    assert examples[0].label == "1.0"
    assert skipped.counts == {"no label": 500}
    pyarrow.parquet.write_table(
        pa.table({"text": ["x", "y"], "label": [Decimal("1.50"), None]}), tmp_path / "c.parquet"
    )
    examples, skipped = read_examples(tmp_path / "c.parquet")
    assert ([one.label for one in examples], skipped.counts) == (["1.50"], {"no label": 1})
    unmarked = pa.table({"text": ["좋다".encode(), b"\xff"], "label": [b"a", b"b"]})
    pyarrow.parquet.write_table(unmarked, tmp_path / "d.parquet")
    examples, skipped = read_examples(tmp_path / "d.parquet")
    assert ([(one.texts, one.label) for one in examples], skipped.counts) == ([(("좋다",), "a")], {"no text": 1})
    twice = pa.table([["first"], ["a"], ["second"]], names=["text", "label", "text"])
    pyarrow.parquet.write_table(twice, tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"b\.parquet: columns 1 and 3 have the same name 'text'\. Rename or remove"):
        read_examples(tmp_path / "b.parquet")
    write(tmp_path, "a.parquet", path.read_bytes()[:-10])
    with pytest.raises(DataError, match=r"a\.parquet is not a readable parquet file"):
        read_examples(path)


def test_a_compressed_table_that_is_damaged_is_one_error(tmp_path):
    whole = gzip.compress(("text,label\n" + "".join(f"{number} words,a\n" for number in range(9_000))).encode())
    with pytest.raises(DataError, match="cannot be decompressed: the file is truncated"):
        read_examples(write(tmp_path, "cut.csv.gz", whole[:9_000]))
    with pytest.raises(DataError, match="cannot be decompressed"):
        read_examples(write(tmp_path, "other.csv.gz", "text,label\n"))
    with pytest.raises(DataError, match=r"missing\.csv\.gz cannot be read: No such file"):
        read_examples(tmp_path / "missing.csv.gz")
    bomb = gzip.compress(b"text,label\n" + bytes(80 << 20))
    with pytest.raises(DataError, match="grows more than"):
        read_examples(write(tmp_path, "bomb.csv.gz", bomb))


def test_plain_lines_and_pairs_between_tabs(tmp_path):
    path = write(tmp_path, "a.txt", "first\n\nthird\n")
    assert list(stream_examples(path, UNLABELLED)) == [
        Example(("first",), None, 1),
        BadRecord(2, "empty text"),
        Example(("third",), None, 3),
    ]
    pairs = TableFormat.of(text=("a", "b"), columns=("a", "b"), kind="lines", labelled=False)
    rows = list(stream_examples(write(tmp_path, "b.txt", "x\ty\nz\n"), pairs))
    assert rows == [Example(("x", "y"), None, 1), BadRecord(2, "1 column instead of 2")]


def test_a_tab_in_one_line_makes_no_table_of_plain_lines(tmp_path):
    texts = ["a\tb", "c", "", "d e"]
    path = write(tmp_path, "a.txt", "".join(f"{text}\n" for text in texts))
    assert [one.texts[0] for one in stream_examples(path, UNLABELLED) if isinstance(one, Example)] == [
        "a\tb",
        "c",
        "d e",
    ]
    path = write(tmp_path, "b.txt", "text\tlabel\n\na\tx\nc\n")
    *_, last = stream_examples(path)
    assert last.reason == "1 column instead of 2; for one text per line, pass --format lines"
    assert read_examples(path, TableFormat.of(("text",)))[0] == [Example(("a",), "x", 3)]


def test_columns_with_korean_names(tmp_path):
    examples, _ = read_examples(write(tmp_path, "ko.csv", "번호,리뷰,라벨\n1,좋다,긍정\n"))
    assert [(one.texts, one.label) for one in examples] == [(("좋다",), "긍정")]


@pytest.mark.parametrize("mark", [";", "\t"])
def test_a_csv_file_separated_by_semicolons_or_tabs_is_read(tmp_path, mark):
    """A header without commas is: Excel separates by semicolons where the decimal mark is a comma."""
    rows = f'"good, {mark} and ""bad""{mark}\n0,5"{mark}1\none{mark}two{mark}three\n'
    path = write(tmp_path, "a.csv", f"text{mark}label\n{rows}")
    examples, skipped = read_examples(path, TableFormat.of(keep=True))
    assert [(one.texts, one.label) for one in examples] == [((f'good, {mark} and "bad"{mark}\n0,5',), "1")]
    assert skipped.counts == {"3 columns instead of 2": 1}
    (*_, bad) = stream_examples(path, TableFormat.of(keep=True))
    assert bad.source == {"text": "one", "label": f"two{mark}three"}
    headless, _ = read_examples(write(tmp_path, "b.csv", f"good{mark}1\n"), TableFormat.of(columns=("text", "label")))
    assert headless == [Example(("good",), "1", 1)]
    plain = write(tmp_path, "c.csv", f"a sentence{mark} with a mark{mark} alone\n")
    assert read_examples(plain, TableFormat.of(columns=("text",), labelled=False))[0][0].texts[0].count(mark) == 2


@pytest.mark.parametrize(("name", "line", "last"), [("a.csv", "a, b,c,d", " b,c,d"), ("a.tsv", "a\tb\tc", "b\tc")])
def test_a_row_of_too_many_cells_keeps_them_all(tmp_path, name, line, last):
    header = "text,label" if name == "a.csv" else "text\tlabel"
    path = write(tmp_path, name, f"{header}\n{line}\n")
    (row,) = stream_examples(path, TableFormat.of(keep=True))
    assert row.source == {"text": "a", "label": last}


@given(st.lists(st.binary(max_size=30).map(lambda b: b.replace(b"\n", b"")), max_size=20))
def test_any_bytes_whatever_give_one_outcome_a_line(tmp_path_factory, lines):
    """Conservation: rows in = examples + rows skipped; only a file that reads as Korean CP949 is refused whole."""
    path = tmp_path_factory.mktemp("any") / "a.tsv"
    path.write_bytes(b"text\tlabel\nfine\tyes\n" + b"".join(line + b"\n" for line in lines))
    try:
        examples, skipped = read_examples(path)
    except DataError as error:
        assert "CP949" in str(error)  # noqa: PT017
        return
    assert skipped.rows == len(lines) + 1
    assert len(examples) + skipped.total == skipped.rows


@pytest.mark.skipif("BERTIE_DATA" not in os.environ, reason="needs BERTIE_DATA")
def test_korean_review_file_as_published():
    examples, skipped = read_examples(Path(os.environ["BERTIE_DATA"]) / "nsmc" / "ratings_test.txt")
    assert skipped.rows == 50_000
    assert skipped.counts == {"empty text": 3}
    assert len(examples) == 49_997


@pytest.mark.parametrize("given", ["NFC", "NFD"])
@pytest.mark.parametrize(
    ("name", "text", "columns"),
    [
        ("a.csv", "리뷰,평가\n좋다,긍정\n", ("리뷰", "평가")),
        ("a.jsonl", '{"리뷰": "좋다", "평가": "긍정"}\n', ("리뷰", "평가")),
        ("a.tsv", "텍스트\t라벨\n좋다\t긍정\n", ()),  # recognized
    ],
)
def test_the_names_of_columns_may_be_decomposed(name, text, columns, given, tmp_path):
    (path := tmp_path / name).write_text(unicodedata.normalize("NFD", text), encoding="utf-8")
    column, label = (unicodedata.normalize(given, one) for one in columns) if columns else ("", "")
    examples, _ = read_examples(path, TableFormat.of(text=(column,) if column else (), label=label))
    assert examples[0].texts == (unicodedata.normalize("NFD", "좋다"),)


def workbook(path: Path, *sheets: list[list[object]], stated: bytes = b"") -> Path:
    """Writes a workbook. stated: the size of its first worksheet that the file states, where it is wrong."""
    openpyxl = pytest.importorskip("openpyxl")
    book, plain = openpyxl.Workbook(), io.BytesIO()
    book.remove(book.active)
    for number, rows in enumerate(sheets):
        sheet = book.create_sheet(f"sheet {number}")
        for row in rows:
            sheet.append(row)
    book.save(plain)
    with zipfile.ZipFile(plain) as parts, zipfile.ZipFile(path, "w") as out:
        for name in parts.namelist():
            content = parts.read(name)
            if stated and name == "xl/worksheets/sheet1.xml":
                content = re.sub(rb'(<dimension ref=")[^"]*', rb"\g<1>" + stated, content)
            out.writestr(name, content)
    return path


def test_a_workbook_that_states_a_wrong_size_is_read_whole(tmp_path):
    rows = [["id", "text", "note"], [1, "a", None], [], [2, "b", "x"]]
    found = [list(records(workbook(tmp_path / "right.xlsx", rows), UNLABELLED))]
    for number, stated in enumerate((b"A1", b"A1:XFD1048576", b"A1:C1")):
        path = workbook(tmp_path / f"{number}.xlsx", rows, stated=stated)
        found.append(list(itertools.islice(records(path, UNLABELLED), 100)))
    assert [line for line, _ in found[0]] == [2, 3, 4]
    assert found[0][2][1] == {"id": "2", "text": "b", "note": "x"}
    assert found[1:] == [found[0]] * 3


def test_empty_worksheets_and_rows_before_the_header_are_passed_over(tmp_path):
    path = workbook(tmp_path / "a.xlsx", [], [[], [None], ["text"], ["a"]], [["text"], ["another sheet"]])
    assert list(records(path, UNLABELLED)) == [(4, {"text": "a"})]


def test_control_characters_in_a_workbook_are_not_text(tmp_path):
    path = workbook(tmp_path / "a.xlsx", [["text"], ["one_x000D_\ntwo _x005F_x000D_ _xD83D_"]])
    assert list(records(path, UNLABELLED)) == [(2, {"text": "one\r\ntwo _x000D_ _xD83D_"})]
    with new_sheet(out := io.BytesIO()) as sheet:
        sheet.append(["_x000D_"])
    assert list(sheet_rows(out, "a.xlsx")) == [(1, ("_x000D_",))]


@pytest.mark.parametrize("head", ["sep=;\nid;text", 'id;text;"price, EUR"', "SEP=|\nid|text"])
def test_the_separator_of_a_csv_file_may_be_named_or_stand_beside_quoted_commas(tmp_path, head):
    mark = head[4] if head.lower().startswith("sep=") else ";"
    rows = write(tmp_path, "a.csv", f"{head}\n1{mark}a, b{mark * ('price' in head)}\n")
    ((_, fields),) = records(rows, UNLABELLED)
    assert (fields["id"], fields["text"]) == ("1", "a, b")
