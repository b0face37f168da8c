"""What applications use of the library besides the public names of `bertie`, and nothing else.

A name is imported when it is first used, so a command's help needs no torch. A test keeps the list as short as it is.
"""

from importlib import import_module
from typing import TYPE_CHECKING

_HOMES = {
    "AGAINST_FOLDER": "bertie.runs.folder:AGAINST",
    "ANSWER_SCRIPTS": "bertie.metrics.answers:SCRIPTS",
    "Alternating": "bertie.models.kinds:Alternating",
    "Answerer": "bertie.tasks.answerer:Answerer",
    "Array": "bertie.infer.engine:Array",
    "Batch": "bertie.data.batch:Batch",
    "BertieError": "bertie.errors:BertieError",
    "CALIBRATION_BINS": "bertie.metrics.calibration:BINS",
    "Chart": "bertie.report.charts:Chart",
    "ChartLine": "bertie.report.charts:Line",
    "Chooses": "bertie.tasks.capabilities:Chooses",
    "Columns": "bertie.data.tables:Columns",
    "Corpus": "bertie.data.corpus:Corpus",
    "CorpusConfig": "bertie.data.corpus:CorpusConfig",
    "DATASETS": "bertie.tasks.datasets:DATASETS",
    "DataError": "bertie.errors:DataError",
    "Diverged": "bertie.train.step_metrics:Diverged",
    "Draws": "bertie.data.draws:Draws",
    "DroppedRecord": "bertie.data.records:DroppedRecord",
    "ENCODER_OUTPUTS": "bertie.models.facts:OF_ENCODER",
    "EachStep": "bertie.train.callbacks:EachStep",
    "EmbedTask": "bertie.tasks.embed:EmbedTask",
    "Embeds": "bertie.tasks.capabilities:Embeds",
    "EncoderOutput": "bertie.models.encoder:EncoderOutput",
    "Encoding": "bertie.text.encoding:Encoding",
    "Engine": "bertie.infer.engine:Engine",
    "EngineName": "bertie.infer.engine:EngineName",
    "Entity": "bertie.tasks.relation:Entity",
    "Example": "bertie.data.tables:Example",
    "FOREIGN_ARGUMENTS": "bertie.api.use:THEIRS",
    "Facts": "bertie.infer.engine:Facts",
    "Fields": "bertie.data.rows:Fields",
    "Float": "bertie.metrics.base:Float",
    "FolderEngine": "bertie.infer.native.folder:FolderEngine",
    "FolderKind": "bertie.folders:Kind",
    "Full": "bertie.models.kinds:Full",
    "GPU_LOAD": "bertie.costs.cost:GPU_LOAD",
    "Generates": "bertie.tasks.capabilities:Generates",
    "GenerationConfig": "bertie.models.generation:GenerationConfig",
    "Html": "bertie.report.page:Html",
    "INT4_LEVELS": "bertie.models.int4:LEVELS",
    "Int": "bertie.data.sequences:Int",
    "Int4Weight": "bertie.models.int4:Int4Weight",
    "Int8Weight": "bertie.models.int8:Int8Weight",
    "InvalidRow": "bertie.data.lines:InvalidRow",
    "Job": "bertie.costs.job:Job",
    "LAST_PIECES": "bertie.models.biaffine:LAST",
    "Later": "bertie.registry:Later",
    "Layer": "bertie.nn.layer:Layer",
    "LossReport": "bertie.models.loss:LossReport",
    "LossTerm": "bertie.models.loss:LossTerm",
    "MAX_TEXT": "bertie.data.tables:MAX_TEXT",
    "MOST_POSITIONS": "bertie.models.kinds:MOST",
    "MOST_UTILIZATION": "bertie.costs.cost:MOST_UTILIZATION",
    "MaskPrediction": "bertie.infer.fill:MaskPrediction",
    "Masked": "bertie.infer.fill:Masked",
    "MaskedLM": "bertie.objectives.mlm:MaskedLM",
    "MaskedToken": "bertie.infer.pseudo:MaskedToken",
    "MaskingVocabulary": "bertie.data.masking:Vocabulary",
    "MetricCounts": "bertie.metrics.base:Counts",
    "MetricsOf": "bertie.metrics.base:MetricsOf",
    "ModelCard": "bertie.cli.shared:ModelCard",
    "NOWHERE": "bertie.data.sequences:NOWHERE",
    "NO_HEAD": "bertie.tasks.parse:NONE",
    "NO_WORD": "bertie.infer.layers:NO_WORD",
    "Normalizer": "bertie.text.normalize:Normalizer",
    "ONNX_FOLDER": "bertie.infer.onnx_engine:FOLDER",
    "ONNX_KEY": "bertie.infer.onnx_engine:KEY",
    "ONNX_MODEL": "bertie.infer.onnx_engine:MODEL",
    "ONNX_QUANTIZED": "bertie.infer.onnx_engine:QUANTIZED",
    "OUTSIDE_TAG": "bertie.metrics.tags:OUTSIDE",
    "OnnxEngine": "bertie.infer.onnx_engine:OnnxEngine",
    "OnnxSignature": "bertie.infer.onnx_engine:Signature",
    "OptimConfig": "bertie.train.config:OptimConfig",
    "POOLED": "bertie.models.facts:POOLED",
    "PROCESSOR_UTILIZATION": "bertie.runs.forecast:PROCESSOR_UTILIZATION",
    "PUE": "bertie.costs.cost:PUE",
    "Packed": "bertie.nn.layout:Packed",
    "PackedWeight": "bertie.models.packed:PackedWeight",
    "Padded": "bertie.nn.layout:Padded",
    "PairedDifference": "bertie.evaluation.compare:PairedDifference",
    "Parts": "bertie.tasks.capabilities:Parts",
    "PowerGrid": "bertie.costs.catalog:Grid",
    "Prediction": "bertie.tasks:Prediction",
    "Processor": "bertie.costs.catalog:Device",
    "ProcessorCatalog": "bertie.costs.catalog:Catalog",
    "PythonModule": "bertie.data.pydocs:Module",
    "PythonPassage": "bertie.data.pydocs:Passage",
    "REPORT_FILE": "bertie.runs.folder:REPORT",
    "RESAMPLES": "bertie.metrics.base:RESAMPLES",
    "RESULTS_FILE": "bertie.runs.folder:RESULTS",
    "RUN_MODEL": "bertie.runs.models:MODEL",
    "Rapl": "bertie.costs.meter:Rapl",
    "Registry": "bertie.registry:Registry",
    "RelationExample": "bertie.tasks.relation:RelationExample",
    "Report": "bertie.report.page:Report",
    "Reservoir": "bertie.metrics.resample:Reservoir",
    "Residual": "bertie.models.kinds:Residual",
    "SENTENCE_MODULES": "bertie.models.sentence:MODULES",
    "Sequences": "bertie.data.sequences:Sequences",
    "Shards": "bertie.data.shards:Shards",
    "SkipReport": "bertie.data.tables:SkipReport",
    "SourceFile": "bertie.data.source_file:SourceFile",
    "SourceInputs": "bertie.data.sources:Inputs",
    "SpanPrediction": "bertie.tasks.span:SpanPrediction",
    "SpanTask": "bertie.tasks.span:SpanTask",
    "Spans": "bertie.tasks.capabilities:Spans",
    "StatCard": "bertie.report.page:StatCard",
    "Stopped": "bertie.errors:Stopped",
    "Swaps": "bertie.text.swaps:Swaps",
    "TAG_FORMATS": "bertie.data.tagged:FORMATS",
    "TAG_TABLES": "bertie.data.tagged:TABLES",
    "TASKS": "bertie.tasks:TASKS",
    "THREAD_WATTS": "bertie.costs.meter:THREAD_WATTS",
    "TREE_FORMATS": "bertie.data.parsed:FORMATS",
    "TableFormat": "bertie.data.tables:TableFormat",
    "TableOptions": "bertie.cli.groups:TableOptions",
    "TagPrediction": "bertie.tasks.tagging:TagPrediction",
    "TaggedExample": "bertie.data.words:TaggedExample",
    "Targets": "bertie.tasks.source:Targets",
    "Task": "bertie.tasks:Task",
    "TaskPart": "bertie.tasks.several:Part",
    "TaskSource": "bertie.tasks.source:TaskSource",
    "TextPipeline": "bertie.infer.pipeline:TextPipeline",
    "TooLong": "bertie.training_facts:TooLong",
    "TorchEngine": "bertie.infer.torch_engine:TorchEngine",
    "TorchModel": "bertie.models.model:TorchModel",
    "TrainConfig": "bertie.train.config:TrainConfig",
    "Trainable": "bertie.train.base:Trainable",
    "TrainingCurve": "bertie.report.training:Curve",
    "TrainingReport": "bertie.report.training:TrainingReport",
    "TurnedAttention": "bertie.nn.rotary:TurnedAttention",
    "UTILIZATION": "bertie.costs.cost:UTILIZATION",
    "Unshared": "bertie.models.kinds:Unshared",
    "UsageError": "bertie.errors:UsageError",
    "VocabularyHead": "bertie.models.heads:VocabularyHead",
    "WORD_EMBEDDINGS": "bertie.models.weights:WORD",
    "Window": "bertie.models.kinds:Window",
    "WrittenWords": "bertie.infer.write:Words",
    "added_together": "bertie.models.int8:added_together",
    "as_filled": "bertie.infer.fill:as_filled",
    "batch_of_examples": "bertie.tasks.source:batch_of_examples",
    "batches_of": "bertie.infer.batching:batches",
    "build_model": "bertie.families:build",
    "call_hash": "bertie.cli.app:asked",
    "carbon_kg": "bertie.costs.cost:carbon_kg",
    "check_names": "bertie.infer.engine:check_names",
    "check_pooling": "bertie.infer.layers:check_pooling",
    "check_reads_texts": "bertie.infer.pipeline:check_reads_texts",
    "check_text": "bertie.infer.texts:check_text",
    "check_trainable": "bertie.models.folder:check_trainable",
    "check_unchanged": "bertie.train.resume:check_unchanged",
    "checked_arguments": "bertie.errors:arguments",
    "chunks_of": "bertie.infer.batching:chunks",
    "collect_examples": "bertie.data.tables:collect",
    "console": "bertie.console:console",
    "copy_other_files": "bertie.models.folder:copy_other_files",
    "cores": "bertie.data.executors:cores",
    "count_parameters": "bertie.models.count:parameters",
    "count_words": "bertie.text.vocabulary:count_words",
    "disk": "bertie.files:disk",
    "each_text": "bertie.infer.texts:each_text",
    "embedder_of": "bertie.infer.embed:embedder",
    "encode_examples": "bertie.tasks.source:encode",
    "encode_ids": "bertie.tasks.source:encode_ids",
    "encode_places": "bertie.tasks.places:encode_places",
    "ending": "bertie.cli.tables:ending",
    "energy_kwh": "bertie.costs.cost:energy_kwh",
    "engine_facts": "bertie.models.facts:facts_of",
    "engine_of": "bertie.infer.choose:engine_of",
    "entities_of_tags": "bertie.metrics.tags:entities",
    "excess": "bertie.models.int8:excess",
    "family_config": "bertie.families:config",
    "family_of": "bertie.families:family",
    "find_model": "bertie.hub.names:find",
    "finetune_against": "bertie.runs.against:finetune_against",
    "flat_row": "bertie.data.rows:flat",
    "graph_of": "bertie.infer.onnx_engine:graph_of",
    "grouped": "bertie.cli.options:grouped",
    "groups_of_masks": "bertie.infer.fill:groups",
    "held_out": "bertie.data.plans:held_out",
    "ids_of": "bertie.tasks.source:ids_of",
    "int4_groups": "bertie.models.int4:groups",
    "job_of": "bertie.runs.planning:job_of",
    "kind_of_file": "bertie.data.rows:kind_of",
    "kind_of_run": "bertie.runs.config:kind_of",
    "layer_output": "bertie.models.facts:layer_output",
    "layers_of": "bertie.infer.layers:layers_of",
    "load_kiwi": "bertie.text.sentences:load_kiwi",
    "load_settings": "bertie.settings:load",
    "log_probabilities": "bertie.infer.pseudo:log_probabilities",
    "metric_called": "bertie.metrics.base:called",
    "model_fingerprint": "bertie.models.folder:fingerprint",
    "model_folder": "bertie.runs.models:model_folder",
    "model_hint": "bertie.errors:model_hint",
    "module_of": "bertie.api.use:module_of",
    "name_of_task": "bertie.tasks:name_of",
    "nearest": "bertie.errors:nearest",
    "nearest_rows": "bertie.models.int8:nearest_rows",
    "open_engine": "bertie.runs.opening:open_engine",
    "open_family_model": "bertie.families:load",
    "open_library": "bertie.infer.native.library:open_library",
    "open_torch_model": "bertie.runs.models:load",
    "option": "bertie.cli.shared:option",
    "optional_library": "bertie.registry:library",
    "over_seeds": "bertie.evaluation.compare:over_seeds",
    "pad_batch": "bertie.data.collate:pad",
    "paired_metrics": "bertie.evaluation.compare:paired_metrics",
    "paired_rows": "bertie.evaluation.compare:paired_rows",
    "percent_points": "bertie.metrics.base:percent_points",
    "permutation": "bertie.data.order:permutation",
    "pieces_of": "bertie.tasks.parse:pieces_of",
    "pooled_words": "bertie.infer.layers:pooled",
    "pseudo_perplexity": "bertie.infer.pseudo:pseudo_perplexity",
    "random_key": "bertie.data.draws:key",
    "randomized": "bertie.models.folder:randomized",
    "ratio": "bertie.metrics.confusion:ratio",
    "read_catalog": "bertie.costs.catalog:read",
    "read_examples": "bertie.runs.examples:read_examples",
    "read_log": "bertie.train.log:read",
    "read_public_config": "bertie.models.variant:read_public",
    "read_questions": "bertie.data.questions:questions",
    "read_records": "bertie.data.rows:records",
    "read_tagged": "bertie.data.tagged:sentences",
    "read_texts": "bertie.data.lines:texts_of",
    "read_trees": "bertie.data.parsed:trees",
    "read_yaml": "bertie.settings:read_yaml",
    "readable_texts": "bertie.api.use:readable_texts",
    "rebuilt_model": "bertie.models.surgery:rebuilt",
    "resampled": "bertie.metrics.resample:resampled",
    "resampled_intervals": "bertie.metrics.resample:intervals",
    "resolved_particles": "bertie.text.particles:resolved",
    "rotary_turns": "bertie.nn.rotary:turns",
    "run_finetuning": "bertie.runs.finetune:finetune",
    "run_in_batches": "bertie.infer.batching:run",
    "run_pretraining": "bertie.runs.pretrain:pretrain",
    "save_like": "bertie.models.convert:save_like",
    "seconds_of": "bertie.costs.cost:seconds",
    "sentence_boundaries": "bertie.text.sentences:boundaries",
    "sigmoid": "bertie.tasks.arrays:sigmoid",
    "softmax": "bertie.tasks.arrays:softmax",
    "source_of": "bertie.data.rows:source_of",
    "spaced_words": "bertie.data.words:spaced",
    "split_names": "bertie.cli.tables:names",
    "steps_of": "bertie.tasks.source:steps_of",
    "stream_examples": "bertie.data.tables:stream",
    "suffix_of": "bertie.data.streams:suffix_of",
    "summed": "bertie.metrics.resample:summed",
    "take_layers": "bertie.models.surgery:take_layers",
    "task_of": "bertie.tasks:task_of",
    "temporary_run": "bertie.train.loop:temporary_run",
    "text_of": "bertie.report.values:text_of",
    "this_machine": "bertie.runs.planning:this_machine",
    "token_vectors": "bertie.infer.layers:token_vectors",
    "train_vocabulary": "bertie.text.vocabulary:train",
    "trim_vocabulary": "bertie.text.resize:trim",
    "unit_vectors": "bertie.tasks.arrays:unit",
    "unlabelled_format": "bertie.cli.tables:unlabelled",
    "unread_part": "bertie.tasks.several:unread",
    "unsupported": "bertie.infer.native_engine:unsupported",
    "unwrap_lines": "bertie.text.sentences:unwrap",
    "usual_rate": "bertie.train.rates:usual_rate",
    "utilizations": "bertie.runs.here:utilizations",
    "vote": "bertie.tasks.arrays:vote",
    "wilson": "bertie.metrics.base:wilson",
    "with_last_pieces": "bertie.models.heads.parse:with_last_pieces",
    "with_vocabulary": "bertie.models.surgery:with_vocabulary",
    "words_of_tokens": "bertie.infer.layers:words_of_tokens",
    "write_rows": "bertie.cli.tables:write_rows",
    "written_output": "bertie.models.generation:written_output",
}
__all__ = [
    "AGAINST_FOLDER",
    "ANSWER_SCRIPTS",
    "CALIBRATION_BINS",
    "DATASETS",
    "ENCODER_OUTPUTS",
    "FOREIGN_ARGUMENTS",
    "GPU_LOAD",
    "INT4_LEVELS",
    "LAST_PIECES",
    "MAX_TEXT",
    "MOST_POSITIONS",
    "MOST_UTILIZATION",
    "NOWHERE",
    "NO_HEAD",
    "NO_WORD",
    "ONNX_FOLDER",
    "ONNX_KEY",
    "ONNX_MODEL",
    "ONNX_QUANTIZED",
    "OUTSIDE_TAG",
    "POOLED",
    "PROCESSOR_UTILIZATION",
    "PUE",
    "REPORT_FILE",
    "RESAMPLES",
    "RESULTS_FILE",
    "RUN_MODEL",
    "SENTENCE_MODULES",
    "TAG_FORMATS",
    "TAG_TABLES",
    "TASKS",
    "THREAD_WATTS",
    "TREE_FORMATS",
    "UTILIZATION",
    "WORD_EMBEDDINGS",
    "Alternating",
    "Answerer",
    "Array",
    "Batch",
    "BertieError",
    "Chart",
    "ChartLine",
    "Chooses",
    "Columns",
    "Corpus",
    "CorpusConfig",
    "DataError",
    "Diverged",
    "Draws",
    "DroppedRecord",
    "EachStep",
    "EmbedTask",
    "Embeds",
    "EncoderOutput",
    "Encoding",
    "Engine",
    "EngineName",
    "Entity",
    "Example",
    "Facts",
    "Fields",
    "Float",
    "FolderEngine",
    "FolderKind",
    "Full",
    "Generates",
    "GenerationConfig",
    "Html",
    "Int",
    "Int4Weight",
    "Int8Weight",
    "InvalidRow",
    "Job",
    "Later",
    "Layer",
    "LossReport",
    "LossTerm",
    "MaskPrediction",
    "Masked",
    "MaskedLM",
    "MaskedToken",
    "MaskingVocabulary",
    "MetricCounts",
    "MetricsOf",
    "ModelCard",
    "Normalizer",
    "OnnxEngine",
    "OnnxSignature",
    "OptimConfig",
    "Packed",
    "PackedWeight",
    "Padded",
    "PairedDifference",
    "Parts",
    "PowerGrid",
    "Prediction",
    "Processor",
    "ProcessorCatalog",
    "PythonModule",
    "PythonPassage",
    "Rapl",
    "Registry",
    "RelationExample",
    "Report",
    "Reservoir",
    "Residual",
    "Sequences",
    "Shards",
    "SkipReport",
    "SourceFile",
    "SourceInputs",
    "SpanPrediction",
    "SpanTask",
    "Spans",
    "StatCard",
    "Stopped",
    "Swaps",
    "TableFormat",
    "TableOptions",
    "TagPrediction",
    "TaggedExample",
    "Targets",
    "Task",
    "TaskPart",
    "TaskSource",
    "TextPipeline",
    "TooLong",
    "TorchEngine",
    "TorchModel",
    "TrainConfig",
    "Trainable",
    "TrainingCurve",
    "TrainingReport",
    "TurnedAttention",
    "Unshared",
    "UsageError",
    "VocabularyHead",
    "Window",
    "WrittenWords",
    "added_together",
    "as_filled",
    "batch_of_examples",
    "batches_of",
    "build_model",
    "call_hash",
    "carbon_kg",
    "check_names",
    "check_pooling",
    "check_reads_texts",
    "check_text",
    "check_trainable",
    "check_unchanged",
    "checked_arguments",
    "chunks_of",
    "collect_examples",
    "console",
    "copy_other_files",
    "cores",
    "count_parameters",
    "count_words",
    "disk",
    "each_text",
    "embedder_of",
    "encode_examples",
    "encode_ids",
    "encode_places",
    "ending",
    "energy_kwh",
    "engine_facts",
    "engine_of",
    "entities_of_tags",
    "excess",
    "family_config",
    "family_of",
    "find_model",
    "finetune_against",
    "flat_row",
    "graph_of",
    "grouped",
    "groups_of_masks",
    "held_out",
    "ids_of",
    "int4_groups",
    "job_of",
    "kind_of_file",
    "kind_of_run",
    "layer_output",
    "layers_of",
    "load_kiwi",
    "load_settings",
    "log_probabilities",
    "metric_called",
    "model_fingerprint",
    "model_folder",
    "model_hint",
    "module_of",
    "name_of_task",
    "nearest",
    "nearest_rows",
    "open_engine",
    "open_family_model",
    "open_library",
    "open_torch_model",
    "option",
    "optional_library",
    "over_seeds",
    "pad_batch",
    "paired_metrics",
    "paired_rows",
    "percent_points",
    "permutation",
    "pieces_of",
    "pooled_words",
    "pseudo_perplexity",
    "random_key",
    "randomized",
    "ratio",
    "read_catalog",
    "read_examples",
    "read_log",
    "read_public_config",
    "read_questions",
    "read_records",
    "read_tagged",
    "read_texts",
    "read_trees",
    "read_yaml",
    "readable_texts",
    "rebuilt_model",
    "resampled",
    "resampled_intervals",
    "resolved_particles",
    "rotary_turns",
    "run_finetuning",
    "run_in_batches",
    "run_pretraining",
    "save_like",
    "seconds_of",
    "sentence_boundaries",
    "sigmoid",
    "softmax",
    "source_of",
    "spaced_words",
    "split_names",
    "steps_of",
    "stream_examples",
    "suffix_of",
    "summed",
    "take_layers",
    "task_of",
    "temporary_run",
    "text_of",
    "this_machine",
    "token_vectors",
    "train_vocabulary",
    "trim_vocabulary",
    "unit_vectors",
    "unlabelled_format",
    "unread_part",
    "unsupported",
    "unwrap_lines",
    "usual_rate",
    "utilizations",
    "vote",
    "wilson",
    "with_last_pieces",
    "with_vocabulary",
    "words_of_tokens",
    "write_rows",
    "written_output",
]

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
    from bertie.data.corpus import Corpus, CorpusConfig
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
    from bertie.data.rows import Fields, source_of
    from bertie.data.rows import flat as flat_row
    from bertie.data.rows import kind_of as kind_of_file
    from bertie.data.rows import records as read_records
    from bertie.data.sequences import NOWHERE, Int, Sequences
    from bertie.data.shards import Shards
    from bertie.data.source_file import SourceFile
    from bertie.data.sources import Inputs as SourceInputs
    from bertie.data.streams import suffix_of
    from bertie.data.tables import MAX_TEXT, Columns, Example, SkipReport, TableFormat
    from bertie.data.tables import collect as collect_examples
    from bertie.data.tables import stream as stream_examples
    from bertie.data.tagged import FORMATS as TAG_FORMATS
    from bertie.data.tagged import TABLES as TAG_TABLES
    from bertie.data.tagged import sentences as read_tagged
    from bertie.data.words import TaggedExample
    from bertie.data.words import spaced as spaced_words
    from bertie.errors import BertieError, DataError, Stopped, UsageError, model_hint, nearest
    from bertie.errors import arguments as checked_arguments
    from bertie.evaluation.compare import PairedDifference, over_seeds, paired_metrics, paired_rows
    from bertie.families import build as build_model
    from bertie.families import config as family_config
    from bertie.families import family as family_of
    from bertie.families import load as open_family_model
    from bertie.files import disk
    from bertie.folders import Kind as FolderKind
    from bertie.hub.names import find as find_model
    from bertie.infer.batching import batches as batches_of
    from bertie.infer.batching import chunks as chunks_of
    from bertie.infer.batching import run as run_in_batches
    from bertie.infer.choose import engine_of
    from bertie.infer.embed import embedder as embedder_of
    from bertie.infer.engine import Array, Engine, EngineName, Facts, check_names
    from bertie.infer.fill import Masked, MaskPrediction, as_filled
    from bertie.infer.fill import groups as groups_of_masks
    from bertie.infer.layers import NO_WORD, check_pooling, layers_of, token_vectors, words_of_tokens
    from bertie.infer.layers import pooled as pooled_words
    from bertie.infer.native.folder import FolderEngine
    from bertie.infer.native.library import open_library
    from bertie.infer.native_engine import unsupported
    from bertie.infer.onnx_engine import FOLDER as ONNX_FOLDER
    from bertie.infer.onnx_engine import KEY as ONNX_KEY
    from bertie.infer.onnx_engine import MODEL as ONNX_MODEL
    from bertie.infer.onnx_engine import QUANTIZED as ONNX_QUANTIZED
    from bertie.infer.onnx_engine import OnnxEngine, graph_of
    from bertie.infer.onnx_engine import Signature as OnnxSignature
    from bertie.infer.pipeline import TextPipeline, check_reads_texts
    from bertie.infer.pseudo import MaskedToken, log_probabilities, pseudo_perplexity
    from bertie.infer.texts import check_text, each_text
    from bertie.infer.torch_engine import TorchEngine
    from bertie.infer.write import Words as WrittenWords
    from bertie.metrics.answers import SCRIPTS as ANSWER_SCRIPTS
    from bertie.metrics.base import RESAMPLES, Float, MetricsOf, percent_points, wilson
    from bertie.metrics.base import Counts as MetricCounts
    from bertie.metrics.base import called as metric_called
    from bertie.metrics.calibration import BINS as CALIBRATION_BINS
    from bertie.metrics.confusion import ratio
    from bertie.metrics.resample import Reservoir, resampled, summed
    from bertie.metrics.resample import intervals as resampled_intervals
    from bertie.metrics.tags import OUTSIDE as OUTSIDE_TAG
    from bertie.metrics.tags import entities as entities_of_tags
    from bertie.models.biaffine import LAST as LAST_PIECES
    from bertie.models.convert import save_like
    from bertie.models.count import parameters as count_parameters
    from bertie.models.encoder import EncoderOutput
    from bertie.models.facts import OF_ENCODER as ENCODER_OUTPUTS
    from bertie.models.facts import POOLED, layer_output
    from bertie.models.facts import facts_of as engine_facts
    from bertie.models.folder import check_trainable, copy_other_files, randomized
    from bertie.models.folder import fingerprint as model_fingerprint
    from bertie.models.generation import GenerationConfig, written_output
    from bertie.models.heads import VocabularyHead
    from bertie.models.heads.parse import with_last_pieces
    from bertie.models.int4 import LEVELS as INT4_LEVELS
    from bertie.models.int4 import Int4Weight
    from bertie.models.int4 import groups as int4_groups
    from bertie.models.int8 import Int8Weight, added_together, excess, nearest_rows
    from bertie.models.kinds import MOST as MOST_POSITIONS
    from bertie.models.kinds import Alternating, Full, Residual, Unshared, Window
    from bertie.models.loss import LossReport, LossTerm
    from bertie.models.model import TorchModel
    from bertie.models.packed import PackedWeight
    from bertie.models.sentence import MODULES as SENTENCE_MODULES
    from bertie.models.surgery import rebuilt as rebuilt_model
    from bertie.models.surgery import take_layers, with_vocabulary
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
    from bertie.runs.against import finetune_against
    from bertie.runs.config import kind_of as kind_of_run
    from bertie.runs.examples import read_examples
    from bertie.runs.finetune import finetune as run_finetuning
    from bertie.runs.folder import AGAINST as AGAINST_FOLDER
    from bertie.runs.folder import REPORT as REPORT_FILE
    from bertie.runs.folder import RESULTS as RESULTS_FILE
    from bertie.runs.forecast import PROCESSOR_UTILIZATION
    from bertie.runs.here import utilizations
    from bertie.runs.models import MODEL as RUN_MODEL
    from bertie.runs.models import load as open_torch_model
    from bertie.runs.models import model_folder
    from bertie.runs.opening import open_engine
    from bertie.runs.planning import job_of, this_machine
    from bertie.runs.pretrain import pretrain as run_pretraining
    from bertie.settings import load as load_settings
    from bertie.settings import read_yaml
    from bertie.tasks import TASKS, Prediction, Task, task_of
    from bertie.tasks import name_of as name_of_task
    from bertie.tasks.answerer import Answerer
    from bertie.tasks.arrays import sigmoid, softmax, vote
    from bertie.tasks.arrays import unit as unit_vectors
    from bertie.tasks.capabilities import Chooses, Embeds, Generates, Parts, Spans
    from bertie.tasks.datasets import DATASETS
    from bertie.tasks.embed import EmbedTask
    from bertie.tasks.parse import NONE as NO_HEAD
    from bertie.tasks.parse import pieces_of
    from bertie.tasks.places import encode_places
    from bertie.tasks.relation import Entity, RelationExample
    from bertie.tasks.several import Part as TaskPart
    from bertie.tasks.several import unread as unread_part
    from bertie.tasks.source import Targets, TaskSource, batch_of_examples, encode_ids, ids_of, steps_of
    from bertie.tasks.source import encode as encode_examples
    from bertie.tasks.span import SpanPrediction, SpanTask
    from bertie.tasks.tagging import TagPrediction
    from bertie.text.encoding import Encoding
    from bertie.text.normalize import Normalizer
    from bertie.text.particles import resolved as resolved_particles
    from bertie.text.resize import trim as trim_vocabulary
    from bertie.text.sentences import boundaries as sentence_boundaries
    from bertie.text.sentences import load_kiwi
    from bertie.text.sentences import unwrap as unwrap_lines
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

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module 'bertie.platform' has no attribute {name!r}")
        module, _, own = _HOMES[name].partition(":")
        value = globals()[name] = getattr(import_module(module), own)
        return value


def __dir__() -> list[str]:
    return __all__
