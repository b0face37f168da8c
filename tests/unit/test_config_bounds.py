"""Settings that cannot be are refused at once, not when memory or patience ends."""

from pathlib import Path

import pytest

from bertie.errors import UsageError
from bertie.runs.config import FinetuneConfig, PretrainConfig
from bertie.settings import load_config, save_settings


@pytest.mark.parametrize(
    "setting",
    [
        "train.batch_size=1e8",
        "train.steps=1e30",
        "train.seed=18446744073709551616",
        "optim.betas=[0.9, 2]",
        "optim.betas=[.nan, 0.9]",
        "optim.lr=.inf",
    ],
)
def test_a_run_that_cannot_be_is_refused(setting: str) -> None:
    with pytest.raises(UsageError, match=setting.partition("=")[0]):
        load_config(PretrainConfig, overrides=[setting])


@pytest.mark.parametrize("epochs", ["inf", "1e30", "nan", "0"])
def test_epochs_that_never_end_are_refused(epochs: str) -> None:
    with pytest.raises(UsageError, match="epochs"):
        load_config(FinetuneConfig, overrides=["model=x", f"epochs={epochs}"])


def test_null_removes_phases_and_overrides_of_a_recipe() -> None:
    assert load_config(PretrainConfig, "pretrain-modern-mini").phases
    assert load_config(PretrainConfig, "pretrain-modern-mini", ["phases=null"]).phases == ()
    assert load_config(PretrainConfig, "pretrain-modern-mini", ["model_overrides=null"]).model_overrides == {}
    with pytest.raises(UsageError, match="phases"):
        load_config(PretrainConfig, overrides=["phases=0"])


def test_yes_and_no_are_names_in_yaml(tmp_path: Path) -> None:
    """YAML 1.1 reads them as booleans, but they are usual labels and words of a pattern."""
    file = tmp_path / "run.yaml"
    file.write_text("label_names: {yes: good, no: on}\ntask_options: {words: {a: yes}}\n")
    config = load_config(FinetuneConfig, file, ["model=x", "task_options.words={b: no, y: Off, c: falsetto}"])
    assert config.label_names == {"yes": "good", "no": "on"}
    assert config.task_options == {"words": {"a": "yes", "b": "no", "y": "Off", "c": "falsetto"}}
    save_settings(config, tmp_path / "saved.yaml")
    assert load_config(FinetuneConfig, tmp_path / "saved.yaml") == config
    for true in ("yes", "on", "true", "True"):
        assert load_config(FinetuneConfig, overrides=["model=x", f"from_scratch={true}"]).from_scratch is True
