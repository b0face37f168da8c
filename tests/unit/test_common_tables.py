"""Odd but common tables as pandas, Excel, LibreOffice, Google Sheets and R write them: read right, or named."""

import codecs
import json
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from bertie.errors import BertieError
from bertie.io.table_format import TableFormat
from bertie.io.tables import Example, SkipReport
from bertie.tasks import TASKS

TEXTS = ("a lovely, quiet film", "너무 길어요")
ROWS = [(TEXTS[0], "good"), (TEXTS[1], "bad")]
Write = Callable[[Path], object]


def raw(content: str, encoding: str = "utf-8") -> Write:
    return lambda path: path.write_bytes(content.encode(encoding))


def frame(write: Callable[[Any, Path], object], **columns: Any) -> Write:
    """A table that pandas writes."""

    def written(path: Path) -> None:
        pandas = pytest.importorskip("pandas")
        write(pandas.DataFrame(columns or {"text": TEXTS, "label": ["good", "bad"]}), path)

    return written


def by_stata(table: Any, path: Path) -> None:
    """A file of Stata, and what the error about it says."""
    pandas = pytest.importorskip("pandas")
    table.to_stata(path.with_suffix(".dta"), version=118)
    pandas.read_stata(path.with_suffix(".dta")).to_csv(path, index=False)


def book(*sheets: list[list[Any]], merge: str = "", titles: tuple[str, ...] = ()) -> Write:
    def written(path: Path) -> None:
        made = openpyxl.Workbook()
        made.remove(made.active)
        for number, rows in enumerate(sheets):
            sheet = made.create_sheet(titles[number] if titles else f"Sheet{number + 1}")
            for row in rows:
                sheet.append(row)
            if merge:
                sheet.merge_cells(merge)
        made.save(path)

    return written


def oriented(orient: str, **more: Any) -> Write:
    return frame(lambda table, path: table.to_json(path, orient=orient, force_ascii=False, **more))


CSV = f'"{TEXTS[0]}",good\n{TEXTS[1]},bad\n'
TSV = f"{TEXTS[0]}\tgood\n{TEXTS[1]}\tbad\n"
DECOMPOSED = unicodedata.normalize("NFD", "리뷰")
LONG = "x" * 200_000

