"""`fit`: the training loop of pre-training and fine-tuning, for any `objective` and `source`.

    for each step:
        micro-batches of the step      a function of (seed, step), made ahead in the background
        counts over all of them        before any backward pass, so that sums are divided only once
        encode, loss, backward         per micro-batch
        sum over ranks, clip, update
        at intervals                   a line of metrics.jsonl, a validation, a checkpoint
        callbacks                      after every step and every validation; one may end the run

A step is a function of the weights, the optimizer's state and the step's number. Dropout is drawn from (seed, step,
micro-batch, rank). A run that was killed and resumed therefore ends with the same bits as an uninterrupted run.
"""

import tempfile
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NoReturn

import torch
from torch import Tensor, nn

from bertie import settings as configs
from bertie.console import console
from bertie.errors import BertieError, DataError, Stopped, UsageError, arguments
from bertie.files import LOCK, Json, file_hash
from bertie.folders import locked
from bertie.memory import keep_memory
from bertie.models.model import TorchModel
from bertie.nn import graphs
from bertie.nn.layout import copied_to_host
from bertie.settings import Config, flatten
from bertie.train import checkpoint, log, precision, rendezvous, sharding
from bertie.train.base import BatchSource, ResizableSource, RunMeter, Trainable
from bertie.train.callbacks import LOSS, Callback, Callbacks, StopTraining, TrainingRun, callbacks_of
from bertie.train.checkpoint import Checkpoint
from bertie.train.config import OptimConfig, TrainConfig
from bertie.train.distributed import Replicated
from bertie.train.graphs import RecordedPasses
from bertie.train.log import MetricsLog
from bertie.train.optim import OptimizerGroup
from bertie.train.prefetch import ahead, prompt_threads
from bertie.train.resume import FREE_SETTINGS, check_identity, find_checkpoint
from bertie.train.schedule import lr_at
from bertie.train.sharding import own, part_of
from bertie.train.signals import StopRequest, stop_on_signals
from bertie.train.step import RankBatch, backward, share
from bertie.train.step_metrics import MetricAccumulator, MetricsWindow, PendingStep, check_look

RECENT_S = 10.0  # the speed that is shown is that of the last seconds
TOKENS, STOP, END = "/tokens", "/stop", "/end"  # keys that no name of a part can have: those have no slash


@dataclass(frozen=True)
class Result:
    """The end of a run: its last step, and its last lines of metrics. reason: why a callback ended it early.

    micro_batch: sequences of a forward pass, where memory did not suffice for more.
    """

    step: int
    train: Json
    valid: Mapping[str, object]
    reason: str = ""
    micro_batch: int | None = None


