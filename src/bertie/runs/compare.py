"""Comparison of runs: different settings, curves in one chart, final metrics, cost; two start models on one task.

A run of several seeds, and a folder of trials, are given by their folder. Seeds are one row with an interval, and
trials are one row each.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path

from safetensors import safe_open

from bertie.errors import DataError, UsageError
from bertie.files import Json, JsonObject
from bertie.folders import check_folder_kind
from bertie.metrics.base import called
from bertie.metrics.compare import SeedSummary
from bertie.models.files import weight_files
from bertie.models.variant import CONFIG as MODEL_CONFIG
from bertie.report.charts import Line
from bertie.report.page import Report
from bertie.report.values import number, quantity, setting_text
from bertie.runs.config import OF_FOLDS, FinetuneConfig, PretrainConfig
from bertie.runs.folder import CONFIG, RESULTS, read_results, seed_runs
from bertie.runs.layout import MODEL
from bertie.runs.page import Curve, TrainingReport
from bertie.runs.verify import run_config
from bertie.settings import flatten
from bertie.train import log

INTERVALS = "Intervals are 95% confidence intervals of the mean over seeds (t distribution)."


@dataclass(frozen=True)
class RunComparison:
    """A run, or the runs of several seeds, by its name in the tables."""

    name: str
    folders: tuple[Path, ...]

    @cached_property
    def config(self) -> PretrainConfig | FinetuneConfig:
        """The settings of the first run. The others differ only in the seed."""
        return run_config(self.folders[0])

    @cached_property
    def settings(self) -> JsonObject:
        """The settings by dotted name, as the user chose them: without those that folds set in their runs.

        An objective is true, beside its options: without any, it would be missing."""
        objectives = self.config.objectives if isinstance(self.config, PretrainConfig) else {}
        used = {f"objectives.{name}": True for name, options in objectives.items() if options is not None}
        settings = flatten(self.config.model_dump(mode="json")) | used
        if isinstance(self.config, FinetuneConfig):
            settings.pop("train.steps")  # which epochs and rows decide
        root = self.folders[0].parent
        results = read_results(root) if len(self.folders) > 1 and (root / RESULTS).exists() else {}
        if "folds" in results:
            settings = {name: value for name, value in settings.items() if name not in OF_FOLDS}
            settings |= flatten({"folds": len(self.folders), **results["fitted"]})
        return settings

    @cached_property
    def lines(self) -> list[list[JsonObject]]:
        """The metrics of each run."""
        return [log.read_log(folder) for folder in self.folders]

    def kind(self, name: str) -> list[JsonObject]:
        """Returns the train or valid lines of the first run."""
        return [line for line in self.lines[0] if line["kind"] == name]

    @cached_property
    def finals(self) -> dict[str, list[float]]:
        """The final metrics of each seed: of the dev set for a finished fine-tuning run, where they are defined;
        otherwise of the last line."""
        rows = [_final(folder, lines) for folder, lines in zip(self.folders, self.lines, strict=True)]
        return {name: [row[name] for row in rows] for name in rows[0] if all(name in row for row in rows)}

    def minus(self, other: "RunComparison") -> dict[str, SeedSummary]:
        """Returns the differences of the final metrics, paired by seed; none if the seeds differ, or for one seed."""
        seeds, others = ([folder.name for folder in run.folders] for run in (self, other))
        if len(seeds) < 2 or seeds != others:
            return {}
        pairs = {
            name: zip(values, other.finals[name], strict=True)
            for name, values in self.finals.items()
            if name in other.finals
        }
        return {name: SeedSummary.over([a - b for a, b in pair]) for name, pair in pairs.items()}

    @property
    def fresh(self) -> list[str]:
        """The modules of a finished fine-tuning run that the start model lacks: they started from random weights."""
        run = self.folders[0]
        return list(read_results(run).get("fresh", [])) if (run / RESULTS).exists() else []

    @property
    def cost(self) -> dict[str, float]:
        """Steps, tokens and seconds of all its runs together, and the parameters of one model, where it is saved."""
        trains = [[line for line in lines if line["kind"] == "train"] for lines in self.lines]
        cost = {
            "steps": sum(rows[-1]["step"] for rows in trains if rows),
            "of": self.config.train.steps * len(self.folders),
            "tokens": sum(line["tokens"] for rows in trains for line in rows),
            "seconds": sum(rows[-1]["elapsed_s"] for rows in trains if rows),
        }
        model = self.folders[0] / MODEL
        return cost | ({"parameters": _parameters(model)} if (model / MODEL_CONFIG).is_file() else {})

    def as_json(self, differing: Sequence[str], first: "RunComparison") -> JsonObject:
        """The run as `bertie compare --json` prints it. first: the run that the others are compared with."""
        return {
            "run": self.name,
            "seeds": len(self.folders),
            "settings": {key: self.settings.get(key) for key in differing},
            "figures": {name: SeedSummary.over(values, name).as_json() for name, values in self.finals.items()},
            "minus_first": {name: one.as_json() for name, one in self.minus(first).items()} if self != first else {},
            "fresh": self.fresh,
            "cost": self.cost,
        }


def gather(paths: Sequence[Path]) -> list[RunComparison]:
    """Returns the runs in these paths.

    Raises UsageError for fewer than two runs or several kinds, DataError for a run without metrics.
    """
    runs = [run for path in paths for run in _runs(path)]
    if len(runs) < 2:
        raise UsageError(f"bertie compare needs at least two runs, but {len(runs)} was given. Name another run folder.")
    if len({type(run.config) for run in runs}) > 1:
        raise UsageError("Pre-training and fine-tuning runs have different metrics. Compare runs of one kind.")
    for run in runs:
        if not all(run.lines):
            raise DataError(f"{run.name} has no metrics yet: it stopped before its first line. Resume it first.")
    return runs


def compare_runs(runs: Sequence[RunComparison]) -> JsonObject:
    """{"differing": settings, "runs": [{"run", "seeds", "settings", "figures", "minus_first", "fresh", "cost"}]}"""
    differing = _differing(runs)
    return {"differing": differing, "runs": [run.as_json(differing, runs[0]) for run in runs]}


def render_comparison_page(runs: Sequence[RunComparison], command: str) -> Report:
    """Returns the comparison as one page."""
    comparison = compare_runs(runs)
    report = TrainingReport("Comparison", f"{len(runs)} runs")
    columns, rows = figure_rows(comparison)
    report.section("Final figures", INTERVALS * any(row["seeds"] > 1 for row in comparison["runs"])).table(
        columns, rows, stack=True
    )
    for columns, rows in (difference_rows(comparison), fresh_rows(comparison)):
        if rows:
            report.table(columns, rows, stack=True)
    report.section("Cost").table(*cost_rows(comparison), stack=True)
    if comparison["differing"]:
        report.section("Settings that differ").table(*setting_rows(comparison), stack=True)
    report.curves(_curves(runs))
    return report.footer(command=command, docs="runs")


def figure_rows(comparison: Json) -> tuple[list[str], list[list[str]]]:
    """Returns columns and rows of the final metrics that all runs have."""
    first = comparison["runs"][0]["figures"]
    names = [name for name in first if all(name in row["figures"] for row in comparison["runs"])]
    rows = [
        [row["run"], str(row["seeds"]), *(_seeds(row["figures"][name]) for name in names)] for row in comparison["runs"]
    ]
    return ["run", "seeds", *names], rows


def difference_rows(comparison: Json) -> tuple[list[str], list[list[str]]]:
    """Returns columns and rows of the metrics minus those of the first run, paired by seed."""
    others = [row for row in comparison["runs"] if row["minus_first"]]
    names = [name for name in figure_rows(comparison)[0][2:] if all(name in row["minus_first"] for row in others)]
    rows = [[row["run"], *(_seeds(row["minus_first"][name], _signed) for name in names)] for row in others]
    return [f"minus {comparison['runs'][0]['run']}", *names], rows


def fresh_rows(comparison: Json) -> tuple[list[str], list[list[str]]]:
    """Returns columns and rows of the modules that a start model lacks."""
    rows = [[row["run"], ", ".join(row["fresh"])] for row in comparison["runs"] if row["fresh"]]
    return ["run", "started from random weights"], rows


def cost_rows(comparison: Json) -> tuple[list[str], list[list[str]]]:
    """Returns columns and rows of the costs."""
    rows = []
    for row in comparison["runs"]:
        cost = row["cost"]
        steps = f"{cost['steps']:,}" + (f" of {cost['of']:,}" if cost["steps"] < cost["of"] else "")
        size = f"{cost['parameters']:,}" if "parameters" in cost else "–"
        rows.append([row["run"], steps, quantity(cost["tokens"]), quantity(cost["seconds"], "s"), size])
    return ["run", "steps", "tokens", "time", "parameters"], rows


def setting_rows(comparison: Json) -> tuple[list[str], list[list[str]]]:
    """Returns columns and rows of the settings that differ between runs."""
    names = [row["run"] for row in comparison["runs"]]
    rows = [
        [key, *(setting_text(row["settings"][key]) for row in comparison["runs"])] for key in comparison["differing"]
    ]
    return ["setting", *names], rows


def card_rows(runs: Sequence[RunComparison]) -> tuple[list[str], list[list[str]]]:
    """Returns columns and rows for a model's card: each run with its own metrics, the folder by its last part."""
    rows = []
    for run in runs:
        figures = (f"{name} {_seeds(SeedSummary.over(values, name).as_json())}" for name, values in run.finals.items())
        rows.append([Path(run.name).name, str(len(run.folders)), ", ".join(figures)])
    return ["run", "seeds", "metrics"], rows


