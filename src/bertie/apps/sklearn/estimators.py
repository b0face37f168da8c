"""`TextClassifier` and `TextRegressor`: models that `bertie.finetune` trains.

N rows · L labels
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import assert_all_finite, check_is_fitted, column_or_1d

from bertie import Predictions, finetune
from bertie.apps.sklearn.base import ModelFiles, TextEstimator
from bertie.apps.sklearn.inputs import (
    Array,
    ColumnValues,
    InputError,
    Labels,
    Texts,
    as_input_errors,
    check_lengths,
    free_name,
    labels_of,
    list_row_texts,
    make_row_error,
    named_rows,
    names_of,
    weights_of,
)
from bertie.platform import BertieError, UsageError, console, nearest

_UNREACHED_STEP = 10**9  # steps
WHOLE: dict[str, object] = {  # settings of a run that learns from all rows and measures nothing
    "held_out": 0,
    "baselines": False,
    "label_check": "none",
    "train.eval_every": _UNREACHED_STEP,
    "train.save_every": _UNREACHED_STEP,
}
_one_run = threading.Lock()  # all threads share torch's generator, which a run seeds and draws from

if TYPE_CHECKING:
    from torch import Tensor

_Loss = Callable[["Tensor", "Tensor", "Tensor"], "tuple[Tensor, Tensor | float]"]


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
        loss: str | _Loss = "usual",
        patience: int | None = None,
        lora: int | None = None,
        tabular: Sequence[str] | Sequence[int] = (),
        seed: int = 0,
        device: str = "auto",
        precision: str = "auto",
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self.model = model
        self.epochs = epochs
        self.lr = lr
        self.batch_size = batch_size
        self.max_length = max_length
        self.weight_decay = weight_decay
        self.warmup = warmup
        self.loss = loss
        self.patience = patience
        self.lora = lora
        self.tabular = tabular
        self.seed = seed
        self.device = device
        self.precision = precision
        self.settings = settings

    def _rows(self, X: Texts, **fit: object) -> list[ColumnValues]:
        """Returns the values of each row. fit: `y`, where it is learned which columns are texts."""
        rows = super()._rows(X, **fit)
        if fit:
            self._learn_names(len(rows[0]))
            self._check_pairs(rows)
        return rows

    def _learn_names(self, width: int) -> None:
        """Learns the names of the columns of texts, and of those of `tabular`. Raises InputError for others."""
        names: Sequence[object] = getattr(self, "feature_names_in_", range(width))
        if unknown := [name for name in self.tabular if name not in names]:
            raise InputError(f"X has no column {unknown[0]!r} of `tabular`. {nearest(unknown[0], map(str, names))}")
        texts = [number for number, name in enumerate(names) if name not in self.tabular]
        if len(texts) not in (1, 2):
            raise InputError(
                f"X has {len(texts)} columns of texts; {type(self).__name__} reads one, or two for pairs. "
                'Choose them: X[["text"]]. `tabular` names columns of numbers and categories to read beside them.'
            )
        self._text_names = (
            tuple(str(names[i]) for i in texts)
            if hasattr(self, "feature_names_in_")
            else ("text", "text_b")[: len(texts)]
        )
        self._tabular_names = tuple(map(str, self.tabular))
        self._places = [*texts, *([*names].index(name) for name in self.tabular)]

    def _check_pairs(self, rows: Sequence[ColumnValues]) -> None:
        """Raises InputError for a column of numbers beside one of texts, which is not the second text of pairs."""
        numeric = [all(isinstance(row[place], Real) for row in rows) for place in self._places[: len(self._text_names)]]
        if any(numeric) and not all(numeric):
            name = self._text_names[numeric.index(True)]
            raise InputError(
                f"Column {name!r} of X has numbers, not the second text of pairs. To read them beside the text, pass "
                f"tabular=[{name!r}]; otherwise leave the column out."
            )

    def _columns(self, rows: Sequence[ColumnValues]) -> dict[str, Sequence[object]]:
        """Returns the columns of rows by name: the texts first. Raises InputError for a row without a text."""
        values = [*zip(*rows, strict=True)]
        list_row_texts([tuple(row[place] for place in self._places[: len(self._text_names)]) for row in rows])
        names = (*self._text_names, *self._tabular_names)
        return {name: values[place] for name, place in zip(names, self._places, strict=True)}

    def _learn(
        self, rows: Sequence[ColumnValues], labels: Sequence[object], sample_weight: object, **fixed: Any
    ) -> None:
        """Fine-tunes the model on all rows. fixed: settings of the task, which `settings` may change.

        Raises KeyboardInterrupt where a signal stops the run. A search would take an error for a bad candidate.
        """
        task, weights = fixed.pop("task"), weights_of(sample_weight, rows)
        columns = self._columns(rows)
        label, weight = (free_name(name, columns) for name in ("label", "weight"))
        columns |= {label: labels} | ({weight: weights} if weights is not None else {})
        fixed |= {"text": self._text_names, "label": label, "tabular": self._tabular_names}
        fixed |= {"weight": weight} if weights is not None else {}
        fixed |= {"select_on": "train"}  # rows that select something are never learned from
        whole = WHOLE if self.patience is None else {key: WHOLE[key] for key in WHOLE if key != "train.eval_every"}
        with _one_run, console.without_notes(), as_input_errors():
            try:
                run = finetune(
                    self.model,
                    named_rows(columns),
                    task=task,
                    epochs=self.epochs,
                    lr=self.lr,
                    batch_size=self.batch_size,
                    max_length=self.max_length,
                    weight_decay=self.weight_decay,
                    warmup=self.warmup,
                    loss=None if self.loss == "usual" else self.loss,
                    patience=self.patience,
                    lora=self.lora,
                    seed=self.seed,
                    device=self.device,
                    precision=self.precision,
                    settings={**whole, **fixed, **(self.settings or {})},
                )
            except BertieError as error:
                if error.code != "stopped":
                    raise
                raise KeyboardInterrupt(error.message) from None
            if not run.finished:  # the stop button of a notebook
                raise KeyboardInterrupt("The fit was stopped.")
            results: Mapping[str, Any] = run.results
            learned = results["train_examples"] + results.get("selecting", 0)
            if not self.settings and learned < len(rows):
                raise InputError(f"Not all rows can be learned from. {'. '.join(results['notes'])}.")
            self._files = ModelFiles.taken(run.places)

    def _predictions(self, X: Texts) -> Predictions:
        """Returns a prediction for each row. Raises InputError for a row without one."""
        check_is_fitted(self)
        columns = self._columns(self._rows(X))
        with as_input_errors():
            answers = self._files.model(self.device).predict(named_rows(columns), text=self._text_names)
        for number, answer in enumerate(answers, 1):
            if answer.error:
                raise make_row_error(number, answer.error)
        return answers


class TextClassifier(ClassifierMixin, FineTuned):  # type: ignore[misc]
    """A classifier of texts or pairs of texts, fine-tuned from a pre-trained model.

    The arguments are those of `bertie.finetune`. `settings` are others by their dotted names. All rows are learned
    from; with `patience`, `optimize` or `calibrate`, but for a tenth that selects. Predictions are computed in float32.
    A 2-D y of 0 and 1 has a column for each of several labels. `class_weight` is "balanced" or a dictionary of labels
    and weights, as of scikit-learn. `positive` is the label of the threshold that `optimize` chooses; the second.
    `tabular` names columns of X, numbers or categories, that are read beside the text; the other columns are texts.

    Attributes:
        classes_: The labels, sorted, of the type of y; for a 2-D y, the numbers of its columns.
        folder_: The folder of the fitted model.

    Example:
        >>> from bertie.sklearn import TextClassifier
        >>> classifier = TextClassifier("runs/tiny", epochs=2).fit(reviews["review"], reviews["stars"])
        >>> classifier.classes_.tolist()
        ['bad', 'good']
        >>> classifier.predict_proba(["the soup was cold"]).shape
        (1, 2)
    """

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
        class_weight: str | Mapping[str, float] | Mapping[int, float] | None = None,
        sampling: str = "natural",
        loss: str | _Loss = "usual",
        label_smoothing: float = 0.0,
        optimize: str = "",
        positive: object = None,
        calibrate: str | None = None,
        patience: int | None = None,
        lora: int | None = None,
        tabular: Sequence[str] | Sequence[int] = (),
        seed: int = 0,
        device: str = "auto",
        precision: str = "auto",
        settings: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(
            model,
            epochs=epochs,
            lr=lr,
            batch_size=batch_size,
            max_length=max_length,
            weight_decay=weight_decay,
            warmup=warmup,
            loss=loss,
            patience=patience,
            lora=lora,
            tabular=tabular,
            seed=seed,
            device=device,
            precision=precision,
            settings=settings,
        )
        self.class_weight = class_weight
        self.sampling = sampling
        self.label_smoothing = label_smoothing
        self.optimize = optimize
        self.positive = positive
        self.calibrate = calibrate

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def fit(self, X: Texts, y: Labels, sample_weight: object = None) -> Self:
        """Fine-tunes the model on labeled texts.

        Args:
            X: N texts or pairs of texts.
            y: N labels: texts, whole numbers or booleans; or (N, L) of 0 and 1.
            sample_weight: N weights of the rows in the loss.

        Raises:
            InputError: A row has no text or no label, or there are fewer than two labels.
            UsageError: A setting is wrong.
        """
        rows, truth = self._rows(X, y=y), labels_of(y)
        check_lengths(rows, truth)
        if type_of_target(truth) == "multilabel-indicator":
            if self.class_weight is not None:
                raise UsageError("class_weight is for one label a row. Omit it for a 2-D y.")
            names = [str(name) for name in getattr(y, "columns", range(truth.shape[1]))]
            sets = [[name for name, value in zip(names, row, strict=True) if value] for row in truth]
            cut = {} if self.optimize else {"task_options.threshold": 0.5}
            self._learn(rows, sets, sample_weight, task="multilabel", **cut, **self._chosen)
            self.classes_, self._names, self._several = np.arange(len(names)), names, True
            return self
        truth = column_or_1d(truth, warn=True)
        check_classification_targets(truth)
        classes, number_N = np.unique(truth, return_inverse=True)
        if len(classes) < 2:
            raise InputError(f"A classifier needs at least two classes; y has one class, {classes.tolist()[0]!r}.")
        names = names_of(classes)
        chosen = {} if self.class_weight is None else {"class_weights": self._class_weights(classes, names)}
        if self.positive is not None:
            if self.positive not in classes:
                raise UsageError(f"positive is {self.positive!r}, which is no class of y: {classes.tolist()[:10]}.")
            chosen["positive"] = dict(zip(classes.tolist(), names, strict=True))[self.positive]
        chosen |= self._chosen
        self._learn(rows, [names[number] for number in number_N], sample_weight, task="sequence", **chosen)
        self.classes_, self._names, self._several = classes, names, False
        return self

    @property
    def _chosen(self) -> dict[str, Any]:
        """The settings of the loss and of what is fitted after training that differ from their defaults."""
        known = {"sampling": "natural", "label_smoothing": 0.0, "optimize": "", "calibrate": None}
        return {name: value for name, usual in known.items() if (value := getattr(self, name)) != usual}

    def _class_weights(self, classes: Array, names: Sequence[str]) -> str | dict[str, float]:
        """Returns `class_weight` by the names that labels have in the model."""
        if not isinstance(self.class_weight, Mapping):
            return str(self.class_weight)
        name = dict(zip(classes.tolist(), names, strict=True))
        return {name.get(label, str(label)): weight for label, weight in self.class_weight.items()}

    def predict(self, X: Texts) -> Array:
        """Returns the label of each row. (N,), or (N, L) of 0 and 1"""
        labels: list[Any] = self._predictions(X).labels
        if self._several:
            return np.array([[name in label for name in self._names] for label in labels], np.int64)
        number = {name: i for i, name in enumerate(self._names)}
        return np.asarray(self.classes_[[number[label] for label in labels]])

    def predict_proba(self, X: Texts) -> NDArray[np.float64]:
        """Returns the probability of each label, in the order of `classes_`. (N, L)"""
        return np.array([[answer.scores.get(name, 0.0) for name in self._names] for answer in self._predictions(X)])


class TextRegressor(RegressorMixin, FineTuned):  # type: ignore[misc]
    """A regressor of texts or pairs of texts, fine-tuned from a pre-trained model: a number for each row.

    The arguments are those of `TextClassifier`. Numbers are learned as they are. Wrap the estimator in scikit-learn's
    `TransformedTargetRegressor` if they are far from 0 and 1.

    Attributes:
        folder_: The folder of the fitted model.

    Example:
        >>> from bertie.sklearn import TextRegressor
        >>> regressor = TextRegressor("runs/tiny", epochs=1).fit(["short", "a longer text"] * 8, [0.1, 0.9] * 8)
        >>> regressor.predict(["a text"]).shape
        (1,)
    """

    def fit(self, X: Texts, y: Labels, sample_weight: object = None) -> Self:
        """Fine-tunes the model on texts with numbers.

        Args:
            X: N texts or pairs of texts.
            y: N numbers.
            sample_weight: N weights of the rows in the loss.

        Raises:
            InputError: A row has no text or no number.
            UsageError: A setting is wrong.
        """
        rows = self._rows(X, y=y)
        truth = column_or_1d(labels_of(y), warn=True, dtype=np.float64)
        assert_all_finite(truth, input_name="y")
        check_lengths(rows, truth)
        self._learn(rows, truth.tolist(), sample_weight, task="regression")
        return self

    def predict(self, X: Texts) -> NDArray[np.float64]:
        """Returns the number of each row. (N,)"""
        return np.array([answer.label for answer in self._predictions(X)], np.float64)
