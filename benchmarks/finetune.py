"""Benchmark of fine-tuning: speed, memory and quality of Bertie and of the `transformers` Trainer, default and tuned.

    python -m benchmarks.finetune '{"runner": "bertie bf16", "setup": {"model": "bert-mini", ...}}'   (only memory)

A round is a whole short run whose number is the seed. Every runner starts from the same weights, including the head,
and uses the same token ids and hyperparameters for the same number of steps. The first steps are not timed; the result
on dev is the quality. With default settings, the Trainer pads to 128 in float32 (run_glue.py). With tuned settings, it
pads to the longest text of a batch, groups texts of similar length, and computes in bf16 where that is faster.

Without a data set, the examples are generated: two classes that differ in a few words of a text.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import harness
from benchmarks.peers import AS_IT_COMES, AT_ITS_BEST, FinetunePeer, TrainerSetup, require
from bertie.console import console
from bertie.costs.meter import resident_peak_bytes
from bertie.errors import BertieError
from bertie.infer.engine import Array
from bertie.infer.predict import Predictor
from bertie.metrics.compare import SeedSummary
from bertie.models import families
from bertie.models.model import TorchModel
from bertie.runs.config import FinetuneConfig
from bertie.runs.examples import Examples, read_examples
from bertie.tasks.source import Targets, TaskSource, batch_of_examples
from bertie.text.sequences import Sequences
from bertie.text.tokenizer import Tokenizer
from bertie.train.callbacks import EachStep
from bertie.train.config import OptimConfig, TrainConfig
from bertie.train.loop import fit, temporary_run
from bertie.train.precision import choose_device

WARMUP_STEPS = 3  # of every run: optimizer, kernels and memory are made in them
MEDIAN, SIGMA = 40, 0.6  # words of a made-up text, log-normal: GLUE's sets lie between 11 (CoLA) and 70 (RTE)
TRAIN, DEV = 2000, 400  # made-up examples
TELLING = 8  # words that tell a class; of a text's words, TOLD are such of its class
TOLD = 8
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


@dataclass(frozen=True)
class Setup:
    """The task of all runners. model: a preset (random weights, generated examples), or a folder with `data`."""

    model: str = "bert-mini"
    data: str = ""
    data_dir: str = ""
    steps: int = 60
    batch_size: int = 32
    lr: float = 5e-4
    max_length: int = 128


@dataclass
class Prepared:
    """The examples of a run as token ids, for both sides."""

    config: FinetuneConfig
    examples: Examples
    tokenizer: Tokenizer
    train: Sequences
    dev: Sequences
    targets: Targets

    def model(self, seed: int) -> TorchModel:
        """Returns the start model for a seed, with a new head."""
        task, config = self.examples.task, self.config
        if config.from_scratch:
            model = families.build(config.model, heads=task.heads, seed=seed)
        else:
            model, _ = families.load(config.model, heads=task.heads, seed=seed)
        model.tokenizer, model.labels, model.problem_type = self.tokenizer, task.labels, task.problem_type
        return model

    def quality(self, logits: Array) -> float:
        """Returns the main metric on dev, after tuning thresholds on dev. logits: float32, of all dev sequences"""
        task, dev = self.examples.task, self.examples.dev
        task = task.tune_on_dev(zip(dev, task.decode(logits, self.dev, dev), strict=True))
        scores = task.scores()
        task.count(scores, dev, task.decode(logits, self.dev, dev))
        return float(scores.compute()[self.examples.metrics[0]])


def prepare(config: FinetuneConfig, examples: Examples | None = None) -> Prepared:
    """Encodes the given examples, or those of a config. Raises the errors of `bertie finetune`."""
    examples, tokenizer = examples or read_examples(config), Tokenizer.load(config.model)
    task, policy = examples.task, config.too_long or examples.task.too_long
    train, dev = (
        task.encode(part, tokenizer, max_length=config.max_length, too_long=policy)
        for part in (examples.train, examples.dev)
    )
    return Prepared(config, examples, tokenizer, train, dev, task.targets(examples.train, train))


class Runner:
    """One complete short run per round, with the number of the round as its seed. qualities: the dev scores."""

    def __init__(self, prepared: Prepared, run: Callable[[Prepared, int], tuple[float, float]]) -> None:
        self.prepared, self.run = prepared, run
        self.qualities: list[float] = []

    def __call__(self) -> tuple[float, float]:
        """-> examples, seconds"""
        seconds, quality = self.run(self.prepared, len(self.qualities))
        self.qualities.append(quality)
        train = self.prepared.config.train
        return float((train.steps - WARMUP_STEPS) * train.batch_size), seconds


def bertie_run(precision: str) -> Callable[[Prepared, int], tuple[float, float]]:
    """Bertie's `fit`, without padding. -> a function that returns seconds and quality"""

    def run(prepared: Prepared, seed: int) -> tuple[float, float]:
        config, model = prepared.config, prepared.model(seed)
        marks: dict[int, float] = {}

        def mark(step: int) -> None:
            if step in (WARMUP_STEPS, config.train.steps):
                harness.wait_for(str(choose_device()))
                marks[step] = time.perf_counter()

        never = config.train.steps + 1
        settings = {"seed": seed, "precision": precision, "save_every": never, "eval_every": never}
        size = config.train.batch_size
        source = TaskSource(prepared.train, prepared.targets, batch_size=size, micro_batch_size=None, seed=seed)
        with temporary_run() as folder:
            train = config.train.model_copy(update=settings)
            fit(
                model,
                prepared.examples.task,
                source,
                train=train,
                optim=config.optim,
                run=folder,
                callbacks=[EachStep(mark)],
            )
        model.compute_dtype = None
        predictor = Predictor(model.eval())
        return marks[config.train.steps] - marks[WARMUP_STEPS], prepared.quality(predictor.logits(prepared.dev))

    return run


