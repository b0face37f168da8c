"""Windows, targets and answers of SpanTask, compared with simple versions of run_squad.py."""

import random
import string
from pathlib import Path

import numpy as np
import pytest
import torch

from bertie.errors import DataError, UsageError
from bertie.infer.pipeline import TextCount
from bertie.io.lines import BadRecord
from bertie.io.table_format import TableFormat
from bertie.io.tables import Example
from bertie.metrics.answers import QaPrediction
from bertie.models.config import EncoderConfig
from bertie.models.encoder import Encoder
from bertie.models.facts import Facts
from bertie.models.model import TorchModel
from bertie.nn.init import initialize
from bertie.tasks import task_of, with_task
from bertie.tasks.places import fullest
from bertie.tasks.source import batch_of_examples
from bertie.tasks.span import SpanTask, best_spans
from bertie.text.sequences import Sequences
from bertie.text.tokenizer import Tokenizer
from bertie.training_facts import TrainingFacts

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = [*string.ascii_lowercase, *("##" + c for c in string.ascii_lowercase), ".", ","]
CONTEXT = "Ada rows, Bo swims.  Cy dives!"
QUESTION = "who rows"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("vocabulary")
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *LETTERS]))
    return Tokenizer.load(folder)


def encoded(task: SpanTask, examples: list[Example], tokenizer: Tokenizer, max_length: int) -> Sequences:
    return task.encode(examples, tokenizer, max_length=max_length, too_long="window")


def random_examples(seed: int, count: int) -> list[Example]:
    rng = random.Random(seed)
    examples = []
    for number in range(count):
        words = [
            "".join(rng.choices(string.ascii_letters + "éㅋ", k=rng.randint(1, 5))) for _ in range(rng.randint(1, 25))
        ]
        context = rng.choice([" ", "  "]).join(words)
        start = rng.randrange(len(context))
        text = context[start : start + rng.randint(1, 6)]
        answers = ((text, start),) if text.strip() and rng.random() < 0.7 else ()
        examples.append(Example(("what", context), answers, number, str(number)))
    return examples


# Windows ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stride", [1, 5, 12, 100])
def test_windows_are_those_of_the_tokenizer(tokenizer, stride):
    examples = random_examples(0, 20)
    task = SpanTask(stride=stride)
    found = encoded(task, examples, tokenizer, 24)
    references = [w for e in examples for w in tokenizer.windows(*e.texts, max_length=24, stride=stride)]
    assert found.lengths.tolist() == [len(reference) for reference in references]
    assert found.input_ids.tolist() == [i for reference in references for i in reference.ids]
    assert found.token_type_ids.tolist() == [i for reference in references for i in reference.type_ids]
    texts = [-1 if i is None else i for reference in references for i in reference.sequence_ids]
    assert found.places["text"].tolist() == texts
    assert list(zip(found.places["start"].tolist(), found.places["end"].tolist(), strict=True)) == [
        offset for reference in references for offset in reference.offsets
    ]
    assert found.too_long.tolist() == np.flatnonzero(np.diff(found.windows) > 1).tolist()


def test_long_questions_are_cut(tokenizer):
    question = "why " * 50
    found = encoded(SpanTask(max_question=6), [Example((question, CONTEXT))], tokenizer, 20)
    assert all(
        np.sum(found.places["text"][a:b] == 0) == 6 for a, b in zip(found.starts, found.starts[1:], strict=False)
    )
    assert found.lengths.max() == 20
    half = encoded(SpanTask(), [Example((question, CONTEXT))], tokenizer, 20)
    assert np.sum(half.places["text"][: half.starts[1]] == 0) == 8  # half of the tokens without [CLS] and two [SEP]
    both = encoded(SpanTask(), [Example((QUESTION, CONTEXT)), Example((question, CONTEXT))], tokenizer, 20)
    assert (found.cut.tolist(), both.cut.tolist()) == ([0], [1])
    assert (both.part(0, 1).cut.tolist(), both.part(1, 2).cut.tolist()) == ([], [0])
    count = TextCount("window", 20)
    count.add(both, tokenizer)
    assert any(note.startswith("1 of 2 questions") for note in count.notes)


