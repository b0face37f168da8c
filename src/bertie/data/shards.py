"""Memory-mapped shards: documents of sentences of values, which are UTF-8 bytes of text or token ids.

    folder/manifest.json               the content, and a hash of every mebibyte of every file; written last
    folder/shard-00000.values          the values of all sentences, concatenated: uint8 | uint16 | uint32
    folder/shard-00000.sentences       the start of each sentence in .values, and the end; int64
    folder/shard-00000.documents       the first sentence of each document, and the end; int64

All are little-endian. The boundaries of shards depend only on the documents, so the same documents give the same bytes.
"""

import itertools
import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np
import xxhash
from numpy.typing import ArrayLike, NDArray

from bertie.errors import BadFile, DataError, Stopped
from bertie.files import Json, JsonObject, read_json, seal, sync_folder, write_json
from bertie.folders import check_folder_kind
from bertie.order import permutation

Array = NDArray[Any]
Int64 = NDArray[np.int64]

SHARDS_FORMAT = "bertie shards 1"
ARRAY_KINDS = {"values": None, "sentences": np.dtype("<i8"), "documents": np.dtype("<i8")}
HASH_BLOCK = 1 << 20  # bytes under one hash: how closely damage can be placed
SHARD = 1 << 28  # values after which a shard is closed, at the end of a document
DType = Literal["uint8", "uint16", "uint32"]


