"""Numbers and missing values as people and programs write them.

    4.5   4,5   1,234.5   1.234,5   1 234,5   45%

One comma before three digits, as in 1,234, can separate thousands or decimals, and is not guessed.
"""

import math
import re

MISSING_VALUES = ("na", "n/a", "nan", "null", "<na>", "#n/a")  # as R, pandas, databases and Excel write a missing value
UNCLEAR = "has a comma that may separate thousands or decimals; write 1234 or 1.234"
NO_NUMBER = "is not a number"
_MAX_NUMBER = 1e15  # the square of a number and its mean over a batch must be float32 numbers
TOO_LARGE = f"is beyond {_MAX_NUMBER:g}"
SPACES = re.compile(r"(?<=\d)[\s\u00a0\u202f'\u2019](?=\d{3}(?!\d))")  # between thousands
_POINTS = re.compile(r"[-+]?(?:\d{1,3}(?:,\d{3})+\.\d+|\d{1,3}(?:,\d{3}){2,})")  # 1,234.5: commas between thousands
COMMA = re.compile(r"[-+]?(?:\d{1,3}(?:\.\d{3})+|\d*),\d+")  # 1.234,5: a decimal comma
DOTS = re.compile(r"[-+]?\d{1,3}(?:\.\d{3}){2,}")
BOTH = re.compile(r"[-+]?[1-9]\d{0,2},\d{3}")


def number_of(text: str) -> float | str:
    """Returns the number that a text is, or why it is none. 45% is 0.45, as a workbook stores it."""
    whole = SPACES.sub("", text.strip().replace("\u2212", "-"))
    plain = whole.removesuffix("%").rstrip()
    if BOTH.fullmatch(plain):
        return UNCLEAR
    if _POINTS.fullmatch(plain):
        plain = plain.replace(",", "")
    elif COMMA.fullmatch(plain):
        plain = plain.replace(".", "").replace(",", ".")
    elif DOTS.fullmatch(plain):
        plain = plain.replace(".", "")
    try:
        number = float(plain) if "_" not in plain else math.nan
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        return NO_NUMBER
    if abs(number) > _MAX_NUMBER:
        return TOO_LARGE
    return number / 100 if whole.endswith("%") else number
