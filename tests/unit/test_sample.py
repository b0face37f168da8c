"""`bertie sample`: tables of made-up examples, the same on every machine."""

import base64
import csv
import io
import json
import random
from pathlib import Path

import numpy as np
import pytest
import xxhash
from PIL import Image
from typer.testing import CliRunner

from bertie.apps import sample
from bertie.apps.cli.table import app
from bertie.apps.sample import SAMPLE_TABLES, Sample, _Row, korean, pictures, scenes, table
from bertie.apps.sample.names import PROPER_NAMES
from bertie.apps.sample.reviews import GRAMMARS, REVIEW_LABELS
from bertie.console import console
from bertie.errors import UsageError
from bertie.io.questions import questions
from bertie.io.table_format import RECOGNISED
from bertie.io.tables import Example
from bertie.io.tagged import sentences
from bertie.registry import Registry

# Of the rows as JSON. A change of a grammar changes what the pages print: change both together.
FINGERPRINTS = {
    ("reviews", "en"): "2e30516d5cacff3f",
    ("reviews", "ko"): "f00c9ad0d9ddb4bb",
    ("names", "en"): "340ac93df2e2ae8e",
    ("names", "ko"): "b928d4aa00f2e5a0",
    ("questions", "en"): "94225070b7353aa3",
    ("questions", "ko"): "b1585459e04645b9",
    ("pairs", "en"): "ade05a644db18936",
    ("pairs", "ko"): "56ac0d3089d67a3a",
    ("directions", "en"): "1d0ee67d8e1d6f8f",
    ("notes", "en"): "d36b55d5ebe99dc4",
    ("pictures", "en"): "92a8e9835f2a8df8",
    ("simple-pictures", "en"): "bf5910f0d8d642fe",
    ("picture-questions", "en"): "b18adb88c3bf4602",
    ("scenes", "en"): "79e95e62e023bba8",
    ("simple-scenes", "en"): "e810b88e3f79665e",
}
ALL = [(name, language) for name, kind in SAMPLE_TABLES.items() for language in kind.languages]


@pytest.fixture(autouse=True)
def _quiet():
    before = vars(console.verbosity).copy()
    yield
    vars(console.verbosity).update(before)


def run(*words: object) -> tuple[int, str]:
    """(exit code, stdout) of `bertie sample ...`; errors of Bertie's escape, as in `main`."""
    done = CliRunner().invoke(app, ["sample", *map(str, words)], catch_exceptions=False)
    return done.exit_code, done.stdout


def fingerprint(rows: list[_Row]) -> str:
    values = [list(row.values()) for row in rows]
    return xxhash.xxh3_64_hexdigest(json.dumps(values, ensure_ascii=False).encode())


def test_every_table_has_a_fingerprint():
    assert list(FINGERPRINTS) == ALL


@pytest.mark.parametrize(("name", "language"), ALL)
def test_the_rows_are_distinct_and_the_same_everywhere(name: str, language: str):
    rows = table(name, language)
    assert len(rows) == len({json.dumps(row) for row in rows}) == SAMPLE_TABLES[name].rows
    assert fingerprint(rows) == FINGERPRINTS[name, language]
    assert len({row[key] for row in rows for key in row if key == "label"}) in (0, 2, 13)
    assert table(name, language, seed=1) != rows
    assert len(table(name, language, rows=7)) == 7


@pytest.mark.parametrize("language", list(GRAMMARS))
def test_labels_of_reviews_are_balanced_and_follow_from_the_words(language: str):
    """The last judgement of a text has the text's label, whatever came before."""
    words = {word: label for label, found in GRAMMARS[language].words.items() for word in found}
    rows = table("reviews", language)
    assert [sum(row["label"] == one for row in rows) for one in REVIEW_LABELS] == [len(rows) / 2, len(rows) / 2]
    for row in rows:
        last = max((row["text"].rfind(word), word) for word in words)
        assert words[last[1]] == row["label"], row["text"]


def test_a_grammar_that_has_said_everything_says_so(monkeypatch: pytest.MonkeyPatch):
    three = Sample("three rows", 5, ".csv", {"en": lambda index, rng: {"text": str(index % 3)}})
    monkeypatch.setattr(sample, "SAMPLE_TABLES", Registry("table", [("three", three)]))
    with pytest.raises(UsageError, match="--rows 3"):
        table("three")


def test_tagged_names_are_read_as_they_were_made(tmp_path: Path):
    path = tmp_path / "names.conll"
    assert run("names", "-o", path)[0] == 0
    read = list(sentences(path, RECOGNISED))
    assert [(one.label, one.texts[0]) for one in read if isinstance(one, Example)] == [
        (tuple(row["tags"]), " ".join(row["tokens"])) for row in table("names")
    ]
    kinds = {tag[2:] for row in table("names") for word, tag in zip(*row.values(), strict=True) if word in PROPER_NAMES}
    assert kinds == {"PER", "LOC", "ORG"}, "the word alone does not tell what it names"


def test_korean_names_and_answers_are_where_they_are_marked():
    for row in table("names", "ko"):
        for entity in row["entities"]:
            said = row["text"][entity["start"] : entity["end"]]
            assert said.startswith(korean.SURNAMES if entity["label"] == "PER" else korean.VILLAGE_STARTS)
            assert said.endswith(korean.TRADES) == (entity["label"] == "ORG")
    for row in table("questions", "ko"):
        (answer,) = row["answers"]
        assert row["context"][answer["answer_start"] :].startswith(answer["text"])


