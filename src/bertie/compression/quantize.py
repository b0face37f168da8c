"""Quantization of weights to int8 after training, layer by layer, on calibration texts with quantized activations.

    1  sort the features: those with the largest range form a group with its own scale
    2  shift each input feature by its mean and divide it by sqrt(range of x / range of w); the weight is adapted
    3  round the weight, and compensate each error in the features that are not rounded yet (GPTQ, Frantar et al. 2022)
    4  add the remaining mean error to the bias, where the matrix has one

Smoothing: Xiao et al. 2022. The input of the second feed-forward matrix is not smoothed, which would cost more than it
gains. Activations are rounded as in the native encoder of this machine: 255 steps from the minimum to the maximum of a
token's row, or 127 where the processor multiplies 7 by 8 bits. Layers that share their weights are calibrated on the
inputs of all their passes.

T tokens · H hidden size · I intermediate size · N, K output and input features · G groups
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertie.errors import WrongModel
from bertie.infer.native.library import open_library
from bertie.infer.native_engine import unsupported
from bertie.models.encoder import Encoder
from bertie.models.int4 import Int4Weight
from bertie.models.int8 import Int8Weight, added_together, excess
from bertie.models.model import TorchModel
from bertie.models.weights import WORD_EMBEDDINGS
from bertie.nn.layer import Layer
from bertie.nn.rotary import TurnedAttention
from bertie.text.sequences import Sequences

WIDE, HALF_WIDE = 64, 448  # features of the groups of widest range; of the intermediate size, one group more
LEAST_RANGE = 1e-4
DAMPING, BLOCK = 0.01, 64  # of GPTQ: of the mean of the diagonal; columns at a time
CALIBRATION_TOKENS = 2600  # of calibration texts that are enough: four times as many change the fifth digit


@dataclass(frozen=True)
class Quantized:
    """Parameters in few bits and biases, by the model's names; errors of each matrix's outputs, relative."""

    weights: dict[str, Int8Weight | Int4Weight]
    biases: dict[str, Tensor]
    errors: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Rounding:
    """How an engine multiplies bytes: steps of an activation's row; what weights may add up to, 0: anything."""

    steps: int = 255
    most: int = 0


def rounding() -> Rounding:
    """That of this machine's native encoder; the finest where there is none."""
    try:
        library, _ = open_library()
    except OSError:
        return Rounding()
    return Rounding(library.bertie_top(), library.bertie_most())


def quantize(model: TorchModel, texts: Sequences) -> Quantized:
    """Returns the encoder's matrices and word embeddings in int8, calibrated on token ids of representative texts.

    Raises UsageError as `check_supported`.
    """
    check_supported(model)
    with torch.inference_mode():
        return _Calibration(model.encoder, texts, rounding()).run()


def check_supported(model: TorchModel) -> None:
    """Raises UsageError for a model that the native encoder does not support."""
    if reason := unsupported(model):
        raise WrongModel(
            f"This model cannot be quantized: {reason}. Only encoders of the native engine can (bertie help inference)."
        )


def apply(model: TorchModel, result: Quantized) -> None:
    """Sets the quantized weights of a model, dequantized for torch, and the biases."""
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for name, weight in result.weights.items():
            parameters[name].copy_(torch.from_numpy(weight.dequantized()))
        for name, bias in result.biases.items():
            parameters[name].copy_(bias)
    model.packed = dict(result.weights)


