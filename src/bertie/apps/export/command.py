"""`bertie export`: a model for other programs to run."""

from pathlib import Path
from typing import Annotated

import typer

from bertie import platform
from bertie.apps import export as app
from bertie.apps.cli.shared import option
from bertie.platform import console


def export_command(
    model: Annotated[Path, option("model")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write.")],
    to: Annotated[str, typer.Option("--to", help="Target format: onnx.")] = "onnx",
    int8: Annotated[bool, typer.Option("--int8", help="Add a graph with 8-bit weights.")] = False,
    texts: Annotated[
        Path | None,
        typer.Option(
            "--texts",
            help="File of representative texts, one per line, for the comparison. Default: Python's documentation.",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Write a graph even if it misses the quality threshold.")
    ] = False,
    overwrite: Annotated[bool, option("overwrite")] = False,
) -> None:
    """Export a model as an ONNX graph.

    The graph runs without Bertie and without torch. Before it is written, the graph and the model predict 200 texts:
    their predictions must be equal, and their numbers must agree within 0.0001. The folder has the file names and the
    layout of optimum, sentence-transformers and Transformers.js.

    \b
    Examples:
      bertie export runs/reviews/model --to onnx -o models/reviews-onnx
      bertie export runs/reviews/model --to onnx --int8 --texts reviews.txt -o models/reviews-onnx
      bertie predict models/reviews-onnx reviews.txt
    """
    facts = app.api.write_graph(
        platform.ModelFolder(model).load(),
        model,
        output,
        to=to,
        int8=int8,
        texts=None if texts is None else platform.SourceFile(texts).lines(),
        force=force,
        overwrite=overwrite,
        seal=console.call_hash(),
    )
    if console.verbosity.json:
        console.emit({"output": str(output), "graphs": facts["graphs"]})
    else:
        for one, line in zip(facts["graphs"], facts["lines"], strict=True):
            console.show(f"{output / one['name']}: {line}")
