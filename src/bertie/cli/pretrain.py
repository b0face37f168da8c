"""`bertie pretrain`: a pre-trained model from a corpus and a tokenizer."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from bertie import console
from bertie.cli.app import ConfigFile, DryRun, Output, Overrides, Overwrite, Resume, Trial, emit
from bertie.cli.options import OptionValues, configured
from bertie.errors import UsageError
from bertie.runs.arguments import PRETRAIN


@configured(
    "bertie.runs.config:PretrainConfig",
    corpus="corpus",
    features="features.column",
    tokenizer="tokenizer",
    **PRETRAIN,
)
def pretrain(
    given: OptionValues,
    overrides: Overrides = None,
    output: Output = None,
    config: ConfigFile = None,
    from_: Annotated[
        Path | None, typer.Option("--from", help="Run to repeat: its run.yaml, on the same corpus and tokenizer.")
    ] = None,
    resume: Resume = "auto",
    allow_change: Annotated[
        list[str] | None,
        typer.Option("--allow-change", help="Setting that may differ when a run is resumed: optim.lr."),
    ] = None,
    overwrite: Overwrite = False,
    minutes: Annotated[
        float | None,
        typer.Option(
            "--minutes",
            min=0.1,
            help="Approximate training time in minutes: sets train.steps after a trial of a few steps.",
        ),
    ] = None,
    dry_run: DryRun = False,
    trial: Trial = None,
) -> None:
    """Pre-train a model on a corpus.

    The same command resumes a run that was stopped by Ctrl-C, SIGTERM, a full disk or a crash. Any setting can be given
    as key=value (model=bert-mini, train.steps=50000, optim.lr=5e-4, objectives.nsp=null). RUN/run.yaml lists all
    settings. Under torchrun, the processes share each batch. --dry-run tries some steps and prints the time, memory and
    energy to expect. It writes no run folder, only the token ids of the corpus, which the run needs too.

    \b
    Examples:
      bertie pretrain --corpus corpora/mine --tokenizer tokenizers/mine -o runs/tiny train.steps=5000
      bertie pretrain -c pretrain-bert-base --corpus corpora/mine --tokenizer tokenizers/mine --dry-run
      bertie pretrain --corpus corpora/mine --tokenizer tokenizers/mine -o runs/short --minutes 8
      bertie pretrain --from runs/tiny -o runs/again
      torchrun --nproc-per-node 2 -m bertie pretrain -c runs/tiny/run.yaml -o runs/two
    """
    from bertie import settings as configs
    from bertie.runs import pretrain as run
    from bertie.runs.config import PretrainConfig
    from bertie.runs.domains import table
    from bertie.runs.pretraining import PreparedRun
    from bertie.runs.work import with_minutes
    from bertie.text.tokenizer import Tokenizer
    from bertie.train.rendezvous import is_main

    if from_ is not None and config is not None:
        raise UsageError(
            f"--config and --from cannot be combined. --from is --config {from_ / 'run.yaml'} with a check of the data."
        )
    if from_ is not None and not (from_ / "run.yaml").is_file():
        raise UsageError(f"{from_} is not a run: it has no run.yaml. Pass the folder of a run of bertie pretrain.")
    settings = configs.load(
        PretrainConfig,
        from_ / "run.yaml" if from_ is not None else config,
        overrides or (),
        **given,
    )
    if minutes is not None:
        if "train.steps" in given or any(override.startswith("train.steps=") for override in overrides or ()):
            raise UsageError("--minutes sets train.steps. Pass only one of the two.")
        settings = with_minutes(settings, minutes, None if overwrite else output, PreparedRun)
    own = ", ".join(str(number) for number, phase in enumerate(settings.phases, 1) if phase.batch_size)
    sizes = "train.batch_size" in given or any(one.startswith("train.batch_size=") for one in overrides or ())
    if own and is_main() and sizes:
        console.warn(
            f"train.batch_size does not change the phases with a batch_size of their own ({own}). Set theirs in "
            "`phases`, or lower train.micro_batch_size to save memory."
        )
    if dry_run:
        planned = run.plan(settings, trial=trial)
        emit(planned) if console.verbosity.json else console.show(run.summary(planned), markup=True)
        for warning in () if console.verbosity.json else planned["warnings"]:
            console.warn(warning)
        return
    if output is None:
        raise UsageError("No output folder given. Pass `-o RUN`.")
    results = run.pretrain(
        settings,
        output,
        resume=resume,
        overwrite=overwrite,
        allow_change=tuple(allow_change or ()),
        reference_run=from_,
    )
    if not is_main():
        return
    if console.verbosity.json:
        emit(results)
        return
    last = results["valid"] or results["train"]
    figures = "  ".join(f"{name} {value:.4g}" for name, value in last.items() if name.endswith(("loss", "accuracy")))
    console.show(f"step {results['step']:,}: {figures}")
    if "pseudo_perplexity" in results:
        console.show(table(results["pseudo_perplexity"]))
    if "repeats" in results:
        same = "identical" if results["repeats"]["same_weights"] else "other ones"
        console.show(f"Weights compared with {results['repeats']['run']}: {same}")
    console.say(f"Model: {output / 'model'}. Report: {output / 'report.html'}. Next steps:")
    model = shlex.quote(str(output / "model"))
    if settings.objectives.get("mlm") is not None:
        mask = Tokenizer.load(output / "model").special_tokens["mask"]
        console.say(f'  bertie fill-mask {model} "Some text with a {mask} in it."')
    console.say(f"  bertie finetune {model} --train FILE -o runs/NAME")
