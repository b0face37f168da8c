"""Names with and without the sentences around them: context=document against context=sentence on CoNLL-2003.

    python -m benchmarks.document_context --data-dir DATA --work WORK --model starter-en --seeds 3

The copy of CoNLL-2003 at hand has no lines of -DOCSTART-. They are put back by a rule: a document begins with the
sentence before a dateline ("LONDON 1996-08-30"). That is 746, 181 and 182 of the 946, 216 and 231 documents of the
original files; the others are joined to the one before. A run is a line of results/document_context.jsonl.
"""

import argparse
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import torch

import bertie
from benchmarks import harness
from benchmarks.result_lines import add_line, read_lines

RESULTS = Path(__file__).parent / "results" / "document_context.jsonl"
DATELINE = re.compile(r"[A-Z][A-Za-z/ .'-]* 1996-[0-9-]+")
CONTEXTS = ("sentence", "document")


def divided(path: Path) -> Iterator[str]:
    """Yields the sentences of a file, as they are, with a line of -DOCSTART- before the first one of a document."""
    sentences = path.read_text(encoding="utf-8").strip().split("\n\n")
    dated = [DATELINE.fullmatch(" ".join(line.split(" ")[0] for line in one.split("\n"))) for one in sentences]
    for sentence, next_dated in zip(sentences, [*dated[1:], None], strict=True):
        yield f"-DOCSTART- O\n\n{sentence}" if next_dated else sentence


def write_part(path: Path, most: int, out: Path) -> Path:
    """Writes the first sentences of a file, divided into documents, and returns where."""
    out.write_text("\n\n".join(islice(divided(path), most)) + "\n", encoding="utf-8")
    return out


def main() -> None:
    """Measures the runs that the file of results does not have."""
    parser = argparse.ArgumentParser(description="Measures names with and without their documents.")
    parser.add_argument("--data-dir", required=True, type=Path)
    parser.add_argument("--work", required=True, type=Path)
    parser.add_argument("--model", default="starter-en")
    parser.add_argument("--examples", type=int, default=2_000)
    parser.add_argument("--dev", type=int, default=800)
    parser.add_argument("--max-length", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.work.mkdir(parents=True, exist_ok=True)
    folder = options.data_dir / "tagging" / "conll2003"
    train = write_part(folder / "train.txt", options.examples, options.work / "train.conll")
    dev = write_part(folder / "valid.txt", options.dev, options.work / "dev.conll")
    conditions = harness.conditions()
    shared = {
        **{name: getattr(options, name) for name in ("model", "examples", "dev", "max_length", "epochs")},
        "machine": conditions["machine"],
    }
    done = [{name: row[name] for name in (*shared, "context", "seed")} for row in read_lines(options.results)]
    for seed in range(options.seeds):
        for context in CONTEXTS:
            row = {**shared, "context": context, "seed": seed}
            if row in done:
                continue
            settings = {"task_options.context": context, "label_check": "none"}
            run = bertie.finetune(
                options.model,
                train,
                dev,
                task="tagging",
                max_length=options.max_length,
                epochs=options.epochs,
                seed=seed,
                settings=settings,
            )
            add_line(
                options.results,
                {**row, "f1": round(run.scores["f1"], 4), "date": conditions["date"]},
            )


if __name__ == "__main__":
    main()
