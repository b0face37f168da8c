"""The texts that callers from Python pass: checked, counted, and made examples."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from numbers import Integral, Real
from typing import Any, TypeVar

import numpy as np

from bertie.console import console, counted
from bertie.errors import DataError, UsageError, WrongValue
from bertie.infer.engine import Array
from bertie.io.lines import BadRecord
from bertie.io.memory import is_missing
from bertie.io.tables import Example
from bertie.text.tokenizer import Tokenizer


@dataclass
class WrittenWords:
    """The text of tokens that come one after another. shown: what has been returned of it."""

    tokenizer: Tokenizer
    tokens: list[int] = field(default_factory=list)
    shown: str = ""

    @property
    def text(self) -> str:
        """The text of all tokens so far."""
        return self.tokenizer.decode(self.tokens)

    def add(self, token: int) -> str:
        """Returns what the token completes: "" within a word, which may continue or end with punctuation."""
        self.tokens.append(token)
        text = self.text
        return self._new(text[: text.rfind(" ") + 1].rstrip())

    def rest(self) -> str:
        """Returns the end of the text, after the last token."""
        return self._new(self.text)

    def _new(self, ready: str) -> str:
        if not ready.startswith(self.shown):
            return ""
        words, self.shown = ready[len(self.shown) :], ready
        return words


TextRow = Example | BadRecord
Text = str | tuple[str, ...]
AnyText = TypeVar("AnyText", bound=Text)


def each_row(texts: Iterable[Any], name: str = "texts", *, tuples: bool = False) -> Iterator[Any]:
    """Yields texts, and an `BadRecord` for one that is missing (None, NaN) or empty. Numbers are texts, as in files.

    tuples, name: as in `each_text`. Raises UsageError as `each_text` does.
    """
    check_texts(texts, name)
    for number, one in enumerate(texts, 1):
        several = tuples and isinstance(one, tuple | list) and len(one) > 0
        parts = [_read(part) for part in (one if several else (one,))]
        if any(part is None for part in parts):
            yield BadRecord(number, "no text")
            continue
        for part in parts:
            check_text(part, f"Text {number} of {name}")
        yield (
            (tuple(parts) if several else parts[0]) if all(map(str.strip, parts)) else BadRecord(number, "empty text")
        )


def _read(text: object) -> Any:
    """Returns a number as a text, and None for what tables of numbers have instead of a missing text."""
    if is_missing(text):
        return None
    number = isinstance(text, Real | Decimal) and not isinstance(text, bool)  # those of numpy are neither int nor float
    return str(text) if number else text


def tell_unread(rows: Sequence[BadRecord], total: int) -> None:
    """Warns about texts without an answer. Raises DataError where no text has one."""
    if not rows:
        return
    if len(rows) == total:
        raise DataError(f"Text {rows[0].line}: {rows[0].reason}.")
    reasons: dict[str, list[int]] = {}
    for row in rows:
        reasons.setdefault(row.reason, []).append(row.line)
    each = (
        f"{reason} (text {', '.join(map(str, lines[:5]))}{', ...' if len(lines) > 5 else ''})"
        for reason, lines in reasons.items()
    )
    console.warn(f"{len(rows):,} of {total:,} texts have no answer: {'; '.join(each)}")


def each_text(texts: Iterable[AnyText], name: str = "texts", *, tuples: bool = False) -> Iterator[AnyText]:
    """Yields texts. tuples: tuples of texts are allowed; name: of the argument, for messages.

    Raises UsageError for one string, which would be read letter by letter, and for what is not a text.
    """
    check_texts(texts, name)
    for number, one in enumerate(texts, 1):
        parts: Sequence[object] = one if tuples and isinstance(one, tuple | list) and one else (one,)
        for part in parts:
            check_text(part, f"Text {number} of {name}")
        yield one


def check_texts(texts: object, name: str) -> None:
    """Raises UsageError for what is not a list of texts. name: of the argument, for the message."""
    if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
        raise UsageError(f'{name} must be a list of texts: ["..."].')
    if isinstance(texts, Mapping) or hasattr(texts, "columns"):  # whose names would be read as texts
        raise UsageError(f'{name} is a {type(texts).__name__}; it must be a list of texts. Pass one column: t["text"].')


def with_arrays(examples: Sequence[Example], vectors: Sequence[Array]) -> list[TextRow]:
    """Returns examples with the feature vectors of each, as invalid rows where they are none.

    Raises UsageError for another number of arrays than of texts.
    """
    from bertie.io.features import BadFeaturesError, checked_vectors

    if len(examples) != len(vectors):
        got = counted(len(vectors), "array")
        raise UsageError(f"There are {got} of vectors for {counted(len(examples), 'text')}. Pass one for each.")
    rows = list[TextRow]()
    for one, array in zip(examples, vectors, strict=True):
        try:
            rows.append(replace(one, vectors=checked_vectors(np.asarray(array), "vectors")))
        except (BadFeaturesError, ValueError) as error:  # ValueError: lists of different lengths
            rows.append(BadRecord(one.line, str(error)))
    return rows


def check_text(text: object, name: str) -> None:
    """Raises UsageError for what is not a string. name: of the argument, for the message."""
    if not isinstance(text, str):
        raise WrongValue(f"{name} is {text!r:.60}; it must be a string.")


def check_top(top: int | None) -> None:
    """Raises UsageError for what is not a number of results."""
    if top is not None and (not isinstance(top, Integral) or top < 0):
        raise WrongValue(f"top is {top!r:.60}; it must be a whole number from 0.")
