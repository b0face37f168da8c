"""`bertie grow`, `bertie shrink` and `bertie vocabulary extend|trim`: a trained model in another size."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertie import console
from bertie.cli import tables
from bertie.cli.app import Commands, Overwrite, asked, emit
from bertie.errors import UsageError

if TYPE_CHECKING:
    from bertie.models.model import TorchModel

Changed = tuple["TorchModel", dict[str, Any]]  # and what else the command prints under --json
SIZES = ("parameters", "layers", "hidden_size", "vocab_size", "max_length")
Folder = tables.ModelFolder
Out = Annotated[Path, typer.Option("-o", "--output", help="Folder to write.")]
vocabulary = Commands(help="Extend or trim the vocabulary of a model.", no_args_is_help=True)


def grow(
    ctx: typer.Context,
    folder: Folder,
    out: Out,
    layers: Annotated[int | None, typer.Option(min=1, help="Number of layers of the new model.")] = None,
    how: Annotated[str, typer.Option(help="stack, interleave, or identity (pre-norm models only).")] = "stack",
    times: Annotated[int, typer.Option(min=1, help="Factor for the hidden size. The logits do not change.")] = 1,
    intermediate: Annotated[int | None, typer.Option(min=1, help="Size of the feed-forward network.")] = None,
    positions: Annotated[int | None, typer.Option(min=1, help="Maximum number of tokens of a text.")] = None,
    fill: Annotated[str, typer.Option(help="Initialization of new positions: tile or interpolate.")] = "tile",
    overwrite: Overwrite = False,
) -> None:
    """Add layers, width or positions to a model.

    Continue to train the new model afterwards.

    \b
    Example:
      bertie grow models/base -o models/deeper --layers 24 --how stack
    """
    from bertie.models.surgery import deeper, with_positions
    from bertie.models.widen import wider

    if layers is None and positions is None and times == 1 and intermediate is None:
        raise UsageError("No new size given. Pass --layers, --times, --intermediate or --positions.")

    def grown(model: "TorchModel") -> Changed:
        if layers is not None:
            model = deeper(model, layers, how=how)  # type: ignore[arg-type]  # deeper answers unknown ones
        if times > 1 or intermediate is not None:
            model = wider(model, times=times, intermediate_size=intermediate)
        if positions is not None:
            model = with_positions(model, positions, fill=fill)  # type: ignore[arg-type]
        return model, {}

    _make(ctx, folder, out, overwrite, grown)


def shrink(
    ctx: typer.Context,
    folder: Folder,
    out: Out,
    layers: Annotated[str, typer.Option(help="Layers to take, counted from 0. Default: every second layer.")] = "",
    family: Annotated[str, typer.Option(help="Family of the new model. Default: the same.")] = "",
    overwrite: Overwrite = False,
) -> None:
    """Initialize a smaller student model from a model's layers.

    Train the student by distillation from the model.

    \b
    Example:
      bertie shrink models/base -o models/student --layers 0,2,4,7,9,11 --family distilbert
    """
    from bertie.families import VARIANTS
    from bertie.models.surgery import take_layers

    try:
        chosen = [int(layer) for layer in layers.split(",")] if layers else None
    except ValueError:
        raise UsageError(
            f"--layers is {layers!r}; it must be a comma-separated list of layer numbers, for example 0,2,4."
        ) from None
    variant = VARIANTS[family] if family else None

    def shrunk(model: "TorchModel") -> Changed:
        kept = list(range(0, model.config.num_hidden_layers, 2)) if chosen is None else chosen
        return take_layers(model, kept, variant=variant), {"taken": kept}

    _make(ctx, folder, out, overwrite, shrunk)


@vocabulary.command()
def extend(
    ctx: typer.Context,
    folder: Folder,
    words: Annotated[Path, typer.Argument(help="File of words, one per line.")],
    out: Out,
    overwrite: Overwrite = False,
) -> None:
    """Add words to the vocabulary of a model.

    The embedding of a new word is the mean of the embeddings of its former tokens.

    \b
    Example:
      bertie vocabulary extend models/base words.txt -o models/medical
    """
    from bertie.models.surgery import with_vocabulary
    from bertie.text import resize

    def extended(model: "TorchModel") -> Changed:
        assert model.tokenizer is not None
        resized = resize.extend(model.tokenizer, filter(None, map(str.strip, _lines([words]))))
        for word, why in resized.left_out.items():
            console.warn(f"{word!r} {why}: skipped")
        return with_vocabulary(model, resized), {"left_out": dict(resized.left_out)}

    _make(ctx, folder, out, overwrite, extended)


@vocabulary.command()
def trim(
    ctx: typer.Context,
    folder: Folder,
    texts: Annotated[list[Path], typer.Argument(help="Text files, or corpus folders, whose tokens are kept.")],
    out: Out,
    overwrite: Overwrite = False,
) -> None:
    """Keep only the tokens that occur in some texts, and the special tokens.

    The model's output for these texts does not change.

    \b
    Example:
      bertie vocabulary trim models/multilingual korean.txt -o models/korean
    """
    from bertie.api.tokenizer import check_lines
    from bertie.models.surgery import with_vocabulary
    from bertie.text import resize

    def trimmed(model: "TorchModel") -> Changed:
        assert model.tokenizer is not None
        return with_vocabulary(model, resize.trim(model.tokenizer, _lines(texts))), {}

    for path in texts:
        if not path.is_dir():
            check_lines(path)
    _make(ctx, folder, out, overwrite, trimmed)


def _lines(paths: list[Path]) -> Any:
    from bertie.data import corpus
    from bertie.data.lines import valid_lines
    from bertie.errors import DataError

    empty = True
    for path in paths:
        for line in corpus.texts(path) if path.is_dir() else valid_lines(path):
            empty = empty and not line.strip()
            yield line
    if empty:
        raise DataError(f"{', '.join(map(str, paths))}: no text.")


def _make(
    ctx: typer.Context, folder: Path, out: Path, overwrite: bool, change: Callable[["TorchModel"], Changed]
) -> None:
    """Write the changed model, unless it is there already, and print its sizes."""
    from bertie.folders import check_other, made_once
    from bertie.models.convert import save_like
    from bertie.models.folder import MODEL_FOLDER

    check_other(out, folder)

    def write(made: Path) -> dict[str, Any]:
        from bertie.runs.models import load

        model = load(folder)
        if model.tokenizer is None:
            raise UsageError(f"{folder} has no tokenizer. Copy the tokenizer files of the model into it.")
        model, more = change(model)
        save_like(model, made, folder)
        return {
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "layers": model.config.num_hidden_layers,
            "hidden_size": model.config.hidden_size,
            "vocab_size": model.config.vocab_size,
            "max_length": model.config.max_length,
            **more,
        }

    facts = made_once(out, MODEL_FOLDER, asked(ctx), write, overwrite=overwrite)
    if console.verbosity.json:
        emit({"output": str(out), **facts})
    else:
        sizes = ", ".join(f"{name.replace('_', ' ')} {value:,}" for name, value in facts.items() if name in SIZES)
        console.show(f"{out}: {sizes}")
