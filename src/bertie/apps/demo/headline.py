"""The result of the demo: three accuracies and their interpretation, for the terminal and for the page."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bertie.apps.demo.settings import LONGER, START_NAMES
from bertie.platform import File, SeedSummary

Accuracies = Mapping[str, Sequence[float]]  # of each start, one for each seed
BAG = "bag of words"


def accuracies(run: Path, task: Mapping[str, Any]) -> dict[str, list[float]]:
    """Start -> test accuracy of each seed's finished run; empty where the task was skipped."""
    if "labels" not in task:
        return {}
    return {
        start: [
            File(run / f"finetune/{start}-{seed}/results.json").read_json()["dev"]["accuracy"] for seed in task["seeds"]
        ]
        for start in START_NAMES
    }


def longer(run: Path) -> float:
    """Returns the test accuracy of random weights after the longer fine-tuning."""
    return float(File(run / "finetune/longer/results.json").read_json()["dev"]["accuracy"])


def headline(run: Path) -> list[str]:
    """Returns the lines for the end of the run: the accuracies and their interpretation, or why there are none."""
    task = File(run / "task.json").read_json()
    scores = accuracies(run, task)
    if not scores:
        return [task["skipped"]]
    return [format_accuracies(scores, task), *meaning(scores, task), further(run)]


def further(run: Path) -> str:
    """Returns what random weights reach with more epochs."""
    return f"With {LONGER} times as many epochs, random weights reach {longer(run):.2f} (one run)."


def format_accuracies(scores: Accuracies, task: Mapping[str, Any]) -> str:
    """Returns the accuracies in one line: "0.62 from the pre-trained model, 0.37 from random weights, ..."."""
    parts = [f"{_mean(scores['pretrained']):.2f} from the pre-trained model"]
    parts.append(f"{_mean(scores['random']):.2f} from random weights")
    if task.get("bag_of_words"):
        parts.append(f"{_mean(task['bag_of_words']):.2f} {BAG}")
    return f"Accuracy on unseen examples: {', '.join(parts)} (chance: {1 / len(task['labels']):.2f})."


def meaning(scores: Accuracies, task: Mapping[str, Any]) -> list[str]:
    """Returns the interpretation of the accuracies: the effect of pre-training, and the comparison with counting
    words."""
    worth = _difference(scores["pretrained"], scores["random"])
    if worth > 0:
        lines = [f"Pre-training raises the accuracy of the same network by {_points(worth)}."]
    elif worth < 0:
        lines = [f"Pre-training lowers the accuracy of the same network by {_points(worth)}: it read too little text."]
    else:
        lines = ["Pre-training makes no difference beyond the noise between seeds: it read too little text."]
    if task.get("bag_of_words"):
        better = _difference(scores["pretrained"], task["bag_of_words"])
        if better > 0:
            lines.append(f"The pre-trained model is {_points(better)} better than counting words ({BAG}).")
        elif better < 0:
            lines.append(
                f"Counting words ({BAG}) is still {_points(better)} better. Give the demo more time: --minutes 20"
            )
        else:
            lines.append(f"The pre-trained model and counting words ({BAG}) are equal within the noise between seeds.")
    return lines


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _difference(a: Sequence[float], b: Sequence[float]) -> float:
    """Returns the mean of a - b, paired by seed; 0 where its 95% interval includes 0."""
    summary = SeedSummary.over([x - y for x, y in zip(a, b, strict=True)])
    if summary.low is None or summary.high is None:
        return summary.mean
    return summary.mean if summary.low > 0 or summary.high < 0 else 0.0


def _points(difference: float) -> str:
    points = abs(100 * difference)
    return f"{points:.0f} percentage points" if points >= 1.5 else f"{points:.1f} percentage points"
