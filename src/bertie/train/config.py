"""The settings of an optimizer and of a training loop."""

from typing import Annotated, Literal

from pydantic import Field

from bertie.settings import Config

# Bounds that no run comes near: a slip of the hand is refused at once, not when memory or patience ends.
MOST_STEPS = 10**9
MOST_SEQUENCES = 1 << 20  # of a step; the largest published batches have 65,536 (LAMB)
MOST_SEED = 2**63 - 1
Rate = Annotated[float, Field(ge=0, lt=1)]


class OptimConfig(Config):
    """The optimizer and its learning-rate schedule (Devlin et al. 2018, A.2)."""

    name: Literal["adamw", "bert_adam", "lamb", "muon"] = "adamw"
    """adamw; bert_adam, without bias correction, as released; lamb, for huge batches; muon for matrices, adamw else."""
    lr: float = Field(1e-4, gt=0)
    """Peak learning rate."""
    betas: tuple[Rate, Rate] = (0.9, 0.999)
    """Adam's decay rates of the first and second moment."""
    momentum: float = Field(0.95, ge=0, lt=1)
    """Muon's decay rate of its one moment."""
    eps: float = Field(1e-6, gt=0)
    """Adam's denominator offset; 1e-6 is the BERT release's."""
    weight_decay: float = Field(0.01, ge=0)
    """Decoupled weight decay; never on biases and norms."""
    layer_decay: float = Field(1.0, gt=0, le=1)
    """Each layer's learning rate is this share of that of the layer above; 0.8 to 0.95 spare the lower ones."""
    max_grad_norm: float = Field(1.0, gt=0)
    """Gradients of a larger global norm are scaled down to it."""
    warmup: float = Field(0.01, ge=0)
    """Steps of linear warm-up; below 1, a share of all steps. The paper: 10,000 of 1,000,000."""
    decay: Literal["linear", "constant", "cosine"] = "linear"
    """How the rate falls after warm-up: to zero at the last step, or not at all."""


class TrainConfig(Config):
    """How long, how much at once, and what is kept along the way. A step is an optimizer step."""

    steps: int = Field(10_000, ge=1, le=MOST_STEPS)
    """Optimizer steps of the whole run."""
    batch_size: int = Field(256, ge=1, le=MOST_SEQUENCES)
    """Sequences per step, over all micro-batches and ranks."""
    micro_batch_size: int | None = Field(None, ge=1, le=MOST_SEQUENCES)
    """Sequences per forward pass; None: all of a rank's share at once. Changes memory, not the result."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Compute precision; master weights stay float32. auto: bf16 where the machine is quicker in it."""
    device: str = "auto"
    """cpu, cuda, cuda:1, mps; auto: the best there is."""
    shard: Literal["none", "full"] = "none"
    """Among several processes: each has the whole model; or (full) a part of its weights, gradients, moments: FSDP2."""
    compile: bool = False
    """Compile the encoder (torch.compile): the same losses and gradients; on a CPU slower, on a GPU not measured."""
    seed: int = Field(0, ge=0, le=MOST_SEED)
    """Seed of weights, data order, masks and dropout."""
    log_every: int = Field(10, ge=1)
    """Steps between lines of metrics.jsonl."""
    eval_every: int = Field(500, ge=1)
    """Steps between validations; one more at the end."""
    save_every: int = Field(500, ge=1)
    """Steps between checkpoints; one more at the end."""
    keep: int = Field(2, ge=1)
    """Checkpoints kept; older ones are deleted once a newer one is whole."""
    keep_checkpoints: bool = False
    """Keep checkpoints when the run has finished, so that it can be made longer. They take the most disk."""
    workers: int = Field(1, ge=0)
    """Threads that prepare batches ahead; any number gives the same batches."""
    tensorboard: bool = False
    """Mirror the metrics for TensorBoard in RUN/tensorboard; needs the extra [track]."""
