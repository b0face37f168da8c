"""Results as lines of text and as tables of a notebook."""

from collections.abc import Mapping, Sequence
from html import escape

from bertie.console import console


def progress(shown: bool = True) -> None:
    """Shows the progress of long calls, or hides it, from now on in this process.

    Everything else that a call tells is a warning of Python, or a message of the logger "bertie".

    Example:
        >>> bertie.progress(False)
        >>> bertie.progress(True)
    """
    console.verbosity.progress = shown


def with_interval(row: Mapping[str, object]) -> str:
    """Returns a metric with its value and interval, in one line."""
    bounds = "" if row["low"] is None else f" ({row['low']:z.3f} to {row['high']:z.3f})"
    return f"{row['metric']} {row['value']:z.3f}{bounds}"


def html_table(rows: Sequence[Mapping[str, object]], caption: str) -> str:
    """Returns a table in the style of the notebook that shows it."""
    columns = [*dict.fromkeys(name for row in rows for name in row)]
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(f'<td>{_cell(row.get(name))}</td>' for name in columns)}</tr>" for row in rows)
    below = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<table>{below}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: object) -> str:
    return escape("" if value is None else f"{value:z.3f}" if isinstance(value, float) else str(value))
