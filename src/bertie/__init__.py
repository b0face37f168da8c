"""Bertie: train and use BERT-style models, from raw text to predictions.

The public names are imported when they are first used, so `import bertie` is fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bertie.api.change import convert, extend_vocabulary, grow, shrink, trim_vocabulary
    from bertie.api.corpus import Corpus, build_corpus, plan_corpus
    from bertie.api.describe import info, list_families, presets
    from bertie.api.finetune import finetune
    from bertie.api.folders import Comparison, compare, export_checkpoint, verify, write_report
    from bertie.api.model import Model, load
    from bertie.api.pretrain import pretrain
    from bertie.api.results import Predictions, Written
    from bertie.api.run import Run
    from bertie.api.scores import Scores
    from bertie.api.tokenizer import load_tokenizer, report_tokenizer, train_tokenizer
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
    from bertie.apps.probe.api import probe, words
    from bertie.infer.predict import Predictor
    from bertie.models.config import EncoderConfig
    from bertie.models.encoder import Encoder
    from bertie.runs.config import FinetuneConfig, PretrainConfig
    from bertie.text.tokenizer import Tokenizer
    from bertie.train.loop import fit

_HOMES = {
    "convert": "bertie.api.change",
    "extend_vocabulary": "bertie.api.change",
    "grow": "bertie.api.change",
    "shrink": "bertie.api.change",
    "trim_vocabulary": "bertie.api.change",
    "Comparison": "bertie.api.folders",
    "compare": "bertie.api.folders",
    "export_checkpoint": "bertie.api.folders",
    "verify": "bertie.api.folders",
    "write_report": "bertie.api.folders",
    "info": "bertie.api.describe",
    "list_families": "bertie.api.describe",
    "presets": "bertie.api.describe",
    "Corpus": "bertie.api.corpus",
    "build_corpus": "bertie.api.corpus",
    "plan_corpus": "bertie.api.corpus",
    "load_tokenizer": "bertie.api.tokenizer",
    "report_tokenizer": "bertie.api.tokenizer",
    "train_tokenizer": "bertie.api.tokenizer",
    "Encoder": "bertie.models.encoder",
    "EncoderConfig": "bertie.models.config",
    "FinetuneConfig": "bertie.runs.config",
    "PretrainConfig": "bertie.runs.config",
    "Tokenizer": "bertie.text.tokenizer",
    "Predictions": "bertie.api.results",
    "Predictor": "bertie.infer.predict",
    "Run": "bertie.api.run",
    "Scores": "bertie.api.scores",
    "embed": "bertie.api.use",
    "evaluate": "bertie.api.use",
    "fill_mask": "bertie.api.use",
    "finetune": "bertie.api.finetune",
    "fit": "bertie.train.loop",
    "load": "bertie.api.model",
    "Model": "bertie.api.model",
    "Written": "bertie.api.results",
    "next_sentence": "bertie.api.use",
    "perplexity": "bertie.api.use",
    "predict": "bertie.api.use",
    "pretrain": "bertie.api.pretrain",
    "probe": "bertie.apps.probe.api",
    "rank": "bertie.api.use",
    "similarity": "bertie.api.use",
    "words": "bertie.apps.probe.api",
    "write": "bertie.api.use",
}
__all__ = [
    "Comparison",
    "Corpus",
    "Encoder",
    "EncoderConfig",
    "FinetuneConfig",
    "Model",
    "Predictions",
    "Predictor",
    "PretrainConfig",
    "Run",
    "Scores",
    "Tokenizer",
    "Written",
    "build_corpus",
    "compare",
    "convert",
    "embed",
    "evaluate",
    "export_checkpoint",
    "extend_vocabulary",
    "fill_mask",
    "finetune",
    "fit",
    "grow",
    "info",
    "list_families",
    "load",
    "load_tokenizer",
    "next_sentence",
    "perplexity",
    "plan_corpus",
    "predict",
    "presets",
    "pretrain",
    "probe",
    "rank",
    "report_tokenizer",
    "shrink",
    "similarity",
    "train_tokenizer",
    "trim_vocabulary",
    "verify",
    "words",
    "write",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'bertie' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
