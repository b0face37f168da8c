"""`bertie finetune`: a model for one task, from labeled examples and a pre-trained model."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import bertie
from bertie import console
from bertie.cli import tables
from bertie.cli.app import ConfigFile, DryRun, Output, Overrides, Overwrite, Resume, Trial, emit
from bertie.cli.evaluate import show_scores
from bertie.cli.options import Flag, OptionValues, configured
from bertie.cli.runs import show_comparison
from bertie.errors import UsageError
from bertie.runs.arguments import FINETUNE

if TYPE_CHECKING:
    from bertie.runs.config import FinetuneConfig

# What a run reads and learns: `bertie tune` takes the same.
SETTINGS: dict[str, str | Flag] = {
    "train": "train_file",
    "dev": "dev_file",
    **FINETUNE,
    "lr": Flag("optim.lr", default="by the model's width"),
    "label_names": Flag("label_names", read=tables.pairs, metavar="0=NAME,1=NAME"),
    "positive": "positive",
    "class_weights": Flag("class_weights", read=tables.class_weights, metavar="balanced|NAME=X,..."),
    "columns": Flag("columns", read=tables.names, metavar="A,B,C"),
    "encoding": "encoding",
    "format": "format",
    "label_separator": "label_separator",
    "features": "features.column",
}
FEW_SHOT = "finetune-few-shot"
StartModel = Annotated[str | None, typer.Argument(help="Name or folder of a pre-trained model, run or checkpoint.")]


@configured("bertie.runs.config:FinetuneConfig", **SETTINGS)
def finetune(
    given: OptionValues,
    model: StartModel = None,
    overrides: Overrides = None,
    output: Output = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            "--seeds",
            min=1,
            help="Number of runs with different seeds, from --seed up. Default: 5 on small --data, otherwise 1.",
        ),
    ] = None,
    keep_best: Annotated[
        bool, typer.Option("--keep-best", help="Make RUN/model the model of the seed with the best score on dev.")
    ] = False,
    few_shot: Annotated[
        bool,
        typer.Option(
            "--few-shot",
            help="Train on pairs of texts, for 2 to 64 examples per label: the settings of -c finetune-few-shot.",
        ),
    ] = False,
    against: Annotated[
        str | None, typer.Option("--against", help="A second start model: fine-tune both alike, and compare them.")
    ] = None,
    config: ConfigFile = None,
    resume: Resume = "auto",
    overwrite: Overwrite = False,
    dry_run: DryRun = False,
    trial: Trial = None,
) -> None:
    """Fine-tune a pre-trained model for a task.

    The default task classifies texts or pairs of texts. The same command resumes an interrupted run. Any setting can be
    given as key=value (epochs=5, optim.lr=5e-5, max_length=256, too_long=window, from_scratch=true). RUN/run.yaml lists
    all settings.

    \b
    Examples:
      bertie finetune starter-en --train reviews.csv -o runs/reviews
      bertie finetune starter-en --data sst2 --data-dir glue -o runs/sst2 epochs=2
      bertie finetune starter-en --train few.tsv --dev dev.tsv --seeds 5 -o runs/few
      bertie finetune models/minilm --few-shot --train forty.csv -o runs/forty
      bertie finetune models/base --against runs/domain --train reviews.csv --seeds 5 -o runs/worth
    """
    from bertie.runs import finetune as run
    from bertie.runs.against import finetune_against
    from bertie.runs.forecast import RunForecast

    if few_shot and config is not None:
        raise UsageError(f"--few-shot and -c {config} exclude each other. Write `extends: {FEW_SHOT}` in the file.")
    settings = settings_of(model, overrides, Path(FEW_SHOT) if few_shot else config, given)
    if few_shot and settings.task != "few-shot":
        raise UsageError(f"--few-shot and --task {settings.task} exclude each other. Omit one of them.")
    if seeds is None:
        seeds = run.usual_seeds(settings)
        if seeds > 1:
            console.say(
                f"{settings.data} is small: training {seeds} seeds, one after another (--seeds 1 for a single run)"
            )
    if keep_best and (seeds == 1 or against is not None):
        raise UsageError("--keep-best chooses among several seeds. Pass --seeds 5, without --against.")
    if dry_run:
        plan = {**run.plan(settings, trial=trial), "seeds": seeds}
        if against is not None:
            run.plan(settings.model_copy(update={"model": against}), trial=0)
        if console.verbosity.json:
            emit(plan)
        else:
            forecast, notes = plan.pop("forecast", None), plan.pop("notes")
            console.show("\n".join([*(f"{name}: {value}" for name, value in plan.items()), *notes]))
            if forecast:
                console.show((f"each of {seeds} seeds:\n" if seeds > 1 else "") + str(RunForecast(**forecast)))
        return
    if output is None:
        raise UsageError("No output folder given. Pass `-o RUN`.")
    if against is not None:
        results = finetune_against(settings, against, output, seeds, resume=resume, overwrite=overwrite)
        show = _show_against
    elif seeds == 1:
        results, show = run.finetune(settings, output, resume=resume, overwrite=overwrite), _show
    else:
        results = run.finetune_seeds(settings, output, seeds, resume=resume, overwrite=overwrite, keep_best=keep_best)
        show = _show_seeds
    if console.verbosity.json:
        emit(results)
    else:
        show(results, output)


def settings_of(
    model: str | None, overrides: list[str] | None, config: Path | None, given: OptionValues
) -> "FinetuneConfig":
    """Returns the settings of a run. Options override a file or the data set's recipe; key=value overrides options."""
    from bertie.api import finetune as api

    if model and "=" in model and not Path(model).exists():  # `bertie finetune -c run.yaml epochs=5`
        overrides, model = [model, *(overrides or [])], None
    return api.settings_of({"model": model, **given}, config, tuple(overrides or ()))


