"""`bertie.pretrain` takes its settings by name, and returns a run with scores, model and report."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_pretrain import NANO, home, settings, thread

import bertie
from bertie.api import pretrain
from bertie.errors import DataError, UsageError
from bertie.text.tokenizer import Tokenizer

assert home
assert thread  # fixtures

SHAPE = {f"model_overrides.{name}": int(value) for name, value in (one.split("=") for one in NANO)}
QUICK: dict[str, Any] = {"steps": 6, "batch_size": 8, "max_length": 32, "device": "cpu", "settings": SHAPE}


def test_a_run_is_a_value_and_leaves_nothing(home: Path, tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(home / "tokenizer")
    run = bertie.pretrain(home / "corpus", tokenizer, objectives=["mlm"], **QUICK)
    assert set(run.model.module.heads) == {"mlm"}
    assert [row["metric"] for row in run.scores.to_dicts()] == ["loss", "mlm_loss", "mlm_accuracy"]
    assert run.scores["mlm_loss"] == run.results["valid"]["mlm_loss"]
    assert "mlm_accuracy 0." in repr(run)
    assert run._repr_html_().count("<tr>") == 4
    assert run.report.is_file()
    kept, folder = run.save(tmp_path / "kept"), run.folder
    del run
    assert not folder.exists()
    assert bertie.Run.of(kept.folder).scores.to_dict() == json.loads(json.dumps(kept.scores.to_dict()))
    assert bertie.fill_mask(kept.model, "the [MASK]")


def test_a_setting_that_is_none_is_null_as_in_the_shell(home: Path) -> None:
    options = {**QUICK, "config": "pretrain-ten-minutes", "settings": SHAPE | {"objectives.nsp": None}}
    with pretrain._ready({"corpus": str(home / "corpus"), "tokenizer": home / "tokenizer", **options}) as ready:
        assert [name for name, options in ready.objectives.items() if options is not None] == ["mlm"]


def test_arguments_are_the_settings_of_the_command(home: Path, tmp_path: Path) -> None:
    short = {**SHAPE, "train.save_every": 3, "train.eval_every": 3, "train.keep_checkpoints": True}
    by_name = bertie.pretrain(
        home / "corpus", home / "tokenizer", **{**QUICK, "settings": short}, output=tmp_path / "run"
    )
    again = bertie.pretrain(config=settings(home), output=tmp_path / "run")
    assert again.scores.to_dict() == json.loads(json.dumps(by_name.scores.to_dict())), "the same run has finished"


def test_what_is_wrong_is_named(home: Path) -> None:
    corpus, tokenizer = home / "corpus", home / "tokenizer"
    calls: list[tuple[Callable[[], object], type[Exception], str]] = [
        (lambda: bertie.pretrain(), UsageError, "No corpus given"),
        (lambda: bertie.pretrain(home / "nope", tokenizer), DataError, "nope does not exist"),
        (
            lambda: bertie.pretrain(corpus, tokenizer, objectives="mlm"),
            UsageError,
            r"a list .*was expected\. Pass \['mlm'\]",
        ),
        (lambda: bertie.pretrain(corpus, tokenizer, objectives=["mlmm"]), UsageError, "Did you mean 'mlm'"),
        (lambda: bertie.pretrain(corpus, config=settings(home)), UsageError, "corpus and config exclude each other"),
        (lambda: bertie.pretrain(corpus, max_steps=3), UsageError, "Did you mean 'steps'"),  # type: ignore[call-arg]
        (lambda: bertie.pretrain(corpus, settings={"optim.betaz": 1}), UsageError, "Did you mean 'betas'"),
    ]
    for call, kind, message in calls:
        with pytest.raises(kind, match=message):
            call()
