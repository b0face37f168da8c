"""`bertie info`: the architecture, size and cost of a model folder or a preset."""

from pathlib import Path
from typing import Annotated, Any

import typer

from bertie import console
from bertie.cli import tables
from bertie.cli.app import emit
from bertie.errors import UsageError

SIZES = 10  # fields of EncoderConfig that are always shown; of the others, those in which a model is not plain BERT
MASKED = 0.15  # share of positions BERT's pre-training predicts, and T5's decoder about writes


def info(
    model: Annotated[
        str | None, typer.Argument(help="Preset, or folder of a model, run or checkpoint.", callback=tables.resolved)
    ] = None,
    presets: Annotated[bool, typer.Option("--presets", help="List the presets.")] = False,
    length: Annotated[int, typer.Option(min=1, help="Sequence length in tokens, for the operations per token.")] = 128,
) -> None:
    """Show a model's architecture, parameters, memory, operations and tokenizer.

    \b
    Examples:
      bertie info --presets
      bertie info bert-base
      bertie info runs/wiki/model --length 512
    """
    if presets == (model is not None):
        raise UsageError("Name a model folder or a preset, or pass --presets for a list, but not both.")
    facts = list_presets() if model is None else describe(model, length)
    if console.verbosity.json:
        emit(facts)
    elif isinstance(facts, list):
        _show_presets(facts)
    else:
        _show(facts)


def list_presets() -> list[dict[str, Any]]:
    """Returns name, model_type, sizes and parameters of every preset."""
    from bertie import families
    from bertie.models.count import decoder_parameters, parameters

    return [
        {
            "preset": name,
            "model_type": model_type,
            "layers": config.num_hidden_layers,
            "hidden_size": config.hidden_size,
            "heads": config.num_attention_heads,
            "vocab_size": config.vocab_size,
            "parameters": sum((parameters(config) | decoder_parameters(config)).values()),
        }
        for model_type, variant in families.VARIANTS.items()
        for name, config in variant.presets.items()
    ]


def describe(model: str, length: int) -> dict[str, Any]:
    """Returns the facts of one model. Raises UsageError for an unknown name, DataError for a bad folder."""
    from bertie import families, objectives
    from bertie.models import count

    folder = Path(model)
    config, facts = families.config(model), dict[str, Any](model=model)
    parts = count.parameters(config) | count.decoder_parameters(config)
    if (folder / "config.json").is_file():
        loaded, report = families.load(folder)
        config = loaded.config if "decoder" in loaded.heads else loaded.config.replace(num_decoder_layers=None)
        parts = count.parameters(config) | {
            f"{name} head": sum(parameter.numel() for parameter in head.parameters())
            for name, head in loaded.heads.items()
        }
        facts |= {"architecture": loaded.public.get("architectures"), "labels": list(loaded.labels)}
        facts |= {"weights": str(report), "tokenizer": _tokenizer(folder)}
    total = sum(parts.values())
    length = min(length, config.max_length)
    asked = objectives.build(families.family(model).recipe["objectives"])
    extra = asked.extra_cost(config, length=length, shares={"generator": MASKED})
    predicted = 0.0 if extra else count.predictions(config)
    flops = count.forward_flops(config, length=length, predicted=predicted)
    return facts | {
        "config": config.flat(),
        "parameters": parts | {"total": total},
        # weights and gradients in float32 and AdamW's two moments; activations come on top
        "memory_bytes": {"inference float32": 4 * total, "inference bf16": 2 * total, "training AdamW": 16 * total},
        "flops_per_token": {
            "length": length,
            "forward": sum(
                number for part, number in flops.items() if not part.startswith("decoder") and "head" not in part
            ),
            "predicted": predicted,
            "pretraining": 3 * sum(flops.values()) + sum(extra.values()),
            "by part, forward": flops,
            "in addition, forward and backward": extra,
        },
    }


def _tokenizer(folder: Path) -> dict[str, Any] | None:
    from bertie.text.formats import TOKENIZER_FILES
    from bertie.text.tokenizer import Tokenizer

    if not any((folder / name).is_file() for name in TOKENIZER_FILES):
        return None
    tokenizer = Tokenizer.load(folder)
    special = {tokenizer.id_to_token(i): i for i in sorted(tokenizer.special_ids)}
    return {"vocab_size": tokenizer.vocab_size, "special": special, "fingerprint": tokenizer.fingerprint}


def _show_presets(rows: list[dict[str, Any]]) -> None:
    """Returns one line per preset. A rich table that is wider than the terminal would break the names."""
    width = max(len(row["preset"]) for row in rows)
    line = "{:<" + str(width) + "}  {:>6}  {:>6}  {:>10}  {:>13}"
    lines = [line.format("preset", "layers", "hidden", "vocabulary", "parameters")]
    for row in rows:
        numbers = (row[name] for name in ("layers", "hidden_size", "vocab_size", "parameters"))
        lines.append(line.format(row["preset"], *(f"{number:,}" for number in numbers)))
    console.show("\n".join(lines))


def _show(facts: dict[str, Any]) -> None:
    from rich.table import Table

    from bertie.models.config import EncoderConfig

    table = Table(box=None, show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_row(facts["model"], ", ".join(facts.get("architecture") or []))
    if facts.get("labels"):
        table.add_row("labels", ", ".join(facts["labels"]))
    if "weights" in facts:
        table.add_row("weights", facts["weights"])
    usual = EncoderConfig().flat()
    for place, (name, value) in enumerate(facts["config"].items()):
        if value != usual.get(name) or (place < SIZES and value is not None):
            table.add_row(f"  {name}", str(value))
    table.add_row("parameters", f"{facts['parameters']['total']:,}")
    for name, number in facts["parameters"].items():
        if name != "total":
            table.add_row(f"  {name}", f"{number:,}")
    table.add_row("memory", "MB")
    for name, size in facts["memory_bytes"].items():
        table.add_row(f"  {name}", f"{size / 1e6:,.0f}")
    flops = facts["flops_per_token"]
    table.add_row(f"operations per token, length {flops['length']}", "MFLOP")
    table.add_row("  forward, encoder", f"{flops['forward'] / 1e6:,.1f}")
    predicted = f"{flops['predicted']:.0%} {'written' if facts['config']['num_decoder_layers'] else 'predicted'}"
    if extra := flops["in addition, forward and backward"]:
        predicted = " and ".join(extra)
    table.add_row(f"  pre-training step, {predicted}", f"{flops['pretraining'] / 1e6:,.1f}")
    if tokenizer := facts.get("tokenizer"):
        table.add_row("tokenizer", f"{tokenizer['vocab_size']:,} tokens")
        table.add_row("  special", " ".join(f"{name}={i}" for name, i in tokenizer["special"].items()))
        table.add_row("  fingerprint", tokenizer["fingerprint"])
    console.show(table)
