"""Options that commands share, in groups: a command has a parameter of such a class (options.grouped)."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bertie import platform
from bertie.apps.cli import tables
from bertie.apps.cli.options import OptionValues

if TYPE_CHECKING:
    from bertie.platform import TableFormat


@dataclass(frozen=True)
class TableOptions:
    """How a file of labeled examples is read."""

    text: tables.TextColumns = None
    label: tables.LabelColumn = ""
    label_names: tables.LabelNamesOption = ""
    columns: tables.ColumnNames = ""
    encoding: tables.EncodingOption = "utf-8"
    format_: tables.FormatOption = ""
    label_separator: tables.LabelSeparator = ""

    def arguments(self) -> OptionValues:
        """Returns the options as arguments."""
        return {
            "text": self.text or (),
            "label": self.label,
            "label_names": tables.parse_pairs(self.label_names),
            "columns": tables.comma_names(self.columns),
            "encoding": self.encoding,
            "format": self.format_,
            "label_separator": self.label_separator,
        }

    def format(self) -> "TableFormat":
        """Returns the options as a `TableFormat`."""
        names, columns = tables.parse_pairs(self.label_names), tables.comma_names(self.columns)
        own = (tuple(self.text or ()), self.label, columns, self.encoding, self.format_)
        return platform.TableFormat.of(*own, label_names=names, label_separator=self.label_separator)


@dataclass(frozen=True)
class PredictorOptions:
    """How a model reads texts, and where it runs."""

    max_length: tables.MaxLength = None
    too_long: tables.TooLongOption = None
    head: tables.HeadOption = ""
    pattern: tables.Pattern = ""
    words: tables.WordsOption = ""
    demonstrations: tables.Demonstrations = ""
    shots: tables.Shots = None
    calibrate_prompt: tables.CalibratePrompt = False
    threshold: tables.Threshold = None
    abstain: tables.Abstain = None
    precision: tables.PrecisionOption = "fp32"
    engine: tables.EngineOption = "auto"
    device: tables.DeviceOption = "auto"

    def arguments(self) -> OptionValues:
        """Returns the options as arguments."""
        return {
            "max_length": self.max_length,
            "too_long": self.too_long,
            "head": self.head,
            "pattern": self.pattern,
            "words": tables.parse_pairs(self.words, "--words", "good=great,bad=terrible"),
            "demonstrations": Path(self.demonstrations) if self.demonstrations else None,
            "shots": self.shots,
            "calibrate_prompt": self.calibrate_prompt,
            "threshold": self.threshold,
            "abstain": self.abstain,
            "precision": self.precision,
            "engine": self.engine,
            "device": self.device,
        }
