"""The command line: one typer app, one short file per command. A command parses, calls the library and prints.

Exit codes: 0 done, 1 failure, 2 usage, 3 data problem, 75 stopped but resumable, 130 Ctrl-C. Heavy imports are inside
the commands, so that --help is fast.
"""

import inspect
import json
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core

from bertie import console

GROUPS: dict[str, tuple[str, ...]] = {
    "Start here": ("demo", "download", "finetune", "predict", "evaluate", "serve"),
    "Data and text": ("sample", "data", "corpus", "tokenizer", "vary", "cloze", "counterfactual", "submission"),
    "Pre-train and tune": ("pretrain", "tune", "plan", "vocabulary"),
    "Runs": ("report", "compare", "verify", "export-checkpoint", "reproduce", "bench"),
    "Use a model": (
        *("embed", "index", "search", "negatives", "write", "fill-mask", "next-sentence", "perplexity", "reload"),
        "upload",
    ),
    "Understand a model": ("explain", "attention", "heads", "probe", "words", "audit", "trace", "info", "families"),
    "Change a model": ("compress", "export", "convert", "grow", "shrink", "debias"),
}
"""Heading of --help -> its commands, in the order of the list."""
ORDER = tuple(name for names in GROUPS.values() for name in names)
FIRST_STEPS = """\
Bertie trains and uses BERT-style models, from raw text to predictions. Three commands to begin with:

  bertie finetune starter-en --train reviews.csv -o runs/reviews    train on a table with a text and a label column
  bertie predict runs/reviews/model new.txt                         label new texts
  bertie serve runs/reviews/model                                   answer over HTTP, with a page to try it

bertie --help lists all commands, and bertie COMMAND --help explains one."""


class _Group(typer.core.TyperGroup):
    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes the commands below the headings of GROUPS; those of a group of commands below one."""
        groups = GROUPS if ctx.parent is None else {"Commands": self.list_commands(ctx)}
        width = max(map(len, self.commands))
        for heading, names in groups.items():
            rows = [
                (name.ljust(width), self.commands[name].get_short_help_str(200))
                for name in names
                if name in self.commands
            ]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)

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
        from bertie.settings import passed_as

        key = name.lstrip("-").replace("-", "_")
        kind = PretrainConfig if ctx.command.name == "pretrain" else FinetuneConfig
        if key in kind.options:
            error.message += f". {passed_as(kind.options[key])}"
            return
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
    invoke_without_command=True,
    rich_markup_mode=None,
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
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    if ctx.invoked_subcommand is None:
        print(FIRST_STEPS)


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
