"""The curve of accuracy over the number of labeled examples: few-shot training beside its alternatives.

    python -m benchmarks reproduce few-labels --model minilm --data-dir data -o runs/few

    few-shot       pairs of texts, then logistic regression (tasks/few_shot.py)
    vectors        logistic regression on the vectors of the start model, which is not trained
    pattern        a masked language model that fills a word into a pattern (tasks/pattern.py)
    fine-tuning    the usual classifier, with enough epochs for small data (Mosbach et al. 2021)
    words          tf-idf of words and logistic regression

A model of sentence vectors is measured by the first two and the last two; a masked language model by the last three.

All see the same examples, drawn by number, of the training split, and are scored on the same dev examples. Each
measurement is a separate file, so that the command can be resumed. A draw comes after the other, so that an interrupted
table has all rows.
"""

import itertools
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from benchmarks.cells import NEVER, cell, finetuned, made, measured
from benchmarks.results import check_model, named, spaced
from bertie.console import console
from bertie.errors import DataError, UsageError, nearest
from bertie.evaluation.baselines import BASELINES
from bertie.files import read_json
from bertie.io.tables import Example
from bertie.metrics.compare import SeedSummary
from bertie.models.head_config import Pooled
from bertie.report.charts import Chart, Line
from bertie.runs.config import FinetuneConfig
from bertie.runs.examples import Examples, draw_examples, read_examples
from bertie.runs.finetune_prepare import prepare_run
from bertie.runs.finetune_train import measure_run
from bertie.runs.weights import load_model as load_module
from bertie.settings import load_config
from bertie.tasks import TASKS

SIZES = (8, 16, 64)  # examples of each label
TOPICS = 4  # articles of SQuAD with the most questions: which article a question is about, as in AG News
DEV = 400  # dev examples, evenly spaced
PLAIN_EPOCHS = {8: 20, 16: 20, 64: 10}
PATTERNS: Mapping[str, Mapping[str, Any]] = {  # by set; the words are those of the labels
    "sst2": {"pattern": "It was [MASK].", "words": {"1": "good", "0": "bad"}},
    "nsmc": {"pattern": "한마디로 [MASK].", "words": {"1": "좋다", "0": "아깝다"}},
}


def examples_of(name: str, data_dir: Path) -> Examples:
    """Returns the training and dev examples of a set."""
    if name == "topics":
        return _topics(data_dir / "squad")
    folder = {"sst2": "glue"}.get(name, name)
    return read_examples(FinetuneConfig(model="", data=name, data_dir=str(data_dir / folder)))


def _topics(folder: Path) -> Examples:
    """Questions of the articles of SQuAD 1.1 with the most questions; the label is the article. A fifth is dev."""
    found = sorted(folder.glob("train-v1.1*.json"))
    if not found:
        raise DataError(f"{folder} has no train-v1.1*.json, the training file of SQuAD 1.1.")
    articles = read_json(found[0])["data"]
    counted = Counter({a["title"]: sum(len(p["qas"]) for p in a["paragraphs"]) for a in articles})
    titles = {title for title, _ in counted.most_common(TOPICS)}
    train, dev = list[Example](), list[Example]()
    for article in articles:
        for number, paragraph in enumerate(article["paragraphs"] if article["title"] in titles else ()):
            rows = [Example((qa["question"].strip(),), article["title"]) for qa in paragraph["qas"]]
            (dev if number % 5 == 0 else train).extend(rows)
    task = TASKS["sequence"].from_examples(train, (), {})
    return Examples(task, train, dev, ("accuracy",))


SETS: Mapping[str, Callable[[Path], Examples]] = {
    name: partial(examples_of, name) for name in ("sst2", "topics", "nsmc")
}


def _config(recipe: str | None, model: str, seed: int, **changes: Any) -> FinetuneConfig:
    fixed: dict[str, Any] = {"train.seed": seed, "train.eval_every": NEVER, "train.save_every": NEVER}
    return load_config(FinetuneConfig, recipe, model=model, **fixed, **changes)


def _accuracy(config: FinetuneConfig, examples: Examples) -> float:
    return finetuned(config, examples)["accuracy"]


def _few_shot(name: str, examples: Examples, model: str, size: int, seed: int) -> float:
    return _accuracy(_config("finetune-few-shot", model, seed), _pairs(examples))


def _pairs(examples: Examples) -> Examples:
    return replace(examples, task=TASKS["few-shot"].make(examples.task.labels, {}))


def _vectors(name: str, examples: Examples, model: str, size: int, seed: int) -> float:
    """The same as few-shot training without any step."""
    return float(measure_run(prepare_run(_config("finetune-few-shot", model, seed), _pairs(examples)))["accuracy"])


def _plain(model: str, size: int, seed: int, **changes: Any) -> FinetuneConfig:
    changes = {"epochs": PLAIN_EPOCHS[size], "train.batch_size": 16, **changes}
    return _config(None, model, seed, **changes)


def _fine_tuning(name: str, examples: Examples, model: str, size: int, seed: int) -> float:
    pooling: Pooled = "mean"  # what a sentence model was trained with; its pooler was not
    return _accuracy(_plain(model, size, seed, pooling=pooling), examples)


