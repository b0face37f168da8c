"""What a config is said to cost is what the model built from it has; `bertie info` says it."""

import json

import pytest
import torch
from typer.testing import CliRunner

from bertie.apps.cli.table import app
from bertie.console import console
from bertie.models import count, families
from bertie.models.heads import HEADS
from bertie.models.heads.sequence import SequenceHead


@pytest.mark.parametrize(
    ("variant", "preset"), [(variant, preset) for _, variant in families.VARIANTS.items() for preset in variant.presets]
)
def test_counted_parameters_are_those_of_the_built_encoder(variant, preset):
    config = families.config(preset)
    with torch.device("meta"):
        built = sum(parameter.numel() for parameter in variant.encoder(config).parameters())
    assert sum(count.parameters(config).values()) == built


@pytest.mark.parametrize("preset", ["t5-small", "t5-base", "t5-v1_1-small", "t5-3b"])
def test_the_decoders_parameters_are_counted(preset):
    config = families.config(preset)
    with torch.device("meta"):
        heads = [HEADS[name](config, 0) for name in ("decoder", "lm")]
    built = sum(parameter.numel() for head in heads for parameter in head.parameters())
    assert sum(count.decoder_parameters(config).values()) == built


def test_the_decoders_operations():
    """By the matrices a token passes: as many operations as twice their numbers, and the scores."""
    config = families.config("t5-base")
    per_layer = 2 * (8 * 768 * 768 + 2 * 768 * 3072) + 2 * 4 * 768 * 100
    flops = count.forward_flops(config, length=100, predicted=1.0)
    decoder = sum(number for part, number in flops.items() if part.startswith("decoder"))
    assert decoder == 12 * per_layer
    assert flops["next-token head"] == 2 * 768 * config.vocab_size


def test_info_of_an_encoder_decoder(tmp_path):
    facts = json.loads(run("t5-small", "--json").stdout)
    assert facts["parameters"]["total"] == 60_506_624
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "attention_head_size": 8, "intermediate_size": 48}
    for heads in (("decoder", "lm"), ()):
        made = lambda config, heads=heads: {name: HEADS[name](config, 0) for name in heads}  # noqa: E731
        model = families.build("t5-small", heads=made, vocab_size=99, **sizes)
        model.save_pretrained(tmp_path / "-".join(("t5", *heads)))
        facts = json.loads(run(str(tmp_path / "-".join(("t5", *heads))), "--json").stdout)
        assert facts["parameters"]["total"] == sum(parameter.numel() for parameter in model.parameters())
        decodes = any(part.startswith("decoder") for part in facts["flops_per_token"]["by part, forward"])
        assert decodes == bool(heads)


@pytest.mark.parametrize(  # MFLOP a token in training at length 128, 15 % predicted
    ("preset", "mflop"),
    [("bert-tiny", 6.3), ("bert-mini", 27.5), ("bert-small", 92.9), ("bert-base", 545), ("bert-large", 1879)],
)
def test_operations_follow_the_formula(preset, mflop):
    flops = count.forward_flops(families.config(preset), length=128, predicted=0.15)
    assert 3 * sum(flops.values()) / 1e6 == pytest.approx(mflop, rel=0.01)


def run(*arguments):
    console.verbosity.json = False
    return CliRunner().invoke(app, ["info", *arguments], catch_exceptions=False)


def test_info_of_a_preset():
    facts = json.loads(run("bert-base", "--json").stdout)
    assert facts["parameters"]["total"] == 109_482_240
    assert "109,482,240" in run("bert-base").stdout


def test_info_lists_presets():
    rows = json.loads(run("--presets", "--json").stdout)
    assert {row["preset"] for row in rows} == set(families.PRESETS)
    assert "bert-tiny" in run("--presets").stdout


def test_info_of_a_folder(tmp_path):
    model = families.build("bert-tiny", heads=lambda c: {"sequence": SequenceHead(c, 2)}, vocab_size=60)
    model.save_pretrained(tmp_path, labels=("no", "yes"))
    facts = json.loads(run(str(tmp_path), "--json").stdout)
    assert facts["labels"] == ["no", "yes"]
    assert facts["parameters"]["sequence head"] == 2 * 128 + 2
    assert facts["parameters"]["total"] == sum(parameter.numel() for parameter in model.parameters())
    assert "BertForSequenceClassification" in run(str(tmp_path)).stdout


def test_the_softmax_of_elmo_is_counted(tmp_path):
    """Each word is predicted from either side, by a matrix of half the width: 2 x 2 x P x V operations."""
    config = families.config("elmo-small")
    flops = json.loads(run("elmo-small", "--json").stdout)["flops_per_token"]
    softmax = 2 * 2 * (config.hidden_size // 2) * config.vocab_size
    assert flops["by part, forward"]["biLM head"] == softmax
    assert flops["pretraining"] > 3 * softmax
