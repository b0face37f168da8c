"""Files of static word vectors: word2vec (text or .bin), GloVe (.txt) and fastText (.vec), read with gensim.

    2 3                        word2vec and fastText: numbers of words and of columns; GloVe has no such line
    the 0.1 0.2 0.3            a word and its vector; in .bin, the vector is float32

N words · D columns
"""

import gzip
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bertie.platform import DataError, File, UsageError

MOST_WORDS = 400_000
"""Words that are read from a file, where the most frequent ones are first: all of GloVe's 6B."""
MOST_WIDE = 10_000
_FASTTEXT = (793_712_314).to_bytes(4, "little")  # how a model of fastText begins


def read_word_vectors(path: Path, most: int = MOST_WORDS) -> tuple[Sequence[str], NDArray[np.float32]]:
    """Reads the first `most` words of a file, without repeats, and their vectors (N, D).

    Raises DataError for a damaged file or another kind, UsageError without gensim.
    """
    if not path.exists():
        raise DataError(f"{path} does not exist. Pass a file of word vectors.")
    File(path).check_readable()
    header, binary = _form(path)
    try:
        from gensim.models import KeyedVectors
    except ImportError:
        raise UsageError("Files of word vectors are read with gensim: pip install 'bertie[vectors]'") from None
    try:
        read = KeyedVectors.load_word2vec_format(
            str(path), binary=binary, no_header=not header, limit=most, unicode_errors="replace"
        )
        vectors = np.asarray(read.vectors, np.float32)
        finite = bool(np.isfinite(vectors).all())
    except (ValueError, EOFError, OSError, MemoryError, OverflowError, IndexError) as error:
        raise _bad(path, str(error)) from None
    if not finite or not vectors.size:
        raise _bad(path, "it has numbers that are not finite" if vectors.size else "it has no vectors")
    return read.index_to_key, vectors


def _form(path: Path) -> tuple[bool, bool]:
    """Returns whether a file begins with its sizes, and whether its vectors are binary. DataError: neither."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            first, second = file.readline(1 << 20), file.readline(1 << 20)
    except (OSError, EOFError) as error:
        raise _bad(path, str(error)) from None
    if first.startswith(_FASTTEXT):
        raise DataError(f"{path} is a model of fastText. Its vectors are in the .vec file beside it: pass that.")
    cells = first.split()
    header = len(cells) == 2 and all(cell.isdigit() for cell in cells)
    columns = int(cells[1]) if header else len(_numbers(first))
    if not 1 <= columns <= MOST_WIDE:
        raise _bad(path, "its first line is neither two sizes nor a word and its numbers")
    text = len(_numbers(second)) == columns
    if not header and second and not text:
        raise _bad(path, f"its first line has {columns} numbers, and its second one has {len(_numbers(second))}")
    return header, header and not text


def _numbers(line: bytes) -> list[float]:
    """Returns the numbers after the word of a line; none for a line of another kind."""
    try:
        return [float(cell) for cell in line.rstrip().split(b" ")[1:]]
    except ValueError:
        return []


def _bad(path: Path, why: str) -> DataError:
    return DataError(
        f"{path} is no file of word vectors: {why}. Pass word2vec's text or .bin format, GloVe's .txt, or fastText's "
        ".vec, each of which may end in .gz."
    )
