"""--help lists the commands along the straight line."""

import re

import typer.main

from bertie.cli.app import ORDER, app


def test_every_command_has_its_place_in_the_order():
    group = typer.main.get_command(app)
    listed = group.list_commands(None)
    assert set(listed) <= set(ORDER)


def test_help_lists_the_commands_in_the_order_they_are_used(bertie):
    lines = bertie.good("--help").splitlines()
    order = ("corpus", "tokenizer", "pretrain", "finetune", "evaluate", "predict", "embed", "convert", "bench")
    at = [next(i for i, line in enumerate(lines) if re.match(rf"\W*{name}\b", line)) for name in order]
    assert at == sorted(at)
