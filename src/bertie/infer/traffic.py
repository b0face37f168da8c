"""`Traffic`: what a model read and answered, as counts and a random sample of vectors, without any text.

    rows -> count -> labels, confidence, tokens, unknown tokens, scripts, and at most 512 vectors of 32 numbers

Its size is bounded, and the traffic of parts adds up to that of the whole. Training leaves that of the dev examples in
the model folder; `bertie predict --log` and `bertie serve --log` write the same format, and `bertie drift` compares.

E examples · H hidden size · D dimensions of a vector of the sample
"""

import base64
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np
import xxhash
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel, NonNegativeInt, ValidationError

from bertie.errors import BadFile, DataError
from bertie.files import file_hash, read_json, write_json
from bertie.infer.batching import run_batches
from bertie.infer.engine import Array
from bertie.infer.pipeline import TextPipeline, unknown_tokens
from bertie.infer.texts import TextRow
from bertie.io.lines import BadRecord
from bertie.io.tables import Example
from bertie.metrics.tags import split_tag
from bertie.models.variant import ADAPTER
from bertie.tasks import Prediction
from bertie.tasks.tagging import TagPrediction
from bertie.text.scripts import main_script
from bertie.text.sequences import Sequences

if TYPE_CHECKING:
    from bertie.infer.engine import Engine

KEPT, DIMENSIONS, SEED = 512, 32, 0  # of the sample; Johnson-Lindenstrauss: distances change by about a fifth
MOST_NAMES, OTHERS, NO_ANSWER = 200, "others", "no answer"
TENTHS = np.arange(0.05, 1.0, 0.05).round(2).tolist()
STEPS = [2 ** (number / 4) for number in range(-40, 41)]  # of values: from a thousandth to a thousand, 19% apart
OF_TEXTS = ("tokens", "unknown_tokens", "script")  # quantities that do not depend on the weights
Int = NDArray[np.int64]
_VectorFunction = Callable[[Int], Array]
"""The pooled hidden states (n, H) of n examples, by their numbers."""


class SampleJson(BaseModel):
    """A `VectorSample` in a file. rows: float16 in base64."""

    width: NonNegativeInt
    total: NonNegativeInt
    rows: str


class TrafficJson(BaseModel):
    """A `Traffic` in a file."""

    model: str
    rows: NonNegativeInt
    counts: dict[str, list[NonNegativeInt]]
    names: dict[str, dict[str, NonNegativeInt]]
    vectors: SampleJson | None = None
    learned: bool = False


class FileJson(BaseModel):
    """A file of traffic."""

    format: Literal[1] = 1
    traffic: list[TrafficJson]


