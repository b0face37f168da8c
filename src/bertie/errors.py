"""What a user meets when something is wrong: what happened, what was expected, what to do next.

Every error that bad input can cause is a `BertieError`; the command line prints its message and exits with its
`exit_code`. So it does, with 1, when the system refuses a path. Anything else that escapes is a defect of Bertie's and
keeps its traceback.
"""

import difflib
from collections.abc import Iterable


class BertieError(Exception):
    """A failure with a message that finishes the user's thought. Exit code 1."""

    exit_code = 1


class UsageError(BertieError):
    """The call itself is wrong: an unknown name, key or flag. Exit code 2."""

    exit_code = 2


class DataError(BertieError):
    """The input is wrong: a file, an encoding, a label, a damaged shard or checkpoint. Exit code 3."""

    exit_code = 3


class Stopped(BertieError):
    """Stopped before the end, with everything needed to go on saved: SIGTERM, a full disk. Exit code 75."""

    exit_code = 75


MANY = 30  # choices; of more, an error lists those that resemble what was given


def nearest(name: str, choices: Iterable[str]) -> str:
    """Say which choice `name` was probably meant to be, and what the choices are, as the end of an error message."""
    names = sorted(choices)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"Did you mean {close[0]!r}? " if close else ""
    if len(names) > MANY:
        alike = difflib.get_close_matches(name, names, n=6, cutoff=0.4)
        names = [*(alike or names[:6]), f"... ({len(names)} in all)"]
    return f"{hint}Choices: {', '.join(names) if names else '(none)'}."