def _show(results: dict[str, Any], output: Path) -> None:
    show_scores(bertie.Scores(results["dev"], tuple(results["metrics"])), "dev: ")
    console.say(f"Model: {output / 'model'}. Metrics: {output / 'results.json'}. Next steps:")
    for line in what_next(output / "model"):
        console.say(f"  {line}")


def what_next(model: Path) -> list[str]:
    """Returns commands that use a trained model, ready to copy into a shell."""
    from bertie.tasks import TASKS
    from bertie.training_facts import read_training_facts

    facts, folder = read_training_facts(model), shlex.quote(str(model))
    if facts.features:
        return [f"bertie {command} {folder} FILE" for command in ("predict", "evaluate")]
    task, heads = TASKS[facts.task], [*facts.task_options.get("members", ())]
    head = f" --head {shlex.quote(heads[0])}" if heads else ""
    sample = shlex.quote(task.sample(facts.texts or 1))
    return [f"echo {sample} | bertie {task.command} {folder}", f"bertie evaluate {folder} FILE{head}"]


def _show_seeds(results: dict[str, Any], output: Path) -> None:
    from bertie.evaluation.compare import SeedSummary
    from bertie.metrics.base import called, undefined

    for name, summed in results["over_seeds"].items():
        known = name not in results.get("undefined", ())
        console.show(f"{called(name, results)} on dev: {SeedSummary(**summed) if known else 'not defined'}")
    for seed, label in results["degenerate"].items():
        console.warn(f"seed {seed} failed: the model predicts {label!r} for every dev example")
    for line in undefined(results):
        console.warn(line)
    if worth := results.get("worth"):
        console.show(worth)
    if chosen := results.get("chosen"):
        console.show(chosen)
    console.say(f"Models: {output}/seed-*/model. Metrics: {output / 'results.json'}. Next steps:")
    for line in what_next((output if chosen else output / f"seed-{next(iter(results['seeds']))}") / "model"):
        console.say(f"  {line}")


def _show_against(results: dict[str, Any], output: Path) -> None:
    show_comparison(bertie.Comparison(results))
    console.say(f"Report: {output / 'compare.html'}")
