"""Which learning rate teaches which model best?

    python -m benchmarks.rates MODEL ... --train A.tsv --dev B.tsv -o OUT

Each model is fine-tuned with each rate and seed; a run that is there already is not repeated. OUT/rates.json has the
mean dev metric by model and rate, and the rate that train/schedule.py chooses for the model's width.
"""

import argparse
from pathlib import Path
from statistics import mean

from bertie.console import console
from bertie.files import write_json
from bertie.models.variant import read_public
from bertie.runs.config import FinetuneConfig
from bertie.runs.finetune import run_finetune
from bertie.settings import build_config
from bertie.train.schedule import usual_rate

RATES = (2e-5, 3e-5, 5e-5, 1e-4, 2e-4, 3e-4, 5e-4, 1e-3)


def main() -> None:
    """Run the sweep that the command line asks for."""
    parser = argparse.ArgumentParser(description="Measures the learning rates of fine-tuning.")
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--train", required=True)
    parser.add_argument("--dev", required=True)
    parser.add_argument("-o", "--output", required=True, type=Path)
    parser.add_argument("--rates", nargs="+", type=float, default=RATES)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=float, default=3.0)
    parser.add_argument("--max-length", type=int, default=64)
    asked = parser.parse_args()
    found = {}
    for model in asked.models:
        rows = {f"{rate:g}": mean(one(asked, model, rate, seed) for seed in range(asked.seeds)) for rate in asked.rates}
        width = int(read_public(model)["hidden_size"])
        best = max(rows, key=rows.__getitem__)
        found[str(model)] = {"width": width, "usual": usual_rate(width), "best": best, "dev": rows}
        write_json(asked.output / "rates.json", found)
        console.show(f"{model} (width {width}): {found[str(model)]}")


def one(asked: argparse.Namespace, model: Path, rate: float, seed: int) -> float:
    """The main dev metric of one run."""
    run = asked.output / f"{model.resolve().parent.name}-{model.name}" / f"{rate:g}-{seed}"
    settings = {
        "model": str(model),
        "train_file": asked.train,
        "dev_file": asked.dev,
        "epochs": asked.epochs,
        "max_length": asked.max_length,
        "baselines": False,
        "optim": {"lr": rate},
        "train": {"seed": seed, "eval_every": 10**6, "save_every": 10**6},
    }
    results = run_finetune(build_config(FinetuneConfig, settings), run)
    return float(results["dev"][results["metrics"][0]])


if __name__ == "__main__":
    main()
