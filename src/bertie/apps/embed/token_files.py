"""Files of token vectors: .npz, .safetensors and .parquet, written as the vectors are computed.

    layer_0, layer_1 ...  (T, H) float32     text_starts  (N + 1,) int64: the tokens of text i are rows
    input_ids             (T,) int32                      text_starts[i] to text_starts[i + 1]
    offsets               (T, 2) int32       word_ids     (T,) int32, -1 for special tokens
    tokens                (T,) of text in .npz; in .safetensors, UTF-8 bytes in a row, and the end of each in token_ends

A .parquet file has a row per token: row (of the text, from 1), token, id, start, end, word, layer_0, layer_1 ...

N texts · T tokens of all of them · H hidden size
"""

import json
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bertie.platform import Encoding

NO_WORD = -1  # the word of a special token
_BLOCK_TOKENS = 1 << 16  # tokens converted at once
TEXT, ENDS = "tokens", "token_ends"
SAFETENSORS = {"<f4": "F32", "<i4": "I32", "<i8": "I64", "|u1": "U8"}


class TokenChunk(Protocol):
    """The tokens of some texts. encodings: None for a text that could not be read, which has no tokens.

    vectors: layer -> (T, H) float32 with the tokens of all texts in order. lengths: tokens of each text.
    """

    @property
    def encodings(self) -> list[Encoding | None]: ...  # noqa: D102
    @property
    def vectors(self) -> Mapping[int, NDArray[np.float32]]: ...  # noqa: D102
    @property
    def lengths(self) -> NDArray[np.int64]: ...  # noqa: D102


@dataclass
class _Column:
    """An array on disk that grows. shape: without the number of rows."""

    file: IO[bytes]
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    rows: int = 0

    def add(self, values: NDArray[np.generic]) -> None:
        self.file.write(np.ascontiguousarray(values, self.dtype).tobytes())
        self.rows += len(values)

    def copied_to(self, out: IO[bytes]) -> None:
        self.file.seek(0)
        shutil.copyfileobj(self.file, out, 1 << 20)


def _columns_of(encoding: Encoding) -> dict[str, NDArray[np.generic]]:
    words = [NO_WORD if word is None else word for word in encoding.word_ids]
    return {
        "input_ids": np.array(encoding.ids, np.int32),
        "offsets": np.array(encoding.offsets, np.int32).reshape(-1, 2),
        "word_ids": np.array(words, np.int32),
        TEXT: np.frombuffer("".join(encoding.tokens).encode(), np.uint8),
        ENDS: np.cumsum([len(token.encode()) for token in encoding.tokens], dtype=np.int64),
    }


def _spooled(chunks: Iterable[TokenChunk], folder: Path, stack: ExitStack) -> dict[str, _Column]:
    """Writes every array to a file of its own, which has no name and ends with the process."""
    columns: dict[str, _Column] = {}

    def add(name: str, values: NDArray[np.generic]) -> None:
        if name not in columns:
            file = stack.enter_context(tempfile.TemporaryFile(dir=folder))  # noqa: SIM115 (the stack closes it)
            columns[name] = _Column(file, values.dtype.newbyteorder("<"), values.shape[1:])
        columns[name].add(values)

    add("text_starts", np.zeros(1, np.int64))
    tokens = 0
    for chunk in chunks:
        add("text_starts", tokens + np.cumsum(chunk.lengths))
        tokens += int(chunk.lengths.sum())
        for encoding in filter(None, chunk.encodings):
            before = columns[TEXT].rows if TEXT in columns else 0
            for name, values in _columns_of(encoding).items():
                add(name, values + before if name == ENDS else values)
        for layer, vectors in chunk.vectors.items():
            if len(vectors):
                add(f"layer_{layer}", vectors)
    return columns


