"""The table of results: published sets, fine-tuned over several seeds by Bertie and by the `transformers` Trainer.

    bertie reproduce results --model minilm --data-dir data -o runs/results

Both sides have the same weights, token ids, hyper-parameters and seeds, compute in the faster precision of the
machine, and are scored by the same code. The Trainer groups texts of similar length and pads to the longest of a batch,
its fastest way. Each seed is a separate file, so that the command can be resumed.
"""

import datetime
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from bertie import console
from bertie.bench import harness
from bertie.bench.cells import check_same, measured
from bertie.bench.finetune import Prepared, bertie_run, peer_run, prepare
from bertie.bench.peers import AT_ITS_BEST, require
from bertie.data.tables import Example
from bertie.errors import UsageError, nearest
from bertie.evaluate.compare import SeedSummary, over_seeds
from bertie.files import write_bytes
from bertie.runs.config import FinetuneConfig
from bertie.runs.examples import read_examples
from bertie.tasks.source import steps_of
from bertie.train.config import OptimConfig, TrainConfig

BERTIE, PEER = "Bertie", "transformers"
ENGLISH, KOREAN = "english", "korean"


@dataclass(frozen=True)
class ResultSpec:
    """A row of the table: a data set and the settings of its runs.

    folder: of its files, below the folder of all data. seeds: maximum number of runs per library. train, dev: number of
    examples, evenly spaced. parted: the training file is not available, so the first four fifths of dev are used for
    training, and the last fifth for evaluation. model: which of the two models is fine-tuned; scratch: random weights
    of the same architecture. by_length: whether the Trainer groups texts of similar length, its fastest way.
    """

    data: str
    folder: str = "glue"
    epochs: float = 2.0
    lr: float = 1e-4
    batch_size: int = 32
    max_length: int = 128
    seeds: int = 5
    train: int | None = None
    dev: int | None = None
    parted: bool = False
    model: str = ENGLISH
    scratch: bool = False
    by_length: bool = True


ROWS = {
    "cola": ResultSpec("cola"),
    "sst2": ResultSpec("sst2", train=4_000),
    "mrpc": ResultSpec("mrpc"),
    "stsb": ResultSpec("stsb", epochs=1, by_length=False),  # by length the Trainer learns less: docs/LOG.md
    "rte": ResultSpec("rte", epochs=1, batch_size=16),
    "wnli": ResultSpec("wnli"),
    "qnli": ResultSpec("qnli", seeds=2, train=2_000, dev=1_000, epochs=1, parted=True),
    "wnut17": ResultSpec("wnut17", "tagging", lr=2e-4, seeds=2),
    "conll2003": ResultSpec("conll2003", "tagging", lr=2e-4, seeds=2, train=2_500, dev=1_500),
    "ud": ResultSpec("ud", "tagging/UD_English-EWT", lr=2e-4, seeds=2, train=2_500, dev=1_000),
    "squad": ResultSpec("squad", "squad", max_length=256, seeds=2, train=1_000, dev=300),
    "squad2": ResultSpec("squad2", "squad", max_length=256, seeds=1, train=1_000, dev=300, parted=True),
    "nsmc": ResultSpec("nsmc", "nsmc", lr=5e-4, seeds=3, train=5_000, dev=5_000, model=KOREAN),
    "nsmc-from-scratch": ResultSpec(
        "nsmc", "nsmc", lr=5e-4, seeds=3, train=5_000, dev=5_000, model=KOREAN, scratch=True
    ),
}
"""What the table has. The sets are those `bertie data` lists."""


def config_of(row: ResultSpec, model: str, data_dir: Path, seed: int) -> FinetuneConfig:
    """The run of one seed: the paper's schedule (Devlin et al. 2018, A.3), no weights saved on the way."""
    return FinetuneConfig(
        model=model,
        data=row.data,
        data_dir=str(data_dir / row.folder),
        max_length=row.max_length,
        from_scratch=row.scratch,
        epochs=row.epochs,
        optim=OptimConfig(lr=row.lr, warmup=0.1),
        train=TrainConfig(batch_size=row.batch_size, seed=seed, steps=1, eval_every=10**6),
    )


