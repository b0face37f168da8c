"""Is a real shift found, and how often is there a false alarm? Starter models on five shifts, and random halves.

    python -m benchmarks.drift --data DATA      measures what is not in results/drift.jsonl yet
    python -m benchmarks.drift --table          prints the tables that the page and the log show

A model is fine-tuned briefly. Its reference is its dev rows. A shift is tested with draws of other rows, and with rows
of the same source that were held out. For false alarms, held-out rows are divided at random 100 times, and the halves
are compared. The model reads every row once: the halves are drawn from its answers and vectors.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import bertie
from benchmarks.result_lines import add_line, read_lines
from bertie.apps.drift.compare import compare_traffic
from bertie.errors import UsageError
from bertie.infer.batching import chunks, run_batches
from bertie.infer.predict import Predictor
from bertie.infer.texts import TextRow
from bertie.infer.traffic import Traffic
from bertie.io.table_format import TableFormat
from bertie.io.tables import Example
from bertie.tasks import TASKS, Task

RESULTS = Path(__file__).parent / "results" / "drift.jsonl"
Rows = list[Example]
LEVEL, HALVES, DRAWS = 0.05, 100, 10
SIZES = (100, 500)  # rows that a shift is tested with


@dataclass(frozen=True)
class Set:
    """A set: its model, its task, and the files below DATA of the training and of the shift. read: reads a file."""

    model: str
    task: str
    train: str
    shift: str
    about: str
    max_length: int = 96


SETS = {
    "SST-2": Set("starter-en", "sequence", "glue/SST-2/train.tsv", "imdb/test.jsonl", "reviews of IMDb"),
    "NSMC": Set("starter-ko", "sequence", "nsmc/ratings_train.txt", "korean/kornli/xnli.test.ko.tsv", "KorNLI"),
    "CoNLL-2003": Set(
        "starter-en", "tagging", "tagging/conll2003/train.txt", "tagging/wnut17/wnut17train.conll", "WNUT"
    ),
    "CoLA": Set("starter-en", "sequence", "glue/CoLA/train.tsv", "glue/SST-2/train.tsv", "sentences of SST-2"),
    "IMDb": Set("starter-en", "sequence", "imdb/train.jsonl", "glue/SST-2/train.tsv", "sentences of SST-2", 128),
}
COLA = TableFormat.of(columns=("source", "label", "star", "text"), kind="tsv")
FORMATS = {
    "imdb": TableFormat.of(("text",), "label", kind="jsonl"),
    "glue/CoLA": COLA,
    "nsmc": TableFormat.of(("document",), "label", kind="tsv"),
    "korean/kornli": TableFormat.of(("sentence1",), "gold_label", kind="tsv"),
    "glue": TableFormat.of(kind="tsv"),
    "tagging": TableFormat.of(kind="conll"),
}


def main() -> None:
    """Measures, or prints the tables."""
    parser = argparse.ArgumentParser(description="Measures drift on real shifts, and false alarms.")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--train", type=int, default=3_000)
    parser.add_argument("--dev", type=int, default=1_000)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    if options.table:
        print("\n".join(table([*read_lines(options.results)])))
        return
    if options.data is None:
        raise UsageError("Pass --data FOLDER.")
    known = {one["set"] for one in read_lines(options.results)}
    for name, one in SETS.items():
        if name not in known:
            with TemporaryDirectory() as home:
                line = {"set": name, "shift": one.about, **measured(one, options, Path(home))}
            add_line(options.results, line)


def measured(one: Set, options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Returns the figures of a set: how often the shift is found, and how often there is a false alarm."""
    task = TASKS[one.task]
    rows = drawn(options.data / one.train, task, options.train + 2 * options.dev + 2_000)
    train, dev, rest = np.split(np.array(rows, object), [options.train, options.train + options.dev])
    other = drawn(options.data / one.shift, task, 2_000)
    plain = {"baselines": False, "label_check": "none", "train.eval_every": 10**6, "train.save_every": 10**6}
    tables = (table_of(part, home / f"{name}.jsonl") for name, part in (("train", train), ("dev", dev)))
    run = bertie.finetune(
        one.model, *tables, task=one.task, epochs=1, batch_size=16, max_length=one.max_length, seed=0, precision="fp32",
        output=home / "run", settings=plain,
    )  # fmt: skip
    predictor = run.model.predictor()
    usual = next(iter(Traffic.read(home / "run" / "model" / Traffic.FILE).values()))
    held_out, shifted = Answered.of(predictor, [*rest]), Answered.of(predictor, other)
    figures: dict[str, Any] = {"reference_rows": usual.rows, "metric": run.scores.report[run.scores.metrics[0]]}
    for size in SIZES:
        figures[f"found_{size}"] = rate(usual, shifted, size)
    same = compare_traffic(usual, held_out.traffic([*range(len(held_out.rows))]), LEVEL)
    figures |= {"same_source_rows": len(held_out.rows), "same_source_p": round(same[0].adjusted_p, 4)}
    first = compare_traffic(usual, shifted.traffic(Random(0).sample(range(len(shifted.rows)), SIZES[-1])), LEVEL)
    figures["quantities"] = {
        test.quantity: {"index": round(test.index, 3), "p": round(test.adjusted_p, 4), "told_apart": test.separability}
        for test in first
    }
    halves = 0
    for seed in range(HALVES):
        order = Random(seed).sample(range(len(held_out.rows)), 1_000)
        tests = compare_traffic(held_out.traffic(order[:500]), held_out.traffic(order[500:]), LEVEL)
        halves += any(test.differs for test in tests)
    return figures | {"halves": HALVES, "alarms_in_halves": halves}


