"""Parity of an exported graph and its model, on real texts and on batches of every size and length.

B sequences · S longest sequence
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain, cycle, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertie import Tokenizer
from bertie.platform import DataError, Engine, Sequences, console

PARITY_TEXTS = 200
BATCHES, LENGTHS = (1, 2, 7), (1, 2, 17)  # and the longest the model reads
EVERY = 8  # tokens: where a head over the vocabulary is asked
_MAX_BATCH_TOKENS = (
    4096  # tokens of a batch of one length, at most: attention takes memory with the square of the length
)
UNBOUNDED = 512  # the same, of a model without a limit of length: its positions may take memory without a limit too
_VECTORS = "mean"
_MAX_DIFFERENCE = 1e-4  # in float32: of numbers around 1; of larger ones, that share of their root mean square
FIRST_PERCENTILE, MEAN = 0.998, 0.999  # in int8: cosine of mean vectors
SAME, RELATIVE = 0.98, 0.05  # in int8: share of the same answers; error of logits, as a share of their size


@dataclass
class Parity:
    """Differences between a graph and its model. difference: the largest; squares: sums of the squares of differences
    and of the model's numbers, by output; answers, same: rows of classifiers, and rows with the same largest logit.
    cosines: of the mean vectors of the texts, if the graph has hidden states.
    """

    texts: int
    batches: int = 0
    difference: float = 0.0
    squares: dict[str, tuple[float, float]] = field(default_factory=dict)
    answers: int = 0
    same: int = 0
    cosines: list[float] = field(default_factory=list)

    @property
    def relative(self) -> float:
        """Root mean square of all differences, divided by that of the model's numbers, for the worst output."""
        shares = (apart / max(size, 1e-24) for apart, size in self.squares.values())
        return float(np.sqrt(max(shares, default=0.0)))

    @property
    def equal(self) -> bool:
        """Whether it passes the gate of float32."""
        return self.difference <= _MAX_DIFFERENCE and self.same == self.answers

    @property
    def near(self) -> bool:
        """Whether it passes the gate of int8."""
        if self.cosines:
            return float(np.quantile(self.cosines, 0.01)) >= FIRST_PERCENTILE and float(np.mean(self.cosines)) >= MEAN
        return self.relative <= RELATIVE and self.same >= SAME * self.answers

    def __str__(self) -> str:
        parts = [f"{self.texts:,} texts, {self.batches:,} batches: largest difference {self.difference:.2g}"]
        if self.answers:
            parts.append(f"{self.same:,} of {self.answers:,} answers the same, error of the logits {self.relative:.1%}")
        if self.cosines:
            worst, first, mean = min(self.cosines), np.quantile(self.cosines, 0.01), np.mean(self.cosines)
            parts.append(f"cosine mean {mean:z.5f}, first percentile {first:z.5f}, worst {worst:z.5f}")
        return ", ".join(parts)

    def as_json(self) -> dict[str, Any]:
        """The same for programs."""
        fields = {**asdict(self), "relative": self.relative}
        del fields["squares"]
        fields["cosines"] = {"worst": min(self.cosines), "mean": float(np.mean(self.cosines))} if self.cosines else None
        return fields


def check_text_count(texts: Sequence[str]) -> None:
    """Raises DataError for fewer texts than are compared."""
    if len(texts) < PARITY_TEXTS:
        raise DataError(f"{len(texts):,} texts are too few to compare on: pass at least {PARITY_TEXTS}, one per line.")


Expected = list[tuple[Sequences, Mapping[str, NDArray[np.float32]]]]
"""Batches with the arrays of the model. Batches of texts come first."""


@console.working("computing the answers of the model")
def expected(model: Engine, outputs: Sequence[str], sequences: Sequence[Sequences]) -> Expected:
    """Returns the model's `outputs` for texts in batches of 1, 2 and 7, and for batches of each size and length.

    sequences: one `Sequences` per text.
    """
    most = model.facts.max_length
    shapes = _shapes(join(sequences), min(most, _MAX_BATCH_TOKENS) if model.facts.limited else UNBOUNDED)
    return [(batch, model.run(batch, outputs)) for batch in chain(_groups(sequences[:PARITY_TEXTS]), shapes)]


