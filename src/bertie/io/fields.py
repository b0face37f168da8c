"""The fields of a row by the names of its columns, and values as texts."""

import unicodedata
from collections.abc import Mapping
from datetime import date, time
from decimal import Decimal
from typing import Any

Fields = dict[str, Any]  # a text, or (from JSON and parquet) a list; None where there is nothing


class Flat(Fields):
    """Fields of an object with numbers or objects in it. source: the original object."""

    source: Mapping[str, Any]


def first_given(*values: Any) -> Any:
    """Returns the first value that a row has: not None and not an empty text. 0 is a value, and an id."""
    return next((value for value in values if value is not None and value != ""), None)


def source_of(fields: Fields) -> Mapping[str, Any]:
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


def as_text(value: Any) -> Any:
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
