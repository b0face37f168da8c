"""MobileBERT against `transformers`."""

from pathlib import Path
from typing import Any

import parity
import pytest
import torch
import transformers

from bertie import variants
from bertie.variants.mobilebert import MOBILEBERT

TINY: dict[str, Any] = {
    **parity.TINY,
    "embedding_size": 12,
    "intra_bottleneck_size": 16,
    "initializer_range": 0.2,
    "num_feedforward_networks": 3,
}


@pytest.mark.parametrize("architecture", MOBILEBERT.architectures)
def test_same_numbers(architecture: str, tmp_path: Path) -> None:
    parity.check(architecture, transformers.MobileBertConfig(**TINY), tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"use_bottleneck_attention": True, "num_feedforward_networks": 2},
        {"num_feedforward_networks": 1, "hidden_act": "gelu"},
        {"classifier_activation": False},
        {"embedding_size": 20},
    ],
)
def test_its_own_choices(changes: dict[str, Any], tmp_path: Path) -> None:
    for architecture in ("MobileBertForPreTraining", "MobileBertModel"):
        config = transformers.MobileBertConfig(**TINY | changes)
        parity.check(architecture, config, tmp_path / architecture)
