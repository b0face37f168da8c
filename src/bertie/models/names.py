"""The names of weights in Hugging Face format: tables, read in both directions. Imports no torch.

A row is (our name, public name). `*` is the last part (weight, bias), `{}` a layer's number. Where the
public format separates what is fused here, the public side is a tuple in the order of the fused rows. A pattern lists
matrices that it stores transposed. A second table has names in older files: (pattern, current public name).
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from bertie.errors import UsageError
from bertie.models.heads import own_classes

WeightRow = tuple[str, str | tuple[str, ...]]

_HEADS_PREFIX = "heads."
ENCODER, IN_HEADS, OURS = "encoder.", re.compile(r"\.(pool|reader)\."), "bertie."
"""Weights that the family's format does not have (for settings in models/codec.py) are saved under our names."""


@dataclass(frozen=True)
class WeightTable:
    """The names of a family's weights.

    `old`: (pattern, current name); `ignored`: patterns of entries that are not weights; `transposed`: pattern of the
    public names whose matrices are stored as (in, out).
    """

    rows: tuple[WeightRow, ...]
    base: str = ""  # "bert.": prefix of the encoder's names in a model with heads
    old: tuple[tuple[str, str], ...] = ()
    ignored: tuple[str, ...] = ()
    transposed: str = ""

    def public(self, name: str) -> tuple[str, ...]:
        """Returns the public name of our name, or several names in fused order. Raises KeyError for an unknown head."""
        for ours, theirs in self.rows:
            if match := _pattern(ours).fullmatch(name):
                parts = (theirs,) if isinstance(theirs, str) else theirs
                return tuple(_fill(part, match.groups()) for part in parts)
        if name.startswith(ENCODER) or IN_HEADS.search(name):
            return (f"{OURS}{name}",)
        if name.startswith(tuple(f"{_HEADS_PREFIX}{head}." for heads in own_classes().values() for head in heads)):
            return (name.removeprefix(_HEADS_PREFIX),)  # of no public layout
        raise KeyError(name)

    def turned(self, public: str) -> bool:
        """Returns whether the public format stores this weight transposed."""
        return bool(self.transposed and re.search(self.transposed, public))

    def __contains__(self, name: object) -> bool:
        """Returns whether a row has our name."""
        try:
            return not self.public(str(name))[0].startswith(OURS)
        except KeyError:
            return False

    def today(self, stored: str) -> str | None:
        """Returns the current public name, with the base, of a name in a file; None: it is not a weight."""
        if any(re.search(pattern, stored) for pattern in self.ignored):
            return None
        for pattern, name in self.old:
            stored = re.sub(pattern, name, stored)
        return stored


def check_public_names(names: Iterable[str], table: WeightTable, family: str) -> None:
    """Raises UsageError unless each weight of a model has a unique public name. Called when a model is built."""
    taken: dict[str, str] = {}
    for name in names:
        try:
            publics = table.public(name)
        except KeyError:
            raise UsageError(
                f"The format of {family} has no place for {name}, so this model could not be saved. Choose a "
                "family with this head: bertie families"
            ) from None
        for public in publics:
            if (other := taken.setdefault(public, name)) != name:
                raise UsageError(
                    f"The format of {family} has the same place for {other} and {name} ({public}), so this "
                    "model could not be saved. Choose one of the two heads."
                )


@cache
def _pattern(ours: str) -> re.Pattern[str]:
    """Returns a pattern for our side of a row: {} is a number, * a word. Cached, since all names are searched in all
    rows."""
    return re.compile(re.escape(ours).replace(r"\{\}", r"(\d+)").replace(r"\*", r"(\w+)"))


def _fill(template: str, parts: Iterable[str]) -> str:
    for part in parts:
        template = re.sub(r"\{\}|\*", part, template, count=1)
    return template
