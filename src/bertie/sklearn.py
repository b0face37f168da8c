"""Estimators of scikit-learn over texts: `TextClassifier`, `TextRegressor` and `TextEmbedder`.

    X -> rows of texts -> bertie.finetune -> a model folder -> bertie.predict

X is a list, an array or a Series of texts, or a DataFrame or a 2-D array with a column for each text. An estimator
learns from all rows that it is given, and answers with the engine and the numbers of `bertie.predict` and
`bertie.embed`. A pickle contains the files of its model: weights as safetensors, and JSON.

N rows · L labels · W numbers of a vector
"""

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self

import narwhals
import numpy as np
from numpy.typing import NDArray
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    RegressorMixin,
    TransformerMixin,
)
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import assert_all_finite, check_is_fitted, column_or_1d, validate_data

from bertie.api.finetune import finetune
from bertie.api.results import Predictions
from bertie.api.use import embed, predict, runner_of
from bertie.console import counted, without_notes
from bertie.data.memory import plain
from bertie.data.tables import Columns, Example, InvalidRow, example
from bertie.errors import BertieError, DataError, UsageError
from bertie.folders import new_folder
from bertie.infer.embed import Vector, embedder
from bertie.infer.predict import each_row
from bertie.models.folder import MODEL_FOLDER
from bertie.runs.models import MODEL, model_folder
from bertie.tasks.embed import EmbedTask

if TYPE_CHECKING:
    from bertie.infer.engine import Engine
    from bertie.models.model import Model

Row = tuple[Any, ...]
Array = NDArray[Any]

PAIR = 2  # texts that a model reads together at most
NEVER = 10**9  # steps
WHOLE: dict[str, Any] = {  # settings of a run that learns from all rows and measures nothing
    "held_out": 0,
    "baselines": False,
    "label_check": "none",
    "train.eval_every": NEVER,
    "train.save_every": NEVER,
}


class InputError(DataError, ValueError):
    """X or y that an estimator cannot use. It is a ValueError, as scikit-learn expects."""


class ModelFiles:
    """The folder of a model. A pickle of this value contains the files, and opens them in a temporary folder."""

    def __init__(self, folder: Path, temporary: "TemporaryDirectory[str] | None" = None) -> None:
        self.folder, self._temporary = folder, temporary
        self._runners: dict[str, tuple[Model | Engine, dict[str, Any]]] = {}

    @classmethod
    def taken(cls, folder: Path) -> Self:
        """Returns the files of a folder, which is moved to one that lasts as long as the value."""
        temporary = TemporaryDirectory(prefix="bertie-model-")
        shutil.move(folder, Path(temporary.name) / MODEL)
        return cls(Path(temporary.name) / MODEL, temporary)

    def runner(self, device: str) -> "tuple[Model | Engine, dict[str, Any]]":
        """Returns the engine that `bertie.predict` would take, and its tokenizer as an option."""
        if device not in self._runners:
            self._runners[device] = runner_of(self.folder, device, None, {})
        engine, options = self._runners[device]
        return engine, {**options}

    def __getstate__(self) -> dict[str, bytes]:
        files = (path for path in sorted(self.folder.rglob("*")) if path.is_file())
        return {path.relative_to(self.folder).as_posix(): path.read_bytes() for path in files}

    def __setstate__(self, files: Mapping[str, bytes]) -> None:
        temporary = TemporaryDirectory(prefix="bertie-model-")
        folder = Path(temporary.name) / MODEL
        for name, content in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        self.__init__(folder, temporary)  # type: ignore[misc]


class TextEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """What the estimators share: how X is read, and the fitted model."""

    _files: ModelFiles
    _most_columns: int | None = PAIR

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_files")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.one_d_array = True
        return tags

    @property
    def folder_(self) -> Path:
        """The folder of the fitted model. A temporary one lasts as long as the estimator."""
        check_is_fitted(self)
        return self._files.folder

    def save(self, folder: str | Path, *, overwrite: bool = False) -> Path:
        """Copies the fitted model to a folder for `bertie.load`, and returns the folder.

        Raises UsageError for a folder with files.
        """
        source = self.folder_
        with new_folder(Path(folder), MODEL_FOLDER, overwrite=overwrite) as target:
            shutil.copytree(source, target, dirs_exist_ok=True)
        return Path(folder)

    def _rows(self, X: Any, **fit: Any) -> list[Row]:
        """Returns the texts of each row. fit: `y`, where the number and the names of columns are learned."""
        learns = bool(fit)
        rows = rows_of(X)
        width = len(rows[0])
        if self._most_columns and width > self._most_columns:
            raise InputError(
                f"X has {width} columns; {type(self).__name__} reads a column of texts, or two for pairs. Choose them: "
                'X[["text"]].'
            )
        if not learns:
            check_is_fitted(self)
        validate_data(self, X, reset=learns, skip_check_array=True, ensure_2d=False, **fit)
        if learns:
            self.n_features_in_ = width
        elif width != self.n_features_in_:
            raise InputError(
                f"X has {width} features, but {type(self).__name__} is expecting {self.n_features_in_} features as "
                "input."
            )
        return rows


