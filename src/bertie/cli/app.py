"""The command line: one typer app, one short file per command. A command parses, calls the library and prints.

Exit codes: 0 done, 1 failure, 2 usage, 3 data problem, 75 stopped but resumable, 130 Ctrl-C. Heavy imports are inside
the commands, so that --help is fast.
"""

import inspect
import json
import re
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core

from bertie import console

# The order in --help: from text to predictions, then the tools around it.
ORDER = (
    *(
        "sample",
        "corpus",
        "tokenizer",
        "plan",
        "pretrain",
        "report",
        "compare",
        "verify",
        "export-checkpoint",
        "data",
        "vary",
        "cloze",
        "finetune",
        "tune",
    ),
    *("evaluate", "predict", "write", "embed", "serve", "submission"),
    *("index", "search", "negatives"),
    *("fill-mask", "next-sentence", "perplexity", "explain", "attention", "heads"),
    *("probe", "words", "audit", "debias", "counterfactual", "trace", "info", "families"),
    *("download", "upload"),
    *("compress", "export", "convert", "vocabulary", "grow", "shrink", "demo", "bench", "reproduce"),
)


def _with_complete_names(format_help: Any) -> Any:
    """Returns a function that prints the help of a command: typer shortens long names of options on 80 columns."""

    def complete(ctx: Any, formatter: Any) -> None:
        from rich.table import Table
        from rich.text import Text
        from typer import rich_utils

        class OptionsTable(Table):
            def add_row(self, *cells: Any, **kwargs: Any) -> None:
                if len(cells) > 5:  # options; of a switch, --no-NAME goes below --NAME and not into a column of its own
                    *first, name, short, off, off_short, kind, text = cells
                    names = (Text("\n").join(filter(None, pair)) for pair in ((name, off), (short, off_short)))
                    cells = (*first, *names, kind, text)
                super().add_row(*cells, **kwargs)
                for column in self.columns[:-1]:
                    column.no_wrap = True  # only the description is wrapped

        rich_utils.Table = OptionsTable  # type: ignore[attr-defined]
        rich_utils.RANGE_STRING = "\n[{}]"
        format_help(ctx, formatter)

    return complete


class _Group(typer.core.TyperGroup):
    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        found = super().get_command(ctx, cmd_name)
        for command in filter(None, (found, *getattr(found, "commands", {}).values())):
            command.help = re.sub(r"(?<=\S)\n(?=\S)", " ", command.help or "")  # rich wraps paragraphs, not lines
            command.format_help = _with_complete_names(command.format_help)
        return found

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(self.commands, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # `bertie ... | head`: whoever read has what they wanted (typer would exit with 1)
            console.hush()
            raise typer.Exit(0) from None
        except KeyboardInterrupt:  # typer would exit without a word
            console.stderr().print("interrupted", style="yellow")
            raise typer.Exit(130) from None
        except Exception as error:
            _add_how_to_pass_settings(error)
            raise


def _add_how_to_pass_settings(error: Any) -> None:
    """Adds to an error about an unknown option, such as --epochs, that settings are written as epochs=3.

    By the version of typer, the class of the error is click's or typer's own, so it is recognized by its fields.
    """
    name, ctx = getattr(error, "option_name", None), getattr(error, "ctx", None)
    if name and ctx and "overrides" in {one.name for one in ctx.command.params}:
        from bertie.runs.config import FinetuneConfig, PretrainConfig

        key = name.lstrip("-").replace("-", "_")
        kind = PretrainConfig if ctx.command.name == "pretrain" else FinetuneConfig
        ours = kind.also_called.get(key, key)
        error.message += f". Settings of the run are written without dashes: {ours}=VALUE."


def _quiet(value: bool) -> None:
    if value:
        console.verbosity.level = -1


def _verbose(value: bool) -> None:
    if value:
        console.verbosity.level = 1


def _json(value: bool) -> None:
    if value:
        console.verbosity.json = True


# The options of every command. Their effect is that of the callbacks, so commands do not receive them.
SHARED = {
    "json_": Annotated[
        bool, typer.Option("--json", callback=_json, help="Write results as JSON to stdout; messages go to stderr.")
    ],
    "quiet": Annotated[bool, typer.Option("-q", "--quiet", callback=_quiet, help="Print only errors and results.")],
    "verbose": Annotated[bool, typer.Option("-v", "--verbose", callback=_verbose, help="Print debug messages too.")],
}


class Commands(typer.Typer):
    """Commands that all have the shared options."""

    def command(self, *args: Any, **kwargs: Any) -> Callable[[Any], Any]:
        """Decorator: registers a function as a command. The function itself is unchanged."""
        register = super().command(*args, **kwargs)

        def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
            @wraps(command)
            def run(**values: Any) -> Any:
                return command(**{name: value for name, value in values.items() if name not in SHARED})

            own = inspect.signature(command).parameters.values()
            keyword = inspect.Parameter.KEYWORD_ONLY
            shared = [inspect.Parameter(name, keyword, default=False, annotation=kind) for name, kind in SHARED.items()]
            register(with_parameters(run, [*(one.replace(kind=keyword) for one in own), *shared]))
            return command

        return decorate


def with_parameters(run: Callable[..., Any], parameters: Sequence[inspect.Parameter]) -> Callable[..., Any]:
    """Returns `run` with the parameters that typer will read."""
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    del run.__wrapped__  # type: ignore[attr-defined]  # or typer would read the command's own
    return run


app = Commands(
    name="bertie",
    cls=_Group,
    help="Train and use BERT-style models, from raw text to predictions.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        print(f"bertie {version('bertie')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace an earlier output of Bertie. Other files are never deleted.")
]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Run folder to write.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check everything and print the plan; do not start.")]
Trial = Annotated[
    float | None,
    typer.Option(
        "--trial",
        min=0.0,
        help="Seconds of the trial under --dry-run. Default: 30, or a stored trial of the same run. 0: no trial.",
    ),
]
Resume = Annotated[str, typer.Option("--resume", help="auto, never, or the folder of a checkpoint.")]
Overrides = Annotated[list[str] | None, typer.Argument(help="Settings of the run: key=value ...")]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", "-c", help="YAML file of settings, or the name of a recipe.")
]


STDIN = Path("-")
OF_THE_CALL = {"out", "output", "overwrite", "quiet", "verbose", "json", "json_"}  # change nothing of what is written


def asked(ctx: typer.Context) -> str:
    """Hash of a command, its settings and what its input files hold, for folders.made_once; "" for standard input."""
    from bertie.checksums import content
    from bertie.files import seal

    inputs: dict[str, Any] = {}
    for name, value in ctx.params.items():
        paths = value if isinstance(value, list) else [value]
        if STDIN in paths:
            return ""
        if name not in OF_THE_CALL:
            inputs[name] = [content(path) if isinstance(path, Path) else path for path in paths]
    return seal({"command": ctx.command.name, **inputs})


def emit(value: Any) -> None:
    """Prints one JSON value on one line of stdout: the result of a command under --json."""
    print(json.dumps(value, ensure_ascii=False), flush=True)
