"""What applications use of the library besides the public names of `bertie`, and nothing else.

A name is imported when it is first used, so a command's help needs no torch. A test keeps the list as short as it is.
"""

from typing import TYPE_CHECKING

from bertie.registry import import_name

# fmt: off
_MODULES = {
    "api.tokenizer": "each_line",
    "api.use": "checked_arguments=checked readable_texts",
    "compression.prune": "Recipe",
    "compression.quantize": "gptq",
    "console": "console",
    "costs.catalog": "ProcessorCatalog=Catalog",
    "errors": "BertieError DataError UsageError nearest",
    "files": "File",
    "folders": "FolderKind",
    "infer.batching": "batches",
    "infer.engine": "Engine",
    "infer.fill": "Masked",
    "infer.onnx_engine": "OnnxEngine",
    "infer.pairs": "PairHead",
    "infer.pipeline": "TextPipeline",
    "infer.predict": "Predictor",
    "infer.texts": "each_row",
    "infer.traffic": "Traffic",
    "io.lines": "BadRecord",
    "io.memory": "frame_of is_missing",
    "io.sources": "SourceFile SourceFiles",
    "io.table_format": "TableFormat",
    "io.tables": "Example SkipReport",
    "metrics.answers": "ANSWER_SCRIPTS=SCRIPTS",
    "metrics.compare": "PairedDifference SeedSummary",
    "metrics.resample": "Bootstrap",
    "metrics.tags": "tag_entities",
    "models.facts": "Facts",
    "models.model": "TorchModel",
    "models.names": "HubModel",
    "registry": "Registry",
    "report.charts": "Chart Line",
    "report.page": "Html Report",
    "report.values": "quantity",
    "runs.arguments": "NAMED_SETTINGS",
    "runs.compression": "Compression",
    "runs.internals": "ModelInternals",
    "runs.model_card": "ModelCard",
    "runs.opening": "ModelFolder",
    "runs.planning": "RunPlan",
    "safe_yaml": "parse_yaml",
    "tasks": "Prediction",
    "tasks.capabilities": "Chooses Spans",
    "text.encoding": "Encoding",
    "text.sentences": "PlainText",
    "text.sequences": "Sequences",
}
"""Module of the library -> its names here; name=own where it has another name there."""
__all__ = [
    "ANSWER_SCRIPTS", "NAMED_SETTINGS", "BadRecord", "BertieError", "Bootstrap", "Chart", "Chooses", "Compression",
    "DataError", "Encoding", "Engine", "Example", "Facts", "File", "FolderKind", "Html", "HubModel", "Line", "Masked",
    "ModelCard", "ModelFolder", "ModelInternals", "OnnxEngine", "PairHead", "PairedDifference", "PlainText",
    "Prediction", "Predictor", "ProcessorCatalog", "Recipe", "Registry", "Report", "RunPlan", "SeedSummary",
    "Sequences", "SkipReport", "SourceFile", "SourceFiles", "Spans", "TableFormat", "TextPipeline",
    "TorchModel", "Traffic", "UsageError", "batches", "checked_arguments", "console", "each_line", "each_row",
    "frame_of", "gptq", "is_missing", "nearest", "parse_yaml", "quantity", "readable_texts", "tag_entities",
]
# fmt: on

if TYPE_CHECKING:
    from bertie.api.tokenizer import each_line
    from bertie.api.use import checked as checked_arguments
    from bertie.api.use import readable_texts
    from bertie.compression.prune import Recipe
    from bertie.compression.quantize import gptq
    from bertie.console import console
    from bertie.costs.catalog import Catalog as ProcessorCatalog
    from bertie.errors import BertieError, DataError, UsageError, nearest
    from bertie.files import File
    from bertie.folders import FolderKind
    from bertie.infer.batching import batches
    from bertie.infer.engine import Engine
    from bertie.infer.fill import Masked
    from bertie.infer.onnx_engine import OnnxEngine
    from bertie.infer.pairs import PairHead
    from bertie.infer.pipeline import TextPipeline
    from bertie.infer.predict import Predictor
    from bertie.infer.texts import each_row
    from bertie.infer.traffic import Traffic
    from bertie.io.lines import BadRecord
    from bertie.io.memory import frame_of, is_missing
    from bertie.io.sources import SourceFile, SourceFiles
    from bertie.io.table_format import TableFormat
    from bertie.io.tables import Example, SkipReport
    from bertie.metrics.answers import SCRIPTS as ANSWER_SCRIPTS
    from bertie.metrics.compare import PairedDifference, SeedSummary
    from bertie.metrics.resample import Bootstrap
    from bertie.metrics.tags import tag_entities
    from bertie.models.facts import Facts
    from bertie.models.model import TorchModel
    from bertie.models.names import HubModel
    from bertie.registry import Registry
    from bertie.report.charts import Chart, Line
    from bertie.report.page import Html, Report
    from bertie.report.values import quantity
    from bertie.runs.arguments import NAMED_SETTINGS
    from bertie.runs.compression import Compression
    from bertie.runs.internals import ModelInternals
    from bertie.runs.model_card import ModelCard
    from bertie.runs.opening import ModelFolder
    from bertie.runs.planning import RunPlan
    from bertie.safe_yaml import parse_yaml
    from bertie.tasks import Prediction
    from bertie.tasks.capabilities import Chooses, Spans
    from bertie.text.encoding import Encoding
    from bertie.text.sentences import PlainText
    from bertie.text.sequences import Sequences
else:
    _HOMES = {
        name: (f"bertie.{module}", own or name)
        for module, names in _MODULES.items()
        for name, _, own in (one.partition("=") for one in names.split())
    }

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module 'bertie.platform' has no attribute {name!r}")
        module, own = _HOMES[name]
        value = globals()[name] = import_name(module, own)
        return value


def __dir__() -> list[str]:
    return __all__
