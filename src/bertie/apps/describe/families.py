"""`bertie families`: one line per family, or one family in detail."""

import re
from dataclasses import asdict
from typing import Annotated

import typer

import bertie
from bertie.platform import console, quantity


def families_command(
    name: Annotated[str | None, typer.Argument(help="Family to describe in detail.")] = None,
) -> None:
    """List supported model architectures, or describe one.

    The description has the source, heads, tokenizer and presets.

    \b
    Examples:
      bertie families
      bertie families electra
      bertie families --json
    """
    rows = bertie.list_families(name)
    if console.verbosity.json:
        console.emit([asdict(row) for row in rows])
        return
    lines = []
    for row in rows:
        if name is None:  # the name, the sizes, and the first clause of the description
            ends = dict.fromkeys(_parameters(size) for size in (min(row.parameters), max(row.parameters)))
            clause = re.split(r"[.:;?](?:\s|$)|, ", row.about)[0]
            lines.append(f"[bold]{row.model_type:<12}[/] {' to '.join(ends):<14} {clause}")
            continue
        facts = [f"{what:<10} {value}" for what, value in (("source", row.source), ("tokenizer", row.tokenizer))]
        presets = [f"  {preset}  {_parameters(n)}" for preset, n in zip(row.presets, row.parameters, strict=True)]
        about = f"[bold]{row.model_type}[/]: {row.about}"
        lines += [about, *facts, f"{'heads':<10} {', '.join(row.heads)}", "presets", *presets]
    console.show("\n".join(lines), markup=True)


def _parameters(number: int) -> str:
    return quantity(number) if number < 1e7 else f"{number / 1e6:,.0f} M" if number < 1e9 else f"{number / 1e9:.1f} B"
