"""The function `bertie.drift` and its result."""

import heapq
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import bertie
from bertie import Model
from bertie.apps.drift.compare import QuantityDrift, compare_traffic
from bertie.platform import DataError, Example, ModelFolder, Traffic, UsageError, checked_arguments, console

if TYPE_CHECKING:
    import pandas

    from bertie.platform import BadRecord, Engine, Prediction, Sequences, TextPipeline

_Rows = str | Path | Iterable[object]
NEAREST = 5  # rows of the reference whose mean distance is that of a row


@dataclass(frozen=True)
class UnlikeRow:
    """A row that is far from the reference.

    Attributes:
        row: Its number, from 1.
        line: Its last line in the file.
        distance: The mean distance to the nearest rows of the reference.
        farther: The part of the reference that is at least as far from the rest of it.
        text: The beginning of its text.
    """

    row: int
    line: int
    distance: float
    farther: float
    text: str


@dataclass(frozen=True)
class Drift:
    """Whether the texts and answers of a model differ from those of its training.

    Attributes:
        drifted: Whether any quantity differs.
        differences: One for each quantity, the surest first.
        unlike: The rows least like the reference, the farthest first; none for a log.
        rows: Number of rows of the data.
        reference_rows: Number of rows of the reference.
        level: Probability of a false alarm, over all quantities.
    """

    drifted: bool
    differences: tuple[QuantityDrift, ...]
    unlike: tuple[UnlikeRow, ...]
    rows: int
    reference_rows: int
    level: float

    def to_dict(self) -> dict[str, object]:
        """Returns everything as JSON values."""
        return asdict(self)

    def to_pandas(self) -> "pandas.DataFrame":
        """Returns a row for each quantity."""
        import pandas

        return pandas.DataFrame([{k: v for k, v in asdict(one).items() if k != "changes"} for one in self.differences])

    @property
    def summary(self) -> str:
        """The verdict in one line."""
        names = ", ".join(one.quantity for one in self.differences if one.differs)
        verdict = f"differs from the reference: {names}" if self.drifted else "no difference from the reference"
        return f"{self.rows:,} rows, {self.reference_rows:,} of the reference: {verdict} (level {self.level:g})"

    def __repr__(self) -> str:
        return f"Drift({self.summary})"

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{name}</th>" for name in ("quantity", "index", "by chance", "adjusted p", "differs"))
        rows = "".join(
            f"<tr><td>{escape(one.quantity)}</td><td>{one.index:z.3f}</td><td>{one.by_chance:z.3f}</td>"
            f"<td>{one.adjusted_p:z.4f}</td><td>{'yes' if one.differs else ''}</td></tr>"
            for one in self.differences
        )
        return f"<p>{escape(self.summary)}</p><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


@checked_arguments
def drift(
    model: Model | str | Path,
    data: _Rows,
    *,
    reference: _Rows | None = None,
    level: float = 0.05,
    top: int = 10,
    text: str | Sequence[str] = (),
    columns: Sequence[str] = (),
    encoding: str = "utf-8",
    format: str = "",
    device: str = "auto",
    precision: str = "fp32",
    engine: str = "auto",
) -> Drift:
    """Compares what a model reads and answers in use with its training.

    Args:
        model: The model, or its name or folder, or those of a run.
        data: A log of `bertie predict --log` or `bertie serve --log`, or rows: the path of a table, a DataFrame, texts.
        reference: What to compare with: a log or rows. Default: the dev examples of the training.
        level: Probability of a false alarm, over all quantities.
        top: Number of the rows least like the reference.
        text: Column of the text, or a template; two for a pair. Default: as in training, or recognized.
        columns: Column names of a file without a header line.
        encoding: Text encoding of a file.
        format: Format of a file. Default: by its suffix.
        device: Of a model that is not open yet: cpu, cuda, cuda:1, mps or auto.
        precision: fp32, bf16 (may change the third digit) or auto.
        engine: torch, native or auto, the faster one here.

    Returns:
        What differs, how surely, and the rows least like the reference.

    Raises:
        DataError: A log is of another model, empty or damaged; a table has no rows or not the columns of the model.
        UsageError: The level is not between 0 and 0.5, or the model has no task head.

    Example:
        >>> found = bertie.drift("runs/reviews", reviews, reference=reviews, text="review")
        >>> found.drifted
        False
    """
    if not 0 < level <= 0.5:
        raise UsageError(f"level is {level}; it must be above 0 and at most 0.5.")
    if top < 0:
        raise UsageError(f"top is {top}; it must be 0 or more.")

    def answer(rows: _Rows, counter: Traffic) -> None:
        """Opens the model, which a log does not need, and answers rows."""
        ready = model if isinstance(model, Model) else bertie.load(model, device, precision, engine)
        ready.predict(
            rows,
            output=lambda texts, answer: None,
            log=counter,
            text=text,
            columns=columns,
            encoding=encoding,
            format=format,
        )

    source = Watched(model, answer)
    usual = source.reference() if reference is None else source.traffic(reference)
    traffic = source.traffic(data, of_rows := RowTraffic("", usual=usual.vectors.array, top=top))
    differences = compare_traffic(usual, traffic, level)
    drifted = any(one.differs for one in differences)
    return Drift(drifted, differences, of_rows.farthest(), traffic.rows, usual.rows, level)


