"""Masked-LM training, throughput and memory: Bertie's `fit` beside the `transformers` Trainer, as it comes and at best.

    python -m bertie.bench.pretrain memory "bertie bf16" base     (one runner's peak memory, in a process of its own)

All runners start from the same weights and read the same sequences, of lengths uniform between a fifth of a row and the
whole of it, so that padded rows are 60 % full. The Trainer at its best reads the same tokens joined into full rows, in
bf16, plain and, where there is a C++ compiler, through torch.compile. One batch's loss is compared first, so that a
quick wrong answer cannot win.
"""

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bertie import console, variants
from bertie.bench import harness
from bertie.bench.peers import TrainerPeer, require
from bertie.config import OptimConfig, TrainConfig
from bertie.data.batch import Batch
from bertie.data.collate import packed
from bertie.data.draws import Draws, key
from bertie.data.masking import Vocabulary
from bertie.errors import BertieError
from bertie.objectives.mlm import MaskedLM
from bertie.train.loop import fit

LENGTH = 128  # tokens of a full row
SIZES = {"tiny": "bert-tiny", "mini": "bert-mini", "base": "bert-base"}
STEPS = {"tiny": 12, "mini": 6, "base": 2}  # optimizer steps a round: some seconds on two cores
CLS, SEP, MASK, FIRST_WORD = 101, 102, 103, 999  # where the public uncased vocabulary has them


@dataclass
class Rows:
    """A source for `fit`: the same sequences the peers read, `batch_size` a step, masked as BERT does."""

    rows: list[NDArray[np.int64]]
    vocabulary: Vocabulary
    batch_size: int
    objective: MaskedLM = field(default_factory=MaskedLM)
    fingerprint: str = "bench"

    def batches(self, step: int, *, rank: int = 0, world: int = 1) -> list[Batch]:
        """The one micro-batch of a step."""
        ids = (step * self.batch_size + np.arange(self.batch_size)) % len(self.rows)
        rows = [self.rows[i] for i in ids]
        tokens = np.concatenate(rows)
        batch = packed(tokens, np.zeros_like(tokens), np.array([len(row) for row in rows]), ids)
        return [self.objective.corrupt(batch, Draws(key(0, step, ids)), self.vocabulary)]


@dataclass
class BertieRunner:
    """Bertie's own `fit`, on rows of any length; a round trains `steps` steps after two that are not counted."""

    model_folder: Path
    source: Rows
    steps: int
    precision: str

    def __post_init__(self) -> None:
        self.model, _ = variants.load(self.model_folder)

    def __call__(self) -> tuple[float, float]:
        """Train a round. -> real tokens, seconds"""
        last = TrainerPeer.WARMUP_STEPS + self.steps
        marks: dict[int, float] = {}

        def mark(step: int) -> None:
            marks[step] = time.perf_counter()

        never = last + 1
        with tempfile.TemporaryDirectory() as run:
            fit(
                self.model,
                self.source.objective,
                self.source,
                train=TrainConfig(
                    steps=last,
                    batch_size=self.source.batch_size,
                    precision=self.precision,
                    save_every=never,
                    eval_every=never,
                ),
                optim=OptimConfig(),
                run=Path(run),
                on_step=mark,
            )
        timed = range(TrainerPeer.WARMUP_STEPS, last)
        tokens = sum(batch.tokens for step in timed for batch in self.source.batches(step))
        return float(tokens), marks[last] - marks[TrainerPeer.WARMUP_STEPS]


def sequences(count: int, vocab_size: int, *, seed: int = 0) -> list[NDArray[np.int64]]:
    """[CLS] tokens [SEP], lengths uniform in LENGTH / 5 ... LENGTH: what fills padded rows to 60 %."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(LENGTH // 5, LENGTH + 1, count)
    return [np.array([CLS, *rng.integers(FIRST_WORD, vocab_size, n - 2), SEP]) for n in lengths]


def full_rows(rows: list[NDArray[np.int64]]) -> list[NDArray[np.int64]]:
    """The same tokens joined and cut into rows of LENGTH, as the peers' users pack them (run_mlm's group_texts)."""
    tokens = np.concatenate(rows)
    return list(tokens[: len(tokens) // LENGTH * LENGTH].reshape(-1, LENGTH))


def vocabulary(size: int) -> Vocabulary:
    """Where the special tokens and unused rows of the public uncased vocabulary are."""
    ids = np.arange(size)
    special = np.isin(ids, [0, 100, CLS, SEP, MASK])
    return Vocabulary(CLS, SEP, 0, MASK, 100, special, (ids < FIRST_WORD) & ~special, np.zeros(size, bool))


def write_model(name: str, folder: Path) -> int:
    """A model folder of preset `name` with random weights that every runner opens; returns the vocabulary's size."""
    config = variants.config(SIZES[name], pooler=False)
    variants.save(variants.build(config, heads=MaskedLM().heads), folder)
    return config.vocab_size


