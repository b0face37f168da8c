"""The table of results is resumed where it was stopped, and states how it was made."""

from pathlib import Path

import pytest

from bertie.bench import results as module
from bertie.errors import UsageError
from bertie.tasks.datasets import DATASETS

pytest.importorskip("transformers")
pytest.importorskip("accelerate")


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, int]]:
    """Every call of a side, which answers with a number made of its seed."""
    calls: list[tuple[str, str, int]] = []

    def side(name: str, plus: float):
        def measure(row, config):
            calls.append((name, config.data, config.train.seed))
            quality = 0.5 + plus + 0.1 * config.train.seed
            return {"quality": quality, "processor_seconds": 3.0, "metric": "accuracy", **SIZES}

        return measure

    monkeypatch.setattr(module, "SIDES", {module.BERTIE: side("b", 0.0), module.PEER: side("t", 0.2)})
    return calls


SIZES = {"train": 2490, "dev": 277, "precision": "fp32"}
ENGLISH = {module.ENGLISH: "minilm"}


def test_only_what_is_missing_is_measured(measured: list, tmp_path: Path):
    rows = module.reproduce(["rte"], ENGLISH, tmp_path, tmp_path / "run", seeds=2)
    assert measured == [("b", "rte", 0), ("t", "rte", 0), ("b", "rte", 1), ("t", "rte", 1)]
    again = module.reproduce(["rte", "wnli"], ENGLISH, tmp_path, tmp_path / "run", seeds=3)
    assert len(measured) == 4 + 2 + 6
    assert again[0]["Bertie"]["runs"] == 3
    text = module.page(rows, models=ENGLISH, command="bertie reproduce results --only rte")
    assert (
        "| rte | accuracy | 2,490, 277 | 2 | 0.550 ± 0.071 | 0.750 ± 0.071 | -0.200 (-0.504 to +0.104) | 3 | 3 |"
        in text
    )
    assert "    bertie reproduce results --only rte\n" in text
    assert "threads per process, fp32." in text


def test_what_is_not_as_published_is_told(measured: list, tmp_path: Path):
    rows = module.reproduce(["squad2"], ENGLISH, tmp_path, tmp_path / "run", seeds=5)
    assert rows[0]["Bertie"]["runs"] == module.ROWS["squad2"].seeds
    text = module.page(rows, models=ENGLISH, command="")
    assert "* squad2: training on the first four fifths of dev, evaluation on the last fifth" in text


def test_results_of_another_model_are_not_mixed_in(measured: list, tmp_path: Path):
    module.reproduce(["rte"], ENGLISH, tmp_path, tmp_path / "run", seeds=1)
    with pytest.raises(UsageError, match="another model"):
        module.reproduce(["rte"], {module.ENGLISH: "other"}, tmp_path, tmp_path / "run", seeds=1)


def test_a_row_without_its_model_is_told(tmp_path: Path):
    with pytest.raises(UsageError, match="korean model"):
        module.reproduce(["nsmc"], ENGLISH, tmp_path, tmp_path / "run")


def test_an_unknown_set_is_told(tmp_path: Path):
    with pytest.raises(UsageError, match="rte"):
        module.reproduce(["rtee"], ENGLISH, tmp_path, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_every_row_is_a_published_set():
    for name in module.ROWS:
        config = module.config_of(module.ROWS[name], "minilm", Path("data"), 3)
        assert config.data in DATASETS
        assert (config.train.seed, config.train.precision) == (3, "auto"), "the machine decides"
