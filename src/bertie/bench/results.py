"""The table of results: published sets, fine-tuned over several seeds by Bertie and by the `transformers` Trainer.

    bertie reproduce results --model minilm --data-dir data -o runs/results

Both sides have the same weights, token ids, hyper-parameters and seeds, and are scored by the same code; the Trainer
pads to the longest of a batch. Each seed is a file of its own, so that the command goes on where it was stopped.
"""

import datetime
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertie import console
from bertie.bench import harness
from bertie.bench.finetune import Prepared, bertie_run, prepare
from bertie.bench.peers import FinetunePeer, Way, require
from bertie.config import FinetuneConfig, OptimConfig, TrainConfig
from bertie.errors import UsageError, nearest
from bertie.evaluate.compare import Seeds, over_seeds
from bertie.files import read_json, write_bytes, write_json
from bertie.runs.finetune import finetune
from bertie.tasks.source import steps_of

BERTIE, PEER = "Bertie", "transformers"


@dataclass(frozen=True)
class Row:
    """A set and how it is learnt. folder: of its files, below the folder of all data."""

    data: str
    folder: str = "glue"
    epochs: float = 3.0
    lr: float = 5e-5
    batch_size: int = 32
    max_length: int = 128


ROWS = {
    row.data: row
    for row in (
        *(Row("cola"), Row("sst2"), Row("mrpc"), Row("stsb"), Row("rte"), Row("wnli")),
        Row("conll2003", "tagging"),
        Row("wnut17", "tagging"),
        Row("squad", "squad", max_length=384),
    )
}
"""What the table has, by the names `bertie data` lists."""


def config_of(row: Row, model: str, data_dir: Path, seed: int) -> FinetuneConfig:
    """The run of one seed: float32, the paper's schedule (Devlin et al. 2018, A.3)."""
    return FinetuneConfig(
        model=model,
        data=row.data,
        data_dir=str(data_dir / row.folder),
        max_length=row.max_length,
        epochs=row.epochs,
        optim=OptimConfig(lr=row.lr, warmup=0.1),
        train=TrainConfig(batch_size=row.batch_size, precision="fp32", seed=seed, steps=1, eval_every=10**6),
    )


def reproduce(
    names: Sequence[str], model: str, data_dir: Path, run: Path, *, seeds: int = 5, subset: int | None = None
) -> list[dict[str, Any]]:
    """Measure what is not measured yet, and return a row for each set. subset: the first training examples alone.

    Raises UsageError: a set that is not in the table, a folder with results of another model or subset.
    """
    for name in names:
        if name not in ROWS:
            raise UsageError(f"{name!r} is not in the table. {nearest(name, ROWS)}")
    require()
    run.mkdir(parents=True, exist_ok=True)
    settings = {"model": Path(model).absolute().name, "subset": subset}
    if (run / "settings.json").exists() and read_json(run / "settings.json") != settings:
        raise UsageError(f"{run} holds results of another model or subset. Choose another folder.")
    write_json(run / "settings.json", settings)
    found = []
    with console.progress("reproducing", 2 * seeds * len(names), unit="runs") as advance:
        for name in names:
            sides: dict[str, list[dict[str, Any]]] = {BERTIE: [], PEER: []}
            for seed in range(seeds):
                config = config_of(ROWS[name], model, data_dir, seed)
                for side, measure in SIDES.items():
                    file = run / name / f"{side.lower()}-{seed}.json"
                    if not file.exists():
                        file.parent.mkdir(exist_ok=True)
                        write_json(file, measure(config, run / name / f"seed-{seed}", subset))
                    sides[side].append(read_json(file))
                    advance(1, last=f"{name} {side}")
            found.append(_summary(ROWS[name], sides))
    return found


