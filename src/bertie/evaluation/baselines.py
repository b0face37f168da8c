"""Baselines without a model, scored on the same examples in seconds.

    majority      the most frequent label, or the mean number
    words         tf-idf of words + logistic regression (ridge regression for numbers)
    characters    the same of 1 to 4 characters
    first         the first of several choices, or the passages of a question in their order
    overlap       the number of common words of two texts
    nearest       hashed tf-idf of words: the texts with the most similar ones
    tag           the most frequent tag of each word
    copy          the text itself, for tasks that write a text

A task lists those that suit it (`Answerer.baselines`). The work is bounded: large training sets are sampled, and long
texts are truncated.

E examples · F features · L labels
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bertie.files import JsonObject
from bertie.metrics.base import MEAN_COST
from bertie.metrics.compare import PairedDifference
from bertie.metrics.confusion import Confusion
from bertie.metrics.tags import OUTSIDE, rewrite
from bertie.metrics.thresholds import cost_of
from bertie.tasks import Example, Prediction, Task
from bertie.tasks.capabilities import Embeds, Tags
from bertie.tasks.tagging import words_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_TRAINING_CHARACTERS = 2_000_000  # of the training texts that are read, about 60,000 short reviews
_MAX_TEXT_CHARACTERS = 2_000  # characters of one text
FEATURES, WEIGHTS = 300_000, 20_000_000  # features of a text; with many labels fewer, so that there are no more weights
_MAX_LABELS = 1_000
_STRENGTH = 4.0  # inverse of the ridge penalty
COMPARED, RESAMPLED = 2_000, 500_000  # examples that the difference is measured on, in all resamples together
HASHED = 50_000_000  # numbers of all vectors of words
_WORD = re.compile(r"\w+")
_Texts = Sequence[Sequence[str]]
_Answers = list[Prediction]


def baselines(task: Task, train: Sequence[Example], dev: Sequence[Example]) -> dict[str, _Answers]:
    """Returns the predictions of each baseline for the dev examples, by its name in words."""
    learnt = some([example for example in train if example.label is not None])
    answers_by_name: dict[str, _Answers] = {}
    drawn = f" from {len(learnt):,} of {len(train):,} examples" if len(learnt) < len(train) else ""
    for name in task.baselines if learnt and dev else ():
        title, answer = BASELINES[name]
        if (answers := answer(task, learnt, dev)) is not None:
            answers_by_name[title + drawn] = _cheapest(task, answers)
    return answers_by_name


def _cheapest(task: Task, answers: _Answers) -> _Answers:
    """Returns the answers with the label that is expected to cost least, where a task has costs."""
    scores = task.scores()
    if not isinstance(scores, Confusion) or not scores.costs:
        return answers
    cost_LL = np.array([[cost_of(scores.costs, truth, label) for label in task.labels] for truth in task.labels])
    p_EL = np.array([[answer.scores.get(label, 0.0) for label in task.labels] for answer in answers])
    labels = [task.labels[i] for i in (p_EL @ cost_LL).argmin(1).tolist()]
    return [
        replace(one, label=label, probability=one.scores.get(label)) if one.scores else one
        for one, label in zip(answers, labels, strict=True)
    ]


def cross_fitted(
    task: Task, rows: Sequence[Example], folds: Sequence[tuple[list[int], list[int]]]
) -> dict[int, Mapping[str, float]]:
    """Returns the probabilities of labels by row: the mean of both tf-idf baselines, trained on other rows.

    folds: the rows to learn from, and the rows to predict. The features are computed once from all rows, since they
    read no labels.
    """
    scores: dict[int, list[Mapping[str, float]]] = {}
    for options in TFIDF.values():
        if (features := _features(task, rows, options)) is None:
            continue
        all_EF = features(rows)
        for learnt, rest in folds:
            answers = _fitted(task, all_EF[learnt], [rows[i] for i in learnt], all_EF[rest]) or []
            for i, answer in zip(rest, answers, strict=bool(answers)):
                scores.setdefault(i, []).append(answer.scores)
    return {
        i: {name: sum(scores[name] for scores in several) / len(several) for name in task.labels}
        for i, several in scores.items()
    }


def measure_baselines(
    task: Task,
    dev: Sequence[Example],
    answers: Mapping[int, Prediction],
    baselines: Mapping[str, _Answers],
    metric: str,
) -> list[JsonObject]:
    """Returns each baseline's metrics, and the difference between the model and the best one, for a report.

    answers: the model's, of the dev examples in `compared`.
    """
    rows: list[JsonObject] = []
    for name, predictions in baselines.items():
        scores = task.scores()
        task.count(scores, dev, predictions)
        cost = scores.mean_cost(scores.cells().count) if isinstance(scores, Confusion) else {}
        rows.append(
            {"name": name, "figures": {**scores.compute(), **{name: float(value) for name, value in cost.items()}}}
        )
    if rows and answers:
        metric, sign = (MEAN_COST, -1) if MEAN_COST in rows[0]["figures"] else (metric, 1)
        best = max(rows, key=lambda row: sign * row["figures"][metric])
        pairs = [(dev[i], answer, baselines[best["name"]][i]) for i, answer in answers.items()]
        differences = PairedDifference.of_rows(task, task, pairs, resamples=RESAMPLED)
        best["difference"] = {metric: {**differences[metric].as_json(), "examples": len(pairs)}}
    return rows


def compared_examples(task: Task, dev: Sequence[Example]) -> set[int]:
    """Returns the dev examples to measure the difference on: evenly spaced, or the first ones if there are groups."""
    if len(dev) <= COMPARED or task.group(dev[0]) is not None:
        return set(range(min(len(dev), COMPARED)))
    return set(np.linspace(0, len(dev) - 1, COMPARED).astype(int).tolist())


def some(train: Sequence[Example], most: int = MAX_TRAINING_CHARACTERS) -> list[Example]:
    """Returns evenly spaced examples with at most `most` characters."""
    size = sum(min(len(text), _MAX_TEXT_CHARACTERS) for example in train for text in example.texts)
    keep = min(1.0, most / max(1, size))
    count = max(1, round(keep * len(train))) if train else 0
    return spaced_examples(train, count)


def spaced_examples(examples: Sequence[Example], most: int) -> list[Example]:
    """Returns at most `most` examples, evenly spaced, since consecutive examples are often about the same text."""
    if most >= len(examples):
        return [*examples]
    return [examples[i] for i in np.linspace(0, len(examples) - 1, most).astype(int)]


def _majority(task: Task, train: Sequence[Example], dev: Sequence[Example]) -> _Answers | None:
    labels = [example.label for example in train]
    if isinstance(labels[0], float):
        return [Prediction(float(np.mean(labels)))] * len(dev)
    counts = Counter(labels)
    scores = {label: counts[label] / len(labels) for label in task.labels if label in counts} or None
    label, n = counts.most_common(1)[0]
    return [Prediction(label, n / len(labels), scores or {})] * len(dev)


def _features(
    task: Task, train: Sequence[Example], options: Mapping[str, object]
) -> Callable[[Sequence[Example]], Any] | None:
    """Returns a function that computes the tf-idf features of examples (E, F); None if no text has a word."""
    from scipy import sparse
    from sklearn.feature_extraction.text import TfidfVectorizer

    most = min(FEATURES, max(2_000, WEIGHTS // max(1, len(task.labels))))
    vectorizer = TfidfVectorizer(sublinear_tf=True, max_features=most, dtype=np.float32, **options)
    try:
        vectorizer.fit([text[:_MAX_TEXT_CHARACTERS] for example in train for text in example.texts])
    except ValueError:
        return None

    def features(examples: Sequence[Example]) -> Any:
        count = len(examples[0].texts)
        parts = [vectorizer.transform([e.texts[i][:_MAX_TEXT_CHARACTERS] for e in examples]) for i in range(count)]
        if count == 2:  # what the texts share, and what they do not
            parts += [parts[0].multiply(parts[1]), abs(parts[0] - parts[1])]
        return sparse.hstack(parts, "csr")

    return features


def _tfidf(kind: str) -> Callable[[Task, Sequence[Example], Sequence[Example]], _Answers | None]:
    def answer(task: Task, train: Sequence[Example], dev: Sequence[Example]) -> _Answers | None:
        features = _features(task, train, TFIDF[kind])
        return None if features is None else _fitted(task, features(train), train, features(dev))

    return answer


def _overlap(task: Task, train: Sequence[Example], dev: Sequence[Example]) -> _Answers | None:
    """For two texts, uses the fractions of their common words; for choices, the one with the most common words."""
    if len(train[0].texts) < 2 or (isinstance(task, Embeds) and any(map(task.retrieves, (train, dev)))):
        return None
    if len(train[0].texts) > 2:
        shares = ([_shares(e.texts[0], choice)[0] for choice in e.texts[1:]] for e in dev)
        return [Prediction(str(int(np.argmax(row))), None) for row in shares]
    features = [np.array([_shares(*example.texts) for example in some]) for some in (train, dev)]
    return _fitted(task, features[0], train, features[1])


def _nearest(task: Task, train: Sequence[Example], dev: Sequence[Example]) -> _Answers | None:
    """Vectors of words, of which rare ones count more, for what is retrieved by its similarity."""
    from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer

    if not (isinstance(task, Embeds) and task.retrieves(dev)):
        return None
    texts = [text[:_MAX_TEXT_CHARACTERS] for example in dev for text in example.texts]
    words = HashingVectorizer(n_features=max(256, min(4096, HASHED // len(texts))), **TFIDF["words"])
    weights = TfidfTransformer().fit(
        words.transform([text[:_MAX_TEXT_CHARACTERS] for one in train for text in one.texts])
    )
    return task.answers(weights.transform(words.transform(texts)).toarray().astype(np.float32), dev)


def _first(task: Task, train: Sequence[Example], dev: Sequence[Example]) -> _Answers:
    """A high score means that the data give the answer away by its place."""
    if task.group(dev[0]) is None:
        return [Prediction("0", None)] * len(dev)
    places, answers = Counter[Any](), []
    no, yes = task.labels
    for example in dev:
        places[task.group(example)] += 1
        p = 1 / (1 + places[task.group(example)])
        answers.append(Prediction(yes if p == 0.5 else no, None, {yes: p, no: 1 - p}))
    return answers


def _shares(first: str, second: str) -> tuple[float, float, float]:
    a, b = (set(_WORD.findall(text[:_MAX_TEXT_CHARACTERS].lower())) for text in (first, second))
    both = len(a & b)
    return both / max(1, len(a | b)), both / max(1, len(a)), both / max(1, len(b))


def _fitted(task: Task, train_EF: object, train: Sequence[Example], dev_EF: object) -> _Answers | None:
    """Returns linear models for the type of the labels: numbers, sets of names, or one name."""
    import warnings

    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.preprocessing import MultiLabelBinarizer

    labels = [example.label for example in train]
    # This tolerance is as good as 0.001, in seconds. The solver draws the order of the examples.
    logistic = LogisticRegression(C=_STRENGTH, solver="liblinear", dual=True, tol=0.1, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a label that every example has, or none; a fit that is good enough
        if isinstance(labels[0], float):
            return [Prediction(float(x)) for x in Ridge(1 / _STRENGTH).fit(train_EF, labels).predict(dev_EF)]
        if isinstance(labels[0], tuple):
            if not any(labels) or len(task.labels) > _MAX_LABELS:
                return None
            sets = MultiLabelBinarizer(classes=task.labels)
            has_EL: NDArray[np.int64] = sets.fit_transform(labels)
            p_EL = np.asarray(OneVsRestClassifier(logistic).fit(train_EF, has_EL).predict_proba(dev_EF))
            p_EL = p_EL.reshape(-1, len(task.labels))
            pairs = [dict(zip(task.labels, map(float, row), strict=True)) for row in p_EL]
            return [Prediction(tuple(name for name in row if row[name] >= 0.5), None, row) for row in pairs]
        if not 1 < len(set(labels)) <= _MAX_LABELS:
            return None
        fitted = OneVsRestClassifier(logistic).fit(train_EF, labels)
        answers, names = [], [str(name) for name in fitted.classes_]
        for row in fitted.predict_proba(dev_EF):
            scores = dict.fromkeys(task.labels, 0.0) | dict(zip(names, row.tolist(), strict=True))
            best = max(scores, key=scores.__getitem__)
            answers.append(Prediction(best, scores[best], scores))
        return answers


def _tag(task: Task, train: Sequence[Example], dev: Sequence[Example]) -> _Answers | None:
    """A word that training does not have gets the most frequent tag."""
    if not isinstance(task, Tags):
        return None
    counts, every = dict[str, Counter[str]](), Counter[str]()
    for example in train:
        tags = rewrite(example.label, task.scheme)
        for word, tag in zip(_words(example, task), tags, strict=True):
            counts.setdefault(word, Counter())[tag] += 1
            every[tag] += 1
    usual = every.most_common(1)[0][0] if every else OUTSIDE
    known = {word: tags.most_common(1)[0][0] for word, tags in counts.items()}
    return [Prediction(tuple(known.get(word, usual) for word in _words(example, task))) for example in dev]


def _copy(task: Task, train: Sequence[Example], dev: Sequence[Example]) -> _Answers | None:
    return [Prediction(" ".join(example.texts)) for example in dev]


def _words(example: Example, task: Tags) -> list[str]:
    return [example.texts[0][start:end] for start, end in words_of(example, task.unit)]


TFIDF: Mapping[str, Mapping[str, object]] = {
    "words": {"token_pattern": r"(?u)\w+"},
    "characters": {"analyzer": "char", "ngram_range": (1, 4), "min_df": 2},
}
"""Kind of features -> arguments of scikit-learn's TfidfVectorizer."""
Baseline = Callable[[Task, Sequence[Example], Sequence[Example]], _Answers | None]
BASELINES: dict[str, tuple[str, Baseline]] = {
    "majority": ("the most frequent label", _majority),
    "mean": ("the mean", _majority),
    "first": ("always the first", _first),
    "overlap": ("word overlap", _overlap),
    "nearest": ("word tf-idf vectors", _nearest),
    "words": ("word tf-idf + logistic regression", _tfidf("words")),
    "characters": ("character tf-idf + logistic regression", _tfidf("characters")),
    "ridge_words": ("word tf-idf + ridge regression", _tfidf("words")),
    "ridge_characters": ("character tf-idf + ridge regression", _tfidf("characters")),
    "tag": ("the most frequent tag of each word", _tag),
    "copy": ("a copy of the text", _copy),
}
"""Name -> in words, and the function that predicts the dev examples (None: not possible)."""
