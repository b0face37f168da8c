"""A wider model with the same output: features are copied, and the weights that read them are divided.

Net2Net (Chen et al. 2016) for a transformer. When every feature occurs k times, mean and variance do not change, so
layer normalization copies correctly. A matrix that reads k copies is divided by k. Each attention head occurs k times.
The hidden states are then the old ones, repeated k times, and the logits do not change.
"""

import re

import torch
from torch import Tensor

from bertie.errors import UsageError, WrongModel
from bertie.models.heads.base import Axes, Head
from bertie.models.kinds import Full, Learned, Residual
from bertie.models.model import TorchModel
from bertie.models.surgery import rebuilt

# What each axis of a weight is: features that are written (copied), features that are read (copied and divided), the
# feed-forward network's own, written or read; None: left alone. For embeddings as wide as the model. A head says so
# itself (`Head.axes`).
AXES: tuple[tuple[str, Axes], ...] = (
    (r"encoder\.embeddings\.(word|position|segment)\.weight", (None, "written")),
    (r"encoder\.layers\.\d+\.attention\.qkv\.weight", ("heads", "read")),
    (r"encoder\.layers\.\d+\.attention\.qkv\.bias", ("heads",)),
    (r"encoder\.layers\.\d+\.up\.weight", ("inner written", "read")),
    (r"encoder\.layers\.\d+\.up\.bias", ("inner written",)),
    (r"encoder\.layers\.\d+\.down\.weight", ("written", "inner read")),
    (r"(encoder\.layers\.\d+\.attention\.output|encoder\.pooler)\.weight", ("written", "read")),
    (r"encoder\..*\.bias|encoder\..*norm\.weight", ("written",)),
)
NARROW: tuple[tuple[str, Axes], ...] = (  # where embeddings have a width of their own
    (r"encoder\.embeddings\.(word|position|segment)\.weight", (None, None)),
    (r"encoder\.embeddings\.norm\.(weight|bias)", (None,)),
    (r"encoder\.embeddings\.projection\.weight", ("written", None)),
)


def wider(
    model: TorchModel, *, times: int = 1, intermediate_size: int | None = None, noise: float = 0.0, seed: int = 0
) -> TorchModel:
    """Returns a model `times` as wide, with as many times the heads, and an intermediate size of `intermediate_size`.

    The logits are the same, and the hidden states are repeated k times. Without dropout, equal copies stay equal:
    `noise` moves every new weight by that fraction of its standard deviation, and changes the logits slightly. Raises
    UsageError for a family that cannot be widened, or equal sizes.
    """
    config, state = model.config, dict(model.state_dict())
    inner = intermediate_size or times * config.intermediate_size
    if times >= 1 and inner < config.intermediate_size:
        raise UsageError(f"--intermediate {inner:,} is less than the {config.intermediate_size:,} of the model.")
    if times < 1 or (times, inner) == (1, config.intermediate_size):
        raise UsageError(
            f"The new model would have the same size: --times {times} with hidden_size {config.hidden_size}, "
            f"and --intermediate {inner} with {config.intermediate_size}."
        )
    if times > 1 and any(isinstance(head, Head) and head.axes is None for head in model.heads.values()):
        raise WrongModel(
            "This model cannot be widened with --times: its output layer is tied to the word embeddings. "
            "--intermediate works."
        )
    plain = isinstance(config.layer, Residual) and isinstance(config.attention, Full)
    plain = plain and not config.get("conv_kernel_size")
    if config.rescale_embeddings or not (plain and isinstance(config.positions, Learned)):
        raise UsageError("The layers of this family cannot be widened without changing the output.")
    rows = (*NARROW, *AXES) if config.embedding_size or config.project_embeddings else AXES
    copies = torch.arange(inner) % config.intermediate_size
    generator = torch.Generator().manual_seed(seed)
    grown = {}
    for name, tensor in state.items():
        kinds = _axes(model, name, tensor) or next(
            (kinds for pattern, kinds in rows if re.fullmatch(pattern, name)), None
        )
        if kinds is None or len(kinds) != tensor.dim():
            raise UsageError(f"{name} has a type that cannot be widened.")
        new = tensor
        for axis, kind in enumerate(kinds):
            new = _grow(new, axis, kind, times, copies)
        if noise and new.shape != tensor.shape and tensor.dim() > 1:
            new = new + noise * new.std() * torch.randn(new.shape, generator=generator)
        grown[name] = new
    changed = {
        "hidden_size": times * config.hidden_size,
        "num_attention_heads": times * config.num_attention_heads,
        "intermediate_size": inner,
    }
    return rebuilt(model, config.replace(**changed), grown)


def _axes(model: TorchModel, name: str, tensor: Tensor) -> Axes | None:
    """Returns the meaning of the axes of a head's weight; None for a weight that its head does not declare."""
    room, _, rest = name.partition(".")
    owner, _, weight = rest.partition(".")
    head = model.heads[owner] if room == "heads" else None
    if not isinstance(head, Head):
        return None
    return (None,) * tensor.dim() if head.axes is None else head.axes.get(weight)


def _grow(tensor: Tensor, axis: int, kind: str | None, times: int, copies: Tensor) -> Tensor:
    """Extends one axis. copies: the old feature of each of the new features."""
    if kind is None:
        return tensor
    if kind == "inner written":
        return tensor.index_select(axis, copies)
    if kind == "inner read":
        shares = torch.bincount(copies)[copies].to(tensor.dtype)
        return tensor.index_select(axis, copies) / shares
    if kind == "heads":  # queries, keys and values lie on end; the heads of each are repeated
        return torch.cat([torch.cat([part] * times, axis) for part in tensor.chunk(3, axis)], axis)
    repeated = torch.cat([tensor] * times, axis)
    return repeated if kind == "written" else repeated / times  # "decoded" too: the word embeddings read it
