"""Measures a tokenizer on a text: tokens per word (fertility), unknown words, round-trip rate, by script.

A word is the unit that the tokenizer splits first: between spaces, and for BERT's rules also at punctuation. Fertility
and the fraction of continued words are those of Rust et al. 2021, "How Good is Your Tokenizer?".
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import groupby, islice
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from bertie import Tokenizer, load_tokenizer
from bertie.platform import DataError, Encoding, PlainText, checked_arguments, console, each_line, quantity

if TYPE_CHECKING:
    from rich.table import Table

_BATCH = 1000


@dataclass
class ScriptCounts:
    """Counts over the words of one script."""

    words: int = 0
    pieces: int = 0
    continued_words: int = 0
    unknown_words: int = 0
    characters: int = 0
    unknown_characters: int = 0

    @property
    def fertility(self) -> float:
        """Tokens per word."""
        return self.pieces / max(1, self.words)

    def rates(self) -> dict[str, float]:
        """Returns the counts as fractions."""
        words, characters = max(1, self.words), max(1, self.characters)
        return {
            "words": self.words,
            "fertility": self.fertility,
            "continued": self.continued_words / words,
            "unknown_words": self.unknown_words / words,
            "coverage": 1 - self.unknown_characters / characters,
            "characters_per_piece": self.characters / max(1, self.pieces),
        }


@dataclass
class TokenizerReport:
    """Counts by script, and the round-trip rate over the whole text."""

    vocab_size: int
    scripts: dict[str, ScriptCounts] = field(default_factory=dict)
    texts: int = 0
    bytes: int = 0
    round_trips: int = 0
    pieces_used: int = 0
    unknown: Counter[str] = field(default_factory=Counter)

    def total(self) -> ScriptCounts:
        """Returns the counts of all scripts together."""
        names = ScriptCounts.__dataclass_fields__
        return ScriptCounts(**{name: sum(getattr(row, name) for row in self.scripts.values()) for name in names})

    def to_dict(self) -> dict[str, object]:
        """Returns everything as plain values, for JSON and for other reports."""
        total = self.total()
        return {
            "vocab_size": self.vocab_size,
            "texts": self.texts,
            "bytes": self.bytes,
            "pieces": total.pieces,
            "bytes_per_piece": self.bytes / max(1, total.pieces),
            "round_trip": self.round_trips / max(1, self.texts),
            "vocabulary_used": self.pieces_used / self.vocab_size,
            **total.rates(),
            "scripts": {name: {**row.rates(), "counts": asdict(row)} for name, row in self._ranked()},
            "most_frequent_unknown": self.unknown.most_common(20),
        }

    def table(self) -> "Table":
        """Returns the report as a table for the terminal."""
        from rich.table import Table

        facts = self.to_dict()
        table = Table(
            "script", *[f"{name}" for name in ("words", "pieces/word", "in 2+ pieces", "unknown", "characters known")],
            title=f"{quantity(self.texts, 'text')}, {self.bytes / 1e6:,.1f} MB, vocabulary of {self.vocab_size:,}",
            caption=(
                f"{facts['bytes_per_piece']:.2f} bytes per token · round-trip rate {facts['round_trip']:.2%} "
                f"· {facts['vocabulary_used']:.1%} of the vocabulary used\nmost frequent unknown words: "
                f"{' '.join(word for word, _ in self.unknown.most_common(12)) or 'none'}"
            ),
        )  # fmt: skip
        for column in table.columns[1:]:
            column.justify = "right"
        for name, row in [*self._ranked(), ("all", self.total())]:
            rates = row.rates()
            shares = (f"{rates[key]:.2%}" for key in ("continued", "unknown_words", "coverage"))
            table.add_row(
                name, f"{row.words:,}", f"{row.fertility:z.3f}", *shares, style="bold" if name == "all" else None
            )
        return table

    def _ranked(self) -> list[tuple[str, ScriptCounts]]:
        return sorted(self.scripts.items(), key=lambda item: -item[1].words)


@checked_arguments
def report_tokenizer(
    tokenizer: str | Path | Tokenizer,
    texts: str | PathLike[str] | Iterable[object],
    *,
    limit: int = 100_000,
    encoding: str = "utf-8",
) -> TokenizerReport:
    """Measures a tokenizer on texts, by script: tokens per word, unknown words, coverage, and the round-trip rate.

    Args:
        tokenizer: A tokenizer, or its name or folder.
        texts: As for `train_tokenizer`.
        limit: Maximum number of lines to read.
        encoding: Text encoding of the files.

    Raises:
        DataError: The texts contain no words.

    Example:
        >>> report = bertie.report_tokenizer("starter-en", iter(["It was written in the rain."]))
    """
    own = tokenizer if isinstance(tokenizer, Tokenizer) else load_tokenizer(tokenizer)
    measured = measure_tokenizer(own, islice(each_line(texts, encoding), limit))
    if not measured.scripts:
        files = [texts] if isinstance(texts, str | PathLike) else texts if isinstance(texts, list | tuple) else ()
        names = [str(one) for one in files if isinstance(one, PathLike) or Path(str(one)).exists()]
        raise DataError(f"{', '.join(names or ['texts'])} contains no words.", code="no-rows")
    return measured


def measure_tokenizer(tokenizer: Tokenizer, texts: Iterable[str]) -> TokenizerReport:
    """Tokenizes the texts and counts. A text is restored when its tokens spell it again except for spaces."""
    result = TokenizerReport(tokenizer.vocab_size)
    used: set[int] = set()
    texts = iter(texts)
    with console.progress("reading", unit="lines") as advance:
        while batch := list(islice(texts, _BATCH)):
            for text, encoding in zip(batch, tokenizer.encode_batch(batch), strict=True):
                result.texts += 1
                result.bytes += len(text.encode("utf-8", "replace"))
                used.update(encoding.ids)
                for word, ids in _words(text, encoding):
                    _count(result, word, ids, tokenizer.unk_id)
                spelled = "".join(tokenizer.normalize(text).split())
                result.round_trips += spelled == "".join(tokenizer.decode(encoding.ids).split())
            advance(len(batch))
    result.pieces_used = len(used)
    return result


def _words(text: str, encoding: Encoding) -> Iterator[tuple[str, list[int]]]:
    """Yields each word with the ids of its tokens."""
    for word, group in groupby(range(len(encoding)), key=lambda position: encoding.word_ids[position]):
        if word is not None:
            positions = list(group)
            start, end = encoding.offsets[positions[0]][0], encoding.offsets[positions[-1]][1]
            yield text[start:end], encoding.ids[positions[0] : positions[-1] + 1]


def _count(result: TokenizerReport, word: str, ids: list[int], unk_id: int) -> None:
    row = result.scripts.setdefault(PlainText(word).script, ScriptCounts())
    row.words += 1
    row.pieces += len(ids)
    row.continued_words += len(ids) > 1
    row.characters += len(word)
    if unk_id in ids:
        row.unknown_words += 1
        row.unknown_characters += len(word)
        result.unknown[word] += 1
