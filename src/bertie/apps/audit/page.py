"""The page of an audit, and its section in a model's card."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bertie.apps.audit.figures import Control, Figure
from bertie.platform import Html, ModelCard, Report, quantity

_HOW_TO_READ = (
    "Each figure has a 95% interval. The control with random weights is the same model before training. The shuffled "
    "control is the mean and the middle 95% of 200 random assignments of the scores. A figure inside the range of "
    "either control shows nothing about the model. These sets find some preferences and miss others. No value shows "
    "that a model is fair or has no bias, and figures of different sets cannot be compared."
)
_SMALL_MODEL = (
    20_000_000  # parameters, without reason but experience: below, masked models hardly know the words of the sets
)
TOO_SMALL = (
    "This model is small. Small models know few facts and few words, so their figures are close to those of random "
    "weights. They do not predict the figures of larger models."
)
_COLUMNS = ("figure", "value", "95% interval", "items", "random weights", "shuffled", "remark")


def render_audit_page(results: Mapping[str, Any]) -> Report:
    """Returns the page of an audit."""
    sets = results["sets"]
    report = Report(
        "Audit", f"{results['model']}: {results['architecture']}, {quantity(results['parameters'])} parameters"
    )
    report.tiles((one["title"], f"{one['items']:,}", one["unit"].partition(",")[0]) for one in sets[:6])
    report.section("How to read this page", _HOW_TO_READ)
    if results["parameters"] < _SMALL_MODEL:
        report.text(TOO_SMALL)
    for one in sets:
        _section(report, one)
    if results["not_measured"]:
        report.section("Not measured").pairs(results["not_measured"].items())
    return report.footer(docs="audit")


def _section(report: Report, one: Mapping[str, Any]) -> None:
    figures = [Figure.from_json(figure) for figure in one["figures"]]
    report.section(one["title"], one["about"]).text(f"Criticism: {one['criticism']}")
    main, detail = ([figure for figure in figures if figure.detail == in_detail] for in_detail in (False, True))
    if main:
        _table(report, main, one)
    if detail:
        report.html(f"<details><summary>{len(detail)} more figures</summary>")
        _table(report, detail, one)
        report.html("</details>")
    if examples := one["examples"]:
        report.html(f"<details><summary>{examples['title']}</summary>")
        report.table(examples["columns"], examples["rows"], stack=True)
        report.html("</details>")
    for note in one["notes"]:
        report.text(note)


def _table(report: Report, figures: Sequence[Figure], one: Mapping[str, Any]) -> None:
    """Adds the figures with a drawing of their intervals, all on one scale. Those of another unit have no drawing."""
    span = _span([figure for figure in figures if figure.unit == one["scale"]] or figures, one["scale"])
    remarks = any(figure.note for figure in figures)
    columns = ["figure", f"value ({one['scale']})", "95% interval", Html.scale("", span), *_COLUMNS[3 : 6 + remarks]]
    rows = [
        [
            figure.name,
            format_figure(figure.value, figure.unit),
            between(figure, figure.unit),
            Html.interval(
                *(_within(x, span) for x in (figure.value, figure.low, figure.high)),
                span=span,
                reference=figure.neutral,
            )
            if figure.unit == one["scale"]
            else Html(""),
            f"{figure.items:,}",
            value_in_words(figure.random, figure.unit),
            value_in_words(figure.shuffled, figure.unit),
            *[figure.note] * remarks,
        ]
        for figure in figures
    ]
    caption = f"Items: {one['unit']}. The dashed line is the value without a preference."
    report.table(columns, rows, caption, stack=True)


def _within(value: float, span: tuple[float, float]) -> float:
    return min(max(value, span[0]), span[1])


def _span(figures: Sequence[Figure], unit: str) -> tuple[float, float]:
    low = min(min(figure.low, figure.neutral or 0.0) for figure in figures)
    if unit == "%":
        return (-100.0 if low < 0 else 0.0), 100.0
    most = max(max(abs(figure.low), abs(figure.high)) for figure in figures) or 1.0
    return (-most if low < 0 else 0.0), most


def format_figure(value: float, unit: str) -> str:
    """Returns a value of a figure: 57.3 of percents, 0.41 of others."""
    digits = 1 if unit == "%" else 2
    return f"{round(value, digits) + 0.0:.{digits}f}"  # no -0.00


def between(figure: Figure | Control, unit: str) -> str:
    """Returns an interval: "51.2 to 63.4"."""
    return f"{format_figure(figure.low, unit)} to {format_figure(figure.high, unit)}"


def value_in_words(figure: Figure | Control | None, unit: str) -> str:
    """Returns a value with its range."""
    return "–" if figure is None else f"{format_figure(figure.value, unit)} ({between(figure, unit)})"


def list_main_figures(results: Mapping[str, Any]) -> list[tuple[str, list[Figure]]]:
    """Returns the title and the main figures of each set."""
    return [
        (one["title"], [figure for values in one["figures"] if not (figure := Figure.from_json(values)).detail])
        for one in results["sets"]
    ]


def add_audit_to_card(folder: Path, results: Mapping[str, Any]) -> None:
    """Writes the figures into the model's card, README.md, instead of those of an earlier audit."""
    parts: list[object] = [_HOW_TO_READ]
    for title, figures in list_main_figures(results):
        rows = [
            (
                one.name,
                format_figure(one.value, one.unit),
                between(one, one.unit),
                f"{one.items:,}",
                value_in_words(one.random, one.unit),
                value_in_words(one.shuffled, one.unit),
            )
            for one in figures
        ]
        parts += [f"**{title}**", (_COLUMNS[:6], rows)]
    parts += ["Criticism of these sets:", "\n".join(f"- {one['title']}: {one['criticism']}" for one in results["sets"])]
    ModelCard(folder).put("Audit", *parts)