class _Calibration:
    """Calibration texts in the encoder, in two streams: exact and quantized."""

    def __init__(self, encoder: Encoder, texts: Sequences, rounding: Rounding) -> None:
        self.encoder, self.config, self.rounding = encoder, encoder.config, rounding
        self.lengths: list[int] = texts.lengths.tolist()
        self.ids, self.types = torch.from_numpy(texts.input_ids).long(), torch.from_numpy(texts.token_type_ids).long()
        self.found = Quantized({}, {})
        self.names = {id(module): f"encoder.{name}" for name, module in encoder.named_modules()}

    def run(self) -> Quantized:
        layers = list(self.encoder.in_order())
        passes = len(layers) // len({id(layer) for layer in layers})  # that share their weights
        modules = {id(module): module for module in self.encoder.modules()}
        ranges: dict[int, Tensor] = {}
        read: dict[int, list[Tensor]] = {}  # by modules that are passed several times: some rows of each pass
        smoothed: dict[int, bool] = {}

        def look(module: nn.Module, streams: list[Tensor], smooth: bool) -> list[Tensor]:
            key, x = id(module), streams[0]
            wide = (x - x.mean(0) * smooth).abs().amax(0)
            ranges[key] = torch.maximum(wide, ranges.get(key, wide))
            if passes > 1:
                read.setdefault(key, []).append(x[len(read.get(key, ())) % passes :: passes])
            smoothed[key] = smooth
            return [_linear(module, x)]

        word = self.encoder.embeddings.word.weight
        words = Int8Weight.rows(word.float().numpy())
        self.found.weights[WORD_EMBEDDINGS] = words
        both = [self._embedded(torch.from_numpy(words.dequantized())), self._embedded(word)]
        if (projection := self.encoder.embeddings.projection) is not None:
            whole = torch.zeros(both[0].shape[1], dtype=torch.long)
            both = list(self._quantized(projection, both[0], both[1], whole, True))
        self._through(both[1:], look)
        groups = self._groups(ranges)
        for key, parts in read.items():
            x = torch.cat(parts)
            self._quantized(modules[key], x, x, groups[key], smoothed[key])
        if not read:
            self._through(both, lambda m, x, smooth: list(self._quantized(m, x[0], x[1], groups[id(m)], smooth)))
        return self.found

    def _groups(self, ranges: dict[int, Tensor]) -> dict[int, Tensor]:
        """The group of each input feature of each module, from the features' ranges."""
        layers = [layer for layer in self.encoder.in_order() if isinstance(layer, Layer)]
        readers = [ranges[id(m)] for layer in layers for m in (layer.attention.get_submodule("qkv"), layer.rise)]
        hidden = torch.stack([r / r.median().clamp_min(LEAST_RANGE) for r in readers]).mean(0)
        natural = torch.arange(self.config.attention_size, dtype=torch.float)
        groups: dict[int, Tensor] = {}
        for layer in layers:
            groups[id(layer.attention.get_submodule("qkv"))] = groups[id(layer.rise)] = widest(hidden, (WIDE,))
            groups[id(layer.attention.get_submodule("output"))] = widest(natural, (2 * WIDE,))
            groups[id(layer.down)] = widest(ranges[id(layer.down)], (HALF_WIDE, WIDE))
        return groups

    def _embedded(self, word: Tensor) -> Tensor:
        """Returns the input of the first layer, or of the projection before it. (T, E)"""
        embeddings = self.encoder.embeddings
        x = word[self.ids]
        if embeddings.position is not None:
            positions = torch.cat([torch.arange(n) for n in self.lengths]) + self.config.position_offset
            x = x + embeddings.position(positions)
        if embeddings.segment is not None:
            x = x + embeddings.segment(self.types)
        return _linear(embeddings.norm, x)

    def _through(self, x: list[Tensor], linear: Callable[[nn.Module, list[Tensor], bool], list[Tensor]]) -> None:
        """Runs all layers on both streams. `linear` is called for each matrix, with whether its input is smoothed."""
        for layer in self.encoder.plain_layers():
            attention, nothing = layer.attention, nn.Identity()
            before, after = (layer.attention_norm, nothing) if layer.pre_norm else (nothing, layer.attention_norm)
            read = [before(y) for y in x]
            attended = [self._attend(attention, y) for y in linear(attention.get_submodule("qkv"), read, True)]
            added = linear(attention.get_submodule("output"), attended, True)
            x = [after(a + b) for a, b in zip(x, added, strict=True)]
            before, after = (layer.output_norm, nothing) if layer.pre_norm else (nothing, layer.output_norm)
            inner = [layer.activated(y) for y in linear(layer.rise, [before(y) for y in x], True)]
            x = [after(a + b) for a, b in zip(x, linear(layer.down, inner, False), strict=True)]

    def _attend(self, attention: nn.Module, qkv: Tensor) -> Tensor:
        heads, parts = self.config.num_attention_heads, []
        for x in torch.split(qkv, self.lengths):
            mask, places = None, torch.arange(len(x))
            if isinstance(attention, TurnedAttention):
                if attention.theta is not None:
                    x = attention.turned(x, *TurnedAttention.turns(places, self.config.head_size, attention.theta))
                if attention.radius is not None:
                    mask = (places - places[:, None]).abs() <= attention.radius
            q, k, v = x.view(len(x), 3, heads, -1).permute(1, 2, 0, 3)
            parts.append(F.scaled_dot_product_attention(q, k, v, mask).transpose(0, 1).reshape(len(x), -1))
        return torch.cat(parts)

    def _quantized(
        self, module: nn.Module, x: Tensor, exact: Tensor, group: Tensor, smooth: bool
    ) -> tuple[Tensor, Tensor]:
        """Quantizes one matrix, and returns its outputs for the quantized stream and the exact one."""
        weight = module.get_parameter("weight").float()
        target = _linear(module, exact)
        shift = x.mean(0) if smooth else torch.zeros(weight.shape[1])
        factor = torch.ones(weight.shape[1])
        if smooth:
            factor = (
                (x - shift).abs().amax(0).clamp_min(LEAST_RANGE) / weight.abs().amax(0).clamp_min(LEAST_RANGE)
            ).sqrt()
            factor = factor / factor.log().mean().exp()
        read, biased = rounded_rows((x - shift) / factor, group, self.rounding.steps), module.bias is not None
        if not biased:  # the mean is then for the weights to keep, too
            read = read + shift / factor
        values, scale = gptq(weight * factor, read.T @ read / len(read), group, self.rounding.most)
        product = read @ (values * scale[group].T).T
        bias = (target - product).mean(0) if biased else torch.zeros(len(weight))
        one = Int8Weight(
            values.to(torch.int8).numpy(),
            scale.float().numpy(),
            group.to(torch.uint8).numpy(),
            (1 / factor).numpy(),
            (-shift / factor).numpy(),
        )
        name = self.names[id(module)]
        self.found.weights[f"{name}.weight"] = one
        self.found.errors[name] = relative_error(product + bias, target)
        if biased:
            self.found.biases[f"{name}.bias"] = bias + torch.from_numpy(one.shifted())
        return product + bias, target


