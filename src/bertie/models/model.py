"""`Model`: one encoder and the heads on it, with what a user needs beside the numbers: tokenizer and label names."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable

import torch
from torch import Tensor, nn

from bertie.models.config import EncoderConfig
from bertie.models.encoder import EncoderOutput
from bertie.models.heads.base import Head, Needs
from bertie.models.heads.global_tokens import seen_by_all
from bertie.models.int8 import Int8Weight
from bertie.models.kinds import Window
from bertie.models.saving import save
from bertie.models.variant import Variant
from bertie.nn.layout import Layout, Padded
from bertie.text.tokenizer import Tokenizer


class Inputs(Protocol):
    """What an encoder reads of a batch."""

    @property
    def input_ids(self) -> Tensor:
        """(T,) packed or (B, S) padded."""
        ...

    @property
    def token_type_ids(self) -> Tensor:
        """As input_ids."""
        ...

    @property
    def layout(self) -> Layout:
        """How the sequences lie."""
        ...


@runtime_checkable
class Spells(Protocol):
    """An encoder that reads how tokens are spelled."""

    def spell_vocabulary(self, tokenizer: Tokenizer) -> None:
        """Learn the spelling of every token."""
        ...


class Model(nn.Module):
    """An encoder with its heads by name: "mlm", "sequence" ... (models/heads/).

    labels: names in the order of the classifier's logits. variant: whose weight names
    and config.json it has; public: config.json as it was read, so that keys we do not know are written back.
    companions: modules that an objective trains with the model; they are no heads, and are not saved with it.
    """

    def __init__(
        self,
        encoder: Any,
        heads: Mapping[str, nn.Module] | None = None,
        *,
        variant: Variant | None = None,
        public: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.heads = nn.ModuleDict(dict(heads or {}))
        self.companions = nn.ModuleDict()
        self.variant = variant
        self.public = dict(public or {})
        self._tokenizer: Tokenizer | None = None
        self.labels: tuple[str, ...] = ()
        self.problem_type: str | None = None
        self.int8: dict[str, Int8Weight] = {}  # parameters that the folder holds in one byte a number
        if self.frozen:
            encoder.requires_grad_(False)

    def train(self, mode: bool = True) -> Self:
        """As of any module, but an encoder that a head needs frozen stays as it is, without dropout."""
        super().train(mode)
        if self.frozen:
            self.encoder.eval()
        return self

    @property
    def tokenizer(self) -> Tokenizer | None:
        """What cuts texts into the tokens the model reads. Can be set; an encoder that reads letters is told them."""
        return self._tokenizer

    @tokenizer.setter
    def tokenizer(self, tokenizer: Tokenizer | None) -> None:
        self._tokenizer = tokenizer
        if tokenizer is not None and isinstance(self.encoder, Spells):
            self.encoder.spell_vocabulary(tokenizer)

    @property
    def config(self) -> EncoderConfig:
        """The encoder's config."""
        config: EncoderConfig = self.encoder.config
        return config

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    @property
    def word_embeddings(self) -> Tensor:
        """(V, H) the word embedding matrix, which is also the masked-LM decoder."""
        weight: Tensor = self.encoder.embeddings.word.weight
        return weight

    @property
    def compute_dtype(self) -> torch.dtype | None:
        """The dtype everything behind the embeddings is computed in; None: that of the weights. Can be set."""
        dtype: torch.dtype | None = self.encoder.compute_dtype
        return dtype

    @compute_dtype.setter
    def compute_dtype(self, dtype: torch.dtype | None) -> None:
        self.encoder.compute_dtype = dtype

    def own_parameters(self) -> dict[str, nn.Parameter]:
        """The parameters of encoder and heads, by name: what a model folder holds."""
        return {name: one for name, one in self.named_parameters() if not name.startswith("companions.")}

    @property
    def needs(self) -> tuple[Needs, ...]:
        """What each head needs."""
        return tuple(head.needs for head in self.heads.values() if isinstance(head, Head))

    @property
    def frozen(self) -> bool:
        """Whether a head needs an encoder that is not trained."""
        return any(needs.frozen_encoder for needs in self.needs)

    def encode(self, batch: Inputs, **flags: Any) -> EncoderOutput:
        """What the heads stand on: run the encoder on a batch. `flags` are those of `Encoder.forward`."""
        return self.run_encoder(batch.input_ids, batch.token_type_ids, batch.layout, **flags)

    def logits(self, name: str, output: EncoderOutput) -> Tensor:
        """One head's logits, from what `encode` found."""
        head = self.heads[name]
        assert isinstance(head, Head)
        logits: Tensor = head(output, self.word_embeddings) if head.needs.word_embeddings else head(output)
        return logits

    def all_logits(self, output: EncoderOutput) -> dict[str, Tensor]:
        """Every head's logits by head name."""
        return {name: self.logits(name, output) for name, head in self.heads.items() if isinstance(head, Head)}

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, **inputs: Any) -> dict[str, Tensor]:
        """Every head's logits by head name: "mlm" at all positions, (B, S, V). Inputs as of `Encoder.forward`.

        For a look at a model, and for export; training and prediction call `encode` and the one head they need.
        """
        layout = inputs.pop("layout", None)
        if layout is None:
            layout = Padded.of(input_ids, attention_mask)
        return self.all_logits(self.run_encoder(input_ids, inputs.pop("token_type_ids", None), layout, **inputs))

    def run_encoder(
        self, input_ids: Tensor, token_type_ids: Tensor | None, layout: Layout, **flags: Any
    ) -> EncoderOutput:
        """The encoder's output with all that the heads need of it.

        Where attention is windowed and no global_attention_mask is among the flags, the heads say which tokens all see.
        """
        if isinstance(self.config.attention, Window) and flags.get("global_attention_mask") is None:
            rules = [needs.global_tokens for needs in self.needs if needs.global_tokens is not None]
            flags["global_attention_mask"] = seen_by_all(rules, input_ids, layout, self.config.sep_token_id)
        if any(needs.hidden_states for needs in self.needs):
            flags["output_hidden_states"] = True
        output: EncoderOutput = self.encoder(input_ids, token_type_ids, layout, **flags)
        return output

    def save_pretrained(self, folder: str | Path, **options: Any) -> None:
        """Write a model folder in the public layout; `options` are those of `models.saving.save`."""
        save(self, Path(folder), **options)
