"""What the pre-training benchmark says of a model's work, and what it refuses; its runners are `fit` and the peers."""

from pathlib import Path

import pytest
import torch

from benchmarks import finetune, harness, pretrain
from benchmarks.pretrain import SIZES, STEPS, Setup, flops_per_token, full_rows, measure, sequences
from bertie.errors import UsageError
from bertie.models import machine


@pytest.mark.parametrize(
    ("model", "layers", "width"), [("tiny", 2, 128), ("mini", 4, 256), ("base", 12, 768), ("large", 24, 1024)]
)
def test_flops_are_those_of_the_formula(model: str, layers: int, width: int):
    """24 L h^2 + 4 L h s + p (2 h^2 + 2 h V), three times for training; s is the mean length a token sees."""
    lengths = torch.arange(128 // 5, 129, dtype=torch.float64)
    seen = float((lengths**2).sum() / lengths.sum())
    head = 0.15 * (2 * width**2 + 2 * width * 30_522)
    forward = 24 * layers * width**2 + 4 * layers * width * seen + head
    assert flops_per_token(Setup(model)) == pytest.approx(3 * forward, rel=1e-9)


def test_full_rows_are_the_same_tokens():
    rows = sequences(40, 2000, 64)
    full = full_rows(rows, 64)
    assert {len(row) for row in full} == {64}
    assert 0 <= sum(map(len, rows)) - 64 * len(full) < 64
    assert 0.5 < sum(map(len, rows)) / (40 * 64) < 0.7  # what fills padded rows to 60 %


def test_every_size_has_its_steps():
    assert STEPS.keys() == SIZES.keys()


def test_a_device_that_is_not_there_is_told():
    if not torch.cuda.is_available():
        with pytest.raises(UsageError, match="cuda"):
            measure(Setup("tiny", device="cuda"))


def test_an_unknown_runner_is_told_before_anything_is_measured():
    pytest.importorskip("transformers")
    with pytest.raises(UsageError, match="transformers best"):
        measure(Setup("tiny"), only=["transformers bets"])


@pytest.mark.parametrize("bf16", [False, True])
def test_both_sides_are_at_their_best_on_this_machine(bf16: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(machine, "cpu_rates", lambda: machine.ProductRates(fp32=10, bf16=60 if bf16 else 1))
    peers = []
    monkeypatch.setattr(pretrain, "TrainerPeer", lambda *_, **way: peers.append(way.get("bf16", False)))
    made = pretrain.runners(Setup("tiny"), tmp_path)
    assert ("bertie bf16" in made) == bf16
    made["transformers"](), made["transformers best"]()
    assert peers == [False, bf16]
    assert ("bertie bf16" in finetune.runners()) == bf16


def test_the_rate_of_products_is_that_of_the_machine():
    assert harness.matrix_flops("cpu", "fp32") > 1e8
