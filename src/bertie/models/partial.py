"""Training a part of a model: lower layers that stay as they are, upper ones that start anew."""

import re

from bertie.errors import UsageError
from bertie.models.model import Model
from bertie.nn.init import initialize

LAYER = re.compile(r"encoder\.layers\.(\d+)\.")
EMBEDDINGS, POOLER = "encoder.embeddings.", "encoder.pooler."


def layer_of(name: str) -> int:
    """The number of the encoder layer a parameter is part of, from 0 at the bottom; -1 for all others."""
    found = LAYER.match(name)
    return int(found[1]) if found else -1


def freeze(model: Model, layers: int) -> None:
    """Leave the embeddings and the lowest `layers` layers untrained.

    Raises UsageError when there are fewer layers, or when they share weights, so that the lowest are the highest too.
    """
    _check(model, layers, "freeze")
    for name, parameter in model.named_parameters():
        if name.startswith(EMBEDDINGS) or 0 <= layer_of(name) < layers:
            parameter.requires_grad_(False)


def reinitialize(model: Model, layers: int, *, seed: int) -> None:
    """Give the top `layers` layers and the pooler first values again (Zhang et al. 2021, arXiv:2006.05987, 5).

    What the top layers learnt in pre-training is about pre-training's task. Raises UsageError as `freeze`.
    """
    _check(model, layers, "reinit")
    first = model.config.num_hidden_layers - layers
    names = (name for name, _ in model.named_parameters())
    chosen = {name for name in names if layer_of(name) >= first or name.startswith(POOLER)}
    stds = model.variant.stds(model.config) if model.variant else None
    initialize(model, std=model.config.initializer_range, seed=seed, only=chosen, stds=stds)


def _check(model: Model, layers: int, setting: str) -> None:
    found = {layer_of(name) for name, _ in model.named_parameters()} - {-1}
    if layers and len(found) != model.config.num_hidden_layers:
        raise UsageError(f"{setting}={layers} is not supported for this model: all layers share one set of weights.")
    if layers > len(found):
        raise UsageError(f"{setting}={layers} is more than the number of layers, {len(found)}.")
