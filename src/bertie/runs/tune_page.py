"""The report of tuning: RUN/report.html."""

import itertools

from bertie.files import Json
from bertie.metrics.base import called
from bertie.report.charts import Chart, Line
from bertie.report.page import Report
from bertie.report.values import quantity, setting_text
from bertie.runs.confirmation import verdict_on_best


def render_tune_page(results: Json) -> Report:
    """Returns a page of all trials, best first, the best value over time, and the mean of each setting."""
    metric, best, rows = results["metric"], results["best"], results["trials"]
    shown = called(metric, results)
    report = Report("Tuning", f"{len(rows)} of {results['wanted']} trials")
    report.tiles(
        [
            (f"best {shown}", f"{best[metric]:z.4f}", best["folder"]),
            ("trials", f"{results['done']}", f"{results['given up']} pruned, {results['failed']} failed"),
            ("time", quantity(sum(row["seconds"] for row in rows), "s"), "all trials"),
        ]
    )
    for comparison in (results.get("nested"), results.get("confirmed")):
        if comparison is not None:
            report.section("Better than the given settings?", verdict_on_best(comparison, shown))
            report.table(
                ["run", "given", "best"],
                [[n, row["given"], row["best"]] for n, row in enumerate(comparison["runs"], 1)],
            )
    ended = sorted((row for row in rows if row[metric] is not None), key=lambda row: row["trial"])
    so_far = list(itertools.accumulate((row[metric] for row in ended), max))
    places = [float(n) for n in range(1, len(ended) + 1)]
    lines = [Line("best so far", places, so_far), Line("trial", places, [row[metric] for row in ended])]
    if importance := results.get("importance"):
        report.section("What mattered", f"The share of the variance of {shown} that each setting explains (fANOVA).")
        report.table(["setting", "share"], [[name, share] for name, share in importance.items()])
    about = f"The best of many trials is slightly optimistic: expect a lower {shown} on other texts."
    report.section("Best value over trials", about).chart(Chart.lines(lines, x_label="trial", y_label=shown))
    names = list(best["settings"])
    table = [
        [*(setting_text(row["settings"][n]) for n in names), row[metric], row["state"], quantity(row["seconds"], "s")]
        for row in rows
    ]
    report.section("Trials").table([*names, shown, "state", "time"], table)
    means = [
        [name, setting_text(value), sum(values) / len(values), len(values)]
        for name in names
        for value in sorted({row["settings"][name] for row in ended}, key=str)
        if (values := [row[metric] for row in ended if row["settings"][name] == value])
    ]
    if len(means) < len(ended) * len(names):  # values that came up more than once
        report.section("Values", f"Mean {shown} of the trials with each value.")
        report.table(["setting", "value", shown, "trials"], means)
    return report
