"""The columns of a table without usual names are told by their values, and several make one text by a template."""

import io
import json
import random
from pathlib import Path

import pandas as pd
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from bertie import finetune, load
from bertie.console import Verbosity, console
from bertie.errors import BertieError, DataError, UsageError
from bertie.io.columns import find_columns
from bertie.io.fields import Template, columns_in, is_template
from bertie.io.memory import open_as
from bertie.io.table_format import Columns, TableFormat
from bertie.io.tables import Example, read_examples, stream_examples
from bertie.tasks import TASKS
from toys import CommandLine, toy_model

WORDS = "the a film plot is was rather good bad long short funny and of music".split()


def sentences(rows: int = 60, words: int = 8, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(words - 3, words + 3))) for _ in range(rows)]


def columns_of(columns: dict[str, list[object]], **options: object) -> Columns:
    rows = [dict(zip(columns, map(str, row), strict=True)) for row in zip(*columns.values(), strict=True)]
    return find_columns(tuple(columns), Columns(**options), "t.csv", lambda: rows)  # type: ignore[arg-type]


HALF = ["pos", "neg"] * 30
TABLES: dict[str, tuple[dict[str, list[object]], str, str]] = {
    "two columns": ({"review": [*sentences()], "sentiment": [*HALF]}, "review", "sentiment"),
    "the label first": ({"category": [*HALF], "content": [*sentences()]}, "content", "category"),
    "an identifier and a date beside them": (
        {
            "id": [f"a{i:04x}" for i in range(60)],
            "comment_text": [*sentences()],
            "created": [f"2024-03-{i % 28 + 1:02d} 10:00" for i in range(60)],
            "toxic": [i % 2 for i in range(60)],
        },
        "comment_text",
        "toxic",
    ),
    "Korean": (
        {"제목": [f"제목 {i}" for i in range(60)], "내용": [*sentences()], "분류": ["좋음", "나쁨"] * 30},
        "내용",
        "분류",
    ),
    "a long text beside a short one": (
        {"headline": [*sentences(words=4)], "body": [*sentences(words=40, seed=1)], "kind": [*HALF]},
        "body",
        "kind",
    ),
    "numbers of rows": ({"n": [*range(60)], "said": [*sentences()], "y": [*HALF]}, "said", "y"),
    "many labels": ({"utterance": [*sentences()], "wish": [f"w{i % 55}" for i in range(60)]}, "utterance", "wish"),
    "a number for a label": ({"essay": [*sentences()], "grade": [i * 0.37 for i in range(60)]}, "essay", "grade"),
    "words instead of sentences": (
        {"name": [f"name{i}" for i in range(60)], "gender": ["f", "m"] * 30},
        "name",
        "gender",
    ),
    "one row": ({"review": ["a lovely film"], "stars": [5]}, "review", "stars"),
}


@pytest.mark.parametrize(("columns", "text", "label"), TABLES.values(), ids=TABLES)
def test_they_are_recognized(columns: dict[str, list[object]], text: str, label: str) -> None:
    assert columns_of(columns) == Columns((text,), label)
    assert columns_of(columns, label=None).text == (text,)
    assert columns_of(columns, text=(text,)) == Columns((text,), label)
    assert columns_of(columns, label=label) == Columns((text,), label)


def test_what_was_taken_is_told_with_the_options() -> None:
    columns = TABLES["two columns"][0]
    told = "text column `review`, label column `sentiment`, recognized by their values; for others, pass "
    assert str(columns_of(columns)) == f"{told}--text and --label"
    assert str(columns_of(columns, text=("review",))) == f"{told}--label"
    assert str(columns_of(columns, text=("review",), label="sentiment")) == told.partition(", rec")[0]


