"""Do probabilities hold, are promises kept, and what do LoRA, early stopping and averages give? Three real sets.

    python -m benchmarks.certainty --glue GLUE --nsmc NSMC     measures what is not in results/certainty.jsonl yet
    python -m benchmarks.certainty --table                     prints the tables that the log shows

Each seed draws training and test rows from the training files. Test rows are used for nothing else.

    calibration     expected calibration error and Brier score on test rows, before and after
    coverage        the share of test rows whose set has the true label, and the mean size of a set
    promises        precision on test rows, of thresholds that were chosen for a precision of 0.9; and their recall
    training        accuracy with LoRA, early stopping and averaged weights beside that of all weights; the steps
"""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import torch

import bertie
from benchmarks.result_lines import add_line, mean_cell, read_lines
from bertie.errors import UsageError
from bertie.io.table_format import TableFormat
from bertie.io.tables import read_examples
from bertie.train.callbacks import TrainingRun

RESULTS = Path(__file__).parent / "results" / "certainty.jsonl"
Rows = list[tuple[str, str]]
METHODS: dict[str, dict[str, Any]] = {
    "all weights": {},
    "temperature": {"calibrate": "temperature"},
    "vector": {"calibrate": "vector"},
    "coverage 0.9": {"coverage": 0.9},
    "coverage 0.95": {"coverage": 0.95},
    "precision 0.9": {"optimize": "recall@precision=0.9"},
    "lora 8": {"lora": 8},
    "patience 2": {"patience": 2, "epochs": 10},
    "averaged weights": {},
}


class AveragedWeights(bertie.Callback):
    """The exponential moving average of the weights (Polyak and Juditsky 1992). decay: share that a step keeps."""

    def __init__(self, decay: float = 0.99) -> None:
        self.decay, self.weights = decay, dict[str, torch.Tensor]()

    def on_step(self, run: TrainingRun, step: int, metrics: Mapping[str, float]) -> None:
        """Adds the weights after a step."""
        for name, value in run.model.state_dict().items():
            before = self.weights.get(name, value)
            self.weights[name] = torch.lerp(value.float(), before.float(), self.decay).clone()


@dataclass(frozen=True)
class Source:
    """A set: its model, its file below the folder that is passed, and how the file is read."""

    model: str
    file: str
    format: TableFormat


SOURCES = {
    "SST-2": Source("starter-en", "SST-2/train.tsv", TableFormat.of(kind="tsv")),
    "CoLA": Source(
        "starter-en", "CoLA/train.tsv", TableFormat.of(columns=("source", "label", "star", "text"), kind="tsv")
    ),
    "NSMC": Source("starter-ko", "", TableFormat.of(kind="tsv")),
}


def main() -> None:
    """Measures, or prints the tables."""
    parser = argparse.ArgumentParser(description="Measures calibration, coverage and LoRA.")
    parser.add_argument("--glue", type=Path)
    parser.add_argument("--nsmc", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--train", type=int, default=4000)
    parser.add_argument("--test", type=int, default=2000)
    parser.add_argument("--epochs", type=float, default=3)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    if options.table:
        print("\n".join(tables([*read_lines(options.results)])))
        return
    if options.glue is None or options.nsmc is None:
        raise UsageError("Pass --glue FOLDER and --nsmc FILE.")
    known = {(one["set"], one["method"], one["seed"], one["train"]) for one in read_lines(options.results)}
    for seed, (name, source) in product(range(options.seeds), SOURCES.items()):
        file = options.glue / source.file if source.file else options.nsmc
        train, test = drawn(file, source.format, options.train, options.test, seed)
        for method, settings in METHODS.items():
            if (name, method, seed, options.train) not in known:
                line = {"set": name, "method": method, "seed": seed, "train": options.train}
                line |= measured(source.model, train, test, method, settings, seed, options.epochs)
                add_line(options.results, line)


def drawn(file: Path, format: TableFormat, train: int, test: int, seed: int) -> tuple[Rows, Rows]:
    """Returns training and test rows, of which no two have the same text."""
    examples, _ = read_examples(file, format)
    labels = {example.texts[0].strip(): str(example.label) for example in examples}
    rows = Random(seed).sample(sorted(labels.items()), train + test)
    return rows[:train], rows[train:]


def measured(
    model: str, train: Rows, test: Rows, method: str, settings: dict[str, Any], seed: int, epochs: float
) -> dict[str, float]:
    """Returns the figures of a run on the test rows."""
    plain = {"baselines": False, "label_check": "none", "train.eval_every": 10**6, "train.save_every": 10**6}
    options: dict[str, Any] = {"epochs": epochs, "batch_size": 16, "max_length": 48, "seed": seed, "precision": "fp32"}
    if "patience" in settings:
        del plain["train.eval_every"]
    average = AveragedWeights()
    callbacks = [average] if method == "averaged weights" else []
    run = bertie.finetune(
        model, train, test, callbacks=callbacks, settings=plain | {"select_on": "train"}, **{**options, **settings}
    )
    results: dict[str, Any] = {**run.results}
    scores, before = results["dev"], results.get("untuned", {}).get("dev", {})
    if callbacks:
        module = run.model.module
        module.load_state_dict(average.weights)
        scores = bertie.Model(module).evaluate(test).report
    figures = {name: scores[name] for name in ("accuracy", "ece", "brier")}
    figures["steps"] = results["step"]
    if "optimize" in settings:
        positive = scores["per_label"][next(iter(scores["positive"].values()))]
        figures |= {name: positive[name] for name in ("precision", "recall")}
    figures |= {f"{name}_before": before[name] for name in ("ece", "brier") if "calibrate" in settings}
    if sets := scores.get("prediction_sets"):
        figures |= {"covered": sets["covered"], "size": sets["mean_size"]}
        figures["least_covered"] = min(row["covered"] for row in sets["per_label"].values())
    return {name: round(value, 4) for name, value in figures.items()}


def tables(found: list[dict[str, Any]]) -> list[str]:
    """Returns Markdown tables: means over seeds, with 95% intervals."""
    shown = {
        "calibration": ("temperature", "vector"),
        "coverage": ("coverage 0.9", "coverage 0.95"),
        "promises": ("precision 0.9",),
        "training": ("all weights", "lora 8", "patience 2", "averaged weights"),
    }
    columns = {
        "calibration": ("ece_before", "ece", "brier_before", "brier", "accuracy"),
        "coverage": ("covered", "least_covered", "size"),
        "promises": ("precision", "recall", "accuracy"),
        "training": ("accuracy", "ece", "brier", "steps"),
    }
    rows: list[str] = []
    for part, methods in shown.items():
        rows += ["", f"| set | {part} | {' | '.join(columns[part])} |", f"|---|---|{'---|' * len(columns[part])}"]
        for name, method in product(SOURCES, methods):
            runs = [one for one in found if (one["set"], one["method"]) == (name, method)]
            if runs:
                cells = (mean_cell([run[column] for run in runs]) for column in columns[part])
                rows.append(f"| {name} | {method} | {' | '.join(cells)} |")
    return rows[1:]


if __name__ == "__main__":
    main()
