"""DeBERTa v2 and v3 against `transformers`, which takes roots in float32."""

from pathlib import Path
from typing import Any

import parity
import pytest
import torch
import transformers
from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

from bertie.errors import DataError
from bertie.families.deberta import DEBERTA
from bertie.nn.disentangled import log_buckets

V3 = {
    "relative_attention": True,
    "position_buckets": 4,
    "max_relative_positions": 10,
    "norm_rel_ebd": "layer_norm",
    "position_biased_input": False,
    "share_att_key": True,
    "pos_att_type": ["p2c", "c2p"],
}


def tiny(**changes: Any) -> transformers.DebertaV2Config:
    """Few buckets, so that texts of 11 tokens reach the last of them."""
    return transformers.DebertaV2Config(**{**parity.TINY, **V3, **changes})


@pytest.mark.parametrize("architecture", DEBERTA.architectures)
def test_same_numbers(architecture: str, tmp_path: Path) -> None:
    parity.check(architecture, tiny(), tmp_path, dtype=torch.float32)


def test_version_two_with_its_convolution(tmp_path: Path) -> None:
    parity.check("DebertaV2ForMaskedLM", tiny(conv_kernel_size=3, conv_act="gelu"), tmp_path, dtype=torch.float32)


def test_every_distance_by_itself(tmp_path: Path) -> None:
    """Neither buckets nor a norm, as the first version."""
    told = tiny(position_buckets=-1, max_relative_positions=-1, norm_rel_ebd="none", pos_att_type="c2p|p2c")
    ours = parity.check("DebertaV2Model", told, tmp_path, dtype=torch.float32)
    assert ours.config.flat()["max_relative_positions"] == 20


def test_long_texts(tmp_path: Path) -> None:
    parity.check(
        "DebertaV2ForTokenClassification",
        tiny(position_buckets=16),
        tmp_path,
        lengths=(300, 40, 1),
        dtype=torch.float32,
    )


@pytest.mark.parametrize(("buckets", "most"), [(256, 512), (4, 10), (32, 100)])
def test_buckets_are_theirs(buckets: int, most: int) -> None:
    distance = torch.arange(-2_000, 2_001)
    theirs = make_log_bucket_position(distance, buckets, most).long()
    assert torch.equal(log_buckets(distance, buckets=buckets, most=most), theirs)


def test_published_sizes() -> None:
    """Without word embeddings, as the model cards count: 22, 44, 86 and 304 million."""
    wanted = {"deberta-v3-xsmall": 22, "deberta-v3-small": 44, "deberta-v3-base": 86, "deberta-v3-large": 304}
    found = {
        name: parity.parameters(name) - DEBERTA.presets[name].vocab_size * DEBERTA.presets[name].hidden_size
        for name in wanted
    }
    assert {name: round(count / 1e6) for name, count in found.items()} == pytest.approx(wanted, abs=1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"pos_att_type": ["c2p"]},
        {"share_att_key": False},
        {"position_biased_input": True},
        {"relative_attention": False},
        {"pos_att_type": None},
    ],
)
def test_what_is_not_known_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(DataError, match=next(iter(wrong))):
        DEBERTA.config({**tiny().to_dict(), **wrong}, "config.json")


@pytest.mark.parametrize("key", ["relative_attention", "position_biased_input", "share_att_key", "pos_att_type"])
def test_a_missing_key_means_what_it_means_there(key: str) -> None:
    """A config without these keys is another model in `transformers`."""
    public = tiny().to_dict()
    del public[key]
    with pytest.raises(DataError, match=key):
        DEBERTA.config(public, "config.json")


def test_missing_numbers_have_the_values_of_the_peer(tmp_path: Path) -> None:
    """The convolution's activation is tanh, and distances reach as far as positions."""
    told = tiny(conv_kernel_size=3)
    del told.max_relative_positions
    ours = parity.check("DebertaV2ForTokenClassification", told, tmp_path, dtype=torch.float32, lengths=(20, 3))
    assert (ours.config.flat()["conv_act"], ours.config.flat()["max_relative_positions"]) == ("tanh", 20)
