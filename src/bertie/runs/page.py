"""RUN/report.html: what a pre-training run's folder holds, as one page that needs nothing else.

metrics.jsonl   losses, learning rate, speed      guesses.jsonl   hidden words of held-out text, filled in over time
run.yaml        the settings                      results.json    once it has finished
"""

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import torch

from bertie.data import card
from bertie.data.batch import Batch
from bertie.errors import BertieError, DataError, UsageError
from bertie.files import read_json, write_bytes
from bertie.models.heads import MaskedLMHead
from bertie.models.model import Model
from bertie.report.charts import Line, line_chart, smooth
from bertie.report.page import Report, Tile
from bertie.runs.config import PretrainConfig
from bertie.runs.verify import RESULTS, run_config
from bertie.text.tokenizer import Tokenizer
from bertie.train import log
from bertie.train.distributed import is_main
from bertie.train.resume import flatten

GUESSES, REPORT = "guesses.jsonl", "report.html"
EXAMPLES, TOP, AROUND = 6, 2, 10  # hidden words looked at; guesses for each; tokens shown to either side
NAMES = {"mlm": "masked words", "nsp": "next sentence", "sop": "sentence order", "rtd": "replaced tokens"}


@torch.no_grad()
def look(model: Model, batch: Batch, tokenizer: Tokenizer, *, step: int, run: Path) -> None:
    """Fill in some hidden words of a corrupted batch as the model would now, and write it down in guesses.jsonl.

    Lines of later steps, of what a resume takes back, go. Nothing is done for a model without a masked-LM head.
    """
    head = dict(model.heads).get("mlm")
    if not isinstance(head, MaskedLMHead) or "mlm_positions" not in batch.labels:
        return
    ids, starts = batch.input_ids.tolist(), torch.cumsum(batch.layout.mask().sum(1), 0).tolist()
    chosen: dict[int, tuple[int, int]] = {}  # sequence -> the first place that shows the mask, and what stood there
    for place, target in zip(batch.labels["mlm_positions"].tolist(), batch.labels["mlm_targets"].tolist(), strict=True):
        sequence = next(i for i, end in enumerate(starts) if place < end)
        if ids[place] == tokenizer.mask_id:
            chosen.setdefault(sequence, (place, target))
    some = sorted(chosen.items())[:EXAMPLES]
    if not some:
        return
    device = model.word_embeddings.device
    hidden = model.encode(batch.to(device)).last_hidden_state[[place for _, (place, _) in some]]
    top = head(hidden, model.word_embeddings).float().softmax(-1).topk(TOP)
    if not is_main():  # which only helped to look: a model in parts takes all ranks
        return
    rows = []
    for (sequence, (place, target)), p, best in zip(some, top.values.tolist(), top.indices.tolist(), strict=True):
        first, end = [0, *starts][sequence], starts[sequence]
        before, after = ids[max(first, place - AROUND) : place], ids[place + 1 : min(end, place + 1 + AROUND)]
        rows.append(
            {
                "before": _text(before, tokenizer),
                "after": _text(after, tokenizer),
                "answer": tokenizer.id_to_token(target),
                "guesses": [[tokenizer.id_to_token(i), round(q, 4)] for i, q in zip(best, p, strict=True)],
            }
        )
    kept = [line for line in guesses(run) if line["step"] < step]
    lines = [json.dumps(line, ensure_ascii=False) + "\n" for line in [*kept, {"step": step, "examples": rows}]]
    write_bytes(run / GUESSES, "".join(lines).encode())


def guesses(run: Path) -> list[dict[str, Any]]:
    """The lines of a run's guesses.jsonl; none where there is no such file. Raises DataError for a broken line."""
    path = run / GUESSES
    try:
        return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []
    except ValueError as error:
        raise DataError(f"{path} has a line that is not JSON ({error}).") from None


def page(run: Path | str) -> Report:
    """The report of a run, finished or not. Raises DataError: no run, no metrics yet; UsageError: no pre-training."""
    run = Path(run)
    config = run_config(run)
    if not isinstance(config, PretrainConfig):
        raise UsageError(f"{run} is no pre-training run.")
    lines = log.read(run)
    train, valid = ([line for line in lines if line["kind"] == kind] for kind in ("train", "valid"))
    if not train:
        raise DataError(f"{run / log.METRICS} has no lines yet: the first comes after {config.train.log_every} steps.")
    results = read_json(run / RESULTS) if (run / RESULTS).exists() else {}
    done = train[-1]["step"]
    state = "finished" if results else f"{done / config.train.steps:.0%} done"
    report = Report(
        f"Pre-training: {run.resolve().name}", f"{config.model}, step {done:,} of {config.train.steps:,}, {state}"
    )
    report.tiles(_tiles(train, valid))
    _losses(report, train, valid)
    _progress(report, train)
    _guesses(report, guesses(run))
    if plan := results.get("plan"):
        _phases(report, plan)
    if found := results.get("pseudo_perplexity"):
        rows = [
            [name, both["before"]["per_word"], both["after"]["per_word"], both["after"]["words"]]
            for name, both in found.items()
        ]
        report.section("Pseudo-perplexity", "How well held-out sentences are expected, per word. Lower is better.")
        report.table(["corpus", "before", "after", "words"], rows)
    _corpora(report, config)
    report.section("Settings").pairs(flatten(config.model_dump(mode="json")).items())
    return report


