"""`Model`: one encoder and the heads on it."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from bertie.data.batch import Batch
from bertie.models.config import EncoderConfig
from bertie.models.encoder import Encoder, EncoderOutput


class Model(nn.Module):
    """An encoder with its heads by name: "mlm", "pair", "sequence"."""

    def __init__(self, encoder: Encoder, heads: Mapping[str, nn.Module] | None = None) -> None:
        super().__init__()
        self.encoder = encoder
        self.heads = nn.ModuleDict(dict(heads or {}))

    @property
    def config(self) -> EncoderConfig:
        """The encoder's config."""
        return self.encoder.config

    @property
    def word_embeddings(self) -> Tensor:
        """(V, H) the word embedding matrix, which is also the masked-LM decoder."""
        return self.encoder.embeddings.word.weight

    @property
    def compute_dtype(self) -> torch.dtype | None:
        """The dtype everything behind the embeddings is computed in; None: that of the weights. Can be set."""
        return self.encoder.compute_dtype

    @compute_dtype.setter
    def compute_dtype(self, dtype: torch.dtype | None) -> None:
        self.encoder.compute_dtype = dtype

    def encode(self, batch: Batch, **flags: Any) -> EncoderOutput:
        """Run the encoder on a batch; `flags` are those of `Encoder.forward`."""
        output: EncoderOutput = self.encoder(batch.input_ids, batch.token_type_ids, batch.layout, **flags)
        return output
