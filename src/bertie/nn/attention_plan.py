"""What an attention layer is given besides hidden states: which tokens attend to which, made once for all layers."""

from torch import Tensor

from bertie.nn.disentangled import Distances
from bertie.nn.groups import LayoutGroups
from bertie.nn.rotary import Views
from bertie.nn.varlen import Varlen
from bertie.nn.window import WindowMask

AttentionPlan = Tensor | LayoutGroups | Varlen | WindowMask | Distances | Views | None
"""A bias of scores (None: nothing is hidden), attention without padding, a window, distances, or rotary positions."""
