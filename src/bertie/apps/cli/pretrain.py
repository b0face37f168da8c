"""`bertie pretrain`: a pre-trained model from a corpus and a tokenizer."""

import os
from pathlib import Path
from typing import Annotated

import typer

import bertie
from bertie.apps.cli.app import ConfigFile, DryRun, OutputOption, Overrides, Overwrite, Resume, TrialOption
from bertie.apps.cli.options import OptionValues, configured
from bertie.platform import NAMED_SETTINGS, UsageError, console


@configured(
    "pretrain",
    corpus="corpus",
    features="features.column",
    tokenizer="tokenizer",
    **NAMED_SETTINGS["pretrain"],
)
def pretrain_command(
    values: OptionValues,
    overrides: Overrides = None,
    output: OutputOption = None,
    config: ConfigFile = None,
    from_: Annotated[
        Path | None,
        typer.Option(
            "--from", help="Run to repeat: its run.yaml, on the same corpus and tokenizer.", rich_help_panel="Run"
        ),
    ] = None,
    resume: Resume = "auto",
    allow_change: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-change", help="Setting that may differ when a run is resumed: optim.lr.", rich_help_panel="Run"
        ),
    ] = None,
    overwrite: Overwrite = False,
    minutes: Annotated[
        float | None,
        typer.Option(
            "--minutes",
            min=0.1,
            help="Approximate training time in minutes: sets train.steps after a trial of a few steps.",
            rich_help_panel="Run",
        ),
    ] = None,
    dry_run: DryRun = False,
    trial: TrialOption = None,
) -> None:
    """Pre-train a model on a corpus.

    The same command resumes a run that was stopped by Ctrl-C, SIGTERM, a full disk or a crash. RUN/run.yaml lists all
    settings; each can be given as an option, or as key=value: --objectives.nsp null is objectives.nsp=null. Under
    torchrun, the processes share each batch. --dry-run tries some steps and prints the time, memory and energy to
    expect. It writes no run folder, only the token ids of the corpus, which the run needs too.

    \b
    Examples:
      bertie pretrain --corpus corpora/mine --tokenizer tokenizers/mine -o runs/tiny --steps 5000
      bertie pretrain -c pretrain-bert-base --corpus corpora/mine --tokenizer tokenizers/mine --dry-run
      bertie pretrain --corpus corpora/mine --tokenizer tokenizers/mine -o runs/short --minutes 8
      bertie pretrain --from runs/tiny -o runs/again
      torchrun --nproc-per-node 2 -m bertie pretrain -c runs/tiny/run.yaml -o runs/two
    """
    settings: OptionValues = {"settings": values, "overrides": overrides or [], "config": config, "from_": from_}
    settings |= {"minutes": minutes, "output": output, "overwrite": overwrite}
    if dry_run:
        plan = bertie.plan_pretrain(trial=trial, **settings)
        if console.verbosity.json:
            console.emit(plan.to_dict())
            return
        console.show(str(plan))
        for warning in plan.warnings:
            console.warn(warning)
        return
    if output is None:
        raise UsageError("No output folder given. Pass `-o RUN`.")
    run = bertie.pretrain(resume=resume, allow_change=allow_change or (), **settings)
    if int(os.environ.get("RANK", 0)):  # one process of several tells
        return
    if console.verbosity.json:
        console.emit(dict(run.results))
        return
    for line in run.lines():
        console.show(line)
    console.say(f"Model: {run.places}. Report: {run.report}. Next steps:")
    for line in run.next_commands():
        console.say(f"  {line}")
