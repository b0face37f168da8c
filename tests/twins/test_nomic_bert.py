"""NomicBERT against `transformers`."""

import json
import re
from pathlib import Path
from typing import Any

import parity
import pytest
import torch

from bertie.errors import DataError
from bertie.families.nomic_bert import NOMIC_BERT
from bertie.models import families

transformers = pytest.importorskip("transformers")
if not hasattr(transformers, "NomicBertConfig"):
    pytest.skip("this transformers has no NomicBERT", allow_module_level=True)


RENAMED = {
    r"(^|\.)layers\.": r"\1encoder.layers.",
    r"embeddings\.LayerNorm": "emb_ln",
    r"self_attn\.o_proj": "attn.out_proj",
    r"up_proj": "fc11",
    r"gate_proj": "fc12",
    r"down_proj": "fc2",
    r"post_attention_layernorm": "norm1",
    r"post_mlp_layernorm": "norm2",
}


def stored(gradients: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """By the names in the file, which `transformers` changes when it loads one; there q, k and v are one matrix."""
    found: dict[str, torch.Tensor] = {}
    for name, gradient in gradients.items():
        for pattern, new in RENAMED.items():
            name = re.sub(pattern, new, name)
        if name.endswith("self_attn.q_proj.weight"):
            parts = [gradients[key] for key in _three(gradients, gradient)]
            found[name.replace("self_attn.q_proj", "attn.Wqkv")] = torch.cat(parts)
        elif "self_attn" not in name:
            found[name] = gradient
    return found


def _three(gradients: dict[str, torch.Tensor], first: torch.Tensor) -> list[str]:
    name = next(key for key, gradient in gradients.items() if gradient is first)
    return [name.replace("q_proj", f"{part}_proj") for part in "qkv"]


def tiny(**changes: Any) -> Any:
    """Compared in float32, in which they compute the turns in any case."""
    return transformers.NomicBertConfig(**{**parity.TINY, **changes})


@pytest.mark.parametrize("architecture", NOMIC_BERT.architectures)
def test_same_numbers(architecture: str, tmp_path: Path) -> None:
    parity.check(architecture, tiny(), tmp_path, dtype=torch.float32, stored=stored)


def test_another_base_activation_and_head_size(tmp_path: Path) -> None:
    told = tiny(rope_theta=50.0, hidden_act="gelu", head_dim=6)
    parity.check("NomicBertForMaskedLM", told, tmp_path, dtype=torch.float32, stored=stored)


def test_the_published_size() -> None:
    assert round(parity.parameters("nomic-bert-2048") / 1e6, 1) == 137.3


@pytest.mark.parametrize("rope", [{"rope_type": "linear", "factor": 2.0}, {"rope_theta": 1000.0, "factor": 2.0}])
@pytest.mark.parametrize("key", ["rope_parameters", "rope_scaling"])
def test_scaled_positions_are_refused(tmp_path: Path, rope: dict[str, Any], key: str) -> None:
    told = {**tiny().to_dict(), key: rope, "architectures": ["NomicBertModel"]}
    (tmp_path / "config.json").write_text(json.dumps(told))
    with pytest.raises(DataError, match="only a base"):
        families.config(tmp_path)


def test_a_config_without_sizes_is_one_clear_error(tmp_path: Path) -> None:
    """With GPT's names of the sizes, as in the folders of the hub."""
    told = {key: value for key, value in tiny().to_dict().items() if key != "hidden_size"}
    (tmp_path / "config.json").write_text(json.dumps({**told, "head_dim": 7, "n_embd": 32}))
    with pytest.raises(DataError, match="head"):
        families.config(tmp_path)
