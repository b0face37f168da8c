"""The published scoring scripts, written again from their definitions one question at a time, are the oracle."""

import json
import os
import random
import re
import string
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from bertie.io.questions import questions
from bertie.metrics.answers import SCRIPTS, AnswerScores, QaPrediction, best_threshold, rouge_w
from bertie.metrics.base import baseline_notes

DATA = Path(os.environ.get("BERTIE_DATA", "/nowhere")) / "squad"
WORDS = ["a", "The", "an", "tower", "towers", "(1998)", "1998", "St.", "Ives", "-", "...", "north-east", "u.s.", "탑"]


def texts(seed: int, count: int) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(0, 4))) for _ in range(count)]


def oracle_form(text: str) -> str:
    text = "".join(c for c in text.lower() if c not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def oracle_f1(given: list[str], true: list[str], *, nothing_agrees: bool) -> float:
    if nothing_agrees and not (given and true):
        return float(given == true)
    same = sum((Counter(given) & Counter(true)).values())
    if same == 0:
        return 0.0
    precision, recall = same / len(given), same / len(true)
    return 2 * precision * recall / (precision + recall)


@pytest.mark.parametrize("seed", range(200))
def test_one_squad_answer_scores_as_the_scripts_have_it(seed):
    given, *true = texts(seed, 4)
    one = [oracle_f1(oracle_form(given).split(), oracle_form(t).split(), nothing_agrees=False) for t in true]
    exact = float(oracle_form(given) in [oracle_form(t) for t in true])
    assert SCRIPTS["squad1.1"].score(given, true) == pytest.approx((exact, max(one)))
    real = [t for t in true if oracle_form(t)] or [""]
    two = [oracle_f1(oracle_form(given).split(), oracle_form(t).split(), nothing_agrees=True) for t in real]
    exact = float(oracle_form(given) in [oracle_form(t) for t in real])
    assert SCRIPTS["squad2.0"].score(given, true) == pytest.approx((exact, max(two)))


def test_korean_answers_are_compared_by_characters():
    korquad = SCRIPTS["korquad1.0"]
    assert korquad.score("《소나기》", ["소나기"]) == (1.0, 1.0)
    assert korquad.score("소나기의", ["소나기"]) == pytest.approx((0.0, 6 / 7))
    assert korquad.score("The 탑", ["탑"])[0] == 0.0  # no articles in Korean
    klue = SCRIPTS["klue-mrc"]
    assert klue.score("", []) == (1.0, 1.0)
    assert klue.score("탑", []) == (0.0, 0.0)
    assert klue.score("서울 시청", ["서울시청"]) == pytest.approx((0.0, 2 * 2 / 9))
    assert klue.score("《탑》", ["탑"])[0] == 0.0  # the published pattern leaves these marks where they are


def test_rouge_w_is_the_longest_common_run():
    rng = random.Random(0)
    for _ in range(200):
        a, b = ("".join(rng.choices("가나다 ", k=rng.randint(0, 8))) for _ in range(2))
        runs = [len(a[i:j]) for i in range(len(a)) for j in range(i + 1, len(a) + 1) if a[i:j] in b]
        expected = 2 * max(runs, default=0) / (len(a) + len(b)) if a and b else float(a == b)
        assert rouge_w(a, b) == pytest.approx(expected)


def oracle_threshold(scores, no_answer, answerable):
    """find_best_thresh of evaluate-v2.0.py, for predictions that are never empty."""
    current = best = sum(not a for a in answerable)
    threshold = 0.0
    for i in sorted(range(len(scores)), key=lambda k: no_answer[k]):
        current += scores[i] if answerable[i] else -1
        if current > best:
            best, threshold = current, no_answer[i]
    return best / len(scores), threshold


@pytest.mark.parametrize("seed", range(50))
def test_the_best_threshold_is_the_scripts(seed):
    rng = np.random.default_rng(seed)
    answerable = rng.random(40) < (0.02 if seed % 5 == 0 else 0.5)
    scores = np.where(answerable, rng.random(40).round(1), 0.0)
    no_answer = (rng.random(40) * 0.9 + 0.05 + 0.3 * ~answerable).round(2)
    assert best_threshold(scores, no_answer, answerable) == pytest.approx(
        oracle_threshold(scores, no_answer, answerable)
    )


def test_a_threshold_below_every_score_where_no_answer_pays():
    best, threshold = best_threshold([0.0, 1.0, 0.0], [-7.0, -3.0, -9.0], [False, True, False])
    assert best == pytest.approx(2 / 3)
    assert threshold < -9.0


def test_scores_of_both_kinds_of_questions():
    scores = AnswerScores()
    truth = [(("the red tower", 4),), (), (("Ives", 0), ("St. Ives", 0)), ()]
    given = [
        QaPrediction("red tower", "red tower"),
        QaPrediction("", "x", 2.0),
        QaPrediction("", "Ives", 1.0),
        QaPrediction("y", "y", -1.0),
    ]
    scores.add(truth, given)
    found = scores.report()
    assert found["exact_match"] == 0.5
    assert found["has_answer_f1"] == 0.5
    assert found["no_answer_exact_match"] == 0.5
    assert found["best_f1"] == 0.75
    assert found["best_f1_threshold"] == 1.0
    low, high = found["interval_95"]["f1"]
    assert 0.0 <= low <= 0.5 <= high <= 1.0


@pytest.mark.skipif(not DATA.is_dir(), reason="needs BERTIE_DATA/squad")
@pytest.mark.parametrize(
    ("data", "predictions", "script", "expected"),
    [
        ("dev-v1.1.rebuilt.json", "v1.1-bert-ensemble.json", "squad1.1", (86.21, 92.20)),
        ("dev-v1.1.rebuilt.json", "v1.1-match-lstm.json", "squad1.1", (67.63, 76.76)),
        ("dev-v2.0.rebuilt.json", "v2.0-bert-single.json", "squad2.0", (78.74, 81.78, 74.11, 80.18, 83.36, 83.36)),
    ],
)
def test_official_predictions_get_their_official_scores(data, predictions, script, expected):
    given = json.loads((DATA / "official_predictions" / predictions).read_text())
    rows = list(questions(DATA / data))
    scores = AnswerScores(script)
    scores.add((row.label for row in rows), (QaPrediction(text := given.get(row.id, ""), text) for row in rows))
    assert [round(100 * value, 2) for value in scores.compute().values()] == list(expected)


def test_a_model_that_learnt_nothing_is_told_so():
    """It answers every question, wrongly; saying nothing would have been right for those without an answer."""
    scores = AnswerScores()
    truth = [(("yes", 0),), (), (), (("yes", 0),)] * 25
    scores.add(truth, [QaPrediction("no", "no", -1.0)] * 100)
    report = scores.report()
    assert report["baselines"][0]["figures"] == {"f1": 0.5, "exact_match": 0.5}
    assert report["parts"]["questions with an answer"] == {"f1": 0.0, "exact_match": 0.0}
    assert report["parts"]["questions without"] == {"f1": 0.0, "exact_match": 0.0}
    (note,) = baseline_notes(report)
    assert note == (
        "The model (f1 0.000, 95% interval 0.000 to 0.000) does not beat no answer to every question (0.500)."
    )
    good = AnswerScores()
    good.add(truth, [QaPrediction("yes", "yes", -1.0) if true else QaPrediction("", "no", 1.0) for true in truth])
    assert baseline_notes(good.report()) == []
    slightly = AnswerScores()
    given = [QaPrediction("", "no", 1.0)] * 98 + [QaPrediction("", "no", 1.0), QaPrediction("yes", "yes", -1.0)]
    slightly.add(truth, given)  # one question more than silence
    assert "does not clearly beat" in baseline_notes(slightly.report())[0]
    answered = AnswerScores()
    answered.add([(("yes", 0),)], [QaPrediction("yes", "yes", -1.0)])
    assert "baselines" not in answered.report()
