"""`bertie download` and `bertie upload`: models of the Hugging Face Hub."""

from pathlib import Path
from typing import Annotated

import typer

from bertie import console
from bertie.cli import tables
from bertie.cli.app import emit
from bertie.errors import DataError, UsageError


def download(
    names: Annotated[
        list[str] | None, typer.Argument(help="Models: organization/model, or organization/model@revision.")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the models that are here, and stop.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the files and their size; do not start.")] = False,
) -> None:
    """Download models of the Hugging Face Hub, for use by name.

    Only weights (safetensors), tokenizer and config are downloaded, to the cache of HF_HOME. Bertie never downloads
    anything by itself: other commands open what is in the cache. A stopped download is continued.

    \b
    Examples:
      bertie download google-bert/bert-base-uncased
      bertie finetune google-bert/bert-base-uncased --train train.csv --dev dev.csv -o runs/mine
      bertie download klue/roberta-small@main --dry-run
      bertie download --list
    """
    if list_ == bool(names):
        raise UsageError("Pass the name of a model, such as google-bert/bert-base-uncased, or --list, but not both.")
    if not names:
        return _list()
    from dataclasses import asdict

    from bertie.hub import remote

    for found in [remote.look_up(name) for name in names]:
        size = f"{len(found.files)} files, {found.bytes / 1e6:,.1f} MB"
        if dry_run:
            for file, (count, _) in found.files.items():
                console.say(f"{file}: {count:,} bytes")
            _show(f"{found.name}@{found.commit}: {size}", {**asdict(found), "bytes": found.bytes})
            continue
        with console.progress(f"downloading {found.name}", found.bytes / 1e6, unit="MB") as advance:
            done = remote.download(found, advance=lambda count: advance(count / 1e6))
        _show(f"{done.name}: {size}, commit {done.commit[:12]}, in {done.folder}", asdict(done))


def upload(
    model: tables.ModelFolder,
    name: Annotated[str, typer.Argument(help="Name on the Hub: organization/model.")],
    private: Annotated[bool, typer.Option("--private", help="Make a new repository private.")] = False,
    message: Annotated[str, typer.Option("--message", "-m", help="Message of the commit.")] = "",
) -> None:
    """Upload a model folder to the Hugging Face Hub, with its tokenizer and card.

    The access token is that of HF_TOKEN, or of `hf auth login`. A damaged folder is refused.

    \b
    Examples:
      bertie upload runs/mine my-organization/reviews-small --private
    """
    from bertie.hub import remote
    from bertie.models.variant import read_public
    from bertie.runs.verify import verify

    read_public(model)  # says what is wrong with a folder that is no model
    if damage := [check["found"] for check in verify(model)["checks"] if not check["ok"]]:
        raise DataError(f"{damage[0]} Nothing was uploaded.")
    size = sum((model / file).stat().st_size for file in remote.uploaded(model)) / 1e6
    address = remote.upload(model, name, private=private, message=message)
    _show(f"{model}: {size:,.1f} MB, at {address}", {"output": address})


def _list() -> None:
    from bertie.hub.names import listed

    rows = list(listed())
    if console.verbosity.json:
        emit([{"name": name, "description": text, "here": here} for name, text, here in rows])
        return
    width = max(len(name) for name, _, _ in rows)
    for name, text, here in rows:
        console.show(f"{name:{width}}  {'here   ' if here else 'missing'}  {text}")


def _show(line: str, facts: dict[str, object]) -> None:
    if console.verbosity.json:
        emit({name: str(value) if isinstance(value, Path) else value for name, value in facts.items()})
    else:
        console.show(line)
