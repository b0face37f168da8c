"""`bertie pretrain` from a preset of any family: the model that is saved is of that family."""

from pathlib import Path
from typing import Any

import pytest
from test_pretrain import home, settings, thread

from bertie import variants
from bertie.runs.pretrain import pretrain

assert home
assert thread  # fixtures

ALONE = ["objectives.mlm=null", "objectives.nsp=null"]


@pytest.mark.parametrize(
    ("preset", "overrides", "architecture"),
    [
        ("roberta-base", ["objectives.nsp=null"], "RobertaForMaskedLM"),
        (
            "elmo-small",
            [*ALONE, "objectives.bilm={}", "model_overrides.filters=[[1, 4], [3, 8]]"],
            "ElmoForLanguageModeling",
        ),
    ],
)
def test_a_preset_stays_of_its_family(
    home: Any, tmp_path: Path, preset: str, overrides: list[str], architecture: str
) -> None:
    pretrain(settings(home, *overrides, model=preset), tmp_path / "run")
    model, report = variants.load(tmp_path / "run" / "model")
    assert not report.fresh
    assert model.public["architectures"] == [architecture]
