"""Passes by kernels, recorded as CUDA graphs on an NVIDIA GPU, have the losses and gradients of the formulas.

Without a GPU, triton's interpreter runs the kernels on the CPU, and nothing is recorded.
"""

from dataclasses import fields, replace
from typing import Any

import pytest
import torch

from bertie.models import families
from bertie.models.fixed_shapes import with_fixed_shape
from bertie.models.model import TorchModel
from bertie.nn.varlen import Varlen
from bertie.objectives.mlm import MaskedLM
from bertie.objectives.pair import NextSentence
from bertie.train.graphs import RecordedPasses, RecordedShape
from bertie.train.step import backward
from tests.unit.test_fixed_shapes import SIZE, TASKS, labelled

pytest.importorskip("triton", reason="triton is for Linux on x86")
ON_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if ON_GPU else "cpu")
LENGTHS = [7, 40, 3, 21, 64, 33] if ON_GPU else [4, 9, 3]


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention by our kernel, where no GPU has torch's."""
    if not ON_GPU:
        monkeypatch.setattr(
            "bertie.models.encoder.unpadded", lambda layout, _, heads, __: replace(Varlen.of(layout, heads), short=True)
        )


def model_of(task: Any, dropout: float = 0.0, **changes: Any) -> TorchModel:
    sizes = SIZE if not ON_GPU else SIZE | {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 3}
    config = families.config(
        "bert-tiny",
        **sizes | {"num_attention_heads": 2 if ON_GPU else 1},
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        **changes,
    )
    model = families.build(config, heads=task.heads, seed=1).to(DEVICE).train()
    model.compute_dtype = torch.bfloat16 if ON_GPU else None
    return model


def gradients(
    model: TorchModel, task: Any, batches: list[Any], recorded: RecordedPasses | None, seed: int = 0
) -> dict[str, torch.Tensor]:
    model.zero_grad(set_to_none=True)
    counts: dict[str, int] = {}
    for batch in batches:
        counts = {name: counts.get(name, 0) + n for name, n in task.counts(batch).items()}
    sums = backward(model, task, batches, counts, seed=(seed,), device=DEVICE, recorded=recorded)
    found = {name: x.grad.double() for name, x in model.named_parameters() if x.grad is not None}
    return found | {"figures": sums.tensor().double()}


def error(ours: dict[str, torch.Tensor], exact: dict[str, torch.Tensor]) -> dict[str, float]:
    """The norm of the difference relative to that of the exact value, or to a hundredth of the largest gradient.

    The gradient of a span's bias is zero but for rounding, since probabilities sum to 1.
    """
    assert ours.keys() == exact.keys()
    least = max(0.01, 0.01 * max(float(x.norm()) for name, x in exact.items() if name != "figures"))
    return {name: float((ours[name] - x).norm() / x.norm().clamp_min(least)) for name, x in exact.items()}


@pytest.mark.parametrize("steps", [[1] * 5, [2] * 5, [3] * 5] if ON_GPU else [[1, 2]], ids=str)
@pytest.mark.parametrize("name", TASKS)
def test_passes_are_those_of_the_formulas(name: str, steps: list[int]) -> None:
    """In float32 without a GPU. With one, in bfloat16, as near to float32 as the formulas in bfloat16 are.

    steps: the passes of each
    """
    task = TASKS[name]
    model = model_of(task)
    recorded = RecordedPasses(model, task, DEVICE)
    for step, passes in enumerate(steps):
        # different lengths, and the same shape: a graph may keep nothing of the batch that it was recorded with
        batches = [labelled(name, LENGTHS[step:] + LENGTHS[:step], step + 10 * i) for i in range(passes)]
        ours = gradients(model, task, batches, recorded)
        rough = formulas(model, task, batches)
        model.compute_dtype, dtype = None, model.compute_dtype
        exact = formulas(model, task, batches)
        model.compute_dtype = dtype
        errors = error(ours, exact)
        allowed = error(rough, exact)
        for key, value in errors.items():
            assert value <= max(2 * allowed[key], 0.01 if ON_GPU else 1e-4), key
    assert not recorded.why_not
    if ON_GPU:
        assert RecordedPasses.fits(model, task, DEVICE, torch.bfloat16)
        assert recorded.recordings, "nothing was recorded"


@pytest.mark.parametrize("name", TASKS)
def test_a_pass_keeps_nothing_of_the_numbers_of_a_batch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph would take what was computed before it was recorded for constants."""
    task, fixed = TASKS[name], with_fixed_shape(labelled(name, LENGTHS), TASKS[name].label_axes, 512)
    assert fixed is not None
    model, seen = model_of(task), list[set[str]]()
    forward = task.forward

    def watched(model: TorchModel, batch: Any) -> Any:
        seen.append(set(vars(batch.layout)) - {field.name for field in fields(batch.layout)})
        if len(seen) == 2:
            raise StopIteration  # what the first pass left has been seen
        return forward(model, batch)

    monkeypatch.setattr(type(task), "forward", lambda self, model, batch: watched(model, batch))
    recorded, batch = RecordedPasses(model, task, DEVICE), fixed.to(DEVICE)
    seeds = torch.zeros(recorded.sites, 2, dtype=torch.int32, device=DEVICE)
    arguments = batch, torch.ones(len(task.counts(fixed.host)), device=DEVICE), seeds, True
    recorded._pass(*arguments)
    with pytest.raises(StopIteration):
        recorded._pass(*arguments)
    assert seen == [set(), set()]


def formulas(model: TorchModel, task: Any, batches: list[Any]) -> dict[str, torch.Tensor]:
    """The gradients of padded batches, which have no kernels."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bertie.models.encoder.unpadded", lambda *_: None)
        return gradients(model, task, batches, None)


def test_masks_of_dropout_depend_on_the_seed_alone() -> None:
    """A batch has the same masks when it is filled up to a larger shape, and whether or not it is recorded."""
    task = MaskedLM() + NextSentence()
    model = model_of(task, dropout=0.2)
    recorded = RecordedPasses(model, task, DEVICE)
    batch = labelled("mlm + nsp", LENGTHS)
    results = [gradients(model, task, [batch], recorded, seed) for seed in ((0, 0, 0, 1) if ON_GPU else (0, 0, 1))]
    tolerance = 0.02 if ON_GPU else 1e-4
    for result in results[1:-1]:
        assert max(error(result, results[0]).values()) <= tolerance
    assert error(results[-1], results[0])["figures"] > 1e-3
    small = RecordedShape.of(with_fixed_shape(batch, task.label_axes, 512), task.label_axes, first=True)  # type: ignore[arg-type]
    larger = RecordedPasses(model, task, DEVICE)
    larger._fixed = lambda batch, **_: with_fixed_shape(  # type: ignore[method-assign, assignment]
        batch, task.label_axes, 512, rows=small.rows + 2, predictions=small.predictions + 1
    )
    filled = gradients(model, task, [batch], larger)
    assert max(error(filled, results[0]).values()) <= tolerance
    assert max(error(filled, formulas(model_of(task), task, [batch])).values()) > 0.1  # there was dropout
