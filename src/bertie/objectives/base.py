"""The interface of an objective, with defaults, and the sum of objectives.

An objective never divides. It returns sums and counts, and `fit` divides once, after all micro-batches and ranks of a
step. So one batch of 64 equals 4 of 16, whatever the masks.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bertie.data.masking import Vocabulary
from bertie.data.plans import Pairing, Sentences
from bertie.errors import UsageError
from bertie.models.batch import Batch
from bertie.models.config import EncoderConfig
from bertie.models.loss import LabelAxis, LossReport, LossTerm
from bertie.order import Draws
from bertie.text.sequences import Sequences

if TYPE_CHECKING:
    from bertie.models.encoder import EncoderOutput
    from bertie.models.model import TorchModel

__all__ = ["LossReport", "LossTerm", "Objective", "Sum"]


class OpensModel(Protocol):
    """Protocol of a function that opens a model by its name or folder.

    states_only: whether only its last hidden states of texts are read. It then has its tokenizer, and a faster library
    may run it.
    """

    def __call__(self, folder: str, *, states_only: bool = False) -> "TorchModel":
        """Returns the model."""
        ...


class Objective(ABC):
    """A pre-training objective. `MaskedLM() + NextSentence()` is an objective too."""

    name: ClassVar[str]
    on_tokens: ClassVar[bool] = False
    """Whether the objective changes the input tokens and predicts them. A sum can have only one such objective."""
    own_forward: ClassVar[bool] = False
    """Whether `forward` does more than run the encoder."""
    label_axes: ClassVar[Mapping[str, LabelAxis] | None] = None
    """The axis of each label of a batch, where the loss leaves out weights of 0 and `NO_TARGET`; None: unknown."""
    whole_run: ClassVar[tuple[str, ...]] = ()
    """Options that a phase cannot change: the model or the loss reads them, and not the batches."""

    @abstractmethod
    def heads(self, config: EncoderConfig) -> dict[str, nn.Module]:
        """Returns new heads of this objective, by their names in `TorchModel.heads`."""

    @abstractmethod
    def corrupt(self, batch: Sequences, rng: Draws, vocabulary: Vocabulary) -> Sequences:
        """Returns sequences as input of the model, with the labels of this objective. The argument is not changed."""

    @abstractmethod
    def counts(self, batch: Batch) -> dict[str, int]:
        """Returns the number of predictions in this corrupted batch by loss name, without running the model."""

    @abstractmethod
    def loss(self, model: "TorchModel", output: "EncoderOutput", batch: Batch) -> LossReport:
        """Returns the losses for the encoder's output on a corrupted batch."""

    def forward(self, model: "TorchModel", batch: Batch) -> "EncoderOutput":
        """Runs the model on a corrupted batch. Objectives that need more than the encoder override it."""
        return model.encode(batch, read=self.read(batch.positions))

    def read(self, batch: Batch) -> Tensor | None:
        """Returns the flattened positions (N,) of the tokens whose last hidden states the loss reads besides those of
        the summary tokens; None: all. The last layer computes no others."""
        return None

    def answers(self, batch: Sequences) -> dict[int, list[int]]:
        """Returns the expected predictions of corrupted sequences, to print examples: position in input_ids ->
        tokens."""
        return {}

    def describe_labels(self, batch: Sequences) -> list[str]:
        """Returns the labels of whole sequences in words, to print examples."""
        return []

    @property
    def reads(self) -> dict[str, str]:
        """Model folders that the objective needs, by option: {"distil.teacher": "models/base"}."""
        return {}

    def load_dependencies(self, load: OpensModel) -> "Objective":
        """Returns this objective with its dependencies, such as a teacher. `load` opens them."""
        return self

    def prepare(self, model: "TorchModel", seed: int) -> None:
        """Adds modules to a model that are trained with it but are not heads of its family."""
        return

    def models_to_save(self, model: "TorchModel") -> "dict[str, TorchModel]":
        """Returns the models that a run saves, by folder: "model" and others, without modules that only training
        needs."""
        return {"model": model}

    def extra_cost(self, config: EncoderConfig, *, length: float, shares: Mapping[str, float]) -> dict[str, float]:
        """Returns the operations per token of a training step in addition to the encoder and its vocabulary head.

        length: as of `models.count.forward_flops`; shares: predictions per token, by loss name.
        """
        return {}

    def vector_labels(self, vectors: NDArray[np.float32]) -> Mapping[str, NDArray[np.generic]]:
        """Returns labels of all feature vectors (R, D) of a table, arrays of R rows that `corrupt` finds in a batch."""
        return {}

    @property
    def pairing(self) -> Pairing | None:
        """The instances that this objective needs, or None when it accepts all."""
        return None

    @property
    def corruption_cycle(self) -> int | None:
        """The number of epochs after which `corrupt` receives the same draws again (static masking). None: never
        (dynamic)."""
        return None

    def check(self, sentences: Sentences) -> None:
        """Raises DataError when this objective cannot be trained on these documents."""
        return

    def __add__(self, other: "Objective") -> "Sum":
        return Sum((*parts_of(self), *parts_of(other)))


