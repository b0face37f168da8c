"""RUN/report.html of a pre-training run: the content of its folder as one self-contained page.

    run.yaml        the settings
    metrics.jsonl   losses, learning rate, speed
    guesses.jsonl   predictions for masked tokens of held-out text
    results.json    of a finished run

`bertie report` writes the page of any run again.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bertie.data import card
from bertie.errors import BertieError, DataError, UsageError
from bertie.files import Json
from bertie.report.charts import Chart, Line, tick
from bertie.report.page import Report
from bertie.report.values import number, quantity
from bertie.runs import usage
from bertie.runs.config import PretrainConfig
from bertie.runs.folder import CONFIG, RESULTS, read_results
from bertie.runs.guesses import read_guesses
from bertie.runs.verify import run_config
from bertie.settings import flatten
from bertie.train import log


@dataclass(frozen=True)
class Curve:
    """One chart of training curves: lines over steps, the axis, and the caption."""

    lines: Sequence[Line]
    y_label: str
    caption: str
    percent: bool = False


class TrainingReport(Report):
    """The page of a run that trained, with its curves."""

    def curves(self, charts: Iterable[Curve]) -> None:
        """Adds the section of training curves. For a single point, the value is printed instead of a curve."""
        drawn, values = [], []
        for chart in charts:
            if any(len(line.x) > 1 for line in chart.lines):
                svg = Chart.lines(
                    chart.lines, x_label="step", y_label=chart.y_label, percent=chart.percent, title=chart.caption
                )
                drawn.append((svg, chart.caption))
                continue
            for line in chart.lines:
                name = chart.y_label if len(chart.lines) == 1 else f"{chart.y_label}, {line.name}"
                shown = (tick if 0 < line.y[0] < 1e-3 else number)(line.y[0])
                values.append((f"{name}, step {line.x[0]:,.0f}", f"{line.y[0]:.1%}" if chart.percent else shown))
        if not drawn and not values:
            return
        self.section("Training curves")
        if drawn:
            self.charts(drawn)
        if values:
            self.pairs(values)


_OBJECTIVE_NAMES = {"mlm": "masked tokens", "nsp": "next sentence", "sop": "sentence order", "rtd": "replaced tokens"}
REPLACE = (0.8, 0.1, 0.1)  # of masked-LM positions, by default: the mask, a random token, the original


def render_pretrain_page(run: Path | str) -> Report:
    """Returns the report of a run, finished or not. Raises DataError without a run or metrics, UsageError for other
    runs."""
    run = Path(run)
    config = run_config(run)
    if not isinstance(config, PretrainConfig):
        raise UsageError(f"{run} is not a pre-training run.")
    lines = log.read_log(run)
    train, valid = ([line for line in lines if line["kind"] == kind] for kind in ("train", "valid"))
    if not train:
        raise DataError(
            f"{run / log.METRICS} has no lines yet. The first one is written after {config.train.log_every} steps."
        )
    results = read_results(run) if (run / RESULTS).exists() else {}
    done = train[-1]["step"]
    state = "finished" if results else f"{done / config.train.steps:.0%} done"
    report = TrainingReport(
        f"Pre-training: {run.resolve().name}", f"{config.model}, step {done:,} of {config.train.steps:,}, {state}"
    )
    report.banner(*_failed(train)).tiles(_tiles(train, valid))
    if reason := results.get("ended_early"):
        report.notes([f"the run ended early, after step {done:,}: {reason}"])
    report.curves([*_losses(train, valid), *_progress(train)])
    report.masked_tokens(_last_phase(read_guesses(run)), _about_masks(config))
    if plan := results.get("plan"):
        _plan(report, plan)
    usage.add_usage_section(report, results)
    if perplexity := results.get("pseudo_perplexity"):
        rows = [
            [
                name,
                both["before"]["per_word"] if "before" in both else "(fresh head)",
                both["after"]["per_word"],
                both["after"]["words"],
            ]
            for name, both in perplexity.items()
        ]
        about = "How well the model predicts each word of held-out sentences from the others. Lower is better."
        report.section("Pseudo-perplexity", about).table(["corpus", "before", "after", "words"], rows)
    _corpora(report, config)
    report.settings(flatten(config.model_dump(mode="json")))
    command = f"bertie pretrain -c {run / CONFIG} -o NEW_FOLDER"
    return report.footer(origin=describe_origin(run), command=command, docs="training")


def describe_origin(run: Path) -> str:
    """Returns when a run wrote its last metrics or results, in UTC."""
    path = next(path for path in (run / log.METRICS, run / RESULTS) if path.exists())
    return f"{datetime.fromtimestamp(path.stat().st_mtime, UTC):%Y-%m-%d %H:%M} UTC"


def _failed(train: Sequence[Json]) -> list[str]:
    """Returns the banner of a run whose loss has risen."""
    first, last = train[0]["loss"], train[-1]["loss"]
    if len(train) < 2 or last <= first:
        return []
    return [
        f"The model did not learn: the training loss rose from {number(first)} to {number(last)}. "
        "Try a lower learning rate (optim.lr) or a longer warmup (optim.warmup)."
    ]


def _tiles(train: Sequence[Json], valid: Sequence[Json]) -> list[tuple[str, ...]]:
    last, where = (valid[-1], "held-out text") if valid else (train[-1], "training text")
    tiles = [("loss", number(last["loss"]), f"{where}, step {last['step']:,}")]
    tiles += [(f"accuracy, {_name(key)}", f"{last[key]:.1%}", where) for key in last if key.endswith("_accuracy")]
    tokens, seconds = sum(line["tokens"] for line in train), train[-1]["elapsed_s"]
    tiles.append(("tokens read", quantity(tokens), f"{tokens / max(seconds, 1e-9):,.0f} per second"))
    return [*tiles, ("time", quantity(seconds, "s"), "all resumes and validation included")]


def _losses(train: Sequence[Json], valid: Sequence[Json]) -> list[Curve]:
    """Adds a chart for each loss, with one line per corpus where there are several."""
    charts = []
    for key in [key for key in train[-1] if key.endswith("_loss")]:
        lines = [Line.trend("training text", _steps(train), [line[key] for line in train])]
        for name in [key, *(k for k in (valid[-1] if valid else {}) if k.startswith(f"{key}/"))]:
            if rows := [line for line in valid if name in line]:
                label = "held-out text" if name == key else f"held-out text, {name.partition('/')[2]}"
                lines.append(Line(label, _steps(rows), [line[name] for line in rows]))
        about = f"{_name(key).capitalize()}: the loss, in nats per prediction. Lower is better."
        charts.append(Curve(lines, f"loss, {_name(key)}", about))
    return charts


def _progress(train: Sequence[Json]) -> list[Curve]:
    rows = {
        "lr": ("learning rate", "The learning rate."),
        "grad_norm": ("gradient norm", "The norm of the gradients before clipping. A spike points to an unusual step."),
        "tokens_per_s": ("tokens per second", "The training speed. Padding is not counted."),
    }
    return [
        Curve([Line(label, _steps(train), [line[key] for line in train])], label, caption)
        for key, (label, caption) in rows.items()
    ]


def _last_phase(looks: Sequence[Json]) -> list[Mapping[str, object]]:
    """Returns the predictions of the last phase, whose texts are the same."""
    texts = [example["text"] for example in looks[-1]["examples"]] if looks else []
    return [line for line in looks if [example["text"] for example in line["examples"]] == texts]


def _about_masks(config: PretrainConfig) -> str:
    """Returns a sentence on the corrupted positions of the run's masked language modeling."""
    options: Json = config.objectives.get("mlm") or {}
    mask, random, same = options.get("replace", REPLACE)
    return (
        f"Of the positions to predict, {mask:.0%} show [MASK], {random:.0%} a random token (dotted underline) and "
        f"{same:.0%} the original token. The table shows one blank for each text of the held-out set, and the two most "
        "probable tokens for it."
    )


