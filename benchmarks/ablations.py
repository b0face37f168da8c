"""The paper's ablations on one corpus and a small model, over several seeds.

    python -m benchmarks reproduce ablations --corpus CORPUS --tokenizer TOKENIZER --data-dir data -o runs/ablations

    a row = what changes in pre-training + which checkpoint + what changes in fine-tuning

Rows with the same pre-training share its run, and rows with the same fine-tuning share its scores. Seed s of a row is
compared with seed s of the first row of its table. Every run and every score is a file in the folder, so that the
command can be resumed; a seed comes after the other, so that an interrupted measurement has all rows.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from benchmarks.cells import NEVER, cell, check_same, finetuned, measured
from benchmarks.results import ROWS, check_names, read_row, spaced
from bertie.console import console, counted
from bertie.errors import UsageError
from bertie.metrics.compare import SeedSummary
from bertie.models import families
from bertie.report.charts import Chart
from bertie.report.page import Report
from bertie.report.values import number
from bertie.runs.config import FinetuneConfig, PretrainConfig
from bertie.runs.examples import Examples
from bertie.runs.pretrain import run_pretrain
from bertie.runs.pretraining import PreparedRun
from bertie.settings import load_config
from bertie.tasks.datasets import DATASETS
from bertie.text.tokenizer import Tokenizer

RECIPE = "pretrain-ten-minutes"
TASKS = ("sst2", "mrpc", "wnut17")
LOSS = "held-out loss"  # of the words that a masked language model predicts
PARTS = 5  # checkpoints of a run whose training steps are compared
NO_NSP = ("objectives.nsp=null",)
LTR = (*NO_NSP, "objectives.mlm=null", "objectives.ltr={}", "model_overrides.causal=true")
RTD = (*NO_NSP, "objectives.mlm=null", "objectives.rtd={}", "model=electra-small-discriminator")
SIZES = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size")


Published = tuple[tuple[str, float], ...]
"""What a paper reports: its name of the task, and the score."""


@dataclass(frozen=True)
class Row:
    """A row of a table. The changes are settings as the user writes them: key=value.

    part: the share of the pre-training steps, for a checkpoint.
    """

    name: str
    pretrain: tuple[str, ...] = ()
    part: float = 1.0
    finetune: tuple[str, ...] = ()
    published: Published = ()


@dataclass(frozen=True)
class Table:
    """A table: its rows are compared with its first row.

    also: rows that only the paper has. tagging: only tasks that tag words are measured. equal: all rows have the
    floating-point operations of the first row instead of its steps.
    """

    title: str
    source: str
    rows: tuple[Row, ...]
    also: tuple[tuple[str, Published], ...] = ()
    tagging: bool = False
    equal: bool = False


def _glue(mnli: float, qnli: float, mrpc: float, sst2: float, squad: float) -> Published:
    return ("MNLI-m", mnli), ("QNLI", qnli), ("MRPC", mrpc), ("SST-2", sst2), ("SQuAD F1", squad)


def _size(layers: int, width: int, preset: str = "") -> Row:
    return Row(
        f"{layers} layers of {width}", (f"model={preset or f'bert_uncased_L-{layers}_H-{width}_A-{width // 64}'}",)
    )


def _published_size(layers: int, width: int, heads: int, *scores: float) -> tuple[str, Published]:
    names = ("perplexity", "MNLI-m", "MRPC", "SST-2")
    return f"{layers} layers of {width:,}, {heads} heads", tuple(zip(names, scores, strict=True))


def _masks(mask: int, same: int, random: int, mnli: float, ner: float, features: float) -> Row:
    """Our order of `replace` is masked, random, same; the paper's is masked, same, random."""
    shares = ",".join(f"{share / 100:g}" for share in (mask, random, same))
    published = (("MNLI", mnli), ("NER, fine-tuned", ner), ("NER, features", features))
    changes = () if (mask, same, random) == (80, 10, 10) else (f"objectives.mlm.replace=[{shares}]",)
    return Row(f"{mask}% masked, {same}% same, {random}% random", changes, published=published)


def _features(kind: str, name: str, f1: float) -> Row:
    changes = (f"task_options.features={kind}", "optim.lr=1e-3")
    return Row(name, finetune=changes, published=(("CoNLL-2003 F1", f1),))


