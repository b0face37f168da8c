"""Training of a part of a model: frozen lower layers, reinitialized upper layers."""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from torch import nn

from bertie.errors import UnknownName, UsageError, WrongModel, nearest
from bertie.models.model import TorchModel
from bertie.models.streams import TwoStreamConfig
from bertie.nn.init import initialize

LAYER_NAME = re.compile(r"encoder\.layers\.(\d+)\.")
EMBEDDING_PREFIXES = ("encoder.embeddings.", "encoder.characters.", "encoder.relative.")  # what all layers read


def number_layer(name: str) -> int:
    """Returns the number of a parameter's encoder layer, from 0 at the bottom, and -1 for all other parameters."""
    match = LAYER_NAME.match(name)
    return int(match[1]) if match else -1


def freeze(model: TorchModel, layers: int) -> None:
    """Freezes the embeddings and the lowest `layers` layers.

    Raises UsageError when there are fewer layers, or when they share weights.
    """
    _check(model, layers, "freeze")
    for name, parameter in model.named_parameters():
        if name.startswith(EMBEDDING_PREFIXES) or 0 <= number_layer(name) < layers:
            parameter.requires_grad_(False)


def freeze_names(model: TorchModel, patterns: Sequence[str]) -> None:
    """Freezes the weights whose names in the files match a pattern: "bert.embeddings.*".

    Raises UsageError for a pattern that no weight matches.
    """
    parameters = model.own_parameters()
    publics = {name: model.variant.table.public(name) if model.variant else (name,) for name in parameters}
    every = [public for some in publics.values() for public in some]
    frozen = {public for pattern in patterns for public in every if fnmatchcase(public, pattern)}
    for pattern in patterns:
        if not any(fnmatchcase(public, pattern) for public in every):
            raise UnknownName(f"freeze_names: no weight is called {pattern!r}. {nearest(pattern, every)}")
    for name, parameter in parameters.items():
        if parts := frozen & {*publics[name]}:
            if len(parts) < len(publics[name]):
                raise UsageError(
                    f"freeze_names has {min(parts)} and not {min({*publics[name]} - parts)}. They are one matrix here: "
                    "freeze both or neither."
                )
            parameter.requires_grad_(False)


def reinitialize(model: TorchModel, layers: int, *, seed: int) -> None:
    """Initializes the top `layers` layers and the pooler again (Zhang et al. 2021, arXiv:2006.05987, 5).

    The top layers are specialized in the pre-training task. Raises UsageError as `freeze`.
    """
    _check(model, layers, "reinit")
    first = model.config.num_hidden_layers - layers
    names = (name for name, _ in model.named_parameters())
    chosen = {name for name in names if number_layer(name) >= first or name.startswith("encoder.pooler.")}
    stds = model.variant.stds(model.config) if model.variant else None
    initialize(model, std=model.config.initializer_range, seed=seed, only=chosen, stds=stds)


def check_layered(model: nn.Module, setting: str) -> None:
    """Raises UsageError for two streams, whose layers have no single order. setting: what needs one."""
    if isinstance(getattr(model, "config", None), TwoStreamConfig):
        raise WrongModel(f"{setting} is not supported for a model of two streams: its layers have no single order.")


def _check(model: TorchModel, layers: int, setting: str) -> None:
    if layers or setting == "freeze":
        check_layered(model, f"{setting}={layers}")
    numbers = {number_layer(name) for name, _ in model.named_parameters()} - {-1}
    if layers and len(numbers) != model.config.num_hidden_layers:
        raise WrongModel(f"{setting}={layers} is not supported for this model: all layers share one set of weights.")
    if layers > len(numbers):
        raise UsageError(f"{setting}={layers} is more than the number of layers, {len(numbers)}.")
