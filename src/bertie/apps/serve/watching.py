"""What the server keeps of its models in use: counts of texts and answers, without the texts, and their file.

    Call.predict -> Watch.count -> Traffic; afterwards, in the background: vectors of some rows -> Traffic

The background has a bounded queue that drops: nothing here delays or fails an answer.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from bertie.apps.drift import compare, shift
from bertie.platform import BertieError, Example, Prediction, Sequences, Traffic

if TYPE_CHECKING:
    from bertie.apps.serve.served import Served

SAVE_S = 60.0  # between additions to the file
IDLE_S, PATIENCE_S = 0.02, 2.0  # how long the background waits for a model that answers
MOST_JOBS, MOST_CHARACTERS = 256, 4_000_000  # that wait for the background
_COUNTER_NAMES = {
    "label": ("bertie_answers_total", "Answers by label."),
    "script": ("bertie_scripts_total", "Texts by script."),
}
HISTOGRAMS = {
    "confidence": ("bertie_answer_confidence", "Probability of an answer."),
    "tokens": ("bertie_text_tokens", "Tokens of a text."),
    "unknown_tokens": ("bertie_text_unknown_tokens", "Share of unknown tokens of a text."),
}
"""Quantity -> the name of its metric."""


@dataclass(eq=False)
class ModelTraffic:
    """The traffic of a model since the start. written: in the file too, if there is one; fresh: not yet.

    usual: that of its training, if its folder has it.
    """

    model: "Served"
    written: Traffic
    fresh: Traffic
    usual: Traffic | None

    @classmethod
    def of(cls, model: "Served") -> "ModelTraffic":
        """Returns that of a model that has answered nothing."""
        path = model.folder / Traffic.FILE
        try:
            usual = next(iter(Traffic.read(path).values()), None) if path.is_file() else None
        except BertieError:  # it is not needed for an answer
            usual = None
        return cls(model, Traffic(model.sha), Traffic(model.sha), usual)

    @property
    def whole(self) -> Traffic:
        """The traffic since the start."""
        return self.written + self.fresh

    def differences(self, traffic: Traffic) -> dict[str, float]:
        """Returns the population stability index of each quantity, compared with training; of vectors, the distance of
        the means in units of the training's spread. Empty without that of the training."""
        if self.usual is None or not traffic.rows:
            return {}
        rows = ((name, np.array([*bins.values()], float)) for name, bins in compare.binned_rows(self.usual, traffic))
        differences = {name: float(shift.population_stability(bins[:, 0], bins[:, 1])) for name, bins in rows}
        usual, here = self.usual.vectors.array, traffic.vectors.array
        if len(usual) > 1 and len(here) and self.usual.vectors.width == traffic.vectors.width:
            spread = float(np.sqrt(usual.var(0).sum())) or 1.0
            differences["vectors"] = float(np.linalg.norm(here.mean(0) - usual.mean(0))) / spread
        return differences