class Shards:
    """A folder of shards, opened for reading. Documents, sentences and values are numbered over all of them."""

    def __init__(self, folder: Path, manifest: Json) -> None:
        self.folder, self.manifest = folder, manifest
        self.dtype = np.dtype(manifest["dtype"])
        self.fingerprint: str = manifest["fingerprint"]
        rows = manifest["shards"]
        self._values = [self._map(row, "values") for row in rows]
        self._sentences = [self._map(row, "sentences") for row in rows]
        self._documents = [self._map(row, "documents") for row in rows]
        self._value_starts = [0, *itertools.accumulate(len(values) for values in self._values)]
        self._sentence_starts = [0, *itertools.accumulate(len(bounds) - 1 for bounds in self._sentences)]
        self._document_starts = [0, *itertools.accumulate(len(bounds) - 1 for bounds in self._documents)]

    @classmethod
    def open(cls, folder: str | Path, *, verify: bool = True) -> "Shards":
        """Opens a finished folder; `verify` reads everything once (GB/s) and compares the hashes.

        Raises DataError, with the file and the position, when it is another folder, unfinished, or damaged.
        """
        folder = Path(folder)
        manifest = read_manifest(folder)
        for row in manifest["shards"]:
            for kind in ARRAY_KINDS:
                _check(folder / f"{row['name']}.{kind}", row[kind], verify=verify)
        return cls(folder, manifest)

    @property
    def num_documents(self) -> int:
        """The number of documents in all shards."""
        return self._document_starts[-1]

    @property
    def num_sentences(self) -> int:
        """The number of sentences in all shards."""
        return self._sentence_starts[-1]

    @property
    def num_values(self) -> int:
        """The number of tokens, or bytes of text, in all shards."""
        return self._value_starts[-1]

    def document(self, i: int) -> range:
        """Returns the numbers of the sentences of document `i`."""
        shard, inside = self._place(self._document_starts, i)
        bounds, first = self._documents[shard], self._sentence_starts[shard]
        return range(first + int(bounds[inside]), first + int(bounds[inside + 1]))

    def sentence(self, j: int) -> Array:
        """Returns the values of sentence `j`, (length,), a view of the file."""
        shard, inside = self._place(self._sentence_starts, j)
        bounds = self._sentences[shard]
        return self._values[shard][bounds[inside] : bounds[inside + 1]]

    def span(self, start: int, stop: int) -> Array:
        """Returns values [start, stop), counted over all shards; a view of the file when they are in one shard."""
        if start >= stop:
            return np.empty(0, self.dtype)
        shard = bisect_right(self._value_starts, start) - 1
        first, end = self._value_starts[shard : shard + 2]
        if stop <= end:
            return self._values[shard][start - first : stop - first]
        if stop > self.num_values:
            raise IndexError(f"values {start:,} to {stop:,} of {self.num_values:,}")
        return np.concatenate([self._values[shard][start - first :], self.span(end, stop)])

    def values(self, sentence_start: int, sentence_stop: int) -> Array:
        """Returns the concatenated values of sentences [sentence_start, sentence_stop)."""
        if sentence_start >= sentence_stop:
            return np.empty(0, self.dtype)
        return self.span(self._offset(sentence_start), self._offset(sentence_stop))

    def sentence_lengths(self) -> NDArray[np.int32]:
        """The number of values of every sentence, (num_sentences,)."""
        lengths = np.empty(self.num_sentences, np.int32)  # no sentence is longer than records.LIMIT, 16 MiB
        for bounds, first in zip(self._sentences, self._sentence_starts, strict=False):
            np.subtract(bounds[1:], bounds[:-1], out=lengths[first : first + len(bounds) - 1], casting="same_kind")
        return lengths

    def shuffled(self, seed: int, block: int = 1 << 16) -> Iterator[int]:
        """Yields the numbers of all sentences in random order."""
        count = self.num_sentences
        order = permutation(max(1, count), seed)
        for start in range(0, count, block):
            yield from order[np.arange(start, min(count, start + block))].tolist()

    def document_bounds(self) -> Int64:
        """The first sentence of every document, and the end, (num_documents + 1,)."""
        starts = [bounds[:-1] + first for bounds, first in zip(self._documents, self._sentence_starts, strict=False)]
        return np.concatenate([*starts, [self.num_sentences]]).astype(np.int64)

    def __iter__(self) -> Iterator[tuple[Array, Int64, Int64]]:
        """The shards in order: values, sentence bounds (into the values), document bounds (into the sentences)."""
        return zip(self._values, self._sentences, self._documents, strict=True)

    def _offset(self, sentence: int) -> int:
        if sentence == self.num_sentences:
            return self.num_values
        shard, inside = self._place(self._sentence_starts, sentence)
        return self._value_starts[shard] + int(self._sentences[shard][inside])

    def _place(self, starts: list[int], i: int) -> tuple[int, int]:
        if not 0 <= i < starts[-1]:
            raise IndexError(f"{i:,} is not in 0 to {starts[-1] - 1:,}")
        shard = bisect_right(starts, i) - 1
        return shard, i - starts[shard]

    def _map(self, row: Json, kind: str) -> Array:
        path, dtype = self.folder / f"{row['name']}.{kind}", ARRAY_KINDS[kind] or self.dtype
        # A plain array over the map: slicing a np.memmap costs ten times as much. An empty file cannot be mapped.
        return np.asarray(np.memmap(path, dtype, "r")) if path.stat().st_size else np.empty(0, dtype)


