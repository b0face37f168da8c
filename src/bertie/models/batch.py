"""`Batch`: the input of the model, and its labels. The one way from `Sequences` of NumPy to tensors.

B sequences · T real tokens of the batch · S longest sequence
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from bertie.nn.features import Features
from bertie.nn.layout import Layout, Packed, Padded, moved, where
from bertie.text.sequences import STANDS, UNSEEN, VECTORS, Sequences


@dataclass(frozen=True)
class Batch:
    """Token ids in one layout, and one tensor per label.

    input_ids, token_type_ids: (T,) packed or (B, S) padded, int64. labels: each objective or task documents its own
    names and shapes; labels share no tensor or sentinel. sample_ids (B,) int64: the numbers of the samples in the data
    order. features: the vectors in the place of some tokens, where there are any. sequences: what the batch was made
    from.
    """

    input_ids: Tensor
    token_type_ids: Tensor
    layout: Layout
    sample_ids: Tensor
    labels: Mapping[str, Tensor] = field(default_factory=dict)
    features: Features | None = None
    moved_from: "Batch | None" = field(default=None, repr=False)
    sequences: Sequences | None = field(default=None, repr=False)

    @classmethod
    def of(cls, *parts: Sequences) -> "Batch":
        """Returns sequences, or several end to end, as a packed batch, whose tensors share their memory. Extra arrays
        become features and labels."""
        sequences = Sequences.joined(parts)
        extra, features = dict(sequences.extra), None
        if VECTORS in extra:
            rows, vectors_TD, unseen_T = np.flatnonzero(extra.pop(STANDS)), extra.pop(VECTORS), extra.pop(UNSEEN, None)
            hidden = None if unseen_T is None else torch.from_numpy(unseen_T[rows])
            features = Features(torch.from_numpy(rows), torch.from_numpy(vectors_TD[rows]), hidden=hidden)
        own = {} if sequences.tabular is None else {"tabular": sequences.tabular}
        return cls(
            torch.from_numpy(np.asarray(sequences.input_ids, np.int64)),
            torch.from_numpy(np.asarray(sequences.token_type_ids, np.int64)),
            Packed.from_lengths(torch.from_numpy(sequences.lengths)),
            torch.from_numpy(np.asarray(sequences.numbers, np.int64)),
            {name: torch.from_numpy(array) for name, array in (extra | dict(sequences.labels) | own).items()},
            features,
            sequences=sequences,
        )

    def with_labels(self, **labels: Tensor) -> "Batch":
        """Returns the same batch with more labels."""
        return replace(self, labels={**self.labels, **labels})

    def to(self, device: torch.device | str) -> "Batch":
        """Returns the same batch on another device; `host` remains the original one."""
        if torch.device(device).type == self.input_ids.device.type == "cpu":
            return self
        return Batch(
            moved(self.input_ids, device),
            moved(self.token_type_ids, device),
            self.layout.to(device),
            self.sample_ids,
            {name: moved(label, device) for name, label in self.labels.items()},
            None if self.features is None else self.features.to(device),
            self.host,
        )

    @property
    def host(self) -> "Batch":
        """The original batch in main memory. Numbers are read from it, to avoid waiting for an accelerator."""
        return self.moved_from or self

    def where(self, mask: Tensor) -> Tensor:
        """Returns the flattened positions where a mask of `host` is true, on the batch's device. -> (N,) int64"""
        return where(mask, self.input_ids.device)

    def moved(self, x: Tensor) -> Tensor:
        """Returns a tensor that is in main memory on the batch's device."""
        return moved(x, self.input_ids.device)

    def of_tokens(self, ids_T: Tensor, length_B: Tensor) -> "Batch":
        """Returns the same samples with other packed tokens of one segment, without labels."""
        layout = Packed.from_lengths(length_B)
        return replace(self, input_ids=ids_T, token_type_ids=torch.zeros_like(ids_T), layout=layout, labels={})

    @property
    def packed(self) -> Packed:
        """The layout of a packed batch. Raises TypeError for a padded one."""
        if not isinstance(self.layout, Packed):
            raise TypeError("The batch is padded, and a packed one is needed.")
        return self.layout

    @property
    def row(self) -> "Batch":
        """The batch of one sequence as a rectangle (1, S)."""
        ids_1S, types_1S = self.input_ids[None], self.token_type_ids[None]
        return replace(self, input_ids=ids_1S, token_type_ids=types_1S, layout=Padded.of(ids_1S, None))

    @property
    def fixed(self) -> bool:
        """Whether its shapes are those of other batches (fixed_shapes.py). Numbers are read of its `host` alone."""
        return isinstance(self.layout, Packed) and self.layout.fixed

    def uncached(self) -> "Batch":
        """Returns the same batch, whose layout holds nothing that was computed of its numbers.

        A recorded graph would take such values for constants, and the next batch of its shape has other numbers.
        """
        return replace(self, layout=replace(self.layout))

    @property
    def positions(self) -> "Batch":
        """The batch whose layout and labels say which tokens are read: the original one, or this one where `fixed`."""
        return self if self.fixed else self.host

    @property
    def size(self) -> int:
        """The number of sequences, B."""
        return len(self.sample_ids)

    @property
    def tokens(self) -> int:
        """The number of real tokens, T, without padding."""
        return int(self.host.layout.mask().sum())
