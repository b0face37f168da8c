"""`bertie families`: every family, a line each."""

from typing import Any

from bertie import console
from bertie.cli.app import Json, Quiet, Verbose, app, emit


@app.command(epilog="Example: [bold]bertie families --json[/]")
def families(quiet: Quiet = False, verbose: Verbose = False, json: Json = False) -> None:
    """List the families: what each changed, its source, heads, tokenizer and presets."""
    rows = describe()
    if console.verbosity.json:
        emit(rows)
        return
    from rich.table import Table

    table = Table("family", "what it changed", "heads", "tokenizer", "presets", box=None, padding=(0, 1))
    for row in rows:
        presets = f"{len(row['presets'])}: {row['presets'][0]} ..." if len(row["presets"]) > 1 else row["presets"][0]
        about = f"{row['about']} [dim]{row['source']}[/]"
        table.add_row(f"[bold]{row['model_type']}[/]", about, " ".join(row["heads"]), row["tokenizer"], presets)
    console.show(table)


def describe() -> list[dict[str, Any]]:
    """The facts of every family."""
    from bertie import families

    return [
        {
            "model_type": name,
            "about": variant.about,
            "source": variant.source,
            "tokenizer": variant.tokenizer,
            "heads": list(dict.fromkeys(head for heads in variant.architectures.values() for head in heads)),
            "presets": list(variant.presets),
        }
        for name, variant in families.VARIANTS.items()
    ]
