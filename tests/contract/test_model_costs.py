"""What a config is said to cost is what the model built from it has; `bertie info` says it."""

import json

import pytest
import torch
from typer.testing import CliRunner

from bertie import console, variants
from bertie.cli import commands
from bertie.cli.app import app
from bertie.models import count
from bertie.models.heads import SequenceHead

assert commands  # registers `info`


@pytest.mark.parametrize(
    ("variant", "preset"), [(variant, preset) for _, variant in variants.VARIANTS.items() for preset in variant.presets]
)
def test_counted_parameters_are_those_of_the_built_encoder(variant, preset):
    config = variants.config(preset)
    with torch.device("meta"):
        built = sum(parameter.numel() for parameter in variant.encoder(config).parameters())
    assert sum(count.parameters(config).values()) == built


@pytest.mark.parametrize(  # MFLOP a token in training at length 128, 15 % predicted
    ("preset", "mflop"),
    [("bert-tiny", 6.3), ("bert-mini", 27.5), ("bert-small", 92.9), ("bert-base", 545), ("bert-large", 1879)],
)
def test_operations_follow_the_formula(preset, mflop):
    flops = count.forward_flops(variants.config(preset), length=128, predicted=0.15)
    assert 3 * sum(flops.values()) / 1e6 == pytest.approx(mflop, rel=0.01)


@pytest.fixture(autouse=True)
def verbosity(monkeypatch):
    monkeypatch.setattr(console, "verbosity", console.Verbosity())


def run(*arguments):
    console.verbosity.json = False
    return CliRunner().invoke(app, ["info", *arguments], catch_exceptions=False)


def test_info_of_a_preset():
    facts = json.loads(run("bert-base", "--json").stdout)
    assert facts["parameters"]["total"] == 109_482_240
    assert "109,482,240" in run("bert-base").stdout


def test_info_lists_presets():
    rows = json.loads(run("--presets", "--json").stdout)
    assert {row["preset"] for row in rows} == set(variants.PRESETS)
    assert "bert-tiny" in run("--presets").stdout


def test_info_of_a_folder(tmp_path):
    model = variants.build("bert-tiny", heads=lambda c: {"sequence": SequenceHead(c, 2)}, vocab_size=60)
    model.save_pretrained(tmp_path, labels=("no", "yes"))
    facts = json.loads(run(str(tmp_path), "--json").stdout)
    assert facts["labels"] == ["no", "yes"]
    assert facts["parameters"]["sequence head"] == 2 * 128 + 2
    assert facts["parameters"]["total"] == sum(parameter.numel() for parameter in model.parameters())
    assert "BertForSequenceClassification" in run(str(tmp_path)).stdout
