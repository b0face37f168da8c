"""The last stage of a fine-tuning run: the selected weights are evaluated, and results and report are written."""

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from bertie import checksums
from bertie.console import console
from bertie.costs.meter import Usage
from bertie.evaluation.baselines import baselines, compared_examples, measure_baselines, some
from bertie.evaluation.label_check import Suspect, suspects
from bertie.files import write_bytes, write_json
from bertie.infer.engine import Array
from bertie.infer.findings import Findings
from bertie.infer.predict import Predictor
from bertie.infer.records import Form, as_cell
from bertie.infer.traffic import Traffic, write_traffic
from bertie.io.tables import Example
from bertie.metrics.base import ScoreCounter
from bertie.runs import balance, calibration, model_card
from bertie.runs.calibration import Calibrated
from bertie.runs.examples import Examples
from bertie.runs.finetune_page import render_finetune_page
from bertie.runs.finetune_prepare import Labeled, Prepared, prepare_run, saved_task, training_facts, with_steps
from bertie.runs.finetune_train import (
    ADAPTER,
    Trained,
    best_value,
    reload_weights,
    save_trained_model,
    take_model,
    train_run,
)
from bertie.runs.folder import FINDINGS, SUSPECTS, RunFolder
from bertie.runs.forecast import RunForecast
from bertie.runs.layout import BEST, MODEL
from bertie.tasks import Prediction, Task
from bertie.train.loop import temporary_run
from bertie.training_facts import read_training_facts

_CHECK_ROWS_SHOWN = 20  # rows of the label check on the page
CHECKED = 5_000_000  # characters of the rows that tf-idf checks, about 90,000 short reviews: half a minute
MIN_BASELINE_ROWS = 100  # rows: tf-idf of fewer says little about any of them
_MODELS = {"words": "tf-idf and logistic regression", "folds": "fine-tuned on four fifths"}
Without = dict[str, list[Prediction]]  # what is answered without a model, by baseline


@dataclass(frozen=True)
class Assessed:
    """The selected weights, evaluated on dev."""

    trained: Trained
    predictor: Predictor  # with the settings that were fitted after training, such as thresholds
    scores: ScoreCounter
    before: ScoreCounter | None  # without these settings, where some were fitted
    calibrated: Calibrated
    findings: Findings
    answers: Mapping[int, Prediction]  # that baselines are compared with, by the number of their example
    usage: Usage

    @property
    def prepared(self) -> Prepared:
        """What was trained."""
        return self.trained.prepared

    @property
    def task(self) -> Task:
        """The task with the settings that were fitted."""
        return self.predictor.task


def assess_run(trained: Trained) -> Assessed:
    """Evaluates the selected weights, loaded from where they were saved, on dev."""
    prepared = trained.prepared
    predictor, calibrated = select_weights(trained)
    task, plain = predictor.task, prepared.task
    scores, findings = task.scores(), Findings(task, prepared.examples.metrics[0])
    shown = compared_examples(task, prepared.dev.examples) if _compares(prepared) else set()
    before = plain.scores() if calibrated.in_weights or task != plain else None
    folder = trained.run / MODEL
    traffic = Traffic.of_model(folder)
    in_use = predictor.replace(task_or_none=saved_task(prepared.config, task))

    def count_more(part: Labeled, logits: Array, answers: Sequence[Prediction]) -> None:
        if before is not None:
            plain.count(before, part.examples, plain.decode(calibrated.raw(logits), part.sequences, part.examples))
        if in_use.task != task:
            answers = in_use.task.decode(logits, part.sequences, part.examples)
        traffic.count_all(in_use.pipeline, part.examples, part.sequences, answers, in_use.engine)

    stream = stream_answers(predictor, prepared.dev, scores, findings, watch=count_more)
    answers = {i: answer for i, (_, answer) in enumerate(stream) if i in shown}
    save_traffic(folder, traffic.without_answers() if prepared.examples.dev_is_learned else traffic)
    return Assessed(trained, predictor, scores, before, calibrated, findings, answers, trained.meter.read())


def save_traffic(folder: Path, traffic: Traffic) -> None:
    """Writes the traffic of the dev examples into the folder of the model, and of its adapter, if it has one."""
    names = [Traffic.FILE]
    write_traffic(folder / Traffic.FILE, [traffic])
    if (folder / ADAPTER).is_dir():
        names.append(f"{ADAPTER}/{Traffic.FILE}")
        own = replace(traffic, model=Traffic.of_model(folder / ADAPTER).model)
        write_traffic(folder / ADAPTER / Traffic.FILE, [own])
    checksums.update(folder, *names)