def _pattern(name: str, examples: Examples, model: str, size: int, seed: int) -> float:
    task = TASKS["pattern"].make((), PATTERNS[name])
    return _accuracy(_plain(model, size, seed), replace(examples, task=task))


def _words(name: str, examples: Examples, model: str, size: int, seed: int) -> float:
    answers = BASELINES["words"][1](examples.task, examples.train, examples.dev) or []
    right: int = sum(answer.label == example.label for answer, example in zip(answers, examples.dev, strict=True))
    return right / len(examples.dev)


WAYS: Mapping[str, Callable[[str, Examples, str, int, int], float]] = {
    "few-shot": _few_shot,
    "vectors": _vectors,
    "pattern": _pattern,
    "fine-tuning": _fine_tuning,
    "words": _words,
}


def ways_of(model: str) -> list[str]:
    """Returns the ways of a model: by its pre-training head where it has one, else by its sentence vectors."""
    omitted = ("few-shot", "vectors") if "mlm" in load_module(model).heads else ("pattern",)
    return [way for way in WAYS if way not in omitted]


def reproduce(names: Sequence[str], model: str, data_dir: Path, run: Path, *, draws: int = 10) -> list[dict[str, Any]]:
    """Measures what is missing, and returns a line per set, size and way: accuracy over draws.

    names: sets; without any, all sets of the model. A masked language model needs a pattern for its sets.

    Raises UsageError for an unknown set, a set without a pattern for a masked language model, or a folder with results
    of another model.
    """
    ways = ways_of(model)
    known = [*(PATTERNS if "pattern" in ways else SETS)]
    names = names or known
    for name in names:
        if name not in SETS:
            raise UsageError(f"{name!r} is not in the table. {nearest(name, SETS)}")
        if name not in known:
            raise UsageError(f"{name!r} has no pattern for a masked language model. Choose from {', '.join(known)}.")
    check_model(run, *named([model]))
    found: dict[tuple[str, int, str], list[float]] = {}
    read = cache(lambda name: SETS[name](data_dir))  # when a measurement is missing
    with console.progress("measuring", draws * len(names) * len(SIZES) * len(ways), unit="runs") as advance:
        for draw in range(draws):
            for name, size, way in itertools.product(names, SIZES, ways):
                file = run / name / f"{way}-{size}-{draw}.json"
                one = measured(file, partial(_measure, read, name, model, size, way, draw))
                found.setdefault((name, size, way), []).append(one["accuracy"])
                advance(1, last=f"{name} {size} {way}")
    return [
        {"set": name, "per_label": size, "way": way, "accuracy": values} for (name, size, way), values in found.items()
    ]


def _measure(
    read: Callable[[str], Examples], name: str, model: str, size: int, way: str, draw: int
) -> dict[str, float]:
    whole, began = read(name), time.process_time()
    train, dev = draw_examples(whole.train, size, seed=draw), spaced(whole.dev, DEV)
    accuracy = WAYS[way](name, replace(whole, train=train, dev=dev, notes=[]), model, size, draw)
    return {"accuracy": accuracy, "processor_s": time.process_time() - began}


def page(rows: Sequence[Mapping[str, Any]], *, model: str, command: str) -> str:
    """Returns the table as Markdown: mean accuracy and its 95% interval over draws."""
    by_cell = {(row["set"], row["per_label"], row["way"]): row["accuracy"] for row in rows}
    ways = list(dict.fromkeys(row["way"] for row in rows))
    lines = [f"| set | examples per label | {' | '.join(ways)} |", f"|---|---|{'---|' * len(ways)}"]
    for name, size in dict.fromkeys((row["set"], row["per_label"]) for row in rows):
        lines.append(
            f"| {name} | {size} | {' | '.join(cell(by_cell[name, size, way], metric='accuracy') for way in ways)} |"
        )
    draws = min(len(row["accuracy"]) for row in rows)
    lines += [
        "",
        f"Accuracy on {DEV} dev examples: mean and 95% interval of the mean over {draws} draws of training examples.",
        f"Model: `{Path(model).absolute().name}`. {made()}",
        "",
        f"    {command}",
    ]
    return "\n".join(lines) + "\n"


def pictures(rows: Sequence[Mapping[str, Any]]) -> dict[str, Chart]:
    """Returns a chart of each set by its name: accuracy over the number of examples, with bands."""
    found = {}
    for name in dict.fromkeys(row["set"] for row in rows):
        lines = []
        for way in dict.fromkeys(row["way"] for row in rows):
            points = {
                row["per_label"]: SeedSummary.over(row["accuracy"], "accuracy")
                for row in rows
                if (row["set"], row["way"]) == (name, way)
            }
            known = [*points.values()]
            low = [one.mean if one.low is None else one.low for one in known]
            high = [one.mean if one.high is None else one.high for one in known]
            lines.append(Line(way, [*points], [one.mean for one in known], low, high))
        found[name] = Chart.lines(lines, x_label="examples per label", y_label="accuracy", title=f"{name}: accuracy")
    return found
