"""Benchmark of masked-LM training: Bertie's `fit` and the `transformers` Trainer, with default and tuned settings.

    python -m benchmarks.pretrain '{"runner": "bertie bf16", "setup": {"model": "base", ...}}'     (only memory)

All runners start from the same weights and read the same sequences. Lengths are uniform between a fifth of a row and
the whole row, so that padded rows are 60% full. The tuned Trainer reads the same tokens joined into full rows, in bf16
where that is faster. It is measured plain and, with a C++ compiler, also with torch.compile. The losses of one batch
are compared first. Model FLOPs utilization is the counted operations of real tokens relative to matrix products of the
same precision, measured in the same run.
"""

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks import harness
from benchmarks.peers import TrainerPeer, require
from bertie.console import console
from bertie.costs.meter import peak_bytes
from bertie.data.masking import Vocabulary
from bertie.errors import BertieError, UsageError, nearest
from bertie.models import families
from bertie.models.batch import Batch
from bertie.models.count import forward_flops
from bertie.objectives.mlm import MaskedLM
from bertie.order import Draws, key
from bertie.text.sequences import Sequences
from bertie.train.callbacks import EachStep
from bertie.train.config import OptimConfig, TrainConfig
from bertie.train.loop import fit, temporary_run
from bertie.train.precision import choose_device

SIZES = {
    "tiny": "bert-tiny",
    "mini": "bert-mini",
    "small": "bert-small",
    "base": "bert-base",
    "large": "bert-large",
}
STEPS = {"tiny": 12, "mini": 6, "small": 4, "base": 2, "large": 2}  # of a round: some seconds on two cores
ON_GPU = 20  # times as many there
PEER_WARMUP = 5  # steps of the Trainer before those that are measured: it records nothing
PREDICTED = 0.15  # of the tokens
COMPARED = 16  # sequences whose loss is compared first: the peer stores the logits of all their tokens
CLS, SEP, MASK, FIRST_WORD = 101, 102, 103, 999  # where the public uncased vocabulary has them


@dataclass(frozen=True)
class Setup:
    """The task of all runners. length: tokens of a full row; device: a kind torch knows."""

    model: str = "base"
    batch_size: int = 32
    length: int = 128
    device: str = "cpu"

    @property
    def steps(self) -> int:
        """Measured optimizer steps of a round."""
        return STEPS[self.model] * (1 if self.device == "cpu" else ON_GPU)

    @property
    def warmup_steps(self) -> int:
        """Steps of a round before those, in which a GPU's layers are recorded for all shapes of the batches."""
        return 3 if self.device == "cpu" else 200


@dataclass
class Rows:
    """A source for `fit`: the sequences of the other runners, `batch_size` per step, masked as in BERT."""

    rows: list[NDArray[np.int64]]
    vocabulary: Vocabulary
    batch_size: int
    objective: MaskedLM = field(default_factory=MaskedLM)
    fingerprint: str = "bench"

    def batches(self, step: int, *, rank: int = 0, world: int = 1) -> list[Batch]:
        """The one micro-batch of a step."""
        ids = (step * self.batch_size + np.arange(self.batch_size)) % len(self.rows)
        rows = [self.rows[i] for i in ids]
        clean = replace(Sequences.of(rows), sample_ids=ids)
        return [Batch.of(self.objective.corrupt(clean, Draws(key(0, step, ids)), self.vocabulary))]


