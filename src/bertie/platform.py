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
    "costs.catalog": "PowerGrid=Grid Processor=Device ProcessorCatalog=Catalog read_catalog=read",
    "costs.cost": "GPU_LOAD MOST_UTILIZATION PUE UTILIZATION carbon_kg energy_kwh seconds_of=seconds",
    "costs.job": "Job",
    "costs.meter": "THREAD_WATTS Rapl",
    "data.batch": "Batch",
    "data.collate": "pad_batch=pad",
    "data.corpus": "CorpusConfig CorpusFolder",
    "data.draws": "Draws random_key=key",
    "data.executors": "cores",
    "data.lines": "InvalidRow read_texts=texts_of",
    "data.masking": "MaskingVocabulary=Vocabulary",
    "data.order": "permutation",
    "data.parsed": "TREE_FORMATS=FORMATS read_trees=trees",
    "data.plans": "held_out",
    "data.pydocs": "PythonModule=Module PythonPassage=Passage",
    "data.questions": "read_questions=questions",
    "data.records": "DroppedRecord",
    "data.rows": "Fields",
    "data.sequences": "Int Sequences",
    "data.shards": "Shards",
    "data.source_file": "SourceFile",
    "data.sources": "SourceInputs=Inputs",
    "data.streams": "suffix_of",
    "data.tables": "Columns Example SkipReport TableFormat",
    "data.tagged": "TAG_FORMATS=FORMATS TAG_TABLES=TABLES read_tagged=sentences",
    "data.words": "TaggedExample spaced_words=spaced",
    "errors": "BertieError DataError Stopped UsageError checked_arguments=arguments model_hint nearest",
    "evaluation.compare": "Paired PairedDifference",
    "families": "Families",
    "files": "disk",
    "folders": "FolderKind=Kind",
    "hub.names": "find_model=find",
    "infer.batching": "Batches",
    "infer.choose": "engine_of",
    "infer.embed": "embedder_of=embedder",
    "infer.engine": "Array Engine EngineName check_names",
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
    "metrics.base": "Float MetricCounts=Counts MetricsOf metric_called=called",
    "metrics.calibration": "CALIBRATION_BINS=BINS",
    "metrics.confusion": "ratio",
    "metrics.resample": "Bootstrap Reservoir",
    "models.biaffine": "LAST_PIECES=LAST",
    "models.convert": "save_like",
    "models.count": "count_parameters=parameters",
    "models.encoder": "EncoderOutput",
    "models.facts": "Facts",
    "models.folder": "ModelFiles",
    "models.generation": "GenerationConfig",
    "models.heads": "VocabularyHead",
    "models.heads.parse": "with_last_pieces",
    "models.int4": "Int4Weight",
    "models.int8": "Int8Weight",
    "models.kinds": "MOST_POSITIONS=MOST Alternating Full Residual Unshared Window",
    "models.loss": "LossReport LossTerm",
    "models.model": "TorchModel",
    "models.packed": "PackedWeight",
    "models.sentence": "SENTENCE_MODULES=MODULES",
    "models.surgery": "Surgery",
    "models.variant": "read_public_config=read_public",
    "models.weights": "WORD_EMBEDDINGS=WORD",
    "nn.layer": "Layer",
    "nn.layout": "Packed Padded",
    "nn.rotary": "TurnedAttention rotary_turns=turns",
    "objectives.mlm": "MaskedLM",
    "registry": "Later Registry optional_library=library",
    "report.charts": "Chart ChartLine=Line",
    "report.page": "Html Report StatCard",
    "report.training": "TrainingCurve=Curve TrainingReport",
    "report.values": "text_of",
    "runs.against": "run_against=finetune_against",
    "runs.config": "kind_of_run=kind_of",
    "runs.examples": "read_examples",
    "runs.finetune": "run_finetuning=finetune",
    "runs.folder": "RunFolder",
    "runs.forecast": "PROCESSOR_UTILIZATION",
    "runs.here": "utilizations",
    "runs.models": "model_folder open_torch_model=load",
    "runs.opening": "open_engine",
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
    "tasks.source": "Targets TaskSource batch_of_examples encode_examples=encode steps_of",
    "tasks.span": "SpanPrediction SpanTask",
    "tasks.tagging": "TagPrediction",
    "text.encoding": "Encoding",
    "text.normalize": "Normalizer",
    "text.particles": "resolved_particles=resolved",
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
    "ANSWER_SCRIPTS", "CALIBRATION_BINS", "DATASETS", "FOREIGN_ARGUMENTS", "GPU_LOAD", "LAST_PIECES",
    "MOST_POSITIONS", "MOST_UTILIZATION", "NO_HEAD", "PROCESSOR_UTILIZATION", "PUE", "SENTENCE_MODULES",
    "TAG_FORMATS", "TAG_TABLES", "TASKS", "THREAD_WATTS", "TREE_FORMATS", "UTILIZATION", "WORD_EMBEDDINGS",
    "Alternating", "Array", "Batch", "Batches", "BertieError", "Bootstrap", "Chart", "ChartLine", "Chooses",
    "Columns", "CorpusConfig", "CorpusFolder", "DataError", "Diverged", "Draws", "DroppedRecord", "EachStep",
    "EmbedTask", "Embeds", "EncoderOutput", "Encoding", "Engine", "EngineName", "Example", "Facts", "Families",
    "Fields", "Float", "FolderEngine", "FolderKind", "Full", "Generates", "GenerationConfig", "Html", "Int",
    "Int4Weight", "Int8Weight", "InvalidRow", "Job", "Later", "Layer", "Layers", "LossReport", "LossTerm",
    "MaskPrediction", "Masked", "MaskedLM", "MaskedToken", "MaskingVocabulary", "MetricCounts", "MetricsOf",
    "ModelCard", "ModelFiles", "Normalizer", "OnnxEngine", "OnnxFolder", "OnnxSignature", "OptimConfig", "Packed",
    "PackedWeight", "Padded", "PairHead", "PairKind", "Paired", "PairedDifference", "Parts", "PowerGrid",
    "Prediction", "Processor", "ProcessorCatalog", "PythonModule", "PythonPassage", "Rapl", "Registry",
    "RelationExample", "Report", "Reservoir", "Residual", "RunFolder", "SentenceRules", "Sequences", "Shards",
    "SkipReport", "SourceFile", "SourceInputs", "SpanPrediction", "SpanTask", "Spans", "StatCard", "Stopped",
    "Surgery", "Swaps", "TableFormat", "TableOptions", "TagPrediction", "TaggedExample", "Targets", "Task",
    "TaskPart", "TaskSource", "TextPipeline", "TooLong", "TorchEngine", "TorchModel", "TrainConfig", "Trainable",
    "TrainingCurve", "TrainingReport", "TurnedAttention", "Unshared", "UsageError", "VectorMath", "VocabularyHead",
    "Window", "WrittenWords", "batch_of_examples", "call_hash", "carbon_kg", "check_names", "check_text",
    "check_unchanged", "checked_arguments", "console", "cores", "count_parameters", "count_words", "disk",
    "each_text", "embedder_of", "encode_examples", "encode_places", "ending", "energy_kwh", "engine_of",
    "find_model", "grouped", "held_out", "job_of", "kind_of_run", "load_settings",
    "metric_called", "model_folder", "model_hint", "module_of", "nearest", "open_engine", "open_library",
    "open_torch_model", "option", "optional_library", "pad_batch", "permutation", "pieces_of", "pseudo_perplexity",
    "random_key", "ratio", "read_catalog", "read_examples", "read_log", "read_public_config", "read_questions",
    "read_tagged", "read_texts", "read_trees", "read_yaml", "readable_texts", "resized_vocabulary",
    "resolved_particles", "rotary_turns", "run_against", "run_finetuning", "run_pretraining", "save_like", "seconds_of",
    "spaced_words", "split_names", "steps_of", "suffix_of", "task_of", "temporary_run", "text_of", "this_machine",
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
    from bertie.costs.catalog import read as read_catalog
    from bertie.costs.cost import GPU_LOAD, MOST_UTILIZATION, PUE, UTILIZATION, carbon_kg, energy_kwh
    from bertie.costs.cost import seconds as seconds_of
    from bertie.costs.job import Job
    from bertie.costs.meter import THREAD_WATTS, Rapl
    from bertie.data.batch import Batch
    from bertie.data.collate import pad as pad_batch
    from bertie.data.corpus import CorpusConfig, CorpusFolder
    from bertie.data.draws import Draws
    from bertie.data.draws import key as random_key
    from bertie.data.executors import cores
    from bertie.data.lines import InvalidRow
    from bertie.data.lines import texts_of as read_texts
    from bertie.data.masking import Vocabulary as MaskingVocabulary
    from bertie.data.order import permutation
    from bertie.data.parsed import FORMATS as TREE_FORMATS
    from bertie.data.parsed import trees as read_trees
    from bertie.data.plans import held_out
    from bertie.data.pydocs import Module as PythonModule
    from bertie.data.pydocs import Passage as PythonPassage
    from bertie.data.questions import questions as read_questions
    from bertie.data.records import DroppedRecord
    from bertie.data.rows import Fields
    from bertie.data.sequences import Int, Sequences
    from bertie.data.shards import Shards
    from bertie.data.source_file import SourceFile
    from bertie.data.sources import Inputs as SourceInputs
    from bertie.data.streams import suffix_of
    from bertie.data.tables import Columns, Example, SkipReport, TableFormat
    from bertie.data.tagged import FORMATS as TAG_FORMATS
    from bertie.data.tagged import TABLES as TAG_TABLES
    from bertie.data.tagged import sentences as read_tagged
    from bertie.data.words import TaggedExample
    from bertie.data.words import spaced as spaced_words
    from bertie.errors import BertieError, DataError, Stopped, UsageError, model_hint, nearest
    from bertie.errors import arguments as checked_arguments
    from bertie.evaluation.compare import Paired, PairedDifference
    from bertie.families import Families
    from bertie.files import disk
    from bertie.folders import Kind as FolderKind
    from bertie.hub.names import find as find_model
    from bertie.infer.batching import Batches
    from bertie.infer.choose import engine_of
    from bertie.infer.embed import embedder as embedder_of
    from bertie.infer.engine import Array, Engine, EngineName, check_names
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
    from bertie.metrics.base import Float, MetricsOf
    from bertie.metrics.base import called as metric_called
    from bertie.metrics.calibration import BINS as CALIBRATION_BINS
    from bertie.metrics.confusion import ratio
    from bertie.metrics.resample import Bootstrap, Reservoir
    from bertie.models.biaffine import LAST as LAST_PIECES
    from bertie.models.convert import save_like
    from bertie.models.count import parameters as count_parameters
    from bertie.models.encoder import EncoderOutput
    from bertie.models.facts import Facts
    from bertie.models.folder import ModelFiles
    from bertie.models.generation import GenerationConfig
    from bertie.models.heads import VocabularyHead
    from bertie.models.heads.parse import with_last_pieces
    from bertie.models.int4 import Int4Weight
    from bertie.models.int8 import Int8Weight
    from bertie.models.kinds import MOST as MOST_POSITIONS
    from bertie.models.kinds import Alternating, Full, Residual, Unshared, Window
    from bertie.models.loss import LossReport, LossTerm
    from bertie.models.model import TorchModel
    from bertie.models.packed import PackedWeight
    from bertie.models.sentence import MODULES as SENTENCE_MODULES
    from bertie.models.surgery import Surgery
    from bertie.models.variant import read_public as read_public_config
    from bertie.models.weights import WORD as WORD_EMBEDDINGS
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
    from bertie.runs.against import finetune_against as run_against
    from bertie.runs.config import kind_of as kind_of_run
    from bertie.runs.examples import read_examples
    from bertie.runs.finetune import finetune as run_finetuning
    from bertie.runs.folder import RunFolder
    from bertie.runs.forecast import PROCESSOR_UTILIZATION
    from bertie.runs.here import utilizations
    from bertie.runs.models import load as open_torch_model
    from bertie.runs.models import model_folder
    from bertie.runs.opening import open_engine
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
    from bertie.tasks.source import Targets, TaskSource, batch_of_examples, steps_of
    from bertie.tasks.source import encode as encode_examples
    from bertie.tasks.span import SpanPrediction, SpanTask
    from bertie.tasks.tagging import TagPrediction
    from bertie.text.encoding import Encoding
    from bertie.text.normalize import Normalizer
    from bertie.text.particles import resolved as resolved_particles
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