def _prepared(config: FinetuneConfig, subset: int | None) -> Prepared:
    """The examples of a run, and its steps."""
    made = prepare(config)
    examples = made.examples
    train = examples.train[:subset]
    encoded = made.train.part(0, len(train))
    steps = steps_of(len(train), batch_size=config.train.batch_size, epochs=config.epochs)
    config = config.model_copy(update={"train": config.train.model_copy(update={"steps": steps})})
    return Prepared(config, examples, made.tokenizer, encoded, made.dev, examples.task.targets(train, encoded))


def _bertie(config: FinetuneConfig, folder: Path, subset: int | None) -> dict[str, Any]:
    began = time.perf_counter()
    if subset is None:
        results = finetune(config, folder)
        quality = results["dev"][results["metrics"][0]]
        return {"quality": quality, "seconds": time.perf_counter() - began, "metric": results["metrics"][0]}
    prepared = _prepared(config, subset)
    _, quality = bertie_run("fp32")(prepared, config.train.seed)
    return {"quality": quality, "seconds": time.perf_counter() - began, "metric": prepared.examples.metrics[0]}


def _peer(config: FinetuneConfig, folder: Path, subset: int | None) -> dict[str, Any]:
    began = time.perf_counter()
    prepared = _prepared(config, subset)
    train, seed = prepared.config.train, config.train.seed
    peer = FinetunePeer(prepared.model(seed), way=Way(pad_to=None))
    sizes = {"batch_size": train.batch_size, "steps": train.steps, "warmup": 0}
    peer.train(prepared.train, prepared.targets, optim=config.optim, seed=seed, **sizes)
    quality = prepared.quality(peer.logits(prepared.dev))
    return {"quality": quality, "seconds": time.perf_counter() - began, "metric": prepared.examples.metrics[0]}


SIDES: dict[str, Callable[[FinetuneConfig, Path, int | None], dict[str, Any]]] = {BERTIE: _bertie, PEER: _peer}


def _summary(row: Row, sides: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    return {
        "set": row.data,
        "metric": sides[BERTIE][0]["metric"],
        "hyper": f"{row.epochs:g} epochs, rate {row.lr:g}, batch {row.batch_size}, {row.max_length} tokens",
        **{
            side: {
                **over_seeds([one["quality"] for one in runs]).as_json(),
                "seconds": sum(one["seconds"] for one in runs) / len(runs),
            }
            for side, runs in sides.items()
        },
    }


def page(rows: Sequence[dict[str, Any]], *, model: str, command: str, subset: int | None) -> str:
    """docs/results.md: the table, with what it takes to make it again."""
    import transformers

    import bertie

    machine, version = harness.machine(), getattr(bertie, "__version__", "0.1.0")
    part = f", the first {subset:,} training examples of each set" if subset else ""
    lines = [
        "# Results",
        "",
        f"`{Path(model).absolute().name}`{part}. On dev: mean ± standard deviation over seeds; seconds a run,",
        "reading and measuring included. Beside Bertie the `transformers` Trainer, from the same weights with the same",
        "hyper-parameters and seeds.",
        "",
        "| set | metric | seeds | Bertie | transformers | seconds | theirs | hyper-parameters |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        shown = [_shown(row[side]) for side in SIDES]
        times = [f"{row[side]['seconds']:,.0f}" for side in SIDES]
        cells = [row["set"], row["metric"], str(row[BERTIE]["runs"]), *shown, *times, row["hyper"]]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        f"Measured on {datetime.date.today().isoformat()}: Bertie {version}, torch {machine['torch']}, transformers "
        f"{transformers.__version__}, Python {machine['python']}; {machine['processor']},",
        f"{machine['threads']} threads, float32. To make the table again (it goes on where it was stopped):",
        "",
        f"    {command}",
    ]
    return "\n".join(lines) + "\n"


def _shown(side: dict[str, Any]) -> str:
    known = Seeds(**{name: side[name] for name in ("runs", "mean", "sd", "low", "high")})
    return f"{known.mean:.3f}" if known.sd is None else f"{known.mean:.3f} ± {known.sd:.3f}"


def write_page(path: Path, text: str) -> None:
    """Replace the page."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, text.encode())
