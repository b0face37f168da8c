"""A pre-training run: from a corpus and a tokenizer to a run folder with a model.

    corpus + tokenizer -> token shards -> PretrainingSource -> examples, a plan -> fit -> RUN/model

Devlin et al. 2018, 3.1 and A.2.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from rich.markup import escape

from bertie.console import console, counted
from bertie.errors import arguments
from bertie.files import JsonObject, file_hash
from bertie.models.codec import only_here
from bertie.models.files import WEIGHTS
from bertie.report.values import quantity
from bertie.runs import model_card, usage
from bertie.runs.config import PretrainConfig
from bertie.runs.domains import before_and_after
from bertie.runs.folder import REPORT, RunFolder
from bertie.runs.forecast import RunForecast, at_start, forecast_of
from bertie.runs.guesses import write_guesses
from bertie.runs.layout import MODEL
from bertie.runs.page import render_pretrain_page
from bertie.runs.planning import check_disk
from bertie.runs.pretraining import PreparedRun
from bertie.runs.verify import same_data
from bertie.runs.work import pretraining_work
from bertie.train.callbacks import Callback, Callbacks, callbacks_of, without_callbacks
from bertie.train.loop import fit
from bertie.train.rendezvous import is_main

EXAMPLE_CHARACTERS = 400
REDRAWN_S = 60.0  # a validation after this time writes the report again


@arguments()
def run_pretrain(
    config: PretrainConfig,
    run: Path | str,
    *,
    resume: str = "auto",
    overwrite: bool = False,
    allow_change: Sequence[str] = (),
    reference_run: Path | str | None = None,
    callbacks: Sequence[Callback] = (),
) -> JsonObject:
    """Pre-trains a model. The same call resumes a run that was stopped.

    Args:
        config: All settings of the run.
        run: The run folder, which is created.
        resume: "auto" continues from the newest checkpoint, "never" refuses a folder with a run. A checkpoint's path
            continues from that checkpoint.
        overwrite: Whether to delete first what Bertie wrote in the folder.
        allow_change: Settings that may differ from those of the interrupted run.
        reference_run: A run on the same corpus and tokenizer, which is checked. The results report whether the weights
            are identical.
        callbacks: Called after every step and validation. One that raises StopTraining ends the run well.

    Returns:
        The contents of results.json.

    Raises:
        DataError: The corpus is missing, damaged or too small, or the vocabulary does not belong to the model.
        UsageError: The folder contains a run with other settings.
        Stopped: The run was interrupted. The same call resumes it.
    """
    run = Path(run)
    if not is_main():
        console.verbosity.level = -1
    folder = RunFolder(run)
    if is_main():
        folder.check(overwrite=overwrite)  # say so now, not after the corpus is read
    together = Callbacks([*callbacks_of(config.train), *callbacks])
    ready = PreparedRun(config)
    if reference_run is not None:
        reference_run = Path(reference_run)
        same_data(reference_run, ready.contents)
    with ExitStack() as stack:
        if is_main():  # the others wait for it where they meet, in fit
            stack.enter_context(folder.held(overwrite=overwrite))
        if not overwrite and (done := folder.finished(ready.identity, resume=resume, allow_change=allow_change)):
            return folder.answer(done, partial(render_pretrain_page, run), keep=config.train.keep_checkpoints)
        return _go(
            ready, folder, resume=resume, allow_change=allow_change, reference_run=reference_run, together=together
        )


def _go(
    ready: "PreparedRun",
    folder: RunFolder,
    *,
    resume: str,
    allow_change: Sequence[str],
    reference_run: Path | None,
    together: Callbacks,
) -> JsonObject:
    """Trains, evaluates and saves the model."""
    config, run = ready.config, folder.path
    model = ready.model()
    planned = ready.plan(model)
    forecast = at_start(pretraining_work(ready, model))
    if is_main():
        check_disk(planned, run)
    _show(ready, planned)
    source, drawn_s = ready.data.source, time.monotonic()

    def evaluate(step: int) -> dict[str, float]:
        held = ready.data.validation(step)
        write_guesses(model, next(iter(held.values()))[0], ready.tokenizer, step=step, run=run)
        nonlocal drawn_s
        if is_main() and time.monotonic() - drawn_s > REDRAWN_S:
            with console.no_failure(run / REPORT):
                render_pretrain_page(run).save(run / REPORT)
            drawn_s = time.monotonic()
        return ready.validate(model, held)

    meter = usage.meter(config.train.device)
    result = fit(
        model,
        ready.objective,
        source,
        train=without_callbacks(config.train),
        optim=config.optim,
        run=run,
        config=config,
        identity=ready.identity,
        evaluate=evaluate if ready.data.validates else None,
        save_model=lambda folder: ready.save(model, folder.parent),
        resume=resume,
        allow_change=allow_change,
        begin=lambda _: folder.begin(partial(ready.outline, model)),
        callbacks=[together],
        boundaries=source.boundaries,
        meter=meter,
    )
    used = meter.read()
    results = {
        "model": str(run / "model"),
        "step": result.step,
        "train": dict(result.train),
        "valid": dict(result.valid),
        **({"ended_early": result.reason} if result.reason else {}),
        "plan": planned,
        "usage": used.as_json(),
        **({} if forecast is None else {"forecast": forecast.as_json()}),
        "identity": ready.identity,
    }
    if is_main():
        if config.pseudo_perplexity:
            corpora = ready.data.folders
            results["pseudo_perplexity"] = before_and_after(
                ready.measured_start(), model, ready.tokenizer, corpora, sentences=config.pseudo_perplexity
            )
        if reference_run is not None and (reference_run / MODEL / WEIGHTS).exists():
            same = file_hash(reference_run / MODEL / WEIGHTS) == file_hash(run / MODEL / WEIGHTS)
            results["repeats"] = {"run": str(reference_run), "same_weights": same}
        model_card.write_pretraining(run, run / MODEL, config, ready.data)
        model_card.write_cost(run / MODEL, used, None if forecast is None else forecast.as_json(), config.model)
        results = folder.finish(results, partial(render_pretrain_page, run), keep=config.train.keep_checkpoints)
        together.end(results)
    return results


def plan_pretraining(
    config: PretrainConfig, *, trial: float | None = None, clock: Callable[[], float] = time.monotonic
) -> JsonObject:
    """Returns the plan of a run for --dry-run, after all checks that need no training, with a forecast of its cost.

    trial: seconds of a trial on this machine; None: TRIAL_S, or a stored trial of the same run; 0: no trial. clock:
    what a step takes is read from. The corpus is encoded for the plan, and the run reuses that.
    """
    ready = PreparedRun(config)
    model = ready.model()
    planned = ready.plan(model)
    forecast = forecast_of(pretraining_work(ready, model), trial, clock)
    if forecast is not None:
        tokens = sum(phase["steps"] * phase["tokens_per_step"] for phase in planned.get("phases", [planned]))
        rate = round(tokens / forecast.parts["steps"])
        planned |= {"tokens_per_s": rate, "seconds": round(forecast.seconds), "forecast": forecast.as_json()}
    return {**planned, "examples": ready.examples()}


def _show(ready: PreparedRun, planned: JsonObject) -> None:
    """Prints examples of the input and the plan before the training."""
    console.say(summarize_plan({**planned, "examples": ready.examples()}), markup=True)
    for warning in planned["warnings"]:
        console.warn(warning)


def summarize_plan(planned: JsonObject) -> str:
    """Returns examples, the plan in three lines, and one line per corpus and phase where there are several."""
    p, shown = planned, ""
    for number, example in enumerate(p["examples"], 1):
        short = example if len(example) <= EXAMPLE_CHARACTERS else example[:EXAMPLE_CHARACTERS] + " ..."
        shown += f"[dim]example {number}:[/] {escape(short)}\n"
    own = only_here(p.get("own_settings", {}))
    more = (
        [f"\n{own}"] * bool(own)
        + [
            f"\n  {c['name']}: {c['share']:.1%} of the samples, {c['epochs']:g} epochs of {c['tokens']:,} tokens"
            for c in p.get("corpora", [])
        ]
        + [
            f"\n  phase {i}: {counted(f['steps'], 'step')} of {counted(f['sequences_per_step'], 'sequence')}, length "
            f"{f['max_length']:,}"
            for i, f in enumerate(p.get("phases", []), 1)
        ]
    )
    of_shape = f" ({p['shape']})" if "shape" in p else ""
    extra = ", ".join(f"{name} {flops / p['flops']:.0%}" for name, flops in p["flops_beside"].items())
    return shown + (
        (
            f"[bold]{escape(p['model'])}[/]{of_shape}: {p['parameters']:,} parameters, {escape(p['objective'])}, on "
            f"{p['device']} in {p['precision']}\ncorpus: {counted(p['documents'], 'document')}, "
            f"{counted(p['instances_per_epoch'], 'instance')} and {p['tokens_per_epoch']:,} tokens per epoch\nplan: "
            f"{counted(p['steps'], 'step')} of {counted(p['sequences_per_step'], 'sequence')} "
            f"({p['tokens_per_step']:,} tokens): {p['epochs']:g} epochs, {p['flops']:.2g} floating-point operations"
        )
        + (f" ({extra})" if extra else "")
        + _disk(p["disk_bytes"])
        + (
            f"\n{escape(str(RunForecast(**p['forecast'])))}\nspeed: {p['tokens_per_s']:,} tokens/s"
            if "forecast" in p
            else ""
        )
        + escape("".join(more))
    )


def _disk(planned: Mapping[str, int]) -> str:
    most, each = (quantity(planned[name], "bytes") for name in ("most", "checkpoint"))
    return f"\ndisk: up to {most}, {each} per checkpoint"
