"""What the public functions return: predictions, scores and runs.

N rows · L labels
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from bertie.errors import Stopped, UsageError
from bertie.folders import new_folder
from bertie.infer.records import Form, flattened
from bertie.metrics.base import called
from bertie.runs.folder import REPORT, RUN, read_results
from bertie.runs.models import MODEL
from bertie.runs.opening import load
from bertie.tasks import Prediction

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

    from bertie.models.model import TorchModel

SHOWN = 10  # rows of a display
MEASURED = ("loss", "accuracy")  # ends of the names of what pre-training measures


@dataclass(frozen=True, eq=False)
class Predictions(Sequence[Prediction]):
    """One `Prediction` for each row, in order.

    Attributes:
        answers: The predictions.
        rows: The columns of each row, where the data had columns.
        columns: The keys of a prediction in a table: label, probability, scores.LABEL ...
    """

    answers: tuple[Prediction, ...]
    rows: tuple[Mapping[str, Any] | None, ...] = ()
    columns: tuple[str, ...] = ()

    @overload
    def __getitem__(self, index: int) -> Prediction: ...
    @overload
    def __getitem__(self, index: slice) -> "Predictions": ...
    def __getitem__(self, index: int | slice) -> "Prediction | Predictions":
        if isinstance(index, slice):
            return Predictions(self.answers[index], self.rows[index], self.columns)
        return self.answers[index]

    def __len__(self) -> int:
        return len(self.answers)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and [*self] == [*other]

    __hash__ = None  # type: ignore[assignment]  # as of a list

    @property
    def labels(self) -> list[Any]:
        """The label of each row; None for a row without an answer."""
        return [answer.label for answer in self.answers]

    @property
    def classes(self) -> tuple[str, ...]:
        """The labels that have a probability, in the order of the columns of `probabilities`."""
        return tuple(next((answer.scores for answer in self.answers if answer.scores), ()))

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """The probability of each label; NaN for a row without an answer. (N, L)

        Raises UsageError where answers have no probabilities of labels.
        """
        if not (classes := self.classes):
            raise UsageError("These predictions have no probabilities of labels.")
        return np.array([[answer.scores.get(name, np.nan) for name in classes] for answer in self.answers])

    def to_dicts(self) -> list[dict[str, Any]]:
        """Returns each row's columns and its prediction, with the names that `bertie predict` writes to a table."""
        form = Form(columns=self.columns)
        rows = self.rows or (None,) * len(self.answers)
        form.starts_with(tuple(dict.fromkeys(name for row in rows for name in row or ())))
        errors = any(answer.error for answer in self.answers)
        names = (*self.columns, *(("error",) if errors else ()))
        table = []
        for row, answer in zip(rows, self.answers, strict=True):
            values = flattened(answer.as_json())
            table.append(form.joined(row, {}, {name: values.get(name) for name in names}))
        return table

    def to_arrow(self) -> "pyarrow.Table":
        """Returns `to_dicts` as a table of Arrow."""
        import pyarrow

        return pyarrow.Table.from_pylist(self.to_dicts())

    def to_pandas(self) -> "pandas.DataFrame":
        """Returns `to_dicts` as a DataFrame of pandas."""
        import pandas

        return pandas.DataFrame(self.to_dicts())

    def to_polars(self) -> "polars.DataFrame":
        """Returns `to_dicts` as a DataFrame of polars."""
        import polars

        return polars.DataFrame(self.to_dicts(), infer_schema_length=None)

    def __repr__(self) -> str:
        labels = [repr(label) for label in self.labels[:SHOWN]]
        more = f", ... {len(self):,} in all" if len(self) > SHOWN else ""
        return f"Predictions({', '.join(labels)}{more})"

    def _repr_html_(self) -> str:
        return _html_table(self[:SHOWN].to_dicts(), f"{len(self):,} predictions")


