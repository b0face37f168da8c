"""Calibration after a run: the scaling of the logits, in the weights of the head where they can contain it.

    logits of held-out examples -> Scaling (metrics/scaling.py) -> the classifier's weights, or bertie.json

L labels
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from bertie.console import counted
from bertie.files import Json
from bertie.metrics.scaling import Scaling
from bertie.models.heads.base import Head
from bertie.models.model import TorchModel
from bertie.report.page import Report
from bertie.runs.config import FinetuneConfig
from bertie.runs.finetune_prepare import Labeled
from bertie.tasks import Task
from bertie.tasks.answerer import Logits
from bertie.tasks.capabilities import ReadsColumns


@dataclass(frozen=True)
class Calibrated:
    """A task with calibrated probabilities. scaling: of the logits; in_weights: whether the head contains it."""

    task: Task
    scaling: Scaling
    in_weights: bool

    def raw(self, logits: Logits) -> Logits:
        """Returns the logits without the scaling, from those of the model."""
        return self.scaling.undo(logits) if self.in_weights else logits


_Parts = Iterable[tuple[Labeled, Logits]]
_FIGURES = ("ece", "brier")
ONLY_HERE = (
    "the weights of this head cannot contain the calibration: Bertie applies it, and transformers gives probabilities "
    "without it"
)
EACH = 50  # examples for each number of a scaling; of fewer, a note is made
_LABELS_SHOWN = 50  # labels in a report


def calibrate(task: Task, model: TorchModel, parts: _Parts) -> Calibrated:
    """Fits the scaling of a task's logits, and changes the weights of its head where they can contain it.

    parts: the examples that it is fitted on, with their logits.
    """
    scaling = scaling_of(task, parts)
    if not scaling:
        return Calibrated(task, scaling, False)
    beside = isinstance(task, ReadsColumns) and bool(task.tabular)  # which no weight of the head multiplies
    in_weights = not beside and _folded(model, task.output, scaling)
    return Calibrated(task if in_weights else task.with_scaling(scaling), scaling, in_weights)


def scaling_of(task: Task, parts: _Parts) -> Scaling:
    """Returns the scaling that fits a task's logits; none for a task without calibration."""
    if not task.calibrates:
        return Scaling()
    return task.scaling_for((part.examples, part.sequences, logits) for part, logits in parts)


def _folded(model: TorchModel, head: str, scaling: Scaling) -> bool:
    """Whether the weights of a head have taken a scaling."""
    module = dict(model.heads).get(head)
    size = len(scaling.scale)
    scale, shift = (
        torch.tensor(values, device=model.device) for values in (scaling.scale, scaling.shift or (0.0,) * size)
    )
    return isinstance(module, Head) and module.fold(scale, shift)


def scaling_json(config: FinetuneConfig, calibrated: Calibrated, on: str, examples: int) -> dict[str, object]:
    """Returns the scaling for results.json; {} for a run without calibration. on, examples: which, and how many, it is
    fitted on."""
    if not config.calibrate:
        return {}
    scaling = {"scale": list(calibrated.scaling.scale), "shift": list(calibrated.scaling.shift)}
    about = {"kind": config.calibrate, "on": on, "examples": examples}
    return {"calibration": {**about, **scaling, "in_weights": calibrated.in_weights}}


def scaling_notes(config: FinetuneConfig, results: Json) -> list[str]:
    """Returns what is to be told of the calibration of a run."""
    if not (fitted := results.get("calibration")):
        return []
    if not fitted["scale"]:
        return [f"calibrate={config.calibrate}: all answers are right, so that no scaling is best, and none is used"]
    numbers = 1 if fitted["kind"] == "temperature" else 2 * len(fitted["scale"])
    few = (
        f"calibrate={config.calibrate}: {fitted['examples']:,} examples are few for {counted(numbers, 'number')}, and "
        "may make probabilities worse"
    )
    return [*([few] if fitted["examples"] < EACH * numbers else []), *([] if fitted["in_weights"] else [ONLY_HERE])]


def scaling_section(report: Report, results: Json) -> None:
    """Adds the section about the scaling to a report, where there is one."""
    fitted = results.get("calibration")
    if not fitted or not fitted["scale"]:
        return
    after, before = results.get("dev", {}), results.get("untuned", {}).get("dev", {})
    where = "The weights of the head contain it." if fitted["in_weights"] else f"{ONLY_HERE[0].upper()}{ONLY_HERE[1:]}."
    about = f"Fitted on {fitted['on']} examples ({fitted['kind']} scaling). {where}"
    figures = [
        [{"ece": "expected calibration error", "brier": "Brier score"}[name], before[name], after[name]]
        for name in _FIGURES
        if name in before and name in after
    ]
    report.section("Scaling of the logits", about)
    if figures:
        report.table(["on dev", "before", "after"], figures)
    if fitted["kind"] == "temperature":
        report.table(["temperature"], [[1 / fitted["scale"][0]]])
        return
    rows = [*zip(results["labels"], fitted["scale"], fitted["shift"], strict=True)][:_LABELS_SHOWN]
    report.table(["label", "factor", "shift"], [list(row) for row in rows])
