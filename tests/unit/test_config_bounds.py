"""Settings that cannot be are refused at once, not when memory or patience ends."""

import pytest

from bertie.errors import UsageError
from bertie.runs.config import FinetuneConfig, PretrainConfig
from bertie.settings import load


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
        load(PretrainConfig, overrides=[setting])


@pytest.mark.parametrize("epochs", ["inf", "1e30", "nan", "0"])
def test_epochs_that_never_end_are_refused(epochs: str) -> None:
    with pytest.raises(UsageError, match="epochs"):
        load(FinetuneConfig, overrides=["model=x", f"epochs={epochs}"])


def test_null_removes_phases_and_overrides_of_a_recipe() -> None:
    assert load(PretrainConfig, "pretrain-modern-mini").phases
    assert load(PretrainConfig, "pretrain-modern-mini", ["phases=null"]).phases == ()
    assert load(PretrainConfig, "pretrain-modern-mini", ["model_overrides=null"]).model_overrides == {}
    with pytest.raises(UsageError, match="phases"):
        load(PretrainConfig, overrides=["phases=0"])
