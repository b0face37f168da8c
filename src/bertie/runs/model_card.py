"""The sections of a model's card, README.md, that its run knows: the training, the text, the cost, the scores.

    ## Training                what was learned, with which settings, and from which weights
    ## Use and limits          what the model is for, what was not measured, and whose terms it follows
    ## Training text           of pre-training: corpora, and the passages removed because an evaluation set has them
    ## Scores                  of fine-tuning: metrics of the dev set, with their intervals
    ## Cost of the training    next to the forecast, with the runs whose checkpoint the training started from

Folders are named by their last part: a card is read on other machines.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bertie import checksums, settings
from bertie.console import counted
from bertie.costs.meter import Usage
from bertie.data import card as corpus_card
from bertie.errors import DataError, UsageError
from bertie.files import Json, JsonObject, write_text
from bertie.metrics.base import called
from bertie.models import names
from bertie.report.values import interval, number, quantity
from bertie.runs import usage
from bertie.runs.config import FinetuneConfig, PretrainConfig
from bertie.runs.folder import CONFIG, RESULTS, read_results
from bertie.runs.run_data import RunData
from bertie.tasks.datasets import DATASETS
from bertie.train import checkpoint, log

_CARD = checksums.CARD
NEXT = "\n## "


def put(folder: Path, title: str, *parts: str) -> None:
    """Writes a section into the card of a model folder, instead of an earlier one with the same title."""
    path = folder / _CARD
    text = "\n" + (path.read_text("utf-8") if path.exists() else "")
    before, _, after = text.partition(f"{NEXT}{title}\n")
    rest = NEXT + after.partition(NEXT)[2] if NEXT in after else ""
    body = "\n\n".join(part.strip() for part in parts if part.strip())
    write_text(path, f"{before.rstrip()}\n\n## {title}\n\n{body}\n{rest}".lstrip())
    checksums.update(folder, _CARD)


def render_markdown_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Returns a Markdown table."""
    cells = [[*columns], ["---"] * len(columns), *([str(cell).replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


TRAINING, TEXT, SCORES, COST = "Training", "Training text", "Scores", "Cost of the training"
_USE = "Use and limits"
_Rows = list[tuple[str, str]]


@dataclass(frozen=True)
class Stage:
    """A run that a later one started from: its name, and what it took up to the checkpoint that was used."""

    name: str
    step: int
    tokens: int
    usage: Usage

    def __str__(self) -> str:
        """The stage in a sentence."""
        energy = usage.energy_in_words(self.usage.kwh, self.usage.method)
        return (
            f"Before it, {self.name}: {self.step:,} steps, {quantity(self.tokens)} tokens, "
            f"{quantity(self.usage.seconds, 's')}, {energy}."
        )


def write_pretraining(run: Path, model: Path, config: PretrainConfig, data: RunData) -> None:
    """Writes how a model was pre-trained, and on which text, into its card."""
    lines = log.read_log(run)
    batch = f"{config.train.batch_size:,} sequences of at most {config.max_length:,} tokens"
    rows: _Rows = [
        ("started from", _start(config.model, preset="random weights of {}")),
        ("objectives", "; ".join(_objectives(config.objectives))),
        ("steps", f"{config.train.steps:,}, each of {batch}" if not config.phases else f"{config.train.steps:,}"),
        ("tokens read", quantity(_tokens(lines, config.train.steps))),
        *_optimizer(config),
    ]
    if valid := next((line for line in reversed(lines) if line["kind"] == "valid"), None):
        values = {name: value for name, value in valid.items() if name.endswith(("_loss", "_accuracy"))}
        rows.append(("held-out text", ", ".join(f"{name} {number(value)}" for name, value in values.items())))
    put(model, TRAINING, render_markdown_table(["", ""], rows))
    _put_use(
        model, "a start for fine-tuning, and predictions of its pre-training objectives", "the training text", config
    )
    put(model, TEXT, *_text(data))


def write_finetuning(model: Path, config: FinetuneConfig, results: Json) -> None:
    """Writes how a model was fine-tuned, and its scores, into its card. results: results.json of the run."""
    rows: _Rows = [
        ("started from", "random weights" if config.from_scratch else _start(config.model)),
        ("task", config.task),
        ("examples", f"{results['train_examples']:,} of {_named(config)}"),
        ("epochs", f"{config.epochs:g}, batches of {config.train.batch_size:,}"),
        *_optimizer(config),
        *_decisions(config, results),
    ]
    put(model, TRAINING, render_markdown_table(["", ""], rows))
    terms = f"{_named(config)} ({DATASETS[config.data].licence})" if config.data else _named(config)
    _put_use(model, f"the task {config.task}", terms, config)
    dev, bounds = results["dev"], results["dev"].get("interval_95", {})
    unknown = dev.get("undefined", {})
    scores = [
        (called(name, dev), "not defined", "–")
        if name in unknown
        else (called(name, dev), number(dev[name]), interval(*bounds[name]) if name in bounds else "–")
        for name in results["metrics"]
        if dev.get(name) is not None
    ]
    about = f"{counted(dev['examples'], 'dev example')}; 95% intervals over the examples." if "examples" in dev else ""
    put(model, SCORES, render_markdown_table(["metric", "score", "interval"], scores), about)


def _put_use(model: Path, purpose: str, data: str, config: PretrainConfig | FinetuneConfig) -> None:
    """Writes what the model is for, what is not known of it, and which terms it follows."""
    facts = (
        f"- Intended use: {purpose}, on texts like those of the training, of at most {config.max_length:,} tokens.",
        "- Limits: other kinds of text and differences between groups of people were not measured. Measure them before "
        "you rely on the model: `bertie evaluate`, `bertie audit`.",
        f"- License: none was stated. The terms of {data} hold, and those of the weights that it started from.",
    )
    put(model, _USE, "\n".join(facts))


def _decisions(config: FinetuneConfig, results: Json) -> _Rows:
    """Returns what was trained of the model, and what decides about its answers besides its weights."""
    chosen = [
        f"threshold {number(one['threshold'])} of {label!r} ({results['thresholds']['goal']})"
        for label, one in list(results.get("thresholds", {}).get("labels", {}).items())[:5]
    ]
    if scaling := results.get("calibration", {}).get("scale"):
        where = "in the weights" if results["calibration"]["in_weights"] else "applied by Bertie alone"
        chosen.append(f"{config.calibrate} scaling of {counted(len(scaling), 'logit')}, {where}")
    chosen += [] if config.abstain is None else [f"no answer below a probability of {config.abstain:g}"]
    chosen += [] if config.coverage is None else [f"sets of labels with a coverage of {config.coverage:g}"]
    lora = [("trained weights", f"LoRA of rank {config.lora.rank}, and the head")] if config.lora.rank else []
    return [*lora, *([("answers", "; ".join(chosen))] if chosen else [])]


def write_cost(model: Path, used: Usage, forecast: Mapping[str, object] | None, start: str = "") -> None:
    """Writes the cost of a training into the card, next to its forecast. start: the model that it started from."""
    rows = usage.usage_rows(used.as_json(), forecast or {})
    source = f"Forecast: {forecast['source']}." if forecast else ""
    facts = (
        render_markdown_table(usage.USAGE_COLUMNS, rows)
        if forecast
        else "\n".join(f"- {row[0]}: {row[2]}" for row in rows)
    )
    put(model, COST, facts, source, usage.energy(used), "\n".join(f"- {stage}" for stage in stages(start)))


def stages(start: str) -> Iterator[Stage]:
    """Yields the runs that led to a model: of a checkpoint, or of a finished run, the latest first.

    A model without its run has none, and neither have the runs before one whose files are gone.
    """
    path = Path(start)
    if not start or not path.is_dir():
        return
    run = path.resolve() if (path / CONFIG).is_file() else path.resolve().parent
    if not (run / CONFIG).is_file():
        return
    if (path / checkpoint.MANIFEST).is_file():
        point = checkpoint.verify_checkpoint(path)
        step, used = point.step, point.state.get("usage")
    elif (run / RESULTS).is_file():
        results = read_results(run)
        step, used = results.get("step", 0), results.get("usage")
    else:
        return
    if used:
        yield Stage(run.name, step, _tokens(log.read_log(run), step), Usage(**used))
    yield from stages(str(settings.read_yaml(run / CONFIG).get("model", "")))


def _tokens(lines: Sequence[Json], step: int) -> int:
    return sum(line["tokens"] for line in lines if line["kind"] == "train" and line["step"] <= step)


def _start(model: str, preset: str = "{}") -> str:
    if Path(model).exists():
        return Path(model).name
    return preset.format(model) if names.find_named_model(model) is None else model


def _named(config: FinetuneConfig) -> str:
    return config.data or Path(config.train_file).name or ", ".join(part.name for part in config.mix)


def _objectives(objectives: Mapping[str, Mapping[str, object] | None]) -> Iterator[str]:
    for name, options in objectives.items():
        if options is not None:
            settings = ", ".join(f"{k} {Path(v).name if isinstance(v, str) else v}" for k, v in options.items())
            yield f"{name} ({settings})" if settings else name


def _optimizer(config: PretrainConfig | FinetuneConfig) -> _Rows:
    optim = config.optim
    return [
        ("optimizer", f"{optim.name}, learning rate {optim.lr:g}, {optim.decay} decay, seed {config.train.seed}"),
    ]


def _text(data: RunData) -> Iterator[str]:
    """Yields a table of the corpora, and one of the passages that evaluation sets share with them."""
    cards: dict[str, JsonObject] = {}
    for name, (folder, _) in data.folders.items():
        try:
            cards[name] = corpus_card.load_card(folder)
        except DataError:  # a corpus in memory only
            continue
    rows = [
        (
            fact["name"],
            f"{fact['documents']:,}",
            f"{cards[fact['name']]['words']:,}" if fact["name"] in cards else "–",
            quantity(cards[fact["name"]]["bytes"], "bytes") if fact["name"] in cards else "–",
            f"{fact['share']:.0%}",
            f"{fact['epochs']:g}",
        )
        for fact in data.facts()
    ]
    yield render_markdown_table(["corpus", "documents", "words", "size", "share of the samples", "epochs"], rows)
    removed: dict[str, int] = {}
    for one in cards.values():
        for name, row in one["evaluation"].items():
            removed[Path(name).name] = removed.get(Path(name).name, 0) + row["removed"]
    if removed:
        yield "Passages that share 8 to 13 words with a text of an evaluation set were removed from the text:"
        yield render_markdown_table(
            ["evaluation set", "passages removed"], [(name, f"{n:,}") for name, n in removed.items()]
        )


class ModelCard:
    """The card of a model folder, README.md, into which a command writes what it found out."""

    def __init__(self, model: Path) -> None:
        self.model = model

    def check(self, changes: bool = True) -> None:
        """Raises UsageError where the command changes the card and cannot: others use the model, or it is
        read-only."""
        if changes and names.shared(self.model):
            raise UsageError(
                f"The card of {self.model.name} is not changed, since the model is found by its name and others use it "
                f"too. Copy the model first: bertie convert {self.model.name} -o FOLDER."
            )
        if changes and not os.access(self.model, os.W_OK):
            raise UsageError(
                f"The card cannot be written: {self.model} is read-only. Omit --card, or copy the model first."
            )

    def put(self, title: str, *parts: object) -> None:
        """Writes a section, instead of an earlier one with the same title. A part is a text, or columns and rows."""
        put(
            self.model,
            title,
            *(render_markdown_table(*part) if isinstance(part, tuple) else str(part) for part in parts),
        )
