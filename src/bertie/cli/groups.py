"""Options that commands share, in groups: a command has a parameter of such a class (options.grouped)."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertie.cli import tables
from bertie.errors import UsageError

if TYPE_CHECKING:
    from bertie.data.tables import TableFormat
    from bertie.infer.predict import Predictor


def changed(group: Any, but: Sequence[str] = ()) -> dict[str, bool]:
    """Returns option -> whether it was given another value than its default, for a group of options. but: not these."""
    return {
        f"--{one.name.strip('_').replace('_', '-')}": getattr(group, one.name) != one.default
        for one in fields(group)
        if one.name not in but
    }


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

    def format(self) -> "TableFormat":
        """Returns the options as a `TableFormat`."""
        from bertie.data.tables import TableFormat

        return TableFormat(
            tuple(self.text or ()),
            self.label,
            tables.names(self.columns),
            self.encoding,
            self.format_,
            label_names=tables.pairs(self.label_names),
            label_separator=self.label_separator,
        )


@dataclass(frozen=True)
class PredictorOptions:
    """How a model reads texts, and where it runs."""

    max_length: tables.MaxLength = None
    too_long: tables.TooLong = None
    head: tables.Head = ""
    pattern: tables.Pattern = ""
    words: tables.Words = ""
    precision: tables.Precision = "fp32"
    engine: tables.Engine = "auto"
    device: tables.Device = "auto"

    def predictor(self, model: Path, ensemble: Sequence[Path] = ()) -> "Predictor":
        """Returns the model of a folder as a `Predictor`; with more models, their ensemble."""
        where = self.precision, self.device, self.engine
        if self.pattern or self.words:
            for name, given in (("ensemble", ensemble), ("head", self.head)):
                if given:
                    raise UsageError(f"--{name} does not work with --pattern. Omit one of them.")
            return tables.by_pattern(model, self.pattern, self.words, self.max_length, self.too_long, where)
        return tables.predictor(model, self.max_length, self.too_long, *where, head=self.head, ensemble=ensemble)


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

    def predictor(self, model: Path) -> "Predictor":
        """Returns a `Predictor` of vectors."""
        ways = tables.names(self.pooling or "")
        return tables.embedder(
            model,
            self.precision,
            self.device,
            self.engine,
            max_length=self.max_length,
            prompt=self.prompt,
            prefix=self.prefix,
            pooling=None if self.pooling is None else ways[0] if len(ways) == 1 else ways,
            normalize=self.normalize,
            truncate_dim=self.truncate_dim,
        )
