"""The example of each public name runs as its docstring shows it, and prints what it says."""

import doctest
import inspect
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas
import pytest

import bertie
import bertie.sklearn
from bertie.tasks import TASKS
from fakehub import TOKEN, running
from toys import toy_writer

GOOD = ("a quiet, lovely film", "the food was great", "warm and kind people", "a fine, clean room", "fresh bread")
BAD = ("dull and far too long", "the soup was cold", "rude people, dirty room", "we left early", "stale bread")
METHODS = {
    f"Model.{name}": method
    for name, method in inspect.getmembers(bertie.Model, inspect.isroutine)
    if not name.startswith("_")
}
NAMES = {
    **{name: getattr(bertie, name) for name in bertie.__all__},
    **{f"sklearn.{name}": getattr(bertie.sklearn, name) for name in bertie.sklearn.__all__},
    **METHODS,
}
NEEDS = {"MLflow": "mlflow", "WandB": "wandb", "Trackio": "trackio", "TensorBoard": "tensorboard", "tune": "optuna"}
OF_THE_HUB = ("download", "upload")  # whose library reads the environment when it is imported
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The current folder of the examples, and the values that they start from: the page of the reference lists them."""
    folder, before = tmp_path_factory.mktemp("world"), Path.cwd()
    environment = pytest.MonkeyPatch()
    os.chdir(folder)
    try:
        with running() as hub:
            for name, value in {"HF_ENDPOINT": hub.address, "HF_HOME": str(folder / "hf"), "HF_TOKEN": TOKEN}.items():
                environment.setenv(name, value)
            environment.setenv("HF_HUB_DISABLE_XET", "1")
            environment.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
            environment.delenv("HF_HUB_OFFLINE", raising=False)
            values = made(folder)
            files = Path("runs/tiny/model").iterdir()
            hub.repositories["someone/notes"] = {file.name: file.read_bytes() for file in files if file.is_file()}
            yield values
    finally:
        environment.undo()
        os.chdir(before)


def made(folder: Path) -> dict[str, Any]:
    """Makes the files and the values."""
    rows = [
        (f"{text}, {i}", label) for i in range(9) for label, texts in (("good", GOOD), ("bad", BAD)) for text in texts
    ]
    reviews = pandas.DataFrame(rows[:36], columns=["review", "stars"])
    reviews.to_csv("reviews.csv", index=False)
    notes = [f"Note {i} is short. It was written in the {('rain', 'sun')[i % 2]}." for i in range(40)]
    Path("notes.txt").write_text("\n\n".join(notes), encoding="utf-8")
    corpus = bertie.build_corpus("notes.txt", "corpora/notes", dedup="none", min_chars=1)
    tokenizer = bertie.train_tokenizer(corpus, "tokenizers/notes", size=120)
    settings: dict[str, Any] = {"text": "review", "label": "stars", "epochs": 1}
    bertie.pretrain(corpus, tokenizer, model="bert-tiny", steps=2, batch_size=4, max_length=32, output="runs/tiny")
    run = bertie.finetune(
        "starter-en", reviews, **settings | {"epochs": 3}, batch_size=4, lr=3e-4, output="runs/reviews"
    )
    bertie.finetune("runs/tiny", reviews, **settings, output="runs/other")
    pairs = [{"sentence1": notes[i], "sentence2": notes[i + 1], "score": i % 5 / 4} for i in range(20)]
    bertie.finetune("runs/tiny", pairs, task="embed", epochs=1, output="runs/vectors")
    bertie.build_index("python:json", "docs-index")
    toy_writer(folder / "writer")
    return {
        "bertie": bertie,
        "reviews": reviews,
        "run": run,
        "model": run.model,
        "texts": [f"{text}. {note}" for text in reviews["review"] for note in notes[:8]],
    }


@pytest.mark.parametrize("name", NAMES)
def test_an_example_prints_what_it_says(name: str, world: dict[str, Any]) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    example = doctest.DocTestParser().get_doctest(inspect.getdoc(NAMES[name]) or "", dict(world), name, None, None)
    assert example.examples, f"{name} has no example in its docstring"
    if name in OF_THE_HUB:
        script = f"import bertie, doctest; print(doctest.run_docstring_examples(bertie.{name}, vars()))"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        assert done.stdout == "None\n", done.stdout + done.stderr
        return
    report: list[str] = []
    tasks = {*TASKS}
    doctest.DocTestRunner(optionflags=FLAGS, verbose=False).run(example, out=report.append)
    for added in {*TASKS} - tasks:
        del TASKS._own[added]
    assert not report, "".join(report)