@dataclass(eq=False)
class Watch(Collector):
    """The traffic of the models of a server, by name. path: the file that it is added to, if any."""

    path: Path | None = None
    log: Callable[..., None] | None = None
    models: dict[str, ModelTraffic] = field(default_factory=dict)
    dropped: int = 0
    characters: int = 0
    _tasks: list["asyncio.Task[None]"] = field(default_factory=list)

    @cached_property
    def jobs(self) -> "asyncio.Queue[tuple[Callable[[], Awaitable[None]], int]]":
        """Work for the background, with the characters of its texts."""
        return asyncio.Queue(MOST_JOBS)

    def start(self) -> None:
        """Starts the background."""
        self._tasks = [asyncio.create_task(self._run())]
        if self.path is not None:
            self._tasks.append(asyncio.create_task(self._save_often()))

    async def close(self) -> None:
        """Ends the background, if it was started, and adds what is fresh to the file."""
        if not self._tasks:
            return
        for task in self._tasks:
            task.cancel()
        await self.save()

    def add(self, model: "Served") -> None:
        """Begins to count for a model, or for a newer one of its name. What was counted of the old one is saved."""
        old = self.models.get(model.name)
        if old is None or old.written.model != model.sha:
            self.models[model.name] = ModelTraffic.of(model)
        else:
            old.model = model
        if old is not None and old.written.model != model.sha and self.path is not None:
            self.models[f"{model.name} {old.written.model[:12]}"] = old  # until the next addition to the file

    def count(
        self, model: "Served", examples: Sequence[Example], encoded: Sequences, answers: Sequence[Prediction]
    ) -> None:
        """Counts texts and answers. Vectors are computed later."""
        if (entry := self.models.get(model.name)) is None or entry.model is not model:
            return
        entry.fresh.count(model.pipeline, examples, encoded, answers)
        if Traffic.VECTOR in model.facts.outputs:
            self.later(lambda: self._sample(entry, encoded), sum(map(len, (t for e in examples for t in e.texts))))

    def later(self, work: Callable[[], Awaitable[None]], characters: int) -> bool:
        """Queues work for the background, unless too much waits. Returns whether it is queued."""
        if self.jobs.full() or self.characters + characters > MOST_CHARACTERS:
            self.dropped += 1
            return False
        self.characters += characters
        self.jobs.put_nowait((work, characters))
        return True

    async def _run(self) -> None:
        while True:
            work, characters = await self.jobs.get()
            try:
                await work()
            except asyncio.CancelledError:
                raise
            except Exception as error:  # of a model that failed, for example
                self._tell("background_failed", error=type(error).__name__)
            self.characters -= characters

    async def _sample(self, entry: ModelTraffic, encoded: Sequences) -> None:
        """Computes the vectors of the rows that enter the sample of a model."""
        rows, places = entry.fresh.vectors.draw(encoded.examples)
        if not len(rows):
            return
        await idle(entry.model)
        ids, model = encoded.take(encoded.windows[:-1][rows]), entry.model
        arrays, _ = await model.batcher.run(ids, (Traffic.VECTOR,), adapter=model.adapter)
        entry.fresh.vectors.put(places, arrays[Traffic.VECTOR])

    # The file -------------------------------------------------------------------------------------------------------

    async def _save_often(self) -> None:
        while True:
            await asyncio.sleep(SAVE_S)
            await self.save()

    async def save(self) -> None:
        """Adds what is fresh to the file. What cannot be written stays fresh, and the log has the reason."""
        if self.path is None:
            return
        parts = {name: entry.fresh for name, entry in self.models.items() if entry.fresh.rows}
        for name in parts:
            self.models[name].fresh = Traffic(parts[name].model)
        try:
            await asyncio.to_thread(Traffic.add_to, self.path, [*parts.values()])
        except (BertieError, OSError) as error:
            for name, part in parts.items():
                self.models[name].fresh = part + self.models[name].fresh
            self._tell("traffic_not_saved", reason=str(error))
            return
        for name, part in parts.items():
            self.models[name].written = self.models[name].written + part
        for name in [name for name, entry in self.models.items() if entry.model.name != name]:
            del self.models[name]

    def _tell(self, event: str, **fields: object) -> None:
        if self.log is not None:
            self.log(event, **fields)

    # Metrics --------------------------------------------------------------------------------------------------------

    def info(self) -> dict[str, object]:
        """Returns the traffic of each model for the page: rows, names, means of its bins, and differences."""
        traffic = dict[str, object]()
        for name, entry in self.models.items():
            whole = entry.whole
            names = {key: dict(counts.most_common()) for key, counts in whole.names.items()}
            bins = {key: binned(key, counts) for key, counts in whole.counts.items() if key in HISTOGRAMS}
            different = {key: round(value, 4) for key, value in entry.differences(whole).items()}
            traffic[name] = {"rows": whole.rows, "names": names, "bins": bins, "differences": different}
        return traffic

    def collect(self) -> Iterator[Metric]:
        """Yields the metrics of /metrics. Labels are models, labels of models, and scripts."""
        parts = {name: entry.whole for name, entry in self.models.items()}
        for key, (name, about) in _COUNTER_NAMES.items():
            counter = CounterMetricFamily(name, about, labels=("model", key))
            for model, traffic in parts.items():
                for value, count in traffic.names.get(key, {}).items():
                    counter.add_metric((model, value), count)
            yield counter
        for key, (name, about) in HISTOGRAMS.items():
            histogram = HistogramMetricFamily(name, about, labels=("model",))
            for model, traffic in parts.items():
                if key in traffic.counts:
                    ends = [*map(str, map(float, Traffic.EDGES[key])), "+Inf"]
                    totals = np.cumsum(traffic.counts[key]).tolist()
                    histogram.add_metric((model,), [*zip(ends, totals, strict=True)], None)
            yield histogram
        drifts = GaugeMetricFamily(
            "bertie_drift", "Population stability index against training, by quantity.", labels=("model", "quantity")
        )
        for model, traffic in parts.items():
            for quantity, index in self.models[model].differences(traffic).items():
                drifts.add_metric((model, quantity), index)
        yield drifts
        yield CounterMetricFamily(
            "bertie_background_dropped", "Work for the background that was dropped.", self.dropped
        )


def binned(key: str, counts: "np.ndarray[tuple[int, ...], np.dtype[np.int64]]") -> dict[str, int]:
    """Returns the rows of each bin that has any, by its name."""
    edges = Traffic.EDGES[key]
    return {compare.bin_name(edges, slice(at, at + 1)): int(count) for at, count in enumerate(counts) if count}


async def idle(model: "Served") -> None:
    """Waits until a model has nothing to answer, for a limited time."""
    for _ in range(round(PATIENCE_S / IDLE_S)):
        if not model.batcher.busy:
            return
        await asyncio.sleep(IDLE_S)
