"""`Learner`: the head, the targets and the loss of a task. torch is imported when it is needed.

examples, Sequences -> targets -> Batch -> EncoderOutput -> logits -> losses (fit: runs/finetune.py)
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

from bertie.io.tables import Example
from bertie.models.config import EncoderConfig
from bertie.models.heads import HEADS
from bertie.models.loss import LabelAxis
from bertie.models.sentence import SentenceModules
from bertie.tasks.losses import LossOptions
from bertie.tasks.source import Targets, batch_of_examples
from bertie.text.sequences import Arrays, Sequences

if TYPE_CHECKING:
    from torch import Tensor, nn

    from bertie.models.batch import Batch
    from bertie.models.encoder import EncoderOutput
    from bertie.models.loss import LossReport
    from bertie.models.model import TorchModel


class Learner(ABC):
    """The part of a task that is trained, with the same interface as an objective, so that `fit` runs both.

    labels: the names of the head's outputs, where they have names; output: the name of the head in `TorchModel.heads`.
    """

    labels: tuple[str, ...]
    label_axes: ClassVar[Mapping[str, LabelAxis] | None] = None
    """The axis of each target in a batch, where the loss multiplies by targets named "weight"; None: unknown."""
    honours: ClassVar[frozenset[str]] = frozenset()
    """Settings of a run about weights of rows and labels that the task follows: weight, class_weights, sampling ..."""
    whole_step: ClassVar[bool] = False
    """Whether the loss compares all examples of a step, so that it needs the logits of all micro-batches at once."""
    loss_options: ClassVar[LossOptions] = LossOptions()
    """How rows count in the loss: those of a run by `with_loss`."""

    @property
    @abstractmethod
    def output(self) -> str:
        """The name of its head, which determines the class in config.json."""

    def heads(self, config: EncoderConfig) -> "dict[str, nn.Module]":
        """Returns a new head, by its name in `TorchModel.heads`."""
        return {self.output: HEADS[self.output](config, len(self.labels))}

    def overrides(self, sentence: SentenceModules) -> dict[str, Any]:
        """Returns settings of the encoder's config that the task needs. sentence: how the start model pools texts."""
        return {}

    def continued(self, sentence: SentenceModules, explicit: Collection[str] = ()) -> tuple[Self, list[str]]:
        """Returns the task with the settings of a sentence model that a run starts from, and notes about them.

        explicit: names of options of the user, which remain.
        """
        return self, []

    def with_loss(self, options: LossOptions) -> Self:
        """Returns the task with another loss of its rows."""
        task = copy.copy(self)
        object.__setattr__(task, "loss_options", options)
        return task

    @abstractmethod
    def targets(self, examples: Sequence[Example], encoded: Sequences) -> Targets:
        """Returns the targets: arrays of W rows (per sequence) or T rows (per token), which become `Batch.labels`.

        An example with an unknown label must have weight 0, since dev files may have such labels.
        """

    @classmethod
    def sequences(cls, examples: Sequence[Example] | None) -> float:
        """Returns the mean number of sequences that an example is. examples: None for those of a published set."""
        return 1

    @classmethod
    def generated(cls, options: Mapping[str, object]) -> int:
        """Returns the most tokens that a model learns to generate for an example. options: settings of the task."""
        return 0

    def written(self, targets: Targets) -> int:
        """Returns the tokens that a model learns to generate besides the text, for the cost of a run."""
        return 0

    def cut_targets(self, examples: Sequence[Example], targets: Targets) -> str:
        """Returns a note on targets that are truncated; "" for none."""
        return ""

    @abstractmethod
    def counts(self, batch: "Batch") -> Mapping[str, float]:
        """Returns the number of predictions in this batch by loss name, or the sum of their weights, without running
        the model."""

    def forward(self, model: "TorchModel", batch: "Batch") -> "EncoderOutput":
        """Runs the encoder on a batch."""
        return model.encode_for(self.output, batch)

    def computed(self, model: "TorchModel", encoded: Sequences) -> Arrays:
        """Returns arrays of T rows that do not change during training, by their names in `Batch.labels`."""
        return {}

    def companions(self) -> "dict[str, nn.Module]":
        """Returns modules that are trained beside the model and are no heads of it, by name."""
        return {}

    def reload(self, model: "TorchModel", options: Mapping[str, object]) -> None:  # noqa: B027  (most tasks have none)
        """Takes what `settle` set from the settings of a saved task."""

    def settle(self, model: "TorchModel", encoded: Sequences, targets: Targets) -> None:  # noqa: B027  (most tasks set none)
        """Sets weights that the loss does not train, before each evaluation and before the model is saved.

        encoded, targets: the training examples. The model is in evaluation mode.
        """

    def logits(self, model: "TorchModel", output: "EncoderOutput") -> "Tensor":
        """Returns the head's output. -> (B, L), or (T, L) for token labels"""
        return model.logits(self.output, output)

    @abstractmethod
    def losses(self, logits: "Tensor", batch: "Batch") -> "LossReport":
        """Returns the losses as sums and counts. `fit` divides once, at the end of a step."""

    def dev_losses(self, model: "TorchModel", encoded: Sequences, targets: Targets, logits: "Tensor") -> "LossReport":
        """Returns the losses of dev examples. logits: the array that the engine computed for them."""
        import numpy as np

        return self.losses(logits, batch_of_examples(encoded, np.arange(len(encoded.lengths)), targets))

    def loss(self, model: "TorchModel", output: "EncoderOutput", batch: "Batch") -> "LossReport":
        """Returns the losses for the encoder's output, as `fit` needs them."""
        return self.losses(self.logits(model, output).float(), batch)
