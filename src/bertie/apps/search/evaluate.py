"""Evaluation of a search on questions with known documents: each stage, with intervals, and compared with the first.

Documents are ranked by their best passage, among the passages that a stage finds (searcher.Depth). Questions about one
document are resampled together, since they are not independent.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertie.apps.search.engine import Index, RankedPassages
from bertie.apps.search.questions import SearchQuestion
from bertie.apps.search.retrieval import RETRIEVAL_METRICS, average_metrics, of_ranking
from bertie.apps.search.searcher import Found, Searcher
from bertie.platform import ANSWER_SCRIPTS, Bootstrap, DataError, PairedDifference, console

Float = NDArray[np.float64]
ANSWERS = ("exact_match", "f1", "answered")


def evaluate_stages(
    searcher: Searcher,
    questions: Sequence[SearchQuestion],
    *,
    sample: int | None = None,
    seed: int = 0,
    script: str = "squad2.0",
) -> dict[str, object]:
    """Measures every stage of a search.

    Args:
        searcher: An index with the models of the search.
        questions: Questions with documents, and with answers where a model answers.
        sample: Number of questions, drawn with `seed`. Default: all.
        seed: Of the sample.
        script: The scoring rules of answers: squad2.0, korquad1.0 ...

    Returns:
        "stages": name -> metrics with "interval_95", and "against_<first>" with paired differences; "answers": metrics
        of the "questions" that have answers, where a model answers; "seconds": of each stage, the median and the 99th
        percentile; "questions", "without_document".

    Raises:
        DataError: No question has a document in the index.
    """
    ANSWER_SCRIPTS[script]
    known = [(question, own) for question in questions if (own := question.documents(searcher.store))]
    if not known:
        raise DataError("No question has a document in this index. Are the questions about other documents?")
    chosen = known
    if sample is not None and sample < len(known):
        numbers = np.sort(np.random.default_rng(seed).permutation(len(known))[:sample])
        chosen = [known[number] for number in numbers.tolist()]
    rows: dict[str, list[tuple[float, ...]]] = {}
    answers, of_answers = list[tuple[float, ...]](), list[tuple[int, ...]]()
    seconds: dict[str, list[float]] = {}
    vectors = searcher.question_vectors([question.text for question, _ in chosen])
    with console.progress("searching", total=len(chosen), unit="questions") as advance:
        for (question, documents), vector in zip(chosen, vectors, strict=True):
            result = searcher.search(question.text, vector=vector)
            for stage, ranking in result.rankings.items():
                rows.setdefault(stage, []).append(_metrics(searcher.store, ranking, documents))
            for stage, value in result.seconds.items():
                seconds.setdefault(stage, []).append(value)
            if result.read and question.answers:
                answers.append(_answer(result, question, script))
                of_answers.append(tuple(sorted(documents)))
            advance()
    groups = [tuple(sorted(documents)) for _, documents in chosen]
    return {
        "questions": len(chosen),
        "without_document": len(questions) - len(known),
        "stages": _stages(rows, groups),
        **({"answers": {"questions": len(answers), **_report(answers, of_answers, ANSWERS)}} if answers else {}),
        "seconds": {
            stage: {"median": float(np.median(values)), "p99": float(np.percentile(values, 99))}
            for stage, values in seconds.items()
        },
    }


def _metrics(store: Index, ranking: RankedPassages, documents: Mapping[int, float]) -> tuple[float, ...]:
    of = store.documents_by_passage([passage for passage, _ in ranking])
    order = dict.fromkeys(of[passage] for passage, _ in ranking if passage in of)
    return of_ranking([documents.get(document, 0.0) for document in order], [*documents.values()])


def _answer(result: Found, question: SearchQuestion, script: str) -> tuple[float, ...]:
    text = result.answer.text if result.answer else ""
    return (*ANSWER_SCRIPTS[script].score(text, question.answers), float(bool(text)))


def _counted(rows: Sequence[tuple[float, ...]]) -> Float:
    return np.column_stack([np.array(rows, np.float64), np.ones(len(rows))])


def _report(
    rows: Sequence[tuple[float, ...]], groups: Sequence[Hashable], names: Sequence[str] = RETRIEVAL_METRICS
) -> dict[str, object]:
    counts_NK = _counted(rows)
    figures = {name: float(value) for name, value in average_metrics(counts_NK.sum(0), names).items()}
    return {**figures, "interval_95": Bootstrap(counts_NK, groups).intervals(lambda sums: average_metrics(sums, names))}


def _stages(rows: Mapping[str, Sequence[tuple[float, ...]]], groups: Sequence[Hashable]) -> dict[str, Any]:
    first, *others = rows
    reports = {stage: _report(values, groups) for stage, values in rows.items()}
    for stage in others:
        differences = PairedDifference.of_metrics(
            _figures(rows[stage], groups),
            _figures(rows[first], groups),
            len(dict.fromkeys(groups)),
            counted=len(groups),
        )
        reports[stage][f"against_{first}"] = {name: one.as_json() for name, one in differences.items()}
    return reports


def _figures(
    rows: Sequence[tuple[float, ...]], groups: Sequence[Hashable]
) -> Callable[[NDArray[np.int64]], Mapping[str, float]]:
    sums_GK = np.asarray(Bootstrap(_counted(rows), groups).counts, np.float64)
    return lambda chosen: {name: float(value) for name, value in average_metrics(sums_GK[chosen].sum(0)).items()}
