"""What a task can do besides labeling, as protocols: others ask for these, and never for a class of a task.

    if isinstance(task, Spans): first, last = task.best(starts, ends)

C choices · S tokens · H hidden size
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

from bertie.files import JsonObject
from bertie.io.tables import Example
from bertie.tasks.answerer import Logits, Prediction
from bertie.tasks.base import Task
from bertie.text.sequences import Sequences

if TYPE_CHECKING:
    from bertie.models.generation import GenerationConfig
    from bertie.tasks.span import SpanPrediction


@runtime_checkable
class Embeds(Protocol):
    """Its answer is a vector."""

    @property
    def prompt(self) -> str:
        """The text that is put before every text."""
        ...

    @property
    def similarity(self) -> Any:
        """How two vectors are compared."""
        ...

    @property
    def dense(self) -> tuple[Any, ...]:
        """Matrices that follow the pooling."""
        ...

    def settings(self) -> JsonObject:
        """Returns the settings of the task, as they are saved with the model."""
        ...

    def with_prompt(self, prompt: str) -> Self:
        """Returns the task with another text before every text."""
        ...

    def width(self, hidden_size: int) -> int:
        """Returns the number of dimensions of a vector."""
        ...

    def retrieves(self, examples: Sequence[Example]) -> bool:
        """Returns whether labeled examples are measured by what is found for them, and not by scores of pairs."""
        ...

    def finished(self, pooled: Logits) -> Logits:
        """Returns the vectors from what was pooled. (W, I) -> (W, `width`)"""
        ...

    def answers(self, vectors_WH: Logits, examples: Sequence[Example]) -> list[Prediction]:
        """Returns the predictions for examples from the vectors of all their texts, in order."""
        ...


@runtime_checkable
class ReadsColumns(Protocol):
    """Its logits may depend on other columns of a row."""

    @property
    def tabular(self) -> Sequence[Any]:
        """These columns; none before they are fitted."""
        ...

    def unreadable(self, example: Example) -> str:
        """Returns why the columns of a row cannot be read; "" if they can."""
        ...

    def reading_as(self, other: object) -> Task:
        """Returns the task that reads columns as another one does."""
        ...

    def with_tabular(self, names: Sequence[str], train: Sequence[Example]) -> Task:
        """Returns the task that reads these columns, fitted on the training examples."""
        ...


@runtime_checkable
class Judged(Protocol):
    """It learns from what other models say of the training texts."""

    @property
    def guide(self) -> str:
        """A model of sentence embeddings; "" for none."""
        ...

    @property
    def teacher(self) -> str:
        """A cross-encoder; "" for none."""
        ...


@runtime_checkable
class Spans(Protocol):
    """Its answer is a part of the context."""

    def best(self, starts_S: Logits, ends_S: Logits) -> tuple[int, int]:
        """Returns the first and last token of the best answer."""
        ...

    def spans_of(self, prediction: Prediction) -> "SpanPrediction":
        """Returns one of its predictions, which has spans."""
        ...


@runtime_checkable
class Chooses(Protocol):
    """Its answer is one of several texts of an example, which are compared."""

    def choice_scores(self, logits: Logits, encoded: Sequences) -> Sequence[Logits]:
        """Returns the score of each choice, for each example. (C,)"""
        ...


@runtime_checkable
class Generates(Protocol):
    """Its answer is a text."""

    @property
    def writing(self) -> "GenerationConfig":
        """The settings of generation."""
        ...


@runtime_checkable
class Tags(Protocol):
    """Its answer is a tag for each word, in a scheme such as IOB2."""

    @property
    def scheme(self) -> Any:
        """The scheme that tags are converted to."""
        ...

    @property
    def unit(self) -> Any:
        """The unit of a text without given words: word or character."""
        ...


@runtime_checkable
class Parts(Protocol):
    """It consists of several tasks, each with a head of its own."""

    @property
    def members(self) -> Mapping[str, object]:
        """The tasks by name."""
        ...

    def part(self, name: str) -> Task:
        """Returns one of the tasks. Raises UsageError for an unknown name."""
        ...
