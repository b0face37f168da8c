"""Layers without attention: an LSTM or a GRU in both directions, and convolutions. What BERT is compared with.

B sequences · S longest sequence · H hidden size · K kinds of filters; hidden states are (T, H) or (B, S, H)
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertie.errors import WrongModel
from bertie.nn.bilstm import read_states
from bertie.nn.dropout import dropout
from bertie.nn.layer import ACTIVATIONS
from bertie.nn.layout import Layout

CELLS: dict[str, type[nn.LSTM] | type[nn.GRU]] = {"lstm": nn.LSTM, "gru": nn.GRU}


class RecurrentLayer(nn.Module):
    """An LSTM or a GRU with half of the units in each direction. Its input has a dropout."""

    def __init__(self, size: int, cell: Literal["lstm", "gru"], *, dropout_p: float) -> None:
        super().__init__()
        self.dropout_p = dropout_p
        self.cell = CELLS[cell](size, size // 2, bidirectional=True, batch_first=True)

    def forward(
        self, hidden: Tensor, layout: Layout, plan: object, *, output_attentions: bool = False, **reads: object
    ) -> tuple[Tensor, None]:
        """(T, H) or (B, S, H) -> the same shape, or the layout's part. Raises WrongModel for attentions."""
        _check(output_attentions)
        states = read_states(self.cell, dropout(hidden, self.dropout_p, self.training), layout)
        return states.to(hidden.dtype), None


class ConvolutionalLayer(nn.Module):
    """Filters of several widths on the tokens around each token, side by side. Kim 2014, 2."""

    def __init__(self, size: int, widths: tuple[int, ...], activation: str, *, dropout_p: float) -> None:
        super().__init__()
        self.dropout_p, self.activation = dropout_p, ACTIVATIONS[activation]
        self.filters = nn.ModuleList(nn.Conv1d(size, size // len(widths), width) for width in widths)

    def forward(
        self, hidden: Tensor, layout: Layout, plan: object, *, output_attentions: bool = False, **reads: object
    ) -> tuple[Tensor, None]:
        """(T, H) or (B, S, H) -> the same shape, or the layout's part. Raises WrongModel for attentions."""
        _check(output_attentions)
        x_BSH = layout.rectangle(dropout(hidden, self.dropout_p, self.training)) * layout.mask()[..., None]
        columns = [_filtered(x_BSH.mT, one) for one in self.filters if isinstance(one, nn.Conv1d)]
        return layout.flat(self.activation(torch.cat(columns, 1).mT)), None


def _filtered(x_BHS: Tensor, filters: nn.Conv1d) -> Tensor:
    """Returns what filters make of the tokens around each token, of which an even width has one more on the right."""
    around, weight, bias = filters.kernel_size[0] - 1, filters.weight.to(x_BHS.dtype), filters.bias
    padded = F.pad(x_BHS, (around // 2, around - around // 2))
    return F.conv1d(padded, weight, None if bias is None else bias.to(x_BHS.dtype))


def _check(output_attentions: bool) -> None:
    if output_attentions:
        raise WrongModel("This model has no attention: its layers are recurrent or convolutional. Choose another one.")
