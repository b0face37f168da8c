"""The sections of a page about predictions: metrics, confusion matrix, labels, calibration, subgroups, errors.

They are drawn from the report of the task's scores (metrics/base.py) with the intervals of its fractions
(metrics/base.py), and from `Findings`. Each section shows what it finds there, so no code depends on a task.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from bertie.files import Json
from bertie.report.charts import Chart, Line
from bertie.report.page import Html, Report
from bertie.report.values import interval as between
from bertie.report.values import metric_name, number, probability

HEAT = 20  # labels up to which the whole matrix is shown; of more, the pairs most often confused
_MAX_LABELS = 30  # of more, the weakest are shown
_NEITHER = "(none)"  # an entity that only one side has


def tiles(scores: Json, metrics: Sequence[str]) -> list[tuple[str, ...]]:
    """Returns the main metrics, each with its interval."""
    unknown = scores.get("undefined", ())
    return [
        (metric_name(name, scores), "–", "not defined for these examples")
        if name in unknown
        else (metric_name(name, scores), number(scores[name]), _interval_note(scores, name))
        for name in metrics
    ]


def failed(scores: Mapping[str, object]) -> list[str]:
    """Returns the banner of a model that predicts one label for every example; nothing for others."""
    if not scores.get("all_given"):
        return []
    return [
        f"The model predicts one label for every example: {scores['all_given']!r}. "
        "Try more epochs or a higher learning rate (optim.lr)."
    ]


@dataclass(frozen=True)
class Untuned:
    """Scores before settings were tuned. same: whether they were tuned on the examples of the scores."""

    scores: Json
    same: bool


def add_sections(
    report: Report,
    scores: Mapping[str, object],
    findings: Json,
    *,
    source: str = "",
    untuned: Untuned | None = None,
) -> None:
    """Adds all sections. untuned: the scores before settings were tuned."""
    _metrics(report, scores, untuned)
    _confusions(report, scores)
    _labels(report, scores)
    _calibration(report, scores, untuned)
    _withheld(report, scores)
    _sets(report, scores)
    _points(report, findings["points"])
    _subgroups(report, findings, scores)
    _worst(report, findings["worst"], source)
    _label_check(report, findings.get("label_check"))


# Sections -----------------------------------------------------------------------------------------------------------


def _metrics(report: Report, scores: Json, untuned: Untuned | None) -> None:
    about = f"On {scores['examples']:,} examples. The interval holds 95% of the values when examples are resampled."
    columns, rows = ["metric", "value", "95% bootstrap interval"], []
    if untuned:
        columns.append("value before tuning")
    if untuned and untuned.same:
        about += (
            " A threshold or a temperature was tuned on these same examples, so the values are slightly optimistic."
        )
    for name, value in scores.items():
        if isinstance(value, float) and name not in scores.get("undefined", ()):
            before = [untuned.scores.get(name, "")] if untuned else []
            rows.append([metric_name(name, scores, expand=True), value, _interval(scores, name), *before])
    report.section("Metrics", about).table(columns, rows, stack=True)


def _confusions(report: Report, scores: Json) -> None:
    matrix, pairs = scores.get("confusion"), scores.get("most_confused")
    if matrix and len(matrix) <= HEAT:
        names = [*scores["labels"], *[_NEITHER] * (len(matrix) - len(scores["labels"]))]
        about = "Blue is right, orange is wrong. The darker a cell, the larger its share of the row."
        caption = "Rows: true label. Columns: predicted label."
        report.section("Confusion matrix", about).confusion_matrix(names, matrix, caption)
    elif pairs:
        of = {label: row["examples"] for label, row in scores["per_label"].items()}
        rows = [
            [true or _NEITHER, answer or _NEITHER, n, f"{n / of[true]:.0%}" if true else ""]
            for true, answer, n in pairs
        ]
        report.section("Confusion matrix", f"The most frequent confusions of {len(of):,} labels.")
        report.table(["true label", "predicted label", "examples", "share of the true label"], rows)


def _labels(report: Report, scores: Json) -> None:
    per_label = scores.get("per_label", {})
    occur = {label: row for label, row in per_label.items() if row["examples"]}
    if not occur:
        return
    weakest = sorted(occur.items(), key=lambda item: item[1]["f1"])
    rows = []
    for label, row in weakest[:_MAX_LABELS]:
        low, high = row["interval_95"]
        drawn = Html.interval(row["recall"], low, high, span=(0.0, 1.0))
        rows.append([label, row["examples"], row["precision"], row["f1"], row["recall"], between(low, high), drawn])
    left = f" {len(occur) - _MAX_LABELS:,} more have a higher F1." if len(occur) > _MAX_LABELS else ""
    left += f" {len(per_label) - len(occur):,} have no example here." if len(occur) < len(per_label) else ""
    about = f"Lowest F1 first.{left} Recall: the fraction of a label's examples that the model found."
    columns = [
        "label",
        "examples",
        "precision",
        "F1",
        "recall",
        "95% interval of the recall",
        Html.scale("recall (0–1)"),
    ]
    report.section("Labels", about).table(columns, rows, stack=True)


def _calibration(report: Report, scores: Json, untuned: Untuned | None) -> None:
    if not scores.get("calibration"):
        return
    lines = [Line("perfect calibration", [0, 1], [0, 1], colour=5, dashed=True)]
    for name, values in (("after tuning", scores), ("before", untuned.scores)) if untuned else (("model", scores),):
        bins = values.get("calibration", ())
        xs, ys, low, high = ([one[key] for one in bins] for key in ("probability", "right", "low", "high"))
        lines.append(Line(f"{name}, ECE {values['ece']:z.3f}", xs, ys, low, high))
    about = (
        "Of answers with a probability of 80%, eight in ten should be right. The expected calibration error (ECE) is "
        "the mean gap between probability and accuracy."
    )
    if all(len(line.x) < 2 for line in lines[1:]):  # one point is no curve
        (one,) = scores["calibration"]
        about += f" Here the mean probability is {one['probability']:.1%} and the accuracy {one['right']:.1%}."
        report.section("Calibration", about)
        return
    chart = Chart.lines(lines, x_label="predicted probability", y_label="accuracy", percent=True)
    caption = "Dots: the answers in bins by their probability. Bands: 95% intervals of the accuracy in each bin."
    report.section("Calibration", about).chart(chart, caption)


def _withheld(report: Report, scores: Json) -> None:
    """Accuracy against the share of rows with an answer."""
    if len(curve := scores.get("selective", ())) < 2:
        return
    about = (
        "If answers below a probability are withheld (abstain), fewer rows have an answer, and more of these are right."
    )
    if done := scores.get("answered"):
        low, high = done["interval_95"]
        about += f" Here {done['withheld']:,} of {done['rows']:,} rows have no answer, and the metrics leave them out: "
        about += f"{done['share']:.1%} are answered ({low:.1%} to {high:.1%})."
    thresholds, shares, accuracies, lows, highs = zip(*curve, strict=True)
    report.section("Accuracy against answered rows", about)
    if len({*shares}) > 1:
        line = Line("accuracy", shares[::-1], accuracies[::-1], lows[::-1], highs[::-1])
        report.chart(Chart.lines([line], x_label="share of rows with an answer", y_label="accuracy"))
    rows = [
        [f"{t:g}", f"{share:.1%}", accuracy, between(low, high)]
        for t, share, accuracy, low, high in zip(thresholds, shares, accuracies, lows, highs, strict=True)
    ]
    report.table(["probability at least", "rows with an answer", "accuracy", "95% interval"], rows)


def _sets(report: Report, scores: Json) -> None:
    """How often prediction sets have the true label."""
    if not (sets := scores.get("prediction_sets")):
        return
    about = (
        f"Of {sets['rows']:,} rows, {sets['covered']:.1%} have the true label in their set, which has "
        f"{sets['mean_size']:.2f} labels on average; {sets['single']:.1%} of the sets have a single label. The "
        "promise is about all rows together, not about each label."
    )
    rows = [
        [label, row["rows"], row["covered"], between(*row["interval_95"])]
        for label, row in [("all", sets), *sets["per_label"].items()][: _MAX_LABELS + 1]
    ]
    report.section("Prediction sets", about).table(["true label", "rows", "coverage", "95% interval"], rows)


def _points(report: Report, points: Sequence[tuple[float, float]]) -> None:
    if points:
        chart = Chart.scatter(points, x_label="true", y_label="predicted")
        caption = f"{len(points):,} examples. On the dashed line both values are equal."
        report.section("True and predicted values").chart(chart, caption)


def _subgroups(report: Report, findings: Json, scores: Json) -> None:
    metric, kinds = findings["metric"], findings["slices"]
    bounds = [one[end] for parts in kinds.values() for one in parts for end in ("low", "high") if one[end] is not None]
    if not bounds:
        return
    whole = scores[metric]
    span = min(0.0, *bounds), max(1.0, *bounds) if max(bounds) <= 1 else max(bounds)
    rows = []
    for kind, parts in kinds.items():
        for one in parts:
            low, high = one["low"], one["high"]
            text, drawn = ("", Html(""))
            if low is not None and low < high:  # a single example has no interval
                text, drawn = between(low, high), Html.interval(one["value"], low, high, reference=whole, span=span)
            weak = Html('<span class="weak">below average</span>') if low is not None and low < high < whole else ""
            value = "not defined" if one["value"] is None else one["value"]
            rows.append([f"{kind}: {one['name']}", one["examples"], value, text, drawn, weak])
    name = metric_name(metric, scores)
    about = f"The {name} of subgroups of the examples. The dashed line is the {name} of all examples ({number(whole)})."
    about += " Below average: the whole interval lies below that line."
    columns = [
        "subgroup",
        "examples",
        name,
        "95% bootstrap interval",
        Html.scale(f"{name} ({span[0]:g}–{span[1]:g})", span),
    ]
    report.section("Performance by subgroup", about).table([*columns, "note"], rows, stack=True)


def _worst(report: Report, worst: Sequence[Json], source: str) -> None:
    if not worst:
        return
    about = "The answers that are furthest from the truth, the worst first. Underlined: true. Colored: predicted."
    report.section("Worst answers", about)
    for one in worst:
        texts = "".join(f"<p>{''.join(map(_stretch, text))}</p>" for text in one["texts"])
        where = f"{source}:{one['line']}" if source else f"line {one['line']:,}"
        meta = " · ".join(filter(None, (one["id"], where, one["note"])))
        sure = "" if one["probability"] is None else f" ({probability(one['probability'])})"
        kind = "right" if one["truth"] == one["answer"] else "wrong"
        said = (
            f'<p><span class="{kind}">predicted: {escape(one["answer"])}{sure}</span>, true: {escape(one["truth"])}</p>'
        )
        report.example(
            Html(f'{texts}<p class="meta">{escape(meta)}</p>'), Html(said + Html.bars(one["scores"], one["truth"]))
        )


def _label_check(report: Report, check: Json | None) -> None:
    if not check or not check["rows"]:
        return
    about = (
        f"{check['listed']:,} of {check['checked']:,} training rows have labels that models contradict which were not "
        f"trained on the row ({check['model']}; Northcutt et al. 2021). The first rows are the most suspicious. "
        f"{check['file']} has all of them. Read and correct them before you train again."
    )
    columns = ["line", "label", "suggested", "probability of the label", "of the suggested one", "text"]
    keys = ("line", "label", "suggested", "probability", "suggested_probability", "text")
    rows = [[row[key] for key in keys] for row in check["rows"]]
    report.section("Labels to check", about).table(columns, rows, stack=True)


def _stretch(part: Mapping[str, str]) -> str:
    text = escape(part["text"])
    note = f"<small>{escape(part['note'])}</small>" if part["note"] else ""
    return f'<mark class="{part["kind"]}">{text}</mark>{note}' if part["kind"] else text


def _interval(scores: Json, name: str) -> str:
    bounds = scores["interval_95"].get(name)
    return between(*bounds) if bounds and bounds[0] < bounds[1] else ""


def _interval_note(scores: Mapping[str, object], name: str) -> str:
    interval = _interval(scores, name)
    return f"95% interval {interval}" if interval else "no interval"
