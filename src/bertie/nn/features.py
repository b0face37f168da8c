"""Vectors in the place of tokens of a sequence: regions of a picture, frames of sound.

R feature vectors of the batch · D numbers of a vector · A aligned words · H hidden size
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bertie.nn.layout import moved
from bertie.nn.linear import LayerNorm, Linear


@dataclass(frozen=True)
class Features:
    """The feature vectors of a batch.

    Attributes:
        rows: Their flattened positions in input_ids (R,) int64.
        vectors: (R, D) float.
        aligned: The positions in the text of the words that a region is aligned with (R, A) int64; -1: no word.
        hidden: The masked vectors (R,) bool, which the model does not see. None: it sees all.
    """

    rows: Tensor
    vectors: Tensor
    aligned: Tensor | None = None
    hidden: Tensor | None = None

    def to(self, device: torch.device | str) -> "Features":
        """Returns the same features on another device."""
        parts = (self.rows, self.vectors, self.aligned, self.hidden)
        return Features(*(None if x is None else moved(x, device) for x in parts))  # type: ignore[arg-type]


def place_features(x: Tensor, features: Features, vectors: Tensor) -> Tensor:
    """Returns x (..., H) with the vectors (R, H) in the rows of the features."""
    return x.flatten(0, -2).index_copy(0, features.rows, vectors.to(x.dtype)).view_as(x)


class RegionEmbeddings(nn.Module):
    """Regions of a picture: projected, plus a segment and a position of their own. Li et al. 2019, 3.2.

    They take the place of a token's whole embedding. All regions have position 0, plus the mean position of the words
    that they are aligned with.
    """

    of_words = False

    def __init__(self, size: int, hidden_size: int, *, num_segments: int, max_positions: int) -> None:
        super().__init__()
        self.projection = Linear(size, hidden_size)
        self.segment = nn.Embedding(num_segments, hidden_size)
        self.position = nn.Embedding(max_positions, hidden_size)

    def forward(self, features: Features, position: nn.Embedding | None) -> Tensor:
        """position: the table of the text's positions. -> (R, H)"""
        summed: Tensor = self.projection(features.vectors.to(self.projection.weight.dtype))
        summed = summed + self.segment.weight[1] + self.position.weight[0]
        if features.aligned is not None:
            assert position is not None, "models.kinds.Regions has learned positions"
            word_RA = features.aligned >= 0
            positions_RAH = position(features.aligned.clamp(min=0)) * word_RA[..., None]
            summed = summed + positions_RAH.sum(1) / word_RA.sum(1).clamp(min=1)[:, None]
        return summed


class LocatedRegions(nn.Module):
    """Regions of a picture for a stream of their own: the features and the location are projected and added.

    vectors: the features, then the numbers of the location. Normalized together (Lu et al. 2019, 3.1) or, with
    `norm_each`, each alone and then averaged (Tan and Bansal 2019, 2.1).
    """

    def __init__(self, size: int, location_size: int, hidden_size: int, *, norm_each: bool, eps: float) -> None:
        super().__init__()
        self.projection, self.location = Linear(size, hidden_size), Linear(location_size, hidden_size)
        self.norm = LayerNorm(hidden_size, eps)
        self.location_norm = LayerNorm(hidden_size, eps) if norm_each else None

    def forward(self, vectors: Tensor) -> Tensor:
        """vectors (R, D) -> (R, H)"""
        vectors = vectors.to(self.projection.weight.dtype)
        size = self.projection.in_features
        features, location = self.projection(vectors[:, :size]), self.location(vectors[:, size:])
        if self.location_norm is None:
            states: Tensor = self.norm(features + location)
            return states
        averaged: Tensor = (self.norm(features) + self.location_norm(location)) / 2
        return averaged


class FrameEmbeddings(nn.Module):
    """Frames of sound: projected; a masked frame is one learned vector. Hsu et al. 2021 (HuBERT), 3.1.

    They take the place of a word's vector, so that position and segment are added as for a word.
    """

    of_words = True

    def __init__(self, size: int, hidden_size: int) -> None:
        super().__init__()
        self.projection = Linear(size, hidden_size)
        self.mask = nn.Parameter(torch.zeros(1, hidden_size))

    def forward(self, features: Features, position: nn.Embedding | None) -> Tensor:
        """-> (R, H)"""
        vectors: Tensor = self.projection(features.vectors.to(self.projection.weight.dtype))
        return vectors if features.hidden is None else torch.where(features.hidden[:, None], self.mask, vectors)
