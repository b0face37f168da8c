"""What applications use of the library besides the public names of `bertie`, and nothing else.

A name is imported when it is first used, so a command's help needs no torch. A test keeps the list as short as it is.
"""

from importlib import import_module
from typing import TYPE_CHECKING

# fmt: off
_MODULES = {
    "api.use": "FOREIGN_ARGUMENTS=THEIRS module_of readable_texts",
    "cli.app": "call_hash=asked",
    "cli.groups": "TableOptions",
    "cli.options": "grouped",
    "cli.shared": "ModelCard option",
    "cli.tables": "ending split_names=names unlabelled_format=unlabelled write_rows",
    "console": "console",
    "costs.catalog": "PowerGrid=Grid Processor=Device ProcessorCatalog=Catalog",
    "costs.cost": "Costs",
    "costs.job": "Job",
    "costs.meter": "Rapl",
    "data.batch": "Batch",
    "data.corpus": "CorpusFolder",
    "data.executors": "cores",
    "data.lines": "InvalidRow",
    "data.order": "permutation",
    "data.parsed": "Trees",
    "data.pydocs": "PythonModule=Module",
    "data.questions": "read_questions=questions",
    "data.records": "DroppedRecord",
    "data.rows": "Fields",
    "data.sequences": "Sequences",
    "data.shards": "Shards",
    "data.source_file": "SourceFile",
    "data.sources": "SourceInputs=Inputs",
    "data.tables": "Columns Example SkipReport TableFormat",
    "data.tagged": "TaggedFile",
    "data.words": "TaggedExample",
    "errors": "BertieError DataError Stopped UsageError checked_arguments=arguments nearest",
    "evaluation.compare": "Paired PairedDifference",
    "families": "Families",
    "files": "disk",
    "folders": "FolderKind=Kind",
    "infer.batching": "Batches",
    "infer.choose": "engine_of",
    "infer.embed": "embedder_of=embedder",
    "infer.engine": "Engine EngineName check_names",
    "infer.fill": "MaskPrediction Masked",
    "infer.layers": "Layers",
    "infer.native.folder": "FolderEngine",
    "infer.native.library": "open_library",
    "infer.native_engine": "NativeEngine",
    "infer.onnx_engine": "OnnxEngine OnnxFolder OnnxSignature=Signature",
    "infer.pairs": "PairHead PairKind=Kind",
    "infer.pipeline": "TextPipeline",
    "infer.pseudo": "MaskedToken pseudo_perplexity",
    "infer.texts": "check_text each_text",
    "infer.torch_engine": "TorchEngine",
    "infer.write": "WrittenWords=Words",
    "metrics.answers": "ANSWER_SCRIPTS=SCRIPTS",
    "metrics.base": "MetricCounts=Counts MetricsOf metric_called=called",
    "metrics.calibration": "CALIBRATION_BINS=BINS",
    "metrics.resample": "Bootstrap Reservoir",
    "models.biaffine": "LAST_PIECES=LAST",
    "models.encoder": "EncoderOutput",
    "models.facts": "Facts",
    "models.generation": "GenerationConfig",
    "models.heads": "VocabularyHead",
    "models.heads.parse": "with_last_pieces",
    "models.int4": "Int4Weight",
    "models.int8": "Int8Weight",
    "models.kinds": "MOST_POSITIONS=MOST Alternating Full Residual Unshared Window",
    "models.loss": "LossReport LossTerm",
    "models.model": "TorchModel",
    "models.model_files": "ModelFiles",
    "models.packed": "PackedWeight",
    "models.surgery": "Surgery",
    "nn.layer": "Layer",
    "nn.layout": "Packed Padded",
    "nn.rotary": "TurnedAttention",
    "objectives.mlm": "MaskedLM",
    "registry": "Registry",
    "report.charts": "Chart",
    "report.page": "Html Report StatCard",
    "report.training": "TrainingReport",
    "report.values": "text_of",
    "runs.against": "Finetuning",
    "runs.by_name": "ModelByName",
    "runs.finetune": "run_finetuning=finetune",
    "runs.folder": "RunFolder",
    "runs.planning": "Planning",
    "runs.pretrain": "run_pretraining=pretrain",
    "settings": "load_settings=load read_yaml",
    "tasks": "TASKS Prediction Task task_of",
    "tasks.arrays": "VectorMath",
    "tasks.capabilities": "Chooses Embeds Generates Parts Spans",
    "tasks.datasets": "DATASETS",
    "tasks.embed": "EmbedTask",
    "tasks.parse": "NO_HEAD=NONE pieces_of",
    "tasks.places": "encode_places",
    "tasks.relation": "RelationExample",
    "tasks.several": "TaskPart=Part",
    "tasks.source": "Targets TaskSource",
    "tasks.span": "SpanPrediction SpanTask",
    "tasks.tagging": "TagPrediction",
    "text.encoding": "Encoding",
    "text.sentences": "SentenceRules",
    "text.swaps": "Swaps",
    "text.vocabulary": "VocabularyTraining",
    "train.base": "Trainable",
    "train.callbacks": "EachStep",
    "train.config": "OptimConfig TrainConfig",
    "train.rates": "usual_rate",
    "train.step_metrics": "Diverged",
    "training_facts": "TooLong",
}
"""Module of the library -> its names here; name=own where it has another name there."""
__all__ = [
    "ANSWER_SCRIPTS", "CALIBRATION_BINS", "DATASETS", "FOREIGN_ARGUMENTS", "LAST_PIECES", "MOST_POSITIONS",
    "NO_HEAD", "TASKS", "Alternating", "Batch", "Batches", "BertieError", "Bootstrap", "Chart", "Chooses",
    "Columns", "CorpusFolder", "Costs", "DataError", "Diverged", "DroppedRecord", "EachStep", "EmbedTask", "Embeds",
    "EncoderOutput", "Encoding", "Engine", "EngineName", "Example", "Facts", "Families", "Fields", "Finetuning",
    "FolderEngine", "FolderKind", "Full", "Generates", "GenerationConfig", "Html", "Int4Weight", "Int8Weight",
    "InvalidRow", "Job", "Layer", "Layers", "LossReport", "LossTerm", "MaskPrediction", "Masked", "MaskedLM",
    "MaskedToken", "MetricCounts", "MetricsOf", "ModelByName", "ModelCard", "ModelFiles", "NativeEngine",
    "OnnxEngine", "OnnxFolder", "OnnxSignature", "OptimConfig", "Packed", "PackedWeight", "Padded", "PairHead",
    "PairKind", "Paired", "PairedDifference", "Parts", "Planning", "PowerGrid", "Prediction", "Processor",
    "ProcessorCatalog", "PythonModule", "Rapl", "Registry", "RelationExample", "Report", "Reservoir", "Residual",
    "RunFolder", "SentenceRules", "Sequences", "Shards", "SkipReport", "SourceFile", "SourceInputs",
    "SpanPrediction", "SpanTask", "Spans", "StatCard", "Stopped", "Surgery", "Swaps", "TableFormat", "TableOptions",
    "TagPrediction", "TaggedExample", "TaggedFile", "Targets", "Task", "TaskPart", "TaskSource", "TextPipeline",
    "TooLong", "TorchEngine", "TorchModel", "TrainConfig", "Trainable", "TrainingReport", "Trees",
    "TurnedAttention", "Unshared", "UsageError", "VectorMath", "VocabularyHead", "VocabularyTraining", "Window",
    "WrittenWords", "call_hash", "check_names", "check_text", "checked_arguments", "console", "cores", "disk",
    "each_text", "embedder_of", "encode_places", "ending", "engine_of", "grouped", "load_settings", "metric_called",
    "module_of", "nearest", "open_library", "option", "permutation", "pieces_of", "pseudo_perplexity",
    "read_questions", "read_yaml", "readable_texts", "run_finetuning", "run_pretraining", "split_names", "task_of",
    "text_of", "unlabelled_format", "usual_rate", "with_last_pieces", "write_rows",
]
# fmt: on

