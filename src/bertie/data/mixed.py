"""The order of examples of several tasks or labels: every epoch has a fixed number of each, drawn without repeats in
turn.

E examples · B examples of a step
"""

from collections.abc import Hashable, Sequence

import numpy as np

from bertie.data.draws import key
from bertie.data.order import Int, Order, permutation


def taken(sizes: Sequence[int], *, exponent: float = 1.0, cap: int | None = None) -> list[int]:
    """Returns how many examples of each task an epoch has: in proportion to min(size, cap) to a power.

    An epoch has as many as the tasks have together, each counted up to the cap. An exponent of 1 / T is T5's
    temperature T. Raffel et al. 2020, 3.5.2; Liu et al. 2019 (MT-DNN) with an exponent of 1.
    """
    counted = np.array([min(size, cap or size) for size in sizes], np.float64)
    rates = counted**exponent
    return [max(1, round(count)) for count in counted.sum() * rates / rates.sum()]


def balanced(labels: Sequence[Hashable], seed: int) -> "MixedOrder":
    """Returns an order with equally many examples of each label in an epoch, which has about as many as there are."""
    numbers: dict[Hashable, list[int]] = {}
    for i, label in enumerate(labels):
        numbers.setdefault(label, []).append(i)
    sizes = [len(some) for some in numbers.values()]
    return MixedOrder(sizes, taken(sizes, exponent=0), seed, np.concatenate([*numbers.values()]).astype(np.int64))


class MixedOrder:
    """The examples of each step, of tasks whose examples follow one another. As `Order`, it has no state.

    sizes: examples of each task; taken: of each in an epoch. A task with fewer examples repeats, with more it continues
    in the next epoch. rows: the number of each example, where those of a task do not follow one another.
    """

    def __init__(self, sizes: Sequence[int], taken: Sequence[int], seed: int, rows: Int | None = None) -> None:
        self.sizes, self.seed, self.rows = np.array(sizes), seed, rows
        self.taken, self.starts = np.array(taken), np.cumsum([0, *sizes])
        self._bounds = np.cumsum([0, *taken])
        self._places = Order(int(self._bounds[-1]), seed)

    def sample_ids(self, step: int, batch_size: int, *, rank: int = 0, world: int = 1) -> Int:
        """Returns the examples of step `step` (from 0) on one of `world` ranks. -> (B,) int64"""
        epoch_B, place_B = self._places.samples(step, batch_size, rank=rank, world=world)
        task_B = np.searchsorted(self._bounds, place_B, "right") - 1
        number_B = epoch_B * self.taken[task_B] + place_B - self._bounds[task_B]  # of all of this task in the run
        turn_B, within_B = np.divmod(number_B, self.sizes[task_B])
        ids_B = np.zeros_like(place_B)
        for task, turn in {*zip(task_B.tolist(), turn_B.tolist(), strict=True)}:
            here = (task_B == task) & (turn_B == turn)
            order = permutation(int(self.sizes[task]), key(self.seed, task + 1, turn))
            ids_B[here] = self.starts[task] + order[within_B[here]]
        return ids_B if self.rows is None else self.rows[ids_B]
