import numpy as np
import pytest
from scipy import stats

from bertie.evaluate.compare import PairedDifference, over_seeds, paired_metrics


def test_seeds_are_summed_up_with_students_interval():
    values = [0.81, 0.84, 0.79, 0.83]
    seeds = over_seeds(values)
    low, high = stats.t.interval(0.95, 3, loc=np.mean(values), scale=stats.sem(values))
    assert (seeds.mean, seeds.sd) == pytest.approx((np.mean(values), np.std(values, ddof=1)))
    assert (seeds.low, seeds.high) == pytest.approx((low, high))
    assert str(over_seeds([0.5])) == "0.500 (one run)"
    with pytest.raises(ValueError, match="no runs"):
        over_seeds([])


def right_or_wrong(a: np.ndarray, b: np.ndarray, seed: int = 0) -> PairedDifference:
    """Two models compared by accuracy. a, b (E,): whether each was right."""
    return paired_metrics(
        lambda rows: {"accuracy": a[rows].mean()}, lambda rows: {"accuracy": b[rows].mean()}, len(a), seed=seed
    )["accuracy"]


def test_a_difference_is_told_from_chance():
    rng = np.random.default_rng(0)
    weak = rng.random(500) < 0.6
    strong = weak | (rng.random(500) < 0.3)
    clear = right_or_wrong(strong, weak)
    assert clear.difference == pytest.approx(strong.mean() - weak.mean())
    assert 0 < clear.low < clear.difference < clear.high
    assert clear.p < 0.01
    same = right_or_wrong(weak, weak)
    assert (same.difference, same.low, same.high, same.p) == (0, 0, 0, 1)
    assert right_or_wrong(weak, strong).difference == -clear.difference
    with pytest.raises(ValueError, match="no examples"):
        right_or_wrong(weak[:0], weak[:0])


def test_p_is_uniform_enough_when_nothing_differs():
    rng = np.random.default_rng(1)
    ps = [right_or_wrong(rng.random(200) < 0.7, rng.random(200) < 0.7, seed=i).p for i in range(100)]
    # 5 % of 100 is 5; a binomial(100, 0.05) stays below 13 in 99.8 % of the worlds.
    assert sum(p < 0.05 for p in ps) < 13
    # Nor may they all be large: 50 of them lie below 0.5, in 99.8 % of the worlds 35 to 65.
    assert 35 <= sum(p < 0.5 for p in ps) <= 65
    assert min(ps) < 0.1  # in all but one of 38,000 worlds


def test_drawing_examples_is_drawing_from_three_counts():
    """For accuracy the draws need no examples: each says +1, 0 or -1, so a resample is one multinomial draw."""
    rng = np.random.default_rng(0)
    a, b = rng.random(300) < 0.8, rng.random(300) < 0.6
    found = right_or_wrong(a, b)
    counts = np.array([(a & ~b).sum(), (a == b).sum(), (~a & b).sum()])
    draws = rng.multinomial(300, counts / 300, size=10_000)
    plain = np.percentile((draws[:, 0] - draws[:, 2]) / 300, [2.5, 97.5])
    # The ends of two intervals from 2,000 and 10,000 resamples: their standard error is about 0.003.
    assert [found.low, found.high] == pytest.approx(plain, abs=0.02)
    assert found.p < 0.01
