"""Pooling of the hidden states of a sequence to one vector: mean, first token, or maximum.

Reimers and Gurevych 2019, 3. B sequences · S longest · H hidden size
"""

import torch
from torch import Tensor

from bertie.models.encoder import EncoderOutput


def pool(output: EncoderOutput, pooling: str) -> Tensor:
    """Returns one vector per sequence. pooling: mean, cls or max. -> (B, H)"""
    layout = output.layout
    if pooling == "cls":
        return output.summary()
    hidden_BSH, mask_BS1 = layout.rectangle(output.last_hidden_state.float()), layout.mask()[..., None]
    if pooling == "max":
        return hidden_BSH.masked_fill(~mask_BS1, -torch.inf).amax(1)
    return (hidden_BSH * mask_BS1).sum(1) / mask_BS1.sum(1)
