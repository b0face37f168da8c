import tracemalloc

import numpy as np
import pytest
from sklearn import metrics as sk

from bertie.api.scores import Scores
from bertie.apps.cli.evaluate import show_scores
from bertie.metrics.confusion import Confusion, LabelCells, compute_confusion_metrics, sums

THREE = ("bird", "cat", "dog")


def counted(labels, truth, predicted) -> Confusion:
    confusion = Confusion(labels)
    half = len(truth) // 2
    confusion.add(truth[:half], predicted[:half])  # in two parts, as a stream comes
    confusion.add(truth[half:], predicted[half:])
    return confusion


@pytest.mark.parametrize("labels", [THREE, ("no", "yes")])
@pytest.mark.parametrize("seed", range(5))
def test_figures_are_those_of_scikit_learn(labels, seed):
    rng = np.random.default_rng(seed)
    truth = rng.choice(labels, 60).tolist()
    predicted = [t if rng.random() < 0.6 else str(rng.choice(labels)) for t in truth]
    report = counted(labels, truth, predicted).report(resamples=10)
    assert report["examples"] == 60
    assert report["accuracy"] == pytest.approx(sk.accuracy_score(truth, predicted))
    assert report["macro_f1"] == pytest.approx(sk.f1_score(truth, predicted, average="macro"))
    assert report["mcc"] == pytest.approx(sk.matthews_corrcoef(truth, predicted))
    assert report["confusion"] == sk.confusion_matrix(truth, predicted, labels=list(labels)).tolist()
    precision, recall, f1, n = sk.precision_recall_fscore_support(truth, predicted, labels=list(labels))
    for i, label in enumerate(labels):
        row = report["per_label"][label]
        assert row == pytest.approx({"precision": precision[i], "recall": recall[i], "f1": f1[i], "examples": n[i]})
    if len(labels) == 2:
        assert report["f1"] == pytest.approx(sk.f1_score(truth, predicted, pos_label="yes"))


def test_all_one_class_is_named_and_divides_by_nothing():
    confusion = counted(THREE, ["cat", "dog", "cat", "dog"], ["cat"] * 4)
    report = confusion.report(resamples=100)
    assert report["all_given"] == "cat"
    assert report["mcc"] == 0
    assert report["macro_f1"] == pytest.approx(sk.f1_score(["cat", "dog"] * 2, ["cat"] * 4, average="macro"))
    assert report["per_label"]["bird"] == {"precision": 0, "recall": 0, "f1": 0, "examples": 0}
    assert counted(THREE, ["cat", "cat"], ["cat", "cat"]).degenerate() is None  # all right, not degenerate


def test_an_unknown_label_is_an_error_in_every_metric():
    confusion = counted(("no", "yes"), ["no", "yes", "maybe", "yes"], ["no", "yes", "yes", "yes"])
    report = confusion.report(resamples=10)
    assert report["unknown_labels"] == {"maybe": 1}
    assert report["accuracy"] == 0.75
    assert report["labels"] == ["no", "yes", "maybe"]
    assert report["f1"] == pytest.approx(2 * 2 / (2 + 3))  # the wrong "yes" costs precision


def test_bootstrap_of_the_matrix_is_the_bootstrap_of_the_examples():
    rng = np.random.default_rng(3)
    truth = rng.integers(0, 3, 200)
    predicted = np.where(rng.random(200) < 0.7, truth, rng.integers(0, 3, 200))
    confusion = counted(THREE, [THREE[i] for i in truth], [THREE[i] for i in predicted])
    low, high = confusion.report(resamples=4000)["interval_95"]["accuracy"]
    plain = []
    for _ in range(4000):
        drawn = rng.integers(0, 200, 200)
        plain.append((truth[drawn] == predicted[drawn]).mean())
    # Two estimates of one percentile: their standard error at 4,000 resamples is below a tenth of the interval.
    assert [low, high] == pytest.approx(np.percentile(plain, [2.5, 97.5]), abs=0.02)
    assert low < (truth == predicted).mean() < high


def test_figures_of_many_draws_at_once_are_those_of_each():
    rng = np.random.default_rng(0)
    truth, predicted = np.divmod(np.arange(9), 3)
    draws = rng.integers(0, 9, (7, 9))
    cells = LabelCells(truth, predicted, np.ones(9, np.int64), np.ones(9))
    together = compute_confusion_metrics(*sums(cells, draws, 3), positive=None)
    for i, draw in enumerate(draws):
        for name, value in compute_confusion_metrics(*sums(cells, draw[None], 3), positive=None).items():
            assert together[name][i] == pytest.approx(float(value[0]))


def test_very_many_labels_cost_what_occurs():
    labels = tuple(map(str, range(100_000)))
    confusion = Confusion(labels)
    confusion.add(labels[:300], [*labels[:250], *labels[:50]])
    report = confusion.report(resamples=10)
    assert report["accuracy"] == pytest.approx(250 / 300)
    assert report["confusion"] is None
    assert len(report["per_label"]) == 100_000


def test_many_unknown_labels_are_told_in_few_words_and_little_memory(capsys):
    counts = Confusion(("no", "yes"))
    counts.add([f"x{n}" for n in range(20_000)], ["yes"] * 20_000)
    tracemalloc.start()
    report = counts.report(resamples=300)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 128 << 20
    show_scores(Scores(report | {"unknown_labels": counts.unknown}, ()))
    printed = capsys.readouterr()
    assert "and 19,990 more" in printed.err
    assert len(printed.err) + len(printed.out) < 20_000
