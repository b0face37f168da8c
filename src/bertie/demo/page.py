"""The demo's report: what its run folder holds, as one page. Reads files, computes nothing but summaries.

demo.json          what was asked, the machine, versions         stages.json   seconds and facts of each stage
task.json          the task, or why there is none                guesses.jsonl masked words over time
pretrain/, finetune/<start>-<seed>/   run folders                predictions.json   test passages with probabilities
"""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from scipy import stats

from bertie.demo.masked import MASK, read_lines
from bertie.demo.settings import STARTS
from bertie.evaluate.compare import Seeds, over_seeds
from bertie.files import read_json
from bertie.report.charts import Line, bar_chart, interval_chart, line_chart, smooth
from bertie.report.page import Html, Report, Tile, bars
from bertie.train import log

PARTS = {"mlm": "masked words", "nsp": "next sentence"}


def page(run: Path) -> Report:
    """The report of a finished demo."""
    demo, stages, task = (read_json(run / name) for name in ("demo.json", "stages.json", "task.json"))
    total_s = sum(stage["seconds"] for stage in stages.values())
    minutes = f"{int(total_s // 60)}:{int(total_s % 60):02d}"
    words, tokens = stages["corpus"]["facts"]["words"], stages["pre-training"]["facts"]["tokens"]
    report = Report(
        "Bertie: from raw text to predictions",
        f"A small BERT, made from {words:,} words of {demo['about']} in {minutes} minutes "
        f"on {demo['machine']['cores']} cores: corpus, vocabulary, pre-training, fine-tuning.",
    )
    accuracy = finals(run, task) if "labels" in task else {}
    report.tiles(_tiles(accuracy, task, minutes, stages, words, tokens))
    _pretraining(report, run, stages)
    _masked_words(report, run)
    if accuracy:
        _comparison(report, run, task, accuracy)
        _predictions(report, read_json(run / "predictions.json"), task)
    else:
        report.section("Fine-tuning", task["skipped"])
    _time(report, stages)
    _corpus(report, stages)
    report.section("How it was made").pairs(
        [
            *demo["settings"].items(),
            *demo["machine"].items(),
            *((f"{k} version", v) for k, v in demo["versions"].items()),
        ]
    )
    return report


def finals(run: Path, task: Mapping[str, Any]) -> dict[str, list[float]]:
    """Start -> test accuracy of each seed's finished run."""
    return {
        start: [read_json(run / f"finetune/{start}-{seed}/results.json")["dev"]["accuracy"] for seed in task["seeds"]]
        for start in STARTS
    }


def _tiles(
    accuracy: Mapping[str, list[float]],
    task: Mapping[str, Any],
    minutes: str,
    stages: Mapping[str, Any],
    words: int,
    tokens: int,
) -> list[Tile]:
    tiles = []
    for start, values in accuracy.items():
        tiles.append(
            Tile(f"accuracy, {STARTS[start]}", f"{over_seeds(values).mean:.3f}", _interval(over_seeds(values)))
        )
    if accuracy:
        tiles.append(Tile("chance", f"{1 / len(task['labels']):.3f}", f"{len(task['labels'])} labels, as many of each"))
    rate = stages["pre-training"]["facts"]["tokens_per_s"]
    tiles.append(Tile("tokens read", f"{tokens / 1e6:.1f} M", f"{rate:,.0f} a second"))
    return [*tiles, Tile("time in all", minutes, f"minutes, from {words / 1e6:.1f} M words of text")]


def _interval(seeds: Seeds) -> str:
    if seeds.low is None or seeds.high is None:
        return "one seed"
    return f"95 % interval {seeds.low:.3f} to {seeds.high:.3f}, {seeds.runs} seeds"


def _pretraining(report: Report, run: Path, stages: Mapping[str, Any]) -> None:
    lines = log.read(run / "pretrain")
    train = [line for line in lines if line["kind"] == "train"]
    valid = [line for line in lines if line["kind"] == "valid"]
    parts = [name for name in PARTS if f"{name}_loss" in train[-1]]
    charts = []
    for name in parts:
        pair = [Line("training text", _column(train, "step"), smooth(_column(train, f"{name}_loss")))]
        if valid:
            pair.append(Line("held-out text", _column(valid, "step"), _column(valid, f"{name}_loss")))
        svg = line_chart(pair, x_label="step", y_label="loss, nats per prediction", title=f"{PARTS[name]}: loss")
        charts.append((svg, f"{PARTS[name].capitalize()}: the loss as the model learns. Lower is better."))
    rows = valid or train
    accuracies = [
        Line(PARTS[name], _column(rows, "step"), _column(rows, f"{name}_accuracy"), colour=3 + i)
        for i, name in enumerate(parts)
    ]
    svg = line_chart(accuracies, x_label="step", y_label="right answers", percent=True)
    charts.append((svg, f"Share of right answers on {'held-out' if valid else 'training'} text."))
    svg = line_chart(
        [Line("lr", _column(train, "step"), _column(train, "lr"))], x_label="step", y_label="learning rate"
    )
    charts.append((svg, "The learning rate: a short rise, then down to zero."))
    facts = stages["pre-training"]["facts"]
    report.section(
        "Pre-training",
        f"The model reads text with {facts['masked']:.0%} of its tokens hidden and says what stood there"
        + (", and whether the second half of what it reads follows the first. " if "nsp" in parts else ". ")
        + f"{facts['parameters']:,} parameters, {facts['steps']:,} steps, {facts['tokens']:,} tokens read "
        f"({facts['epochs']:.1f} times through the text).",
    ).charts(charts)


