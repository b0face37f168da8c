"""Hyperparameter search for fine-tuning: the published grid, or another search space, with optuna.

    RUN/study.jsonl            every trial (optuna's journal), from which the search resumes
    RUN/<settings>/            a fine-tuning run each; weights are kept only for the best
    RUN/model/                 the best run's model
    RUN/results.json           all trials, best first; report.html shows them

The published grid: batch size 16 or 32, learning rate 5e-5, 3e-5 or 2e-5, 2 to 4 epochs (Devlin et al. 2018, A.3). Its
rates are for BERT-base; for another model they are as far around its usual rate.
"""

import json
import random
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import xxhash
from rich.markup import escape

from bertie.console import console
from bertie.errors import BadFile, BertieError, DataError, Diverged, NoPackage, UsageError
from bertie.files import JsonObject, read_journal
from bertie.models.files import hash_model_folder
from bertie.runs.config import EPOCHS_HINT, FinetuneConfig
from bertie.runs.examples import Examples, read_examples
from bertie.runs.finetune import run_finetune
from bertie.runs.finetune_prepare import check_run
from bertie.runs.finetune_train import take_model
from bertie.runs.folder import STUDY, RunFolder
from bertie.runs.folds import FoldPlan
from bertie.runs.layout import MODEL
from bertie.runs.space import Range, Space, corners, grid, published_space, varied
from bertie.runs.start import usual_rate_of
from bertie.runs.tune_results import FoldSearch, confirm_best, keep_record, nested_search, plan_nested, render_tune_page
from bertie.runs.untrained import start_folder
from bertie.settings import flatten
from bertie.tasks.source import steps_of
from bertie.train import log
from bertie.train.callbacks import Callback, TrainingRun
from bertie.train.resume import FREE_SETTINGS, check_unchanged

if TYPE_CHECKING:
    import optuna


_SETTINGS, _NAME = "settings", "search"  # of the study
_EVALUATIONS = 4  # evaluations on dev in each trial, at which weak trials are pruned
FIRST_TRIALS = 4  # are never pruned: there is nothing to compare them with
NOT_OF_START = {"optim", "train", "epochs"}  # settings that decide neither the start model nor how texts are read
_MIN_TRIALS = 8  # finished trials: fewer do not tell which setting mattered


class _GivenUp(BertieError):
    """A trial that is pruned: no defect of the callback that raises it, so nothing of it is saved."""


def run_tune(
    config: FinetuneConfig,
    run: Path | str,
    space: Space = MappingProxyType({}),
    *,
    trials: int | None = None,
    hours: float | None = None,
    prune: bool = False,
    confirm: int = 0,
    folds: int | None = None,
    overwrite: bool = False,
    examples: Examples | None = None,
) -> dict[str, object]:
    """Fine-tunes with settings from `space` until all `trials` are finished, and returns the contents of results.json.

    space: by default `published_space` around the usual rate of the model. trials: by default every point of a grid;
    required for a space with a range. hours: no further trial starts after them. prune: whether to stop a trial whose
    dev score is below the median of earlier trials at the same step. confirm: new seeds with which the best settings
    are compared with the given ones. folds: of nested cross-validation instead. examples: those of each trial, instead
    of reading its files. A search that was stopped resumes. Raises UsageError for an unknown key, another search's
    folder or a missing optuna; otherwise as `finetune`.
    """
    library = _optuna()
    space = space or published_space(usual_rate_of(config))
    run, points = Path(run), grid(space)
    if trials is None and points is None:
        raise UsageError("A range (LOW..HIGH) needs a number of trials. Add --trials N.")
    if "train.steps" in space:
        raise UsageError(EPOCHS_HINT)
    configs = [varied(config, point) for point in corners(space)]  # bad input is told before a folder is made
    plan = None if folds is None else plan_nested(config, space, folds)
    own, examples = examples, examples or read_examples(configs[0])
    metric, count = examples.metrics[0], min(trials or len(points or ()), len(points) if points else sys.maxsize)
    if trials and count < trials:
        console.say(f"The grid has {count} points, so there are {count} trials instead of {trials}.")
    folder = RunFolder(run)
    if overwrite or not run.exists():
        for one in {one.model_dump_json(exclude=NOT_OF_START): one for one in configs}.values():
            check_run(one, examples)
    with folder.held(overwrite=overwrite):
        study = _study(library, run, config, space, _contents(config, examples))
        folder.begin()  # not before: a refused call leaves the list of files of a finished search as it is
        began = time.monotonic()
        with console.progress("tuning", count, done=len(_done(study)), unit="trials") as advance:
            while len(_done(study)) < count:
                if hours is not None and time.monotonic() - began > hours * 3600:
                    console.say(
                        f"The time limit of {hours:g} h is reached: {len(_done(study))} of {count} trials are finished."
                    )
                    break
                trial = _ask(library, study, config.train.seed, points)
                values = {name: _suggest(trial, name, choices) for name, choices in space.items()}
                settings = _with_looks(varied(config, values), own)
                _try(library, study, trial, settings, run, values, metric, prune, own)
                _keep_best(study, run)
                best = f"{study.best_value:z.4f}" if _complete(study) else "none"
                advance(1, **{f"best {metric}": best})
        _keep_best(study, run)  # a kill may have come between the end of the last trial and this
        more = dict[str, object]()
        if hours is None or time.monotonic() - began <= hours * 3600:
            of_fold = partial(run_tune, space=space, trials=trials, prune=prune)
            more = _confirmed(config, run, study, metric, confirm, plan, of_fold)
        elif confirm or plan:
            console.say("The best settings are not compared with the given ones: there is no time left.")
        return _finish(study, run, metric, count, {**_importance(study), **more})


