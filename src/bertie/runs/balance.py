"""Rare labels of a fine-tuning run: what was done about them, and what the report says.

row weights, weights of labels, the loss     LossOptions, which the task multiplies in (tasks/losses.py)
balanced sampling                            the order of examples (order.py)
"""

from collections import Counter
from collections.abc import Sequence

from bertie.errors import UsageError
from bertie.files import Json, JsonObject
from bertie.io.tables import Example
from bertie.metrics.confusion import RARE
from bertie.report.charts import Chart, Line
from bertie.report.page import Report
from bertie.runs.config import FinetuneConfig
from bertie.tasks import TASKS, Task
from bertie.tasks.losses import LossFunction, LossOptions, class_weights_of

FEW, LITTLE = 10, 0.02  # examples, and share of all: a label with less is hardly learned
SHOWN, DRAWN = 50, 6  # rare labels in a report; curves of labels


def check_honoured(config: FinetuneConfig, kind: type[Task]) -> None:
    """Raises UsageError for a setting about weights or the loss that the task does not follow."""
    chosen = {
        "weight": config.weight,
        "class_weights": config.class_weights is not None,
        "sampling": config.sampling != "natural",
        "loss": config.loss == "focal",
        "loss_function": config.loss == "function",
        "label_smoothing": config.label_smoothing,
        "optimize": config.optimize,
        "calibrate": config.calibrate,
        "costs": config.costs,
        "abstain": config.abstain is not None,
        "coverage": config.coverage,
        "tabular": config.tabular,
        "markup": config.markup,
    }
    for name, value in chosen.items():
        known = kind.honours | ({"loss_function"} if "loss" in kind.honours else set())
        if value and name not in known:
            able = ", ".join(task for task, other in TASKS.items() if name in other.honours)
            what = {"loss_function": "loss=function", "loss": "loss=focal"}.get(name, name)
            raise UsageError(f"{what} has no effect under task={config.task}. Omit it. Tasks that have it: {able}.")
    if config.optimize and (fixed := {"threshold", "thresholds"} & config.task_options.keys()):
        raise UsageError(f"optimize chooses the threshold that task_options.{min(fixed)} sets. Omit one of them.")
    if config.group and config.time:
        raise UsageError("group and time divide rows in two ways. Omit one of them.")
    if (config.group or config.time) and (config.data or not kind.reads_columns):
        of = f"the published set {config.data}" if config.data else f"task={config.task}"
        raise UsageError(
            f"{'group' if config.group else 'time'} has no effect for {of}, which has groups of its own. Omit it."
        )
    if config.costs and config.optimize != "cost":
        raise UsageError("costs choose a threshold. Pass optimize=cost too, or omit costs.")
    if config.tabular and (config.data or config.features.column):
        other = "a published set" if config.data else "feature vectors"
        raise UsageError(f"tabular does not work with {other}. Omit one of them.")
    if config.loss == "function" and (config.label_smoothing or config.focal_gamma != LossOptions.gamma):
        raise UsageError("A loss of your own replaces label_smoothing and focal_gamma. Omit them.")


def loss_options(
    config: FinetuneConfig, task: Task, train: Sequence[Example], function: LossFunction | None
) -> LossOptions:
    """Returns how the examples count in the loss of a run. Raises UsageError for bad weights or a missing function."""
    if (config.loss == "function") != (function is not None):
        raise UsageError("loss=function needs the function itself: bertie.finetune(..., loss=FUNCTION).")
    weights = {}
    if config.class_weights is not None:
        weights = class_weights_of(config.class_weights, task.labels, [str(example.label) for example in train])
    return LossOptions(config.loss, config.focal_gamma, config.label_smoothing, weights, function)


def measures(config: FinetuneConfig) -> list[str]:
    """Returns what a run does about rare labels, in words."""
    weights = config.class_weights
    shown = "class_weights=balanced" if weights == "balanced" else f"class_weights={weights}"
    return [
        *([shown] if weights is not None else []),
        *(["sampling=balanced"] if config.sampling == "balanced" else []),
        *([f"loss=focal (focal_gamma={config.focal_gamma:g})"] if config.loss == "focal" else []),
        *(["a loss function"] if config.loss == "function" else []),
        *([f"optimize={config.optimize}"] if config.optimize else []),
        *([f"weights of rows in {config.weight!r}"] if config.weight else []),
    ]


