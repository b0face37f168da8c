"""Experiment trackers as callbacks, each over the library of the tracker: TensorBoard, MLflow, WandB, Trackio.

    settings, metrics at their steps, at the end scores, the report and the model

metrics.jsonl is the truth, and a tracker is its mirror. RUN/track.json has the id of the tracked run, so that a resumed
run is logged there too. A tracker that fails warns once, and training continues without it.
"""

import os
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from time import time
from typing import Any, ClassVar, Protocol
from uuid import uuid4

from bertie import Callback
from bertie.platform import File, UsageError, console

TRACK, TENSORBOARD = "track.json", "tensorboard"  # in a run folder, which does not list them among its files
PROJECT = "bertie"
ARTIFACTS = ("report.html", "model")  # of a finished run
MANY, MOST = 100, 500  # settings that an MLflow server takes at once, and characters of one


class TrackedRun(Protocol):
    """What a tracker needs of a run."""

    @property
    def folder(self) -> Path:
        """The run folder."""
        ...

    @property
    def settings(self) -> Mapping[str, object]:
        """All settings by their dotted names."""
        ...

    @property
    def step(self) -> int:
        """Steps that were done before; more than 0 for a run that is resumed."""
        ...


class Tracker(Callback):
    """What the trackers share. A subclass calls its library in `_open`, `_log` and `_close`.

    name: in messages and of the extra that installs it; module: of its library; rewinds: whether the tracker itself
    replaces what was written after the step that a run resumes from.
    """

    name: ClassVar[str]
    module: ClassVar[str]
    extra: ClassVar[str]
    rewinds: ClassVar[bool] = False

    def __init__(self) -> None:
        try:
            self._library = import_module(self.module)
        except ImportError:
            raise UsageError(
                f"{self.name} is not installed. Install it: pip install 'bertie[{self.extra}]'", code="missing-package"
            ) from None
        self._failed = False
        self._record: dict[str, Any] = {}
        self._thread: ThreadPoolExecutor | None = None

    def _open(self, run: TrackedRun, id: str | None) -> str:
        """Begins a tracked run with the settings, or continues the one with this id. -> its id"""
        raise NotImplementedError

    def _log(self, values: Mapping[str, float], step: int) -> None:
        """Writes metrics of a step."""

    def _close(self, run: TrackedRun, scores: Mapping[str, float], artifacts: Mapping[str, Path]) -> None:
        """Writes the final scores and the files by name, and ends the tracked run."""
        raise NotImplementedError

    def on_start(self, run: TrackedRun) -> None:
        """Begins the tracked run, or continues it."""
        self._failed, self._thread = False, ThreadPoolExecutor(1, thread_name_prefix=self.extra)
        self._record = {} if run.step == 0 else _records(run.folder).get(self.extra, {})

        def begin() -> None:
            self._record["id"] = self._open(run, self._record.get("id"))
            self._remember(run)

        self._guarded(begin)

    def on_step(self, run: TrackedRun, step: int, metrics: Mapping[str, float]) -> None:
        """Writes the line of metrics of the step, if there is one."""
        if metrics:
            self._later(run, "train", step, metrics)

    def on_evaluate(self, run: TrackedRun, step: int, scores: Mapping[str, float]) -> None:
        """Writes the scores."""
        self._later(run, "valid", step, scores)

    def on_end(self, run: TrackedRun, result: Mapping[str, object]) -> None:
        """Writes the final scores, the report and the model, after what is still to be written."""
        if self._thread is None:
            return
        of_dev = result.get("dev", result.get("valid"))
        scores = {name: value for name, value in _numbers(of_dev).items() if not name.endswith("_s")}
        artifacts = {name: run.folder / name for name in ARTIFACTS if (run.folder / name).exists()}
        self._thread.shutdown()
        self._thread = None
        self._guarded(lambda: self._close(run, scores, artifacts))

    def _later(self, run: TrackedRun, kind: str, step: int, values: Mapping[str, float]) -> None:
        """Writes metrics in a thread, so that a slow server does not slow the training."""
        if self._thread is None or (step <= self._record.get(kind, 0) and not self.rewinds):
            return

        def write() -> None:
            self._log({f"{kind}/{name}": value for name, value in values.items()}, step)
            self._record[kind] = step
            self._remember(run)

        self._thread.submit(self._guarded, write)

    def _remember(self, run: TrackedRun) -> None:
        File(run.folder / TRACK).write_json({**_records(run.folder), self.extra: self._record})

    def _guarded(self, work: Callable[[], None]) -> None:
        """Does what a tracker does. Its first failure is a warning, and it is left alone from then on."""
        if self._failed:
            return
        try:
            work()
        except Exception as error:  # of any kind: a mirror does not end a run
            self._failed = True
            reason = " ".join(str(error).split())[:300] or type(error).__name__
            console.warn(f"{self.name} failed, and the run continues without it: {reason}")


