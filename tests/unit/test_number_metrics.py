"""Metrics of numbers, sets of labels, rankings and probabilities against scipy and scikit-learn."""

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as sk

from bertie.metrics.calibration import Calibration
from bertie.metrics.confusion import Confusion
from bertie.metrics.label_sets import LabelSets
from bertie.metrics.numbers import Numbers
from bertie.metrics.ranking import Accuracy, Ranking
from bertie.metrics.scaling import Scaling
from bertie.metrics.thresholds import choose_threshold

LABELS = ("joy", "anger", "fear")


@pytest.mark.parametrize("seed", range(3))
def test_correlations_are_those_of_scipy(seed):
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 6, 80) / 2  # with ties
    predicted = np.round(truth + rng.normal(0, 1, 80), 1)
    numbers = Numbers(threshold=1.5)
    numbers.add(truth[:30].tolist(), predicted[:30].tolist())
    numbers.add(truth[30:].tolist(), predicted[30:].tolist())
    report = numbers.report(resamples=200)
    assert report["examples"] == 80
    assert report["pearson"] == pytest.approx(stats.pearsonr(truth, predicted).statistic)
    assert report["spearman"] == pytest.approx(stats.spearmanr(truth, predicted).statistic)
    assert report["mse"] == pytest.approx(sk.mean_squared_error(truth, predicted))
    assert report["f1"] == pytest.approx(sk.f1_score(truth >= 1.5, predicted >= 1.5))
    low, high = report["interval_95"]["pearson"]
    assert low < report["pearson"] < high


def test_one_number_for_all_is_named_and_divides_by_nothing():
    numbers = Numbers()
    numbers.add([1.0, 2.0, 3.0], [2.5] * 3)
    report = numbers.report(resamples=10)
    assert (report["pearson"], report["spearman"], report["all_given"]) == (0, 0, "2.5")
    numbers = Numbers()
    numbers.add([0.1] * 3, [0.1] * 3)  # three times 0.1 is not 0.3
    assert numbers.report(resamples=10)["pearson"] == 0


@pytest.mark.parametrize("seed", range(3))
def test_sets_are_scored_as_scikit_learn_does(seed):
    rng = np.random.default_rng(seed)
    truth, predicted = rng.random((50, 3)) < 0.4, rng.random((50, 3)) < 0.4
    sets = LabelSets(LABELS)
    for rows in (slice(0, 20), slice(20, 50)):
        sets.add(*([[LABELS[i] for i in np.flatnonzero(row)] for row in part[rows]] for part in (truth, predicted)))
    report = sets.report()
    assert report["micro_f1"] == pytest.approx(sk.f1_score(truth, predicted, average="micro"))
    assert report["macro_f1"] == pytest.approx(sk.f1_score(truth, predicted, average="macro"))
    assert report["exact"] == pytest.approx(sk.accuracy_score(truth, predicted))
    for i, label in enumerate(LABELS):
        assert report["per_label"][label]["precision"] == pytest.approx(
            sk.precision_score(truth[:, i], predicted[:, i])
        )
    low, high = report["interval_95"]["micro_f1"]
    assert low < report["micro_f1"] < high


def test_a_label_the_model_lacks_is_missed_and_named():
    sets = LabelSets(("a",))
    sets.add([("a", "b")], [("a",)])
    report = sets.report()
    assert report["unknown_labels"] == {"b": 1}
    assert report["micro_f1"] == pytest.approx(2 / 3)
    assert report["exact"] == 0


@pytest.mark.parametrize("seed", range(5))
def test_the_best_threshold_is_the_best_of_all(seed):
    rng = np.random.default_rng(seed)
    truth = rng.random(40) < 0.3
    scores = np.round(np.clip(truth * 0.3 + rng.random(40) * 0.7, 0, 1), 2)  # with ties
    found = choose_threshold(scores, truth).threshold
    best = max(sk.f1_score(truth, scores >= cut) for cut in np.unique(scores))
    assert sk.f1_score(truth, scores >= found) == pytest.approx(best)
    assert choose_threshold(scores, np.zeros(40, bool)).threshold == 0.5


def test_rankings_against_scikit_learn_and_by_hand():
    rng = np.random.default_rng(0)
    ranking, precisions, reciprocals = Ranking(), [], []
    for question in range(20):
        right, scores = rng.random(15) < 0.2, rng.random(15)
        ranking.add([(str(question), bool(r)) for r in right], scores.tolist())
        if right.any():
            precisions.append(sk.average_precision_score(right, scores))
            reciprocals.append(1 / (1 + np.flatnonzero(right[np.argsort(-scores)])[0]))
    report = ranking.report()
    assert report["map"] == pytest.approx(np.mean(precisions))
    assert report["mrr"] == pytest.approx(np.mean(reciprocals))
    assert report["mrr@10"] == pytest.approx(np.mean([r if r >= 0.1 else 0 for r in reciprocals]))
    assert report["questions"] == len(precisions)
    assert report["questions_without_answer"] == 20 - len(precisions)
    tied = Ranking()  # a right passage that ties with a wrong one comes after it
    tied.add([("q", True), ("q", False)], [0.5, 0.5])
    assert tied.compute()["mrr"] == 0.5


def test_accuracy_of_choices():
    accuracy = Accuracy()
    accuracy.add(["0", "1", "2", "0"], ["0", "0", "0", "0"])
    report = accuracy.report()
    assert report["accuracy"] == 0.5
    assert report["all_given"] == "0"
    assert report["interval_95"]["accuracy"][0] < 0.5 < report["interval_95"]["accuracy"][1]


def test_calibration_error_by_its_definition():
    rng = np.random.default_rng(0)
    p, right = rng.random(500), rng.random(500) < 0.6
    counted = Calibration()
    counted.add(p[:200], right[:200])
    counted.add(p[200:], right[200:])
    plain = 0.0
    for i in range(15):
        inside = (p > i / 15) & (p <= (i + 1) / 15)
        if inside.any():
            plain += inside.mean() * abs(p[inside].mean() - right[inside].mean())
    assert counted.report()["ece"] == pytest.approx(plain)
    assert Calibration().report() == {}
    assert "ece" not in Confusion(("a", "b")).report(resamples=1)


def test_temperature_is_what_logits_were_sharpened_by():
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 2, (20_000, 4))
    truth = [rng.choice(4, p=row) for row in np.exp(logits) / np.exp(logits).sum(1, keepdims=True)]
    # The truth was drawn from these logits, so what is three times as sure wants a temperature of three.
    labels = np.arange(4)
    fitted = Scaling.fitted("temperature", 3 * logits, np.array(truth)[:, None] == labels)
    assert fitted.scale == pytest.approx([1 / 3] * 4, rel=0.05)
    right = logits.argmax(1)
    assert not Scaling.fitted("temperature", logits, right[:, None] == labels)  # its likelihood grows for ever
    nearly = np.where(np.arange(len(right)) == 0, right - 1, right) % 4
    assert Scaling.fitted("temperature", logits, nearly[:, None] == labels)
