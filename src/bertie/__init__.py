"""Bertie: train and use BERT-style models, from raw text to predictions.

The public names are imported when they are first used, so `import bertie` is fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bertie.api.finetune import finetune
    from bertie.api.pretrain import pretrain
    from bertie.api.results import Predictions, Run, Scores
    from bertie.api.use import embed, evaluate, fill_mask, perplexity, predict, rank, similarity, write
    from bertie.apps.probe.api import probe, words
    from bertie.infer.predict import Predictor
    from bertie.models.config import EncoderConfig
    from bertie.models.encoder import Encoder
    from bertie.runs.config import FinetuneConfig, PretrainConfig
    from bertie.runs.opening import load
    from bertie.text.tokenizer import Tokenizer
    from bertie.train.callbacks import Callback, EarlyStopping, StopTraining, TrainingRun
    from bertie.train.loop import fit
    from bertie.train.trackers import MLflow, TensorBoard, Trackio, WandB

_HOMES = {
    "Callback": "bertie.train.callbacks",
    "EarlyStopping": "bertie.train.callbacks",
    "StopTraining": "bertie.train.callbacks",
    "TrainingRun": "bertie.train.callbacks",
    "MLflow": "bertie.train.trackers",
    "TensorBoard": "bertie.train.trackers",
    "Trackio": "bertie.train.trackers",
    "WandB": "bertie.train.trackers",
    "Encoder": "bertie.models.encoder",
    "EncoderConfig": "bertie.models.config",
    "FinetuneConfig": "bertie.runs.config",
    "PretrainConfig": "bertie.runs.config",
    "Tokenizer": "bertie.text.tokenizer",
    "Predictions": "bertie.api.results",
    "Predictor": "bertie.infer.predict",
    "Run": "bertie.api.results",
    "Scores": "bertie.api.results",
    "embed": "bertie.api.use",
    "evaluate": "bertie.api.use",
    "fill_mask": "bertie.api.use",
    "finetune": "bertie.api.finetune",
    "fit": "bertie.train.loop",
    "load": "bertie.runs.opening",
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
    "Callback",
    "EarlyStopping",
    "Encoder",
    "EncoderConfig",
    "FinetuneConfig",
    "MLflow",
    "Predictions",
    "Predictor",
    "PretrainConfig",
    "Run",
    "Scores",
    "StopTraining",
    "TensorBoard",
    "Tokenizer",
    "Trackio",
    "TrainingRun",
    "WandB",
    "embed",
    "evaluate",
    "fill_mask",
    "finetune",
    "fit",
    "load",
    "perplexity",
    "predict",
    "pretrain",
    "probe",
    "rank",
    "similarity",
    "words",
    "write",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'bertie' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
