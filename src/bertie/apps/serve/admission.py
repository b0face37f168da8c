"""Admission control: bounded numbers of texts, tokens, bytes and seconds of waiting. Others are refused at once.

A place is taken before work is done for it and given back when the answer has left, whatever became of it.
"""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from bertie.apps.serve.errors import Refused


@dataclass
class Budget:
    """A bounded amount of one resource. waiting: those that wait for their client, and what ends them.

    A client that sends or reads slowly cannot keep others out: its request is ended when the amount is needed.
    """

    name: str
    most: int
    used: int = 0
    waiting: dict["Held", Callable[[], None]] = field(default_factory=dict)

    def take(self, amount: int, retry_after_s: float) -> None:
        """Takes an amount, or raises Refused. An amount above the whole budget is admitted alone."""
        self.make_room(amount)
        if self.used and self.used + amount > self.most:
            message = f"The server is busy: {self.used:,} of {self.most:,} {self.name} are in use. Try again later."
            raise Refused(self.name, message, retry_after_s)
        self.used += amount

    def make_room(self, amount: int) -> None:
        """Ends those that hold most for longest without progress, until an amount is free or nobody waits."""
        while self.used and self.used + amount > self.most and self.waiting:
            now = time.monotonic()
            held = max(self.waiting, key=lambda one: one.amount * (now - one.since))
            if not held.amount:
                return
            end = self.waiting.pop(held)
            held.give()
            end()

    def give(self, amount: int) -> None:
        """Returns an amount."""
        self.used -= amount


@dataclass(eq=False)
class Held:
    """What one request holds of a budget. since: when its client last sent or read something."""

    budget: Budget
    amount: int = 0
    since: float = 0.0

    def take(self, amount: int, retry_after_s: float) -> None:
        """Takes more, or raises Refused."""
        self.budget.take(amount, retry_after_s)
        self.amount += amount
        self.since = time.monotonic()

    def give(self) -> None:
        """Returns everything."""
        self.budget.give(self.amount)
        self.amount = 0

    def wait(self, end: Callable[[], None], amount: int = 0) -> None:
        """Begins to wait for the client, with an amount more. end: called if others need what is held."""
        self.budget.make_room(amount)
        self.budget.used += amount
        self.amount += amount
        self.since = time.monotonic()
        self.budget.waiting[self] = end

    def proceed(self, amount: int = 0) -> None:
        """Ends a wait, and returns its amount."""
        if self.budget.waiting.pop(self, None):
            self.budget.give(amount)
            self.amount -= amount


@dataclass
class TokenRate:
    """Tokens per second of a model, as an exponential moving average, to estimate waiting times."""

    tokens_per_s: float = 0.0

    def add(self, tokens: int, seconds: float) -> None:
        """Counts one batch."""
        now = tokens / max(seconds, 1e-6)
        self.tokens_per_s = now if not self.tokens_per_s else 0.8 * self.tokens_per_s + 0.2 * now

    def wait_s(self, tokens: int) -> float:
        """Returns the estimated seconds for some tokens; 0 before the first batch."""
        return tokens / self.tokens_per_s if self.tokens_per_s else 0.0


@dataclass
class Admission:
    """The budgets of one server. texts and content are shared by all models, tokens are per model.

    ahead: tokens that are computed before those of a new request. rates: of full batches. max_wait_s: how long a
    request may wait for its first batch. turn: held by the request whose text becomes tokens, or whose arrays become an
    answer, on the event loop. The loop looks for new requests between two of them, so that a refusal waits for one and
    not for all.
    """

    texts: Budget
    content: Budget
    tokens: dict[str, Budget] = field(default_factory=dict)
    ahead: Counter[str] = field(default_factory=Counter)
    rates: dict[str, TokenRate] = field(default_factory=dict)
    max_tokens: int = 1 << 16
    max_wait_s: float = math.inf
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def add(self, model: str) -> None:
        """Adds the budget of another model."""
        self.tokens.setdefault(model, Budget("tokens", self.max_tokens))
        self.rates.setdefault(model, TokenRate())

    def retry_after_s(self, model: str | None = None) -> float:
        """Returns the seconds after which to try again: the time that waiting tokens take, from 1 to 60."""
        names = [model] if model else list(self.tokens)
        waits = [self.rates[name].wait_s(self.tokens[name].used) for name in names]
        return float(min(60, max(1, math.ceil(max(waits, default=1)))))

    def wait_s(self, model: str) -> float:
        """Returns the estimated seconds until a new request to a model gets its first batch."""
        return self.rates[model].wait_s(self.ahead[model])

    def check_room(self) -> None:
        """Raises Refused if no further text can be admitted to any model, before a request is read."""
        if self.texts.used >= self.texts.most:
            self.texts.take(1, self.retry_after_s())
        self.check_wait(*self.tokens)

    def check_wait(self, *models: str) -> None:
        """Raises Refused if a new request would wait too long for each of these models."""
        wait_s = min(map(self.wait_s, models), default=0.0)
        if wait_s > self.max_wait_s:
            message = f"The server is busy: a request would wait {wait_s:.1f} s. Try again later."
            raise Refused("wait", message, float(min(60, math.ceil(wait_s))))

    @contextmanager
    def put_ahead(self, model: str, tokens: int) -> Iterator[None]:
        """Context of a request that computes some tokens before those of later requests."""
        self.ahead[model] += tokens
        try:
            yield
        finally:
            self.ahead[model] -= tokens

    @contextmanager
    def hold(self, budget: Budget, amount: int, model: str | None = None) -> Iterator[None]:
        """Context that holds an amount of a budget. Raises Refused."""
        budget.take(amount, self.retry_after_s(model))
        try:
            yield
        finally:
            budget.give(amount)