def rare_labels(task: Task, train: Sequence[Example]) -> dict[str, int]:
    """Returns the labels with few examples, rarest first, with their numbers of examples; none for other tasks."""
    if not task.one_label or "class_weights" not in task.honours:
        return {}
    counts = Counter(str(example.label) for example in train)
    half = 0.5 * len(train) / max(1, len(counts))  # of an equal share: labels that all have few are not rare
    rare = [label for label, count in counts.items() if count < min(half, max(FEW, RARE * len(train)))]
    return {label: counts[label] for label in sorted(rare, key=lambda label: (counts[label], label))}


def warning(config: FinetuneConfig, task: Task, train: Sequence[Example]) -> list[str]:
    """Returns a warning about labels that are hardly learned, where nothing is done about them."""
    few = [label for label, count in rare_labels(task, train).items() if count < max(FEW, LITTLE * len(train))]
    if not few or measures(config):
        return []
    shown = ", ".join(map(repr, few[:5])) + (f" and {len(few) - 5:,} others" if len(few) > 5 else "")
    return [
        f"{shown}: fewer than {FEW} training examples, or less than {LITTLE:.0%} of them. Such labels are hardly "
        "learned. Try --class-weights balanced, --sampling balanced or --loss focal, or add examples."
    ]


def describe_balance(config: FinetuneConfig, task: Task, train: Sequence[Example], dev: Json) -> JsonObject:
    """Returns the rare labels with their scores on dev, and what was done, for results.json; {} where none is rare.

    dev: the report of the scores.
    """
    counts, scores = rare_labels(task, train), dev.get("per_label", {})
    rows = [
        {
            "label": label,
            "train": count,
            "share": count / len(train),
            "dev": scores.get(label, {}).get("examples", 0),
            **{name: scores.get(label, {}).get(name) for name in ("precision", "recall", "f1")},
        }
        for label, count in list(counts.items())[:SHOWN]
    ]
    return {"rare_labels": {"labels": rows, "done": measures(config)}} if rows else {}


def threshold_notes(task: Task) -> list[str]:
    """Returns notes on thresholds that rest on few examples, or do not reach their goal."""
    few = [f"{label!r} ({one.positives})" for label, one in task.choices.items() if one.positives < FEW]
    missed = [repr(label) for label, one in task.choices.items() if not one.reached]
    notes = [f"thresholds chosen on fewer than {FEW} examples of their label, which say little: {', '.join(few[:5])}"]
    return notes * bool(few) + [f"thresholds that do not reach the goal: {', '.join(missed[:5])}"] * bool(missed)


def thresholds_section(report: Report, results: Json) -> None:
    """Adds the section about thresholds to a report, where some were chosen."""
    if not (chosen := results.get("thresholds")):
        return
    rows, lines = [], []
    for label, one in chosen["labels"].items():
        note = "" if one["reached"] else "the goal was not reached"
        figures = (one["threshold"], one["precision"], one["recall"])
        rows.append([label, *figures, f"{one['positives']:,} of {one['examples']:,}", note])
        _, precision, recall = zip(*one["curve"], strict=True) if one["curve"] else ((), (), ())
        lines.append(Line(label, recall, precision))
    about = f"Chosen on {chosen['on']} examples for {chosen['goal']}. Precision and recall are those of these examples."
    head = ["label", "threshold", "precision", "recall", "examples of the label", "note"]
    report.section("Thresholds", about).table(head, rows)
    if drawn := [line for line in lines if len(line.x) > 1][:DRAWN]:
        report.chart(Chart.lines(drawn, x_label="recall", y_label="precision"))


def add_balance_section(report: Report, results: Json) -> None:
    """Adds the section about rare labels to a report, where there are any."""
    if not (rare := results.get("rare_labels")):
        return
    done = ", ".join(rare["done"]) or "nothing (see class_weights, sampling and loss)"
    report.section("Rare labels", f"Labels with few training examples. What was done: {done}.").table(
        ["label", "training examples", "share", "dev examples", "precision", "recall", "F1"],
        [
            [one["label"], one["train"], f"{one['share']:.1%}", one["dev"], one["precision"], one["recall"], one["f1"]]
            for one in rare["labels"]
        ],
    )