def parts_of(objective: Objective) -> tuple[Objective, ...]:
    """Returns the objectives of a sum, or the one objective."""
    return objective.parts if isinstance(objective, Sum) else (objective,)


@dataclass(frozen=True)
class Sum(Objective):
    """Several objectives on the same batch: one pass through the encoder, and the sum of the losses."""

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
        own = [part.name for part in self.parts if part.own_forward]
        if len(own) > 1:
            raise UsageError(
                f"{' and '.join(own)} both run the model in a way of their own. Choose one of them; distil without "
                "features and attention does not."
            )
        if {"hidden", "plm"} <= set(names):  # its output has the predicted tokens alone
            raise UsageError(
                "hidden needs the states of all tokens, and plm has none. Choose one: objectives.hidden=null."
            )

    @property
    def name(self) -> str:  # type: ignore[override]
        """The names of all objectives."""
        return " + ".join(part.name for part in self.parts)

    @property
    def label_axes(self) -> Mapping[str, LabelAxis] | None:  # type: ignore[override]
        """The axes of all objectives, or None when one of them has none."""
        axes: dict[str, LabelAxis] = {}
        for part in self.parts:
            if part.label_axes is None:
                return None
            axes |= part.label_axes
        return axes

    def heads(self, config: EncoderConfig) -> dict[str, nn.Module]:
        """Returns the heads of all objectives."""
        return {name: head for part in self.parts for name, head in part.heads(config).items()}

    def corrupt(self, batch: Sequences, rng: Draws, vocabulary: Vocabulary) -> Sequences:
        """Applies all objectives in order. Each draws from its own random streams."""
        for part in self.parts:
            batch = part.corrupt(batch, rng, vocabulary)
        return batch

    def counts(self, batch: Batch) -> dict[str, int]:
        """Returns the counts of all objectives."""
        return {name: count for part in self.parts for name, count in part.counts(batch).items()}

    def loss(self, model: "TorchModel", output: "EncoderOutput", batch: Batch) -> LossReport:
        """Returns the losses of all objectives."""
        return {name: part for each in self.parts for name, part in each.loss(model, output, batch).items()}

    def forward(self, model: "TorchModel", batch: Batch) -> "EncoderOutput":
        """Runs the model as the objective with a forward pass of its own does."""
        for part in self.parts:
            if part.own_forward:
                return part.forward(model, batch)
        return super().forward(model, batch)

    def read(self, batch: Batch) -> Tensor | None:
        """Returns the tokens of all objectives, or None when one of them reads all."""
        reads = [part.read(batch) for part in self.parts]
        if any(read is None for read in reads):
            return None
        tokens = [read for read in reads if read is not None and len(read)]  # none: of the summary tokens alone
        return torch.cat(tokens) if tokens else reads[0]

    def answers(self, batch: Sequences) -> dict[int, list[int]]:
        """Returns the expected predictions of all objectives."""
        return {place: answer for part in self.parts for place, answer in part.answers(batch).items()}

    def describe_labels(self, batch: Sequences) -> list[str]:
        """Returns the labels of all objectives."""
        return [verdict for part in self.parts for verdict in part.describe_labels(batch)]

    @property
    def reads(self) -> dict[str, str]:
        """The model folders of all objectives."""
        return {option: folder for part in self.parts for option, folder in part.reads.items()}

    def load_dependencies(self, load: OpensModel) -> "Sum":
        """Loads the dependencies of all objectives."""
        return Sum(tuple(part.load_dependencies(load) for part in self.parts))

    def prepare(self, model: "TorchModel", seed: int) -> None:
        """Adds the modules of all objectives."""
        for part in self.parts:
            part.prepare(model, seed)

    def models_to_save(self, model: "TorchModel") -> "dict[str, TorchModel]":
        """Returns the models of all objectives. Each objective receives the model that the previous one returned."""
        models = {"model": model}
        for part in self.parts:
            models |= part.models_to_save(models["model"])
        return models

    def extra_cost(self, config: EncoderConfig, *, length: float, shares: Mapping[str, float]) -> dict[str, float]:
        """Returns the operations of all objectives."""
        costs = [part.extra_cost(config, length=length, shares=shares) for part in self.parts]
        return {name: flops for each in costs for name, flops in each.items()}

    def vector_labels(self, vectors: NDArray[np.float32]) -> Mapping[str, NDArray[np.generic]]:
        """Returns the labels of all objectives."""
        return {name: array for part in self.parts for name, array in part.vector_labels(vectors).items()}

    @property
    def pairing(self) -> Pairing | None:
        """The pairing of the one objective that has one."""
        return next((part.pairing for part in self.parts if part.pairing is not None), None)

    @property
    def corruption_cycle(self) -> int | None:
        """The cycle of the first objective that has one."""
        return next((part.corruption_cycle for part in self.parts if part.corruption_cycle is not None), None)

    def check(self, sentences: Sentences) -> None:
        """Runs the checks of all objectives."""
        for part in self.parts:
            part.check(sentences)
