"""What a loss is before anything is divided: objectives and tasks return it, `fit` divides.

So one batch of 64 equals 4 of 16 equals 2 ranks of 32, whatever the mask counts.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class LossTerm:
    """One part of a loss: `total` is the sum over `count` predictions, in nats; `correct` of them were right.

    weight: of this part among the others; figures of a part are told without it.
    """

    total: Tensor
    count: int
    correct: Tensor | None = None
    weight: float = 1.0


LossReport = Mapping[str, LossTerm]
"""Loss name -> LossTerm. The loss of a step is the sum over parts of weight * sum of totals / sum of counts."""
