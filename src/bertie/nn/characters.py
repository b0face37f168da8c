"""Word vectors from characters: convolutions of several widths, max pooling, highway layers.

    w-o-r-d -> 50 character vectors -> filters of 1 to 7 characters -> max over positions -> highway -> projection

Kim et al. 2016; Peters et al. 2018 (ELMo), section 4.

T words · C characters per word · F filters in total · P size of a word's vector
"""

from collections.abc import Iterable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertie.nn.linear import Linear

# The bytes of UTF-8 are 1 to 256, then come these; 0 is padding after a sentence (bilm-tf, data.py; AllenNLP's +1).
SENTENCE_START, SENTENCE_END, WORD_START, WORD_END, WORD_PADDING = range(257, 262)
CHARACTER_IDS = 262
_SENTENCE = {"<S>": SENTENCE_START, "</S>": SENTENCE_END}  # words of one character


def character_ids(words: Iterable[str], *, length: int = 50) -> Tensor:
    """Returns the bytes of words, with markers of their start and end. -> (T, length) int64; longer words are
    truncated."""
    rows = []
    for word in words:
        spelled = (
            [_SENTENCE[word]]
            if word in _SENTENCE
            else [1 + byte for byte in word.encode(errors="ignore")[: length - 2]]
        )
        rows.append([WORD_START, *spelled, WORD_END])
    padded = [row + [WORD_PADDING] * (length - len(row)) for row in rows]
    return torch.tensor(padded, dtype=torch.int64).view(len(padded), length)


class CharacterCNN(nn.Module):
    """filters: (width, number) of each kind. A word that occurs several times in a batch is computed once."""

    def __init__(
        self, size: int, *, characters: int, character_size: int, filters: Sequence[tuple[int, int]], highways: int
    ) -> None:
        super().__init__()
        total = sum(count for _, count in filters)
        self.embedding = nn.Embedding(characters, character_size)
        self.convolutions = nn.ModuleList(_Convolution(character_size, count, width) for width, count in filters)
        self.highways = nn.ModuleList(Linear(total, 2 * total, parts=2) for _ in range(highways))
        self.projection = Linear(total, size)

    def forward(self, characters: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """characters (..., C) -> (..., P), in the compute dtype"""
        distinct_WC, where = torch.unique(characters.flatten(0, -2), dim=0, return_inverse=True)
        vectors: Tensor = self._read(distinct_WC, dtype)[where]
        return vectors.view(*characters.shape[:-1], vectors.shape[-1])

    def _read(self, words_WC: Tensor, dtype: torch.dtype | None) -> Tensor:
        x_WEC = self.embedding(words_WC).mT
        x_WEC = x_WEC.to(dtype or x_WEC.dtype)
        x_WF = torch.cat([convolution(x_WEC).amax(2).relu() for convolution in self.convolutions], 1)
        for highway in self.highways:
            new, gate = highway(x_WF).chunk(2, -1)
            carried = gate.sigmoid()
            x_WF = carried * x_WF + (1 - carried) * new.relu()
        projected: Tensor = self.projection(x_WF)
        return projected


class _Convolution(nn.Conv1d):
    """In x's dtype, as `Linear`."""

    def forward(self, x: Tensor) -> Tensor:
        bias = None if self.bias is None else self.bias.to(x.dtype)
        return F.conv1d(x, self.weight.to(x.dtype), bias)
