"""Documents in memory, in any form, are those of a file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pandas
import polars
import pyarrow
import pytest

import bertie
from bertie.errors import UsageError

ROWS = [
    {"title": "Reset", "text": "Hold the button for ten seconds to reset it.", "page": 1},
    {"title": "Port", "text": "The port is 8080.", "page": 2},
]
FORMS: dict[str, Callable[[], Any]] = {
    "pandas": lambda: pandas.DataFrame(ROWS),
    "polars": lambda: polars.DataFrame(ROWS),
    "lazy": lambda: polars.DataFrame(ROWS).lazy(),
    "arrow": lambda: pyarrow.Table.from_pylist(ROWS),
    "data set": lambda: datasets.Dataset.from_list(ROWS),
    "dicts": lambda: ROWS,
    "iterator": lambda: iter(ROWS),
    "texts": lambda: (row["text"] for row in ROWS),
    "series": lambda: pandas.DataFrame(ROWS)["text"],
}


@pytest.mark.parametrize("form", FORMS)
def test_documents_in_memory_are_indexed(form: str, tmp_path: Path) -> None:
    with bertie.build_index(FORMS[form](), tmp_path / "index") as index:
        assert index.changes.documents == 2
        (hit,) = index.search("reset", top=1).hits
    assert (hit.passage.text, hit.passage.place) == (ROWS[0]["text"], "documents:1")
    assert hit.passage.title == ("" if form in ("texts", "series") else "Reset")


def test_the_same_rows_again_change_nothing_and_others_replace_them(tmp_path: Path) -> None:
    frame = pandas.DataFrame([*ROWS, {"title": None, "text": float("nan")}])
    before = frame.copy()
    changes = [bertie.build_index(rows, tmp_path / "index").changes for rows in (frame, frame, ROWS[:1])]
    assert [(one.added, one.unchanged, one.replaced, one.rejected) for one in changes] == [
        *((1, 0, 0, 1), (0, 1, 0, 0)),
        (0, 0, 1, 0),
    ]
    pandas.testing.assert_frame_equal(frame, before)


def test_another_value_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="documents is a int; files"):
        bertie.build_index(5, tmp_path / "index")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="documents is a dict; files, a frame"):
        bertie.build_index({"a": 1}, tmp_path / "index")
    assert not (tmp_path / "index").exists()
