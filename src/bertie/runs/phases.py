"""The phases of a pre-training run, from its config."""

from dataclasses import dataclass

from bertie.errors import UsageError
from bertie.files import JsonObject
from bertie.objectives import OBJECTIVES
from bertie.runs.config import PretrainConfig
from bertie.settings import merge


@dataclass(frozen=True)
class Phase:
    """A phase of a run. first: the number of its first sample."""

    steps: int
    max_length: int
    batch_size: int
    micro_batch_size: int | None
    objectives: dict[str, JsonObject | None]
    first: int


def phases(config: PretrainConfig) -> list[Phase]:
    """Returns all phases of a run, which is one phase without `phases`.

    Raises UsageError when the steps do not sum to train.steps. Raises UsageError too when an objective is not one of
    the run's, or an option is not one of the batches.
    """
    train = config.train
    if not config.phases:
        return [
            Phase(train.steps, config.max_length, train.batch_size, train.largest_micro_batch, config.objectives, 0)
        ]
    result: list[Phase] = []
    for number, (phase, steps) in enumerate(zip(config.phases, _steps(config), strict=True), 1):
        for name, options in phase.objectives.items():
            if config.objectives.get(name) is None:
                raise UsageError(
                    f"Phase {number} sets options of {name!r}, which is not an objective of the run. A phase "
                    "can change the options of objectives, but not the objectives."
                )
            if fixed := [option for option in options if option in OBJECTIVES[name].whole_run]:
                raise UsageError(
                    f"Phase {number} sets {name}.{fixed[0]}, which is the same in the whole run. Set it for the run: "
                    f"objectives.{name}.{fixed[0]}. A phase can only change what its batches contain."
                )
        result.append(
            Phase(
                steps,
                phase.max_length or config.max_length,
                phase.batch_size or train.batch_size,
                phase.micro_batch_size or train.largest_micro_batch,
                merge({k: v if v is None else dict(v) for k, v in config.objectives.items()}, phase.objectives),
                first=sum(before.steps * before.batch_size for before in result),
            )
        )
    return result


def _steps(config: PretrainConfig) -> list[int]:
    """Returns the steps of each phase."""
    total = config.train.steps
    steps = [phase.steps for phase in config.phases]
    known = [None if s is None else round(s * total) if s < 1 else round(s) for s in steps]
    left, open_ones = total - sum(filter(None, known)), known.count(None)
    shown = " + ".join("the rest" if s is None else f"{s:,}" for s in known)
    if open_ones > 1:
        raise UsageError(
            f"Two phases have no steps ({shown}). Only one phase may omit them and takes the rest of train.steps."
        )
    if (left != 0 if open_ones == 0 else left < 1) or 0 in known:
        raise UsageError(
            f"The phases have {shown} steps, but train.steps is {total:,}. Omit `steps` in one phase, which "
            "then takes the rest."
        )
    return [left if s is None else s for s in known]
