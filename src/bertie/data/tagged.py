"""Sentences with a tag for each word, in their published formats.

    conll       a word per line, its tag in the last column that has tags; CoNLL-2000, CoNLL-2003, WNUT-17
    conllu      Universal Dependencies: ten columns, with the text; the tag is the upos, or the xpos
    klue        a character per line, comments begin with "##"; KLUE-NER
    jsonl       {"tokens": [...], "tags": [...]}, or {"text": ..., "entities": [{"start": 0, "end": 3, "label": ...}]};
                for prediction also {"text": ...}
    json        a list of these objects
    parquet     rows with these columns
    csv, tsv, xlsx  a word per row, with columns for the word, its tag, and the sentence (on its first row, or on each)

An empty line ends a sentence. An example's text is the original sentence, or its words separated by spaces. `spans` are
the characters of each word, and its label is the words' tags.
"""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeGuard, cast

from bertie.data.lines import decoded, opened, where_of
from bertie.data.rows import FORMATS as rows_of
from bertie.data.rows import Fields, no_header, records, source_of
from bertie.data.streams import suffix_of
from bertie.data.tables import Example, InvalidRow, TableFormat
from bertie.errors import DataError, UsageError, nearest

Span = tuple[int, int]
Lines = list[tuple[int, str]]
SCHEME = re.compile(r"O|[BIES]-\S+")
EMPTY = "empty line"
TABLES = ("jsonl", "json", "parquet")
SUFFIXES = {"ndjson": "jsonl", "pq": "parquet"} | {kind: kind for kind in ("conll", "conllu", *TABLES)}
TAGS = ("tags", "ner_tags", "pos_tags", "chunk_tags")
WORDS = {"word": re.compile(r"\w+|[^\w\s]"), "character": re.compile(r"\S"), "space": re.compile(r"\S+")}
MARKED = ("label", "labels", "spans", "entities")  # lists of the entities of a text; predictions are the last one
STARTS, ENDS, TYPES = ("start", "start_offset"), ("end", "end_offset"), ("label", "type", "labels")
UNUSED = ("reject", "ignore")  # answers in Prodigy
UNSPACED = re.compile("[\u0e00-\u0eff\u1100-\u11ff\u3040-\u30ff\u3130-\u318f\u3400-\u9fff\uac00-\ud7af]")
WORD_TABLES = ("csv", "tsv", "xlsx")
WORD, TAG = ("word", "token", "단어"), ("tag", "label", "ner_tag", "태그", "라벨")
SENTENCE = ("sentence #", "sentence#", "sentence_id", "sentence id", "sentence_idx", "sent_id")
LONGEST = 1000  # words of a sentence: a table that has no ends of sentences is one
LOOKED_AT = 100  # rows that tell whether entities end within words
UD_COLUMNS = {"upos": 3, "xpos": 4}
NUMBER = re.compile(r"\d{1,9}([-.]\d{1,9})?")  # of a word in a sentence; 3-4: written as one; 8.1: not written


@dataclass(frozen=True)
class TaggedExample(Example):
    """An example of one text with words: the characters from spans[i][0] to spans[i][1] are word i.

    widened: entities that begin or end within a word, and are read as whole words.
    """

    spans: tuple[Span, ...] = ()
    widened: int = field(default=0, compare=False)


class WordTable(NamedTuple):
    """A table with a word per row: its format and its columns; "" for one that it does not have."""

    kind: str
    word: str
    tag: str
    sentence: str


