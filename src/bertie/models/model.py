"""`Model`: one encoder and the heads on it, with what a user needs beside the numbers: tokenizer and label names."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

import torch
from torch import Tensor, nn

from bertie.errors import UsageError
from bertie.models.config import EncoderConfig
from bertie.models.encoder import Encoder, EncoderOutput
from bertie.models.features import reads_features
from bertie.models.heads import VOCABULARY, seen_by_all
from bertie.models.kinds import Window
from bertie.models.seq2seq import shift_right
from bertie.models.variant import Variant
from bertie.nn.layout import Layout, Padded

if TYPE_CHECKING:
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


class Model(nn.Module):
    """An encoder with its heads by name: "mlm", "sequence" ... (models/heads.py).

    tokenizer: set by `bertie.load`. labels: names in the order of the classifier's logits. variant: whose weight names
    and config.json it has; public: config.json as it was read, so that keys we do not know are written back.
    """

    def __init__(
        self,
        encoder: Encoder,
        heads: Mapping[str, nn.Module] | None = None,
        *,
        variant: Variant | None = None,
        public: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.heads = nn.ModuleDict(dict(heads or {}))
        self.variant = variant
        self.public = dict(public or {})
        self.tokenizer: Tokenizer | None = None
        self.labels: tuple[str, ...] = ()
        self.problem_type: str | None = None
        self.frozen = any(map(reads_features, self.heads))
        if self.frozen:
            encoder.requires_grad_(False)

    def train(self, mode: bool = True) -> Self:
        """As of any module, but an encoder whose features are read stays as it is, without dropout."""
        super().train(mode)
        if self.frozen:
            self.encoder.eval()
        return self

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

    def encode(self, batch: Inputs, **flags: Any) -> EncoderOutput:
        """Run the encoder on a batch; `flags` are those of `Encoder.forward`.

        Where attention is windowed and no global_attention_mask is among them, the heads say which tokens all see.
        Where a head that labels stands on a decoder, the answer is the decoder's, which reads the text once more.
        """
        memory = self._encode(batch.input_ids, batch.token_type_ids, batch.layout, flags)
        return self._read_again(memory, batch.input_ids, flags) if self._labels_decoded else memory

    def decode(self, memory: EncoderOutput, input_ids: Tensor, **flags: Any) -> EncoderOutput:
        """Run the decoder on what it has written so far; `flags` are those of `Decoder.forward`.

        Raises UsageError when the model has none.
        """
        if "decoder" not in self.heads:
            raise UsageError(
                "This model has no decoder. Load it with its own heads, or build it with the head 'decoder'."
            )
        output: EncoderOutput = self.heads["decoder"](input_ids, self.word_embeddings, memory, **flags)
        return output

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        *,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        **inputs: Any,
    ) -> dict[str, Tensor]:
        """Every head's logits by head name: "mlm" at all positions, (B, S, V). Inputs as of `Encoder.forward`.

        With decoder_input_ids (B, Q) the heads are on the decoder, whose hidden states (B, Q, H) stand at "decoder";
        heads that label do without them, as the decoder then reads the text itself.
        For a look at a model, and for export; training and prediction call `encode` and the one head they need.
        """
        types, layout = inputs.pop("token_type_ids", None), inputs.pop("layout", None)
        if layout is None:
            layout = Padded.of(input_ids, attention_mask)
        output = self._encode(input_ids, types, layout, inputs)
        heads, logits = dict(self.heads), dict[str, Tensor]()
        if heads.pop("decoder", None) is not None:
            if decoder_input_ids is not None:
                output = self.decode(output, decoder_input_ids, attention_mask=decoder_attention_mask)
            elif self._labels_decoded:
                output = self._read_again(output, input_ids, inputs)
            else:
                raise UsageError("A model with a decoder needs decoder_input_ids, what it is to go on from.")
            logits["decoder"] = output.last_hidden_state
        for name, head in heads.items():
            on_vocabulary = name in VOCABULARY
            logits[name] = head(output.last_hidden_state, self.word_embeddings) if on_vocabulary else head(output)
        return logits

    def _encode(
        self, input_ids: Tensor, token_type_ids: Tensor | None, layout: Layout, flags: dict[str, Any]
    ) -> EncoderOutput:
        if isinstance(self.config.attention, Window) and flags.get("global_attention_mask") is None:
            flags["global_attention_mask"] = seen_by_all(self.heads, input_ids, layout, self.config.sep_token_id)
        if self.frozen:
            flags["output_hidden_states"] = True
        output: EncoderOutput = self.encoder(input_ids, token_type_ids, layout, **flags)
        return output

    @property
    def _labels_decoded(self) -> bool:
        return "decoder" in self.heads and bool({"sequence", "span"} & set(self.heads))

    def _read_again(self, memory: EncoderOutput, input_ids: Tensor, flags: Mapping[str, Any]) -> EncoderOutput:
        """The decoder's reading of the text the encoder has read, token i at place i + 1 (T5's label classes)."""
        layout = memory.layout
        shifted = layout.flat(shift_right(layout.rectangle(input_ids), self.config.decoder_start_token_id))
        shown = {name: flag for name, flag in flags.items() if name.startswith("output_")}
        return self.decode(memory, shifted, layout=layout, **shown)

    def save_pretrained(self, folder: str | Path, **options: Any) -> None:
        """Write a model folder in the public layout; `options` are those of `models.folder.save`."""
        from bertie.models.folder import save

        save(self, Path(folder), **options)
