"""The batches of pre-training on a table of texts with feature vectors: pictures and their captions, sounds.

    rows -> token ids, vectors -> Order -> (with another row's vectors) -> Sequences -> objective.corrupt -> Batch

As of a corpus, a batch is a function of (seed, step). One row in a hundred is held out.

E rows · B sequences · R vectors of the batch · D numbers of a vector
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from bertie.console import counted
from bertie.data.pairing import OtherVectors
from bertie.data.plans import HELD_OUT_SHARE
from bertie.errors import DataError, UsageError
from bertie.objectives.base import Objective
from bertie.objectives.source import VALIDATION_INSTANCES, VALIDATION_SEED, CorpusSource
from bertie.order import Draws, Order, key, permutation
from bertie.text.sequences import STANDS, VECTORS, Int, Sequences, ranges, spread_positions
from bertie.text.tokenizer import Tokenizer

OTHER, WHICH = 8, 9  # streams of draws (data/masking.py lists them): whether a text gets another row's vectors, whose


class Captions:
    """The rows of a table: token ids without special tokens, and feature vectors. notes: about its skipped rows."""

    def __init__(
        self, ids: Sequence[Sequence[int]], vectors: Sequence[NDArray[np.float32]], notes: Sequence[str] = ()
    ) -> None:
        sizes = {one.shape[1] for one in vectors}
        if len(sizes) > 1:
            raise DataError(f"Feature vectors have different sizes: {', '.join(map(str, sorted(sizes)[:5]))} numbers.")
        self.notes = notes
        self.ids = [np.asarray(one, np.int64) for one in ids]
        self.vectors = np.concatenate(vectors)
        self.starts = np.cumsum([0, *map(len, vectors)], dtype=np.int64)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def has_texts(self) -> bool:
        """Whether a row has a text."""
        return any(map(len, self.ids))

    @property
    def num_documents(self) -> int:
        """The number of rows."""
        return len(self)

    @property
    def num_values(self) -> int:
        """The number of tokens and vectors."""
        return sum(map(len, self.ids)) + len(self.vectors)

    @cached_property
    def fingerprint(self) -> str:
        """The hash of the contents."""
        digest = xxhash.xxh3_128()
        arrays: tuple[NDArray[Any], ...] = (*self.ids, self.vectors, self.starts)
        for array in arrays:
            digest.update(array.tobytes())
        return digest.hexdigest()


class CaptionSource(CorpusSource):
    """Rows of a table as batches for `fit`.

    Raises:
        DataError: There are fewer rows than a batch has.
        UsageError: The objective needs pairs of texts.
    """

    def __init__(
        self,
        captions: Captions,
        tokenizer: Tokenizer,
        objective: Objective,
        *,
        max_length: int = 128,
        batch_size: int = 256,
        micro_batch_size: int | None = None,
        seed: int = 0,
        first: int = 0,
    ) -> None:
        super().__init__(tokenizer, objective, max_length, batch_size, micro_batch_size, seed, first)
        self.captions = captions
        if not isinstance(objective.pairing, OtherVectors | None):
            raise UsageError(
                f"{objective.name} needs pairs of texts of a corpus, and a table has rows. Remove the objective: "
                "objectives.nsp=null."
            )
        shuffled = permutation(len(captions), key(VALIDATION_SEED, 0))[np.arange(len(captions))]
        held = min(VALIDATION_INSTANCES, round(HELD_OUT_SHARE * len(captions)))
        self.held, self.rows = np.sort(shuffled[:held]), np.sort(shuffled[held:])
        if len(self.rows) < batch_size:
            raise DataError(
                f"The table has {counted(len(self.rows), 'row')} to train on, fewer than one batch of {batch_size:,}. "
                f"Add rows, or set train.batch_size={len(self.rows)}."
            )
        self.order = Order(len(self.rows), seed)
        self.labels = objective.vector_labels(captions.vectors)

    @property
    def fingerprint(self) -> str:
        """Changes with everything that changes a batch."""
        parts = (self.captions.fingerprint, self.tokenizer.fingerprint, self.objective)
        numbers = (self.max_length, self.batch_size, self.seed, self.first)
        return xxhash.xxh3_128_hexdigest(repr((*parts, *numbers)).encode())

    @property
    def instances_per_epoch(self) -> int:
        """The number of rows of an epoch."""
        return len(self.rows)

    @property
    def report(self) -> Mapping[str, int]:
        """The number of rows that are held out."""
        return {"instances": len(self.rows), "held_out_documents": len(self.held)}

    @property
    def longest(self) -> int:
        """The largest number of tokens and vectors that a sequence may have, also with another row's vectors."""
        frame, captions = self.tokenizer.frames[0], self.captions
        tokens_E = np.minimum([len(one) for one in captions.ids], self.max_length - frame.size) + frame.size
        vectors_E = np.diff(captions.starts)
        return int((tokens_E + (vectors_E if self.objective.pairing is None else vectors_E.max())).max())

    @property
    def held_out(self) -> Int:
        """The rows that are held out."""
        return self.held

    def instances(self, places: Int, sample_ids: Int) -> tuple[Sequences, Draws]:
        """Returns the rows at indices of this source's order, not corrupted yet, and the draws for their masks."""
        epochs, chosen = self.order.at(places)
        rows = self.rows[chosen]
        draws = self.draws(epochs, rows)
        return self._with_vectors(rows, self.rows, sample_ids, draws), draws

    def validation_instances(self, ids: Int, sample_ids: Int, draws: Draws) -> Sequences:
        """Returns some of the held-out rows, not corrupted yet."""
        return self._with_vectors(ids, self.held, sample_ids, draws)

    def _with_vectors(self, rows: Int, among: Int, sample_ids: Int, draws: Draws) -> Sequences:
        """Returns rows with feature vectors and labels. among: the rows whose vectors a text may get instead of its
        own."""
        pictures, labels = rows, dict[str, NDArray[np.generic]]()
        pairing = self.objective.pairing
        if isinstance(pairing, OtherVectors):
            other_B = (draws.uniform(OTHER, 1)[:, 0] < pairing.share) & (len(among) > 1)
            at = np.searchsorted(among, rows)
            moved = (at + 1 + draws.integers(WHICH, 1, max(1, len(among) - 1))[:, 0]) % len(among)  # any but its own
            pictures = np.where(other_B, among[moved], rows)
            labels[pairing.label] = other_B.astype(np.int64)
        source = ranges(self.captions.starts[pictures], self.captions.starts[pictures + 1])
        labels |= {name: array[source] for name, array in self.labels.items()}
        return replace(self.ids(rows, pictures), labels=labels, sample_ids=sample_ids)

    def ids(self, rows: Int, pictures: Int | None) -> Sequences:
        """Returns the texts of some rows, each with the vectors of the same or another row, or of none."""
        frame, captions = self.tokenizer.frames[0], self.captions
        texts = [captions.ids[row][: self.max_length - frame.size] for row in rows.tolist()]
        ids = [np.array(frame.ids([text]), np.int64) for text in texts]
        types = [np.array(frame.types([len(text)]), np.int64) for text in texts]
        starts = captions.starts[rows if pictures is None else pictures]
        ends = starts if pictures is None else captions.starts[pictures + 1]
        token_rows, vector_rows, lengths_B = spread_positions(np.array(list(map(len, ids)), np.int64), ends - starts)
        total = int(lengths_B.sum())
        ids_T, types_T = np.full(total, max(0, self.vocabulary.pad_id), np.int64), np.zeros(total, np.int64)
        ids_T[token_rows], types_T[token_rows] = np.concatenate(ids), np.concatenate(types)
        vectors_TD, stands_T = np.zeros((total, captions.vectors.shape[1]), np.float32), np.zeros(total, np.bool_)
        vectors_TD[vector_rows], stands_T[vector_rows] = captions.vectors[ranges(starts, ends)], True
        return Sequences(ids_T, types_T, lengths_B, extra={VECTORS: vectors_TD, STANDS: stands_T})
