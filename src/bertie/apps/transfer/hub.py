"""`bertie download` and `bertie upload`: models of the Hugging Face Hub."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

import bertie
from bertie.apps.cli.shared import option
from bertie.platform import UsageError, console


def download_command(
    names: Annotated[
        list[str] | None, typer.Argument(help="Models: organization/model, or organization/model@revision.")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the models that are here, and stop.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the files and their size; do not start.")] = False,
) -> None:
    """Download models of the Hugging Face Hub, for use by name.

    Only weights (safetensors), tokenizer and config are downloaded, to the cache of HF_HOME. Bertie never downloads
    anything by itself: other commands open what is in the cache. Files that arrived before are not downloaded again.

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
    for model in [bertie.download(name, dry_run=True) for name in names]:
        size = f"{len(model.files)} files, {model.bytes / 1e6:,.1f} MB"
        if dry_run:
            for file, (count, _) in model.files.items():
                console.say(f"{file}: {count:,} bytes")
            _show(f"{model.name}@{model.commit}: {size}", {**asdict(model), "bytes": model.bytes})
            continue
        done = bertie.download(model)
        _show(f"{done.name}: {size}, commit {done.commit[:12]}, in {done.folder}", asdict(done))


def upload_command(
    model: Annotated[Path, option("model")],
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
    done = bertie.upload(model, name, private=private, message=message)
    _show(f"{model}: {done.bytes / 1e6:,.1f} MB, at {done.address}", {"output": done.address})


def _list() -> None:
    models = bertie.list_models()
    if console.verbosity.json:
        console.emit([{"name": one.name, "description": one.description, "here": one.here} for one in models])
        return
    width = max(len(one.name) for one in models)
    for one in models:
        console.show(f"{one.name:{width}}  {'here   ' if one.here else 'missing'}  {one.description}")


def _show(line: str, facts: dict[str, object]) -> None:
    if console.verbosity.json:
        console.emit({name: str(value) if isinstance(value, Path) else value for name, value in facts.items()})
    else:
        console.show(line)
