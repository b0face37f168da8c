"""The table of results goes on where it was stopped, and says how it was made."""

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
        def measure(config, folder, subset):
            calls.append((name, config.data, config.train.seed))
            return {"quality": 0.5 + plus + 0.1 * config.train.seed, "seconds": 3.0, "metric": "accuracy"}

        return measure

    monkeypatch.setattr(module, "SIDES", {module.BERTIE: side("b", 0.0), module.PEER: side("t", 0.2)})
    return calls


def test_only_what_is_missing_is_measured(measured: list, tmp_path: Path):
    rows = module.reproduce(["rte"], "minilm", tmp_path, tmp_path / "run", seeds=2)
    assert measured == [("b", "rte", 0), ("t", "rte", 0), ("b", "rte", 1), ("t", "rte", 1)]
    again = module.reproduce(["rte", "wnli"], "minilm", tmp_path, tmp_path / "run", seeds=3)
    assert len(measured) == 4 + 2 + 6
    assert again[0]["Bertie"]["runs"] == 3
    text = module.page(rows, model="minilm", command="bertie reproduce results --only rte", subset=None)
    assert "| rte | accuracy | 2 | 0.550 ± 0.071 | 0.750 ± 0.071 | 3 | 3 |" in text
    assert "    bertie reproduce results --only rte\n" in text


def test_results_of_another_model_are_not_mixed_in(measured: list, tmp_path: Path):
    module.reproduce(["rte"], "minilm", tmp_path, tmp_path / "run", seeds=1)
    for model, subset in (("other", None), ("minilm", 100)):
        with pytest.raises(UsageError, match="another model or subset"):
            module.reproduce(["rte"], model, tmp_path, tmp_path / "run", seeds=1, subset=subset)


def test_an_unknown_set_is_told(tmp_path: Path):
    with pytest.raises(UsageError, match="rte"):
        module.reproduce(["rtee"], "minilm", tmp_path, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_every_row_is_a_published_set():
    for name in module.ROWS:
        config = module.config_of(module.ROWS[name], "minilm", Path("data"), 3)
        assert config.data in DATASETS
        assert (config.train.seed, config.train.precision) == (3, "fp32")
