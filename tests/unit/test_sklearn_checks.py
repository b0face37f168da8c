"""The checks of scikit-learn on the three estimators. Its data are numbers, which the estimators read as texts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sklearn.base import BaseEstimator
from sklearn.utils.estimator_checks import parametrize_with_checks

from bertie.sklearn import TextClassifier, TextEmbedder, TextRegressor
from toys import toy_model

MODEL = "model"  # a folder of the current directory of the tests
QUICK: dict[str, Any] = {"epochs": 1, "batch_size": 64, "max_length": 16, "device": "cpu", "precision": "fp32"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("checks")
    toy_model(place / MODEL, [*"0123456789.-e", *(f"##{one}" for one in "0123456789.-e")])
    return place


def expected(estimator: BaseEstimator) -> dict[str, str]:
    return {}


@pytest.mark.slow
@parametrize_with_checks(
    [TextClassifier(MODEL, **QUICK), TextRegressor(MODEL, **QUICK), TextEmbedder(MODEL, device="cpu")],
    expected_failed_checks=expected,
)
def test_the_checks_of_scikit_learn_hold(
    estimator: BaseEstimator,
    check: Callable[[BaseEstimator], None],
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(place)
    check(estimator)
