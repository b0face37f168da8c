"""A word in several texts: its vectors by layer, how similar they are, and where they lie.

Vectors of different words are similar, too, the more the higher the layer: they fill a narrow cone. The mean cosine of
random words is therefore the baseline of a similarity (Ethayarajh 2019, arXiv:1909.00512, 3.3 and 4.1).

C texts · W words of all of them · H hidden size
"""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertie.apps.probe.pooling import pooled, words_of_tokens
from bertie.apps.probe.sentences import Sentence
from bertie.apps.sample import table
from bertie.platform import DataError, ModelInternals, TorchModel, UsageError

_MARKED_WORD = re.compile(r"\*(\S(?:[^*]*\S)?)\*")
_WORD = re.compile(r"\w+")
HANGUL = re.compile("[가-힣]")
BASELINE = 1000  # random words, one of each text
_Span = tuple[int, int]


@dataclass(frozen=True)
class MarkedContext:
    """A text and the characters of its word."""

    text: str
    span: _Span

    @property
    def word(self) -> str:
        """The word as it is written."""
        return self.text[slice(*self.span)]


def contexts_of(texts: Sequence[str], word: str = "") -> list[MarkedContext]:
    """Returns the word of each text: the one in *asterisks*, else `word`, else the only word that all texts share.

    `word` is a whole word in any case of letters, or the beginning of one: 배 in 배를. The first place counts. Raises
    UsageError where a text has no such word, or the texts share none or several.
    """
    if len(texts) < 2:
        raise UsageError("One text is given. Pass two or more, to compare a word in them. Quote each of them.")
    if not word and not all(_MARKED_WORD.search(text) for text in texts):
        word = _shared(texts)
    return [_context(text, number, word) for number, text in enumerate(texts, 1)]


def _context(text: str, number: int, word: str) -> MarkedContext:
    if marked := _MARKED_WORD.search(text):
        start, end = marked.start(), marked.start() + len(marked[1])
        return MarkedContext(text[:start] + marked[1] + text[marked.end() :], (start, end))
    for pattern in (rf"(?<!\w){re.escape(word)}(?!\w)", rf"(?<!\w){re.escape(word)}"):
        if match := re.search(pattern, text, re.IGNORECASE):
            return MarkedContext(text, match.span())
    raise UsageError(
        f"Text {number} ({text!r}) does not have the word {word!r}. Mark its word: 'the *bank* of a river'."
    )


def _shared(texts: Sequence[str]) -> str:
    words = [{word.lower() for word in _WORD.findall(text)} for text in texts]
    shared = sorted(set.intersection(*words))
    if len(shared) != 1:
        which = (
            f"The texts share {len(shared)} words: {', '.join(shared[:10])}." if shared else "The texts share no word."
        )
        raise UsageError(f"{which} Pass --word WORD, or mark the word in each text: 'the *bank* of a river'.")
    return str(shared[0])


def compare_word_vectors(
    model: TorchModel,
    texts: Sequence[str],
    *,
    word: str = "",
    baseline: Sequence[str] = (),
    pooling: str = "mean",
    seed: int = 0,
) -> dict[str, Any]:
    """Compares the vectors of a word in several texts, layer by layer.

    baseline: texts of which random words are taken; by default, sample reviews. pooling: of the tokens of a word.

    Returns:
        contexts; baseline, the number of random words; and layers, each with similarity (C, C), the cosines,
        mean_similarity of the pairs, baseline, that of random words, and adjusted, the difference. points (W, 2) are
        two principal components of all words of the texts, and explained is the share of the variance in them.

    Raises:
        UsageError: See `contexts_of`.
        DataError: A word has no tokens in the vocabulary or in the part of the text that the model reads.
    """
    contexts = contexts_of(texts, word)
    model.training_facts.check_reads_texts("bertie words")
    sentences = [Sentence(one.text, _all_words(one)) for one in contexts]
    targets, before = [], 0
    for one, sentence in zip(contexts, sentences, strict=True):
        targets.append(before + sentence.spans.index(one.span))
        before += len(sentence.spans)
    vectors, has_vector = _vectors(model, sentences, pooling)
    for number, (one, row) in enumerate(zip(contexts, targets, strict=True), 1):
        if not has_vector[row]:
            raise DataError(f"Text {number}: the model does not read {one.word!r} there. Shorten the text.")
    chance, others = _random_words(model, baseline or _sample(texts), pooling, seed)
    rows = np.cumsum(has_vector)[targets] - 1
    spoken = [word for sentence in sentences for word in sentence.words]
    return {
        "contexts": [
            {"text": one.text, "word": one.word, "start": one.span[0], "end": one.span[1], "row": row}
            for one, row in zip(contexts, rows.tolist(), strict=True)
        ],
        "words": [word for word, there in zip(spoken, has_vector, strict=True) if there],
        "pooling": pooling,
        "baseline": others,
        "layers": [_layer(layer, vectors_NH, rows, chance[layer]) for layer, vectors_NH in vectors.items()],
    }


