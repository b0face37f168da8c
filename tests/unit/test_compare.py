from collections.abc import Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from bertie.api.evaluating import check_comparable
from bertie.errors import UsageError
from bertie.io.tables import Example
from bertie.metrics import compare
from bertie.metrics.answers import QaPrediction
from bertie.metrics.compare import PairedDifference, SeedSummary
from bertie.tasks import TASKS, Prediction, Task


def test_seeds_are_summed_up_with_students_interval():
    values = [0.81, 0.84, 0.79, 0.83]
    seeds = SeedSummary.over(values)
    low, high = stats.t.interval(0.95, 3, loc=np.mean(values), scale=stats.sem(values))
    assert (seeds.mean, seeds.sd) == pytest.approx((np.mean(values), np.std(values, ddof=1)))
    assert (seeds.low, seeds.high) == pytest.approx((low, high))
    assert str(SeedSummary.over([0.5])) == "0.500 (one run)"
    with pytest.raises(ValueError, match="no runs"):
        SeedSummary.over([])


def test_an_interval_ends_where_the_metric_ends():
    near_one = [0.97, 1.0, 0.99]
    assert SeedSummary.over(near_one).high > 1
    assert SeedSummary.over(near_one, "accuracy").high == 1
    assert SeedSummary.over([0.01, 0.0, 0.03], "macro_f1").low == 0
    assert SeedSummary.over([-0.2, 0.1, -0.1], "spearman").low == SeedSummary.over([-0.2, 0.1, -0.1]).low > -1
    assert SeedSummary.over([-0.9, 0.5, -1.0], "mcc").low == -1
    assert SeedSummary.over([0.1, 3.0], "mlm_loss").low == 0
    assert SeedSummary.over([0.1, 3.0], "mlm_loss").high == SeedSummary.over([0.1, 3.0]).high
    for points in ("bleu", "chrf"):  # from 0 to 100
        assert SeedSummary.over([20.0, 30.0, 25.0], points) == SeedSummary.over([20.0, 30.0, 25.0])
        assert SeedSummary.over([99.0, 100.0], points).high == 100
    for signed in ("cola/mcc", "stsb/pearson", "mean"):  # of several tasks
        assert SeedSummary.over([-0.02, 0.05], signed) == SeedSummary.over([-0.02, 0.05])
    assert SeedSummary.over([0.01, 0.0, 0.03], "rte/accuracy").low == 0