READ: dict[str, tuple[str, Write, dict[str, Any]]] = {  # program -> file, its writer, options; read as ROWS
    "pandas to_csv, with its index": ("a.csv", frame(lambda t, p: t.to_csv(p)), {}),
    "pandas to_csv, without": ("a.csv", frame(lambda t, p: t.to_csv(p, index=False)), {}),
    "pandas to_csv, tabs": ("a.tsv", frame(lambda t, p: t.to_csv(p, sep="\t")), {}),
    "pandas to_csv, semicolons": ("a.csv", frame(lambda t, p: t.to_csv(p, sep=";")), {}),
    "pandas to_csv, bars": ("a.csv", frame(lambda t, p: t.rename_axis("n").to_csv(p, sep="|")), {}),
    "pandas to_csv, all quoted": ("a.csv", frame(lambda t, p: t.to_csv(p, quoting=1)), {}),
    "pandas to_csv, all quoted with tabs": ("a.tsv", frame(lambda t, p: t.to_csv(p, quoting=1, sep="\t")), {}),
    "pandas to_csv, utf-8-sig": ("a.csv", frame(lambda t, p: t.to_csv(p, encoding="utf-8-sig")), {}),
    "pandas to_csv, utf-16": ("a.csv", frame(lambda t, p: t.to_csv(p, encoding="utf-16")), {}),
    "pandas to_csv, compressed": ("a.csv.gz", frame(lambda t, p: t.to_csv(p)), {}),
    "pandas to_csv, several indexes": (
        "a.csv",
        frame(lambda t, p: t.set_index([t.index, t.index]).to_csv(p)),
        {},
    ),
    "pandas to_csv, cp949": ("a.csv", frame(lambda t, p: t.to_csv(p, encoding="cp949")), {"encoding": "cp949"}),
    "pandas to_csv without a header": (
        "a.csv",
        frame(lambda t, p: t.to_csv(p, header=False, index=False)),
        {"columns": ("text", "label")},
    ),
    "pandas to_csv with an index and without a header": (
        "a.csv",
        frame(lambda t, p: t.to_csv(p, header=False)),
        {"columns": ("n", "text", "label")},
    ),
    "pandas to_excel, with its index": ("a.xlsx", frame(lambda t, p: t.to_excel(p)), {}),
    "pandas to_excel, without": ("a.xlsx", frame(lambda t, p: t.to_excel(p, index=False)), {}),
    "pandas to_excel, further down": ("a.xlsx", frame(lambda t, p: t.to_excel(p, startrow=3, startcol=2)), {}),
    "pandas to_parquet": ("a.parquet", frame(lambda t, p: t.to_parquet(p)), {}),
    "pandas to_parquet, with an index": ("a.parquet", frame(lambda t, p: t.set_index([[5, 6]]).to_parquet(p)), {}),
    "pandas to_parquet, categories": (
        "a.parquet",
        frame(lambda t, p: t.astype({"label": "category"}).to_parquet(p)),
        {},
    ),
    "pandas to_json, its default": ("a.json", frame(lambda t, p: t.to_json(p)), {}),
    "pandas to_json, indented": ("a.json", frame(lambda t, p: t.to_json(p, indent=2)), {}),
    **{f"pandas to_json, {o}": ("a.json", oriented(o), {}) for o in ("records", "index", "columns", "split", "table")},
    **{f"pandas to_json, {o}, indented": ("a.json", oriented(o, indent=1), {}) for o in ("records", "split", "table")},
    "pandas to_json, lines": ("a.jsonl", oriented("records", lines=True), {}),
    "pandas to_json, lines as .json": ("a.json", oriented("records", lines=True), {}),
    "pandas to_json, values": ("a.json", oriented("values"), {"columns": ("text", "label")}),
    "pandas to_dict, lists": (
        "a.json",
        frame(lambda t, p: p.write_text(json.dumps(t.to_dict("list")), encoding="utf-8")),
        {},
    ),
    "a list within an object": (
        "a.json",
        raw(json.dumps({"version": 1, "data": [dict(zip(("text", "label"), r, strict=True)) for r in ROWS]})),
        {},
    ),
    "Excel csv, an empty column": ("a.csv", raw(f'text,label,\r\n"{TEXTS[0]}",good,\r\n{TEXTS[1]},bad,\r\n'), {}),
    "Excel csv, cells used once": ("a.csv", raw(f'text,label\r\n"{TEXTS[0]}",good,,\r\n{TEXTS[1]},bad,,\r\n'), {}),
    "Excel csv, the last cells left out": (
        "a.csv",
        raw(f'text,label,,\r\n"{TEXTS[0]}",good\r\n{TEXTS[1]},bad,,\r\n'),
        {},
    ),
    "Excel csv, a title": (
        "a.csv",
        raw(f'Report 2026,\r\n,\r\ntext,label\r\n"{TEXTS[0]}",good\r\n{TEXTS[1]},bad\r\n'),
        {},
    ),
    "Excel csv, a title alone in its line": ("a.csv", raw(f"Report 2026\n\ntext,label\n{CSV}"), {}),
    "Excel csv, a title above names of the user": (
        "a.csv",
        raw(f"Report,\nreview,stars\n{CSV}"),
        {"text": ("review",), "label": "stars"},
    ),
    "Excel csv of a country with decimal commas": (
        "a.csv",
        raw(f"text;label\r\n{TEXTS[0]};good\r\n{TEXTS[1]};bad\r\n"),
        {},
    ),
    "Excel csv, sep=": ("a.csv", raw(f"sep=;\r\ntext;label\r\n{TEXTS[0]};good\r\n{TEXTS[1]};bad\r\n"), {}),
    "Excel Unicode text": ("a.txt", raw(f"text\tlabel\r\n{TEXTS[0]}\tgood\r\n{TEXTS[1]}\tbad\r\n", "utf-16"), {}),
    "Excel for Mac, old line ends": ("a.csv", raw(f'text,label\r"{TEXTS[0]}",good\r{TEXTS[1]},bad\r'), {}),
    "names in decomposed letters": ("a.csv", raw(f"{DECOMPOSED},라벨\n{CSV}"), {}),
    "names with spaces around them": ("a.csv", raw(f"text , label\n{CSV}"), {}),
    "mixed line ends": ("a.csv", raw(f'text,label\n"{TEXTS[0]}",good\r\n{TEXTS[1]},bad\n'), {}),
    "no line end at the end": ("a.csv", raw(f"text,label\n{CSV}".rstrip("\n")), {}),
    "a byte order mark and quotation marks": ("a.csv", raw(f'\ufeff"text","label"\n{CSV}'), {}),
    "UTF-16, big endian": (
        "a.csv",
        lambda p: p.write_bytes(codecs.BOM_UTF16_BE + f"text,label\n{CSV}".encode("utf-16-be")),
        {},
    ),
    "LibreOffice csv": ("a.csv", raw(f'"text","label"\n"{TEXTS[0]}","good"\n"{TEXTS[1]}","bad"\n'), {}),
    "Google Sheets tsv": ("a.tsv", raw(f"text\tlabel\r\n{TSV}".replace("\n", "\r\n")), {}),
    "Google Forms": (
        "a.csv",
        raw(
            f'"Timestamp","텍스트","label"\n"2026/01/02 3:04 PM","{TEXTS[0]}","good"\n"2026/01/02","{TEXTS[1]}","bad"\n'
        ),
        {},
    ),
    "R write.csv": ("a.csv", raw(f'"","text","label"\n"1","{TEXTS[0]}","good"\n"2","{TEXTS[1]}","bad"\n'), {}),
    "R write.csv2": ("a.csv", raw(f'"";"text";"label"\n"1";"{TEXTS[0]}";"good"\n"2";"{TEXTS[1]}";"bad"\n'), {}),
    "R write.table, tabs": (
        "a.tsv",
        raw(f'"text"\t"label"\n"1"\t"{TEXTS[0]}"\t"good"\n"2"\t"{TEXTS[1]}"\t"bad"\n'),
        {},
    ),
    "R write.table, commas": ("a.csv", raw(f'"text","label"\n"1","{TEXTS[0]}","good"\n"2","{TEXTS[1]}","bad"\n'), {}),
    "R write_tsv": ("a.tsv", raw(f"text\tlabel\n{TSV}"), {}),
    "a csv named .txt": ("a.txt", raw(f"text\tlabel\n{TSV}"), {}),
    "a tsv with quoted cells": ("a.tsv", raw(f'text\tlabel\n"{TEXTS[0]}"\tgood\n{TEXTS[1]}\tbad\n'), {"kind": "csv"}),
    "a workbook with an empty first sheet": ("a.xlsx", book([], [["text", "label"], *map(list, ROWS)]), {}),
    "a workbook with a title over several cells": (
        "a.xlsx",
        book([["Report"], [], ["text", "label"], *map(list, ROWS)], merge="A1:B1"),
        {},
    ),
    "a workbook with an index": ("a.xlsx", book([[None, "text", "label"], [0, *ROWS[0]], [1, *ROWS[1]]]), {}),
    "a workbook with a note beside the table": (
        "a.xlsx",
        book([["text", "label"], [*ROWS[0], None, "note"], list(ROWS[1])][:1] + [list(r) for r in ROWS]),
        {},
    ),
    "a workbook with a nameless last column": (
        "a.xlsx",
        book([["text", "label", None], [*ROWS[0], 3], [*ROWS[1], None]]),
        {},
    ),
    "Stata, by pandas": ("a.csv", frame(by_stata), {}),
    "fastText": ("a.txt", raw("".join(f"__label__{label} {text}\n" for text, label in ROWS)), {}),
}


