"""The table of results: published sets, fine-tuned over several seeds by Bertie and by the `transformers` Trainer.

    python -m benchmarks reproduce results --model minilm-l6 --model starter-en --data-dir data -o runs/results

Both sides have the same weights, token ids, hyper-parameters and seeds. They compute in the faster precision of the
machine, and the same code scores them. The Trainer groups texts of similar length and pads to the longest of a batch,
its fastest way. Each seed is a separate file, so that the command can be resumed. The files of a row's first model are
in RUN/ROW, those of another model in RUN/ROW/MODEL.
"""

import datetime
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from benchmarks import harness
from benchmarks.cells import MODEL, TRAIN, check_same, measured
from benchmarks.finetune import Prepared, bertie_run, peer_run, prepare
from benchmarks.peers import AT_ITS_BEST, require
from bertie import checksums
from bertie.apps.serve.fleet import model_name
from bertie.console import console, counted
from bertie.errors import DataError, UsageError, nearest
from bertie.evaluation import baselines
from bertie.files import read_json, write_bytes, write_json
from bertie.io.questions import MISPLACED
from bertie.io.tables import Example
from bertie.metrics.compare import SeedSummary
from bertie.models.variant import read_public
from bertie.runs.config import FinetuneConfig
from bertie.runs.examples import Examples, read_examples
from bertie.runs.finetune import SMALL
from bertie.runs.models import model_folder
from bertie.tasks.datasets import DATASETS
from bertie.tasks.source import steps_of
from bertie.text.sentences import boundaries
from bertie.train.config import OptimConfig, TrainConfig
from bertie.train.schedule import usual_rate

BERTIE, PEER = "Bertie", "transformers"
ENGLISH, KOREAN = "english", "korean"


@dataclass(frozen=True)
class ResultSpec:
    """A row of the table: a data set and the settings of its runs.

    folder: of its files, below the folder of all data. parted: the training file is not available, so the first four
    fifths of dev are used for training, and the last fifth for evaluation. made: makes training examples from another
    set below the folder of all data; the whole dev split is then for evaluation. rate: times the usual learning rate
    of the model's hidden size. model: the language of the models that are fine-tuned; scratch: random weights of the
    same architecture. by_length: whether the Trainer groups texts of similar length, its fastest way.
    """

    data: str
    folder: str = "glue"
    epochs: float = 3.0
    rate: float = 1.0
    batch_size: int = 32
    max_length: int = 128
    parted: bool = False
    made: Callable[[Path], list[Example]] | None = None
    model: str = ENGLISH
    scratch: bool = False
    by_length: bool = True


@dataclass(frozen=True)
class Measurable:
    """A model of the table: its name there and its folder."""

    name: str
    folder: Path

    @cached_property
    def identity(self) -> str:
        """A hash of the files that decide its answers, read once."""
        return checksums.identity(self.folder)


def questions_and_sentences(data_dir: Path) -> list[Example]:
    """Returns training examples of QNLI, made from the training file of SQuAD 1.1 as GLUE made its own.

    Each question has one example: every other one the sentence with its answer, the others the sentence without it
    that has the most words of the question. Wang et al. 2018, 2.2.
    """
    squad = read_examples(FinetuneConfig(model="", data="squad", data_dir=str(data_dir / "squad"))).train
    made = list[Example]()
    for example in squad:
        question, context = example.texts
        answer, place = example.label[0]
        place = context.find(answer) if place == MISPLACED else place
        ends = [0, *boundaries(context), len(context)]
        spans = [span for span in pairwise(sorted(set(ends))) if context[slice(*span)].strip()]
        with_answer = [span for span in spans if span[0] <= place < span[1]]
        others = [span for span in spans if span not in with_answer]
        if not with_answer or (not others and len(made) % 2):
            continue
        words = set(question.lower().split())
        best = max(others, key=lambda span: len(words & set(context[slice(*span)].lower().split())), default=None)
        span, label = (with_answer[0], QNLI_YES) if len(made) % 2 == 0 or best is None else (best, QNLI_NO)
        made.append(Example((question, context[slice(*span)].strip()), label))
    return made


def _published(*scores: float) -> dict[str, float]:
    return dict(zip(("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte"), scores, strict=True))


