"""Frames as people have them: the right result or one clear error, and the frame is as it was."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pytest

import bertie
from bertie.errors import BertieError, DataError, UsageError
from toys import toy_model

ROWS = pandas.DataFrame({"text": ["a b c", "d e f"] * 12, "label": ["x", "y"] * 12})
QUICK: dict[str, Any] = {"epochs": 1, "settings": {"baselines": False, "label_check": "none"}}


def changed(**columns: object) -> pandas.DataFrame:
    return ROWS.assign(**columns)


def with_index(index: Any) -> pandas.DataFrame:
    frame = ROWS.copy()
    frame.index = index
    return frame


def missing() -> pandas.DataFrame:
    frame = ROWS.astype(object)
    frame.loc[3, "text"], frame.loc[4, "text"], frame.loc[5, "label"] = None, np.nan, None
    return frame


FINE: dict[str, tuple[Callable[[], Any], int]] = {  # a frame, and how many of its rows can be evaluated
    "a repeated index": (lambda: with_index([7] * 24), 24),
    "an index of dates": (lambda: with_index(pandas.date_range("2020", periods=24)), 24),
    "an index of two levels": (lambda: with_index(pandas.MultiIndex.from_product([[1, 2], range(12)])), 24),
    "missing values": (missing, 21),
    "categories": (lambda: ROWS.astype({"label": "category"}), 24),
    "nullable types": (lambda: missing().convert_dtypes(), 21),
    "whole numbers": (lambda: changed(label=pandas.array([1, 0] * 12, dtype="Int64")), 24),
    "booleans": (lambda: changed(label=pandas.array([True, False] * 11 + [None, True], dtype="boolean")), 23),
    "Arrow's texts": (lambda: ROWS.astype({"text": "string[pyarrow]"}), 24),
    "a lazy frame": (lambda: polars.from_pandas(ROWS).lazy(), 24),
    "polars' categories": (
        lambda: polars.from_pandas(ROWS).with_columns(polars.col("label").cast(polars.Categorical)),
        24,
    ),
}


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_model(tmp_path_factory.mktemp("model") / "model", "abcdef", max_position_embeddings=128)


@pytest.fixture(scope="module")
def run(start: Path) -> bertie.Run:
    return bertie.finetune(start, ROWS, **QUICK)


@pytest.mark.parametrize("name", FINE)
def test_an_odd_frame_is_read_and_not_changed(name: str, start: Path, run: bertie.Run) -> None:
    make, usable = FINE[name]
    frame = make()
    results = bertie.finetune(start, frame, **QUICK).results
    assert results["train_examples"] + results["dev"]["examples"] == usable  # type: ignore[operator,index]
    assert bertie.evaluate(run, frame)["examples"] == usable
    answers = bertie.predict(run, frame, text="text")
    assert len(answers) == 24
    if isinstance(frame, pandas.DataFrame):
        assert answers.to_pandas().index.equals(frame.index)
        pandas.testing.assert_frame_equal(frame, make())


WRONG: dict[str, tuple[Callable[[], Any], dict[str, Any], type[BertieError], str]] = {
    "two columns of a name": (
        lambda: pandas.concat([ROWS, ROWS[["text"]]], axis=1),
        {},
        UsageError,
        "several columns named 'text'",
    ),
    "no rows": (lambda: ROWS[:0], {}, DataError, "no usable example. It has no rows"),
    "no columns": (pandas.DataFrame, {}, DataError, "no usable example. It has no rows"),
    "one class": (lambda: changed(label="x"), {}, DataError, "at least two labels; .* only 'x'"),
    "numbers as names": (
        lambda: ROWS.set_axis([0, 1], axis=1),
        {},
        DataError,
        "no text column was recognized among '0'",
    ),
    "a number as a name": (
        lambda: ROWS.set_axis([0, 1], axis=1),
        {"text": 0, "label": 1},
        UsageError,
        "text is 0; a text",
    ),
    "a column that is not there": (lambda: ROWS, {"text": "review"}, DataError, "train has no column 'review'"),
    "a Series": (lambda: ROWS["text"], {}, DataError, "no label column was recognized among 'text'"),
}


@pytest.mark.parametrize("values", [[1.0, 0.0], [True, False]])
def test_labels_of_a_column_with_gaps_are_those_of_a_file(values: list[object], start: Path, tmp_path: Path) -> None:
    """pandas has whole numbers with gaps as floats, and writes them so; JSON and CSV write booleans differently."""
    gaps = changed(label=pandas.Series([*values * 11, None, values[1]]))
    run = bertie.finetune(start, gaps, **QUICK)
    assert run.model.labels == (("0", "1") if isinstance(values[0], float) else ("false", "true"))
    gaps.dropna().to_csv(tmp_path / "rows.csv", index=False)
    whole = changed(label=[int(values[0] == 1), int(values[1] == 1)] * 12) if isinstance(values[0], float) else ROWS
    frames = [gaps, tmp_path / "rows.csv", *([whole] if whole is not ROWS else [])]
    scores = [run.model.evaluate(frame, text="text", label="label") for frame in frames]
    assert [one.report["unknown_labels"] for one in scores] == [{}] * len(frames)
    assert scores[0]["accuracy"] == scores[1]["accuracy"]


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_learned_is_one_error(name: str, start: Path) -> None:
    make, columns, kind, told = WRONG[name]
    with pytest.raises(kind, match=told):
        bertie.finetune(start, make(), **columns, **QUICK)


def test_columns_with_numbers_as_names_are_chosen_by_their_text(start: Path) -> None:
    frame = ROWS.set_axis([0, 1], axis=1)
    assert bertie.finetune(start, frame, text="0", label="1", **QUICK).model.labels == ("x", "y")
    assert [*frame.columns] == [0, 1]


def test_an_iterator_that_was_read_before_is_told(
    start: Path, run: bertie.Run, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = iter(ROWS.to_dict("records"))
    bertie.finetune(start, rows, **QUICK)
    with pytest.raises(DataError, match="It has no rows"):
        bertie.finetune(start, rows, **QUICK)
    texts = iter(["a b", "d e"])
    assert (len(bertie.predict(run, texts)), len(bertie.predict(run, texts))) == (2, 0)
    assert "An iterator can be read only once" in capsys.readouterr().err


def test_data_sets_come_in_and_go_out(run: bertie.Run) -> None:
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_pandas(ROWS)
    expected = bertie.predict(run, ROWS, text="text").to_dicts()
    for one in (rows, rows.to_iterable_dataset()):
        assert bertie.evaluate(run, one)["examples"] == 24
        answers = bertie.predict(run, one, text="text").to_datasets()
        assert isinstance(answers, datasets.Dataset)
        assert answers.to_list() == expected
    assert rows.column_names == ["text", "label"]


def test_a_run_is_a_path_to_its_model(run: bertie.Run, tmp_path: Path) -> None:
    assert bertie.load(run).labels == run.model.labels == ("x", "y")
    assert bertie.verify(run).ok
    assert bertie.predict(run, ["a b c"]).labels == run.model.predict(["a b c"]).labels
