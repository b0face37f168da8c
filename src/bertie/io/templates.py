"""Texts made of several columns: "{title}. {body}".

A value that is missing takes with it what belongs to it: the words before it, and the brackets and quotation marks
around it. Other punctuation and spaces between two columns are written only between two values.

    "{title}. {body}"                  Good. Very good.    without the title: Very good.    without the body: Good
    "Title: {title} ({year}), {body}"  without the year: Title: Good, Very good.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from bertie.errors import UsageError
from bertie.io.fields import as_text, composed

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

    def fill(self, fields: Mapping[str, Any]) -> str:
        """Returns the text of a row; it is empty if all values are missing."""
        text = ""
        for column, before, after, between in zip(self.columns, self.before, self.after, self.between, strict=True):
            if value := _value(fields.get(column)):
                text += (between if text else "") + before + value + after
        return text


def _value(value: Any) -> str:
    """Returns a value as a text; "" for a missing one."""
    if isinstance(value, list):
        return ", ".join(filter(None, map(_value, value)))
    return str(as_text(value) or "").strip()
