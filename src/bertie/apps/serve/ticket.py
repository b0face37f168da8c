"""`Ticket`: what a request holds of a model and of the budgets of the server, and what it took so far."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from bertie.apps.serve.admission import Admission
from bertie.apps.serve.batcher import Failed
from bertie.apps.serve.errors import Refusal
from bertie.apps.serve.remote import OnToken
from bertie.apps.serve.served import Served
from bertie.platform import Sequences

_T = TypeVar("_T")
_POOL = ThreadPoolExecutor(2, "bertie-text")


@dataclass
class RequestUsage:
    """What a request took: texts, their characters and tokens, truncated ones, and times in seconds."""

    texts: int = 0
    characters: int = 0
    tokens: int = 0
    truncated: int = 0
    tokenization_s: float = 0.0
    queue_s: float = 0.0
    inference_s: float = 0.0

    @property
    def model_s(self) -> float:
        """Seconds in the queue and in the model."""
        return self.queue_s + self.inference_s


@dataclass(eq=False)
class Ticket:
    """A place of one request. As a context it keeps the model from being stopped, and gives back what is held."""

    model: Served
    admission: Admission
    usage: RequestUsage = field(default_factory=RequestUsage)
    held: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        self.model.calls += 1
        self.held.callback(self._leave)
        return self

    def __exit__(self, *error: object) -> None:
        self.held.close()

    def _leave(self) -> None:
        self.model.calls -= 1

    def take(self, texts: int) -> None:
        """Admits a number of texts. Raises Refused."""
        self.admission.check_wait(self.model.name)
        self.usage.texts += texts
        self.held.enter_context(self.admission.hold(self.admission.texts, texts, self.model.name))

    def take_bytes(self, size: int) -> None:
        """Admits a large response. Raises Refused, and Refusal if it exceeds half of the whole budget."""
        budget = self.admission.content
        if size > budget.most // 2:
            raise Refusal(
                "TooLarge", f"The answer would take {size:,} bytes. Send the request in parts.", reason="answer"
            )
        self.held.enter_context(self.admission.hold(budget, size, self.model.name))

    def first_batch(self, tokens: int, longest: int) -> AbstractContextManager[None]:
        """Returns the context of a request in progress. Later requests wait for its first batch, not for all of it."""
        return self.admission.put_ahead(self.model.name, min(tokens, max(longest, self.model.batcher.budget)))

    async def arrays(
        self, ids: Sequences, outputs: Sequence[str], on_token: OnToken | None = None
    ) -> dict[str, NDArray[np.float32]]:
        """Returns the model's arrays, or hands over the tokens of a text as they are generated.

        Raises Refusal when a budget is spent or the model fails.
        """
        tokens, name, usage = len(ids.input_ids), self.model.name, self.usage
        budget = self.admission.tokens[name]
        if tokens > budget.most:
            raise Refusal(
                "TooLarge",
                f"The request has {tokens:,} tokens; the server takes {budget.most:,} at once. Send it in parts.",
                reason="tokens",
            )
        with self.admission.hold(budget, tokens, name), self.first_batch(tokens, int(ids.lengths.max(initial=0))):
            try:
                arrays, job = await self.model.batcher.run(ids, outputs, on_token, self.model.adapter)
            except Failed as error:
                raise Refusal("Backend", str(error)) from None
        usage.tokens += tokens
        usage.queue_s += job.waited_s
        usage.inference_s += job.ran_s
        return arrays

    async def in_thread(self, work: Callable[[], _T], *, inline: bool) -> _T:
        """Does small work here, in turn, and other work in a thread, so that the server continues meanwhile."""
        if not inline:
            return await asyncio.get_running_loop().run_in_executor(_POOL, work)
        async with self.admission.turn:
            await asyncio.sleep(0)  # the loop answers what has arrived
            return work()
