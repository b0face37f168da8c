"""`Facts`: what one must know of a model to use it, whatever runs it. Imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bertie.models.head_config import Rows

if TYPE_CHECKING:
    from bertie.models.model import Model

POOLED = ("mean", "cls", "max")
"""A sequence's hidden states in one vector (models/pooling.py)."""
OF_ENCODER: Mapping[str, Rows] = {
    "last_hidden_state": "token",
    **dict.fromkeys(("pooler_output", *POOLED), "sequence"),
}
"""The arrays that every model gives."""


@dataclass(frozen=True)
class Facts:
    """A model as its users see it. heads: how many outputs each has, by name; labels: what those of a classifier mean.

    rows: what a row of a head's logits answers for; a sequence where nothing is said.
    max_length: tokens it reads at once. device, precision: where, and in which numbers, it is computed.
    """

    max_length: int
    hidden_size: int
    heads: Mapping[str, int]
    labels: tuple[str, ...] = ()
    problem_type: str | None = None
    device: str = "cpu"
    precision: str = "float32"
    rows: Mapping[str, Rows] = field(default_factory=dict)

    @property
    def outputs(self) -> dict[str, Rows]:
        """Every array the model can give, by name, with what its rows are. A head's name stands for its logits."""
        return {**OF_ENCODER, **{name: self.rows.get(name, "sequence") for name in self.heads}}

    def label_names(self, head: str) -> tuple[str, ...]:
        """The labels of a head, by the public layout's default where they have no names."""
        return self.labels or tuple(f"LABEL_{number}" for number in range(self.heads[head]))


def facts_of(model: "Model") -> Facts:
    """The facts of a model in torch."""
    weights = next(model.parameters())

    def outputs(name: str) -> int:
        found = [weight for key, weight in model.heads[name].named_parameters() if key == "classifier.weight"]
        return len(found[0]) if found else model.config.vocab_size

    return Facts(
        model.config.max_length,
        model.config.hidden_size,
        {name: outputs(name) for name in model.heads},
        model.labels,
        model.problem_type,
        str(weights.device),
        str(model.compute_dtype or weights.dtype).removeprefix("torch."),
        {name: getattr(head, "rows", "sequence") for name, head in model.heads.items()},
    )
