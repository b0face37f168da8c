"""Questions with answers in a context: SQuAD's JSON, which KorQuAD and KLUE-MRC share, or one per line.

    {"data": [{"paragraphs": [{"context": ..., "qas": [{"id", "question", "answers": [{"text", "answer_start"}]}]}]}]}
    {"id": ..., "question": ..., "context": ..., "answers": [{"text": ..., "answer_start": ...}]}

A parquet file has one question in a row, with these columns.

An example's texts are (question, context). Its label is every accepted answer as (text, start), empty for an
unanswerable question. Without `answer_start`, the text's only place is taken. A start of -1 means that the text is not
at the given position, or has several places; such a question is scored, but not used for training.

TriviaQA has the documents that were found for a question, and answers without a place (distant supervision):

    qa/wikipedia-train.json      {"Data": [{"Question", "QuestionId", "Answer": {"Value", "Aliases"}, "EntityPages"}]}
    evidence/wikipedia/NAME.txt  a document; web-*.json has "SearchResults" and evidence/web

Each pair of a question and a document is an example: the first 400 words of the document, where they contain the answer
or one of its aliases (Devlin et al. 2018, section 4.2). Its label is their first places. Joshi et al. 2017.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bertie.errors import BadFile, DataError
from bertie.files import Json
from bertie.io.fields import first_given, source_of
from bertie.io.json_rows import UNREADABLE_TEXT
from bertie.io.lines import BadRecord, check_characters, open_file, read_text, read_whole, text_lines, where_of
from bertie.io.rows import records, table_kind
from bertie.io.streams import suffix_of
from bertie.io.table_format import RECOGNISED, TableFormat
from bertie.io.tables import Example
from bertie.io.words import UNITS, whole_number

_Answers = tuple[tuple[str, int], ...]
MISPLACED = -1
_LINES = ("jsonl", "ndjson")
MAX_CONTEXT = 1 << 18  # characters that are read in windows: the longest Wikipedia articles have as many


def questions(path: Path | str, format: TableFormat = RECOGNISED) -> Iterator[Example | BadRecord]:
    """Yields the questions of a file or of standard input in order; `line` counts questions, or lines of JSON lines,
    from 1.

    Raises DataError for a missing file, or another format.
    """
    if format.file.kind == TRIVIA_KIND:
        yield from trivia(path)
        return
    suffix = suffix_of(path)
    if suffix in _LINES or (suffix != "json" and format.file.kind in _LINES):  # SQuAD's frame is one object on one line
        with open_file(path) as file:
            for number, line in text_lines(file, where_of(path), format.file):
                yield line if isinstance(line, BadRecord) else _of_line(line, number, format)
        return
    if (format.file.kind or table_kind(path)) == "parquet":
        for number, row in records(path, format):
            yield row if isinstance(row, BadRecord) else _of_fields(source_of(row), number, format)
        return
    text = read_text(path, format.file.encoding)
    try:
        articles = json.loads(text)["data"]
        paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
        pairs = [(paragraph["context"], qa) for paragraph in paragraphs for qa in paragraph["qas"]]
    except (ValueError, RecursionError) as error:
        raise BadFile(f"{path} is not JSON ({error}). The file may be truncated.") from None
    except (KeyError, TypeError):
        raise DataError(
            f'{path} is not in SQuAD format: {{"data": [{{"paragraphs": [{{"context", "qas"}}]}}]}} was '
            "expected. For one question per line, use a .jsonl file."
        ) from None
    for number, (context, qa) in enumerate(pairs, 1):
        yield _question(context, qa, number, format)


def _of_line(row: str, line: int, format: TableFormat) -> Example | BadRecord:
    try:
        fields = json.loads(row)
    except (ValueError, RecursionError):
        return BadRecord(line, "not JSON" if row.strip() else "empty line")
    if not isinstance(fields, dict):
        return BadRecord(line, "not a JSON object")
    return _of_fields(fields, line, format)


def _of_fields(fields: Mapping[str, object], line: int, format: TableFormat) -> Example | BadRecord:
    example = _question(fields.get("context"), fields, line, format)
    return (
        replace(example, source=fields)
        if format.keep and getattr(example, "reason", "") != UNREADABLE_TEXT
        else example
    )


def _question(context: Any, qa: Any, number: int, format: TableFormat) -> Example | BadRecord:
    question = qa.get("question") if isinstance(qa, Mapping) else None
    if not isinstance(context, str) or not isinstance(question, str):
        return BadRecord(number, "no question or no context")
    if not context.strip():
        return BadRecord(number, "empty context")
    if not question.strip():
        return BadRecord(number, "empty question")
    if len(context) > MAX_CONTEXT:
        return BadRecord(number, f"a context longer than {MAX_CONTEXT:,} characters")
    try:
        check_characters([context, qa])
    except (ValueError, RecursionError):
        return BadRecord(number, UNREADABLE_TEXT)
    name = str(first_given(qa.get("id"), qa.get("guid"), number))
    answers_field = qa["answers"] if "answers" in qa else qa.get("answer")
    if answers_field is None and "answers" not in qa and "is_impossible" not in qa:
        return Example((question, context), None, number, name)
    answers: _Answers | None
    try:
        impossible = str(qa.get("is_impossible")).lower() in ("true", "1")  # other programs write "false" as a text
        answers = (
            ()
            if impossible
            else place_answers(() if answers_field is None and "answers" not in qa else answers_field, context)
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        if format.columns.labelled:
            return BadRecord(number, "answers are not text and answer_start")
        answers = None
    return Example((question, context), answers, number, name)


def place_answers(answers: Any, context: str) -> _Answers:
    """Returns answers with their starts, checked. Takes a list of objects, or an object of two lists."""
    if isinstance(answers, str) or (isinstance(answers, dict) and isinstance(answers.get("text"), str)):
        answers = [answers]
    if isinstance(answers, dict):
        starts = answers.get("answer_start") or [None] * len(answers["text"])
        answers = [{"text": text, "answer_start": start} for text, start in zip(answers["text"], starts, strict=True)]
    places = []
    for answer in answers:
        if isinstance(answer, str):
            answer = {"text": answer}
        text, start = answer["text"], whole_number(answer.get("answer_start"))
        if not isinstance(text, str) or (start is None and answer.get("answer_start") is not None):
            raise TypeError
        places.append((text, only_place(text, context) if start is None else _place(text, context, start)))
    return tuple(places)


def only_place(text: str, context: str) -> int:
    """Returns where a text begins, if it occurs once in the context; MISPLACED otherwise."""
    start = context.find(text) if text.strip() else MISPLACED
    return start if start < 0 or context.find(text, start + 1) < 0 else MISPLACED


def _place(text: str, context: str, start: int) -> int:
    """Returns where a text begins, from its offset in characters, or, where it is not there, in UTF-16 or bytes."""
    if not text.strip() or start < 0:
        return MISPLACED
    if context.startswith(text, start):
        return start
    for offsets in UNITS.values():
        at = None if context.isascii() else offsets(context)
        if at is not None and start < len(at) and at[start] >= 0 and context.startswith(text, at[start]):
            return at[start]
    return MISPLACED


TRIVIA_KIND = "triviaqa"  # of a table's format
_MAX_DOCUMENT_WORDS = 400  # of a document
DOCUMENTS = {"EntityPages": "wikipedia", "SearchResults": "web"}
"""Key of a question's documents -> the folder of their files."""
_BEGINNING = re.compile(rf"\s*(?:\S+\s+){{0,{_MAX_DOCUMENT_WORDS - 1}}}\S+")


