"""`bertie data`: the supported data sets, their sources, and a check of downloaded files."""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

import bertie
from bertie.platform import DataError, console


def data_command(
    names: Annotated[list[str] | None, typer.Argument(help="Names of data sets. Default: all.")] = None,
    data_dir: Annotated[Path | None, typer.Option("--data-dir", help="Folder of downloaded files to check.")] = None,
) -> None:
    """List supported data sets, or check downloaded files.

    The list has the source and the licence of every data set. The check compares the number of examples with the
    published number.

    \b
    Examples:
      bertie data
      bertie data mrpc stsb --data-dir glue
    """
    rows = bertie.data_sets(names or ())
    if data_dir is not None:
        _check(names or (), data_dir)
        return
    if console.verbosity.json:
        console.emit({row.name: row.to_dict() for row in rows})
        return
    for row in rows:
        sizes = ((split, file.examples) for split, file in row.splits.items())
        shown = ", ".join(f"{split} {number:,}" if number else split for split, number in sizes)
        console.show(f"[bold]{row.name}[/]  {row.title}", markup=True)
        console.show(f"    {row.task}; {', '.join(row.metrics)}; {shown}")
        console.show(f"    {row.licence}; {row.source}")
        console.show(f"    settings: {row.recipe}")


def _check(names: Sequence[str], data_dir: Path) -> None:
    """Raises DataError when a file differs from the published one, or when no file is found."""
    files, sets = [], bertie.data_sets(names)
    for file in chain.from_iterable(one.check(data_dir) for one in sets):
        files.append(file)
        if console.verbosity.json:
            continue
        if file.examples is None:
            if len(sets) == 1:
                console.warn(file.problem)
            continue
        expected = f" of {file.expected:,}" if file.expected else ""
        mark = "✓" if file.as_published else "✗"
        console.show(f"{mark} {file.data} {file.split}: {file.examples:,}{expected} examples")
        for note in filter(None, (file.note, file.problem)):
            console.warn(f"{file.data} {file.split}: {note}")
    if console.verbosity.json:
        console.emit([file.to_dict() for file in files])
    here = [file for file in files if file.examples is not None]
    if wrong := sum(not file.as_published for file in here):
        raise DataError(f"{wrong:,} of {len(here):,} files differ from the published ones.")
    if not here:
        known = ", ".join(one.name for one in sets)
        raise DataError(f"{data_dir} contains none of the files of {known}. `bertie data` lists their sources.")
