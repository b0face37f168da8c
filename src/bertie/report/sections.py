"""The sections of a page about a model's answers: figures, confusions, labels, calibration, slices, the worst answers.

They are drawn from two things: the report of the task's scores (metrics/base.py), of which each section shows what it
finds there, and what `Findings` found. So a page knows no task by name.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from bertie.metrics.base import undefined, wilson
from bertie.report.charts import Line, line_chart, scatter_chart
from bertie.report.page import Html, Report, Tile, bars, interval

HEAT = 20  # labels up to which the whole matrix is shown; of more, the pairs most often confused
LABELS = 30  # of more, the weakest are shown
CAPITALS = {"auprc", "ece", "f1", "map", "mcc", "mrr", "mse", "uas", "las"}
NEITHER = "(none)"  # an entity that only one side has


def tiles(scores: Mapping[str, Any], metrics: Sequence[str]) -> list[Tile]:
    """The main figures, each with its interval."""
    unknown = scores.get("undefined", ())
    return [
        Tile(words(name), "–", "not defined here")
        if name in unknown
        else Tile(words(name), f"{scores[name]:.3f}", _interval(scores, name) or "no interval")
        for name in metrics
    ]


def page(
    title: str, subtitle: str, scores: Mapping[str, Any], findings: Mapping[str, Any], metrics: Sequence[str]
) -> Report:
    """The page of a model on a labelled file. scores: what Predictor.score returned, with its notes."""
    report = Report(title, subtitle).tiles(
        [
            *tiles(scores, metrics),
            Tile("examples", f"{scores['examples']:,}", f"{scores['left_out']['total']:,} left out"),
        ]
    )
    notes(report, scores["notes"], scores)
    answers(report, scores, findings)
    return report


def answers(
    report: Report, scores: Mapping[str, Any], findings: Mapping[str, Any], *, untuned: Mapping[str, Any] | None = None
) -> None:
    """All there is to show. untuned: the scores before settings were chosen on the same examples."""
    _figures(report, scores, untuned)
    _confusions(report, scores)
    _labels(report, scores)
    _calibration(report, scores, untuned)
    _points(report, findings["points"])
    _slices(report, findings, scores)
    _worst(report, findings["worst"])


def notes(report: Report, lines: Iterable[str], scores: Mapping[str, Any]) -> None:
    """What was left out, and what looks odd; nothing where all is well."""
    found = [*lines, *undefined(scores)]
    if unknown := scores.get("unknown_labels"):
        names = ", ".join(f"{label!r} ({n:,})" for label, n in itertools.islice(unknown.items(), 10))
        more = f" and {len(unknown) - 10:,} more" if len(unknown) > 10 else ""
        found.append(f"labels the model never learnt, counted as errors: {names}{more}")
    if scores.get("all_given"):
        found.append(f"every example was given the answer {scores['all_given']!r}: the model tells nothing apart")
    if found:
        items = "".join(f"<li>{escape(line)}</li>" for line in found)
        report.section("Worth knowing").html(f"<ul>{items}</ul>")


# Sections -----------------------------------------------------------------------------------------------------------


def _figures(report: Report, scores: Mapping[str, Any], untuned: Mapping[str, Any] | None) -> None:
    about = f"On {scores['examples']:,} examples. Intervals: where 95 % of the figures lie when they are drawn again."
    columns, rows = ["metric", "", "95 % interval"], []
    if untuned:
        columns.append("before tuning")
        about += " What was chosen on these very examples (a threshold, a temperature) flatters a little."
    for name, value in scores.items():
        if isinstance(value, float) and name not in scores.get("undefined", ()):
            before = [] if not untuned else [untuned[name]] if name in untuned else [""]
            rows.append([words(name), value, _interval(scores, name), *before])
    report.section("Figures", about).table(columns, rows)


def _confusions(report: Report, scores: Mapping[str, Any]) -> None:
    matrix, pairs = scores.get("confusion"), scores.get("most_confused")
    if matrix and len(matrix) <= HEAT:
        names = [*scores["labels"], *[NEITHER] * (len(matrix) - len(scores["labels"]))]
        about = "Blue is right, orange is wrong; the darker, the larger the share of its row."
        report.section("Confusions", about).heat(names, matrix)
    elif pairs:
        of = {label: row["examples"] for label, row in scores["per_label"].items()}
        rows = [
            [true or NEITHER, given or NEITHER, n, f"{n / of[true]:.0%}" if true else ""] for true, given, n in pairs
        ]
        report.section("Confusions", f"What is most often taken for what, of {len(of):,} labels.")
        report.table(["true", "given", "how often", "of the true ones"], rows)


def _labels(report: Report, scores: Mapping[str, Any]) -> None:
    per_label = scores.get("per_label", {})
    occur = {label: row for label, row in per_label.items() if row["examples"]}
    if not occur:
        return
    weakest = sorted(occur.items(), key=lambda item: item[1]["f1"])
    rows = []
    for label, row in weakest[:LABELS]:
        low, high = wilson(row["recall"] * row["examples"], row["examples"])
        drawn = interval(row["recall"], low, high, span=(0.0, 1.0))
        found = f"{row['recall']:.3f} ({low:.3f} to {high:.3f})"
        rows.append([label, row["examples"], found, drawn, row["precision"], row["f1"]])
    left = f" {len(occur) - LABELS:,} more have a higher F1." if len(occur) > LABELS else ""
    left += f" {len(per_label) - len(occur):,} have no example here." if len(occur) < len(per_label) else ""
    report.section("Labels", f"The weakest first.{left} Found: the share of a label's examples that got it (recall).")
    report.table(["label", "examples", "found, 95 % interval", "0 to 1", "precision", "F1"], rows)


def _calibration(report: Report, scores: Mapping[str, Any], untuned: Mapping[str, Any] | None) -> None:
    if not scores.get("calibration"):
        return
    lines = [Line("as sure as right", [0, 1], [0, 1], colour=5, dashed=True)]
    for name, found in (("after tuning", scores), ("before", untuned or {})) if untuned else (("answers", scores),):
        bins = found.get("calibration", ())
        bounds = [wilson(one["right"] * one["answers"], one["answers"]) for one in bins]
        xs, ys = ([one[key] for one in bins] for key in ("probability", "right"))
        lines.append(Line(f"{name}, ECE {found['ece']:.3f}", xs, ys, [b[0] for b in bounds], [b[1] for b in bounds]))
    chart = line_chart(lines, x_label="probability of the answer", y_label="answers that are right", percent=True)
    about = "Of answers given with 0.8, eight in ten should be right. ECE: how far probabilities are off on average."
    caption = "Dots: the answers in bins by their probability, with 95 % intervals of their share that is right."
    report.section("Calibration", about).chart(chart, caption)


def _points(report: Report, points: Sequence[tuple[float, float]]) -> None:
    if points:
        chart = scatter_chart(points, x_label="true", y_label="predicted")
        report.section("True and predicted").chart(chart, f"{len(points):,} examples; on the line both are the same.")


def _slices(report: Report, findings: Mapping[str, Any], scores: Mapping[str, Any]) -> None:
    metric, kinds = findings["metric"], findings["slices"]
    whole = scores[metric]
    bounds = [one[end] for parts in kinds.values() for one in parts for end in ("low", "high") if one[end] is not None]
    if not bounds:
        return
    span = min(0.0, *bounds), max(1.0, *bounds) if max(bounds) <= 1 else max(bounds)
    rows = []
    for kind, parts in kinds.items():
        for number, one in enumerate(parts):
            low, high = one["low"], one["high"]
            told, drawn = ("", "") if low is None else (f"{low:.3f} to {high:.3f}", Html(""))
            if low is not None:
                drawn = interval(one["value"], low, high, reference=whole, span=span)
            weak = Html('<span class="weak">weaker</span>') if low is not None and low < high < whole else ""
            value = "not defined" if one["value"] is None else one["value"]
            rows.append([kind if number == 0 else "", one["name"], one["examples"], value, told, drawn, weak])
    name = words(metric)
    about = f"The {name} of parts of the examples; the dashed line is that of all ({whole:.3f})."
    report.section("Slices", f"{about} Weaker: the whole interval lies below it.")
    report.table(["", "slice", "examples", name, "95 % interval", f"{span[0]:.3g} to {span[1]:.3g}", ""], rows)


def _worst(report: Report, worst: Sequence[Mapping[str, Any]]) -> None:
    if not worst:
        return
    about = "The answers that are furthest from the truth, the worst first. Underlined: true; coloured: given."
    report.section("Worst answers", about)
    for one in worst:
        texts = "".join(f"<p>{''.join(map(_stretch, text))}</p>" for text in one["texts"])
        where = f"{one['id']}, line {one['line']:,}" if one["id"] else f"line {one['line']:,}"
        meta = " · ".join(filter(None, (where, one["note"])))
        sure = "" if one["probability"] is None else f" <small>{one['probability']:.0%}</small>"
        kind = "right" if one["truth"] == one["given"] else "wrong"
        said = (
            f'<p><span class="{kind}">given: {escape(one["given"])}</span>{sure}</p><p>true: {escape(one["truth"])}</p>'
        )
        report.example(
            Html(f'{texts}<p class="meta">{escape(meta)}</p>'), Html(said + bars(one["scores"], one["truth"]))
        )


def _stretch(part: Mapping[str, str]) -> str:
    text = escape(part["text"])
    note = f"<small>{escape(part['note'])}</small>" if part["note"] else ""
    return f'<mark class="{part["kind"]}">{text}</mark>{note}' if part["kind"] else text


def _interval(scores: Mapping[str, Any], name: str) -> str:
    bounds = scores["interval_95"].get(name)
    return f"{bounds[0]:.3f} to {bounds[1]:.3f}" if bounds else ""


def words(name: str) -> str:
    """macro_f1 -> macro F1"""
    return " ".join(word.upper() if word in CAPITALS else word for word in name.split("_"))
