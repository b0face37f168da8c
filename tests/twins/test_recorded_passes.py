"""Passes recorded as CUDA graphs have the losses and gradients of passes that are not, on an NVIDIA GPU."""

from typing import Any

import pytest
import torch

from bertie import families
from bertie.models.model import TorchModel
from bertie.objectives.mlm import MaskedLM
from bertie.train.graphs import RecordedPasses
from bertie.train.step import backward
from tests.unit.test_fixed_shapes import SIZE, TASKS, labelled

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="graphs are for NVIDIA GPUs")
DEVICE = torch.device("cuda")
LENGTHS = [7, 40, 3, 21, 64, 33]


def model_of(task: Any, dropout: float = 0.0, **changes: Any) -> TorchModel:
    sizes = SIZE | {"hidden_size": 128, "num_attention_heads": 2, "intermediate_size": 256, "num_hidden_layers": 3}
    config = families.config(
        "bert-tiny", **sizes, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout, **changes
    )
    model = families.build(config, heads=task.heads, seed=1).to(DEVICE).train()
    model.compute_dtype = torch.bfloat16
    return model


def gradients(
    model: TorchModel, task: Any, batches: list[Any], recorded: RecordedPasses | None
) -> dict[str, torch.Tensor]:
    model.zero_grad(set_to_none=True)
    counts: dict[str, int] = {}
    for batch in batches:
        counts = {name: counts.get(name, 0) + n for name, n in task.counts(batch).items()}
    sums = backward(model, task, batches, counts, seed=(0,), device=DEVICE, recorded=recorded)
    found = {name: x.grad.clone() for name, x in model.named_parameters() if x.grad is not None}
    return found | {"figures": sums.tensor().clone()}


@pytest.mark.parametrize("passes", [1, 2, 3])
@pytest.mark.parametrize("name", TASKS)
def test_recorded_passes_are_those_of_the_formulas(name: str, passes: int) -> None:
    task = TASKS[name]
    model = model_of(task)
    assert RecordedPasses.fits(model, task, DEVICE, torch.bfloat16)
    recorded = RecordedPasses(model, task, DEVICE)
    for seed in range(5):
        batches = [labelled(name, LENGTHS, seed + 10 * i) for i in range(passes)]
        ours, formula = (gradients(model, task, batches, one) for one in (recorded, None))
        assert ours.keys() == formula.keys()
        for key, gradient in formula.items():  # bfloat16 has 8 bits, and the paths round in other places
            difference = float((ours[key] - gradient).norm())
            assert difference <= 0.05 * float(gradient.norm()) + 1e-4, key
    assert not recorded.why_not
    assert recorded.recordings, "nothing was recorded"


def test_masks_of_dropout_follow_the_seed() -> None:
    task = MaskedLM()
    model = model_of(task, dropout=0.1)
    recorded = RecordedPasses(model, task, DEVICE)
    batch = labelled("mlm", LENGTHS)
    figures = []
    for seed in (0, 0, 0, 1, 0):
        model.zero_grad(set_to_none=True)
        sums = backward(model, task, [batch], task.counts(batch), seed=(seed,), device=DEVICE, recorded=recorded)
        figures.append(sums.tensor().tolist())
    assert recorded.recordings
    assert figures[1] == figures[2] == figures[4] != figures[3]
