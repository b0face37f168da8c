"""A setting that is a string takes what was written, whatever YAML would make of it."""

from dataclasses import fields
from pathlib import Path
from typing import get_type_hints

import pytest

from bertie.runs.config import FinetuneConfig, PretrainConfig
from bertie.settings import Config, load_config, read_yaml
from bertie.tasks import TASKS
from toys import CommandLine, toy_model

ODD = [
    "query: ",
    "yes",
    "1",
    "1e3",
    "a: b",
    "[x]",
    "{a: b}",
    "x # y",
    "- a",
    "&a",
    "*a",
    "!b",
    "~",
    "2024-01-01",
    "007",
    "true",
    "@",
    "%",
]


def strings(kind: type[Config], before: str = "") -> list[str]:
    """Dotted keys of all settings that are strings."""
    found = []
    for name, field in kind.model_fields.items():
        found += [before + name] if field.annotation in (str, str | None) else []
        found += strings(type(field.default), f"{before}{name}.") if isinstance(field.default, Config) else []
    return found


KEYS = [(kind, key) for kind in (FinetuneConfig, PretrainConfig) for key in strings(kind)]
OPTIONS = [
    (name, field.name)
    for name in TASKS
    for field in fields(TASKS[name])
    if get_type_hints(TASKS[name])[field.name] in (str, str | None)
]


@pytest.mark.parametrize(("kind", "key"), KEYS)
@pytest.mark.parametrize("text", ODD)
def test_every_string_of_a_run(kind: type[FinetuneConfig | PretrainConfig], key: str, text: str) -> None:
    model = {} if kind is PretrainConfig else {"model": "m"}
    value = load_config(kind, None, [f"{key}={text}"], **(model if key != "model" else {}))
    for name in key.split("."):
        value = getattr(value, name)
    assert value == text


def test_there_are_options_of_tasks() -> None:
    assert {("embed", "prompt"), ("relation", "outside"), ("sequence", "positive")} <= {*OPTIONS}


@pytest.mark.parametrize(("task", "option"), OPTIONS)
@pytest.mark.parametrize("text", ODD)
def test_every_string_of_a_task(task: str, option: str, text: str) -> None:
    for order in (1, -1):  # the task may be named after its options
        overrides = [f"task={task}", f"task_options.{option}={text}"][::order]
        assert load_config(FinetuneConfig, None, overrides, model="m").task_options == {option: text}


def test_words_of_a_pattern_are_strings() -> None:
    assert load_config(
        FinetuneConfig, None, ["task=pattern", "task_options.words.1=yes: no"], model="m"
    ).task_options == {"words": {"1": "yes: no"}}


def test_quotes_and_null_keep_their_meaning() -> None:
    assert load_config(FinetuneConfig, None, ["label='a: b'"], model="m").label == "a: b"
    assert load_config(FinetuneConfig, None, ["label=it's"], model="m").label == "it's"
    assert load_config(FinetuneConfig, None, ["dev_file=null"], model="m").dev_file is None


def test_other_settings_are_still_yaml() -> None:
    config = load_config(FinetuneConfig, None, ["task=embed", "task_options.temperature=0.1", "text=[a, b]"], model="m")
    assert (config.task_options["temperature"], config.text) == (0.1, ("a", "b"))


def test_a_prompt_from_the_command_line(tmp_path: Path, bertie: CommandLine) -> None:
    table, run = tmp_path / "t.csv", tmp_path / "run"
    table.write_text("text1,text2,label\na b,b,1\nc,d,0.5\n")
    start = toy_model(tmp_path / "start", "abcdquery:")
    fast = ("epochs=1", "max_length=16", "train.precision=fp32")
    options = ("--task", "embed", "task_options.prompt=query: ")
    bertie.good("finetune", start, "--train", table, "--dev", table, "-o", run, *options, *fast)
    assert read_yaml(run / "run.yaml")["task_options"] == {"prompt": "query: "}