@dataclass
class VectorSample:
    """A random sample of the vectors of a stream, projected to D numbers by a fixed random matrix (Vitter 1985, R).

    Attributes:
        width: Numbers of a vector before the projection, H; 0 before the first.
        total: Rows of the stream.
        rows: The vectors (D,) by their place in the sample.
    """

    width: int = 0
    total: int = 0
    rows: dict[int, NDArray[np.float32]] = field(default_factory=dict)

    def draw(self, count: int) -> tuple[Int, Int]:
        """Takes the next rows of the stream, and returns those that enter the sample, with their places."""
        positions = np.arange(self.total, self.total + count)
        drawn = np.random.default_rng((SEED, self.total)).integers(0, positions + 1)
        places = np.where(positions < KEPT, positions, drawn)
        self.total += count
        rows = np.flatnonzero(places < KEPT)
        return rows, places[rows]

    def put(self, places: Int, vectors: Array) -> None:
        """Stores vectors (n, H) at places of the sample."""
        self.width = vectors.shape[1]
        self.rows.update(zip(places.tolist(), self.reduced(vectors), strict=True))

    def reduced(self, vectors: Array) -> Array:
        """Returns vectors as the sample stores them. (n, H) -> (n, D)"""
        return vectors @ projection(vectors.shape[1])

    @property
    def array(self) -> NDArray[np.float32]:
        """The vectors. -> (n, D)"""
        return np.array([self.rows[place] for place in sorted(self.rows)], np.float32).reshape(-1, DIMENSIONS)

    def __add__(self, other: "VectorSample") -> "VectorSample":
        """Returns a sample of both streams."""
        mine, theirs, total = self.array, other.array, self.total + other.total
        size = min(KEPT, len(mine) + len(theirs))
        rng = np.random.default_rng((SEED, total))
        share = rng.hypergeometric(self.total, other.total, size) if 0 < size <= total else 0
        share = min(max(int(share), size - len(theirs)), len(mine))
        rows = [*rng.permutation(mine)[:share], *rng.permutation(theirs)[: size - share]]
        return VectorSample(self.width or other.width, total, dict(enumerate(rows)))

    def as_json(self) -> SampleJson:
        """Returns JSON values."""
        data = np.clip(self.array, -6e4, 6e4).astype("<f2").tobytes()
        return SampleJson(width=self.width, total=self.total, rows=base64.b64encode(data).decode())

    @classmethod
    def of_json(cls, value: SampleJson) -> Self:
        """Returns the sample of `as_json`. Raises ValueError for numbers that are not finite."""
        data = base64.b64decode(value.rows, validate=True)
        rows = np.frombuffer(data, "<f2").astype(np.float32)
        rows = rows.reshape(-1, DIMENSIONS)[:KEPT]
        if not np.isfinite(rows).all() or value.total < len(rows):
            raise ValueError("a vector is not finite")
        return cls(value.width, value.total, dict(enumerate(rows)))


