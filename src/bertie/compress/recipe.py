"""Recipes: ways to make a model smaller, as values, and which ones are tried on a model.

layers, heads, neurons kept -> distilled from the model it came from -> int8
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bertie.models.config import EncoderConfig
from bertie.models.kinds import Full, Residual, Unshared

STEP = 16  # neurons: the native encoder reads as many at once


@dataclass(frozen=True)
class Recipe:
    """The number of layers, heads and neurons to keep (None: all), and the steps that follow."""

    layers: int | None = None
    heads: int | None = None
    neurons: int | None = None
    distilled: bool = False
    int8: bool = False

    @property
    def name(self) -> str:
        """ "3 layers, 768 neurons, distilled, int8"."""
        kept = [f"{n} {what}" for what in ("layers", "heads", "neurons") if (n := getattr(self, what)) is not None]
        return ", ".join([*kept, *["distilled"] * self.distilled, *["int8"] * self.int8]) or "as it is"

    @property
    def folder(self) -> str:
        """The name of its folder."""
        return self.name.replace(", ", "-").replace(" ", "-")

    @property
    def in_float(self) -> "Recipe":
        """The recipe before quantization."""
        return replace(self, int8=False)

    @property
    def cuts(self) -> bool:
        """Whether something is removed."""
        return (self.layers, self.heads, self.neurons) != (None, None, None)


def recipes(config: EncoderConfig, *, learns: bool, int8: bool) -> list[Recipe]:
    """Returns the recipes to try, the cheapest first. learns: there are training examples; int8: whether the model
    can be quantized."""
    found = [Recipe(), *(_cuts(config) if learns else ())]
    return [
        one for base in found for one in (base, replace(base, int8=True)) if one != Recipe() and (int8 or not one.int8)
    ]


def _cuts(config: EncoderConfig) -> Sequence[Recipe]:
    if not (isinstance(config.layer, Residual) and isinstance(config.sharing, Unshared)):
        return ()
    layers, heads = config.num_hidden_layers, config.num_attention_heads
    half, most = (int(config.intermediate_size * share) // STEP * STEP for share in (0.5, 0.75))
    narrow = isinstance(config.attention, Full) and config.positions.kind != "relative" and half > 0
    found = [Recipe(neurons=most)] if narrow else []
    if layers > 1:
        found.append(Recipe(layers=layers // 2, distilled=True))
    if narrow:
        found.append(Recipe(neurons=half, distilled=True))
    if narrow and layers > 1:
        found.append(Recipe(layers=layers // 2, neurons=half, distilled=True))
    if layers > 3:
        found.append(Recipe(layers=-(-layers // 3), distilled=True))
    if narrow and heads > 1:
        found.append(Recipe(heads=heads // 2, neurons=half, distilled=True))
    return found