def widest(ranges: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Returns the group of each feature. The last groups have the largest range. Narrow layers have one group."""
    group = torch.zeros(len(ranges), dtype=torch.long)
    if len(ranges) < 4 * sum(sizes):
        sizes = sizes[-1:] if len(ranges) >= 4 * sizes[-1] else ()
    order = ranges.argsort()
    start = len(ranges) - sum(sizes)
    for number, size in enumerate(sizes, 1):
        group[order[start : start + size]] = number
        start += size
    return group


def rounded_rows(x: Tensor, group: Tensor, steps: int) -> Tensor:
    """Rounds rows (T, K) as the native encoder does: integer steps between each group's minimum and maximum."""
    rounded = torch.empty_like(x)
    for number in range(int(group.max()) + 1):
        own = x[:, group == number]
        low, high = own.aminmax(dim=1, keepdim=True)
        step = ((high - low) / steps).clamp_min(1e-20)
        rounded[:, group == number] = ((own - low) / step).round() * step + low
    return rounded


def gptq(weight: Tensor, hessian: Tensor, group: Tensor, most: int = 0) -> tuple[Tensor, Tensor]:
    """weight (N, K), hessian (K, K) = mean x x^T -> values (N, K), scale (G, N). Frantar et al. 2022, algorithm 1.

    most: what weights that are added together may make; a row whose weights make more has wider steps. 0: anything.
    """
    scale = torch.stack([weight[:, group == g].abs().amax(1) / 127 for g in range(int(group.max()) + 1)]).clamp_min(
        1e-12
    )
    if most:
        nearest = (weight / scale[group].T).round().numpy()
        for number, sets in enumerate(added_together(group.numpy())):
            scale[number] *= torch.from_numpy(excess(nearest[:, sets], most))
    values = compensated(weight, hessian, scale[group].T, torch.zeros(1, 1), (-127, 127))
    return values, scale


def compensated(weight: Tensor, hessian: Tensor, step: Tensor, low: Tensor, levels: tuple[int, int]) -> Tensor:
    """Rounds weights (N, K) to low + step times a whole number. step, low: (N, K), or what expands to it.

    Each error is compensated in the features that are not rounded yet. -> whole numbers from levels[0] to levels[1]
    """
    order = hessian.diag().argsort(descending=True)
    start = low.double().expand_as(weight)[:, order]
    w = weight.double()[:, order] - start
    steps = step.double().expand_as(weight)[:, order]
    h = hessian.double()[order][:, order]
    h += torch.eye(len(h)) * DAMPING * h.diag().mean()
    upper = torch.linalg.cholesky(torch.cholesky_inverse(torch.linalg.cholesky(h)), upper=True)
    values = torch.zeros_like(w)
    for i in range(0, w.shape[1], BLOCK):
        j = min(i + BLOCK, w.shape[1])
        part, errors = w[:, i:j].clone(), torch.zeros(len(w), j - i, dtype=torch.double)
        for m in range(j - i):
            values[:, i + m] = (part[:, m] / steps[:, i + m]).round().clamp(*levels)
            errors[:, m] = (part[:, m] - values[:, i + m] * steps[:, i + m]) / upper[i + m, i + m]
            part[:, m + 1 :] -= errors[:, m : m + 1] * upper[i + m, i + m + 1 : j]
        w[:, j:] -= errors @ upper[i:j, j:]
    rounded = torch.empty_like(values)
    rounded[:, order] = values
    return rounded.float()


def relative_error(output: Tensor, exact: Tensor) -> float:
    """Returns the root mean square of the difference, relative to that of the wanted outputs."""
    return float((output - exact).norm() / exact.norm().clamp_min(1e-12))


def _linear(module: nn.Module, x: Tensor) -> Tensor:
    output: Tensor = module(x)
    return output