def reproduce(
    names: Sequence[str], models: Mapping[str, str], data_dir: Path, run: Path, *, seeds: int = 5
) -> list[dict[str, Any]]:
    """Measure what is not measured yet, and return a line for each row. models: ENGLISH, KOREAN -> folder.

    Raises UsageError: a row that is not in the table or whose model is not given, a folder with results of another
    model.
    """
    for name in names:
        if name not in ROWS:
            raise UsageError(f"{name!r} is not in the table. {nearest(name, ROWS)}")
        if ROWS[name].model not in models:
            raise UsageError(f"{name} needs a {ROWS[name].model} model. Pass its folder.")
    require()
    run.mkdir(parents=True, exist_ok=True)
    found = []
    runs = sum(min(seeds, ROWS[name].seeds) for name in names)
    with console.progress("reproducing", len(SIDES) * runs, unit="runs") as advance:
        for name in names:
            row = ROWS[name]
            check_model(run / name, Path(models[row.model]))
            sides: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
            for seed in range(min(seeds, row.seeds)):
                for side, measure in SIDES.items():
                    file = run / name / f"{side.lower()}-{seed}.json"
                    config = config_of(row, models[row.model], data_dir, seed)
                    sides[side].append(measured(file, partial(measure, row, config)))
                    advance(1, last=f"{name} {side}")
            found.append(_summary(name, sides))
    return found


def check_model(folder: Path, model: Path) -> None:
    """Results of two models are not to be mixed."""
    check_same(folder, {"model": model.absolute().name}, of="another model", file="model.json")


def prepared(row: ResultSpec, config: FinetuneConfig) -> Prepared:
    """The examples of a run as token ids, and its steps."""
    read = read_examples(config, parted=row.parted)
    examples = replace(read, train=spaced(read.train, row.train), dev=spaced(read.dev, row.dev))
    steps = steps_of(len(examples.train), batch_size=config.train.batch_size, epochs=config.epochs)
    config = config.model_copy(update={"train": config.train.model_copy(update={"steps": steps})})
    return prepare(config, examples)


