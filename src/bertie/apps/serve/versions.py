"""Two versions of a model on live traffic: a share of the requests goes to the new one, or all do after the answer.

    split     a request goes to the new version by a hash of its id: the same id always to the same version
    shadow    the old version answers; then the new one reads the same texts in the background, and both are compared

`bertie switch` sends all requests to one version without a restart. It writes the name to a private file and signals
the process, so only who may signal the server can do it.
"""

import math
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import xxhash
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from bertie.apps.serve.admission import Admission, Budget
from bertie.apps.serve.watching import Watch, idle
from bertie.platform import Example, Prediction, UsageError

if TYPE_CHECKING:
    from bertie.apps.serve.call import Call
    from bertie.apps.serve.served import Served

ANY_AMOUNT = 1 << 62
LARGEST_DIFFERENCE = 0.1  # numbers that differ by less agree
NEVER_COMPARED = ("embed", "vectors", "mlm", "pair", "text2text")


@dataclass
class VersionFigures:
    """Figures of one version. seconds: in the queue and the model, per request."""

    requests: int = 0
    seconds: float = 0.0
    answers: int = 0
    confidence: float = 0.0

    def add(self, seconds: float, answers: Sequence[Prediction]) -> None:
        """Counts a request."""
        self.requests += 1
        self.seconds += seconds
        sure = [answer.probability for answer in answers if answer.probability is not None]
        self.answers += len(sure)
        self.confidence += sum(sure)

    def as_json(self) -> dict[str, object]:
        """Returns the counts and the means."""
        seconds = self.seconds / self.requests if self.requests else None
        confidence = self.confidence / self.answers if self.answers else None
        return {"requests": self.requests, "seconds": seconds, "confidence": confidence}


