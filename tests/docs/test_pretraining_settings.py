"""docs/pretraining.md explains every setting of a pre-training run, each objective's options included."""

import re
from dataclasses import fields
from pathlib import Path
from typing import get_args

from bertie.objectives import OBJECTIVES
from bertie.runs.config import PretrainConfig
from bertie.settings import Config
from bertie.train.config import OptimConfig, TrainConfig

PAGE = (Path(__file__).parents[2] / "docs/pretraining.md").read_text(encoding="utf-8").partition("## Every setting")[2]
ROWS = [row for row in PAGE.splitlines() if row.startswith("| `")]


def sections(kind: type[Config]) -> list[type[Config]]:
    """A config and all that lie in it."""
    found = [kind]
    for field in kind.model_fields.values():
        for inner in (field.annotation, *get_args(field.annotation)):
            if isinstance(inner, type) and issubclass(inner, Config):
                found += sections(inner)
    return found


def explained() -> set[str]:
    """The first column, and the code in a row's text: the keys of a list's items."""
    return {name for row in ROWS for name in re.findall(r"`([a-z_.]+)`", row)}


def test_every_key_of_the_config_is_on_the_page() -> None:
    keys = {key for kind in sections(PretrainConfig) for key in kind.model_fields} - {"optim", "train", "objectives"}
    assert {"corpus", "lr", "steps", "weight"} <= keys
    assert keys - explained() == set()


def test_every_option_of_an_objective_is_on_the_page() -> None:
    options = {
        f"{name}.{field.name}"
        for name, kind in OBJECTIVES.items()
        for field in fields(kind)  # type: ignore[arg-type]
        if field.init
    }
    assert {"mlm.rate", "distil.teacher"} <= options
    assert options - explained() == set()


def test_no_key_stands_there_that_is_none() -> None:
    keys = {key for kind in sections(PretrainConfig) for key in kind.model_fields}
    options = {f"{name}.{field.name}" for name, kind in OBJECTIVES.items() for field in fields(kind)}  # type: ignore[arg-type]
    first = {name for row in ROWS for name in re.findall(r"`([a-z_.]+)`", row.split("|")[1])}
    assert first - keys - options == set()


def test_defaults_on_the_page_are_those_of_the_config() -> None:
    """Where a row has one key and a number as its default."""
    kinds = (PretrainConfig, OptimConfig, TrainConfig)  # a phase's have none of their own
    defaults = {key: field.default for kind in kinds for key, field in kind.model_fields.items()}
    checked = 0
    for row in ROWS:
        keys, default = row.split("|")[1].strip(" `"), row.split("|")[2].strip()
        if keys in defaults and re.fullmatch(r"[\d.e-]+", default):
            assert float(default) == defaults[keys], keys
            checked += 1
    assert checked > 10
