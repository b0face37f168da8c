"""NomicBERT against `transformers`."""

import json
from pathlib import Path
from typing import Any

import parity
import pytest
import torch

from bertie import families
from bertie.errors import DataError
from bertie.families.nomic_bert import NOMIC_BERT

transformers = pytest.importorskip("transformers")
if not hasattr(transformers, "NomicBertConfig"):
    pytest.skip("this transformers has no NomicBERT", allow_module_level=True)


def tiny(**changes: Any) -> Any:
    return transformers.NomicBertConfig(**{**parity.TINY, **changes})


@pytest.mark.parametrize("architecture", NOMIC_BERT.architectures)
def test_same_numbers(architecture: str, tmp_path: Path) -> None:
    parity.check(architecture, tiny(), tmp_path, dtype=torch.float32)  # their turns are


def test_another_base_activation_and_head_size(tmp_path: Path) -> None:
    told = tiny(rope_theta=50.0, hidden_act="gelu", head_dim=6)
    parity.check("NomicBertForMaskedLM", told, tmp_path, dtype=torch.float32)


def test_the_published_size() -> None:
    assert round(parity.parameters("nomic-bert-2048") / 1e6, 1) == 137.3


@pytest.mark.parametrize("rope", [{"rope_type": "linear", "factor": 2.0}, {"rope_theta": 1000.0, "factor": 2.0}])
def test_scaled_positions_are_refused(tmp_path: Path, rope: dict[str, Any]) -> None:
    told = {**tiny().to_dict(), "rope_parameters": rope, "architectures": ["NomicBertModel"]}
    (tmp_path / "config.json").write_text(json.dumps(told))
    with pytest.raises(DataError, match="only a base"):
        families.config(tmp_path)