def word_table(path: Path | str, format: TableFormat) -> WordTable | None:
    """Returns the columns of a table with a word per row, from its header; None for another file.

    The word is in the column of format.text, or in a recognized one. Without labels, the columns of the word and of the
    sentence must have known names, since other tables have texts.
    """
    kind = format.kind or suffix_of(path)
    if kind not in WORD_TABLES or not Path(path).is_file():
        return None
    names = [*format.columns]
    with suppress(DataError):  # the reader says what is wrong with the file
        next(records(path, replace(format, kind=kind, on_header=names.extend)), None)
    lower = {name.strip().lower(): name for name in names}

    def column(given: Sequence[str], known: Sequence[str]) -> str:
        return next((name for name in given if name), "") or next((lower[name] for name in known if name in lower), "")

    usual = [name for name in (*format.usual_text[:1], format.usual_label) if name in names]
    word = column((*format.text[:1], *usual[:1]), WORD)
    tag, sentence = column((format.label, *usual[1:]), TAG), column((), SENTENCE)
    if not word or (not format.labelled and not (sentence and word.strip().lower() in WORD)):
        return None
    if missing := next((name for name in (word, tag) if name and name not in names), ""):
        raise DataError(f"{path} has no column {missing!r}. {nearest(missing, names)}")
    if format.labelled and not tag:
        raise DataError(f"{path} has no column of tags among {', '.join(map(repr, names))}. Pass --label COLUMN.")
    return WordTable(kind, word, tag, sentence)


def sentences(path: Path | str, format: TableFormat) -> Iterator[Example | InvalidRow]:
    """Yields the sentences of a file in order; `line` is where one begins. A damaged one is an `InvalidRow`.

    format.kind: one of FORMATS, by default by the name (SUFFIXES), else conll. format.label: the tag column, by
    number from 1, or upos, xpos; by default as above. format.text: the text of rows without tokens. Raises
    DataError for a missing file, or no column with tags; UsageError for columns that the format does not have.
    """
    kind = format.kind or SUFFIXES.get(suffix_of(path), "conll")
    table = word_table(path, format)
    if kind not in FORMATS and not table:
        raise UsageError(f"Unknown format of tagged words {kind!r}. {nearest(kind, FORMATS)}")
    if not table and (format.columns or (format.text and kind not in TABLES)):
        option = "--columns" if format.columns else "--text"
        raise UsageError(f"{where_of(path)} has words with tags, without named text columns. Omit {option}.")
    with opened(path) as file:
        read = partial(_word_rows, table) if table else FORMATS[kind]
        for row in read(file, format, where_of(path)):
            if format.keep and isinstance(row, TaggedExample) and row.source is None:
                words, tags = [row.texts[0][start:end] for start, end in row.spans], row.label
                told = {} if tags is None else {"tokens": words, "tags": list(tags)}
                row = replace(row, source={"text": row.texts[0], **told})
            yield row


def blocks(
    file: IO[bytes], encoding: str, where: str, *, comment: str = "", usual: str = ""
) -> Iterator[Lines | InvalidRow]:
    """Yields lines between empty ones, without comments; a block with an undecodable line is an `InvalidRow`."""
    lines: Lines = []
    bad: InvalidRow | None = None
    for number, line in itertools.chain(decoded(file, encoding, where, usual=usual), [(0, "")]):
        if isinstance(line, InvalidRow):
            bad = bad or line
        elif line.strip():
            if not (comment and line.startswith(comment)):
                lines.append((number, line))
        else:
            if bad or lines:
                yield bad or lines
            lines, bad = [], None


def spaced(words: Sequence[str], tags: Sequence[Any], line: int, spaces: Sequence[bool] | None = None) -> TaggedExample:
    """Returns the example of some words with a space after each, or after those in `spaces`."""
    text, spans = "", []
    for i, word in enumerate(words):
        spans.append((len(text), len(text) + len(word)))
        text += word + (" " if spaces is None or spaces[i] else "")
    return TaggedExample((text.rstrip(" "),), tuple(tags), line, spans=tuple(spans))