class TensorBoard(Tracker):
    """Writes a run for TensorBoard, to RUN/tensorboard by default. Settings are a text.

    Example:
        >>> tracker = bertie.TensorBoard("logs/reviews")
        >>> run = bertie.finetune("runs/tiny", reviews, text="review", label="stars", epochs=1, callbacks=[tracker])
    """

    name, module, extra, rewinds = "TensorBoard", "torch.utils.tensorboard", "tensorboard", True

    def __init__(self, folder: str | Path | None = None) -> None:
        """Sets the folder. Raises UsageError where TensorBoard is not installed."""
        super().__init__()
        self.folder = folder

    def _open(self, run: TrackedRun, id: str | None) -> str:
        folder = str(self.folder or run.folder / TENSORBOARD)
        self._writer = self._library.SummaryWriter(folder, purge_step=run.step + 1)
        if not run.step:
            rows = "\n".join(f"| {name} | {value} |" for name, value in run.settings.items())
            self._writer.add_text("settings", f"| setting | value |\n|---|---|\n{rows}", 0)
        return folder

    def _log(self, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def _close(self, run: TrackedRun, scores: Mapping[str, float], artifacts: Mapping[str, Path]) -> None:
        self._writer.close()


class MLflow(Tracker):
    """Writes a run to MLflow: where MLFLOW_TRACKING_URI says, by default to the current folder.

    Example:
        >>> tracker = bertie.MLflow("http://localhost:5000", experiment="reviews")
        >>> settings = {"callbacks": [tracker]}  # of bertie.finetune and bertie.pretrain
    """

    name, module, extra = "MLflow", "mlflow", "mlflow"

    def __init__(self, uri: str | None = None, *, experiment: str | None = None) -> None:
        """Sets where runs are written.

        Args:
            uri: Of the tracking server or store. Default: MLflow's own.
            experiment: Its name. Default: MLFLOW_EXPERIMENT_NAME, otherwise "bertie".

        Raises:
            UsageError: MLflow is not installed.
        """
        super().__init__()
        self.uri, self.experiment = uri, experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or PROJECT

    def _open(self, run: TrackedRun, id: str | None) -> str:
        self._client = self._library.MlflowClient(self.uri)
        if id is not None:
            self._client.update_run(id, status="RUNNING")
        else:
            known = self._client.get_experiment_by_name(self.experiment)
            experiment = known.experiment_id if known else self._client.create_experiment(self.experiment)
            id = str(self._client.create_run(experiment, run_name=run.folder.resolve().name).info.run_id)
            params = [self._library.entities.Param(name, str(value)[:MOST]) for name, value in run.settings.items()]
            for start in range(0, len(params), MANY):
                self._client.log_batch(id, params=params[start : start + MANY])
        self._id = id
        return id

    def _log(self, values: Mapping[str, float], step: int) -> None:
        now = round(1000 * time())
        metrics = [self._library.entities.Metric(name, float(value), now, step) for name, value in values.items()]
        self._client.log_batch(self._id, metrics=metrics)

    def _close(self, run: TrackedRun, scores: Mapping[str, float], artifacts: Mapping[str, Path]) -> None:
        self._log({f"final/{name}": value for name, value in scores.items()}, self._record.get("train", run.step))
        for name, path in artifacts.items():
            if path.is_dir():
                self._client.log_artifacts(self._id, str(path), name)
            else:
                self._client.log_artifact(self._id, str(path))
        self._client.set_terminated(self._id, "FINISHED")


class _ProjectTracker(Tracker):
    """A tracker whose runs are in projects. variable: of the environment, with the usual project."""

    variable: ClassVar[str]

    def __init__(self, project: str | None = None) -> None:
        """Sets the project. Default: that of the environment. Raises UsageError without the tracker's package."""
        super().__init__()
        self.project = project or os.environ.get(self.variable) or PROJECT


class WandB(_ProjectTracker):
    """Writes a run to Weights & Biases, to the project of WANDB_PROJECT by default. WANDB_MODE=offline keeps it on
    this machine.

    Example:
        >>> tracker = bertie.WandB("reviews")
        >>> settings = {"callbacks": [tracker]}  # of bertie.finetune and bertie.pretrain
    """

    name, module, extra = "Weights & Biases", "wandb", "wandb"
    variable = "WANDB_PROJECT"

    def _open(self, run: TrackedRun, id: str | None) -> str:
        self._run = self._library.init(
            project=self.project,
            name=run.folder.resolve().name,
            id=id or uuid4().hex[:16],
            resume="allow",
            config=dict(run.settings),
            settings=self._library.Settings(silent=True),
        )
        return str(self._run.id)

    def _log(self, values: Mapping[str, float], step: int) -> None:
        self._run.log(dict(values), step=step)

    def _close(self, run: TrackedRun, scores: Mapping[str, float], artifacts: Mapping[str, Path]) -> None:
        self._run.summary.update({f"final/{name}": value for name, value in scores.items()})
        for name, path in artifacts.items():
            artifact = self._library.Artifact(f"{Path(name).stem}-{self._run.id}", type=Path(name).stem)
            (artifact.add_dir if path.is_dir() else artifact.add_file)(str(path))
            self._run.log_artifact(artifact)
        self._run.finish()


class Trackio(_ProjectTracker):
    """Writes a run to Trackio, to the project of TRACKIO_PROJECT by default. It is on this machine unless
    TRACKIO_SPACE_ID or TRACKIO_SERVER_URL is set.

    Example:
        >>> tracker = bertie.Trackio("reviews")
        >>> settings = {"callbacks": [tracker]}  # of bertie.finetune and bertie.pretrain
    """

    name, module, extra = "Trackio", "trackio", "trackio"
    variable = "TRACKIO_PROJECT"

    def _open(self, run: TrackedRun, id: str | None) -> str:
        id = id or f"{run.folder.resolve().name}-{uuid4().hex[:8]}"  # Trackio finds a run by its name
        with redirect_stdout(sys.stderr):  # it prints
            self._run = self._library.init(self.project, id, resume="allow", config=dict(run.settings), embed=False)
        return id

    def _log(self, values: Mapping[str, float], step: int) -> None:
        self._run.log(dict(values), step=step)

    def _close(self, run: TrackedRun, scores: Mapping[str, float], artifacts: Mapping[str, Path]) -> None:
        self._log({f"final/{name}": value for name, value in scores.items()}, self._record.get("train", run.step))
        with redirect_stdout(sys.stderr):
            for name, path in artifacts.items():
                self._run.log_artifact(str(path), name=Path(name).stem, type=Path(name).stem)
            self._library.finish()  # which also forgets the run, so that nothing is printed when Python ends


def _records(folder: Path) -> dict[str, dict[str, object]]:
    return File(folder / TRACK).read_json() if (folder / TRACK).exists() else {}


def _numbers(report: object) -> dict[str, float]:
    """Returns the numbers of a report of scores."""
    values = report if isinstance(report, Mapping) else {}
    return {
        str(name): float(value)
        for name, value in values.items()
        if isinstance(value, int | float) and name not in ("step", "phase")
    }