def right_or_wrong(a: np.ndarray, b: np.ndarray, seed: int = 0) -> PairedDifference:
    """Two models compared by accuracy. a, b (E,): whether each was right."""
    return PairedDifference.of_metrics(
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


# Answers of two models ------------------------------------------------------------------------------------------------


def counted_anew(rows: list[tuple[Example, Prediction, Prediction]], task: Task) -> dict[str, PairedDifference]:
    """What `paired_rows` means: every resample is a set of examples that is scored from its beginning."""
    groups: dict[Any, list[int]] = {}
    for number, (example, *_) in enumerate(rows):
        groups.setdefault(number if (group := task.group(example)) is None else ("group", group), []).append(number)
    members = list(groups.values())

    def figures(column: int) -> Callable[[np.ndarray], Mapping[str, float]]:
        def of(numbers: np.ndarray) -> Mapping[str, float]:
            scores = task.scores()
            for draw, number in enumerate(numbers.tolist()):  # a group drawn twice counts as two
                drawn = [rows[i] for i in members[number]]
                task.count(scores, [replace(row[0], group=draw) for row in drawn], [row[column] for row in drawn])
            return scores.compute()

        return of

    return PairedDifference.of_metrics(figures(1), figures(2), len(members))


def one_of(labels: tuple[Any, ...]) -> Callable[[np.random.Generator], Any]:
    return lambda rng: labels[rng.integers(len(labels))]


def word_tags(rng: np.random.Generator) -> tuple[str, ...]:
    return tuple(rng.choice(["O", "B-PER", "I-PER", "B-LOC"], 4).tolist())


def arcs(rng: np.random.Generator) -> tuple[tuple[int, str], ...]:
    return tuple((int(rng.integers(4)), str(rng.choice(["subj", "obj", "mod"]))) for _ in range(4))


def some_given(rng: np.random.Generator) -> QaPrediction:
    text = str(rng.choice(["", "the old house", "a house", "river"]))
    return QaPrediction(text, text or "river", float(rng.random()))


KINDS = {  # -> labels of the task, a true answer, a given one, groups
    "sequence": (("a", "b", "c"), one_of(("a", "b", "c")), one_of(("a", "b", "c")), False),
    "rank": (("0", "1"), one_of(("0", "0", "1")), one_of(("0", "1")), True),
    "choice": ((), one_of(("0", "1")), one_of(("0", "1")), True),
    "multilabel": (("a", "b"), one_of(((), ("a",), ("a", "b"))), one_of(((), ("b",), ("a", "b"))), True),
    "regression": ((), lambda rng: float(rng.random()), lambda rng: float(rng.random()), False),
    "tagging": (("O", "B-PER", "I-PER", "B-LOC"), word_tags, word_tags, False),
    "parse": (("subj", "obj", "mod"), arcs, arcs, False),
    "span": ((), one_of(((), (("house", 0),), (("the river", 2), ("river", 6)))), some_given, True),
}


@pytest.mark.parametrize("kind", KINDS)
def test_examples_are_counted_once_and_drawn_by_their_counts(kind, monkeypatch):
    monkeypatch.setattr(compare, "MOST", 60)
    monkeypatch.setattr(compare, "LEAST", 60)
    rng, (labels, truth, given, grouped) = np.random.default_rng(3), KINDS[kind]
    task = TASKS[kind](labels)

    def answer() -> Prediction:
        p = float(rng.random())
        return Prediction(given(rng), p, {"0": 1 - p, "1": p} if kind == "rank" else {})

    rows = [
        (Example((f"question {i // 3}", f"text {i // 3}", "b"), truth(rng), i, group=i // 3 if grouped else None),
         answer(), answer())
        for i in range(30)
    ]  # fmt: skip
    found, expected = PairedDifference.of_rows(task, task, rows), counted_anew(rows, task)
    assert list(found) == list(expected)
    for name, paired in expected.items():
        assert found[name].as_json() == pytest.approx(paired.as_json(), abs=1e-12), name
        assert paired.high > paired.low, "else nothing was compared"


def test_a_question_without_an_answer_is_drawn_and_counts_nowhere():
    examples = [Example((f"question {i}", "text"), str(int(i % 2)), i) for i in range(20)]
    a, b = ([Prediction("1", p, {"0": 1 - p, "1": p}) for p in np.linspace(low, 0.9, 20)] for low in (0.1, 0.2))
    rows = list(zip(examples, a, b, strict=True))
    found = PairedDifference.of_rows(TASKS["rank"](("0", "1")), TASKS["rank"](("0", "1")), rows)
    assert found["mrr"].as_json() == {"difference": 0, "low": 0, "high": 0, "p": 1}


@pytest.mark.parametrize("kind", ["sequence", "rank"])
def test_equal_answers_do_not_differ_whatever_the_order_of_the_labels(kind):
    examples = [Example((f"question {i // 4}", "text"), "yes" if i % 4 == 1 else "no", i) for i in range(40)]
    answers = [Prediction("yes" if p > 0.5 else "no", p, {"yes": p, "no": 1 - p}) for p in np.linspace(0, 1, 40)]
    rows = list(zip(examples, answers, answers, strict=True))
    found = PairedDifference.of_rows(TASKS[kind](("no", "yes")), TASKS[kind](("yes", "no")), rows)
    assert {(one.difference, one.low, one.high) for one in found.values()} == {(0, 0, 0)}


def test_answers_are_compared_by_one_script():
    rows = [
        (
            Example(("q", f"c {i}"), (("the house", 0),), i),
            QaPrediction("house", "house"),
            QaPrediction("house", "house"),
        )
        for i in range(12)
    ]
    pairs = [(example, Prediction(a), Prediction(b)) for example, a, b in rows]
    found = PairedDifference.of_rows(
        TASKS["span"].make((), {}), TASKS["span"].make((), {"script": "korquad1.0"}), pairs
    )
    assert found["f1"].difference == 0


def test_models_that_cannot_be_compared_are_told_before_they_are_measured() -> None:
    def one(task: Task) -> Any:
        return SimpleNamespace(task=task)

    good, other, mixed = (one(TASKS["sequence"](labels)) for labels in (("bad", "good"), ("no", "yes"), ("good", "x")))
    check_comparable(good, mixed)
    with pytest.raises(UsageError, match="no label in common, so they cannot be compared: bad, good; no, yes"):
        check_comparable(good, other)
    with pytest.raises(UsageError, match="sequence and rank are different tasks"):
        check_comparable(good, one(TASKS["rank"](("0", "1"))))
