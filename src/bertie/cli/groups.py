"""Options that commands share, in groups: a command has a parameter of such a class (options.grouped)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from bertie.cli import tables

if TYPE_CHECKING:
    from bertie.api.options import FileOptions, LabelOptions, PatternOptions, SimilarityOptions, WhereOptions
    from bertie.io.table_format import TableFormat

    class _Reading(PatternOptions, WhereOptions, total=False):
        pass

    class _Rows(FileOptions, LabelOptions, total=False):
        pass

    class _Vectors(SimilarityOptions, WhereOptions, total=False):
        pass


@dataclass(frozen=True)
class TableOptions:
    """How a file of labeled examples is read."""

    text: tables.TextColumns = None
    label: tables.LabelColumn = ""
    label_names: tables.LabelNames = ""
    columns: tables.ColumnNames = ""
    encoding: tables.Encoding = "utf-8"
    format_: tables.Format = ""
    label_separator: tables.LabelSeparator = ""

    def arguments(self) -> "_Rows":
        """Returns the options as arguments."""
        return {
            "text": self.text or (),
            "label": self.label,
            "label_names": tables.pairs(self.label_names),
            "columns": tables.names(self.columns),
            "encoding": self.encoding,
            "format": self.format_,
            "label_separator": self.label_separator,
        }

    def format(self) -> "TableFormat":
        """Returns the options as a `TableFormat`."""
        from bertie.io.table_format import TableFormat

        names, columns = tables.pairs(self.label_names), tables.names(self.columns)
        own = (tuple(self.text or ()), self.label, columns, self.encoding, self.format_)
        return TableFormat.of(*own, label_names=names, label_separator=self.label_separator)


@dataclass(frozen=True)
class PredictorOptions:
    """How a model reads texts, and where it runs."""

    max_length: tables.MaxLength = None
    too_long: tables.TooLong = None
    head: tables.Head = ""
    pattern: tables.Pattern = ""
    words: tables.Words = ""
    threshold: tables.Threshold = None
    abstain: tables.Abstain = None
    precision: tables.Precision = "fp32"
    engine: tables.Engine = "auto"
    device: tables.Device = "auto"

    def arguments(self) -> "_Reading":
        """Returns the options as arguments."""
        return {
            "max_length": self.max_length,
            "too_long": self.too_long,  # type: ignore[typeddict-item]  # the function says which there are
            "head": self.head,
            "pattern": self.pattern,
            "words": tables.pairs(self.words, "--words", "good=great,bad=terrible"),
            "threshold": self.threshold,
            "abstain": self.abstain,
            "precision": self.precision,
            "engine": self.engine,
            "device": self.device,
        }


@dataclass(frozen=True)
class EmbeddingOptions:
    """How a model reads texts and makes one vector of each, and where it runs."""

    prompt: Annotated[str | None, typer.Option("--prompt", help="Name of a prompt in the model folder.")] = None
    prefix: Annotated[str | None, typer.Option("--prefix", help="Text to put before every input: 'query: '.")] = None
    pooling: Annotated[
        str | None,
        typer.Option(
            "--pooling",
            help="mean, cls, max, mean_sqrt_len, weighted_mean, last, or several by commas. Default: as trained.",
        ),
    ] = None
    truncate_dim: Annotated[
        int | None, typer.Option("--truncate-dim", min=1, help="Number of dimensions to keep, from the first.")
    ] = None
    normalize: Annotated[bool, typer.Option("--normalize", help="Scale every vector to length 1.")] = False
    max_length: tables.MaxLength = None
    precision: tables.Precision = "fp32"
    engine: tables.Engine = "auto"
    device: tables.Device = "auto"

    def arguments(self) -> "_Vectors":
        """Returns the options as arguments."""
        ways = tables.names(self.pooling or "")
        return {
            "prompt": self.prompt,
            "prefix": self.prefix,
            "pooling": None if self.pooling is None else ways[0] if len(ways) == 1 else ways,
            "truncate_dim": self.truncate_dim,
            "normalize": self.normalize,
            "max_length": self.max_length,
            "precision": self.precision,
            "engine": self.engine,
            "device": self.device,
        }
