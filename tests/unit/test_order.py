"""The order of the data: a permutation per epoch, the same for any number of ranks, found at once at any step."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertie import order as order_module
from bertie.errors import DataError
from bertie.order import Draws, Order, Permutation, key, permutation


@given(n=st.integers(1, 3000), seed=st.integers(0, 2**63))
def test_permutation_visits_everything_once(n, seed):
    p = permutation(n, key(seed))
    everything = p[np.arange(n)]
    assert sorted(everything.tolist()) == list(range(n))
    assert p[n - 1] == everything[-1]
    assert p[np.arange(n).reshape(1, n)].shape == (1, n)


def test_permutations_are_uniform_enough():
    seen = Counter(tuple(permutation(4, key(seed))[np.arange(4)].tolist()) for seed in range(24 * 100))
    expected = 100
    chi2 = sum((seen[p] - expected) ** 2 / expected for p in seen) + (24 - len(seen)) * expected
    assert chi2 < 49.7  # 23 degrees of freedom, p = 0.001
    far = permutation(100_000, key(3))[np.arange(100_000)]
    assert abs(np.corrcoef(far, np.arange(100_000))[0, 1]) < 0.02
    assert abs(np.corrcoef(far[1:], far[:-1])[0, 1]) < 0.02


@pytest.mark.promise("workers-change-nothing")
@pytest.mark.parametrize("world", [2, 3, 8])
def test_ranks_together_see_what_one_rank_sees(world):
    order = Order(103, seed=5)
    for step in range(30):
        whole = order.samples(step, 10)
        shares = [order.samples(step, 10, rank=rank, world=world) for rank in range(world)]
        for i in range(2):
            np.testing.assert_array_equal(np.concatenate([share[i] for share in shares]), whole[i])


@pytest.mark.promise("workers-change-nothing")
def test_workers_asking_out_of_turn_see_the_same():
    order = Order(1000, seed=1)
    in_turn = [order.sample_ids(step, 16).tolist() for step in range(100)]
    again = Order(1000, seed=1)
    for worker in (1, 0):  # two workers, every other step each, the second one first
        for step in range(worker, 100, 2):
            assert again.sample_ids(step, 16).tolist() == in_turn[step]
    assert Order(1000, seed=2).sample_ids(0, 16).tolist() != in_turn[0]


@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=4), batch_size=st.integers(1, 60))
def test_every_epoch_is_whole_and_batches_run_across_the_border(sizes, batch_size):
    order = Order(lambda epoch: sizes[epoch], seed=9, cycle=len(sizes))
    steps = 2 * sum(sizes) // batch_size + 1
    epochs, ids = (np.concatenate(x) for x in zip(*[order.samples(s, batch_size) for s in range(steps)], strict=True))
    assert len(ids) == steps * batch_size
    assert (np.diff(epochs) >= 0).all()
    for epoch in range(2 * len(sizes)):
        assert sorted(ids[epochs == epoch].tolist()) == list(range(sizes[epoch % len(sizes)]))


def test_epochs_differ():
    order = Order(64, seed=0)
    assert order.sample_ids(0, 64).tolist() != order.sample_ids(1, 64).tolist()


@pytest.mark.promise("end-at-once")
def test_seeking_to_the_end_of_10_to_the_8_samples_costs_one_batch(monkeypatch):
    passed = []
    original = Permutation._pass
    monkeypatch.setattr(Permutation, "_pass", lambda self, x: passed.append(x.size) or original(self, x))
    asked = []
    order = order_module.Order(lambda epoch: asked.append(epoch) or 10**8, seed=0, cycle=3)
    epochs, ids = order.samples(3 * 10**8 * 5 // 256 - 1, 256)  # the end of five cycles of three epochs
    assert epochs[-1] == 14
    assert len(np.unique(ids)) == 256
    assert sum(passed) < 256 * 4  # numbers computed, cycle walking included
    assert len(asked) < 20


def test_nothing_to_order_is_an_error():
    with pytest.raises(DataError, match="training data is empty"):
        Order(0, seed=0)


def test_draws_of_a_sample_do_not_depend_on_its_batch():
    keys = key(1, 2, np.arange(7))
    alone = Draws(keys[3:4])
    np.testing.assert_array_equal(Draws(keys).bits(5, 9)[3], alone.bits(5, 11)[0, :9])
    rows, columns = np.array([3, 0, 6]), np.array([8, 0, 2])
    np.testing.assert_array_equal(Draws(keys).bits_at(5, rows, columns), Draws(keys).bits(5, 9)[rows, columns])
    drawn = Draws(keys).integers(0, 10_000, 10)
    assert drawn.min() == 0
    assert drawn.max() == 9


def test_places_in_any_order_have_the_samples_they_have_in_turn():
    order = Order(lambda epoch: (7, 5, 9)[epoch], seed=3, cycle=3)
    epochs, ids = order.at(np.arange(50))
    shuffled = np.random.default_rng(0).permutation(50)
    for found, expected in zip(order.at(shuffled), (epochs, ids), strict=True):
        assert found.tolist() == expected[shuffled].tolist()
