"""A fine-tuning run: from labeled files and a pre-trained model to a run folder with a model for one task.

    files -> examples, dev split -> Sequences -> check of 50 examples -> fit -> dev metrics -> RUN/model, results.json

The task defines examples, labels, head, loss and metrics (tasks/base.py). Devlin et al. 2018, 4.1 and A.3.
`run_finetune` is one run. `finetune_seeds` repeats it with several seeds, since scores on small data sets vary (Dodge
et al. 2020). `run_finetune_against` compares two start models: the same fine-tuning from both, seed by seed.
They are in first/ and second/, and the comparison in compare.json and compare.html.
"""

import shutil
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from bertie.console import console
from bertie.errors import OutputExists, arguments
from bertie.files import JsonObject, write_json
from bertie.folders import FolderKind, held
from bertie.metrics.base import MEAN_COST, RESAMPLED_UNITS, called, verdict
from bertie.metrics.compare import SeedSummary
from bertie.runs.compare import compare_runs, gather, render_comparison_page
from bertie.runs.config import FinetuneConfig
from bertie.runs.examples import Examples, read_examples
from bertie.runs.finetune_assess import Without, assess_run, write_results
from bertie.runs.finetune_page import render_finetune_page
from bertie.runs.finetune_prepare import check_run, prepare_run, with_steps
from bertie.runs.finetune_train import take_model, train_run
from bertie.runs.folder import AGAINST, CONFIG, RUN, RunFolder, seed_runs
from bertie.runs.forecast import at_start, forecast_of
from bertie.runs.layout import MODEL
from bertie.runs.work import finetuning_work
from bertie.tasks.datasets import DATASETS
from bertie.tasks.losses import LossFunction
from bertie.train.callbacks import Callback
from bertie.train.precision import choose_device
from bertie.train.rendezvous import one_process

COMPARISON = FolderKind(
    "comparison",
    begins=AGAINST,
    files=("compare.json", "compare.html"),
    folders=dict.fromkeys(AGAINST, RUN),
)


def run_finetune_against(
    config: FinetuneConfig, other: str, run: Path, seeds: int, *, resume: str = "auto", overwrite: bool = False
) -> dict[str, object]:
    """Fine-tune config.model and `other` with the same seeds and settings; return what `compare` finds.

    The same call resumes where it stopped. Raises what `finetune_seeds` raises.
    """
    configs = [config.model_copy(update={"model": model}) for model in (config.model, other)]
    if overwrite or not run.exists():  # what is wrong with the second is said now, not after the runs of the first
        examples = read_examples(config)
        for one in configs:
            check_run(one, examples)
    with held(run, COMPARISON, overwrite=overwrite):
        for name, one in zip(AGAINST, configs, strict=True):
            console.say(f"[bold]{name}:[/] {one.model}", markup=True)
            finetune_seeds(one, run / name, seeds, resume=resume)
        runs = gather([run / name for name in AGAINST])
        comparison = compare_runs(runs)
        write_json(run / "compare.json", comparison)
        render_comparison_page(runs, "bertie compare " + " ".join(str(run / name) for name in AGAINST)).save(
            run / "compare.html"
        )
    return comparison


SMALL, SEEDS = 10_000, 5  # a published set with fewer training examples is run with this many seeds: one says little


@arguments()
def run_finetune(
    config: FinetuneConfig,
    run: Path | str,
    *,
    resume: str = "auto",
    overwrite: bool = False,
    callbacks: Sequence[Callback] = (),
    loss: LossFunction | None = None,
    without: Without | None = None,
    examples: Examples | None = None,
) -> JsonObject:
    """Fine-tunes a model. The same call resumes a run that was stopped.

    Args:
        config: All settings of the run.
        run: The run folder, which is created.
        resume: "auto" continues from the newest checkpoint, "never" refuses a folder with a run. A checkpoint's path
            continues from that checkpoint.
        overwrite: Whether to delete first what Bertie wrote in the folder.
        callbacks: Called after every step and evaluation. One that raises StopTraining ends the run well.
        loss: The function of loss=function: (logits, labels, weights) -> sum over rows, count.
        examples: Those of the run, instead of reading its files.
        without: Scores of the baselines, computed by the first of several seeds and reused by the others.

    Returns:
        The contents of results.json.

    Raises:
        DataError: Files cannot be read, there are fewer than two labels, or texts are too long under too_long=error.
        UsageError: The folder contains another run or other files, or there are several processes.
        Stopped: The run was interrupted. The same call resumes it.
    """
    one_process("finetune")
    folder = RunFolder(run)
    folder.check(overwrite=overwrite)
    if not overwrite and seed_runs(folder.path):
        raise OutputExists(
            f"{run} contains runs of several seeds or folds. Pass their number (--seeds, --folds), choose another "
            "folder, or pass --overwrite to replace them."
        )
    examples = examples or read_examples(config)
    config = with_steps(config, examples.epoch)
    prepared = prepare_run(config, examples, callbacks=callbacks, loss=loss)
    choose_device(config.train.device)  # say now that there is none, before a run is replaced
    with folder.held(overwrite=overwrite):
        if done := folder.finished(prepared.settings(), resume=resume):
            return folder.answer(done, partial(render_finetune_page, folder.path), keep=config.train.keep_checkpoints)
        forecast = at_start(finetuning_work(prepared))
        assessed = assess_run(train_run(prepared, folder.path, resume))
        return write_results(assessed, Without() if without is None else without, forecast)


