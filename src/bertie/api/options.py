"""The options that a method of `Model` and the function of its name share, for checkers of types."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypedDict

from bertie.infer.traffic import Traffic
from bertie.io.memory import RowsInput
from bertie.tasks import Prediction
from bertie.training_facts import TooLong

if TYPE_CHECKING:
    from bertie.runs.config import FinetuneConfig, PretrainConfig
    from bertie.tasks.losses import LossFunction

Output = str | Path | IO[bytes]
"""A file to write, or an open stream."""
ReceivePrediction = Callable[[Sequence[str], Prediction], None]
"""A function that receives the texts of a row, and its prediction."""


class FileOptions(TypedDict, total=False):
    """How texts are read."""

    text: str | Sequence[str]
    columns: Sequence[str]
    encoding: str
    format: str


class RecordOptions(TypedDict, total=False):
    """How records are written to `output`."""

    only_answers: bool
    excel: bool
    output_encoding: str
    overwrite: bool


class ReadingOptions(TypedDict, total=False):
    """How a model reads texts."""

    max_length: int | None
    too_long: TooLong | None
    head: str


class PatternOptions(ReadingOptions, total=False):
    """How a model answers."""

    pattern: str
    words: Mapping[str, str] | None
    demonstrations: RowsInput | None
    shots: int | None
    calibrate_prompt: bool
    threshold: float | None
    abstain: float | None


class PredictOptions(FileOptions, PatternOptions, RecordOptions, total=False):
    """Of `predict`."""

    candidates: Sequence[str] | None
    hypothesis: str | None
    multi: bool
    log: str | Path | Traffic | None


class VectorOptions(TypedDict, total=False):
    """How a text becomes a vector."""

    prompt: str | None
    prefix: str | None
    pooling: str | Sequence[str] | None
    normalize: bool
    truncate_dim: int | None


class SimilarityOptions(VectorOptions, total=False):
    """Of `similarity`."""

    max_length: int | None


class EmbedOptions(FileOptions, SimilarityOptions, RecordOptions, total=False):
    """Of `embed`."""

    from_layers: str | Sequence[int]


class LabelOptions(TypedDict, total=False):
    """How labels are read."""

    label: str
    label_names: Mapping[str, str] | None
    label_separator: str


class EvaluateOptions(FileOptions, LabelOptions, PatternOptions, total=False):
    """Of `evaluate`."""

    data: str
    data_dir: str | Path | None
    split: str
    weight: str
    positive: str
    perturb: Sequence[str]
    output: str | Path | None
    report: str | Path | None
    overwrite: bool


class RankOptions(SimilarityOptions, total=False):
    """Of `rank`."""

    head: str
    too_long: TooLong | None


class WriteOptions(TypedDict, total=False):
    """Of `write`."""

    max_new_tokens: int | None
    beams: int | None
    length_penalty: float | None
    sample: bool
    temperature: float | None
    top_k: int | None
    top_p: float | None
    seed: int
    max_length: int | None


class PerplexityOptions(FileOptions, total=False):
    """Of `perplexity`."""

    limit: int | None
    max_length: int | None


class WhereOptions(TypedDict, total=False):
    """Where a model runs that is not open yet, as for `load`."""

    device: str
    precision: str
    engine: str


class RunOptions(TypedDict, total=False):
    """The settings that `finetune` and `pretrain` share."""

    lr: float | None
    batch_size: int | None
    max_length: int | None
    weight_decay: float | None
    warmup: float | None
    seed: int | None
    device: str | None
    precision: str | None
    patience: int | None
    metric: str | None
    track: str | Sequence[str] | None
    features: str
    settings: Mapping[str, object] | None
    overrides: Sequence[str]


class FinetuneOptions(RunOptions, total=False):
    """The settings of `finetune`, which its plan and a comparison take too."""

    text: str | Sequence[str]
    label: str
    task: str | None
    label_names: Mapping[str, str] | None
    weight: str
    group: str
    time: str
    tabular: Sequence[str]
    markup: str
    class_weights: str | Mapping[str, float] | None
    sampling: str | None
    loss: "str | LossFunction | None"
    focal_gamma: float | None
    optimize: str
    costs: Mapping[str, Mapping[str, float]] | None
    calibrate: str | None
    abstain: float | None
    coverage: float | None
    label_smoothing: float | None
    data: str
    data_dir: str | Path | None
    epochs: float | None
    lora: int | None
    positive: str
    columns: Sequence[str]
    encoding: str
    format: str
    label_separator: str
    few_shot: bool
    config: "FinetuneConfig | str | Path | None"


class PretrainOptions(RunOptions, total=False):
    """The settings of `pretrain`, which its plan takes too."""

    model: str | Path | None
    objectives: Sequence[str] | Mapping[str, object] | None
    steps: int | None
    from_: str | Path | None
    minutes: float | None
    config: "PretrainConfig | str | Path | None"
    output: str | Path | None
    overwrite: bool