@pytest.mark.parametrize(("name", "write", "options"), READ.values(), ids=READ)
def test_read_as_it_is(tmp_path: Path, name: str, write: Write, options: dict[str, Any]) -> None:
    write(tmp_path / name)
    examples, _ = SkipReport.collect(TASKS["sequence"].rows(tmp_path / name, TableFormat.of(**options)), name)
    assert [(one.texts[0], one.label) for one in examples] == ROWS


CELLS: dict[
    str, tuple[str, str, Write, dict[str, Any], list[Any]]
] = {  # task, file, writer, options, labels or reasons
    "decimal commas": ("regression", "a.csv", raw("text;label\na;4,5\nb;1.234,5\nc;0,123\n"), {}, [4.5, 1234.5, 0.123]),
    "thousands separators": (
        "regression",
        "a.csv",
        raw('text,label\na,"1,234.5"\nb,"1,234,567"\nc,1 234\n'),
        {},
        [1234.5, 1234567.0, 1234.0],
    ),
    "a comma that may be either": (
        "regression",
        "a.csv",
        raw('text,label\na,"1,234"\nb,5\n'),
        {},
        ["label has a comma that may separate thousands or decimals; write 1234 or 1.234", 5.0],
    ),
    "percentages": ("regression", "a.csv", raw("text,label\na,45%\nb,4.5 %\nc,−3\n"), {}, [0.45, 0.045, -3.0]),
    "numbers of a workbook": (
        "regression",
        "a.xlsx",
        book([["text", "label"], ["a", 4.5], ["b", 3], ["c", "2,5"]]),
        {},
        [4.5, 3.0, 2.5],
    ),
    "missing numbers": (
        "regression",
        "a.csv",
        frame(lambda t, p: t.to_csv(p), text=["a", "b"], label=[1.5, None]),
        {},
        [1.5, "no label"],
    ),
    "R's NA": ("regression", "a.csv", raw('"text","label"\n"a",NA\n"b",2\n'), {}, ["label is not a number", 2.0]),
    "truth values of pandas": (
        "sequence",
        "a.csv",
        frame(lambda t, p: t.to_csv(p), text=["a", "b"], label=[True, False]),
        {},
        ["True", "False"],
    ),
    "truth values of a workbook": (
        "sequence",
        "a.xlsx",
        book([["text", "label"], ["a", True], ["b", False]]),
        {},
        ["true", "false"],
    ),
    "numbers of classes in a workbook": (
        "sequence",
        "a.xlsx",
        book([["text", "label"], ["a", 1], ["b", 0]]),
        {},
        ["1", "0"],
    ),
    "labels merged over rows": (
        "sequence",
        "a.xlsx",
        book([["text", "label"], ["a", "good"], ["b", None], ["c", None], ["d", "bad"]], merge="B2:B4"),
        {},
        ["good", "good", "good", "bad"],
    ),
    "a column for each label": (
        "multilabel",
        "a.csv",
        frame(lambda t, p: t.to_csv(p), text=["a", "b"], x=[1, 0], y=[1.0, None]),
        {"label": "x,y"},
        [("x", "y"), ()],
    ),
    "a column for each label, with x": (
        "multilabel",
        "a.csv",
        raw("text,x,y\na,x,\nb,,maybe\n"),
        {"label": "x,y"},
        ["x is neither 0 nor 1", "y is neither 0 nor 1"],
    ),
    "an empty row in the middle": ("sequence", "a.csv", raw("text,label\na,x\n,\nb,y\n"), {}, ["x", "empty text", "y"]),
    "a total below": ("sequence", "a.csv", raw("text,label\na,x\nTotal: 1\n"), {}, ["x", "1 column instead of 2"]),
    "an unquoted comma": ("sequence", "a.csv", raw("text,label\na,x\nb, c,y\n"), {}, ["x", "3 columns instead of 2"]),
    "a long cell": ("sequence", "a.csv", raw(f'text,label\n{LONG},x\n"{LONG}\n{LONG}",y\n'), {}, ["x", "y"]),
    "a line end in a cell": (
        "sequence",
        "a.csv",
        frame(lambda t, p: t.to_csv(p), text=["a\nb", "c\r\nd"], label=["x", "y"]),
        {},
        ["x", "y"],
    ),
    "a line end in a cell of a tsv": (
        "sequence",
        "a.tsv",
        frame(lambda t, p: t.to_csv(p, sep="\t", index=False), text=["a\nb", "c"], label=["x", "y"]),
        {},
        ["1 column instead of 2; for values in quotation marks, pass --format csv", "x", "y"],
    ),
    "the same with --format csv": (
        "sequence",
        "a.tsv",
        frame(lambda t, p: t.to_csv(p, sep="\t", index=False), text=["a\nb", "c"], label=["x", "y"]),
        {"kind": "csv"},
        ["x", "y"],
    ),
    "a comma within a semicolon file": ("sequence", "a.csv", raw("text;label\na, b;x\n"), {}, ["x"]),
    "dates": (
        "sequence",
        "a.parquet",
        frame(lambda t, p: t.to_parquet(p), text=["a"], label=["x"], at=[None]),
        {},
        ["x"],
    ),
    "names that --columns repeats": (
        "sequence",
        "a.csv",
        raw("text,label\na,x\n"),
        {"columns": ("text", "label")},
        ["a line with the column names, which --columns names too", "x"],
    ),
    "a nameless column that is asked for": (
        "sequence",
        "a.csv",
        raw("text,\na,x\nb,y\n"),
        {"label": "column 2"},
        ["x", "y"],
    ),
    "pairs with an index": (
        "sequence",
        "a.csv",
        frame(lambda t, p: t.to_csv(p), text1=["a"], text2=["b"], label=["x"]),
        {},
        ["x"],
    ),
    "labels by separators": (
        "multilabel",
        "a.csv",
        raw("text,labels\na,x; y\nb,y\n"),
        {"label_separator": ";"},
        [("x", "y"), ("y",)],
    ),
}


