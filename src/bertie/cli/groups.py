"""Options that commands share, in groups: a command has a parameter of such a class (options.grouped)."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bertie.cli import tables

if TYPE_CHECKING:
    from bertie.data.tables import TableFormat
    from bertie.infer.predict import Predictor


@dataclass(frozen=True)
class TableOptions:
    """How a file of labeled examples is read."""

    text: tables.TextColumns = None
    label: tables.LabelColumn = ""
    columns: tables.ColumnNames = ""
    encoding: tables.Encoding = "utf-8"
    format_: tables.Format = ""

    def format(self) -> "TableFormat":
        """Returns the options as a `TableFormat`."""
        from bertie.data.tables import TableFormat

        columns = tables.names(self.columns)
        return TableFormat(tuple(self.text or ()), self.label, columns, self.encoding, self.format_)


@dataclass(frozen=True)
class PredictorOptions:
    """How a model reads texts, and where it runs."""

    max_length: tables.MaxLength = None
    too_long: tables.TooLong = None
    precision: tables.Precision = "fp32"
    engine: tables.Engine = "auto"
    device: tables.Device = "auto"

    def predictor(self, model: Path) -> "Predictor":
        """Returns the model of a folder as a `Predictor`."""
        return tables.predictor(model, self.max_length, self.too_long, self.precision, self.device, self.engine)
