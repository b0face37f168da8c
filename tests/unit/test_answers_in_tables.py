"""Scored tables keep what came in: columns, types, quoted line ends, ids; in csv, Excel, parquet and JSON lines."""

import csv
import io
import json
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from bertie.infer.batching import CHUNK_ROWS
from bertie.infer.records import WRITERS, Form
from bertie.models import families
from bertie.tasks import TASKS, with_task
from bertie.text.tokenizer import Tokenizer
from bertie.training_facts import TrainingFacts
from toys import CommandLine, toy_model

LETTERS = [*"abcdefgh가나다라", *("##" + c for c in "abcdefgh가나다라")]
SCORES = ("scores.bad", "scores.good")
ANSWER = ("predicted_label", "probability", *SCORES)
TEXTS = ['가나, "다라"', "a b\nc, d", "", "=1+2", "h g"]


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    home = tmp_path_factory.mktemp("models")
    start = toy_model(home / "start", LETTERS)
    task = TASKS["sequence"].make(("bad", "good"), {})
    tokenizer = Tokenizer.load(start)
    model, _ = families.load(start, heads=task.heads, seed=0)
    model.labels, model.problem_type = task.labels, task.problem_type
    model.training_facts = with_task(TrainingFacts(max_length=24, too_long="truncate", texts=1), task)
    families.save(model, home / "saved", tokenizer=tokenizer)
    return home / "saved"


def test_the_columns_of_training_are_read_without_options(model, tmp_path, cli) -> None:
    tokenizer = Tokenizer.load(model)
    task = TASKS["sequence"].make(("bad", "good"), {})
    trained, _ = families.load(model, heads=task.heads, seed=0)
    trained.training_facts = with_task(
        TrainingFacts(max_length=24, too_long="truncate", texts=1, text_columns=("review",), label_column="stars"), task
    )
    trained.labels, trained.problem_type = task.labels, task.problem_type
    families.save(trained, tmp_path / "m", tokenizer=tokenizer)
    file, other = tmp_path / "t.csv", tmp_path / "o.csv"
    file.write_text("text,review,label,stars\nx,a b,good,bad\n", "utf-8")
    other.write_text("text,label\na b,bad\n", "utf-8")
    assert "text column `review`, label column `stars`" in cli("evaluate", tmp_path / "m", file)[2]
    for wanted, arguments in (("review", [file]), ("text", [other]), ("text", [file, "--text", "text"])):
        assert f"text column `{wanted}`" in cli("predict", tmp_path / "m", *arguments)[2]


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_the_encoding_of_training_is_read_without_options(model, tmp_path, cli, command) -> None:
    """Where a file is not UTF-8. A UTF-8 file is read as one."""
    tokenizer, task = Tokenizer.load(model), TASKS["sequence"].make(("bad", "good"), {})
    trained, _ = families.load(model, heads=task.heads, seed=0)
    trained.training_facts = with_task(
        TrainingFacts(max_length=24, too_long="truncate", texts=1, encoding="cp949"), task
    )
    trained.labels, trained.problem_type = task.labels, task.problem_type
    families.save(trained, tmp_path / "m", tokenizer=tokenizer)
    told = []
    for name in ("cp949", "utf-8"):
        for kind, separator in (("csv", ","), ("tsv", "\t")):
            (tmp_path / f"{name}.{kind}").write_text(
                f"text{separator}label\na b{separator}bad\n가 나{separator}good\n", name
            )
            out = cli.good(command, tmp_path / "m", tmp_path / f"{name}.{kind}", "--json")
            assert "가 나" in out or command == "evaluate"
            told.append(out)
    assert len(set(told)) == 1
    code, _, err = cli(command, model, tmp_path / "cp949.csv")
    assert (code, "--encoding cp949" in err) == (3, True)


@pytest.fixture
def cli(monkeypatch, capsys) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