def _confirmed(
    config: FinetuneConfig,
    run: Path,
    study: "optuna.Study",
    metric: str,
    confirm: int,
    plan: FoldPlan | None,
    search: FoldSearch,
) -> dict[str, object]:
    """Returns what the comparison of the best and the given settings adds to the results."""
    if not _complete(study):
        return {}
    if plan is not None:
        return {"nested": nested_search(plan, run, metric, search)}
    best = study.best_trial.params
    return {"confirmed": confirm_best(config, best, run, metric, confirm)} if confirm else {}


def _importance(study: "optuna.Study") -> dict[str, object]:
    """Returns the share of the variance of scores that each setting explains, if trials tell (Hutter et al. 2014)."""
    trials = _complete(study)
    if len(trials) < _MIN_TRIALS or len({trial.value for trial in trials}) < 2 or len(trials[0].params) < 2:
        return {}
    from optuna.importance import FanovaImportanceEvaluator, get_param_importances

    shares: dict[str, float] = get_param_importances(study, evaluator=FanovaImportanceEvaluator(seed=0))
    return {"importance": {name: round(share, 4) for name, share in shares.items()}}


# Trials -------------------------------------------------------------------------------------------------------------


def _try(
    library: Any,
    study: "optuna.Study",
    trial: "optuna.Trial",
    config: FinetuneConfig,
    run: Path,
    values: Mapping[str, object],
    metric: str,
    prune: bool,
    examples: Examples | None,
) -> None:
    """Runs one trial. A run with a loss that is not finite counts as failed; other errors are raised."""
    name = folder_name(values)
    trial.set_user_attr("folder", name)
    console.say(f"[bold]{escape(name)}[/]", markup=True)

    before = _lines_before(run / name)
    for line in before:  # of a trial that was interrupted: the pruner knows all its evaluations
        if line["kind"] == "valid":
            trial.report(line[metric], round(100 * line["step"] / config.train.steps))
    began = time.monotonic() - max((line["elapsed_s"] for line in before if "elapsed_s" in line), default=0.0)
    state = library.trial.TrialState
    try:
        results = run_finetune(config, run / name, callbacks=[_Pruning(trial, metric, prune)], examples=examples)
    except (_GivenUp, Diverged) as ended:
        trial.set_user_attr("seconds", time.monotonic() - began)
        study.tell(trial, state=state.PRUNED if isinstance(ended, _GivenUp) else state.FAIL)
        console.say("given up: below the median" if isinstance(ended, _GivenUp) else f"failed: {ended}")
        return
    trial.set_user_attr("dev", {name: results["dev"][name] for name in results["metrics"]})
    trial.set_user_attr("positive", results["dev"].get("positive", {}))
    trial.set_user_attr("seconds", time.monotonic() - began)
    study.tell(trial, results["dev"][metric])


