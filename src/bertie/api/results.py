"""What the public functions return: predictions, what was written, and runs.

N rows · L labels
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, overload

import numpy as np
from numpy.typing import NDArray

from bertie.console import counted
from bertie.errors import UsageError
from bertie.infer.records import Form, flatten_answer
from bertie.tasks import Prediction

if TYPE_CHECKING:
    import datasets
    import pandas
    import polars
    import pyarrow

_ROWS_SHOWN = 10  # rows of a display


class Tabular:
    """Rows that become a table of other libraries. row_index: of a DataFrame of pandas."""

    row_index: "pandas.Index | None" = None

    def to_dicts(self) -> list[dict[str, object]]:
        """Returns a dict for each row."""
        raise NotImplementedError

    def to_arrow(self) -> "pyarrow.Table":
        """Returns `to_dicts` as a table of Arrow."""
        import pyarrow

        return pyarrow.Table.from_pylist(self.to_dicts())

    def to_pandas(self) -> "pandas.DataFrame":
        """Returns `to_dicts` as a DataFrame of pandas, with the index of the rows where these were of pandas."""
        import pandas

        return pandas.DataFrame(self.to_dicts(), index=self.row_index)

    def to_polars(self) -> "polars.DataFrame":
        """Returns `to_dicts` as a DataFrame of polars."""
        import polars

        return polars.DataFrame(self.to_dicts(), infer_schema_length=None)

    def to_datasets(self) -> "datasets.Dataset":
        """Returns `to_dicts` as a data set of `datasets`."""
        import datasets

        return datasets.Dataset.from_list(self.to_dicts())


@dataclass(frozen=True, eq=False)
class Predictions(Tabular, Sequence[Prediction]):
    """One `Prediction` for each row, in order.

    Attributes:
        answers: The predictions.
        rows: The columns of each row, where the data had columns.
        columns: The keys of a prediction in a table: label, probability, scores.LABEL ...
        row_index: The index of the DataFrame or the Series of pandas that the rows came from.

    Example:
        >>> answers = model.predict(["a quiet, lovely film", "the soup was cold"])
        >>> answers
        Predictions('good', 'bad')
        >>> answers[0].label, answers[0].probability > 0.5
        ('good', True)
        >>> answers.to_pandas()["label"].tolist()
        ['good', 'bad']
    """

    answers: tuple[Prediction, ...]
    rows: tuple[Mapping[str, object] | None, ...] = ()
    columns: tuple[str, ...] = ()
    row_index: "pandas.Index | None" = None

    @overload
    def __getitem__(self, index: int) -> Prediction: ...
    @overload
    def __getitem__(self, index: slice) -> "Predictions": ...
    def __getitem__(self, index: int | slice) -> "Prediction | Predictions":
        if isinstance(index, slice):
            part = None if self.row_index is None else self.row_index[index]
            return Predictions(self.answers[index], self.rows[index], self.columns, part)
        return self.answers[index]

    def __len__(self) -> int:
        return len(self.answers)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and [*self] == [*other]

    __hash__ = None  # type: ignore[assignment]  # as of a list

    @property
    def labels(self) -> list[object]:
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

    def to_dicts(self) -> list[dict[str, object]]:
        """Returns each row's columns and its prediction, with the names that `bertie predict` writes to a table."""
        form = Form(columns=self.columns)
        rows = self.rows or (None,) * len(self.answers)
        form.starts_with(tuple(dict.fromkeys(name for row in rows for name in row or ())))
        errors = any(answer.error for answer in self.answers)
        names = (*self.columns, *(("error",) if errors else ()))
        table = []
        for row, answer in zip(rows, self.answers, strict=True):
            values = flatten_answer(answer.as_json())
            table.append(form.joined(row, {}, {name: values.get(name) for name in names}))
        return table

    def __repr__(self) -> str:
        labels = [repr(label) for label in self.labels[:_ROWS_SHOWN]]
        more = f", ... {len(self):,} in all" if len(self) > _ROWS_SHOWN else ""
        return f"Predictions({', '.join(labels)}{more})"

    def _repr_html_(self) -> str:
        return html_table(self[:_ROWS_SHOWN].to_dicts(), counted(len(self), "prediction"))


@dataclass(frozen=True)
class Written:
    """What was written to files.

    Attributes:
        files: The files; none for a stream.
        rows: Number of rows that were read.
        answers: Number of rows with an answer. The others have a reason instead.
        notes: What was warned about.

    Example:
        >>> written = model.predict(reviews, text="review", output="out/answers.csv")
        >>> written.rows, written.answers
        (36, 36)
    """

    files: tuple[Path, ...]
    rows: int
    answers: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ranked:
    """A passage of a ranking.

    Attributes:
        index: Its position in the input.
        score: Higher is better.
        text: The passage.
    """

    index: int
    score: float
    text: str


@dataclass(frozen=True)
class Explanation(Tabular):
    """The words that a prediction rests on.

    Attributes:
        about: What is explained: the label, the number, the tag or the masked word.
        method: How the values were computed.
        words: Each word with its share of the logit; special tokens too.
        logit: The logit of what is explained.
        baseline: The logit without the words.
        faithfulness: What the prediction loses without the most important words, beside random ones.
        facts: Everything, as `bertie explain --json` prints it.
    """

    about: str
    method: str
    words: tuple[tuple[str, float], ...]
    logit: float
    baseline: float
    faithfulness: Mapping[str, object]
    facts: Mapping[str, object]

    def to_dict(self) -> dict[str, object]:
        """Returns everything as JSON values."""
        return {**self.facts}

    def to_dicts(self) -> list[dict[str, object]]:
        """Returns a row for each word."""
        return [{"word": word, "value": value} for word, value in self.words]

    def __repr__(self) -> str:
        words = sorted(self.words, key=lambda one: -abs(one[1]))[:3]
        return f"Explanation({self.about}: {', '.join(f'{text} {value:+z.3f}' for text, value in words)})"

    def _repr_html_(self) -> str:
        most = max((abs(value) for _, value in self.words), default=0) or 1
        marks = (
            f'<mark title="{value:+z.3f}" style="background: rgba({"0,128,0" if value > 0 else "192,0,0"},'
            f'{abs(value) / most / 2:.2f}); color: inherit">{escape(text)}</mark>'
            for text, value in self.words
        )
        return f"<p>{escape(self.about)}</p><p>{' '.join(marks)}</p>"


def with_interval(row: Mapping[str, object]) -> str:
    """Returns a metric with its value and interval, in one line."""
    bounds = "" if row["low"] is None else f" ({row['low']:z.3f} to {row['high']:z.3f})"
    return f"{row['metric']} {row['value']:z.3f}{bounds}"


def html_table(rows: Sequence[Mapping[str, object]], caption: str) -> str:
    """Returns a table in the style of the notebook that shows it."""
    columns = [*dict.fromkeys(name for row in rows for name in row)]
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(f'<td>{_cell(row.get(name))}</td>' for name in columns)}</tr>" for row in rows)
    below = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<table>{below}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: object) -> str:
    return escape("" if value is None else f"{value:z.3f}" if isinstance(value, float) else str(value))
