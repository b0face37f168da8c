"""`TrainingFacts`: what a model folder records of its training, in bertie.json, so that inference needs no options."""

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from bertie.console import console
from bertie.errors import BadFile, UsageError
from bertie.files import Json, read_json, read_small, write_json
from bertie.settings import Config

Markup: TypeAlias = Literal["", "html", "markdown"]
FILE = "bertie.json"
TRAFFIC = "traffic.json"  # the dev examples as counts, which bertie drift compares with (infer/traffic.py)
DECIDED = "bertie_settings"  # of config.json: the names of settings in bertie.json without which answers are others
DECIDING = ("threshold", "thresholds", "abstain", "set_from", "scale", "shift", "tabular")
TooLong = Literal["truncate", "window", "error"]
"""What is done with texts that are too long."""


class FeatureConfig(Config):
    """Feature vectors of a table."""

    column: str = ""
    """Column of feature vectors: lists of numbers, or paths of arrays, pictures or sounds. Default: none."""
    patch_size: int = Field(16, ge=1)
    """Pixels of the side of a picture's patch. Source: Dosovitskiy et al. 2021, 3.1."""
    picture_size: int | None = Field(None, ge=1)
    """Pictures are scaled to squares of so many pixels. Not set: they keep their size, up to whole patches."""
    skip_plain: bool = False
    """Patches of a single color are left out, unless all are."""
    mel_bins: int = Field(40, ge=1)
    """Bands of a sound's log-mel spectrogram. Its windows are 25 ms long, every 10 ms."""
    stacked_frames: int = Field(2, ge=1)
    """Consecutive frames of a sound that form one vector."""
    kind: Literal["regions", "frames"] = "regions"
    """How a model of texts alone learns to read them: regions, whose order has no meaning, or frames, in order."""


@dataclass(frozen=True)
class TrainingFacts:
    """How a model read tables and texts in its training. A fact that is not known is None or empty.

    Attributes:
        max_length: Maximum number of tokens of a sequence.
        too_long: Handling of longer texts.
        texts: Number of text columns, 2 for pairs.
        text_columns: These columns, or templates of columns; empty where they had usual names.
        label_column: The column of the label; empty where it had a usual name.
        label_separator: What separates the labels of a cell; empty for a comma.
        encoding: Of the training files, where it was not UTF-8.
        markup: What was removed from texts.
        features: How the feature vectors of a table are read, if it had any.
        task: The name of the task.
        task_package: The package that the task came from, as pip calls it; empty for those of Bertie.
        task_options: The settings of the task, with those that were fitted, such as thresholds.
    """

    max_length: Annotated[int, Field(ge=4)] | None = None
    too_long: TooLong | None = None
    texts: Annotated[int, Field(ge=1)] | None = None
    text_columns: tuple[str, ...] = ()
    label_column: str = ""
    label_separator: str = ""
    encoding: str = ""
    markup: Markup = ""
    features: FeatureConfig | None = None
    task: str = ""
    task_package: str = ""
    task_options: Json = field(default_factory=dict)

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True)

    def check_reads_texts(self, what: str) -> None:
        """Raises UsageError for a model that was fine-tuned on feature vectors. what: the command, which reads only
        texts."""
        if self.features is not None:
            raise UsageError(no_vectors(self.features, f"{what} reads only texts"))

    def check_texts_decide(self, what: str) -> None:
        """Raises UsageError for a model whose answers depend on more than texts. what: the command, which reads only
        texts."""
        self.check_reads_texts(what)
        if columns := self.task_options.get("tabular"):
            names = ", ".join(column["name"] for column in columns)
            raise UsageError(f"This model also reads the columns {names}, and {what} reads only texts.")


def no_vectors(features: FeatureConfig, why: str) -> str:
    """Returns the message for a model of feature vectors that gets none."""
    return (
        f"This model was trained on feature vectors (column {features.column!r}), and {why}. Pass a table with this "
        "column to bertie predict or bertie evaluate, or the vectors to Predictor.predict."
    )


@cache
def _adapter() -> TypeAdapter[TrainingFacts]:
    return TypeAdapter(TrainingFacts)


def read_training_facts(folder: Path) -> TrainingFacts:
    """Returns the facts of a model folder, all unknown where it has no bertie.json. Raises DataError if it is
    damaged."""
    path = folder / FILE
    if not path.is_file():
        if lost := _lost(folder):
            console.warn(
                f"{folder} has no {FILE}, and its training chose {', '.join(lost)}: the answers are those without. "
                "Copy the file from the folder that the training wrote."
            )
        return TrainingFacts()
    try:
        return _adapter().validate_json(read_small(path))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise BadFile(
            f"{path} is damaged: {where + ': ' if where else ''}{first['msg']}. Copy the file from the folder that the "
            "training wrote."
        ) from None


def _lost(folder: Path) -> list[str]:
    """Returns the settings that config.json says were in a bertie.json."""
    path = folder / "config.json"
    public = read_json(path) if path.is_file() else {}
    names = public.get(DECIDED) if isinstance(public, dict) else None
    return [str(name) for name in names] if isinstance(names, list) else []


def decided(facts: TrainingFacts) -> list[str]:
    """Returns the settings of a training that change which answer a text gets, beside the weights."""
    return [name for name in DECIDING if facts.task_options.get(name) not in (None, [], ())]


def write_training_facts(folder: Path, facts: TrainingFacts) -> None:
    """Writes bertie.json, or removes it where nothing is known of a training."""
    if facts == TrainingFacts():
        (folder / FILE).unlink(missing_ok=True)
    else:
        write_json(folder / FILE, _adapter().dump_python(facts))
