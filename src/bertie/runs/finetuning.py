"""One fine-tuning run, from examples to RUN/model and results.json. finetune.py calls it."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xxhash

from bertie import console, families
from bertie.checksums import CHECKSUMS
from bertie.data.sequences import VECTORS, Sequences
from bertie.errors import DataError, UsageError
from bertie.evaluation.baselines import baselines, compared, measured
from bertie.files import read_json, write_json
from bertie.folders import new_folder
from bertie.infer.batching import CHUNK
from bertie.infer.engine import Array
from bertie.infer.findings import Findings
from bertie.infer.pipeline import TextCount
from bertie.infer.predict import LABELLED, Predictor
from bertie.io.lines import BadRecord
from bertie.io.tables import Example
from bertie.metrics.base import Scores
from bertie.models.codec import only_here
from bertie.models.folder import MODEL_FOLDER
from bertie.models.saving import own_settings
from bertie.models.sentence import read_sentence, with_activation
from bertie.runs import balance, model_card, usage
from bertie.runs.config import FinetuneConfig
from bertie.runs.examples import Examples, nothing_left
from bertie.runs.finetune_page import page
from bertie.runs.folder import FINDINGS, RunFolder
from bertie.runs.forecast import RunForecast
from bertie.runs.label_check import check_labels
from bertie.runs.models import BEST, MODEL, SCORE, model_folder
from bertie.runs.start import fingerprint, odd, start_model, with_rate
from bertie.tasks import Prediction, with_task
from bertie.tasks.losses import LossFunction
from bertie.tasks.source import Targets, TaskSource, batch_of_examples, steps_of
from bertie.train import checkpoint, log
from bertie.train.callbacks import LOSS, Callback, Callbacks, improves, is_loss, metric_of
from bertie.train.loop import Result, fit, temporary_run
from bertie.train.precision import choose_device
from bertie.train.resume import flatten
from bertie.train.trackers import callbacks_of, without_callbacks
from bertie.training_facts import TooLong, TrainingFacts

NOT_OF_A_MODEL = shutil.ignore_patterns(SCORE, CHECKSUMS)  # in a run's best/
LOOKS = 10  # evaluations on dev in a long run
FIRST_LOOK = 50  # dev examples tried before training, so that a broken set-up fails in seconds, not at the first dev

Without = dict[str, list[Prediction]]  # what is answered without a model, by baseline


class Run:
    """Everything that a run needs, made before its folder is created, so that bad input leaves no files."""

    def __init__(
        self,
        config: FinetuneConfig,
        run: Path,
        examples: Examples,
        callbacks: Sequence[Callback] = (),
        without: Without | None = None,
        loss: LossFunction | None = None,
    ) -> None:
        self.loss = loss
        self.config, self.run, self.examples = config, run, examples
        self.start = model_folder(config.model)
        self.metric = config.train.metric or examples.metrics[0]
        self.callbacks = Callbacks([*callbacks_of(config.train, self.metric), *callbacks])
        if config.train.metric:  # refused now, not at the first evaluation
            metric_of(dict.fromkeys((LOSS, *examples.task.scores().compute()), 0.0), self.metric)
        self.without = Without() if without is None else without
        self.task, kept = examples.task.continued(read_sentence(self.start, {}), config.task_options)
        size = config.train.batch_size
        if size // -(-size // (config.train.micro_batch_size or size)) < self.task.least_batch:  # the smallest pass
            raise UsageError(
                "This task compares the texts of a forward pass. Set train.batch_size, and train.micro_batch_size if "
                f"it is set, to at least {self.task.least_batch}."
            )
        self.too_long: TooLong = config.too_long or self.task.too_long
        self.notes = [*examples.notes, *kept]
        if config.weight and "weighted_scores" not in self.task.honours:
            self.notes.append("weights of rows are in the loss; the scores of this task have none")
        sizes = {example.vectors.shape[1] for example in examples.train if example.vectors is not None}
        self.model, self.fresh = start_model(config, self.start, self.task, max(sizes, default=None))
        assert self.model.tokenizer is not None
        # Only a pair is scored by a cross-encoder, so a model of single texts must not look like one.
        activation = self.task.activation_of_score if examples.texts == 2 else None
        self.model.public = with_activation(self.model.public, activation)
        self.task = self.task.with_tokenizer(self.model.tokenizer)
        if self.task.honours:
            self.task = self.task.with_loss(balance.loss_options(config, self.task, examples.train, loss))
        self.model.training_facts = self._training_facts()
        if told := only_here(own_settings(self.model)):
            self.notes.append(told)
        self.config = config = with_rate(config, self.model, self.notes)
        self.warnings = odd(config, self.model, examples.train if self.task.labels else ())
        self.warnings += self.task.warnings(examples.train) + balance.warning(config, self.task, examples.train)
        self.predictor = Predictor(self.model)
        self.train = self._encode(examples.train, "training")
        self.dev = self._encode(examples.dev, "dev")
        self.selecting = (examples.select, self._encode(examples.select, "selecting")) if examples.select else None
        targets = self.task.targets(examples.train, self.train)
        self._check_targets(targets)
        if note := self.task.cut_targets(examples.train, targets):
            self.notes.append(f"training: {note}")
        self.source = TaskSource(
            self.train,
            targets,
            batch_size=config.train.batch_size,
            micro_batch_size=config.train.micro_batch_size,
            seed=config.train.seed,
            order=examples.order(config.train.seed),
        )
        # Contents instead of paths: a run can be resumed after its files have moved, but not after they have changed.
        self.identity = {
            "model": fingerprint(self.model),
            "train_file": self.source.fingerprint,
            "dev_file": _fingerprint_of(self.dev, [str(example.label) for example in examples.dev]),
            **(
                {"selecting": _fingerprint_of(self.looked_at, [str(one.label) for one in examples.select])}
                if self.selecting
                else {}
            ),
            "data_dir": "",
            **({"loss_function": f"{loss.__module__}.{loss.__qualname__}"} if loss is not None else {}),
        }

    @classmethod
    def check(cls, config: FinetuneConfig, examples: Examples) -> None:
        """Raises what a run with this config would raise before its folder is made."""
        cls(with_steps(config, examples.epoch), Path(), examples)
        choose_device(config.train.device)

    def settings(self) -> dict[str, Any]:
        """The fingerprint of the run: all settings, and the content of the files in them."""
        return flatten(self.config.model_dump(mode="json")) | self.identity

    def go(self, resume: str, forecast: RunForecast | None = None) -> dict[str, Any]:
        """Trains, evaluates and saves the model. forecast: what the run is expected to take, for its report."""
        config = self.config
        for note in self.notes:
            console.say(note)
        for warning in self.warnings:
            console.warn(warning)
        self.meter = usage.meter(config.train.device)
        self.model.to(choose_device(config.train.device))  # for the first look, and for features that are computed once
        self.measure(FIRST_LOOK)
        result = fit(
            self.model,
            self.task,
            self.source.with_computed(self.task.computed(self.model, self.train)),
            train=without_callbacks(config.train, self.metric),
            optim=config.optim,
            run=self.run,
            config=config,
            identity=self.identity,
            evaluate=self._evaluate,
            save_model=self.save_settled,
            resume=resume,
            allow_change=None,
            begin=self._begin,
            callbacks=[self.callbacks],
            meter=self.meter,
        )
        results = self._finish(forecast, result)
        self.callbacks.end(results)
        return results

    def _settle(self) -> None:
        """Sets the weights that the loss does not train, from all others in float32."""
        was_training, dtype = self.model.training, self.model.compute_dtype
        self.model.eval()
        self.model.compute_dtype = None
        self.task.settle(self.model, self.train, self.source.targets)
        self.model.compute_dtype = dtype
        self.model.train(was_training)

    def save_settled(self, folder: Path) -> None:
        """Writes the model's folder, with the weights that the loss does not train."""
        self._settle()
        self._save(folder)

    def _begin(self, found: checkpoint.Checkpoint | None) -> None:
        """Prepares the folder. Best weights that are not of this run's steps up to `found` are deleted."""
        if found is None or not found.belongs_to(self.run):  # of a run that was killed before its first checkpoint
            shutil.rmtree(self.run / BEST, ignore_errors=True)
            if found is not None and self.config.keeps_best:
                self._take_best(found)
        RunFolder(self.run).begin(partial(self.save, weights=False))

    def _take_best(self, found: checkpoint.Checkpoint) -> None:
        """Copies the best weights so far of the run whose checkpoint this one starts from.

        Raises UsageError when later, better ones have replaced them.
        """
        source, metric = found.folder.resolve().parent, self.metric
        looks = [line for line in log.read(source) if line["kind"] == "valid" and line["step"] <= found.step]
        if not looks:
            return
        best = (min if is_loss(metric) else max)(line[metric] for line in looks)
        if not (source / BEST / SCORE).is_file() or read_json(source / BEST / SCORE).get(metric) != best:
            raise UsageError(
                f"{found.folder} cannot be resumed with select=best: {source / BEST} no longer has the best weights "
                f"of its first {found.step:,} steps ({metric} {best:z.4f}). Choose a later checkpoint, or "
                "select=last."
            )
        with new_folder(self.run / BEST, MODEL_FOLDER, keep_strangers=True) as made:
            shutil.copytree(source / BEST, made, dirs_exist_ok=True, ignore=shutil.ignore_patterns(CHECKSUMS))

    def _training_facts(self) -> TrainingFacts:
        config, columns = self.config, self.examples.columns
        facts = TrainingFacts(
            max_length=config.max_length,
            too_long=self.too_long,
            texts=self.examples.texts,
            text_columns=config.text or (columns.text if columns.recognized else ()),
            label_column=config.label or (columns.label or "" if columns.recognized else ""),
            label_separator=config.label_separator,
            encoding="" if config.encoding == LABELLED.file.encoding else config.encoding,
            features=config.features if config.features.column else None,
        )
        return with_task(facts, self.task)

    def _check_targets(self, targets: Targets) -> None:
        """Raises DataError where the loss would ignore every training example."""
        count = len(self.train.lengths)
        for start in range(0, count, CHUNK):
            batch = batch_of_examples(self.train, np.arange(start, min(count, start + CHUNK)), targets)
            if any(self.task.counts(batch).values()):
                return
        notes = "".join(f" {note}." for note in self.notes)
        raise DataError(f"The model can learn nothing from the {len(self.examples.train):,} training examples.{notes}")

    def _encode(self, examples: list[Example], what: str) -> Sequences:
        config = self.config
        tokenizer = self.predictor.tokenizer
        if bad := [row for row in map(self.predictor.pipeline.readable, examples) if isinstance(row, BadRecord)]:
            raise DataError(
                f"{len(bad):,} of {len(examples):,} {what} examples cannot be read. Line {bad[0].line}: "
                f"{bad[0].reason}. Remove them, or change features.patch_size, features.picture_size or max_length."
            )
        encoded = self.task.encode(examples, tokenizer, max_length=config.max_length, too_long=self.too_long)
        count = TextCount(self.too_long, config.max_length)
        count.add(encoded, tokenizer)
        if count.long and self.too_long == "error":
            lines = ", ".join(str(examples[i].line) for i in encoded.too_long[:5])
            raise DataError(
                f"{count.long:,} of {count.rows:,} {what} texts are longer than {config.max_length} tokens, on lines "
                f"{lines}{' ...' if count.long > 5 else ''}. "
                "Raise max_length, or choose too_long=truncate or too_long=window."
            )
        self.notes += [f"{what}: {note}" for note in count.notes]
        if VECTORS not in encoded.extra and len(bare := nothing_left(encoded, tokenizer)):
            lines = ", ".join(str(examples[i].line) for i in bare[:5].tolist())
            more = ", ..." if len(bare) > 5 else ""
            self.notes.append(f"{what}: {len(bare):,} examples are empty after cleaning (line {lines}{more})")
        return encoded

    def _evaluate(self, step: int) -> dict[str, float]:
        found = self.measure()
        if self.config.keeps_best and self._is_best(found[self.metric]):
            self._save(self.run / BEST, {SCORE: {self.metric: found[self.metric]}})
        return found

    def _is_best(self, value: float) -> bool:
        path = self.run / BEST / SCORE
        return not path.exists() or improves(self.metric, value, float(read_json(path)[self.metric]))

    def measure(self, most: int | None = None) -> dict[str, float]:
        """Returns loss and metrics of the (first) examples that select the weights, dev if no others do.

        Those with unknown labels count only in the metrics.
        """
        self._settle()
        was_training = self.model.training
        self.model.eval()
        scores, totals, counts = self.task.scores(), dict[str, float](), dict[str, float]()
        for examples, encoded, logits in self._logits(most, self.selecting):
            targets = self.task.targets(examples, encoded)
            for name, part in self.task.dev_losses(self.model, encoded, targets, torch.from_numpy(logits)).items():
                totals[name] = totals.get(name, 0.0) + float(part.total)
                counts[name] = counts.get(name, 0.0) + part.count
            self.task.count(scores, examples, self.task.decode(logits, encoded, examples))
        self.model.train(was_training)
        return {"loss": sum(totals[name] / (counts[name] or 1) for name in totals), **scores.compute()}

    @property
    def looked_at(self) -> Sequences:
        """The examples of an evaluation during training."""
        return self.selecting[1] if self.selecting else self.dev

    def _logits(
        self, most: int | None = None, of: tuple[list[Example], Sequences] | None = None
    ) -> Iterator[tuple[list[Example], Sequences, Array]]:
        """Yields the (first) examples, by default of dev, with their logits, in chunks as in prediction."""
        examples, encoded = of or (self.examples.dev, self.dev)
        total = min(most or encoded.examples, encoded.examples)
        for start in range(0, total, CHUNK):
            stop = min(start + CHUNK, total)
            part = encoded.part(start, stop)
            yield examples[start:stop], part, self.predictor.logits(part)

    def answer_first(self, most: int) -> None:
        """Answers the first dev examples as `_finish` does, for a trial of the time."""
        for _ in self._answers(self.task.scores(), Findings(self.task, self.examples.metrics[0]), most):
            pass

    def reload(self, folder: Path) -> None:
        """Takes the weights of a model folder."""
        saved, _ = families.load(folder)
        self.model.load_state_dict(saved.state_dict())

    def _answers(
        self,
        scores: Scores,
        findings: Findings | None = None,
        most: int | None = None,
        of: tuple[list[Example], Sequences] | None = None,
    ) -> Iterator[tuple[Example, Prediction]]:
        """Yields the (first) examples, by default of dev, with their predictions, and counts them."""
        for examples, encoded, logits in self._logits(most, of):
            answers = self.task.decode(logits, encoded, examples)
            self.task.count(scores, examples, answers)
            if findings is not None:
                findings.add(examples, answers, encoded.tokens.tolist(), encoded.fits.tolist())
            yield from zip(examples, answers, strict=True)

    def _save(self, folder: Path, files: Mapping[str, Any] | None = None) -> None:
        """Writes the model's folder atomically. files: more JSON files, by name."""
        with new_folder(folder, MODEL_FOLDER, keep_strangers=True) as made:
            self.save(made)
            for name, value in (files or {}).items():
                write_json(made / name, value)

    def save(self, folder: Path, *, weights: bool = True) -> None:
        """Writes the model's files, or all but its weights."""
        families.save(self.model, folder, weights=weights)
        for name, value in self.task.files(self.model.config, self.config.max_length).items():
            (folder / name).parent.mkdir(exist_ok=True)
            write_json(folder / name, value)

    def _compares(self) -> bool:
        """Whether baselines are evaluated too."""
        return bool(self.config.baselines and self.task.baselines)

    def _beside(self, report: dict[str, Any], answers: dict[int, Prediction]) -> dict[str, Any]:
        """Returns the report with the scores of the baselines."""
        if not self._compares():
            return report
        examples, metric = self.examples, self.examples.metrics[0]
        if not self.without:
            console.say(f"baselines: {', '.join(self.task.baselines)}", level=1)
            self.without.update(baselines(self.task, examples.train, examples.dev))
        return {**report, "baselines": measured(self.task, examples.dev, answers, self.without, metric)}

    def _label_check(self) -> dict[str, Any]:
        """Returns the training rows whose labels are probably wrong, for the report."""
        if not self.task.one_label:
            return {}
        return check_labels(self.config.label_check, self.examples, self.run, self._predict_fold)

    def _predict_fold(self, train: list[Example], asked: list[Example]) -> list[Prediction]:
        """Fine-tunes the start model on other rows with the same settings, and predicts these."""
        with temporary_run() as place:
            plain = self.config.train.model_copy(update={"patience": None, "track": ()})
            changed = {"label_check": "none", "baselines": False, "select": "last", "train": plain}
            config = with_steps(self.config.model_copy(update=changed), len(train))
            examples = replace(self.examples, train=train, dev=asked, select=[], notes=[])
            run = Run(config, place, examples, loss=self.loss)
            run.notes, run.warnings = [], []
            run.go("never")
            return [answer for _, answer in run._answers(run.task.scores())]

    def _selection(self, trained: Result) -> list[str]:
        """Returns notes on why the run ended early, and which examples selected its weights."""
        ended = [f"the run ended early, after step {trained.step:,}: {trained.reason}"] if trained.reason else []
        if not self.config.keeps_best:
            return ended
        looks = [line for line in log.read(self.run) if line["kind"] == "valid"]
        best = (min if is_loss(self.metric) else max)(line[self.metric] for line in looks)
        step = next(line["step"] for line in looks if line[self.metric] == best)
        rows = f"{self.looked_at.examples:,} {'held-out training' if self.selecting else 'dev'} examples"
        leak = "" if self.selecting else ". The scores of dev are optimistic: measure the model on other examples"
        chosen = f"of {len(looks)} evaluations on {rows}, step {step:,} is the best ({self.metric} {best:.4g})"
        return [*ended, f"{chosen}, and the model has its weights{leak}"]

    def _thresholds(self) -> dict[str, Any]:
        """Returns how the thresholds of labels were chosen, for results.json; {} where none was."""
        choices = {label: one.as_json() for label, one in self.task.choices.items()}
        goal, on = self.config.optimize or "f1", "held-out training" if self.selecting else "dev"
        return {"thresholds": {"goal": goal, "on": on, "labels": choices}} if choices else {}

    def _finish(self, forecast: RunForecast | None, trained: Result) -> dict[str, Any]:
        """Evaluates the selected weights, loaded from where they were saved, and writes all results."""
        config, examples = self.config, self.examples
        if config.keeps_best:
            take_model(self.run / BEST, self.run / MODEL)
        self.reload(self.run / MODEL)
        self.model.compute_dtype = None  # float32, as `bertie evaluate` measures
        self.model.eval()
        untuned, before = self.task, self.task.scores()
        # On examples that are not reported, where there are such.
        tuned = untuned.tune_on_dev(
            self._answers(untuned.scores(), of=self.selecting) if self.selecting else self._answers(before)
        )
        self.task = tuned.with_tokenizer(self.predictor.tokenizer)
        if self.task != untuned:
            self.model.training_facts = self._training_facts()
            self._save(self.run / MODEL)  # with the thresholds, temperature ... that were fitted
        scores, findings = self.task.scores(), Findings(self.task, examples.metrics[0])
        chosen = compared(self.task, examples.dev) if self._compares() else set()
        told = enumerate(answer for _, answer in self._answers(scores, findings))
        answers = {i: answer for i, answer in told if i in chosen}
        used = self.meter.read()
        results = {
            "identity": self.settings(),
            "labels": list(self.task.labels),
            "fresh": self.fresh,
            "train_examples": len(examples.train),
            **({"ended_early": trained.reason} if trained.reason else {}),
            **({"selecting": self.looked_at.examples} if self.selecting else {}),
            "metrics": list(examples.metrics),
            "dev": (dev := self._beside(scores.report(), answers)),
            **balance.as_json(config, self.task, examples.train, dev),
            **self._thresholds(),
            "notes": [*self.warnings, *self.notes, *self._selection(trained), *balance.threshold_notes(self.task)],
            "usage": used.as_json(),
            **({} if forecast is None else {"forecast": forecast.as_json()}),
        }
        if self.task != untuned and not self.selecting:
            results["untuned"] = {"settings": untuned.settings(), "dev": before.report()}
        model_card.write_finetuning(self.run / MODEL, config, results)
        model_card.write_cost(self.run / MODEL, used, None if forecast is None else forecast.as_json(), config.model)
        write_json(self.run / FINDINGS, {**findings.as_json(), **self._label_check()})
        return RunFolder(self.run).finish(results, partial(page, self.run), keep=config.train.keep_checkpoints)