@arguments()
def fit(
    model: TorchModel,
    objective: Trainable,
    source: BatchSource,
    *,
    train: TrainConfig,
    optim: OptimConfig,
    run: Path | str,
    config: Config | None = None,
    identity: Mapping[str, object] | None = None,
    evaluate: Callable[[int], dict[str, float]] | None = None,
    save_model: Callable[[Path], None] | None = None,
    resume: str = "auto",
    allow_change: Collection[str] | None = (),
    begin: Callable[[Checkpoint | None], None] | None = None,
    callbacks: Sequence[Callback] = (),
    boundaries: Sequence[int] = (),
    meter: RunMeter | None = None,
) -> Result:
    """Trains `model` in place for `train.steps` steps. Resumes from a checkpoint in the folder `run`.

    Args:
        model: The model to train.
        objective: The loss: a pre-training objective or a fine-tuning task.
        source: The batches of every step.
        train: Settings of the loop.
        optim: Settings of the optimizer.
        run: The run folder.
        config: The settings of the whole run, saved as run.yaml. They must be the same when the run is resumed.
        identity: Values that replace settings in that comparison, such as fingerprints instead of paths.
        evaluate: Called with the step, in evaluation mode on rank 0. It returns metrics for metrics.jsonl.
        save_model: Writes RUN/model at the end.
        resume: "auto", "never", or the path of a checkpoint.
        allow_change: Settings that may differ when the run is resumed.
        begin: Called on rank 0 with the checkpoint to resume from, or None, before anything is written.
        callbacks: Called on rank 0 after every step and evaluation. One that raises StopTraining ends the run well.
        boundaries: Last steps of the phases of the run. Metrics, validation and checkpoint are written there too.
        meter: Counts time, memory and energy. It is read at log steps, and its values are part of checkpoints.

    Returns:
        The last step and the last metrics.

    Raises:
        UsageError: The folder belongs to another run, or settings differ.
        DataError: No checkpoint is intact.
        Diverged: A loss or gradient is not finite.
        Stopped: A signal, a full disk or a lost rank stopped the run. It can be resumed.
    """
    settings = config.model_dump() if config is not None else {"train": train.model_dump(), "optim": optim.model_dump()}
    run = Path(run)
    run.mkdir(parents=True, exist_ok=True)
    device = precision.choose_device(train.device)
    if device.type == "cpu":
        keep_memory()
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng([device] if device.type == "cuda" else []))
        world = stack.enter_context(rendezvous.world(device))
        if world.main:
            busy = f"Another process is training in {run}. Wait for it, or choose another folder."
            stack.enter_context(locked(run / LOCK, busy))
        if train.batch_size < world.size:
            raise UsageError(
                f"train.batch_size ({train.batch_size}) is smaller than the number of processes "
                f"({world.size}). Set it to at least {world.size}."
            )
        saved = find_checkpoint(run, resume)
        dtype = precision.choose_dtype(train.precision, device)
        if saved is not None and train.precision == "auto":  # as it began: the machine may be another
            dtype = precision.dtype_of_checkpoint(saved.state["identity"].get("train.precision"), dtype)
        if world.main:
            precision.tell_precision(precision.why(train.precision, dtype, device))
        stack.enter_context(precision.computing_in(model, dtype))
        request = stack.enter_context(stop_on_signals())
        facts = {
            **flatten(settings),
            **(identity or {}),
            "train.device": device.type,  # what "auto" came to
            "train.precision": str(dtype).removeprefix("torch."),
            "world_size": world.size,
            "source": source.fingerprint,
        }
        world.agree({key: value for key, value in facts.items() if key not in FREE_SETTINGS or key == "train.shard"})
        world.share_folder(run)
        with world.rendezvous(), sharding.spread(model, world, train.shard, dtype) as ranks:
            loop = _Loop(model, objective, source, train, optim, run, ranks, request, evaluate, facts, boundaries)
            if train.gradient_checkpointing:
                stack.enter_context(_recomputing(model))
            elif train.graphs and world.size == 1 and RecordedPasses.fits(model, objective, device, dtype):
                loop.recorded = RecordedPasses(model, objective, device)
            elif train.graphs and world.size == 1 and graphs.can_record(device, dtype):
                stack.enter_context(graphs.graphed_layers(model.encoder))
            loop.meter, loop.callbacks = meter, Callbacks([*callbacks_of(train), *callbacks])
            start = loop.start(saved, allow_change, begin)
            if world.main and config is not None:
                configs.save_settings(config, run / "run.yaml")
            metric = train.metric or LOSS
            loop.go(TrainingRun(run, flatten(settings), model, train.steps, start, metric, _looks(run, start)))
        if world.main and save_model is not None:
            save_model(run / "model")
        lines = log.read_log(run)
    last = {line["kind"]: line for line in lines}
    result = Result(loop.done, last.get("train", {}), last.get("valid", {}), loop.reason, loop.micro_batch)
    loop.callbacks.end({"step": result.step, "train": result.train, "valid": result.valid})
    return result


@contextmanager
def _recomputing(model: TorchModel) -> Iterator[None]:
    """Context in which layers are computed again in the backward pass. Raises UsageError for other encoders."""
    encoder = model.encoder
    if not hasattr(encoder, "recomputes"):
        raise UsageError("train.gradient_checkpointing is not supported for this model. Omit it.")
    encoder.recomputes = True
    try:
        yield
    finally:
        encoder.recomputes = False


