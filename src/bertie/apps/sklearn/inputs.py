"""X and y of estimators as rows of texts and labels, with errors that name the row."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import _check_sample_weight

from bertie.platform import BadRecord, BertieError, DataError, each_row, frame_of, is_missing

Texts = object
"""A list, an array or a Series of texts, or a table of them."""
Labels = object
"""A list, an array or a Series."""
ColumnValues = tuple[Any, ...]
Array = NDArray[np.generic]


class InputError(DataError, ValueError):
    """X or y that an estimator cannot use. It is a ValueError, as scikit-learn expects.

    Example:
        >>> from bertie.sklearn import TextEmbedder
        >>> TextEmbedder("runs/vectors").fit(["a text", None])
        Traceback (most recent call last):
        bertie.apps.sklearn.inputs.InputError: Row 2 of X: ...
    """


def rows_of(X: Texts) -> list[ColumnValues]:
    """Returns the values of each row of a table, or of a list of texts. Raises InputError for another form."""
    if hasattr(X, "toarray"):
        raise InputError("X is a sparse matrix. Pass texts: a list, or a column of a table.")
    if (frame := frame_of(X)) is not None:
        rows = frame.rows() if len(frame.shape) == 2 else [(value,) for value in frame]
    else:
        if hasattr(X, "__array__"):
            X = np.asarray(X).tolist()
        if isinstance(X, str | bytes | Mapping) or not isinstance(X, Iterable):
            raise InputError(
                f'X is a {type(X).__name__}; texts were expected: ["..."], or a table with a column of them.'
            )
        rows = [tuple(row) if isinstance(row, list | tuple | np.ndarray) else (row,) for row in X]
    if not rows:
        raise InputError("X has no rows. Pass at least one text.")
    if len({*map(len, rows)}) > 1:
        raise InputError("The rows of X have different numbers of columns.")
    if not rows[0]:
        raise InputError(f"X has 0 feature(s) (shape=({len(rows)}, 0)) while a minimum of 1 is required.")
    return rows


def list_row_texts(rows: Sequence[ColumnValues]) -> list[object]:
    """Returns each row's text, or its tuple of texts. Raises InputError for a row without one."""
    try:
        texts = [*each_row([row if len(row) > 1 else row[0] for row in rows], "X", tuples=True)]
    except BertieError as error:  # of a value that is no text
        raise InputError(error.message) from None
    for one in texts:
        if isinstance(one, BadRecord):
            raise make_row_error(one.line, one.reason)
    return texts


def make_row_error(row: int, reason: str) -> InputError:
    """Returns the error about a row of X that cannot be read."""
    return InputError(f"Row {row} of X: {reason}. Leave out such rows, or fill them.")


def labels_of(y: Labels) -> Array:
    """Returns y as an array, of its values' type where all are of one. Raises InputError for a missing label."""
    array = np.asarray(y.toarray() if hasattr(y, "toarray") else y)
    values = array.ravel().tolist()
    for number, value in enumerate(values):
        if is_missing(value):
            row = number // max(1, array[:1].size) + 1
            raise InputError(f"Input y contains NaN: row {row} has no label. Leave out such rows.")
    if array.dtype == object and len({*map(type, values)}) == 1 and not isinstance(values[0], str):
        array = np.array(array.tolist())  # of nullable columns
    return array


def names_of(classes: Array) -> list[str]:
    """Returns the names of classes in the model: themselves, or "class 0" ... where a table would change one."""
    names = [str(one) for one in classes]
    same = all(name and name == name.strip() and name[0] not in "[{" for name in names)
    return names if same and len({*names}) == len(names) else [f"class {i}" for i in range(len(names))]


def check_lengths(rows: Sequence[ColumnValues], labels: Array) -> None:
    """Raises InputError for another number of labels than of rows."""
    if len(rows) != len(labels):
        raise InputError(f"X has {len(rows):,} rows and y has {len(labels):,} labels. Give each its own.")


def weights_of(sample_weight: object, rows: Sequence[ColumnValues]) -> list[float] | None:
    """Returns the weight of each row; None where all weigh 1. Raises InputError for other numbers than rows, and for
    weights that are negative, missing or all 0."""
    if sample_weight is None:
        return None
    try:
        weights = _check_sample_weight(sample_weight, rows, dtype=np.float64, ensure_non_negative=True)
    except ValueError as error:
        raise InputError(str(error)) from None
    return list(map(float, weights))


def named_rows(columns: Mapping[str, Sequence[object]]) -> list[dict[str, object]]:
    """Returns the rows of columns of the same length."""
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def free_name(name: str, columns: Iterable[str]) -> str:
    """Returns a name that no column has: `name`, or it with underscores."""
    taken = {*columns}
    while name in taken:
        name += "_"
    return name


@contextmanager
def as_input_errors() -> Iterator[None]:
    """Context in which an error about data is an `InputError`."""
    try:
        yield
    except DataError as error:
        raise InputError(error.message, hint=error.hint) from None
