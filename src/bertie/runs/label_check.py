"""The label check of a fine-tuning run: training rows whose labels are probably wrong, as a table and for the page."""

from pathlib import Path
from typing import Any

from bertie import console
from bertie.evaluation.baselines import some
from bertie.evaluation.label_check import Predict, as_csv, shortened, suspects
from bertie.files import write_bytes
from bertie.runs.examples import Examples
from bertie.runs.folder import SUSPECTS

SHOWN = 20  # rows on the page
CHECKED = 5_000_000  # characters of the rows that tf-idf checks, about 90,000 short reviews: half a minute
LEAST = 100  # rows: tf-idf of fewer says little about any of them
MODELS = {"words": "tf-idf and logistic regression", "folds": "fine-tuned on four fifths"}


def check_labels(kind: str, examples: Examples, run: Path, predict: Predict) -> dict[str, Any]:
    """Writes RUN/label_check.csv, and returns its first rows for findings.json; {} where nothing is checked.

    kind: of `FinetuneConfig.label_check`; predict: fine-tunes on some rows and predicts others, for "folds".
    """
    train = examples.train if kind == "folds" else some(examples.train, CHECKED)
    if kind == "none" or len(train) < LEAST:
        return {}
    console.say(f"checking the labels of {len(train):,} training rows (label_check={kind})", level=1)
    found = suspects(examples.task, train, predict if kind == "folds" else None)
    write_bytes(run / SUSPECTS, as_csv(found, examples.texts).encode("utf-8-sig"))  # with the mark that Excel needs
    rows = [shortened(suspect.as_json()) for suspect in found[:SHOWN]]
    told = {"listed": len(found), "checked": len(train), "model": MODELS[kind], "file": SUSPECTS, "rows": rows}
    return {"label_check": told}
