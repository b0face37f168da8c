"""The settings of the optimizer and of the training loop."""

from typing import Annotated, Literal

from pydantic import Field

from bertie.settings import Config

# Bounds that no run comes near: a slip of the hand is refused at once, not when memory or patience ends.
MOST_STEPS = 10**9
MOST_SEQUENCES = 1 << 20  # of a step; the largest published batches have 65,536 (LAMB)
MOST_SEED = 2**63 - 1
_Rate = Annotated[float, Field(ge=0, lt=1)]


class OptimConfig(Config):
    """The optimizer and its learning-rate schedule."""

    name: Literal["adamw", "bert_adam", "lamb", "muon", "adafactor"] = "adamw"
    """Optimizer: adamw, bert_adam (without bias correction), lamb (for very large batches), muon (Muon for matrices,
    AdamW for the rest), or adafactor (T5's). Steps of adafactor are relative to the size of a weight. Source:
    Loshchilov and Hutter 2019; google-research/bert, optimization.py; You et al. 2019; Jordan et al. 2024; Shazeer and
    Stern 2018."""
    lr: float = Field(1e-4, gt=0)
    """Peak learning rate. Source: pre-training Devlin et al. 2018, A.2; fine-tuning A.3."""
    betas: tuple[_Rate, _Rate] = (0.9, 0.999)
    """Adam's decay rates of the first and second moment. Source: Devlin et al. 2018, A.2; RoBERTa has 0.9, 0.98 (Liu et
    al. 2019, 3.1)."""
    momentum: float = Field(0.95, ge=0, lt=1)
    """Muon's decay rate of its momentum. Source: Jordan et al. 2024."""
    eps: float = Field(1e-6, gt=0)
    """Constant added to Adam's denominator. Source: google-research/bert, optimization.py."""
    weight_decay: float = Field(0.01, ge=0)
    """Decoupled weight decay of matrices. Biases and norms have none. Source: Devlin et al. 2018, A.2;
    google-research/bert, optimization.py."""
    layer_decay: float = Field(1.0, gt=0, le=1)
    """Learning rate of each layer relative to the layer above; useful values are 0.8 to 0.95. Source: Clark et al.
    2020, table 7: 0.8, 0.9."""
    max_grad_norm: float = Field(1.0, gt=0)
    """Maximum gradient norm. Larger gradients are scaled down. Source: google-research/bert, optimization.py."""
    warmup: float = Field(0.01, ge=0)
    """Steps of linear warm-up, or below 1 their share of all steps. Source: Devlin et al. 2018, A.2: 10,000 of
    1,000,000."""
    decay: Literal["linear", "constant", "cosine", "inverse_sqrt", "stable"] = "linear"
    """Learning-rate schedule after warm-up: linear or cosine to zero, constant, the inverse square root of the step, or
    stable: constant until the final steps (cooldown), then 1 - sqrt to zero. Source: Devlin et al. 2018, A.2; Raffel et
    al. 2020, 3.1.2 (inverse_sqrt); Hägele et al. 2024 (stable)."""
    cooldown: float = Field(0.2, gt=0)
    """Final steps in which the rate falls under decay=stable, or below 1 their share of all steps. Source: Hägele et
    al. 2024, 3."""


class TrainConfig(Config):
    """Length of training, batches, precision, and what is saved. A step is an optimizer step."""

    steps: int = Field(10_000, ge=1, le=MOST_STEPS)
    """Optimizer steps of the entire run. Source: Devlin et al. 2018, A.2: 1,000,000."""
    batch_size: int = Field(256, ge=1, le=MOST_SEQUENCES)
    """Sequences per step, over all micro-batches and processes. Source: Devlin et al. 2018, A.2: 256; fine-tuning A.3:
    16, 32."""
    micro_batch_size: Annotated[int, Field(ge=1, le=MOST_SEQUENCES)] | Literal["auto"] | None = None
    """Sequences per forward pass. Gradients are accumulated up to batch_size, so it changes memory, and of the result
    only the draws of dropout. auto (in fine-tuning): when memory is full, half as many, until it fits. Not set: all of
    a process's share."""
    gradient_checkpointing: bool = False
    """Keep only the input of each layer for the backward pass, and compute the rest again: less memory, more time, the
    same gradients. Source: Chen et al. 2016."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Compute precision; master weights are always float32. auto: bf16 where it is faster on this machine. Source:
    Kalamkar et al. 2019."""
    device: str = "auto"
    """cpu, cuda, cuda:1 or mps; auto: the fastest available device."""
    shard: Literal["none", "full"] = "none"
    """With several processes: none gives each the entire model; full gives each a shard of weights, gradients and
    optimizer state (FSDP2). Source: Rajbhandari et al. 2020."""
    graphs: bool = True
    """Record steps as CUDA graphs, on one NVIDIA GPU in bf16. Small models train four times as fast."""
    seed: int = Field(0, ge=0, le=MOST_SEED)
    """Seed of weights, data order, masks and dropout."""
    log_every: int = Field(10, ge=1)
    """Steps between lines of metrics.jsonl."""
    eval_every: int = Field(500, ge=1)
    """Steps between validations. The last step is always validated."""
    save_every: int = Field(500, ge=1)
    """Steps between checkpoints. The last step always has one."""
    keep: int = Field(2, ge=1)
    """Number of checkpoints to keep. Older ones are deleted after a newer one is complete."""
    keep_checkpoints: bool = False
    """Keep the checkpoints of a finished run, so that it can be extended. They take most of the disk space."""
    workers: int = Field(1, ge=0)
    """Threads that prepare batches. The batches do not depend on it."""
    metric: str = ""
    """Metric of an evaluation that selects weights and stops the run: macro_f1, accuracy, loss ... Default: the task's
    main metric in fine-tuning, the loss in pre-training."""
    patience: int | None = Field(None, ge=1)
    """End the run after so many evaluations without an improvement of the metric. Not set: all steps are run."""
    min_improvement: float = Field(0.0, ge=0)
    """Smallest difference of the metric that counts as an improvement."""
    track: tuple[Literal["tensorboard", "mlflow", "wandb", "trackio"], ...] = ()
    """Experiment trackers that mirror the run: tensorboard, mlflow, wandb or trackio. Each needs the extra of its
    name."""

    @property
    def largest_micro_batch(self) -> int | None:
        """The most sequences of a forward pass that the settings allow; None: all of a share."""
        return None if self.micro_batch_size == "auto" else self.micro_batch_size
