"""Small tables of generated examples, so that every command can be tried without a download.

Template grammars generate the texts, but those of `directions`, which are written. The same call returns the same rows
on every machine. A model with a high score has learned the grammar, and little about real text.
"""

import csv
import io
import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bertie.apps.sample import directions, korean, names, notes, pairs, pictures, questions, reviews, scenes
from bertie.platform import Registry, UsageError

_Row = dict[str, Any]
Make = Callable[[int, random.Random], _Row]  # the row after so many others
MOST_REPEATS = 1_000  # in a row: then the grammar has few other rows left


@dataclass(frozen=True)
class Sample:
    """A table: what its rows are, how many by default, the kind of file, and language -> what makes a row.

    suffixes: of the languages whose rows are another kind of file. Korean names end within words: characters mark them.
    """

    title: str
    rows: int
    suffix: str
    languages: Mapping[str, Make]
    suffixes: Mapping[str, str] = field(default_factory=dict)

    def suffix_of(self, language: str) -> str:
        """Returns the suffix of a file in a language."""
        return self.suffixes.get(language, self.suffix)


SAMPLE_TABLES = Registry("table", (
    ("reviews", Sample("reviews, columns text and label", 120, ".csv", reviews.LANGUAGES)),
    ("names", Sample("sentences with tagged names", 400, ".conll",
                     {"en": names.make_tagged_words, "ko": korean.name_row}, {"ko": ".jsonl"})),
    ("questions", Sample("questions, each with a context and its answer", 600, ".jsonl", questions.QUESTION_ROWS)),
    ("pairs", Sample("pairs of sentences, columns sentence1, sentence2 and score", 400, ".csv", pairs.PAIR_ROWS)),
    ("directions", Sample("questions with two passages", directions.DIRECTION_ROWS, ".jsonl",
                          {"en": directions.make_direction})),
    ("notes", Sample("notes of a veterinary clinic, columns text and label", 300, ".csv", {"en": notes.make_note})),
    ("pictures", Sample("pictures of two shapes, columns text and image", 600, ".jsonl",
                        {"en": pictures.make_picture})),
    ("simple-pictures", Sample("pictures of two shapes, with a sentence about one", 600, ".jsonl",
                               {"en": pictures.side_statement})),
    ("picture-questions", Sample("questions about pictures, columns text, image and label", 600, ".jsonl",
                                 {"en": pictures.question})),
    ("scenes", Sample("statements about scenes, columns text, image and label", 600, ".jsonl",
                      {"en": scenes.make_statement})),
    ("simple-scenes", Sample("simple statements about scenes, columns text, image and label", 600, ".jsonl",
                             {"en": scenes.item_statement})),
))  # fmt: skip


def table(name: str, language: str = "en", rows: int | None = None, seed: int = 0) -> list[_Row]:
    """Returns the rows of a generated table, in random order without duplicates.

    Args:
        name: "reviews", "names", "questions", "pairs", "directions", "notes", "pictures", "simple-pictures",
            "picture-questions", "scenes" or "simple-scenes".
        language: "en", or "ko" for reviews, names, questions and pairs.
        rows: Number of rows. Default: that of the table.
        seed: Seed of the generator.

    Returns:
        Rows as dictionaries, column to value.

    Raises:
        UsageError: There is no such table, language, or number of different rows.
    """
    kind = SAMPLE_TABLES[name]
    make, rows = Registry("language", kind.languages.items())[language], kind.rows if rows is None else rows
    rng = random.Random(seed)
    unique: dict[str, _Row] = {}
    repeats = 0
    while len(unique) < rows:
        row = make(len(unique), rng)
        repeats = repeats + 1 if (key := json.dumps(row)) in unique else 0
        if repeats > MOST_REPEATS:
            raise UsageError(
                f"{name} has little more than {len(unique):,} different rows; {rows:,} were asked for. Pass --rows "
                f"{len(unique)} or less."
            )
        unique[key] = row
    table = list(unique.values())
    rng.shuffle(table)
    return table


def table_text(rows: list[_Row], suffix: str) -> str:
    """Rows as the text of a file of that kind."""
    return WRITERS[suffix](rows)


def _csv(rows: list[_Row]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _conll(rows: list[_Row]) -> str:
    lines = (zip(row["tokens"], row["tags"], strict=True) for row in rows)
    return "\n".join("".join(f"{token} {tag}\n" for token, tag in sentence) for sentence in lines)


def _jsonl(rows: list[_Row]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


WRITERS: Mapping[str, Callable[[list[_Row]], str]] = {".csv": _csv, ".conll": _conll, ".jsonl": _jsonl}
