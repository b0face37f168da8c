"""Recipes and pruning.

A `Recipe` is a way to make a model smaller, as a value: layers, heads, neurons kept -> trained on the answers of the
model they came from -> int8. Pruning removes layers, and the attention heads and feed-forward neurons that matter
least.

    labeled batches -> importance of each head and neuron, second moments of their outputs
                    -> the same number kept in every layer -> smaller matrices, refitted by least squares

Every layer keeps the same number, so a config can describe the model: `intermediate_size` for neurons,
`num_hidden_layers` for layers, `num_attention_heads` with `attention_head_size` for heads. The Hugging Face format has
no key for the last one, so only Bertie opens such a folder, and its model card says so.

Importance: compression/importance.py. Refitting: Kwon et al. 2022, 4.3.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from bertie.compression.importance import HEADS, NEURONS, Importance, InputStatistics, importance
from bertie.errors import UsageError
from bertie.models.batch import Batch
from bertie.models.config import EncoderConfig
from bertie.models.encoder import Encoder
from bertie.models.kinds import Full, Residual, Unshared
from bertie.models.model import TorchModel
from bertie.models.surgery import rebuilt, take_layers
from bertie.train.base import Trainable

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


DAMPING = 1e-3  # of the least squares: of the mean of the diagonal


def spread_layers(layers: int, count: int) -> list[int]:
    """Returns evenly spread layers with the first and the last. 6 of 12: 0 2 4 7 9 11, as in DistilBERT."""
    if not 1 <= count <= layers:
        raise UsageError(f"{count} layers cannot be kept of {layers}.")
    return [round(i * (layers - 1) / (count - 1)) for i in range(count)] if count > 1 else [0]


def prune(
    model: TorchModel,
    *,
    layers: int | None = None,
    heads: int | None = None,
    neurons: int | None = None,
    learner: Trainable | None = None,
    batches: Sequence[Batch] = (),
) -> TorchModel:
    """Returns a new model with fewer layers, heads per layer and neurons per layer.

    learner, batches: labeled examples to measure importance with; layers need none. Raises UsageError for a model that
    cannot be pruned, or for more than it has.
    """
    if layers is not None:
        model = take_layers(model, spread_layers(model.config.num_hidden_layers, layers))
    if heads is None and neurons is None:
        return model
    check_prunable(model, heads, neurons)
    if learner is None or not batches:
        raise UsageError("Heads and neurons are chosen with labeled examples. Pass a file of them: --train FILE.")
    statistics = importance(model, learner, batches)
    chosen = {
        (number, part): statistics.kept(number, part, count)
        for part, count in zip((HEADS, NEURONS), (heads, neurons), strict=True)
        if count is not None
        for number in range(model.config.num_hidden_layers)
    }
    return narrowed(model, chosen, statistics)


def narrowed(
    model: TorchModel, chosen: Mapping[tuple[int, str], Tensor], statistics: Importance | None = None
) -> TorchModel:
    """Returns a model with some of the heads and neurons, by layer and part; as many in every layer.

    statistics: statistics to refit the remaining weights with. None: the weights stay as they are.
    """
    config, state = model.config, {name: tensor.clone() for name, tensor in model.state_dict().items()}
    changes: dict[str, object] = {}
    for (number, part), units in chosen.items():
        base = f"encoder.layers.{number}."
        if part == HEADS:
            features = (units[:, None] * config.head_size + torch.arange(config.head_size)).flatten()
            _narrow(state, f"{base}attention.qkv", torch.cat([features + i * config.attention_size for i in range(3)]))
            if len(units) < config.num_attention_heads:
                changes |= {"attention_head_size": config.head_size, "num_attention_heads": len(units)}
        else:
            features = units
            _narrow(state, f"{base}up", features)
            changes["intermediate_size"] = len(units)
        name = f"{base}{part}"
        if statistics is None:
            state[f"{name}.weight"] = state[f"{name}.weight"][:, features].contiguous()
        else:
            _refit(state, name, features, statistics.inputs[number, part])
    return rebuilt(model, config.replace(**changes), state)


def check_prunable(model: TorchModel, heads: int | None, neurons: int | None) -> None:
    """Raises UsageError for a model whose heads and neurons cannot be pruned, or for more than it has."""
    config = model.config
    plain = type(model.encoder) is Encoder and isinstance(config.layer, Residual) and isinstance(config.attention, Full)
    gated = any(getattr(layer, "gated", False) for layer in model.encoder.in_order()) if plain else False
    if not plain or gated or not isinstance(config.sharing, Unshared) or config.positions.kind == "relative":
        raise UsageError(
            "Heads and neurons of this model cannot be pruned. BERT-shaped encoders with full attention and layers of "
            "their own can."
        )
    for name, number, most in (
        ("heads", heads, config.num_attention_heads),
        ("neurons", neurons, config.intermediate_size),
    ):
        if number is not None and not 1 <= number <= most:
            raise UsageError(f"{number:,} {name} cannot be kept: each layer has {most:,}.")
    if heads is not None and config.hidden_size % heads:
        able = ", ".join(str(n) for n in range(1, config.num_attention_heads + 1) if not config.hidden_size % n)
        raise UsageError(
            f"{heads} heads cannot be kept: config.json must have a number that divides the width of the model, "
            f"{config.hidden_size}. Choose one of {able}."
        )


def _narrow(state: dict[str, Tensor], name: str, rows: Tensor) -> None:
    """Keeps some outputs of a matrix."""
    for end in ("weight", "bias"):
        if f"{name}.{end}" in state:
            state[f"{name}.{end}"] = state[f"{name}.{end}"][rows].contiguous()


def _refit(state: dict[str, Tensor], name: str, columns: Tensor, inputs: InputStatistics) -> None:
    """Keeps some inputs of a matrix, and fits weights and bias so that its outputs change least."""
    weight, bias = state[f"{name}.weight"], state.get(f"{name}.bias")
    read = torch.cat([columns, torch.tensor([weight.shape[1]])]) if bias is not None else columns
    moments = inputs.moments.double() / inputs.tokens
    inner = moments[read][:, read]
    pull = DAMPING * inner.diag().mean()  # towards the weights there were
    whole = weight.double() if bias is None else torch.cat([weight, bias[:, None]], 1).double()
    outputs = whole @ moments[: whole.shape[1]][:, read] + pull * whole[:, read]
    fitted = torch.linalg.solve(inner + pull * torch.eye(len(inner)), outputs.T).T.float()
    state[f"{name}.weight"] = (fitted if bias is None else fitted[:, :-1]).contiguous()
    if bias is not None:
        state[f"{name}.bias"] = fitted[:, -1].contiguous()
