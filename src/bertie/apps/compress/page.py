"""The report of `bertie compress` with trials: OUT/report.html."""

from collections.abc import Mapping
from typing import Any

from bertie.platform import Chart, Report, quantity


def render_compression_page(results: Mapping[str, Any]) -> Report:
    """Returns a page with all models as a chart and a table, and the chosen one."""
    metric, teacher, rows, limits = (results[name] for name in ("metric", "teacher", "tried", "limits"))
    shown = name_labelled_metric(metric, results.get("positive", {}))
    chosen = next((row for row in rows if row["name"] == results["chosen"]), None)
    report = Report("Compression", f"{len(rows)} of {results['wanted']} recipes, {results['examples']:,} examples")
    if chosen is None:
        report.banner("No model is within the limits. None was written.")
    else:
        report.banner(*() if chosen["kept"] else ("The chosen model misses the limits. It was written with --force.",))
        smaller = teacher["bytes"] / chosen["bytes"]
        report.tiles(
            [
                ("chosen", chosen["name"], f"{shown} {chosen[metric]:z.4f}, before {teacher[metric]:z.4f}"),
                ("speed", f"{chosen['rate']['faster']:.2f} times", f"{chosen['rate']['tokens_per_s']:,.0f} tokens/s"),
                ("size", quantity(chosen["bytes"], "bytes"), f"{smaller:.1f} times smaller"),
            ]
        )
    models = [{**teacher, "name": "original model", "front": True, "kept": True}, *rows]
    charts = {  # label -> the numbers, and whether more is better
        "times as fast": ([row["rate"]["faster"] for row in models], True),
        "MB of weights": ([row["bytes"] / 1e6 for row in models], False),
    }
    about = (
        "Each dot is a model, numbered as in the table. 0 is the original model. The line joins the models that no "
        "other beats in both numbers of the chart (Pareto front). The dashed line is the lowest allowed metric. In the "
        "table, front marks the models that no other beats in size, speed and metric at once."
    )
    report.section("What was tried", about).charts(
        (
            Chart.front(
                {row["name"]: (x, row[metric]) for x, row in zip(places, models, strict=True)},
                _front({row["name"]: (x if more else -x, row[metric]) for x, row in zip(places, models, strict=True)}),
                x_label=label,
                y_label=shown,
                limit=teacher[metric] - limits["max_drop"],
            ),
            "",
        )
        for label, (places, more) in charts.items()
    )
    energy = any(row["rate"]["joules"] is not None for row in models)
    report.table(
        [
            "",
            "recipe",
            shown,
            "difference",
            "95% interval",
            "same answer",
            "size",
            "parameters",
            "speed",
            "tokens/s",
            "p50 ms",
            "p99 ms",
            *["J per 1,000 tokens"] * energy,
            "",
        ],
        [_cells(number, row, metric, energy) for number, row in enumerate(models)],
        "Differences are paired: both models answer the same examples. Speed is measured on this machine, in turns "
        "with the original model. Vectors differ: they miss the limits that hold where there are no labeled examples.",
    )
    report.section("Limits").pairs(
        [
            ("largest loss", limits["max_drop"]),
            ("largest size", "none" if limits["bytes"] is None else quantity(limits["bytes"], "bytes")),
            ("least speed", "none" if limits["faster"] is None else f"{limits['faster']:g} times"),
            ("time", quantity(sum(row["seconds"] for row in rows), "s")),
        ]
    )
    return report.footer(docs="change-a-model")


def _front(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """Returns the names of the points that no other one reaches in both numbers."""
    return [
        name
        for name, own in points.items()
        if not any(x >= own[0] and y >= own[1] for x, y in {*points.values()} - {own})
    ]


def _cells(number: int, row: Mapping[str, Any], metric: str, energy: bool) -> list[object]:
    apart, speed = row["difference"], row["rate"]
    first = number == 0
    words = ["front"] * bool(row["front"]) + ["within limits"] * bool(row["kept"]) if not first else []
    words += ["vectors differ"] if row.get("near") is False else []
    return [
        number,
        row["name"],
        f"{row[metric]:z.4f}",
        "–" if first else f"{apart['difference']:+z.4f}",
        "–" if first else f"{apart['low']:+z.4f} to {apart['high']:+z.4f}",
        "–" if first or row["agreement"] is None else f"{row['agreement']:.1%}",
        quantity(row["bytes"], "bytes"),
        quantity(row["parameters"]),
        f"{speed['faster']:.2f}",
        f"{speed['tokens_per_s']:,.0f}",
        f"{speed['p50_ms']:.1f}",
        f"{speed['p99_ms']:.1f}",
        *["–" if speed["joules"] is None else f"{speed['joules']:.2f}"] * energy,
        ", ".join(words),
    ]


def name_labelled_metric(metric: str, positive: Mapping[str, str]) -> str:
    """Returns a metric, and of a binary one the label: "f1 of 'spam'". positive: metric -> its label."""
    return f"{metric} of {positive[metric]!r}" if metric in positive else metric
