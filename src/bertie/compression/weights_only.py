"""Quantization of weights alone to 4 bits, after training, layer by layer, on calibration texts.

    1  each row of a matrix falls into groups of neighboring features; a group's step and lowest value are those that
       bring 16 levels nearest to its weights
    2  round the weight, and compensate each error in the features that are not rounded yet (GPTQ, Frantar et al. 2022)
    3  add the remaining mean error to the bias

A matrix is calibrated on the inputs that it has when the layers below are rounded. Rows of the word embeddings are
rounded to the nearest number of 8 bits or of 4.

T tokens · N, K output and input features · G groups
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from bertie.compression.quantize import Quantized, compensated, relative_error
from bertie.errors import WrongModel
from bertie.models.encoder import Encoder
from bertie.models.int4 import Int4Weight
from bertie.models.int8 import Int8Weight
from bertie.models.model import TorchModel
from bertie.models.weights import WORD_EMBEDDINGS
from bertie.nn.layout import Packed
from bertie.text.sequences import Sequences

_SHARES = tuple(1 - i / 20 for i in range(8))  # of a group's range that the levels may cover
_ROWS_PER_ROUND = 1 << 13  # rows


def quantize_weights(model: TorchModel, texts: Sequences, *, embeddings: int = 8) -> Quantized:
    """Gives the matrices of a model's layers 4 bits, and its word embeddings 4 or 8. Returns them.

    Raises UsageError for a model that is not an encoder of layers with even sizes.
    """
    matrices = [module for module in model.encoder.modules() if isinstance(module, nn.Linear)]
    word = dict(model.named_parameters()).get(WORD_EMBEDDINGS)
    if type(model.encoder) is not Encoder or word is None or any(m.in_features % 2 for m in matrices):
        raise WrongModel(
            "This model cannot be quantized to 4 bits. Encoders of transformer layers with even sizes can."
        )
    result = Quantized({}, {})
    with torch.no_grad():
        rows: Int4Weight | Int8Weight = round_to_levels(word) if embeddings == 4 else Int8Weight.rows(word.numpy())
        word.copy_(torch.from_numpy(rows.dequantized()))
        result.weights[WORD_EMBEDDINGS] = rows
        _layers(model, texts, result)
    return result


def _layers(model: TorchModel, texts: Sequences, result: Quantized) -> None:
    """Rounds the matrices of all layers in place, from the lowest to the highest."""
    encoder, calls = model.encoder, list[tuple[tuple[object, ...], dict[str, object]]]()
    names = {id(module): f"encoder.{name}" for name, module in encoder.named_modules()}
    ids, types = torch.from_numpy(texts.input_ids).long(), torch.from_numpy(texts.token_type_ids).long()

    def keep(layer: nn.Module, reads: tuple[Any, ...], options: dict[str, Any]) -> None:
        calls.append((reads, options))

    layers = dict.fromkeys(encoder.in_order())
    handles = [layer.register_forward_pre_hook(keep, with_kwargs=True) for layer in layers]
    encoder(ids, types, Packed.from_lengths(torch.from_numpy(texts.lengths)))
    for handle in handles:
        handle.remove()
    hidden = calls[0][0][0]
    for layer, (reads, options) in zip(encoder.in_order(), calls, strict=True):
        for matrix, x in _read(layer, (hidden, *reads[1:]), options).items():
            if f"{names[id(matrix)]}.weight" not in result.weights:  # else it is one of layers that share their weights
                _round(matrix, x.flatten(0, -2)[: len(ids)], names[id(matrix)], result)
        hidden = layer(hidden, *reads[1:], **options)[0]


def _read(layer: nn.Module, reads: tuple[object, ...], options: dict[str, object]) -> dict[nn.Linear, Tensor]:
    """Returns the inputs of a layer's matrices."""
    inputs: dict[nn.Linear, Tensor] = {}

    def keep(matrix: nn.Linear, _: nn.Module, read: tuple[Tensor, ...]) -> None:
        inputs[matrix] = read[0]

    handles = [m.register_forward_pre_hook(partial(keep, m)) for m in layer.modules() if isinstance(m, nn.Linear)]
    layer(*reads, **options)
    for handle in handles:
        handle.remove()
    return inputs


def _round(matrix: nn.Linear, x_TK: Tensor, name: str, result: Quantized) -> None:
    """Rounds one matrix in place, for its inputs."""
    weight = matrix.weight
    step, low = levels(weight)
    group = torch.from_numpy(Int4Weight.groups(weight.shape[1]))
    moments = x_TK.T @ x_TK / len(x_TK)
    target = x_TK @ weight.T
    numbers = compensated(weight, moments, step[:, group], low[:, group], (0, Int4Weight.LEVELS - 1))
    one = Int4Weight.packed(numbers.numpy(), step.numpy(), low.numpy())
    rounded = torch.from_numpy(one.dequantized())
    result.weights[f"{name}.weight"] = one
    off = (weight - rounded) @ x_TK.mean(0)
    weight.copy_(rounded)
    product = x_TK @ rounded.T
    if matrix.bias is not None:
        matrix.bias.add_(off)
        product += off
        result.biases[f"{name}.bias"] = matrix.bias.clone()
    result.errors[name] = relative_error(product, target)


def round_to_levels(weight: Tensor) -> Int4Weight:
    """Returns a matrix of the nearest levels, without calibration."""
    parts, group = list[Int4Weight](), torch.from_numpy(Int4Weight.groups(weight.shape[1]))
    for rows in torch.split(weight, _ROWS_PER_ROUND):
        step, low = levels(rows)
        numbers = ((rows - low[:, group]) / step[:, group]).round().clamp(0, Int4Weight.LEVELS - 1)
        parts.append(Int4Weight.packed(numbers.numpy(), step.numpy(), low.numpy()))
    return Int4Weight.fused(parts)


def levels(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Returns step and lowest value of each group, in numbers that float16 holds. weight (N, K) -> (N, G), (N, G)

    Each group takes the share of its range with the smallest squared error.
    """
    n, k = weight.shape
    group = torch.from_numpy(Int4Weight.groups(k))
    count = int(group[-1]) + 1
    ends = weight.new_full((2, n, count), torch.inf)
    index = group.expand(n, k)
    ends[0].scatter_reduce_(1, index, weight, "amin")
    ends[1].scatter_reduce_(1, index, -weight, "amin")
    least, most = ends[0], -ends[1]
    best = weight.new_full((n, count), torch.inf)
    step, low = torch.empty_like(best), torch.empty_like(best)
    for share in _SHARES:
        cut = (most - least) * (1 - share) / 2
        one_low = (least + cut).half().float()
        one_step = ((most - least - 2 * cut) / (Int4Weight.LEVELS - 1)).half().float().clamp_min(2.0**-24)
        wide, start = one_step[:, group], one_low[:, group]
        apart = (((weight - start) / wide).round().clamp(0, Int4Weight.LEVELS - 1) * wide + start - weight).square()
        error = torch.zeros_like(best).index_add_(1, group, apart)
        better = error < best
        best, step, low = (
            torch.where(better, new, old) for new, old in ((error, best), (one_step, step), (one_low, low))
        )
    return step, low
