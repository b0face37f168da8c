"""What a search has shown: whether the best of many trials is better than the settings that were given; its report.

    confirm_best      both are trained again with the same new seeds: the difference of each pair of runs
    nested_search     the search itself is repeated in each fold of cross-validation, without the rows that measure it

The dev examples chose the best trial, so new seeds alone still favor it a little. Nested cross-validation does not
(Cawley and Talbot 2010).
"""

import itertools
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bertie.checksums import CHECKSUMS
from bertie.console import console
from bertie.errors import UsageError
from bertie.files import Json
from bertie.metrics.base import called
from bertie.metrics.compare import SeedSummary
from bertie.report.charts import Chart, Line
from bertie.report.page import Report
from bertie.report.values import quantity, setting_text
from bertie.runs.config import FinetuneConfig, LabeledFiles
from bertie.runs.examples import Examples, split_of
from bertie.runs.finetune import run_finetune
from bertie.runs.folds import FoldPlan, plan_folds
from bertie.runs.space import Space, varied

RECORD = (".yaml", ".json", ".jsonl", ".html")  # what is kept of a run that is not the best
GIVEN, BEST = "given", "best"
INNER = 0.2  # of the training rows of a fold, on which its search measures trials

SettingValues = Mapping[str, object]
FoldSearch = Callable[..., Json]
"""A search with a config, in a folder, of these `examples` -> its results."""


def confirm_best(config: FinetuneConfig, best: SettingValues, run: Path, metric: str, seeds: int) -> dict[str, object]:
    """Trains the given and the best settings with the same new seeds, and returns the comparison on dev.

    Of settings that are the same, each run is trained once.
    """
    pairs, same = [], varied(config, best) == config
    for seed in range(config.train.seed + 1, config.train.seed + 1 + seeds):
        values = []
        for name, settings in ((GIVEN, config), (BEST, varied(config, best)))[: 1 if same else 2]:
            train = settings.train.model_copy(update={"seed": seed})
            folder = run / f"{name}=seed {seed}"
            console.say(f"[bold]{name} settings, seed {seed}[/]", markup=True)
            values.append(_score(settings.model_copy(update={"train": train}), folder, metric, None))
        pairs.append((values[0], values[-1]))
    return {"seeds": seeds, "same": same, **_compared(pairs, metric)}


def plan_nested(config: FinetuneConfig, space: Space, folds: int) -> FoldPlan:
    """Returns the folds. Raises UsageError for what cannot be searched in folds, and as `plan_folds`."""
    if reading := [name for name in space if name.split(".")[0] in LabeledFiles.model_fields or name == "per_label"]:
        raise UsageError(
            f"folds divides the rows once, and {reading[0]} changes how they are read. Vary other settings."
        )
    return plan_folds(config, folds)


def nested_search(plan: FoldPlan, run: Path, metric: str, search: FoldSearch) -> dict[str, object]:
    """Repeats the search in each fold, and returns the comparison on rows that neither chose nor trained anything."""
    pairs, chosen = [], []
    split = split_of(plan.config, type(plan.task))
    for fold in plan.folds:
        console.say(f"[bold]{fold.name}: search[/]", markup=True)
        train, dev = split.hold_out([*fold.examples.train, *fold.examples.select], INNER)
        inner = replace(fold.examples, train=train, dev=dev, select=[])
        best = search(plan.config, run / fold.name, examples=inner)["best"]["settings"]
        chosen.append(best)
        values = []
        for name, settings in ((GIVEN, plan.config), (BEST, varied(plan.config, best))):
            console.say(f"[bold]{fold.name}: {name} settings[/]", markup=True)
            values.append(_score(settings, run / f"{name}={fold.name}", metric, fold.examples))
        pairs.append((values[0], values[1]))
    return {"folds": len(plan.folds), "settings": chosen, **_compared(pairs, metric)}


def _score(config: FinetuneConfig, folder: Path, metric: str, examples: Examples | None) -> float:
    """Returns the dev score of a run, of which only the record is kept."""
    plain = config.model_copy(update={"baselines": False, "label_check": "none"})
    score = float(run_finetune(plain, folder, examples=examples)["dev"][metric])
    keep_record(folder)
    return score


def keep_record(folder: Path) -> None:
    """Deletes the weights of a run."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.suffix not in RECORD or path.name == CHECKSUMS:  # which no longer holds
            path.unlink()


def _compared(pairs: Sequence[tuple[float, float]], metric: str) -> dict[str, object]:
    base, best = zip(*pairs, strict=True)
    difference = SeedSummary.over([b - a for a, b in pairs])
    return {
        GIVEN: SeedSummary.over(base, metric).mean,
        BEST: SeedSummary.over(best, metric).mean,
        "difference": difference.mean,
        "low": difference.low,
        "high": difference.high,
        "better": difference.low is not None and difference.low > 0,
        "runs": [{GIVEN: a, BEST: b} for a, b in pairs],
    }


def verdict_on_best(comparison: Json, metric: str) -> str:
    """Returns one sentence on what `confirm_best` or `nested_search` found."""
    if comparison.get("same"):
        score = f"{metric} {comparison[BEST]:z.3f}"
        return f"The best settings are the given ones: {score} over {comparison['seeds']} new seeds."
    where = f"{comparison['folds']} folds, nested" if "folds" in comparison else f"{comparison['seeds']} new seeds"
    between = (
        "" if comparison["low"] is None else f", 95% interval {comparison['low']:+z.3f} to {comparison['high']:+z.3f}"
    )
    means = (
        f"{metric} {comparison[BEST]:z.3f} against {comparison[GIVEN]:z.3f} ({comparison['difference']:+z.3f}{between})"
    )
    if comparison["better"]:
        return f"Over {where}, the best settings are better than the given ones: {means}."
    return f"Over {where}, the best settings are not shown to be better than the given ones: {means}."


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
