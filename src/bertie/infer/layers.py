"""Vectors of tokens and of words after any layer, in chunks of bounded size.

    texts -> Encoding -> engine -> Chunk: vectors of the tokens -> pooled: vectors of the words

Layer 0 is the output of the embeddings, layer n that of the n-th layer, as in the `hidden_states` of `transformers`.

T tokens · W words · H hidden size
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from bertie.errors import NoRows
from bertie.infer.batching import CHUNK_ROWS, chunks, chunks_of_tokens, run_batches
from bertie.infer.engine import Array, Engine
from bertie.infer.pipeline import TextCount
from bertie.infer.predict import Predictor
from bertie.infer.texts import TextRow
from bertie.io.lines import BadRecord
from bertie.io.tables import SkipReport
from bertie.models.facts import layer_output
from bertie.text.encoding import Encoding
from bertie.text.sequences import Int, Sequences
from bertie.text.tokenizer import Tokenizer

_VECTOR_BYTES = 64 << 20  # of the vectors of a chunk, unless a single text has more


@dataclass(frozen=True)
class TokenVectors:
    """The tokens of one text. offsets: characters of the text; word_ids: None for special tokens, as in `Encoding`.

    vectors: layer -> (T, H) float32.
    """

    tokens: list[str]
    offsets: list[tuple[int, int]]
    word_ids: list[int | None]
    vectors: Mapping[int, Array]


@dataclass(frozen=True)
class Chunk:
    """The tokens of some texts. encodings: None for a text that could not be read, which has no tokens.

    vectors: layer -> (T, H) float32 with the tokens of all texts in order.
    """

    encodings: list[Encoding | None]
    vectors: Mapping[int, Array]

    @property
    def lengths(self) -> Int:
        """The number of tokens of each text."""
        return np.array([0 if one is None else len(one) for one in self.encodings], np.int64)

    def texts(self) -> Iterator[TokenVectors | None]:
        """Yields each text by itself; None for one that could not be read."""
        ends = np.concatenate([[0], np.cumsum(self.lengths)])
        for encoding, (start, end) in zip(self.encodings, pairwise(ends), strict=True):
            if encoding is None:
                yield None
                continue
            vectors = {layer: vectors_TH[start:end] for layer, vectors_TH in self.vectors.items()}
            yield TokenVectors(encoding.tokens, encoding.offsets, encoding.word_ids, vectors)


def token_vectors(
    engine: Engine,
    tokenizer: Tokenizer,
    texts: Iterable[str | None],
    layers: Sequence[int],
    *,
    max_length: int,
) -> Iterator[Chunk]:
    """Yields the vectors of all tokens, special tokens too, in the order of the texts.

    texts: None is a text that could not be read. Texts longer than max_length tokens are truncated. The memory
    is that of about BYTES of vectors, and of one batch.
    """
    outputs = {layer: layer_output(layer) for layer in layers}
    most = max(1, _VECTOR_BYTES // (4 * engine.facts.hidden_size * len(outputs)))
    for some in chunks(texts, CHUNK_ROWS):
        encoded = iter(tokenizer.encode_batch([text for text in some if text is not None], max_length=max_length))
        read = [None if text is None else next(encoded) for text in some]
        for part in chunks_of_tokens(read, most, lambda one: 0 if one is None else len(one)):
            arrays = run_batches(engine, _ids(part), tuple(outputs.values()))
            yield Chunk(part, {layer: arrays[name] for layer, name in outputs.items()})


def row_vectors(
    predictor: Predictor, rows: Iterable[TextRow], layers: Sequence[int], skipped: SkipReport, long: TextCount
) -> Iterator[Chunk]:
    """Yields the vectors of all tokens of rows. A row that cannot be read has no tokens and is added to `skipped`.

    long: counts truncated texts. The text is read without the prompt of a model of sentence vectors. Raises DataError
    at the end when no row could be read.
    """

    def texts() -> Iterator[str | None]:
        for row in rows:
            skipped.count(row)
            yield None if isinstance(row, BadRecord) else row.texts[0]

    chunks = token_vectors(predictor.engine, predictor.tokenizer, texts(), layers, max_length=predictor.max_length)
    for chunk in chunks:
        for encoding in filter(None, chunk.encodings):
            long.rows += 1
            long.long += encoding.overflow > 0
        yield chunk
    if skipped.total == skipped.rows:
        raise NoRows(f"No text could be read. {skipped if skipped.total else 'The input is empty.'}")


def _ids(encodings: Sequence[Encoding | None]) -> Sequences:
    read = [one for one in encodings if one is not None]
    return Sequences.of([one.ids for one in read], [one.type_ids for one in read])