@dataclass(frozen=True)
class Watched:
    """A model, and what counts rows that it answers."""

    model: Model | str | Path
    answer: Callable[[_Rows, Traffic], None]

    @property
    def folder(self) -> Path:
        """The folder of the model. Raises UsageError for one without."""
        if not isinstance(self.model, Model):  # an adapter has the files of its own, and not of the merged model
            return Path(self.model) if ModelFolder(self.model).adapter_base else ModelFolder(self.model).path
        if self.model.folder is None:
            raise UsageError("The model has no folder. Save it, and open the folder: bertie.load(model.save(FOLDER)).")
        return self.model.folder

    def reference(self) -> Traffic:
        """Returns the traffic of the training. Raises DataError where the folder has none."""
        path = self.folder / Traffic.FILE
        if not path.is_file():
            raise DataError(
                f"{self.folder} has no {Traffic.FILE}, which fine-tuning writes, so there is nothing to compare with. "
                "Pass usual texts or a usual log as the reference: --reference FILE."
            )
        usual = next(iter(Traffic.read(path).values()))
        if usual.learned:
            left = "vectors" if "label" in usual.names or "confidence" in usual.counts else "answers and vectors"
            console.warn(
                f"{self.folder} learned from all rows of its training, so {left} are not compared with theirs. Pass "
                "other rows as the reference: --reference FILE."
            )
        return usual

    def traffic(self, data: _Rows, rows: "RowTraffic | None" = None) -> Traffic:
        """Returns the traffic of a log, or of rows that are answered now. rows: counts them. Raises DataError."""
        if isinstance(data, str | Path) and is_log(Path(data)):
            return self.logged(Path(data))
        counter = Traffic("") if rows is None else rows
        self.answer(data, counter)
        if not counter.rows:
            raise DataError(f"{data if isinstance(data, str | Path) else 'The data'} has no row that the model reads.")
        return counter

    def logged(self, path: Path) -> Traffic:
        """Returns the traffic of the model in a log. Raises DataError for a log of other models, and an empty one."""
        every, mine = Traffic.read(path), Traffic.of_model(self.folder).model
        if mine not in every:
            known = f"has the traffic of {len(every)} other model{'s' * (len(every) > 1)}" if every else "is empty"
            raise DataError(
                f"{path} {known}, and none of {self.folder} ({mine[:12]}). Pass the model that wrote the log, or a log "
                "of this model."
            )
        if not every[mine].rows:
            raise DataError(f"{path} has no rows of {self.folder} yet. Use the model first: bertie predict --log.")
        return every[mine]


def is_log(path: Path) -> bool:
    """Returns whether a file is a log of traffic."""
    if path.suffix != ".json" or not path.is_file():
        return False
    try:
        value = json.loads(path.read_bytes())
    except ValueError:
        return False
    return isinstance(value, dict) and "traffic" in value


@dataclass
class RowTraffic(Traffic):
    """The traffic of a table, with the rows that are farthest from a reference. usual: its vectors (n, D)."""

    usual: NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, 1), np.float32))
    top: int = 10
    number: int = 0
    heap: list[tuple[float, int, int, str]] = field(default_factory=list)

    def count_all(
        self,
        pipeline: "TextPipeline",
        rows: "Sequence[Example | BadRecord]",
        encoded: "Sequences",
        answers: "Sequence[Prediction | BadRecord]",
        engine: "Engine",
    ) -> None:
        """Counts rows, and computes the distance of each."""
        self.count(pipeline, rows, encoded, answers)
        numbers = [self.number + at for at, row in enumerate(rows, 1) if isinstance(row, Example)]
        self.number += len(rows)
        if self.VECTOR not in engine.facts.outputs or not numbers:
            return
        pooled = self.pooled(encoded, engine)
        self.sample(len(pooled), lambda some: pooled[some])
        if not self.top or len(self.usual) <= NEAREST:
            return
        distances = nearest_distances(self.vectors.reduced(pooled), self.usual)
        examples = [row for row in rows if isinstance(row, Example)]
        for distance, number, row in zip(distances.tolist(), numbers, examples, strict=True):
            entry = (distance, -number, row.line, " ".join(" | ".join(row.texts).split())[:80])
            (heapq.heappush if len(self.heap) < self.top else heapq.heappushpop)(self.heap, entry)

    def farthest(self) -> tuple[UnlikeRow, ...]:
        """Returns the rows least like the reference, the farthest first."""
        if not self.heap:
            return ()
        own = nearest_distances(self.usual, self.usual, skip=1)
        return tuple(
            UnlikeRow(-number, line, distance, float((own >= distance).mean()), text)
            for distance, number, line, text in sorted(self.heap, reverse=True)
        )


def nearest_distances(rows: NDArray[np.float32], usual: NDArray[np.float32], skip: int = 0) -> NDArray[np.float64]:
    """Returns the mean distance of each row to the nearest of others. skip: nearest ones that are the row itself."""
    squares = (rows**2).sum(-1)[:, None] + (usual**2).sum(-1)[None] - 2 * rows @ usual.T
    near = np.sort(np.maximum(squares, 0), 1)[:, skip : skip + NEAREST]
    means: NDArray[np.float64] = np.sqrt(near).mean(1, dtype=np.float64)
    return means
