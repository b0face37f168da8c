"""Recipes: ways to make a model smaller, as values, and which ones are tried on a model.

layers, heads, neurons kept -> trained on the answers of the model they came from -> int8
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from bertie.models.config import EncoderConfig
from bertie.models.kinds import Full, Residual, Unshared

STEP = 16  # neurons: the native encoder reads as many at once


@dataclass(frozen=True)
class Recipe:
    """The number of layers, heads and neurons to keep (None: all), and the steps that follow.

    learned: how what is left is trained, a row of `learn.LEARNED`; bits: of the weights, None: float;
    embeddings: bits of the word embeddings beside weights of 4 bits.
    """

    layers: int | None = None
    heads: int | None = None
    neurons: int | None = None
    learned: str = ""
    bits: int | None = None
    embeddings: int = 8

    @property
    def name(self) -> str:
        """ "3 layers, 768 neurons, distilled, int8"."""
        cuts = [f"{n} {what if n > 1 else what[:-1]}" for what, n in self.kept.items()]
        rounded = "" if self.bits is None else f"int{self.bits}"
        return ", ".join([*cuts, *filter(None, [self.learned, rounded])]) or "as it is"

    @property
    def kept(self) -> dict[str, int]:
        """The numbers to keep, by what they count."""
        numbers = {"layers": self.layers, "heads": self.heads, "neurons": self.neurons}
        return {what: n for what, n in numbers.items() if n is not None}

    @property
    def folder(self) -> str:
        """The name of its folder."""
        return self.name.replace(", ", "-").replace(" ", "-")

    @property
    def in_float(self) -> "Recipe":
        """The recipe before quantization."""
        return replace(self, bits=None, embeddings=8)

    @property
    def cuts(self) -> bool:
        """Whether something is removed."""
        return bool(self.kept)

    @classmethod
    def to_try(cls, config: EncoderConfig, *, learns: bool, int8: bool, int4: bool = False) -> "list[Recipe]":
        """Returns the recipes to try, the cheapest first. learns: there are training examples; int8, int4: whether to
        try weights of 8 bits, and weights and word embeddings of 4."""
        floats = [cls(), *(_cuts(config) if learns else ())]
        rounded: list[dict[str, Any]] = [*[{"bits": 8}] * int8, *[{"bits": 4, "embeddings": 4}] * int4]
        return [one for base in floats for one in (base, *(replace(base, **how) for how in rounded)) if one != cls()]


def _cuts(config: EncoderConfig) -> Sequence[Recipe]:
    if not (isinstance(config.layer, Residual) and isinstance(config.sharing, Unshared)):
        return ()
    layers, heads = config.num_hidden_layers, config.num_attention_heads
    half, most = (int(config.intermediate_size * share) // STEP * STEP for share in (0.5, 0.75))
    narrow = isinstance(config.attention, Full) and config.positions.kind != "relative" and half > 0
    recipes = [Recipe(neurons=most)] if narrow else []
    if layers > 1:
        recipes.append(Recipe(layers=layers // 2, learned="distilled"))
    if narrow:
        recipes.append(Recipe(neurons=half, learned="distilled"))
    if narrow and layers > 1:
        recipes.append(Recipe(layers=layers // 2, neurons=half, learned="distilled"))
    if layers > 3:
        recipes.append(Recipe(layers=-(-layers // 3), learned="distilled"))
    if narrow and heads > 1:
        recipes.append(Recipe(heads=heads // 2, neurons=half, learned="distilled"))
    return recipes
