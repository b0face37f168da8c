"""One unit of corpus work: documents are repaired, cleaned, split into sentences and hashed, and written to part files.

    unit-000012.000.part     about PART bytes of documents, as arrays (`CorpusPart`)
    unit-000012.quarantine   the unreadable records, one JSON object per line

Deduplication compares the passages of documents. A passage is the document itself, or one of its paragraphs.
"""

import re
import time
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

import numpy as np
import safetensors
import safetensors.numpy
import xxhash
from numpy.typing import NDArray
from pydantic import Field

from bertie.data import dedup
from bertie.data.card import Statistics
from bertie.data.decontaminate import Evaluation
from bertie.data.filters import Filters
from bertie.files import atomic_write, write_bytes
from bertie.io import sources
from bertie.io.blocks import Documents, ReadOptions
from bertie.io.lines import BadRecord
from bertie.settings import Config
from bertie.text.normalize import clean
from bertie.text.sentences import splitter, unwrap

PART = 32 << 20  # bytes of text after which a part file is closed
EVALUATION = "evaluation.safetensors"
_OVERLAP_REASON = "text of an evaluation set"
Int64 = NDArray[np.int64]


class CorpusConfig(Config):
    """Settings of the processing of documents. Everything that changes the corpus is a field here and is in its
    manifest."""

    format: str = ""
    """Format of all files: txt, jsonl, csv, tsv, parquet, wiki, mediawiki, warc, html or epub. Default: inferred from
    the name and the first bytes of each file."""
    text: str = "text"
    """Field of jsonl, or column of csv, tsv and parquet, that contains the text."""
    encoding: str = "utf-8"
    """Text encoding of all files."""
    documents: Documents = "blank"
    """End of a document in plain text: a blank line, every line end (line), or the end of the file (file)."""
    splitter: str = "rules"
    """Sentence splitter: rules, sentencex, kiwi or lines."""
    repair: bool = True
    """Repair UTF-8 that was decoded as Latin-1 or Windows-1252 ("cafÃ©")."""
    dedup: Literal["documents", "paragraphs", "near", "none"] = "documents"
    """Remove exact duplicates of documents or paragraphs; near also removes similar documents."""
    near_threshold: float = Field(0.8, gt=0, le=1)
    """Minimum estimated Jaccard similarity of word 5-grams at which documents count as near duplicates. Source: Lee et
    al. 2022, 4.2."""
    min_chars: int = Field(1, ge=1)
    """Minimum number of characters. Shorter documents are dropped."""
    language: tuple[str, ...] = ()
    """Languages to keep, as ISO 639-1 codes (en, ko). Other documents are dropped. Default: all."""
    quality: tuple[str, ...] = ()
    """Quality rules: gopher, gopher-korean, repetition or c4, or a measure with a range (words=50..100000)."""

    @property
    def reading(self) -> ReadOptions:
        """The options for reading files."""
        return ReadOptions(self.format, self.text, self.encoding, self.documents)


def prepare(
    number: int, unit: list[Any], config: dict[str, object], work: str, size: int, evaluation: str = ""
) -> dict[str, object]:
    """Processes unit `number`, writes its files into `work`, and returns its counts as JSON values.

    evaluation: the fingerprint of work/EVALUATION, the sets for decontamination, or "".
    """
    begun = time.perf_counter()
    options = CorpusConfig.model_validate(config)
    split = splitter(options.splitter)
    filters = Filters.of(options.language, options.quality)
    sets = _evaluation(work, evaluation) if evaluation else None
    counts, dropped, overlaps = Counter[str](), Counter[str](), Counter[str]()
    records, parts, statistics = 0, 0, Statistics.zero()
    stem = Path(work) / f"unit-{number:06d}"
    draft = _Draft()

    def close() -> None:
        nonlocal draft, parts, statistics
        part = draft.part()
        write_bytes(stem.with_suffix(f".{parts:03d}.part"), part.dump())
        statistics += Statistics.of(part.values, part.sentences)
        parts, draft = parts + 1, _Draft()

    with atomic_write(stem.with_suffix(".quarantine")) as quarantine:
        for record in sources.read_unit(sources.Unit(*unit), options.reading, counts):
            records += 1
            if isinstance(record, BadRecord):
                dropped[record.reason] += 1
                if record.excerpt is not None:
                    quarantine.write(record.as_json())
                continue
            text = record
            if options.repair and not text.isascii():
                text = repair(text)
                counts["documents repaired (mojibake)"] += text is not record
            text = clean(text)
            if len(text) < options.min_chars:
                dropped["empty" if not text else f"shorter than {options.min_chars} characters"] += 1
                continue
            text, reason = filters.apply(text, counts) if filters else (text, "")
            if reason or not text:
                dropped[reason or "empty"] += 1
                continue
            pieces = unwrap(text).split("\n") if options.dedup == "paragraphs" else [text]
            apart = _apart(pieces, sets, overlaps) if sets else pieces
            if options.dedup == "paragraphs":
                counts[f"paragraphs removed ({_OVERLAP_REASON})"] += len(pieces) - len(apart)
            texts = [sentences for piece in apart if (sentences := split(piece))]
            if not texts:
                dropped[_OVERLAP_REASON if len(apart) < len(pieces) else "empty"] += 1
                continue
            draft.add(texts, dedup.signature(text) if options.dedup == "near" else None)
            if draft.size >= PART:
                close()
        if draft.size:
            close()
    return {
        "records": records,
        "dropped": dropped,
        "counts": +counts,
        "overlaps": overlaps,
        "parts": parts,
        "statistics": statistics.to_dict(),
        "elapsed_s": time.perf_counter() - begun,
    }