@dataclass(frozen=True, eq=False)
class Scores(Mapping[str, Any]):
    """The metrics of a model on labeled examples: `scores["macro_f1"]`, and what belongs to them by name.

    Attributes:
        report: Everything that was measured, as `bertie evaluate --json` prints it.
        metrics: The names of the metrics, the main one first.
    """

    report: Mapping[str, Any]
    metrics: tuple[str, ...]

    def __getitem__(self, name: str) -> Any:
        return self.report[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.report)

    def __len__(self) -> int:
        return len(self.report)

    def interval(self, name: str) -> tuple[float, float] | None:
        """Returns the 95% interval of a metric, by the bootstrap over examples; None where it has none."""
        self.report[name]  # an unknown name is a KeyError
        bounds = self.report.get("interval_95", {}).get(name)
        return None if bounds is None else (bounds[0], bounds[1])

    def to_dict(self) -> dict[str, Any]:
        """Returns everything that was measured, as JSON values."""
        return dict(self.report)

    def to_dicts(self) -> list[dict[str, Any]]:
        """Returns a row for each metric: its value and interval, and those of the baselines."""
        rows = []
        for name in self.metrics:
            if name not in self.report or name in self.report.get("undefined", {}):
                continue
            low, high = self.interval(name) or (None, None)
            row = {"metric": called(name, self.report), "value": self.report[name], "low": low, "high": high}
            rows.append(row | {one["name"]: one["figures"].get(name) for one in self.report.get("baselines", ())})
        return rows

    def to_pandas(self) -> "pandas.DataFrame":
        """Returns `to_dicts` as a DataFrame of pandas."""
        import pandas

        return pandas.DataFrame(self.to_dicts())

    def __repr__(self) -> str:
        return f"Scores({', '.join(map(_with_interval, self.to_dicts()))})"

    def _repr_html_(self) -> str:
        return _html_table(self.to_dicts(), "")


@dataclass(frozen=True, eq=False)
class Run:
    """A finished run: its folder, and what it gave.

    Attributes:
        folder: The run folder. Without `output`, it is temporary, and lasts as long as this value.
        results: The contents of results.json.
    """

    folder: Path
    results: Mapping[str, Any]
    _temporary: "TemporaryDirectory[str] | None" = field(default=None, repr=False)

    @classmethod
    def of(cls, folder: str | Path) -> "Run":
        """Returns the run in a folder. Raises DataError where it is not finished."""
        return cls(Path(folder), read_results(Path(folder)))

    @property
    def scores(self) -> Scores:
        """The scores on the dev examples; of pre-training, on held-out text, or else on the last steps of training."""
        if "dev" in self.results:
            return Scores(self.results["dev"], tuple(self.results["metrics"]))
        report = self.results["valid"] or self.results["train"]
        return Scores(report, tuple(name for name in report if name.endswith(MEASURED)))

    @property
    def model(self) -> "TorchModel":
        """The trained model, loaded from the folder."""
        return load(self.folder / MODEL)

    @property
    def report(self) -> Path:
        """The HTML page about the run."""
        return self.folder / REPORT

    def save(self, folder: str | Path, *, overwrite: bool = False) -> "Run":
        """Copies the run to a folder that lasts, and returns it there. Raises UsageError for a folder with files."""
        with new_folder(Path(folder), RUN, overwrite=overwrite) as target:
            shutil.copytree(self.folder, target, dirs_exist_ok=True)
        return Run(Path(folder), self.results)

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r}, {', '.join(map(_with_interval, self.scores.to_dicts()))})"

    def _repr_html_(self) -> str:
        return f"{self.scores._repr_html_()}<p>{escape(self.results.get('worth', ''))}</p>"


@contextmanager
def run_folder(output: str | Path | None) -> "Iterator[tuple[Path, TemporaryDirectory[str] | None]]":
    """Context with the folder of a run: `output`, or one in the temporary folder that is yielded too."""
    if output is not None:
        yield Path(output), None
        return
    temporary = TemporaryDirectory(prefix="bertie-run-")
    try:
        yield Path(temporary.name) / "run", temporary
    except Stopped as stopped:
        hint = "Nothing is kept without output. Pass a folder, and the same call resumes the run."
        raise Stopped(stopped.message, hint=hint) from None


def _with_interval(row: Mapping[str, Any]) -> str:
    bounds = "" if row["low"] is None else f" ({row['low']:z.3f} to {row['high']:z.3f})"
    return f"{row['metric']} {row['value']:z.3f}{bounds}"


def _html_table(rows: Sequence[Mapping[str, Any]], caption: str) -> str:
    """Returns a table in the style of the notebook that shows it."""
    columns = [*dict.fromkeys(name for row in rows for name in row)]
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(f'<td>{_cell(row.get(name))}</td>' for name in columns)}</tr>" for row in rows)
    below = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<table>{below}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: Any) -> str:
    return escape("" if value is None else f"{value:z.3f}" if isinstance(value, float) else str(value))
