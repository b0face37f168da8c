"""Token + position + segment embeddings, normalized. Devlin et al. 2018, figure 2."""

from math import sqrt

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertie.errors import UsageError
from bertie.nn.dropout import dropout
from bertie.nn.features import Features, FrameEmbeddings, RegionEmbeddings, place_features
from bertie.nn.fused import gathered, norm
from bertie.nn.layout import Layout
from bertie.nn.linear import NORMS, Linear, NormType
from bertie.nn.positions import sines


class Embeddings(nn.Module):
    """The sum of the vectors of a token, its position and its segment, then norm and dropout.

    With `embedding_size` below `hidden_size`, the sum is projected up (factorized embeddings, Lan et al. 2019, 3.1);
    with `project` also where they are equal. With `trigram`, the token's vector is projected together with its
    neighbors' (Sun et al. 2020, 3.1). rescale: whether token vectors are multiplied by the square root of the size.
    features: what embeds the vectors in the place of tokens, where the model reads such vectors.
    """

    def __init__(
        self,
        vocab_size: int,
        hidden_size: int,
        *,
        max_positions: int = 512,
        sinusoidal: bool = False,
        num_segments: int = 2,
        embedding_size: int | None = None,
        project: bool = False,
        trigram: bool = False,
        has_norm: bool = True,
        norm_type: NormType = "layer",
        rescale: bool = False,
        dropout_before_norm: bool = False,
        eps: float = 1e-12,
        dropout_p: float = 0.1,
        features: RegionEmbeddings | FrameEmbeddings | None = None,
    ) -> None:
        super().__init__()
        size = embedding_size or hidden_size
        summed_size = hidden_size if trigram else size
        self.dropout_p, self.dropout_before_norm = dropout_p, dropout_before_norm
        self.sinusoidal, self.trigram, self.scale = sinusoidal, trigram, sqrt(size) if rescale else 1.0
        self.word = nn.Embedding(vocab_size, size)
        self.position = nn.Embedding(max_positions, summed_size) if max_positions else None
        self.segment = nn.Embedding(num_segments, summed_size) if num_segments else None
        self.features = features
        self.norm = NORMS[norm_type](summed_size, eps) if has_norm else nn.Identity()
        read = 3 * size if trigram else size
        self.projection = Linear(read, hidden_size) if project or trigram or size != hidden_size else None

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None,
        position_ids: Tensor,
        layout: Layout,
        features: Features | None = None,
    ) -> Tensor:
        """input_ids, token_type_ids (...), position_ids that broadcast to them, int64 -> (..., hidden_size) float32"""
        words = gathered(self.word, input_ids)
        summed = words if self.scale == 1 else words * self.scale
        vectors = None
        if features is not None:
            if self.features is None:
                raise UsageError(
                    "This model reads only tokens, and the batch has feature vectors. Choose inputs=regions or "
                    "inputs=frames when the model is made."
                )
            vectors = self.features(features, self.position)
            if self.features.of_words:
                summed = place_features(summed, features, vectors)
        if self.trigram:
            summed = self._project(with_neighbors(summed, layout))
        if self.position is not None:
            summed = summed + self.position(position_ids)
        if self.sinusoidal:
            summed = summed + sines(position_ids, summed.shape[-1])
        if self.segment is not None:
            if token_type_ids is None or self.segment.num_embeddings == 1:  # one row: all text is segment 0
                summed = summed + self.segment.weight[0]
            else:
                summed = summed + gathered(self.segment, token_type_ids)
        if features is not None and vectors is not None and self.features is not None and not self.features.of_words:
            summed = place_features(summed, features, vectors)
        if self.dropout_before_norm:
            hidden = norm(dropout(summed, self.dropout_p, self.training), self.norm)
        else:
            hidden = dropout(norm(summed, self.norm), self.dropout_p, self.training)
        return hidden if self.trigram else self._project(hidden)

    def _project(self, x: Tensor) -> Tensor:
        return x if self.projection is None else F.linear(x, self.projection.weight, self.projection.bias)


def with_neighbors(x: Tensor, layout: Layout) -> Tensor:
    """Concatenates each token's vector with the next and the previous one; zeros at the ends. (..., E) -> (..., 3 E)

    Padding counts as the end, so that a sequence in a batch gives the same result as alone.
    """
    x_BSE = layout.rectangle(x) * layout.mask()[..., None]
    following, previous = F.pad(x_BSE[:, 1:], (0, 0, 0, 1)), F.pad(x_BSE[:, :-1], (0, 0, 1, 0))
    return layout.flat(torch.cat([following, x_BSE, previous], -1))


def positions_after_pad(input_ids: Tensor, layout: Layout, pad_token_id: int) -> Tensor:
    """Returns positions pad_token_id + 1, + 2 ...; a pad token in a text has its id as position and is not counted.

    input_ids (T,) packed or (B, S) padded -> the same shape. Liu et al. 2019; fairseq's utils.make_positions.
    """
    text_BS = (layout.rectangle(input_ids) != pad_token_id) & layout.mask()
    return layout.flat(text_BS.cumsum(1) * text_BS + pad_token_id)
