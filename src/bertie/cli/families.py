"""`bertie families`: one line per family, or one family in detail."""

import re
from typing import Annotated, Any

import typer

from bertie import console
from bertie.cli.app import emit
from bertie.cli.info import list_presets
from bertie.report.values import count


def families(
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
    rows = describe()
    if name is not None:
        from bertie.families import VARIANTS

        assert VARIANTS[name]  # which raises UsageError with the nearest name
        rows = [row for row in rows if row["model_type"] == name]
    if console.verbosity.json:
        emit(rows)
    elif name is None:
        console.show("\n".join(map(_line, rows)), markup=True)
    else:
        _show(rows[0])


def describe() -> list[dict[str, Any]]:
    """Returns the facts of every family. parameters: those of its presets, in the order of the presets."""
    from bertie import families

    sizes = {row["preset"]: row["parameters"] for row in list_presets()}
    return [
        {
            "model_type": name,
            "about": variant.about,
            "source": variant.source,
            "tokenizer": variant.tokenizer,
            "heads": list(dict.fromkeys(head for heads in variant.architectures.values() for head in heads)),
            "presets": list(variant.presets),
            "parameters": [sizes[preset] for preset in variant.presets],
        }
        for name, variant in families.VARIANTS.items()
    ]


def _line(row: dict[str, Any]) -> str:
    """Returns the name, the sizes, and the first clause of the description."""
    ends = dict.fromkeys(_parameters(size) for size in (min(row["parameters"]), max(row["parameters"])))
    clause = re.split(r"[.:;?](?:\s|$)|, ", row["about"])[0]
    return f"[bold]{row['model_type']:<12}[/] {' to '.join(ends):<14} {clause}"


def _show(row: dict[str, Any]) -> None:
    facts = [f"{name:<10} {value}" for name, value in (("source", row["source"]), ("tokenizer", row["tokenizer"]))]
    presets = [f"  {preset}  {_parameters(n)}" for preset, n in zip(row["presets"], row["parameters"], strict=True)]
    about = f"[bold]{row['model_type']}[/]: {row['about']}"
    console.show(
        "\n".join([about, *facts, f"{'heads':<10} {', '.join(row['heads'])}", "presets", *presets]), markup=True
    )


def _parameters(number: int) -> str:
    return count(number) if number < 1e7 else f"{number / 1e6:,.0f} M" if number < 1e9 else f"{number / 1e9:.1f} B"