def test_only_the_first_window_where_texts_are_cut(tokenizer):
    example = Example((QUESTION, CONTEXT))
    cut = SpanTask().encode([example], tokenizer, max_length=20, too_long="truncate")
    assert len(cut.lengths) == 1
    assert cut.too_long.tolist() == [0]


def plain_fullest(found: Sequences, example: int) -> dict[int, int]:
    """piece -> window, as _check_is_max_context has it: a window scores min(left, right) + 0.01 * length."""
    best: dict[int, tuple[float, int]] = {}
    for window in range(found.windows[example], found.windows[example + 1]):
        rows = range(found.starts[window], found.starts[window + 1])
        pieces = [int(found.places["piece"][row]) for row in rows if found.places["text"][row] == 1]
        for i, piece in enumerate(pieces):
            score = min(i, len(pieces) - 1 - i) + 0.01 * len(pieces)
            if piece not in best or score > best[piece][0]:
                best[piece] = (score, window)
    return {piece: window for piece, (_, window) in best.items()}


def test_each_piece_counts_where_most_stands_around_it(tokenizer):
    examples = random_examples(1, 30)
    found = encoded(SpanTask(stride=7), examples, tokenizer, 25)
    rows = fullest(found, 1)
    window = np.searchsorted(found.starts, rows, side="right") - 1
    for number in range(len(examples)):
        mine = {
            int(found.places["piece"][r]): int(w)
            for r, w in zip(rows, window, strict=True)
            if found.example[w] == number
        }
        assert mine == plain_fullest(found, number)


# Targets ------------------------------------------------------------------------------------------------------------


def test_targets_are_the_pieces_that_hold_the_answer(tokenizer):
    examples = random_examples(2, 60)
    task = SpanTask(stride=6)
    found = encoded(task, examples, tokenizer, 24)
    targets = task.targets(examples, found).sequence
    for window in range(len(found.lengths)):
        example = examples[found.example[window]]
        begin = int(found.starts[window])
        start, end = int(targets["start"][window]), int(targets["end"][window])
        rows = [r for r in range(begin, int(found.starts[window + 1])) if found.places["text"][r] == 1]
        first, last = (
            (example.label[0][1], example.label[0][1] + len(example.label[0][0])) if example.label else (-1, -1)
        )
        spans = {r: (int(found.places["start"][r]), int(found.places["end"][r])) for r in rows}
        touched = [r for r in rows if spans[r][0] < last and spans[r][1] > first]
        if not example.label or not rows or spans[rows[0]][0] > first or spans[rows[-1]][1] < last or not touched:
            assert (start, end) == (0, 0)
        else:
            assert (begin + start, begin + end) == (touched[0], touched[-1])
        assert targets["weight"][window] == 1.0


def test_answers_that_are_not_where_they_should_be_teach_nothing(tokenizer):
    examples = [
        Example((QUESTION, CONTEXT), (("Ada", -1),), 3),
        Example((QUESTION, CONTEXT), (("x", -1), ("Ada", 0)), 4),
    ]
    task = SpanTask()
    targets = task.targets(examples, encoded(task, examples, tokenizer, 48)).sequence
    assert targets["weight"].tolist() == [0.0, 1.0]
    assert "question 3" in task.notes(examples, [])[0]


