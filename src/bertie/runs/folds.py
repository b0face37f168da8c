"""Cross-validation: a model for each fold of the rows, answers to all rows by models that did not learn them, and a
final model of all rows.

    rows -> folds (splits.py) -> RUN/fold-1 ... RUN/fold-k -> out-of-fold answers -> scores, thresholds, calibration
         -> RUN/final, of all rows -> RUN/model, with these thresholds and this calibration
"""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from bertie.checksums import CHECKSUMS
from bertie.console import console
from bertie.errors import OutputExists, UsageError, WrongValue
from bertie.evaluation.label_check import suspects_of
from bertie.files import Json, write_json
from bertie.folders import new_folder
from bertie.infer.findings import Findings
from bertie.infer.predict import Predictor
from bertie.infer.records import Form, flatten_answer
from bertie.infer.traffic import Traffic
from bertie.io.tables import Example
from bertie.metrics.base import metric_range
from bertie.metrics.compare import SeedSummary
from bertie.metrics.scaling import Scaling
from bertie.models import families
from bertie.models.files import MODEL_FOLDER
from bertie.models.model import TorchModel
from bertie.runs import balance, calibration
from bertie.runs.calibration import Calibrated
from bertie.runs.config import FITTED, OF_FOLDS, FinetuneConfig
from bertie.runs.examples import LEARNED_NOTE, Examples, choose_task_class, hold_out_more, read_examples, split_of
from bertie.runs.finetune import run_finetune
from bertie.runs.finetune_assess import MIN_BASELINE_ROWS, list_suspects, save_traffic, write_records
from bertie.runs.finetune_page import render_finetune_page
from bertie.runs.finetune_prepare import Labeled, check_run, saved_task
from bertie.runs.finetune_train import ADAPTER
from bertie.runs.folder import CONFIG, FINDINGS, OUT_OF_FOLD, RunFolder, seed_runs
from bertie.runs.layout import MODEL, SCORE
from bertie.runs.weights import load_model
from bertie.tasks import Prediction, Task, with_task
from bertie.tasks.answerer import Logits
from bertie.tasks.capabilities import ReadsColumns
from bertie.tasks.losses import LossFunction
from bertie.train.callbacks import Callback

_FINAL = "final"
ON = "out-of-fold"
_Parts = Sequence[tuple[Labeled, Logits]]
NOT_COPIED = shutil.ignore_patterns(SCORE, CHECKSUMS, ADAPTER)  # the adapter has not what is fitted here


@dataclass(frozen=True)
class Fold:
    """One fold: its name, its examples, and the numbers of the rows that its model predicts."""

    name: str
    examples: Examples
    predicted: Sequence[int]


@dataclass(frozen=True)
class FoldPlan:
    """The runs of a cross-validation. task: with the settings that are fitted at the end; config: of each run."""

    config: FinetuneConfig
    task: Task
    rows: Sequence[Example]
    folds: Sequence[Fold]
    final: Examples


def finetune_folds(
    config: FinetuneConfig,
    run: Path | str,
    folds: int,
    *,
    resume: str = "auto",
    overwrite: bool = False,
    callbacks: Sequence[Callback] = (),
    loss: LossFunction | None = None,
) -> dict[str, object]:
    """Fine-tunes once for each fold and once on all rows, and returns results.json of the cross-validation.

    The same call resumes it. callbacks, loss: of each run. Raises DataError for more folds than rows of a label, and as
    `finetune`; UsageError for a folder with other runs.
    """
    folder, run = RunFolder(run), Path(run)
    folder.check(overwrite=overwrite)
    names = [f"fold-{number}" for number in range(1, folds + 1)]
    others = [one.name for one in seed_runs(run) if one.name not in names]
    if not overwrite and (others or (run / CONFIG).exists()):
        raise OutputExists(
            f"{run} contains {', '.join(others) or 'a single run'} beside what {folds} folds have. Choose another "
            "folder, or pass --overwrite to replace it."
        )
    plan = plan_folds(config, folds)
    if loss is None:
        check_run(plan.config, plan.folds[0].examples)
    with folder.held(overwrite=overwrite):
        one = partial(run_finetune, plan.config, resume=resume, callbacks=callbacks, loss=loss)
        return _all_folds(config, plan, folder, one)


