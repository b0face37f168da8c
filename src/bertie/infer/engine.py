"""`Engine`: protocol of what runs a model. It takes a batch of ids and returns named arrays.

    Sequences -> Engine.run -> {"sequence": (B, L)}, {"last_hidden_state": (T, H)}, {"mlm": (N, V)} ...

Predict, evaluate, embed, fill-mask, perplexity, benchmarks and servers use this protocol. torch_engine.py is the engine
for PyTorch. batching.py makes the batches. An `Ensemble` is several models of one task: the mean of their logits.

B sequences · T tokens · N requested positions · H hidden size · L outputs of a head · V vocabulary
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from bertie.errors import UnknownName, UsageError, WrongValue, nearest
from bertie.models.facts import Facts
from bertie.registry import Later, Registry
from bertie.text.sequences import Sequences

if TYPE_CHECKING:
    from bertie.models.model import TorchModel
    from bertie.text.tokenizer import Tokenizer

__all__ = [
    "ENGINES",
    "PRECISIONS",
    "Array",
    "Engine",
    "Facts",
    "Sequences",
    "check_max_length",
    "check_names",
]

Array = NDArray[np.float32]
OpenEngine: TypeAlias = "Callable[[TorchModel], Engine]"
"""Makes the engine of a model, in the precision of its `compute_dtype`. Raises UsageError for one it cannot run."""
ENGINES: Registry[OpenEngine] = Registry(
    "engine",
    [
        ("torch", Later("bertie.infer.torch_engine", "TorchEngine")),
        ("native", Later("bertie.infer.choose", "open_native")),
    ],
    group="bertie.engines",
)
PRECISIONS = ("fp32", "bf16", "auto")


def check_names(precision: str, engine: str = "auto") -> str:
    """Returns the name of the engine; auto: the faster of Bertie's own. Raises UsageError for an unknown precision or
    engine."""
    if engine != "auto" and engine not in ENGINES:
        raise UnknownName(f"Unknown engine {engine!r}. {nearest(engine, ['auto', *ENGINES])}")
    if precision not in PRECISIONS:
        raise UnknownName(f"Unknown precision {precision!r}. {nearest(precision, PRECISIONS)}")
    return engine


def check_max_length(max_length: int | None, positions: int) -> None:
    """Raises UsageError for what is not a number of tokens that a model with these positions can read."""
    if max_length is not None and not (isinstance(max_length, Integral) and 3 < max_length <= positions):
        raise WrongValue(
            f"max_length is {max_length!r:.60}; it must be 4 to {positions:,}, the number of positions of the model."
        )


@runtime_checkable
class Engine(Protocol):
    """A model that is ready for inference. It has no state between batches."""

    @property
    def facts(self) -> Facts:
        """The properties of the model: outputs, labels, maximum length, device and precision."""
        ...

    def run(self, ids: Sequences, outputs: Sequence[str]) -> Mapping[str, NDArray[Any]]:
        """Computes one batch.

        The whole batch is computed at once, so the caller must limit its size. The rows of a sequence depend on the
        other sequences of the batch only by rounding (2e-6 in float32).

        Args:
            ids: The token ids of the batch.
            outputs: Names of the requested arrays, from `facts.outputs`.

        Returns:
            Name -> float32 array. A row belongs to a token, a sequence or a position, as `facts.outputs` defines.
        """
        ...


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