def _plan(report: Report, plan: Json) -> None:
    facts = [(name.replace("_", " "), plan[name]) for name in ("parameters", "objective", "documents")]
    facts += [("tokens per epoch", plan["tokens_per_epoch"]), ("epochs", f"{plan['epochs']:.2g}")]
    facts += [("floating-point operations", quantity(plan["flops"], "FLOPs"))]
    facts += [(f"of these, {name}", quantity(value, "FLOPs")) for name, value in plan.get("flops_beside", {}).items()]
    report.section("Plan").pairs([*facts, ("device", plan["device"]), ("precision", plan["precision"])])
    for kind in ("phases", "corpora"):
        if rows := plan.get(kind):
            columns = [column.replace("_", " ") for column in rows[0]]
            values = [[quantity(v, "FLOPs") if name == "flops" else v for name, v in row.items()] for row in rows]
            report.table(columns, values, caption=kind.capitalize())


def _corpora(report: Report, config: PretrainConfig) -> None:
    if config.features.column:
        about = f"A table of texts and their feature vectors: column {config.features.column}."
        report.section(f"Corpus: {Path(config.corpus).name}", about)
        return
    for path in [config.corpus] if config.corpus else [corpus.path for corpus in config.corpora]:
        try:
            content = card.load_card(Path(path))
        except BertieError as error:  # it has moved, or is gone; the page says so and is shown all the same
            report.section(f"Corpus: {Path(path).name}", str(error))
            continue
        report.section(f"Corpus: {content['name']}")
        sizes = ("documents", "sentences", "words", "characters", "bytes")
        report.table(list(sizes), [[content[name] for name in sizes]])
        records = content["records"]
        rows = [["read", records["in"]], *map(list, records["dropped"].items()), ["kept", records["kept"]]]
        report.table(["records", "count"], rows)


def _name(key: str) -> str:
    """Returns mlm_loss as "masked tokens"."""
    part = key.rpartition("_")[0].partition("/")[0]
    return _OBJECTIVE_NAMES.get(part, part)


def _steps(lines: Sequence[Json]) -> list[float]:
    return [line["step"] for line in lines]
