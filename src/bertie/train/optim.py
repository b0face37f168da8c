"""AdamW as BERT uses it: no decay on biases and norms; its state by parameter name, so that it fits in safetensors."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from bertie.config import OptimConfig
from bertie.errors import DataError


def adamw(model: nn.Module, config: OptimConfig) -> torch.optim.AdamW:
    """Fused AdamW with two groups: matrices decay; vectors, which are biases and norms, do not.

    Devlin et al. 2018, A.2; release file optimization.py, exclude_from_weight_decay. Unlike the release, the moments
    are corrected for their start from zero (Kingma and Ba 2015, algorithm 1).
    """
    decayed = [parameter for parameter in model.parameters() if parameter.requires_grad and parameter.ndim > 1]
    spared = [parameter for parameter in model.parameters() if parameter.requires_grad and parameter.ndim <= 1]
    groups = [
        {"params": decayed, "weight_decay": config.weight_decay},
        {"params": spared, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]], lr=config.lr, betas=config.betas, eps=config.eps, fused=True
    )


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Use `lr` from the next update on."""
    for group in optimizer.param_groups:
        group["lr"] = lr


def state_by_name(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """The optimizer's tensors as "<parameter>/<what>": exp_avg, exp_avg_sq, step; none for what was never updated."""
    return {
        f"{name}/{what}": tensor
        for name, parameter in model.named_parameters()
        for what, tensor in optimizer.state.get(parameter, {}).items()
    }


def load_state(optimizer: torch.optim.Optimizer, model: nn.Module, state: Mapping[str, Tensor], where: str) -> None:
    """The inverse of `state_by_name`. Raises DataError, naming `where`, for a tensor that belongs to no parameter."""
    parameters = dict(model.named_parameters())
    for key, tensor in state.items():
        name, _, what = key.rpartition("/")
        parameter = parameters.get(name)
        if parameter is None or (tensor.ndim and tensor.shape != parameter.shape):
            raise DataError(f"{where} holds {key} {tuple(tensor.shape)}, which belongs to no parameter of this model.")
        # a copy: the loaded tensor may be a view of the file
        optimizer.state[parameter][what] = torch.empty_like(tensor, device=parameter.device).copy_(tensor)