QNLI_YES, QNLI_NO = "entailment", "not_entailment"
PER_TOKEN = 2.0  # times the usual rate, of tasks that answer for each token
ROWS = {
    "cola": ResultSpec("cola"),
    "sst2": ResultSpec("sst2", epochs=2),
    "mrpc": ResultSpec("mrpc"),
    "stsb": ResultSpec("stsb", by_length=False),  # by length the Trainer learns less: benchmarks/log
    "qqp": ResultSpec("qqp", epochs=2),
    "mnli": ResultSpec("mnli", epochs=2),
    "qnli": ResultSpec("qnli", epochs=1, made=questions_and_sentences),
    "rte": ResultSpec("rte", batch_size=16),
    "wnli": ResultSpec("wnli"),
    "wnut17": ResultSpec("wnut17", "tagging", rate=PER_TOKEN),
    "conll2003": ResultSpec("conll2003", "tagging", rate=PER_TOKEN),
    "ud": ResultSpec("ud", "tagging/UD_English-EWT", rate=PER_TOKEN),
    "squad": ResultSpec("squad", "squad", epochs=1, rate=PER_TOKEN, max_length=256),
    "squad2": ResultSpec("squad2", "squad", epochs=2, rate=PER_TOKEN, max_length=256, parted=True),
    "nsmc": ResultSpec("nsmc", "nsmc", epochs=2, model=KOREAN),
    "nsmc-from-scratch": ResultSpec("nsmc", "nsmc", epochs=2, model=KOREAN, scratch=True),
    "korsts": ResultSpec("korsts", "korean", model=KOREAN),
    "kornli": ResultSpec("kornli", "korean", model=KOREAN, parted=True),
    "klue-nli": ResultSpec("klue-nli", "korean", model=KOREAN, parted=True),
    "klue-dp": ResultSpec("klue-dp", "korean", rate=PER_TOKEN, model=KOREAN, parted=True),
    "korquad": ResultSpec("korquad", "korean", epochs=2, rate=PER_TOKEN, max_length=256, model=KOREAN, parted=True),
}
"""What the table has. The sets are those `bertie data` lists."""
SCORES = (
    "* Scores marked † are published, in points, and most are of test sets: they are not measured here.",
    "* Times are CPU seconds per run, averaged over seeds, for training plus evaluation.",
)
WITH_PEER = (
    "This page compares Bertie with the Hugging Face `Trainer` on published data sets. Both start from the same",
    "weights and use the same token ids, hyperparameters, seeds and precision. The same code scores both.",
    "",
    "* Scores are on dev: mean ± standard deviation over seeds. The Trainer has fewer seeds.",
    "* The difference has Welch's 95% confidence interval, where both have two seeds or more. If the interval",
    "  contains 0, the two agree within the spread of their seeds.",
    *SCORES,
)
ALONE = (
    "This page shows the scores of fine-tuned models on published data sets.",
    "",
    "* Scores are on dev: mean ± standard deviation over seeds.",
    *SCORES,
)
PEERLESS = ("parse",)  # tasks without a head in transformers
SEEDS, SEEDS_OF_LARGE = 5, 3  # runs of a row, by whether it has fewer than `SMALL` training examples
GLUE = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte")  # the sets of its average; the paper omits WNLI
PUBLISHED: Mapping[str, Mapping[str, float]] = {
    # Devlin et al. 2018, table 1: GLUE's test sets. MNLI: matched
    "GPT": _published(45.4, 91.3, 82.3, 80.0, 70.3, 82.1, 87.4, 56.0),
    "ELMo": {**_published(36.0, 90.4, 84.9, 73.3, 64.8, 76.4, 79.8, 56.8), "conll2003": 92.2, "squad": 85.6},
    # tables 2, 5 and 7: dev of SQuAD 1.1 (single models; of ELMo BiDAF), test of CoNLL-2003
    "BERT-base": {**_published(52.1, 93.5, 88.9, 85.8, 71.2, 84.6, 90.5, 66.4), "conll2003": 92.4, "squad": 88.5},
    "BERT-large": {
        **_published(60.5, 94.9, 89.3, 86.5, 72.1, 86.7, 92.7, 70.1),
        **{"conll2003": 92.8, "squad": 90.9, "squad2": 81.9},
    },
    # Nangia and Bowman 2019, table 1; Rajpurkar et al. 2016 and 2018
    "human": {
        **_published(66.4, 97.8, 86.3, 92.7, 59.5, 92.0, 91.2, 93.6),
        **{"wnli": 95.9, "squad": 91.2, "squad2": 89.0},
    },
}
"""System -> row -> the published score in points. GLUE's scores are of test sets; on QQP and MRPC F1, on STS-B rank."""


