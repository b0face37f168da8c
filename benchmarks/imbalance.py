"""What helps a rare label? Real sets cut to few positives, fine-tuned with each measure against imbalance.

    python -m benchmarks.imbalance --glue GLUE --nsmc NSMC --imdb IMDB   measures what is not in results/imbalance.jsonl
    python -m benchmarks.imbalance --table                               prints the table that the log shows

A seed draws the rows, the order and dropout. Training and evaluation rows have the same share of positives, and are
different rows. SST-2's rows are phrases of its training file; of IMDb's reviews, the first 48 tokens are read.
"""

import argparse
from itertools import product
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any

import bertie
from benchmarks.result_lines import add_line, mean_cell, read_lines
from bertie.errors import UsageError
from bertie.io.table_format import TableFormat
from bertie.io.tables import read_examples

RESULTS = Path(__file__).parent / "results" / "imbalance.jsonl"
MODELS = {"SST-2": "starter-en", "NSMC": "starter-ko", "IMDb": "starter-en"}
SHARES = (0.05, 0.01)
TRAIN, DEV = 1200, {0.05: 1000, 0.01: 2000}
METHODS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "class weights": {"class_weights": "balanced"},
    "balanced sampling": {"sampling": "balanced"},
    "focal loss": {"loss": "focal"},
    "a threshold": {"optimize": "f1"},
}
SCORES = ("f1", "recall", "precision", "macro_f1")


def main() -> None:
    """Measures, or prints the table."""
    parser = argparse.ArgumentParser(description="Measures what helps a rare label.")
    parser.add_argument("--glue", type=Path)
    parser.add_argument("--nsmc", type=Path)
    parser.add_argument("--imdb", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    if options.table:
        print("\n".join(table()))
        return
    files = {"SST-2": options.glue and options.glue / "SST-2/train.tsv", "NSMC": options.nsmc, "IMDb": options.imdb}
    known = {(one["set"], one["share"], one["method"], one["seed"]) for one in read_lines(RESULTS)}
    texts = {name: of_labels(file) for name, file in files.items() if file is not None}
    if not texts:
        raise UsageError("Pass --glue FOLDER, --nsmc FILE or --imdb FILE.")
    for seed, share, name in product(range(options.seeds), SHARES, texts):
        train, dev = drawn(*texts[name], share, seed)
        for method, settings in METHODS.items():
            if (name, share, method, seed) not in known:
                line = {"set": name, "share": share, "method": method, "seed": seed}
                line |= measured(MODELS[name], train, dev, settings, seed)
                add_line(RESULTS, line)


def of_labels(file: Path) -> tuple[list[str], list[str]]:
    """Returns the positive texts of a file and the negative ones, without repeats."""
    examples, _ = read_examples(file, TableFormat.of(kind="jsonl" if file.suffix == ".jsonl" else "tsv"))
    texts = {example.texts[0].strip(): example.label for example in examples}
    negatives = [text for text, label in texts.items() if label in ("0", "neg")]
    return [text for text, label in texts.items() if label in ("1", "pos")], negatives


def drawn(
    positives: list[str], negatives: list[str], share: float, seed: int
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Returns training and evaluation rows with a share of positives."""
    random = Random(seed)
    some, others = random.sample(positives, 400), random.sample(negatives, 6000)
    parts = []
    for count in (TRAIN, DEV[share]):
        few = round(share * count)
        rows = [(some.pop(), "rare") for _ in range(few)] + [(others.pop(), "common") for _ in range(count - few)]
        random.shuffle(rows)
        parts.append(rows)
    return parts[0], parts[1]


def measured(
    model: str, train: list[tuple[str, str]], dev: list[tuple[str, str]], settings: dict[str, Any], seed: int
) -> dict[str, float]:
    """Returns the scores of a run."""
    plain = {"baselines": False, "label_check": "none", "train.eval_every": 10**6, "train.save_every": 10**6}
    run = bertie.finetune(
        model,
        train,
        dev,
        epochs=2,
        batch_size=16,
        max_length=48,
        seed=seed,
        precision="fp32",
        settings=plain,
        **settings,
    )
    report: dict[str, Any] = {**run.scores.report}
    rare = report["per_label"]["rare"]
    return {**{name: round(rare[name], 4) for name in SCORES[:3]}, "macro_f1": round(run.scores["macro_f1"], 4)}


def table() -> list[str]:
    """Returns the rows of a Markdown table: means over seeds, with the interval of F1."""
    found: dict[tuple[str, float, str], list[dict[str, Any]]] = {}
    for one in read_lines(RESULTS):
        found.setdefault((one["set"], one["share"], one["method"]), []).append(one)
    rows = [f"| set | positives | measure | {' | '.join(SCORES)} |", f"|---|---|---|{'---|' * len(SCORES)}"]
    for (name, share, method), runs in found.items():
        means = [
            mean_cell([run["f1"] for run in runs]),
            *(f"{mean(run[one] for run in runs):.3f}" for one in SCORES[1:]),
        ]
        rows.append(f"| {name} | {share:.0%} | {method} | {' | '.join(means)} |")
    return rows


if __name__ == "__main__":
    main()
