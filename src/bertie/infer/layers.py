"""Vectors of tokens and of words after any layer, in chunks of bounded size.

    texts -> Encoding -> engine -> Chunk: vectors of the tokens -> pooled: vectors of the words

Layer 0 is the output of the embeddings, layer n that of the n-th layer, as in the `hidden_states` of `transformers`.

T tokens · W words · H hidden size
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from bertie.data.sequences import Int, Sequences
from bertie.errors import DataError, UsageError, nearest
from bertie.infer.batching import CHUNK, chunks, chunks_of_tokens, run
from bertie.infer.engine import Array, Engine
from bertie.infer.pipeline import TextCount
from bertie.infer.predict import Predictor
from bertie.infer.texts import Row
from bertie.io.lines import BadRecord
from bertie.io.tables import SkipReport
from bertie.models.facts import Facts, layer_output
from bertie.text.encoding import Encoding
from bertie.text.tokenizer import Tokenizer

BYTES = 64 << 20  # of the vectors of a chunk, unless a single text has more
NO_WORD = -1
POOLINGS = ("mean", "first")
"""How the tokens of a word become one vector: their mean, or the first of them."""


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
            vectors = {layer: found[start:end] for layer, found in self.vectors.items()}
            yield TokenVectors(encoding.tokens, encoding.offsets, encoding.word_ids, vectors)


def layers_of(asked: str | Sequence[int], facts: Facts) -> tuple[int, ...]:
    """Returns layer numbers in ascending order. asked: "all", "0,6,-1" or numbers; -1 is the last layer.

    Raises UsageError for an engine that does not give its layers, and for a layer that there is not.
    """
    last = facts.layers
    if not last:
        raise UsageError(
            "The layers of this model cannot be read. Pass a model folder of a family with a single transformer "
            "encoder, such as bert. ONNX graphs, elmo, lxmert, vilbert and xlnet give only their last layer."
        )
    if asked == "all":
        return tuple(range(last + 1))
    names = [name.strip() for name in asked.split(",")] if isinstance(asked, str) else list(map(str, asked))
    found = set()
    for name in names:
        if not name.removeprefix("-").isdecimal():
            raise UsageError(f"Unknown layer {name!r}. Pass all, or numbers from 0 to {last}: --layers 0,{last}.")
        if not -last - 1 <= int(name) <= last:
            raise UsageError(f"There is no layer {name}: the model has layers 0 (embeddings) to {last}.")
        found.add(int(name) % (last + 1))
    return tuple(sorted(found))


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
    most = max(1, BYTES // (4 * engine.facts.hidden_size * len(outputs)))
    for some in chunks(texts, CHUNK):
        encoded = iter(tokenizer.encode_batch([text for text in some if text is not None], max_length=max_length))
        read = [None if text is None else next(encoded) for text in some]
        for part in chunks_of_tokens(read, most, lambda one: 0 if one is None else len(one)):
            arrays = run(engine, _ids(part), tuple(outputs.values()))
            yield Chunk(part, {layer: arrays[name] for layer, name in outputs.items()})


def row_vectors(
    predictor: Predictor, rows: Iterable[Row], layers: Sequence[int], skipped: SkipReport, long: TextCount
) -> Iterator[Chunk]:
    """Yields the vectors of all tokens of rows. A row that cannot be read has no tokens and is added to `skipped`.

    long: counts truncated texts. The text is read without the prompt of a model of sentence vectors. Raises DataError
    at the end when no row could be read.
    """

    def texts() -> Iterator[str | None]:
        for row in rows:
            skipped.count(row)
            yield None if isinstance(row, BadRecord) else row.texts[0]

    found = token_vectors(predictor.engine, predictor.tokenizer, texts(), layers, max_length=predictor.max_length)
    for chunk in found:
        for encoding in filter(None, chunk.encodings):
            long.rows += 1
            long.long += encoding.overflow > 0
        yield chunk
    if skipped.total == skipped.rows:
        raise DataError(f"No text could be read. {skipped if skipped.total else 'The input is empty.'}")


def _ids(encodings: Sequence[Encoding | None]) -> Sequences:
    read = [one for one in encodings if one is not None]
    return Sequences.of([one.ids for one in read], [one.type_ids for one in read])


def words_of_tokens(encoding: Encoding, spans: Sequence[tuple[int, int]]) -> Int:
    """Returns the word of each token, NO_WORD for special tokens and tokens outside of words. -> (T,)

    spans: the characters of each word, in order. A token over several words belongs to the first of them.
    """
    starts_W, ends_W = np.array([*spans, (1 << 62, 1 << 62)], np.int64).T
    starts_T, ends_T = np.array(encoding.offsets, np.int64).reshape(-1, 2).T
    words_T = np.searchsorted(ends_W, starts_T, "right")
    outside = (starts_W[words_T] >= ends_T) | np.array([one is None for one in encoding.sequence_ids], np.bool_)
    return np.where(outside, NO_WORD, words_T)


def pooled(vectors: Array, words: Int, pooling: str = "mean") -> Array:
    """Returns one vector per word from those of its tokens: their mean, or the first. vectors (T, H) -> (W, H)

    words (T,): the word of each token in ascending order, or NO_WORD. A word without tokens has no row. Raises
    UsageError for an unknown pooling.
    """
    check_pooling(pooling)
    inside = np.flatnonzero(words != NO_WORD)
    if not len(inside):
        return np.zeros((0, vectors.shape[-1]), np.float32)
    starts = np.flatnonzero(np.diff(words[inside], prepend=NO_WORD))
    if pooling == "first":
        return vectors[inside[starts]]
    counts = np.diff(starts, append=len(inside))
    mean: Array = (np.add.reduceat(vectors[inside], starts, axis=0) / counts[:, None]).astype(np.float32)
    return mean


def check_pooling(pooling: str) -> None:
    """Raises UsageError for an unknown pooling of the tokens of a word."""
    if pooling not in POOLINGS:
        raise UsageError(f"Unknown pooling {pooling!r} of the tokens of a word. {nearest(pooling, POOLINGS)}")


class Layers:
    """The hidden states of every layer, and the vectors of words in them."""

    NO_WORD = NO_WORD
    check_pooling = staticmethod(check_pooling)
    chosen = staticmethod(layers_of)
    pooled = staticmethod(pooled)
    vectors = staticmethod(token_vectors)
    words = staticmethod(words_of_tokens)
