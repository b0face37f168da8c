"""The names of the columns of a table whose rows are lists: the first row, or those that the user gives."""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any, cast

from bertie.console import counted
from bertie.errors import DataError
from bertie.io.fields import Fields, as_text, composed
from bertie.io.lines import BadRecord
from bertie.io.table_format import TableFormat

NAMELESS_COLUMN = "column {}"  # a column without a name, by its number: no reader takes it unless it is asked for
HEADER_WITHIN = 20  # rows: titles above the names of the columns
PAIR_COLUMNS = (  # the names data sets use, the longest match first: a file with question and sentence holds pairs
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question", "context"),
    ("question", "sentence"),
    ("question1", "question2"),
    ("text1", "text2"),
    ("text", "text_pair"),
)
SINGLES = tuple((name,) for name in ("text", "sentence", "document", "텍스트", "문장", "리뷰", "내용"))
LABEL_COLUMNS = ("label", "labels", "레이블", "라벨")
_USUAL = {*LABEL_COLUMNS, *itertools.chain(*PAIR_COLUMNS, *SINGLES)}
ByteLines = IO[bytes] | Iterable[bytes | None]  # of bytes: a file, or its lines
_Cells = Sequence[Any]
Numbered = tuple[int, _Cells | BadRecord]


class Header(tuple[str, ...]):
    """The names of the columns of a file, where it has them before its rows."""


Row = tuple[int, Fields | BadRecord | Header]
"""The number of a line, and its fields, or what is wrong with it, or the names of the columns."""


def known_names(format: TableFormat) -> set[str]:
    """Returns the names that show that a row or an object has the names of columns."""
    columns = format.columns
    return _USUAL | {*columns.text, columns.label or "", *columns.usual_text, columns.usual_label} - {""}


def header(names: _Cells, where: str) -> Header:
    """Returns the names of columns, composed; one without a name is called by its number.

    Raises DataError for a name that occurs twice.
    """
    texts = [composed(str(as_text(name) or "").strip()) or NAMELESS_COLUMN.format(i) for i, name in enumerate(names, 1)]
    twice, count = Counter(texts).most_common(1)[0] if texts else ("", 0)
    if count > 1:
        first = texts.index(twice)
        second = texts.index(twice, first + 1)
        raise DataError(
            f"{where}: columns {first + 1} and {second + 1} have the same name {twice!r}. Rename or remove all but one."
        )
    return Header(texts)


def tabular(rows: Iterator[Numbered], format: TableFormat, where: str, separator: str = ",") -> Iterator[Row]:
    """Yields the fields of rows of values, of which the first one that is not empty has the names of the columns.

    Titles above it are left out where a row below has a usual name, or one that is asked for. Empty values beyond the
    last name are left out; a column without a name may be missing. R writes no name above its row numbers.
    """
    names = format.file.names
    if not names:
        above, head, rows = _header(rows, format)
        for number, row in above:
            yield number, row if isinstance(row, BadRecord) else BadRecord(number, "a line above the column names")
        if head is None:
            return
        below = list[Numbered]()
        for i, one in enumerate(rows, 1):  # row numbers, which R writes without a name for their column
            below.append(one)
            values = one[1]
            if isinstance(values, BadRecord) or len(values) != len(head) + 1 or str(values[0]) != str(i):
                break
            if i == 2:
                head = ["", *head]
                break
        rows = itertools.chain(below, rows)
        names = header(head, where)
        yield 0, names
    elif (first := next(rows, None)) is not None:
        if not isinstance(first[1], BadRecord) and tuple(composed(str(one).strip()) for one in first[1]) == names:
            first = first[0], BadRecord(first[0], "a line with the column names, which --columns names too")
        rows = itertools.chain([first], rows)
    nameless = [name == NAMELESS_COLUMN.format(i) for i, name in enumerate(names, 1)]
    needed = max((i for i, absent in enumerate(nameless, 1) if not absent), default=len(names))
    for number, values in rows:
        yield number, values if isinstance(values, BadRecord) else fields_of(values, names, number, separator, needed)


def _header(
    rows: Iterator[Numbered], format: TableFormat
) -> tuple[Sequence[Numbered], _Cells | None, Iterator[Numbered]]:
    """Returns the rows above the names of the columns, the names (None without rows), and the rows below.

    It reads ahead only where the first row has a single value that is not a usual name.
    """
    known = known_names(format)
    first: list[Numbered] = []
    for one in itertools.islice(rows, HEADER_WITHIN):
        first.append(one)
        row = () if isinstance(one[1], BadRecord) else one[1]
        cells = [composed(str(cell).strip()) for cell in row if cell not in ("", None)]
        alone = len(row) == 1 and any(not isinstance(above, BadRecord) for _, above in first[:-1])
        if not alone and any(cell in known for cell in cells):
            return first[:-1], row, rows
        if len(cells) > 1:
            break  # names, or values, that are not known
    at = next((i for i, (_, row) in enumerate(first) if not isinstance(row, BadRecord)), None)
    if at is None:
        return first, None, rows
    return first[:at], cast(_Cells, first[at][1]), itertools.chain(first[at + 1 :], rows)


def fields_of(
    values: _Cells, names: Sequence[str], line: int, separator: str = ",", needed: int = 0
) -> Fields | BadRecord:
    """Returns the fields of a row. needed: the number of columns that a row must have; the ones after it are nameless.

    Empty values beyond the last name are left out: spreadsheets write cells that were used once.
    """
    if len(values) > len(names) and not any(values[len(names) :]):
        values = values[: len(names)]
    elif 0 < needed <= len(values) < len(names):
        values = [*values, *[""] * (len(names) - len(values))]
    if len(values) != len(names):
        fields = {**dict.fromkeys(names), **dict(zip(names, values, strict=False))}  # the columns of any other row
        if len(values) > len(names):
            fields[names[-1]] = separator.join(map(str, values[len(names) - 1 :]))
        return BadRecord(line, f"{counted(len(values), 'column')} instead of {len(names)}", source=fields)
    return dict(zip(names, values, strict=True))