def plan_folds(config: FinetuneConfig, folds: int) -> FoldPlan:
    """Returns the runs. Raises UsageError and DataError for settings and rows that cannot be cross-validated."""
    if folds < 2:
        raise WrongValue(f"folds is {folds}; 2 or more were expected.")
    for name, why in (
        ("dev_file", "each row is predicted by a model that did not learn it. Evaluate on the file afterwards"),
        ("data", "a published set has its own split"),
        ("mix", "several tasks have no common folds"),
        ("per_label", "all rows are used"),
        ("coverage", "prediction sets need rows that are used for nothing else"),
    ):
        if getattr(config, name):
            raise UsageError(f"{name} does not work with folds: {why}. Omit {name}.")
    balance.check_honoured(config, choose_task_class(config))
    defaults = {name: FinetuneConfig.model_fields[name].default for name in FITTED}
    plain = config.model_copy(update={**defaults, **OF_FOLDS})
    whole = read_examples(plain)
    task = replace(whole.task, **{name: value for name in FITTED if (value := getattr(config, name))})
    split, notes = split_of(config, type(whole.task)), [note for note in whole.notes if note != LEARNED_NOTE]
    apart = whole.task.tunes or config.keeps_best or config.train.patience is not None
    each = []
    for number, (learned, predicted) in enumerate(split.folds(whole.train, folds), 1):
        about = [f"fold {number} of {folds}: {len(predicted):,} of {len(whole.train):,} rows are predicted"]
        rows = [whole.train[i] for i in learned]
        train, select, _ = hold_out_more(plain, split, whole.task, rows, about, apart=apart)
        dev = [whole.train[i] for i in predicted]
        examples = replace(whole, train=train, dev=dev, select=select, notes=[*notes, *about])
        each.append(Fold(f"fold-{number}", examples, predicted))
    about = [*whole.notes]
    train, select, _ = hold_out_more(plain, split, whole.task, whole.train, about, apart=apart)
    return FoldPlan(plain, task, whole.train, each, replace(whole, train=train, select=select, notes=about))


def _all_folds(
    config: FinetuneConfig, plan: FoldPlan, folder: RunFolder, one: Callable[..., dict[str, object]]
) -> dict[str, object]:
    run, results = folder.path, dict[str, dict[str, object]]()
    for fold in plan.folds:
        with console.part(fold.name):
            results[fold.name] = one(run=run / fold.name, examples=fold.examples)
    with console.part(_FINAL):
        final = one(run=run / _FINAL, examples=plan.final)
    folder.begin()
    each = [[*_logits(run / fold.name, fold)] for fold in plan.folds]
    parts = [part for some in each for part in some]
    model = load_model(run / _FINAL / MODEL)
    predictor = Predictor(model)
    task = plan.task.with_tokenizer(predictor.tokenizer)
    if isinstance(task, ReadsColumns):
        task = task.reading_as(predictor.task)
    if any(getattr(config, name) for name in FITTED):
        for number, (fold, some) in enumerate(zip(plan.folds, each, strict=True)):
            others = [part for at, those in enumerate(each) if at != number for part in those]
            results[fold.name] = {**results[fold.name], "dev": _scored(task, others, some)}
    calibrated = calibration.calibrate(task, model, parts)
    task = task.with_scaling(calibrated.scaling) if calibrated.scaling else task
    task = task.tune_on_dev(_decoded(task, parts))
    saved = saved_task(config, task.with_scaling(Scaling()) if calibrated.in_weights else task)
    _write_model(saved, run, model)
    summed = _summed(config, plan, results, final, calibrated, task)
    scores, findings = task.scores(), Findings(task, plan.final.metrics[0])
    in_use = predictor.replace(task_or_none=saved_task(config, task))
    traffic, answers = replace(Traffic.of_model(run / MODEL), learned=True), list[Prediction]()
    for part, logits in parts:
        decoded = task.decode(logits, part.sequences, part.examples)
        task.count(scores, part.examples, decoded)
        findings.add(part.examples, decoded, part.sequences.tokens.tolist(), part.sequences.fits.tolist())
        answers += decoded
        if in_use.task != task:
            decoded = in_use.task.decode(logits, part.sequences, part.examples)
        traffic.count_all(in_use.pipeline, part.examples, part.sequences, decoded, in_use.engine)
    save_traffic(run / MODEL, traffic)
    summed["out_of_fold"] = scores.report()
    records = _records(plan, answers)
    write_records(run / OUT_OF_FOLD, dict.fromkeys(name for one in records for name in one), records)
    write_json(run / FINDINGS, {**findings.as_json(), **_label_check(config, plan, task, answers, run)})
    return folder.finish(summed, partial(render_finetune_page, run))


def _logits(folder: Path, fold: Fold) -> Iterator[tuple[Labeled, Logits]]:
    """Yields the rows of a fold, with the logits of its model."""
    predictor = Predictor(load_model(folder / MODEL))
    yield from Labeled(fold.examples.dev, predictor.encode(fold.examples.dev)).logits(predictor)


def _scored(task: Task, others: _Parts, parts: _Parts) -> Mapping[str, object]:
    """Returns the metrics of a fold, with the thresholds and the calibration that the answers to other folds give."""
    task = task.with_scaling(scaling) if (scaling := calibration.scaling_of(task, others)) else task
    task = task.tune_on_dev(_decoded(task, others))
    scores = task.scores()
    for part, logits in parts:
        task.count(scores, part.examples, task.decode(logits, part.sequences, part.examples))
    return scores.report()


def _decoded(task: Task, parts: _Parts) -> Iterator[tuple[Example, Prediction]]:
    """Yields all rows that were predicted, with the answers."""
    for part, logits in parts:
        yield from zip(part.examples, task.decode(logits, part.sequences, part.examples), strict=True)


