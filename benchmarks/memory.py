"""Peak memory of prediction by length and batch: what `bertie info` says beside what a fresh process takes.

    python -m benchmarks.memory --work WORK      measures what results/memory.jsonl lacks

A row is a model with random weights, an engine, a length and a number of texts that one call gets. Its process opens
the model, predicts, and prints the peak of its resident memory, on one thread. Models of three layers of BERT's width
take as much for a pass as those of twelve, but less for the weights: they show more of what a text takes. Linux.
"""

import argparse
import datetime
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "memory.jsonl"
NARROW = {"num_hidden_layers": 6, "hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 768}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {  # name -> preset and changes
    "BERT, 4 x 256": ("bert-mini", {}),
    "BERT, 3 x 768": ("bert-base-cased", {"num_hidden_layers": 3}),
    "BERT, 12 x 768": ("bert-base-cased", {}),
    "ModernBERT, 6 x 384": ("ModernBERT-base", NARROW),
    "ModernBERT, 3 x 768": ("ModernBERT-base", {"num_hidden_layers": 3}),
    "MPNet, 3 x 768": ("mpnet-base", {"num_hidden_layers": 3}),
    "DeBERTa, 3 x 768": ("deberta-v3-base", {"num_hidden_layers": 3}),
}
VOCABULARY = 12_000  # of starter-en, whose tokenizer all have
ENGINES = ("torch", "native")
TORCH_ALONE = ("MPNet, 3 x 768", "DeBERTa, 3 x 768")  # their positions are relative
LENGTHS, BATCHES = (32, 128, 512), (1, 8, 64)
FEW = {(32, 1), (512, 1), (512, 8), (128, 64), (2048, 1), (2048, 8)}  # cells of models whose others would say no more
OF_LARGE = {(32, 1), (512, 1), (512, 8)}  # cells of the model that takes long
WHOLE = ("BERT, 4 x 256", "BERT, 3 x 768")  # models with all cells
WORDS = "the of and in to a is was for on"  # each of one token


def cell(folder: str, engine: str, length: int, batch: int) -> int:
    """Returns the peak of this process in bytes, which predicts some texts of as many tokens."""
    import random

    import bertie

    rng = random.Random(0)
    texts = [" ".join(rng.choices(WORDS.split(), k=length - 2)) for _ in range(batch)]  # with [CLS] and [SEP]
    model = bertie.load(folder, device="cpu", engine=engine)
    list(model.predict(texts, max_length=length))
    peak = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    assert peak is not None
    return 1024 * int(peak[1])


def made(work: Path, name: str) -> Path:
    """Returns the folder of a model with random weights and two labels, which is made first."""
    from bertie.models import families
    from bertie.models.heads import HEADS
    from bertie.text.tokenizer import Tokenizer

    folder = work / name.lower().replace(" ", "").replace(",", "-")
    if not folder.exists():
        preset, changes = MODELS[name]
        tokenizer = Tokenizer.load(Path("models/starter-en"))
        sizes = {**changes, "vocab_size": VOCABULARY}
        head = HEADS["sequence"](families.config(preset).replace(**sizes), 2)
        families.save(families.build(preset, heads={"sequence": head}, **sizes), folder, tokenizer=tokenizer)
    return folder


def said(name: str, length: int, batch: int) -> dict[str, float]:
    """Returns what `bertie info` and `bertie plan` say of a model, in bytes, by engine."""
    from bertie.apps.plan.memory import memory_at_use
    from bertie.models import count, families

    preset, changes = MODELS[name]
    config = families.config(preset, vocab_size=VOCABULARY, **changes)
    return memory_at_use(config.flat(), sum(count.parameters(config).values()), length, batch)


def measured(folder: Path, engine: str, length: int, batch: int) -> int:
    """Returns the peak of a process of its own in bytes."""
    command = [sys.executable, "-m", "benchmarks.memory", "--cell", str(folder), engine, str(length), str(batch)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return int(done.stdout.splitlines()[-1])


def main() -> None:
    """Measures the cells that the file of results does not have."""
    parser = argparse.ArgumentParser(description="Measures the peak memory of prediction.")
    parser.add_argument("--work", type=Path, help="folder of the models")
    parser.add_argument("--only", nargs="+", default=list(MODELS), choices=MODELS, help="models")
    parser.add_argument("--cell", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cell:
        folder, engine, *numbers = options.cell
        print(cell(folder, engine, *map(int, numbers)))
        return
    if options.work is None:
        parser.error("--work is missing: a folder for the models")

    from benchmarks import harness
    from benchmarks.result_lines import add_line, read_lines
    from bertie.models import families

    facts = harness.machine()
    machine = f"{facts['processor']}, 1 thread, Python {facts['python']}, torch {facts['torch']}"
    known = {(one["model"], one["engine"], one["length"], one["batch"]) for one in read_lines(RESULTS)}
    for name in options.only:
        folder = made(options.work, name)
        most = min(families.config(folder).max_length, 512 if name in TORCH_ALONE else 2048)
        for engine in ENGINES[: 1 if name in TORCH_ALONE else 2]:
            cells = {(length, batch) for length in LENGTHS for batch in BATCHES}
            cells = cells if name in WHOLE else OF_LARGE if "12" in name else FEW
            for length, batch in sorted(one for one in cells if one[0] <= most):
                if (name, engine, length, batch) not in known:
                    line = {"model": name, "engine": engine, "length": length, "batch": batch}
                    line["bytes"] = measured(folder, engine, length, batch)
                    add_line(RESULTS, {**line, "machine": machine, "date": datetime.date.today().isoformat()})


if __name__ == "__main__":
    main()
