"""Sequences of token ids -> `Batch`: packed or padded.

B sequences · T real tokens of the batch · S longest sequence
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike

from bertie.data.batch import Batch
from bertie.data.sequences import STANDS, VECTORS, Int, Sequences
from bertie.nn.features import Features
from bertie.nn.layout import Packed, Padded


class HasIds(Protocol):
    """Protocol of a sequence that can be collated, such as a tokenizer's `Encoding`."""

    @property
    def ids(self) -> Sequence[int]:
        """Token ids, including special tokens."""
        ...

    @property
    def type_ids(self) -> Sequence[int]:
        """The segment of each token: 0, or 1 in the second text of a pair."""
        ...


def pack(sequences: Sequence[HasIds], sample_ids: ArrayLike | None = None) -> Batch:
    """Concatenates sequences without padding. sample_ids (B,): 0, 1, 2 ... by default."""
    return packed(
        np.concatenate([np.asarray(s.ids, np.int64) for s in sequences]),
        np.concatenate([np.asarray(s.type_ids, np.int64) for s in sequences]),
        np.array([len(s.ids) for s in sequences], np.int64),
        np.arange(len(sequences)) if sample_ids is None else sample_ids,
    )


def packed(ids_T: Int, type_ids_T: Int, lengths_B: Int, sample_ids_B: ArrayLike) -> Batch:
    """Returns a packed batch from flat arrays."""
    return Batch(
        torch.from_numpy(ids_T),
        torch.from_numpy(type_ids_T),
        Packed.from_lengths(torch.from_numpy(lengths_B)),
        torch.from_numpy(np.asarray(sample_ids_B, np.int64)),
    )


def pad(sequences: Sequence[HasIds], sample_ids: ArrayLike | None = None, *, pad_id: int) -> Batch:
    """Returns sequences as padded rows, with `pad_id` of segment 0: the reference implementation of `pack`."""
    batch = pack(sequences, sample_ids)
    mask_BS = batch.layout.mask()
    input_ids_BS = batch.layout.rectangle(batch.input_ids).masked_fill(~mask_BS, pad_id)
    return Batch(input_ids_BS, batch.layout.rectangle(batch.token_type_ids), Padded(mask_BS), batch.sample_ids)


def batch_of(ids: Sequences, sample_ids: ArrayLike | None = None) -> Batch:
    """Returns a packed batch, in which extra arrays become features and labels. sample_ids (B,): 0, 1, 2 ... by
    default."""
    numbers = np.arange(len(ids)) if sample_ids is None else sample_ids
    input_ids, type_ids = (np.asarray(array, np.int64) for array in (ids.input_ids, ids.token_type_ids))
    batch = packed(input_ids, type_ids, ids.lengths, numbers)
    extra = dict(ids.extra)
    if VECTORS in extra:
        rows, vectors_TD = np.flatnonzero(extra.pop(STANDS)), extra.pop(VECTORS)
        batch = replace(batch, features=Features(torch.from_numpy(rows), torch.from_numpy(vectors_TD[rows])))
    return batch.with_labels(**{name: torch.from_numpy(array) for name, array in extra.items()})