def peer_run(way: TrainerSetup) -> Callable[[Prepared, int], tuple[float, float]]:
    """The Trainer with one of its setups. -> a function that returns seconds and quality"""

    def run(prepared: Prepared, seed: int) -> tuple[float, float]:
        config = prepared.config
        peer = FinetunePeer(prepared.model(seed), way=way)
        sizes = {"batch_size": config.train.batch_size, "steps": config.train.steps, "warmup": WARMUP_STEPS}
        seconds = peer.train(prepared.train, prepared.targets, optim=config.optim, seed=seed, **sizes)
        return seconds, prepared.quality(peer.logits(prepared.dev).numpy())

    return run


def runners() -> dict[str, Callable[[Prepared, int], tuple[float, float]]]:
    """Returns the runners in the fastest precision of this machine, and in float32."""
    bf16 = harness.bf16_is_quicker()
    return {
        **({"bertie bf16": bertie_run("bf16")} if bf16 else {}),
        "bertie fp32": bertie_run("fp32"),
        "transformers": peer_run(AS_IT_COMES),
        "transformers best": peer_run(replace(AT_ITS_BEST, bf16=bf16)),
    }


def write_problem(setup: Setup, folder: Path) -> FinetuneConfig:
    """Returns the config of the run. For a preset, writes a model with random weights and generated examples."""
    shared = {
        "max_length": setup.max_length,
        "optim": OptimConfig(lr=setup.lr, warmup=0.1),
        "train": TrainConfig(steps=setup.steps, batch_size=setup.batch_size),
    }
    if setup.data:
        return FinetuneConfig(
            model=setup.model, data=setup.data, data_dir=setup.data_dir, too_long="truncate", **shared
        )
    config = families.config(setup.model)
    vocabulary = (*SPECIAL, *(f"w{n}" for n in range(config.vocab_size - len(SPECIAL))))
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    families.save(families.build(config), folder)
    rng = np.random.default_rng(0)
    for name, count in (("train.tsv", TRAIN), ("dev.tsv", DEV)):
        lines = [f"{text}\t{label}" for text, label in made_up(rng, count, len(vocabulary) - len(SPECIAL))]
        (folder / name).write_text("\n".join(["text\tlabel", *lines]) + "\n", encoding="utf-8")
    files = {name: str(folder / f"{name}.tsv") for name in ("train", "dev")}
    return FinetuneConfig(
        model=str(folder), train_file=files["train"], dev_file=files["dev"], too_long="truncate", **shared
    )