def _all_words(context: MarkedContext) -> tuple[_Span, ...]:
    """Returns the characters of every word of a text, with the given one instead of those it overlaps."""
    start, end = context.span
    spans = [match.span() for match in _WORD.finditer(context.text)]
    return tuple(sorted([context.span, *(one for one in spans if one[1] <= start or one[0] >= end)]))


def _vectors(
    model: TorchModel, sentences: Sequence[Sentence], pooling: str
) -> tuple[Mapping[int, NDArray[np.float32]], NDArray[np.bool_]]:
    """Returns the vectors of all words that have tokens, by layer, and which words these are."""
    inside = ModelInternals(model)
    by_layer: dict[int, list[NDArray[np.float32]]] = {layer: [] for layer in inside.facts.layer_numbers()}
    there: list[bool] = []
    texts = (one.text for one in sentences)
    read = iter(sentences)
    for chunk in inside.token_vectors(texts, tuple(by_layer)):
        for tokens, encoding in zip(chunk.texts(), chunk.encodings, strict=True):
            assert tokens is not None
            assert encoding is not None
            sentence = next(read)
            of_tokens = words_of_tokens(encoding, sentence.spans)
            there += np.isin(np.arange(len(sentence.spans)), of_tokens).tolist()
            for layer, rows in by_layer.items():
                rows.append(pooled(tokens.vectors[layer], of_tokens, pooling))
    return {layer: np.concatenate(rows) for layer, rows in by_layer.items()}, np.array(there, np.bool_)


def _sample(texts: Sequence[str]) -> list[str]:
    language = "ko" if any(map(HANGUL.search, texts)) else "en"
    return [row["text"] for row in table("reviews", language)]


def _random_words(model: TorchModel, texts: Sequence[str], pooling: str, seed: int) -> tuple[dict[int, float], int]:
    """Returns the mean cosine of random different words of different texts by layer, and the number of words."""
    rng, chosen, used = random.Random(seed), list[Sentence](), set[str]()
    for text in rng.sample(list(texts), min(BASELINE, len(texts))):
        spans = [one.span() for one in _WORD.finditer(text) if one[0].lower() not in used]
        if spans:
            start, end = rng.choice(spans)
            used.add(text[start:end].lower())
            chosen.append(Sentence(text, ((start, end),)))
    vectors, there = _vectors(model, chosen, pooling) if len(chosen) > 1 else ({}, np.zeros(0, np.bool_))
    number = int(there.sum())
    if number < 2:
        raise DataError("The baseline needs two texts with different words. Pass a file with more texts.")
    return {layer: _mean_cosine(rows) for layer, rows in vectors.items()}, number


def _mean_cosine(vectors: NDArray[np.float32]) -> float:
    """Returns the mean cosine of all pairs of different rows."""
    x = _unit(vectors).astype(np.float64)
    size = len(x)
    return float((np.square(x.sum(0)).sum() - np.square(x).sum()) / (size * (size - 1)))


def _layer(layer: int, vectors: NDArray[np.float32], rows: NDArray[np.int64], chance: float) -> dict[str, object]:
    x = _unit(vectors[rows]).astype(np.float64)
    mean = _mean_cosine(vectors[rows])
    points, share = projected(vectors)
    return {
        "layer": layer,
        "similarity": np.clip(x @ x.T, -1, 1).tolist(),
        "mean_similarity": mean,
        "baseline": chance,
        "adjusted": mean - chance,
        "points": points.tolist(),
        "explained": share,
    }


def projected(vectors: NDArray[np.float32]) -> tuple[NDArray[np.float64], float]:
    """Returns the first two principal components, and the share of the variance in them. (W, H) -> (W, 2)"""
    x = vectors - vectors.mean(0, dtype=np.float64)
    left, sizes, _ = np.linalg.svd(x, full_matrices=False)
    points = np.zeros((len(x), 2))
    points[:, : len(sizes)] = (left * sizes)[:, :2]
    return points, float(np.square(sizes[:2]).sum() / max(np.square(sizes).sum(), 1e-12))


def _unit(vectors_NH: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns vectors of length 1; zero vectors stay zero. (N, H) -> (N, H)"""
    unit: NDArray[np.float32] = vectors_NH / np.maximum(np.linalg.norm(vectors_NH, axis=-1, keepdims=True), 1e-12)
    return unit
