"""Batches for tests: of encodings, and the padded twin of a packed one."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bertie.models.batch import Batch
from bertie.nn.layout import Padded
from bertie.text.encoding import Encoding
from bertie.text.sequences import Sequences


def pack(encodings: Sequence[Encoding]) -> Batch:
    """The packed batch of some encodings."""
    return Batch.of(sequences_of(encodings))


def sequences_of(encodings: Sequence[Encoding]) -> Sequences:
    return Sequences.of([one.ids for one in encodings], [one.type_ids for one in encodings])


def laid_out(ids: Sequence[int] | np.ndarray, lengths: Sequence[int]) -> Sequences:
    """Sequences of one segment from all ids and the lengths."""
    ids_T = np.asarray(ids, np.int64)
    return Sequences(ids_T, np.zeros_like(ids_T), np.asarray(lengths, np.int64))


def padded(batch: Batch, pad_id: int = 0) -> Batch:
    """The same batch in a rectangle, with `pad_id` of segment 0: the reference implementation of packed batches."""
    mask = batch.layout.mask()
    places, square = mask.flatten().nonzero()[:, 0], batch.layout.rectangle
    labels = {
        name: places[label] if name.endswith("_positions") else square(label) if name in ("plm_order",) else label
        for name, label in batch.labels.items()
    }
    ids = square(batch.input_ids).masked_fill(~mask, pad_id)
    types = square(batch.token_type_ids)
    return replace(batch, input_ids=ids, token_type_ids=types, layout=Padded(mask), labels=labels)