def _conll(file: IO[bytes], format: TableFormat, where: str) -> Iterator[Example | InvalidRow]:
    column: int | None = None
    if format.label:
        if not format.label.isdecimal() or not 2 <= int(format.label[:9]) < 1000:
            raise UsageError(f"The tag column must be a number, 2 or more, and not {format.label!r}.")
        column = int(format.label) - 1
    for block in blocks(file, format.encoding, where, usual=format.usual_encoding):
        if isinstance(block, InvalidRow):
            yield block
            continue
        rows = [line.split("\t") if "\t" in line else re.split(" +", line.strip(" ")) for _, line in block]
        first = block[0][0]
        if rows[0][0] == "-DOCSTART-":
            if len(rows) == 1:
                continue
            rows, first = rows[1:], block[1][0]  # a sentence follows without an empty line
        if column is None:
            column = _tag_column(rows, where)
        if any(len(row) <= column for row in rows):
            yield InvalidRow(first, "a word without its tag")
        elif any(not row[0].strip() for row in rows):
            yield InvalidRow(first, "a tag without its word")
        else:
            yield spaced([row[0].strip() for row in rows], [row[column].strip() for row in rows], first)


def _tag_column(rows: list[list[str]], where: str) -> int:
    """Returns the last column that has tags in every line of the first sentence."""
    width = min(map(len, rows))
    for column in range(width - 1, 0, -1):
        if all(SCHEME.fullmatch(row[column].strip()) for row in rows):
            return column
    if rows[0][0].startswith(("{", "[")):
        raise DataError(
            f"{where} has JSON instead of a word per line. Write one object per line, and pass --format jsonl or call "
            "the file .jsonl."
        )
    if suffix_of(where) == "csv" and any("," in cell for cell in rows[0]):
        raise DataError(
            f"{where} has commas instead of a word per line. Name the columns of the words and of the tags "
            "in its first line, and pass them: --text COLUMN --label COLUMN."
        )
    raise DataError(
        f"{where}: no column of {' '.join(rows[0])!r} has tags such as O, B-PER, I-PER in every line. For "
        "other tags, pass the column number: --label 2."
    )


def _word_rows(table: WordTable, file: IO[bytes], format: TableFormat, where: str) -> Iterator[Example | InvalidRow]:
    """Yields the sentences of a table with a word per row. One ends before another number, and at an empty row."""
    reading = replace(format, on_header=no_header)  # the columns of an example are others
    found, bad, first, current, ends = list[Fields](), None, 0, None, 0
    for number, row in itertools.chain(rows_of[table.kind](file, reading, where), [(0, InvalidRow(0, EMPTY))]):
        empty = row.reason == EMPTY if isinstance(row, InvalidRow) else not any(row.values())
        name = None if empty or isinstance(row, InvalidRow) else row.get(table.sentence) or None
        if (found or bad) and (empty or (name is not None and name != current)):
            if not table.sentence and not ends and len(found) > LONGEST:
                raise DataError(
                    f"{where} has no column that tells sentences apart. Add a column sentence_id, or an empty line "
                    "after each sentence."
                )
            words, tags = ([str(one.get(column) or "").strip() for one in found] for column in (table.word, table.tag))
            yield bad or of_words(words, tags if format.labelled else None, first)
            found, bad, ends = [], None, ends + 1
        if empty:
            continue
        first = first if found or bad else number
        if isinstance(row, InvalidRow):
            bad = bad or row
        else:
            found.append(row)
            current = name if name is not None else current


def _conllu(file: IO[bytes], format: TableFormat, where: str) -> Iterator[Example | InvalidRow]:
    name = format.label or "upos"
    if name not in UD_COLUMNS:
        raise UsageError(f"A conllu file has no tag column {name!r}. {nearest(name, UD_COLUMNS)}")
    for block in blocks(file, format.encoding, where, comment="#", usual=format.usual_encoding):
        if isinstance(block, InvalidRow):
            yield block
            continue
        rows = [line.split("\t") for _, line in block]
        if any(len(row) != 10 or not NUMBER.fullmatch(row[0]) for row in rows):
            yield InvalidRow(block[0][0], "not ten columns, the first a number")
            continue
        words, spaces = ud_words(rows)
        yield spaced([row[1] for row in words], [row[UD_COLUMNS[name]] for row in words], block[0][0], spaces)