def runners(name: str, folder: Path, *, batch_size: int) -> dict[str, Callable[[], harness.Runner]]:
    """What makes each runner: a runner holds a model, so memory is measured with one alone."""
    size = variants.config(SIZES[name]).vocab_size
    steps = STEPS[name]
    rows = sequences(batch_size * (steps + TrainerPeer.WARMUP_STEPS), size)
    source = Rows(rows, vocabulary(size), batch_size)
    full = full_rows(rows)

    def compiled() -> TrainerPeer:
        return TrainerPeer(folder, full, batch_size, steps, bf16=True, compile=True)

    return {
        "bertie bf16": lambda: BertieRunner(folder, source, steps, "bf16"),
        "bertie fp32": lambda: BertieRunner(folder, source, steps, "fp32"),
        "transformers": lambda: TrainerPeer(folder, rows, batch_size, steps),
        "transformers best": lambda: TrainerPeer(folder, full, batch_size, steps, bf16=True),
        **({"transformers compiled": compiled} if shutil.which("g++") or shutil.which("clang++") else {}),
    }


def same_loss(folder: Path, batch_size: int) -> float:
    """Largest relative difference between our loss and the peer's on one masked batch in float32."""
    from transformers import BertForMaskedLM

    model, _ = variants.load(folder)
    source = Rows(
        sequences(batch_size, model.config.vocab_size, seed=1), vocabulary(model.config.vocab_size), batch_size
    )
    [batch] = source.batches(0)
    with torch.no_grad():
        part = source.objective.loss(model, model.encode(batch), batch)["mlm"]
        labels = torch.full_like(batch.input_ids, -100)
        labels[batch.labels["mlm_positions"]] = batch.labels["mlm_targets"]
        mask = batch.layout.mask()
        peer = BertForMaskedLM.from_pretrained(folder).eval()
        theirs = peer(
            input_ids=batch.layout.rectangle(batch.input_ids),
            attention_mask=mask.long(),
            labels=batch.layout.rectangle(labels).masked_fill(~mask, -100),
        ).loss
    return abs(float(part.total) / part.count / float(theirs) - 1)


def measure(name: str, *, batch_size: int = 32, rounds: int = 5, memory: bool = True) -> list[dict[str, Any]]:
    """One JSON-ready line per runner of a model size. Raises BertieError when the losses disagree."""
    require()
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        write_model(name, folder)
        difference = same_loss(folder, batch_size)
        if difference > 1e-4:
            raise BertieError(f"{name}: Bertie's loss and the peer's differ by {difference:.1e}; nothing is measured.")
        console.say(f"{name}: one batch's loss agrees with the peer's to {difference:.0e}")
        made = {runner: make() for runner, make in runners(name, folder, batch_size=batch_size).items()}
        cells = harness.interleave(made, rounds=rounds)
    for cell in cells:
        if memory:
            cell.peak_memory_bytes = harness.peak_memory_bytes(__name__, ["memory", cell.name, name, str(batch_size)])
    parameters = sum(p.numel() for p in variants.build(SIZES[name], heads=MaskedLM().heads).parameters())
    lines = []
    for cell in cells:
        against = {
            peer.name: dict(zip(("median", "low", "high"), harness.ratios(cell, peer), strict=True))
            for peer in cells
            if peer.name.startswith("transformers")
        }
        lines.append(
            {
                "bench": "pretrain",
                "model": name,
                "parameters": parameters,
                "runner": cell.name,
                "batch_size": batch_size,
                "length": LENGTH,
                "tokens_per_s": round(cell.median, 1),
                "spread": round(cell.spread, 3),
                "rates": [round(rate, 1) for rate in cell.rates],
                "peak_memory_bytes": cell.peak_memory_bytes,
                "times_quicker_than": against,
                "machine": harness.machine(),
            }
        )
    return lines


def _memory(runner: str, name: str, batch_size: int) -> None:
    """Train one round with one runner alone and print the peak memory above what the imports took."""
    require()
    with tempfile.TemporaryDirectory() as work:
        write_model(name, Path(work))
        make = runners(name, Path(work), batch_size=batch_size)[runner]
        baseline = harness.resident_peak_bytes()
        make()()
    print(json.dumps({"baseline_bytes": baseline, "peak_bytes": harness.resident_peak_bytes()}))


if __name__ == "__main__":
    console.verbosity.level = -1
    _memory(sys.argv[2], sys.argv[3], int(sys.argv[4]))
