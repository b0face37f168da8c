"""Training data for a re-ranker or for vectors: questions, a passage that answers, and hard negatives.

Negatives are passages that the first stages of a search rank high and that do not answer (Karpukhin et al. 2020, 3.2).
A passage that contains one of the known answers is left out, since it may answer too.

    lists    {"question", "choices": [negative, passage, ...], "label": 1}        --task choice: a listwise loss
    pairs    {"question", "sentence", "label": 1 or 0}                            --task rank
    triples  {"anchor": question, "positive", "negative", "negative_2" ...}       --task embed
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from bertie.apps.search.questions import SearchQuestion
from bertie.apps.search.searcher import Searcher
from bertie.apps.search.store import Passage

NegativesForm = Literal["lists", "pairs", "triples"]


@dataclass
class Left:
    """Questions that gave no example: their document is not in the index, or too few negatives were found."""

    without_document: int = 0
    without_negatives: int = 0

    def why_none(self) -> str:
        """Returns why no question gave an example, and what to do."""
        absent = f"{self.without_document:,} questions have no document in this index"
        if not self.without_negatives:
            return (
                f"{absent}, and there are no others. A question names its document by the text (context), by the id or "
                "by the path of the file (relevant)."
            )
        few = f"{self.without_negatives:,} questions have fewer wrong passages than --count asks for"
        return f"{few}. Ask for fewer, or index more documents." + (f" {absent}." if self.without_document else "")


def mine_negatives(
    searcher: Searcher,
    questions: Sequence[SearchQuestion],
    *,
    count: int,
    form: NegativesForm = "lists",
    seed: int = 0,
    left: Left,
) -> Iterator[dict[str, object]]:
    """Yields the rows of each question.

    Args:
        searcher: An index of the documents; its models decide which stages are used.
        questions: Questions with their documents.
        count: Negatives for each question, drawn from those that are ranked highest.
        form: lists, pairs or triples.
        seed: Of the draw, and of the place of the right passage.
        left: Counts the questions that gave no rows.
    """
    rng = np.random.default_rng(seed)
    for question, vector in zip(
        questions, searcher.question_vectors([question.text for question in questions]), strict=True
    ):
        documents = question.documents(searcher.store)
        if not documents:
            left.without_document += 1
            continue
        ranking = [*searcher.search(question.text, 0, vector=vector).rankings.values()][-1]  # without snippets
        passages = searcher.store.passages([passage for passage, _ in ranking])
        wrong = [passage for passage in passages if _is_wrong(passage, question, documents)]
        right = _answering(searcher, passages, question, documents)
        if right is None or len(wrong) < count:
            left.without_negatives += 1
            continue
        hard = wrong[: 4 * count]
        chosen = [hard[number].whole for number in sorted(rng.choice(len(hard), count, replace=False).tolist())]
        place = int(rng.integers(count + 1))  # anywhere, or a model and a metric could go by the place
        texts = [*chosen[:place], right.whole, *chosen[place:]]
        if form == "triples":
            names = ("negative", *(f"negative_{number}" for number in range(2, count + 1)))
            yield {"anchor": question.text, "positive": right.whole, **dict(zip(names, chosen, strict=True))}
        elif form == "lists":
            yield {"question": question.text, "choices": texts, "label": place}
        else:
            for number, text in enumerate(texts):
                yield {"question": question.text, "sentence": text, "label": int(number == place)}


def _is_wrong(passage: Passage, question: SearchQuestion, documents: Mapping[int, float]) -> bool:
    return passage.document not in documents and not any(text in passage.text for text in question.answers if text)


def _answering(
    searcher: Searcher, passages: Sequence[Passage], question: SearchQuestion, documents: Mapping[int, float]
) -> Passage | None:
    """Returns the passage of the best document that has an answer, or else the one that is ranked highest."""
    best = max(documents, key=lambda document: documents[document])
    own = searcher.store.passages_of(best)
    holding = [passage for passage in own if any(text in passage.text for text in question.answers if text)]
    ranked = [passage for passage in passages if passage.document == best]
    return next(iter(holding or ranked or own), None)
