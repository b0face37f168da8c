"""`bertie compress`: a smaller model from a trained one."""

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertie import platform
from bertie.apps import compress as app
from bertie.apps.cli.options import grouped
from bertie.apps.cli.shared import option
from bertie.platform import DataError, UsageError, console

if TYPE_CHECKING:
    from bertie.platform import Compression, Example, Predictor, Recipe, TableFormat, TorchModel

_UNITS = {"": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9}


EPOCHS, MAX_DROP = 3.0, 0.01  # defaults, if the options are not given


@dataclass(frozen=True)
class CompressionLimitOptions:
    """Limits of the search for a smaller model."""

    max_drop: Annotated[
        float | None,
        typer.Option("--max-drop", min=0, help="With --dev: maximum loss of the metric.", show_default="0.01"),
    ] = None
    max_size: Annotated[
        str, typer.Option("--max-size", help="With --dev: maximum size of the weights, for example 16MB.")
    ] = ""
    speed: Annotated[str, typer.Option("--speed", help="With --dev: minimum speedup, for example 4x.")] = ""
    minutes: Annotated[
        float | None,
        typer.Option("--minutes", min=0, help="With --dev: minutes after which no further model is tried."),
    ] = None


_LIMITS = CompressionLimitOptions()


@dataclass(frozen=True)
class BitOptions:
    """How weights are stored."""

    int8: Annotated[
        bool | None,
        typer.Option("--int8/--no-int8", help="Quantize to int8. Default: only if no other option removes something."),
    ] = None
    int4: Annotated[
        bool,
        typer.Option("--int4", help="Store the weights in 4 bits. The folder is smaller; computation is not faster."),
    ] = False
    embeddings: Annotated[
        int, typer.Option("--embeddings", help="With --int4: bits of the word embeddings, 8 or 4.")
    ] = 8

    def of_weights(self, *, quantize: bool) -> int | None:
        """Returns 8, 4, or None for float weights. quantize: whether to store 8 bits if nothing is said."""
        int8 = quantize and not self.int4 if self.int8 is None else self.int8
        if self.embeddings not in (4, 8) or (self.embeddings == 4 and not self.int4) or (int8 and self.int4):
            raise UsageError("--embeddings is 8 or, with --int4, 4. --int8 and --int4 cannot be combined.")
        return 4 if self.int4 else 8 if int8 else None


BITS = BitOptions()


@dataclass(frozen=True)
class TrainingOptions:
    """How a smaller model is trained."""

    distil: Annotated[
        bool,
        typer.Option(
            "--distil",
            help="Train the smaller model on the predictions of the large one (distillation), for the texts of --train "
            "and --texts.",
        ),
    ] = False
    layer_wise: Annotated[
        bool, typer.Option("--layer-wise", help="Like --distil, but train layer after layer first (MobileBERT).")
    ] = False
    movement: Annotated[
        bool,
        typer.Option("--movement", help="Like --distil, but learn what to keep during training (movement pruning)."),
    ] = False
    epochs: Annotated[
        float | None,
        typer.Option("--epochs", min=0.01, help="With --distil or --dev: epochs of training.", show_default="3"),
    ] = None

    @property
    def learned(self) -> str:
        """How, as a recipe says it; empty if the smaller model is not trained."""
        if self.movement and self.layer_wise:
            raise UsageError("--movement and --layer-wise cannot be combined. Choose one of them.")
        ways = {"movement": self.movement, "layer-wise": self.layer_wise, "distilled": self.distil}
        return next((name for name, is_set in ways.items() if is_set), "")


TRAINING = TrainingOptions()


