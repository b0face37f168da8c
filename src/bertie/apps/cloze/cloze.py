"""Cloze questions about raw text: practice for question answering that needs no labels.

    sentence   In 1949, Chiang fled to Taiwan with the treasury.
    question   with the treasury fled who Taiwan 1949?               answer   Chiang

The answer is a name or a number of a sentence. The question is made of other words of this sentence and a question word
for the answer; some words are left out, and half of the questions have another word order. The context is the sentence
with its neighbors. Lewis et al. 2019, "Unsupervised Question Answering by Cloze Translation" (their noisy clozes).
"""

import json
import random
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bertie import Corpus
from bertie.platform import UsageError

SHORTEST_CONTEXT, LONGEST_CONTEXT = 50, 1000
"""The limits of a context's length, in words."""
SHORTEST_SENTENCE = 6
"""Words of a sentence that is asked about."""
_MAX_WORDS = (6, 9, 12, 20)
_LEFT_OUT_SHARES = (0.2, 0.35, 0.5)
"""Of the words of a question: the most, and the share that is left out. Each question draws one."""
SHORT, SHORT_LEFT_OUT = 3, 0.5
"""Words of so many letters, mostly function words, are left out more often."""

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
_NUMBER = re.compile(r"(?<![^\W가-힣])(?<!\d[.,])\d+(?:[.,]\d+)*(?![^\W가-힣])")  # 1,200 and 1949년, not 1600s
_YEAR = re.compile(r"1\d{3}|20\d\d")
_HANGUL = re.compile(r"[가-힣]")
_KOREAN_NOUN = re.compile(r"([가-힣]{2,}?)(?=[가-힣])(?:에서|에|으로|로|과|와)?(?:[은는이가을를의도])?")
"""A word of a noun and one or two particles. Verbs with such an end are read as nouns, too."""

QUESTION_WORDS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "latin": {
        "year": ("when", "in what year"),
        "number": ("how many", "how much"),
        "name": ("what", "who", "which", "where"),
    },
    "hangul": {"year": ("언제", "몇 년"), "number": ("몇", "얼마"), "name": ("무엇", "누구", "어디", "어느 것")},
}
"""The question words of a kind of answer, by script. The kind of a name is not known."""


@dataclass
class SentenceCount:
    """How many sentences were read, and how many of them had no name and no number, or were too short."""

    read: int = 0
    unsuitable: int = 0


def make_questions(
    corpus: Corpus, *, rows: int, words: int = 130, seed: int = 0, count: SentenceCount | None = None
) -> Iterator[dict[str, object]]:
    """Yields up to `rows` questions about the sentences of a corpus, in random order, each sentence at most once.

    words: the most words of a context; each draws its own length, from half of it up. A row is that of SQuAD: id,
    question, context, answers of a text and its answer_start. Raises UsageError for a length out of range.
    """
    if not SHORTEST_CONTEXT <= words <= LONGEST_CONTEXT:
        raise UsageError(f"A context of {words:,} words; choose from {SHORTEST_CONTEXT} to {LONGEST_CONTEXT:,}.")
    shards, written, count = corpus.shards, 0, count or SentenceCount()
    bounds = shards.document_bounds()
    for j in shards.shuffled(seed):
        if written == rows:
            return
        count.read += 1
        document = int(np.searchsorted(bounds, j, side="right")) - 1
        row = _row(corpus, j, bounds[document : document + 2], random.Random(f"{seed} {j}"), words)
        if row is None:
            count.unsuitable += 1
        else:
            written += 1
            yield {"id": str(j), **row}


def format_question(row: Mapping[str, object]) -> str:
    """Returns a question as one line of JSON."""
    return json.dumps(row, ensure_ascii=False) + "\n"


def as_document(row: Mapping[str, Any]) -> str:
    """Returns a question as a document for pre-training: the question and its answer in a line, then the context.

    What is masked in one part can be read in the other, so that a model learns to read two texts.
    """
    (answer,) = row["answers"]
    return f"{row['question']} {answer['text']}\n{row['context']}\n\n"


def _row(corpus: Corpus, j: int, bounds: Iterable[int], rng: random.Random, words: int) -> dict[str, object] | None:
    sentence = _text(corpus, j)
    if len(sentence.split()) < SHORTEST_SENTENCE:
        return None
    context, at = _context(corpus, j, range(*map(int, bounds)), sentence, rng.randint(words // 2, words), rng)
    answers = [one for one in _answers(sentence) if context.count(one[1]) == 1]
    if not answers:
        return None
    start, answer = rng.choice(answers)
    question = _question(sentence[:start], answer, sentence[start + len(answer) :], rng)
    return {
        "question": question,
        "context": context,
        "answers": [{"text": answer, "answer_start": at + start}],
    }


def _context(corpus: Corpus, j: int, document: range, sentence: str, words: int, rng: random.Random) -> tuple[str, int]:
    """Returns a sentence with neighbors, without headings and other fragments, and where it starts."""
    before: list[str] = []
    after: list[str] = []
    left, right = j - 1, j + 1
    room = words - len(sentence.split())
    while room > 0 and (left >= document.start or right < document.stop):
        backward = left >= document.start and (right >= document.stop or rng.random() < 0.5)
        text = _text(corpus, left if backward else right)
        left, right = (left - 1, right) if backward else (left, right + 1)
        room -= (size := len(text.split()))
        if size >= SHORTEST_SENTENCE and room >= 0:
            (before if backward else after).append(text)
    head = " ".join([*reversed(before), ""])
    return head + " ".join([sentence, *after]), len(head)


def _text(corpus: Corpus, j: int) -> str:
    return bytes(corpus.shards.sentence(j)).decode()


def _answers(sentence: str) -> Iterator[tuple[int, str]]:
    """Yields where an answer may start, and its text: numbers, runs of words with a capital, Korean words before a
    particle."""
    yield from ((match.start(), match.group()) for match in _NUMBER.finditer(sentence))
    run: list[re.Match[str]] = []
    for word in [*_WORD.finditer(sentence), None]:
        joined = run and word and sentence[run[-1].end() : word.start()] == " "
        if run and not (joined and word and word.group()[0].isupper()):
            if run[0].start() or len(run) > 1:  # a single first word has its capital from the sentence
                yield run[0].start(), sentence[run[0].start() : run[-1].end()]
            run = []
        if word and word.group()[0].isupper():
            run.append(word)
        elif word and (noun := _KOREAN_NOUN.fullmatch(word.group())):
            yield word.start(), noun[1]


def _question(before: str, answer: str, after: str, rng: random.Random) -> str:
    """Returns the words around an answer, with a question word in its place or first."""
    left_out, most = rng.choice(_LEFT_OUT_SHARES), rng.choice(_MAX_WORDS)

    def context_words(text: str) -> list[str]:
        words = _WORD.findall(text)
        return [word for word in words if rng.random() >= (SHORT_LEFT_OUT if len(word) <= SHORT else left_out)]

    left, right = context_words(before), context_words(after)
    while len(left) + len(right) > most:
        left, right = (left[1:], right) if len(left) > len(right) else (left, right[:-1])
    order = rng.random()
    if order < 1 / 4:
        left, right = right, left
    elif order < 1 / 2:
        rng.shuffle(left)
        rng.shuffle(right)
    kind = "year" if _YEAR.fullmatch(answer) else "number" if answer[0].isdigit() else "name"
    script = "hangul" if _HANGUL.search(before + answer + after) else "latin"
    question_word = rng.choice(QUESTION_WORDS[script][kind])
    words = [question_word, *left, *right] if rng.random() < 1 / 3 else [*left, question_word, *right]
    return " ".join(words) + "?"
