"""Filters of documents by language and by quality. Every removal is counted under its rule.

A rule is a name with a range, "words=50..100000", or a name of PRESETS for several. A measure is one row of MEASURES; a
check of single lines is one row of LINES. Sources: Rae et al. 2021 (Gopher), table A1 and appendix A.1.1; Raffel et al.
2020 (C4), 2.2.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from bertie.errors import UsageError, nearest
from bertie.registry import Registry, library

LEADING = 2000  # characters by which a language is recognized
SURE = 0.5  # probability of a language below which a document is in none


class MeasuredText:
    """A document, and what several measures read of it."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def words(self) -> list[str]:
        """The words between white space."""
        return self.text.split()

    @cached_property
    def lines(self) -> list[str]:
        """The lines that are not empty."""
        return [line for line in self.text.split("\n") if line]

    @cached_property
    def paragraphs(self) -> list[str]:
        """The texts between blank lines."""
        return self.text.split("\n\n")

    @cached_property
    def characters(self) -> int:
        """The number of characters of all words."""
        return sum(map(len, self.words))


_Measure = Callable[[MeasuredText], float]
STOP_WORDS = frozenset("the be to of and that have with".split())  # noqa: SIM905


def _share(test: Callable[[str], object], items: Sequence[str]) -> float:
    return sum(bool(test(item)) for item in items) / max(len(items), 1)


def _repeated(items: Sequence[str]) -> float:
    """Returns the share of items that occurred before."""
    return 1 - len(set(items)) / max(len(items), 1)


def _repeated_characters(items: Sequence[str]) -> float:
    """Returns the share of the characters of items that occurred before."""
    total, once = sum(map(len, items)), sum(map(len, set(items)))
    return 1 - once / total if total else 0.0


def top_ngram(text: MeasuredText, n: int) -> float:
    """Returns the share of characters in the most frequent n-gram of words; 0 when none occurs twice."""
    grams = Counter(zip(*(text.words[i:] for i in range(n)), strict=False))
    most = [(count, gram) for gram, count in grams.items() if count > 1]
    return max((count * sum(map(len, gram)) for count, gram in most), default=0) / max(text.characters, 1)


def repeated_ngrams(text: MeasuredText, n: int) -> float:
    """Returns the share of characters in n-grams of words that occurred before, each character counted once."""
    words, earlier, characters, at = text.words, set[tuple[str, ...]](), 0, 0
    while at + n <= len(words):
        gram = tuple(words[at : at + n])
        if gram in earlier:
            characters += sum(map(len, gram))
            at += n
        else:
            earlier.add(gram)
            at += 1
    return characters / max(text.characters, 1)


def _top(n: int) -> tuple[str, _Measure]:
    return f"top_{n}gram", lambda text: top_ngram(text, n)


def _repeats(n: int) -> tuple[str, _Measure]:
    return f"repeated_{n}grams", lambda text: repeated_ngrams(text, n)


SENTENCE_ENDS = re.compile(r"[.!?。！？][\"'”’)\]]*(?:\s|$)")


MEASURES: Registry[_Measure] = Registry(
    "measure of quality",
    [
        ("words", lambda t: len(t.words)),
        ("word_length", lambda t: t.characters / max(len(t.words), 1)),
        ("symbols", lambda t: max(t.text.count("#"), t.text.count("…") + t.text.count("...")) / max(len(t.words), 1)),
        ("bullets", lambda t: _share(lambda line: line[0] in "•‣-*", t.lines)),
        ("ellipses", lambda t: _share(lambda line: line.endswith(("…", "...")), t.lines)),
        ("letters", lambda t: _share(lambda word: any(map(str.isalpha, word)), t.words)),
        ("stop_words", lambda t: len(STOP_WORDS & set(t.text.lower().split()))),
        ("repeated_lines", lambda t: _repeated(t.lines)),
        ("repeated_paragraphs", lambda t: _repeated(t.paragraphs)),
        ("repeated_line_characters", lambda t: _repeated_characters(t.lines)),
        ("repeated_paragraph_characters", lambda t: _repeated_characters(t.paragraphs)),
        *map(_top, (2, 3, 4)),
        *map(_repeats, (5, 6, 7, 8, 9, 10)),
        ("sentences", lambda t: len(SENTENCE_ENDS.findall(t.text))),
        ("braces", lambda t: t.text.count("{") + t.text.count("}")),
        ("lorem_ipsum", lambda t: t.text.lower().count("lorem ipsum")),
    ],
)

NOTICE = re.compile(
    r"terms of use|privacy policy|cookie policy|uses cookies|use of cookies|use cookies|javascript", re.I
)
_SENTENCE_END = re.compile(r"[.!?\"”。！？]$")  # C4 has . ! ? and the quotation mark