def table(texts: list[str], *, encoding: str = "cp949") -> bytes:
    """A csv as Excel exports it on Korean Windows: quoted where needed, rows end with CRLF."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(["id", "label", "text"])
    writer.writerows([f"00{i}", "좋음", text] for i, text in enumerate(texts, 1))
    return out.getvalue().encode(encoding)


@pytest.mark.parametrize(
    ("options", "encoding"),
    [
        (["--excel"], "utf-8-sig"),
        (["--excel", "--output-encoding", "UTF8"], "utf-8-sig"),
        (["--output-encoding", "cp949"], "cp949"),
        ([], "utf-8"),
    ],
)
def test_a_cp949_export_comes_back_with_all_it_held(model, cli, tmp_path, options, encoding):
    source, out = tmp_path / "export.csv", tmp_path / "scored.csv"
    source.write_bytes(table(TEXTS))
    code, _, err = cli("predict", model, source, "-o", out)
    assert code == 3
    assert "--encoding cp949" in err
    cli.good("predict", model, source, "--encoding", "cp949", "-o", out, *options)
    data = out.read_bytes()
    assert data.startswith(b"\xef\xbb\xbf") == (encoding == "utf-8-sig")
    rows = list(csv.DictReader(io.StringIO(data.decode(encoding), newline="")))
    assert [*rows[0]] == ["id", "label", "text", "row", "line", "predicted_label", "probability", *SCORES, "error"]
    assert [row["text"] for row in rows] == TEXTS
    assert [row["id"] for row in rows] == ["001", "002", "003", "004", "005"]
    assert {row["label"] for row in rows} == {"좋음"}
    assert [row["row"] for row in rows] == [*"12345"]
    assert [row["line"] for row in rows] == ["2", "4", "5", "6", "7"]  # the second text has a line end
    assert [bool(row["error"]) for row in rows] == [False, False, True, False, False]
    for row in rows:
        if not row["error"]:
            each = {name: float(row[f"scores.{name}"]) for name in ("bad", "good")}
            assert each[row["predicted_label"]] == float(row["probability"]) == max(each.values())
            assert sum(each.values()) == pytest.approx(1, abs=2e-6)
    assert {row["predicted_label"] for row in rows if not row["error"]} <= {"bad", "good"}
    again = tmp_path / "again.csv"  # what was written can be read and scored again
    cli.good("predict", model, out, "--encoding", encoding, "-o", again)
    rows = list(csv.DictReader(again.open(newline="", encoding="utf-8")))
    assert [row["text"] for row in rows] == TEXTS
    assert {"predicted_label", "predicted_label_2", "input_row", "predicted_error"} < {*rows[0]}


@pytest.mark.parametrize("column", ["labels", "레이블"])
def test_evaluate_never_takes_the_answers_beside_a_column_of_labels(model, cli, tmp_path, column):
    source, out = tmp_path / "in.csv", tmp_path / "scored.csv"
    source.write_text(f"text,{column}\na,bad\na,good\n", encoding="utf-8")
    cli.good("predict", model, source, "-o", out)
    assert out.read_text(encoding="utf-8").startswith(f"text,{column},row,line,predicted_label,")
    scores = [json.loads(cli.good("evaluate", model, file, "--json"))["accuracy"] for file in (source, out)]
    assert scores == [0.5, 0.5]


def test_only_answers_is_the_short_form(model, cli, tmp_path):
    (tmp_path / "in.jsonl").write_text('{"id": "x", "text": "a"}\n{"id": "y", "text": ""}\n')
    out = cli.good("predict", model, tmp_path / "in.jsonl", "--only-answers")
    first, second = map(json.loads, out.splitlines())
    assert [*first] == ["line", "label", "probability", "scores"]
    assert second == {"line": 2, "error": "empty text"}


def test_json_values_stay_what_they_were(model, cli, tmp_path):
    rows = [
        "{not json",
        json.dumps({"id": 7, "text": "a", "label": 1, "stars": 4.5, "tags": ["x"], "more": {"k": None}}),
        json.dumps({"text": "b", "line": "own"}),
    ]
    (tmp_path / "in.jsonl").write_text("\n".join(rows) + "\n")
    found = [json.loads(line) for line in cli.good("predict", model, tmp_path / "in.jsonl").splitlines()]
    assert found[0] == {"row": 1, "line": 1, "error": "not JSON"}
    kept = {"id": 7, "text": "a", "label": 1, "stars": 4.5, "tags": ["x"], "more": {"k": None}, "row": 2, "line": 2}
    assert {name: found[1][name] for name in kept} == kept
    assert found[1]["predicted_label"] in ("bad", "good")
    assert (found[2]["input_line"], found[2]["line"]) == ("own", 3)  # a column the first row did not have
    code, _, err = cli("predict", model, tmp_path / "in.jsonl", "-o", tmp_path / "out.csv")
    assert code == 0
    assert "omitted from the table: 'input_line'" in err


def test_workbooks_in_and_out(model, cli, tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(["번호", "text", "label", "when"])
    for i, text in enumerate(TEXTS, 1):
        book.active.append([i, None, 0.5, datetime(2024, 1, i)])
        book.active.cell(i + 1, 2).value = text or None
        book.active.cell(i + 1, 2).data_type = "s" if text else "n"
    book.save(tmp_path / "in.xlsx")
    cli.good("predict", model, tmp_path / "in.xlsx", "-o", tmp_path / "out.xlsx")
    sheet = openpyxl.load_workbook(tmp_path / "out.xlsx").active
    header, *rows = sheet.iter_rows(values_only=True)
    assert header == ("번호", "text", "label", "when", "row", "line", *ANSWER, "error")
    assert [row[:4] for row in rows] == [
        (i, text or None, 0.5, datetime(2024, 1, i)) for i, text in enumerate(TEXTS, 1)
    ]
    assert sheet["B5"].data_type == "s"  # "=1+2" is no formula
    assert [row[10] for row in rows] == [None, None, "empty text", None, None]
    (tmp_path / "in.csv").write_bytes(table(TEXTS, encoding="utf-8"))
    same = cli.good("predict", model, tmp_path / "in.csv", "--only-answers").splitlines()
    answers = [json.loads(line).get("probability") for line in same]
    assert [row[7] for row in rows] == answers
    (tmp_path / "bad.xlsx").write_bytes(b"PK\x03\x04 cut")
    code, _, err = cli("predict", model, tmp_path / "bad.xlsx")
    assert code == 3
    assert "not a readable Excel workbook" in err


def test_parquet_keeps_types(model, cli, tmp_path):
    when = pa.array([datetime(2024, 1, 1), None, datetime(2024, 1, 3)], pa.timestamp("us"))
    columns = {"id": [1, 2, 3], "text": ["a", None, "가"], "when": when, "list": [[1.5], [], None]}
    pa.parquet.write_table(pa.table(columns), tmp_path / "in.parquet")
    cli.good("predict", model, tmp_path / "in.parquet", "-o", tmp_path / "out.parquet")
    found = pa.parquet.read_table(tmp_path / "out.parquet")
    assert found.select([*columns]).to_pydict() == pa.table(columns).to_pydict()
    assert found.schema.field("when").type == pa.timestamp("us")
    assert found["error"].to_pylist() == [None, "no text", None]
    assert found["row"].to_pylist() == [1, 2, 3]


@pytest.mark.parametrize("kind", [".csv", ".tsv", ".xlsx", ".parquet", ".jsonl"])
def test_vectors_keep_the_columns(model, cli, tmp_path, kind):
    pytest.importorskip("openpyxl")
    (tmp_path / "in.csv").write_bytes(table(TEXTS, encoding="utf-8"))
    out = tmp_path / f"out{kind}"
    cli.good("embed", model, tmp_path / "in.csv", "-o", out)
    again = [json.loads(line) for line in cli.good("predict", model, out, "--text", "text").splitlines()]
    assert [row["id"] for row in again] == ["001", "002", "003", "004", "005"]
    vectors = [row.get("vector") for row in again]
    first = json.loads(vectors[0]) if isinstance(vectors[0], str) else vectors[0]
    assert len(first) == 32
    assert not vectors[2]


@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet"])
def test_a_table_without_rows_is_told_and_keeps_its_header(model, cli, tmp_path, kind):
    file = tmp_path / f"in.{kind}"
    file.write_text("label\ttext\n" if kind == "tsv" else "label,text\n")
    if kind == "parquet":
        pa.parquet.write_table(pa.table({"label": pa.array([], pa.string()), "text": pa.array([], pa.string())}), file)
    heads = {
        "predict": "label,text,row,line,predicted_label,probability,scores.bad,scores.good,error",
        "embed": "label,text,row,line,vector,error",
    }
    for command, head in heads.items():
        code, _, err = cli(command, model, file, "-o", tmp_path / f"{command}.csv")
        assert code == 0
        assert f"in.{kind} has no rows" in err
        assert (tmp_path / f"{command}.csv").read_text() == head + "\n"
    cli.good("predict", model, file, "-o", tmp_path / "answers.csv", "--only-answers")
    assert (tmp_path / "answers.csv").read_text() == "line,label,probability,scores.bad,scores.good,error\n"


def test_a_character_without_a_place_is_told(model, cli, tmp_path):
    (tmp_path / "in.csv").write_text("text\na 😀\nb\n", encoding="utf-8")
    options = ("-o", tmp_path / "out.csv", "--output-encoding", "cp949")
    code, _, err = cli("predict", model, tmp_path / "in.csv", *options)
    assert code == 0
    assert "1 rows have characters that cp949 cannot encode" in err
    assert (tmp_path / "out.csv").read_text(encoding="cp949").splitlines()[1].startswith("a ?,1,2,")


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--excel"], "-o FILE.csv"),
        (["-o", "x.xlsx", "--excel"], "-o FILE.csv"),
        (["-o", "x.parquet", "--output-encoding", "cp949"], "--output-encoding"),
        (["-o", "x.csv", "--output-encoding", "cp9499"], "cp9499"),
        (["-o", "x.csv", "--output-encoding", "cp949", "--excel"], "--excel writes UTF-8"),
        (["-o", "x.docx"], ".xlsx"),
    ],
)
def test_options_that_do_not_go_together(model, cli, options, word):
    code, _, err = cli("predict", model, *options, stdin="a\n")
    assert code == 2
    assert word in err


def test_rows_without_columns_wait_for_the_header():
    """Lines that cannot be decoded, before the first that can."""
    out, form = io.BytesIO(), Form(("label",))
    with WRITERS[".csv"](out, form) as write:
        write(None, {"row": 1, "line": 2}, {"error": "not utf-8"})
        write({"a": "x"}, {"row": 2, "line": 3}, {"label": "good"})
    assert out.getvalue() == b"a,row,line,label,error\n,1,2,,not utf-8\nx,2,3,good,\n"


@pytest.mark.parametrize("rows", [0, 1, CHUNK_ROWS, CHUNK_ROWS + 1])
def test_parquet_of_any_number_of_rows(rows):
    out = io.BytesIO()
    with WRITERS[".parquet"](out, Form(("label",))) as write:
        for number in range(rows):
            write({"v": number}, {"row": number, "line": number}, {"label": "good"})
    assert pa.parquet.read_table(out).num_rows == rows


def test_numbers_that_json_does_not_have_are_null():
    out = io.BytesIO()
    with WRITERS[".jsonl"](out, Form(("label",))) as write:
        write({"x": float("nan"), "y": [1.0, float("inf")], "z": {"a": -float("inf")}}, {"line": 1}, {"label": "good"})
    expected = {"x": None, "y": [1.0, None], "z": {"a": None}, "line": 1, "label": "good"}
    assert json.loads(out.getvalue(), parse_constant=pytest.fail) == expected


def test_a_short_first_row_hides_no_column(model, cli, tmp_path):
    """Not of this row, and not of the others: the header names the columns."""
    (tmp_path / "in.csv").write_text("text,x,y\nshort\na b,2,3\n")
    _, _, err = cli("predict", model, tmp_path / "in.csv", "-o", tmp_path / "out.csv")
    first, second = csv.DictReader(io.StringIO((tmp_path / "out.csv").read_text()))
    assert (first["text"], first["x"], "1 column" in first["error"]) == ("short", "", True)
    assert (second["x"], second["y"]) == ("2", "3")
    assert "omitted" not in err


def test_mixed_columns_of_parquet_become_texts():
    out = io.BytesIO()
    with WRITERS[".parquet"](out, Form(("label",))) as write:
        for value in (1, "x", None, {"k": 1}):
            write({"v": value}, {"row": 1, "line": 1}, {"label": "good"})
    assert pa.parquet.read_table(out)["v"].to_pylist() == ["1", "x", None, '{"k": 1}']


@pytest.mark.parametrize(("empty", "full"), [([], [1, 2]), ({"k": None}, {"k": 1}), ([{"a": []}], [{"a": ["x"]}])])
def test_lists_of_parquet_stay_lists_where_many_rows_have_none(empty, full):
    out, rows = io.BytesIO(), [empty] * CHUNK_ROWS + [full]
    with WRITERS[".parquet"](out, Form(("label",))) as write:
        for number, value in enumerate(rows):
            write({"v": value}, {"row": number, "line": number}, {"label": "good"})
    assert pa.parquet.read_table(out)["v"].to_pylist() == rows


def test_texts_that_parquet_stores_as_bytes_are_written_as_texts(model, cli, tmp_path):
    values = pa.array(["가 b".encode(), b"a\xff"], pa.binary())
    pa.parquet.write_table(
        pa.table({"text": ["a", "b"], "v": values, "w": pa.array([[b"a"], []])}), tmp_path / "in.parquet"
    )
    for kind in (".csv", ".jsonl", ".parquet"):
        cli.good("predict", model, tmp_path / "in.parquet", "-o", tmp_path / f"out{kind}")
    assert [row["v"] for row in csv.DictReader((tmp_path / "out.csv").open())] == ["가 b", "a\\xff"]
    first, second = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    assert (first["v"], first["w"], second["v"]) == ("가 b", ["a"], "a\\xff")
    assert pa.parquet.read_table(tmp_path / "out.parquet")["v"].to_pylist() == values.to_pylist()
