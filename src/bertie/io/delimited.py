"""Records of values between separators with quotation marks (RFC 4180), from the lines of a file.

    (line, text) ... -> (line, values), or `BadRecord` with its line and its reason

The csv module splits a record. It refuses a field beyond a limit that holds for the whole process, and is not changed
here: `split` reads such a record. Where a quotation mark is left open, that line is invalid, and the lines after it are
read again without it.
"""

import csv
import re
from collections import deque
from collections.abc import Iterable, Iterator

from bertie.io.lines import BadRecord

LONGEST = 16 << 20  # characters of a record: what bounds memory, and how far a mark may be left open
INSIDE = re.compile(r'[^"]*(?:""[^"]*)*')  # what may stand between quotation marks, in which "" is a mark
QUOTED = re.compile(r'"[^"]*"')
_NO_MORE = "\0no more"
Numbered = tuple[int, str | BadRecord]


class Records:
    """Iterator over (line where it ends, values) of the records of a table; what cannot be read is an `BadRecord`."""

    def __init__(self, lines: Iterable[Numbered], separator: str) -> None:
        self._source, self._again = iter(lines), deque[Numbered]()
        self._separator = separator
        self._taken: list[Numbered] = []  # the lines of the record that is being read
        self._reader = self._new_reader()

    def _new_reader(self) -> Iterator[list[str]]:
        return csv.reader(self._lines(), delimiter=self._separator)

    def _lines(self) -> Iterator[str]:
        while found := self._again.popleft() if self._again else next(self._source, None):
            self._taken.append(found)
            yield "\n" if isinstance(found[1], BadRecord) else found[1] + "\n"
        yield _NO_MORE  # a record of its own, unless a quotation mark is open

    def __iter__(self) -> Iterator[tuple[int, list[str] | BadRecord]]:
        while True:
            self._taken.clear()
            fault = ""
            try:
                values = next(self._reader)
            except csv.Error as error:
                values, fault = self._beyond_the_limit(str(error))
            if values == [_NO_MORE]:
                return
            number = self._taken[-1][0]
            unended = bool(values) and values[-1].endswith(_NO_MORE)
            if unended or (fault and len(self._taken) > 1):
                self._again.extendleft(reversed(self._taken[1:]))
                first, line = self._taken[0]
                yield first, line if isinstance(line, BadRecord) else BadRecord(first, "a quotation mark left open")
                self._reader = self._new_reader()
            elif holes := [line for _, line in self._taken if isinstance(line, BadRecord)]:
                for hole in holes:  # undecodable lines: the record they are part of, if there is one, goes with them
                    yield hole.line, hole
            elif fault:
                yield number, BadRecord(number, fault)
            elif not values:
                yield number, BadRecord(number, "empty line")
            else:
                yield number, values

    def _beyond_the_limit(self, error: str) -> tuple[list[str], str]:
        """Returns the values of a record that the csv module refuses, or what is wrong with it."""
        if "new-line character" in error:
            return [], "a carriage return outside of quotation marks"
        if "field larger" not in error:
            return [], error
        before = ["\n" if isinstance(line, BadRecord) else line + "\n" for _, line in self._taken]
        self._reader = self._new_reader()
        values = split(_both(before, self._lines()), self._separator)
        return (values, "") if values else ([], f"a record longer than {LONGEST:,} characters")


def _both(before: Iterable[str], more: Iterable[str]) -> Iterator[str]:
    yield from before
    yield from more


def split(lines: Iterable[str], separator: str) -> list[str] | None:
    """Returns the values of one record, as the csv module splits it, of any length up to LONGEST.

    None: its quotation mark is left open, or it is too long. Only its own lines are taken.
    """
    values, parts, size, quoted, begins = list[str](), list[str](), 0, False, True
    for line in lines:
        size += len(line)
        if size > LONGEST or line == _NO_MORE:
            return None
        at, end = 0, len(line.removesuffix("\n"))
        while True:
            if begins and not quoted and line.startswith('"', at):
                quoted, at = True, at + 1
            begins = False
            if quoted:
                stop = INSIDE.match(line, at).end()  # type: ignore[union-attr]  # it matches nothing, too
                parts.append(line[at:stop].replace('""', '"'))
                if stop == len(line):
                    break  # the value goes on in the next line
                quoted, at = False, stop + 1
            stop = line.find(separator, at)
            parts.append(line[at : stop if stop >= 0 else end])
            values.append("".join(parts))
            if stop < 0:
                return values
            parts, begins, at = [], True, stop + 1
    return None


def separator_of(line: str, columns: int) -> str:
    """Returns what separates the values of a file. columns: how many; 0 where the line has their names."""
    line = QUOTED.sub("", line)
    found = (mark for mark in ";\t|" if (line.count(mark) + 1 == columns if columns else mark in line))
    return next(found, ",") if "," not in line else ","
