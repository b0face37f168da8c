"""Perturbed examples: texts change as their names say, labels stay or are exchanged, and differences are paired."""

import json
import unicodedata
from random import Random

import pytest

from bertie.api.evaluating import check_perturbations
from bertie.api.scores import Scores
from bertie.apps.perturb import perturb
from bertie.errors import UsageError
from bertie.io.table_format import TableFormat
from bertie.metrics.base import wilson
from bertie.tasks import Prediction
from bertie.tasks.regression import RegressionTask
from bertie.tasks.relation import RelationTask
from bertie.tasks.sequence import SequenceTask
from bertie.tasks.span import SpanTask

ROWS = [
    ("A good film, truly good.", "pos"),
    ("A bad film.", "neg"),
    ("Nothing to report here", "neg"),
    ("정말 좋은 영화 이다", "pos"),
]


class KnowsGood:
    """A predictor that reads two words and nothing else."""

    def __init__(self, task=None):
        self.task = task or SequenceTask(("neg", "pos"))
        self.read, self.pipeline = 0, self

    def reading(self, format):
        return format

    def stream(self, rows):
        for row in rows:
            self.read += 1
            found = any(word in row.texts[0].lower() for word in ("good", "좋은"))
            yield row, Prediction("pos" if found else "neg")


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "dev.jsonl"
    path.write_text("".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in ROWS))
    return path


def change(name, text, seed=0):
    how = perturb._perturbation(name)
    return how.change(text, Random(seed), how.rate)


def test_texts_change_as_their_names_say():
    assert change("spacing=1", "나는 학교에 간다 today 나") == "나는학교에간다 today 나"
    assert change("lowercase", "Ab") == "ab"
    assert change("uppercase", "Ab 가") == "AB 가"
    assert change("punctuation", 'He said: "no!"') == "He said no"
    assert change("punctuation", "हिन्दी भाषा अच्छी है।") == "हिन्दी भाषा अच्छी है"
    assert change("punctuation", "two  spaces") == "two  spaces"
    assert change("contrast", "A GOOD film; I loved it. 정말 좋은 영화, 최고의 연기") == (
        "A BAD film; I hated it. 정말 나쁜 영화, 최악의 연기"
    )


def test_a_typing_error_is_one_letter_of_a_word():
    seen = {change("typos=1", "words", seed) for seed in range(300)}
    for word in seen:
        assert 4 <= len(word) <= 6
    assert {"owrds", "ords", "wwords", "eords", "qords"} <= seen
    assert {change("typos=1", "없다", seed) for seed in range(100)} >= {"어다", "다", "없"}
    text = "some text of several words that stays mostly as it is written " * 40
    changed = sum(a != b for a, b in zip(text.split(), change("typos", text).split(), strict=True))
    assert 20 < changed < 80  # a tenth of 480
    assert change("typos", text) == change("typos", text)
    assert change("typos=1", "a 1 22 !") == "a 1 22 !"


def test_metrics_and_answers_before_and_after(table):
    predictor = KnowsGood()
    found = perturb.measure_perturbations(predictor, table, TableFormat(), ["uppercase", "typos=1"], interval=wilson)
    assert found["uppercase"]["changed"] == 3  # Korean has no case
    assert found["uppercase"]["same_answers"] == 1
    assert found["uppercase"]["differences"]["accuracy"]["difference"] == 0
    hurt = found["typos=1"]
    assert hurt["differences"]["accuracy"]["difference"] == (hurt["same_answers"] - 1)  # all were right before
    assert next(Scores({"perturbed": found}, ("accuracy",)).lines()) == (
        "uppercase: 3 of 4 rows changed; same answers 1.000; accuracy +0.000 (+0.000 to +0.000)"
    )


def test_decomposed_letters_are_changed_as_composed_ones(table):
    found = [
        perturb.measure_perturbations(KnowsGood(), table, TableFormat(), ["spacing=1", "contrast"], interval=wilson)
    ]
    table.write_text(unicodedata.normalize("NFD", table.read_text()))
    found.append(
        perturb.measure_perturbations(KnowsGood(), table, TableFormat(), ["spacing=1", "contrast"], interval=wilson)
    )
    assert [one["spacing=1"]["changed"] for one in found] == [1, 1]
    assert [one["contrast"]["changed"] for one in found] == [3, 3]


def test_numbers_are_never_the_same_answer(table):
    class Rates(KnowsGood):
        def stream(self, rows):
            for row, answer in super().stream(rows):
                yield row, Prediction(float(answer.label == "pos"))

    table.write_text("".join(json.dumps({"text": text, "label": len(text)}) + "\n" for text, _ in ROWS))
    found = perturb.measure_perturbations(
        Rates(RegressionTask(("score",))), table, TableFormat(), ["uppercase"], interval=wilson
    )["uppercase"]
    assert (found["changed"], found["same_answers"]) == (3, None)


def test_only_changed_texts_are_predicted_again(table):
    predictor = KnowsGood()
    found = perturb.measure_perturbations(predictor, table, TableFormat(), ["spacing=1"], interval=wilson)
    assert (found["spacing=1"]["changed"], predictor.read) == (1, 5)
    table.write_text('{"text": "none", "label": "neg"}\n')
    none = perturb.measure_perturbations(predictor, table, TableFormat(), ["spacing"], interval=wilson)
    assert [*Scores({"perturbed": none}, ("accuracy",)).lines()] == ["spacing: 0 of 1 rows changed"]


def test_opposites_exchange_the_label(table):
    found = perturb.measure_perturbations(KnowsGood(), table, TableFormat(), ["contrast"], interval=wilson)["contrast"]
    assert (found["changed"], found["of"]) == (3, 4)
    assert found["right"] == {"original": 1, "opposite": 1, "both": 1}
    blind = KnowsGood()
    blind.stream = lambda rows: ((row, Prediction("pos")) for row in rows)
    found = perturb.measure_perturbations(blind, table, TableFormat(), ["contrast"], interval=wilson)["contrast"]
    assert found["right"] == {"original": 2 / 3, "opposite": 1 / 3, "both": 0}


@pytest.mark.parametrize(
    ("name", "task", "message"),
    [
        ("typo", None, "Did you mean 'typos'"),
        ("typos=2", None, "above 0 and at most 1"),
        ("lowercase=0.5", None, "only typos and spacing take a rate"),
        ("contrast", SequenceTask(("a", "b", "c")), "the model has 3"),
        ("contrast", RegressionTask(()), "exchanges two labels"),
        ("typos", SpanTask(()), "not the task span"),
        ("typos", RelationTask(("a", "b")), "not the task relation"),
    ],
)
def test_what_cannot_be_measured_is_refused(name, task, message):
    with pytest.raises(UsageError, match=message):
        check_perturbations(KnowsGood(task), [name])
