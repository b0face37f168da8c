"""A wider model that computes what the narrow one did: features are copied, and what reads them is divided.

Net2Net (Chen et al. 2016) for a transformer. With every feature standing k times, a mean and a variance stay the same,
so layer norm passes copies as copies; a matrix that reads k copies has its numbers divided by k; each attention head
stands k times. Then hidden states are the old ones, k times side by side, and logits are the old ones.
"""

import re

import torch
from torch import Tensor

from bertie.errors import UsageError
from bertie.models.heads.base import Axes, Head
from bertie.models.kinds import Full, Learned, Residual
from bertie.models.model import Model
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
    model: Model, *, times: int = 1, intermediate_size: int | None = None, noise: float = 0.0, seed: int = 0
) -> Model:
    """`times` as wide, with as many more heads, and a feed-forward network of `intermediate_size` (None: `times` it).

    Gives the same logits and, k times side by side, the same hidden states. Copies that are equal learn the same, as
    long as there is no dropout: `noise` moves every grown weight by that share of its spread, and the logits a little.
    Raises UsageError for a family whose layers are of another build, or nothing to grow.
    """
    config, state = model.config, dict(model.state_dict())
    inner = intermediate_size or times * config.intermediate_size
    if times < 1 or inner < config.intermediate_size or (times, inner) == (1, config.intermediate_size):
        raise UsageError(
            f"The new model would have the same size: --times {times} with hidden_size {config.hidden_size}, "
            f"and --intermediate {inner} with {config.intermediate_size}."
        )
    if times > 1 and any(isinstance(head, Head) and head.axes is None for head in model.heads.values()):
        raise UsageError(
            "This model cannot be widened with --times: its output layer is tied to the word embeddings. "
            "--intermediate works."
        )
    plain = isinstance(config.layer, Residual) and isinstance(config.attention, Full)
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


def _axes(model: Model, name: str, tensor: Tensor) -> Axes | None:
    """What the axes of a head's weight are; None for a weight of none, or that its head does not name."""
    room, _, rest = name.partition(".")
    owner, _, weight = rest.partition(".")
    head = model.heads[owner] if room == "heads" else None
    if not isinstance(head, Head):
        return None
    return (None,) * tensor.dim() if head.axes is None else head.axes.get(weight)


def _grow(tensor: Tensor, axis: int, kind: str | None, times: int, copies: Tensor) -> Tensor:
    """One axis made longer. copies: for each of the new inner features, the old one it repeats."""
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
