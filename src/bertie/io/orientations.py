"""Tables in one JSON value, in the orientations that pandas and others write.

records   [{"text": "a", "label": "x"}]                      also within one object: {"data": [...]}
columns   {"text": {"0": "a"}, "label": {"0": "x"}}          pandas' default
index     {"0": {"text": "a", "label": "x"}}
list      {"text": ["a"], "label": ["x"]}
split     {"columns": ["text", "label"], "index": [0], "data": [["a", "x"]]}
table     {"schema": {...}, "data": [{"index": 0, "text": "a", "label": "x"}]}
values    [["a", "x"]]                                       without names
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

Table = tuple[list[str] | None, Sequence[Any]]
"""The names of the columns, where the rows are lists; and the rows."""


def table_of(value: Any, known: Collection[str]) -> Table | None:
    """Returns the rows of a JSON value; None for one that is no table. known: usual names of columns.

    A record alone is a table of one row.
    """
    if isinstance(value, list):
        return None, value
    if not isinstance(value, dict):
        return None
    names, data = value.get("columns"), value.get("data")
    if isinstance(names, list) and isinstance(data, list):
        return [str(name) for name in names], data
    lists = [one for one in value.values() if isinstance(one, list) and one and _is_record(one[0])]
    if len(lists) == 1 and (lists[0] is data or not any(name in known for name in value)):
        return None, lists[0]
    parts = [*value.values()]
    if parts and all(isinstance(one, dict) for one in parts):
        return None, _nested(value, known)
    sizes = {len(one) if isinstance(one, list) else -1 for one in parts}
    if len(sizes) == 1 and -1 not in sizes:
        return [*map(str, value)], [*zip(*parts, strict=True)]
    return None, [value]


def _is_record(value: Any) -> bool:
    """Returns whether a value is an object, or a text with an object of annotations, as spaCy has them."""
    pair = isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], dict)
    return isinstance(value, dict) or pair


def _nested(value: Mapping[str, Mapping[str, Any]], known: Collection[str]) -> list[dict[str, Any]]:
    """Returns the rows of an object of objects: of the columns, or of the rows."""
    inner = dict.fromkeys(name for one in value.values() for name in one)
    of_columns = any(name in known for name in value)
    if not of_columns and not any(name in known for name in inner):
        of_columns = all(name.isdecimal() for name in inner)
    if not of_columns:
        return [dict(row) for row in value.values()]
    return [{name: column.get(row) for name, column in value.items()} for row in inner]
