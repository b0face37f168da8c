"""Reader of SentencePiece models (spiece.model, sentencepiece.bpe.model) without the SentencePiece library.

The file is a protocol buffer: fields of (number, kind, value). A few fields determine the tokenization, and all others
are skipped. google/sentencepiece, src/sentencepiece_model.proto.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from bertie.errors import BadFile, DataError
from bertie.files import read_small

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
ALGORITHMS: dict[int, Literal["unigram", "bpe"]] = {1: "unigram", 2: "bpe"}
_MAX_BYTES = 128 << 20  # the largest published ones are some 15 MB
MAX_PIECE_BYTES = 1 << 10  # BPE tries every cut of a piece, so time grows with the square

_Value = int | bytes


@dataclass(frozen=True)
class SentencePieceModel:
    """Pieces in the order of their ids, with their log probabilities and kinds (NORMAL, CONTROL ...).

    charsmap: the compiled normalization rules; empty: text is not normalized. prefix_space: whether the first word of a
    text has the mark of a space, as all others (add_dummy_prefix).
    """

    pieces: tuple[str, ...]
    scores: tuple[float, ...]
    kinds: tuple[int, ...]
    algorithm: Literal["unigram", "bpe"]
    unk_id: int
    charsmap: bytes
    byte_fallback: bool
    prefix_space: bool = True

    def merges(self) -> list[tuple[str, str]]:
        """Returns the pairs that BPE merges, ordered by the id of the result, since the model contains only results."""
        ids = {piece: i for i, piece in enumerate(self.pieces)}
        pairs = []
        for piece, i in ids.items():
            if self.kinds[i] == NORMAL:
                halves = ((piece[:cut], piece[cut:]) for cut in range(1, len(piece)))
                known = [(ids[left], ids[right], left, right) for left, right in halves if left in ids and right in ids]
                pairs += [(left, right) for _, _, left, right in sorted(known)]
        return pairs


def read_model(path: Path) -> SentencePieceModel:
    """Reads a model. Raises DataError for another or damaged file, or an algorithm other than Unigram and BPE."""
    data = read_small(path, most=_MAX_BYTES)
    try:
        return _model(data)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    except (ValueError, struct.error) as error:  # UnicodeDecodeError is a ValueError
        raise BadFile(f"{path} is not a complete SentencePiece model ({error}). The file may be truncated.") from None


def _model(data: bytes) -> SentencePieceModel:
    pieces: list[tuple[str, float, int]] = []
    trainer: dict[int, _Value] = {}
    rules: dict[int, _Value] = {}
    for number, value in _fields(data):
        if number == 1:
            pieces.append(_piece(_message(value)))
        elif number == 2:
            trainer = dict(_fields(_message(value)))
        elif number == 3:
            rules = dict(_fields(_message(value)))
    if not pieces:
        raise ValueError("it has no pieces")
    if (algorithm := trainer.get(3, 1)) not in ALGORITHMS or not isinstance(algorithm, int):
        raise ValueError("its algorithm is neither Unigram nor BPE")
    if trainer.get(24):
        raise DataError("Its marks of spaces follow words (treat_whitespace_as_suffix), which is not supported.")
    if charsmap := _message(rules.get(2, b"")):
        check_charsmap(charsmap)
    names, scores, kinds = zip(*pieces, strict=True)
    if len(set(names)) < len(names):
        raise ValueError("a piece is listed twice")
    return SentencePieceModel(
        names,
        scores,
        kinds,
        ALGORITHMS[algorithm],
        unk_id=kinds.index(UNKNOWN) if UNKNOWN in kinds else 0,
        charsmap=charsmap,
        byte_fallback=bool(trainer.get(35, 0)),
        prefix_space=bool(rules.get(3, 1)),
    )


def _piece(data: bytes) -> tuple[str, float, int]:
    fields = dict(_fields(data))
    text, score, kind = fields.get(1, b""), fields.get(2, b"\0\0\0\0"), fields.get(3, NORMAL)
    if not isinstance(text, bytes) or not isinstance(score, bytes) or not isinstance(kind, int):
        raise ValueError("a piece is not text, score and kind")
    if len(text) > MAX_PIECE_BYTES:
        raise ValueError(f"a piece has {len(text):,} bytes")
    (number,) = struct.unpack("<f", score)
    if not -1e30 < number < 1e30:  # also false for NaN
        raise ValueError(f"the score of {text.decode()!r} is {number}")
    return text.decode(), number, kind


def _message(value: _Value) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("a number was found instead of a message")
    return value


def _fields(data: bytes) -> Iterator[tuple[int, _Value]]:
    """Yields each field's number and value: an integer, or bytes that are a text, a message or a packed number."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield number, value
            continue
        if wire == 2:
            size, at = _varint(data, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"byte {at:,} is not the start of a field")
        if at + size > len(data):
            raise ValueError(f"it ends inside a field that begins at byte {at:,}")
        yield number, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Returns the number at a position, seven bits per byte and the lowest first, and the position after it."""
    value = 0
    for position, byte in enumerate(data[at : at + 10]):
        value |= (byte & 127) << 7 * position
        if byte < 128:
            return value, at + position + 1
    raise ValueError(f"byte {at:,} is not the start of a number")


_CHARSMAP_BYTES = np.arange(1, 256)


def check_charsmap(data: bytes) -> None:
    """Raises ValueError unless all positions that a text can lead to are inside the compiled rules ("charsmap").

    The library that reads them (the crate spm_precompiled) does not check: damaged rules would end the process. Four
    bytes are the size of a trie of byte strings (a double array, 32 bits per unit). The replacements follow, each ended
    by a zero byte. google/sentencepiece, src/normalizer.cc.
    """
    size = int.from_bytes(data[:4], "little")
    if len(data) < 4 or not 0 < size <= len(data) - 4 or size % 4:
        raise ValueError(f"its charsmap of {len(data):,} bytes is truncated")
    units, replacements = np.frombuffer(data, "<u4", size // 4, 4).astype(np.int64), data[4 + size :]
    replacements.decode()
    offsets = (units >> 10) << ((units & 1 << 9) >> 6)
    labels = units & (1 << 31 | 0xFF)
    visited = np.zeros(len(units), np.bool_)
    bases = offsets[:1]  # where the children of the nodes just reached begin: that of byte c at base ^ c
    while len(bases):
        if (bases | 0xFF).max() >= len(units):
            raise ValueError("its charsmap points beyond its end")
        bases = np.unique(bases[~visited[bases]])
        visited[bases] = True
        positions = bases[:, None] ^ _CHARSMAP_BYTES
        reached = positions[labels[positions] == _CHARSMAP_BYTES]
        bases = reached ^ offsets[reached]
        ends = bases[units[reached] >> 8 & 1 == 1]
        if len(ends) and (ends.max() >= len(units) or not _begin(units[ends] & (1 << 31) - 1, replacements)):
            raise ValueError("its charsmap has a replacement that does not exist")


def _begin(starts: np.ndarray, text: bytes) -> bool:
    """Returns whether a character, or the end, begins at each of these positions of a UTF-8 text."""
    heads = np.append((np.frombuffer(text, np.uint8) & 0xC0) != 0x80, True)
    return bool(starts.max() <= len(text)) and bool(heads[starts].all())