def _write_model(task: Task, run: Path, model: TorchModel) -> None:
    """Writes RUN/model: the final model, with what was fitted on the out-of-fold answers."""
    model.training_facts = with_task(model.training_facts, task)
    with new_folder(run / MODEL, MODEL_FOLDER, keep_strangers=True) as unfinished:
        shutil.copytree(run / _FINAL / MODEL, unfinished, dirs_exist_ok=True, ignore=NOT_COPIED)
        families.save(model, unfinished)


def _label_check(
    config: FinetuneConfig, plan: FoldPlan, task: Task, answers: Sequence[Prediction], run: Path
) -> dict[str, object]:
    """Lists the rows whose labels the out-of-fold answers contradict, which cost no further training."""
    if not task.one_label or config.label_check == "none" or len(answers) < MIN_BASELINE_ROWS:
        return {}
    numbers = [i for fold in plan.folds for i in fold.predicted]
    rows = suspects_of(task, plan.rows, {i: one.scores for i, one in zip(numbers, answers, strict=True)})
    return list_suspects(run, rows, len(answers), plan.final, "fine-tuned on the other folds")


def _summed(
    config: FinetuneConfig,
    plan: FoldPlan,
    results: Mapping[str, Json],
    final: Mapping[str, object],
    calibrated: Calibrated,
    task: Task,
) -> dict[str, object]:
    """Returns results.json but for the out-of-fold scores."""
    metrics, first = plan.final.metrics, next(iter(results.values()))["dev"]
    choices = {label: one.as_json() for label, one in task.choices.items()}
    scaling = calibration.scaling_json(config, calibrated, ON, sum(len(fold.predicted) for fold in plan.folds))
    timed = [
        f"{len(plan.rows) - sum(len(fold.predicted) for fold in plan.folds):,} of the earliest rows are only learned"
    ]
    return {
        "metrics": list(metrics),
        "labels": list(task.labels),
        "rows": len(plan.rows),
        "train_examples": final["train_examples"],
        "fitted": {name: getattr(config, name) for name in FITTED},
        "folds": {
            name: {"rows": one["dev"].get("examples"), **{metric: one["dev"][metric] for metric in metrics}}
            for name, one in results.items()
        },
        "over_folds": {
            metric: over_folds([one["dev"][metric] for one in results.values()], plan, metric).as_json()
            for metric in metrics
        },
        "positive": first.get("positive", {}),
        **({"thresholds": {"goal": config.optimize or "f1", "on": ON, "labels": choices}} if choices else {}),
        **scaling,
        "notes": [
            *(note for note in plan.final.notes if note != LEARNED_NOTE),
            *(timed if config.time else []),
            *balance.threshold_notes(task),
            *calibration.scaling_notes(config, scaling),
        ],
    }


def over_folds(values: Sequence[float], plan: FoldPlan, metric: str) -> SeedSummary:
    """Returns the mean of a metric over folds with a 95% interval for rows of another draw.

    The models of folds learn from common rows, so their values are no independent ones. Nadeau and Bengio 2003, 3.1,
    add the ratio of predicted to learned rows to the variance.
    """
    plain = SeedSummary.over(values)
    if plain.sd is None or plain.low is None:
        return plain
    predicted = sum(len(fold.predicted) for fold in plan.folds)
    ratio = predicted / sum(len(fold.examples.train) + len(fold.examples.select) for fold in plan.folds)
    half = (plain.mean - plain.low) * (1 + len(values) * ratio) ** 0.5
    lowest, highest = metric_range(metric)
    return replace(plain, low=max(lowest, plain.mean - half), high=min(highest, plain.mean + half))


def _split_cells(plan: FoldPlan, row: Example) -> dict[str, object]:
    """Returns by what a row was put into its fold: its group, and when it was written."""
    cells: dict[str, object] = {plan.config.group: row.group} if plan.config.group else {}
    if row.time is not None:
        dated, number = row.time
        cells[plan.config.time] = datetime.fromtimestamp(number, UTC).isoformat() if dated else number
    return cells


def _records(plan: FoldPlan, answers: Sequence[Prediction]) -> list[dict[str, object]]:
    """Returns the rows with the out-of-fold answers, in the order of the file."""
    numbers = [(i, fold.name.removeprefix("fold-")) for fold in plan.folds for i in fold.predicted]
    form, records = Form(), []
    for (i, fold), answer in sorted(zip(numbers, answers, strict=True), key=lambda one: one[0][0]):
        row = plan.rows[i]
        values = flatten_answer(answer.as_json())
        tags = answer.label if isinstance(answer.label, tuple) else None  # which are in `words`
        own = {"predicted_label": values.pop("label", tags), **values}
        own.pop("scores", None)
        fields = {**_split_cells(plan, row), **plan.final.columns.fields(row.texts, row.label)}
        records.append(form.joined(fields, {"line": row.line, "fold": fold}, own))
    return records
