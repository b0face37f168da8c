"""`bertie compress`: a smaller model from a trained one."""

from pathlib import Path
from typing import Annotated, Any

import typer

from bertie import console
from bertie.cli.app import Json, Overwrite, Quiet, Verbose, app, emit
from bertie.errors import DataError, UsageError


@app.command()
def compress(
    model: Annotated[Path, typer.Argument(help="Folder of a model.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write.")],
    texts: Annotated[
        Path | None,
        typer.Option(
            "--texts", help="File of representative texts, one per line, to calibrate on and to measure with."
        ),
    ] = None,
    float_: Annotated[bool, typer.Option("--float", help="Convert an int8 model back to float32.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Write the model even if it misses the quality threshold.")
    ] = False,
    overwrite: Overwrite = False,
    json_: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Quantize a model to int8: a quarter of the size, faster on a CPU.

    Writes a model folder that every Bertie command opens. The matrices of the encoder and the word embeddings take one
    byte per number. Half of the texts or less are used for calibration. The other texts measure how close the vectors
    are to those of the float model. A model that misses the threshold is not written.

    [bold]Examples[/]

      bertie compress runs/reviews/model --texts reviews.txt -o models/reviews-int8

      bertie compress models/reviews-int8 --float -o models/reviews-float
    """
    import bertie
    from bertie.compress import gate
    from bertie.folders import new_folder
    from bertie.models.folder import MODEL_FOLDER

    with new_folder(output, MODEL_FOLDER, overwrite=overwrite) as folder:
        found = bertie.load(model)
        facts: dict[str, Any] = {"output": str(output)}
        if float_:
            if not found.int8:
                raise UsageError(f"{model} has no int8 weights; it is a float model already.")
            found.save_pretrained(folder)
        else:
            if found.int8:
                raise UsageError(f"{model} has int8 weights already.")
            if texts is None:
                raise UsageError("No texts given. Pass --texts FILE: representative texts, one per line.")
            if found.tokenizer is None:
                raise UsageError(
                    f"{model} has no tokenizer, so it cannot read texts. Copy the files of its "
                    "tokenizer into this folder."
                )
            near = gate.quantized(found, _lines(texts))
            facts |= near.as_json()
            if not near.enough and not force:
                raise DataError(
                    f"The int8 model misses the quality threshold: {near}. Give more texts, or write it "
                    "anyway with --force."
                )
            found.save_pretrained(folder, int8=found.int8)
            card = folder / "README.md"
            short = "" if near.enough else " The model misses the quality threshold and was written with --force."
            card.write_text(f"{card.read_text('utf-8')}\nQuantized to int8 after training: {near}.{short}\n", "utf-8")
        facts |= {"bytes": gate.size(folder), "bytes_before": gate.size(model)}
    if console.verbosity.json:
        emit(facts)
    else:
        if not float_:
            console.show(str(near))
        console.show(
            f"{output}: {facts['bytes'] / 1e6:,.1f} MB of weights; {facts['bytes_before'] / 1e6:,.1f} MB before"
        )


def _lines(path: Path) -> list[str]:
    from bertie.data.lines import opened

    try:
        with opened(path) as file:
            return [text for line in file if (text := line.decode("utf-8").strip())]
    except UnicodeDecodeError:
        raise DataError(f"{path} is not UTF-8 text. Convert it: iconv -f cp949 -t utf-8 {path}") from None
