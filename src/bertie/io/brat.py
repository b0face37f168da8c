"""brat's standoff: a text, NAME.txt, and the entities in it, NAME.ann, of one file or of a folder.

    T1<TAB>PER 0 3<TAB>Ada      type, start, end, text; relations, events and notes have other letters

Each line of a text is an example, since brat's entities do not go beyond one. `line` counts lines of all texts.
"""

import itertools
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from bertie.errors import DataError, UnreadableFile
from bertie.files import files_in, some_of
from bertie.io.entities import Mark, tag_entity_text
from bertie.io.lines import BadRecord, read_text
from bertie.io.table_format import TableFormat
from bertie.io.tables import Example
from bertie.io.words import place_in_characters, script_unit, unit_of

TEXT, MARKS = ".txt", ".ann"


def annotation_files(path: Path | str) -> list[Path]:
    """Returns the files of entities in a folder, in any depth, or the one that a file belongs to.

    Raises DataError for a folder with parts that cannot be read.
    """
    path = Path(path)
    if not path.is_dir():
        return [path.with_suffix(MARKS)]
    files, unreadable = files_in(path)
    if unreadable:
        raise UnreadableFile(
            f"Some of the folder {path} cannot be read: {some_of(unreadable)}. Make it readable, or move it."
        )
    return [file for file in files if file.suffix == MARKS]


def brat(path: Path | str, format: TableFormat) -> Iterator[Example | BadRecord]:
    """Yields the lines of the texts of a folder, or of one file. Raises DataError for a text that is missing."""
    files = annotation_files(path)
    if not files:
        raise DataError(
            f"{path} is a folder without files of brat (NAME.txt with NAME.ann). Pass a file with labeled examples, or "
            "such a folder."
        )
    before = 0
    for marks in files:
        text = read_text(marks.with_suffix(TEXT), format.file.encoding)
        lines = text.split("\n")
        yield from _document(
            text, lines, read_text(marks, format.file.encoding) if format.columns.labelled else None, before, format
        )
        before += len(lines)


def _document(
    text: str, lines: list[str], said: str | None, before: int, format: TableFormat
) -> Iterator[Example | BadRecord]:
    """Yields the lines of a text. said: its file of entities; None: none are wanted. before: lines of other texts."""
    begins = [0, *itertools.accumulate(len(line) + 1 for line in lines)]
    marks, reasons = _read(said or "")
    places = [mark.place for mark in marks]
    whole = place_in_characters(text, places, unit_of(text, places) or "characters")
    own: dict[int, list[Mark]] = {}
    bad = {bisect_right(begins, min(start, len(text))) - 1: reason for start, reason in reasons}
    for i, mark in enumerate(marks):
        place = whole[i] if whole else next(iter(place_in_characters(text, [mark.place], "characters") or ()), None)
        row = bisect_right(begins, place[0] if place else min(mark.start, len(text))) - 1
        if place is None:
            bad[row] = "an entity whose own text is not at its place"
        elif place[1] - begins[row] > len(lines[row].removesuffix("\r")):
            bad[row] = "an entity of more than one line"
        else:
            own.setdefault(row, []).append(Mark(place[0] - begins[row], place[1] - begins[row], mark.kind))
    unit = script_unit([text])
    for row, line in enumerate(line.removesuffix("\r") for line in lines):
        number = before + row + 1
        if row in bad:
            yield BadRecord(number, bad[row])
            continue
        if not line.strip():
            continue
        example = (
            Example((line,), None, number) if said is None else tag_entity_text(line, own.get(row, ()), unit, number)
        )
        with_source = format.keep and isinstance(example, Example)
        yield replace(example, source={"text": line}) if with_source else example


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
            reasons.append((0, "an entity that is not written as T1, its label, start and end"))
        elif len(ends) > 2 and not _joined(ends):
            reasons.append((int(ends[0]), "an entity in several pieces"))
        else:
            marks.append(Mark(int(ends[0]), int(ends[-1]), kind, own if own.strip() and len(ends) == 2 else None))
    return marks, reasons


def _joined(ends: list[str]) -> bool:
    """Returns whether pieces follow each other directly, as brat writes an entity over the end of a line."""
    return all(int(after) - int(stop) <= 1 for stop, after in zip(ends[1:-1:2], ends[2::2], strict=True))
