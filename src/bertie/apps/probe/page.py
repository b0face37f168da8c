"""The page of a run of probes."""

from collections.abc import Mapping
from typing import Any

from bertie.platform import Chart, Line, Report

_METRIC_NAMES = {"accuracy": "accuracy", "uuas": "UUAS", "spearman": "Spearman"}
MEANING = {
    "accuracy": "Accuracy is the fraction of correct labels.",
    "uuas": "UUAS is the fraction of the edges of the dependency tree in the minimum spanning tree of the predicted "
    "distances, without punctuation.",
    "spearman": "Spearman's correlation of predicted and true distances is averaged over words, sentences of one "
    "length, and lengths 5 to 50.",
}
_HOW_TO_READ = "A probe shows what can be read from a layer. It does not show that the model uses it."


def render_probe_page(results: Mapping[str, Any]) -> Report:
    """Returns the page of results (run.py)."""
    report = Report("What the layers know", f"{results['model']}: probes of layers 0 to {results['layers']}")
    report.tiles(_card(one) for one in results["probes"])
    for one in results["probes"]:
        _section(report, one)
    report.section(
        "How to read this",
        "A probe is a linear model trained on the vectors of one layer. Layer 0 is the output of the embeddings. The "
        "intervals are 95%, by resampling the test sentences.\n\n"
        "Random weights: the same probe on a model of the same shape that was not trained. What it reaches was not "
        "learned in training.\n\n"
        "Control task: the same probe, trained on random labels for words. A high number means that the probe can "
        f"memorize words. Selectivity is the task minus the control task.\n\n{_HOW_TO_READ}",
    )
    pooling = {"mean": "the mean of its tokens", "first": "that of its first token"}[results["pooling"]]
    report.text(f"The vector of a word is {pooling}. The vector of a sentence is the mean of its words.")
    return report.footer(docs="probe")


def render_probe_section(results: Mapping[str, Any]) -> list[object]:
    """Returns the section of the model's card: the best layer of each probe."""
    rows = []
    for one in results["probes"]:
        for figures in one["layers"][one["best_layer"]]["figures"]:
            shown = "{:z.3f} ({:z.3f} to {:z.3f})".format(figures["model"], *figures["interval_95"]["model"])
            base = one["baseline"][figures["metric"]]
            others = [f"{value:z.3f}" for value in (figures["random"], figures["control"], base)]
            rows.append([one["title"], _METRIC_NAMES[figures["metric"]], one["best_layer"], shown, *others])
    columns = ["probe", "metric", "best layer", "value (95% interval)", "random weights", "control task", "baseline"]
    return [(columns, rows), _HOW_TO_READ]


def _card(one: Mapping[str, Any]) -> tuple[str, ...]:
    best = one["best_layer"]
    figures = one["layers"][best]["figures"][0]
    note = f"{_METRIC_NAMES[figures['metric']]}, layer {best}; random weights {figures['random']:z.3f}"
    return (one["title"], f"{figures['model']:z.3f}", note)


def _section(report: Report, one: Mapping[str, Any]) -> None:
    metrics = [figures["metric"] for figures in one["layers"][0]["figures"]]
    report.section(
        one["title"].capitalize(),
        f"{one['file']}: {one['train']:,} sentences to train on, {one['test']:,} to test on. The best layer is "
        f"{one['best_layer']}. {' '.join(MEANING[metric] for metric in metrics)}",
    )
    for place, metric in enumerate(metrics):
        rows = [{"layer": layer["layer"], **layer["figures"][place]} for layer in one["layers"]]
        report.chart(_chart(one, rows, metric))
        report.table(
            ["layer", _METRIC_NAMES[metric], "95% interval", "control task", "selectivity", "random weights", "gain"],
            [
                [
                    row["layer"],
                    f"{row['model']:z.3f}",
                    "{:z.3f} to {:z.3f}".format(*row["interval_95"]["model"]),
                    f"{row['control']:z.3f}",
                    f"{row['selectivity']:z.3f}",
                    f"{row['random']:z.3f}",
                    "{:+z.3f} ({:+z.3f} to {:+z.3f})".format(row["gain"], *row["interval_95"]["gain"]),
                ]
                for row in rows
            ],
            f"Baseline ({one['baseline']['name']}): {one['baseline'][metric]:z.3f}. Gain: model minus random weights.",
            stack=True,
        )


def _chart(one: Mapping[str, Any], rows: list[dict[str, Any]], metric: str) -> str:
    x = [row["layer"] for row in rows]

    def line(name: str, key: str, colour: int) -> Line:
        low, high = zip(*(row["interval_95"][key] for row in rows), strict=True)
        return Line(name, x, [row[key] for row in rows], low, high, colour=colour)

    lines = [
        line("model", "model", 1),
        line("random weights", "random", 2),
        Line("control task", x, [row["control"] for row in rows], colour=3, dashed=True),
        Line(one["baseline"]["name"], x, [one["baseline"][metric]] * len(x), colour=4, dashed=True),
    ]
    return Chart.lines(lines, x_label="layer", y_label=_METRIC_NAMES[metric], title=f"{one['title']} by layer")
