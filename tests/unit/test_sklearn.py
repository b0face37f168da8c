"""The estimators of scikit-learn: the numbers of `bertie.predict`, in scikit-learn's tools, with errors in words."""

import json
import os
import pickle
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas
import polars
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline

import bertie
from bertie.errors import BertieError, UsageError
from bertie.runs.weights import load_model
from bertie.sklearn import InputError, TextClassifier, TextEmbedder, TextRegressor
from toys import toy_model

TEXTS = [f"{'the' if i % 2 else 'a'} film was {'good' if i % 3 else 'bad'}" for i in range(36)]
SIGNS = ["+" if i % 3 else "-" for i in range(36)]
PAIRS = pandas.DataFrame({"first": TEXTS, "second": ["a film"] * 36})
QUICK: dict[str, Any] = {"epochs": np.int64(12), "lr": 5e-3, "batch_size": 8, "max_length": 16, "device": "cpu"}


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_model(tmp_path_factory.mktemp("start"), ["good", "bad", "a", "film", "the", "was"])


@pytest.fixture(scope="module")
def fitted(start: Path) -> TextClassifier:
    return TextClassifier(start, **QUICK).fit(TEXTS, SIGNS)


FORMS: dict[str, Any] = {
    "an array": np.array(TEXTS),
    "objects": np.array(TEXTS, object),
    "a column": np.array(TEXTS)[:, None],
    "a Series": pandas.Series(TEXTS, index=range(100, 136)),
    "a Series of polars": polars.Series(TEXTS),
    "a table": pandas.DataFrame({"text": TEXTS}),
    "a lazy table": polars.LazyFrame({"text": TEXTS}),
    "rows": [[text] for text in TEXTS],
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.filterwarnings("ignore:X has feature names")
def test_every_form_of_texts_is_read(form: str, fitted: TextClassifier) -> None:
    assert (fitted.predict_proba(FORMS[form]) == fitted.predict_proba(TEXTS)).all()


def test_a_classifier_gives_what_predict_gives_on_its_folder(fitted: TextClassifier, tmp_path: Path) -> None:
    answers = bertie.predict(fitted.folder_, TEXTS)
    assert fitted.predict(TEXTS).tolist() == answers.labels
    assert fitted.classes_.tolist() == ["+", "-"]
    assert fitted.predict_proba(TEXTS).tolist() == answers.probabilities.tolist()
    assert fitted.score(TEXTS, SIGNS) == 1
    assert bertie.predict(fitted.save(tmp_path / "model"), TEXTS) == answers


def test_it_learns_from_all_rows_and_says_nothing(start: Path, capsys: pytest.CaptureFixture[str]) -> None:
    once = TextClassifier(start, **QUICK).fit(["good film"] * 4 + ["bad film"] * 2, ["+"] * 4 + ["-"] * 2)
    assert capsys.readouterr().err == ""
    run = bertie.finetune(
        start, (TEXTS, SIGNS), settings={"held_out": 0}, epochs=1, batch_size=8, max_length=16, device="cpu"
    )
    assert run.results["train_examples"] == len(TEXTS)
    assert any("no example is held out" in note for note in run.results["notes"])
    assert once.classes_.tolist() == ["+", "-"]


LABELS: dict[str, tuple[Any, Any, tuple[str, ...]]] = {  # y, classes, and the labels of the model
    "whole numbers": ([1, 10, 2] * 12, np.array([1, 2, 10]), ("1", "2", "10")),
    "booleans": ([True, False] * 18, np.array([False, True]), ("False", "True")),
    "floats": (np.array([1.0, 2.0] * 18), np.array([1.0, 2.0]), ("1.0", "2.0")),
    "nullable": (pandas.Series([1, 2] * 18, dtype="Int64"), np.array([1, 2]), ("1", "2")),
    "a category": (pandas.Series(["a", "b"] * 18, dtype="category"), np.array(["a", "b"], object), ("a", "b")),
    "names that files would change": (["", " a", "[1]"] * 12, np.array(["", " a", "[1]"]), tuple("012")),
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_of_any_type_come_back(kind: str, start: Path) -> None:
    y, classes, names = LABELS[kind]
    fitted = TextClassifier(start, **QUICK | {"epochs": 1}).fit(TEXTS, y)
    assert fitted.classes_.tolist() == classes.tolist()
    assert fitted.classes_.dtype.kind == classes.dtype.kind
    assert fitted.predict(TEXTS).dtype == fitted.classes_.dtype
    labels = load_model(fitted.folder_).labels
    assert labels == names or labels == tuple(f"class {name}" for name in names)
    best = fitted.predict_proba(TEXTS).argmax(1)
    assert (fitted.classes_[best] == fitted.predict(TEXTS)).all()


def test_several_labels_and_numbers(start: Path) -> None:
    sets = np.array([[i % 3 > 0, i % 2, 0] for i in range(36)], int)
    sets[0] = 0
    several = TextClassifier(start, **QUICK | {"epochs": 40}).fit(TEXTS, sets)
    assert several.classes_.tolist() == [0, 1, 2]
    assert several.predict(TEXTS).shape == several.predict_proba(TEXTS).shape == sets.shape
    assert (several.predict(TEXTS) == (several.predict_proba(TEXTS) >= 0.5)).all()
    assert (several.predict(TEXTS)[1:, 0] == sets[1:, 0]).all()
    numbers = TextRegressor(start, **QUICK).fit(TEXTS, np.array(SIGNS) == "+")
    assert numbers.score(TEXTS, np.array(SIGNS) == "+") > 0.5
    assert numbers.predict(TEXTS).tolist() == bertie.predict(numbers.folder_, TEXTS).labels


def test_a_pickle_is_whole(fitted: TextClassifier, start: Path, tmp_path: Path) -> None:
    pair = make_pipeline(TextEmbedder(start, device="cpu"), LogisticRegression()).fit(TEXTS, SIGNS)
    joblib.dump((fitted, pair), path := tmp_path / "both.joblib")
    assert b"torch" not in path.read_bytes(), "the weights are the bytes of safetensors"
    code = (
        "import joblib, sys\n"
        "fitted, pair = joblib.load(sys.argv[1])\n"
        "print(fitted.predict_proba(sys.argv[2:]).tolist(), pair.predict_proba(sys.argv[2:]).tolist())\n"
        "print(fitted.folder_, pair[0].folder_)"
    )
    start.rename(start.with_name("away"))  # a pickle goes to machines that lack the folder
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, path, *TEXTS[:3]], capture_output=True, text=True, check=True
        )
    finally:
        start.with_name("away").rename(start)
    numbers, folders = done.stdout.splitlines()
    assert numbers == f"{fitted.predict_proba(TEXTS[:3]).tolist()} {pair.predict_proba(TEXTS[:3]).tolist()}"
    assert not any(Path(folder).exists() for folder in folders.split()), "temporary folders go with the estimator"
    copy = pickle.loads(pickle.dumps(fitted))
    folder = copy.folder_
    assert folder != fitted.folder_
    del copy
    assert not folder.exists()
    assert not hasattr(clone(fitted), "classes_")
    assert clone(fitted).get_params() == fitted.get_params()


