"""torch's bidirectional LSTM on a batch in either layout. Padding is not read, and each text is read by itself.

B sequences · S longest sequence · X features read · 2 W features written
"""

from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from bertie.nn.layout import Layout


class TextLSTM(nn.LSTM):
    """`layers` layers with `width` units in each direction."""

    def __init__(self, size: int, width: int, layers: int) -> None:
        super().__init__(size, width, num_layers=layers, bidirectional=True, batch_first=True)

    def read(self, x: Tensor, layout: Layout) -> Tensor:
        """Returns the states of each token in float32. (T, X) packed or (B, S, X) padded -> the same with 2 W"""
        x_BSX, lengths_B = layout.rectangle(x.float()), layout.mask().sum(1).cpu()
        packed = pack_padded_sequence(x_BSX, lengths_B, batch_first=True, enforce_sorted=False)
        states_BSW, _ = pad_packed_sequence(self(packed)[0], batch_first=True, total_length=x_BSX.shape[1])
        return layout.flat(states_BSW)
