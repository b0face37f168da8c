"""A loss that compares all examples of a step has the same gradients in however many micro-batches they are read."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from bertie.io.tables import Example
from bertie.models import families
from bertie.models.batch import Batch
from bertie.models.model import TorchModel
from bertie.order import key
from bertie.tasks.embed import EmbedTask
from bertie.tasks.source import TaskSource
from bertie.text.tokenizer import Tokenizer
from bertie.train.step import backward
from toys import toy_model

LETTERS, SEED = "abcdefghijklmnop", (3, 1)
CPU = torch.device("cpu")
FORMS = {
    "in_batch_negatives": {"symmetric": True, "matryoshka": (8,)},
    "cosent": {},
    "triplet": {"margin": 0.5},
    "kl": {},
}


def examples_for(loss: str) -> list[Example]:
    rng = np.random.default_rng(0)
    texts = [tuple(" ".join(rng.choice([*LETTERS], rng.integers(1, 9))) for _ in range(3)) for _ in range(24)]
    if loss == "in_batch_negatives":
        return [Example(one[: 2 + i % 2], 1.0, group=i) for i, one in enumerate(texts)]
    if loss == "cosent":
        return [Example(one[:2], i / 24) for i, one in enumerate(texts)]
    if loss == "triplet":
        return [Example(one[:1], "xyz"[i % 3]) for i, one in enumerate(texts)]
    return [Example(one, (0.5 * i, 1.0)) for i, one in enumerate(texts)]


def opened(folder: Path, dropout: float) -> TorchModel:
    settings = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": 0.0}
    model, _ = families.load(folder, overrides=settings)
    model.tokenizer = Tokenizer.load(folder)
    return model.train()


def micro_batches(task: EmbedTask, model: TorchModel, examples: list[Example], size: int) -> list[Batch]:
    sequences = task.encode(examples, model.tokenizer, max_length=16, too_long="truncate")
    targets = task.targets(examples, sequences)
    return TaskSource(sequences, targets, batch_size=24, micro_batch_size=size, seed=0).batches(0)


def gradients(task: EmbedTask, model: TorchModel, batches: list[Batch]) -> tuple[float, dict[str, Tensor]]:
    counts = {name: float(sum(task.counts(batch)[name] for batch in batches)) for name in task.counts(batches[0])}
    model.zero_grad()
    sums = backward(model, task, batches, counts, seed=SEED, device=CPU)
    losses, _ = sums.read(sums.tensor().tolist())
    named = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return sum(losses.values()), named


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_model(tmp_path_factory.mktemp("model"), LETTERS)


@pytest.mark.parametrize("loss", FORMS)
def test_parts_have_the_gradients_of_the_whole(folder: Path, loss: str) -> None:
    model, examples = opened(folder, dropout=0.0), examples_for(loss)
    task = EmbedTask(loss_kind=loss, **FORMS[loss])
    whole, expected = gradients(task, model, micro_batches(task, model, examples, 24))
    total, found = gradients(task, model, micro_batches(task, model, examples, 5))
    assert total == pytest.approx(whole, rel=1e-5)
    assert found.keys() == expected.keys()
    largest = max(float(gradient.abs().max()) for gradient in expected.values())  # some are 0 but for rounding
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-3, atol=1e-5 * largest, msg=name)


def test_both_passes_of_a_part_have_the_same_dropout(folder: Path) -> None:
    model, examples = opened(folder, dropout=0.3), examples_for("in_batch_negatives")
    task = EmbedTask(loss_kind="in_batch_negatives")
    batches = micro_batches(task, model, examples, 6)
    _, found = gradients(task, model, batches)
    model.zero_grad()
    logits = []
    for micro, batch in enumerate(batches):
        torch.manual_seed(int(key(*SEED, micro)))
        logits.append(task.logits(model, task.forward(model, batch)).float())
    joined = Batch.of(*(batch.sequences for batch in batches if batch.sequences is not None))
    (term,) = task.losses(torch.cat(logits), joined).values()
    (term.total / term.count).backward()
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            torch.testing.assert_close(found[name], parameter.grad, rtol=1e-4, atol=1e-7)
