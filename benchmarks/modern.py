"""What pays at a small budget: BERT's layer as published, each later change alone, and all of them, at equal seconds.

    python -m benchmarks reproduce modern --corpus CORPUS --tokenizer TOKENIZER --data-dir data -o runs/modern

A row is a value: the settings in which its run differs from the first row's. Every run may take the same processor
seconds for its steps (on a GPU: seconds). A trial of a few steps says how many steps that is. All rows read the same
corpus with the same tokenizer. The validation loss is that of masked words with 15% masks in texts of 128 tokens, the
same held-out batches for all rows. Then the model is fine-tuned on published sets.

Each run is a file, so that the command can be resumed. A seed comes after the other, so that an interrupted table has
all rows.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from torch import get_num_threads

from benchmarks.cells import NEVER, STEPS, cell, check_same, finetuned, made, measured
from benchmarks.results import ROWS, config_of, read_row, spaced
from bertie.console import console
from bertie.errors import DataError, Stopped, UsageError, nearest
from bertie.files import read_json
from bertie.metrics.compare import SeedSummary
from bertie.models import families
from bertie.models.batch import Batch
from bertie.objectives.base import Objective
from bertie.report.charts import Chart
from bertie.runs.config import FinetuneConfig, PretrainConfig
from bertie.runs.examples import Examples
from bertie.runs.forecast import forecast_of
from bertie.runs.layout import MODEL
from bertie.runs.pretrain import run_pretrain
from bertie.runs.pretraining import PreparedRun
from bertie.runs.work import pretraining_work
from bertie.settings import build_config, merge, read_yaml
from bertie.train.callbacks import EachStep
from bertie.train.loop import temporary_run
from bertie.train.precision import choose_device
from bertie.train.step_metrics import measure_batches

Values = Mapping[str, Any]
PUBLISHED, TOGETHER = "as published", "all together"
SIZES = ("mini", "small")  # of the presets bert-mini and bert-small, and of the recipes of `all together`
DEV = 1_000  # dev examples of a task, evenly spaced
TRIED_S = 30.0  # seconds of a trial of a phase: tens of steps at the sizes of the table, also on a shared machine
FEWEST = 20  # steps of a run, so that each phase has one


def rows_of(size: str) -> dict[str, Values]:
    """Returns the changes of each row at a size, as settings of `bertie pretrain`. recipe: the settings under them."""
    shape = families.config(f"bert-{size}")
    names = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size")
    sizes = {name: getattr(shape, name) for name in names}
    return {
        PUBLISHED: {},
        "with next sentences": {"objectives": {"nsp": {}}},
        "rotary positions": {"model_overrides": {"positions": "rotary"}},
        "GeGLU": {
            "model_overrides": {"hidden_act": "geglu_erf", "intermediate_size": 2 * shape.intermediate_size // 3}
        },
        "no biases": {"model_overrides": {"bias": False, "attention_bias": False, "norm_type": "unbiased"}},
        "norms before": {"model_overrides": {"norm": "pre"}},
        "more and narrower layers": {
            "model_overrides": {
                "num_hidden_layers": 3 * shape.num_hidden_layers // 2,
                "intermediate_size": 9 * shape.hidden_size // 4,
            }
        },
        "masks from 30% to 15%": {
            "phases": [_masks(rate, {"steps": share}) for rate, share in ((0.3, 0.7), (0.25, 0.1), (0.2, 0.1))]
            + [_masks(0.15)]
        },
        "stable rate": {"optim": {"decay": "stable"}},
        "texts of 128 to 512 tokens": {
            "model_overrides": {"max_position_embeddings": 512},
            "phases": [
                {"steps": 0.7},
                {"steps": 0.15, "max_length": 256, "batch_size": 32},
                {"max_length": 512, "batch_size": 16},
            ],
        },
        "full sentences": {"packing": "full_sentences"},
        "Muon": {"optim": {"name": "muon", "lr": 4e-3}},  # the rate of pretrain-ten-minutes
        TOGETHER: {"recipe": f"pretrain-modern-{size}"},
        "DeBERTa": {"model": "deberta-v3-base", "model_overrides": sizes},
        "ELECTRA": {
            "model": "electra-small-discriminator",
            "model_overrides": {**sizes, "embedding_size": shape.hidden_size},
            "objectives": {"mlm": None, "rtd": {}},
        },
    }


def _masks(rate: float, more: Values = {}) -> dict[str, Any]:  # noqa: B006
    return {**more, "objectives": {"mlm": {"rate": rate}}}


@dataclass(frozen=True)
class Table:
    """What all runs of a table share.

    minutes: of the steps of a run, for each thread. tasks: rows of `reproduce results`. examples: the most
    training examples of a task.
    """

    corpus: str
    tokenizer: str
    data_dir: Path
    size: str = "mini"
    minutes: float = 10.0
    tasks: tuple[str, ...] = ("sst2", "conll2003")
    examples: int = 4_000

    def __post_init__(self) -> None:
        for name, given, known in (("size", (self.size,), SIZES), ("task", self.tasks, ROWS)):
            if unknown := next((one for one in given if one not in known), None):
                raise UsageError(f"Unknown {name} {unknown!r}. {nearest(unknown, known)}")

    @cached_property
    def rows(self) -> dict[str, Values]:
        """The rows of the table by name."""
        return rows_of(self.size)

    def config(self, row: str, seed: int, steps: int = 1_000) -> PretrainConfig:
        """Returns the pre-training run of a row."""
        changes = dict(self.rows[row])
        fixed = {"model": f"bert-{self.size}", "objectives": {"mlm": {}, "nsp": None}}
        under = changes.pop("recipe", None)
        tree = read_yaml(Path(under or "pretrain-small-cpu"))
        for more in () if under else (fixed, changes):
            merge(tree, more)
        train = {"steps": steps, "seed": seed, "eval_every": NEVER, "save_every": NEVER, "log_every": 100}
        return build_config(
            PretrainConfig, merge(tree, {"corpus": self.corpus, "tokenizer": self.tokenizer, "train": train})
        )

    @cached_property
    def held_out(self) -> tuple[Objective, list[Batch]]:
        """Masked words, and batches of held-out documents, on which all rows are compared."""
        ready = PreparedRun(self.config(PUBLISHED, 0))
        if not ready.data.validates:
            raise DataError(f"{self.corpus} has no held-out documents. Build a larger corpus with `bertie corpus`.")
        return ready.objective, [batch for part in ready.data.validation(0).values() for batch in part]

    @cached_property
    def examples_of(self) -> dict[str, Examples]:
        """The examples of each task."""
        found = {}
        for name in self.tasks:
            row = ROWS[name]
            read = read_row(row, config_of(row, "", self.data_dir, 0))
            found[name] = replace(read, train=spaced(read.train, self.examples), dev=spaced(read.dev, DEV))
        return found


def reproduce(table: Table, names: Sequence[str], run: Path, *, seeds: int = 3) -> list[dict[str, Any]]:
    """Measures what is missing, and returns a line per row. The first row is always among them.

    Raises UsageError for an unknown row, a budget of too few steps, or a folder with results of other settings.
    """
    for name in names:
        if name not in table.rows:
            raise UsageError(f"{name!r} is not in the table. {nearest(name, table.rows)}")
    names = list(dict.fromkeys([PUBLISHED, *names]))
    assert table.examples_of
    same = {"corpus": Path(table.corpus).absolute().name, "tokenizer": Path(table.tokenizer).absolute().name}
    check_same(run, {**asdict(table), **same, "data_dir": "", "threads": get_num_threads()}, of="other settings")
    for name in names:  # what the budget does not allow is said now, not after the runs of other rows
        measured(run / _file_name(name) / STEPS, partial(_steps, table, name))
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    with console.progress("measuring", seeds * len(names), unit="runs") as advance:
        for seed in range(seeds):
            for name in names:
                file = run / _file_name(name) / f"{seed}.json"
                found[name].append(measured(file, partial(_measure, table, name, seed, file.parent)))
                advance(1, last=name)
    return [_summary(name, found[name], found[PUBLISHED], table.tasks) for name in names]


def _file_name(row: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", row.lower())


def _measure(table: Table, row: str, seed: int, folder: Path) -> dict[str, Any]:
    """Pre-trains for the budget, then measures the validation loss and fine-tunes."""
    steps = read_json(folder / STEPS)["steps"]
    config = table.config(row, seed, steps)
    clock, marks = _clock(config), list[float]()
    with temporary_run() as place:
        results = run_pretrain(config, place / "run", callbacks=[EachStep(lambda step: marks.append(clock()))])
        seconds = (marks[-1] - marks[0]) * steps / (steps - 1)
        phases = results["plan"].get("phases", [results["plan"]])
        tokens = sum(phase["steps"] * phase["tokens_per_step"] for phase in phases)
        model = place / "run" / MODEL
        scores = {name: _fine_tuned(table, name, model, seed) for name in table.tasks}
        return {"steps": steps, "seconds": seconds, "tokens": tokens, "loss": _loss(table, model), **scores}


def _clock(config: PretrainConfig) -> Callable[[], float]:
    """What a budget is measured by: the processor's time, which other programs do not change, or a GPU's seconds."""
    return time.process_time if choose_device(config.train.device).type == "cpu" else time.monotonic


def _steps(table: Table, row: str) -> dict[str, float]:
    """Tries a row, and returns how many steps the budget has. Raises UsageError for fewer than a run needs."""
    ready = PreparedRun(table.config(row, 0))
    clock = _clock(ready.config)
    work = pretraining_work(ready, ready.model())
    found = forecast_of(work, TRIED_S * len(work.phases), clock)
    if found is None:
        raise Stopped("The trial of the speed was interrupted. The same command starts it again.")
    step_s = found.parts["steps"] / ready.config.train.steps
    threads = get_num_threads() if clock is time.process_time else 1
    if (steps := round(60 * table.minutes * threads / step_s)) < FEWEST:
        enough = 1.1 * FEWEST * step_s / threads / 60  # a tenth more, since the next trial differs
        raise UsageError(
            f"In {table.minutes:g} minutes, the row {row!r} makes {steps} steps here, and a run needs {FEWEST}. "
            f"Pass at least --minutes {enough:.2g}."
        )
    return {"steps": steps, "step_s": step_s}


def _loss(table: Table, folder: Path) -> float | None:
    """Returns the loss on held-out masked words; None where the model does not predict words."""
    objective, batches = table.held_out
    model, report = families.load(folder, heads=objective.heads)
    if report.fresh:
        return None
    model.to(choose_device("auto")).eval()
    return measure_batches(model, objective, batches)["loss"]


def _fine_tuned(table: Table, name: str, model: Path, seed: int) -> float:
    row, examples = ROWS[name], table.examples_of[name]
    train = {"batch_size": row.batch_size, "seed": seed, "eval_every": NEVER, "save_every": NEVER}
    config = build_config(FinetuneConfig, {"model": str(model), "max_length": row.max_length, "train": train})
    return finetuned(config, examples)[examples.metrics[0]]


def _summary(name: str, runs: Sequence[Values], published: Sequence[Values], tasks: Sequence[str]) -> dict[str, Any]:
    losses = [one["loss"] for one in runs if one["loss"] is not None]
    return {
        "row": name,
        "runs": len(runs),
        "steps": runs[0]["steps"],
        "seconds": sum(one["seconds"] for one in runs) / len(runs),
        "tokens": runs[0]["tokens"],
        "loss": losses,
        **{task: [one[task] for one in runs] for task in tasks},
        "differences": {
            what: [one[what] - first[what] for one, first in zip(runs, published, strict=True)]
            for what in (*(["loss"] if losses else []), *tasks)
        },
    }


def page(rows: Sequence[Values], *, table: Table, command: str) -> str:
    """Returns the table as Markdown, with what it says."""
    head = ["row", "steps", "s", "million tokens", "loss", "gain"]
    for task in table.tasks:
        head += [task, "gain"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for row in rows:
        cells = [row["row"], f"{row['steps']:,}", f"{row['seconds']:,.0f}", f"{row['tokens'] / 1e6:.2f}"]
        for what in ("loss", *table.tasks):
            cells += [cell(row[what]), "" if row["row"] == PUBLISHED else cell(_gains(row, what), form="+z.3f")]
        lines.append(f"| {' | '.join(cells)} |")
    seeds = rows[0]["runs"]
    paired = f"Means over {seeds} seeds, with 95% intervals; differences are paired by seed."
    single = "One seed, so there are no intervals, and differences may be chance."
    lines += [
        "",
        f"{paired if seeds > 1 else single} Each run may use {table.minutes:g} minutes of each thread for its steps. "
        "The loss is in nats per masked token, on the same held-out texts. A gain is an improvement over "
        f"`{PUBLISHED}`.",
        "",
        *([*(f"* {line}" for what in ("loss", *table.tasks) for line in _says(rows, what)), ""] if seeds > 1 else []),
        made(),
        "",
        "Replace the folders in this command with yours.",
        "",
        f"    {command}",
    ]
    return "\n".join(lines) + "\n"


def _gains(row: Values, what: str) -> list[float]:
    """Returns how much better a row is than the first, by seed: a lower loss, a higher score."""
    sign = -1 if what == "loss" else 1
    return [sign * value for value in row["differences"].get(what, ())]


def _says(rows: Sequence[Values], what: str) -> list[str]:
    """Returns which rows are better or worse than the first beyond the spread of their seeds."""
    better, worse = list[str](), list[str]()
    for row in rows[1:]:
        if gains := _gains(row, what):
            found = SeedSummary.over(gains)
            if found.low is not None and found.high is not None:
                better += [row["row"]] * (found.low > 0)
                worse += [row["row"]] * (found.high < 0)
    told = ((f"{what}, better than {PUBLISHED}", better), (f"{what}, worse", worse))
    return [f"{name}: {', '.join(found) or 'none'}." for name, found in told]


def pictures(rows: Sequence[Values], tasks: Sequence[str]) -> dict[str, Chart]:
    """Returns a chart of each measure by its name."""
    found = {}
    for what in ("loss", *tasks):
        groups = {}
        for row in rows:
            if values := row[what]:
                known = SeedSummary.over(values)
                groups[row["row"]] = values, known.low, known.high
        found[what] = Chart.intervals(groups, x_label=what, colours=[1] * len(groups))
    return found
