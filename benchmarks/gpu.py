"""Measures training on an NVIDIA GPU part by part, and keeps each part's lines as JSON.

    python benchmarks/gpu.py --output benchmarks/results/gpu-h200.jsonl

A part that the file has already is not measured again, so a run that was cut off goes on where it stopped.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks.pretrain import Setup, measure

BERTIE, TRAINER, COMPILED = "bertie bf16", "transformers best", "transformers compiled"
PARTS: dict[str, tuple[Setup, int, Sequence[str]]] = {
    "base-128": (Setup("base", 256, 128, "cuda"), 3, (BERTIE, TRAINER)),
    "large-128": (Setup("large", 128, 128, "cuda"), 3, (BERTIE, TRAINER)),
    "base-512": (Setup("base", 64, 512, "cuda"), 3, (BERTIE, TRAINER)),
    "mini-128": (Setup("mini", 256, 128, "cuda"), 3, (BERTIE, TRAINER)),
    "base-128-compiled": (Setup("base", 256, 128, "cuda"), 1, (BERTIE, COMPILED)),
}
"""Part -> what is trained, rounds, and who takes part."""


def main() -> None:
    """Measures what the output file lacks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True, help="JSON lines, one per part and program")
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=PARTS, metavar="PART", help=", ".join(PARTS))
    options = parser.parse_args()
    lines = options.output.read_text(encoding="utf-8").splitlines() if options.output.exists() else []
    done = {json.loads(line)["part"] for line in lines}
    for part in options.parts:
        if part in done:
            continue
        setup, rounds, only = PARTS[part]
        cells = measure(setup, rounds=rounds, memory=False, only=only)
        with options.output.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps({"part": part, **cell}) + "\n" for cell in cells)
        for cell in cells:
            print(part, cell["runner"], f"{cell['tokens_per_s']:,.0f} tokens/s", cell["times_quicker_than"], flush=True)


if __name__ == "__main__":
    main()