def _npz(path: Path, out: IO[bytes], chunks: Iterable[TokenChunk]) -> None:
    with ExitStack() as stack:
        columns = _spooled(chunks, path.parent, stack)
        text, ends = columns.pop(TEXT, None), columns.pop(ENDS, None)
        archive = stack.enter_context(zipfile.ZipFile(out, "w", zipfile.ZIP_STORED, allowZip64=True))
        for name, column in columns.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                _npy_header(member, column.dtype, (column.rows, *column.shape))
                column.copied_to(member)
        if text is not None and ends is not None:
            with archive.open(f"{TEXT}.npy", "w", force_zip64=True) as member:
                longest = max(len(token) for block in _tokens(text, ends) for token in block)
                kind = np.dtype(f"<U{max(1, longest)}")
                _npy_header(member, kind, (ends.rows,))
                for block in _tokens(text, ends):
                    member.write(np.array(block, kind).tobytes())


def _npy_header(out: IO[bytes], dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> None:
    facts = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_2_0(out, facts)


def _tokens(text: _Column, ends: _Column) -> Iterator[list[str]]:
    """Yields the tokens of a column of bytes in blocks."""
    text.file.seek(0)
    ends.file.seek(0)
    last = 0
    while len(offsets := np.frombuffer(ends.file.read(8 * _BLOCK_TOKENS), np.int64)):
        sizes = np.diff(offsets, prepend=last)
        last = int(offsets[-1])
        yield [text.file.read(int(size)).decode() for size in sizes]


def _safetensors(path: Path, out: IO[bytes], chunks: Iterable[TokenChunk]) -> None:
    with ExitStack() as stack:
        columns = _spooled(chunks, path.parent, stack)
        header, start = dict[str, object](), 0
        ordered = dict(sorted(columns.items(), key=lambda item: -item[1].dtype.itemsize))  # aligned in the file
        for name, column in ordered.items():
            shape = [column.rows, *column.shape]
            end = start + int(np.prod(shape)) * column.dtype.itemsize
            header[name] = {"dtype": SAFETENSORS[column.dtype.str], "shape": shape, "data_offsets": [start, end]}
            start = end
        head = json.dumps(header).encode()
        head += b" " * (-len(head) % 8)
        out.write(len(head).to_bytes(8, "little") + head)
        for column in ordered.values():
            column.copied_to(out)


def _parquet(path: Path, out: IO[bytes], chunks: Iterable[TokenChunk]) -> None:
    import pyarrow as pa
    import pyarrow.parquet

    with ExitStack() as stack:
        writer, before = None, 0
        for chunk in chunks:
            table = pa.table(_token_rows(chunk, before)) if chunk.lengths.any() else None
            before += len(chunk.encodings)
            if table is None:
                continue
            if writer is None:
                writer = stack.enter_context(pyarrow.parquet.ParquetWriter(out, table.schema))
            writer.write_table(table)


def _token_rows(chunk: TokenChunk, before: int) -> Mapping[str, object]:
    """Returns the columns of a table of tokens. before: the number of earlier texts."""
    import pyarrow as pa

    read = [one for one in chunk.encodings if one is not None]
    numbers = np.repeat(np.arange(before + 1, before + 1 + len(chunk.encodings)), chunk.lengths)
    columns: dict[str, object] = {
        "row": pa.array(numbers, pa.int64()),
        "token": pa.array([token for one in read for token in one.tokens], pa.string()),
        "id": pa.array([i for one in read for i in one.ids], pa.int32()),
        "start": pa.array([start for one in read for start, _ in one.offsets], pa.int32()),
        "end": pa.array([end for one in read for _, end in one.offsets], pa.int32()),
        "word": pa.array([word for one in read for word in one.word_ids], pa.int32()),
    }
    for layer, vectors in chunk.vectors.items():
        flat = pa.array(vectors.ravel(), pa.float32())
        columns[f"layer_{layer}"] = pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
    return columns


WRITERS: dict[str, Callable[[Path, IO[bytes], Iterable[TokenChunk]], None]] = {
    ".npz": _npz,
    ".safetensors": _safetensors,
    ".parquet": _parquet,
}
"""Extension of a file -> what writes it. path: of the file, next to which arrays of unknown length wait."""