@pytest.mark.slow
def test_scikit_learn_searches_in_processes_and_threads(start: Path) -> None:
    one = TextClassifier(start, **QUICK)
    search = GridSearchCV(one, {"lr": [1e-6, 5e-3]}, cv=2, n_jobs=2, error_score="raise", scoring="f1_macro")
    assert search.fit(TEXTS, SIGNS).best_params_ == {"lr": 5e-3}
    assert search.predict(TEXTS).tolist() == SIGNS
    with joblib.parallel_config("threading"):
        assert cross_val_score(one, TEXTS, SIGNS, cv=2, n_jobs=2).tolist() == [1, 1]


def test_scikit_learn_searches_validates_and_calibrates(start: Path) -> None:
    one = TextClassifier(start, **QUICK)
    search = GridSearchCV(one, {"epochs": np.array([1, 12])}, cv=2, error_score="raise").fit(TEXTS, SIGNS)
    assert search.predict(TEXTS).tolist() == SIGNS
    assert cross_val_score(one, np.array(TEXTS), SIGNS, cv=2, scoring="f1_macro").tolist() == [1, 1]
    assert CalibratedClassifierCV(one, cv=2).fit(TEXTS, SIGNS).predict_proba(TEXTS).shape == (36, 2)


def test_scikit_learn_permutes_and_joins_columns(start: Path) -> None:
    pairs = TextClassifier(start, **QUICK).fit(PAIRS, SIGNS)
    assert pairs.feature_names_in_.tolist() == ["first", "second"]
    weight = permutation_importance(pairs, PAIRS, SIGNS, n_repeats=2, random_state=0).importances_mean
    assert weight[0] > weight[1] == 0
    frame = pandas.DataFrame({"text": TEXTS, "size": range(36)})
    columns = ColumnTransformer([("vectors", TextEmbedder(start), "text"), ("number", "passthrough", ["size"])])
    joined = make_pipeline(columns, LogisticRegression(max_iter=500)).fit(frame, SIGNS)
    assert joined.score(frame, SIGNS) == 1
    assert [*columns.fit(frame).get_feature_names_out()[[0, -1]]] == ["vectors__textembedder0", "number__size"]


