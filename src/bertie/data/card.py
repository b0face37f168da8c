"""The card of a corpus: its content and the counts of its inputs, as card.md and card.json. Statistics can be added."""

from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertie.console import counted
from bertie.data.shards import Shards
from bertie.errors import BadFile
from bertie.files import JsonObject, read_json, write_json, write_text

Int64 = NDArray[np.int64]

MAX_SENTENCE_WORDS = 255  # words; longer sentences are counted as this long

# Letters by script, as ranges of code points (Unicode 16, Blocks.txt); what is left is "other".
SCRIPTS = {
    "Latin": [(0x41, 0x5B), (0x61, 0x7B), (0xC0, 0x250), (0x1E00, 0x1F00)],
    "Hangul": [(0xAC00, 0xD7A4), (0x1100, 0x1200), (0x3130, 0x3190), (0xFFA0, 0xFFDD)],
    "Han": [(0x4E00, 0xA000), (0x3400, 0x4DC0), (0xF900, 0xFB00), (0x20000, 0x32000)],
    "Kana": [(0x3041, 0x3100), (0x31F0, 0x3200), (0xFF66, 0xFFA0)],
    "Cyrillic": [(0x400, 0x530)],
    "Greek": [(0x370, 0x400), (0x1F00, 0x2000)],
    "Arabic": [(0x620, 0x700), (0x750, 0x780)],
    "Hebrew": [(0x5D0, 0x5F3)],
    "Devanagari": [(0x900, 0x980)],
    "Thai": [(0xE01, 0xE5C)],
}
_OTHER_LETTERS = [(0x250, 0x370), (0x530, 0x590), (0x780, 0x900), (0x980, 0xE00), (0xE80, 0x1100), (0x1200, 0x1E00)]
_LETTERS = [*SCRIPTS, "other"]


@dataclass(frozen=True)
class Statistics:
    """characters, words (between spaces); lengths (LONGEST + 1,): sentences by words; scripts: letters of each."""

    characters: int
    words: int
    lengths: Int64
    scripts: Int64

    @classmethod
    def zero(cls) -> "Statistics":
        """Returns the statistics of no text."""
        return cls(0, 0, np.zeros(MAX_SENTENCE_WORDS + 1, np.int64), np.zeros(len(_LETTERS), np.int64))

    @classmethod
    def of(cls, values: NDArray[np.uint8], sentences: Int64) -> "Statistics":
        """Returns the statistics of UTF-8 text (V,) whose sentences, none empty, have the bounds (M + 1,)."""
        if len(sentences) < 2:
            return cls.zero()
        spaces = np.diff(np.searchsorted(np.flatnonzero(values == 0x20), sentences))
        beyond = values[values >= 0x80]
        characters = len(values) - int(np.count_nonzero((beyond & 0xC0) == 0x80))
        # The bytes beyond ASCII, put end to end, are the characters beyond ASCII.
        points = np.frombuffer(beyond.tobytes().decode().encode("utf-32-le"), np.uint32)
        scripts_N = _script_of()[points]
        scripts = np.array([np.count_nonzero(scripts_N == number) for number in range(1, len(_LETTERS) + 1)])
        scripts[0] += np.count_nonzero((values | 0x20) - np.uint8(0x61) < 26)  # A to Z, a to z
        lengths = np.bincount(np.minimum(spaces + 1, MAX_SENTENCE_WORDS), minlength=MAX_SENTENCE_WORDS + 1)
        return cls(characters, int(spaces.sum()) + len(spaces), lengths, scripts)

    def __add__(self, other: "Statistics") -> "Statistics":
        return Statistics(*(mine + theirs for mine, theirs in zip(self._all, other._all, strict=True)))

    def __sub__(self, other: "Statistics") -> "Statistics":
        return Statistics(*(mine - theirs for mine, theirs in zip(self._all, other._all, strict=True)))

    @property
    def _all(self) -> tuple[Any, ...]:
        return self.characters, self.words, self.lengths, self.scripts

    def to_dict(self) -> dict[str, object]:
        """Returns JSON values."""
        return {
            "characters": self.characters,
            "words": self.words,
            "lengths": self.lengths.tolist(),
            "scripts": {name: count for name, count in zip(_LETTERS, self.scripts.tolist(), strict=True) if count},
        }

    @classmethod
    def from_dict(cls, tree: JsonObject) -> "Statistics":
        """Returns statistics from `to_dict`'s values."""
        scripts = [tree["scripts"].get(name, 0) for name in _LETTERS]
        return cls(tree["characters"], tree["words"], np.array(tree["lengths"]), np.array(scripts))


@cache
def _script_of() -> NDArray[np.uint8]:
    """Code point -> 1 + its index in _LETTERS, 0 when it is not a letter."""
    table = np.zeros(0x110000, np.uint8)
    for number, ranges in enumerate([*SCRIPTS.values(), _OTHER_LETTERS], 1):
        for start, stop in ranges:
            table[start:stop] = number
    table[[0xD7, 0xF7]] = 0  # × and ÷
    return table


def quantiles(histogram: Int64, shares: tuple[float, ...]) -> list[int]:
    """Returns the quantiles of a histogram over 0, 1, 2 ..."""
    total = np.cumsum(histogram)
    return [int(np.searchsorted(total, share * total[-1])) for share in shares]


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
