"""--help lists the commands along the straight line."""

import typer.main

from bertie.cli.app import ORDER, app


def test_every_command_has_its_place_in_the_order():
    group = typer.main.get_command(app)
    listed = group.list_commands(None)
    assert set(listed) <= set(ORDER)
    assert listed == [name for name in ORDER if name in listed]
    assert listed.index("corpus") < listed.index("tokenizer") < listed.index("pretrain") < listed.index("finetune")
