"""Vectors of texts and of their tokens, as arrays or as a file that is written while they are computed.

N rows · W numbers of a vector
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import IO

import numpy as np

from bertie.api.predicting import RecordTarget, TextSource, written
from bertie.api.results import Written
from bertie.errors import DataError, UsageError
from bertie.files import atomic_write, check_new_file
from bertie.infer.embed import Vector, embed_rows, width_of, write_npy
from bertie.infer.layers import Chunk, TokenVectors, row_vectors, token_vectors
from bertie.infer.pipeline import TextCount
from bertie.infer.predict import Predictor
from bertie.infer.records import WRITERS
from bertie.infer.texts import each_row, tell_unread
from bertie.io.lines import BadRecord
from bertie.io.table_format import Columns
from bertie.io.tables import SkipReport
from bertie.registry import Later

LAST_LAYER = "-1"  # layer
TOKEN_WRITERS = Later[Mapping[str, Callable[[Path, IO[bytes], Iterable[Chunk]], None]]](
    "bertie.apps.embed.token_files", "WRITERS"
)
"""Extension of a file of token vectors -> what writes it."""


def readable_texts(texts: Iterable[object], name: str = "texts") -> list[str | None]:
    """Returns the texts, with None for one that is missing or empty, after a warning. name: of the argument.

    Raises DataError where none can be read.
    """
    rows = [*each_row(texts, name)]
    tell_unread([row for row in rows if isinstance(row, BadRecord)], len(rows))
    return [None if isinstance(row, BadRecord) else row for row in rows]


def list_texts(predictor: Predictor, source: TextSource) -> Iterable[object]:
    """Returns texts, or the texts of one column of rows. Raises DataError for rows of pairs."""
    if not source.check_texts():
        return source.rows  # type: ignore[return-value]  # a path or a lazy frame has columns
    with source.table(keep=False) as (path, format):
        rows = predictor.task.rows(path, format, on_columns=lambda columns: check_single(columns, source))
        return [None if isinstance(row, BadRecord) else row.texts[0] for row in rows]


def check_single(columns: Columns, source: TextSource) -> None:
    """Raises DataError for rows of pairs."""
    if len(columns.text) > 1:
        names = " + ".join(columns.text)
        raise DataError(
            f"{source.rows if source.standard_input else source.name} looks like a table of text pairs ({names}). "
            "Choose the column to embed: `text=COLUMN`."
        )


def embed_texts(predictor: Predictor, texts: Iterable[object], name: str = "texts") -> Vector:
    """Returns the vector of each text; NaN for one that cannot be read. (N, W) name: of the argument, for messages."""
    read = readable_texts(texts, name)
    vectors_NW = np.full((len(read), width_of(predictor)), np.nan, np.float32)
    if filled := {number: text for number, text in enumerate(read) if text is not None}:
        vectors_NW[[*filled]] = predictor.vectors([*filled.values()])
    return vectors_NW


def vectors_of_tokens(
    predictor: Predictor, texts: Iterable[object], layers: str | Sequence[int]
) -> list[TokenVectors | None]:
    """Returns the vectors of the tokens of each text; None for one that cannot be read."""
    numbers = predictor.engine.facts.layer_numbers(layers or LAST_LAYER)
    chunks = token_vectors(
        predictor.engine, predictor.tokenizer, readable_texts(texts), numbers, max_length=predictor.max_length
    )
    return [text for chunk in chunks for text in chunk.texts()]


def write_vectors(predictor: Predictor, source: TextSource, target: RecordTarget) -> Written:
    """Writes the vector of each row, in order: .npy has vectors alone, another file the columns of its rows too."""
    kind = target.kind((".npy", *(kind for kind in WRITERS if kind != ".json")))
    form, output = replace(target.form(kind), columns=("vector",)), target.output
    skipped, long = SkipReport(), TextCount(predictor.too_long, predictor.max_length)
    with ExitStack() as stack:
        out = _opened(stack, source, target)
        keep = not target.only_answers and kind in WRITERS
        path, format = stack.enter_context(source.table(keep=keep))

        def check(columns: Columns) -> None:
            form.starts_with(columns.names)
            check_single(columns, source)

        rows = predictor.task.rows(path, format, on_columns=check)
        if kind == ".npy":
            write_npy(predictor, rows, out, skipped, long)
        else:
            with WRITERS[kind](out, form) as write:
                for row, vector in embed_rows(predictor, rows, skipped, long, eager=source.standard_input):
                    record = {"error": vector.reason} if isinstance(vector, BadRecord) else {"vector": vector.tolist()}
                    write(row.source, target.numbers(row, skipped.rows), record)
    return written(source, (output,) if isinstance(output, Path) else (), "vectors", skipped, long, form.notes)


def write_vectors_of_tokens(
    predictor: Predictor, source: TextSource, target: RecordTarget, layers: str | Sequence[int]
) -> Written:
    """Writes the vectors of all tokens. Raises UsageError without a file."""
    writers, output = TOKEN_WRITERS.found(), target.output
    kind = target.kind(writers)
    if not isinstance(output, Path):
        raise UsageError("Vectors of tokens need a file. Pass `output=FILE.npz`, FILE.safetensors or FILE.parquet.")
    target.form(kind)
    skipped, long = SkipReport(), TextCount(predictor.too_long, predictor.max_length)
    numbers = predictor.engine.facts.layer_numbers(layers or LAST_LAYER)
    with ExitStack() as stack:
        out = _opened(stack, source, target)
        path, format = stack.enter_context(source.table(keep=False))
        rows = predictor.task.rows(path, format, on_columns=lambda columns: check_single(columns, source))
        writers[kind](output, out, row_vectors(predictor, rows, numbers, skipped, long))
    return written(source, (output,), "vectors", skipped, long)


def _opened(stack: ExitStack, source: TextSource, target: RecordTarget) -> IO[bytes]:
    """Returns the stream to write. A file is written whole, or not at all."""
    if not isinstance(target.output, Path):
        return target.output
    check_new_file(target.output, overwrite=target.overwrite, inputs=[source.name])
    return stack.enter_context(atomic_write(target.output))
