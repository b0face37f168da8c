"""`Engine`: what runs a model. A batch of ids in, named arrays out; nothing else of the model is seen from here on.

    Ids -> Engine.run -> {"sequence": (B, L)}, {"last_hidden_state": (T, H)}, {"mlm": (N, V)} ...

Everything that uses a model stands on this: predict, evaluate, embed, fill-mask, perplexity, a benchmark, a server. The
path through torch is the first engine (torch_engine.py). Batches are made in batching.py.

B sequences · T tokens · N places that are asked · H hidden size · L outputs of a head · V vocabulary
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from bertie.data.ids import Ids
from bertie.models.facts import Facts

__all__ = ["Array", "Engine", "Facts", "Ids"]

Array = NDArray[np.float32]


@runtime_checkable
class Engine(Protocol):
    """A model that is ready to be used. It keeps no state between batches."""

    @property
    def facts(self) -> Facts:
        """What the model is, which arrays it gives, where and in which numbers it is computed."""
        ...

    def run(self, ids: Ids, outputs: Sequence[str]) -> Mapping[str, NDArray[Any]]:
        """Those of `facts.outputs` that are asked for, float32, for one batch.

        A row is a token's, a sequence's or a place's, as `facts.outputs` says, in the order of `ids`. The whole batch
        is computed at once: its memory is the caller's to bound. A sequence's rows do not depend on the others of the
        batch beyond the rounding of sums (2e-6 in float32).
        """
        ...
