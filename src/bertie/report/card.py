"""Sections of a model's card, README.md, that commands write after the model was made."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from bertie import checksums
from bertie.files import write_text

_CARD = checksums.CARD
NEXT = "\n## "


def put(folder: Path, title: str, *parts: str) -> None:
    """Writes a section into the card of a model folder, instead of an earlier one with the same title."""
    path = folder / _CARD
    text = "\n" + (path.read_text("utf-8") if path.exists() else "")
    before, _, after = text.partition(f"{NEXT}{title}\n")
    rest = NEXT + after.partition(NEXT)[2] if NEXT in after else ""
    body = "\n\n".join(part.strip() for part in parts if part.strip())
    write_text(path, f"{before.rstrip()}\n\n## {title}\n\n{body}\n{rest}".lstrip())
    checksums.update(folder, _CARD)


def render_markdown_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Returns a Markdown table."""
    cells = [[*columns], ["---"] * len(columns), *([str(cell).replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)
