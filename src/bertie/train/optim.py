"""Optimizers: torch's own where it has one, one row each. Their state is stored by name in safetensors files.

In all of them, matrices have weight decay, and biases and norms do not (Devlin et al. 2018, A.2; google-research/bert,
optimization.py, exclude_from_weight_decay). Vectors are biases and norms. A module whose biases have more axes lists
them in `biases`. The training loop uses `OptimizerGroup`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bertie.errors import DataError, UsageError
from bertie.models.partial import EMBEDDING_PREFIXES, check_layered, number_layer
from bertie.registry import Registry
from bertie.train.config import OptimConfig
from bertie.train.muon import Muon
from bertie.train.precision import choose_dtype
from bertie.train.sharding import is_cut, join_shard, own, part_of

FOREVER = 1e9  # a step so late that the moments' correction for their start from zero is exactly 1 in float32


@dataclass(frozen=True)
class ParamSlice:
    """A part of a parameter that is updated separately: the entire parameter, one of the matrices fused in it, or this
    rank's shard."""

    name: str
    tensor: nn.Parameter
    owner: nn.Parameter
    rows: slice
    hidden: bool
    """Whether it maps hidden states to hidden states: not an embedding, a classifier or a bias."""
    below: int = 0
    """Distance from the heads: the top layer 1, the next 2 ..., the embeddings last; heads and pooler 0."""

    bias: bool = False
    """Whether it is a bias or a scale: a vector, or listed in the `biases` of its module."""

    @property
    def decays(self) -> bool:
        """Whether it has weight decay, as matrices do."""
        return not self.bias


class OptimizerGroup:
    """The optimizer of a model, or several, each with its own trainable parameters."""

    def __init__(self, model: nn.Module, config: OptimConfig) -> None:
        row = OPTIMIZERS[config.name]
        if row.apart and any(map(is_cut, model.parameters())):
            raise UsageError(
                f"optim.name={config.name} needs entire matrices, but train.shard=full splits them. Use "
                "optim.name=adamw or bert_adam, or train.shard=none."
            )
        if config.layer_decay != 1:
            check_layered(model, f"optim.layer_decay={config.layer_decay}")
        self.param_slices = list(param_slices(model, apart=row.apart))
        self.optimizers = row.make(self.param_slices, config)

    def step(self, lr: float) -> None:
        """Updates the parameters from their gradients, with the learning rate `lr`."""
        views = [part for part in self.param_slices if part.tensor is not part.owner]
        for part in views:
            part.tensor.grad = None if part.owner.grad is None else own(part.owner.grad)[part.rows]
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = lr * group["share"]
            optimizer.step()
        for part in views:
            part.tensor.grad = None  # or it would keep the whole gradient alive

    def state(self) -> dict[str, Tensor]:
        """Returns the tensors to save, as "<parameter>/<what>": exp_avg, exp_avg_sq, step; none for parameters without
        updates."""
        return {
            f"{part.name}/{what}": join_shard(tensor, part.owner) if tensor.ndim else tensor
            for part in self.param_slices
            for optimizer in self.optimizers
            for what, tensor in optimizer.state.get(part.tensor, {}).items()
        }

    def load(self, state: Mapping[str, Tensor], where: str) -> None:
        """Restores what `state` returned. Raises DataError, naming `where`, for a tensor that belongs to no
        parameter."""
        by_name = {part.name: part for part in self.param_slices}
        owners = {
            tensor: optimizer
            for optimizer in self.optimizers
            for group in optimizer.param_groups
            for tensor in group["params"]
        }
        for key, tensor in state.items():
            name, _, what = key.rpartition("/")
            part = by_name.get(name)
            if part is None or not _fits(tensor, part.owner if is_cut(part.owner) else part.tensor):
                raise DataError(
                    f"{where} contains {key} {tuple(tensor.shape)}, which belongs to no parameter of this model."
                )
            ours = part.tensor
            own_part = part_of(tensor, part.owner) if tensor.ndim else tensor
            # a copy: the loaded tensor may be a view of the file
            owners[ours].state[ours][what] = torch.empty_like(own_part, device=ours.device).copy_(own_part)


def _fits(state: Tensor, parameter: Tensor) -> bool:
    """Whether a state is a number, or has the shape of the parameter or of its rows or columns (Adafactor)."""
    sizes = zip(state.shape, parameter.shape, strict=False)
    return not state.ndim or (state.ndim == parameter.ndim and all(a in (1, b) for a, b in sizes))


def param_slices(model: nn.Module, *, apart: bool = False) -> Iterator[ParamSlice]:
    """Yields the trainable parameters in the model's order. apart: each matrix of a fused projection separately, as a
    view."""
    modules = dict(model.named_modules())
    layers = 1 + max((number_layer(name) for name, _ in model.named_parameters()), default=-1)
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad or getattr(parameter, "is_derived", False):
            continue
        module = modules[name.rpartition(".")[0]]
        linear = isinstance(module, nn.Linear) and parameter is module.weight
        hidden = linear and not name.endswith("classifier.weight")
        layer = number_layer(name)
        below = layers - layer if layer >= 0 else layers + 1 if name.startswith(EMBEDDING_PREFIXES) else 0
        parts = getattr(module, "parts", 1) if linear and apart else 1
        if parts == 1:
            tensor = nn.Parameter(own(parameter)) if is_cut(parameter) else parameter
            bias = tensor.ndim < 2 or name.rpartition(".")[2] in getattr(module, "biases", ())
            yield ParamSlice(name, tensor, parameter, slice(None), hidden, below, bias)
            continue
        size = len(parameter) // parts
        for i in range(parts):
            rows = slice(i * size, (i + 1) * size)
            yield ParamSlice(f"{name}[{i}]", nn.Parameter(parameter.detach()[rows]), parameter, rows, hidden, below)


