"""The loss of rows as a value: cross-entropy or focal, smoothed or not, weighted, or a function of the user.

    sum over rows of weight * loss,  sum of weights      (fit divides once, at the end of a step)

A weight is the product of that of the row and that of its label. Both enter the sum and the count, so one batch of 64
equals 4 of 16, and the mean is that of torch's `cross_entropy(weight=...)`.

B rows · L labels
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from bertie.errors import UnknownLabel, UsageError, WrongValue, nearest

if TYPE_CHECKING:
    from torch import Tensor

ClassWeights = Literal["balanced"] | Mapping[str, float] | None
LossFunction = Callable[["Tensor", "Tensor", "Tensor"], "tuple[Tensor, Tensor | float]"]
"""(logits (B, L), labels (B,) or (B, L), weights (B,)) -> the sum over rows, and the count that it is divided by. The
count must not depend on the logits."""
_MIN_COMPLEMENT = 1e-6  # of 1 - p, whose power below 1 would have an infinite slope at 0


@dataclass(frozen=True)
class LossOptions:
    """How rows count in the loss of a run.

    kind: focal is cross-entropy times (1 - p)^gamma, p the probability of the right label (Lin et al. 2017, 3.1).
    smoothing: share of a target that all labels have in equal parts (Szegedy et al. 2016, 7). class_weights: by label,
    1 where there is none. function: instead of the task's own loss.
    """

    kind: Literal["usual", "focal", "function"] = "usual"
    gamma: float = 2.0
    smoothing: float = 0.0
    class_weights: Mapping[str, float] = field(default_factory=dict)
    function: LossFunction | None = None

    def of_labels(self, logits_BL: "Tensor", labels_B: "Tensor") -> "Tensor":
        """Returns the loss of each row, which has one of L labels, in nats. (B,)"""
        from torch.nn.functional import cross_entropy, log_softmax

        loss_B = cross_entropy(logits_BL, labels_B, reduction="none", label_smoothing=self.smoothing)
        if self.kind == "focal":
            p_B = log_softmax(logits_BL, -1).gather(1, labels_B[:, None])[:, 0].exp()
            loss_B = loss_B * (1 - p_B).clamp_min(_MIN_COMPLEMENT) ** self.gamma
        return loss_B

    def of_decisions(self, logits_BL: "Tensor", has_BL: "Tensor") -> "Tensor":
        """Returns the loss of each decision, yes or no for every label, in nats. (B, L)"""
        from torch.nn.functional import binary_cross_entropy_with_logits

        loss_BL = binary_cross_entropy_with_logits(logits_BL, has_BL, reduction="none")
        if self.kind == "focal":
            p_BL = ((2 * has_BL - 1) * logits_BL).sigmoid()
            loss_BL = loss_BL * (1 - p_BL).clamp_min(_MIN_COMPLEMENT) ** self.gamma
        return loss_BL

    def total(
        self, usual: "Callable[[Tensor, Tensor], Tensor]", logits_BL: "Tensor", labels: "Tensor", weights_B: "Tensor"
    ) -> "Tensor":
        """Returns the sum over rows. usual: the loss of each row, (B,) or (B, L), where no function replaces it."""
        if self.function is None:
            loss = usual(logits_BL, labels)
            total: Tensor = (weights_B * (loss.sum(-1) if loss.dim() > 1 else loss)).sum()
            return total
        return _called(self.function, logits_BL, labels, weights_B)[0]

    def count(self, labels: "Tensor", weights_B: "Tensor", outputs: int) -> float:
        """Returns what the sum is divided by, without logits: the sum of weights, or what the function returns."""
        if self.function is None:
            return float(weights_B.double().sum())
        return float(_called(self.function, weights_B.new_zeros(len(weights_B), outputs), labels, weights_B)[1])


def _called(
    function: LossFunction, logits_BL: "Tensor", labels: "Tensor", weights_B: "Tensor"
) -> "tuple[Tensor, Tensor | float]":
    result: object = function(logits_BL, labels, weights_B)
    if not isinstance(result, tuple) or len(result) != 2 or getattr(result[0], "shape", None) != ():
        raise UsageError(
            f"The loss function returned {type(result).__name__}; a tuple (sum, count) was expected, of which sum "
            "is a tensor without dimensions."
        )
    total, count = result
    return total, count


def class_weights_of(chosen: ClassWeights, labels: Iterable[str], train: Iterable[str]) -> dict[str, float]:
    """Returns the weight of each label. balanced: so that all labels weigh the same, N / (L * count of the label).

    labels: all labels; train: those of the training examples. Raises UsageError for unknown labels, and for weights
    that are negative, not finite or all 0.
    """
    counts = Counter(train)
    if chosen is None:
        return {}
    if isinstance(chosen, str):  # balanced
        return {label: sum(counts.values()) / (len(counts) * count) for label, count in counts.items()}
    known = set(labels)
    for label, weight in chosen.items():
        if label not in known:
            raise UnknownLabel(f"class_weights has {label!r}, which is no label. {nearest(label, known)}")
        if not 0 <= weight < float("inf"):
            raise WrongValue(
                f"class_weights: the weight of {label!r} is {weight:g}; a number of 0 or more was expected."
            )
    if not any(chosen.get(label, 1.0) for label in counts):
        raise UsageError("class_weights: all labels of the training examples have the weight 0. Raise one of them.")
    return {str(label): float(weight) for label, weight in chosen.items()}