def config_of(row: ResultSpec, model: str, data_dir: Path, seed: int) -> FinetuneConfig:
    """The run of one seed: the paper's schedule (Devlin et al. 2018, A.3), no weights saved on the way."""
    return FinetuneConfig(
        model=model,
        data=row.data,
        data_dir=str(data_dir / row.folder),
        max_length=row.max_length,
        from_scratch=row.scratch,
        epochs=row.epochs,
        optim=OptimConfig(warmup=0.1),
        train=TrainConfig(batch_size=row.batch_size, seed=seed, steps=1, eval_every=10**6),
    )


def reproduce(
    names: Sequence[str],
    models: Mapping[str, Sequence[str]],
    data_dir: Path,
    run: Path,
    *,
    seeds: int | None = None,
    peer_seeds: int = 1,
    train: int | None = None,
    done: Callable[[list[dict[str, Any]]], None] = lambda rows: None,
) -> list[dict[str, Any]]:
    """Measure what is not measured yet, and return a line for each row and model.

    models: ENGLISH, KOREAN -> folders or names. seeds: runs of a line, by default `SEEDS` or `SEEDS_OF_LARGE`;
    peer_seeds: of the Trainer. train: the most training examples. done: called with the lines after each one.

    Raises UsageError for a row that is not in the table or whose model is not given. Raises UsageError too for a folder
    with results of another model of the same name or another number of examples.
    """
    check_names(names, ROWS)
    for name in names:
        if ROWS[name].model not in models:
            raise UsageError(f"{name} needs a {ROWS[name].model} model. Pass its folder.")
    if peer_seeds:
        require()
    opened = {language: named(several) for language, several in models.items()}
    found = []
    with console.progress("reproducing", None, unit="runs") as advance:
        for name in names:
            row = ROWS[name]
            sides = [BERTIE] if DATASETS[row.data].task in PEERLESS or not peer_seeds else list(SIDES)
            for model in opened[row.model]:
                place = place_of(run / name, model)
                check_same(place, settings_of(row), of="other settings")
                check_same(place, {"train": train}, of="another number of training examples", file=TRAIN)
                made: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
                for seed in range(seeds or seeds_of(row, train)):
                    for side in sides[: 2 if seed < peer_seeds else 1]:
                        measure = partial(SIDES[side], row, config_of(row, str(model.folder), data_dir, seed), train)
                        made[side].append(measured(place / f"{side.lower()}-{seed}.json", measure))
                        advance(1, last=f"{name} {model.name} {side}")
                found.append({**_summary(name, made), "model": model.name, "limit": train})
                done(found)
    return found


def named(models: Sequence[str]) -> list[Measurable]:
    """Returns models with their names in the table."""
    found = dict[str, Measurable]()
    for model in models:
        name = model_name(Path(model), found)
        found[name] = Measurable(name, model_folder(model))
    return list(found.values())


def place_of(folder: Path, model: Measurable) -> Path:
    """Returns the folder of a model's results in a row: the row's own for the model that was measured first in it."""
    place = folder if _is_of(folder, model) else folder / model.name
    check_model(place, model)
    return place


def settings_of(row: ResultSpec) -> dict[str, float]:
    """Returns the hyperparameters of a row, which all its runs share."""
    return {name: getattr(row, name) for name in ("epochs", "rate", "batch_size", "max_length")}


def seeds_of(row: ResultSpec, train: int | None = None) -> int:
    """Returns the usual number of runs: more where there are few training examples."""
    published = DATASETS[row.data].splits["train"].examples or SMALL
    return SEEDS if min(published, train or published) < SMALL or row.parted else SEEDS_OF_LARGE


def available(data_dir: Path, models: Collection[str]) -> tuple[str, ...]:
    """Returns the rows whose model is given and whose files are there. The others are listed in a warning.

    Raises DataError if there is no such row.
    """
    found, missing = [], []
    for name, row in ROWS.items():
        if row.model not in models:
            continue
        dataset, places = DATASETS[row.data], ["dev"] if row.parted or row.made else ["train"]
        try:
            for split in places:
                dataset.tables(split, data_dir / row.folder)
            found.append(name)
        except DataError:
            missing.append(name)
    if not found:
        raise DataError(f"{data_dir} has the files of no row of the table: {', '.join(missing)}.")
    if missing:
        console.warn(f"Not measured, since {data_dir} does not have their files: {', '.join(missing)}.")
    return tuple(found)


