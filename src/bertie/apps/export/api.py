"""The folder of a graph from a model that is open: for `bertie export` and for `Model.export`."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bertie.apps.export.folder import FORCED_NOTE, onnx_folder
from bertie.apps.export.texts import list_documentation_paragraphs
from bertie.platform import FolderKind, ModelFolder, TorchModel, UsageError, nearest

TARGETS = ("onnx",)


def write_graph(
    model: TorchModel,
    source: Path | None,
    output: Path,
    *,
    to: str = "onnx",
    int8: bool = False,
    texts: Sequence[str] | None = None,
    force: bool = False,
    overwrite: bool = False,
    seal: str = "",
) -> dict[str, Any]:
    """Writes a model as a graph, and returns the graphs with their parity, and a line about each.

    source: the folder of the model, whose other files are copied. texts: for the comparison; Python's documentation by
    default. seal: hash of the call, which finds a finished folder. Raises UsageError for an unknown format.
    """
    if to not in TARGETS:
        raise UsageError(f"Unknown format {to!r}. {nearest(to, TARGETS)}")
    if source is not None:
        ModelFolder(source).check_output(output)

    def write(folder: Path) -> dict[str, Any]:
        chosen = list_documentation_paragraphs() if texts is None else texts
        graphs = onnx_folder(model, folder, chosen, int8=int8, force=force)
        if source is not None:
            ModelFolder(source).copy_modules(folder)
        lines = [f"{one.bytes / 1e6:,.1f} MB; {one.parity}.{'' if one.passed else FORCED_NOTE}" for one in graphs]
        return {"graphs": [{**asdict(one), "parity": one.parity.as_json()} for one in graphs], "lines": lines}

    facts: dict[str, object] = FolderKind.named("model").made_once(output, seal, write, overwrite=overwrite)
    return facts
