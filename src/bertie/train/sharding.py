"""Training in parts (train.shard=full): weights, gradients and optimizer state lie cut in pieces on all ranks.

    each layer      a group: whole while the layer runs, forward and backward, and cut again
    all the rest    embeddings, heads: one group, whole from the start of a forward pass to the end of its backward

It is torch's FSDP2 (fully_shard), the third stage of Rajbhandari et al. 2020 (ZeRO). Tensors are cut by rows, one part
a rank in the order of ranks. To make one whole all ranks meet: each must do as many forward passes as the others.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from itertools import chain
from typing import Any, Literal, TypeVar, cast

import torch
from torch import Tensor, nn

from bertie.models.model import Model
from bertie.nn.bottleneck import BottleneckLayer
from bertie.nn.layer import DecoderLayer, Layer
from bertie.train.distributed import Replicated, World

T = TypeVar("T")


@contextmanager
def spread(model: Model, world: World, shard: Literal["none", "full"], dtype: torch.dtype) -> Iterator[Replicated]:
    """Bring a model to where it is trained, whole on every rank or (full, among several) in parts on all of them."""
    if shard == "full" and world.size > 1:
        with sharded(model, world, dtype) as ranks:
            yield ranks
    else:
        model.to(world.device)
        yield Replicated(world)


@contextmanager
def sharded(model: Model, world: World, dtype: torch.dtype) -> Iterator["Sharded"]:
    """Cut a model into a part for each rank while the block runs; when it ends well the model is whole, and trained.

    The model's own weights stay where they are, in main memory as a rule. What is cut, on `world.device`, is a copy to
    which the model leads in the meantime. dtype: in which layers compute, and so in which their weights are gathered.
    """
    own_modules = model.encoder, model.heads, model.companions
    model.encoder, model.heads, model.companions = cut = deepcopy(own_modules)  # all at once, for what they share
    try:
        yield Sharded(world, _cut(model, world, dtype))
        with torch.no_grad():
            for tensor, trained in zip(_tensors(own_modules), _tensors(cut), strict=True):
                tensor.copy_(whole(trained))
    finally:
        model.encoder, model.heads, model.companions = own_modules


class Sharded(Replicated):
    """Every rank has a part of the model; FSDP adds gradients up, and cuts them, as they are made."""

    together = True

    def __init__(self, world: World, root: nn.Module) -> None:
        super().__init__(world)
        self._root: Any = root

    def run(self, forward: Callable[[], T]) -> T:
        """Call `forward`, which may use the model; gradients flow to it from the tensors of a tuple it returns."""
        result: T = self._root(forward)
        return result

    def look(self, forward: Callable[[], T]) -> T:
        """The same where there will be no backward pass."""
        result = self.run(forward)
        self._root.reshard()
        return result

    def passes(self, batches: int) -> int:
        """As many as the rank with the most micro-batches makes."""
        return self.world.most(batches)

    def add_up(self, parameters: Iterable[nn.Parameter], figures: Tensor, *, max_norm: float) -> Tensor:
        """As of Replicated. The gradients are sums already, of which each rank has its part."""
        parts = [own(parameter.grad) for parameter in parameters if parameter.grad is not None]
        squared = torch.nn.utils.get_total_norm(parts).square()
        self.world.add_tensors([figures, squared])
        norm = squared.sqrt()
        torch._foreach_mul_(parts, (max_norm / (norm + 1e-6)).clamp_max(1.0))  # as torch.nn.utils.clip_grad_norm_
        return norm


def _cut(model: Model, world: World, dtype: torch.dtype) -> nn.Module:
    """The model in parts -> the module through which it is run."""
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
    """Runs what it is given while the weights that belong to no layer are whole."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, forward: Callable[[], T]) -> T:
        return forward()


def _tensors(modules: Iterable[nn.Module]) -> Iterator[Tensor]:
    """Parameters and buffers, each once."""
    together = nn.ModuleList(modules)
    return chain(together.parameters(), together.buffers())


# Tensors that may be cut --------------------------------------------------------------------------------------------


def is_cut(tensor: Tensor) -> bool:
    """Whether a tensor lies in parts on all ranks. Told without loading DTensor, which takes half a second."""
    return hasattr(tensor, "placements")


def own(tensor: Tensor) -> Tensor:
    """This rank's part of a tensor, sharing its memory: all of it where it is not cut. It may have no rows."""
    return cast(Any, tensor.detach()).to_local() if is_cut(tensor) else tensor


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor that may be cut. All ranks must ask for it."""
    return cast(Any, tensor.detach()).full_tensor() if is_cut(tensor) else tensor


def part_of(tensor: Tensor, like: Tensor) -> Tensor:
    """What belongs to this rank of a whole tensor, when it is cut as `like` is. Nobody is asked."""
    if not is_cut(like):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    cut = cast(Any, like)
    return own(distribute_tensor(tensor.to(like.device), cut.device_mesh, cut.placements, src_data_rank=None))


def joined(part: Tensor, like: Tensor) -> Tensor:
    """The cut tensor of which `part` is this rank's, when it is cut as `like` is."""
    if not is_cut(like):
        return part
    from torch.distributed.tensor import DTensor

    cut = cast(Any, like)
    return DTensor.from_local(part, cut.device_mesh, cut.placements, shape=like.shape, stride=like.stride())