def made_up(rng: np.random.Generator, count: int, words: int) -> list[tuple[str, str]]:
    """Returns texts and labels: random words, with some that depend on the class."""
    made = []
    for number in range(count):
        label = number % 2
        size = int(np.clip(rng.lognormal(np.log(MEDIAN), SIGMA), 2 * TOLD, 126))
        text = rng.integers(2 * TELLING, words, size)
        places = rng.choice(size, TOLD, replace=False)
        text[places] = label * TELLING + rng.integers(TELLING, size=TOLD)
        made.append((" ".join(f"w{n}" for n in text), "ab"[label]))
    return made


def same_loss(prepared: Prepared) -> float:
    """Returns the largest relative difference of the two losses on the first examples, in float32."""
    task, model = prepared.examples.task, prepared.model(0)
    examples = prepared.examples.train[:16]
    encoded = prepared.train.part(0, len(examples))
    targets = task.targets(examples, encoded)
    batch = batch_of_examples(encoded, np.arange(len(encoded.lengths)), targets)
    with torch.no_grad():
        parts = task.loss(model, model.encode(batch), batch).values()
    return abs(
        sum(float(part.total) / part.count for part in parts)
        / FinetunePeer(model, way=AT_ITS_BEST).loss(encoded, targets)
        - 1
    )


def measure(setup: Setup, *, rounds: int = 3, memory: bool = True, only: Collection[str] = ()) -> list[dict[str, Any]]:
    """Returns one row per runner. only: the runners to measure; none: all.

    Raises BertieError if the losses differ before training.
    """
    require()
    with tempfile.TemporaryDirectory() as work:
        prepared = prepare(write_problem(setup, Path(work)))
        difference = same_loss(prepared)
        if difference > 1e-4:
            raise BertieError(
                f"The losses of Bertie and of the peer differ by {difference:.1e}, so no timings are reported."
            )
        console.say(f"{setup.model}: the losses of one batch agree to {difference:.0e}")
        made = {name: Runner(prepared, run) for name, run in runners().items() if not only or name in only}
        cells = harness.interleave(made, rounds=rounds, warmup=0)  # each run leaves its own first steps out
    peers = [cell for cell in cells if cell.name.startswith("transformers")]
    lines = []
    for cell in cells:
        if memory:
            asked = json.dumps({"runner": cell.name, "setup": asdict(setup)})
            cell.peak_memory_bytes = harness.peak_memory_bytes(__name__, [asked])
        qualities = made[cell.name].qualities
        lines.append(
            {
                "bench": "finetune",
                **asdict(setup),
                "data": setup.data or "made up",
                "mean_tokens": round(float(prepared.train.lengths.mean()), 1),
                "runner": cell.name,
                "examples_per_s": round(cell.median, 1),
                "spread": cell.spread,
                "rates": [round(rate, 1) for rate in cell.rates],
                "peak_memory_bytes": cell.peak_memory_bytes,
                "metric": prepared.examples.metrics[0],
                "quality": SeedSummary.over(qualities, prepared.examples.metrics[0]).as_json(),
                "qualities": qualities,
                "times_quicker_than": {
                    peer.name: dict(zip(("median", "low", "high"), harness.ratios(cell, peer), strict=True))
                    for peer in peers
                },
                "machine": harness.machine(),
            }
        )
    return lines


def main(runner: str, setup: dict[str, Any]) -> None:
    """Runs one runner and prints its peak memory, without that of the imports."""
    require()
    with tempfile.TemporaryDirectory() as work:
        prepared = prepare(write_problem(Setup(**setup), Path(work)))
        baseline = resident_peak_bytes()
        runners()[runner](prepared, 0)
    print(json.dumps({"baseline_bytes": baseline, "peak_bytes": resident_peak_bytes()}))


if __name__ == "__main__":
    console.verbosity.level = -1
    main(**json.loads(sys.argv[1]))
