"""Sequences become batches: packed and padded hold the same, and batches keep to their budget."""

from dataclasses import replace

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from batches import padded
from bertie.models.batch import Batch
from bertie.text.sequences import Sequences, ranges, token_budget

SEQUENCES = Sequences.of([[2, 7, 8, 3], [2, 9, 3, 9, 3], [2, 3]], [[0, 0, 0, 0], [0, 0, 0, 1, 1], [0, 0]])


def test_pack_lays_sequences_end_to_end():
    batch = Batch.of(replace(SEQUENCES, sample_ids=np.array([10, 20, 30])))
    assert batch.input_ids.tolist() == [2, 7, 8, 3, 2, 9, 3, 9, 3, 2, 3]
    assert batch.token_type_ids.tolist() == [0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0]
    assert batch.layout.cu_seqlens.tolist() == [0, 4, 9, 11]
    assert batch.sample_ids.tolist() == [10, 20, 30]
    assert (batch.size, batch.tokens) == (3, 11)


def test_pad_is_the_twin_of_pack():
    packed = Batch.of(SEQUENCES)
    square = padded(packed, pad_id=99)
    assert square.input_ids.tolist() == [[2, 7, 8, 3, 99], [2, 9, 3, 9, 3], [2, 3, 99, 99, 99]]
    assert square.tokens == packed.tokens
    real = square.layout.mask()
    assert torch.equal(square.input_ids[real], packed.input_ids)
    assert torch.equal(square.token_type_ids[real], packed.token_type_ids)
    assert torch.equal(square.sample_ids, packed.sample_ids)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 6))))
def test_ranges(pairs):
    starts, counts = np.array(pairs, np.int64).reshape(-1, 2).T
    plain = [n for start, count in pairs for n in range(start, start + count)]
    assert ranges(starts, starts + counts).tolist() == plain


@given(st.lists(st.integers(1, 300)), st.integers(1, 1000), st.one_of(st.none(), st.integers(1, 5)))
def test_token_budget_holds_and_loses_nothing(lengths, budget, most):
    batches = token_budget(lengths, max_tokens=budget, max_sequences=most)
    assert sorted(n for batch in batches for n in batch.tolist()) == list(range(len(lengths)))
    for batch in batches:
        longest = max(lengths[n] for n in batch)
        assert len(batch) == 1 or longest * len(batch) <= budget
        assert most is None or len(batch) <= most
