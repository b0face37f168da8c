"""A search for smaller models: makes each recipe, measures it next to the original model, and keeps the best.

    OUT/tried.jsonl       the figures of each recipe; a stopped search resumes from it
    OUT/tried/<recipe>/   its model
    OUT/training/         unfinished students, and the teacher's answers
    OUT/model/            the fastest model within the limits
    OUT/results.json, report.html

Recipes: compression/prune.py. Paired intervals: metrics/compare.py.
"""

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import xxhash

from bertie.apps.compress.measure import weight_bytes
from bertie.apps.compress.page import name_labelled_metric, render_compression_page
from bertie.platform import (
    BadRecord,
    BertieError,
    Compression,
    DataError,
    Example,
    File,
    FolderKind,
    ModelFolder,
    PairedDifference,
    Prediction,
    Predictor,
    Recipe,
    SkipReport,
    TableFormat,
    TorchModel,
    UsageError,
    console,
)

TRIED, TRAINING, SETTINGS = "tried", "training", "settings.json"
MODEL, RESULTS, REPORT = "model", "results.json", "report.html"
_FIGURES_FILE = f"{TRIED}.jsonl"
RESAMPLED = 400_000  # examples counted again and again for one interval
SEARCH = FolderKind(
    "compression",
    begins=(SETTINGS,),
    files=(SETTINGS, _FIGURES_FILE, RESULTS, REPORT),
    folders={
        TRIED: FolderKind("models", ("*",), (), {"*": FolderKind.named("model")}),
        TRAINING: FolderKind.named("folder"),
        MODEL: FolderKind.named("model"),
    },
)


@dataclass(frozen=True)
class CompressionLimits:
    """Limits: largest loss of the metric, largest size of the weights in bytes, smallest relative speed."""

    max_drop: float
    bytes: float | None = None
    faster: float | None = None

    def kept(self, row: Mapping[str, Any]) -> bool:
        """Returns whether a measured model is within the limits."""
        small = self.bytes is None or row["bytes"] <= self.bytes
        quick = self.faster is None or row["rate"]["faster"] >= self.faster
        return bool(small and quick and -row["difference"]["difference"] <= self.max_drop)


@dataclass(frozen=True)
class SearchData:
    """The data of a search: labeled examples to measure with, labeled examples to train on, texts without labels.

    texts: single texts or pairs.
    """

    dev: Path
    train: Path | None = None
    texts: tuple[tuple[str, ...], ...] = ()
    format: TableFormat = field(default_factory=TableFormat)


def search_recipes(
    model: Path,
    out: Path,
    data: SearchData,
    limits: CompressionLimits,
    *,
    minutes: float | None = None,
    epochs: float = 3.0,
    overwrite: bool = False,
    force: bool = False,
) -> dict[str, Any]:
    """Tries all recipes, or as many as fit into `minutes`, and writes the best model to OUT/model. -> results.json

    Raises UsageError for an int8 model or the folder of another search. Raises DataError if no model is within the
    limits (unless force), after results and report were written.
    """
    ready = _Search(model, out, data, epochs)
    recipes = ready.recipes(small=limits.bytes is not None)
    with SEARCH.held(out, overwrite=overwrite):
        SEARCH.unseal(out)
        ready.agree()
        began = time.monotonic()
        for recipe in recipes:
            if recipe.name in ready.tried:
                continue
            if minutes is not None and time.monotonic() - began > 60 * minutes:
                console.say(
                    f"The {minutes:g} minutes are over: {len(ready.tried)} of {len(recipes)} recipes are tried."
                )
                break
            try:
                ready.attempt(recipe)
            except BertieError as error:
                if error.exit_code != BertieError.exit_code:
                    raise
                console.warn(f"{recipe.name}: {error}")
        return ready.finish(limits, count=len(recipes), force=force)