REFUSED: dict[str, tuple[dict[str, list[object]], str]] = {
    "two texts": (
        {"asked": [*sentences()], "reply": [*sentences(seed=2)], "y": [*HALF]},
        "'asked' and 'reply' may both be the text.*--text '{asked} {reply}'; .*as a pair, --text asked --text reply",
    ),
    "two texts, the longer one last": (
        {"note": [*sentences(words=5)], "asked": [*sentences(words=8)], "reply": [*sentences(words=9)], "y": [*HALF]},
        "'asked' and 'reply' may both be the text",
    ),
    "two labels": (
        {"said": [*sentences()], "rude": [*HALF], "wrong": ["y", "y", "n"] * 20},
        "'rude' and 'wrong' may each be the label.*--label wrong, or all.*multilabel, --label rude,wrong",
    ),
    "a usual name among several": (
        {
            "id": [*range(60)],
            "date": [f"2024-03-{i % 28 + 1:02d}" for i in range(60)],
            "stars": [1, 2, 3, 4, 5] * 12,
            "body_txt": [*sentences()],
            "verdict": ["good", "bad", "mixed"] * 20,
            "author": [f"person {i}" for i in range(60)],
        },
        "'stars' and 'verdict' may each be the label.*--label verdict",
    ),
    "no text": ({"age": [*range(60)], "y": [*HALF]}, "no text column was recognized among 'age', 'y'"),
    "no label": ({"said": [*sentences()], "date": ["2024-01-01"] * 60}, "no label column.*--label date"),
    "no header": ({"a film": [*sentences()], "pos": [*HALF]}, "not a header.*--columns label,text"),
}