@grouped
def compress_command(
    model: Annotated[Path, option("model")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write.")],
    texts: Annotated[
        Path | None,
        typer.Option(
            "--texts",
            help="Representative texts for calibration and measurement: one per line, or a table of texts or pairs. "
            "Default: the texts of --train.",
        ),
    ] = None,
    layers: Annotated[int | None, typer.Option("--layers", min=1, help="Number of layers to keep.")] = None,
    heads: Annotated[
        int | None, typer.Option("--heads", min=1, help="Number of attention heads to keep per layer.")
    ] = None,
    neurons: Annotated[
        int | None, typer.Option("--neurons", min=1, help="Number of feed-forward neurons to keep per layer.")
    ] = None,
    trim: Annotated[
        bool, typer.Option("--trim", help="Keep only the vocabulary entries that occur in the texts of --texts.")
    ] = False,
    bits: BitOptions = BITS,
    train: Annotated[
        Path | None,
        typer.Option(
            "--train", help="Labeled examples, to rank layers, heads and neurons by importance, and to train a student."
        ),
    ] = None,
    dev: Annotated[
        Path | None,
        typer.Option("--dev", help="Labeled examples to evaluate on: try several smaller models and keep the best."),
    ] = None,
    limits: CompressionLimitOptions = _LIMITS,
    training: TrainingOptions = TRAINING,
    text: Annotated[list[str] | None, option("text")] = None,
    label: Annotated[str, option("label")] = "",
    float_: Annotated[bool, typer.Option("--float", help="Convert an int8 model back to float32.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Write the model even if it misses the quality threshold.")
    ] = False,
    overwrite: Annotated[bool, option("overwrite")] = False,
) -> None:
    """Make a model smaller and faster.

    Writes a model folder that every Bertie command opens, with int8 weights or with fewer layers, heads, neurons or
    vocabulary entries. Up to half of the texts calibrate int8 weights. The others measure how close the vectors are to
    those of the float model. With --dev, several smaller models are made and measured, and the fastest model within
    the limits is written. A model that misses the quality threshold is not written.

    \b
    Examples:
      bertie compress runs/reviews/model --texts reviews.txt -o models/reviews-int8
      bertie compress runs/reviews/model --neurons 768 --train train.csv -o models/narrow
      bertie compress runs/reviews/model --layers 3 --distil --train train.csv -o models/student
      bertie compress runs/reviews/model --train train.csv --dev dev.csv --max-drop 0.01 --speed 3x -o runs/small
      bertie compress models/reviews-int8 --float -o models/reviews-float
    """
    learned = training.learned
    if dev is not None:
        if float_ or trim or learned or bits != BITS or (layers, heads, neurons) != (None, None, None):
            raise UsageError(
                "With --dev, Bertie chooses what to try. Leave out --layers, --heads, --neurons, --trim, --distil, "
                "--layer-wise, --movement, --int8, --int4, --embeddings and --float."
            )
    elif limits != _LIMITS:
        raise UsageError(
            "--max-drop, --max-size, --speed and --minutes need labeled examples to measure with. Pass --dev FILE."
        )
    elif training.epochs is not None and not learned:
        raise UsageError("--epochs needs training. Pass --distil, --layer-wise or --movement too, or omit it.")
    if (text or label) and not (texts or train or dev):
        raise UsageError("--text and --label name columns of a table. Pass --texts, --train or --dev too.")
    if label and not (train or dev):
        raise UsageError("--label names a column of labeled examples. Pass --train or --dev too, or omit it.")
    epochs = EPOCHS if training.epochs is None else training.epochs
    if not isfinite(epochs):
        raise UsageError(f"--epochs is {epochs}; it must be a number of 0.01 or more.")
    request = _Asked(model, output, texts, train, dev, tuple(text or ()), label, epochs, overwrite, force)
    if dev is not None:
        _search(request, limits)
    else:
        recipe = platform.Recipe(layers, heads, neurons, learned)
        quantized = bits.of_weights(quantize=not (recipe.cuts or trim or learned or float_))
        if texts is not None and not (trim or learned or quantized):
            raise UsageError("--texts has no effect here. Pass --int8, --int4, --trim or --distil too, or omit it.")
        recipe = replace(recipe, bits=quantized, embeddings=bits.embeddings)
        _write(request, recipe, console.call_hash(), trim=trim, float_=float_)


@dataclass(frozen=True)
class _Asked:
    """The options of both ways to compress."""

    model: Path
    output: Path
    texts: Path | None
    train: Path | None
    dev: Path | None
    text: tuple[str, ...]
    label: str
    epochs: float
    overwrite: bool
    force: bool

    def read_texts(self) -> list[tuple[str, ...]]:
        """The texts of --texts: the lines of a text file, or the rows of a table."""

        if self.texts is None:
            return []
        lines = platform.SourceFile(self.texts).table_kind == "lines"
        format = platform.SourceFile(self.texts).text_format(() if lines and (self.train or self.dev) else self.text)
        if lines:
            return [(text,) for text in platform.SourceFile(self.texts).lines()]
        examples, skipped = platform.SkipReport.collect(
            platform.SourceFile(self.texts).examples(format), str(self.texts)
        )
        if skipped.total:
            console.warn(f"{self.texts}: {skipped}")
        return [example.texts for example in examples]

    def examples(self, predictor: "Predictor") -> "list[Example]":
        """The examples of --train."""

        assert self.train is not None
        rows = predictor.task.rows(self.train, predictor.pipeline.reading(self.format()))
        examples, skipped = platform.SkipReport.collect(rows, str(self.train))
        if skipped.total:
            console.warn(f"{self.train}: {skipped}")
        return examples

    def format(self) -> "TableFormat":
        return platform.TableFormat.of(self.text, self.label)


def _write(request: _Asked, recipe: "Recipe", by: str, *, trim: bool, float_: bool) -> None:
    source = platform.ModelFolder(request.model)
    source.check_output(request.output)

    def write(folder: Path) -> dict[str, Any]:
        near = None
        small = _opened(request, float_=float_, texts=trim or (recipe.bits is not None and request.train is None))
        if recipe.cuts or recipe.learned:
            small = _cut(request, small, recipe)
        if trim:
            small = platform.Compression(small, texts=request.read_texts()).trimmed()
        if recipe.bits is not None:
            near = _calibrated(request, small).quantize(recipe)
            if not near.enough and not request.force:
                raise DataError(
                    f"The int{recipe.bits} model misses the quality threshold: {near}. Give more texts, or write it "
                    "anyway with --force."
                )
        source.write_like(small, folder)
        if near is not None:
            card = folder / "README.md"
            short = "" if near.enough else " The model misses the quality threshold and was written with --force."
            said = f"\nQuantized to int{near.bits} after training: {near}.{short}\n\n{near.layers}\n"
            card.write_text(card.read_text("utf-8") + said, "utf-8")
        return {"near": near and near.as_json(), "words": str(near)}

    facts = platform.FolderKind.named("model").made_once(request.output, by, write, overwrite=request.overwrite)
    _tell(request.model, request.output, facts["near"], facts["words"])


def _opened(request: _Asked, *, float_: bool, texts: bool) -> "TorchModel":
    """The model. texts: whether they are needed."""

    loaded = platform.ModelFolder(request.model).load()
    if float_ and not loaded.packed:
        raise UsageError(f"{request.model} has no quantized weights; it is a float model already.")
    if loaded.packed and not float_:
        raise UsageError(f"{request.model} has quantized weights already. Write a float copy first: --float")
    loaded.training_facts.check_reads_texts("bertie compress")
    if texts and request.texts is None:
        raise UsageError("No texts given. Pass --texts FILE: representative texts, one per line, or a table of pairs.")
    if loaded.tokenizer is None:
        raise UsageError(
            f"{request.model} has no tokenizer, so it cannot read texts. Copy the files of its tokenizer there."
        )
    loaded.packed = {}
    return loaded


def _cut(request: _Asked, model: "TorchModel", recipe: "Recipe") -> "TorchModel":
    if recipe.learned and (not recipe.cuts or request.train is None):
        raise UsageError(
            "--distil, --layer-wise and --movement need --train FILE and one of --layers, --heads, --neurons."
        )
    examples = [] if request.train is None else request.examples(platform.Predictor(model))
    output = request.output.resolve()
    run = output.with_name(f".{output.name}.training")  # where a stopped training is resumed
    if request.overwrite and examples:
        shutil.rmtree(run, ignore_errors=True)
    texts = request.read_texts() if examples else ()
    small = platform.Compression(model, examples, texts, request.epochs).student(recipe, run)
    shutil.rmtree(run, ignore_errors=True)
    return small


def _calibrated(request: _Asked, model: "TorchModel") -> "Compression":
    """A model with the texts to calibrate its weights on."""

    if request.texts is not None:
        read = request.read_texts()
        wants = platform.Predictor(model).pipeline.fixed_texts
        if wants is not None and any(len(row) != wants for row in read):
            expected = "pairs of texts (two columns: --text A --text B)" if wants == 2 else "single texts"
            raise UsageError(f"The model reads {expected}. {request.texts} has rows with another number of texts.")
        return platform.Compression(model, texts=read)
    return platform.Compression(model, request.examples(platform.Predictor(model)))


def _tell(model: Path, output: Path, near: Mapping[str, object] | None, words: str) -> None:
    facts: dict[str, Any] = {"output": str(output), **(near or {})}
    facts |= {"bytes": app.measure.weight_bytes(output), "bytes_before": app.measure.weight_bytes(model)}
    if console.verbosity.json:
        console.emit(facts)
        return
    if near is not None:
        console.show(words)
    console.show(f"{output}: {facts['bytes'] / 1e6:,.1f} MB of weights; {facts['bytes_before'] / 1e6:,.1f} MB before")


def _search(request: _Asked, options: CompressionLimitOptions) -> None:
    assert request.dev is not None
    limits = app.run.CompressionLimits(
        MAX_DROP if options.max_drop is None else options.max_drop, _bytes(options.max_size), _times(options.speed)
    )
    results = app.run.search_recipes(
        request.model,
        request.output,
        app.run.SearchData(request.dev, request.train, tuple(request.read_texts()), request.format()),
        limits,
        minutes=options.minutes,
        epochs=request.epochs,
        overwrite=request.overwrite,
        force=request.force,
    )
    if console.verbosity.json:
        console.emit(results)
        return
    for row in results["tried"]:
        mark = "*" if row["name"] == results["chosen"] else " "
        console.show(f"{mark} {row['name']}: {app.run.figures_in_words(row, results['metric'], results['positive'])}")
    console.show(f"{request.output / 'model'}: {results['chosen']}. The page is {request.output / 'report.html'}")


def _bytes(size: str) -> float | None:
    """16MB -> 16,000,000."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kmg]?b?)", size.lower())
    if size and (not match or match[2] not in _UNITS):
        raise UsageError(f"--max-size is {size!r}; expected a number of bytes such as 16MB.")
    return float(match[1]) * _UNITS[match[2]] if match else None


def _times(speed: str) -> float | None:
    """4x -> 4."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?x?", speed.lower())
    if speed and not match:
        raise UsageError(f"--speed is {speed!r}; expected a factor such as 4x.")
    return float(match[1]) if match else None
