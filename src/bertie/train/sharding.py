"""Sharded training (train.shard=full): weights, gradients and optimizer state are split over all ranks.

    each layer      a group: gathered while the layer runs, forward and backward, and sharded again
    all the rest    embeddings, heads: one group, gathered from the start of a forward pass to the end of its backward

This is torch's FSDP2 (fully_shard), the third stage of Rajbhandari et al. 2020 (ZeRO). Tensors are split by rows, one
shard per rank. Gathering involves all ranks, so each must run as many forward passes as the others.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from itertools import chain
from typing import Any, Literal, TypeVar, cast

import torch
from torch import Tensor, nn

from bertie.models.model import TorchModel
from bertie.nn.bottleneck import BottleneckLayer
from bertie.nn.layer import DecoderLayer, Layer
from bertie.train.distributed import Replicated, World

_T = TypeVar("_T")


@contextmanager
def spread(model: TorchModel, world: World, shard: Literal["none", "full"], dtype: torch.dtype) -> Iterator[Replicated]:
    """Context in which a model is on its device, entire on every rank, or (full, with several ranks) sharded."""
    if shard == "full" and world.size > 1:
        with sharded(model, world, dtype) as ranks:
            yield ranks
    else:
        model.to(world.device)
        yield Replicated(world)


@contextmanager
def sharded(model: TorchModel, world: World, dtype: torch.dtype) -> Iterator["Sharded"]:
    """Context in which a model is sharded. After normal completion, the model is entire again, and trained.

    The model's own weights stay in place, usually in main memory. The shards are copies on `world.device`, to which the
    model refers in the meantime. dtype: the compute dtype of layers, in which their weights are gathered.
    """
    own_modules = model.encoder, model.heads, model.companions
    model.encoder, model.heads, model.companions = cut = deepcopy(own_modules)  # all at once, for what they share
    try:
        yield Sharded(world, _cut(model, world, dtype))
        with torch.no_grad():
            for tensor, trained in zip(_tensors(own_modules), _tensors(cut), strict=True):
                tensor.copy_(whole_tensor(trained))
    finally:
        model.encoder, model.heads, model.companions = own_modules


class Sharded(Replicated):
    """A sharded model: FSDP sums gradients and shards them during the backward pass."""

    together = True

    def __init__(self, world: World, root: nn.Module) -> None:
        super().__init__(world)
        self._root: Any = root

    def run(self, forward: Callable[[], _T]) -> _T:
        """Calls `forward`, which may use the model. Gradients flow from the tensors of a tuple that it returns."""
        result: _T = self._root(forward)
        return result

    def look(self, forward: Callable[[], _T]) -> _T:
        """Calls `forward` without a later backward pass."""
        result = self.run(forward)
        self._root.reshard()
        return result

    def passes(self, batches: int) -> int:
        """Returns the number of micro-batches of the rank with the most."""
        return self.world.most(batches)

    def add_up(self, parameters: Iterable[nn.Parameter], figures: Tensor, *, max_norm: float) -> Tensor:
        """As `Replicated.add_up`. The gradients are sums already, and each rank has its shard."""
        parts = [own(parameter.grad) for parameter in parameters if parameter.grad is not None]
        squared = torch.nn.utils.get_total_norm(parts).square()
        self.world.add_tensors([figures, squared])
        norm = squared.sqrt()
        torch._foreach_mul_(parts, (max_norm / (norm + 1e-6)).clamp_max(1.0))  # as torch.nn.utils.clip_grad_norm_
        return norm


def _cut(model: TorchModel, world: World, dtype: torch.dtype) -> nn.Module:
    """Shards the model, and returns the module that runs it."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method

    mesh = init_device_mesh(world.device.type, (world.size,))
    # Layers cast their weights to the compute dtype, so they may be gathered in it. The rest is read in float32.
    computing = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32, cast_forward_inputs=False)
    for module in [*model.modules()]:
        if isinstance(module, Layer | BottleneckLayer):
            fully_shard(module, mesh=mesh, mp_policy=computing)
            if isinstance(module, DecoderLayer):
                register_fsdp_forward_method(module, "decode")
    root = _Root(model)
    fully_shard(root, mesh=mesh)
    for module in root.modules():
        if isinstance(module, FSDPModule):  # a sum, which is divided already; AVG and PREMUL_SUM are NCCL's alone
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
    return root


class _Root(nn.Module):
    """Calls a function while the weights that belong to no layer are gathered."""

    def __init__(self, model: TorchModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, forward: Callable[[], _T]) -> _T:
        return forward()


def _tensors(modules: Iterable[nn.Module]) -> Iterator[Tensor]:
    """Returns parameters and buffers, each once."""
    together = nn.ModuleList(modules)
    return chain(together.parameters(), together.buffers())


# Tensors that may be cut --------------------------------------------------------------------------------------------


def is_cut(tensor: Tensor) -> bool:
    """Returns whether a tensor is sharded, without importing DTensor, which takes half a second."""
    return hasattr(tensor, "placements")


def own(tensor: Tensor) -> Tensor:
    """Returns this rank's shard of a tensor, with shared memory; the entire tensor where it is not sharded."""
    return cast(Any, tensor.detach()).to_local() if is_cut(tensor) else tensor


def whole_tensor(tensor: Tensor) -> Tensor:
    """Returns an entire tensor. All ranks must call it."""
    return cast(Any, tensor.detach()).full_tensor() if is_cut(tensor) else tensor


def part_of(tensor: Tensor, like: Tensor) -> Tensor:
    """Returns this rank's shard of an entire tensor, split as `like`, without communication."""
    if not is_cut(like):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    cut = cast(Any, like)
    return own(distribute_tensor(tensor.to(like.device), cut.device_mesh, cut.placements, src_data_rank=None))


def join_shard(part: Tensor, like: Tensor) -> Tensor:
    """Returns the sharded tensor with `part` as this rank's shard, split as `like`."""
    if not is_cut(like):
        return part
    from torch.distributed.tensor import DTensor

    cut = cast(Any, like)
    return DTensor.from_local(part, cut.device_mesh, cut.placements, shape=like.shape, stride=like.stride())