def check_names(names: Sequence[str], table: Collection[str]) -> None:
    """Raises UsageError for a name that is not in the table."""
    for name in names:
        if name not in table:
            raise UsageError(f"{name!r} is not in the table. {nearest(name, table)}")


def check_model(folder: Path, model: Measurable) -> None:
    """Raises UsageError for a folder with results of another model, and writes of which model its results are."""
    if not _is_of(folder, model):
        raise UsageError(f"{folder} contains results of another model. Choose another folder.")
    write_json(folder / MODEL, {"model": model.name, "identity": model.identity})


def _is_of(folder: Path, model: Measurable) -> bool:
    """Returns whether a folder has results of a model, or of none."""
    return not (folder / MODEL).exists() or bool(read_json(folder / MODEL)["identity"] == model.identity)


def prepared(row: ResultSpec, config: FinetuneConfig, train: int | None = None) -> Prepared:
    """The examples of a run as token ids, its steps and its learning rate. train: the most training examples."""
    read = read_row(row, config)
    examples = replace(read, train=spaced(read.train, train))
    steps = steps_of(len(examples.train), batch_size=config.train.batch_size, epochs=config.epochs)
    rate = row.rate * usual_rate(read_public(Path(config.model))["hidden_size"])
    known = {
        "train": config.train.model_copy(update={"steps": steps}),
        "optim": config.optim.model_copy(update={"lr": rate}),
    }
    return prepare(config.model_copy(update=known), examples)


def read_row(row: ResultSpec, config: FinetuneConfig) -> Examples:
    """The examples of a row, as it divides or makes them."""
    read = read_examples(config, parted=row.parted or row.made is not None)
    if row.made is None:
        return read
    made = row.made(Path(config.data_dir).parents[len(Path(row.folder).parts) - 1])
    return replace(read, train=made, dev=[*read.train, *read.dev])


def spaced(examples: list[Example], most: int | None) -> list[Example]:
    """Returns at most `most` examples of the whole list, evenly spaced; None: all of them."""
    return examples if most is None else baselines.spaced_examples(examples, most)


def examples_of(names: Iterable[str], data_dir: Path, train: int, dev: int) -> dict[str, Examples]:
    """Returns the examples of rows, at most so many of each part, evenly spaced."""
    parts = {}
    for name in names:
        read = read_row(ROWS[name], config_of(ROWS[name], "", data_dir, 0))
        parts[name] = replace(read, train=spaced(read.train, train), dev=spaced(read.dev, dev), notes=[])
    return parts


def _side(
    way: Callable[[ResultSpec], Callable[[Prepared, int], tuple[float, float]]],
) -> Callable[[ResultSpec, FinetuneConfig, int | None], dict[str, Any]]:
    def measure(row: ResultSpec, config: FinetuneConfig, train: int | None) -> dict[str, Any]:
        made = prepared(row, config, train)
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
            "rate": made.config.optim.lr,
            "precision": "bf16" if harness.bf16_is_quicker() else "fp32",
        }

    return measure


SIDES = {
    BERTIE: _side(lambda row: bertie_run("auto")),
    PEER: _side(lambda row: peer_run(replace(AT_ITS_BEST, by_length=row.by_length, bf16=harness.bf16_is_quicker()))),
}