# Whether a line stays.
LINES: Registry[Callable[[str], bool]] = Registry(
    "check of lines",
    [
        ("line_end", lambda line: _SENTENCE_END.search(line) is not None and not line.endswith("...")),
        ("line_words", lambda line: line.count(" ") >= 4),
        ("line_notice", lambda line: NOTICE.search(line) is None),
    ],
)

_REPETITION = (
    "repeated_lines=..0.3 repeated_paragraphs=..0.3 repeated_line_characters=..0.2 repeated_paragraph_characters=..0.2 "
    "top_2gram=..0.2 top_3gram=..0.18 top_4gram=..0.16 repeated_5grams=..0.15 repeated_6grams=..0.14 "
    "repeated_7grams=..0.13 repeated_8grams=..0.12 repeated_9grams=..0.11 repeated_10grams=..0.1"
)
_GOPHER = "words=50..100000 symbols=..0.1 bullets=..0.9 ellipses=..0.3 letters=0.8.."
FILTER_PRESETS = {
    "gopher": f"word_length=3..10 {_GOPHER} stop_words=2..",
    "gopher-korean": f"word_length=2..6 {_GOPHER}",  # no English words; eojeols are shorter (docs/corpora.md)
    "repetition": _REPETITION,
    "c4": "line_end line_words line_notice sentences=3.. braces=..0 lorem_ipsum=..0",
}


@dataclass(frozen=True)
class Filters:
    """The filters of a corpus. ranges: measure -> lowest and highest value that is kept."""

    languages: tuple[str, ...]
    lines: tuple[str, ...]
    ranges: dict[str, tuple[float, float]]

    @classmethod
    def of(cls, languages: Sequence[str], rules: Sequence[str]) -> "Filters | None":
        """Returns the filters, or None without any. Raises UsageError for an unknown language, rule or range."""
        if not languages and not rules:
            return None
        known = list(dict.fromkeys(_identifier().nb_classes)) if languages else []
        for code in languages:
            if code not in known:
                raise UsageError(f"--language {code}: unknown. Known codes (ISO 639): {', '.join(sorted(known))}.")
        lines, ranges = list[str](), dict[str, tuple[float, float]]()
        for rule in (part for name in rules for part in FILTER_PRESETS.get(name, name).split()):
            name, equals, limits = rule.partition("=")
            if not equals and name in LINES:
                lines.append(name)
                continue
            if name not in MEASURES or not equals:
                hint = nearest(name, [*FILTER_PRESETS, *LINES, *MEASURES])
                raise UsageError(f"--quality {rule}: not a rule. Write a name, or a measure with a range. {hint}")
            ranges[name] = _range(rule, limits)
        return cls(tuple(languages), tuple(dict.fromkeys(lines)), ranges)

    def apply(self, text: str, counts: Counter[str]) -> tuple[str, str]:
        """Returns the text without removed lines, and why it is dropped, or "". Removed lines are counted."""
        if self.lines:
            text = self._without_lines(text, counts)
        document = MeasuredText(text)
        for name, (low, high) in self.ranges.items():
            if not low <= MEASURES[name](document) <= high:
                return text, f"quality: {name} outside {_shown(low)}..{_shown(high)}"
        if self.languages and (code := language(text)) not in self.languages:
            return text, f"language: {code or 'uncertain'}"
        return text, ""

    def _without_lines(self, text: str, counts: Counter[str]) -> str:
        lines = []
        for line in text.split("\n"):
            failed = next((name for name in self.lines if line and not LINES[name](line)), "")
            if failed:
                counts[f"lines removed: {failed}"] += 1
            else:
                lines.append(line)
        return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def language(text: str) -> str:
    """Returns the language of a text by its beginning, as an ISO 639-1 code, or "" where none is probable."""
    code, probability = _identifier().classify(text[:LEADING])
    return str(code) if probability >= SURE else ""


@cache
def _identifier() -> Any:
    """Returns the recognizer of languages, whose model is inside its package."""
    package: Any = library("py3langid.langid", "Filters by language", "corpora")
    return package.LanguageIdentifier.from_model_file(package.MODEL_FILE, norm_probs=True)


def _range(rule: str, limits: str) -> tuple[float, float]:
    low, dots, high = limits.partition("..")
    try:
        bounds = (float(low or "-inf"), float(high or "inf"))
    except ValueError:
        bounds = (1.0, 0.0)
    if not dots or not bounds[0] <= bounds[1]:
        raise UsageError(f"--quality {rule}: not a range. Write LOW..HIGH; either may be left out: words=50..")
    return bounds


def _shown(limit: float) -> str:
    return "" if limit in (float("inf"), float("-inf")) else f"{limit:g}" if limit < 1e6 else str(int(limit))
