"""Examples that belong together stay together: passages of a question, questions about a context."""

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from bertie.api.evaluating import difference_between
from bertie.errors import DataError
from bertie.io.table_format import TableFormat
from bertie.io.tables import Example
from bertie.metrics.answers import AnswerScores, QaPrediction
from bertie.runs.config import FinetuneConfig
from bertie.runs.examples import read_examples
from bertie.runs.splits import hold_out
from bertie.tasks import TASKS
from bertie.tasks.answerer import Prediction
from bertie.tasks.rank import RankTask
from bertie.tasks.span import SpanPrediction, SpanTask

QUESTIONS, PASSAGES = 400, 10
CHANCE = sum(1 / rank for rank in range(1, PASSAGES + 1)) / PASSAGES  # one right passage, anywhere: 0.293
CHANCE_SD = math.sqrt(sum(1 / rank**2 for rank in range(1, PASSAGES + 1)) / PASSAGES - CHANCE**2)
RANK = RankTask(("0", "1"))


def passages() -> list[Example]:
    return [
        Example((f"question {q}", f"passage {q} {p}"), str(int(p == q % PASSAGES)), q * PASSAGES + p + 1)
        for q in range(QUESTIONS)
        for p in range(PASSAGES)
    ]


def scored(examples: list[Example], seed: int, gain: float = 0.0) -> list[Prediction]:
    """Random probabilities; right passages are given a little more."""
    rng = np.random.default_rng(seed)
    yes = [
        float(p) + gain * (example.label == "1") for p, example in zip(rng.random(len(examples)), examples, strict=True)
    ]
    return [Prediction("1", p, {"0": 1 - p, "1": p}) for p in yes]


