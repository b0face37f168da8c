"""Decontamination: finds training text that shares long n-grams of words with evaluation sets.

Brown et al. 2020 (appendix C) use n-grams of 8 to 13 words, depending on the lengths of a set's examples; here, it
depends on the length of each example. Only hashes of a set are stored, ten bytes per n-gram.

R n-grams
"""

import io
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import cast

import numpy as np
import safetensors
import safetensors.numpy
import xxhash
from numpy.typing import NDArray

from bertie.console import counted
from bertie.data.dedup import runs, word_hashes
from bertie.errors import DataError
from bertie.files import parse_json, write_bytes
from bertie.io import rows, tagged
from bertie.io.lines import BadRecord, open_file, read_whole
from bertie.io.streams import suffix_of
from bertie.io.table_format import TableFormat
from bertie.order import U64
from bertie.text.normalize import clean

LONG, SHORT = 13, 8  # words of a run; an example of fewer is looked for whole, one of fewer than SHORT not at all
LONG_HANGUL, SHORT_HANGUL = 8, 5  # an eojeol carries its particles: 13 words of English are about 8 of them
SIEVE_BITS = 24

_HANGUL = re.compile("[가-힣]")
_LETTER = re.compile(r"[^\W\d_]")


@dataclass(frozen=True)
class Evaluation:
    """The n-grams of some evaluation sets.

    runs (R,): sorted hashes; sets (R,): the number of the set of each; lengths: of the n-grams, in words; facts: for
    each set by name, its "texts", those "too_short" to compare, and its "runs".
    """

    runs: U64
    sets: NDArray[np.uint16]
    lengths: tuple[int, ...]
    facts: Mapping[str, Mapping[str, int]]

    @classmethod
    def of(cls, sets: Mapping[str, Iterable[str]]) -> "Evaluation":
        """Returns the n-grams of the texts of each set. Raises DataError for a set in which all texts are too short."""
        arrays: list[U64] = []
        facts, lengths = {}, set[int]()
        for name, texts in sets.items():
            counts, numbers = Counter(texts=0, too_short=0), [np.empty(0, np.uint64)]
            for text in texts:
                length, some = _runs(clean(text))
                counts["texts"] += 1
                counts["too_short"] += not len(some)
                if len(some):
                    lengths.add(length)
                    numbers.append(some)
            arrays.append(np.unique(np.concatenate(numbers)))
            if not len(arrays[-1]):
                raise DataError(
                    f"{name}: of {counted(counts['texts'], 'text')}, none has {SHORT} words ({SHORT_HANGUL} in "
                    "Korean), the minimum for decontamination. Pass a file of examples."
                )
            facts[name] = {**counts, "runs": len(arrays[-1])}
        every = np.concatenate(arrays)
        order = np.argsort(every, kind="stable")
        owners = np.repeat(np.arange(len(arrays), dtype=np.uint16), [len(some) for some in arrays])
        return cls(every[order], owners[order], tuple(sorted(lengths)), facts)

    def sets_in(self, text: str) -> list[str]:
        """Returns the names of the sets with which a text shares an n-gram."""
        numbers = word_hashes(text)
        shared = np.concatenate([self._sieved(runs(numbers, length)) for length in self.lengths])
        firsts = np.searchsorted(self.runs, shared, "left")
        lasts = np.searchsorted(self.runs, shared, "right")
        owners = {int(owner) for a, b in zip(firsts, lasts, strict=True) for owner in self.sets[a:b]}
        names = list(self.facts)
        return [names[number] for number in sorted(owners)]

    @property
    def fingerprint(self) -> str:
        """Changes with the n-grams and the names of the sets."""
        return xxhash.xxh3_128_hexdigest(self._dump())

    def save(self, path: Path) -> None:
        """Writes a file for `load`."""
        write_bytes(path, self._dump())

    @classmethod
    def load(cls, path: Path) -> "Evaluation":
        """Reads a file."""
        with safetensors.safe_open(path, "numpy") as file:
            about = json.loads(file.metadata()["about"])
            return cls(file.get_tensor("runs"), file.get_tensor("sets"), tuple(about["lengths"]), about["facts"])

    def _dump(self) -> bytes:
        about = json.dumps({"lengths": self.lengths, "facts": self.facts})
        data: bytes = safetensors.numpy.save({"runs": self.runs, "sets": self.sets}, {"about": about})
        return data

    def _sieved(self, some: U64) -> U64:
        """Returns the n-grams that may be of a set: those that a table of first bits does not exclude."""
        maybe: NDArray[np.bool_] = self._sieve[some >> np.uint64(64 - SIEVE_BITS)]
        return some[maybe]

    @cached_property
    def _sieve(self) -> NDArray[np.bool_]:
        sieve = np.zeros(1 << SIEVE_BITS, np.bool_)
        sieve[self.runs >> np.uint64(64 - SIEVE_BITS)] = True
        return sieve


def evaluation_texts(path: Path, encoding: str = "utf-8") -> Iterator[str]:
    """Yields every text in a file of examples, with any column names. Raises DataError when it cannot be read.

    csv, tsv, jsonl, parquet: the strings of all rows; json: all strings in it; conll, conllu: sentences; else: lines.
    encoding: of text files that are not UTF-8.
    """
    suffix = suffix_of(path)
    format = TableFormat.of(encoding="utf-8" if _is_utf8(path) else encoding)
    if suffix == "json" and not _is_json_lines(data := read_whole(path)):
        yield from _strings(parse_json(data, path))
    elif suffix in ("conll", "conllu"):
        for row in tagged.sentences(path, format):
            yield from () if isinstance(row, BadRecord) else row.texts
    else:
        for _, fields in rows.records(path, format):
            yield from () if isinstance(fields, BadRecord) else _strings(fields)


def _is_json_lines(data: bytes) -> bool:
    """Whether the first line is a whole JSON object, and others follow."""
    first, _, rest = data.strip().partition(b"\n")
    with suppress(ValueError, RecursionError):
        return bool(rest) and isinstance(json.loads(first), dict)
    return False


def _is_utf8(path: Path) -> bool:
    try:
        with open_file(path) as file:
            return all(True for _ in io.TextIOWrapper(cast(io.BufferedReader, file), "utf-8"))
    except (DataError, UnicodeDecodeError):  # the reader says what is wrong with the file
        return False


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _strings(inner)


def _runs(text: str) -> tuple[int, U64]:
    """Returns the n-grams of an example, and their length; none when it is too short."""
    korean = 2 * len(_HANGUL.findall(text)) > len(_LETTER.findall(text))
    long, short = (LONG_HANGUL, SHORT_HANGUL) if korean else (LONG, SHORT)
    numbers = word_hashes(text)
    length = min(long, len(numbers))
    return length, runs(numbers, length) if length >= short else runs(numbers[:0], 1)
