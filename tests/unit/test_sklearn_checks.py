"""The checks of scikit-learn on the estimators. Its X are numbers, which an estimator reads as texts.

A model reads two texts of a row at most, so the checks with more columns run on estimators that join the columns.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sklearn.base import BaseEstimator
from sklearn.utils.estimator_checks import parametrize_with_checks

from bertie.apps.sklearn.inputs import ColumnValues, Texts
from bertie.sklearn import TextClassifier, TextEmbedder, TextRegressor
from toys import toy_model

MODEL = "model"  # a folder of the current directory of the tests
QUICK: dict[str, Any] = {"epochs": 1, "batch_size": 64, "max_length": 16, "device": "cpu", "precision": "fp32"}

WEIGHTS = "a row of weight 2 is in one batch, and a row that occurs twice is in two"
INFINITE = "a number is read as a text, and so is an infinite one"
FLAT = "a flat X is a list of texts, not a mistake"
COMPLEX = "the error about a complex number says that it is no text"
SKILL = "one epoch of a tiny model does not learn numbers that are written as texts"
WIDE = "X has three columns or more, and a model reads two texts at most; the joined estimator passes"

ALL = {"check_estimators_nan_inf": INFINITE, "check_fit1d": FLAT, "check_fit2d_predict1d": FLAT}
TRAINED = {
    "check_sample_weight_equivalence_on_dense_data": WEIGHTS,
    "check_class_weight_classifiers": SKILL,
    "check_classifiers_train": SKILL,
    "check_regressors_train": SKILL,
}
COLUMNS = (
    "check_all_zero_sample_weights_error",
    "check_classifiers_one_label_sample_weights",
    "check_sample_weights_list",
    "check_classifiers_one_label",
    "check_classifiers_regression_target",
    "check_dict_unchanged",
    "check_dont_overwrite_parameters",
    "check_dtype_object",
    "check_estimators_dtypes",
    "check_estimators_pickle",
    "check_f_contiguous_array_estimator",
    "check_fit2d_1sample",
    "check_fit_score_takes_y",
    "check_methods_sample_order_invariance",
    "check_methods_subset_invariance",
    "check_n_features_in_after_fitting",
    "check_pipeline_consistency",
    "check_positive_only_tag_during_fit",
    "check_regressor_data_not_an_array",
    "check_regressors_int",
    "check_regressors_no_decision_function",
    "check_supervised_y_2d",
)


class Joined:
    """An estimator that reads all columns of a row as one text."""

    _most_columns = None

    def _rows(self, X: Texts, **fit: Any) -> list[ColumnValues]:
        return [(" ".join(map(str, row)),) for row in super()._rows(X, **fit)]  # type: ignore[misc]


class JoinedClassifier(Joined, TextClassifier):
    """A classifier of rows with any number of columns."""


class JoinedRegressor(Joined, TextRegressor):
    """A regressor of rows with any number of columns."""


def expected(estimator: BaseEstimator) -> dict[str, str]:
    """The checks that fail, with the reason."""
    if isinstance(estimator, TextEmbedder):
        return ALL | {"check_complex_data": COMPLEX}
    return ALL | TRAINED | ({} if isinstance(estimator, Joined) else dict.fromkeys(COLUMNS, WIDE))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("checks")
    toy_model(place / MODEL, [*"0123456789.-e", *(f"##{one}" for one in "0123456789.-e")])
    return place


@pytest.mark.slow
@parametrize_with_checks(
    [
        TextClassifier(MODEL, **QUICK),
        TextRegressor(MODEL, **QUICK),
        TextEmbedder(MODEL, device="cpu"),
        JoinedClassifier(MODEL, **QUICK),
        JoinedRegressor(MODEL, **QUICK),
    ],
    expected_failed_checks=expected,
    xfail_strict=True,
)
def test_the_checks_of_scikit_learn_hold(
    estimator: BaseEstimator, check: Callable[[BaseEstimator], None], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    check(estimator)
