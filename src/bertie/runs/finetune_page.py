"""RUN/report.html of a fine-tuning run: the content of its folder as one self-contained page.

    run.yaml        the settings
    metrics.jsonl   losses and dev metrics
    results.json    of a finished run; findings.json: its worst predictions and subgroups

For several seeds, a page over all of them, with links to their pages.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from bertie.errors import DataError, UsageError
from bertie.files import Json
from bertie.metrics.base import undefined, unknown_labels, verdict, with_intervals
from bertie.metrics.compare import SeedSummary
from bertie.report import sections
from bertie.report.charts import Chart, Line
from bertie.report.page import Html, Report
from bertie.report.values import interval as between
from bertie.report.values import metric_name, number, quantity
from bertie.runs import balance, calibration, usage
from bertie.runs.config import FinetuneConfig
from bertie.runs.folder import CONFIG, REPORT, RESULTS, read_findings, read_results
from bertie.runs.page import Curve, TrainingReport, describe_origin
from bertie.runs.verify import run_config
from bertie.settings import flatten
from bertie.tasks.datasets import DATASETS
from bertie.train import log

_MAX_METRICS_DRAWN = 3  # metrics whose values on dev are drawn
DOCS = "evaluation"


def is_finetuning(run: Path) -> bool:
    """Returns whether a folder contains a fine-tuning run, or several seeds of one."""
    return bool([*run.glob("seed-*"), *run.glob("fold-*")]) or (
        (run / CONFIG).exists() and isinstance(run_config(run), FinetuneConfig)
    )


def render_finetune_page(run: Path | str) -> Report:
    """Returns the report of a run, finished or not, or of several seeds. Raises DataError without a run or metrics."""
    run = Path(run)
    if not is_finetuning(run):
        raise UsageError(f"{run} is not a fine-tuning run.")
    if not (run / CONFIG).exists():
        summed = read_results(run)
        return _over_folds(run, summed) if "folds" in summed else _over_seeds(run, summed)
    if not isinstance(config := run_config(run), FinetuneConfig):
        raise UsageError(f"{run} is not a fine-tuning run.")
    lines = log.read_log(run)
    if not lines:
        raise DataError(
            f"{run / log.METRICS} has no lines yet. The first one is written after {config.train.log_every} steps."
        )
    results = read_results(run) if (run / RESULTS).exists() else None
    done = lines[-1]["step"]
    state = f"{done / config.train.steps:.0%} done"
    if results:
        state = "ended early" if "ended_early" in results else "finished"
    what = config.data or Path(config.train_file).name
    title = f"Fine-tuning: {run.resolve().name}"
    report = TrainingReport(title, f"{what}, from {config.model}: step {done:,} of {config.train.steps:,}, {state}")
    scores = with_intervals(results["dev"]) if results else {}
    if results:
        train = [line for line in lines if line["kind"] == "train"]
        more = [("dev examples", f"{scores['examples']:,}", f"{results['train_examples']:,} training examples")]
        more += [("time", quantity(train[-1]["elapsed_s"], "s"), "training, all resumes included")] if train else []
        report.banner(*sections.failed(scores)).tiles([*sections.tiles(scores, results["metrics"]), *more])
        worth = [sentence for sentence in (verdict(scores, results["metrics"][0])[0],) if sentence]
        report.notes([*worth, *results["notes"], *undefined(scores), *unknown_labels(scores)])
    _curves(report, lines, results["metrics"] if results else (), scores, (results or {}).get("selecting"))
    if results:
        before = results.get("untuned")
        untuned = sections.Untuned(with_intervals(before["dev"]), before["on"] == "dev") if before else None
        sections.add_sections(report, scores, read_findings(run), source=_source(config), untuned=untuned)
        calibration.scaling_section(report, results)
        balance.add_balance_section(report, results)
        balance.thresholds_section(report, results)
        usage.add_usage_section(report, results)
    report.settings(flatten(config.model_dump(mode="json")))
    return report.footer(
        origin=describe_origin(run), command=f"bertie finetune -c {run / CONFIG} -o NEW_FOLDER", docs=DOCS
    )


def _source(config: FinetuneConfig) -> str:
    """Returns the name of the dev file, or "" where a published data set has several."""
    if not config.data:
        return Path(config.dev_file or config.train_file).name
    splits = DATASETS[config.data].splits
    split = splits["dev" if "dev" in splits else "train"]
    return "" if split.more or "*" in split.file else Path(split.file).name


def _curves(
    report: TrainingReport,
    lines: Sequence[Mapping[str, object]],
    metrics: Sequence[str],
    scores: Mapping[str, object],
    selecting: int | None,
) -> None:
    """Draws losses, metrics and learning rate. selecting: the number of examples that selected weights, if not dev."""
    place = f"{selecting:,} held-out examples" if selecting else "dev"
    train, dev = ([line for line in lines if line["kind"] == kind] for kind in ("train", "valid"))
    losses = [Line.trend("training", _column(train, "step"), _column(train, "loss"))] if train else []
    losses += [Line(place, _column(dev, "step"), _column(dev, "loss"))] if dev else []
    charts = [Curve(losses, "loss", f"The loss. On {place} it rises again when the model overfits.")]
    names = [name for name in metrics or (dev[-1] if dev else ()) if dev and name in dev[-1]]
    names = [name for name in names if name not in ("kind", "step", "loss") and not name.endswith("_s")][
        :_MAX_METRICS_DRAWN
    ]
    if names:
        drawn = [Line(metric_name(name, scores), _column(dev, "step"), _column(dev, name)) for name in names]
        label = metric_name(names[0], scores) if len(names) == 1 else f"value on {place}"
        charts.append(Curve(drawn, label, f"The metrics on {place} during training."))
    if train:
        rate = Line("learning rate", _column(train, "step"), _column(train, "lr"))
        charts.append(Curve([rate], "learning rate", "The learning rate."))
    report.curves(charts)


def _over_seeds(run: Path, results: Json) -> Report:
    seeds, metrics, degenerate = results["seeds"], results["metrics"], results["degenerate"]
    report = TrainingReport(f"Fine-tuning: {run.resolve().name}", f"{len(seeds)} seeds, measured on the same examples")
    metrics = [name for name in metrics if name not in results.get("undefined", ())]
    summed = {name: SeedSummary(**results["over_seeds"][name]) for name in metrics}
    failed = f"{len(degenerate)} of {len(seeds)} seeds failed" if degenerate else ""
    if degenerate:
        each = "; ".join(f"seed {seed}: {answer!r}" for seed, answer in degenerate.items())
        report.banner(
            f"{failed}: the model predicts one label for every dev example ({each}). "
            "Try more epochs or a higher learning rate (optim.lr)."
        )
    report.tiles((metric_name(name, results), number(one.mean), failed or _spread(one)) for name, one in summed.items())
    report.notes([*filter(None, [results.get("worth"), results.get("chosen")]), *undefined(results)])
    groups = {
        metric_name(name, results): (
            [values[name] for values in seeds.values()],
            None if failed else one.low,
            None if failed else one.high,
        )
        for name, one in summed.items()
    }
    about = "Each dot is one seed: another random head and another order of the training examples."
    about += "" if failed else " Bars: 95% confidence intervals of the mean (t distribution)."
    report.section("Seeds", about)
    if groups:
        report.chart(Chart.intervals(groups, x_label="value on dev"))
    rows: list[list[object]] = [
        [
            Html.link(f"seed {seed}", f"seed-{seed}/{REPORT}"),
            *(values[name] for name in metrics),
            "failed" if seed in degenerate else "",
        ]
        for seed, values in seeds.items()
    ]
    learned = [values for seed, values in seeds.items() if seed not in degenerate]
    rows.append(["mean", *(one.mean for one in summed.values()), ""])
    if degenerate and learned:
        without = [SeedSummary.over([values[name] for values in learned]).mean for name in metrics]
        rows.append(["mean of the others", *without, f"{len(learned)} of {len(seeds)} seeds"])
    columns = ["seed", *(metric_name(name, results) for name in metrics), "note"]
    report.table(columns if degenerate else columns[:-1], rows if degenerate else [row[:-1] for row in rows])
    first = run / f"seed-{next(iter(seeds))}"
    command = f"bertie finetune -c {first / CONFIG} --seeds {len(seeds)} -o NEW_FOLDER"
    return report.footer(origin=describe_origin(first), command=command, docs=DOCS)


def _over_folds(run: Path, results: Json) -> Report:
    """The page of a cross-validation."""
    folds, scores = results["folds"], with_intervals(results["out_of_fold"])
    metrics = [name for name in results["metrics"] if name not in scores.get("undefined", ())]
    summed = {name: SeedSummary(**results["over_folds"][name]) for name in metrics}
    about = f"{len(folds)} folds of {results['rows']:,} rows, each predicted by a model that did not learn it"
    report = TrainingReport(f"Cross-validation: {run.resolve().name}", about)
    report.tiles((metric_name(name, results), number(one.mean), _between(one)) for name, one in summed.items())
    report.notes([*results["notes"], *undefined(scores)])
    about = "Each dot is a fold. Bars: 95% intervals of the mean. They count that the models learn from common rows."
    groups = {
        metric_name(name, results): ([values[name] for values in folds.values()], one.low, one.high)
        for name, one in summed.items()
    }
    report.section("Folds", about).chart(Chart.intervals(groups, x_label="value on the rows that were left out"))
    rows: list[list[object]] = [
        [Html.link(name, f"{name}/{REPORT}"), values["rows"], *(values[metric] for metric in metrics)]
        for name, values in folds.items()
    ]
    rows.append(["mean", results["rows"], *(one.mean for one in summed.values())])
    report.table(["fold", "rows", *(metric_name(name, results) for name in metrics)], rows)
    sections.add_sections(report, scores, read_findings(run))
    calibration.scaling_section(report, results)
    balance.thresholds_section(report, results)
    command = f"bertie finetune -c {run / 'final' / CONFIG} --folds {len(folds)} -o NEW_FOLDER"
    return report.footer(origin=describe_origin(run / "final"), command=command, docs=DOCS)


def _between(one: SeedSummary) -> str:
    return "" if one.low is None or one.high is None else f"95% interval of the mean {between(one.low, one.high)}"


def _spread(one: SeedSummary) -> str:
    if one.sd is None or one.low is None or one.high is None:
        return "one seed"
    return f"± {number(one.sd)} over seeds; 95% interval of the mean {between(one.low, one.high)}"


def _column(lines: Sequence[Json], name: str) -> list[float]:
    return [line[name] for line in lines]


def render_evaluation_page(
    title: str,
    subtitle: str,
    scores: Json,
    findings: Json,
    metrics: Sequence[str],
    *,
    notes: Iterable[str] = (),
    source: str = "",
) -> Report:
    """Returns the page of a model on a labeled file. source: the file's name, for the lines of the worst
    predictions."""
    left = scores["left_out"]["total"]
    counted = ("examples", f"{scores['examples']:,}", f"{left:,} skipped" if left else "")
    report = Report(title, subtitle).banner(*sections.failed(scores)).tiles([*sections.tiles(scores, metrics), counted])
    report.notes([*notes, *unknown_labels(scores)])
    sections.add_sections(report, scores, findings, source=source)
    return report