def select_weights(trained: Trained) -> tuple[Predictor, Calibrated]:
    """Returns the model of RUN/model, which becomes that with the best weights and with fitted settings of the task.

    Each is fitted on examples that are not reported, where there are such: first the scaling of the logits, then
    thresholds of these probabilities, then prediction sets on examples of their own.
    """
    prepared, folder = trained.prepared, trained.run / MODEL
    if prepared.config.keeps_best:
        take_model(trained.run / BEST, folder)
    reload_weights(prepared.model, folder)
    prepared.task.reload(prepared.model, read_training_facts(folder).task_options)
    if prepared.lora is not None:
        prepared.lora.read(folder / ADAPTER)  # that of the selected weights
    prepared.model.compute_dtype = None  # float32, as `bertie evaluate` measures
    prepared.model.eval()
    predictor, plain = prepared.predictor, prepared.task
    calibrated = calibration.calibrate(plain, prepared.model, prepared.looked_at.logits(predictor))
    predictor = predictor.replace(task_or_none=calibrated.task)
    task = calibrated.task.tune_on_dev(stream_answers(predictor, prepared.looked_at, plain.scores()))
    if prepared.covering:
        predictor = predictor.replace(task_or_none=task)
        task = task.with_sets_for(stream_answers(predictor, prepared.covering, plain.scores()))
    task = task.with_tokenizer(predictor.tokenizer)
    if calibrated.in_weights or task != plain:
        facts = training_facts(prepared.config, prepared.examples, task)
        save_trained_model(prepared, folder, facts=facts)  # with the thresholds, temperature ... that were fitted
    return predictor.replace(task_or_none=task), calibrated


def stream_answers(
    predictor: Predictor,
    rows: Labeled,
    scores: ScoreCounter,
    findings: Findings | None = None,
    most: int | None = None,
    watch: Callable[[Labeled, Array, Sequence[Prediction]], None] = lambda part, logits, answers: None,
) -> Iterator[tuple[Example, Prediction]]:
    """Yields the (first) examples with their predictions, and counts them. watch: gets each part, with its logits."""
    task = predictor.task
    for part, logits in rows.logits(predictor, most):
        answers = task.decode(logits, part.sequences, part.examples)
        watch(part, logits, answers)
        task.count(scores, part.examples, answers)
        if findings is not None:
            findings.add(part.examples, answers, part.sequences.tokens.tolist(), part.sequences.fits.tolist())
        yield from zip(part.examples, answers, strict=True)


def write_results(assessed: Assessed, without: Without, forecast: RunForecast | None = None) -> dict[str, object]:
    """Writes all results, and returns those of results.json.

    without: scores of the baselines; empty ones are computed. forecast: what the run was expected to take.
    """
    prepared, run = assessed.prepared, assessed.trained.run
    results = results_of(assessed, without, forecast)
    cost = None if forecast is None else forecast.as_json()
    model_card.write_finetuning(run / MODEL, prepared.config, results)
    model_card.write_cost(run / MODEL, assessed.usage, cost, prepared.config.model)
    write_json(run / FINDINGS, {**assessed.findings.as_json(), **_label_check(assessed)})
    written = RunFolder(run).finish(
        results, partial(render_finetune_page, run), keep=prepared.config.train.keep_checkpoints
    )
    prepared.callbacks.end(written)
    return written


def results_of(assessed: Assessed, without: Without, forecast: RunForecast | None) -> dict[str, object]:
    """Returns results.json of a run. Arguments as for `write_results`."""
    trained, prepared, task = assessed.trained, assessed.prepared, assessed.task
    config, examples = prepared.config, prepared.examples
    dev = _beside_baselines(assessed, without)
    scaling = calibration.scaling_json(config, assessed.calibrated, prepared.looked_at_name, len(prepared.looked_at))
    fitted = [*balance.threshold_notes(task), *calibration.scaling_notes(config, scaling)]
    return {
        "identity": prepared.settings(),
        "labels": list(task.labels),
        "fresh": list(prepared.fresh),
        "train_examples": len(examples.train),
        "step": trained.result.step,
        **({"ended_early": trained.result.reason} if trained.result.reason else {}),
        **({"selecting": len(prepared.selecting)} if prepared.selecting else {}),
        **({"covering": len(prepared.covering)} if prepared.covering else {}),
        "metrics": list(examples.metrics),
        "dev": dev,
        **balance.describe_balance(config, task, examples.train, dev),
        **_thresholds(assessed),
        **scaling,
        "notes": [*prepared.warnings, *prepared.notes, *_selection(trained), *fitted],
        "usage": assessed.usage.as_json(),
        **({} if forecast is None else {"forecast": forecast.as_json()}),
        **_untuned(assessed),
    }


def _compares(prepared: Prepared) -> bool:
    """Whether baselines are evaluated too."""
    return bool(prepared.config.baselines and prepared.task.baselines)


def _beside_baselines(assessed: Assessed, without: Without) -> dict[str, object]:
    """Returns the report of the scores, with those of the baselines."""
    prepared, task, report = assessed.prepared, assessed.task, assessed.scores.report()
    if not _compares(prepared):
        return report
    examples = prepared.examples
    if not without:
        console.say(f"baselines: {', '.join(task.baselines)}", level=1)
        without.update(baselines(task, examples.train, examples.dev))
    return {
        **report,
        "baselines": measure_baselines(task, examples.dev, assessed.answers, without, examples.metrics[0]),
    }


