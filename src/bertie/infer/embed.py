"""Sentence embeddings of a stream of texts, written as they are computed.

N texts · H hidden size
"""

import io
from collections.abc import Iterable, Iterator
from typing import IO

import numpy as np
from numpy.typing import NDArray

from bertie.data.tables import InvalidRow, SkipReport
from bertie.infer.predict import Predictor, Row, TooLongCount

Vector = NDArray[np.float32]


def vectors(
    predictor: Predictor,
    rows: Iterable[Row],
    skipped: SkipReport,
    long: TooLongCount | None = None,
    *,
    eager: bool = False,
) -> Iterator[tuple[Row, Vector | InvalidRow]]:
    """Yields each row with its vector (H,), or with the reason why it has none, in order. long: counts truncated
    texts."""
    for row, answer in predictor.stream(rows, eager=eager, long=long):
        skipped.rows += 1
        if isinstance(answer, InvalidRow):
            skipped.add(answer)
            yield row, answer
            continue
        yield row, np.array(answer.label, np.float32)


def write_npy(
    predictor: Predictor, rows: Iterable[Row], out: IO[bytes], skipped: SkipReport, long: TooLongCount | None = None
) -> None:
    """Writes one float32 array (N, H). The number of rows is written into its header at the end."""
    size, count = predictor.engine.facts.hidden_size, 0
    out.write(_header(0, size))
    for _, found in vectors(predictor, rows, skipped, long):
        out.write((np.full(size, np.nan, np.float32) if isinstance(found, InvalidRow) else found).tobytes())
        count += 1
    out.seek(0)
    out.write(_header(count, size))


def _header(rows: int, size: int) -> bytes:
    """Returns the header of a .npy file, with space for a larger number of rows."""
    header = io.BytesIO()
    facts = {"descr": np.lib.format.dtype_to_descr(np.dtype("<f4")), "fortran_order": False, "shape": (rows, size)}
    np.lib.format.write_array_header_1_0(header, facts)
    return header.getvalue()