def _fingerprint_of(encoded: Sequences, truth: list[str]) -> str:
    digest = xxhash.xxh3_128(encoded.input_ids.tobytes() + encoded.starts.tobytes() + "\n".join(truth).encode())
    if VECTORS in encoded.extra:
        digest.update(encoded.extra[VECTORS].tobytes())
    return digest.hexdigest()


def take_model(source: Path, out: Path) -> None:
    """Copies the model of a folder, without its score and its list of files."""
    with new_folder(out, MODEL_FOLDER, keep_strangers=True) as made:
        shutil.copytree(source, made, dirs_exist_ok=True, ignore=NOT_OF_A_MODEL)


def with_steps(config: FinetuneConfig, examples: int) -> FinetuneConfig:
    """Returns the config with the number of steps of its epochs and, unless it was set, of steps between evaluations.

    A long run has `LOOKS` evaluations on dev: on a CPU, one of SQuAD's dev file takes as long as 500 steps. With
    patience, each epoch has one.
    """
    steps = steps_of(examples, batch_size=config.train.batch_size, epochs=config.epochs)
    known = {"steps": steps}
    if not {"train", "eval_every"} <= config.model_fields_set | config.train.model_fields_set:
        epoch = steps_of(examples, batch_size=config.train.batch_size, epochs=1)
        often = epoch if config.train.patience is not None else max(config.train.eval_every, -(-steps // LOOKS))
        known["eval_every"] = often
    return config.model_copy(update={"train": config.train.model_copy(update=known)})