@pytest.mark.parametrize(("columns", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_clear_is_one_error_with_the_options(columns: dict[str, list[object]], message: str) -> None:
    with pytest.raises(DataError, match=f"(?s){message}") as error:
        columns_of(columns)
    assert "t.csv" in error.value.message


def test_files_and_frames_are_read_alike(tmp_path: Path) -> None:
    frame = pd.DataFrame({"said": sentences(150), "y": ["pos", "neg"] * 75})
    expected = [*zip(frame.said, frame.y, strict=True)]
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_parquet(tmp_path / "a.parquet")
    frame.to_json(tmp_path / "a.jsonl", orient="records", lines=True)
    with open_as("train", frame) as memory:
        for path in (tmp_path / "a.csv", tmp_path / "a.parquet", tmp_path / "a.jsonl", Path(memory)):
            assert [(one.texts[0], one.label) for one in read_examples(path)[0]] == expected


def test_rows_that_are_looked_at_are_read_once_and_in_order(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "said,y\n" + "".join(f"the film number {i} is fine,{i % 2}\n,\n" for i in range(300))
    )
    records = [*stream_examples(tmp_path / "a.csv")]
    assert [one.line for one in records] == [*range(2, 602)]
    assert sum(hasattr(one, "texts") for one in records) == 300


# Templates -----------------------------------------------------------------------------------------------------------

FILLED = {
    "{title}. {body}": ("T. B", "B", "T"),
    "Title: {title}\nBody: {body}": ("Title: T\nBody: B", "Body: B", "Title: T"),
    "[{title}] {body}": ("[T] B", "B", "[T]"),
    "{title} ({body})": ("T (B)", "(B)", "T"),
    "{title}/{body}": ("T/B", "B", "T"),
    '"{title}" - "{body}".': ('"T" - "B".', '"B".', '"T"'),
    "{{{title}}} {body}!": ("{T} B!", "B!", "{T}"),
}


@pytest.mark.parametrize(("template", "texts"), FILLED.items())
def test_a_missing_value_takes_with_it_what_belongs_to_it(template: str, texts: tuple[str, str, str]) -> None:
    for missing in (None, "", "  ", float("nan")):
        rows = ({"title": "T", "body": "B"}, {"title": missing, "body": "B"}, {"title": "T", "body": missing})
        assert tuple(map(Template.of(template).fill, rows)) == texts
        assert Template.of(template).fill({"title": missing}) == ""


def test_values_of_any_type() -> None:
    row = {"name": " Ada ", "stars": 4.5, "tags": ["a", None, "b"], "new": True}
    assert Template.of("{name}: {stars}, {tags}; {new}").fill(row) == "Ada: 4.5, a, b; true"


def test_what_is_a_template() -> None:
    assert [is_template(text) for text in ("{a}", "a {b}", "a", "{{a}}", "a{}")] == [True, True, False, False, False]
    assert columns_in("{b} {a} {b}") == ("b", "a")
    for text in ("{a} {", "} {a}"):
        with pytest.raises(UsageError, match="single"):
            Template.of(text)


@given(st.text(alphabet="ab{}. ()", max_size=20), st.lists(st.sampled_from(["", "x", "y z"]), min_size=2, max_size=2))
def test_any_template_is_filled_or_refused(text: str, values: list[str]) -> None:
    try:
        filled = Template.of(text).fill({"a": values[0], "b": values[1]}) if is_template(text) else ""
    except BertieError:
        return
    assert all(
        value in filled for name, value in zip("ab", values, strict=True) if f"{{{name}}}" in text and "{{" not in text
    )


def test_a_table_with_a_template(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("title,body,label\nGood,Very good.,y\n,Bad.,n\nFine,,y\n,,n\n")
    examples, skipped = read_examples(tmp_path / "a.csv", TableFormat.of(("{title}. {body}",)))
    assert [one.texts for one in examples] == [("Good. Very good.",), ("Bad.",), ("Fine",)]
    assert skipped.counts == {"empty text": 1}
    pair = read_examples(tmp_path / "a.csv", TableFormat.of(("{title}", "{body}!")))[0]
    assert [one.texts for one in pair] == [("Good", "Very good.!")]
    with pytest.raises(DataError, match=r"has no column 'titel'\. Did you mean 'title'"):
        read_examples(tmp_path / "a.csv", TableFormat.of(("{titel}. {body}",)))
    with pytest.raises(UsageError, match=r"names 3 columns.*pass a template: --text '{title} {body} {label}'"):
        read_examples(tmp_path / "a.csv", TableFormat.of(("title", "body", "label")))


def test_several_templates_are_suggested_as_one(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("title,body,label\nGood,Very good.,y\n")
    for texts in (("{title}", "{body}", "{label}"), ("title", "{body}", "label")):
        with pytest.raises(UsageError, match=r"--text '{title} {body} {label}'"):
            read_examples(tmp_path / "a.csv", TableFormat.of(texts))


@pytest.mark.parametrize(
    ("kind", "text", "label"),
    [
        ("sequence", ("{title} {label}",), ""),
        ("sequence", ("label",), ""),
        ("sequence", ("{title} {kind}",), "kind"),
        ("sequence", ("title", "kind"), "kind"),
        ("regression", ("{title}. {kind}",), "kind"),
        ("multilabel", ("{title}. {kind}",), "kind,label"),
        ("multilabel", ("{title}. {label}",), ""),
        ("choice", ("title", "body", "kind"), "kind"),
    ],
)
def test_a_text_without_the_label(kind: str, text: tuple[str, ...], label: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("title,body,label,kind\nGood,Very good.,1,0\nBad,Very bad.,0,1\n")
    with pytest.raises(UsageError, match=r"label column '(kind|label)' is in the text.*would read the answer"):
        [*TASKS[kind].rows(tmp_path / "a.csv", TableFormat.of(text, label))]
    unlabelled = TableFormat.of(text, label, labelled=False)
    assert [one.label for one in TASKS[kind].rows(tmp_path / "a.csv", unlabelled) if isinstance(one, Example)][:1] == [
        None
    ]


def test_a_column_in_braces_is_a_column(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("{x},label\nGood,y\n")
    assert read_examples(tmp_path / "a.csv", TableFormat.of(("{x}",)))[0][0].texts == ("Good",)


# Questions to a person ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("answer", "label"), [("2\n", "wrong"), ("rude\n", "rude"), ("3\n", ""), ("\n", "")])
def test_a_person_on_a_terminal_is_asked(
    answer: str, label: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "verbosity", Verbosity(asks=True))
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    columns = REFUSED["two labels"][0]
    if label:
        assert columns_of(columns).label == label
    else:
        with pytest.raises(DataError, match="may each be the label"):
            columns_of(columns)
    assert capsys.readouterr().err == "t.csv: which column is the label? 1 rude, 2 wrong: "


# A run and its model --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_model(tmp_path_factory.mktemp("start") / "start", "abcdefghij.")


def table(path: Path, names: str, row: str) -> Path:
    letters = "abcdefghij"
    lines = (row.format(letters[i % 10], letters[i % 7], ("no", "yes")[i % 2]) for i in range(40))
    path.write_text(f"{names}\n" + "".join(f"{line}\n" for line in lines))
    return path


FAST = ("epochs=1", "max_length=16", "train.precision=fp32", "train.batch_size=8")


@pytest.mark.parametrize(
    ("task", "text", "label"),
    [
        ("sequence", ["eins"], "klasse"),
        ("sequence", ["eins", "zwei"], "klasse"),
        ("regression", ["eins", "zwei"], "zahl"),
        ("rank", ["eins", "zwei"], "klasse"),
        ("embed", ["eins", "zwei"], "zahl"),
        ("choice", ["eins", "zwei", "drei", "vier"], "nummer"),
        ("choice", ["eins", "zwei", "drei", "vier"], "name"),
    ],
)
def test_columns_of_any_task_are_remembered(task: str, text: list[str], label: str, start: Path) -> None:
    first, second, third, fourth = (sentences(seed=seed) for seed in range(4))
    rows = pd.DataFrame({"eins": first, "zwei": second, "drei": third, "vier": fourth, "klasse": HALF})
    rows = rows.assign(zahl=[i % 5 for i in range(60)], nummer=[i % 3 for i in range(60)])
    rows["name"] = rows.nummer.map(["zwei", "drei", "vier"].__getitem__)
    quick = {"epochs": 1, "max_length": 16, "settings": {"baselines": False, "label_check": "none"}}
    model = finetune(start, rows, task=task, text=text, label=label, **quick).model
    assert model.predict(rows).labels == model.predict(rows, text=text).labels
    assert model.evaluate(rows) == model.evaluate(rows, text=text, label=label)


def test_a_template_is_remembered(start: Path, tmp_path: Path, bertie: CommandLine) -> None:
    file = table(tmp_path / "a.csv", "title,body,kind", "{0},{1} {0} {1} {0} {1} {0} {1} {0} {1} {0},{2}")
    arguments = ("--text", "{title}. {body}", "--label", "kind", "-o", tmp_path / "run", *FAST)
    bertie.good("finetune", start, "--train", file, *arguments)
    facts = json.loads((tmp_path / "run" / "model" / "bertie.json").read_text())
    assert (facts["text_columns"], facts["label_column"]) == (["{title}. {body}"], "kind")
    rows = [{"title": "a", "body": "b c"}, {"title": None, "body": "b c"}, {"title": "a", "body": ""}]
    (tmp_path / "new.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    lines = bertie.good("predict", tmp_path / "run", tmp_path / "new.jsonl").splitlines()
    scores = [json.loads(line)["scores"] for line in lines]
    model = load(tmp_path / "run")
    assert scores == [one.as_json()["scores"] for one in model.predict(["a. b c", "b c", "a"])]
    assert scores == [one.as_json()["scores"] for one in model.predict(pd.DataFrame(rows))]
    code, _, err = bertie("predict", tmp_path / "run", file, "--text", "{titel}. {body}")
    assert (code, "has no column 'titel'. Did you mean 'title'" in err) == (3, True)
    report = json.loads(bertie.good("evaluate", tmp_path / "run", file, "--json"))
    assert report["examples"] == 40


def test_a_table_without_a_column_of_the_template_is_refused(start: Path, tmp_path: Path, bertie: CommandLine) -> None:
    row = "{0},{1} {0} {1} {0} {1} {0} {1} {0} {1} {0},{2}"
    file = table(tmp_path / "a.csv", "title,body,kind", row)
    arguments = ("--text", "{title}. {body}", "--label", "kind", "-o", tmp_path / "run", *FAST)
    code, _, err = bertie("finetune", start, "--train", file, "--text", "{title} {kind}", *arguments[2:])
    assert (code, "label column 'kind' is in the text '{title} {kind}'" in err) == (2, True), err
    with pytest.raises(UsageError, match="would read the answer"):
        finetune(start, pd.read_csv(file), text="{title} {kind}", label="kind")
    bertie.good("finetune", start, "--train", file, *arguments)
    model = load(tmp_path / "run")
    for names, odd in (
        ("title,bdy,kind", "Did you mean 'bdy'? "),
        ("title,body_text,kind", ""),
        ("title,text,kind", ""),
    ):
        other = table(tmp_path / "other.csv", names, row)
        message = f"the model was trained with '{{title}}. {{body}}', and the table has no column 'body'. {odd}"
        for command in ("predict", "evaluate"):
            code, _, err = bertie(command, tmp_path / "run", other)
            assert (code, message in err, "--text" in err) == (3, True, True), err
        with pytest.raises(DataError, match="has no column 'body'"):
            model.predict(pd.read_csv(other))
        with pytest.raises(DataError, match="has no column 'body'"):
            model.evaluate(pd.read_csv(other))
    (tmp_path / "new.jsonl").write_text('{"text": "a. b c"}\n')
    assert bertie("predict", tmp_path / "run", tmp_path / "new.jsonl")[0] == 3
    (tmp_path / "new.txt").write_text("a. b c\nb\n")
    scores = [one.as_json()["scores"] for one in model.predict(["a. b c", "b"])]
    lines = bertie.good("predict", tmp_path / "run", tmp_path / "new.txt").splitlines()
    assert [json.loads(line)["scores"] for line in lines] == scores
    lines = bertie.good("predict", tmp_path / "run", "-", stdin="a. b c\nb\n").splitlines()
    assert [json.loads(line)["scores"] for line in lines] == scores
    lines = bertie.good("predict", tmp_path / "run", other, "--text", "{title}. {text}").splitlines()
    assert len(lines) == 40


def test_recognized_columns_are_remembered(start: Path, tmp_path: Path, bertie: CommandLine) -> None:
    file = table(
        tmp_path / "a.csv", "id,said,day,y", "x{0}{1},{0} {1} {0} {1} {0} {1} {0} {1} {0} {1} {0},2024-01-02,{2}"
    )
    code, _, err = bertie("finetune", start, "--train", file, "--dev", file, "-o", tmp_path / "run", *FAST)
    told = (
        "a.csv: text column `said`, label column `y`, recognized by their values; for others, pass --text and --label"
    )
    assert (code, told in err) == (0, True), err
    few = tmp_path / "few.csv"  # too few rows to tell
    few.write_text("y,said,other\nyes,a b,c d\n")
    assert "text column `said`, label column `y`\n" in bertie("evaluate", tmp_path / "run", few)[2]


def test_an_answer_holds_for_all_seeds_and_is_saved(
    start: Path,
    tmp_path: Path,
    bertie: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = table(tmp_path / "a.csv", "rude,said,wrong", "{2},{0} {1} {0} {1} {0} {1} {0} {1} {0} {1} {0},{2}")
    monkeypatch.setattr(console, "verbosity", Verbosity(asks=True))
    monkeypatch.setattr("sys.stdin", io.StringIO("wrong\n"))
    finetune(start, file, output=tmp_path / "run", seeds=2, epochs=1, max_length=16, batch_size=8, precision="fp32")
    assert capsys.readouterr().err.count("which column is the label?") == 1
    one = tmp_path / "run" / "seed-1"
    settings = yaml.safe_load((one / "run.yaml").read_text())
    assert (settings["text"], settings["label"]) == (["said"], "wrong")
    assert bertie("finetune", "-c", one / "run.yaml", "-o", tmp_path / "again")[0] == 0
    (one / "results.json").unlink()
    code, _, err = bertie("finetune", "-c", one / "run.yaml", "-o", one)
    assert code == 0, err