class _Search:
    """The inputs of a search, read before the folder is changed, and the models tried so far."""

    def __init__(self, model: Path, out: Path, data: SearchData, epochs: float) -> None:
        self.folder, self.out, self.data, self.epochs = model, out, data, epochs
        self.model = ModelFolder(model).load(trainable=True)
        self.predictor = Predictor(self.model)
        self.model.training_facts.check_reads_texts("bertie compress")
        self.task = self.predictor.task
        self.metric = self.task.metrics[0]
        self.positive: dict[str, str] = getattr(self.task.scores(), "positives", {})
        self.dev = [one for one in self._examples(data.dev) if one.label is not None]
        if not self.dev:
            raise DataError(f"{data.dev} has no labels, so nothing can be measured on it.")
        self.train = [] if data.train is None else self._examples(data.train)
        self.tried = dict[str, dict[str, Any]]()
        texts = [one for one in data.texts if len(one) == (self.predictor.pipeline.texts or 1)]
        self.smaller = Compression(self.model, self.train, texts, epochs)

    def _examples(self, path: Path) -> list[Example]:
        examples, skipped = SkipReport.collect(
            self.task.rows(path, self.predictor.pipeline.reading(self.data.format)), str(path)
        )
        if skipped.total:
            console.warn(f"{path}: {skipped}")
        return examples

    @cached_property
    def answers(self) -> list[Prediction | BadRecord]:
        """The predictions of the original model."""
        return _answers(self.predictor, self.dev)

    def recipes(self, *, small: bool) -> list[Recipe]:
        """Returns the recipes for this model and these data. small: there is a limit of the size."""
        if not self.smaller.suits_int8:
            console.say(
                "No int8 models are tried: there are too few texts (--texts), or the native encoder does not support "
                "the model."
            )
        recipes = self.smaller.recipes(small=small)
        if not recipes:
            raise UsageError(
                "There is nothing to try. Pass labeled examples to train on (--train FILE) or texts (--texts FILE)."
            )
        return recipes

    def agree(self) -> None:
        """Writes the inputs to settings.json. Raises UsageError if the folder belongs to another search."""
        settings = {
            "model": ModelFolder(self.folder).fingerprint,
            "dev": _digest(self.dev),
            "train": _digest(self.train),
            "texts": xxhash.xxh3_64_hexdigest("\n".join("\t".join(one) for one in self.data.texts).encode()),
            "epochs": self.epochs,
        }
        path = self.out / SETTINGS
        known = File(path).read_json() if path.exists() else settings
        if changed := [name for name in settings if known.get(name) != settings[name]]:
            raise UsageError(
                f"{self.out} holds a search with another {' and '.join(changed)}. Choose another folder, or pass "
                "--overwrite to replace it."
            )
        File(path).write_json(settings)
        self.tried = _read(self.out / _FIGURES_FILE)

    def attempt(self, recipe: Recipe) -> None:
        """Makes one model, measures it, and writes both."""
        console.say(f"[bold]{recipe.name}[/]", markup=True)
        began = time.monotonic()
        small, near = self._made(recipe)
        where = self.out / TRIED / recipe.folder
        where.parent.mkdir(exist_ok=True)
        with FolderKind.named("model").new(where, keep_strangers=True) as folder:
            ModelFolder(self.folder).write_like(small, folder)
        row: dict[str, object] = {"recipe": asdict(recipe), "name": recipe.name, "folder": f"{TRIED}/{recipe.folder}"}
        row |= self._measured(small, where)
        row |= {"near": near and near["enough"], "seconds": round(time.monotonic() - began, 1)}
        row |= {"cosines": near} if near else {}
        with open(self.out / _FIGURES_FILE, "a", encoding="utf-8") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
        self.tried[recipe.name] = row
        shutil.rmtree(self.out / TRAINING / recipe.folder, ignore_errors=True)
        console.say(f"  {figures_in_words(row, self.metric, self.positive)}")

    def _made(self, recipe: Recipe) -> tuple[TorchModel, Mapping[str, Any] | None]:
        """Returns the model of a recipe, and how near a quantized one is to the float model."""
        if recipe.bits is not None:
            base = recipe.in_float
            small = ModelFolder(self.out / TRIED / base.folder if base.cuts else self.folder).load()
            return small, self.smaller.quantize(recipe, small).as_json()
        training = self.out / TRAINING
        return self.smaller.student(recipe, training / recipe.folder, training / "answers"), None

    @console.working("measuring")
    def _measured(self, small: TorchModel, folder: Path) -> dict[str, object]:
        predictor = Predictor(small, pipeline=self.predictor.pipeline)
        rows = [
            (example, ours, theirs)
            for example, ours, theirs in zip(self.dev, _answers(predictor, self.dev), self.answers, strict=True)
            if isinstance(ours, Prediction) and isinstance(theirs, Prediction)
        ]
        length = self.predictor.max_length
        encoded = self.task.encode(self.dev[:2000], self.predictor.tokenizer, max_length=length, too_long="truncate")
        return {
            "parameters": sum(one.numel() for one in small.parameters()),
            "bytes": weight_bytes(folder),
            self.metric: self._figure([(example, ours) for example, ours, _ in rows]),
            "agreement": _agreement(rows),
            "difference": self._apart(small, rows).as_json(),
            "rate": self.smaller.rate(predictor, encoded, [self.task.output]).as_json(),
        }

    def _apart(self, small: TorchModel, rows: Sequence[tuple[Example, Prediction, Prediction]]) -> PairedDifference:
        if small is self.model:
            return PairedDifference(0.0, 0.0, 0.0, 1.0)
        return PairedDifference.of_rows(self.task, self.task, rows, resamples=RESAMPLED)[self.metric]

    def _figure(self, rows: Sequence[tuple[Example, Prediction]]) -> float:
        scores = self.task.scores()
        self.task.count(scores, [one for one, _ in rows], [answer for _, answer in rows])
        return float(scores.compute()[self.metric])

    def finish(self, limits: CompressionLimits, *, count: int, force: bool) -> dict[str, object]:
        """Chooses a model, and writes it with results and report."""
        rows = list(self.tried.values())
        teacher = self._measured(self.model, self.folder)
        for row in rows:
            row["front"] = not any(_beats(other, row, self.metric) for other in [teacher, *rows])
            row["kept"] = limits.kept(row)
        able = [row for row in rows if row["kept"]]
        chosen = max(able, key=lambda row: row["rate"]["faster"], default=None)
        if chosen is None and force and rows:
            chosen = max(rows, key=lambda row: row["difference"]["difference"])
        results = {
            "metric": self.metric,
            "positive": self.positive,
            "examples": len(self.dev),
            "limits": asdict(limits),
            "teacher": teacher,
            "tried": rows,
            "wanted": count,
            "chosen": None if chosen is None else chosen["name"],
        }
        if chosen is not None:
            self._keep(chosen)
        elif (self.out / MODEL).exists():
            console.warn(f"{self.out / MODEL}, which was chosen with other limits, is deleted.")
            shutil.rmtree(self.out / MODEL)
        shutil.rmtree(self.out / TRAINING, ignore_errors=True) if len(rows) == count else None
        File(self.out / RESULTS).write_json(results)
        with console.no_failure(self.out / REPORT):
            render_compression_page(results).save(self.out / REPORT)
        SEARCH.seal(self.out)
        if not rows:
            raise DataError(
                "No model was measured, because the time of --minutes was over or training diverged. Allow more "
                "minutes, or give more examples (--train)."
            )
        if chosen is None:
            raise DataError(
                f"None of {len(rows)} models is within the limits. {self.out / REPORT} shows all of them. "
                "Relax --max-drop, --size or --speed, give more examples (--train), or write the best with --force."
            )
        return results

    def _keep(self, row: Mapping[str, Any]) -> None:
        with FolderKind.named("model").new(self.out / MODEL, keep_strangers=True) as folder:
            shutil.copytree(self.out / row["folder"], folder, dirs_exist_ok=True)
            card = folder / "README.md"
            short = "" if row["kept"] else " It misses the limits and was written with --force."
            figures = figures_in_words(row, self.metric, self.positive)
            said = f"\nMade smaller by `bertie compress`: {row['name']}. {figures}.{short}\n"
            card.write_text(card.read_text("utf-8") + said, "utf-8")


