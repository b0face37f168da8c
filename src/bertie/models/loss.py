"""Losses before division: objectives and tasks return sums, and `fit` divides.

So one batch of 64 equals 4 of 16 equals 2 ranks of 32, whatever the masks. Tasks import this without torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

LabelAxis = Literal["sequence", "token", "sequence_target", "prediction_target", "position"]
"""What a row of a label is: of a sequence, a token, or a prediction. Targets without a weight are `NO_TARGET` where
they do not count, and all others have the weight 0. position: of a prediction in input_ids."""


@dataclass(frozen=True)
class LossTerm:
    """One term of a loss: `total` is the sum over `count` predictions, in nats; `correct` of them were right.

    Where predictions have weights, all three are sums of weights.

    weight: of this term among the others. Metrics are reported without it.
    """

    total: "Tensor"
    count: float
    correct: "Tensor | None" = None
    weight: float = 1.0


LossReport = Mapping[str, LossTerm]
"""Loss name -> LossTerm. The loss of a step is the sum over terms of weight * sum of totals / sum of counts."""


def right(logits: "Tensor", targets: "Tensor") -> "Tensor":
    """Returns whether the target's logit is above all others; a tie is not correct. (..., L), (...) int64 -> (...)
    bool"""
    target = logits.gather(-1, targets[..., None])
    return (logits >= target).sum(-1) == 1