def trivia(path: Path | str) -> Iterator[Example | BadRecord]:
    """Yields the pairs of a file in order; `line` counts pairs from 1. Raises DataError for another format."""
    try:
        records = json.loads(read_whole(path).decode("utf-8-sig"))["Data"]
        pairs = [
            (one, folder, page) for one in records for key, folder in DOCUMENTS.items() for page in one.get(key, ())
        ]
    except (ValueError, RecursionError) as error:
        raise BadFile(f"{path} is not JSON ({error}). The file may be truncated.") from None
    except (KeyError, TypeError, AttributeError):
        raise DataError(f'{path} is not in the format of TriviaQA: {{"Data": [{{"Question", "Answer"}}]}}.') from None
    evidence = Path(path).parent.parent / "evidence"
    for number, (one, folder, page) in enumerate(pairs, 1):
        try:
            yield _pair(one, evidence / folder, str(page["Filename"]), number)
        except (KeyError, TypeError, AttributeError):
            yield BadRecord(number, "no question, answer or name of a document")


def _pair(record: Json, folder: Path, name: str, number: int) -> Example | BadRecord:
    question, answer = str(record["Question"]), record["Answer"]
    names = list(dict.fromkeys(str(alias) for alias in (answer["Value"], *answer.get("Aliases", ()))))
    file = (folder / name).resolve()
    if not file.is_relative_to(folder.resolve()):
        return BadRecord(number, "a document outside the folder of evidence")
    try:
        match = _BEGINNING.match(file.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return BadRecord(number, "no file of the document")
    context = match[0] if match else ""
    places = [
        (context[m.start() : m.end()], m.start()) for alias in names if alias.strip() and (m := _at(alias, context))
    ]
    if not places:
        return BadRecord(number, f"no answer in the first {_MAX_DOCUMENT_WORDS} words")
    first = sorted(set(places), key=lambda place: (place[1], -len(place[0])))
    return Example((question, context), tuple(first), number, f"{record['QuestionId']}--{name}")


def _at(alias: str, context: str) -> re.Match[str] | None:
    """Returns the first place of an alias as whole words, in any case."""
    return re.search(rf"(?<!\w){re.escape(alias.strip())}(?!\w)", context, re.IGNORECASE)