def test_the_loss_is_half_of_each_cross_entropy(tokenizer):
    examples = random_examples(3, 8)
    task = SpanTask(stride=9)
    found = encoded(task, examples, tokenizer, 30)
    batch = batch_of_examples(found, np.arange(len(found.lengths)), task.targets(examples, found))
    logits = torch.randn(len(found.input_ids), 2, requires_grad=True)
    part = task.losses(logits, batch)["span"]
    expected, right = 0.0, 0
    for window, scores in enumerate(logits.split(found.lengths.tolist())):
        for column, name in enumerate(("start", "end")):
            expected = expected - scores[:, column].log_softmax(0)[batch.labels[name][window]] / 2
        right += all(int(scores[:, i].argmax()) == int(batch.labels[n][window]) for i, n in enumerate(("start", "end")))
    torch.testing.assert_close(part.total, expected)
    assert part.count == len(found.lengths)
    assert part.correct is not None
    assert int(part.correct) == right
    part.total.backward()
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()


# Answers ------------------------------------------------------------------------------------------------------------


def plain_spans(task: SpanTask, logits: torch.Tensor, found: Sequences, number: int) -> list[tuple[float, int, int]]:
    """Every allowed (score, first row, last row) of an example: one by one, over all windows."""
    spans = []
    where = plain_fullest(found, number)
    for window in range(found.windows[number], found.windows[number + 1]):
        rows = [r for r in range(found.starts[window], found.starts[window + 1]) if found.places["text"][r] == 1]
        for i, first in enumerate(rows):
            if where[int(found.places["piece"][first])] == window:
                spans += [
                    (float(logits[first, 0] + logits[last, 1]), first, last) for last in rows[i : i + task.max_answer]
                ]
    return spans


@pytest.mark.parametrize("seed", range(4))
def test_answers_are_the_best_spans_of_all_windows(tokenizer, seed):
    examples = random_examples(seed, 25)
    task = SpanTask(stride=8, max_answer=5, threshold=0.3)
    found = encoded(task, examples, tokenizer, 26)
    logits = torch.randn(len(found.input_ids), 2, generator=torch.Generator().manual_seed(seed)) * 2
    for number, (example, answer) in enumerate(
        zip(examples, task.decode(logits.numpy(), found, examples), strict=True)
    ):
        score, first, last = max(plain_spans(task, logits, found, number))
        start, end = int(found.places["start"][first]), int(found.places["end"][last])
        none = min(float(logits[s].sum()) for s in found.starts[found.windows[number] : found.windows[number + 1]])
        assert answer.spans[0].score == pytest.approx(score, abs=1e-5)
        assert answer.spans[0].text == example.texts[1][start:end].strip()
        assert answer.label.no_answer == pytest.approx(none - score, abs=1e-5)
        assert answer.label.text == ("" if none - score > 0.3 else answer.spans[0].text)
        every = [s for s, _, _ in plain_spans(task, logits, found, number)]
        mass = torch.tensor([*every, none]).logsumexp(0)
        assert answer.spans[0].probability == pytest.approx(float((score - mass).exp()), rel=1e-4)
        taken: set[int] = set()
        for span in answer.spans:
            assert example.texts[1][span.start : span.end] == span.text
            assert not taken & set(range(span.start, span.end))
            taken |= set(range(span.start, span.end))


def test_best_spans_one_by_one():
    rng = np.random.default_rng(0)
    for _ in range(50):
        scores = rng.random((9, 4), np.float32)
        scores[rng.random((9, 4)) < 0.3] = -np.inf
        scores[8, 1:] = -np.inf
        left, references = [(scores[i, j], i, j) for i in range(9) for j in range(4) if scores[i, j] > -np.inf], []
        while left and len(references) < 6:
            _, i, j = max(left)
            references.append((i, j))
            left = [(s, a, b) for s, a, b in left if a > i + j or a + b < i]
        assert list(best_spans(scores, 6)) == references


def test_no_answer_only_where_it_is_allowed(tokenizer):
    example = Example((QUESTION, CONTEXT))
    found = encoded(SpanTask(), [example], tokenizer, 48)
    logits = torch.zeros(len(found.input_ids), 2)
    logits[0] = 9.0
    (always,) = SpanTask().decode(logits.numpy(), found, [example])
    (sometimes,) = SpanTask(threshold=0.0).decode(logits.numpy(), found, [example])
    assert always.label.text
    assert sometimes.label.text == ""
    record = sometimes.as_json()
    assert record["answer"] == ""
    assert record["start"] is None
    assert record["no_answer_score"] == pytest.approx(18.0)
    assert always.as_json()["answer"] == CONTEXT[always.as_json()["start"] : always.as_json()["end"]]


