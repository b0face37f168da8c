"""Movement pruning: which layers, heads and neurons stay is learned while the model is trained.

    score S of each unit -> factor M on its output: 1 for the units of highest score, 0 for the others
    dL/dS = dL/dM, for units that are cut as well, so that they can come back
    number of units kept: from all to the wanted number, by a cubic schedule

Source: Sanh et al. 2020 (arXiv:2005.07683), 4 (scores, straight-through gradients) and 5 (schedule); heads and neurons
instead of single weights, as Lagunas et al. 2021, so that matrices really become smaller. Every layer keeps the same
number, as a config can describe.

L layers · N heads · I neurons
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from bertie.compression import importance
from bertie.compression.prune import narrowed
from bertie.models.config import EncoderConfig
from bertie.models.model import TorchModel
from bertie.models.surgery import take_layers

LAYERS, HEADS, NEURONS = "layers", "heads", "neurons"
_PARTS = ((HEADS, importance.HEADS), (NEURONS, importance.NEURONS))  # the matrices that read them
BEFORE, AFTER = 0.1, 0.3  # shares of the steps: nothing is cut yet; nothing more is cut


class Masks(nn.Module):
    """The scores of a model's units, as parameters to train with the model.

    Args:
        config: The config of the model.
        wanted: The number to keep at the end: of layers, of heads and neurons of each layer.
        steps: The steps of the training.
    """

    biases: ClassVar = (HEADS, NEURONS)  # of the optimizer: no weight decay

    def __init__(self, config: EncoderConfig, targets: Mapping[str, int], steps: int) -> None:
        super().__init__()
        layers = config.num_hidden_layers
        shapes = {
            LAYERS: (layers,),
            HEADS: (layers, config.num_attention_heads),
            NEURONS: (layers, config.intermediate_size),
        }
        self.wanted, self.steps, self.head_size = dict(targets), steps, config.head_size
        for name in self.wanted:
            self.register_parameter(name, nn.Parameter(torch.zeros(shapes[name])))
        self.step: Tensor
        self.register_buffer("step", torch.zeros((), dtype=torch.long))  # in checkpoints

    def count(self, name: str) -> int:
        """Returns how many units of a kind are kept at the current step."""
        units = self.get_parameter(name).shape[-1]
        done = (float(self.step) / self.steps - BEFORE) / (1 - BEFORE - AFTER)
        left = (1 - min(1.0, max(0.0, done))) ** 3
        return self.wanted[name] + round((units - self.wanted[name]) * left)

    def kept(self, name: str) -> Tensor:
        """Returns the units of highest score in ascending order. -> (count,) or (L, count) int64"""
        return self._best(self.get_parameter(name), name)

    def factors(self, name: str, layer: int | None = None) -> Tensor:
        """Returns 1 for the kept units and 0 for the others, with the gradient of the scores. -> (..., units)"""
        scores = self.get_parameter(name) if layer is None else self.get_parameter(name)[layer]
        hard = torch.zeros_like(scores).scatter(-1, self._best(scores, name), 1.0)
        return hard + (scores - scores.detach())

    def _best(self, scores: Tensor, name: str) -> Tensor:
        return scores.detach().topk(self.count(name), -1).indices.sort().values

    @contextmanager
    def on(self, model: TorchModel) -> Iterator[None]:
        """Multiplies the outputs of the model's units by their factors. The scores become companions of the model."""
        model.companions["masks"] = self.to(model.device)
        with model.computing_all(), ExitStack() as stack:
            for number, layer in enumerate(model.encoder.plain_layers()):
                for name, part in _PARTS:
                    if name in self.wanted:
                        hook = partial(self._narrow, name, number)
                        stack.callback(layer.get_submodule(part).register_forward_pre_hook(hook).remove)
                if LAYERS in self.wanted:
                    stack.callback(layer.register_forward_hook(partial(self._skip, number)).remove)
            try:
                yield
            finally:
                del model.companions["masks"]

    def reached(self, step: int) -> None:
        """Sets the number of finished steps."""
        self.step.fill_(step)

    def cut(self, model: TorchModel) -> TorchModel:
        """Returns the model without the units that are not kept. It computes the same as the masked model."""
        chosen = {
            (number, part): self.kept(name)[number].cpu()
            for name, part in _PARTS
            if name in self.wanted
            for number in range(model.config.num_hidden_layers)
        }
        small = narrowed(model, chosen) if chosen else model
        return take_layers(small, self.kept(LAYERS).tolist()) if LAYERS in self.wanted else small

    def _narrow(self, name: str, number: int, module: nn.Module, read: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        factors = self.factors(name, number)
        if name == HEADS:
            factors = factors.repeat_interleave(self.head_size)
        return (read[0] * factors.to(read[0].dtype), *read[1:])

    def _skip(
        self, number: int, module: nn.Module, read: tuple[object, ...], outputs: tuple[Any, ...]
    ) -> tuple[object, ...]:
        hidden, new = read[0], outputs[0]
        return (hidden + self.factors(LAYERS)[number].to(new.dtype) * (new - hidden), *outputs[1:])
