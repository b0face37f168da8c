"""`bertie convert`: a model folder with current names, in another precision, in one file or several."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

import bertie
from bertie.apps.cli.shared import option
from bertie.platform import console


def convert_command(
    folder: Annotated[Path, typer.Argument(help="Name or folder of a model, run or checkpoint.")],
    out: Annotated[Path, typer.Option("-o", "--output", help="Folder to write.")],
    precision: Annotated[str, typer.Option(help="float32, float16 or bfloat16.")] = "float32",
    shard_size: Annotated[
        int | None, typer.Option(min=1, help="Maximum MB per weights file. Default: one file.")
    ] = None,
    unsafe: Annotated[
        bool, typer.Option("--unsafe", help="Open pytorch_model.bin, in a separate process that can only read numbers.")
    ] = False,
    adapter: Annotated[
        Path | None, typer.Option("--adapter", help="Folder of an adapter of LoRA to merge into the model.")
    ] = None,
    overwrite: Annotated[bool, option("overwrite")] = False,
) -> None:
    """Rewrite a model folder with the current weight names.

    The tokenizer and the model card are kept.

    \b
    Examples:
      bertie convert downloads/bert-base -o models/bert-base-bf16 --precision bfloat16
      bertie convert downloads/old-model -o models/new --unsafe
      bertie convert models/base --adapter downloads/lora -o models/merged
      bertie convert models/large -o models/large-sharded --shard-size 2000
    """
    done = bertie.convert(
        folder,
        out,
        precision=precision,  # type: ignore[arg-type]  # the function says which there are
        shard_size=shard_size,
        unsafe=unsafe,
        adapter=adapter,
        overwrite=overwrite,
    )
    if console.verbosity.json:
        console.emit({"output": str(out), **asdict(done)})
    else:
        files = "file" if done.files == 1 else "files"
        console.show(
            f"{out}: {done.tensors:,} weights, {done.bytes / 1e6:,.1f} MB of {done.precision} "
            f"in {done.files} {files}; copied {', '.join(done.copied) or 'nothing'}"
        )
