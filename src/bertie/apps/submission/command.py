"""`bertie submission`: the zip file for GLUE's server, written and validated."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

import bertie
from bertie import platform
from bertie.apps import submission as app
from bertie.apps.cli.shared import option
from bertie.platform import DataError, UsageError, console


def submission_command(
    file: Annotated[Path, typer.Argument(help="Zip file to write, or to validate when no models are given.")],
    models: Annotated[list[str] | None, typer.Argument(help="SET=FOLDER for each fine-tuned model.")] = None,
    data_dir: Annotated[Path, typer.Option("--data-dir", help="Folder of GLUE's files.")] = Path(),
    precision: Annotated[str, option("precision")] = "fp32",
    device: Annotated[str, option("device")] = "auto",
    overwrite: Annotated[bool, option("overwrite")] = False,
) -> None:
    """Create or validate a GLUE submission.

    Predicts GLUE's test sets and writes the zip file for GLUE's server. The model of mnli predicts both of its test
    sets and the diagnostic set AX.

    \b
    Examples:
      bertie submission glue.zip --data-dir glue cola=runs/cola/model mnli=runs/mnli/model
      bertie submission glue.zip
    """

    if not models:
        if not file.is_file():
            raise UsageError(f"{file} does not exist. To create it, pass models: cola=runs/cola/model ...")
        if problems := app.glue.check_submission(file.read_bytes()):
            raise DataError(f"{file} is not a valid submission: {'; '.join(problems)}.")
        _show(file, [], f"{file}: all {len(app.glue.GLUE_FILES)} files are complete")
        return
    if file.suffix.lower() != ".zip":
        has = f"has the extension {file.suffix.lower()!r}" if file.suffix else "has no extension"
        raise UsageError(f"{file} {has}. Use .zip.")
    platform.File(file).check_new(overwrite=overwrite)
    folders = {}
    for model in models:
        name, equals, folder = model.partition("=")
        if not equals:
            raise UsageError(f"{model!r} has no data set. Write SET=FOLDER, for example cola=runs/cola/model.")
        if name in folders:
            raise UsageError(f"{name} has two models. Pass one.")
        folders[name] = Path(folder)
    predictors = {name: bertie.load(folder, device, precision).predictor() for name, folder in folders.items()}
    notes = app.glue.write_submission(predictors, data_dir, file)
    _show(file, notes, f"Wrote {file}")


def _show(file: Path, notes: Sequence[str], text: str) -> None:
    for note in notes:
        console.warn(note)
    if console.verbosity.json:
        console.emit({"file": str(file), "notes": notes})
    else:
        console.show(text)
