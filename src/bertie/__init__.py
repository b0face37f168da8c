"""Bertie: train and use BERT-style models, from raw text to predictions.

The public names are imported when they are first used, so `import bertie` is fast.
"""

from typing import TYPE_CHECKING

from bertie.registry import import_name

if TYPE_CHECKING:
    from bertie.api.change import convert, extend_vocabulary, grow, shrink, trim_vocabulary
    from bertie.api.corpus import Corpus, build_corpus
    from bertie.api.datasets import data_sets
    from bertie.api.describe import info, list_families, presets
    from bertie.api.display import progress
    from bertie.api.finetune import finetune, finetune_against, plan_finetune
    from bertie.api.folders import compare, export_checkpoint, verify, write_report
    from bertie.api.model import Model, load
    from bertie.api.pretrain import plan_pretrain, pretrain
    from bertie.api.register import register
    from bertie.api.results import Predictions
    from bertie.api.run import Run
    from bertie.api.scores import Scores
    from bertie.api.tokenizer import load_tokenizer, report_tokenizer, train_tokenizer
    from bertie.api.tune import tune
    from bertie.api.use import (
        embed,
        evaluate,
        fill_mask,
        next_sentence,
        perplexity,
        predict,
        rank,
        similarity,
        write,
    )
    from bertie.apps.drift.api import drift
    from bertie.apps.probe.api import probe, words
    from bertie.apps.search.api import build_index, open_index
    from bertie.apps.serve.api import serve
    from bertie.apps.track.trackers import MLflow, TensorBoard, Trackio, WandB
    from bertie.apps.transfer.api import download, upload
    from bertie.models.config import EncoderConfig
    from bertie.models.names import list_models
    from bertie.runs.config import FinetuneConfig, PretrainConfig
    from bertie.text.tokenizer import Tokenizer
    from bertie.train.callbacks import Callback, EarlyStopping, StopTraining

_HOMES = {
    "Callback": "bertie.train.callbacks",
    "Corpus": "bertie.api.corpus",
    "EarlyStopping": "bertie.train.callbacks",
    "EncoderConfig": "bertie.models.config",
    "FinetuneConfig": "bertie.runs.config",
    "MLflow": "bertie.apps.track.trackers",
    "Model": "bertie.api.model",
    "Predictions": "bertie.api.results",
    "PretrainConfig": "bertie.runs.config",
    "Run": "bertie.api.run",
    "Scores": "bertie.api.scores",
    "StopTraining": "bertie.train.callbacks",
    "TensorBoard": "bertie.apps.track.trackers",
    "Tokenizer": "bertie.text.tokenizer",
    "Trackio": "bertie.apps.track.trackers",
    "WandB": "bertie.apps.track.trackers",
    "build_corpus": "bertie.api.corpus",
    "build_index": "bertie.apps.search.api",
    "compare": "bertie.api.folders",
    "convert": "bertie.api.change",
    "drift": "bertie.apps.drift.api",
    "embed": "bertie.api.use",
    "evaluate": "bertie.api.use",
    "export_checkpoint": "bertie.api.folders",
    "extend_vocabulary": "bertie.api.change",
    "fill_mask": "bertie.api.use",
    "finetune": "bertie.api.finetune",
    "finetune_against": "bertie.api.finetune",
    "plan_finetune": "bertie.api.finetune",
    "tune": "bertie.api.tune",
    "plan_pretrain": "bertie.api.pretrain",
    "data_sets": "bertie.api.datasets",
    "download": "bertie.apps.transfer.api",
    "list_models": "bertie.models.names",
    "upload": "bertie.apps.transfer.api",
    "grow": "bertie.api.change",
    "info": "bertie.api.describe",
    "list_families": "bertie.api.describe",
    "load": "bertie.api.model",
    "load_tokenizer": "bertie.api.tokenizer",
    "next_sentence": "bertie.api.use",
    "open_index": "bertie.apps.search.api",
    "perplexity": "bertie.api.use",
    "predict": "bertie.api.use",
    "presets": "bertie.api.describe",
    "progress": "bertie.api.display",
    "pretrain": "bertie.api.pretrain",
    "probe": "bertie.apps.probe.api",
    "rank": "bertie.api.use",
    "register": "bertie.api.register",
    "report_tokenizer": "bertie.api.tokenizer",
    "serve": "bertie.apps.serve.api",
    "shrink": "bertie.api.change",
    "similarity": "bertie.api.use",
    "train_tokenizer": "bertie.api.tokenizer",
    "trim_vocabulary": "bertie.api.change",
    "verify": "bertie.api.folders",
    "words": "bertie.apps.probe.api",
    "write": "bertie.api.use",
    "write_report": "bertie.api.folders",
}
__all__ = [
    "Callback",
    "Corpus",
    "EarlyStopping",
    "EncoderConfig",
    "FinetuneConfig",
    "MLflow",
    "Model",
    "Predictions",
    "PretrainConfig",
    "Run",
    "Scores",
    "StopTraining",
    "TensorBoard",
    "Tokenizer",
    "Trackio",
    "WandB",
    "build_corpus",
    "build_index",
    "compare",
    "convert",
    "data_sets",
    "download",
    "drift",
    "embed",
    "evaluate",
    "export_checkpoint",
    "extend_vocabulary",
    "fill_mask",
    "finetune",
    "finetune_against",
    "grow",
    "info",
    "list_families",
    "list_models",
    "load",
    "load_tokenizer",
    "next_sentence",
    "open_index",
    "perplexity",
    "plan_finetune",
    "plan_pretrain",
    "predict",
    "presets",
    "pretrain",
    "probe",
    "progress",
    "rank",
    "register",
    "report_tokenizer",
    "serve",
    "shrink",
    "similarity",
    "train_tokenizer",
    "trim_vocabulary",
    "tune",
    "upload",
    "verify",
    "words",
    "write",
    "write_report",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'bertie' has no attribute {name!r}")
    return import_name(_HOMES[name], name)


def __dir__() -> list[str]:
    return __all__
