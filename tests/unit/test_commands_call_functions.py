"""Each command parses, calls a public function and prints: its options are parameters of the function."""

import ast
import inspect
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import bertie
from bertie.api.options import FinetuneOptions, PretrainOptions
from bertie.apps.cli.app import SHARED_OPTIONS
from bertie.apps.cli.table import COMMAND_ROWS, load_command

CLI = Path(__file__).parents[2] / "src" / "bertie" / "apps" / "cli"
FUNCTIONS = {  # command -> what it calls
    "compare": ("compare",),
    "convert": ("convert",),
    "corpus": ("build_corpus", "Corpus.plan", "Corpus.open"),
    "data": ("data_sets",),
    "download": ("download", "list_models"),
    "embed": ("embed",),
    "evaluate": ("evaluate",),
    "export-checkpoint": ("export_checkpoint",),
    "families": ("list_families",),
    "fill-mask": ("load", "Model.fill_mask"),
    "finetune": ("finetune", "finetune_against", "plan_finetune"),
    "grow": ("grow",),
    "info": ("info", "presets"),
    "next-sentence": ("next_sentence",),
    "perplexity": ("perplexity",),
    "predict": ("predict",),
    "pretrain": ("pretrain", "plan_pretrain"),
    "report": ("write_report",),
    "shrink": ("shrink",),
    "tokenizer encode": ("load_tokenizer", "Tokenizer.encode"),
    "tokenizer report": ("report_tokenizer",),
    "tokenizer train": ("train_tokenizer",),
    "tune": ("tune",),
    "upload": ("upload",),
    "verify": ("verify",),
    "vocabulary extend": ("extend_vocabulary",),
    "vocabulary trim": ("trim_vocabulary",),
    "write": ("load", "Model.writer"),
}
NAMES = {
    "out": {"output"},
    "sources": {"texts"},
    "file": {"texts", "examples"},
    "folder": {"tokenizer"},
    "names": {"name"},
}
"""What a command calls an argument that has no option, or -o -> the parameter."""
ONLY_IN_PYTHON = {  # parameter -> why no option has its name
    "callbacks": "functions; --track names those of Bertie",
    "settings": "values by name, which a command has as key=value",
    "options": "the settings of `finetune` and `pretrain` by name",
    "objectives": "names with options, which a command has as objectives.NAME.OPTION=value",
}
OF_A_VALUE = {  # what a command does with a value that the function returned, line by line
    "Corpus.open": {"folder"},
    "Tokenizer.encode": {"a", "b", "max_length", "truncation"},
    "Model.writer": {"options"},
}
NO_OPTION = {  # command -> parameters of its functions that it lacks, each with the reason
    "write": {"engine": "torch alone generates text"},
}
APPS = {  # command of an application -> its function, what only the command has, and what only the function has
    "export": ("Model.export", {"model"}, set()),
    "index": ("build_index", {"inputs", "out", "remove", "check"}, {"documents", "output"}),
    "probe": ("probe", {"card"}, set()),
    "search": ("open_index", {"index", "top", "question"}, {"folder"}),
    "words": ("words", {"card", "output", "overwrite"}, {"seed"}),  # which write a page
}
"""`serve` and `compress` have more than their functions: a server of a team, and searches of a size."""
CHOOSES = {  # options that choose one of the functions, or what is printed
    "corpus": {"show", "dry_run"},
    "data": {"data_dir"},  # PublishedSet.check
    "download": {"list"},
    "finetune": {"dry_run"},
    "info": {"presets"},
    "pretrain": {"dry_run"},
    "tokenizer encode": {"text", "pair"},  # of Tokenizer.encode, line by line
    "write": {"text"},  # of the writer, line by line
}


def commands() -> Iterator[tuple[str, Any]]:
    """Every command of one function, those below others too, with its click command."""
    for name, row in COMMAND_ROWS.items():
        if row.target.startswith("bertie.apps.cli.") or name in FUNCTIONS:
            command = load_command(row)
            below = getattr(command, "commands", None)
            yield from ((f"{name} {one}", inner) for one, inner in below.items()) if below else [(name, command)]


COMMANDS = dict(commands())


def function(name: str) -> Callable[..., Any]:
    first, _, method = name.partition(".")
    assert first in bertie.__all__, name
    return getattr(getattr(bertie, first), method) if method else getattr(bertie, first)


def parameters(name: str) -> set[str]:
    found: set[str] = set()
    for one in inspect.signature(function(name)).parameters.values():
        if one.kind is one.VAR_KEYWORD:
            found |= {*one.annotation.__args__[0].__annotations__}
        found.add(one.name)
    return found


def test_every_command_is_named_here() -> None:
    assert COMMANDS.keys() == FUNCTIONS.keys()
    assert len(bertie.__all__) <= 60


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_option_is_a_parameter_of_the_function(name: str) -> None:
    known = {parameter for called in FUNCTIONS[name] for parameter in parameters(called)}
    options = options_of(COMMANDS[name])
    lacking = {
        option
        for option in options - CHOOSES.get(name, set())
        if not {option, f"{option}_", *NAMES.get(option, ())} & known
    }
    assert not lacking


def options_of(command: Any) -> set[str]:
    return {one.name.strip("_") for one in command.params} - {*SHARED_OPTIONS, "json", "help"}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_parameter_of_the_function_is_an_option(name: str) -> None:
    options = options_of(COMMANDS[name])
    known = options | {parameter for option in options for parameter in NAMES.get(option, ())}
    for called in FUNCTIONS[name]:
        apart = {"self", *ONLY_IN_PYTHON, *OF_A_VALUE.get(called, ()), *NO_OPTION.get(name, ())}
        assert {one for one in parameters(called) - apart if one.strip("_") not in known} == set(), called


@pytest.mark.parametrize("name", APPS)
def test_a_command_of_an_application_has_the_options_of_its_function(name: str) -> None:
    called, shell, python = APPS[name]
    assert (options_of(load_command(COMMAND_ROWS[name])) - shell) == (parameters(called) - {"self"} - python)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_command_calls_the_function(name: str) -> None:
    module = import_module(COMMAND_ROWS[name.split()[0]].target.partition(":")[0])
    source = Path(str(module.__file__)).read_text(encoding="utf-8")
    for called in FUNCTIONS[name]:
        first, _, method = called.partition(".")
        assert f"bertie.{first}" in source or f".{method}(" in source, called


def test_commands_import_at_the_top() -> None:
    for path in sorted(CLI.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        inner = [
            node.module
            for function in ast.walk(tree)
            if isinstance(function, ast.FunctionDef)
            for node in ast.walk(function)
            if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "bertie"
        ]
        assert not inner, path.name


@pytest.mark.parametrize(
    ("name", "options", "own"),
    [
        (
            "finetune",
            FinetuneOptions,
            {"model", "train", "dev", "output", "resume", "overwrite", "callbacks", "folds", "seeds", "keep_best"},
        ),
        ("pretrain", PretrainOptions, {"corpus", "tokenizer", "resume", "allow_change", "callbacks"}),
    ],
)
def test_a_plan_takes_the_settings_of_its_run(name: str, options: type, own: set[str]) -> None:
    assert {*options.__annotations__} == parameters(name) - own
