"""The demo's report: the content of its run folder as one page.

    demo.json                            the options, the machine, versions
    stages.json                          seconds and facts of each stage
    task.json                            the task, or why there is none
    guesses.jsonl                        predictions for masked words over time
    pretrain/, finetune/<start>-<seed>/  run folders
    predictions.json                     test passages with probabilities

All numbers on the page are read from these files.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

from bertie.apps.demo.headline import BAG, Accuracies, accuracies, further, meaning
from bertie.apps.demo.masked import MASK_TOKEN, read_lines
from bertie.apps.demo.settings import START_NAMES
from bertie.platform import Chart, File, Html, Line, Report, SeedSummary, quantity

_OBJECTIVE_NAMES = {"mlm": "masked tokens", "nsp": "next sentence"}


def render_demo_page(run: Path) -> Report:
    """Returns the report of a finished demo."""
    demo, stages, task = (File(run / name).read_json() for name in ("demo.json", "stages.json", "task.json"))
    total = quantity(sum(stage["seconds"] for stage in stages.values()), "s")
    words = stages["corpus"]["facts"]["words"]
    report = Report(
        "Bertie: from raw text to predictions",
        f"A small BERT, made from {words:,} words of {demo['about']} in {total} "
        f"on {quantity(demo['machine']['cores'], 'core')}: corpus, vocabulary, pre-training, fine-tuning.",
    )
    scores = accuracies(run, task)
    report.tiles(_tiles(scores, task, total, stages))
    if scores:
        _comparison(report, run, task, scores)
    else:
        report.section("Fine-tuning", task["skipped"])
    _pretraining(report, run, stages)
    report.masked_tokens(_looks(run), "Sentences with one masked token each, and the two most probable tokens for it.")
    if scores:
        _predictions(report, File(run / "predictions.json").read_json(), task)
    _time(report, stages)
    _corpus(report, stages)
    facts = [*demo["settings"].items(), *demo["machine"].items()]
    report.section("Settings and machine").pairs([*facts, *((f"{k} version", v) for k, v in demo["versions"].items())])
    options = demo.get("asked", {})
    command = f"bertie demo --minutes {options.get('minutes', 7.5):g}"
    command += f" --corpus {options['text']}" if options.get("text") else ""
    date = f"{datetime.fromtimestamp((run / 'stages.json').stat().st_mtime, UTC):%Y-%m-%d %H:%M} UTC"
    return report.footer(origin=date, command=f"{command} -o NEW_FOLDER", docs="demo")


def _tiles(scores: Accuracies, task: Mapping[str, Any], total: str, stages: Mapping[str, Any]) -> list[tuple[str, ...]]:
    tiles = []
    for start, values in scores.items():
        tiles.append((f"accuracy, {START_NAMES[start]}", f"{SeedSummary.over(values).mean:z.3f}", _interval(values)))
    if task.get("bag_of_words"):
        values = task["bag_of_words"]
        tiles.append((f"accuracy, {BAG}", f"{SeedSummary.over(values).mean:z.3f}", _interval(values)))
    facts = stages["pre-training"]["facts"]
    tiles.append(("tokens read", quantity(facts["tokens"]), f"{facts['tokens_per_s']:,.0f} per second"))
    return [
        *tiles,
        ("total time", total, f"from {quantity(stages['corpus']['facts']['words'])} words of text"),
    ]


def _interval(accuracies: Sequence[float]) -> str:
    seeds = SeedSummary.over(accuracies, "accuracy")
    if seeds.low is None or seeds.high is None:
        return "one seed"
    return f"95% interval {seeds.low:z.3f} to {seeds.high:z.3f}, {seeds.runs} seeds"


def _comparison(report: Report, run: Path, task: Mapping[str, Any], scores: Accuracies) -> None:
    rows = {START_NAMES[start]: values for start, values in scores.items()}
    if task.get("bag_of_words"):
        rows[BAG] = task["bag_of_words"]
    seeds = {name: SeedSummary.over(values, "accuracy") for name, values in rows.items()}
    groups = {name: (values, seeds[name].low, seeds[name].high) for name, values in rows.items()}
    chart = Chart.intervals(
        groups, x_label="test accuracy", colours=(1, 2, 5), reference=("chance", 1 / len(task["labels"]))
    )
    lines = []
    for start, name in START_NAMES.items():
        runs = [
            [line for line in read_lines(run / f"finetune/{start}-{seed}/metrics.jsonl") if line["kind"] == "valid"]
            for seed in task["seeds"]
        ]
        spread = [[line["accuracy"] for line in step] for step in zip(*runs, strict=True)]
        steps, means = [line["step"] for line in runs[0]], [sum(values) / len(values) for values in spread]
        lines.append(Line(name, steps, means, [*map(min, spread)], [*map(max, spread)]))
    text = f"{' '.join([*meaning(scores, task), further(run)])}\n\n{task['about']}"
    for other in (name for name in (START_NAMES["random"], BAG) if name in rows):
        gain = SeedSummary.over([a - b for a, b in zip(scores["pretrained"], rows[other], strict=True)])
        if gain.low is not None and gain.high is not None:
            text += (
                f"\n\nPre-trained minus {other}: {gain.mean:+z.3f} accuracy (95% interval {gain.low:+z.3f} to "
                f"{gain.high:+z.3f}, paired over {gain.runs} seeds)."
            )
    caption = "Each dot is one seed: other labeled examples, another order, another random head."
    caption += " Bars: 95% confidence intervals of the mean (t distribution)."
    charts = [(chart, caption)]
    if len(lines[0].x) > 1:
        curve = Chart.lines(lines, x_label="fine-tuning step", y_label="test accuracy", percent=True)
        charts.append((curve, "During fine-tuning: the mean over seeds, with a band from the lowest to the highest."))
    report.section("Does pre-training help?", text).charts(charts)
    table = [[name, *values, SeedSummary.over(values).mean] for name, values in rows.items()]
    report.table(["start", *(f"seed {seed}" for seed in task["seeds"]), "mean"], table, stack=True)


def _pretraining(report: Report, run: Path, stages: Mapping[str, Any]) -> None:
    lines = read_lines(run / "pretrain/metrics.jsonl")
    train, valid = ([line for line in lines if line["kind"] == kind] for kind in ("train", "valid"))
    parts = [name for name in _OBJECTIVE_NAMES if f"{name}_loss" in train[-1]]
    charts = []
    for name in parts:
        pair = [Line.trend("training text", _column(train, "step"), _column(train, f"{name}_loss"))]
        if valid:
            pair.append(Line("held-out text", _column(valid, "step"), _column(valid, f"{name}_loss")))
        about = f"{_OBJECTIVE_NAMES[name].capitalize()}: the loss, in nats per prediction. Lower is better."
        charts.append(
            (Chart.lines(pair, x_label="step", y_label=f"loss, {_OBJECTIVE_NAMES[name]}", title=about), about)
        )
    rows, text = (valid, "held-out") if valid else (train, "training")
    right = [
        Line(_OBJECTIVE_NAMES[name], _column(rows, "step"), _column(rows, f"{name}_accuracy"), colour=3 + i)
        for i, name in enumerate(parts)
    ]
    about = f"Fraction of correct predictions on {text} text."
    charts.append((Chart.lines(right, x_label="step", y_label="accuracy", percent=True, title=about), about))
    rate = Line("learning rate", _column(train, "step"), _column(train, "lr"))
    about = "The learning rate: a short warmup, then a decay to zero."
    charts.append((Chart.lines([rate], x_label="step", y_label="learning rate", title=about), about))
    facts = stages["pre-training"]["facts"]
    pairs = ", and whether the second half of its input follows the first" if "nsp" in parts else ""
    about = (
        f"Pre-training: {facts['masked']:.0%} of the tokens are masked, and the model predicts them{pairs}. "
        f"{facts['parameters']:,} parameters, {facts['steps']:,} steps, {quantity(facts['tokens'])} tokens "
        f"({facts['epochs']:.2g} epochs)."
    )
    report.section("Training curves", about).charts(charts)


def _column(rows: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    return [row[name] for row in rows]


def _looks(run: Path) -> list[dict[str, object]]:
    """Returns guesses.jsonl in the format of the report's section of masked tokens."""
    looks = []
    for row in read_lines(run / "guesses.jsonl"):
        examples = []
        for text, answer, row_guesses in zip(row["sentences"], row["answers"], row["guesses"], strict=True):
            before, _, after = text.partition(MASK_TOKEN)
            guesses = [[g["token"], g["probability"]] for g in row_guesses]
            hit = next((token for token, _ in guesses if token.lower() == answer.lower()), answer)
            stretches = [[before, "", ""], ["", "blank", ""], [after, "", ""]]
            examples.append({"text": stretches, "answer": hit, "guesses": guesses})
        looks.append({"step": row["step"], "examples": examples})
    return looks


