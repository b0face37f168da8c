"""What a function was called with, as a hash: the same call on the same inputs finds its folder finished."""

from collections.abc import Sequence
from os import PathLike, fspath
from pathlib import Path

from bertie.checksums import content_hashes
from bertie.errors import UsageError
from bertie.files import MAX_PATH_CHARACTERS, exists, seal

STDIN = "-"


def seal_of(function: str, inputs: object, **options: object) -> str:
    """Returns the hash of a call; "" where an input is in memory or standard input, which is never the same.

    Args:
        function: The name of the function.
        inputs: Paths, of which the contents count; or data in memory.
        **options: The other arguments.
    """
    paths = paths_of(inputs)
    if paths is None or STDIN in paths:
        return ""
    shown = {name: str(value) if isinstance(value, PathLike) else value for name, value in options.items()}
    return seal({"command": function, "inputs": [content_hashes(Path(path)) for path in paths], **shown})


def paths_of(inputs: object) -> Sequence[str] | None:
    """Returns the paths that inputs are: one, or a list of them. None for data in memory.

    Raises UsageError for a text in the place of a path.
    """
    if isinstance(inputs, str | PathLike):
        paths = [fspath(inputs)]
    elif isinstance(inputs, list | tuple) and inputs and all(isinstance(one, str | PathLike) for one in inputs):
        paths = [fspath(one) for one in inputs]
    else:
        return None
    for path in paths:
        if not exists(path) and (" " in path.strip() or len(path) > MAX_PATH_CHARACTERS):
            raise UsageError(
                f"{path!r:.60} is no file, and a text or a list of them names files. To pass texts, pass an iterator: "
                "iter(texts)."
            )
    return paths
