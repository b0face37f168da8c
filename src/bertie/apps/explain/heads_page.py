"""The page of the heads of a model: what they attend to, dependency relations, and which ones a task needs."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bertie.apps.explain.attention import HeadStatistics
from bertie.apps.explain.attention_page import kinds_in_words, statistics_section
from bertie.apps.explain.heads import Removal, by_layer
from bertie.apps.explain.picture import heat_table
from bertie.platform import Chart, Html, Line, Report

_SPAN = (0.0, 1.0)


def render_heads_page(
    model: str,
    *,
    statistics: HeadStatistics | None = None,
    relations: Sequence[dict[str, Any]] = (),
    removal: Removal | None = None,
) -> Report:
    """Returns the page with those sections that were asked for."""
    report = Report("Attention heads", model)
    if relations:
        _relations(report, relations)
    if removal is not None:
        _removal(report, removal)
    if statistics is not None:
        statistics_section(report, statistics)
    return report.footer(docs="attention")


def render_heads_section(
    *,
    statistics: HeadStatistics | None = None,
    relations: Sequence[dict[str, Any]] = (),
    removal: Removal | None = None,
) -> list[object]:
    """Returns the section of the model's card."""
    parts: list[object] = []
    if relations:
        rows = [
            (
                row["relation"],
                f"{row['words']:,}",
                row["head"],
                f"{row['accuracy']:z.3f}",
                f"{row['offset_accuracy']:z.3f}",
                "–" if row["random_accuracy"] is None else f"{row['random_accuracy']:z.3f}",
                f"{row['control_accuracy']:z.3f}",
            )
            for row in relations
        ]
        columns = ["relation", "words", "best head", "accuracy", "best offset", "random weights", "control"]
        parts += ["**Dependency relations**", (columns, rows)]
    if removal is not None:
        parts += ["**Heads that the task needs**", _curve(removal)]
    if statistics is not None:
        parts += ["**What the heads attend to**", kinds_in_words(statistics.as_json())]
    return parts


def _curve(removal: Removal) -> tuple[list[str], list[list[str]]]:
    """Returns the columns and rows of the scores with fewer heads."""
    random = np.array([[score for _, score in one] for one in removal.random]).mean(0)
    rows = [
        [str(step), f"{score:z.4f}", f"{mean:z.4f}"] for (step, score), mean in zip(removal.points, random, strict=True)
    ]
    return ["heads removed", removal.metric.replace("_", " "), "random order"], rows


def _relations(report: Report, rows: Sequence[dict[str, Any]]) -> None:
    report.section(
        "Dependency relations",
        "How often a head's strongest link from a word goes to the word's head in the tree, or comes from it. The best "
        "head is chosen on one half of the sentences and scored on the other, and the reverse. The dashed line is the "
        "best fixed offset.\n\nOffset: always the word at this distance. Random weights: the best head of the same "
        "model without training. Control: the same distances, dealt to the words of the relation at random. What a "
        "head knows of a relation is what it has above all three.",
    )
    report.table(
        ["relation", "words", "head", "link", Html.scale("accuracy", _SPAN), "", "offset", "random weights", "control"],
        [
            [
                row["relation"],
                row["words"],
                row["head"],
                row["way"].replace(" its", ""),
                Html.interval(row["accuracy"], *row["interval_95"], span=_SPAN, reference=row["offset_accuracy"]),
                f"{row['accuracy']:z.3f}",
                f"{row['offset_accuracy']:z.3f} ({row['offset']:+d})",
                None if row["random_accuracy"] is None else f"{row['random_accuracy']:z.3f}",
                f"{row['control_accuracy']:z.3f}",
            ]
            for row in rows
        ],
        stack=True,
    )


def _removal(report: Report, removal: Removal) -> None:
    name = removal.metric.replace("_", " ")
    ranked, measured = removal.examples
    report.section(
        "Heads that matter",
        "The importance of a head is the mean of |dL/dxi| over examples, where xi is a factor on its output. It is "
        f"divided by the norm of its layer. {ranked:,} examples rank the heads, and {measured:,} others measure the "
        f"{name} without the least important ones.",
    )
    removed = [step for step, _ in removal.points]
    random = np.array([[score for _, score in one] for one in removal.random])
    report.chart(
        Chart.lines(
            [
                Line("least important first", removed, [score for _, score in removal.points]),
                Line("random order", removed, random.mean(0).tolist(), random.min(0).tolist(), random.max(0).tolist()),
            ],
            x_label="heads removed",
            y_label=name,
        ),
        f"The band spans {len(random)} random orders.",
    )
    layers, heads = removal.importance.shape
    report.html(Html("<h3>Importance within a layer</h3>"))
    rows, columns = [f"layer {layer + 1}" for layer in range(layers)], [str(head + 1) for head in range(heads)]
    shares = by_layer(removal.importance)
    report.html(heat_table(shares, rows, columns, most=float(shares.max())))
    report.table(*_curve(removal), stack=True)
