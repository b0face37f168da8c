"""What an objective is: four methods, some with a usual answer, and a sum.

An objective never divides: it returns a sum and a count for each of its parts, and `fit` divides once, when it has
gathered all micro-batches and ranks of a step. So one batch of 64 equals 4 of 16, whatever the mask counts.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from torch import nn

from bertie.data.batch import Batch
from bertie.data.draws import Draws
from bertie.data.masking import Vocabulary
from bertie.data.plans import Pairing, Sentences
from bertie.errors import UsageError
from bertie.models.config import EncoderConfig
from bertie.models.loss import LossReport, LossTerm

if TYPE_CHECKING:
    from bertie.models.encoder import EncoderOutput
    from bertie.models.model import Model

__all__ = ["LossReport", "LossTerm", "Objective", "Sum"]


class Objective(ABC):
    """A pre-training objective. `MaskedLM() + NextSentence()` is one too."""

    name: ClassVar[str]
    on_tokens: ClassVar[bool] = False
    """Whether it decides which tokens the model sees and says; one objective of a sum can."""

    @abstractmethod
    def heads(self, config: EncoderConfig) -> dict[str, nn.Module]:
        """Fresh heads this objective needs on top of the encoder, by the name they have in `Model.heads`."""

    @abstractmethod
    def corrupt(self, batch: Batch, rng: Draws, vocabulary: Vocabulary) -> Batch:
        """The batch as the model shall see it, with this objective's labels added. Pure."""

    @abstractmethod
    def counts(self, batch: Batch) -> dict[str, int]:
        """Loss name -> number of predictions in this corrupted batch, known before the model runs."""

    @abstractmethod
    def loss(self, model: "Model", output: "EncoderOutput", batch: Batch) -> LossReport:
        """The loss of each part, from the encoder's output on a corrupted batch."""

    def forward(self, model: "Model", batch: Batch) -> "EncoderOutput":
        """What the encoder finds in a corrupted batch; an objective that needs more of it says how."""
        return model.encode(batch)

    def answers(self, batch: Batch) -> dict[int, list[int]]:
        """What the model should say of a corrupted batch, for a look at it: place in input_ids, flattened -> tokens."""
        return {}

    def describe_labels(self, batch: Batch) -> list[str]:
        """The same of whole sequences, in words."""
        return []

    @property
    def reads(self) -> dict[str, str]:
        """Model folders it reads beside the corpus, by option: {"distil.teacher": "models/base"}."""
        return {}

    def load_dependencies(self, load: Callable[[str], "Model"]) -> "Objective":
        """This objective with what it needs beside the corpus, such as a teacher; `load` opens a model folder."""
        return self

    def prepare(self, model: "Model", seed: int) -> None:
        """Add to a fresh or loaded model what is trained with it and is no head of its family."""
        return

    def models_to_save(self, model: "Model") -> "dict[str, Model]":
        """The models a run leaves, by folder: "model" and others. What only training needs is not in them."""
        return {"model": model}

    def extra_cost(self, config: EncoderConfig, *, length: float, shares: Mapping[str, float]) -> dict[str, float]:
        """Operations a token of a training step takes in what is run beside the encoder and its vocabulary head.

        length: as of `models.count.forward_flops`; shares: predictions a token, by part of the loss.
        """
        return {}

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
            raise UsageError(f"An objective is listed twice in {' + '.join(names)}. List it once.")
        pairings = [part.name for part in self.parts if part.pairing is not None]
        if len(pairings) > 1:
            raise UsageError(f"{' and '.join(pairings)} need different pairs of texts. Choose one of them.")
        on_tokens = [part.name for part in self.parts if part.on_tokens]
        if len(on_tokens) > 1:
            without = ", ".join(f"objectives.{name}=null" for name in on_tokens[:-1])
            raise UsageError(f"{' and '.join(on_tokens)} both change the tokens. Choose one: {without}.")

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

    def forward(self, model: "Model", batch: Batch) -> "EncoderOutput":
        """As the part on tokens says."""
        for part in self.parts:
            if part.on_tokens:
                return part.forward(model, batch)
        return model.encode(batch)

    def answers(self, batch: Batch) -> dict[int, list[int]]:
        """All answers."""
        return {place: answer for part in self.parts for place, answer in part.answers(batch).items()}

    def describe_labels(self, batch: Batch) -> list[str]:
        """All verdicts."""
        return [verdict for part in self.parts for verdict in part.describe_labels(batch)]

    @property
    def reads(self) -> dict[str, str]:
        """All folders."""
        return {option: folder for part in self.parts for option, folder in part.reads.items()}

    def load_dependencies(self, load: Callable[[str], "Model"]) -> "Sum":
        """All parts."""
        return Sum(tuple(part.load_dependencies(load) for part in self.parts))

    def prepare(self, model: "Model", seed: int) -> None:
        """All parts."""
        for part in self.parts:
            part.prepare(model, seed)

    def models_to_save(self, model: "Model") -> "dict[str, Model]":
        """What each part leaves of what the one before has left."""
        models = {"model": model}
        for part in self.parts:
            models |= part.models_to_save(models["model"])
        return models

    def extra_cost(self, config: EncoderConfig, *, length: float, shares: Mapping[str, float]) -> dict[str, float]:
        """All parts."""
        costs = [part.extra_cost(config, length=length, shares=shares) for part in self.parts]
        return {name: flops for each in costs for name, flops in each.items()}

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
