"""Layers without attention: an LSTM or a GRU in both directions, and convolutions, which BERT is compared with.

Then ELMo's two LSTMs with projections, forward and backward, computed together:

    cell  = forget * cell + input * tanh(new)      clipped
    state = W (output * tanh(cell))                clipped; narrower than the cell

Sak et al. 2014; Peters et al. 2018, 3.1 and 4. torch's own LSTM has projections, but does not clip its cells.

B sequences · S longest sequence · H hidden size · 2 directions · C cells · P size of a state; hidden states are (T, H)
or (B, S, H), and (T, 2 P) or (B, S, 2 P)
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from bertie.errors import WrongModel
from bertie.nn.dropout import dropout
from bertie.nn.layer import ACTIVATIONS
from bertie.nn.layout import Layout
from bertie.nn.linear import Linear

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


class BiLSTM(nn.Module):
    """One layer. Weights have both directions, forward first; gates are in torch's order: input, forget, new, output.

    clip: of cells and of states, 0 for none.
    """

    def __init__(self, size: int, cells: int, *, cell_clip: float = 0.0, state_clip: float = 0.0) -> None:
        super().__init__()
        self.cell_clip, self.state_clip = cell_clip, state_clip
        self.up = Linear(size, 2 * 4 * cells, bias=False, parts=8)
        self.state = Linear(size, 2 * 4 * cells, parts=8)
        self.down = Linear(cells, 2 * size, bias=False, parts=2)

    def forward(self, hidden: Tensor, layout: Layout, mirror_BS: Tensor) -> Tensor:
        """hidden (T, 2 P) or (B, S, 2 P): the input of the forward LSTM, then of the backward LSTM -> the same shape.

        mirror_BS: `mirror(layout)`.
        """
        up_2GP, bias_2G = self.up.weight.to(hidden.dtype).chunk(2), self.state.bias.to(hidden.dtype).chunk(2)
        inputs = (F.linear(x, w_GP, b_G) for x, w_GP, b_G in zip(hidden.chunk(2, -1), up_2GP, bias_2G, strict=True))
        forward_BSG, backward_BSG = (layout.rectangle(x) for x in inputs)
        gates_S2BG = torch.stack([forward_BSG, turn(backward_BSG, mirror_BS)]).permute(2, 0, 1, 3)
        forward_BSP, backward_BSP = self._run(gates_S2BG).permute(1, 2, 0, 3)
        return layout.flat(torch.cat([forward_BSP, turn(backward_BSP, mirror_BS)], -1))

    def _run(self, gates_S2BG: Tensor) -> Tensor:
        """The inputs' part of the gates at every step, (S, 2, B, 4 C) -> states (S, 2, B, P)"""
        dtype, (steps, _, batch, _) = gates_S2BG.dtype, gates_S2BG.shape
        state_2PG = self.state.weight.to(dtype).unflatten(0, (2, -1)).mT  # type: ignore[no-untyped-call]
        down_2CP = self.down.weight.to(dtype).unflatten(0, (2, -1)).mT  # type: ignore[no-untyped-call]
        state_2BP = gates_S2BG.new_zeros(2, batch, down_2CP.shape[2])
        cell_2BC = gates_S2BG.new_zeros(2, batch, down_2CP.shape[1])
        states = []
        for step in range(steps):
            gates_2BG = torch.baddbmm(gates_S2BG[step], state_2BP, state_2PG)
            enter, forget, new, leave = gates_2BG.chunk(4, -1)
            cell_2BC = forget.sigmoid() * cell_2BC + enter.sigmoid() * new.tanh()
            cell_2BC = _clip(cell_2BC, self.cell_clip)
            state_2BP = _clip((leave.sigmoid() * cell_2BC.tanh()) @ down_2CP, self.state_clip)
            states.append(state_2BP)
        return torch.stack(states)


def _clip(x: Tensor, limit: float) -> Tensor:
    return x.clamp(-limit, limit) if limit else x


def mirror(layout: Layout) -> Tensor:
    """Returns the index of each position when every sequence is reversed; padding stays in place. -> (B, S) int64"""
    mask_BS = layout.mask()
    places_BS = torch.arange(mask_BS.shape[1], device=mask_BS.device).expand(mask_BS.shape)
    return torch.where(mask_BS, mask_BS.sum(1, keepdim=True) - 1 - places_BS, places_BS)


def turn(x_BSX: Tensor, mirror_BS: Tensor) -> Tensor:
    """Reverses every sequence."""
    return x_BSX.gather(1, mirror_BS[:, :, None].expand(x_BSX.shape))


class TextLSTM(nn.LSTM):
    """`layers` layers with `width` units in each direction."""

    def __init__(self, size: int, width: int, layers: int) -> None:
        super().__init__(size, width, num_layers=layers, bidirectional=True, batch_first=True)


def read_states(cell: nn.LSTM | nn.GRU, x: Tensor, layout: Layout) -> Tensor:
    """Returns the states of each token in float32. (T, X) packed or (B, S, X) padded -> the same with 2 W"""
    x_BSX, lengths_B = layout.rectangle(x.float()), layout.mask().sum(1).cpu()
    if not len(lengths_B):  # which torch refuses
        return layout.flat(x_BSX.new_zeros(*x_BSX.shape[:2], 2 * cell.hidden_size))
    packed = pack_padded_sequence(x_BSX, lengths_B, batch_first=True, enforce_sorted=False)
    states_BSW, _ = pad_packed_sequence(cell(packed)[0], batch_first=True, total_length=x_BSX.shape[1])
    return layout.flat(states_BSW)
