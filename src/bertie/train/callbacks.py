"""Callbacks: code that watches a run of `fit`, `finetune` or `pretrain`, and may end it.

    on_start   once, before the first step of this process
    on_step    after every step; with the metrics of the line that is written then, if one is
    on_evaluate   after every evaluation
    on_end     once, when everything is written

Early stopping and the trackers (apps/track) are callbacks. The loop has no code for any of them.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from bertie.errors import UnknownName, UsageError, WrongValue, nearest
from bertie.registry import Later
from bertie.train.config import TrainConfig

if TYPE_CHECKING:
    from bertie.models.model import TorchModel

_EVENTS = ("on_start", "on_step", "on_evaluate", "on_end")
LOSS = "loss"
LESS = (LOSS, "mse", "perplexity")  # ends of the names of metrics of which less is better
TRACKERS = {"tensorboard": "TensorBoard", "mlflow": "MLflow", "wandb": "WandB", "trackio": "Trackio"}
"""Trackers by the names of the setting train.track -> their classes."""
TRACK, TENSORBOARD = "track.json", "tensorboard"  # what a run folder may have of trackers


class StopTraining(Exception):
    """Raised by a callback to end a run well: it keeps its model, its scores and its report.

    Example:
        >>> class Enough(bertie.Callback):
        ...     def on_evaluate(self, run, step, scores):
        ...         if scores["accuracy"] > 0.95:
        ...             raise bertie.StopTraining("accuracy is above 0.95")
        >>> run = bertie.finetune("runs/tiny", reviews, text="review", label="stars", callbacks=[Enough()])
    """


@dataclass(frozen=True, eq=False)
class TrainingRun:
    """A run while it trains, as callbacks see it.

    Attributes:
        folder: The run folder.
        settings: All settings by their dotted names, as in run.yaml.
        model: The model in training.
        steps: Steps of the whole run, unless it ends early.
        step: Steps that were done before; more than 0 for a run that is resumed.
        metric: The main metric of an evaluation.
        evaluations: The steps and scores of the evaluations until then.

    Example:
        >>> class Shares(bertie.Callback):
        ...     def on_step(self, run, step, metrics):
        ...         if step == run.steps // 2:
        ...             print(f"half of {run.steps} steps into {run.folder.name}")
        >>> run = bertie.finetune("runs/tiny", reviews, text="review", label="stars", epochs=4, callbacks=[Shares()])
        half of 4 steps into run
    """

    folder: Path
    settings: Mapping[str, object]
    model: "TorchModel"
    steps: int
    step: int = 0
    metric: str = LOSS
    evaluations: tuple[tuple[int, Mapping[str, float]], ...] = ()


class Callback(Protocol):
    """Code that watches a run. A subclass defines the events that it needs.

    With several processes, it is called in the first one. An exception other than `StopTraining` ends the run at once;
    a checkpoint is saved before.

    Example:
        >>> class Print(bertie.Callback):
        ...     def on_evaluate(self, run, step, scores):
        ...         print(step, run.metric, round(scores[run.metric], 1))
        >>> run = bertie.finetune("runs/tiny", reviews, text="review", label="stars", epochs=1, callbacks=[Print()])
        1 accuracy 0.5
    """

    def on_start(self, run: TrainingRun) -> None:
        """Called before the first step, also when a run is resumed."""
        return

    def on_step(self, run: TrainingRun, step: int, metrics: Mapping[str, float]) -> None:
        """Called after every step. metrics: the line of metrics.jsonl where one is written, otherwise empty."""
        return

    def on_evaluate(self, run: TrainingRun, step: int, scores: Mapping[str, float]) -> None:
        """Called after every evaluation."""
        return

    def on_end(self, run: TrainingRun, result: Mapping[str, object]) -> None:
        """Called when the run has ended and its files are written. result: the contents of results.json."""
        return


class EachStep(Callback):
    """Calls a function with the number of completed steps, after every step."""

    def __init__(self, function: Callable[[int], object]) -> None:
        self._function = function

    def on_step(self, run: TrainingRun, step: int, metrics: Mapping[str, float]) -> None:
        """Calls the function."""
        self._function(step)


class EarlyStopping(Callback):
    """Ends a run when a metric has not improved for some evaluations.

    `patience=3` is the same, and also keeps the best weights.

    Example:
        >>> stopping = bertie.EarlyStopping(patience=3, min_improvement=0.001)
        >>> run = bertie.finetune("runs/tiny", reviews, text="review", label="stars", epochs=8, callbacks=[stopping])
    """

    def __init__(self, patience: int = 3, *, metric: str = "", min_improvement: float = 0.0) -> None:
        """Sets when a run ends.

        Args:
            patience: Evaluations without an improvement after which the run ends.
            metric: The metric, of which more is better, unless it is a loss. Default: the main metric of the run.
            min_improvement: What a smaller difference than this does not count as.

        Raises:
            UsageError: `patience` is below 1, or `min_improvement` is below 0.
        """
        if patience < 1:
            raise WrongValue(f"patience is {patience}; at least 1 evaluation was expected.")
        if not min_improvement >= 0:
            raise WrongValue(f"min_improvement is {min_improvement}; 0 or more was expected.")
        self.patience, self.metric, self.min_improvement = patience, metric, min_improvement
        self._best: float | None = None
        self._waited = 0

    def on_start(self, run: TrainingRun) -> None:
        """Counts the evaluations before a resume again, so that it ends where an uninterrupted run ends."""
        self._best, self._waited = None, 0
        for step, scores in run.evaluations:
            self.on_evaluate(run, step, scores)

    def on_evaluate(self, run: TrainingRun, step: int, scores: Mapping[str, float]) -> None:
        """Ends the run where the metric has not improved for `patience` evaluations."""
        metric = self.metric or run.metric
        value = metric_of(scores, metric)
        if improves(metric, value, self._best, by=self.min_improvement):
            self._best, self._waited = value, 0
            return
        self._waited += 1
        if self._waited >= self.patience:
            times = f"{self._waited} evaluations" if self._waited > 1 else "one evaluation"
            raise StopTraining(f"{metric} did not improve on {self._best:.4g} for {times}")


def metric_of(scores: Mapping[str, float], metric: str) -> float:
    """Returns a metric of an evaluation. Raises UsageError for a name that it does not have."""
    if metric not in scores:
        raise UnknownName(f"An evaluation of this run has no metric {metric!r}. {nearest(metric, scores)}")
    return scores[metric]


def is_loss(metric: str) -> bool:
    """Returns whether less of a metric is better."""
    return metric.partition("/")[0].endswith(LESS)


def improves(metric: str, value: float, best: float | None, *, by: float = 0.0) -> bool:
    """Returns whether a value is better than the best so far (None: there is none). NaN is not."""
    if math.isnan(value):
        return False
    if best is None:
        return True
    gain = best - value if is_loss(metric) else value - best
    return gain > by if by == 0 else gain >= by


class Callbacks(Callback):
    """Several callbacks as one. Each sees every event, also after another one has raised `StopTraining`.

    `on_end` does nothing: `end` calls theirs, when the results are written.
    """

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self._callbacks = tuple(callbacks)
        self._run: TrainingRun | None = None
        for one in self._callbacks:
            if isinstance(one, type) or not all(callable(getattr(one, event, None)) for event in _EVENTS):
                what = f"the class {one.__name__}" if isinstance(one, type) else f"a {type(one).__name__}"
                raise UsageError(
                    f"callbacks has {what}; objects with {', '.join(_EVENTS)} were expected, as those of a subclass of "
                    "bertie.Callback."
                )

    def on_start(self, run: TrainingRun) -> None:
        """Calls all."""
        self._run = run
        self._each(lambda one: one.on_start(run))

    def on_step(self, run: TrainingRun, step: int, metrics: Mapping[str, float]) -> None:
        """Calls all."""
        self._each(lambda one: one.on_step(run, step, metrics))

    def on_evaluate(self, run: TrainingRun, step: int, scores: Mapping[str, float]) -> None:
        """Calls all."""
        self._each(lambda one: one.on_evaluate(run, step, scores))

    def end(self, result: Mapping[str, object]) -> None:
        """Calls `on_end` of all, where the run has started in this process."""
        run = self._run
        if run is not None:
            with suppress(StopTraining):  # it has ended
                self._each(lambda one: one.on_end(run, result))

    def _each(self, call: Callable[[Callback], None]) -> None:
        reason: StopTraining | None = None
        for one in self._callbacks:
            try:
                call(one)
            except StopTraining as stop:
                reason = reason or stop
        if reason is not None:
            raise reason


def callbacks_of(train: TrainConfig, metric: str = "") -> list[Callback]:
    """Returns the callbacks that the settings of a run ask for. metric: that of early stopping, if none is set.

    Raises UsageError where a tracker is not installed.
    """
    trackers = (Later[Callable[[], Callback]]("bertie.apps.track.trackers", TRACKERS[name]) for name in train.track)
    callbacks = [tracker.found()() for tracker in dict.fromkeys(trackers)]
    if train.patience is not None:
        metric = train.metric or metric
        callbacks.append(EarlyStopping(train.patience, metric=metric, min_improvement=train.min_improvement))
    return callbacks


def without_callbacks(train: TrainConfig, metric: str = "") -> TrainConfig:
    """Returns the settings for `fit` of a run that has made these callbacks itself. metric: the main one."""
    return train.model_copy(update={"patience": None, "track": (), "metric": train.metric or metric})
