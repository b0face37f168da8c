"""A command that answers one text, or every line of standard input."""

from collections.abc import Callable

from bertie.platform import BadRecord, DataError, SourceFile, console


def answer_lines(text: str, answer: Callable[[str, int], None]) -> None:
    """Answers a text; for "-", each line of standard input, with a warning for those that have no answer.

    answer: prints the answer to a text, with the number of its line. It raises DataError where there is none.
    """
    if text != "-":
        answer(text, 1)
        return
    left_out = number = 0
    for number, line in SourceFile("-").numbered_lines():
        try:
            if isinstance(line, BadRecord):
                raise DataError(f"It is {line.reason}.")
            answer(line, number)
        except DataError as error:  # this line alone
            left_out += 1
            if console.verbosity.json:
                console.emit({"line": number, "error": str(error)})
            else:
                console.warn(f"line {number}: {error}")
    if left_out:
        console.warn(f"{left_out:,} of {number:,} lines skipped")
