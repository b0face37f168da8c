"""A mixture of several corpora: languages of different sizes, or a domain with general text.

The corpus of sample n is computed: each block of BLOCK samples has a fixed number of samples from each corpus, in an
order drawn from (seed, block). The two texts of a pair are always from one corpus.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import xxhash
from numpy.typing import NDArray

from bertie.errors import UsageError
from bertie.models.batch import Batch
from bertie.objectives.source import CorpusSource, micro_batches
from bertie.order import Draws, Int, key, number_samples, permutation
from bertie.text.sequences import Sequences

MIXTURE_BLOCK = 1 << 16  # samples: a share is kept to 1/65,536
STREAM = 0x317  # of the draws of a block's order


def shares(weights: Sequence[float | None], sizes: Sequence[int], exponent: float) -> list[float]:
    """Returns the fraction of each corpus: by its weight, or, without weights, by its size to the power of `exponent`.

    With an exponent below 1, small corpora are sampled more often (Conneau et al. 2020, 3.1: 0.3). Raises UsageError
    when only some corpora have a weight.
    """
    known = [weight for weight in weights if weight is not None]
    if known and len(known) < len(weights):
        raise UsageError("Only some corpora have a weight. Give all of them a weight, or none.")
    values = np.array(known) if known else np.array(sizes, float) ** exponent
    return [float(share) for share in values / values.sum()]


class Mixture:
    """A source whose samples come from several sources, by `shares`. first: as of `CorpusSource`."""

    def __init__(
        self,
        sources: Mapping[str, CorpusSource],
        shares: Sequence[float],
        *,
        batch_size: int,
        micro_batch_size: int | None = None,
        seed: int = 0,
        first: int = 0,
    ) -> None:
        self.sources = dict(sources)
        self.batch_size, self.micro_batch_size, self.seed, self.first = batch_size, micro_batch_size, seed, first
        self.quotas = quotas(shares)
        self._bounds = np.concatenate([[0], np.cumsum(self.quotas)])

    @property
    def fingerprint(self) -> str:
        """Changes with the sources, their fractions, the seed and the batches."""
        parts = [source.fingerprint for source in self.sources.values()]
        numbers = (self.quotas.tolist(), self.batch_size, self.seed, self.first)
        return xxhash.xxh3_128_hexdigest(repr((parts, numbers)).encode())

    def at(self, ids: Int) -> tuple[Int, Int]:
        """Returns the origin of samples. ids (N,) -> number of the source (N,), index in its order (N,)"""
        blocks, within = np.divmod(ids, MIXTURE_BLOCK)
        places_N = np.empty_like(ids)
        for block in np.unique(blocks):
            here = blocks == block
            places_N[here] = permutation(MIXTURE_BLOCK, key(self.seed, STREAM, block))[within[here]]
        which_N = np.searchsorted(self._bounds, places_N, side="right") - 1
        return which_N, blocks * self.quotas[which_N] + places_N - self._bounds[which_N]

    def batches(self, step: int, *, rank: int = 0, world: int = 1) -> list[Batch]:
        """Returns the micro-batches of step `step` (from 0) on one of `world` ranks. Each has the corpora in order."""
        ids = number_samples(step, self.batch_size, rank=rank, world=world, first=self.first)
        return [self._batch(part) for part in micro_batches(ids, self.micro_batch_size)]

    def _batch(self, ids: Int) -> Batch:
        which, there = self.at(ids)
        parts = [
            source.instances(there[which == number], ids[which == number])
            for number, source in enumerate(self.sources.values())
            if (which == number).any()
        ]
        rng = Draws(np.concatenate([draws.keys for _, draws in parts]))
        return next(iter(self.sources.values())).corrupted(Sequences.joined([part for part, _ in parts]), rng)

    def validation_batches(self) -> list[Batch]:
        """Returns the validation batches of all sources."""
        return [batch for source in self.sources.values() for batch in source.validation_batches()]

    def examples(self, count: int = 3) -> list[str]:
        """Returns the first training instances of each source as readable text."""
        return [example for source in self.sources.values() for example in source.examples(count)]


def quotas(shares: Sequence[float]) -> NDArray[np.int64]:
    """Returns how many of BLOCK samples each corpus has: rounded numbers with the right sum, at least one each."""
    exact = np.array(shares) * MIXTURE_BLOCK
    counts: NDArray[np.int64] = np.maximum(np.floor(exact).astype(np.int64), 1)
    short = MIXTURE_BLOCK - int(counts.sum())
    counts[np.argsort(counts - exact, kind="stable")[: max(short, 0)]] += 1
    counts[np.argmax(counts)] += min(short, 0)  # what the one at the least took
    return counts