def test_random_scores_are_worth_chance_on_held_out_passages():
    """Split questions had few wrong passages left, so that random scores looked like 0.86."""
    train, dev = hold_out(passages(), by=RankTask.stratify_by, group=RankTask.group)
    asked = {example.texts[0] for example in dev}
    assert not asked & {example.texts[0] for example in train}
    assert (len(asked), len(dev)) == (QUESTIONS // 10, QUESTIONS)
    scores = RANK.scores()
    RANK.count(scores, dev, scored(dev, seed=0))
    # four standard errors of the mean over the held-out questions
    assert scores.compute()["mrr@10"] == pytest.approx(CHANCE, abs=4 * CHANCE_SD / math.sqrt(len(asked)))


def test_questions_about_a_context_stay_on_one_side():
    examples = [
        Example((f"question {q}", f"context {q // 5}"), (("context", 0),) if q % 3 else (), q + 1) for q in range(500)
    ]
    train, dev = hold_out(examples, by=SpanTask.stratify_by, group=SpanTask.group)
    assert not {e.texts[1] for e in train} & {e.texts[1] for e in dev}
    assert 40 <= len(dev) <= 60
    assert sorted(e.line for e in train + dev) == list(range(1, 501))
    with pytest.raises(DataError, match="--dev FILE"):
        hold_out(examples[:5], by=SpanTask.stratify_by, group=SpanTask.group)  # one context


def test_groups_of_different_kinds_can_be_held_out():
    """Three questions, no two with the same set of labels."""
    pairs = [("a", "0"), ("a", "1"), ("b", "0"), ("c", "1")]
    train, dev = hold_out([Example((q, "x"), y) for q, y in pairs], by=RankTask.stratify_by, group=RankTask.group)
    assert len(train) + len(dev) == 4
    assert not {e.texts[0] for e in train} & {e.texts[0] for e in dev}


@pytest.mark.parametrize("name", [name for name, _ in TASKS.items()])
def test_a_group_that_is_said_is_every_tasks(name):
    assert TASKS[name].group(Example(("a", "b"), None, 1, group="g")) == "g"


class Answers:
    """A predictor that has its answers already."""

    task = RANK

    def __init__(self, answers: list[Prediction]) -> None:
        self.answers, self.pipeline = answers, self

    def reading(self, format: TableFormat) -> TableFormat:
        return format

    def stream(self, rows: Iterator[Example]) -> Iterator[tuple[Example, Prediction]]:
        yield from zip(rows, self.answers, strict=True)


def reciprocal_ranks(examples: list[Example], answers: list[Prediction]) -> np.ndarray:
    found: dict[str, list[tuple[float, str]]] = {}
    for example, answer in zip(examples, answers, strict=True):
        found.setdefault(example.texts[0], []).append((answer.scores["1"], example.label))
    ranks = [1 + sum(p > right for p, _ in rows) for rows in found.values() for right, y in rows if y == "1"]
    return 1 / np.array(ranks)


def test_two_rankers_are_compared_by_questions_drawn_whole(tmp_path: Path):
    asked = 30  # thousands of resamples count every passage of every question drawn
    examples, path = passages()[: asked * PASSAGES], tmp_path / "dev.tsv"
    lines = [f"{e.texts[0]}\t{e.texts[1]}\t{e.label}\n" for e in examples]
    path.write_text("question\tsentence\tlabel\n" + "".join(lines))
    a, b = scored(examples, 1, gain=0.1), scored(examples, 2)
    found, _ = difference_between(Answers(a), Answers(b), path, TableFormat())
    differences = reciprocal_ranks(examples, a) - reciprocal_ranks(examples, b)
    paired = found["mrr@10"]
    assert paired.difference == pytest.approx(differences.mean(), abs=1e-9)
    # The bootstrap of a mean of 30 is near the normal interval; 2,000 resamples know its ends to some 5 %. Passages
    # drawn by themselves would give another width: most of them hold no right one.
    assert paired.high - paired.low == pytest.approx(2 * 1.96 * differences.std() / math.sqrt(asked), rel=0.15)


def test_intervals_of_answers_draw_contexts():
    """Twenty contexts whose ten questions are all right or all wrong are twenty observations, not two hundred."""
    right = np.random.default_rng(0).random(20) < 0.5
    task = SpanTask()
    examples = [Example((f"q{i}", f"c{i // 10}"), (("yes", 0),), i) for i in range(200)]
    answers = [SpanPrediction(QaPrediction(text := "yes" if right[i // 10] else "no", text, -1.0)) for i in range(200)]
    scores = task.scores()
    assert isinstance(scores, AnswerScores)
    task.count(scores, examples, answers)
    low, high = scores.report()["interval_95"]["exact_match"]
    assert high - low == pytest.approx(2 * 1.96 * right.std() / math.sqrt(20), rel=0.15)
    alone = AnswerScores(task.script)
    alone.add([e.label for e in examples], [p.label for p in answers])
    low, high = alone.report()["interval_95"]["exact_match"]
    assert high - low == pytest.approx(2 * 1.96 * right.std() / math.sqrt(200), rel=0.15)


def test_equal_texts_stay_on_one_side(tmp_path):
    """A text that is in the training part too would be answered by heart."""
    rows = [(f"text {n // 3}", "ab"[n // 3 % 2]) for n in range(300)]
    (tmp_path / "train.tsv").write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows))
    found = read_examples(FinetuneConfig(train_file=str(tmp_path / "train.tsv"), model=""))
    assert not {e.texts for e in found.train} & {e.texts for e in found.dev}
    assert len(found.dev) == 30
    assert not any("more than one label" in note for note in found.notes)
    (tmp_path / "train.tsv").write_text(
        "text\tlabel\n" + "".join(f"{text}\t{n % 2}\n" for n, (text, _) in enumerate(rows))
    )
    found = read_examples(FinetuneConfig(train_file=str(tmp_path / "train.tsv"), model=""))
    assert "90 training texts have more than one label, for example 'text 1'" in found.notes
    (tmp_path / "train.tsv").write_text("text\tlabel\n" + "good\ta\nbad\tb\n" * 20)
    found = read_examples(FinetuneConfig(train_file=str(tmp_path / "train.tsv"), model=""))
    assert any(note.startswith("4 of 4 dev texts are also training texts") for note in found.notes), "two texts alone"


def test_with_held_out_0_all_examples_are_learned(tmp_path: Path) -> None:
    file = tmp_path / "train.jsonl"
    file.write_text("".join(f'{{"text": "text {i}", "label": "{i % 2}"}}\n' for i in range(1000)))
    config = FinetuneConfig(model="", train_file=str(file))
    assert [len(part) for part in sides(config)] == [900, 100]
    assert [len(part) for part in sides(config.model_copy(update={"held_out": 0.2}))] == [800, 200]
    examples = read_examples(config.model_copy(update={"held_out": 0}))
    assert (len(examples.train), len(examples.dev)) == (1000, 300)
    assert {*examples.dev} < {*examples.train}
    assert {example.label for example in examples.dev} == {"0", "1"}
    assert any("scores are those of examples that were learned from" in note for note in examples.notes)
    assert not any("dev texts are also" in note for note in examples.notes)
    with_dev = config.model_copy(update={"held_out": 0, "dev_file": str(file)})
    assert any("dev texts are also" in note for note in read_examples(with_dev).notes)


def sides(config: FinetuneConfig) -> tuple[list[Example], list[Example]]:
    examples = read_examples(config)
    return examples.train, examples.dev
