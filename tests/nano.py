"""A nano run for the tests of `fit`: 2 layers, hidden 64, vocabulary 1,000, length 64, on text that numbers make up.

python tests/nano.py RUN '{"steps": 60}'        one run in a process of its own, to be killed
"""

import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bertie.data.masking import Vocabulary
from bertie.errors import BertieError
from bertie.models import families
from bertie.models.batch import Batch
from bertie.models.config import EncoderConfig
from bertie.models.model import TorchModel
from bertie.objectives import Objective, build_objective
from bertie.order import Draws, Order, key, mix
from bertie.text.sequences import Sequences
from bertie.train import distributed
from bertie.train.callbacks import EachStep
from bertie.train.config import OptimConfig, TrainConfig
from bertie.train.loop import Result, fit
from bertie.train.optim import OptimizerGroup
from bertie.train.step_metrics import measure_batches

VOCAB, LENGTH, SAMPLES = 1000, 64, 100
SHAPE = EncoderConfig(
    vocab_size=VOCAB,
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=128,
    max_position_embeddings=LENGTH,
)
ONES = np.arange(VOCAB)
WORDS = Vocabulary(1, 2, 0, 3, 4, ONES < 5, np.zeros(VOCAB, bool), np.zeros(VOCAB, bool))


@dataclass
class NanoSource:
    """Sequences of 5 to LENGTH tokens; each token follows from the one before, so that there is something to learn."""

    objective: Objective = field(default_factory=lambda: build_objective({"mlm": {}, "nsp": {}}))
    batch_size: int = 8
    micro_batch_size: int | None = None
    seed: int = 0
    fingerprint: str = "nano"
    samples: int = SAMPLES

    def batches(self, step: int, *, rank: int = 0, world: int = 1) -> list[Batch]:
        epochs, ids = Order(self.samples, self.seed).samples(step, self.batch_size, rank=rank, world=world)
        size = self.micro_batch_size or len(ids)
        return [self.batch(epochs[i : i + size], ids[i : i + size]) for i in range(0, len(ids), size)]

    def batch(self, epochs: np.ndarray, ids: np.ndarray) -> Batch:
        lengths = 5 + (mix(ids.astype(np.uint64)) % np.uint64(LENGTH - 4)).astype(np.int64)
        rows = [np.array([1, *(5 + (i * 7 + np.arange(n - 2) * 3) % 90), 2]) for i, n in zip(ids, lengths, strict=True)]
        tokens = np.concatenate(rows)
        labels = {"nsp_labels": ids % 2}
        clean = Sequences(tokens, np.zeros_like(tokens), lengths, labels=labels, sample_ids=ids)
        return Batch.of(self.objective.corrupt(clean, Draws(key(self.seed, epochs, ids)), WORDS))


def nano_model(seed: int = 0, **overrides: Any) -> TorchModel:
    objective = build_objective({"mlm": {}, "nsp": {}})
    return families.build(SHAPE.replace(**overrides), heads=objective.heads, seed=seed)


def nano_train(**overrides: Any) -> TrainConfig:
    settings = {"steps": 12, "batch_size": 8, "save_every": 5, "log_every": 4, "eval_every": 10, "precision": "fp32"}
    return TrainConfig(**(settings | {"device": "cpu"} | overrides))


def nano_fit(run: Path, *, model: TorchModel | None = None, source: NanoSource | None = None, **options: Any) -> Result:
    """One nano run. options: of TrainConfig and fit; OptimConfig's lr, warmup, optimizer; the model's dropout"""
    fits = {name: options.pop(name) for name in FIT_OPTIONS if name in options}
    optim = OptimConfig(
        name=options.pop("optimizer", "adamw"), lr=options.pop("lr", 1e-3), warmup=options.pop("warmup", 0.2)
    )
    dropout = options.pop("dropout", 0.1)
    train = nano_train(**options)
    model = model or nano_model(train.seed, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    if source is None:
        source = NanoSource(batch_size=train.batch_size, micro_batch_size=train.micro_batch_size, seed=train.seed)
    if "on_step" in fits:
        fits["callbacks"] = [EachStep(fits.pop("on_step"))]
    held_out = [source.batch(np.zeros(4, np.int64), np.arange(4) + SAMPLES)]

    def evaluate(step: int) -> dict[str, float]:
        return measure_batches(model, source.objective, held_out)

    with one_thread():
        return fit(model, source.objective, source, train=train, optim=optim, run=run, **{"evaluate": evaluate, **fits})


@contextmanager
def one_thread() -> Iterator[None]:
    """So small a model gains nothing by more threads, and loses much on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


FIT_OPTIONS = (
    "evaluate",
    "save_model",
    "resume",
    "allow_change",
    "callbacks",
    "on_step",
    "identity",
    "config",
    "boundaries",
)


def timeless(run: Path) -> list[dict[str, Any]]:
    """metrics.jsonl less what the clock says."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if not name.endswith("_s")} for line in lines]


def rounding(states: torch.Tensor) -> float:
    """How far states of a few layers may lie apart when only the order of float32 sums differs.

    Each addition of numbers of size m rounds by eps m / 2 at most; 1,000 of them, up and down by chance, by 16 eps m.
    """
    return 16 * torch.finfo(torch.float32).eps * float(states.detach().abs().max())


def assert_same_run(a: Path, b: Path, step: int) -> None:
    """Weights, optimizer and metrics (less time fields) of two runs are equal, byte for byte."""
    for name in ("model.safetensors", "optimizer.safetensors"):
        one, other = (run / f"checkpoint-{step}" / name for run in (a, b))
        threads = [
            thread.name for thread in threading.enumerate()
        ]  # of another test, where the difference is by chance
        assert one.read_bytes() == other.read_bytes(), f"{name}; torch threads {torch.get_num_threads()}, {threads}"
    assert timeless(a) == timeless(b)


def kill_after(number: int) -> None:
    """Ends this process with kill -9 after so many updates, before anything is saved of the last."""
    whole, done = OptimizerGroup.step, 0

    def step(self: OptimizerGroup, lr: float) -> None:
        nonlocal done
        whole(self, lr)
        done += 1
        if done == number:
            os.kill(os.getpid(), signal.SIGKILL)

    OptimizerGroup.step = step  # type: ignore[method-assign]


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)  # what the loop says goes to a logger where no command runs it
    given = json.loads(sys.argv[2])
    if "timeout_s" in given:  # how long ranks wait for each other, and how long rank 0 looks at held-out samples
        distributed.TIMEOUT = timedelta(seconds=given.pop("timeout_s"))
        look_s = given.pop("look_s")
        given["evaluate"] = lambda step: time.sleep(look_s) or {"loss": 1.0}
    if "kill_after" in given:
        number = given.pop("kill_after")
        if int(os.environ.get("RANK", "0")):  # where no callback is called
            kill_after(number)
        else:
            given["on_step"] = lambda step: os.kill(os.getpid(), signal.SIGKILL) if step == number else None
    try:
        nano_fit(Path(sys.argv[1]), **given)
    except BertieError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
