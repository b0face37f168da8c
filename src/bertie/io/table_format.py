"""How a table is read, as values: how its file is parsed, which column is what, and names for its labels."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self
from unicodedata import normalize

from bertie.io.fields import composed, flat
from bertie.training_facts import Markup

if TYPE_CHECKING:
    from bertie.training_facts import FeatureConfig


@dataclass(frozen=True)
class FileFormat:
    """How a file is parsed. Empty settings are inferred from its name and its content.

    kind: one of the formats (rows.py). encoding: of its text. names: those of the columns, for a file without a header
    line. usual_encoding: of the training file, for a file that is not UTF-8.
    """

    kind: str = ""
    encoding: str = "utf-8"
    names: tuple[str, ...] = ()
    usual_encoding: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(map(composed, self.names)))


@dataclass(frozen=True)
class Columns:
    """Which column is what. Empty ones are recognized; `tables.find_columns` returns those of a table.

    text: the columns of the texts, or templates of columns. label: None where labels are not read. choices: the columns
    of choices; further: of those that only other rows than the first may have. separator: between the labels of a
    cell, a comma if empty. weight, group, time: the columns of a row's weight, of what must not be separated
    from it, and of when it was written. tabular: other columns that the task
    reads. markup: what is removed from texts. features: the column of feature vectors, and how they
    are made. usual_text, usual_label: those of the training file, used where the table has them and others are not set.
    """

    text: tuple[str, ...] = ()
    label: str | None = ""
    choices: tuple[str, ...] = ()
    further: re.Pattern[str] | None = None
    separator: str = ""
    weight: str = ""
    group: str = ""
    time: str = ""
    tabular: tuple[str, ...] = ()
    markup: Markup = ""
    features: "FeatureConfig | None" = None
    usual_text: tuple[str, ...] = ()
    usual_label: str = ""
    recognized: tuple[str, ...] = field(default=(), compare=False)
    names: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", tuple(map(composed, self.text)))
        object.__setattr__(self, "tabular", tuple(map(composed, self.tabular)))
        object.__setattr__(self, "label", None if self.label is None else composed(self.label))
        for name in ("weight", "group", "time"):
            object.__setattr__(self, name, composed(getattr(self, name)))

    @property
    def labelled(self) -> bool:
        """Whether labels are read: rows without one are invalid."""
        return self.label is not None

    @property
    def adds(self) -> bool:
        """Whether a row has more than texts and a label."""
        return bool(self.weight or self.group or self.time or self.features)

    def fields(self, texts: Sequence[str], label: object) -> dict[str, object]:
        """Returns the texts and the label of a row by the names of their columns: text, text2 and label without any."""
        own = (*self.text, *self.choices)
        plain = [*own] if len(own) == len(texts) and not any("{" in name for name in own) else []
        names = plain or ["text", *(f"text{n}" for n in range(2, len(texts) + 1))]
        return {**dict(zip(names, texts, strict=False)), (self.label or "label"): label}

    def __str__(self) -> str:
        label = (self.label,) if self.label else ()
        kinds = (("text", self.text), ("choice", self.choices), ("tabular", self.tabular), ("label", label))
        parts = [
            f"{kind} column{'s' if len(names) > 1 else ''} {' and '.join(f'`{name}`' for name in names)}"
            for kind, names in kinds
            if names
        ]
        texts = [] if self.text or self.choices else ["no text column"]  # there are only feature vectors
        own = (
            [f"recognized by their values; for others, pass {' and '.join(self.recognized)}"] if self.recognized else []
        )
        return ", ".join([*texts, *parts, *([] if self.label else ["no label column"]), *own])


class SoftLabel(str):
    """A label that also has the probabilities of all labels. It is equal to the plain label."""

    shares: Mapping[str, float]

    @classmethod
    def of(cls, label: str, shares: Mapping[str, float]) -> Self:
        """Returns a label with its probabilities."""
        soft = cls(label)
        soft.shares = shares
        return soft

    def renamed(self, names: Mapping[str, str]) -> Self:
        """Returns the label by its new name. The probabilities of labels that get the same name are added."""
        shares = dict[str, float]()
        for label, share in self.shares.items():
            name = names.get(label, label)
            shares[name] = shares.get(name, 0.0) + share
        return self.of(names.get(self, self), shares)


@dataclass(frozen=True)
class LabelNames:
    """Names for the labels of a file.

    names: label of the file -> its name. meanings: such names, used if they are a model's labels and the labels of the
    file are not. undecided: the label of rows that have none, which are invalid.
    """

    names: Mapping[str, str] = field(default_factory=dict, hash=False)
    meanings: Mapping[str, str] = field(default_factory=dict, hash=False)
    undecided: str | None = None

    def of(self, label: Any) -> Any:
        """Returns a label, or each of several, by its new name; labels without one are unchanged."""
        if isinstance(label, tuple):
            return tuple(sorted({self.of(one) for one in label}))
        if isinstance(label, SoftLabel):
            return label.renamed(self.names)
        return self.names.get(label, label) if isinstance(label, str) else label

    def for_model(self, labels: Sequence[str], known: Sequence[str]) -> "LabelNames":
        """Returns the names for a file that a model reads: those of the user, or else what the labels mean.

        Labels in another form are the model's too: names of folders are decomposed on macOS, and where a column of
        pandas has gaps, 1 is 1.0.

        Args:
            labels: The labels of the model.
            known: These, and the other names that rows may have.
        """
        means = set(self.meanings.values()) <= set(labels) and not set(self.meanings) & set(labels)
        names = self.names or (self.meanings if means else {})
        pairs = [*zip(known, known, strict=True), *names.items()]
        forms = {form: name for label, name in pairs for form in _forms(label)}
        return replace(self, names={label: name for label, name in forms.items() if label not in known} | dict(names))


def _forms(label: str) -> tuple[str, ...]:
    whole = (f"{label}.0", label.removesuffix(".0")) if label.removesuffix(".0").lstrip("-").isdecimal() else ()
    boolean = (label.lower(), label.capitalize()) if label.lower() in ("true", "false") else ()
    return normalize("NFC", label), normalize("NFD", label), *whole, *boolean


@dataclass(frozen=True)
class TableFormat:
    """How a table is read.

    keep: whether each example has its whole row (`Example.source`), which needs memory where examples are collected.
    """

    file: FileFormat = FileFormat()
    columns: Columns = Columns()
    labels: LabelNames = LabelNames()
    keep: bool = False

    flat = staticmethod(flat)

    @classmethod
    def of(
        cls,
        text: Sequence[str] = (),
        label: str | None = "",
        columns: Sequence[str] = (),
        encoding: str = "utf-8",
        kind: str = "",
        *,
        label_names: Mapping[str, str] | None = None,
        label_separator: str = "",
        weight: str = "",
        group: str = "",
        time: str = "",
        tabular: Sequence[str] = (),
        markup: Markup = "",
        features: "FeatureConfig | None" = None,
        labelled: bool = True,
        keep: bool = False,
    ) -> "TableFormat":
        """Returns the format from the options of a user. columns: names for a file without a header line."""
        return cls(
            FileFormat(kind, encoding, tuple(columns)),
            Columns(
                tuple(text),
                label if labelled else None,
                separator=label_separator,
                weight=weight,
                group=group,
                time=time,
                tabular=tuple(tabular),
                markup=markup,
                features=features,
            ),
            LabelNames(label_names or {}),
            keep,
        )


RECOGNISED, UTF8 = TableFormat(), FileFormat()