TABLES: Mapping[str, Table] = {
    "tasks": Table(
        "Pre-training tasks",
        "Devlin et al. 2018, table 5 (BERT-base)",
        (
            Row("BERT", published=_glue(84.4, 88.4, 86.7, 92.7, 88.5)),
            Row("no NSP", NO_NSP, published=_glue(83.9, 84.9, 86.5, 92.6, 87.9)),
            Row("left to right, no NSP", LTR, published=_glue(82.1, 84.3, 77.5, 92.1, 77.8)),
            Row("the same with a BiLSTM", LTR, finetune=("lstm=1",), published=_glue(82.1, 84.1, 75.7, 91.6, 84.9)),
        ),
    ),
    "size": Table(
        "Size of the model",
        "Devlin et al. 2018, table 6",
        (_size(2, 128, "bert-tiny"), _size(4, 128), _size(6, 128), _size(2, 256), _size(4, 256, "bert-mini")),
        (
            _published_size(3, 768, 12, 5.84, 77.9, 79.8, 88.4),
            _published_size(6, 768, 3, 5.24, 80.6, 82.2, 90.7),
            _published_size(6, 768, 12, 4.68, 81.9, 84.8, 91.3),
            _published_size(12, 768, 12, 3.99, 84.4, 86.7, 92.9),
            _published_size(12, 1024, 16, 3.54, 85.7, 86.9, 93.3),
            _published_size(24, 1024, 16, 3.23, 86.6, 87.8, 93.7),
        ),
    ),
    "masks": Table(
        "What becomes of the selected words",
        "Devlin et al. 2018, table 8 (BERT-base)",
        (
            _masks(80, 10, 10, 84.2, 95.4, 94.9),
            _masks(100, 0, 0, 84.3, 94.9, 94.0),
            _masks(80, 0, 20, 84.1, 95.2, 94.6),
            _masks(80, 20, 0, 84.4, 95.2, 94.7),
            _masks(0, 20, 80, 83.7, 94.8, 94.6),
            _masks(0, 0, 100, 83.6, 94.9, 94.6),
        ),
    ),
    "steps": Table(
        "Number of pre-training steps",
        "Devlin et al. 2018, C.1: a million steps give MNLI 1.0 point more than 500,000",
        tuple(Row(f"{part}/{PARTS} of the steps", part=part / PARTS) for part in range(1, PARTS + 1)),
    ),
    "features": Table(
        "Fine-tuning and features",
        "Devlin et al. 2018, table 7 (BERT-base, dev)",
        (
            Row("fine-tuning", published=(("CoNLL-2003 F1", 96.4),)),
            _features("embeddings", "embeddings", 91.0),
            _features("second_to_last", "second-to-last layer", 95.6),
            _features("last", "last layer", 94.9),
            _features("weighted_last_four", "weighted sum of the last four layers", 95.9),
            _features("concat_last_four", "last four layers, concatenated", 96.1),
            _features("weighted_all", "weighted sum of all layers", 95.5),
        ),
        (("ELMo", (("CoNLL-2003 F1", 95.7),)), ("BERT-large, fine-tuned", (("CoNLL-2003 F1", 96.6),))),
        tagging=True,
    ),
    "objectives": Table(
        "Other objectives at equal compute",
        "Lan et al. 2019, table 5 (mean of five tasks: none, SOP); Joshi et al. 2020, table 5 (SQuAD 2.0 F1: tokens, "
        "words, spans); Clark et al. 2020, table 1 (GLUE: BERT-small, ELECTRA-small)",
        (
            Row("masked words", NO_NSP, published=(("SOP", 79.0), ("units", 83.8), ("RTD", 75.1))),
            Row("replaced tokens", RTD, published=(("RTD", 79.9),)),
            Row("masked words and SOP", (*NO_NSP, "objectives.sop={}"), published=(("SOP", 80.1),)),
            Row("whole words", (*NO_NSP, "objectives.mlm.masking=whole_word"), published=(("units", 84.3),)),
            Row("spans", (*NO_NSP, "objectives.mlm.masking=span"), published=(("units", 85.4),)),
        ),
        equal=True,
    ),
}


