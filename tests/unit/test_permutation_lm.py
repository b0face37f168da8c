"""Visibility in the permutation language model, compared with the release's own function; and what is refused."""

import numpy as np
import pytest
import torch

from batches import laid_out
from bertie.data.masking import Vocabulary
from bertie.errors import UsageError
from bertie.models.batch import Batch
from bertie.models.config import EncoderConfig
from bertie.objectives.plm import PermutationLM, unseen
from bertie.order import Draws, key

V, STRUCTURE = 60, 5
CONTINUES = np.arange(V) >= 45
VOCABULARY = Vocabulary(1, 2, 0, 4, 3, np.arange(V) < STRUCTURE, np.zeros(V, bool), CONTINUES)


def local_perm(index, is_masked, is_func):
    """_local_perm of the release, for one sequence."""
    non_mask_tokens = ~is_masked & ~is_func
    masked_or_func_tokens = ~non_mask_tokens
    rev_index = np.where(non_mask_tokens, -1, index)
    target_tokens = masked_or_func_tokens & ~is_func
    self_rev_index = np.where(target_tokens, rev_index, rev_index + 1)
    return (self_rev_index[:, None] <= rev_index[None, :]) & masked_or_func_tokens


def batch_of(lengths, seed=0):
    rng = np.random.default_rng(seed)
    ids = np.concatenate([[*rng.integers(STRUCTURE, V, n - 2), 2, 1] for n in lengths])
    clean = laid_out(ids, lengths)
    corrupted = PermutationLM().corrupt(clean, Draws(key(seed, np.arange(len(lengths)))), VOCABULARY)
    return Batch.of(clean), Batch.of(corrupted)


def test_who_sees_whom_is_the_release():
    clean, batch = batch_of([30, 12, 50])
    assert torch.equal(batch.input_ids, clean.input_ids)
    order = batch.layout.rectangle(batch.labels["plm_order"])
    flags = torch.zeros_like(batch.input_ids, dtype=torch.bool)
    flags[batch.labels["plm_positions"]] = True
    predicted = batch.layout.rectangle(flags)
    found = unseen(order, predicted)
    for row, length in enumerate(batch.layout.lengths.tolist()):
        ids = batch.layout.rectangle(batch.input_ids)[row, :length].numpy()
        expected = local_perm(order[row, :length].numpy(), predicted[row, :length].numpy(), ids < 3)
        assert np.array_equal(found[row, :length, :length].numpy(), expected)
        targets = predicted[row, :length].nonzero().flatten().tolist()
        assert len(targets) == round(length / 6)
        assert all(found[row, i, i] for i in targets)  # a query does not see its own token
        plain = (~predicted[row, :length] & (torch.from_numpy(ids) >= STRUCTURE)).nonzero().flatten()
        assert not found[row][:length][:, plain].any()  # what is not predicted, all see
    assert batch.labels["plm_targets"].tolist() == clean.input_ids[batch.labels["plm_positions"]].tolist()


def test_orders_differ_and_do_not_depend_on_the_batch():
    _, batch = batch_of([30, 30, 30])
    orders = batch.labels["plm_order"].view(3, 30)
    assert not torch.equal(orders[0], orders[1])
    _, alone = batch_of([30])
    assert torch.equal(alone.labels["plm_order"], orders[0])


def test_other_models_are_refused():
    with pytest.raises(UsageError, match="xlnet-base-cased"):
        PermutationLM().heads(EncoderConfig())
    with pytest.raises(UsageError, match=r"plm\.rate"):
        PermutationLM(rate=1.0)