def test_answers_are_where_their_start_says(tmp_path: Path):
    path = tmp_path / "questions.jsonl"
    assert run("questions", "-o", path)[0] == 0
    read = list(questions(path))
    assert len(read) == SAMPLE_TABLES["questions"].rows
    assert all(one.label and one.label[0][1] >= 0 for one in read if isinstance(one, Example))


def test_pairs_have_scores_from_0_to_5():
    scores = [row["score"] for row in table("pairs")]
    assert (min(scores), max(scores)) == (0, 5)


def test_a_csv_file_that_is_not_replaced_unasked(tmp_path: Path):
    path = tmp_path / "reviews.csv"
    assert run("reviews", "--language", "ko", "-o", path)[0] == 0
    with open(path, encoding="utf-8", newline="") as file:
        assert list(csv.DictReader(file)) == table("reviews", "ko")
    with pytest.raises(UsageError, match="--overwrite"):
        run("reviews", "-o", path)
    assert run("reviews", "-o", path, "--overwrite")[0] == 0
    assert path.read_text().startswith("text,label\n")


def test_standard_output_is_the_table_or_json_lines():
    assert run("reviews")[1].splitlines()[0] == "text,label"
    first = run("reviews", "--json")[1].splitlines()[0]
    assert json.loads(first) == table("reviews")[0]


@pytest.mark.parametrize(
    ("words", "said"),
    [(["reveiws"], "reviews"), (["reviews", "--language", "de"], "en, ko"), (["reviews", "-o", "r.parquet"], ".csv")],
)
def test_what_there_is_not_is_named(words: list[str], said: str):
    with pytest.raises(UsageError, match=said):
        run(*words)


def center(url: str, color: str) -> tuple[float, float] | None:
    """Where the only thing of a color lies in a picture: x, y. None: two things have the color."""
    with Image.open(io.BytesIO(base64.b64decode(url.split(",")[1]))) as picture:
        rows, columns = (np.asarray(picture) == pictures.PICTURE_COLORS[color]).all(-1).nonzero()
    if max(np.ptp(rows), np.ptp(columns)) >= pictures.SIDE:
        return None
    return float(columns.mean()), float(rows.mean())


@pytest.mark.parametrize("name", ["pictures", "simple-pictures"])
def test_what_is_said_of_a_picture_is_true(name: str):
    told = 0
    for row in table(name):
        _, color, _, where, *rest = row["text"].replace(" of ", " ").split()
        this, that = center(row["image"], color), (15.5, 15.5)
        if rest[-1] != "middle":
            that = center(row["image"], rest[1])
        if this and that:
            (x, y), (to_x, to_y), told = this, that, told + 1
            assert {"left": x < to_x, "right": x > to_x, "above": y < to_y, "below": y > to_y}[where], row["text"]
    assert told > 400


def block(color: str, level: int) -> dict[str, object]:
    return {"type": "square", "color": color, "size": 20, "x_loc": 40, "y_loc": scenes.BLOCK_LEVELS[level]}


def test_a_scene_of_nlvr_is_vectors_of_its_boxes_and_items():
    circle = {"type": "circle", "color": "Yellow", "size": 10, "x_loc": 90, "y_loc": 47}
    vectors = scenes.regions([[block("Black", 0), block("#0099ff", 1)], [], [circle]])
    assert [len(vector) for vector in vectors] == [27] * 6
    assert [vector[-1] for vector in vectors] == [1, 0, 0, 1, 1, 0]
    first, last = vectors[1], vectors[-1]
    assert first[:12] == [1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0]
    assert first[22:26] == [1, 0, 0, 0]
    assert last[:14] == [0, 0, 1, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0.9, 0.47]
    assert last[14:22] == [0, 0, 1, 0, 0, 0, 1, 0]


@pytest.mark.parametrize(
    ("said", "true", "false"),
    [
        ("there is a tower with a blue block over a black block", ["Black", "#0099ff"], ["#0099ff", "Black"]),
        ("there is a tower with a blue block under a black block", ["#0099ff", "Black"], ["Black", "#0099ff"]),
        ("there is a tower with a yellow block at the top", ["Black", "Yellow"], ["Yellow", "Black"]),
        ("there are two towers with only black blocks", ["Black", "Black"], ["Black", "Yellow"]),
        ("there is a tower where the second block from the base is blue", ["Black", "#0099ff"], ["#0099ff", "Black"]),
    ],
)
def test_what_is_said_of_towers_is_true(said: str, true: list[str], false: list[str]):
    rng = random.Random(0)
    statement = next(test for text, test in iter(lambda: scenes._about_towers(rng), None) if text == said)
    for colors, expected in ((true, True), (false, False)):
        assert (
            statement(
                [
                    [block(color, level) for level, color in enumerate(colors)],
                    [block("Black", 0)],
                    [block("#0099ff", 0)],
                ]
            )
            is expected
        )


def test_the_statement_tells_nothing_about_its_truth():
    rows = table("scenes", rows=2000)
    words = {word for row in rows for word in row["text"].split()}
    assert 0.45 < sum(row["label"] == "true" for row in rows) / len(rows) < 0.55
    for word in words:
        truths = [row["label"] == "true" for row in rows if word in row["text"].split()]
        assert abs(sum(truths) / len(truths) - 0.5) < 3.5 * 0.5 / len(truths) ** 0.5, word