class FineTuned(TextEstimator):
    """What the estimators share whose model is fine-tuned. The arguments are those of `bertie.finetune`."""

    def __init__(
        self,
        model: str | Path = "starter-en",
        *,
        epochs: float = 3,
        lr: float | None = None,
        batch_size: int = 32,
        max_length: int = 128,
        weight_decay: float | None = None,
        warmup: float | None = None,
        seed: int = 0,
        device: str = "auto",
        precision: str = "auto",
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.model = model
        self.epochs = epochs
        self.lr = lr
        self.batch_size = batch_size
        self.max_length = max_length
        self.weight_decay = weight_decay
        self.warmup = warmup
        self.seed = seed
        self.device = device
        self.precision = precision
        self.settings = settings

    def _learn(self, rows: Sequence[Row], labels: Sequence[Any], **fixed: Any) -> None:
        """Fine-tunes the model on all rows. fixed: settings of the task, which `settings` may change."""
        task = fixed.pop("task")
        with without_notes(), as_input_errors():
            run = finetune(
                self.model,
                (texts_of(rows), labels),
                task=task,
                epochs=self.epochs,
                lr=self.lr,
                batch_size=self.batch_size,
                max_length=self.max_length,
                weight_decay=self.weight_decay,
                warmup=self.warmup,
                seed=self.seed,
                device=self.device,
                precision=self.precision,
                settings={**WHOLE, **fixed, **(self.settings or {})},
            )
        if not self.settings and run.results["train_examples"] < len(rows):
            raise InputError(f"Not all rows can be learned from. {'. '.join(run.results['notes'])}.")
        self._files = ModelFiles.taken(run.folder / MODEL)

    def _predictions(self, X: Any) -> Predictions:
        """Returns a prediction for each row. Raises InputError for a row without one."""
        check_is_fitted(self)
        texts = texts_of(self._rows(X))
        engine, options = self._files.runner(self.device)
        with as_input_errors():
            answers = predict(engine, texts, **options)
        for number, answer in enumerate(answers, 1):
            if answer.error:
                raise unread(number, answer.error)
        return answers


class TextClassifier(ClassifierMixin, FineTuned):  # type: ignore[misc]
    """A classifier of texts or pairs of texts, fine-tuned from a pre-trained model.

    The arguments are those of `bertie.finetune`. `settings` are others by their dotted names. All rows are learned
    from; predictions are computed in float32. A 2-D y of 0 and 1 has a column for each of several labels.

        TextClassifier("starter-en", epochs=2).fit(texts, labels).predict(["a quiet, lovely film"])

    Attributes:
        classes_: The labels, sorted, of the type of y; for a 2-D y, the numbers of its columns.
        folder_: The folder of the fitted model.
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fine-tunes the model on labeled texts.

        Args:
            X: N texts or pairs of texts.
            y: N labels: texts, whole numbers or booleans; or (N, L) of 0 and 1.
            sample_weight: Not supported yet.

        Raises:
            InputError: A row has no text or no label, or there are fewer than two labels.
            UsageError: A setting is wrong, or weights are given.
        """
        refuse_weights(sample_weight)
        rows, truth = self._rows(X, y=y), labels_of(y)
        check_lengths(rows, truth)
        if type_of_target(truth) == "multilabel-indicator":
            names = [str(name) for name in getattr(y, "columns", range(truth.shape[1]))]
            sets = [[name for name, value in zip(names, row, strict=True) if value] for row in truth]
            self._learn(rows, sets, task="multilabel", **{"task_options.threshold": 0.5})
            self.classes_, self._names, self._several = np.arange(len(names)), names, True
            return self
        truth = column_or_1d(truth, warn=True)
        check_classification_targets(truth)
        classes, number_N = np.unique(truth, return_inverse=True)
        if len(classes) < 2:
            raise InputError(f"A classifier needs at least two classes; y has only the class {classes.tolist()[0]!r}.")
        names = names_of(classes)
        self._learn(rows, [names[number] for number in number_N], task="sequence")
        self.classes_, self._names, self._several = classes, names, False
        return self

    def predict(self, X: Any) -> Array:
        """Returns the label of each row. (N,), or (N, L) of 0 and 1"""
        answers = self._predictions(X)
        if self._several:
            return np.array([[name in answer.label for name in self._names] for answer in answers], int)
        number = {name: i for i, name in enumerate(self._names)}
        return np.asarray(self.classes_[[number[answer.label] for answer in answers]])

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Returns the probability of each label, in the order of `classes_`. (N, L)"""
        return np.array([[answer.scores.get(name, 0.0) for name in self._names] for answer in self._predictions(X)])


class TextRegressor(RegressorMixin, FineTuned):  # type: ignore[misc]
    """A regressor of texts or pairs of texts, fine-tuned from a pre-trained model: a number for each row.

    The arguments are those of `TextClassifier`. Numbers are learned as they are. Wrap the estimator in scikit-learn's
    `TransformedTargetRegressor` if they are far from 0 and 1.

    Attributes:
        folder_: The folder of the fitted model.
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fine-tunes the model on texts with numbers.

        Args:
            X: N texts or pairs of texts.
            y: N numbers.
            sample_weight: Not supported yet.

        Raises:
            InputError: A row has no text or no number.
            UsageError: A setting is wrong, or weights are given.
        """
        refuse_weights(sample_weight)
        rows = self._rows(X, y=y)
        truth = column_or_1d(labels_of(y), warn=True, dtype=np.float64)
        assert_all_finite(truth, input_name="y")
        check_lengths(rows, truth)
        self._learn(rows, truth.tolist(), task="regression")
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Returns the number of each row. (N,)"""
        return np.array([answer.label for answer in self._predictions(X)], np.float64)


class TextEmbedder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, TextEstimator):  # type: ignore[misc]
    """A transformer from texts to vectors, as `bertie.embed` computes them. Nothing is trained.

    The options are those of `bertie.embed`. The vectors of several columns stand side by side.

        make_pipeline(TextEmbedder("minilm-l6"), LogisticRegression()).fit(texts, labels)

    Attributes:
        folder_: The folder of the model.
    """

    _most_columns = None

    def __init__(
        self,
        model: str | Path = "minilm-l6",
        *,
        pooling: str | Sequence[str] | None = None,
        normalize: bool = False,
        prompt: str | None = None,
        prefix: str | None = None,
        truncate_dim: int | None = None,
        max_length: int | None = None,
        device: str = "auto",
    ) -> None:
        self.model = model
        self.pooling = pooling
        self.normalize = normalize
        self.prompt = prompt
        self.prefix = prefix
        self.truncate_dim = truncate_dim
        self.max_length = max_length
        self.device = device

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []  # always float32
        return tags

    def fit(self, X: Any, y: Any = None) -> Self:
        """Opens the model, and learns how many columns X has.

        Raises:
            InputError: A row has no text.
            DataError: The model cannot be read.
        """
        rows = self._rows(X, y=y)
        texts_of(rows)
        files = ModelFiles(model_folder(self.model))
        engine, options = files.runner(self.device)
        opened = embedder(engine, **options, **self._options())
        assert isinstance(opened.task, EmbedTask)
        self._n_features_out = opened.task.width(opened.engine.facts.hidden_size) * len(rows[0])
        self._files = files
        return self

    def transform(self, X: Any) -> Vector:
        """Returns the vector of each row. (N, W) float32"""
        check_is_fitted(self)
        rows = self._rows(X)
        texts_of(rows)
        engine, options = self._files.runner(self.device)
        with as_input_errors():
            return np.hstack(
                [embed(engine, column, **options, **self._options()) for column in zip(*rows, strict=True)]
            )

    def _options(self) -> dict[str, Any]:
        names = ("pooling", "normalize", "prompt", "prefix", "truncate_dim", "max_length")
        return {name: getattr(self, name) for name in names}


