"""Does a task that was learned in English work in Korean? A multilingual model, an English one, and Korean examples.

    python -m benchmarks.cross_lingual --data DATA        measures what results/cross_lingual.jsonl lacks

DATA has the folders of `bertie data`: glue, korean, nsmc and tagging. Every row is evaluated on the same Korean
examples. A line is a task, a model, what it learned from, and a seed.

    English          2,000 English examples, none in Korean (zero-shot: Conneau et al. 2018)
    few Korean       200 Korean examples
    English and few  both, shuffled
    Korean           2,000 Korean examples
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import bertie
from benchmarks.harness import conditions
from benchmarks.result_lines import add_line, read_lines
from bertie.errors import UsageError, nearest
from bertie.io.table_format import TableFormat
from bertie.io.tables import read_examples
from bertie.io.tagged import sentences
from bertie.io.words import TaggedExample

RESULTS = Path(__file__).parent / "results" / "cross_lingual.jsonl"
MULTILINGUAL = "e5-small"
MANY, FEW, TEST = 2_000, 200, 1_500  # examples
EPOCHS = 2
Row = dict[str, Any]


def texts(names: Sequence[str], label: str, value: Callable[[str], Any], file: Path) -> list[Row]:
    """Returns rows of texts and a label, which `value` reads; rows without one are left out."""
    examples, _ = read_examples(file, TableFormat.of(names, label, kind="tsv"))
    return [{**{f"text{i}": text for i, text in enumerate(one.texts)}, "label": value(one.label)} for one in examples]


def parts_of_speech(*files: Path) -> list[Row]:
    """Returns the words of sentences in CoNLL-U with their universal parts of speech."""
    rows = [row for file in files for row in sentences(file, TableFormat.of(label="upos"))]
    tagged = [row for row in rows if isinstance(row, TaggedExample) and 2 <= len(row.spans) <= 60]
    words = [[row.texts[0][start:stop] for start, stop in row.spans] for row in tagged]
    return [{"tokens": tokens, "tags": [*(row.label or ())]} for tokens, row in zip(words, tagged, strict=True)]


def polarity(label: str) -> str:
    """Returns the name of a label of SST-2 or NSMC."""
    return "positive" if label == "1" else "negative"


@dataclass(frozen=True)
class Transfer:
    """A task with rows in both languages. kind: its name in Bertie; rate: times the learning rate."""

    english: Callable[[Path], list[Row]]
    korean: Callable[[Path], list[Row]]
    test: Callable[[Path], list[Row]]
    kind: str
    metric: str
    rate: float = 1.0


PAIR = ("sentence1", "sentence2")
TASKS = {
    "sentiment": Transfer(
        lambda data: texts(["sentence"], "label", polarity, data / "glue/SST-2/train.tsv"),
        lambda data: texts(["document"], "label", polarity, data / "nsmc/ratings_train.txt"),
        lambda data: texts(["document"], "label", polarity, data / "nsmc/ratings_test.txt"),
        "sequence",
        "accuracy",
    ),
    "similarity": Transfer(
        lambda data: texts(PAIR, "score", float, data / "glue/STS-B/train.tsv"),
        lambda data: texts(PAIR, "score", float, data / "korean/korsts/sts-train.tsv"),
        lambda data: texts(PAIR, "score", float, data / "korean/korsts/sts-test.tsv"),
        "regression",
        "spearman",
    ),
    "parts of speech": Transfer(
        lambda data: parts_of_speech(*(data / "tagging/UD_English-EWT").glob("*train*.conllu")),
        lambda data: parts_of_speech(*(data / "tagging/UD_Korean-Kaist").glob("*dev*.conllu")),
        lambda data: parts_of_speech(*(data / "tagging/UD_Korean-Kaist").glob("*test*.conllu")),
        "tagging",
        "accuracy",
        2.0,
    ),
}


def learned(task: Transfer, data: Path, seed: int) -> dict[str, list[Row]]:
    """Returns the training rows of each way to learn."""
    random = Random(seed)
    english, korean = (random.sample(rows, min(MANY, len(rows))) for rows in (task.english(data), task.korean(data)))
    both = [*english, *korean[:FEW]]
    random.shuffle(both)
    return {"English": english, "few Korean": korean[:FEW], "English and few": both, "Korean": korean}


def measured(task: Transfer, model: str, train: list[Row], test: list[Row], seed: int) -> dict[str, Any]:
    """Returns the score of a fine-tuned model, and the numbers of its examples."""
    plain = {"baselines": False, "label_check": "none", "train.eval_every": 10**6, "train.save_every": 10**6}
    run = bertie.finetune(
        *(model, train, test),
        task=task.kind,
        text=tuple(name for name in train[0] if name.startswith("text")),
        epochs=EPOCHS,
        lr=1e-4 * task.rate,
        batch_size=16 if len(train) > FEW else 8,
        max_length=128,
        seed=seed,
        settings=plain,
    )
    return {"score": round(run.scores[task.metric], 4), "train": len(train), "test": len(test)}


def main() -> None:
    """Measures the rows that the file of results does not have."""
    parser = argparse.ArgumentParser(description="Measures what a model that learned in English does in Korean.")
    parser.add_argument("--data", required=True, type=Path)
    parser.add_argument("--models", nargs="+", default=[MULTILINGUAL, "minilm-l6"])
    parser.add_argument("--tasks", nargs="+", default=[*TASKS])
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    for task in options.tasks:
        if task not in TASKS:
            raise UsageError(f"{task!r} is not in the table. {nearest(task, TASKS)}")
    known = {(one["task"], one["model"], one["learned"], one["seed"]) for one in read_lines(RESULTS)}
    for seed, task, model in product(range(options.seeds), options.tasks, options.models):
        rows = TASKS[task].test(options.data)
        test = rows[:: max(1, len(rows) // TEST)][:TEST]
        for way, train in learned(TASKS[task], options.data, seed).items():
            if (task, model, way, seed) in known or (model != MULTILINGUAL and way != "English"):
                continue
            line = {"task": task, "model": model, "learned": way, "seed": seed, "metric": TASKS[task].metric}
            add_line(RESULTS, line | measured(TASKS[task], model, train, test, seed) | conditions("cpu"))


if __name__ == "__main__":
    main()
