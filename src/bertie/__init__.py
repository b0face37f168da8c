"""Bertie: train and use BERT-style models, from raw text to predictions.

The public names are imported when they are first used, so `import bertie` is fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bertie.infer.predict import Predictor
    from bertie.models.config import EncoderConfig
    from bertie.models.encoder import Encoder
    from bertie.models.model import Model
    from bertie.runs.config import FinetuneConfig, PretrainConfig
    from bertie.runs.finetune import finetune
    from bertie.runs.opening import load
    from bertie.runs.pretrain import pretrain
    from bertie.runs.use import embed, evaluate, fill_mask, perplexity, predict, probe, rank, similarity, words, write
    from bertie.text.tokenizer import Tokenizer
    from bertie.train.loop import fit

_HOMES = {
    "Encoder": "bertie.models.encoder",
    "EncoderConfig": "bertie.models.config",
    "FinetuneConfig": "bertie.runs.config",
    "Model": "bertie.models.model",
    "PretrainConfig": "bertie.runs.config",
    "Tokenizer": "bertie.text.tokenizer",
    "Predictor": "bertie.infer.predict",
    "embed": "bertie.runs.use",
    "evaluate": "bertie.runs.use",
    "fill_mask": "bertie.runs.use",
    "finetune": "bertie.runs.finetune",
    "fit": "bertie.train.loop",
    "load": "bertie.runs.opening",
    "perplexity": "bertie.runs.use",
    "predict": "bertie.runs.use",
    "pretrain": "bertie.runs.pretrain",
    "probe": "bertie.runs.use",
    "rank": "bertie.runs.use",
    "similarity": "bertie.runs.use",
    "words": "bertie.runs.use",
    "write": "bertie.runs.use",
}
__all__ = [
    "Encoder",
    "EncoderConfig",
    "FinetuneConfig",
    "Model",
    "Predictor",
    "PretrainConfig",
    "Tokenizer",
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
