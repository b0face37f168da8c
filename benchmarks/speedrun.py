"""The best encoder for a given time: a base recipe, each change to it alone, and the best of them together.

    python -m benchmarks.speedrun --text TEXT --data-dir DATA --work WORK               measures what the file lacks
    python -m benchmarks.speedrun ... --minutes 60 --threads 2 --only together          the record: an hour of two cores

Every row has the same text, the same processor time for its steps (on a GPU: time), and the same fine-tuning. A trial
says how many steps fit. The loss is that of masked words, 15%, in the same held-out texts of 128 tokens. A row with
another vocabulary has none that could be compared, so scores decide. A row is a value: the base, and its levers. Beside
them are BERT as published, ModernBERT's recipe, and the best recipe without each of its levers. A row and a seed are a
line of results/speedrun.jsonl. Trained models and vocabularies stay in WORK.
"""

import argparse
import datetime
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch

import bertie
from benchmarks import harness
from benchmarks.cells import NEVER, finetuned, measured
from benchmarks.result_lines import add_line, read_lines
from benchmarks.results import ROWS, examples_of
from bertie.errors import DataError, Stopped, UsageError, nearest
from bertie.files import read_json
from bertie.models import families
from bertie.models.batch import Batch
from bertie.objectives.base import Objective
from bertie.runs.config import FinetuneConfig, PretrainConfig
from bertie.runs.examples import Examples
from bertie.runs.forecast import forecast_of
from bertie.runs.layout import MODEL
from bertie.runs.pretrain import run_pretrain
from bertie.runs.pretraining import PreparedRun
from bertie.runs.work import pretraining_work
from bertie.settings import build_config, merge, read_yaml
from bertie.train.callbacks import Callback, EachStep, TrainingRun
from bertie.train.precision import choose_device
from bertie.train.schedule import usual_rate
from bertie.train.step_metrics import measure_batches

RESULTS = Path(__file__).parent / "results" / "speedrun.jsonl"
Values = Mapping[str, Any]
BASE, PUBLISHED, MODERN, TOGETHER = "base", "BERT as published", "ModernBERT's recipe", "together"
VOCABULARY = 16_000
DEV = 1_000  # dev examples of a task, evenly spaced
TRIED_S = 20.0  # seconds of a trial of a phase
FEWEST = 20  # steps of a run, so that each phase has some
CUTS: tuple[Values, Values, Values, Values] = (
    {"steps": 0.7, "max_length": 64},
    {"steps": 0.1},
    {"steps": 0.1},
    {},
)  # the phases of the base, to which those of levers add
LAYERS, WIDTH = 2, 128


@dataclass(frozen=True)
class Lever:
    """A change to the base. phases: one value for each of `CUTS`; vocabulary: tokens, 0: the base's.

    averaged: the last share of the steps, whose weights are averaged; dedup: how the corpus is built.
    """

    settings: Values | None = None
    phases: tuple[Values, Values, Values, Values] | None = None
    vocabulary: int = 0
    averaged: float = 0.0
    dedup: str = "documents"


def _shape(layers: int, width: int, intermediate: int | None = None) -> dict[str, Any]:
    return {
        "num_hidden_layers": layers,
        "hidden_size": width,
        "num_attention_heads": width // 64,
        "intermediate_size": intermediate or 4 * width,
        "initializer_range": round(0.02 * (768 / width) ** 0.5, 3),
    }


def _model(**overrides: Any) -> Lever:
    return Lever({"model_overrides": overrides})


