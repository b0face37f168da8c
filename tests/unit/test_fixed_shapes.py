"""Batches of few shapes have the losses and gradients of the batches they are made from, and nothing waits for them."""

from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from bertie.data.masking import Vocabulary
from bertie.models import families
from bertie.models.batch import Batch
from bertie.models.fixed_shapes import with_fixed_shape
from bertie.models.model import TorchModel
from bertie.nn.layout import Packed, rounded
from bertie.nn.varlen import Varlen
from bertie.objectives.base import Objective
from bertie.objectives.mlm import MaskedLM
from bertie.objectives.pair import NextSentence
from bertie.order import Draws, key
from bertie.tasks.multilabel import MultiLabelTask
from bertie.tasks.regression import RegressionTask
from bertie.tasks.sequence import SequenceTask
from bertie.tasks.span import SpanTask
from bertie.tasks.tagging import TaggingTask
from bertie.text.sequences import Sequences
from bertie.train.base import Trainable
from bertie.train.graphs import RecordedShape, has_fixed_shapes, tensors_of
from bertie.train.step import backward

SIZE = {"vocab_size": 90, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
LENGTHS = ([7, 40, 3, 21], [5, 5], [128, 2, 90], [64] * 9)
TASKS: dict[str, Any] = {
    "sequence": SequenceTask(("a", "b", "c")),
    "multilabel": MultiLabelTask(("a", "b", "c")),
    "regression": RegressionTask(("number",)),
    "tagging": TaggingTask(("O", "B-X", "I-X")),
    "span": SpanTask(()),
    "mlm": MaskedLM(),
    "mlm + nsp": MaskedLM() + NextSentence(),
}


def sequences_of(lengths: list[int], seed: int = 0) -> Sequences:
    rng = np.random.default_rng(seed)
    ids = np.concatenate([[1, *rng.integers(10, 90, n - 2), 2] if n > 2 else [1, 2] for n in map(int, lengths)])
    return Sequences(ids, rng.integers(0, 2, len(ids)), np.array(lengths))


def batch_of(lengths: list[int], seed: int = 0) -> Batch:
    return Batch.of(sequences_of(lengths, seed))


def labelled(name: str, lengths: list[int], seed: int = 0) -> Batch:
    """A batch with the targets of a task or an objective; one label has no weight."""
    rng, clean, size = np.random.default_rng(seed + 1), sequences_of(lengths, seed), len(lengths)
    weight = np.ones(size, np.float32)
    weight[-1] = 0
    match name:
        case "sequence":
            labels: dict[str, Any] = {"label": rng.integers(0, 3, size), "weight": weight}
        case "multilabel":
            labels = {"has": rng.integers(0, 2, (size, 3)).astype(np.float32), "weight": weight}
        case "regression":
            labels = {"number": rng.normal(size=size).astype(np.float32), "weight": weight}
        case "span":
            starts = np.array([min(1, n - 1) for n in lengths])
            labels = {"start": starts, "end": np.array(lengths) - 1, "weight": weight}
        case "tagging":
            count = sum(lengths)
            labels = {
                "tag": rng.integers(0, 3, count),
                "weight": rng.integers(0, 2, count).astype(np.float32),
            }
        case _:
            structure = np.isin(np.arange(90), [0, 1, 2, 3, 4])
            vocabulary = Vocabulary(1, 2, 0, 3, 4, structure, structure & False, structure & False)
            objective: Objective = TASKS[name]
            clean = objective.corrupt(clean, Draws(key(0, seed, np.arange(size))), vocabulary)
            labels = {"nsp_labels": rng.integers(0, 2, size)} if "nsp" in name else {}
    return Batch.of(clean.with_labels(**labels))


def model_of(task: Trainable, **changes: Any) -> TorchModel:
    config = families.config("bert-tiny", **SIZE, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **changes)
    return families.build(config, heads=task.heads, seed=1).train()  # type: ignore[attr-defined]


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("name", TASKS)
def test_losses_and_gradients_are_the_same(name: str, lengths: list[int]) -> None:
    task, batch = TASKS[name], labelled(name, lengths)
    model = model_of(task)
    fixed = with_fixed_shape(batch, task.label_axes, model.config.max_length)
    assert fixed is not None
    assert has_fixed_shapes(model, task)
    counts, results = task.counts(batch), []
    for one in (batch, fixed):
        model.zero_grad()
        sums = backward(model, task, [one], counts, seed=(0,), device=torch.device("cpu"))
        gradients = {n: x.grad.clone() for n, x in model.named_parameters() if x.grad is not None}
        results.append((sums.tensor(), gradients))
    torch.testing.assert_close(results[0][0], results[1][0], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(results[0][1], results[1][1], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", TASKS)
def test_no_number_of_a_fixed_batch_is_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tensor without numbers raises an error where one is read, as a graph could not record it."""
    monkeypatch.setattr("bertie.models.encoder.unpadded", lambda layout, _, heads, __: Varlen.of(layout, heads))
    monkeypatch.setattr("bertie.nn.varlen.flash_attention", lambda q, k, v, *_, **__: (q + k + v,))
    monkeypatch.setattr("bertie.models.vocabulary_loss._row_max", lambda x_CV: x_CV.amax(1))
    task, batch = TASKS[name], labelled(name, LENGTHS[0])
    fixed = with_fixed_shape(batch, task.label_axes, 512)
    assert fixed is not None
    model, counts = model_of(task), task.counts(batch)
    # of the original batch, which has numbers
    monkeypatch.setattr(type(task), "counts", lambda *_: counts)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = Batch(
            mode.from_tensor(fixed.input_ids),
            mode.from_tensor(fixed.token_type_ids),
            Packed(
                mode.from_tensor(fixed.layout.cu_seqlens),  # type: ignore[union-attr]
                fixed.layout.max_seqlen,
                fixed.layout.num_tokens,  # type: ignore[union-attr]
                fixed.layout.num_rows,  # type: ignore[union-attr]
                fixed=True,
            ),
            fixed.sample_ids,
            {name: mode.from_tensor(label) for name, label in fixed.labels.items()},
            None,
            fixed.host,
        )
        report = task.loss(model, task.forward(model, fake), fake)
        torch.autograd.grad(sum(part.total for part in report.values()), list(model.parameters()), allow_unused=True)


def test_shapes_are_few_and_the_rows_after_the_texts_are_short_sequences() -> None:
    rng, shapes = np.random.default_rng(0), set()
    for step in range(60):
        lengths = rng.integers(12, 65, 64).tolist()
        fixed = with_fixed_shape(labelled("mlm", lengths, step), MaskedLM().label_axes, 512)
        assert fixed is not None
        assert isinstance(fixed.layout, Packed)
        after = fixed.layout.cu_seqlens.diff()[len(lengths) :]
        assert int(after.min()) >= 1
        assert int(after.max()) <= fixed.layout.max_seqlen == 64
        assert int(fixed.layout.cu_seqlens[-1]) == len(fixed.input_ids) <= 1.3 * sum(lengths)
        positions = fixed.labels["mlm_positions"]
        assert len(positions.unique()) == len(positions) == len(fixed.labels["mlm_targets"])
        assert len({len(tensor) for tensor in tensors_of(fixed)}) > 1
        shapes.add(RecordedShape.of(fixed, MaskedLM.label_axes, first=True))
    assert len(shapes) <= 16


def test_a_batch_is_filled_up_to_a_larger_shape() -> None:
    axes = MaskedLM.label_axes
    small, large = labelled("mlm", [60] * 16), labelled("mlm", [62] * 16)
    larger = RecordedShape.of(with_fixed_shape(large, axes, 512), axes, first=True)  # type: ignore[arg-type]
    shape = RecordedShape.of(with_fixed_shape(small, axes, 512), axes, first=True)  # type: ignore[arg-type]
    assert larger != shape
    assert larger.holds(shape)
    assert not shape.holds(larger)
    filled = with_fixed_shape(small, axes, 512, rows=larger.rows, predictions=larger.predictions)
    assert filled is not None
    assert RecordedShape.of(filled, axes, first=True) == larger
    assert [len(x) for x in tensors_of(filled)] == [len(x) for x in tensors_of(with_fixed_shape(large, axes, 512))]  # type: ignore[arg-type]


def test_batches_of_any_size_have_few_shapes() -> None:
    """As in inference: a text alone, and as many as a server has at once."""
    rng, shapes = np.random.default_rng(0), set()
    for _ in range(500):
        lengths = rng.integers(3, 120, rng.integers(1, 9)).tolist()
        fixed = with_fixed_shape(batch_of(lengths), {}, 512, any_size=True)
        assert fixed is not None
        bounds = fixed.packed.cu_seqlens
        assert len(fixed.input_ids) == int(bounds[-1]) >= sum(lengths)
        assert int(bounds.diff().min()) > 0
        assert bounds[: len(lengths) + 1].diff().tolist() == lengths
        shapes.add((len(fixed.input_ids), fixed.layout.max_seqlen, len(bounds)))
    assert len(shapes) < 75


def test_batches_that_have_no_fixed_shape() -> None:
    batch = labelled("sequence", [5, 9])
    axes = SequenceTask.label_axes
    assert with_fixed_shape(batch.with_labels(more=torch.ones(2)), axes, 512) is None
    first = labelled("mlm", [5, 9])
    read = first.with_labels(mlm_positions=torch.tensor([0]), mlm_targets=torch.tensor([7]))  # [CLS] is read anyway
    assert with_fixed_shape(read, MaskedLM().label_axes, 512) is None


@pytest.mark.parametrize("rows", [1, 8, 80, 129, 19_700])
def test_sizes(rows: int) -> None:
    assert rows <= rounded(rows, 8) <= max(rows + 1, rows * 9 / 8)
    assert rows <= rounded(rows, 32) <= max(rows + 1, rows * 33 / 32)
