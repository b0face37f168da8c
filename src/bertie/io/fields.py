"""The fields of a row by the names of its columns, as values, as texts, and in templates: "{title}. {body}".

A value that is missing takes with it what belongs to it: the words before it, and the brackets and quotation marks
around it. Other punctuation and spaces between two columns are written only between two values.

    "{title}. {body}"                  Good. Very good.    without the title: Very good.    without the body: Good
    "Title: {title} ({year}), {body}"  without the year: Title: Good, Very good.

Numbers are read as people and programs write them: 4.5   4,5   1,234.5   1.234,5   1 234,5   45%. One comma before
three digits, as in 1,234, can separate thousands or decimals, and is not guessed.
"""

import math
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, time
from decimal import Decimal
from functools import lru_cache
from typing import Any

from bertie.errors import UsageError

MISSING_VALUES = ("na", "n/a", "nan", "null", "<na>", "#n/a")  # as R, pandas, databases and Excel write a missing value
UNCLEAR = "has a comma that may separate thousands or decimals; write 1234 or 1.234"
NO_NUMBER = "is not a number"
_MAX_NUMBER = 1e15  # the square of a number and its mean over a batch must be float32 numbers
TOO_LARGE = f"is beyond {_MAX_NUMBER:g}"
SPACES = re.compile(r"(?<=\d)[\s\u00a0\u202f'\u2019](?=\d{3}(?!\d))")  # between thousands
_POINTS = re.compile(r"[-+]?(?:\d{1,3}(?:,\d{3})+\.\d+|\d{1,3}(?:,\d{3}){2,})")  # 1,234.5: commas between thousands
COMMA = re.compile(r"[-+]?(?:\d{1,3}(?:\.\d{3})+|\d*),\d+")  # 1.234,5: a decimal comma
DOTS = re.compile(r"[-+]?\d{1,3}(?:\.\d{3}){2,}")
BOTH = re.compile(r"[-+]?[1-9]\d{0,2},\d{3}")


def number_of(text: str) -> float | str:
    """Returns the number that a text is, or why it is none. 45% is 0.45, as a workbook stores it."""
    whole = SPACES.sub("", text.strip().replace("\u2212", "-"))
    plain = whole.removesuffix("%").rstrip()
    if BOTH.fullmatch(plain):
        return UNCLEAR
    if _POINTS.fullmatch(plain):
        plain = plain.replace(",", "")
    elif COMMA.fullmatch(plain):
        plain = plain.replace(".", "").replace(",", ".")
    elif DOTS.fullmatch(plain):
        plain = plain.replace(".", "")
    try:
        number = float(plain) if "_" not in plain else math.nan
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        return NO_NUMBER
    if abs(number) > _MAX_NUMBER:
        return TOO_LARGE
    return number / 100 if whole.endswith("%") else number


Fields = dict[str, Any]  # a text, or (from JSON and parquet) a list; None where there is nothing


class Flat(Fields):
    """Fields of an object with numbers or objects in it. source: the original object."""

    source: Mapping[str, Any]


def first_given(*values: object) -> object:
    """Returns the first value that a row has: not None and not an empty text. 0 is a value, and an id."""
    return next((value for value in values if value is not None and value != ""), None)


def source_of(fields: Fields) -> Mapping[str, object]:
    """Returns the original content of a row: numbers as numbers, objects within objects."""
    return fields.source if isinstance(fields, Flat) else fields


def composed(name: str) -> str:
    """Returns the name of a column in Unicode's composed form. macOS may write Korean names decomposed."""
    return unicodedata.normalize("NFC", name)


def flat(value: Mapping[str, Any], within: str = "") -> Flat:
    """Returns fields of a JSON or parquet object: {"labels": {"real": 3.5}} is labels.real, "3.5"; lists do not
    change."""
    fields = Flat()
    fields.source = value
    for name, inner in value.items():
        key = within + composed(name)
        fields |= flat(inner, f"{key}.") if isinstance(inner, dict) else {key: as_text(inner)}
    return fields


def as_text(value: object) -> Any:
    """Returns a value as a name or a text. True is "true", as in JSON; NaN is empty, and bytes are UTF-8."""
    if isinstance(value, bytes):  # of parquet files whose writer does not mark texts
        try:
            return value.decode()
        except UnicodeDecodeError:
            return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return value
    if isinstance(value, (date, time)):  # datetime is a date; from parquet and worksheets
        return value.isoformat()
    return str(value) if isinstance(value, (str, int, float, Decimal)) and value == value else None


_PIECES = re.compile(r"\{\{|\}\}|\{([^{}]+)\}|[^{}]+|[{}]")
_CLOSE, _OPEN = "[)\\]}»」』”’\"']", "[(\\[{«「『“‘\"']"
_BETWEEN = re.compile(rf"({_CLOSE}*)(.*?)((?:{_OPEN}*\w.*)|{_OPEN}*)", re.DOTALL)
"""What belongs to the column before, what stands between two, and what belongs to the column after."""


def is_template(text: str) -> bool:
    """Returns whether the name of a column is a template of columns."""
    return any(piece[1] for piece in _PIECES.finditer(text))


def columns_in(text: str) -> tuple[str, ...]:
    """Returns the columns that a text is made of: those of a template, or the column itself."""
    return tuple(dict.fromkeys(Template.of(text).columns)) if is_template(text) else (text,)


@dataclass(frozen=True)
class Template:
    """A text with places for the values of columns.

    columns: of each place. before, after: what belongs to each. between: what stands before a place after another one.
    """

    columns: tuple[str, ...]
    before: tuple[str, ...]
    after: tuple[str, ...]
    between: tuple[str, ...]

    @classmethod
    @lru_cache(64)
    def of(cls, text: str) -> "Template":
        """Returns the template that a text with columns in braces is. Raises UsageError for a single brace."""
        columns, literals = list[str](), [""]
        for piece in _PIECES.finditer(text):
            if piece[1] is not None:
                columns.append(composed(piece[1].strip()))
                literals.append("")
            elif piece[0] in ("{", "}"):
                raise UsageError(
                    f"The template {text!r} has a single {piece[0]!r}. Write {{column}}, or two braces for one: "
                    f"{piece[0] * 2}."
                )
            else:
                literals[-1] += piece[0][0] if piece[0] in ("{{", "}}") else piece[0]
        first, *middle, last = literals
        parts = [match.groups() for one in middle if (match := _BETWEEN.fullmatch(one))]
        return cls(
            tuple(columns),
            (first, *(opening for _, _, opening in parts)),
            (*(closing for closing, _, _ in parts), last),
            ("", *(joint for _, joint, _ in parts)),
        )

    def fill(self, fields: Mapping[str, object]) -> str:
        """Returns the text of a row; it is empty if all values are missing."""
        text = ""
        for column, before, after, between in zip(self.columns, self.before, self.after, self.between, strict=True):
            if value := _value(fields.get(column)):
                text += (between if text else "") + before + value + after
        return text


def _value(value: object) -> str:
    """Returns a value as a text; "" for a missing one."""
    if isinstance(value, list):
        return ", ".join(filter(None, map(_value, value)))
    return str(as_text(value) or "").strip()