def _apart(pieces: list[str], evaluation: Evaluation, overlaps: Counter[str]) -> list[str]:
    """Returns the passages that share no text with an evaluation set, and counts the others for each set."""
    shared = [evaluation.sets_in(piece) for piece in pieces]
    for names in shared:
        overlaps.update(names)
    return [piece for piece, names in zip(pieces, shared, strict=True) if not names]


@lru_cache(1)
def _evaluation(work: str, fingerprint: str) -> Evaluation:
    return Evaluation.load(Path(work) / EVALUATION)


# UTF-8's first bytes as Latin-1 shows them, each before what a following byte looks like in Latin-1 or Windows-1252.
# Text without such a pair is what ftfy leaves alone, and asking ftfy about every line would take most of the time.
_MOJIBAKE = re.compile("[\xc2-\xf4][\x80-\xbf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ]")


def repair(text: str) -> str:
    """Returns the text with mojibake repaired line by line, or the same object when there is none."""
    if not _MOJIBAKE.search(text):
        return text
    import ftfy  # slow to import, and few workers meet a line that needs it

    lines = text.split("\n")
    fixed = [ftfy.fix_encoding(line) if _MOJIBAKE.search(line) else line for line in lines]
    return text if fixed == lines else "\n".join(fixed)


@dataclass(frozen=True)
class CorpusPart:
    """Documents as arrays.

    values (V,): UTF-8 bytes; sentences (M + 1,): bounds in values; pieces (P + 1,): bounds of passages in sentences;
    documents (D + 1,): bounds in pieces; hashes (P,) of the passages, dtype dedup.HASH; signatures (D,
    dedup.PERMUTATIONS), or (0, 0).
    """

    values: NDArray[np.uint8]
    sentences: Int64
    pieces: Int64
    documents: Int64
    hashes: NDArray[np.generic]
    signatures: NDArray[np.uint32]

    def dump(self) -> bytes:
        """Returns the bytes of a file."""
        arrays = {**vars(self), "hashes": self.hashes.view("<u8").reshape(-1, 2)}
        data: bytes = safetensors.numpy.save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
        return data

    @classmethod
    def load(cls, path: Path) -> "CorpusPart":
        """Reads a file."""
        arrays = safetensors.numpy.load_file(path)
        return cls(**{**arrays, "hashes": _as_hashes(arrays["hashes"])})

    def without(self, mask: NDArray[np.bool_]) -> "CorpusPart":
        """Returns only the kept passages (P,), without documents that have none left."""
        sentences = np.repeat(mask, np.diff(self.pieces))
        values = np.repeat(sentences, np.diff(self.sentences))
        kept_before = np.concatenate([[0], np.cumsum(mask)])
        return CorpusPart(
            self.values[values],
            bounds(np.diff(self.sentences)[sentences]),
            bounds(np.diff(self.pieces)[mask]),
            np.unique(kept_before[self.documents]),
            self.hashes[mask],
            self.signatures[:0],
        )


def read_part_facts(path: Path) -> tuple[NDArray[np.generic], dedup.Signatures]:
    """Reads only the hashes and signatures of a part file."""
    with safetensors.safe_open(path, "numpy") as file:
        return _as_hashes(file.get_tensor("hashes")), file.get_tensor("signatures")


def bounds(lengths: Int64) -> Int64:
    """Returns the start of each of N items of these lengths, and the end, (N + 1,)."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


def _as_hashes(pairs: NDArray[np.uint64]) -> NDArray[np.generic]:
    return np.ascontiguousarray(pairs).view(dedup.HASH).reshape(-1)


class _Draft:
    """A corpus part to which documents are added."""

    def __init__(self) -> None:
        self.size = 0
        self._data: list[bytes] = []
        self._sentences: list[int] = []  # lengths
        self._pieces: list[int] = []
        self._documents: list[int] = []
        self._hashes: list[bytes] = []
        self._signatures: list[NDArray[np.uint32]] = []

    def add(self, pieces: list[list[str]], signature: NDArray[np.uint32] | None) -> None:
        for sentences in pieces:
            joined = "".join(sentences)
            if "\n" in joined:  # a sentence is one line, whatever the splitter thinks
                sentences = [" ".join(sentence.split()) for sentence in sentences]
                joined = "".join(sentences)
            data = joined.encode()
            ascii_only = len(data) == len(joined)
            self._data.append(data)
            self._sentences += map(len, sentences) if ascii_only else [len(s.encode()) for s in sentences]
            self._pieces.append(len(sentences))
            self._hashes.append(xxhash.xxh3_128_digest(data))
            self.size += len(data) + 32 * (1 + len(sentences))  # what the bounds take counts, too
        self._documents.append(len(pieces))
        if signature is not None:
            self._signatures.append(signature)

    def part(self) -> CorpusPart:
        def ends(lengths: list[int]) -> Int64:
            return np.fromiter(accumulate(lengths, initial=0), np.int64, count=len(lengths) + 1)

        return CorpusPart(
            np.frombuffer(b"".join(self._data), np.uint8),
            ends(self._sentences),
            ends(self._pieces),
            ends(self._documents),
            np.frombuffer(b"".join(self._hashes), dedup.HASH),
            np.stack(self._signatures) if self._signatures else np.zeros((0, 0), np.uint32),
        )
