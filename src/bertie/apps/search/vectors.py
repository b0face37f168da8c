"""Vectors of passages: int8 rows with one scale each, in files that are only ever added, searched exactly.

    score(question, passage) = scale of the row x (int8 row . float32 question)

A file has at most ROWS rows, and the numbers of their passages. The rows of removed passages stay until all passages
of a file are gone; results that have no passage any more are skipped. Files are memory-mapped, so several processes
share one copy.

N rows of a file · H numbers of a vector · Q questions
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertie.platform import DataError, File

FILE_ROWS = 1 << 17
_BLOCK_ROWS = 1 << 10  # rows computed at once: their float32 copy stays in the cache

Float = NDArray[np.float32]
Int = NDArray[np.int64]


class Gone(DataError):
    """A file that an index lists is missing; or another process has just replaced the index."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} is missing.", hint="Make the index again with --overwrite.")


@dataclass(frozen=True)
class VectorFile:
    """One file of vectors, memory-mapped. ids (N,): the passages; rows (N, H) int8; scale (N,)."""

    ids: Int
    rows: NDArray[np.int8]
    scale: Float

    @classmethod
    def open(cls, path: Path) -> "VectorFile":
        """Opens a file. Raises DataError when it is damaged, Gone when it is missing."""
        from safetensors import SafetensorError, safe_open

        File(path).check_readable()
        try:
            with safe_open(path, framework="numpy") as file:
                names = set(file.keys())
            if names != {"ids", "rows", "scale"}:
                raise DataError(f"{path} is not a file of vectors. Make the index again.")
            return cls(**{name: _mapped(path, name) for name in names})
        except FileNotFoundError:
            raise Gone(path) from None
        except SafetensorError as error:
            raise DataError(f"{path} is damaged ({error}). Make the index again.") from None


def _mapped(path: Path, name: str) -> NDArray[Any]:
    """Returns a tensor of a safetensors file without reading it."""
    import json

    kinds = {"I64": np.int64, "I8": np.int8, "F32": np.float32}
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        head = json.loads(file.read(size))[name]
    start, kind = 8 + size + head["data_offsets"][0], kinds[head["dtype"]]
    if 0 in head["shape"]:
        return np.zeros(head["shape"], kind)
    return np.memmap(path, kind, "r", offset=start, shape=tuple(head["shape"]))


def write_vectors(path: Path, ids: Sequence[int], vectors_NH: Float) -> str:
    """Writes a file of vectors, complete on disk when this returns. -> its hash"""
    from safetensors.numpy import save

    rows_NH, scale_N = int8_rows(vectors_NH)
    with File(path).write() as file:
        file.write(save({"ids": np.array(ids, np.int64), "rows": rows_NH, "scale": scale_N}))
    return File(path).hash


def int8_rows(rows_NH: Float) -> tuple[NDArray[np.int8], Float]:
    """Returns int8 rows and their scales: the largest number of a row becomes 127. (N, H) -> (N, H), (N,)"""
    scale_N = (np.abs(rows_NH).max(1, initial=0) / np.float32(127)).astype(np.float32)
    scale_N[scale_N == 0] = 1
    return np.rint(rows_NH / scale_N[:, None]).astype(np.int8), scale_N


def find_nearest_rows(files: Iterable[VectorFile], questions_QH: Float, top: int) -> list[list[tuple[int, float]]]:
    """Returns, for each question, (passage, score) of the rows with the highest products, best first."""
    best: list[list[tuple[int, float]]] = [[] for _ in questions_QH]
    for file in files:
        scores_QN = products(file, questions_QH)
        for hits, scores_N in zip(best, scores_QN, strict=True):
            count = min(top, len(scores_N))
            chosen = np.argpartition(-scores_N, count - 1)[:count] if count else np.zeros(0, np.int64)
            hits += zip(file.ids[chosen].tolist(), scores_N[chosen].tolist(), strict=True)
    return [sorted(hits, key=lambda one: (-one[1], one[0]))[:top] for hits in best]


def products(file: VectorFile, questions_QH: Float) -> Float:
    """Returns the product of each question with each row. (Q, N)"""
    parts = [questions_QH @ block.astype(np.float32).T for block in _blocks(file.rows)]
    scores_QN: Float = np.concatenate([np.zeros((len(questions_QH), 0), np.float32), *parts], 1)
    return scores_QN * file.scale


def _blocks(rows_NH: NDArray[np.int8]) -> Iterator[NDArray[np.int8]]:
    for start in range(0, len(rows_NH), _BLOCK_ROWS):
        yield rows_NH[start : start + _BLOCK_ROWS]
