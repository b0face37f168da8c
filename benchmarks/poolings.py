"""Which vector of a text should a classification head read?

    python -m benchmarks.poolings --model minilm-l6 --data-dir data -o runs/poolings

Each set is fine-tuned with each pooling and seed, from the same examples. A run that is there already is not repeated,
and a seed comes after the other, so that an interrupted table has all rows. Prints the table: the main dev metric, and
its difference to the first pooling, paired by seed.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import get_args

from benchmarks.cells import NEVER, cell, check_same, finetuned, made, measured
from benchmarks.results import ROWS, config_of, spaced
from bertie.console import console
from bertie.models.head_config import Pooled
from bertie.runs.config import FinetuneConfig
from bertie.runs.examples import Examples, read_examples
from bertie.settings import build_config

SETS = ("sst2", "cola", "stsb", "mrpc")  # single texts, then pairs
POOLINGS: tuple[Pooled, ...] = get_args(Pooled)


def main() -> None:
    """Runs the table that the command line asks for."""
    parser = argparse.ArgumentParser(description="Measures the poolings of classification heads.")
    parser.add_argument("--model", required=True)
    parser.add_argument("--data-dir", required=True, type=Path)
    parser.add_argument("-o", "--output", required=True, type=Path)
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--poolings", nargs="+", default=POOLINGS, choices=POOLINGS)
    parser.add_argument("--train", type=int, default=256, help="training examples")
    parser.add_argument("--dev", type=int, default=300, help="dev examples")
    parser.add_argument("--epochs", type=float, default=3.0)
    parser.add_argument("--seeds", type=int, default=5)
    asked = parser.parse_args()
    settings = {name: getattr(asked, name) for name in ("model", "train", "dev", "epochs")}
    check_same(asked.output, settings, of="other settings")

    @cache
    def examples_of(name: str) -> Examples:
        read = read_examples(config_of(ROWS[name], "", asked.data_dir, 0))
        return replace(read, train=spaced(read.train, asked.train), dev=spaced(read.dev, asked.dev))

    found: dict[tuple[str, str], list[float]] = {}
    for seed in range(asked.seeds):
        for name in asked.sets:
            for pooling in asked.poolings:
                file = asked.output / name / f"{pooling}-{seed}.json"
                one = measured(file, partial(_measure, examples_of(name), asked.model, pooling, seed, asked.epochs))
                found.setdefault((name, pooling), []).append(one["score"])
                console.say(f"{name} {pooling} {seed}: {one['score']:z.3f}")
    console.show("\n".join(_table(found, asked.sets, asked.poolings)))


def _measure(examples: Examples, model: str, pooling: str, seed: int, epochs: float) -> dict[str, float]:
    train = {"batch_size": 16, "seed": seed, "eval_every": NEVER, "save_every": NEVER}
    config = build_config(FinetuneConfig, {"model": model, "pooling": pooling, "epochs": epochs, "train": train})
    return {"score": finetuned(config, examples)[examples.metrics[0]]}


def _table(found: dict[tuple[str, str], list[float]], sets: Sequence[str], poolings: Sequence[str]) -> list[str]:
    """Returns the lines of the table, and how it was made."""
    lines = [f"| pooling | {' | '.join(sets)} |", "|---" * (len(sets) + 1) + "|"]
    for pooling in poolings:
        cells = []
        for name in sets:
            values, first = found[name, pooling], found[name, poolings[0]]
            gains = [value - other for value, other in zip(values, first, strict=True)]
            cells.append(cell(values) if pooling == poolings[0] else f"{cell(values)}, {cell(gains, form='+z.3f')}")
        lines.append(f"| {pooling} | {' | '.join(cells)} |")
    return [*lines, "", made()]


if __name__ == "__main__":
    main()