@pytest.mark.parametrize(("task", "name", "write", "options", "expected"), CELLS.values(), ids=CELLS)
def test_cells(
    tmp_path: Path, task: str, name: str, write: Write, options: dict[str, Any], expected: list[Any]
) -> None:
    write(tmp_path / name)
    rows = [*TASKS[task].rows(tmp_path / name, TableFormat.of(**options))]
    assert [row.label if isinstance(row, Example) else row.reason for row in rows] == expected


REFUSED = {  # file, writer, what the error names
    "values without names": ("a.json", oriented("values"), "--columns text,label"),
    "no header": ("a.csv", raw(CSV), "--columns"),
    "an index alone beside the text": (
        "a.csv",
        raw(",text\n0,a\n1,b\n"),
        "no label column was recognized.*Add a column of labels",
    ),
    "UTF-16 without a mark": ("a.csv", raw(CSV * 9, "utf-16-le"), "UTF-16 without a byte order mark"),
    "cp949": ("a.csv", raw(f"text,label\n{CSV}", "cp949"), "--encoding cp949"),
    "old Excel": ("a.xls", raw("x"), r"old Excel workbook.*Save it as \.csv"),
    "LibreOffice": ("a.ods", raw("x"), r"LibreOffice.*Save it as \.csv"),
    "SPSS": ("a.sav", raw("x"), "SPSS.*pandas.read_spss"),
    "Stata": ("a.dta", raw("x"), "Stata.*pandas.read_stata"),
    "R": ("a.rds", raw("x"), "file of R.*write.csv"),
    "a pickle": ("a.pkl", raw("x"), "pickle.*to_parquet"),
    "a title, and names that are not known": ("a.csv", raw("Report,\nreview,stars\na,5\n"), "--text"),
}


@pytest.mark.parametrize(("name", "write", "said"), REFUSED.values(), ids=REFUSED)
def test_the_fault_and_the_option_are_named(tmp_path: Path, name: str, write: Write, said: str) -> None:
    write(tmp_path / name)
    with pytest.raises(BertieError, match=f"(?s){said}"):
        SkipReport.collect(TASKS["sequence"].rows(tmp_path / name, TableFormat()), name)


def test_other_worksheets_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [["text", "label"], ["a", "x"]]
    book(rows, rows, titles=("May", "June"))(tmp_path / "a.xlsx")
    assert len([*TASKS["sequence"].rows(tmp_path / "a.xlsx", TableFormat())]) == 1
    assert "worksheet 'May' is read, and not 'June'" in capsys.readouterr().err