def adamw(param_slices: Iterable[ParamSlice], config: OptimConfig) -> list[torch.optim.Optimizer]:
    """Fused AdamW (Loshchilov and Hutter 2019, algorithm 2), with bias correction."""
    groups = _groups(param_slices, config)
    return [torch.optim.AdamW(groups, lr=config.lr, betas=config.betas, eps=config.eps, fused=True)] if groups else []


def bert_adam(param_slices: Iterable[ParamSlice], config: OptimConfig) -> list[torch.optim.Optimizer]:
    """Adam of google-research/bert (optimization.py, AdamWeightDecayOptimizer), without bias correction.

    Its first update is (1 - beta1) / sqrt(1 - beta2) times AdamW's, three times with the usual decay rates. It is AdamW
    far from its first step.
    """
    param_slices = list(param_slices)
    optimizers = adamw(param_slices, config)
    for part in param_slices:
        optimizers[0].state[part.tensor] = {
            "step": torch.full((), FOREVER, device=part.tensor.device),
            "exp_avg": torch.zeros_like(part.tensor),
            "exp_avg_sq": torch.zeros_like(part.tensor),
        }
    return optimizers


def lamb(param_slices: Iterable[ParamSlice], config: OptimConfig) -> list[torch.optim.Optimizer]:
    """LAMB, for batches of tens of thousands of sequences."""
    return [Lamb(_groups(param_slices, config), lr=config.lr, betas=config.betas, eps=config.eps)]


def muon(param_slices: Iterable[ParamSlice], config: OptimConfig) -> list[torch.optim.Optimizer]:
    """Muon for hidden matrices, AdamW for embeddings, classifiers, biases and norms (Jordan et al. 2024).

    Updates of matrices have the size of AdamW's, so that both use one learning rate (Liu et al. 2025, 2.2). Its
    products are in bfloat16 where this is faster on the machine, for any compute dtype.
    """
    param_slices = list(param_slices)
    groups = _groups((part for part in param_slices if part.hidden), config)
    rest = adamw((part for part in param_slices if not part.hidden), config)
    if not groups:
        return rest
    dtype = choose_dtype("auto", groups[0]["params"][0].device)
    return [Muon(groups, lr=config.lr, momentum=config.momentum, dtype=dtype), *rest]


def adafactor(param_slices: Iterable[ParamSlice], config: OptimConfig) -> list[torch.optim.Optimizer]:
    """torch's Adafactor: a step is relative to the root mean square of a parameter, and second moments are factored.

    The state of a matrix is one number per row and column. lr is relative, and at most 1 / sqrt(step). Shazeer and
    Stern 2018, algorithm 4 and 5.
    """
    groups = _groups(param_slices, config)
    return [torch.optim.Adafactor(groups, lr=config.lr)] if groups else []


def _groups(param_slices: Iterable[ParamSlice], config: OptimConfig) -> list[dict[str, Any]]:
    """Returns the parameter groups with and without weight decay; with config.layer_decay, separately for each layer.

    The `share` of a group is layer_decay to the power of its distance from the heads: Howard and Ruder 2018, 3.2.
    """
    groups: dict[tuple[bool, float], dict[str, Any]] = {}
    for part in sorted(param_slices, key=lambda part: not part.decays):
        share, decay = config.layer_decay**part.below, config.weight_decay if part.decays else 0.0
        empty: dict[str, Any] = {"params": [], "weight_decay": decay, "share": share, "matrices": part.decays}
        groups.setdefault((part.decays, share), empty)["params"].append(part.tensor)
    return list(groups.values())


class Lamb(torch.optim.Optimizer):
    """Adam whose update of a matrix has the norm of that matrix, times the learning rate (You et al. 2019, algorithm
    2).

    Vectors and zero matrices are updated as by Adam (ALBERT's code, lamb_optimizer.py).
    """

    def __init__(self, groups: list[dict[str, object]], *, lr: float, betas: tuple[float, float], eps: float) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Runs one update. The step number stays on the tensor's device, to avoid synchronization."""
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for x in group["params"]:
                if x.grad is None:
                    continue
                state = self.state[x]
                if not state:
                    state["step"] = torch.zeros((), device=x.device)
                    state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(x), torch.zeros_like(x)
                t = state["step"].add_(1)
                m = state["exp_avg"].lerp_(x.grad, 1 - beta1)
                v = state["exp_avg_sq"].mul_(beta2).addcmul_(x.grad, x.grad, value=1 - beta2)
                update = (m / (1 - beta1**t)).div_((v / (1 - beta2**t)).sqrt_().add_(group["eps"]))
                update.add_(x, alpha=group["weight_decay"])
                if group["matrices"]:
                    length, size = x.norm(), update.norm()
                    update.mul_(torch.where((length > 0) & (size > 0), length / size, 1.0))
                x.add_(update, alpha=-group["lr"])


@dataclass(frozen=True)
class OptimizerSpec:
    """A row of the table of optimizers. apart: whether it needs entire matrices, so that fused ones are split."""

    make: Callable[[Iterable[ParamSlice], OptimConfig], list[torch.optim.Optimizer]]
    apart: bool = False


OPTIMIZERS: Registry[OptimizerSpec] = Registry(
    "optimizer",
    [
        ("adamw", OptimizerSpec(adamw)),
        ("bert_adam", OptimizerSpec(bert_adam)),
        ("lamb", OptimizerSpec(lamb, apart=True)),
        ("muon", OptimizerSpec(muon, apart=True)),
        ("adafactor", OptimizerSpec(adafactor, apart=True)),
    ],
)
