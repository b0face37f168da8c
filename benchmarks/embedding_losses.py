"""Sentence embeddings trained here and by `sentence-transformers`: quality over seeds, and time. Real sets.

    python -m benchmarks.embedding_losses --stsb STS-B --korsts KORSTS --squad SQUAD     measures what is not there yet
    python -m benchmarks.embedding_losses --table                                        prints the table of the log

Both programs start from the same weights, and have the same rows, learning rate, warm-up, batch size and number of
steps. Both models are evaluated by the same code. Needs `sentence-transformers` with `accelerate` and `datasets`.
"""

import argparse
import csv
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import torch

import bertie
from benchmarks.result_lines import add_line, peer_cells, read_lines
from bertie.errors import UsageError
from bertie.models import names as hub

RESULTS = Path(__file__).parent / "results" / "embedding_losses.jsonl"
Row = tuple[object, ...]
LENGTH, RATE, WARMUP = 64, 1e-4, 0.1


@dataclass(frozen=True)
class Set:
    """A set: its model, the loss here and there, the columns, and how much of it is learned."""

    model: str
    loss: str
    peer: str
    columns: tuple[str, ...]
    metric: str
    batch: int
    epochs: int


SETS = {
    "STS-B": Set("starter-en", "cosent", "CoSENTLoss", ("text1", "text2", "label"), "spearman", 32, 2),
    "KorSTS": Set("starter-ko", "cosent", "CoSENTLoss", ("text1", "text2", "label"), "spearman", 32, 2),
    "SQuAD": Set(
        "starter-en", "in_batch_negatives", "MultipleNegativesRankingLoss", ("anchor", "positive"), "ndcg@10", 64, 1
    ),
}


def main() -> None:
    """Measures, or prints the table."""
    parser = argparse.ArgumentParser(description="Compares the training of sentence embeddings.")
    parser.add_argument("--stsb", type=Path)
    parser.add_argument("--korsts", type=Path)
    parser.add_argument("--squad", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=2000, help="training rows")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    if options.table:
        print("\n".join(table([*read_lines(RESULTS)])))
        return
    folders = {"STS-B": options.stsb, "KorSTS": options.korsts, "SQuAD": options.squad}
    if None in folders.values():
        raise UsageError("Pass --stsb FOLDER, --korsts FOLDER and --squad FILE.")
    torch.set_num_threads(options.threads)
    known = {(one["set"], one["program"], one["seed"], one["rows"]) for one in read_lines(RESULTS)}
    for seed, name, program in product(range(options.seeds), SETS, PROGRAMS):
        if (name, program, seed, options.rows) in known:
            continue
        train, dev = rows_of(name, folders[name])
        Random(seed).shuffle(train)
        del train[options.rows :]
        with tempfile.TemporaryDirectory() as folder:
            own = SETS[name]
            tables = [
                written(Path(folder) / f"{part}.csv", own.columns, rows) for part, rows in (("t", train), ("d", dev))
            ]
            seconds, model = PROGRAMS[program](own, tables[0], tables[1], seed, Path(folder))
            score = float(bertie.evaluate(model, tables[1])[own.metric])
        line = {"set": name, "program": program, "seed": seed, "rows": options.rows, own.metric: round(score, 4)}
        line |= {"pairs_per_s": round(len(train) * own.epochs / seconds, 1), "threads": options.threads}
        add_line(RESULTS, line)


def ours(own: Set, train: Path, dev: Path, seed: int, folder: Path) -> tuple[float, Path]:
    """Trains here. Returns the seconds of training, without reading and evaluation, and the model's folder."""
    plain = {
        "baselines": False,
        "select": "last",
        "train.eval_every": 10**6,
        "train.save_every": 10**6,
        "optim.weight_decay": 0.0,
        "task_options": {"loss_kind": own.loss},
    }
    run = bertie.finetune(
        own.model,
        train,
        dev,
        task="embed",
        output=folder / "run",
        epochs=own.epochs,
        lr=RATE,
        warmup=WARMUP,
        batch_size=own.batch,
        max_length=LENGTH,
        seed=seed,
        precision="fp32",
        settings=plain,
    )
    metrics = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    assert run.folder is not None
    return max(line["elapsed_s"] for line in metrics if line["kind"] == "train"), folder / "run" / "model"


