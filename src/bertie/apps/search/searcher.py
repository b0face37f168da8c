"""The stages of a search: words and vectors, joined; then re-ranking; then an answer.

    question -> words (BM25) ---+
                                +-- fused -> reranked -> answer, or none
             -> vectors --------+

Every stage but the first is optional. Each is timed, and the ranking after each is kept.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertie.apps.search import models
from bertie.apps.search.embedded import Embedded
from bertie.apps.search.engine import Float, Index, RankedPassages
from bertie.apps.search.index import Changes, IndexConfig
from bertie.apps.search.models import Embedder, PassageAnswer
from bertie.apps.search.snippets import Snippet, snippet
from bertie.apps.search.store import Passage
from bertie.apps.search.vectors import Gone
from bertie.platform import Predictor, Registry, UsageError

if TYPE_CHECKING:
    import pandas

CONSTANT = 60  # of reciprocal rank fusion: Cormack et al. 2009
_FIRST_PASSAGES = 100  # passages of the first stages, or as many as are wanted
_MAX_QUESTION_CHARACTERS = 2000  # characters of a question that models read


@dataclass(frozen=True)
class SearchDepth:
    """The numbers of passages from the first stages, for re-ranking, and for reading.

    first: None: 100, or the number of passages that are wanted if that is higher.
    """

    first: int | None = None
    rerank: int = 50
    read: int = 3

    def __post_init__(self) -> None:
        if any(number is not None and number < 1 for number in (self.first, self.rerank, self.read)):
            raise UsageError(f"{self} has a number below 1. Leave a stage out by omitting its model.")


@dataclass(frozen=True)
class Hit:
    """A found passage. score: of the last stage that ranked it; ranks: from 1, by stage."""

    passage: Passage
    score: float
    ranks: Mapping[str, int]
    snippet: Snippet
    answer: PassageAnswer | None = None

    def html(self) -> str:
        """Returns the snippet with its marks as HTML."""
        text, at, parts = self.passage.text, self.snippet.start, list[str]()
        for start, stop in self.snippet.marks:
            parts += [escape(text[at:start]), f"<mark>{escape(text[start:stop])}</mark>"]
            at = stop
        return "".join([*parts, escape(text[at : self.snippet.stop])])

    def as_json(self) -> dict[str, Any]:
        """Returns JSON values; marks are characters of the passage."""
        passage = self.passage
        place = {"source": passage.source, "document": passage.number, "start": passage.start}
        place |= {name: value for name in ("name", "title", "line", "page") if (value := getattr(passage, name))}
        return {
            **place,
            "text": passage.text,
            "score": round(self.score, 6),
            "ranks": dict(self.ranks),
            "snippet": [self.snippet.start, self.snippet.stop],
            "marks": [list(mark) for mark in self.snippet.marks],
            **({"answer": self.answer.as_json()} if self.answer else {}),
        }


@dataclass(frozen=True)
class Found:
    """The result of a question.

    Attributes:
        hits: The passages, best first.
        answer: The best answer; None where no model looked for one, or there is none.
        read: Whether a model looked for an answer.
        rankings: The passages after each stage.
        seconds: The time of each stage.
    """

    question: str
    hits: list[Hit]
    answer: PassageAnswer | None = None
    read: bool = False
    rankings: Mapping[str, RankedPassages] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)

    def to_pandas(self) -> "pandas.DataFrame":
        """Returns a row for each passage: its place, title, text and score."""
        import pandas

        rows = [(hit.passage.place, hit.passage.title, hit.passage.text, hit.score) for hit in self.hits]
        return pandas.DataFrame(rows, columns=["place", "title", "text", "score"])

    def __repr__(self) -> str:
        answer = f", answer {self.answer.text!r}" if self.answer else ""
        return f"Found({self.question!r}, {len(self.hits)} passages{answer})"

    def _repr_html_(self) -> str:
        answer = f"<p><b>{escape(self.answer.text)}</b></p>" if self.answer else ""
        rows = (f"<li><i>{escape(hit.passage.place)}</i><br>{hit.html()}</li>" for hit in self.hits)
        return f"{answer}<ol>{''.join(rows)}</ol>"

    def as_json(self) -> dict[str, object]:
        """Returns JSON values, without the rankings."""
        answer = {"answer": self.answer.as_json() | {"hit": self.answer.passage} if self.answer else None}
        return {
            "question": self.question,
            **(answer if self.read else {}),
            "hits": [hit.as_json() for hit in self.hits],
            "seconds": {name: round(value, 5) for name, value in self.seconds.items()},
        }


class Searcher:
    """An open index with the models of a search. Threads may share it; they wait for each other.

    Args:
        folder: The folder of an index, or an index that another engine keeps.
        embedder: The model of the index's vectors, or one that is loaded for the first question. Without it, only words
            are looked up.
        ranker: A model for re-ranking.
        reader: A model that answers questions from a passage.
        depth: The number of passages of each stage.
        words: Whether words are looked up; without, vectors alone.
        fusion: How words and vectors are joined: scores (the mean of both) or ranks (reciprocal rank fusion).
        rerank_alone: Whether the re-ranking model alone decides the order, and not the mean of its scores and those
            before.
        changes: What was done to the index, if it was made or changed for this search.

    Raises:
        DataError: The folder is no index, or damaged.
        UsageError: The index has no vectors; neither words nor vectors are searched; an unknown fusion.
    """

    def __init__(
        self,
        folder: Path | str | Index,
        *,
        embedder: Predictor | Embedder | None = None,
        ranker: Predictor | None = None,
        reader: Predictor | None = None,
        depth: SearchDepth | None = None,
        words: bool = True,
        fusion: str = "scores",
        rerank_alone: bool = False,
        changes: Changes | None = None,
    ) -> None:
        self.store: Index = Embedded(Path(folder)) if isinstance(folder, (str, Path)) else folder
        self.config = IndexConfig.of_json(self.store.get("config"))
        self._lock = threading.RLock()
        self.embedder, self.ranker, self.reader = embedder, ranker, reader
        self.depth, self.words = depth or SearchDepth(), words
        self.fuse, self.rerank_alone = FUSIONS[fusion], rerank_alone
        self.changes = changes
        if embedder is not None and not self.store.get("embedder"):
            raise UsageError(f"{self.store.where} has no vectors. Make them: bertie index -o INDEX --embed MODEL")
        if not words and embedder is None:
            why = "is searched without its model" if self.store.get("embedder") else "has no vectors"
            raise UsageError(f"A search needs words, vectors or both. {self.store.where} {why}.")

    def __repr__(self) -> str:
        return f"Searcher({self.store.where!r})"

    def __enter__(self) -> "Searcher":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def search(self, question: str, top: int = 10, *, vector: Float | None = None) -> Found:
        """Returns the best passages for a question. vector: that of the question, if it is known. (H,)"""
        if not isinstance(question, str):
            raise UsageError(f"The question is of type {type(question).__name__}. Pass a text.")
        if not isinstance(top, Integral) or top < 0:
            raise UsageError(f"top is {top!r:.60}; it must be a whole number of at least 0.")
        if not question.strip():
            raise UsageError("The question is empty.")
        for attempt in (1, 2):
            try:
                with self._lock, self.store.reading():  # one connection, which has one transaction at a time
                    return self._search(question, top, vector)
            except Gone:  # a file of vectors was replaced between two reads
                if attempt == 2:
                    raise
        raise AssertionError

    def _search(self, question: str, top: int, vector: Float | None) -> Found:
        seconds: dict[str, float] = {}
        rankings: dict[str, RankedPassages] = {}
        first = max(top, _FIRST_PASSAGES) if self.depth.first is None else self.depth.first
        terms = self.config.terms.asked(question)
        if self.words:
            with _timed(seconds, "words"):
                rankings["words"] = self.store.matches(terms, first)
        if self.embedder is not None:
            with _timed(seconds, "embed"):
                vector = _vectors(self.embedder, [question])[0] if vector is None else vector
            with _timed(seconds, "vectors"):
                rankings["vectors"] = self.store.nearest(vector, first)
        if len(rankings) > 1:
            rankings["fused"] = self.fuse([*rankings.values()])
        order = [*rankings.values()][-1]
        shown = max(top, self.depth.rerank) if self.ranker else top
        passages = {one.id: one for one in self.store.passages([i for i, _ in order[:shown]])}
        if self.ranker is not None:
            with _timed(seconds, "rerank"):
                order = rankings["reranked"] = self._reranked(self.ranker, question, order, passages)
        ranks = {name: {i: rank for rank, (i, _) in enumerate(one, 1)} for name, one in rankings.items()}
        chosen = [(passages[i], score) for i, score in order if i in passages][:top]
        best: list[PassageAnswer] = []
        if self.reader is not None:
            with _timed(seconds, "read"):
                best = models.span_answers(
                    self.reader, question[:_MAX_QUESTION_CHARACTERS], [one.text for one, _ in chosen[: self.depth.read]]
                )
        own = {answer.passage: answer for answer in best if not answer.silent}
        cut, query_terms = self.config.terms.of_word(), set(terms)
        hits = [
            Hit(
                passage,
                score,
                {name: of[passage.id] for name, of in ranks.items() if passage.id in of},
                snippet(passage.text, query_terms, cut, own.get(number)),
                own.get(number),
            )
            for number, (passage, score) in enumerate(chosen)
        ]
        answer = best[0] if best and not best[0].silent else None
        return Found(question, hits, answer, self.reader is not None, rankings, seconds)

    def _reranked(
        self, ranker: Predictor, question: str, order: RankedPassages, passages: Mapping[int, Passage]
    ) -> RankedPassages:
        """Returns the first passages in the order of the model, joined with that before, and then the others."""
        head = [one for one in order[: self.depth.rerank] if one[0] in passages]
        scores = models.passage_relevance(
            ranker, question[:_MAX_QUESTION_CHARACTERS], [passages[i].whole for i, _ in head]
        )
        best = sorted(zip([i for i, _ in head], scores, strict=True), key=lambda one: -one[1])
        return (best if self.rerank_alone else by_scores([head, best])) + order[self.depth.rerank :]

    def question_vectors(self, questions: Sequence[str]) -> "list[Float | None]":
        """Returns the vectors of many questions at once; None where there is no embedder."""
        if self.embedder is None:
            return [None] * len(questions)
        return [*_vectors(self.embedder, questions)]

    def close(self) -> None:
        """Closes the index."""
        self.store.close()


def _vectors(embedder: Predictor | Embedder, questions: Sequence[str]) -> Float:
    model = embedder.load() if isinstance(embedder, Embedder) else embedder
    return models.embed_texts(model, [question[:_MAX_QUESTION_CHARACTERS] for question in questions], "query")


def by_scores(rankings: Sequence[RankedPassages]) -> RankedPassages:
    """Joins rankings: the mean of their scores, each from 0 for its last passage to 1 for its first.

    A passage that a ranking lacks counts as its last. Bruch et al. 2023, arXiv:2210.11934, 4.
    """
    scores: dict[int, float] = {}
    for ranking in rankings:
        low, high = (ranking[-1][1], ranking[0][1]) if ranking else (0.0, 0.0)
        for passage, score in ranking:
            share = (score - low) / (high - low) if high > low else 1.0
            scores[passage] = scores.get(passage, 0.0) + share / len(rankings)
    return sorted(scores.items(), key=lambda one: (-one[1], one[0]))


def by_ranks(rankings: Sequence[RankedPassages]) -> RankedPassages:
    """Joins rankings: the score of a passage is the sum of 1 / (60 + rank). Cormack et al. 2009."""
    scores: dict[int, float] = {}
    for ranking in rankings:
        for rank, (passage, _) in enumerate(ranking, 1):
            scores[passage] = scores.get(passage, 0.0) + 1 / (CONSTANT + rank)
    return sorted(scores.items(), key=lambda one: (-one[1], one[0]))


FUSIONS: Registry[Callable[[Sequence[RankedPassages]], RankedPassages]] = Registry(
    "fusion", [("scores", by_scores), ("ranks", by_ranks)]
)


@contextmanager
def _timed(seconds: dict[str, float], stage: str) -> Iterator[None]:
    began = time.perf_counter()
    yield
    seconds[stage] = time.perf_counter() - began
