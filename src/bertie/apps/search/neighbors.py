"""An approximate index of vectors, for a million passages and more: a graph of neighbors (Malkov and Yashunin 2016).

    question -> graph (usearch, int8) -> WIDER x top candidates -> exact products -> top

The graph is one file beside the vectors, and can be made from them at any time. Passages that were added after it are
compared one by one, until they are a tenth of it. A newer graph is another file; the database says which one holds.

H numbers of a vector
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bertie.apps.search.engine import Float, RankedPassages
from bertie.apps.search.vectors import Gone, VectorFile, find_nearest_rows, int8_rows
from bertie.platform import DataError, File, UsageError

VectorSearch = Literal["auto", "exact", "approximate"]
LARGE = 1_000_000  # vectors: below, every one is compared
FRESH = 0.1  # of the vectors may be newer than the graph
WIDER = 4  # candidates for each passage that is wanted


def needs_graph(how: VectorSearch, rows: int, has_graph: bool) -> bool:
    """Returns whether an index of so many vectors gets a graph. auto keeps the one that there is."""
    return how == "approximate" or (how == "auto" and (has_graph or rows >= LARGE))


def write_graph(path: Path, files: Sequence[VectorFile], old: Path | None, last: int) -> str:
    """Writes the graph of all vectors, complete on disk when this returns. -> its hash

    old: a graph of the vectors up to passage `last`, to which the others are added; None: all are added.

    Raises UsageError when usearch is not installed.
    """
    graph = _library().restore(str(old)) if old else None
    if graph is None:
        last, graph = 0, _library()(ndim=files[0].rows.shape[1], metric="cos", dtype="i8")
    for file in files:
        if len(file.ids) and file.ids[0] > last:
            graph.add(file.ids, np.asarray(file.rows))
    with File(path).write() as new:
        graph.save(new.name)
    return File(path).hash


def open_graph(path: Path) -> object:
    """Returns a graph, memory-mapped. Raises DataError when it is damaged, Gone when it is missing."""
    if not path.is_file():
        raise Gone(path)
    try:
        graph = _library().restore(str(path), view=True)
    except (ValueError, RuntimeError) as error:
        raise DataError(f"{path} is damaged ({error}). {_AGAIN}") from None
    if graph is None:
        raise DataError(f"{path} is damaged. {_AGAIN}")
    return graph


def find_near_passages(graph: Any, last: int, files: Sequence[VectorFile], vector: Float, top: int) -> RankedPassages:
    """Returns (passage, score) of the nearest vectors: of the graph approximately, of the passages after `last`
    exactly. (H,)"""
    fresh = [file for file in files if len(file.ids) and file.ids[0] > last]
    question, _ = int8_rows(vector[None])
    keys = np.sort(graph.search(question[0], min(WIDER * top, len(graph))).keys.astype(np.int64))
    rows = find_nearest_rows(fresh, vector[None], top)[0]
    for file in files:
        ids = keys[(keys >= file.ids[0]) & (keys <= file.ids[-1])] if len(file.ids) else keys[:0]
        at = np.searchsorted(file.ids, ids)
        scores = (file.rows[at].astype(np.float32) @ vector) * file.scale[at]
        rows += zip(ids.tolist(), scores.tolist(), strict=True)
    return sorted(rows, key=lambda one: (-one[1], one[0]))[:top]


_AGAIN = "Make it again: bertie index INPUT -o INDEX --vectors exact, and then --vectors approximate."


def _library() -> Any:
    try:
        from usearch.index import Index
    except ImportError:
        raise UsageError(
            'An approximate index of vectors needs the package usearch. Run: pip install "bertie[usearch]", or pass '
            "--vectors exact."
        ) from None
    return Index