def ud_words(rows: list[list[str]]) -> tuple[list[list[str]], list[bool]]:
    """Returns the rows of a sentence in ten columns that are words, and whether a space follows each."""
    words, spaces, until, space = [], [], 0, True
    for row in rows:
        after = "SpaceAfter=No" not in row[9].split("|")
        if "-" in row[0]:  # words written as one (29-30 didn't): no space between them, what follows as it says
            until, space = int(row[0].split("-")[1]), after
        elif "." not in row[0]:  # 8.1 is a word that is not written
            words.append(row)
            in_one = until and int(row[0]) <= until
            spaces.append((space and int(row[0]) == until) if in_one else after)
    return words, spaces


def _klue(file: IO[bytes], format: TableFormat, where: str) -> Iterator[Example | InvalidRow]:
    for block in blocks(file, format.encoding, where, comment="##", usual=format.usual_encoding):
        if isinstance(block, InvalidRow):
            yield block
            continue
        rows = [line.split("\t") for _, line in block]
        if any(len(row) != 2 or len(row[0]) != 1 for row in rows):
            yield InvalidRow(block[0][0], "not one character and its tag")
            continue
        places = [i for i, (character, _) in enumerate(rows) if character != " "]
        text, tags = "".join(character for character, _ in rows), tuple(rows[i][1] for i in places)
        if places:
            yield TaggedExample((text,), tags, block[0][0], spans=tuple((i, i + 1) for i in places))
        else:
            yield InvalidRow(block[0][0], "empty text")


def cut(text: str, unit: str) -> tuple[Span, ...]:
    """Returns the characters of the words of a text, split by `unit` (a row of WORDS)."""
    return tuple(match.span() for match in WORDS[unit].finditer(text))


def _objects(kind: str, file: IO[bytes], format: TableFormat, where: str) -> Iterator[Example | InvalidRow]:
    """Yields the examples of objects with words and tags, or with a text and its entities. kind: one of TABLES."""
    name, unit = (*format.text, "text")[0], ""
    rows = iter(rows_of[kind](file, format, where))
    head = [*itertools.islice(rows, LOOKED_AT)]
    for number, row in itertools.chain(head, rows):
        if isinstance(row, InvalidRow):
            yield row
            continue
        source, text = source_of(row) if format.keep else None, row.get(name)
        if isinstance(text, str) and not text.strip():
            text = None
        words = _texts(row.get("tokens"))
        tagged = words and not format.label and any(row.get(tags) is not None for tags in TAGS)
        marks = _marks(row, format) if format.labelled and not tagged else None
        try:
            if format.labelled and (answer := row.get("answer")) in UNUSED:
                yield InvalidRow(number, f"answer is {answer}")
            elif isinstance(text, str) and marks is not None:
                unit = unit or _unit([other.get(name) for _, other in head if not isinstance(other, InvalidRow)])
                yield _marked(text, marks, unit, number, source)
            elif words or not isinstance(text, str):
                yield _tagged(row, text, format, number, source)
            else:
                yield Example((text,), None, number, source=source)
        except (ValueError, TypeError):
            yield InvalidRow(number, 'not an object with "tokens" and "tags", or "text" and "entities"')


def _tagged(
    row: Mapping[str, Any], text: Any, format: TableFormat, number: int, source: Mapping[str, Any] | None
) -> Example | InvalidRow:
    """Returns the example of a row with words and tags. Raises ValueError for a row without words.

    text: has the spaces between the words, if it consists of them.
    """
    names = (format.label,) if format.label else TAGS
    words, tags = row.get("tokens"), next((row[name] for name in names if row.get(name) is not None), None)
    if words is None:
        raise ValueError
    if isinstance(tags, list):
        tags = [str(tag) if type(tag) is int else tag for tag in tags]
    found = of_words(words, tags, number)
    if not isinstance(found, TaggedExample):
        return found
    spans = _places(text, cast(list[str], words)) if isinstance(text, str) else None
    found = replace(found, texts=(text,), spans=spans) if spans else found
    return replace(found, source=source)


