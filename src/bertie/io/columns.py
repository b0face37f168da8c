"""Which columns of a table are its texts and its label: those of the user, those of the training file, those with
usual names, or else those whose values look like it."""

import itertools
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from shlex import quote

from bertie.console import console
from bertie.errors import DataError, MissingColumn, UsageError, nearest
from bertie.io.annotations import PROGRAM
from bertie.io.fields import Fields, columns_in, is_template
from bertie.io.header import LABEL_COLUMNS, NAMELESS_COLUMN, PAIR_COLUMNS, SINGLES
from bertie.io.table_format import Columns

LookAhead = Callable[[], Sequence[Fields]]
"""Returns the first rows of a table."""
TEXTS_ALONE = {"text", "text1", "text2"}  # names of plain lines
FEW_VALUES = 50  # different values of a label at most, in the first rows
SENTENCE_LENGTH = 20  # characters of a value on average that make a column one of texts
CLEARLY = 2  # times as long as any other: the column of the texts
DATE = re.compile(r"\d{4}([-./년])\s?\d{1,2}(\1|월)\s?\d{1,2}\b.*|\d{1,2}([-./])\d{1,2}\3\d{2,4}\b.*")
ID_NAME = re.compile(r"(?:.*[\W_])?(?:ids?|idx|index|no|nr|key|uuid|guid|urls?|uri|link|date|time|timestamp)", re.I)
PROSE = re.compile(r"\s.*[.!]$|[,;!]\s")  # what few names of columns have
KOREAN_IDENTIFIER = re.compile(r".*(?:번호|순번|아이디|날짜|일자|일시)|Unnamed: \d+")


def column_words(names: Sequence[str]) -> str:
    """Returns the end of an error message about texts alone: the columns that are read beside them, as a row."""
    row = ", ".join(['"text": "..."', *(f"{json.dumps(name, ensure_ascii=False)}: ..." for name in names)])
    return f"the {'columns' if len(names) > 1 else 'column'} {', '.join(names)}: {{{row}}}"


def no_rows() -> Sequence[Fields]:
    """Returns no row, where only the names of columns are known."""
    return ()


def find_columns(names: Sequence[str], columns: Columns, where: str, look: LookAhead = no_rows) -> Columns:
    """Returns the columns to read. look: for those that no name tells.

    Raises DataError with the available names for a column that does not exist, and where several are equally likely.
    """
    if columns.tabular and {*names} <= TEXTS_ALONE:
        raise MissingColumn(
            f"{where} has texts alone, and the model also reads {column_words(columns.tabular)}.",
            hint="Pass a file with a table, or JSON lines.",
        )
    vectors = (columns.features.column,) if columns.features else ()
    others = filter(None, (columns.label, columns.weight, columns.group, columns.time, *columns.tabular))
    for name in (*_columns_of_texts(columns.text, names), *others, *vectors):
        if name not in names:
            raise MissingColumn(f"{where} has no column {name!r}. {nearest(name, names)}")
    if len(columns.text) > 2:
        raise UsageError(
            f"--text names {len(columns.text)} columns; it must name one, or two for a pair. For one text of several "
            f"columns, pass a template: --text {_as_one(columns.text)}."
        )
    usual = (columns.usual_text,) if columns.usual_text else ()
    absent = next((name for name in _columns_of_texts(columns.usual_text, names) if name not in names), None)
    if absent is not None and not columns.text and any(map(is_template, columns.usual_text)):
        raise MissingColumn(
            f"{where}: the model was trained with {' and '.join(map(repr, columns.usual_text))}, and the table has no "
            f"column {absent!r}. {nearest(absent, names)}",
            hint="For texts of other columns, pass --text.",
        )
    text = columns.text or next(
        (one for one in (*usual, *PAIR_COLUMNS, *SINGLES) if {*_columns_of_texts(one, names)} <= {*names}), ()
    )
    label = columns.label or next(
        (name for name in (columns.usual_label, *LABEL_COLUMNS) if name and name in names), None
    )
    label = label if columns.labelled else None
    values = [] if (text or vectors) and (label or not columns.labelled) else _columns_of(names, columns, look())
    recognized = []
    if values and not columns.text and not text and _is_a_row(names, values):
        raise _unknown("text", names, where, columns.labelled)
    if not text and not vectors:
        text = (_text(values, names, columns, where, label),)
        recognized.append("--text")
    if columns.labelled and label is None:
        label = _label(values, names, text, where)
        recognized.append("--label")
    if twice := next((name for name in columns.tabular if columns.tabular.count(name) > 1), ""):
        raise UsageError(f"tabular has the column {twice!r} twice. Leave out one.")
    check_apart(text, columns.tabular, label, names, where)
    return replace(columns, text=text, label=label, recognized=tuple(recognized))