def test_an_answer_is_not_weighed_against_none_where_none_is_not_allowed(tokenizer):
    example = Example((QUESTION, CONTEXT))
    found = encoded(SpanTask(), [example], tokenizer, 48)
    logits = torch.zeros(len(found.input_ids), 2)
    logits[0] = 1e4
    (answer,) = SpanTask(n_best=20).decode(logits.numpy(), found, [example])
    assert 0 < sum(span.probability for span in answer.spans) <= 1.000001


def test_a_context_without_a_single_piece_has_no_answer(tokenizer):
    example = Example((QUESTION, "\u200b"))
    found = encoded(SpanTask(), [example], tokenizer, 24)
    (answer,) = SpanTask().decode(torch.zeros(len(found.input_ids), 2).numpy(), found, [example])
    assert answer.label == QaPrediction("", "", float("inf"))
    assert answer.as_json()["n_best"] == []


def test_the_threshold_is_tuned_on_dev_and_saved(tokenizer):
    examples = random_examples(5, 40)
    task = SpanTask.from_examples(examples, (), {})
    assert task.threshold == 0.0
    assert SpanTask.from_examples([e for e in examples if e.label], (), {}).threshold is None
    found = encoded(task, examples, tokenizer, 64)
    targets = task.targets(examples, found).sequence
    logits = torch.randn(len(found.input_ids), 2, generator=torch.Generator().manual_seed(0))
    logits[found.starts[:-1]] += 6.0
    logits[found.starts[:-1] + targets["start"], 0] += 4.0
    logits[found.starts[:-1] + targets["end"], 1] += 4.0
    answers = task.decode(logits.numpy(), found, examples)
    tuned = task.tune_on_dev(zip(examples, answers, strict=True))
    assert tuned.threshold != 0.0

    def f1(chosen: SpanTask) -> float:
        scores = chosen.scores()
        scores.add([e.label for e in examples], [a.label for a in chosen.decode(logits.numpy(), found, examples)])
        return scores.compute()["f1"]

    best = max(f1(SpanTask(threshold=a.label.no_answer)) for a in answers)
    assert f1(tuned) == pytest.approx(max(best, f1(SpanTask(threshold=-1e9))))
    config = EncoderConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
    )
    model = TorchModel(Encoder(config), task.heads(config))
    initialize(model, std=0.2)
    model.training_facts = with_task(TrainingFacts(), tuned)
    assert task_of(Facts.of(model)) == tuned


# Files --------------------------------------------------------------------------------------------------------------


def test_rows_from_files(tmp_path: Path):
    (tmp_path / "a.jsonl").write_text(
        '{"question": "who", "context": "Ada", "answers": []}\n{"question": "who", "context": "Ada"}\n'
    )
    first, second = SpanTask.rows(tmp_path / "a.jsonl", TableFormat())
    assert first.label == ()
    assert second == BadRecord(2, "no answers")
    (tmp_path / "a.csv").write_text("context,question\nAda rows,who\n")
    with pytest.raises(UsageError, match="jsonl"):
        list(SpanTask.rows(tmp_path / "a.csv", TableFormat()))
    (row,) = SpanTask.rows(tmp_path / "a.csv", TableFormat.of(labelled=False))
    assert row.texts == ("who", "Ada rows")
    (tmp_path / "b.csv").write_text("text\nAda\n")
    with pytest.raises(DataError, match="question"):
        list(SpanTask.rows(tmp_path / "b.csv", TableFormat.of(labelled=False)))


def test_an_unknown_script_is_named():
    with pytest.raises(UsageError, match=r"squad2\.0"):
        SpanTask.make((), {"script": "squad2"})
