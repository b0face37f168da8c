"""Sentences to probe: words with their characters, and what a file tells about them."""

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from bertie.platform import BadRecord, DataError, Example, SkipReport, SourceFile, TableFormat

_WORD = re.compile(r"\S+")


@dataclass(frozen=True)
class Sentence:
    """A sentence. spans: the characters of each word. Each of the others has a value per word, or is empty.

    heads: the number of the head from 1, 0 for the root. relations: to the head. tags: entities, as B-PER, I-PER, O.
    """

    text: str
    spans: tuple[tuple[int, int], ...]
    upos: tuple[str, ...] = ()
    heads: tuple[int, ...] = ()
    relations: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The words as they are written."""
        return tuple(self.text[start:end] for start, end in self.spans)


@dataclass(frozen=True)
class SentenceSource:
    """The sentences of a file, for training and for testing, and why others were left out."""

    name: str
    train: Sequence[Sentence]
    test: Sequence[Sentence]
    skipped: SkipReport


def source(
    train: Path | str, test: Path | str | None = None, *, kind: str = "", encoding: str = "utf-8", most: int, seed: int
) -> SentenceSource:
    """Returns a random sample of at most `most` sentences to train on, and of half as many to test on.

    Without a file to test on, a third of the sample is held out. kind: conllu, klue-dp, conll, klue, or a kind of
    text such as lines; by default by the name. Raises DataError for a file without sentences, or with one again and
    again.
    """
    skipped, more = SkipReport(), (most + 1) // 2
    held_out: Sequence[Sentence]
    if test is None:
        sentences = _sample(train, kind, encoding, most + more, seed, skipped)
        cut = len(sentences) - len(sentences) // 3
        sample, held_out = sentences[:cut], sentences[cut:]
    else:
        sample = _sample(train, kind, encoding, most, seed, skipped)
        held_out = _sample(test, kind, encoding, more, seed, skipped)
    if not sample or not held_out:
        raise DataError(f"{train}: too few sentences to train and test on. {skipped if skipped.total else ''}".rstrip())
    if len({one.text for one in (*sample, *held_out)}) == 1:
        raise DataError(f"{train}: all sentences are equal, so nothing can be measured. Pass different sentences.")
    return SentenceSource(str(train), sample, held_out, skipped)


def _sample(
    path: Path | str, kind: str, encoding: str, most: int, seed: int, skipped: SkipReport
) -> Sequence[Sentence]:
    rng, chosen, count = np.random.default_rng(seed), list[Sentence](), 0
    for row in read_sentences(path, kind, encoding):
        skipped.count(row)
        if isinstance(row, BadRecord):
            continue
        count += 1  # each sentence has the same probability: Vitter 1985, algorithm R
        if len(chosen) < max(1, most):
            chosen.append(row)
        elif (place := int(rng.integers(count))) < max(1, most):
            chosen[place] = row
    if not count:
        why = str(skipped) if skipped.total else "The file is empty."
        raise DataError(f"{path} has no sentence that can be read. {why}")
    random.Random(seed).shuffle(chosen)
    return chosen


def read_sentences(path: Path | str, kind: str = "", encoding: str = "utf-8") -> Iterator[Sentence | BadRecord]:
    """Yields the sentences of a file. A conllu sentence whose heads are missing has parts of speech alone."""
    file = SourceFile(path)
    kind = kind or (file.format if file.format in ("conllu", "conll") else file.table_kind)
    annotated = file.annotated(kind, encoding)
    if kind == "conllu":
        arcs = {row.line: row for row in annotated.trees()}
        for row in annotated.tags():
            if not isinstance(row, BadRecord):
                arc = arcs.get(row.line)
                label = arc.label if isinstance(arc, Example) else ()
                heads, relations = (tuple(head for head, _ in label), tuple(name for _, name in label))
                yield Sentence(row.texts[0], row.spans, upos=row.label, heads=heads, relations=relations)
            else:
                yield row
    elif annotated.has_trees:
        for row in annotated.trees():
            if not isinstance(row, BadRecord):
                heads, relations = zip(*row.label, strict=True)
                yield Sentence(row.texts[0], row.spans, heads=heads, relations=relations)
            else:
                yield row
    elif annotated.has_tags:
        for row in annotated.tags():
            if not isinstance(row, BadRecord):
                yield Sentence(row.texts[0], row.spans, tags=row.label)
            else:
                yield row
    else:
        for plain in file.examples(TableFormat.of(kind=kind, encoding=encoding, labelled=False)):
            if isinstance(plain, BadRecord):
                yield plain
            else:
                text = plain.texts[0]
                yield Sentence(text, tuple(match.span() for match in _WORD.finditer(text)))


def spaced_sentence(words: Sequence[str]) -> Sentence:
    """Returns the sentence of words with a space between each two."""
    ends = np.cumsum([len(word) + 1 for word in words]).tolist()
    return Sentence(
        " ".join(words), tuple((end - 1 - len(word), end - 1) for word, end in zip(words, ends, strict=True))
    )