def _tiles(train: Sequence[Mapping[str, Any]], valid: Sequence[Mapping[str, Any]]) -> list[Tile]:
    last, where = (valid[-1], "held-out text") if valid else (train[-1], "training text")
    tiles = [Tile("loss", f"{last['loss']:.3f}", f"{where}, step {last['step']:,}")]
    tiles += [Tile(f"right, {_name(key)}", f"{last[key]:.1%}", where) for key in last if key.endswith("_accuracy")]
    tokens, seconds = sum(line["tokens"] for line in train), train[-1]["elapsed_s"]
    tiles.append(Tile("tokens read", f"{tokens / 1e6:,.1f} M", f"{tokens / max(seconds, 1e-9):,.0f} a second in all"))
    return [*tiles, Tile("time", f"{seconds / 3600:,.2f} h", "over all resumes, validation included")]


def _losses(report: Report, train: Sequence[Mapping[str, Any]], valid: Sequence[Mapping[str, Any]]) -> None:
    charts = []
    for key in [key for key in train[-1] if key.endswith("_loss")]:
        lines = [Line("training text", _steps(train), smooth([line[key] for line in train]))]
        held = [key, *(k for k in (valid[-1] if valid else {}) if k.startswith(f"{key}/"))]
        for name in held:
            rows = [line for line in valid if name in line]
            if rows:
                label = "held-out text" if name == key else f"held out, {name.partition('/')[2]}"
                lines.append(Line(label, _steps(rows), [line[name] for line in rows]))
        svg = line_chart(lines, x_label="step", y_label="nats per prediction", title=f"{_name(key)}: loss")
        charts.append((svg, f"{_name(key).capitalize()}: the loss. Lower is better."))
    report.section("Loss", "Of each part of the objective, as the model learns.").charts(charts)


def _progress(report: Report, train: Sequence[Mapping[str, Any]]) -> None:
    rows = {
        "lr": ("learning rate", "The learning rate."),
        "grad_norm": ("norm", "The gradients' norm before clipping; a spike is a step to look at."),
        "tokens_per_s": ("tokens a second", "Speed; real tokens, never padding."),
    }
    charts = [
        (
            line_chart([Line(label, _steps(train), [line[key] for line in train])], x_label="step", y_label=label),
            caption,
        )
        for key, (label, caption) in rows.items()
    ]
    report.section("Course").charts(charts)


def _guesses(report: Report, rows: Sequence[Mapping[str, Any]]) -> None:
    """Those of the last phase, whose texts stay the same; at most six looks, from first to last."""
    texts = [e["before"] for e in rows[-1]["examples"]] if rows else []
    rows = [row for row in rows if [e["before"] for e in row["examples"]] == texts]
    if not rows:
        return
    rows = [rows[i] for i in sorted({round(j * (len(rows) - 1) / 5) for j in range(6)})]
    head = "".join(f"<th>step {row['step']:,}</th>" for row in rows)
    body = []
    for number, example in enumerate(rows[-1]["examples"]):
        cells = "".join(f"<td>{_cell(row['examples'][number])}</td>" for row in rows)
        text = f'{escape(example["before"])}<span class="blank"></span>{escape(example["after"])}'
        body.append(f"<tr><td>{text}<br><small>written: {escape(example['answer'])}</small></td>{cells}</tr>")
    about = "The best guesses for hidden words of held-out text. Green is what was written; others may be as good."
    table = f"<table><thead><tr><th>text</th>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"
    report.section("Hidden words, filled in over time", about).html(f'<div class="scroll">{table}</div>')


def _cell(example: Mapping[str, Any]) -> str:
    return "<br>".join(
        f'<span class="guess{" hit" * (token == example["answer"])}">{escape(token)} <small>{p:.0%}</small></span>'
        for token, p in example["guesses"]
    )


def _phases(report: Report, plan: Mapping[str, Any]) -> None:
    facts = ("parameters", "objective", "documents", "tokens_per_epoch", "epochs", "flops", "device", "precision")
    beside = [(f"flops, {name} alone", flops) for name, flops in plan.get("flops_beside", {}).items()]
    report.section("Plan").pairs([*((name.replace("_", " "), plan[name]) for name in facts), *beside])
    for kind in ("phases", "corpora"):
        if rows := plan.get(kind):
            columns = list(rows[0])
            report.table([c.replace("_", " ") for c in columns], [list(row.values()) for row in rows], caption=kind)


def _corpora(report: Report, config: PretrainConfig) -> None:
    for path in [config.corpus] if config.corpus else [corpus.path for corpus in config.corpora]:
        try:
            found = card.load(Path(path))
        except BertieError as error:  # it has moved, or is gone; the page says so and is shown all the same
            report.section(f"Corpus: {Path(path).name}", str(error))
            continue
        report.section(f"Corpus: {found['name']}")
        sizes = ("documents", "sentences", "words", "characters", "bytes")
        report.table(list(sizes), [[found[name] for name in sizes]])
        records = found["records"]
        rows = [["read", records["in"]], *map(list, records["dropped"].items()), ["kept", records["kept"]]]
        report.table(["records", ""], rows)


def _text(ids: Sequence[int], tokenizer: Tokenizer) -> str:
    """Pieces as a reader would have them: ##ing is put to what stands before it."""
    return " ".join(tokenizer.id_to_token(i) for i in ids).replace(" ##", "").replace("▁", "") + " "


def _name(key: str) -> str:
    """mlm_loss -> masked words"""
    part = key.rpartition("_")[0].partition("/")[0]
    return NAMES.get(part, part)


def _steps(lines: Sequence[Mapping[str, Any]]) -> list[float]:
    return [line["step"] for line in lines]