def _places(text: str, words: Sequence[str]) -> tuple[Span, ...] | None:
    """Returns where the words are in their text; None if there is more between them than spaces."""
    spans, end = list[Span](), 0
    for word in words:
        start = text.find(word, end)
        if start < 0 or text[end:start].strip():
            return None
        end = start + len(word)
        spans.append((start, end))
    return None if text[end:].strip() else tuple(spans)


def _marks(row: Mapping[str, Any], format: TableFormat) -> list[Any] | None:
    """Returns the entities of a row: a list of lists or of objects. None: it has none, or a list of something else."""
    for name in (format.label,) if format.label else MARKED:
        if isinstance(row.get(name), list) and all(isinstance(one, list | dict) for one in row[name]):
            return cast(list[Any], row[name])
    return None


def _marked(
    text: str, marks: Sequence[Any], unit: str, number: int, source: Mapping[str, Any] | None
) -> Example | InvalidRow:
    """Returns the example of a text with entities, as tags B-TYPE and I-TYPE of its words.

    marks: [first character, the one after the last, type], or objects with these. Raises ValueError or TypeError for
    another form.
    """
    spans, widened = cut(text, unit), 0
    tags = ["O"] * len(spans)
    for start, end, kind in sorted(map(_mark, marks)):
        if not 0 <= start < end <= len(text) or not text[start:end].strip():
            return InvalidRow(number, "an entity outside of the text")
        start, end = end - len(text[start:end].lstrip()), start + len(text[start:end].rstrip())
        inside = [i for i, (first, last) in enumerate(spans) if first < end and start < last]
        if any(tags[i] != "O" for i in inside):
            return InvalidRow(number, "entities that share a word")
        tags[inside[0]], tags[inside[0] + 1 : inside[-1] + 1] = f"B-{kind}", [f"I-{kind}"] * (len(inside) - 1)
        widened += (spans[inside[0]][0], spans[inside[-1]][1]) != (start, end)
    return TaggedExample((text,), tuple(tags), number, spans=spans, widened=widened, source=source)


def _mark(mark: Any) -> tuple[int, int, str]:
    """Returns start, end and type of an entity of doccano, Label Studio, Prodigy or spaCy, or of `bertie predict`."""
    if isinstance(mark, dict):
        mark = [next((mark[name] for name in names if name in mark), None) for names in (STARTS, ENDS, TYPES)]
    start, end, kind = mark
    (kind,) = kind if isinstance(kind, list) else [kind]
    if not (type(start) is int and type(end) is int and isinstance(kind, str) and kind.strip()):
        raise ValueError
    return start, end, kind.strip()


def _unit(texts: Iterable[Any]) -> str:
    """Returns "character" where most letters are of a script without spaces between words, or are Hangul syllables,
    since Korean words end in particles; else "word"."""
    letters = "".join(filter(str.isalpha, "".join(text for text in texts if isinstance(text, str))))
    return "character" if 2 * len(UNSPACED.findall(letters)) > len(letters) else "word"


def of_words(words: object, tags: object, line: int) -> Example | InvalidRow:
    """Returns the example of the words of a sentence, with or without tags."""
    if not _texts(words) or not (tags is None or _texts(tags)):
        return InvalidRow(line, "tokens or tags are not texts")
    if tags is not None and len(tags) != len(words):
        return InvalidRow(line, "tokens and tags differ in number")
    example = spaced(words, tags or (), line)
    return replace(example, label=None) if tags is None else example


def _texts(values: object) -> TypeGuard[list[str]]:
    return isinstance(values, list) and bool(values) and all(isinstance(v, str) and v.strip() for v in values)


FORMATS: dict[str, Callable[[IO[bytes], TableFormat, str], Iterator[Example | InvalidRow]]] = {
    "conll": _conll,
    "conllu": _conllu,
    "klue": _klue,
    **{kind: partial(_objects, kind) for kind in TABLES},
}