def _predictions(report: Report, predictions: Sequence[Mapping[str, Any]], task: Mapping[str, Any]) -> None:
    right = sum(example["label"] == max(example["scores"], key=example["scores"].get) for example in predictions)
    report.section(
        "Predictions",
        f"{len(predictions)} test examples drawn at random, with the predictions of the pre-trained model of seed "
        f"{task['seeds'][0]} ({right} correct). {task['shown']}",
    )
    for example in predictions:
        text = Html("".join(f"<p>{escape(part)}</p>" for part in example["texts"]))
        best = max(example["scores"], key=example["scores"].get)
        mark = '<span class="right">right</span>' if best == example["label"] else '<span class="wrong">wrong</span>'
        meta = f'<p class="meta">{mark} · {escape(example["where"] or example["label"])}</p>'
        report.example(Html(text + meta), Html.bars(example["scores"], example["label"]))


def _time(report: Report, stages: Mapping[str, Any]) -> None:
    seconds = {name: stage["seconds"] for name, stage in stages.items()}
    rows = [
        [name, quantity(stage["seconds"], "s"), stage["facts"].get("throughput", "")] for name, stage in stages.items()
    ]
    report.section("Time", "The time of each stage on this machine, and its throughput.")
    report.chart(Chart.bars(seconds, x_label="seconds", form="{:,.0f} s"))
    report.table(["stage", "time", "throughput"], rows)


def _corpus(report: Report, stages: Mapping[str, Any]) -> None:
    facts = stages["corpus"]["facts"]
    report.section("Corpus", facts["about"]).pairs(facts["card"])
    if facts.get("sources"):
        report.table(["library", "version", "modules", "words", "held-out modules"], facts["sources"])