class ShardWriter:
    """Writes documents into shards, which are valid after `finish` has written the manifest.

    It is a context manager: after an exception, the unfinished shard is removed. Raises Stopped (exit 75) when the disk
    is full.
    """

    def __init__(self, folder: str | Path, dtype: DType | np.dtype[Any], *, shard_values: int = SHARD) -> None:
        self.folder, self.dtype, self.shard_values = Path(folder), np.dtype(dtype).newbyteorder("<"), shard_values
        self.folder.mkdir(parents=True, exist_ok=True)
        self._shards: list[JsonObject] = []
        self._files: dict[str, _HashedFile] = {}
        self._filled = self._sentences = self._documents = 0  # of the open shard

    def add(self, sentences: Sequence[bytes | ArrayLike]) -> None:
        """Appends one document: its sentences, each UTF-8 bytes or token ids. Empty documents are skipped."""
        arrays = [np.frombuffer(s, np.uint8) if isinstance(s, bytes) else np.asarray(s, self.dtype) for s in sentences]
        if arrays:
            bounds = np.cumsum([0, *map(len, arrays)], dtype=np.int64)
            self.extend(np.concatenate(arrays), bounds, np.array([0, len(arrays)]))

    def extend(self, values: Array, sentences: Int64, documents: Int64) -> None:
        """Appends many documents at once, as arrays.

        values (V,); sentences (M + 1,): bounds into the values; documents (D + 1,): bounds into the sentences.
        """
        ends = sentences[documents[1:]]  # of documents, in values
        at = 0
        while at < len(ends):
            room = self.shard_values - self._filled
            stop = min(int(np.searchsorted(ends, sentences[documents[at]] + room)) + 1, len(ends))
            first, last = int(documents[at]), int(documents[stop])
            low, high = int(sentences[first]), int(sentences[last])
            self._append(values[low:high], sentences[first + 1 : last + 1] - low, documents[at + 1 : stop + 1] - first)
            at = stop
            if self._filled >= self.shard_values:
                self._close_shard()

    def finish(self, **facts: object) -> Shards:
        """Closes the last shard, removes old shards of an earlier attempt, writes the manifest, and opens the result.

        `facts` (JSON values) are added to the manifest.
        """
        if self._files or not self._shards:
            self._append(np.empty(0, self.dtype), np.empty(0, np.int64), np.empty(0, np.int64))
            self._close_shard()
        for path in self.folder.glob("shard-*.*"):
            if int(path.name[6:11]) >= len(self._shards):
                path.unlink()
        manifest = {
            "format": SHARDS_FORMAT,
            "dtype": self.dtype.name,
            "fingerprint": _fingerprint(self.dtype.name, self._shards),
            **{
                kind: sum(shard[f"num_{kind}"] for shard in self._shards)
                for kind in ("documents", "sentences", "values")
            },
            **facts,
            "shards": self._shards,
        }
        manifest["seal"] = seal(manifest)
        write_json(self.folder / "manifest.json", manifest)
        return Shards.open(self.folder, verify=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for file in self._files.values():
            file.discard()
        self._files = {}

    def _append(self, values: Array, sentence_ends: Int64, document_ends: Int64) -> None:
        """Writes to the open shard; the ends count from the start of `values`."""
        if not self._files:
            name = f"shard-{len(self._shards):05d}"
            self._files = {kind: _HashedFile(self.folder / f"{name}.{kind}") for kind in ARRAY_KINDS}
            self._files["sentences"].write(np.zeros(1, "<i8"))
            self._files["documents"].write(np.zeros(1, "<i8"))
            self._filled = self._sentences = self._documents = 0
        self._files["values"].write(values.astype(self.dtype, copy=False))
        self._files["sentences"].write((sentence_ends + self._filled).astype("<i8", copy=False))
        self._files["documents"].write((document_ends + self._sentences).astype("<i8", copy=False))
        self._filled += len(values)
        self._sentences += len(sentence_ends)
        self._documents += len(document_ends)

    def _close_shard(self) -> None:
        self._shards.append(
            {
                "name": f"shard-{len(self._shards):05d}",
                "num_documents": self._documents,
                "num_sentences": self._sentences,
                "num_values": self._filled,
                **{kind: file.close() for kind, file in self._files.items()},
            }
        )
        self._files = {}
        sync_folder(self.folder)


class _HashedFile:
    """A file that is written under a temporary name and hashed block by block."""

    def __init__(self, path: Path) -> None:
        self.path, self.temporary = path, path.with_name(f".{path.name}.tmp")
        try:
            self._file = open(self.temporary, "wb")  # noqa: SIM115 (closed by close or discard)
        except OSError as error:
            raise Stopped.for_full_disk(error, path) or error from None
        self._bytes, self._blocks, self._hash = 0, list[str](), xxhash.xxh3_64()

    def write(self, array: Array) -> None:
        data = np.ascontiguousarray(array).data.cast("B") if array.size else memoryview(b"")
        try:
            self._file.write(data)
        except OSError as error:
            raise Stopped.for_full_disk(error, self.path, len(data)) or error from None
        while data:
            piece = data[: HASH_BLOCK - self._bytes % HASH_BLOCK]
            self._hash.update(piece)
            self._bytes += len(piece)
            data = data[len(piece) :]
            if self._bytes % HASH_BLOCK == 0:
                self._blocks.append(self._hash.hexdigest())
                self._hash.reset()

    def close(self) -> JsonObject:
        """Renames the file to its final name, and returns its size and hashes for the manifest."""
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self.temporary.replace(self.path)
        except OSError as error:
            raise Stopped.for_full_disk(error, self.path) or error from None
        if self._bytes % HASH_BLOCK:
            self._blocks.append(self._hash.hexdigest())
        return {"bytes": self._bytes, "blocks": self._blocks}

    def discard(self) -> None:
        self._file.close()
        self.temporary.unlink(missing_ok=True)


def decode_texts(values: Array, bounds: Int64) -> list[str]:
    """Returns the texts between these bounds of UTF-8 bytes."""
    start = int(bounds[0])
    data = values[start : bounds[-1]].tobytes()
    return [data[a:b].decode() for a, b in itertools.pairwise((bounds - start).tolist())]


def read_manifest(folder: Path) -> JsonObject:
    """Returns the manifest of a shard folder after checking it. Raises DataError."""
    path = folder / "manifest.json"
    if not path.exists():
        if not folder.is_dir():
            what = "is a file" if folder.exists() else "does not exist"
            raise DataError(f"{folder} {what}. Build a corpus folder with: bertie corpus FILES -o FOLDER")
        check_folder_kind(folder, "corpus")
        raise DataError(
            f"{folder} has no manifest.json: it is not a corpus folder, or its build was interrupted. Run the "
            "build command again. It continues where it stopped."
        )
    manifest = read_json(path)
    if not isinstance(manifest, dict) or manifest.get("format") != SHARDS_FORMAT:
        version = manifest.get("format") if isinstance(manifest, dict) else type(manifest).__name__
        raise DataError(f"{path} is not the manifest of a corpus ({SHARDS_FORMAT!r} is expected, {version!r} found).")
    if manifest.get("seal") != seal(manifest):
        raise BadFile(
            f"{path} is damaged: it does not match its own hash. Restore the file, or build the corpus again."
        )
    return manifest


def _check(path: Path, row: Json, *, verify: bool) -> None:
    """Raises DataError unless the file has the bytes in the manifest."""
    again = "Restore it from a copy, or make the folder again."
    if not path.exists():
        raise DataError(f"{path} is missing. {again}")
    size = path.stat().st_size
    if size != row["bytes"]:
        raise BadFile(f"{path} is damaged: it has {size:,} bytes instead of {row['bytes']:,}. {again}")
    if not verify or not size:
        return
    data = np.memmap(path, np.uint8, "r").data
    for number, expected in enumerate(row["blocks"]):
        start = number * HASH_BLOCK
        if xxhash.xxh3_64_hexdigest(data[start : start + HASH_BLOCK]) != expected:
            end = min(start + HASH_BLOCK, size)
            raise BadFile(f"{path} is damaged between bytes {start:,} and {end:,}: the hash differs. {again}")


def _fingerprint(dtype: str, shards: Iterable[Json]) -> str:
    """Returns a hash of the content of all shards."""
    digest = xxhash.xxh3_128(dtype.encode())
    for shard in shards:
        for kind in ARRAY_KINDS:
            digest.update("".join(shard[kind]["blocks"]).encode() + b"\n")
    return digest.hexdigest()