@dataclass
class Traffic:
    """The rows that a model answered, as counts. model: the hash of its weights and its config.

    counts: rows by bin of EDGES. names: rows by name. An example has one value of each quantity that its task has.
    learned: whether the vectors are of rows that the model learned from, which lie apart from those of new rows.
    """

    model: str
    rows: int = 0
    counts: dict[str, Int] = field(default_factory=dict)
    names: dict[str, Counter[str]] = field(default_factory=dict)
    vectors: VectorSample = field(default_factory=VectorSample)
    learned: bool = False

    FILE: ClassVar = "traffic.json"
    """In a model folder: the dev examples of the training."""
    OF_ADAPTER: ClassVar = "traffic_model.txt"
    """In the temporary folder of an adapter and its base: the hash of the adapter."""
    EDGES: ClassVar[Mapping[str, Sequence[float]]] = {
        "confidence": (*TENTHS, 0.97, 0.98, 0.99, 0.995, 0.999),
        "tokens": tuple(sorted({round(2 ** (number / 2)) for number in range(2, 29)})),
        "unknown_tokens": (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5),
        "value": (*(-step for step in reversed(STEPS)), 0.0, *STEPS),
    }
    """Quantity -> the upper ends of its bins, but of the last. The others, label and script, have names as values."""
    VECTOR: ClassVar = "mean"
    """The output that a vector of the sample is made of: the mean of the last hidden states."""

    @classmethod
    def of_model(cls, path: Path) -> Self:
        """Returns empty traffic of a model folder, of an adapter, or of a graph, with the hash of its weights and
        config."""
        if (of_adapter := path / cls.OF_ADAPTER).is_file():
            return cls(of_adapter.read_text(encoding="utf-8"))
        weights = sorted(path.glob("*.safetensors"))
        graph = path if path.is_file() else path / "onnx" / "model.onnx"
        config = path / ("config.json" if (path / "config.json").is_file() else ADAPTER)
        files = [config, *weights] if weights or not graph.is_file() else [graph]
        return cls(xxhash.xxh3_128_hexdigest(" ".join(map(file_hash, files)).encode()))

    def count(
        self,
        pipeline: TextPipeline,
        rows: Sequence[TextRow],
        encoded: Sequences,
        answers: Sequence[Prediction | BadRecord],
    ) -> None:
        """Counts rows with their answers. encoded: the rows that are examples; others, and rows without an answer
        because they are too long, do not count."""
        pairs = [pair for pair in zip(rows, answers, strict=True) if isinstance(pair[0], Example)]
        keep = [number for number, (_, answer) in enumerate(pairs) if isinstance(answer, Prediction)]
        if not keep:
            return
        self.rows += len(keep)
        unknown, words = unknown_tokens(encoded, pipeline.tokenizer)
        self._bin("tokens", encoded.tokens[keep])
        self._bin("unknown_tokens", unknown[keep] / np.maximum(words[keep], 1))
        known, texts = set(pipeline.task.labels), [pairs[number][0].texts for number in keep]  # type: ignore[union-attr]
        self._name("script", (main_script(" ".join(some)) for some in texts))
        chosen = [answer for _, answer in pairs if isinstance(answer, Prediction)]
        self._name("label", (name for answer in chosen if (name := label_of(answer, known)) is not None))
        sure = [p for answer in chosen if (p := confidence_of(answer)) is not None]
        self._bin("confidence", sure)
        self._bin("value", [answer.label for answer in chosen if isinstance(answer.label, float)])

    def without_answers(self) -> "Traffic":
        """Returns the traffic of rows that the model learned from: of their answers it is surer than of others."""
        counts = {name: bins for name, bins in self.counts.items() if name in OF_TEXTS}
        names = {name: rows for name, rows in self.names.items() if name in OF_TEXTS}
        return replace(self, counts=counts, names=names, learned=True)

    def sample(self, count: int, vectors: _VectorFunction) -> None:
        """Draws some of the next rows of the stream into the sample. vectors: computes theirs, if there are any."""
        rows, places = self.vectors.draw(count)
        if len(rows):
            self.vectors.put(places, vectors(rows))

    def pooled(self, encoded: Sequences, engine: "Engine") -> Array:
        """Returns what the vectors of the sample are made of, for all examples. (E, H)"""
        return run_batches(engine, encoded.take(encoded.windows[:-1]), (self.VECTOR,))[self.VECTOR]

    def count_all(
        self,
        pipeline: TextPipeline,
        rows: Sequence[TextRow],
        encoded: Sequences,
        answers: Sequence[Prediction | BadRecord],
        engine: "Engine",
    ) -> None:
        """Counts rows, and computes the vectors of those that enter the sample, where the engine returns any."""
        self.count(pipeline, rows, encoded, answers)
        if self.VECTOR in engine.facts.outputs and encoded.examples:
            first = encoded.windows[:-1]
            self.sample(
                encoded.examples,
                lambda numbers: run_batches(engine, encoded.take(first[numbers]), (self.VECTOR,))[self.VECTOR],
            )

    def _bin(self, name: str, values: ArrayLike) -> None:
        if np.size(values):
            edges = self.EDGES[name]
            bins = np.bincount(np.searchsorted(edges, values), minlength=len(edges) + 1)
            self.counts[name] = self.counts.get(name, 0) + bins

    def _name(self, name: str, values: Iterable[str]) -> None:
        _bounded(self.names.setdefault(name, Counter()), Counter(values))

    def __add__(self, other: "Traffic") -> "Traffic":
        """Returns the traffic of both."""
        learned = self.learned or other.learned
        both = Traffic(self.model, self.rows + other.rows, dict(self.counts), {}, self.vectors + other.vectors, learned)
        for name, counts in other.counts.items():
            both.counts[name] = both.counts.get(name, 0) + counts
        for name in {**self.names, **other.names}:
            both.names[name] = Counter(self.names.get(name, {}))
            _bounded(both.names[name], other.names.get(name, Counter()))
        return both

    def as_json(self) -> TrafficJson:
        """Returns JSON values."""
        counts = {name: counts.tolist() for name, counts in self.counts.items()}
        names = {name: dict(counts) for name, counts in self.names.items()}
        vectors = self.vectors.as_json() if self.vectors.rows else None
        return TrafficJson(
            model=self.model, rows=self.rows, counts=counts, names=names, vectors=vectors, learned=self.learned
        )

    @classmethod
    def of_json(cls, value: TrafficJson) -> Self:
        """Returns the traffic of `as_json`. Raises KeyError or ValueError for other bins."""
        counts = {name: np.array(bins, np.int64) for name, bins in value.counts.items()}
        if any(array.shape != (len(cls.EDGES[name]) + 1,) for name, array in counts.items()):
            raise ValueError("counts have other bins")
        names = {name: Counter(counts) for name, counts in value.names.items()}
        vectors = VectorSample() if value.vectors is None else VectorSample.of_json(value.vectors)
        return cls(value.model, value.rows, counts, names, vectors, value.learned)

    # Files ----------------------------------------------------------------------------------------------------------

    @classmethod
    def read(cls, path: Path) -> dict[str, Self]:
        """Returns the traffic of each model in a file, by the hash of the model. Raises DataError for another file."""
        value = read_json(path)
        try:
            return {one.model: one for one in map(cls.of_json, FileJson.model_validate(value).traffic)}
        except (KeyError, ValueError) as error:  # pydantic's is a ValueError
            reason = str(error)
            if isinstance(error, ValidationError):
                reason = f"{'.'.join(map(str, error.errors()[0]['loc']))}: {error.errors()[0]['msg']}"
            raise BadFile(
                f"{path} is not a log of traffic, or it is damaged: {reason}. Pass a file that bertie predict --log or "
                "bertie serve --log wrote."
            ) from None

    @classmethod
    def check_file(cls, path: Path) -> None:
        """Raises DataError for a file that is no log, and for a place where none can be written."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(f"The log {path} cannot be written: {error.strerror}. Choose another file.") from None
        if path.exists():
            cls.read(path)
        elif not os.access(path.parent, os.W_OK):
            raise DataError(f"The log {path} cannot be written: {path.parent} is read-only. Choose another file.")

    @classmethod
    def add_to(cls, path: Path, traffic: "Iterable[Traffic]") -> None:
        """Adds the traffic of some models to a file, which other processes may add to. Raises DataError as `read`."""
        from filelock import FileLock  # slow to import

        with FileLock(path.with_name(f".{path.name}.lock")):
            every: dict[str, Traffic] = dict(cls.read(path)) if path.exists() else {}
            for one in traffic:
                every[one.model] = every[one.model] + one if one.model in every else one
            write_traffic(path, every.values())


def write_traffic(path: Path, traffic: Iterable[Traffic]) -> None:
    """Writes a file with the traffic of some models."""
    write_json(path, FileJson(traffic=[one.as_json() for one in traffic]).model_dump(exclude_none=True))


def label_of(answer: Prediction, known: set[str]) -> str | None:
    """Returns the label of an answer, the most frequent of several, or whether there is an answer; None: neither.

    known: the labels of the model; no other text of an answer is returned.
    """
    label = answer.label
    if label is None:
        return NO_ANSWER
    if isinstance(text := getattr(label, "text", None), str):
        return "answer" if text else NO_ANSWER
    if isinstance(label, str):
        return label if label in known or label in answer.scores else None
    if not isinstance(label, tuple) or not all(isinstance(one, str) for one in label):
        return None
    tags = isinstance(answer, TagPrediction)
    several = Counter(kind for one in label if one in known and (kind := split_tag(one)[1] if tags else one))
    order = sorted(several, key=lambda one: (-several[one], -answer.scores.get(one, 0.0)))
    return order[0] if order else "none"


def confidence_of(answer: Prediction) -> float | None:
    """Returns the probability of an answer: of the best label, or the mean over the words; None where it has none."""
    if answer.probability is not None:
        return float(answer.probability)
    words = getattr(answer, "probabilities", ())
    return float(np.mean(words)) if len(words) else max(answer.scores.values(), default=None)


@cache
def projection(width: int) -> NDArray[np.float32]:
    """Returns a fixed random matrix that keeps distances on average. -> (width, D)"""
    matrix = np.random.default_rng(SEED).standard_normal((width, DIMENSIONS)) / DIMENSIONS**0.5
    return np.asarray(matrix, np.float32)


def _bounded(counts: Counter[str], more: Counter[str]) -> None:
    for name, count in more.items():
        counts[name if name in counts or len(counts) < MOST_NAMES else OTHERS] += count