@pytest.mark.parametrize("names", [("review", "stars", "city"), ("label", "weight", "text")])
def test_columns_beside_the_text_are_read(names: tuple[str, ...], start: Path, tmp_path: Path) -> None:
    text, stars, city = names
    frame = pandas.DataFrame(
        {stars: [i / 7 for i in range(36)], text: ["a film"] * 36, city: ["Ulm", "Bonn"] * 18}, index=range(50, 86)
    )
    y = ["+" if i >= 18 else "-" for i in range(36)]
    classifier = TextClassifier(start, **QUICK, tabular=[stars, city]).fit(frame, y, sample_weight=[1.0] * 36)
    assert classifier.score(frame, y) == 1, "the text says nothing"
    model = bertie.load(classifier.save(tmp_path / "model"))
    assert model.predict(frame, text=text).labels == classifier.predict(frame).tolist()
    by_place = clone(classifier).set_params(tabular=[1]).fit(frame.to_numpy()[:, [1, 0]], y)
    assert by_place.score(frame.to_numpy()[:, [1, 0]], y) == 1
    with pytest.raises(InputError, match=r"X has no column 'sters' of `tabular`\. Did you mean 'stars'"):
        clone(classifier).set_params(tabular=["sters"]).fit(frame.rename(columns={stars: "stars"}), y)
    numbers = TextRegressor(start, **QUICK, tabular=[stars]).fit(frame[[text, stars]], frame[stars] / 6)
    assert numbers.score(frame[[text, stars]], frame[stars] / 6) > 0.8


def test_rows_without_weight_teach_nothing(start: Path) -> None:
    wrong = [SIGNS[(i + 1) % 2] if i % 3 == 0 else sign for i, sign in enumerate(SIGNS)]
    weights = [float(one == sign) for one, sign in zip(wrong, SIGNS, strict=True)]
    assert min(weights) == 0
    assert TextClassifier(start, **QUICK).fit(TEXTS, wrong, sample_weight=weights).predict(TEXTS).tolist() == SIGNS


@pytest.mark.parametrize("prompt", [False, True])
@pytest.mark.filterwarnings("ignore:SIGINT:UserWarning")
def test_ctrl_c_ends_a_search(prompt: bool, start: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fits: list[int] = []
    if prompt:
        monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)

    def interrupted(callbacks: object, run: object, step: int, metrics: object) -> None:
        fits.append(step)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr("bertie.train.callbacks.Callbacks.on_step", interrupted)
    search = GridSearchCV(TextClassifier(start, **QUICK), {"lr": [1e-3, 5e-3]}, cv=2)
    with pytest.raises(KeyboardInterrupt, match="The fit was stopped" if prompt else "SIGINT after step 1"):
        search.fit(TEXTS, SIGNS)
    assert fits == [1]


def test_an_embedder_gives_what_embed_gives(start: Path) -> None:
    options: dict[str, Any] = {"pooling": "max", "normalize": True, "truncate_dim": 8}
    both = TextEmbedder(start, **options).set_output(transform="pandas").fit_transform(PAIRS)
    assert both.shape == (36, 16)
    assert (both.to_numpy()[:, 8:] == bertie.embed(start, PAIRS["second"], **options)).all()


