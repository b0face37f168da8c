"""The learning rate as a function of the step, so that a resumed run needs no scheduler state; and its default."""

import math

from bertie.train.config import OptimConfig

# Small models need a larger rate. BERT-base uses 3e-5 (Devlin et al. 2018, A.3). A model of hidden size 128 was best
# with 5e-4 on NSMC (0.765 against 0.713 with 3e-5). `python -m benchmarks.rates` measures it.
BASE, BASE_WIDTH = 3e-5, 768
HIGHEST = 5e-4
POWER = 1.57  # the line through (768, 3e-5) and (128, 5e-4), both logarithms
LORA = 10  # times the rate of all weights, for low-rank matrices: Biderman et al. 2024, 4
ABSURD = 10  # times the usual rate


def usual_rate(width: int, *, lora: bool = False) -> float:
    """Returns the peak learning rate of fine-tuning for a hidden size, to one digit: 128 -> 5e-4, 384 -> 9e-5, 768 ->
    3e-5, 1024 -> 2e-5. lora: of low-rank matrices, which need a larger one."""
    return float(f"{(LORA if lora else 1) * min(HIGHEST, BASE * (BASE_WIDTH / width) ** POWER):.0e}")


def warmup_steps(warmup: float, steps: int) -> int:
    """Returns the steps of warm-up: `warmup`, or below 1 that fraction of all steps."""
    return round(warmup * steps) if warmup < 1 else round(warmup)


def warmup_warnings(optim: OptimConfig, steps: int) -> list[str]:
    """Returns a warning when a run is shorter than its warm-up."""
    if warmup_steps(optim.warmup, steps) <= steps:
        return []
    return [
        f"The learning rate rises for optim.warmup={optim.warmup:,.0f} steps, but the run has {steps:,}: it never "
        f"reaches {optim.lr:g}."
    ]


def lr_at(step: int, steps: int, optim: OptimConfig) -> float:
    """Returns the learning rate of update number `step`, from 1 to `steps`.

    Linear warm-up reaches `optim.lr` in its last step. The decay reaches zero one step after the last step, so that no
    update has a learning rate of zero. Devlin et al. 2018, A.2. In google-research/bert (optimization.py), the decay
    starts at step 0 and is replaced by warm-up. Its learning rate therefore drops at the end of warm-up; here it is
    continuous. inverse_sqrt falls as 1 / sqrt(step), so T5's rate after 10,000 steps is lr=0.01 with as long a warm-up.
    """
    warm = warmup_steps(optim.warmup, steps)
    if step <= warm:
        return optim.lr * step / warm
    if optim.decay == "constant":
        return optim.lr
    if optim.decay == "stable":  # Hägele et al. 2024, (3)
        last = min(max(1, warmup_steps(optim.cooldown, steps)), steps - warm)
        return optim.lr * (1 - math.sqrt(max(0, step - (steps - last)) / (last + 1)))
    start = max(warm, 1)
    if optim.decay == "inverse_sqrt":
        return optim.lr * math.sqrt(start / step)
    left = (steps + 1 - step) / (steps + 1 - start) if step > start else 1.0
    if optim.decay == "cosine":
        left = (1 - math.cos(math.pi * left)) / 2
    return optim.lr * left
