"""`bertie info` counts what is trained beside the model."""

import pytest

from bertie import families, objectives
from bertie.cli.info import MASKED, describe
from bertie.models.count import forward_flops


def test_a_discriminator_s_generator_is_counted() -> None:
    config = families.config("electra-small-discriminator")
    found = describe("electra-small-discriminator", 128)["flops_per_token"]
    beside = objectives.build({"rtd": {}}).beside(config, length=128, shares={"generator": MASKED})
    own = 3 * sum(forward_flops(config, length=128, predicted=0).values())  # it has no vocabulary head
    assert found["pretraining"] == pytest.approx(own + sum(beside.values()))
    assert beside["generator"] > 0.1 * own


def test_a_model_trained_alone_has_nothing_beside_it() -> None:
    found = describe("bert-base", 128)["flops_per_token"]
    assert found["beside, forward and backward"] == {}
    assert found["pretraining"] == 3 * sum(found["by part, forward"].values())
