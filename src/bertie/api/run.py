"""`Run`: a run, its scores and its model."""

import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from bertie.api.model import Model, load
from bertie.api.results import with_interval
from bertie.api.scores import Scores
from bertie.console import console
from bertie.errors import DataError, Stopped, UsageError, in_python
from bertie.files import Json, JsonObject
from bertie.folders import new_folder
from bertie.metrics.base import called, undefined
from bertie.metrics.compare import SeedSummary
from bertie.models import families
from bertie.models.variant import read_public
from bertie.runs.domains import format_domains as perplexity_table
from bertie.runs.folder import OUT_OF_FOLD, REPORT, RESULTS, RUN, SUSPECTS, read_results, seed_runs
from bertie.runs.forecast import RunForecast
from bertie.runs.layout import MODEL
from bertie.tasks import TASKS
from bertie.text.tokenizer import Tokenizer
from bertie.training_facts import read_training_facts

if TYPE_CHECKING:
    from rich.table import Table

MEASURED = ("loss", "accuracy")  # ends of the names of what pre-training measures
UNKEPT = "Nothing is kept without output. Pass a folder, and the same call resumes the run."


@dataclass(frozen=True, eq=False)
class Run:
    """A run: its folder, and what it gave. It is a path: what takes a model or a run takes this value too.

    The stop button of a notebook, and Ctrl-C at a prompt, end a run after the step, and return it as it stands.

    Attributes:
        folder: The run folder. Without `output`, it is temporary, and lasts as long as this value.
        results: The contents of results.json; empty for a run that was stopped.

    Example:
        >>> run = bertie.Run.of("runs/reviews")
        >>> run.model.predict(["the soup was cold"]).labels
        ['bad']
        >>> kept = run.save("out/kept")
        >>> kept.report.name
        'report.html'
    """

    folder: Path
    results: Mapping[str, object]
    _temporary: "TemporaryDirectory[str] | None" = field(default=None, repr=False)
    _again: "Callable[[], Run] | None" = field(default=None, repr=False)

    @classmethod
    def of(cls, folder: str | Path) -> "Run":
        """Returns the run in a folder. Raises DataError where it is not finished."""
        path = Path(folder)
        if not (path / RESULTS).exists():
            raise DataError(f"{path} is no finished run: it has no {RESULTS}. The call that began a run continues it.")
        return cls(path, read_results(path))

    def __fspath__(self) -> str:
        return str(self.folder)

    @property
    def finished(self) -> bool:
        """Whether the run is finished. One that was stopped has no `scores` yet, and a `model` unless it has seeds or
        folds."""
        return bool(self.results)

    def resume(self) -> "Run":
        """Continues a run that was stopped, with the arguments of its call, and returns it; a finished run as it is."""
        if self._again is None:
            return self
        return replace(self._again(), _temporary=self._temporary)

    @property
    def _facts(self) -> Json:
        if not self.finished:
            raise UsageError("The run was stopped and has no scores yet. Continue it: `run = run.resume()`.")
        return self.results

    @property
    def scores(self) -> Scores:
        """The scores on the dev examples; of pre-training, on held-out text, or else on the last steps of training.

        Of several seeds or folds, the mean of each metric, with the 95% interval of the mean. Of folds, the other
        figures are those of all out-of-fold answers: of each label, the confusion ...
        """
        if self.seeds or self.folds:
            summed = self._facts["over_seeds" if self.seeds else "over_folds"]
            intervals = {name: [one["low"], one["high"]] for name, one in summed.items() if one["low"] is not None}
            means = {name: one["mean"] for name, one in summed.items()}
            of_label = {"positive": self._facts["positive"]} if "positive" in self._facts else {}
            report = {**self._facts.get("out_of_fold", {}), **means, **of_label, "interval_95": intervals}
            return Scores(report, tuple(self._facts["metrics"]))
        if "dev" in self._facts:
            return Scores(self._facts["dev"], tuple(self._facts["metrics"]))
        report = self._facts["valid"] or self._facts["train"]
        return Scores(report, tuple(name for name in report if name.endswith(MEASURED)))

    @property
    def model(self) -> Model:
        """The trained model, loaded from the folder.

        Raises UsageError for several seeds of which none was kept as the best, and for stopped seeds or folds.
        """
        if not self.finished:
            if several := seed_runs(self.folder):
                raise UsageError(f"The run was stopped at {several[-1].name}. Continue it: `run = run.resume()`.")
            return load(self.folder).lasting(self._temporary)
        if self.seeds and not (self.folder / MODEL).is_dir():
            raise UsageError(
                f"{self.folder} contains one model per seed. Choose one: bertie.load({str(self.folder)!r} + "
                f"'/seed-{self.seeds[0]}'); or train with keep_best=True."
            )
        return load(self.folder / MODEL).lasting(self._temporary)

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of a folder of several runs; empty for a single run."""
        return tuple(map(int, self._facts.get("seeds", ())))

    @property
    def folds(self) -> int:
        """The number of folds of a cross-validation; 0 for another run."""
        return len(self._facts.get("folds", ()))

    @property
    def out_of_fold(self) -> Path:
        """The table of a cross-validation, for `pandas.read_csv`: each row and the answer of a model that did not learn
        it.

        `line` is the number of the row: of a DataFrame, `frame.iloc[table.line - 1]` are the rows with all columns.
        Raises UsageError for another run.
        """
        if not self.folds:
            raise UsageError("The run has no folds. Pass `folds=5` to bertie.finetune.")
        return self.folder / OUT_OF_FOLD

    @property
    def label_check(self) -> Path:
        """The table of rows whose labels are probably wrong, for `pandas.read_csv`, the most suspicious first.

        `line` is the number of the row, as in `out_of_fold`; `suggested` is the label that a model gives which did not
        learn the row. Raises UsageError where no labels were checked.
        """
        if not (self.folder / SUSPECTS).is_file():
            raise UsageError(
                "The run has checked no labels. That needs one label a row and 100 rows; each seed has its own table."
            )
        return self.folder / SUSPECTS

    @property
    def thresholds(self) -> Mapping[str, Mapping[str, object]]:
        """By label, the `threshold` that `optimize` chose, the `precision` and `recall` there, and their `curve`.

        Empty where none was chosen. `reached` is whether the goal was reached.
        """
        return {**self._facts.get("thresholds", {}).get("labels", {})}

    @property
    def places(self) -> Path:
        """The folder of the model; of several seeds, a pattern of theirs."""
        return self.folder / ("seed-*" if self.seeds else "") / MODEL

    def lines(self) -> "Iterator[str | Table]":
        """Yields what the command prints: scores on dev, of several seeds their mean, or the figures of a last step."""
        if "valid" in self._facts:
            yield from self._figures()
            return
        if self.folds:
            for name, summed in self._facts["over_folds"].items():
                yield f"{called(name, self._facts)} over {self.folds} folds: {SeedSummary(**summed)}"
            yield f"out of fold: {Scores(self._facts['out_of_fold'], tuple(self._facts['metrics'])).summary}"
            yield f"Answers of the folds: {self.out_of_fold}"
            return
        if not self.seeds:
            yield f"dev: {self.scores.summary}"
            yield from self.scores.lines()
            return
        for name, summed in self._facts["over_seeds"].items():
            known = name not in self._facts.get("undefined", ())
            yield f"{called(name, self._facts)} on dev: {SeedSummary(**summed) if known else 'not defined'}"
        yield from filter(None, (self._facts.get("worth"), self._facts.get("chosen")))

    def _figures(self) -> Iterator[str]:
        """Yields the figures of pre-training."""
        results, last = self._facts, self._facts["valid"] or self._facts["train"]
        figures = "  ".join(f"{name} {value:.4g}" for name, value in last.items() if name.endswith(MEASURED))
        yield f"step {results['step']:,}: {figures}"
        if "pseudo_perplexity" in results:
            yield perplexity_table(results["pseudo_perplexity"])
        if "repeats" in results:
            same = "identical" if results["repeats"]["same_weights"] else "other ones"
            yield f"Weights compared with {results['repeats']['run']}: {same}"

    @property
    def notes(self) -> tuple[str, ...]:
        """What was done with the data: columns that were recognized, rows that were skipped, rows held out ..."""
        return tuple(map(in_python, self._facts.get("notes", ())))

    @property
    def warnings(self) -> list[str]:
        """What is unusual about the scores."""
        if "valid" in self._facts:
            return []
        if self.folds:
            return Scores(self._facts["out_of_fold"], tuple(self._facts["metrics"])).warnings
        if not self.seeds:
            return self.scores.warnings
        failed = self._facts["degenerate"].items()
        return [
            *(f"seed {seed} failed: the model predicts {label!r} for every dev example" for seed, label in failed),
            *undefined(self._facts),
        ]

    def next_commands(self) -> list[str]:
        """Returns commands that use the trained model, ready to copy into a shell."""
        if "valid" in self._facts:
            return commands_after_pretraining(self.folder / MODEL)
        first = self.folder if not self.seeds or "chosen" in self._facts else self.folder / f"seed-{self.seeds[0]}"
        return commands_after(first / MODEL)

    @property
    def report(self) -> Path:
        """The HTML page about the run."""
        return self.folder / REPORT

    def save(self, folder: str | Path, *, overwrite: bool = False) -> "Run":
        """Copies the run to a folder that lasts, and returns it there. Raises UsageError for a folder with files."""
        with new_folder(Path(folder), RUN, overwrite=overwrite) as target:
            shutil.copytree(self.folder, target, dirs_exist_ok=True)
        return Run(Path(folder), self.results)

    def __repr__(self) -> str:
        if not self.finished:
            return f"Run({str(self.folder)!r}, stopped)"
        return f"Run({str(self.folder)!r}, {', '.join(map(with_interval, self.scores.to_dicts()))})"

    def _repr_html_(self) -> str:
        if not self.finished:
            return f"<p>{escape(repr(self))} To continue: <code>run = run.resume()</code></p>"
        below = filter(None, [self._facts.get("worth"), *self.warnings, *self.notes])
        return self.scores._repr_html_() + "".join(f"<p>{escape(one)}</p>" for one in below)


def commands_after(model: Path) -> list[str]:
    """Returns commands that use a fine-tuned model, ready to copy into a shell."""
    facts, folder = read_training_facts(model), shlex.quote(str(model))
    if facts.features or facts.task_options.get("tabular"):
        return [f"bertie {command} {folder} FILE" for command in ("predict", "evaluate")]
    task, heads = TASKS[facts.task], [*facts.task_options.get("members", ())]
    head = f" --head {shlex.quote(heads[0])}" if heads else ""
    sample = shlex.quote(task.sample(facts.texts or 1))
    return [f"echo {sample} | bertie {task.command} {folder}", f"bertie evaluate {folder} FILE{head}"]


def commands_after_pretraining(model: Path) -> list[str]:
    """Returns commands that use a pre-trained model, ready to copy into a shell."""
    folder, filling = shlex.quote(str(model)), list[str]()
    if "mlm" in (families.family(model).heads(read_public(model)) or ()):
        mask = Tokenizer.load(model).special_tokens["mask"]
        filling = [f'bertie fill-mask {folder} "Some text with a {mask} in it."']
    return [*filling, f"bertie finetune {folder} --train FILE -o runs/NAME"]


@dataclass(frozen=True)
class Plan:
    """What a run would do, without doing it: `bertie finetune --dry-run` and `bertie pretrain --dry-run`.

    Attributes:
        facts: The model, the examples, the steps, notes and the forecast, as `--json` prints them.
    """

    facts: Mapping[str, object]
    _summary: "Callable[[JsonObject], str] | None" = field(default=None, repr=False)

    @property
    def _read(self) -> Json:
        return self.facts

    @property
    def warnings(self) -> list[str]:
        """What is unusual."""
        return [*self._read.get("warnings", ())]

    @property
    def forecast(self) -> RunForecast | None:
        """The time, memory and energy to expect; None where the trial was interrupted."""
        forecast = self._read.get("forecast")
        return None if forecast is None else RunForecast(**forecast)

    def to_dict(self) -> dict[str, object]:
        """Returns the facts as JSON values."""
        return {**self._read}

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        if self._summary is not None:
            from rich.text import Text

            return Text.from_markup(self._summary(self.to_dict())).plain
        apart = ("forecast", "notes", "warnings")
        lines = [f"{name}: {value}" for name, value in self._read.items() if name not in apart]
        lines += self._read.get("notes", ())
        if (forecast := self.forecast) is not None:
            seeds = self._read.get("seeds", 1)
            lines.append((f"each of {seeds} seeds:\n" if seeds > 1 else "") + str(forecast))
        return "\n".join(lines)


def at_prompt(stopped: Stopped) -> bool:
    """Returns whether the user stopped the work at a prompt or in a notebook, and gets it as it stands."""
    return stopped.by_hand and hasattr(sys, "ps1")


def run_in(output: str | Path | None, work: Callable[[Path], Mapping[str, object]], again: Callable[..., Run]) -> Run:
    """Returns the run that `work` makes in `output`, or in a temporary folder that lasts as long as the run.

    Args:
        output: Run folder.
        work: Run folder -> the contents of results.json.
        again: The call of the user, which takes another `output`; `Run.resume` makes it.

    Raises:
        Stopped: The run was interrupted. At a prompt and in a notebook, Ctrl-C and the stop button return it instead.
    """
    temporary = TemporaryDirectory(prefix="bertie-run-") if output is None else None
    folder = Path(output) if output is not None else Path(temporary.name if temporary else "") / "run"
    try:
        return Run(folder, work(folder), temporary)
    except Stopped as stopped:
        if at_prompt(stopped):
            model = "" if seed_runs(folder) else ", and `run.model` is the model as it stands"
            console.warn(f"{stopped.message} `run.resume()` continues the run{model}.")
            return Run(folder, {}, temporary, partial(again, output=folder, overwrite=False, resume="auto"))
        if temporary is None:
            raise
        raise Stopped(stopped.message, hint=UNKEPT) from None
    except Exception as error:
        notes = getattr(error, "__notes__", [])
        if temporary and any(temporary.name in note for note in notes):  # of a checkpoint there
            error.__notes__ = [*(note for note in notes if temporary.name not in note), UNKEPT]
        raise
