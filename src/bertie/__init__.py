"""Bertie: train and use BERT-style models, from raw text to predictions.

The public names are imported when they are first used, so `import bertie` is fast.
"""

from typing import TYPE_CHECKING

from bertie.registry import import_name

if TYPE_CHECKING:
    from bertie.api.change import convert, extend_vocabulary, grow, shrink, trim_vocabulary
    from bertie.api.corpus import Corpus, build_corpus
    from bertie.api.describe import info, list_families, presets
    from bertie.api.finetune import finetune, finetune_against, plan_finetune
    from bertie.api.folders import compare, export_checkpoint, verify, write_report
    from bertie.api.model import Model, load
    from bertie.api.pretrain import plan_pretrain, pretrain
    from bertie.api.register import register
    from bertie.api.results import Predictions
    from bertie.api.run import Run
    from bertie.api.scores import Scores
    from bertie.api.tokenizer import load_tokenizer, train_tokenizer
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
    from bertie.apps.tokens.report import report_tokenizer
    from bertie.apps.track.trackers import MLflow, TensorBoard, Trackio, WandB
    from bertie.apps.transfer.api import download, upload
    from bertie.console import progress
    from bertie.models.config import EncoderConfig
    from bertie.models.names import list_models
    from bertie.runs.config import FinetuneConfig, PretrainConfig
    from bertie.tasks.datasets import data_sets
    from bertie.text.tokenizer import Tokenizer
    from bertie.train.callbacks import Callback, EarlyStopping, StopTraining

_MODULES = {
    "api.change": "convert extend_vocabulary grow shrink trim_vocabulary",
    "api.corpus": "Corpus build_corpus",
    "api.describe": "info list_families presets",
    "api.finetune": "finetune finetune_against plan_finetune",
    "api.folders": "compare export_checkpoint verify write_report",
    "api.model": "Model load",
    "api.pretrain": "plan_pretrain pretrain",
    "api.register": "register",
    "api.results": "Predictions",
    "api.run": "Run",
    "api.scores": "Scores",
    "api.tokenizer": "load_tokenizer train_tokenizer",
    "api.tune": "tune",
    "api.use": "embed evaluate fill_mask next_sentence perplexity predict rank similarity write",
    "apps.drift.api": "drift",
    "apps.probe.api": "probe words",
    "apps.search.api": "build_index open_index",
    "apps.serve.api": "serve",
    "apps.tokens.report": "report_tokenizer",
    "apps.track.trackers": "MLflow TensorBoard Trackio WandB",
    "apps.transfer.api": "download upload",
    "console": "progress",
    "models.config": "EncoderConfig",
    "models.names": "list_models",
    "runs.config": "FinetuneConfig PretrainConfig",
    "tasks.datasets": "data_sets",
    "text.tokenizer": "Tokenizer",
    "train.callbacks": "Callback EarlyStopping StopTraining",
}
"""Module -> its names here."""
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

_HOMES = {name: f"bertie.{module}" for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'bertie' has no attribute {name!r}")
    return import_name(_HOMES[name], name)


def __dir__() -> list[str]:
    return __all__
