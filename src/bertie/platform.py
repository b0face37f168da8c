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
    "data.collate": "pad_batch=pad",
    "data.corpus": "CorpusConfig CorpusFolder",
    "data.draws": "Draws",
    "data.executors": "cores",
    "data.lines": "InvalidRow read_texts=texts_of",
    "data.masking": "MaskingVocabulary=Vocabulary",
    "data.order": "permutation",
    "data.parsed": "Trees",
    "data.plans": "held_out",
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
    "infer.native_engine": "unsupported",
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
    "metrics.confusion": "ratio",
    "metrics.resample": "Bootstrap Reservoir",
    "models.biaffine": "LAST_PIECES=LAST",
    "models.count": "count_parameters=parameters",
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
    "nn.rotary": "TurnedAttention rotary_turns=turns",
    "objectives.mlm": "MaskedLM",
    "registry": "Later Registry optional_library=library",
    "report.charts": "Chart ChartLine=Line",
    "report.page": "Html Report StatCard",
    "report.training": "TrainingCurve=Curve TrainingReport",
    "report.values": "text_of",
    "runs.against": "finetune_against",
    "runs.by_name": "ModelByName",
    "runs.config": "kind_of_run=kind_of",
    "runs.examples": "read_examples",
    "runs.finetune": "run_finetuning=finetune",
    "runs.folder": "RunFolder",
    "runs.here": "utilizations",
    "runs.planning": "job_of this_machine",
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
    "text.normalize": "Normalizer",
    "text.resize": "resized_vocabulary=trim",
    "text.sentences": "SentenceRules",
    "text.swaps": "Swaps",
    "text.vocabulary": "count_words train_vocabulary=train",
    "train.base": "Trainable",
    "train.callbacks": "EachStep",
    "train.config": "OptimConfig TrainConfig",
    "train.log": "read_log=read",
    "train.loop": "temporary_run",
    "train.rates": "usual_rate",
    "train.resume": "check_unchanged",
    "train.step_metrics": "Diverged",
    "training_facts": "TooLong",
}
"""Module of the library -> its names here; name=own where it has another name there."""
__all__ = [
    "ANSWER_SCRIPTS", "CALIBRATION_BINS", "DATASETS", "FOREIGN_ARGUMENTS", "LAST_PIECES", "MOST_POSITIONS",
    "NO_HEAD", "TASKS", "Alternating", "Batch", "Batches", "BertieError", "Bootstrap", "Chart", "ChartLine",
    "Chooses", "Columns", "CorpusConfig", "CorpusFolder", "Costs", "DataError", "Diverged", "Draws",
    "DroppedRecord", "EachStep", "EmbedTask", "Embeds", "EncoderOutput", "Encoding", "Engine", "EngineName",
    "Example", "Facts", "Families", "Fields", "FolderEngine", "FolderKind", "Full", "Generates", "GenerationConfig",
    "Html", "Int4Weight", "Int8Weight", "InvalidRow", "Job", "Later", "Layer", "Layers", "LossReport", "LossTerm",
    "MaskPrediction", "Masked", "MaskedLM", "MaskedToken", "MaskingVocabulary", "MetricCounts", "MetricsOf",
    "ModelByName", "ModelCard", "ModelFiles", "Normalizer", "OnnxEngine", "OnnxFolder", "OnnxSignature",
    "OptimConfig", "Packed", "PackedWeight", "Padded", "PairHead", "PairKind", "Paired", "PairedDifference",
    "Parts", "PowerGrid", "Prediction", "Processor", "ProcessorCatalog", "PythonModule", "Rapl", "Registry",
    "RelationExample", "Report", "Reservoir", "Residual", "RunFolder", "SentenceRules", "Sequences", "Shards",
    "SkipReport", "SourceFile", "SourceInputs", "SpanPrediction", "SpanTask", "Spans", "StatCard", "Stopped",
    "Surgery", "Swaps", "TableFormat", "TableOptions", "TagPrediction", "TaggedExample", "TaggedFile", "Targets",
    "Task", "TaskPart", "TaskSource", "TextPipeline", "TooLong", "TorchEngine", "TorchModel", "TrainConfig",
    "Trainable", "TrainingCurve", "TrainingReport", "Trees", "TurnedAttention", "Unshared", "UsageError",
    "VectorMath", "VocabularyHead", "Window", "WrittenWords", "call_hash", "check_names", "check_text",
    "check_unchanged", "checked_arguments", "console", "cores", "count_parameters", "count_words", "disk",
    "each_text", "embedder_of", "encode_places", "ending", "engine_of", "finetune_against", "grouped", "held_out",
    "job_of", "kind_of_run", "load_settings", "metric_called", "module_of", "nearest", "open_library", "option",
    "optional_library", "pad_batch", "permutation", "pieces_of", "pseudo_perplexity", "ratio", "read_examples",
    "read_log", "read_questions", "read_texts", "read_yaml", "readable_texts", "resized_vocabulary", "rotary_turns",
    "run_finetuning", "run_pretraining", "split_names", "task_of", "temporary_run", "text_of", "this_machine",
    "train_vocabulary", "unlabelled_format", "unsupported", "usual_rate", "utilizations", "with_last_pieces",
    "write_rows",
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
    from bertie.data.collate import pad as pad_batch
    from bertie.data.corpus import CorpusConfig, CorpusFolder
    from bertie.data.draws import Draws
    from bertie.data.executors import cores
    from bertie.data.lines import InvalidRow
    from bertie.data.lines import texts_of as read_texts
    from bertie.data.masking import Vocabulary as MaskingVocabulary
    from bertie.data.order import permutation
    from bertie.data.parsed import Trees
    from bertie.data.plans import held_out
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
    from bertie.infer.native_engine import unsupported
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
    from bertie.metrics.confusion import ratio
    from bertie.metrics.resample import Bootstrap, Reservoir
    from bertie.models.biaffine import LAST as LAST_PIECES
    from bertie.models.count import parameters as count_parameters
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
    from bertie.nn.rotary import turns as rotary_turns
    from bertie.objectives.mlm import MaskedLM
    from bertie.registry import Later, Registry
    from bertie.registry import library as optional_library
    from bertie.report.charts import Chart
    from bertie.report.charts import Line as ChartLine
    from bertie.report.page import Html, Report, StatCard
    from bertie.report.training import Curve as TrainingCurve
    from bertie.report.training import TrainingReport
    from bertie.report.values import text_of
    from bertie.runs.against import finetune_against
    from bertie.runs.by_name import ModelByName
    from bertie.runs.config import kind_of as kind_of_run
    from bertie.runs.examples import read_examples
    from bertie.runs.finetune import finetune as run_finetuning
    from bertie.runs.folder import RunFolder
    from bertie.runs.here import utilizations
    from bertie.runs.planning import job_of, this_machine
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
    from bertie.text.normalize import Normalizer
    from bertie.text.resize import trim as resized_vocabulary
    from bertie.text.sentences import SentenceRules
    from bertie.text.swaps import Swaps
    from bertie.text.vocabulary import count_words
    from bertie.text.vocabulary import train as train_vocabulary
    from bertie.train.base import Trainable
    from bertie.train.callbacks import EachStep
    from bertie.train.config import OptimConfig, TrainConfig
    from bertie.train.log import read as read_log
    from bertie.train.loop import temporary_run
    from bertie.train.rates import usual_rate
    from bertie.train.resume import check_unchanged
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
