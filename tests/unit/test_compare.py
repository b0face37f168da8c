import numpy as np
import pytest
from scipy import stats

from bertie.evaluate.compare import over_seeds, paired_bootstrap, paired_metrics


def test_seeds_are_summed_up_with_students_interval():
    values = [0.81, 0.84, 0.79, 0.83]
    seeds = over_seeds(values)
    low, high = stats.t.interval(0.95, 3, loc=np.mean(values), scale=stats.sem(values))
    assert (seeds.mean, seeds.sd) == pytest.approx((np.mean(values), np.std(values, ddof=1)))
    assert (seeds.low, seeds.high) == pytest.approx((low, high))
    assert str(over_seeds([0.5])) == "0.500 (one run)"
    with pytest.raises(ValueError, match="no runs"):
        over_seeds([])


def test_paired_bootstrap_tells_a_difference_from_chance():
    rng = np.random.default_rng(0)
    weak = rng.random(500) < 0.6
    strong = weak | (rng.random(500) < 0.3)
    clear = paired_bootstrap(strong, weak)
    assert clear.difference == pytest.approx(strong.mean() - weak.mean())
    assert 0 < clear.low < clear.difference < clear.high
    assert clear.p < 0.01
    same = paired_bootstrap(weak, weak)
    assert (same.difference, same.low, same.high, same.p) == (0, 0, 0, 1)
    back = paired_bootstrap(weak, strong)
    assert back.difference == -clear.difference
    with pytest.raises(ValueError, match="500 and 3"):
        paired_bootstrap(weak, weak[:3])


def test_p_is_uniform_enough_when_nothing_differs():
    rng = np.random.default_rng(1)
    ps = [paired_bootstrap(rng.random(200) < 0.7, rng.random(200) < 0.7, resamples=500).p for _ in range(200)]
    # 5 % of 200 is 10; a binomial(200, 0.05) stays below 21 in 99.9 % of the worlds.
    assert sum(p < 0.05 for p in ps) < 21


def test_metrics_of_any_kind_are_compared_on_the_same_draws():
    rng = np.random.default_rng(0)
    a, b = rng.random(300) < 0.8, rng.random(300) < 0.6
    found = paired_metrics(lambda rows: {"accuracy": a[rows].mean()}, lambda rows: {"accuracy": b[rows].mean()}, 300)
    plain = paired_bootstrap(a, b)
    assert found["accuracy"].difference == pytest.approx(plain.difference)
    # The ends of two intervals from 2,000 and 10,000 resamples: their standard error is about 0.003.
    assert [found["accuracy"].low, found["accuracy"].high] == pytest.approx([plain.low, plain.high], abs=0.02)
    assert found["accuracy"].p < 0.01
    same = paired_metrics(lambda rows: {"f": a[rows].mean()}, lambda rows: {"f": a[rows].mean()}, 300)["f"]
    assert (same.difference, same.p) == (0, 1)
    with pytest.raises(ValueError, match="no examples"):
        paired_metrics(lambda rows: {}, lambda rows: {}, 0)
