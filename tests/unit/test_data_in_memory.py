"""Data in memory, in any form, give what the same rows in a file give; nothing is written unless a folder is named."""

import json
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas
import polars
import pyarrow
import pytest

import bertie
from bertie.errors import DataError, Stopped, UsageError, nearest, speech
from bertie.io import memory
from toys import toy_model

WORDS = ["good", "bad", "a", "film", "the", "was"]
ROWS = [
    {"review": f"{'the' if i % 2 else 'a'} film was {'good' if i % 3 else 'bad'}", "stars": "+" if i % 3 else "-"}
    for i in range(40)
]
QUICK: dict[str, Any] = {"epochs": 1, "batch_size": 8, "max_length": 16, "device": "cpu", "precision": "fp32"}
COLUMNS: dict[str, Any] = {"text": "review", "label": "stars"}


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_model(tmp_path_factory.mktemp("start"), WORDS)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "reviews.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


@pytest.fixture(scope="module")
def trained(start: Path, file: Path) -> bertie.Run:
    return bertie.finetune(start, file, **COLUMNS, **QUICK)


def rows_of() -> Iterator[dict[str, str]]:
    yield from ROWS


FORMS: dict[str, Callable[[], Any]] = {
    "pandas": lambda: pandas.DataFrame(ROWS, index=range(100, 140)),
    "polars": lambda: polars.DataFrame(ROWS),
    "polars, lazy": lambda: polars.LazyFrame(ROWS),
    "arrow": lambda: pyarrow.Table.from_pylist(ROWS),
    "datasets": lambda: datasets.Dataset.from_list(ROWS),
    "datasets, streamed": lambda: datasets.Dataset.from_list(ROWS).to_iterable_dataset(),
    "dicts": lambda: ROWS,
    "a dict of columns": lambda: {name: [row[name] for row in ROWS] for name in ROWS[0]},
    "an iterator of dicts": rows_of,
}
TUPLES: dict[str, Callable[[], Any]] = {
    "tuples": lambda: [(row["review"], row["stars"]) for row in ROWS],
    "an iterator of tuples": lambda: ((row["review"], row["stars"]) for row in ROWS),
    "two lists": lambda: ([row["review"] for row in ROWS], [row["stars"] for row in ROWS]),
    "two columns": lambda: (pandas.DataFrame(ROWS)["review"], pandas.DataFrame(ROWS)["stars"]),
    "two arrays": lambda: (np.array([row["review"] for row in ROWS]), np.array([row["stars"] for row in ROWS])),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_what_the_file_gives(form: str, trained: bertie.Run, start: Path, file: Path) -> None:
    run = bertie.finetune(start, FORMS[form](), **COLUMNS, **QUICK)
    assert run.scores.to_dict() == trained.scores.to_dict()
    scores = bertie.evaluate(trained.folder, FORMS[form](), **COLUMNS)
    assert scores.to_dict() == bertie.evaluate(trained.folder, file, **COLUMNS).to_dict()
    if "iterator" not in form:  # whose first item would have to be read
        predictions = bertie.predict(trained.folder, FORMS[form](), text="review")
        assert predictions == bertie.predict(trained.folder, [row["review"] for row in ROWS])
        assert predictions.to_pandas()["stars"].tolist() == [row["stars"] for row in ROWS]


@pytest.mark.parametrize("form", TUPLES)
def test_tuples_are_texts_and_labels(form: str, trained: bertie.Run, start: Path) -> None:
    assert bertie.finetune(start, TUPLES[form](), **QUICK).scores.to_dict() == trained.scores.to_dict()
    assert bertie.evaluate(trained.folder, TUPLES[form]())["accuracy"] == pytest.approx(
        np.mean([p.label == row["stars"] for p, row in zip(bertie.predict(trained.folder, ROWS), ROWS, strict=True)])
    )


def test_the_command_line_gives_the_same(
    trained: bertie.Run, start: Path, file: Path, tmp_path: Path, bertie: Any
) -> None:
    options = ("epochs=1", "train.batch_size=8", "max_length=16", "train.device=cpu", "train.precision=fp32")
    out = bertie.good(
        "finetune", start, "--train", file, "--text", "review", "--label", "stars", "-o", tmp_path / "run", "--json",
        *options,
    )  # fmt: skip
    assert json.loads(out)["dev"] == json.loads(json.dumps(trained.scores.to_dict()))


def test_pairs_classes_and_odd_values_are_read(start: Path) -> None:
    pairs = [((row["review"], "a film"), row["stars"]) for row in ROWS]
    config = bertie.finetune(start, pairs, **QUICK).results
    assert config["dev"]["examples"] == 4
    texts, names = [row["review"] for row in ROWS], datasets.ClassLabel(names=["bad", "good"])
    classes = {"text": texts, "label": [int(row["stars"] == "+") for row in ROWS]}
    data = datasets.Dataset.from_dict(
        classes, features=datasets.Features({"text": datasets.Value("string"), "label": names})
    )
    assert bertie.finetune(start, data, **QUICK).model.labels == ("bad", "good")
    odd = pandas.DataFrame({"text": [*texts, None, np.nan], "label": [1.5, np.float32(2)] * 21})
    run = bertie.finetune(start, odd, task="regression", **QUICK)
    assert run.results["dev"]["examples"] == 4


def test_words_with_tags_are_read(start: Path) -> None:
    rows = [{"tokens": ["the", "film", "was"], "tags": ["O", "B-X", "O"]} for _ in range(20)]
    assert bertie.finetune(start, rows, task="tagging", **QUICK).scores["examples"] == 2
    assert bertie.finetune(start, iter(rows), task="tagging", **QUICK).scores["examples"] == 2


def test_what_is_wrong_is_told_in_the_terms_of_the_data(trained: bertie.Run, start: Path) -> None:
    frame, calls = pandas.DataFrame(ROWS), list[tuple[Callable[[], object], type[Exception], str]]()

    def train(data: Any, **more: Any) -> Callable[[], object]:
        return lambda: bertie.finetune(start, data, **{**QUICK, **more})

    calls += [
        (train(frame, label="starz"), DataError, "train has no column 'starz'. Did you mean 'stars'"),
        (train(frame.assign(stars=None), **COLUMNS), DataError, r"train contains no usable example.*no stars"),
        (train(frame[:0], **COLUMNS), DataError, "train contains no usable example. It has no rows"),
        (train(3), UsageError, "These are no rows: int. A path, a DataFrame"),
        (train(None), UsageError, "No training examples given. Pass `train=FILE`"),
        (train((["a"], ["x", "y"])), UsageError, "1 texts and 2 labels"),
        (train({"text": ["a"], "label": ["x", "y"]}), UsageError, "different numbers of rows"),
        (train([(1, 2, 3, 4)]), UsageError, "A row has 4 values"),
        (train([{"text": "a", "label": object()}]), UsageError, "Row 1 has a value that cannot be read: a object"),
        (train(frame, settings={"optim.betaz": 1}), UsageError, "Did you mean 'betas'"),
        (train(frame, learning_rate=1), UsageError, "Did you mean 'lr'"),
        (lambda: bertie.predict(trained.folder, "one text"), UsageError, "'one text' is no file"),
        (lambda: bertie.predict(trained.folder, ["a"], text="x"), UsageError, "the texts have none"),
        (lambda: bertie.predict(trained.folder, frame, text="x"), DataError, "texts has no column 'x'"),
        (lambda: bertie.evaluate(trained.folder), UsageError, "either examples, or `data`"),
        (lambda: bertie.evaluate(trained.folder, frame, text="x"), DataError, "examples has no column 'x'"),
    ]
    for call, kind, message in calls:
        with pytest.raises(kind, match=message) as raised:
            call()
        assert memory.MEMORY_SCHEME not in str(raised.value)


def test_an_iterator_is_read_once_and_one_row_at_a_time() -> None:
    read = Counter[str]()

    def rows() -> Iterator[dict[str, Any]]:
        for i in range(1000):
            read["rows"] += 1
            yield {"text": "x" * 1000, "label": i}

    with memory.open_as("train", rows()) as path:
        stream = memory.stream_of(path)
        stream.read(2000)
        assert read["rows"] < 100, "the rest of a longer iterator would not fit into memory"
        with pytest.raises(UsageError, match="can be read once"):
            memory.stream_of(path).read(1)


def test_nothing_stays_but_what_is_asked_for(trained: bertie.Run, start: Path, tmp_path: Path) -> None:
    run = bertie.finetune(start, ROWS, **COLUMNS, **QUICK)
    folder = run.folder
    assert (folder / "model").is_dir()
    kept = run.save(tmp_path / "kept")
    assert bertie.Run.of(tmp_path / "kept").scores.to_dict() == kept.scores.to_dict() == run.scores.to_dict()
    assert kept.report.is_file()
    with pytest.raises(UsageError, match="not empty"):
        run.save(tmp_path / "kept")
    del run
    assert not folder.exists()
    assert kept.model.labels == ("+", "-")
    assert not memory._tables, "no table stands for a path any more"


def test_a_stopped_run_says_that_nothing_is_kept(start: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertie.train.callbacks.Callbacks.on_step", lambda *_: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(Stopped, match=r"^SIGINT after step 1\. Nothing is kept without output\. Pass a folder"):
        bertie.finetune(start, ROWS, **COLUMNS, **QUICK)


def test_at_a_prompt_ctrl_c_returns_the_run_as_it_stands_and_it_is_resumed(
    start: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Hand(bertie.Callback):
        pressed = False

        def on_step(self, run: object, step: int, metrics: object) -> None:
            if not self.pressed:
                self.pressed = True
                os.kill(os.getpid(), signal.SIGINT)

    whole = bertie.finetune(start, ROWS, **COLUMNS, **QUICK)
    monkeypatch.setattr(speech, "shell", False)
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    with pytest.warns(UserWarning, match=r"SIGINT after step 1\. `run\.resume\(\)` continues the run"):
        run = bertie.finetune(start, ROWS, **COLUMNS, **QUICK, callbacks=[Hand()])
    assert not run.finished
    assert (repr(run), run._repr_html_()[:3]) == (f"Run({str(run.folder)!r}, stopped)", "<p>")
    assert run.model.predict(["soup"]).labels[0] in ("+", "-")
    with pytest.raises(UsageError, match=r"run = run\.resume\(\)"):
        _ = run.scores
    resumed = run.resume()
    assert resumed.folder == run.folder
    assert resumed.resume() is resumed
    assert resumed.scores.to_dict() == whole.scores.to_dict()


def test_errors_of_python_say_what_to_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speech, "shell", False)
    with pytest.raises(UsageError, match=r"text is 0; a text or .* was expected\. Pass '0'\."):
        bertie.finetune("starter-en", pandas.DataFrame(ROWS), text=0)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"lr of vary is 0\.1; a list of values was expected"):
        bertie.tune("starter-en", ROWS, vary={"lr": 0.1}, output=tmp_path / "out")  # type: ignore[dict-item]
    for call in (bertie.load, lambda name: bertie.finetune(name, ROWS, **COLUMNS)):
        with pytest.raises(DataError, match=r"To list all models that have a name, call bertie\.list_models\(\)\.$"):
            call("starter-eng")
    with pytest.raises(DataError, match=r"bertie\.load_tokenizer\(NAME\)") as caught:
        bertie.Tokenizer.load("starter-en")
    assert "Did you mean" not in str(caught.value), "the very name"
    assert "Did you mean" not in nearest("starter-en", ["starter-en", "starter-ko"])
    with pytest.raises(DataError, match=r"no finished run: it has no results\.json"):
        bertie.Run.of(tmp_path)


def test_values_show_themselves(trained: bertie.Run) -> None:
    assert re.fullmatch(r"Run\('.*', accuracy [\d.]+ \([\d.]+ to [\d.]+\), macro_f1 .*\)", repr(trained))
    assert trained._repr_html_().count("<tr>") == 9, "a head and two rows, of metrics, of labels and of the confusion"
    assert trained.scores.per_label.keys() == trained.scores.confusion.keys() == {"+", "-"}
    with pytest.raises(UsageError, match="has checked no labels"):
        _ = trained.label_check
    predictions = bertie.predict(trained.folder, [*ROWS, {"review": "", "stars": "<b>"}])
    assert repr(predictions[:2]).startswith("Predictions('")
    assert "&lt;b&gt;" in predictions[35:]._repr_html_()
    assert predictions.probabilities.shape == (41, 2)
    assert np.isnan(predictions.probabilities[-1]).all()
    assert predictions.classes == ("+", "-")
    frame = predictions.to_pandas()
    assert [*frame.columns] == ["review", "stars", "label", "probability", "scores.+", "scores.-", "error"]
    assert predictions.to_polars().columns == [*frame.columns] == predictions.to_arrow().column_names
    low, high = trained.scores.interval("accuracy") or (1, 0)
    assert low <= trained.scores["accuracy"] <= high
    with pytest.raises(KeyError):
        trained.scores.interval("accurcy")


def test_a_file_of_the_name_of_a_table_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with memory.open_as("train", ROWS) as path:
        assert not os.path.exists(path)
        assert memory.in_memory(path)
    assert not memory.in_memory(path)


def test_the_code_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bertie: Any) -> None:
    monkeypatch.chdir(tmp_path)
    table = json.loads(f"[{','.join(bertie.good('sample', 'reviews', '--json').splitlines())}]")
    pandas.DataFrame(table).rename(columns={"text": "review", "label": "stars"}).to_csv("reviews.csv", index=False)
    text = (Path(__file__).parents[2] / "docs" / "python.md").read_text(encoding="utf-8")
    one_model, code, *_ = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(one_model, {})
    assert "starter-en" in code
    small = code.replace("starter-en", str(toy_model(tmp_path / "start", WORDS))).replace(
        "max_length=128", "max_length=16"
    )
    exec(small.replace("epochs=3", "epochs=1, max_length=16"), {})
    assert (tmp_path / "runs/reviews/model").is_dir()
