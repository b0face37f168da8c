"""The ablations: rows are values, runs are shared and reused, and differences are paired by seed."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import ablations as module
from bertie.errors import DataError, UsageError
from bertie.models import families
from bertie.runs.config import PretrainConfig
from bertie.tasks import TASKS
from toys import toy_model

ROWS = [(name, row) for name, table in module.TABLES.items() for row in table.rows]


@pytest.fixture
def setup(tmp_path: Path) -> module.Setup:
    toy_model(tmp_path / "model", "abcdefgh")
    return module.Setup("corpus", str(tmp_path / "model"), tmp_path, tasks=("sst2", "wnut17"))


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, int]]:
    """Every measurement, answered with a number made of its seed and its weights."""
    calls: list[tuple[str, str, int]] = []

    def measure(setup, config: PretrainConfig, folder: Path, row, task, steps):
        seed, weights = config.train.seed, folder.parent.name
        calls.append((weights, task, seed))
        score = 0.6 + 0.01 * seed - (0.1 + 0.01 * seed) * (weights != "base")
        return {"metric": "accuracy", "score": score, "steps": config.train.steps, module.LOSS: 4.0}

    monkeypatch.setattr(module, "_measure", measure)
    monkeypatch.setattr(module, "PreparedRun", lambda config: None)
    monkeypatch.setattr(module.Setup, "examples", lambda setup, task, changes=(): None)
    return calls


@pytest.mark.parametrize(("table", "row"), ROWS, ids=[f"{name}-{row.name}" for name, row in ROWS])
def test_every_row_is_a_valid_run(setup: module.Setup, table: str, row: module.Row):
    config = setup.pretraining(row.pretrain, 3)
    assert config.train.seed == 3
    assert table == "size" or families.config(config.model, **config.model_overrides).hidden_size == 128
    task = "wnut17" if module.TABLES[table].tagging else "sst2"
    found = setup.finetuning(task, "model", row.finetune, 3)
    if found.task_options:
        TASKS["tagging"].make(("O", "B-X"), found.task_options)


def test_a_row_of_features_trains_with_its_features(tmp_path: Path):
    toy_model(tmp_path / "model", "abcdefgh")
    (tmp_path / "tagging").mkdir()
    for file in ("wnut17train.conll", "emerging.dev.conll"):
        (tmp_path / "tagging" / file).write_text("a\tO\nb\tB-person\n\n" * 8)
    setup = module.Setup("corpus", str(tmp_path / "model"), tmp_path, tasks=("wnut17",))
    kinds = [setup.examples("wnut17", row.finetune).task.features for row in module.TABLES["features"].rows]
    assert kinds[0] is None
    assert len(set(kinds)) == 7


def test_rows_share_runs_and_nothing_is_measured_twice(setup: module.Setup, measured: list, tmp_path: Path):
    lines = module.reproduce(["tasks", "masks"], setup, tmp_path / "run", seeds=2)
    weights = {name for name, _, _ in measured}
    assert len(weights) == 3 + 5, "the first rows of both tables are one run, and so are two rows left to right"
    assert len(measured) == len(set(measured)) + 2 * 2, "the second head of that run is measured for itself"
    before = len(measured)
    again = module.reproduce(["tasks", "masks"], setup, tmp_path / "run", seeds=3)
    assert len(measured) == before + before // 2
    assert [line["row"] for line in lines] == [line["row"] for line in again]


def test_seeds_and_equal_compute_hold_beside_settings_of_the_user(setup: module.Setup):
    given = replace(setup, overrides=("train.steps=1000", "train.seed=9"))
    config = given.pretraining(module.RTD, seed=1, steps=700)
    assert (config.train.seed, config.train.steps) == (1, 700)
    assert given.pretraining(module.RTD, seed=2).train.steps == 1000


def test_the_checkpoints_of_a_run_of_any_length_are_kept(setup: module.Setup):
    for steps in (*range(1, 30), 101, 8000):
        config = setup.pretraining((), 0, steps)
        saved = {*range(config.train.save_every, steps + 1, config.train.save_every), steps}
        assert len(saved) <= config.train.keep + 1
        found = [module.checkpoint_step(config, row.part) for row in module.TABLES["steps"].rows]
        assert set(found) <= saved, f"{steps} steps"
        assert steps < 5 or found == sorted(set(found))


def test_differences_are_paired_by_seed(setup: module.Setup, measured: list, tmp_path: Path):
    done: list[int] = []
    lines = module.reproduce(["tasks"], setup, tmp_path, seeds=3, done=lambda found: done.append(len(found)))
    assert done == [4, 4, 4], "after every seed"
    first, second = lines[0]["tasks"]["sst2"], lines[1]["tasks"]["sst2"]
    assert first["minus_first"] == []
    assert second["minus_first"] == pytest.approx([-0.10, -0.11, -0.12])
    text = module.markdown(lines)
    assert "| no NSP | 8,000 | 4.000 | 0.500 (0.500 to 0.500) | -0.110 (-0.135 to -0.085) |" in text
    assert "| left to right, no NSP | 82.1 (-2.3) | 84.3 (-4.1) |" in text
    drawn = module.pictures(lines)
    page = module.report(lines, drawn, "command").render()
    assert page.count("<svg") == 4
    assert all(f"]({file})" in text and svg.startswith("<svg") for file, svg in drawn.items())
    kinds = ("sst2", "sst2-differences", "wnut17", "wnut17-differences")
    assert drawn.keys() == {f"ablations-tasks-{kind}.svg" for kind in kinds}
    assert "no difference" in drawn["ablations-tasks-sst2-differences.svg"]
    assert "Pre-training tasks" in page


def test_bad_calls(setup: module.Setup, measured: list, tmp_path: Path):
    with pytest.raises(UsageError, match="masks"):
        module.reproduce(["mask"], setup, tmp_path / "run")
    words_only = module.Setup("corpus", setup.tokenizer, tmp_path, tasks=("sst2",))
    with pytest.raises(UsageError, match="wnut17"):
        module.reproduce(["features"], words_only, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    module.reproduce(["masks"], setup, tmp_path / "run", seeds=1)
    other = module.Setup("corpus", setup.tokenizer, tmp_path, overrides=("train.steps=9",), tasks=("sst2",))
    with pytest.raises(UsageError, match="another corpus, tokenizer or settings"):
        module.reproduce(["masks"], other, tmp_path / "run")
    noted = json.loads((tmp_path / "run" / "settings.json").read_text())["pretrain"]
    assert noted["train"]["steps"] == 8000
    assert "phases" not in noted, "a setting that a later version has is no other setting"


def test_a_missing_corpus_leaves_no_folder(setup: module.Setup, tmp_path: Path):
    with pytest.raises(DataError, match="corpus"):
        module.reproduce(["masks"], setup, tmp_path / "run")
    assert not (tmp_path / "run").exists()
