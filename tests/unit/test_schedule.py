import math

import pytest

from bertie.train.config import OptimConfig
from bertie.train.schedule import lr_at, warmup_steps


def rates(steps, **options):
    optim = OptimConfig(lr=1.0, **options)
    return [lr_at(step, steps, optim) for step in range(1, steps + 1)]


def test_linear_warmup_then_linear_decay_to_zero_after_the_last_step():
    assert rates(8, warmup=4) == pytest.approx([1 / 4, 2 / 4, 3 / 4, 1, 4 / 5, 3 / 5, 2 / 5, 1 / 5])


def test_without_warmup_the_first_update_has_the_full_rate():
    assert rates(4, warmup=0) == pytest.approx([1, 3 / 4, 2 / 4, 1 / 4])


def test_constant_stays_where_warmup_left_it():
    assert rates(4, warmup=2, decay="constant") == [0.5, 1, 1, 1]


def test_cosine_is_half_way_in_the_middle():
    found = rates(9, warmup=0, decay="cosine")
    assert found[0] == 1
    assert found[-1] > 0
    assert found == sorted(found, reverse=True)
    assert found[4] == pytest.approx((1 - math.cos(math.pi * 5 / 9)) / 2)


def test_inverse_square_root_is_that_of_t5_after_warmup():
    """Raffel et al. 2020, 3.1.2: 1 / sqrt(max(n, k)) with k = 10,000."""
    optim = OptimConfig(lr=0.01, warmup=10_000, decay="inverse_sqrt")
    for step in (10_000, 40_000, 524_288):
        assert lr_at(step, 524_288, optim) == pytest.approx(step**-0.5)
    assert rates(9, warmup=0, decay="inverse_sqrt") == pytest.approx([step**-0.5 for step in range(1, 10)])


def test_warmup_is_a_number_of_steps_or_a_share_of_them():
    assert warmup_steps(0.1, 1000) == 100
    assert warmup_steps(10_000, 1_000_000) == 10_000  # the paper's
    assert warmup_steps(1, 50) == 1


@pytest.mark.parametrize("decay", ["linear", "constant", "cosine", "inverse_sqrt", "stable"])
@pytest.mark.parametrize("warmup", [0, 0.3, 5, 50])
def test_no_step_has_a_rate_of_zero_or_above_the_peak(decay, warmup):
    assert all(0 < rate <= 1 for rate in rates(10, warmup=warmup, decay=decay))


def test_stable_falls_in_the_final_steps_alone():
    """Hägele et al. 2024: 1 - sqrt, so that half of the fall is in the first quarter of the final steps."""
    found = rates(20, warmup=2, decay="stable", cooldown=7)
    assert found[:2] == [0.5, 1]
    assert found[2:13] == [1] * 11
    assert found[13:] == pytest.approx([1 - math.sqrt(k / 8) for k in range(1, 8)])
    assert rates(20, decay="stable", warmup=2, cooldown=0.35) == found
