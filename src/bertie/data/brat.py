"""brat's standoff: a text, NAME.txt, and the entities in it, NAME.ann, of one file or of a folder.

    T1<TAB>PER 0 3<TAB>Ada      type, start, end, text; relations, events and notes have other letters

Each line of a text is an example, since brat's entities do not go beyond one. `line` counts lines of all texts.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from bertie.data.entities import Mark, marked
from bertie.data.lines import InvalidRow, check_encoding, read_whole
from bertie.data.offsets import in_characters, unit_of
from bertie.data.tables import Example, TableFormat
from bertie.data.words import unit_of as script_unit
from bertie.errors import DataError

TEXT, MARKS = ".txt", ".ann"


def documents(path: Path | str) -> list[Path]:
    """Returns the files of entities in a folder, in any depth, or the one that a file belongs to."""
    path = Path(path)
    return sorted(path.rglob(f"*{MARKS}")) if path.is_dir() else [path.with_suffix(MARKS)]


def brat(path: Path | str, format: TableFormat) -> Iterator[Example | InvalidRow]:
    """Yields the lines of the texts of a folder, or of one file. Raises DataError for a text that is missing."""
    check_encoding(format.encoding)
    found = documents(path)
    if not found:
        raise DataError(
            f"{path} is a folder without files of brat (NAME.txt with NAME.ann). Pass a file with labeled examples, or "
            "such a folder."
        )
    before = 0
    for marks in found:
        text = _text(marks.with_suffix(TEXT), format.encoding)
        lines = text.split("\n")
        yield from _document(text, lines, _text(marks, format.encoding) if format.labelled else None, before, format)
        before += len(lines)


def _text(path: Path, encoding: str) -> str:
    try:
        return read_whole(path).decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not {encoding} text ({error.reason} at byte {error.start:,}).") from None


def _document(
    text: str, lines: list[str], said: str | None, before: int, format: TableFormat
) -> Iterator[Example | InvalidRow]:
    marks, reasons = _read(said or "")
    offsets = unit_of(text, [mark.place for mark in marks]) or "characters"
    unit, at = script_unit([text]), 0
    places = [in_characters(text, [mark.place], offsets) for mark in marks]
    where = [(-1, -1) if place is None else place[0] for place in places]
    misplaced = [lines and text.count("\n", 0, max(0, min(mark.start, len(text)))) for mark in marks]
    for number, whole in enumerate(lines):
        end, line = at + len(whole), whole.removesuffix("\r")
        if line.strip():
            example: Example | InvalidRow = Example((line,), None, before + number + 1)
            if said is not None:
                own = [
                    Mark(start - at, stop - at, mark.kind)
                    for mark, (start, stop) in zip(marks, where, strict=True)
                    if at <= start < end
                ]
                lost = any(place == (-1, -1) and row == number for place, row in zip(where, misplaced, strict=True))
                bad = next((reason for place, reason in reasons if at <= place < end + 1), "")
                if lost or bad:
                    example = InvalidRow(before + number + 1, bad or "an entity whose own text is not at its place")
                elif any(mark.end > len(line) for mark in own):
                    example = InvalidRow(before + number + 1, "an entity of more than one line")
                else:
                    example = marked(line, own, unit, before + number + 1)
            kept = format.keep and not isinstance(example, InvalidRow)
            yield replace(example, source={"text": line}) if kept else example
        at = end + 1


def _read(said: str) -> tuple[list[Mark], list[tuple[int, str]]]:
    """Returns the entities of a file, and (first offset, reason) of those that cannot be tags of words."""
    marks, reasons = list[Mark](), list[tuple[int, str]]()
    for line in said.splitlines():
        name, _, rest = line.partition("\t")
        if not name.startswith("T"):
            continue
        place, _, own = rest.partition("\t")
        kind, *ends = place.replace(";", " ").split(" ")
        if not kind or len(ends) < 2 or not all(end.isdecimal() and len(end) < 12 for end in ends):
            reasons.append((0, "an entity without a start, an end and a label"))
        elif len(ends) > 2 and not _joined(ends):
            reasons.append((int(ends[0]), "an entity in several pieces"))
        else:
            marks.append(Mark(int(ends[0]), int(ends[-1]), kind, own if own.strip() and len(ends) == 2 else None))
    return marks, reasons


def _joined(ends: list[str]) -> bool:
    """Returns whether pieces follow each other directly, as brat writes an entity over the end of a line."""
    return all(int(after) - int(stop) <= 1 for stop, after in zip(ends[1:-1:2], ends[2::2], strict=True))
