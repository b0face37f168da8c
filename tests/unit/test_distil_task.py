"""Distillation for a task: the teacher's answers are kept as they are, and a student learns them without labels."""

import numpy as np
import pytest
import torch

from bertie.compression.distil import (
    HIDDEN,
    LOGITS,
    QKV,
    StudentLoss,
    distil,
    last_qkv,
    relations_loss,
    teacher_answers,
)
from bertie.compression.prune import prune
from bertie.errors import UsageError
from bertie.io.tables import Example
from bertie.models import families
from bertie.models.encoder import EncoderOutput
from bertie.nn.layout import Packed
from bertie.tasks.sequence import SequenceTask
from bertie.tasks.source import TaskSource, batch_of_examples
from bertie.tasks.tagging import TaggingTask
from bertie.text.tokenizer import Tokenizer
from bertie.train.config import OptimConfig, TrainConfig
from toys import toy_model

LETTERS = [*"abcdefgh", *("##" + c for c in "abcdefgh")]
TASK = SequenceTask(("no", "yes"))
ALL = StudentLoss(TASK, soft=1.0, hidden=1.0, relations=1.0, hard=0.5)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    folder = toy_model(tmp_path_factory.mktemp("model"), LETTERS, num_hidden_layers=2, num_attention_heads=4)
    model = families.load(folder, heads=TASK.heads, seed=1)[0].eval()
    model.tokenizer = Tokenizer.load(folder)
    return model


@pytest.fixture(scope="module")
def examples():
    rng = np.random.default_rng(0)
    texts = ["".join(rng.choice([*"abcdefgh", " "], size=rng.integers(6, 40))) + " a" for _ in range(96)]
    labels = [None if i % 2 else ("no", "yes")[text.count("a") > 2] for i, text in enumerate(texts)]
    return [Example((text,), label, i) for i, (text, label) in enumerate(zip(texts, labels, strict=True))]


def encoded(teacher, examples):
    return TASK.encode(examples, teacher.tokenizer, max_length=64, too_long="truncate")


def test_what_the_teacher_says_is_kept(teacher, examples, tmp_path):
    found = encoded(teacher, examples)
    targets = teacher_answers(teacher, ALL, found, tmp_path, max_tokens=200)
    assert set(targets.sequence) == {LOGITS}
    assert set(targets.token) == {HIDDEN, QKV}
    for number in (0, 17, 95):
        batch = batch_of_examples(found, np.array([number]), targets)
        with torch.no_grad():
            output = teacher.encode(batch, output_hidden_states=True)
            said = {
                LOGITS: TASK.logits(teacher, output),
                HIDDEN: output.last_hidden_state,
                QKV: last_qkv(teacher, output),
            }
        for name, exact in said.items():
            assert torch.allclose(batch.labels[name].float(), exact, atol=2e-3 * float(exact.abs().max())), name
    times = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert len(times) == 3
    teacher_answers(teacher, ALL, found, tmp_path)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == times
    teacher_answers(teacher, ALL, encoded(teacher, examples[:50]), tmp_path)
    assert len(list(tmp_path.iterdir())) == 6


def test_relations_are_those_of_the_paper():
    """Against a loop over sequences, heads and kinds; of two widths; none of itself."""
    draw = torch.Generator().manual_seed(0)
    lengths = torch.tensor([3, 1, 5])
    ours, theirs = torch.randn(9, 3 * 24, generator=draw), torch.randn(9, 3 * 36, generator=draw)
    output = EncoderOutput(ours, Packed.from_lengths(lengths))
    total, start = 0.0, 0
    for length in lengths.tolist():
        rows = slice(start, start + length)
        for kind in range(3):
            for head in range(12):  # 2 and 3 wide
                x = ours[rows, kind * 24 + head * 2 : kind * 24 + head * 2 + 2]
                y = theirs[rows, kind * 36 + head * 3 : kind * 36 + head * 3 + 3]
                p, q = (y @ y.T / 3**0.5).softmax(-1), (x @ x.T / 2**0.5).softmax(-1)
                total += float((p * (p.log() - q.log())).sum()) / 36
        start += length
    assert float(relations_loss(ours, theirs, output)) == pytest.approx(total, rel=1e-5)
    assert float(relations_loss(ours, ours, output)) == pytest.approx(0, abs=1e-5)


def apart(model, teacher, examples) -> float:
    found = encoded(teacher, examples)
    with torch.no_grad():
        batch = batch_of_examples(found, np.arange(len(examples)))
        ours, theirs = (TASK.logits(one, one.encode(batch)) for one in (model, teacher))
    return float((ours - theirs).square().mean())


def test_a_student_learns_from_texts_without_labels(teacher, examples, tmp_path):
    student = prune(teacher, layers=1)
    texts = [Example(example.texts, None, example.line) for example in examples]
    before = apart(student, teacher, examples)
    train = TrainConfig(steps=30, batch_size=16, precision="fp32", device="cpu")
    distil(student, teacher, ALL, texts, tmp_path, max_length=64, train=train, optim=OptimConfig(lr=2e-3))
    assert apart(student, teacher, examples) < 0.3 * before
    assert not student.training


def test_students_of_another_width_and_heads_on_tokens(teacher, examples):
    narrow = families.build(
        teacher.config.replace(hidden_size=24, num_attention_heads=2), heads=TASK.heads, seed=3
    ).eval()
    with pytest.raises(UsageError, match="Compare relations instead"):
        ALL.check(narrow, teacher)
    objective = StudentLoss(TASK)
    objective.check(narrow, teacher)
    other = families.build(teacher.config.replace(vocab_size=30), heads=TASK.heads)
    with pytest.raises(UsageError, match="different vocabularies"):
        objective.check(other, teacher)


def test_answers_of_every_token(teacher, examples, tmp_path):
    task = TaggingTask(("O", "B-x", "I-x"))
    model = families.build(teacher.config, heads=task.heads, seed=2).eval()
    model.tokenizer = teacher.tokenizer
    found = encoded(teacher, examples[:9])
    targets = teacher_answers(model, StudentLoss(task, relations=0.0, hard=0.0), found, tmp_path)
    assert targets.token[LOGITS].shape == (len(found.input_ids), 3)
    source = TaskSource(found, targets, batch_size=4, micro_batch_size=2, seed=0)
    (first, *_) = source.batches(0)
    assert first.labels[LOGITS].shape == (first.tokens, 3)