def test_the_code_of_the_page_runs(start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pandas.DataFrame({"review": TEXTS, "stars": SIGNS}).to_csv("reviews.csv", index=False)
    text = (Path(__file__).parents[2] / "docs" / "python.md").read_text(encoding="utf-8")
    code = next(part for part in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "TextEmbedder" in part)
    for name in ("starter-en", "minilm-l6"):
        assert name in code
        code = code.replace(name, str(start))
    exec(code.replace("epochs=3", "epochs=1, max_length=16, batch_size=8"), {})
    assert load_model("models/stars").labels == ("+", "-")


def test_errors_are_in_the_terms_of_the_data(fitted: TextClassifier, start: Path) -> None:
    new, calls = TextClassifier(start, **QUICK), list[tuple[Callable[[], object], type[Exception], str]]()
    calls += [
        (lambda: new.fit(TEXTS, SIGNS[:3]), InputError, "X has 36 rows and y has 3 labels"),
        (lambda: new.fit([], []), InputError, "X has no rows"),
        (lambda: new.fit(["a", None], [1, 2]), InputError, "Row 2 of X: no text. Leave out such rows"),
        (lambda: new.fit(["a", np.nan], [1, 2]), InputError, "Row 2 of X: no text"),
        (lambda: new.fit(["a", " "], [1, 2]), InputError, "Row 2 of X: empty text"),
        (lambda: new.fit(["a", b"b"], [1, 2]), InputError, "Text 2 of X is b'b'; it must be a string"),
        (lambda: new.fit(["a", "b"], [1, None]), InputError, "row 2 has no label"),
        (lambda: new.fit(["a", "b"], [1, 1]), InputError, "at least two classes; y has one class, 1"),
        (lambda: new.fit(["a", "b"], [0.5, 1.5]), ValueError, "Unknown label type: continuous"),
        (lambda: new.fit("a text", [1]), InputError, "X is a str; texts were expected"),
        (lambda: new.fit([["a", "b", "c"]] * 2, [1, 2]), InputError, "X has 3 columns of texts; TextClassifier reads"),
        (lambda: new.fit([["a"], ["b", "c"]], [1, 2]), InputError, "different numbers of columns"),
        (lambda: new.fit(pandas.DataFrame({"t": ["a", "b"], "n": [1, 2]}), [1, 2]), InputError, r"tabular=\['n'\]"),
        (lambda: new.fit(TEXTS, SIGNS, sample_weight=[0] * 36), InputError, "non-zero number"),
        (lambda: new.fit(TEXTS, SIGNS, sample_weight=[1] * 35), InputError, "sample_weight.shape"),
        (lambda: new.fit(TEXTS, None), ValueError, "requires y to be passed"),
        (lambda: new.predict(TEXTS), ValueError, "is not fitted yet"),
        (lambda: new.set_params(max_length=999).fit(TEXTS, SIGNS), UsageError, "max_length is 999"),
        (lambda: new.set_params(epoch=1), ValueError, "Invalid parameter 'epoch'"),
        (lambda: fitted.predict(PAIRS.to_numpy()), ValueError, "2 features, but TextClassifier is expecting 1"),
        (lambda: fitted.predict(["a", None]), InputError, "Row 2 of X: no text"),
        (lambda: fitted.predict([]), InputError, "X has no rows"),
        (lambda: TextRegressor(start, **QUICK).fit(["a", "b"], [1, np.inf]), ValueError, "y contains infinity"),
        (lambda: TextRegressor(start, **QUICK).fit(["a", "b"], [1, 1e16]), InputError, "label is beyond"),
        (lambda: TextEmbedder(start, pooling="x").fit(TEXTS), UsageError, "Unknown pooling 'x'"),
        (lambda: TextEmbedder(start).fit(TEXTS).transform(["a", ""]), InputError, "Row 2 of X: empty text"),
    ]
    for number, (call, kind, message) in enumerate(calls):
        with pytest.raises(kind, match=message):
            call()
        assert issubclass(kind, BertieError | ValueError), number


def test_the_estimator_takes_the_settings_of_the_run(start: Path) -> None:
    rng = np.random.default_rng(0)
    texts = [f"{'good' if i % 4 == 0 else 'bad'} film {rng.integers(9)}" for i in range(120)]
    y = np.array(["yes" if i % 4 == 0 else "no" for i in range(120)])
    own = {"sampling": "balanced", "loss": "focal", "optimize": "f2", "positive": "yes", "calibrate": "temperature"}
    fitted = TextClassifier(start, **QUICK | own | {"patience": 2, "lora": None}).fit(texts, y)
    facts = json.loads((fitted.folder_ / "bertie.json").read_text())["task_options"]
    assert (facts["threshold_of"], facts["calibrate"]) == ("yes", "temperature")
    p = fitted.predict_proba(texts)[:, 1]
    assert [*(fitted.predict(texts) == "yes")] == [*(p >= facts["threshold"])]
    assert clone(fitted).get_params()["loss"] == "focal"
    assert TextClassifier(start, **QUICK | {"lora": 2, "label_smoothing": 0.1}).fit(texts, y).score(texts, y) > 0.7
    with pytest.raises(UsageError, match="positive is 'maybe', which is no class of y"):
        TextClassifier(start, **QUICK, optimize="f1", positive="maybe").fit(texts, y)
