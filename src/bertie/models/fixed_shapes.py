"""Batches of few shapes: more rows and predictions, which belong to no text and weigh nothing in a loss.

A recorded graph (train/graphs.py) runs batches of one shape. The rows after the texts of a batch are further sequences.
Each has a token at least. The positions after its predictions are tokens that nobody predicts.

B sequences · T real tokens of the batch · N predictions · R rows, T and more · S longest sequence
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from bertie.models.batch import Batch
from bertie.models.loss import LabelAxis
from bertie.nn.layout import Packed, rounded

NO_TARGET = -1
SPARE_ROWS_DIVISOR = 8  # at most an eighth of the rows belong to no text, beside those of the least
_LEAST_ROWS = 64  # of a batch of any size, whose rows are a multiple: fewer take a GPU as long


def with_fixed_shape(
    batch: Batch,
    axes: Mapping[str, LabelAxis],
    longest: int,
    *,
    rows: int = 0,
    predictions: int = 0,
    any_size: bool = False,
) -> Batch | None:
    """Returns a batch in main memory with few different shapes; None for a batch that cannot have one.

    axes: the axis of every label. longest: tokens of the model's longest sequence. rows, predictions: the least of
    them. any_size: whether batches have different numbers of sequences, as in inference; shapes are then coarser.
    The batch returned is `fixed`, and its `host` is the one given. A padded batch, one with features, and one with
    other labels have no fixed shape.
    """
    layout = batch.layout
    if not isinstance(layout, Packed) or batch.features is not None or batch.labels.keys() != axes.keys():
        return None
    if not layout.num_tokens or bool((layout.cu_seqlens.diff() < 1).any()):
        return None
    widest = min(longest, max(64 if any_size else 16, 1 << (layout.max_seqlen - 1).bit_length()))
    lengths = _lengths_after(layout.num_tokens, widest, rows, batch.size if any_size else 0)
    if lengths is None:
        return None
    rows, ends = layout.num_tokens + sum(lengths), np.cumsum(lengths, dtype=np.int32) + layout.num_tokens
    cu_seqlens = torch.cat([layout.cu_seqlens, torch.from_numpy(ends.astype(np.int32))])
    whole = Packed(cu_seqlens, widest, rows, rows, fixed=True)
    fixed = Batch(
        _filled(batch.input_ids, rows),
        _filled(batch.token_type_ids, rows),
        whole,
        batch.sample_ids,
        moved_from=batch,
    )
    sizes = {"sequence": len(cu_seqlens) - 1, "sequence_target": len(cu_seqlens) - 1, "token": rows}
    labels = {}
    for name, axis in axes.items():
        label = batch.labels[name]
        if axis == "position":
            free = _free(whole, label, max(predictions, rounded(len(label), 8)) - len(label))
            if free is None:
                return None
            labels[name] = torch.cat([label, free])
        else:
            size = sizes.get(axis) or max(predictions, rounded(len(label), 8))
            labels[name] = _filled(label, size, NO_TARGET if axis.endswith("target") else 0)
    return replace(fixed, labels=labels)


def _lengths_after(tokens: int, longest: int, rows: int, texts: int = 0) -> list[int] | None:
    """Returns the lengths of the sequences after the texts. Their number depends on the number of rows alone.

    None where they would be too long. texts: of a batch of any size, whose sequences are one of few numbers with these.
    """
    rows = max(rows, _rounded_rows(tokens, any_size=texts > 0))
    while True:  # the more rows, the more sequences, of one token at least
        count = -(-(rows // SPARE_ROWS_DIVISOR + 1) // (longest - 1)) + 1
        if texts:
            count = max(8, rounded(texts + count, 8)) - texts
        if rows - tokens >= count:
            break
        rows = _rounded_rows(rows + 1, any_size=texts > 0)
    lengths = [len(part) for part in np.array_split(np.empty(rows - tokens), count)]
    return None if max(lengths) > longest else lengths


def _rounded_rows(rows: int, *, any_size: bool) -> int:
    if not any_size:
        return rounded(rows, 32)
    return -(-rounded(rows, 8) // _LEAST_ROWS) * _LEAST_ROWS


def _filled(x: Tensor, rows: int, value: int = 0) -> Tensor:
    return torch.cat([x, x.new_full((rows - len(x), *x.shape[1:]), value)])


def _free(layout: Packed, positions: Tensor, count: int) -> Tensor | None:
    """Returns positions that are not among `positions`, nor first or last in a sequence.

    None for too few, and where one of `positions` is first or last: those are read for the sequence as well.
    """
    free = np.ones(layout.num_tokens, bool)
    ends = layout.cu_seqlens.numpy()
    free[ends[:-1]] = free[ends[1:] - 1] = False
    if not free[positions.numpy()].all():
        return None
    free[positions.numpy()] = False
    chosen = np.flatnonzero(free)[-count:] if count else np.empty(0, np.int64)
    return torch.from_numpy(chosen) if len(chosen) == count else None