LEVERS: Mapping[str, Lever] = {
    "AdamW": Lever({"optim": {"name": "adamw", "lr": 1e-3}}),
    "next sentences": Lever({"objectives": {"nsp": {}}}),
    "rotary positions": _model(positions="rotary"),
    "GeGLU": _model(hidden_act="geglu_erf", intermediate_size=8 * WIDTH // 3),
    "norms before": _model(norm="pre"),
    "no biases": _model(bias=False, attention_bias=False, norm_type="unbiased"),
    "disentangled attention": Lever({"model": "deberta-v3-base"}),
    "4 layers of 128": _model(**_shape(4, 128)),
    "4 layers of 256": _model(**_shape(4, 256)),
    "more and narrower layers": _model(**_shape(3, WIDTH, 9 * WIDTH // 4)),
    "masks from 30% to 15%": Lever(
        phases=tuple({"objectives": {"mlm": {"rate": rate}}} for rate in (0.3, 0.25, 0.2, 0.15))  # type: ignore[arg-type]
    ),
    "whole words masked": Lever({"objectives": {"mlm": {"masking": "whole_word"}}}),
    "z-loss": Lever({"objectives": {"mlm": {"z_loss": 1e-4}}}),
    "replaced tokens": Lever(
        {
            "model": "electra-small-discriminator",
            "model_overrides": {"embedding_size": WIDTH},
            "objectives": {"mlm": None, "rtd": {}},
        }
    ),
    "teacher": Lever({"objectives": {"hidden": {"teacher": "minilm-l6", "weight": 10}}}),
    "long texts from the start": Lever(phases=({"max_length": 128}, {}, {}, {})),
    "twice the batch": Lever({"train": {"batch_size": 64}}),
    "growing batches": Lever(
        phases=({"batch_size": 16}, {"batch_size": 32}, {"batch_size": 64}, {"batch_size": 128}),
    ),
    "stable rate": Lever({"optim": {"decay": "stable", "cooldown": 0.3}}),
    "twice the rate": Lever({"optim": {"lr": 8e-3}}),
    "averaged weights": Lever(averaged=0.2),
    "full sentences": Lever({"packing": "full_sentences"}),
    "vocabulary of 8,000": Lever(vocabulary=8_000),
    "vocabulary of 30,000": Lever(vocabulary=30_000),
    "near duplicates removed": Lever(dedup="near"),
}
CHOSEN = ("rotary positions", "masks from 30% to 15%")
"""The levers of the best recipe."""


def rows() -> dict[str, tuple[str, ...]]:
    """Returns the rows of the table with their levers; those of whole recipes have none."""
    alone = {name: (name,) for name in LEVERS}
    rests = {f"{TOGETHER}, without {name}": tuple(one for one in CHOSEN if one != name) for name in CHOSEN}
    without = {name: rest for name, rest in rests.items() if len(rest) > 1}  # else, it is the row of a lever
    return {BASE: (), PUBLISHED: (), MODERN: (), TOGETHER: CHOSEN, **alone, **without}


class Average(Callback):
    """Ends a run with the mean of the weights after each of its last steps."""

    def __init__(self, share: float) -> None:
        self._share, self._sums, self._count = share, list[torch.Tensor](), 0

    def on_step(self, run: TrainingRun, step: int, metrics: Mapping[str, float]) -> None:
        """Adds the weights of a step of the last share; the last step puts their mean into the model."""
        if step <= round(run.steps * (1 - self._share)):
            return
        weights = [parameter.detach() for parameter in run.model.parameters()]
        self._sums = self._sums or [torch.zeros_like(one) for one in weights]
        torch._foreach_add_(self._sums, weights)
        self._count += 1
        if step == run.steps:
            torch._foreach_copy_(weights, [one / self._count for one in self._sums])


@dataclass(frozen=True)
class Table:
    """What all runs of a table share. minutes: of the steps of a run, for each thread; examples: the most of a task."""

    text: Path
    data_dir: Path
    work: Path
    minutes: float = 10.0
    tasks: tuple[str, ...] = ("sst2", "conll2003", "stsb")
    examples: int = 4_000

    def __post_init__(self) -> None:
        for task in self.tasks:
            if task not in ROWS:
                raise UsageError(f"Unknown task {task!r}. {nearest(task, ROWS)}")

    def corpus(self, dedup: str = "documents") -> Path:
        """Returns the folder of the corpus, which is built first if it is not there."""
        folder = self.work / f"corpus-{dedup}"
        if not folder.exists():
            bertie.build_corpus(self.text, folder, dedup=dedup)
        return folder

    def tokenizer(self, size: int = VOCABULARY) -> Path:
        """Returns the folder of a vocabulary, which is trained first if it is not there."""
        folder = self.work / f"tokenizer-{size}"
        if not folder.exists():
            bertie.train_tokenizer(self.corpus(), folder, size=size, lowercase=True)
        return folder

    def config(self, row: str, seed: int, steps: int = 1_000) -> PretrainConfig:
        """Returns the pre-training run of a row."""
        levers = [LEVERS[name] for name in rows()[row]]
        tree = read_yaml(Path("pretrain-modern-mini" if row == MODERN else "pretrain-small-cpu"))
        if row == PUBLISHED:
            published = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
            merge(tree, {"model": "bert-tiny", "model_overrides": published, "optim": {"lr": 1e-4, "warmup": 0.01}})
            merge(tree, {"objectives": {"mlm": {}, "nsp": {}}, "train": {"batch_size": 256}})
        elif row != MODERN:
            merge(tree, {"model_overrides": _shape(LAYERS, WIDTH), "objectives": {"mlm": {}, "nsp": None}})
            merge(tree, {"optim": {"name": "muon", "lr": 4e-3}, "train": {"batch_size": 32}})
        phases = [dict(cut) for cut in CUTS]
        for lever in levers:
            merge(tree, lever.settings or {})
            for phase, more in zip(phases, lever.phases or (), strict=False):
                merge(phase, more)
        if row not in (PUBLISHED, MODERN):
            tree["phases"] = phases
        dedup = next((lever.dedup for lever in levers if lever.dedup != "documents"), "documents")
        size = next((lever.vocabulary for lever in levers if lever.vocabulary), VOCABULARY)
        train = {"steps": steps, "seed": seed, "eval_every": NEVER, "save_every": NEVER, "log_every": 100}
        place = {"corpus": str(self.corpus(dedup)), "tokenizer": str(self.tokenizer(size))}
        return build_config(PretrainConfig, merge(tree, {**place, "train": train}))

    @cached_property
    def held_out(self) -> tuple[Objective, list[Batch]]:
        """Masked words, and batches of held-out documents, on which all rows are compared."""
        ready = PreparedRun(self.config(BASE, 0))
        if not ready.data.validates:
            raise DataError(f"{self.corpus()} has no held-out documents. Pass more text.")
        return ready.objective, [batch for part in ready.data.validation(0).values() for batch in part]

    @cached_property
    def data(self) -> dict[str, Examples]:
        """The examples of each task."""
        return examples_of(self.tasks, self.data_dir, self.examples, DEV)

    def folder(self, row: str) -> Path:
        """Returns the folder of a row's runs."""
        return self.work / f"{self.minutes:g}" / re.sub(r"[^a-z0-9]+", "-", row.lower())

    def steps(self, row: str) -> int:
        """Tries a row, and returns how many steps the time has. Raises UsageError for fewer than a run needs."""
        ready = PreparedRun(self.config(row, 0))
        clock = _clock(ready.config)
        work = pretraining_work(ready, ready.model())
        forecast = forecast_of(work, TRIED_S * len(work.phases), clock)
        if forecast is None:
            raise Stopped("The trial of the speed was interrupted. The same command starts it again.")
        step_s = forecast.parts["steps"] / ready.config.train.steps
        threads = torch.get_num_threads() if clock is time.process_time else 1
        if (steps := round(60 * self.minutes * threads / step_s)) < FEWEST:
            enough = 1.1 * FEWEST * step_s / threads / 60  # a tenth more, since the next trial differs
            raise UsageError(
                f"In {self.minutes:g} minutes, the row {row!r} makes {steps} steps here, and a run needs {FEWEST}. "
                f"Pass at least --minutes {enough:.2g}."
            )
        return steps

    def pretrained(self, row: str, seed: int) -> dict[str, Any]:
        """Pre-trains a row for the time of the table, and returns what it took. A finished run is not repeated."""
        folder = self.folder(row)
        folder.mkdir(parents=True, exist_ok=True)
        steps = measured(folder / "steps.json", lambda: {"steps": self.steps(row)})["steps"]
        config = self.config(row, seed, steps)
        clock, marks = _clock(config), list[float]()
        callbacks: list[Callback] = [EachStep(lambda step: marks.append(clock()))]
        callbacks += [Average(LEVERS[name].averaged) for name in rows()[row] if LEVERS[name].averaged]
        results = run_pretrain(config, folder / str(seed), callbacks=callbacks)
        plan = results["plan"]
        tokens = sum(phase["steps"] * phase["tokens_per_step"] for phase in plan.get("phases", [plan]))
        seconds = (marks[-1] - marks[0]) * steps / (steps - 1)
        return {"steps": steps, "tokens": tokens, "seconds": round(seconds), "parameters": plan["parameters"]}

    def loss(self, row: str, seed: int) -> float | None:
        """Returns the loss on held-out masked words; None where the model does not predict those words."""
        if any(LEVERS[name].vocabulary for name in rows()[row]):
            return None
        objective, batches = self.held_out
        model, report = families.load(self.folder(row) / str(seed) / MODEL, heads=objective.heads)
        if report.fresh:
            return None
        model.to(choose_device("auto")).eval()
        return round(float(measure_batches(model, objective, batches)["loss"]), 4)

    def score(self, name: str, row: str, seed: int) -> float:
        """Fine-tunes with the default learning rate of the width, and returns the main dev score."""
        model = self.folder(row) / str(seed) / MODEL
        width = int(read_json(model / "config.json")["hidden_size"])
        train = {"batch_size": ROWS[name].batch_size, "seed": seed, "eval_every": NEVER, "save_every": NEVER}
        settings = {"model": str(model), "max_length": ROWS[name].max_length, "train": train}
        settings |= {"optim": {"lr": ROWS[name].rate * usual_rate(width)}}
        return round(finetuned(build_config(FinetuneConfig, settings), self.data[name])[self.data[name].metrics[0]], 4)


def _clock(config: PretrainConfig) -> Callable[[], float]:
    """What a budget is measured by: the processor's time, which other programs change little, or a GPU's seconds."""
    return time.process_time if choose_device(config.train.device).type == "cpu" else time.monotonic


def measure_row(table: Table, row: str, seed: int) -> dict[str, Any]:
    """Returns the facts, the loss and the scores of a row."""
    note = table.folder(row) / f"{seed}.json"
    facts = measured(note, partial(table.pretrained, row, seed))
    scores = {name: table.score(name, row, seed) for name in table.tasks}
    return {**facts, "loss": table.loss(row, seed), "scores": scores}


def main() -> None:
    """Measures the rows that the file of results does not have."""
    parser = argparse.ArgumentParser(description="Measures what each change to a recipe gains in the same time.")
    parser.add_argument("--text", required=True, type=Path, help="folder or file of text")
    parser.add_argument("--data-dir", required=True, type=Path)
    parser.add_argument("--work", required=True, type=Path, help="folder of corpora, vocabularies and runs")
    parser.add_argument("--minutes", type=float, default=10.0, help="of the steps of a run, for each thread")
    parser.add_argument("--tasks", nargs="+", default=["sst2", "conll2003", "stsb"])
    parser.add_argument("--examples", type=int, default=4_000, help="most training examples of a task")
    parser.add_argument("--only", nargs="+", default=list(rows()), help="rows")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    for row in options.only:
        if row not in rows():
            raise UsageError(f"{row!r} is not in the table. {nearest(row, rows())}")
    torch.set_num_threads(options.threads)
    table = Table(
        *(options.text, options.data_dir, options.work, options.minutes),
        *(tuple(options.tasks), options.examples),
    )
    machine = harness.machine("cuda" if torch.cuda.is_available() else "cpu")
    shared = {
        "minutes": table.minutes,
        "threads": options.threads,
        "machine": f"{machine.get('gpu', machine['processor'])}, torch {machine['torch']}",
        "date": datetime.date.today().isoformat(),
    }
    known = {(one["minutes"], one["threads"], one["row"], one["seed"]) for one in read_lines(options.results)}
    for seed in range(options.seeds):
        for row in options.only:
            if (table.minutes, options.threads, row, seed) not in known:
                line = measure_row(table, row, seed)
                add_line(options.results, {"row": row, "seed": seed, **shared, **line})


if __name__ == "__main__":
    main()