@console.working("comparing the answers of the graph")
def compare_graph(engine: Engine, reference: Expected) -> Parity:
    """Compares a graph with its model."""
    parity = Parity(texts=PARITY_TEXTS, batches=len(reference))
    for batch, theirs in reference:
        ours = engine.run(batch, list(theirs))
        _measure(parity, ours, theirs, heads=set(engine.facts.heads))
        if _VECTORS in theirs and len(parity.cosines) < PARITY_TEXTS:
            x, y = ours[_VECTORS].astype(np.float64), theirs[_VECTORS].astype(np.float64)
            lengths = np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1)
            parity.cosines += ((x * y).sum(1) / np.maximum(lengths, 1e-12)).tolist()
    return parity


def encoded(tokenizer: Tokenizer, texts: Sequence[str], *, max_length: int, last: bool) -> list[Sequences]:
    """Encodes each text; every third one as a pair with the next. last: adds the input of a parser."""
    pairs = [text if i % 3 else (text, texts[(i + 1) % len(texts)]) for i, text in enumerate(texts)]
    return [
        _ids(one.ids, one.type_ids, [len(one.ids)], last=last)
        for one in tokenizer.encode_batch(pairs, max_length=max_length)
    ]


def join(sequences: Sequence[Sequences]) -> Sequences:
    """Joins sequences. A head over the vocabulary is evaluated at every eighth token."""
    ids, types, lengths = (
        np.concatenate([getattr(one, name) for one in sequences]) for name in ("input_ids", "token_type_ids", "lengths")
    )
    return _ids(ids, types, lengths, last=bool(sequences[0].extra))


def _ids(ids: object, types: object, lengths: object, *, last: bool) -> Sequences:
    input_ids = np.asarray(ids, np.int64)
    extra: dict[str, NDArray[np.generic]] = {"last": np.zeros_like(input_ids)} if last else {}
    places = np.arange(0, len(input_ids), EVERY)
    return Sequences(input_ids, np.asarray(types, np.int64), np.asarray(lengths), places, extra)


def _groups(sequences: Sequence[Sequences]) -> Iterator[Sequences]:
    left, sizes = iter(sequences), cycle(BATCHES)
    while group := list(islice(left, next(sizes))):
        yield join(group)


def _shapes(pool: Sequences, longest: int) -> Iterator[Sequences]:
    """Yields batches of every size and length, made of tokens of the texts. The first sequence is the longest.

    Batches of more than LONGEST tokens are left out.
    """
    for length in sorted({*(one for one in LENGTHS if one < longest), longest}):
        for size in (size for size in BATCHES if size * length <= _MAX_BATCH_TOKENS):
            lengths = np.array([max(1, length - i * length // 9) for i in range(size)])
            tokens = np.arange(lengths.sum()) % len(pool.input_ids)
            yield _ids(pool.input_ids[tokens], pool.token_type_ids[tokens], lengths, last=bool(pool.extra))


def _measure(parity: Parity, ours: Any, theirs: Any, *, heads: set[str]) -> None:
    for name, array in theirs.items():
        exact, other = array.astype(np.float64), ours[name].astype(np.float64)
        if exact.shape != other.shape or not np.isfinite(other).all():
            parity.difference, parity.squares[name] = float("inf"), (float("inf"), 1.0)
            continue
        apart, size = np.abs(other - exact), float(np.sqrt((exact**2).mean()))
        parity.difference = max(parity.difference, float(apart.max()) / max(1.0, size))
        before = parity.squares.get(name, (0.0, 0.0))
        parity.squares[name] = before[0] + float((apart**2).sum()), before[1] + float((exact**2).sum())
        if name in heads and exact.ndim == 2 and exact.shape[1] > 1 and name not in ("span", "parse"):
            parity.answers += len(exact)
            parity.same += int(_alike(other, exact).sum())


def _alike(other: NDArray[np.float32], exact: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Returns which rows have the same largest logit, or two that differ by no more than the tolerance."""
    chosen, best = other.argmax(1), exact.argmax(1)
    rows = np.arange(len(exact))
    alike: NDArray[np.bool_] = exact[rows, best] - exact[rows, chosen] <= 2 * _MAX_DIFFERENCE
    return alike