COMPARISON_TABLES = (figure_rows, difference_rows, fresh_rows, cost_rows, setting_rows)
"""The tables of the terminal, in order; a table without rows is omitted."""


def _parameters(folder: Path) -> int:
    """Returns the number of parameters in a model folder."""
    total = 0
    for path in weight_files(folder):
        with safe_open(str(path), framework="np") as file:
            total += sum(prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118
    return total


def _runs(path: Path) -> Iterator[RunComparison]:
    if (path / CONFIG).is_file():
        yield RunComparison(str(path), (path,))
    elif seeds := seed_runs(path):
        yield RunComparison(str(path), tuple(seeds))
    elif trials := sorted(inner.parent for inner in path.glob(f"*=*/{CONFIG}")):
        yield from (RunComparison(str(trial), (trial,)) for trial in trials if log.read_log(trial))
    else:
        check_folder_kind(path, "run")
        raise DataError(f"{path} is not a run: it has no {CONFIG}. Pass a folder of pretrain, finetune or tune.")


def _final(folder: Path, lines: Sequence[Json]) -> dict[str, float]:
    results = read_results(folder) if (folder / RESULTS).exists() else {}
    if "dev" in results:
        dev = results["dev"]
        return {called(name, dev): dev[name] for name in results["metrics"] if name not in dev.get("undefined", {})}
    last = next((line for line in reversed(lines) if line["kind"] == "valid"), lines[-1])
    return {name: value for name, value in last.items() if name.endswith(("loss", "accuracy", "f1"))}


def _differing(runs: Sequence[RunComparison]) -> list[str]:
    flat = [run.settings for run in runs]
    keys = {key: None for one in flat for key in one if key not in OF_FOLDS or all(key in each for each in flat)}
    return [key for key in keys if len({setting_text(one.get(key)) for one in flat}) > 1 and key != "train.seed"]


def _seeds(one: Json, shown: Callable[[float], str] = number) -> str:
    between = "" if one["low"] is None else f" ({shown(one['low'])} to {shown(one['high'])})"
    return shown(one["mean"]) + between


def _signed(value: float) -> str:
    return "+" * (value > 0) + number(value)


def _curves(runs: Sequence[RunComparison]) -> Iterator[Curve]:
    """Returns a chart for each validation metric that all runs have, and for the training loss, with one line per
    run."""
    for name in ("loss", *_common(runs)):
        kind = "train" if name == "loss" else "valid"
        lines = []
        for run in runs:
            rows = run.kind(kind)
            values = [row[name] for row in rows]
            steps = [row["step"] for row in rows]
            lines.append((Line.trend if kind == "train" else Line)(run.name, steps, values))
        where = "training text" if kind == "train" else "held-out examples"
        yield Curve(lines, name.replace("_", " "), f"{name.replace('_', ' ')} on {where}, first seed.")


def _common(runs: Sequence[RunComparison]) -> list[str]:
    every = [run.kind("valid") for run in runs]
    if not all(every):
        return []
    names = [name for name in every[0][-1] if name.endswith(("_loss", "accuracy", "f1"))]
    return [name for name in names if all(name in rows[-1] for rows in every)]
