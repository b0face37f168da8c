"""`bertie grow`, `bertie shrink` and `bertie vocabulary extend|trim`: a trained model in another size."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

import bertie
from bertie.apps.cli.app import Commands, Overwrite
from bertie.platform import UsageError, console

_SIZE_FIELDS = ("parameters", "layers", "hidden_size", "vocab_size", "max_length")
_FolderArgument = Annotated[Path, typer.Argument(help="Name or folder of a model, run or checkpoint.")]
Out = Annotated[Path, typer.Option("-o", "--output", help="Folder to write.")]
vocabulary = Commands(help="Extend or trim the vocabulary of a model.", no_args_is_help=True)


def grow_command(
    folder: _FolderArgument,
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
    _show(
        out,
        bertie.grow(
            folder,
            out,
            layers=layers,
            how=how,  # type: ignore[arg-type]  # the function says which there are
            times=times,
            intermediate=intermediate,
            positions=positions,
            fill=fill,  # type: ignore[arg-type]
            overwrite=overwrite,
        ).to_dict(),
    )


def shrink_command(
    folder: _FolderArgument,
    out: Out,
    from_layers: Annotated[str, typer.Option(help="Layers to take, counted from 0. Default: every second layer.")] = "",
    family: Annotated[str, typer.Option(help="Family of the new model. Default: the same.")] = "",
    overwrite: Overwrite = False,
) -> None:
    """Initialize a smaller student model from a model's layers.

    Train the student by distillation from the model.

    \b
    Example:
      bertie shrink models/base -o models/student --from-layers 0,2,4,7,9,11 --family distilbert
    """
    try:
        numbers = [int(layer) for layer in from_layers.split(",")] if from_layers else []
    except ValueError:
        raise UsageError(
            f"--from-layers is {from_layers!r}; it must be a comma-separated list of layer numbers, for example 0,2,4.",
            code="wrong-value",
        ) from None
    _show(out, bertie.shrink(folder, out, from_layers=numbers, family=family, overwrite=overwrite).to_dict())


@vocabulary.command()
def extend(
    folder: _FolderArgument,
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
    _show(out, bertie.extend_vocabulary(folder, words, out, overwrite=overwrite).to_dict())


@vocabulary.command()
def trim(
    folder: _FolderArgument,
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
    _show(out, bertie.trim_vocabulary(folder, texts, out, overwrite=overwrite).to_dict())


def _show(folder: Path, facts: Mapping[str, object]) -> None:
    """Prints the sizes of a new model."""
    if console.verbosity.json:
        console.emit(facts)
    else:
        sizes = ", ".join(
            f"{name.replace('_', ' ')} {value:,}" for name, value in facts.items() if name in _SIZE_FIELDS
        )
        console.show(f"{folder}: {sizes}")