@dataclass(frozen=True)
class Setup:
    """What all rows have in common. train: the maximum number of training examples of a task."""

    corpus: str
    tokenizer: str
    data_dir: Path
    recipe: str = RECIPE
    overrides: tuple[str, ...] = ()
    tasks: tuple[str, ...] = TASKS
    train: int | None = None

    def pretraining(self, changes: Sequence[str], seed: int, steps: int | None = None) -> PretrainConfig:
        """Returns the settings of a pre-training run. The one without changes keeps checkpoints.

        A model of another family gets the sizes of the run without changes.
        """
        fixed = [f"train.seed={seed}", *([] if steps is None else [f"train.steps={steps}"])]
        base, config = (
            load_config(
                PretrainConfig,
                self.recipe,
                [*self.overrides, *changed, *fixed],  # the last one counts
                corpus=self.corpus,
                tokenizer=self.tokenizer,
            )
            for changed in ((), changes)
        )
        every = max(1, base.train.steps // PARTS)
        if families.family(config.model) != families.family(base.model):
            shape = families.config(base.model, **base.model_overrides)
            sizes = {name: shape.get(name) for name in SIZES}
            sizes |= {"embedding_size": shape.embedding_size or shape.hidden_size}
            config = config.model_copy(update={"model_overrides": {**config.model_overrides, **sizes}})
        keep = -(-base.train.steps // every) + 1
        kept_all = {"save_every": every, "keep": keep, "keep_checkpoints": True} if config == base else {}
        return config.model_copy(update={"train": config.train.model_copy(update=kept_all)})

    def note(self) -> dict[str, Any]:
        """Returns what the measurements of a folder have in common, to compare it with another call's."""
        base = self.pretraining((), 0)
        fixed = base.model_dump(mode="json", exclude={"corpus", "tokenizer"}, exclude_defaults=True)
        facts = {"corpus": Path(self.corpus).resolve().name, "tokenizer": Tokenizer.load(self.tokenizer).fingerprint}
        return {**facts, "train": self.train, "pretrain": fixed}

    @property
    def tagged(self) -> tuple[str, ...]:
        """The tasks that tag words."""
        return tuple(task for task in self.tasks if DATASETS[task].task == "tagging")

    def tasks_of(self, table: Table) -> tuple[str, ...]:
        """The tasks that a table measures."""
        return self.tagged if table.tagging else self.tasks

    @cache  # noqa: B019 (one setup per process)
    def steps(self, table: Table, row: Row) -> int | None:
        """Returns the steps of a row's run, where they are not those of all runs."""
        if not table.equal or row == table.rows[0]:
            return None
        first, own = (_operations(self.pretraining(r.pretrain, 0)) for r in (table.rows[0], row))
        usual = self.pretraining(row.pretrain, 0).train.steps
        steps = max(1, round(usual * first / own))
        return None if steps == usual else steps

    @cache  # noqa: B019
    def pretrained(self, changes: tuple[str, ...], seed: int, steps: int | None, folder: Path) -> dict[str, Any]:
        """Returns the results of a pre-training run, which is made or resumed first."""
        return run_pretrain(self.pretraining(changes, seed, steps), folder)

    @cache  # noqa: B019
    def examples(self, task: str, changes: tuple[str, ...] = ()) -> Examples:
        """Returns the examples of a task, whose options a row may change."""
        read = read_row(ROWS[task], self.finetuning(task, "", changes, 0))
        return replace(read, train=spaced(read.train, self.train), notes=[])

    def finetuning(self, task: str, model: str, changes: Sequence[str], seed: int) -> FinetuneConfig:
        """Returns the settings of a fine-tuning run: the usual learning rate of the model's width."""
        row = ROWS[task]
        return load_config(
            FinetuneConfig,
            None,
            changes,
            model=model,
            data=row.data,
            data_dir=str(self.data_dir / row.folder),
            epochs=row.epochs,
            max_length=row.max_length,
            **{"train.batch_size": row.batch_size, "train.seed": seed, "train.eval_every": NEVER},
            **{"train.save_every": NEVER},
        )


def _operations(config: PretrainConfig) -> float:
    """Returns the floating-point operations of a run, with those of a generator."""
    ready = PreparedRun(config)
    return sum(ready.facts(number).flops * phase.steps for number, phase in enumerate(ready.data.phases))


def slug(changes: Sequence[str], base: str) -> str:
    """Returns a folder's name for changes: that of their settings."""
    return "_".join(re.sub(r"[^A-Za-z0-9.]+", "-", change).strip("-") for change in changes) or base


def reproduce(
    names: Sequence[str],
    setup: Setup,
    run: Path,
    *,
    seeds: int = 3,
    done: Callable[[list[dict[str, Any]]], None] = lambda lines: None,
) -> list[dict[str, Any]]:
    """Measures what is missing, and returns a line for each row. done: called with the lines after each seed.

    Raises UsageError for an unknown table or task, a table without a task, or a folder with results of other settings;
    DataError for a missing corpus or data set, before anything is written.
    """
    check_names(names, TABLES)
    check_names(setup.tasks, ROWS)
    for name in names:
        if not setup.tasks_of(TABLES[name]):
            raise UsageError(f"{name} needs a task that tags words. Add one to --tasks: wnut17.")
    PreparedRun(setup.pretraining((), 0))
    for task in setup.tasks:
        setup.examples(task)
    check_same(run, setup.note(), of="another corpus, tokenizer or settings")
    lines: list[dict[str, Any]] = []
    asked = [(name, row, task) for name in names for row in TABLES[name].rows for task in setup.tasks_of(TABLES[name])]
    scores: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    with console.progress("measuring", seeds * len(asked), unit="scores") as advance:
        for seed in range(seeds):
            for name, row, task in asked:
                scores.setdefault((name, row.name, task), []).append(_score(setup, run, TABLES[name], row, task, seed))
                advance(1, last=f"{row.name}, {task}, seed {seed}")
            done(lines := list(_lines(names, setup, scores)))
    return lines


def _score(setup: Setup, run: Path, table: Table, row: Row, task: str, seed: int) -> dict[str, Any]:
    """Returns the score of a row with one seed, from its file or measured."""
    base = setup.pretraining((), seed)
    steps = setup.steps(table, row)
    config = setup.pretraining(row.pretrain, seed, steps)
    weights = slug(row.pretrain, "base") if config != base else "base"
    weights += f"_steps-{steps}" if steps else ""
    step = round(config.train.steps * row.part)
    scored = "-".join((weights, slug(row.finetune, "usual"), f"step-{step}"))
    folder = run / "pretrained" / weights / f"seed-{seed}"
    measure = partial(_measure, setup, config, folder, row, task, steps)
    return measured(run / "scores" / scored / f"{task}-{seed}.json", measure)


def checkpoint_step(config: PretrainConfig, part: float) -> int:
    """Returns the step of the checkpoint at a share of the steps, or of the end."""
    last = config.train.steps
    return last if part == 1 else min(last, config.train.save_every * round(part * PARTS))


def _measure(
    setup: Setup, config: PretrainConfig, folder: Path, row: Row, task: str, steps: int | None
) -> dict[str, Any]:
    seed, whole = config.train.seed, row.part == 1
    learnt = setup.pretrained(row.pretrain, seed, steps, folder)
    step = checkpoint_step(config, row.part)
    start = folder / "model" if whole else folder / f"checkpoint-{step}"
    examples = setup.examples(task, row.finetune)
    found = finetuned(setup.finetuning(task, str(start), row.finetune, seed), examples)
    metric, loss = examples.metrics[0], learnt["valid"].get("mlm_loss") if whole else None
    return {"metric": metric, "score": found[metric], "steps": step, "train": len(examples.train), LOSS: loss}


def _lines(
    names: Sequence[str], setup: Setup, scores: Mapping[tuple[str, str, str], Sequence[Mapping[str, Any]]]
) -> Iterator[dict[str, Any]]:
    """Yields a line for each row: its scores by task, and those minus the first row's."""
    for name in names:
        table = TABLES[name]
        for row in table.rows:
            found: dict[str, Any] = {}
            for task in setup.tasks_of(table):
                own, first = scores[name, row.name, task], scores[name, table.rows[0].name, task]
                values = [one["score"] for one in own]
                minus = [one["score"] - other["score"] for one, other in zip(own, first, strict=True)]
                found[task] = {
                    "metric": own[0]["metric"],
                    "scores": values,
                    **SeedSummary.over(values, own[0]["metric"]).as_json(),
                    "minus_first": [] if row == table.rows[0] else minus,
                }
            losses = [one[LOSS] for one in own if one.get(LOSS) is not None]
            loss = sum(losses) / len(losses) if losses else None
            line = {"table": name, "row": row.name, "steps": own[0]["steps"], "loss": loss, "tasks": found}
            yield {**line, "published": dict(row.published)}


def cells(lines: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Returns columns and rows of a table: each task with its interval, then minus the first row."""
    tasks = {task: one["metric"] for task, one in lines[0]["tasks"].items()}
    heads = [head for task, metric in tasks.items() for head in (f"{task} {metric}", f"{task}, difference")]
    rows = []
    for line in lines:
        row = [line["row"], f"{line['steps']:,}", "-" if line["loss"] is None else f"{line['loss']:z.3f}"]
        for task in tasks:
            one = line["tasks"][task]
            row += [cell(one["scores"], metric=one["metric"]), cell(one["minus_first"], form="+z.3f")]
        rows.append(row)
    return ["row", "steps", LOSS, *heads], rows


def published(lines: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Returns columns and rows of what the papers report, each with its difference from the first row that has it."""
    given = [(line["row"], dict(line["published"])) for line in lines]
    given += [(name, dict(scores)) for name, scores in TABLES[lines[0]["table"]].also]
    first: dict[str, float] = {}
    rows = []
    for name, scores in given:
        first |= {column: score for column, score in scores.items() if column not in first}
        shown = {c: f"{v:g}" + (f" ({round(v - first[c], 2):+g})" if v != first[c] else "") for c, v in scores.items()}
        rows.append((name, shown))
    return ["published", *first], [[name, *(shown.get(c, "-") for c in first)] for name, shown in rows if shown]


def report(lines: Sequence[Mapping[str, Any]], charts: Mapping[str, str], command: str) -> Report:
    """Returns all tables as a page with a chart for each task. charts: those of `pictures`."""
    runs = min(one["runs"] for line in lines for one in line["tasks"].values())
    page = Report("Ablations", f"{counted(runs, 'seed')} of each row")
    page.text(
        "Each row is compared with the first row of its table, seed by seed. Intervals are 95% confidence intervals of "
        "the mean over seeds (t distribution). If the interval of a difference contains 0, this experiment does not "
        "distinguish the two rows."
    )
    for name, rows in by_table(lines).items():
        page.section(TABLES[name].title, f"Compare: {TABLES[name].source}.")
        captioned = []
        for task, first in rows[0]["tasks"].items():
            shown = f"{_label(rows, task)}: dots are seeds, bars 95% intervals. First row: {number(first['mean'])}."
            captioned.append((charts[_picture(name, task)], shown))
            if _compares(rows, task):
                shown = f"{task}: the same rows minus the first row, seed by seed."
                captioned.append((charts[_picture(name, task, "differences")], shown))
        page.charts(captioned)
        for columns, body in (cells(rows), published(rows)):
            if body:
                page.table(columns, body, stack=True)
    return page.footer(command=command, docs="docs/results.md")


def pictures(lines: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Returns the charts of each table and task as SVG, by the name of their file: scores, and differences from the
    first row where there are two seeds or more."""
    found = {}
    for name, rows in by_table(lines).items():
        for task in rows[0]["tasks"]:
            found[_picture(name, task)] = _chart(rows, task)
            if _compares(rows, task):
                found[_picture(name, task, "differences")] = _difference_chart(rows, task)
    return found


def _picture(table: str, task: str, kind: str = "") -> str:
    return "-".join(["ablations", table, task, *([kind] if kind else [])]) + ".svg"


def _compares(rows: Sequence[Mapping[str, Any]], task: str) -> bool:
    """Whether there are differences with an interval: other rows than the first, and two seeds."""
    return len(rows) > 1 and len(rows[0]["tasks"][task]["scores"]) > 1


def _chart(rows: Sequence[Mapping[str, Any]], task: str) -> str:
    groups = {row["row"]: (row["tasks"][task]["scores"], *_ends(row["tasks"][task])) for row in rows}
    return Chart.intervals(groups, x_label=_label(rows, task), colours=[2] + [1] * (len(rows) - 1))


def _difference_chart(rows: Sequence[Mapping[str, Any]], task: str) -> str:
    minus = {row["row"]: row["tasks"][task]["minus_first"] for row in rows[1:]}
    groups = {name: (values, *_ends(SeedSummary.over(values).as_json())) for name, values in minus.items()}
    label = f"{_label(rows, task)}, difference from {rows[0]['row']}"
    return Chart.intervals(groups, x_label=label, colours=[1] * len(groups), reference=("no difference", 0.0))


def _label(rows: Sequence[Mapping[str, Any]], task: str) -> str:
    return f"{task}, {rows[0]['tasks'][task]['metric']}"


def _ends(one: Mapping[str, Any]) -> tuple[float | None, float | None]:
    return one["low"], one["high"]


def by_table(lines: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Returns the lines of each table."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for line in lines:
        found.setdefault(line["table"], []).append(line)
    return found


def markdown(lines: Sequence[Mapping[str, Any]]) -> str:
    """Returns the tables as Markdown, with the files of `pictures`."""
    parts = []
    for name, rows in by_table(lines).items():
        parts += [f"## {TABLES[name].title}", "", f"Compare: {TABLES[name].source}.", ""]
        for columns, body in (cells(rows), published(rows)):
            if body:
                parts += [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
                parts += [*(f"| {' | '.join(row)} |" for row in body), ""]
        for task in rows[0]["tasks"]:
            parts.append(f"![{TABLES[name].title}, {task}]({_picture(name, task)})\n")
            if _compares(rows, task):
                parts.append(f"![{TABLES[name].title}, {task}, differences]({_picture(name, task, 'differences')})\n")
    return "\n".join(parts)
