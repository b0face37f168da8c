"""Batches between the server and a worker process: a header in JSON, then the bytes of arrays.

    length of the header · length of the arrays · header · arrays      two little-endian uint32, JSON, raw bytes

Uses only NumPy. Reading a message cannot run code.
"""

import json
import math
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertie.platform import Sequences

PREFIX = struct.Struct("<II")
_DTYPES = ("<f4", "<i8", "<i4", "|u1", "|b1", "<f8")
EXTRA = "extra."
_ENGINE_ARRAYS = ("input_ids", "token_type_ids", "lengths", "positions")  # of `Sequences`, by an engine
ATTENTION, TELLING, WORDS = "attention", "telling", "words"  # of one text: asked for, or sent
GENERATED_TOKEN = "token"  # of a text that is being generated
_MAX_COPIED_BYTES = 1 << 16  # bytes that are copied sooner than sent in parts
Arrays = Mapping[str, NDArray[np.generic]]


def pack_message(header: Mapping[str, object], arrays: Arrays) -> list[bytes | memoryview]:
    """Returns one message in parts to write. A small message is one part, so that its reader wakes once."""
    whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    shapes = [(name, array.dtype.str, array.shape) for name, array in whole.items()]
    text = json.dumps({**header, "arrays": shapes}).encode()
    size = sum(array.nbytes for array in whole.values())
    parts: list[bytes | memoryview] = [PREFIX.pack(len(text), size), text]
    parts += [array.data.cast("B") for array in whole.values() if array.size]
    return parts if size > _MAX_COPIED_BYTES else [b"".join(parts)]


def unpack_message(text: bytes, data: bytes | bytearray) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Returns the header and the arrays of a message. Raises ValueError for a damaged message."""
    header, arrays, at = json.loads(text), dict[str, NDArray[np.generic]](), 0
    for name, kind, shape in header.pop("arrays"):
        if kind not in _DTYPES:
            raise ValueError(f"arrays of {kind} are not sent")
        count = math.prod(shape)
        arrays[name] = np.frombuffer(data, kind, count, at).reshape(shape)
        at += arrays[name].nbytes
    return header, arrays


def arrays_of(ids: Sequences) -> dict[str, NDArray[np.generic]]:
    """Returns the arrays of a batch by name."""
    own = {name: getattr(ids, name) for name in _ENGINE_ARRAYS}
    return own | {EXTRA + name: array for name, array in ids.extra.items()}


def read_sequences(arrays: Arrays) -> Sequences:
    """Returns the batch of such arrays."""
    extra = {name.removeprefix(EXTRA): array for name, array in arrays.items() if name.startswith(EXTRA)}
    return Sequences(**{name: arrays[name] for name in _ENGINE_ARRAYS}, extra=extra)  # type: ignore[arg-type]
