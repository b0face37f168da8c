"""The learning rate as a function of the step: pure, so that a resumed run needs no scheduler state."""

import math

from bertie.train.config import OptimConfig


def warmup_steps(warmup: float, steps: int) -> int:
    """Steps of warm-up: `warmup` itself, or that share of all steps when it is below 1."""
    return round(warmup * steps) if warmup < 1 else round(warmup)


def lr_at(step: int, steps: int, optim: OptimConfig) -> float:
    """The learning rate of update number `step`, from 1 to `steps`.

    Linear warm-up reaches `optim.lr` in its last step; the decay then leads to zero one step after the last, so that
    no update is wasted on a rate of zero. Devlin et al. 2018, A.2. The release (optimization.py) decays from step 0
    and overrides that during warm-up, which makes its rate jump down by warm-up's share when warm-up ends; ours is
    continuous.
    """
    warm = warmup_steps(optim.warmup, steps)
    if step <= warm:
        return optim.lr * step / warm
    if optim.decay == "constant":
        return optim.lr
    start = max(warm, 1)
    left = (steps + 1 - step) / (steps + 1 - start) if step > start else 1.0
    if optim.decay == "cosine":
        left = (1 - math.cos(math.pi * left)) / 2
    return optim.lr * left
