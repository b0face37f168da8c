"""The options that a method of `Model` and the function of its name share, for checkers of types."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TypedDict

from bertie.training_facts import TooLong

Output = str | Path | IO[bytes]
"""A file to write, or an open stream."""


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
    threshold: float | None


class PredictOptions(FileOptions, PatternOptions, RecordOptions, total=False):
    """Of `predict`."""

    candidates: Sequence[str] | None
    hypothesis: str | None
    multi: bool


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

    layers: str | Sequence[int]


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
