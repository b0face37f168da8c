"""TriviaQA: questions, the documents that were found for them, and answers without a place (distant supervision).

    qa/wikipedia-train.json      {"Data": [{"Question", "QuestionId", "Answer": {"Value", "Aliases"}, "EntityPages"}]}
    evidence/wikipedia/NAME.txt  a document; web-*.json has "SearchResults" and evidence/web

Each pair of a question and a document is an example: the first 400 words of the document, where they contain the answer
or one of its aliases (Devlin et al. 2018, section 4.2). Its label is their first places. Joshi et al. 2017.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bertie.errors import DataError
from bertie.io.lines import BadRecord, read_whole
from bertie.io.tables import Example

KIND = "triviaqa"  # of a table's format
WORDS = 400  # of a document
DOCUMENTS = {"EntityPages": "wikipedia", "SearchResults": "web"}
"""Key of a question's documents -> the folder of their files."""
_BEGINNING = re.compile(rf"\s*(?:\S+\s+){{0,{WORDS - 1}}}\S+")


def trivia(path: Path | str) -> Iterator[Example | BadRecord]:
    """Yields the pairs of a file in order; `line` counts pairs from 1. Raises DataError for another format."""
    try:
        asked = json.loads(read_whole(path).decode("utf-8-sig"))["Data"]
        pairs = [(one, folder, page) for one in asked for key, folder in DOCUMENTS.items() for page in one.get(key, ())]
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not JSON ({error}). The file may be truncated.") from None
    except (KeyError, TypeError, AttributeError):
        raise DataError(f'{path} is not in the format of TriviaQA: {{"Data": [{{"Question", "Answer"}}]}}.') from None
    evidence = Path(path).parent.parent / "evidence"
    for number, (one, folder, page) in enumerate(pairs, 1):
        try:
            yield _pair(one, evidence / folder, str(page["Filename"]), number)
        except (KeyError, TypeError, AttributeError):
            yield BadRecord(number, "no question, answer or name of a document")


def _pair(asked: Mapping[str, Any], folder: Path, name: str, number: int) -> Example | BadRecord:
    question, answer = str(asked["Question"]), asked["Answer"]
    names = list(dict.fromkeys(str(alias) for alias in (answer["Value"], *answer.get("Aliases", ()))))
    file = (folder / name).resolve()
    if not file.is_relative_to(folder.resolve()):
        return BadRecord(number, "a document outside the folder of evidence")
    try:
        found = _BEGINNING.match(file.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return BadRecord(number, "no file of the document")
    context = found[0] if found else ""
    places = [
        (context[m.start() : m.end()], m.start()) for alias in names if alias.strip() and (m := _at(alias, context))
    ]
    if not places:
        return BadRecord(number, f"no answer in the first {WORDS} words")
    first = sorted(set(places), key=lambda place: (place[1], -len(place[0])))
    return Example((question, context), tuple(first), number, f"{asked['QuestionId']}--{name}")


def _at(alias: str, context: str) -> re.Match[str] | None:
    """Returns the first place of an alias as whole words, in any case."""
    return re.search(rf"(?<!\w){re.escape(alias.strip())}(?!\w)", context, re.IGNORECASE)
