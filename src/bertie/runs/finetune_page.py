"""RUN/report.html of a fine-tuning run: what its folder holds, as one page that needs nothing else.

run.yaml   the settings     metrics.jsonl   losses and dev figures     results.json, findings.json   once it is finished

Of several seeds: a page over all of them, with links to theirs.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bertie.errors import DataError, UsageError
from bertie.evaluate.compare import Seeds, over_seeds
from bertie.files import read_json
from bertie.report import sections
from bertie.report.charts import Line, interval_chart, line_chart, smooth
from bertie.report.page import Report, Tile, link
from bertie.runs.config import FinetuneConfig
from bertie.runs.verify import CONFIG, RESULTS, run_config
from bertie.train import log
from bertie.train.resume import flatten

FINDINGS, REPORT = "findings.json", "report.html"
DRAWN = 3  # metrics whose course on dev is drawn


def is_finetuning(run: Path) -> bool:
    """Whether a folder holds a fine-tuning run, or several seeds of one."""
    return bool([*run.glob("seed-*")]) or ((run / CONFIG).exists() and isinstance(run_config(run), FinetuneConfig))


def page(run: Path | str) -> Report:
    """The report of a run, finished or not, or of several seeds. Raises DataError: no run, no metrics yet."""
    run = Path(run)
    if not is_finetuning(run):
        raise UsageError(f"{run} is no fine-tuning run.")
    if not (run / CONFIG).exists():
        return _over_seeds(run, read_json(run / RESULTS))
    config = run_config(run)
    assert isinstance(config, FinetuneConfig)
    lines = log.read(run)
    if not lines:
        raise DataError(f"{run / log.METRICS} has no lines yet: the first comes after {config.train.log_every} steps.")
    results = read_json(run / RESULTS) if (run / RESULTS).exists() else None
    done = lines[-1]["step"]
    state = "finished" if results else f"{done / config.train.steps:.0%} done"
    what = config.data or Path(config.train_file).name
    title = f"Fine-tuning: {run.resolve().name}"
    report = Report(title, f"{what}, from {config.model}: step {done:,} of {config.train.steps:,}, {state}")
    if results:
        scores, train = results["dev"], [line for line in lines if line["kind"] == "train"]
        trained = f"{results['train_examples']:,} to learn from"
        more = [Tile("examples", f"{scores['examples']:,}", trained)]
        more += [Tile("time", f"{train[-1]['elapsed_s'] / 60:,.1f} min", "training, over all resumes")] if train else []
        report.tiles([*sections.tiles(scores, results["metrics"]), *more])
        sections.notes(report, results["notes"], scores)
    _course(report, lines, results["metrics"] if results else ())
    if results:
        findings = read_json(run / FINDINGS)
        sections.answers(report, results["dev"], findings, untuned=results.get("untuned", {}).get("dev"))
    report.section("Settings").pairs(flatten(config.model_dump(mode="json")).items())
    return report


def _course(report: Report, lines: Sequence[Mapping[str, Any]], metrics: Sequence[str]) -> None:
    train, dev = ([line for line in lines if line["kind"] == kind] for kind in ("train", "valid"))
    losses = [Line("training", _column(train, "step"), smooth(_column(train, "loss")))] if train else []
    losses += [Line("dev", _column(dev, "step"), _column(dev, "loss"))] if dev else []
    charts = [
        (
            line_chart(losses, x_label="step", y_label="loss"),
            "The loss. On dev it rises again where the model overfits.",
        )
    ]
    names = [name for name in metrics or (dev[-1] if dev else ()) if dev and name in dev[-1]]
    names = [name for name in names if name not in ("kind", "step", "loss") and not name.endswith("_s")][:DRAWN]
    if names:
        drawn = [Line(name.replace("_", " "), _column(dev, "step"), _column(dev, name)) for name in names]
        charts.append((line_chart(drawn, x_label="step", y_label="on dev"), "The metrics on dev along the way."))
    if train:
        rate = Line("learning rate", _column(train, "step"), _column(train, "lr"))
        charts.append((line_chart([rate], x_label="step", y_label="learning rate"), "The learning rate."))
    report.section("Course").charts(charts)


def _over_seeds(run: Path, results: Mapping[str, Any]) -> Report:
    seeds, metrics, degenerate = results["seeds"], results["metrics"], results["degenerate"]
    report = Report(f"Fine-tuning: {run.resolve().name}", f"{len(seeds)} seeds, measured on the same examples")
    summed = {name: Seeds(**results["over_seeds"][name]) for name in metrics}
    report.tiles(Tile(sections.words(name), f"{one.mean:.3f}", _spread(one)) for name, one in summed.items())
    failed = "failed to learn: every dev example was given the answer"
    sections.notes(report, [f"seed {seed} {failed} {answer!r}" for seed, answer in degenerate.items()], results)
    groups = {
        sections.words(name): (
            [values[name] for values in seeds.values()],
            one.mean if one.low is None else one.low,
            one.mean if one.high is None else one.high,
        )
        for name, one in summed.items()
    }
    about = "Every dot is one seed: another new head, another order. Bars: 95 % intervals of the mean."
    report.section("Seeds", about).chart(interval_chart(groups, x_label="on dev"))
    rows = [
        [
            link(f"seed {seed}", f"seed-{seed}/{REPORT}"),
            *(values[name] for name in metrics),
            "failed to learn" if seed in degenerate else "",
        ]
        for seed, values in seeds.items()
    ]
    learnt = [values for seed, values in seeds.items() if seed not in degenerate]
    rows.append(["mean", *(one.mean for one in summed.values()), ""])
    if degenerate and learnt:
        without = [over_seeds([values[name] for values in learnt]).mean for name in metrics]
        rows.append(["mean of those that learnt", *without, f"{len(learnt)} of {len(seeds)} seeds"])
    report.table(["", *map(sections.words, metrics), ""], rows)
    return report


def _spread(one: Seeds) -> str:
    if one.sd is None:
        return "one seed"
    return f"± {one.sd:.3f} over seeds; 95 % interval of the mean {one.low:.3f} to {one.high:.3f}"


def _column(lines: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    return [line[name] for line in lines]
