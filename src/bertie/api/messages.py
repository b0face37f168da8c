"""What calls of the library tell besides their results."""

from bertie.console import console


def progress(shown: bool = True) -> None:
    """Shows the progress of long calls, or hides it, from now on in this process.

    Everything else that a call tells is a warning of Python, or a message of the logger "bertie".

    Example:
        >>> bertie.progress(False)
        >>> bertie.progress(True)
    """
    console.verbosity.progress = shown
