"""Several models of one task as one engine: the mean of their logits."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bertie.data.sequences import Sequences
from bertie.errors import UsageError
from bertie.infer.engine import Engine, Facts

if TYPE_CHECKING:
    from bertie.text.tokenizer import Tokenizer


class Ensemble:
    """An engine that runs several engines on the same token ids, and returns the mean of each array.

    Args:
        engines: Two or more engines of one task.
        tokenizers: Their tokenizers, in the same order.

    Raises:
        UsageError: The models have different labels, heads, tokenizers or settings of features, or generate text.
    """

    def __init__(self, engines: Sequence[Engine], tokenizers: "Sequence[Tokenizer | None]") -> None:
        self._engines, first = tuple(engines), engines[0].facts
        if first.writes:
            raise UsageError("An ensemble is the mean of logits, so it needs models that predict, not ones that write.")
        for number, (engine, tokenizer) in enumerate(zip(engines, tokenizers, strict=True), 1):
            for what, one, other in (
                ("labels", first.labels, engine.facts.labels),
                ("heads", dict(first.heads), dict(engine.facts.heads)),
                ("tokenizers", _identity(tokenizers[0]), _identity(tokenizer)),
                ("settings of features", first.training_facts.features, engine.facts.training_facts.features),
            ):
                if one != other:
                    raise UsageError(
                        f"The models of an ensemble need the same {what}; model {number} has others than model 1. "
                        "Combine runs that differ in the seed or the training, for example of --seeds."
                    )
        self._facts = replace(first, max_length=min(engine.facts.max_length for engine in engines))

    @property
    def facts(self) -> Facts:
        """The properties of the first model, with the smallest maximum length."""
        return self._facts

    def run(self, ids: Sequences, outputs: Sequence[str]) -> Mapping[str, NDArray[Any]]:
        """Computes one batch with every model. -> the mean of each array"""
        parts = [engine.run(ids, outputs) for engine in self._engines]
        return {name: np.stack([arrays[name] for arrays in parts]).mean(0, dtype=np.float32) for name in outputs}


def _identity(tokenizer: "Tokenizer | None") -> str:
    return tokenizer.fingerprint if tokenizer else ""
