"""One batch of 32, 4 of 8, 32 of 1, and 2 ranks of 16 have the same gradients, though their mask counts are uneven."""

import pytest
import torch

from bertie.train.distributed import World
from bertie.train.step import backward, share
from nano import NanoSource, nano_model, one_thread

BATCH = 32
CPU = torch.device("cpu")


def gradients(micro_batch_size, world=1, passes=0):
    """Of one step, added up over micro-batches and over ranks that take turns, in so many passes at the least."""
    model = nano_model(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    source = NanoSource(batch_size=BATCH, micro_batch_size=micro_batch_size)
    shares = [share(source, source.objective, 3, World(rank, world, CPU)) for rank in range(world)]
    counts = {name: sum(part.counts[name] for part in shares) for name in shares[0].counts}
    for part in shares:
        backward(model, source.objective, part.batches, counts, seed=(0,), device=CPU, passes=passes)
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}, shares, counts


def gradients_of_the_mean():
    """The reference implementation: the mean loss of one batch."""
    model = nano_model(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    source = NanoSource(batch_size=BATCH)
    (batch,) = source.batches(3)
    hidden = model.encode(batch)
    flat = hidden.last_hidden_state[batch.labels["mlm_positions"]]
    logits = model.heads["mlm"].logits(flat, model.word_embeddings)
    pair = model.heads["pair"](hidden)
    loss = torch.nn.functional.cross_entropy(logits, batch.labels["mlm_targets"])
    loss = loss + torch.nn.functional.cross_entropy(pair, batch.labels["nsp_labels"])
    loss.backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.fixture(scope="module", autouse=True)
def thread():
    with one_thread():
        yield


@pytest.fixture(scope="module")
def expected():
    return gradients_of_the_mean()


def test_a_pass_that_keeps_step_with_other_ranks_adds_nothing():
    (found, *_), (expected, *_) = gradients(16, passes=5), gradients(16)
    assert all(torch.equal(found[name], gradient) for name, gradient in expected.items())


@pytest.mark.promise("same-gradients")
@pytest.mark.parametrize(("micro", "world"), [(None, 1), (8, 1), (7, 1), (1, 1), (None, 2), (4, 2), (None, 3)])
def test_gradients_do_not_depend_on_how_the_batch_is_cut(expected, micro, world):
    found, shares, counts = gradients(micro, world)
    assert counts["nsp"] == BATCH
    if micro or world > 1:
        pieces = {batch.labels["mlm_targets"].numel() for part in shares for batch in part.batches}
        assert len(pieces) > 1, "the mask counts are even, so a mean of means would pass too"
    assert found.keys() == expected.keys()
    norm = torch.stack([g.norm() for g in expected.values()]).norm()
    for name, gradient in found.items():
        # float32 sums in another order; relative to the whole gradient, since a single one may be nearly zero
        assert (gradient - expected[name]).norm() <= 1e-6 * norm, name


@pytest.mark.promise("same-gradients")
def test_a_mean_of_means_would_be_told_from_it(expected):
    model = nano_model(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    source = NanoSource(batch_size=BATCH, micro_batch_size=8)
    for batch in source.batches(3):
        report = source.objective.loss(model, model.encode(batch), batch)
        (sum(part.total / part.count for part in report.values()) / 4).backward()
    norm = torch.stack([g.norm() for g in expected.values()]).norm()
    wrong = [p.grad - expected[name] for name, p in model.named_parameters() if p.grad is not None]
    assert torch.stack([g.norm() for g in wrong]).norm() > 1e-3 * norm
