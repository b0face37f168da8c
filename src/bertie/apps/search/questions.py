"""Questions with the documents that answer them, for evaluation and training.

SQuAD's .json, and .jsonl with "context"       the document is the one with this text
.jsonl: {"question", "relevant": ids or {id: grade}, "answers": [...]}     by the ids of the documents
.jsonl of questions with ids, and a table of relevance (query-id, corpus-id, score), as in BEIR
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertie.apps.search.engine import Index
from bertie.platform import BadRecord, DataError, Example, SourceFile

_TEXTS = ("question", "query", "text")
_IDS = ("_id", "id", "query-id")


@dataclass(frozen=True)
class SearchQuestion:
    """A question. relevant: name of a document -> grade; context: the text of the document instead."""

    text: str
    relevant: Mapping[str, float] = field(default_factory=dict)
    context: str = ""
    answers: tuple[str, ...] = ()

    def documents(self, store: Index) -> dict[int, float]:
        """Returns the documents of an index that answer the question, with their grades, which are above 0."""
        if self.context:
            return dict.fromkeys(store.documents_of(self.context), 1.0)
        return {i: grade for name, grade in self.relevant.items() for i in store.documents_named(name) if grade > 0}


def read_questions(path: Path | str, qrels: Path | str | None = None) -> list[SearchQuestion]:
    """Returns the questions of a file. qrels: the table of relevance, for questions with ids.

    Raises DataError for a missing or unreadable file, and where no question has a document.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path} does not exist.")
    if path.suffix.lower() == ".json":
        questions = [
            _of_example(row) for row in SourceFile(path).questions() if isinstance(row, Example) and row.label != ()
        ]
    else:
        questions = [*_of_rows(path, _relevance(Path(qrels)) if qrels else None)]
    if not any(question.context or question.relevant for question in questions):
        raise DataError(
            f"{path} has no question with a document: it needs a column context or relevant, or pass --qrels FILE."
        )
    return questions


def _of_example(row: Example) -> SearchQuestion:
    return SearchQuestion(row.texts[0], context=row.texts[1], answers=tuple(text for text, _ in row.label or ()))


def _of_rows(path: Path, graded: Mapping[str, Mapping[str, float]] | None) -> Iterator[SearchQuestion]:
    for line, row, fields in SourceFile(path).objects():  # with its lists and objects
        text = None if isinstance(row, BadRecord) else next((row[name] for name in _TEXTS if row.get(name)), None)
        if isinstance(row, BadRecord) or not isinstance(text, str):
            raise DataError(f"{path}:{line}: no question. One of the columns {', '.join(_TEXTS)} is needed.")
        if graded is not None:
            name = next((str(row[name]) for name in _IDS if row.get(name) not in (None, "")), "")
            if name in graded:  # the others have no judgment
                yield SearchQuestion(text, graded[name])
            continue
        try:
            grades, answers = _grades(fields.get("relevant")), _texts(fields.get("answers"))
        except (ValueError, TypeError, KeyError):
            raise DataError(
                f"{path}:{line}: relevant must be ids, or an object of ids and grades; answers must be texts."
            ) from None
        yield SearchQuestion(text, grades, str(row.get("context") or ""), answers)


def _grades(value: Any) -> dict[str, float]:
    """Returns {id: grade} of a list of ids, an object, or either as JSON text."""
    if isinstance(value, str):
        value = json.loads(value) if value[:1] in "[{" else [value]
    if isinstance(value, Mapping):
        return {str(name): float(grade) for name, grade in value.items()}
    return {str(name): 1.0 for name in value or ()}


def _texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, Mapping):  # {"text": [...], "answer_start": [...]}
        value = value["text"]
    values: Sequence[object] = [value] if isinstance(value, str) else value or ()
    return tuple(str(one["text"] if isinstance(one, Mapping) else one) for one in values)


def _relevance(path: Path) -> dict[str, dict[str, float]]:
    """Returns question -> {document: grade} of a table: BEIR's with a header, or trec_eval's four columns."""
    grades: dict[str, dict[str, float]] = {}
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read ({error}).") from None
    for number, line in enumerate(lines, 1):
        cells = line.split("\t") if "\t" in line.strip() else line.split()  # BEIR's ids may have spaces
        if not line.strip():
            continue
        try:
            grades.setdefault(cells[0].strip(), {})[cells[-2].strip()] = float(cells[-1])
        except (IndexError, ValueError) as error:
            if number == 1 and isinstance(error, ValueError):
                continue  # the header
            raise DataError(f"{path}:{number} is not `question document grade`.") from None
    return grades
