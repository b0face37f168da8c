"""How a fine-tuning run starts and is resumed: heads that are kept or fresh, the best weights so far, moved files."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from test_verify import unseen

from bertie.console import Verbosity, console
from bertie.errors import DataError, UsageError
from bertie.files import read_json
from bertie.models import families
from bertie.runs.compare import gather
from bertie.runs.config import FinetuneConfig
from bertie.runs.examples import read_examples
from bertie.runs.finetune import finetune_seeds, run_finetune
from bertie.runs.finetune_page import render_finetune_page
from bertie.runs.finetune_prepare import Prepared, prepare_run, with_steps
from bertie.runs.space import varied
from bertie.runs.verify import verify_folder
from bertie.tasks.choice import ChoiceTask
from bertie.train import log
from bertie.train.config import OptimConfig, TrainConfig
from bertie.train.resume import changes
from nano import one_thread
from toys import toy_model, toy_writer

CLASSIFIER = "sequence.classifier.weight"


def table(path: Path, labels: list[str]) -> Path:
    """Which of the letters x, y, z does the text hold?"""
    rng, lines = random.Random(0), ["text\tlabel"]
    for i in range(40 * len(labels)):
        letters = [rng.choice("abcdef") for _ in range(6)] + ["xyz"[i % len(labels)]] * 2
        lines.append(f"{' '.join(letters)}\t{labels[i % len(labels)]}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    toy_model(folder / "model", "abcdefxyz", max_position_embeddings=32)
    table(folder / "three.tsv", ["one", "two", "three"])
    table(folder / "two.tsv", ["one", "two"])
    table(folder / "other.tsv", ["good", "bad"])
    return folder


def config(home: Path, file: str = "two.tsv", **values: Any) -> FinetuneConfig:
    made = FinetuneConfig(
        model=str(home / "model"),
        train_file=str(home / file),
        max_length=16,
        epochs=6,
        optim=OptimConfig(lr=3e-3),
        train=TrainConfig(
            batch_size=16, precision="fp32", steps=1, eval_every=2, save_every=2, keep=99, keep_checkpoints=True
        ),
    )
    return varied(made, values)


@pytest.fixture(scope="module")
def trained(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("trained") / "run"
    with one_thread():
        run_finetune(config(home, "two.tsv", select="best"), run)
    return run


def ready(settings: FinetuneConfig) -> Prepared:
    examples = read_examples(settings)
    return prepare_run(with_steps(settings, len(examples.train)), examples)


def test_a_head_of_other_labels_starts_fresh_and_that_is_said(home, trained, capsys, monkeypatch):
    monkeypatch.setattr(console, "verbosity", Verbosity())
    start = str(trained / "model")
    stored, _ = families.load(start)
    kept = ready(config(home, "two.tsv", model=start)).model.heads.state_dict()[CLASSIFIER]
    assert kept.equal(stored.heads.state_dict()[CLASSIFIER])
    assert "starts from random weights" not in capsys.readouterr().err
    for file, rows in (("other.tsv", 2), ("three.tsv", 3)):
        fresh = ready(config(home, file, model=start)).model
        assert fresh.heads.state_dict()[CLASSIFIER].shape[0] == rows
        assert not fresh.heads.state_dict()[CLASSIFIER][:2].equal(kept)
        assert "starts from random weights" in " ".join(capsys.readouterr().err.split())
        assert fresh.encoder.state_dict()["layers.0.down.weight"].equal(
            stored.encoder.state_dict()["layers.0.down.weight"]
        )


def test_a_head_of_another_task_starts_fresh(home, trained):
    start = str(trained / "model")
    numbers = table(home / "numbers.tsv", ["0.1", "0.9"])
    model = ready(config(home, numbers.name, model=start, task="regression")).model
    assert model.heads.state_dict()[CLASSIFIER].shape[0] == 1


@pytest.mark.parametrize("family", ["gpt2", "t5"])
def test_a_task_whose_head_the_family_lacks_is_refused(family: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=rf"The format of {family} has no place for heads\.choice"):
        families.load(toy_writer(tmp_path, family), heads=ChoiceTask().heads)


def test_how_often_dev_is_looked_at_matters_where_it_chooses(home, trained, tmp_path):
    advice = r"train\.eval_every: 2 -> 3\nChoose another folder or pass --overwrite\.$"  # it has no --allow-change
    with pytest.raises(UsageError, match=advice):
        run_finetune(config(home, select="best", **{"train.eval_every": 3}), trained)
    assert run_finetune(config(home, select="best"), trained) == read_json(trained / "results.json")


def test_from_a_checkpoint_of_another_folder_the_best_so_far_is_taken_over(home, trained, tmp_path):
    looks = [(line["step"], line["accuracy"]) for line in log.read_log(trained) if line["kind"] == "valid"]
    best = max(value for _, value in looks)
    first = next(step for step, value in looks if value == best)
    assert 2 < first < looks[-2][0], "else there is nothing to tell apart"
    with one_thread():
        later = trained / f"checkpoint-{looks[-2][0]}"
        run_finetune(config(home, select="best"), tmp_path / "later", resume=str(later))
        weights = [run / "model" / "model.safetensors" for run in (trained, tmp_path / "later")]
        assert weights[0].read_bytes() == weights[1].read_bytes()
        with pytest.raises(UsageError, match="no longer has the best weights"):
            run_finetune(config(home, select="best"), tmp_path / "early", resume=str(trained / "checkpoint-2"))
        with pytest.raises(UsageError, match="other settings"):
            run_finetune(config(home, select="best", epochs=5), tmp_path / "other", resume=str(later))
    assert not (tmp_path / "early").exists()
    assert not (tmp_path / "other").exists(), "nothing of a run whose checkpoint is refused is copied"


def test_the_best_weights_of_a_run_that_was_killed_before_its_first_checkpoint_are_not_used(home, trained, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(trained / "best", run / "best")
    shutil.copy(trained / "metrics.jsonl", run)
    with one_thread():
        run_finetune(config(home, select="best", epochs=1, **{"optim.lr": 1e-9}), run)
    weights = [folder / "model" / "model.safetensors" for folder in (trained, run)]
    assert weights[0].read_bytes() != weights[1].read_bytes()


@pytest.mark.promise("damaged-bits")
def test_a_flipped_bit_in_any_file_of_seeds_is_found(home, tmp_path):
    settings = config(home, select="best", epochs=1, **{"train.save_every": 100, "train.keep": 1})
    with one_thread():
        finetune_seeds(settings, tmp_path / "run", 2)
    assert unseen(tmp_path / "run", skip=("seed-1",)) == [], verify_folder(tmp_path / "run").text()


def test_what_is_damaged_in_a_run_is_named(trained, tmp_path):
    run = shutil.copytree(trained, tmp_path / "run")
    (run / "results.json").write_text("null")
    for use in (
        render_finetune_page,
        lambda run: gather([run, trained])[0].finals,
        lambda run: gather([run, trained])[0].fresh,
    ):
        with pytest.raises(DataError, match=r"results\.json is damaged"):
            use(run)
    (run / "results.json").unlink()
    (run / "checksums.json").unlink()
    (run / "run.yaml").write_text("")
    bad = {check.name: check.result for check in verify_folder(run).checks if not check.ok}
    assert "the run has read no corpus" in bad["corpus"]


def test_the_best_seed_is_kept_and_that_is_said(home, tmp_path):
    run = tmp_path / "run"
    with one_thread():
        results = finetune_seeds(config(home, epochs=1), run, 3, keep_best=True)
    scores = {int(seed): values["accuracy"] for seed, values in results["seeds"].items()}
    best = max(scores, key=scores.__getitem__)
    weights = [folder / "model" / "model.safetensors" for folder in (run, run / f"seed-{best}")]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    assert f"model is the model of seed {best}, which has the best score of 3 on dev" in results["chosen"]
    assert results["chosen"] in (run / "report.html").read_text()
    assert verify_folder(run).ok
    with one_thread():
        assert "chosen" not in finetune_seeds(config(home, epochs=1), run, 4)
    assert not (run / "model").exists(), "it was the best of fewer seeds"
    assert verify_folder(run).ok


def test_no_seed_of_a_folder_is_left_out(home, tmp_path):
    """More seeds are added; with fewer, a model would stay in the folder that its results do not have."""
    run, settings = tmp_path / "run", config(home, epochs=1)
    with one_thread():
        finetune_seeds(settings, run, 2)
        before = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()}
        with pytest.raises(UsageError, match="contains seed-1 beside seed-0"):
            finetune_seeds(settings, run, 1)
        with pytest.raises(UsageError, match="contains runs of several seeds"):
            run_finetune(settings, run)
        assert {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()} == before
        assert [*finetune_seeds(settings, run, 3)["seeds"]] == ["0", "1", "2"]
        finetune_seeds(settings, run, 1, overwrite=True)
    assert not (run / "seed-1").exists()


def test_never_refuses_a_finished_run(home, trained):
    with pytest.raises(UsageError, match="finished run"):
        run_finetune(config(home, select="best"), trained, resume="never")
    with pytest.raises(UsageError, match="--resume nver: there is no such folder"):
        run_finetune(config(home, select="best"), trained, resume="nver")


def test_corpora_that_have_moved_are_the_same_run():
    before = {"corpora": [{"path": "old/domain", "weight": 9}], "corpus": ["abc 0.9", "def 0.1"], "optim.lr": 1e-4}
    moved = {**before, "corpora": [{"path": "/new/domain", "weight": 9}]}
    assert changes(before, moved) == {}
    assert changes(before, {**moved, "corpus": ["abc 0.8", "def 0.2"]}).keys() == {"corpus"}


def test_results_of_another_format_are_refused(home, trained, tmp_path):
    old = shutil.copytree(trained, tmp_path / "old")
    results = read_json(old / "results.json")
    (old / "results.json").write_text(json.dumps({**results, "format": 1}))
    with pytest.raises(DataError, match=r"has the format 1, and this version of Bertie reads 2\. .*--overwrite"):
        run_finetune(config(home, select="best"), old)