@dataclass
class BertieRunner:
    """Bertie's own `fit`, on rows of any length; a round trains `steps` steps after the warm-up."""

    model_folder: Path
    source: Rows
    setup: Setup
    precision: str

    def __post_init__(self) -> None:
        self.model, _ = families.load(self.model_folder)

    def __call__(self) -> tuple[float, float]:
        """Train a round. -> real tokens, seconds"""
        last = self.setup.warmup_steps + self.setup.steps
        marks: dict[int, float] = {}

        def mark(step: int) -> None:
            if step in (self.setup.warmup_steps, last):
                harness.wait_for(self.setup.device)
                marks[step] = time.perf_counter()

        never = last + 1
        with temporary_run() as run:
            fit(
                self.model,
                self.source.objective,
                self.source,
                train=TrainConfig(
                    steps=last,
                    batch_size=self.source.batch_size,
                    precision=self.precision,
                    device=self.setup.device,
                    save_every=never,
                    eval_every=never,
                ),
                optim=OptimConfig(),
                run=run,
                callbacks=[EachStep(mark)],
            )
        timed = range(self.setup.warmup_steps, last)
        tokens = sum(batch.tokens for step in timed for batch in self.source.batches(step))
        return float(tokens), marks[last] - marks[self.setup.warmup_steps]


def sequences(count: int, vocab_size: int, length: int, *, seed: int = 0) -> list[NDArray[np.int64]]:
    """[CLS] tokens [SEP], lengths uniform in length / 5 ... length: which fills padded rows to 60%."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(length // 5, length + 1, count)
    return [np.array([CLS, *rng.integers(FIRST_WORD, vocab_size, n - 2), SEP]) for n in lengths]


def full_rows(rows: list[NDArray[np.int64]], length: int) -> list[NDArray[np.int64]]:
    """The same tokens joined and cut into rows of `length`, as the peers' users pack them (run_mlm's group_texts)."""
    tokens = np.concatenate(rows)
    return list(tokens[: len(tokens) // length * length].reshape(-1, length))


def vocabulary(size: int) -> Vocabulary:
    """Where the special tokens and unused rows of the public uncased vocabulary are."""
    ids = np.arange(size)
    special = np.isin(ids, [0, 100, CLS, SEP, MASK])
    return Vocabulary(CLS, SEP, 0, MASK, 100, special, (ids < FIRST_WORD) & ~special, np.zeros(size, bool))


def write_model(setup: Setup, folder: Path) -> None:
    """A model folder with random weights that every runner opens."""
    config = families.config(SIZES[setup.model], pooler=False)
    families.save(families.build(config, heads=MaskedLM().heads), folder)


def runners(setup: Setup, folder: Path) -> dict[str, Callable[[], harness.Runner]]:
    """What makes each runner: a runner holds a model, so memory is measured with one alone."""
    size = families.config(SIZES[setup.model]).vocab_size
    rows = sequences(setup.batch_size * (setup.steps + setup.warmup_steps), size, setup.length)
    source = Rows(rows, vocabulary(size), setup.batch_size)
    full = full_rows(rows, setup.length)

    def bertie(precision: str) -> Callable[[], harness.Runner]:
        return lambda: BertieRunner(folder, source, setup, precision)

    def peer(rows: list[NDArray[np.int64]], **way: bool) -> Callable[[], harness.Runner]:
        return lambda: TrainerPeer(
            folder,
            rows,
            setup.batch_size,
            setup.steps,
            min(PEER_WARMUP, setup.warmup_steps),
            device=setup.device,
            **way,
        )

    compiles, bf16 = shutil.which("g++") or shutil.which("clang++"), harness.bf16_is_quicker(setup.device)
    return {
        **({"bertie bf16": bertie("bf16")} if bf16 else {}),
        "bertie fp32": bertie("fp32"),
        "transformers": peer(rows),
        "transformers best": peer(full, bf16=bf16),
        **({"transformers compiled": peer(full, bf16=bf16, compile=True)} if compiles else {}),
    }


def flops_per_token(setup: Setup) -> float:
    """Floating-point operations of training on a real token, by count: forward, and twice that backward."""
    config = families.config(SIZES[setup.model], pooler=False)
    lengths = np.arange(setup.length // 5, setup.length + 1)
    seen = float((lengths**2).sum() / lengths.sum())  # the mean length over tokens
    return 3 * sum(forward_flops(config, length=seen, predicted=PREDICTED).values())


def same_loss(setup: Setup, folder: Path) -> float:
    """Largest relative difference between our loss and the peer's on one masked batch in float32."""
    from transformers import BertForMaskedLM

    device = choose_device(setup.device)
    model = families.load(folder)[0].to(device)
    size = model.config.vocab_size
    rows = sequences(min(setup.batch_size, COMPARED), size, setup.length, seed=1)
    source = Rows(rows, vocabulary(size), len(rows))
    batch = source.batches(0)[0].to(device)
    with torch.no_grad():
        part = source.objective.loss(model, model.encode(batch), batch)["mlm"]
        labels = torch.full_like(batch.input_ids, -100)
        labels[batch.labels["mlm_positions"]] = batch.labels["mlm_targets"]
        mask = batch.layout.mask()
        peer = BertForMaskedLM.from_pretrained(folder).to(device).eval()
        theirs = peer(
            input_ids=batch.layout.rectangle(batch.input_ids),
            attention_mask=mask.long(),
            labels=batch.layout.rectangle(labels).masked_fill(~mask, -100),
        ).loss
    return abs(float(part.total) / part.count / float(theirs) - 1)