def _summary(name: str, sides: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    row, first = ROWS[name], sides[BERTIE][0]
    length = f"{row.max_length} tokens"
    return {
        "name": name,
        "set": row.data,
        "metric": first["metric"],
        "precision": first["precision"],
        "train": first["train"],
        "dev": first["dev"],
        "hyper": f"{row.epochs:g} epochs, learning rate {first['rate']:g}, batch {row.batch_size}, {length}",
        **{
            side: {
                **SeedSummary.over([one["quality"] for one in runs], first["metric"]).as_json(),
                "processor_seconds": sum(one["processor_seconds"] for one in runs) / len(runs),
            }
            for side, runs in sides.items()
        },
        "difference": welch([one["quality"] for one in sides[BERTIE]], [one["quality"] for one in sides.get(PEER, [])]),
        "published": {system: scores[name] for system, scores in PUBLISHED.items() if name in scores},
    }


def glue_average(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Returns the means over GLUE's sets, in points: of models with all sets and the published systems, if any has."""
    found: dict[str, list[float]] = {}
    for row in rows:
        if row["name"] in GLUE:
            found.setdefault(row["model"], []).append(100 * row[BERTIE]["mean"])
    whole = {model: values for model, values in found.items() if len(values) == len(GLUE)}
    if whole:
        whole |= {system: [scores[name] for name in GLUE] for system, scores in PUBLISHED.items()}
    return {name: sum(values) / len(GLUE) for name, values in whole.items()}


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


def page(rows: Sequence[dict[str, Any]], *, command: str) -> str:
    """A page: the table, with what it takes to make it again. Without runs of the Trainer, it is not named."""
    machine, compared = harness.machine(), any(PEER in row for row in rows)
    lines = ["# Results", "", *(WITH_PEER if compared else ALONE), ""]
    marked = [f"{system} †" for system in PUBLISHED]
    beside = ["Trainer", "difference"] if compared else []
    lines += _table(
        ["data set", "model", "metric", "seeds", "Bertie", *beside, *marked], (_cells(row, compared) for row in rows)
    )
    if average := glue_average(rows):
        told = ", ".join(f"{name}{' †' * (name in PUBLISHED)} {value:.1f}" for name, value in average.items())
        lines += [f"GLUE, mean of eight sets: {told}.", ""]
    times = ["CPU s, Bertie", "CPU s, Trainer"] if compared else ["CPU s"]
    lines += _table(["data set", "model", "train, dev", *times, "settings"], (_costs(row, compared) for row in rows))
    precisions = " and ".join(sorted({row["precision"] for row in rows}))
    notes = dict.fromkeys(note for row in rows if (note := _note(ROWS[row["name"]], row)))
    lines += [*(f"* {note}" for note in notes), ""] if notes else []
    others = [f"transformers {version('transformers')}"] if compared else []
    libraries = [f"Bertie {version('bertie')}", f"torch {machine['torch']}", *others, f"Python {machine['python']}"]
    lines += [
        f"Measured on {datetime.date.today().isoformat()}: {', '.join(libraries)}; {machine['processor']},",
        f"{counted(machine['threads'], 'thread')} per process, {precisions}. This command reproduces the table "
        "and resumes after interruptions:",
        "",
        f"    {command}",
    ]
    return "\n".join(lines) + "\n"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows), ""]


def _cells(row: Mapping[str, Any], compared: bool) -> list[str]:
    told = row["difference"]
    difference = f"{told['difference']:+z.3f} ({told['low']:+z.3f} to {told['high']:+z.3f})" if told else "-"
    qualities = [_shown(row[side]) if side in row else "-" for side in _sides(compared)]
    others = [f"{row['published'][system]:.1f}" if system in row["published"] else "-" for system in PUBLISHED]
    seeds = str(row[BERTIE]["runs"])
    return [row["name"], row["model"], row["metric"], seeds, *qualities, *[difference] * compared, *others]


def _costs(row: Mapping[str, Any], compared: bool) -> list[str]:
    times = [f"{row[side]['processor_seconds']:,.0f}" if side in row else "-" for side in _sides(compared)]
    return [row["name"], row["model"], f"{row['train']:,}, {row['dev']:,}", *times, row["hyper"]]


def _sides(compared: bool) -> Sequence[str]:
    return tuple(SIDES) if compared else (BERTIE,)


def _note(row: ResultSpec, line: Mapping[str, Any]) -> str:
    """What is not as published in a row."""
    parts = []
    if row.parted:
        parts.append("training on the first four fifths of dev, evaluation on the last fifth")
    if row.made:
        parts.append("training examples made from those of SQuAD 1.1")
    if line["limit"]:
        parts.append(f"{line['train']:,} training examples only, evenly spaced")
    if row.scratch:
        parts.append("random weights instead of pre-trained ones")
    if not row.by_length and PEER in line:
        parts.append("the Trainer reads examples in random order")
    return f"{line['name']}: {'; '.join(parts)}." if parts else ""


def _shown(side: dict[str, Any]) -> str:
    known = SeedSummary(**{name: side[name] for name in ("runs", "mean", "sd", "low", "high")})
    return f"{known.mean:z.3f}" if known.sd is None else f"{known.mean:z.3f} ± {known.sd:z.3f}"


def write_page(path: Path, text: str) -> None:
    """Replace the page."""
    write_bytes(path, text.encode())
