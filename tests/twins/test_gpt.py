"""GPT-2, GPT and left-to-right BERT against `transformers`."""

from pathlib import Path
from typing import Any

import parity
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from bertie.families.gpt import GPT2, OPENAI_GPT
from bertie.models import families
from bertie.models.heads import HEADS
from bertie.models.weights import public_state

SIZES: dict[str, Any] = {
    "vocab_size": 99,
    "n_embd": 32,
    "n_layer": 3,
    "n_head": 4,
    "n_positions": 20,
    "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "attn_pdrop": 0.0,
    "initializer_range": 0.1,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 1,
}


def tiny(**changes: Any) -> transformers.GPT2Config:
    return transformers.GPT2Config(**SIZES | {"n_inner": 48, "classifier_dropout": 0.0} | changes)


@pytest.mark.parametrize("architecture", GPT2.architectures)
def test_same_numbers(architecture: str, tmp_path: Path) -> None:
    parity.check(architecture, tiny(), tmp_path)


@pytest.mark.parametrize("architecture", OPENAI_GPT.architectures)
def test_same_numbers_of_the_first_gpt(architecture: str, tmp_path: Path) -> None:
    parity.check(architecture, transformers.OpenAIGPTConfig(**SIZES), tmp_path)


def test_left_to_right_bert(tmp_path: Path) -> None:
    model = parity.check("BertLMHeadModel", transformers.BertConfig(**parity.TINY, is_decoder=True), tmp_path)
    assert model.config.causal


def test_its_own_keys(tmp_path: Path) -> None:
    tiny(n_inner=None, activation_function="relu", embd_pdrop=0.3, resid_pdrop=0.2).save_pretrained(tmp_path)
    config = families.config(tmp_path)
    assert config.intermediate_size == 4 * 32
    assert (config.hidden_act, config.embedding_dropout, config.hidden_dropout_prob) == ("relu", 0.3, 0.2)


def test_no_token_sees_the_future() -> None:
    model = families.build("gpt2", **{"hidden_size": 32, "num_attention_heads": 4, "vocab_size": 99}).eval()
    ids = torch.randint(99, (1, 12))
    changed = ids.clone()
    changed[0, 7:] = (ids[0, 7:] + 1) % 99
    with torch.no_grad():
        before, after = (model.encoder(x).last_hidden_state for x in (ids, changed))
    assert torch.equal(before[:, :7], after[:, :7])
    assert not torch.equal(before[:, 7:], after[:, 7:])


def test_the_published_file_opens(tmp_path: Path) -> None:
    """The openai-community/gpt2 file has no `transformer.` and a triangle of ones in every layer."""
    ours = families.build(
        "gpt2",
        heads=lambda config: {"lm": HEADS["lm"](config, 0)},
        **{"hidden_size": 32, "num_attention_heads": 4, "vocab_size": 99, "intermediate_size": 128},
    )
    ours.save_pretrained(tmp_path)
    state = load_file(tmp_path / "model.safetensors")
    old = {name.removeprefix("transformer."): tensor for name, tensor in state.items()}
    old |= {f"h.{i}.attn.bias": torch.ones(1, 1, 1024, 1024).tril() for i in range(12)}
    save_file(old, tmp_path / "model.safetensors")
    again, report = families.load(tmp_path)
    assert not report.fresh + report.unused
    for (name, mine), (_, other) in zip(ours.named_parameters(), again.named_parameters(), strict=True):
        assert torch.equal(mine, other), name


def test_first_values_deviate_as_there() -> None:
    """But for the positions, which the release draws half as wide (openai/gpt-2, src/model.py)."""
    ours = families.build("gpt2", hidden_size=64, num_attention_heads=4, intermediate_size=256, vocab_size=1000)
    config = transformers.GPT2Config(**GPT2.public(ours.config, {}))
    theirs = {GPT2.table.today(name): x for name, x in transformers.GPT2Model(config).named_parameters()}
    for name, mine in public_state(dict(ours.named_parameters()), GPT2.table, base=True):
        if "wpe" in name:
            assert float(mine.std()) == pytest.approx(0.01, rel=0.02)
        elif mine.ndim == 2:
            assert float(mine.std()) == pytest.approx(float(theirs[name].detach().std()), rel=0.05), name
        else:
            assert torch.equal(mine, theirs[name]), name


def test_sizes() -> None:
    """As `transformers` counts the published models."""
    assert parity.parameters("gpt2") == 124_439_808
    assert parity.parameters("gpt2-medium") == 354_823_168
    assert parity.parameters("gpt2-large") == 774_030_080
    assert parity.parameters("gpt2-xl") == 1_557_611_200
    assert parity.parameters("distilgpt2") == 81_912_576
    assert parity.parameters("openai-gpt") == 116_534_784


def test_published_names() -> None:
    """openai-community/gpt2: names and shapes of its file."""
    layer = {
        "attn.bias": (1, 1, 1024, 1024),
        **conv("attn.c_attn", 768, 2304),
        **conv("attn.c_proj", 768, 768),
        **parity.both("ln_1", 768),
        **parity.both("ln_2", 768),
        **conv("mlp.c_fc", 768, 3072),
        **conv("mlp.c_proj", 3072, 768),
    }
    recorded = {
        "wte.weight": (50_257, 768),
        "wpe.weight": (1024, 768),
        **parity.both("ln_f", 768),
        **{f"h.{i}.{name}": shape for i in range(12) for name, shape in layer.items()},
    }
    parity.published("gpt2", "gpt2", ("lm",), recorded, pooler=False)


def conv(name: str, rows: int, columns: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (rows, columns), f"{name}.bias": (columns,)}
