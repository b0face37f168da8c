"""The card of a corpus: its content and the counts of its inputs, as card.md and card.json."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from bertie.console import counted
from bertie.data.shards import Shards
from bertie.data.statistics import MAX_SENTENCE_WORDS, Statistics, quantiles
from bertie.errors import BadFile
from bertie.files import JsonObject, read_json, write_json, write_text

BAR = 30  # characters of the longest bar
_SHARES = (0.1, 0.5, 0.9, 0.99)
SPREAD = ("mean", "p10", "p50", "p90", "p99")


def write_card(shards: Shards, *, elapsed_s: float | None = None, workers: int = 1) -> JsonObject:
    """Writes card.json and card.md to the folder of a corpus, and returns the card. elapsed_s None: unknown."""
    card = make(shards)
    if elapsed_s is not None:
        speed = shards.manifest["inputs"]["bytes"] / 1e6 / max(elapsed_s, 1e-9)
        card |= {"elapsed_s": round(elapsed_s, 2), "workers": workers, "input_mb_per_s": round(speed, 2)}
    write_json(shards.folder / "card.json", card)
    write_text(shards.folder / "card.md", render(card))
    return card


def make(shards: Shards) -> JsonObject:
    """Returns the card of a corpus from its manifest, as JSON values."""
    manifest = shards.manifest
    statistics = Statistics.from_dict(manifest["statistics"])
    per_document = np.diff(shards.document_bounds())
    letters = sum(manifest["statistics"]["scripts"].values())
    return {
        "name": shards.folder.resolve().name,
        "documents": shards.num_documents,
        "sentences": shards.num_sentences,
        "words": statistics.words,
        "characters": statistics.characters,
        "bytes": shards.num_values,
        "records": manifest["records"],
        "inside_documents": manifest["counts"],
        "evaluation": manifest.get("evaluation", {}),
        "words_per_sentence": _spread(statistics.lengths, statistics.words / max(shards.num_sentences, 1)),
        "sentences_per_document": _spread(np.bincount(per_document), shards.num_sentences / max(len(per_document), 1)),
        "histogram": _histogram(statistics),
        "scripts": {
            name: round(count / letters, 4)
            for name, count in sorted(manifest["statistics"]["scripts"].items(), key=lambda row: -row[1])
        },
        "inputs": manifest["inputs"],
        "config": manifest["config"],
        "shards": len(manifest["shards"]),
        "fingerprint": shards.fingerprint,
        "made_by": manifest["made_by"],
    }


def _spread(histogram: Any, mean: float) -> dict[str, float]:
    points = dict(zip(SPREAD[1:], quantiles(histogram, _SHARES), strict=True))
    return {SPREAD[0]: round(mean, 1), **points}


def _histogram(statistics: Statistics) -> dict[str, int]:
    """Returns a histogram of sentences by words, with bins that double."""
    edges = [1, 2, 4, 8, 16, 32, 64, 128, MAX_SENTENCE_WORDS + 1]
    bins = {}
    for low, high in pairwise(edges):
        name = "128+" if low == 128 else str(low) if high == low + 1 else f"{low}-{high - 1}"
        bins[name] = int(statistics.lengths[low:high].sum())
    return bins


def render(card: JsonObject) -> str:
    """Returns a card as Markdown."""
    records, config, inputs = card["records"], card["config"], card["inputs"]
    lines = [f"# {card['name']}", ""]
    lines += _table(
        ["documents", "sentences", "words", "characters", "bytes"],
        [[card[key] for key in ("documents", "sentences", "words", "characters", "bytes")]],
    )
    lines += ["## Sources", ""]
    lines += [f"* {'standard input' if name == '-' else name}" for name in inputs["names"]]
    lines += ["", f"{counted(inputs['files'], 'file')}, {inputs['bytes'] / 1e6:,.1f} MB"]
    if inputs["passed_over"]:
        lines[-1] += f"; skipped in these folders: {counted(inputs['passed_over'], 'file')} of unknown format"
    if inputs["unreadable"]:
        lines[-1] += f"; not readable: {counted(inputs['unreadable'], 'file')} or folders"
    lines += ["", "## Records", ""]
    rows = [("records read", records["in"]), *records["dropped"].items(), ("kept as documents", records["kept"])]
    lines += _table(["", "records", "share"], [[name, n, f"{n / records['in']:.2%}"] for name, n in rows])
    if card["inside_documents"]:
        lines += _table(["inside documents", "times"], [list(row) for row in card["inside_documents"].items()])
    if sets := card.get("evaluation"):
        what = "paragraphs" if config["dedup"] == "paragraphs" else "documents"
        columns = ("texts", "too_short", "runs", "removed")
        lines += ["Text that shares an n-gram of 8 to 13 words with a text of these evaluation sets was removed.", ""]
        lines += _table(
            ["evaluation set", "texts", "too short to compare", "runs", f"{what} removed"],
            [[name, *(fields[column] for column in columns)] for name, fields in sets.items()],
        )
    lines += [f"Sentence splitter: `{config['splitter']}`. Deduplication: {config['dedup']}.", ""]
    lines += ["## Lengths", ""]
    spreads = [("words per sentence", "words_per_sentence"), ("sentences per document", "sentences_per_document")]
    lines += _table(["", *SPREAD], [[name, *(card[key][k] for k in SPREAD)] for name, key in spreads])
    lines += [*_bars("words", card["histogram"], card["sentences"]), ""]
    lines += ["## Scripts", "", *_bars("letters", card["scripts"], 1), ""]
    origin = f"Shards: {card['shards']:,}. Fingerprint: `{card['fingerprint']}`. Made by {card['made_by']}"
    if "elapsed_s" in card:
        origin += f" in {card['elapsed_s']:,.1f} s ({card['input_mb_per_s']:.1f} MB/s, workers: {card['workers']})"
    lines += [f"{origin}."]
    return "\n".join(lines) + "\n"


def _table(head: list[str], rows: list[list[Any]]) -> list[str]:
    cells = [[f"{cell:,}" if isinstance(cell, int | float) else str(cell) for cell in row] for row in [head, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    numeric = [not isinstance(rows[0][i], str) or rows[0][i].endswith("%") for i in range(len(head))]
    rule = ["-" * (w - 1) + ":" if right else "-" * w for w, right in zip(widths, numeric, strict=True)]
    shown = []
    for row in [cells[0], rule, *cells[1:]]:
        padded = [c.rjust(w) if right else c.ljust(w) for c, w, right in zip(row, widths, numeric, strict=True)]
        shown.append(f"| {' | '.join(padded)} |")
    return [*shown, ""]


def _bars(name: str, counts: dict[str, float], total: float) -> list[str]:
    """Returns counts as percentages and bars, in a code block."""
    if not counts:
        return []
    width, most = max(map(len, [name, *counts])), max(counts.values()) or 1
    rows = [
        f"{label:>{width}} {count / max(total, 1e-9):7.2%} {'█' * round(BAR * count / most)}".rstrip()
        for label, count in counts.items()
    ]
    return ["```text", f"{name:>{width}}   share", *rows, "```"]


def load_card(folder: Path) -> JsonObject:
    """Returns the card of a corpus folder, computed again if it is missing. Raises DataError for another folder."""
    path = folder / "card.json"
    shards = Shards.open(folder, verify=False)
    card = read_json(path) if path.exists() else make(shards)
    if not isinstance(card, dict) or not card.keys() >= {"records", "config", "inputs"}:
        raise BadFile(f"{path} is damaged: it is no card. Delete it, and it is computed again.")
    return card