class _Pruning(Callback):
    """Tells a trial the scores of its run, and gives up one that is weak."""

    def __init__(self, trial: "optuna.Trial", metric: str, prune: bool) -> None:
        self.trial, self.metric, self.prune = trial, metric, prune

    def on_evaluate(self, run: TrainingRun, step: int, scores: Mapping[str, float]) -> None:
        self.trial.report(scores[self.metric], round(100 * step / run.steps))
        if self.prune and step < run.steps and self.trial.should_prune():
            raise _GivenUp


def _lines_before(run: Path) -> list[JsonObject]:
    """Returns the metrics of a run that was interrupted."""
    if not (run / log.METRICS).exists():
        return []
    data = (run / log.METRICS).read_bytes()
    return [json.loads(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]  # the last may be cut


def folder_name(values: Mapping[str, object]) -> str:
    """Returns the name of a trial's folder: "batch_size=16 lr=5e-05 epochs=2"."""
    return " ".join(f"{name.rpartition('.')[2]}={value}".replace("/", "_") for name, value in values.items())


def _with_looks(config: FinetuneConfig, examples: Examples | None = None) -> FinetuneConfig:
    """Returns the config of a trial: with LOOKS evaluations, and without what only a report needs.

    Its values may also decide how many examples there are.
    """
    epoch = (examples or read_examples(config)).epoch
    steps = steps_of(epoch, batch_size=config.train.batch_size, epochs=config.epochs)
    train = config.train.model_copy(update={"steps": steps, "eval_every": max(1, steps // _EVALUATIONS)})
    return config.model_copy(update={"train": train, "baselines": False, "label_check": "none"})


def _suggest(trial: "optuna.Trial", name: str, values: tuple[Any, ...] | Range) -> object:
    if not isinstance(values, Range):
        return trial.suggest_categorical(name, values)
    if isinstance(values.low, int) and isinstance(values.high, int):
        return trial.suggest_int(name, values.low, values.high, log=values.low > 0)
    return trial.suggest_float(name, values.low, values.high, log=values.low > 0)


def _keep_best(study: "optuna.Study", run: Path) -> None:
    """Deletes the weights of all but the best run."""
    best = study.best_trial.user_attrs["folder"] if _complete(study) else None
    for trial in _done(study):
        folder = run / trial.user_attrs.get("folder", "")
        if trial.user_attrs.get("folder") in (None, best) or not folder.is_dir():
            continue
        keep_record(folder)


# The study ----------------------------------------------------------------------------------------------------------


def _optuna() -> object:
    try:
        import optuna
        import optuna.storages.journal
    except ImportError:
        raise NoPackage("`bertie tune` needs optuna: pip install 'bertie[tune]'.") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def _contents(config: FinetuneConfig, examples: Examples) -> dict[str, str]:
    """Returns hashes of the examples and of the start model: trials of other contents cannot be compared."""
    texts = {"train_file": examples.train, "dev_file": examples.dev}
    contents = {
        name: xxhash.xxh3_128_hexdigest(repr([(e.texts, e.label, e.tabular, e.weight) for e in some]).encode())
        for name, some in texts.items()
    }
    return {**contents, "model": hash_model_folder(start_folder(config, examples.train))}


def _study(
    library: Any, run: Path, config: FinetuneConfig, space: Space, contents: Mapping[str, str]
) -> "optuna.Study":
    """Returns the study of a folder, new or resumed, without interrupted trials."""
    storage = _journal(library, run / STUDY)
    arguments: dict[str, object] = {
        "storage": storage,
        "study_name": _NAME,
        "pruner": library.pruners.MedianPruner(n_startup_trials=FIRST_TRIALS),
    }
    known_names = library.get_all_study_names(storage)  # create_study with load_if_exists would write to the file
    study: optuna.Study = (
        library.load_study(**arguments) if known_names else library.create_study(**arguments, direction="maximize")
    )
    settings = {
        name: value for name, value in flatten(config.model_dump(mode="json")).items() if name not in FREE_SETTINGS
    }
    settings["space"] = {name: vars(v) if isinstance(v, Range) else list(v) for name, v in space.items()}
    settings |= contents  # instead of paths: the files may have moved
    known = study.user_attrs.get(_SETTINGS)
    if known is None:
        study.set_user_attr(_SETTINGS, settings)
        return study
    check_unchanged(run, "trials", known, settings)
    states = library.trial.TrialState
    for trial in study.get_trials(states=(states.RUNNING,)):
        study.tell(trial.number, state=states.FAIL, skip_if_finished=True)
    return study


def _journal(library: Any, path: Path) -> object:
    """Opens a journal, without a last line that a killed process did not finish. Raises DataError for a damaged one."""
    try:
        read_journal(path)  # optuna finds a damaged last line only when it has written the next one
        return library.storages.JournalStorage(library.storages.journal.JournalFileBackend(str(path)))
    except (DataError, KeyError, TypeError, ValueError) as error:
        raise BadFile(f"{path} is damaged: {error!r}. Restore it from a copy, or start again: --overwrite.") from None


def _ask(library: Any, study: "optuna.Study", seed: int, points: list[dict[str, object]] | None) -> "optuna.Trial":
    """Returns the next trial, which depends only on finished trials.

    An interrupted trial is therefore chosen again, and its run resumes from its last checkpoint. A search that was
    killed has the same trials as an uninterrupted one. points: of a grid, whose next point is used.
    """
    done = _done(study)
    study.sampler = library.samplers.TPESampler(seed=(seed + len(done)) % 2**32)
    shuffled = random.Random(seed).sample(points or [], len(points or []))  # cut short, it has seen some of everything
    known = [trial.params for trial in done]
    point = next((point for point in shuffled if point not in known), None)
    if point and not study.get_trials(states=(library.trial.TrialState.WAITING,)):  # or it was chosen before a kill
        study.enqueue_trial(point)
    return study.ask()


def _done(study: "optuna.Study") -> list["optuna.trial.FrozenTrial"]:
    """Returns the trials that finished or failed, without interrupted ones."""
    trials = study.get_trials(deepcopy=False)
    ended = [trial for trial in trials if trial.state.is_finished() and "seconds" in trial.user_attrs]
    return [trial for trial in ended if trial.state.name != "FAIL" or "dev" not in trial.user_attrs]


def _complete(study: "optuna.Study") -> list["optuna.trial.FrozenTrial"]:
    return [trial for trial in _done(study) if trial.value is not None and trial.state.name == "COMPLETE"]


def results_so_far(run: Path) -> dict[str, object]:
    """Returns the results of the finished trials of a search that was stopped, as results.json has them; none: {}."""
    library: Any = _optuna()
    study = library.load_study(storage=_journal(library, run / STUDY), study_name=_NAME)
    trials = _complete(study)
    return _results(study, next(iter(trials[0].user_attrs["dev"]))) if trials else {}


def _results(study: "optuna.Study", metric: str) -> dict[str, object]:
    """Returns the trials, the best first, and their numbers by state. At least one is finished."""
    states = {"COMPLETE": "done", "PRUNED": "given up", "FAIL": "failed"}
    rows = [
        {
            "trial": number,
            "folder": trial.user_attrs["folder"],
            "settings": trial.params,
            "state": states[trial.state.name],
            metric: trial.value if trial.state.name == "COMPLETE" else None,
            "seconds": round(trial.user_attrs["seconds"], 1),
        }
        for number, trial in enumerate(_done(study))
    ]
    rows.sort(key=lambda row: (row[metric] is None, -(row[metric] or 0.0)))
    counts = {name: sum(row["state"] == name for row in rows) for name in states.values()}
    positive = study.best_trial.user_attrs.get("positive", {})
    return {"metric": metric, "positive": positive, **counts, "best": rows[0], "trials": rows}


def _finish(study: "optuna.Study", run: Path, metric: str, count: int, more: Mapping[str, object]) -> dict[str, object]:
    """Writes the results, and copies the best model to RUN/model. more: what else is known of the search."""
    if not _complete(study):
        trials = _done(study)
        reason = f"{run / STUDY} has the reason for each." if trials else "Pass a longer time: --hours."
        raise BertieError(f"None of {len(trials)} trials finished. {reason}")
    results = {**_results(study, metric), "wanted": count, **more}
    take_model(run / study.best_trial.user_attrs["folder"] / MODEL, run / MODEL)
    return RunFolder(run).finish(results, partial(render_tune_page, results))
