"""Pooling of the hidden states of a sequence to one vector: mean, first token, or maximum.

Reimers and Gurevych 2019, 3; Muennighoff 2022 (weighted_mean). B sequences · S longest · H hidden size
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from bertie.models.encoder import EncoderOutput


def pool(output: "EncoderOutput", pooling: str) -> "Tensor":
    """Returns one vector per sequence. pooling: a key of `sentence.MODES`. -> (B, H)

    mean_sqrt_len: the sum over the root of the length; weighted_mean: the tokens weigh 1, 2, 3 ...
    """
    layout = output.layout
    if pooling == "cls":
        return output.summary()
    if pooling == "last":
        return layout.last(output.last_hidden_state)
    hidden_BSH, mask_BS1 = layout.rectangle(output.last_hidden_state.float()), layout.mask()[..., None]
    if pooling == "max":
        return hidden_BSH.masked_fill(~mask_BS1, float("-inf")).amax(1)
    weight_BS1 = mask_BS1.cumsum(1) * mask_BS1 if pooling == "weighted_mean" else mask_BS1
    sum_BH, whole_B1 = (hidden_BSH * weight_BS1).sum(1), weight_BS1.sum(1)
    return sum_BH / (whole_B1.sqrt() if pooling == "mean_sqrt_len" else whole_B1)