def theirs(own: Set, train: Path, dev: Path, seed: int, folder: Path) -> tuple[float, Path]:
    """Trains with `sentence-transformers`, which is the peer."""
    import sentence_transformers as peer
    from datasets import Dataset
    from sentence_transformers.sentence_transformer import losses
    from sentence_transformers.training_args import BatchSamplers

    torch.manual_seed(seed)
    options = {"dtype": torch.float32}  # the files are 16 bit, in which training diverges
    model = peer.SentenceTransformer(str(hub.place(own.model)), device="cpu", model_kwargs=options)
    model.max_seq_length = LENGTH
    with train.open(newline="") as lines:
        columns: dict[str, list[Any]] = {name: [] for name in own.columns}
        for row in csv.DictReader(lines):
            for name, value in row.items():
                columns[name].append(float(value) / 5 if name == "label" else value)
    scored = "label" in columns
    settings = peer.SentenceTransformerTrainingArguments(
        str(folder / "peer"),
        num_train_epochs=own.epochs,
        per_device_train_batch_size=own.batch,
        learning_rate=RATE,
        warmup_ratio=WARMUP,
        seed=seed,
        data_seed=seed,
        report_to="none",
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
        batch_sampler=BatchSamplers.BATCH_SAMPLER if scored else BatchSamplers.NO_DUPLICATES,
    )
    data, loss = Dataset.from_dict(columns), getattr(losses, own.peer)(model)
    trainer = peer.SentenceTransformerTrainer(model, settings, train_dataset=data, loss=loss)
    began = time.monotonic()
    trainer.train()
    seconds = time.monotonic() - began
    model.save(str(folder / "model"))
    return seconds, folder / "model"


PROGRAMS = {"Bertie": ours, "sentence-transformers": theirs}


def rows_of(name: str, place: Path) -> tuple[list[Row], list[Row]]:
    """Returns training and evaluation rows of a set."""
    if name == "SQuAD":
        articles = json.loads(place.read_text(encoding="utf-8"))["data"]
        pairs = [
            (passage["qas"][0]["question"], passage["context"])
            for article in articles
            for passage in article["paragraphs"]
            if passage["qas"]
        ]
        Random(0).shuffle(pairs)
        return [*pairs[:6000]], [*pairs[6000:7000]]
    parts: list[list[Row]] = []
    for part in ("train", "dev"):
        (file,) = place.glob(f"*{part}.tsv")
        with file.open(encoding="utf-8", newline="") as lines:
            rows = csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
            parts.append([(row["sentence1"], row["sentence2"], row["score"]) for row in rows if row["score"]])
    return parts[0], parts[1]


def written(path: Path, columns: Sequence[str], rows: Sequence[Row]) -> Path:
    """Writes a table, and returns its path."""
    with path.open("w", encoding="utf-8", newline="") as lines:
        writer = csv.writer(lines)
        writer.writerow(columns)
        writer.writerows(rows)
    return path


def table(found: list[dict[str, Any]]) -> list[str]:
    """Returns a Markdown table: means over seeds, with 95% intervals."""
    rows = ["| set | loss | metric | Bertie | sentence-transformers | times as fast |", "|---|---|---|---|---|---|"]
    for name, own in SETS.items():
        runs = {
            program: [one for one in found if (one["set"], one["program"]) == (name, program)] for program in PROGRAMS
        }
        if not all(runs.values()):
            continue
        ours, theirs = runs.values()
        cells = " | ".join(peer_cells(ours, theirs, own.metric))
        rows.append(f"| {name} | `{own.loss}` | {own.metric} | {cells} |")
    return rows


if __name__ == "__main__":
    main()