def _selection(trained: Trained) -> Sequence[str]:
    """Returns notes on why the run ended early, and which examples selected its weights."""
    prepared, result = trained.prepared, trained.result
    ended = [f"the run ended early, after step {result.step:,}: {result.reason}"] if result.reason else []
    if result.micro_batch is not None:
        ended.append(f"memory did not suffice for a whole batch: forward passes had {result.micro_batch} sequences")
    if not prepared.config.keeps_best:
        return ended
    looks, metric = trained.evaluations, prepared.metric
    best = best_value(looks, metric)
    step = next(line["step"] for line in looks if line[metric] == best)
    rows = f"{len(prepared.looked_at):,} {'held-out training' if prepared.selecting else 'dev'} examples"
    leak = "" if prepared.selecting else ". The scores of dev are optimistic: measure the model on other examples"
    chosen = f"of {len(looks)} evaluations on {rows}, step {step:,} is the best ({metric} {best:.4g})"
    return [*ended, f"{chosen}, and the model has its weights{leak}"]


def _thresholds(assessed: Assessed) -> dict[str, object]:
    """Returns how the thresholds of labels were chosen, for results.json; {} where none was."""
    prepared = assessed.prepared
    choices = {label: one.as_json() for label, one in assessed.task.choices.items()}
    goal = prepared.config.optimize or "f1"
    return {"thresholds": {"goal": goal, "on": prepared.looked_at_name, "labels": choices}} if choices else {}


def _untuned(assessed: Assessed) -> dict[str, object]:
    """Returns settings and scores without the settings that were fitted, for results.json; {} where none was."""
    if assessed.before is None:
        return {}
    prepared = assessed.prepared
    own = {"settings": prepared.task.settings(), "dev": assessed.before.report()}
    return {"untuned": {"on": prepared.looked_at_name, **own}}


def _label_check(assessed: Assessed) -> dict[str, object]:
    """Writes RUN/label_check.csv, the training rows whose labels are probably wrong; returns the first rows for
    findings.json, or {} where nothing is checked."""
    prepared, kind = assessed.prepared, assessed.prepared.config.label_check
    examples = prepared.examples
    train = examples.train if kind == "folds" else some(examples.train, CHECKED)
    if not assessed.task.one_label or kind == "none" or len(train) < MIN_BASELINE_ROWS:
        return {}
    console.say(f"checking the labels of {len(train):,} training rows (label_check={kind})", level=1)
    rows = suspects(examples.task, train, partial(_predict_fold, prepared) if kind == "folds" else None)
    return list_suspects(assessed.trained.run, rows, len(train), examples, _MODELS[kind])


def list_suspects(
    run: Path, rows: Sequence[Suspect], checked: int, examples: Examples, model: str
) -> dict[str, object]:
    """Writes RUN/label_check.csv, and returns the first rows for findings.json. model: what contradicts the labels."""
    form = Form()

    def record(one: Suspect) -> dict[str, object]:
        own = examples.columns.fields(one.example.texts, one.example.label)
        return form.joined(own, {"line": one.example.line}, one.as_json())

    header = record(Suspect(examples.train[0], "", {}))
    write_records(run / SUSPECTS, header, map(record, rows))
    shown = [suspect.shown() for suspect in rows[:_CHECK_ROWS_SHOWN]]
    return {"label_check": {"listed": len(rows), "checked": checked, "model": model, "file": SUSPECTS, "rows": shown}}


def write_records(path: Path, header: Iterable[str], records: Iterable[Mapping[str, object]]) -> None:
    """Writes a table as csv, with the mark that Excel needs. Lists are written as JSON."""
    out = io.StringIO()
    table = csv.DictWriter(out, list(header), lineterminator="\n")
    table.writeheader()
    table.writerows({name: as_cell(value) for name, value in record.items()} for record in records)
    write_bytes(path, out.getvalue().encode("utf-8-sig"))


def _predict_fold(prepared: Prepared, rows: list[Example], others: list[Example]) -> list[Prediction]:
    """Fine-tunes the start model on some rows with the settings of a run, and predicts others."""
    plain = prepared.config.train.model_copy(update={"patience": None, "track": ()})
    changed = {"label_check": "none", "baselines": False, "select": "last", "train": plain}
    config = with_steps(prepared.config.model_copy(update=changed), len(rows))
    examples = replace(prepared.examples, train=rows, dev=others, select=[], cover=[], notes=[])
    fold = replace(prepare_run(config, examples, loss=prepared.loss), notes=[], warnings=[])
    with temporary_run() as run:
        predictor, _ = select_weights(train_run(fold, run, "never"))
        return [answer for _, answer in stream_answers(predictor, fold.dev, predictor.task.scores())]
