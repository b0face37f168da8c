"""Measures training and inference on an NVIDIA GPU part by part, and keeps each part's lines as JSON.

    python benchmarks/gpu.py --output benchmarks/results/gpu-h200.jsonl

A part that the file has already is not measured again, so a run that was cut off goes on where it stopped.
"""

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import finetune, gpu_infer, kernels, pretrain

BERTIE, TRAINER, COMPILED = "bertie bf16", "transformers best", "transformers compiled"
Lines = list[dict[str, Any]]


def _pretrain(model: str, batch_size: int, length: int, *, rounds: int = 3, peer: str = TRAINER) -> Callable[[], Lines]:
    setup = pretrain.Setup(model, batch_size, length, "cuda")
    return partial(pretrain.measure, setup, rounds=rounds, memory=False, only=(BERTIE, peer))


PARTS: dict[str, Callable[[], Lines]] = {
    "steps-base-128": partial(kernels.measure, "base", 256, 128),
    "base-128": _pretrain("base", 256, 128, rounds=2),
    "finetune-base": partial(
        finetune.measure,
        finetune.Setup("bert-base", steps=600, lr=5e-5),
        rounds=2,
        memory=False,
        only=(BERTIE, TRAINER),
    ),
    "embed-6x384": partial(gpu_infer.measure, "6x384"),
    "embed-base": partial(gpu_infer.measure, "base"),
    "large-128": _pretrain("large", 128, 128, rounds=1),
    "base-512": _pretrain("base", 64, 512),
    "mini-128": _pretrain("mini", 256, 128),
    "base-128-compiled": _pretrain("base", 256, 128, rounds=1, peer=COMPILED),
    "steps-large-128": partial(kernels.measure, "large", 128, 128),
    "steps-base-512": partial(kernels.measure, "base", 64, 512),
}
"""Part -> what measures it."""


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
        cells = PARTS[part]()
        with options.output.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps({"part": part, **cell}) + "\n" for cell in cells)
        for cell in cells:
            rate = cell.get("tokens_per_s") or cell["examples_per_s"]
            alone = f"p50 {cell['p50_ms']} ms" if "p50_ms" in cell else ""
            print(part, cell["runner"], f"{rate:,.0f} a second", alone, cell.get("times_quicker_than", ""), flush=True)


if __name__ == "__main__":
    main()
