"""What a function was called with, as a hash: the same call on the same inputs finds its folder finished."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

from bertie.checksums import content
from bertie.files import seal

STDIN = "-"


def seal_of(function: str, inputs: object, **options: object) -> str:
    """Returns the hash of a call; "" where an input is in memory or standard input, which is never the same.

    Args:
        function: The name of the function.
        inputs: Paths, of which the contents count; or data in memory.
        **options: The other arguments.
    """
    paths = paths_of(inputs)
    if paths is None or STDIN in map(str, paths):
        return ""
    shown = {name: str(value) if isinstance(value, PathLike) else value for name, value in options.items()}
    return seal({"command": function, "inputs": [content(Path(path)) for path in paths], **shown})


def paths_of(inputs: object) -> Sequence[str | PathLike[str]] | None:
    """Returns the paths that inputs are: one, or a list of them. None for data in memory."""
    if isinstance(inputs, str | PathLike):
        return [inputs]
    if isinstance(inputs, list | tuple) and inputs and all(isinstance(one, str | PathLike) for one in inputs):
        return inputs
    return None