def spaced(examples: list[Example], most: int | None) -> list[Example]:
    """Returns at most `most` examples, evenly spaced, since consecutive examples are often about the same text."""
    return examples if most is None else examples[:: max(1, len(examples) // most)][:most]


def _side(
    way: Callable[[ResultSpec], Callable[[Prepared, int], tuple[float, float]]],
) -> Callable[[ResultSpec, FinetuneConfig], dict[str, Any]]:
    def measure(row: ResultSpec, config: FinetuneConfig) -> dict[str, Any]:
        made = prepared(row, config)
        began, began_cpu = time.perf_counter(), time.process_time()
        _, quality = way(row)(made, config.train.seed)
        return {
            "metric": made.examples.metrics[0],
            "quality": quality,
            "seconds": time.perf_counter() - began,
            "processor_seconds": time.process_time() - began_cpu,
            "train": len(made.examples.train),
            "dev": len(made.examples.dev),
            "steps": made.config.train.steps,
            "precision": "bf16" if harness.bf16_is_quicker("cpu") else "fp32",
        }

    return measure


SIDES = {
    BERTIE: _side(lambda row: bertie_run("auto")),
    PEER: _side(
        lambda row: peer_run(replace(AT_ITS_BEST, by_length=row.by_length, bf16=harness.bf16_is_quicker("cpu")))
    ),
}


def _summary(name: str, sides: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    row, first = ROWS[name], sides[BERTIE][0]
    length = f"{row.max_length} tokens"
    return {
        "name": name,
        "set": row.data,
        "metric": first["metric"],
        "precision": first.get("precision", "bf16"),  # of files that version 0.1 wrote
        "train": first["train"],
        "dev": first["dev"],
        "hyper": f"{row.epochs:g} epochs, learning rate {row.lr:g}, batch {row.batch_size}, {length}",
        **{
            side: {
                **over_seeds([one["quality"] for one in runs], first["metric"]).as_json(),
                "processor_seconds": sum(one["processor_seconds"] for one in runs) / len(runs),
            }
            for side, runs in sides.items()
        },
        "difference": welch([one["quality"] for one in sides[BERTIE]], [one["quality"] for one in sides[PEER]]),
    }


def welch(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, float] | None:
    """The difference of two means with Welch's 95% interval; None where a side has one run, or no spread."""
    if min(len(ours), len(theirs)) < 2 or np.var(ours) + np.var(theirs) == 0:
        return None
    found = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.95)
    return {
        "difference": float(np.mean(ours) - np.mean(theirs)),
        "low": float(found.low),
        "high": float(found.high),
    }


def page(rows: Sequence[dict[str, Any]], *, models: Mapping[str, str], command: str) -> str:
    """docs/results.md: the table, with what it takes to make it again."""
    import transformers

    import bertie

    machine, version = harness.machine(), getattr(bertie, "__version__", "0.1.0")
    used = [name for name in models if any(ROWS[row["name"]].model == name for row in rows)]
    named = "; ".join(f"{name}: `{Path(models[name]).absolute().name}`" for name in used)
    lines = [
        "# Results",
        "",
        "This page compares Bertie with the Hugging Face `Trainer` on published data sets. Both start from the same",
        "weights and use the same token ids, hyperparameters, seeds and precision. The same code scores both.",
        "",
        "* Scores are on dev: mean ± standard deviation over seeds.",
        "* The difference has Welch's 95% confidence interval. If the interval contains 0, the two agree within the",
        "  spread of their seeds.",
        "* Times are CPU seconds per run, averaged over seeds, for training plus evaluation.",
        "",
        f"Models: {named}.",
        "",
        "| data set | metric | train, dev | seeds | Bertie | Trainer | difference | CPU s, Bertie | CPU s, Trainer "
        "| settings |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(f"| {' | '.join(_cells(row))} |")
    precisions = " and ".join(sorted({row["precision"] for row in rows}))
    notes = [note for row in rows if (note := _note(ROWS[row["name"]], row))]
    lines += ["", *(f"* {note}" for note in notes), ""] if notes else [""]
    lines += [
        f"Measured on {datetime.date.today().isoformat()}: Bertie {version}, torch {machine['torch']}, transformers "
        f"{transformers.__version__}, Python {machine['python']}; {machine['processor']},",
        f"{machine['threads']} threads per process, {precisions}. This command reproduces the table and resumes after "
        "interruptions:",
        "",
        f"    {command}",
    ]
    return "\n".join(lines) + "\n"


def _cells(row: Mapping[str, Any]) -> list[str]:
    told = row["difference"]
    difference = f"{told['difference']:+.3f} ({told['low']:+.3f} to {told['high']:+.3f})" if told else "-"
    times = [f"{row[side]['processor_seconds']:,.0f}" for side in SIDES]
    counts = f"{row['train']:,}, {row['dev']:,}"
    qualities = [_shown(row[side]) for side in SIDES]
    return [row["name"], row["metric"], counts, str(row[BERTIE]["runs"]), *qualities, difference, *times, row["hyper"]]


def _note(row: ResultSpec, line: Mapping[str, Any]) -> str:
    """What is not as published in a row."""
    parts = []
    if row.parted:
        parts.append("training on the first four fifths of dev, evaluation on the last fifth")
    if row.train:
        parts.append(f"{row.train:,} training examples only, evenly spaced")
    if row.dev:
        parts.append(f"{row.dev:,} dev examples")
    if row.scratch:
        parts.append("random weights instead of pre-trained ones")
    if not row.by_length:
        parts.append("the Trainer reads examples in random order")
    return f"{line['name']}: {'; '.join(parts)}." if parts else ""


def _shown(side: dict[str, Any]) -> str:
    known = SeedSummary(**{name: side[name] for name in ("runs", "mean", "sd", "low", "high")})
    return f"{known.mean:.3f}" if known.sd is None else f"{known.mean:.3f} ± {known.sd:.3f}"


def write_page(path: Path, text: str) -> None:
    """Replace the page."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, text.encode())