def check_apart(
    text: Sequence[str], tabular: Sequence[str], label: str | None, names: Sequence[str], where: str
) -> None:
    """Raises UsageError for a label that is also read as a text or a column beside it."""
    if label in tabular:
        raise UsageError(
            f"{where}: the label column {label!r} is in tabular, so the model would read the answer. Leave it out."
        )
    if label in _columns_of_texts(text, names):
        raise UsageError(
            f"{where}: the label column {label!r} is in the text {' and '.join(map(repr, text))}, so the model would "
            "read the answer. Leave the column out of the text, or choose another label.",
            hint="Pass --text and --label.",
        )


def _columns_of_texts(text: Sequence[str], names: Sequence[str]) -> list[str]:
    """Returns the columns that texts are made of. A column may have a name in braces."""
    return [name for one in text for name in ((one,) if one in names else columns_in(one))]


def _as_one(text: Sequence[str]) -> str:
    """Returns the template of one text of several columns or templates, for a shell."""
    return quote(" ".join(one if is_template(one) else f"{{{one}}}" for one in text))


@dataclass(frozen=True)
class _Column:
    """The values of a column in the first rows. length: characters on average; own: the different ones."""

    name: str
    length: float
    own: frozenset[str]
    rows: int
    plain: bool

    @property
    def kinds(self) -> int:
        """The number of different values."""
        return len(self.own)

    @property
    def few(self) -> bool:
        """Whether values repeat, as those of a label do."""
        return 1 < self.kinds < self.rows and self.kinds <= min(FEW_VALUES, max(2, self.rows // 2))

    @property
    def sentences(self) -> bool:
        """Whether the values are texts of some length, and differ."""
        repeated = self.few and self.length < 2 * SENTENCE_LENGTH
        return self.plain and self.length >= SENTENCE_LENGTH and not repeated


def _columns_of(names: Sequence[str], own: Columns, rows: Sequence[Fields]) -> list[_Column]:
    """Returns the columns that may be texts or labels: no dates, identifiers and columns that have another use."""
    columns, used = [], {own.weight, own.group, own.time, *own.tabular, *PROGRAM}
    for i, name in enumerate(names, 1):
        values = [value for row in rows if (value := row.get(name)) not in (None, "", [])]
        texts = [value.strip() for value in values if isinstance(value, str)]
        if name in used or name == NAMELESS_COLUMN.format(i) or not values or _identifies(name, texts):
            continue
        length = sum(map(len, texts)) / len(texts) if texts else 0.0
        plain = len(texts) == len(values) and not all(map(_is_number, texts))
        columns.append(_Column(name, length, frozenset(map(str, values)), len(values), plain))
    return columns


def columns_of_numbers(names: Sequence[str], columns: Columns, rows: Sequence[Fields]) -> tuple[str, ...]:
    """Returns the columns whose values are different numbers, but for identifiers and those that have another use."""
    numbers = (one for one in _columns_of(names, columns, rows) if one.kinds > 1 and all(map(_is_number, one.own)))
    return tuple(one.name for one in numbers)


def _is_a_row(names: Sequence[str], values: Sequence[_Column]) -> bool:
    """Returns whether the names of columns look like values: the file has no header."""
    repeated = any(one.name in one.own and one.few for one in values)
    tiny = max((one.rows for one in values), default=0) < 10  # too few for a label to repeat
    return repeated or any(_is_number(name) or DATE.fullmatch(name) or (tiny and PROSE.search(name)) for name in names)


def _identifies(name: str, texts: Sequence[str]) -> bool:
    """Returns whether a column has dates, or names or numbers of its rows."""
    if ID_NAME.fullmatch(name) or KOREAN_IDENTIFIER.fullmatch(name) or (texts and all(map(DATE.fullmatch, texts))):
        return True
    if any(text.startswith(("http://", "https://")) for text in texts):
        return all(" " not in text for text in texts)
    numbers = [int(text) for text in texts if text.isdecimal() and len(text) < 10]
    steps = {after - before for before, after in itertools.pairwise(numbers)}
    return len(numbers) == len(texts) > 2 and steps == {1}  # 1, 2, 3


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", "").rstrip("%"))
    except ValueError:
        return False
    return True


def _text(values: Sequence[_Column], names: Sequence[str], columns: Columns, where: str, label: str | None) -> str:
    """Returns the column with sentences. Raises DataError where there is none, or more than one."""
    texts = [one for one in values if one.plain and one.name != label]
    alone = texts if len(texts) == 1 and (label or not columns.labelled) else []
    likely = [one for one in texts if one.sentences] or [one for one in texts if not one.few] or alone
    longest = sorted(likely, key=lambda one: -one.length)[:2]
    if len(longest) > 1 and longest[0].length >= CLEARLY * longest[1].length:
        likely = longest[:1]
    if len(likely) > 1:
        if answer := console.choose(f"{where}: which column is the text?", [one.name for one in likely]):
            return answer
        first, second = (one.name for one in likely if one in longest)
        both, one, other = _as_one((first, second)), quote(first), quote(second)
        pair = f"; or both as a pair, --text {one} --text {other}" if columns.labelled or columns.usual_text[1:] else ""
        raise DataError(
            f"{where}: the columns {first!r} and {second!r} may both be the text. Pass one of them, --text {one}, or "
            f"both as one text, --text {both}{pair}."
        )
    if not likely:
        raise _unknown("text", names, where, columns.labelled)
    return likely[0].name


def _label(values: Sequence[_Column], names: Sequence[str], text: Sequence[str], where: str) -> str:
    """Returns the column with few values, or else the last one. Raises DataError where several are as likely."""
    read = {name for one in text for name in columns_in(one)} | {*text}
    others = [one for one in values if one.name not in read]
    likely = [one for one in others if one.few] or [one for one in others if one.kinds > 1][-1:] or others[-1:]
    if len(likely) > 1:
        choices = [one.name for one in likely]
        if answer := console.choose(f"{where}: which column is the label?", choices):
            return answer
        shown = f"{', '.join(map(repr, choices[:-1]))} and {choices[-1]!r}"
        raise DataError(
            f"{where}: the columns {shown} may each be the label. Pass one of them, --label {quote(choices[-1])}, or "
            f"all of them for --task multilabel, --label {quote(','.join(choices))}."
        )
    if not likely:
        rest = [name for i, name in enumerate(names, 1) if name not in (*read, NAMELESS_COLUMN.format(i), *PROGRAM)]
        example = f" Pass --label COLUMN, for example --label {rest[-1]}." if rest else " Add a column of labels."
        error = _unknown("label", names, where, True)
        error.message += example
        raise error
    return likely[0].name


def _unknown(what: str, names: Sequence[str], where: str, labelled: bool) -> DataError:
    """Returns the error about a column that neither a name nor values tell."""
    return MissingColumn(
        f"{where}: no {what} column was recognized among {', '.join(map(repr, names))}.",
        hint="Pass --text COLUMN (twice for a pair). If the first line is not a header, pass the column names, for "
        f"example --columns {'label,text' if labelled else 'text'}.",
    )