if TYPE_CHECKING:
    from bertie.api.use import THEIRS as FOREIGN_ARGUMENTS
    from bertie.api.use import module_of, readable_texts
    from bertie.cli.app import asked as call_hash
    from bertie.cli.groups import TableOptions
    from bertie.cli.options import grouped
    from bertie.cli.shared import ModelCard, option
    from bertie.cli.tables import ending, write_rows
    from bertie.cli.tables import names as split_names
    from bertie.cli.tables import unlabelled as unlabelled_format
    from bertie.console import console
    from bertie.costs.catalog import Catalog as ProcessorCatalog
    from bertie.costs.catalog import Device as Processor
    from bertie.costs.catalog import Grid as PowerGrid
    from bertie.costs.cost import Costs
    from bertie.costs.job import Job
    from bertie.costs.meter import Rapl
    from bertie.data.batch import Batch
    from bertie.data.corpus import CorpusFolder
    from bertie.data.executors import cores
    from bertie.data.lines import InvalidRow
    from bertie.data.order import permutation
    from bertie.data.parsed import Trees
    from bertie.data.pydocs import Module as PythonModule
    from bertie.data.questions import questions as read_questions
    from bertie.data.records import DroppedRecord
    from bertie.data.rows import Fields
    from bertie.data.sequences import Sequences
    from bertie.data.shards import Shards
    from bertie.data.source_file import SourceFile
    from bertie.data.sources import Inputs as SourceInputs
    from bertie.data.tables import Columns, Example, SkipReport, TableFormat
    from bertie.data.tagged import TaggedFile
    from bertie.data.words import TaggedExample
    from bertie.errors import BertieError, DataError, Stopped, UsageError, nearest
    from bertie.errors import arguments as checked_arguments
    from bertie.evaluation.compare import Paired, PairedDifference
    from bertie.families import Families
    from bertie.files import disk
    from bertie.folders import Kind as FolderKind
    from bertie.infer.batching import Batches
    from bertie.infer.choose import engine_of
    from bertie.infer.embed import embedder as embedder_of
    from bertie.infer.engine import Engine, EngineName, check_names
    from bertie.infer.fill import Masked, MaskPrediction
    from bertie.infer.layers import Layers
    from bertie.infer.native.folder import FolderEngine
    from bertie.infer.native.library import open_library
    from bertie.infer.native_engine import NativeEngine
    from bertie.infer.onnx_engine import OnnxEngine, OnnxFolder
    from bertie.infer.onnx_engine import Signature as OnnxSignature
    from bertie.infer.pairs import Kind as PairKind
    from bertie.infer.pairs import PairHead
    from bertie.infer.pipeline import TextPipeline
    from bertie.infer.pseudo import MaskedToken, pseudo_perplexity
    from bertie.infer.texts import check_text, each_text
    from bertie.infer.torch_engine import TorchEngine
    from bertie.infer.write import Words as WrittenWords
    from bertie.metrics.answers import SCRIPTS as ANSWER_SCRIPTS
    from bertie.metrics.base import Counts as MetricCounts
    from bertie.metrics.base import MetricsOf
    from bertie.metrics.base import called as metric_called
    from bertie.metrics.calibration import BINS as CALIBRATION_BINS
    from bertie.metrics.resample import Bootstrap, Reservoir
    from bertie.models.biaffine import LAST as LAST_PIECES
    from bertie.models.encoder import EncoderOutput
    from bertie.models.facts import Facts
    from bertie.models.generation import GenerationConfig
    from bertie.models.heads import VocabularyHead
    from bertie.models.heads.parse import with_last_pieces
    from bertie.models.int4 import Int4Weight
    from bertie.models.int8 import Int8Weight
    from bertie.models.kinds import MOST as MOST_POSITIONS
    from bertie.models.kinds import Alternating, Full, Residual, Unshared, Window
    from bertie.models.loss import LossReport, LossTerm
    from bertie.models.model import TorchModel
    from bertie.models.model_files import ModelFiles
    from bertie.models.packed import PackedWeight
    from bertie.models.surgery import Surgery
    from bertie.nn.layer import Layer
    from bertie.nn.layout import Packed, Padded
    from bertie.nn.rotary import TurnedAttention
    from bertie.objectives.mlm import MaskedLM
    from bertie.registry import Registry
    from bertie.report.charts import Chart
    from bertie.report.page import Html, Report, StatCard
    from bertie.report.training import TrainingReport
    from bertie.report.values import text_of
    from bertie.runs.against import Finetuning
    from bertie.runs.by_name import ModelByName
    from bertie.runs.finetune import finetune as run_finetuning
    from bertie.runs.folder import RunFolder
    from bertie.runs.planning import Planning
    from bertie.runs.pretrain import pretrain as run_pretraining
    from bertie.settings import load as load_settings
    from bertie.settings import read_yaml
    from bertie.tasks import TASKS, Prediction, Task, task_of
    from bertie.tasks.arrays import VectorMath
    from bertie.tasks.capabilities import Chooses, Embeds, Generates, Parts, Spans
    from bertie.tasks.datasets import DATASETS
    from bertie.tasks.embed import EmbedTask
    from bertie.tasks.parse import NONE as NO_HEAD
    from bertie.tasks.parse import pieces_of
    from bertie.tasks.places import encode_places
    from bertie.tasks.relation import RelationExample
    from bertie.tasks.several import Part as TaskPart
    from bertie.tasks.source import Targets, TaskSource
    from bertie.tasks.span import SpanPrediction, SpanTask
    from bertie.tasks.tagging import TagPrediction
    from bertie.text.encoding import Encoding
    from bertie.text.sentences import SentenceRules
    from bertie.text.swaps import Swaps
    from bertie.text.vocabulary import VocabularyTraining
    from bertie.train.base import Trainable
    from bertie.train.callbacks import EachStep
    from bertie.train.config import OptimConfig, TrainConfig
    from bertie.train.rates import usual_rate
    from bertie.train.step_metrics import Diverged
    from bertie.training_facts import TooLong
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
        value = globals()[name] = getattr(import_module(module), own)
        return value


def __dir__() -> list[str]:
    return __all__