@dataclass(eq=False)
class Versions(Collector):
    """Two versions of a model. share: of the requests that go to the new one; shadow: whether it also reads the rest.

    own, shadowed: figures by name, of requests that were answered, and of those that the new version read afterwards.
    """

    old: str
    new: str
    share: float = 0.0
    shadow: bool = False
    own: dict[str, VersionFigures] = field(default_factory=dict)
    shadowed: VersionFigures = field(default_factory=VersionFigures)
    compared: int = 0
    agree: int = 0
    failed: int = 0
    switches: int = 0
    folder: "tempfile.TemporaryDirectory[str] | None" = None

    @property
    def control(self) -> Path | None:
        """The file that names the version to answer, which only the server's user can write."""
        return None if self.folder is None else Path(self.folder.name) / "version"

    @property
    def reading_along(self) -> str:
        """The name of the new version, if it answers no requests to the old one; otherwise ""."""
        return self.new if self.shadow and not self.share else ""

    def open_control(self) -> None:
        """Makes the private folder of the file."""
        self.folder = tempfile.TemporaryDirectory(prefix="bertie-serve-")

    def check(self, old: "Served", new: "Served") -> None:
        """Raises UsageError for models that do not answer the same requests with the same labels."""
        option, advice = "--shadow" if self.shadow else "--traffic", "Serve it by its own name, without the option."
        kinds = {name: model.kinds[0] for name, model in ((self.old, old), (self.new, new))}
        if len({*kinds.values()}) > 1:
            tasks = ", ".join(f"{name} is of the task {kind}" for name, kind in kinds.items())
            raise UsageError(f"{option}: two versions need one task, but {tasks}. {advice}")
        if sorted(old.facts.labels) != sorted(new.facts.labels):
            labels = "; ".join(
                f"{name} has {_first(model.facts.labels)}" for name, model in ((self.old, old), (self.new, new))
            )
            raise UsageError(f"{option}: two versions need the same labels, but {labels}. {advice}")
        if (texts := [model.pipeline.texts for model in (old, new)])[0] != texts[1]:
            raise UsageError(f"{option}: {self.old} and {self.new} read other numbers of texts. {advice}")
        if self.shadow and kinds[self.new] in NEVER_COMPARED:
            raise UsageError(f"--shadow compares answers, and {self.new} has no labels or numbers. Use --traffic.")

    def version_for(self, name: str, request: bytes) -> str:
        """Returns the version for a request to a model, by its id."""
        if name != self.old or xxhash.xxh3_64_intdigest(request) >= self.share * 2**64:
            return name
        return self.new

    def switch(self) -> str:
        """Sends all requests to the version that the file names, and returns it. Raises UsageError for another name."""
        name = self.control.read_text(encoding="utf-8").strip() if self.control is not None else ""
        if name not in (self.old, self.new):
            raise UsageError(f"{name!r} is neither {self.old} nor {self.new}.")
        self.share, self.shadow = float(name == self.new), False
        self.switches += 1
        return name

    def count(self, call: "Call", examples: Sequence[Example], answers: Sequence[Prediction], watch: Watch) -> None:
        """Counts a request that was answered, and queues it for the new version."""
        name = call.model.name
        if name not in (self.old, self.new):
            return
        self.own.setdefault(name, VersionFigures()).add(call.usage.model_s, answers)
        if self.shadow and name == self.old:
            new = watch.models[self.new].model if self.new in watch.models else None
            if new is not None:
                size = sum(len(text) for example in examples for text in example.texts)
                watch.later(lambda: self._repeat(new, call, examples, answers, watch), size)

    async def _repeat(
        self, new: "Served", call: "Call", examples: Sequence[Example], answers: Sequence[Prediction], watch: Watch
    ) -> None:
        """Answers with the new version, and compares."""
        await idle(call.model)
        try:
            with type(call.ticket)(new, unlimited(new.name)) as ticket:
                again = type(call)(ticket, call.reading, lambda own, *answered: watch.count(own.model, *answered))
                predictions = [one.prediction for one in await again.predict(examples, str)]
        except Exception:
            self.failed += 1
            raise
        self.shadowed.add(ticket.usage.model_s, predictions)
        self.compared += len(answers)
        self.agree += sum(map(agrees, answers, predictions))

    def as_json(self) -> dict[str, object]:
        """Returns the figures for the page."""
        low, high = wilson_interval(self.agree, self.compared)
        return {
            "old": self.old,
            "new": self.new,
            "share": self.share,
            "shadow": self.shadow,
            "switches": self.switches,
            "control": str(self.control) if self.control else None,
            "answered": {name: figures.as_json() for name, figures in self.own.items()},
            "shadowed": self.shadowed.as_json(),
            "compared": self.compared,
            "agreement": self.agree / self.compared if self.compared else None,
            "agreement_95": [low, high] if self.compared else None,
            "failed": self.failed,
        }

    def collect(self) -> Iterator[Metric]:
        """Yields the metrics of /metrics. Labels are the two models."""
        yield GaugeMetricFamily("bertie_split_share", "Share of requests that go to the new version.", self.share)
        requests = CounterMetricFamily("bertie_version_requests", "Requests by version.", labels=("model", "by"))
        seconds = CounterMetricFamily("bertie_version_seconds", "Seconds in queue and model.", labels=("model", "by"))
        confidence = GaugeMetricFamily("bertie_version_confidence", "Mean probability.", labels=("model", "by"))
        rows = [(name, "answer", figures) for name, figures in self.own.items()]
        for name, by, figures in [*rows, (self.new, "shadow", self.shadowed)]:
            requests.add_metric((name, by), figures.requests)
            seconds.add_metric((name, by), figures.seconds)
            if figures.answers:
                confidence.add_metric((name, by), figures.confidence / figures.answers)
        yield from (requests, seconds, confidence)
        yield CounterMetricFamily(
            "bertie_shadow_compared", "Answers of both versions that were compared.", self.compared
        )
        yield CounterMetricFamily("bertie_shadow_agree", "Answers of both versions that agree.", self.agree)
        yield CounterMetricFamily(
            "bertie_shadow_failed", "Requests that the new version failed to answer.", self.failed
        )

    def close(self) -> None:
        """Deletes the private folder."""
        if self.folder is not None:
            with suppress(OSError):
                self.folder.cleanup()


def _first(labels: Sequence[str], most: int = 3) -> str:
    return ", ".join([*labels[:most], *["..."] * (len(labels) > most)])


def wilson_interval(right: int, total: int) -> tuple[float, float]:
    """Returns the 95% interval of a share, right of total (Wilson 1927). scipy would take 40 MB of the server."""
    if not total:
        return 0.0, 1.0
    z, p = 1.959964, right / total
    middle, half = p + z * z / (2 * total), z * math.sqrt(p * (1 - p) / total + z * z / (4 * total * total))
    return (middle - half) / (1 + z * z / total), (middle + half) / (1 + z * z / total)


def unlimited(name: str) -> Admission:
    """Returns budgets that never end, for a model that is not asked by clients."""
    budgets = Admission(Budget("texts", ANY_AMOUNT), Budget("bytes", ANY_AMOUNT), max_tokens=ANY_AMOUNT)
    budgets.add(name)
    return budgets


def agrees(one: Prediction, two: Prediction) -> bool:
    """Returns whether two answers have the same label, or numbers that differ by less than LARGEST_DIFFERENCE."""
    first, second = (getattr(answer.label, "text", answer.label) for answer in (one, two))
    if isinstance(first, float) and isinstance(second, float):
        return abs(first - second) < LARGEST_DIFFERENCE
    return bool(first == second)
