"""What an objective is: four methods, and a sum.

An objective never divides: it returns a sum and a count for each of its parts, and `fit` divides once, when it has
gathered all micro-batches and ranks of a step. So one batch of 64 equals 4 of 16, whatever the mask counts.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from torch import nn

from bertie.data.batch import Batch
from bertie.data.draws import Draws
from bertie.data.masking import Vocabulary
from bertie.data.plans import Pairing, Sentences
from bertie.errors import UsageError
from bertie.models.config import EncoderConfig
from bertie.models.loss import LossReport, Part

if TYPE_CHECKING:
    from bertie.models.encoder import EncoderOutput
    from bertie.models.model import Model

__all__ = ["LossReport", "Objective", "Part", "Sum"]


class Objective(ABC):
    """A pre-training objective. `MaskedLM() + NextSentence()` is one too."""

    name: ClassVar[str]

    @abstractmethod
    def heads(self, config: EncoderConfig) -> dict[str, nn.Module]:
        """Fresh heads this objective needs on top of the encoder, by the name they have in `Model.heads`."""

    @abstractmethod
    def corrupt(self, batch: Batch, rng: Draws, vocabulary: Vocabulary) -> Batch:
        """The batch as the model shall see it, with this objective's labels added. Pure."""

    @abstractmethod
    def counts(self, batch: Batch) -> dict[str, int]:
        """Part name -> number of predictions in this corrupted batch, known before the model runs."""

    @abstractmethod
    def loss(self, model: "Model", output: "EncoderOutput", batch: Batch) -> LossReport:
        """The loss of each part, from the encoder's output on a corrupted batch."""

    @property
    def pairing(self) -> Pairing | None:
        """The instances this objective needs; None when any will do."""
        return None

    @property
    def corruption_cycle(self) -> int | None:
        """After how many epochs `corrupt` is given the same draws again (static masks); None: never (dynamic)."""
        return None

    def check(self, sentences: Sentences) -> None:
        """Raise DataError, with what to do, when this objective cannot be learned from these documents."""
        return

    def __add__(self, other: "Objective") -> "Sum":
        return Sum((*_parts(self), *_parts(other)))


def _parts(objective: Objective) -> tuple[Objective, ...]:
    return objective.parts if isinstance(objective, Sum) else (objective,)


@dataclass(frozen=True)
class Sum(Objective):
    """Several objectives on the same batch: one pass through the encoder, the losses added."""

    parts: tuple[Objective, ...]

    def __post_init__(self) -> None:
        names = [part.name for part in self.parts]
        if len(set(names)) < len(names):
            raise UsageError(f"An objective stands twice in {' + '.join(names)}; once is enough.")
        pairings = [part.name for part in self.parts if part.pairing is not None]
        if len(pairings) > 1:
            raise UsageError(f"{' and '.join(pairings)} each want their own pairs of texts. Choose one of them.")

    @property
    def name(self) -> str:  # type: ignore[override]
        """The names of the parts."""
        return " + ".join(part.name for part in self.parts)

    def heads(self, config: EncoderConfig) -> dict[str, nn.Module]:
        """All heads."""
        return {name: head for part in self.parts for name, head in part.heads(config).items()}

    def corrupt(self, batch: Batch, rng: Draws, vocabulary: Vocabulary) -> Batch:
        """One after the other; each draws from streams of its own."""
        for part in self.parts:
            batch = part.corrupt(batch, rng, vocabulary)
        return batch

    def counts(self, batch: Batch) -> dict[str, int]:
        """All counts."""
        return {name: count for part in self.parts for name, count in part.counts(batch).items()}

    def loss(self, model: "Model", output: "EncoderOutput", batch: Batch) -> LossReport:
        """All parts."""
        return {name: part for each in self.parts for name, part in each.loss(model, output, batch).items()}

    @property
    def pairing(self) -> Pairing | None:
        """That of the one part that has one."""
        return next((part.pairing for part in self.parts if part.pairing is not None), None)

    @property
    def corruption_cycle(self) -> int | None:
        """That of the first part that has one."""
        return next((part.corruption_cycle for part in self.parts if part.corruption_cycle is not None), None)

    def check(self, sentences: Sentences) -> None:
        """Each part checks for itself."""
        for part in self.parts:
            part.check(sentences)