def finetune_seeds(
    config: FinetuneConfig,
    run: Path | str,
    seeds: int,
    *,
    resume: str = "auto",
    overwrite: bool = False,
    keep_best: bool = False,
    callbacks: Sequence[Callback] = (),
    loss: LossFunction | None = None,
) -> dict[str, object]:
    """Fine-tunes with the seeds s, s + 1 ... in RUN/seed-<s>, and returns their dev metrics as in results.json.

    keep_best: whether RUN/model becomes the model with the best score on dev. A run that predicts one label for every
    example has failed. It is reported, and its metrics are counted. More seeds may be added to a folder. callbacks,
    loss: of each run. Raises
    UsageError where it has other seeds than these, and as `run_finetune`.
    """
    folder, run = RunFolder(run), Path(run)
    folder.check(overwrite=overwrite)
    if not overwrite and (run / CONFIG).exists():
        raise OutputExists(
            f"{run} contains a run of one seed. Choose another folder, or pass --overwrite to replace it."
        )
    names = [f"seed-{config.train.seed + number}" for number in range(seeds)]
    others = [one.name for one in seed_runs(run) if one.name not in names]
    if others and not overwrite:
        raise OutputExists(
            f"{run} contains {', '.join(others)} beside {', '.join(names)}. Ask for all of them (--seeds), choose "
            "another folder, or pass --overwrite to start again."
        )
    with folder.held(overwrite=overwrite):
        one = partial(run_finetune, resume=resume, callbacks=callbacks, loss=loss)
        return _all_seeds(config, folder, seeds, keep_best, one)


def _all_seeds(
    config: FinetuneConfig, folder: RunFolder, seeds: int, keep_best: bool, one: Callable[..., dict[str, object]]
) -> dict[str, object]:
    results, run, without = dict[int, JsonObject](), folder.path, Without()
    for seed in range(config.train.seed, config.train.seed + seeds):
        seeded = config.model_copy(update={"train": config.train.model_copy(update={"seed": seed})})
        if config.per_label:
            without = Without()  # each seed has other training examples
        with console.part(f"seed-{seed}"):
            results[seed] = one(seeded, run / f"seed-{seed}", without=without)
    first = next(iter(results.values()))
    metrics = first["metrics"]
    summed = {
        "metrics": metrics,
        "seeds": {str(seed): {name: result["dev"][name] for name in metrics} for seed, result in results.items()},
        "over_seeds": {
            name: SeedSummary.over([r["dev"][name] for r in results.values()], name).as_json() for name in metrics
        },
        "degenerate": {str(seed): r["dev"]["all_given"] for seed, r in results.items() if r["dev"].get("all_given")},
        "positive": first["dev"].get("positive", {}),
        "undefined": first["dev"].get("undefined", {}),  # all are measured on the same examples
    }
    if rows := first["dev"].get("baselines"):
        metric = MEAN_COST if MEAN_COST in rows[0]["figures"] else metrics[0]
        mean = SeedSummary.over([r["dev"][metric] for r in results.values()], metric).as_json()
        summed["baselines"] = [{"name": row["name"], "figures": row["figures"]} for row in rows]
        interval = [mean["mean"] if mean[end] is None else mean[end] for end in ("low", "high")]
        counts = {f"{unit}s": first["dev"][f"{unit}s"] for unit in RESAMPLED_UNITS if f"{unit}s" in first["dev"]}
        of_mean = {**summed, **counts, metric: mean["mean"], "interval_95": {metric: interval}}
        summed["worth"] = verdict(of_mean, metric)[0]
    folder.begin()
    if (run / MODEL).exists() and not keep_best:
        console.warn(f"{run / MODEL}, the best of fewer seeds, is deleted. Pass --keep-best to choose it again.")
        shutil.rmtree(run / MODEL)
    if keep_best:
        best = max(results, key=lambda seed: results[seed]["dev"][metrics[0]])  # the first of equal ones
        take_model(run / f"seed-{best}" / MODEL, run / MODEL)
        score = f"{called(metrics[0], summed)} {results[best]['dev'][metrics[0]]:z.3f}"
        summed["chosen"] = (
            f"{run / MODEL} is the model of seed {best}, which has the best score of {seeds} on dev ({score}). This "
            "score is optimistic: report the mean over seeds, or measure the model on other examples."
        )
    return folder.finish(summed, partial(render_finetune_page, run))


def usual_seeds(config: FinetuneConfig) -> int:
    """Returns the default number of seeds: several for a small published data set, otherwise one."""
    train = DATASETS[config.data].splits.get("train") if config.data else None
    return SEEDS if train and train.examples and train.examples < SMALL else 1


def plan_finetuning(
    config: FinetuneConfig, *, trial: float | None = None, clock: Callable[[], float] = time.monotonic
) -> dict[str, object]:
    """Returns the plan of a run for --dry-run, after all checks that need no training, with a forecast of its cost.

    trial: seconds of a trial on this machine; None: TRIAL_S, or a stored trial of the same run; 0: no trial. clock:
    what a step takes is read from.
    """
    examples = read_examples(config)
    config = with_steps(config, examples.epoch)
    prepared = prepare_run(config, examples)
    forecast = forecast_of(finetuning_work(prepared), trial, clock)
    return {
        "model": config.model,
        "parameters": sum(parameter.numel() for parameter in prepared.model.parameters()),
        "labels": list(examples.task.labels),
        "train_examples": len(examples.train),
        "dev_examples": len(examples.dev),
        "tokens_per_epoch": int(prepared.train.sequences.starts[-1]),
        "steps": config.train.steps,
        "lr": prepared.config.optim.lr,
        "notes": [*prepared.warnings, *prepared.notes],
        **({} if forecast is None else {"forecast": forecast.as_json()}),
    }
