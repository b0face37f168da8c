"""What the reproduced tables share: measurements in files, fine-tuned scores, cells and pictures."""

import datetime
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import harness
from bertie.console import counted
from bertie.errors import DataError, UsageError
from bertie.files import LOCK, folders_above, read_json, write_bytes, write_json
from bertie.folders import busy_error, locked
from bertie.metrics.compare import SeedSummary
from bertie.report.style import STYLE
from bertie.runs.config import FinetuneConfig
from bertie.runs.examples import Examples
from bertie.runs.finetune_prepare import prepare_run, with_steps
from bertie.runs.finetune_train import measure_run
from bertie.train.loop import fit, temporary_run

SETTINGS, MODEL, TRAIN, STEPS = "settings.json", "model.json", "train.json", "steps.json"
NOTES = (SETTINGS, MODEL, TRAIN, STEPS)  # of how a folder's measurements are made; STEPS: how many a row's runs have
NEVER = 10**6  # steps between evaluations and checkpoints of a run that needs none
COLOURS = STYLE.partition("* {")[0]  # the variables of the page's colors, in both schemes


def measured(file: Path, measure: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
    """Returns what is in a file of measurements, which is written first if it does not exist."""
    if not file.exists():
        write_json(file, measure())
    return dict(read_json(file))


@contextmanager
def measuring_in(run: Path) -> Iterator[None]:
    """Context of a folder of measurements, locked against other processes.

    A new one is removed where bad input is refused before the first measurement.
    """
    new = not run.exists()
    with folders_above(run):
        run.mkdir(parents=True, exist_ok=True)
        try:
            with locked(run / LOCK, busy_error(run)):
                yield
        except (DataError, UsageError):
            if new and all(path.is_dir() or path.name in (*NOTES, LOCK) for path in run.rglob("*")):
                shutil.rmtree(run, ignore_errors=True)
            raise


def check_same(folder: Path, settings: Mapping[str, Any], *, of: str, file: str = SETTINGS) -> None:
    """Raises UsageError for a folder with results of other settings, which are not to be mixed in."""
    note, said = folder / file, {**settings, **{k: list(v) for k, v in settings.items() if isinstance(v, tuple)}}
    if note.exists() and read_json(note) != said:
        raise UsageError(f"{folder} contains results of {of}. Choose another folder.")
    write_json(note, said)


def finetuned(config: FinetuneConfig, examples: Examples) -> Mapping[str, float]:
    """Trains as `bertie finetune` does, and measures once in float32, without a run folder and its pages."""
    run = prepare_run(with_steps(config, len(examples.train)), examples)
    source = run.source.with_computed(run.task.computed(run.model, run.train.sequences))
    with temporary_run() as place:
        fit(run.model, run.task, source, train=run.config.train, optim=run.config.optim, run=place)
    return measure_run(run)


def cell(values: Sequence[float], *, metric: str = "", form: str = "z.3f") -> str:
    """Returns the mean of several runs, and its 95% interval in parentheses where there are two or more."""
    if not values:
        return "-"
    known = SeedSummary.over(values, metric)
    if known.low is None or known.high is None:
        return f"{known.mean:{form}}"
    return f"{known.mean:{form}} ({known.low:{form}} to {known.high:{form}})"


def made() -> str:
    """Returns when and on which machine a table was measured, as a sentence."""
    machine = harness.machine()
    threads = counted(machine["threads"], "thread")
    where = machine.get("gpu", machine["processor"])
    return f"Measured on {datetime.date.today().isoformat()} with torch {machine['torch']}, {where}, {threads}."


def write_picture(path: Path, svg: str) -> None:
    """Writes a chart of report/charts.py as a file of its own, which is light or dark as the reader's system is."""
    style = f"<style>{COLOURS} svg {{ background: var(--card); }}</style>"
    head, end, rest = svg.partition(">")
    write_bytes(path, f"{head}{end}{style}{rest}\n".encode())
