"""The list of commands, and `main`. Importing a file here adds its commands to the app; app.ORDER is that of --help."""

import sys

from bertie import console
from bertie.cli import (  # noqa: F401 (imported for what they register)
    bench,
    bench_text,
    convert,
    corpus,
    data,
    demo,
    embed,
    evaluate,
    families,
    fill_mask,
    finetune,
    grow,
    info,
    perplexity,
    predict,
    pretrain,
    reproduce,
    runs,
    submission,
    tokenizer,
    tune,
)
from bertie.cli.app import app
from bertie.errors import BertieError, Stopped


def main() -> None:
    """Run the command line and exit with the code of what happened."""
    try:
        app()
    except BertieError as error:
        from rich.markup import escape

        kind = "[yellow]stopped:[/]" if isinstance(error, Stopped) else "[red]error:[/]"
        console.stderr().print(f"{kind} {escape(str(error))}")
        sys.exit(error.exit_code)
    except OSError as error:  # a folder that may not be written, a path through a file
        if error.filename is None or console.verbosity.level > 0:
            raise
        print(f"error: {error.filename}: {error.strerror} (-v shows where).", file=sys.stderr)
        sys.exit(1)