def figures_in_words(row: Mapping[str, Any], metric: str, positive: Mapping[str, str]) -> str:
    """Returns the figures of a model in one line. positive: the label of a binary metric."""
    apart, speed, name = row["difference"], row["rate"], name_labelled_metric(metric, positive)
    return (
        f"{name} {row[metric]:z.4f} ({apart['difference']:+z.4f}, 95% interval {apart['low']:+z.4f} to "
        f"{apart['high']:+z.4f}), {row['bytes'] / 1e6:.1f} MB, {speed['faster']:.2f} times as fast: "
        f"{speed['tokens_per_s']:,.0f} tokens/s, one text {speed['p50_ms']:.1f} ms (99%: {speed['p99_ms']:.1f})"
    )


def _beats(other: Mapping[str, Any], row: Mapping[str, Any], metric: str) -> bool:
    """Returns whether another model is at least as good in size, speed and metric, and better in one of them."""
    ours = (-row["bytes"], row["rate"]["faster"], row[metric])
    theirs = (-other["bytes"], other["rate"]["faster"], other[metric])
    return all(a >= b for a, b in zip(theirs, ours, strict=True)) and theirs != ours


def _agreement(rows: Sequence[tuple[Example, Prediction, Prediction]]) -> float | None:
    """Returns the share of examples with the same answer from both models; None for numbers."""
    pairs = [(_named(ours.label), _named(theirs.label)) for _, ours, theirs in rows]
    if any(ours is None for ours, _ in pairs):
        return None
    return sum(bool(ours == theirs) for ours, theirs in pairs) / max(1, len(pairs))


def _named(label: object) -> object:
    """Returns an answer without the numbers of a model of several tasks; None for a number alone."""
    if isinstance(label, dict):
        return {name: one for name, one in label.items() if not isinstance(one, float)} or None
    return None if isinstance(label, float) else label


def _answers(predictor: Predictor, examples: Sequence[Example]) -> list[Prediction | BadRecord]:
    return [answer for _, answer in predictor.stream(examples)]


def _read(path: Path) -> dict[str, dict[str, Any]]:
    """Returns the models tried so far, by name, whose folders are there. A partially written last line is dropped.

    Raises DataError for another damaged line.
    """
    rows = File(path).read_journal()
    return {row["name"]: row for row in rows if (path.parent / row["folder"]).is_dir()}


def _digest(examples: Sequence[Example]) -> str:
    fields = ((*example.texts, str(example.label)) for example in examples)
    return xxhash.xxh3_64_hexdigest(json.dumps([*fields], ensure_ascii=False).encode())