def _column(rows: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    return [row[name] for row in rows]


def _masked_words(report: Report, run: Path) -> None:
    rows = read_lines(run / "guesses.jsonl")
    if not rows:
        return
    head = "".join(f"<th>step {row['step']:,}</th>" for row in rows)
    body = []
    for number, (text, answer) in enumerate(zip(rows[0]["sentences"], rows[0]["answers"], strict=True)):
        before, _, after = text.partition(MASK)
        cells = "".join(f"<td>{_guesses(row['guesses'][number], answer)}</td>" for row in rows)
        sentence = f'{escape(before)}<span class="blank"></span>{escape(after)}'
        body.append(f"<tr><td>{sentence}<br><small>written: {escape(answer)}</small></td>{cells}</tr>")
    table = f"<table><thead><tr><th>sentence</th>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"
    about = (
        "The model's two best guesses for a hidden word while it was learning. Green is the word that was written; "
        "others may be as good."
    )
    report.section("Masked words, filled in over time", about).html(f'<div class="scroll">{table}</div>')


def _guesses(guesses: Sequence[Mapping[str, Any]], answer: str) -> str:
    return "<br>".join(
        f'<span class="guess{" hit" if g["token"].lower() == answer.lower() else ""}">{escape(g["token"])} '
        f"<small>{g['probability']:.0%}</small></span>"
        for g in guesses
    )


def _comparison(report: Report, run: Path, task: Mapping[str, Any], accuracy: Mapping[str, list[float]]) -> None:
    groups, colours = {}, []
    for colour, (start, values) in enumerate(accuracy.items(), 1):
        groups[STARTS[start]] = _row(values)
        colours.append(colour)
    if task.get("bag_of_words"):
        groups["bag of words"] = _row(task["bag_of_words"])
        colours.append(5)
    chart = interval_chart(
        groups, x_label="test accuracy", colours=colours, reference=("chance", 1 / len(task["labels"]))
    )
    curves = []
    for start, name in STARTS.items():
        runs = [
            [line for line in log.read(run / f"finetune/{start}-{seed}") if line["kind"] == "valid"]
            for seed in task["seeds"]
        ]
        steps = [line["step"] for line in runs[0]]
        spread = [[lines[i]["accuracy"] for lines in runs] for i in range(len(steps))]
        curves.append(
            Line(name, steps, [sum(v) / len(v) for v in spread], [min(v) for v in spread], [max(v) for v in spread])
        )
    curve = line_chart(curves, x_label="fine-tuning step", y_label="test accuracy", percent=True)
    gains = [a - b for a, b in zip(accuracy["pretrained"], accuracy["random"], strict=True)]
    gain = over_seeds(gains)
    text = task["about"]
    if gain.low is not None and gain.high is not None:
        p = float(stats.ttest_rel(accuracy["pretrained"], accuracy["random"]).pvalue)
        text += (
            f"\n\nPre-training is worth {gain.mean:+.3f} accuracy (95 % interval {gain.low:+.3f} to {gain.high:+.3f}, "
            f"paired over {gain.runs} seeds, t-test p = {p:.2g})."
        )
    report.section("Does pre-training help?", text).charts(
        [
            (
                chart,
                "Every dot is one seed: other labelled examples, another order, another new head. "
                "Bars: 95 % intervals of the mean.",
            ),
            (
                curve,
                "While fine-tuning: mean over seeds, band from worst to best. The last step counts, not the best one.",
            ),
        ]
    )
    rows = [
        [STARTS[start], *(f"{v:.3f}" for v in values), f"{over_seeds(values).mean:.3f}"]
        for start, values in accuracy.items()
    ]
    if task.get("bag_of_words"):
        rows.append(
            [
                "bag of words",
                *(f"{v:.3f}" for v in task["bag_of_words"]),
                f"{over_seeds(task['bag_of_words']).mean:.3f}",
            ]
        )
    report.table(["start", *(f"seed {seed}" for seed in task["seeds"]), "mean"], rows)


def _row(values: Sequence[float]) -> tuple[Sequence[float], float, float]:
    seeds = over_seeds(values)
    return values, seeds.mean if seeds.low is None else seeds.low, seeds.mean if seeds.high is None else seeds.high


def _predictions(report: Report, found: Sequence[Mapping[str, Any]], task: Mapping[str, Any]) -> None:
    right = sum(example["label"] == max(example["scores"], key=example["scores"].get) for example in found)
    report.section(
        "Predictions",
        f"{len(found)} test examples, drawn at random, read by the pre-trained model of seed {task['seeds'][0]} "
        f"({right} right). {task['shown']}",
    )
    for example in found:
        text = Html("".join(f"<p>{escape(part)}</p>" for part in example["texts"]))
        best = max(example["scores"], key=example["scores"].get)
        mark = '<span class="right">right</span>' if best == example["label"] else '<span class="wrong">wrong</span>'
        meta = f'<p class="meta">{mark} · {escape(example["where"] or example["label"])}</p>'
        report.example(Html(text + meta), bars(example["scores"], example["label"]))


def _time(report: Report, stages: Mapping[str, Any]) -> None:
    seconds = {name: stage["seconds"] for name, stage in stages.items()}
    rows = [[name, f"{stage['seconds']:.1f} s", stage["facts"].get("throughput", "")] for name, stage in stages.items()]
    report.section("Time", "What each stage took on this machine, and how much it got done.")
    report.charts([(bar_chart(seconds, x_label="seconds", form="{:,.0f} s"), "")])
    report.table(["stage", "time", "throughput"], rows)


def _corpus(report: Report, stages: Mapping[str, Any]) -> None:
    facts = stages["corpus"]["facts"]
    report.section("The text", facts["about"]).pairs(facts["card"])
    if facts.get("sources"):
        report.table(["library", "version", "modules", "words", "held out"], facts["sources"])