def rate(usual: Traffic, rows: "Answered", size: int) -> float:
    """Returns in what part of draws of a size a difference is found."""
    found = 0
    for seed in range(DRAWS):
        part = rows.traffic(Random(seed).sample(range(len(rows.rows)), size))
        found += any(test.differs for test in compare_traffic(usual, part, LEVEL))
    return found / DRAWS


@dataclass(frozen=True)
class Answered:
    """Rows with the answers of a model and their pooled vectors, of which traffic is counted as often as wanted."""

    predictor: Predictor
    rows: Rows
    answers: list[Any]
    vectors: np.ndarray

    @classmethod
    def of(cls, predictor: Predictor, rows: Rows) -> "Answered":
        """Answers rows."""
        answers, vectors = list[Any](), list[np.ndarray]()
        for part in chunks(rows, 512):
            encoded = predictor.encode(part)
            answers += predictor.pipeline.decode(part, encoded, predictor.logits(encoded))
            vectors.append(
                run_batches(predictor.engine, encoded.take(encoded.windows[:-1]), (Traffic.VECTOR,))[Traffic.VECTOR]
            )
        return cls(predictor, rows, answers, np.concatenate(vectors))

    def traffic(self, numbers: list[int]) -> Traffic:
        """Returns the traffic of some rows."""
        part = [self.rows[number] for number in numbers]
        traffic = Traffic("")
        encoded = self.predictor.encode(part)
        traffic.count(self.predictor.pipeline, part, encoded, [self.answers[number] for number in numbers])
        traffic.sample(len(part), lambda some: self.vectors[[numbers[at] for at in some]])
        return traffic


def drawn(file: Path, task: type[Task], count: int) -> Rows:
    """Returns rows of a file at random, of which no two have the same text."""
    key = next((key for key in FORMATS if key in str(file)), "")
    rows: Iterator[TextRow] = iter(task.rows(file, FORMATS[key]))
    unique = {" ".join(row.texts): row for row in islice(rows, 60_000) if isinstance(row, Example)}
    every = [*unique.values()]
    return Random(0).sample(every, min(count, len(every)))


def table_of(rows: "np.ndarray[Any, Any]", file: Path) -> Path:
    """Writes rows as a table."""

    def line(row: Example) -> dict[str, Any]:
        if isinstance(row.label, str):
            return {"text": row.texts[0], "label": row.label}
        words = row.texts[0].split(" ")
        return {"tokens": words, "tags": list(row.label)}

    file.write_text("".join(json.dumps(line(row)) + "\n" for row in rows))
    return file


def table(every: list[dict[str, Any]]) -> list[str]:
    """Returns the table in Markdown."""
    head = (
        "| trained on | in use | found with 100 rows | with 500 | told apart | alarms in 100 halves | same source, p |"
    )
    rows = [head, "|---|---|---|---|---|---|---|"]
    for one in every:
        apart = one["quantities"]["vectors"]["told_apart"]
        cells = [one["set"], one["shift"], f"{one['found_100']:.0%}", f"{one['found_500']:.0%}", f"{apart:.2f}"]
        rows.append(f"| {' | '.join(cells)} | {one['alarms_in_halves']} | {one['same_source_p']:.2f} |")
    return rows


if __name__ == "__main__":
    main()
