"""Runs any number of sequences through an engine, in batches of bounded size and similar length.

    Sequences -> batches by token budget, longest first -> Engine.run -> arrays in the order of the sequences

The cost of a batch is its padded size, count x longest. A server calls `cost` before it accepts a request, and
`batches` to group the accepted ones.
"""

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from bertie.infer.engine import Array, Engine
from bertie.models.facts import BATCH_TOKENS
from bertie.text.sequences import Int, Sequences, token_budget

CHUNK_ROWS = 1024  # rows encoded and sorted by length together: enough to find neighbors of similar length
GPU_CHUNK_ROWS = 16_384  # some batches of a GPU
_TOKENS = BATCH_TOKENS

_T = TypeVar("_T")


def cost(lengths: ArrayLike) -> int:
    """Returns the cost of sequences of these lengths in one batch: the tokens of the padded batch."""
    lengths = np.asarray(lengths)
    return int(lengths.size * lengths.max(initial=0))


def batches(lengths: ArrayLike, *, max_tokens: int = _TOKENS, max_sequences: int | None = None) -> list[Int]:
    """Groups sequences of similar length, with at most `max_tokens` per group unless a single sequence is longer."""
    return token_budget(lengths, max_tokens=max_tokens, max_sequences=max_sequences)


def run_batches(
    engine: Engine, ids: Sequences, outputs: Sequence[str], *, max_tokens: int | None = None
) -> dict[str, Array]:
    """Returns the arrays of all sequences, with rows in the order of `ids`.

    The memory is that of the requested arrays and of one batch, or two on a GPU, which computes one while the next one
    is prepared. Without sequences, the arrays are empty, with width 0.
    """
    results: dict[str, Array] = {name: np.zeros((0, 0), np.float32) for name in outputs}
    facts = engine.facts
    rows = {name: facts.rows_of(name) for name in outputs}
    whole = {"token": len(ids.input_ids), "sequence": len(ids), "position": len(ids.positions)}
    parts = batches(ids.lengths, max_tokens=max_tokens or facts.batch_tokens)
    for sequences, arrays in _computed(engine, ids, outputs, parts, ahead=facts.on_gpu):
        at = {"token": ids.rows, "sequence": lambda chosen: chosen, "position": ids.position_rows}
        for name, array in arrays.items():
            if not results[name].size:
                results[name] = np.zeros((whole[rows[name]], *array.shape[1:]), np.float32)
            results[name][at[rows[name]](sequences)] = array
    return results


def _computed(
    engine: Engine, ids: Sequences, outputs: Sequence[str], parts: Iterable[Int], *, ahead: bool
) -> Iterator[tuple[Int, Mapping[str, Array]]]:
    """Yields the sequences of each batch with its arrays. ahead: whether the next batch is started before."""
    start = getattr(engine, "start", None) if ahead else None
    if start is None:
        yield from ((part, engine.run(ids.take(part), outputs)) for part in parts)
        return
    started: tuple[Int, Callable[[], Mapping[str, Array]]] | None = None
    for part in parts:
        before, started = started, (part, start(ids.take(part), outputs))
        if before is not None:
            yield before[0], before[1]()
    if started is not None:
        yield started[0], started[1]()


def one_ahead(items: Iterable[_T]) -> Iterator[_T]:
    """Yields items. A thread makes the next one meanwhile."""
    iterator, end = iter(items), object()
    with ThreadPoolExecutor(1, "ahead") as pool:
        following = pool.submit(next, iterator, end)
        while (item := following.result()) is not end:
            following = pool.submit(next, iterator, end)
            yield item  # type: ignore[misc] # not the end


def chunks_of_tokens(items: Iterable[_T], most: int, size: Callable[[_T], int]) -> Iterator[list[_T]]:
    """Yields lists of consecutive items of at most `most` tokens together, or one item that is longer."""
    chunk: list[_T] = []
    tokens = 0
    for item in items:
        if chunk and tokens + size(item) > most:
            yield chunk
            chunk, tokens = [], 0
        chunk.append(item)
        tokens += size(item)
    if chunk:
        yield chunk


def chunks(items: Iterable[_T], size: int) -> Iterator[list[_T]]:
    """Yields lists of `size` items; the last one may be shorter."""
    chunk: list[_T] = []
    for item in items:
        chunk.append(item)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def as_they_come(items: Iterable[_T], size: int) -> Iterator[list[_T]]:
    """Yields lists of the items that have arrived since the last one: 1 to `size` items. A thread waits for items."""
    arrived: queue.Queue[_T | _End] = queue.Queue(maxsize=size)

    def read() -> None:
        error = None
        try:
            for item in items:
                arrived.put(item)
        except BaseException as caught:
            error = caught
        arrived.put(_End(error))

    threading.Thread(target=read, daemon=True).start()
    while True:
        chunk: list[_T] = []
        item = arrived.get()
        while not isinstance(item, _End):
            chunk.append(item)
            if len(chunk) == size or arrived.empty():
                break
            item = arrived.get()
        if chunk:
            yield chunk
        if isinstance(item, _End):
            if item.error:
                raise item.error
            return


@dataclass(frozen=True)
class _End:
    error: BaseException | None