def measure(setup: Setup, *, rounds: int = 5, memory: bool = True, only: Collection[str] = ()) -> list[dict[str, Any]]:
    """One JSON-ready line per runner. only: the runners to measure; none: all.

    Raises BertieError when the losses disagree, UsageError for an unknown device or runner.
    """
    choose_device(setup.device)
    require()
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        write_model(setup, folder)
        makers = runners(setup, folder)
        for runner in only:
            if runner not in makers:
                raise UsageError(f"There is no runner {runner!r} on this machine. {nearest(runner, makers)}")
        difference = same_loss(setup, folder)
        if difference > 1e-4:
            raise BertieError(
                f"{setup.model}: the losses of Bertie and of the peer differ by {difference:.1e}, so no "
                "timings are reported."
            )
        console.say(f"{setup.model}: the losses of one batch agree to {difference:.0e}")
        made = {runner: make() for runner, make in makers.items() if not only or runner in only}
        cells = harness.interleave(made, rounds=rounds)
    best = "bf16" if harness.bf16_is_quicker(setup.device) else "fp32"
    products = {precision: harness.matrix_flops(setup.device, precision) for precision in {best, "fp32"}}
    parameters = sum(p.numel() for p in families.build(SIZES[setup.model], heads=MaskedLM().heads).parameters())
    lines = []
    for cell in cells:
        if memory:
            asked = json.dumps({"runner": cell.name, "setup": asdict(setup)})
            cell.peak_memory_bytes = harness.peak_memory_bytes(__name__, [asked])
        against = {
            peer.name: dict(zip(("median", "low", "high"), harness.ratios(cell, peer), strict=True))
            for peer in cells
            if peer.name.startswith("transformers")
        }
        product = products["fp32" if cell.name in ("bertie fp32", "transformers") else best]
        lines.append(
            {
                "bench": "pretrain",
                **asdict(setup),
                "parameters": parameters,
                "runner": cell.name,
                "tokens_per_s": round(cell.median, 1),
                "spread": cell.spread,
                "rates": [round(rate, 1) for rate in cell.rates],
                "best_precision": best,
                "matrix_flops": product,
                "utilisation": round(cell.median * flops_per_token(setup) / product, 4),
                "peak_memory_bytes": cell.peak_memory_bytes,
                "times_quicker_than": against,
                "machine": harness.machine(setup.device),
            }
        )
    return lines


def main(runner: str, setup: dict[str, Any]) -> None:
    """Train one round with one runner alone and print the peak memory above what the imports took."""
    require()
    asked = Setup(**setup)
    with tempfile.TemporaryDirectory() as work:
        write_model(asked, Path(work))
        make = runners(asked, Path(work))[runner]
        baseline = peak_bytes(asked.device)
        make()()
    print(json.dumps({"baseline_bytes": baseline, "peak_bytes": peak_bytes(asked.device)}))


if __name__ == "__main__":
    console.verbosity.level = -1
    main(**json.loads(sys.argv[1]))