def rows_of(X: Any) -> list[Row]:
    """Returns the values of each row of a table, or of a list of texts. Raises InputError for another form."""
    if hasattr(X, "toarray"):
        raise InputError("X is a sparse matrix. Pass texts: a list, or a column of a table.")
    frame = narwhals.from_native(X, pass_through=True, allow_series=True)
    if isinstance(frame, narwhals.LazyFrame):
        frame = frame.collect()
    if isinstance(frame, narwhals.DataFrame):
        rows = frame.rows()
    elif isinstance(frame, narwhals.Series):
        rows = [(value,) for value in frame]
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
    if len({*map(len, rows)}) > 1 or not rows[0]:
        raise InputError("The rows of X have no columns, or different numbers of them.")
    return rows


def texts_of(rows: Sequence[Row]) -> list[Any]:
    """Returns each row's text, or its tuple of texts. Raises InputError for a row without one."""
    try:
        texts = [*each_row([row if len(row) > 1 else row[0] for row in rows], "X", tuples=True)]
    except BertieError as error:  # of a value that is no text
        raise InputError(error.message) from None
    for one in texts:
        if isinstance(one, InvalidRow):
            raise unread(one.line, one.reason)
    return texts


def unread(row: int, reason: str) -> InputError:
    """Returns the error about a row of X that cannot be read."""
    return InputError(f"Row {row} of X: {reason}. Leave out such rows, or fill them.")


def labels_of(y: Any) -> Array:
    """Returns y as an array, of its values' type where all are of one. Raises InputError for a missing label."""
    array = np.asarray(y.toarray() if hasattr(y, "toarray") else y)
    values = array.ravel().tolist()
    for number, value in enumerate(values):
        if plain(value) is None:
            row = number // max(1, array[:1].size) + 1
            raise InputError(f"Input y contains NaN: row {row} has no label. Leave out such rows.")
    if array.dtype == object and len({*map(type, values)}) == 1 and not isinstance(values[0], str):
        array = np.array(array.tolist())  # of nullable columns
    return array


def names_of(classes: Array) -> list[str]:
    """Returns the names of classes in the model: themselves, or "class 0" ... where a table would change one."""
    names = [str(one) for one in classes]
    read = [example({"text": "a", "label": name}, Columns(("text",), "label")) for name in names]
    same = all(isinstance(one, Example) and one.label == name for one, name in zip(read, names, strict=True))
    return names if same and len({*names}) == len(names) else [f"class {i}" for i in range(len(names))]


def check_lengths(rows: Sequence[Row], labels: Array) -> None:
    """Raises InputError for another number of labels than of rows."""
    if len(rows) != len(labels):
        raise InputError(
            f"X has {counted(len(rows), 'row')} and y has {counted(len(labels), 'label')}. Give each its own."
        )


def refuse_weights(sample_weight: Any) -> None:
    """Raises UsageError for weights, which training cannot read."""
    if sample_weight is not None:
        raise UsageError("sample_weight is not supported: training has no weights of rows yet. Omit sample_weight.")


@contextmanager
def as_input_errors() -> Iterator[None]:
    """Context in which an error about data is an `InputError`."""
    try:
        yield
    except DataError as error:
        raise InputError(error.message, hint=error.hint) from None
