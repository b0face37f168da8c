"""`bertie pretrain` from a preset of any family: the model that is saved is of that family."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from test_pretrain import home, settings, thread

from bertie.errors import UsageError
from bertie.models import families
from bertie.runs.pretrain import run_pretrain
from bertie.runs.pretraining import PreparedRun

assert home
assert thread  # fixtures

ALONE = ["objectives.mlm=null", "objectives.nsp=null"]


@pytest.mark.parametrize(
    ("preset", "overrides", "architecture"),
    [
        ("roberta-base", ["objectives.nsp=null"], "RobertaForMaskedLM"),
        (
            "elmo-small",
            [
                *ALONE,
                "objectives.bilm={}",
                "model_overrides.filters=[[1, 4], [3, 8]]",
                "model_overrides.num_attention_heads=1",
            ],
            "ElmoForLanguageModeling",
        ),
    ],
)
def test_a_preset_stays_of_its_family(
    home: Any, tmp_path: Path, preset: str, overrides: list[str], architecture: str
) -> None:
    run_pretrain(settings(home, *overrides, model=preset), tmp_path / "run")
    model, report = families.load(tmp_path / "run" / "model")
    assert not report.fresh
    assert model.public["architectures"] == [architecture]


def test_an_electra_run_keeps_both_models(home: Any, tmp_path: Path) -> None:
    config = settings(
        home, *ALONE, "objectives.rtd={size: 0.5}", "train.save_every=2", model="electra-small-discriminator"
    )
    results = run_pretrain(config, tmp_path / "run")
    assert {"generator_loss", "rtd_loss", "rtd_accuracy"} <= set(results["valid"])
    assert results["valid"]["loss"] == pytest.approx(
        results["valid"]["generator_loss"] + 50 * results["valid"]["rtd_loss"]
    )
    discriminator, report = families.load(tmp_path / "run" / "model")
    generator, other = families.load(tmp_path / "run" / "generator")
    assert not report.fresh + other.fresh
    assert (set(discriminator.heads), set(generator.heads)) == ({"rtd"}, {"mlm"})
    assert generator.config.hidden_size == discriminator.config.hidden_size // 2
    assert torch.equal(generator.word_embeddings, discriminator.word_embeddings)
    again = config.model_copy(update={"model": str(tmp_path / "run" / "model"), "model_overrides": {}})
    assert run_pretrain(again, tmp_path / "more")["step"] == 6


def test_a_rate_that_changes_is_resumed_as_it_was(home: Any, tmp_path: Path) -> None:
    rate = "objectives.mlm.rate={linear: {0: 0.5, 40: 0.1}}"

    def counts(run: Path) -> list[int]:
        predicted: list[int] = []
        config = settings(home, "objectives.nsp=null", rate, "train.save_every=2", "train.log_every=1")
        results = run_pretrain(config, run)
        assert results["step"] == 6
        source = PreparedRun(config).data.source
        for step in range(6):
            predicted.append(sum(len(batch.labels["mlm_targets"]) for batch in source.batches(step)))
        return predicted

    whole = counts(tmp_path / "a")
    assert whole[0] > 1.5 * whole[4] > 0
    assert whole[5] < 1.3 * whole[4]  # 40 sequences are read by then
    shutil.copytree(
        tmp_path / "a", tmp_path / "b", ignore=shutil.ignore_patterns("*-6", "*-4", "results.json", "model")
    )
    assert counts(tmp_path / "b") == whole
    for name in ("model.safetensors", "optimizer.safetensors"):
        one, other = (tmp_path / run / "checkpoint-6" / name for run in "ab")
        assert one.read_bytes() == other.read_bytes()


def test_heads_that_no_class_of_the_family_has_are_refused_before_the_run(home: Any, tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"No public gpt2 class has the head mlm\. .* The nearest preset that can: bert"
    ):
        run_pretrain(settings(home, "objectives.nsp=null", model="gpt2"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