def _memory_is_full(error: BaseException) -> bool:
    """Whether an error is that of a GPU or of the system without free memory."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "allocate memory" in str(error)


@contextmanager
def temporary_run() -> Iterator[Path]:
    """Context with the folder of a run whose result is a number: it is deleted at the end, with its checkpoints."""
    with tempfile.TemporaryDirectory(prefix="bertie-run-") as place:
        try:
            yield Path(place)
        except Stopped as stopped:
            raise Stopped(stopped.message, hint="Run the same command again." if stopped.hint else "") from None


class _Loop:
    """The state of a running `fit`."""

    def __init__(
        self,
        model: TorchModel,
        objective: Trainable,
        source: BatchSource,
        train: TrainConfig,
        optim_config: OptimConfig,
        run: Path,
        ranks: Replicated,
        request: StopRequest,
        evaluate: Callable[[int], dict[str, float]] | None,
        identity: Mapping[str, object],
        boundaries: Sequence[int],
    ) -> None:
        self.model, self.objective, self.source = model, objective, source
        self.train, self.optim, self.run = train, optim_config, run
        self.ranks, self.request, self.evaluate, self.identity = ranks, request, evaluate, identity
        self.world = ranks.world
        self.boundaries = boundaries
        self.updates = OptimizerGroup(model, optim_config)
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        # An accelerator is given the next step's work before the loss of this one is read, so that it never waits;
        # a CPU has nothing to wait for.
        self.metrics = MetricAccumulator(lag=0 if self.world.device.type == "cpu" else 1)
        self.lr, self.saved_at, self.evaluated_at, self.before_s = 0.0, -1, -1, 0.0
        self.meter: RunMeter | None = None
        self.callbacks, self.reason = Callbacks(()), ""
        self.recorded: RecordedPasses | None = None
        self.micro_batch: int | None = None

    def start(
        self,
        saved: Checkpoint | None,
        allow_change: Collection[str] | None,
        begin: Callable[[Checkpoint | None], None] | None,
    ) -> int:
        """Loads the checkpoint to resume from, and returns the number of completed steps."""
        step, position = 0, 0
        if saved is not None:
            check_identity(saved, self.identity, allow_change)
            if saved.step > self.train.steps:
                raise UsageError(
                    f"{saved.folder} is beyond the last step: train.steps is "
                    f"{self.train.steps:,}. Raise train.steps, or use another run folder."
                )
            self._load(saved)
            step, position = saved.step, saved.state["metrics_bytes"]
            console.say(f"Resuming from {saved.folder}.")
        if self.world.add_counts({"step": step})["step"] != step * self.world.size:
            raise UsageError(f"Ranks see different checkpoints in {self.run}. All ranks must share the folder.")
        if self.world.main:
            if begin is not None:
                begin(saved)
            if saved is not None and not saved.belongs_to(self.run):
                log.copy_metrics(saved.folder.parent, self.run, position)
            self.log = MetricsLog(self.run, position, step=step)
        return step

    def go(self, about: TrainingRun) -> None:
        """Runs the remaining steps, or fewer where a callback ends the run."""
        train, was_training = self.train, self.model.training
        self.about, self.done = about, about.step
        start = about.step
        self.model.train()
        with ExitStack() as stack:
            stack.callback(self.model.train, was_training)
            if self.world.main:
                stack.callback(self.log.close)
            advance = stack.enter_context(console.progress("training", train.steps, done=start, unit="steps"))
            make = partial(share, self.source, self.objective, world=self.world)
            parts = stack.enter_context(closing(ahead(make, start, train.steps, train.workers)))
            if self.world.device.type == "cuda":
                stack.enter_context(prompt_threads())
            self.began = self.mark = time.monotonic()
            self.recent = deque([(self.began, 0)])
            self._tell(start, self.callbacks.on_start)
            for step, part in enumerate(parts, start + 1):
                asks = {STOP: int(self.request.name is not None), END: int(bool(self.reason))}
                counts = self.world.add_counts(part.counts | {TOKENS: part.tokens} | asks)
                if counts.pop(STOP):
                    self._stop(self.done)
                if counts.pop(END):
                    self._finish_early()
                    break
                tokens = int(counts.pop(TOKENS))
                self._step(step, part, counts, tokens)
                self.done = step
                advance(1, **self._shown())
                self._now_and_then(step)

    def _tell(self, step: int, event: Callable[..., None], *values: object) -> None:
        """Calls an event of the callbacks, on rank 0. Where one raises StopTraining, no other step follows."""
        if not self.world.main:
            return
        with self._saved_anyway(step):
            try:
                event(self.about, *values)
            except StopTraining as stop:
                self.reason = self.reason or str(stop) or "a callback asked to"

    def _step(self, step: int, part: RankBatch, counts: dict[str, float], tokens: int) -> None:
        """Runs one update. counts, tokens: over all ranks."""
        sums = None
        while sums is None:
            part = self._small_enough(step, part)
            self.model.zero_grad(set_to_none=True)
            with self._halving(step, part):
                sums = backward(
                    self.model,
                    self.objective,
                    part.batches,
                    counts,
                    seed=(self.train.seed, step, self.world.rank),
                    device=self.world.device,
                    passes=self.ranks.passes(len(part.batches)),
                    recorded=self.recorded,
                    run=self.ranks.run,
                )
        figures = sums.tensor()
        norm = self.ranks.add_up(self.parameters, figures, max_norm=self.optim.max_grad_norm)
        values = copied_to_host(torch.cat([figures, norm[None]]))
        self.metrics.add(PendingStep(step, sums, values, counts, tokens, part.samples))
        self.lr = lr_at(step, self.train.steps, self.optim)
        self.updates.step(self.lr)

    def _small_enough(self, step: int, part: RankBatch) -> RankBatch:
        """Returns a part of a step in micro-batches that fit: it may have been made before memory was full."""
        if self.micro_batch is None or max(len(batch.sample_ids) for batch in part.batches) <= self.micro_batch:
            return part
        return share(self.source, self.objective, step - 1, self.world)

    @contextmanager
    def _halving(self, step: int, part: RankBatch) -> Iterator[None]:
        """Context in which full memory halves the micro-batches of this and the later steps, under "auto"."""
        try:
            yield
        except (RuntimeError, MemoryError) as error:
            source, largest = self.source, max(len(batch.sample_ids) for batch in part.batches)
            if not isinstance(source, ResizableSource) or self.train.micro_batch_size != "auto":
                raise
            size = min(largest, source.micro_batch_size or largest)
            if size < 2 or not _memory_is_full(error):
                raise
            self.micro_batch = source.micro_batch_size = size // 2
            error.__traceback__ = None  # it keeps what filled the memory
        else:
            return
        if self.world.device.type == "cuda":
            torch.cuda.empty_cache()
        console.warn(
            f"memory is full at step {step:,}: forward passes now have {self.micro_batch} sequences, and a step as "
            "many as before"
        )

    def _shown(self) -> dict[str, object]:
        now, read = time.monotonic(), self.metrics.tokens
        self.recent.append((now, read))
        while len(self.recent) > 2 and now - self.recent[1][0] > RECENT_S:
            self.recent.popleft()
        then, before = self.recent[0]
        rate = (read - before) / max(now - then, 1e-9)
        return {"loss": self.metrics.loss, "tokens/s": f"{rate:,.0f}"}

    def _now_and_then(self, step: int) -> None:
        """Writes what is due after a step: a line of metrics, a validation, a checkpoint. A phase's last step has all
        three."""
        train, last = self.train, step == self.train.steps or step in self.boundaries
        line = self._log(step) if last or step % train.log_every == 0 else {}
        self._tell(step, self.callbacks.on_step, step, line)
        if self.evaluate is not None and (last or step % train.eval_every == 0):
            self._validate(step, self.evaluate)
        if last or step % train.save_every == 0:
            self._save(step)

    def _finish_early(self) -> None:
        """Writes what a last step has, as far as it is not written yet."""
        step = self.done
        console.say(f"The run ends after step {step:,}: {self.reason or 'asked for by a callback'}.")
        self.metrics.settle()
        if self.metrics.window.steps:
            self._log(step)
        if self.evaluate is not None and self.evaluated_at != step:
            self._validate(step, self.evaluate)
        if self.saved_at != step:
            self._save(step)

    def _log(self, step: int) -> dict[str, float]:
        """Writes a line of metrics, and returns its values on rank 0."""
        self.metrics.settle()
        if self.meter is not None:
            self.meter.read()
        self._tick()
        window = self.metrics.take()
        values = {
            **self._phase(step),
            **window.means(),
            "lr": self.lr,
            "grad_norm": self.metrics.grad_norm,
            "steps": window.steps,
            "tokens": window.tokens,
            "tokens_per_s": round(window.tokens / max(window.seconds, 1e-9), 1),
            "elapsed_s": round(self.elapsed_s, 2),
        }
        if self.world.main:
            self.log.write("train", step, values)
        return values

    def _phase(self, step: int) -> dict[str, int]:
        return {"phase": bisect_left(self.boundaries, step) + 1} if self.boundaries else {}

    def _validate(self, step: int, evaluate: Callable[[int], dict[str, float]]) -> None:
        self._tick()
        self._by_main(partial(self._look, step, evaluate))
        self.evaluated_at = step
        self.mark = time.monotonic()

    def _look(self, step: int, evaluate: Callable[[int], dict[str, float]]) -> None:
        began = time.monotonic()
        self.model.eval()
        with torch.no_grad(), self._saved_anyway(step):
            figures = self.ranks.look(partial(evaluate, step))
        check_look(step, figures)
        self.model.train()
        if self.world.main:
            self.log.write(
                "valid", step, {**self._phase(step), **figures, "took_s": round(time.monotonic() - began, 2)}
            )
            if step < self.train.steps:  # the last figures are the result: who called says them
                shown = "  ".join(f"{name} {value:.4g}" for name, value in figures.items() if "/" not in name)
                console.say(f"step {step:,}: {shown}")
        self._tell(step, self.callbacks.on_evaluate, step, figures)

    def _save(self, step: int) -> None:
        self.metrics.settle()
        self._tick()
        self._by_main(partial(self._write, step, _weights(self.model), self.updates.state()))
        self.saved_at = step
        self.mark = time.monotonic()

    def _write(self, step: int, model: dict[str, Tensor], optimizer: dict[str, Tensor]) -> None:
        if not self.world.main:
            checkpoint.hand_over(model, optimizer)
            return
        state = {
            "identity": self.identity,
            "metrics_bytes": self.log.sync(),
            "metrics_xxh3_128": file_hash(self.log.path),
            "window": self.metrics.window.state(),
            "evaluated_at": self.evaluated_at,
            "elapsed_s": self.elapsed_s,
            "usage": self.meter.read().as_json() if self.meter is not None else {},
        }
        checkpoint.save_checkpoint(self.run, step, model=model, optimizer=optimizer, state=state, keep=self.train.keep)

    @contextmanager
    def _saved_anyway(self, step: int) -> Iterator[None]:
        """Context of code that is not the loop's: a defect there, as in a callback, loses nothing that was learned."""
        try:
            yield
        except BertieError:  # such as a loss that is not finite
            raise
        except Exception as error:
            if self.world.size == 1 and self.saved_at != step:
                self._save(step)
                error.add_note(
                    f"{self.run}/checkpoint-{step} is saved: {self.run} can be used as it is, and the same call "
                    "continues it."
                )
            raise

    def _by_main(self, work: Callable[[], None]) -> None:
        """Runs a function of the model on rank 0, or on all ranks when the model is sharded."""
        if self.ranks.together:
            work()
        else:
            self.world.by_main(work)

    def _stop(self, step: int) -> NoReturn:
        """Saves a checkpoint, waits for the rank that writes it, and stops."""
        if self.saved_at != step:
            self._save(step)
        self.world.add_counts({STOP: 1})
        reason = self.request.name or "Another rank asked to,"
        saved = f"{self.run}/checkpoint-{step} is saved. The same command resumes from it."
        stopped = Stopped(f"{reason} after step {step:,}.", hint=saved)
        stopped.by_hand = self.request.name == "SIGINT"
        raise stopped

    def _load(self, saved: Checkpoint) -> None:
        """Restores weights, optimizer and the sums that are not logged yet."""
        weights, ours = saved.tensors(checkpoint.MODEL), _weights(self.model)
        where = str(saved.folder / checkpoint.MODEL)
        if {name: t.shape for name, t in weights.items()} != {name: t.shape for name, t in ours.items()}:
            raise DataError(f"{where} has the weights of a model of another shape.")
        for name, tensor in ours.items():
            own(tensor).copy_(part_of(weights[name], tensor))
        self.updates.load(saved.tensors(checkpoint.OPTIMIZER), str(saved.folder))
        self.metrics.window = MetricsWindow(**saved.state["window"])
        self.before_s, self.evaluated_at = saved.state["elapsed_s"], saved.state["evaluated_at"]
        if self.meter is not None:
            self.meter.resume(saved.state.get("usage", {}))
        if saved.belongs_to(self.run):
            self.saved_at = saved.step

    def _tick(self) -> None:
        """Adds the time since the last measurement to the training time."""
        now = time.monotonic()
        self.metrics.window.seconds += now - self.mark
        self.mark = now

    @property
    def elapsed_s(self) -> float:
        """The seconds of this run, including all resumed parts."""
        return self.before_s + time.monotonic() - self.began


def _looks(run: Path, step: int) -> tuple[tuple[int, dict[str, float]], ...]:
    """Returns the steps and scores of a run's evaluations until a step."""
    lines = [line for line in log.read_log(run) if line["kind"] == "valid" and line["step"] <= step]
    return tuple((line.pop("step"), {name: line[name] for name in line if name != "kind"}) for line in lines)


def _weights(model: nn.Module) -> dict[str, Tensor]:
    """Returns the parameters and the persistent buffers of a model, each once."""
    names = model.state_dict().keys()
    tensors = [*model.named_parameters(), *model.named_buffers()]
    return {name: tensor.detach() for name, tensor in tensors if name in names}
