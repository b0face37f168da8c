"""`Seq2Seq`: a `TorchModel` with a decoder between the encoder and the other heads.

    memory = encoder("translate: the cat sat")
    decoder(memory, "<start> die Katze") -> hidden states -> next-token head -> "saß"

For a classification head, the decoder reads the text again, shifted by one position (T5's classes with labels). Raffel
et al. 2020, section 2.1.

B sequences · Q generated tokens · H hidden size
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from bertie.errors import UsageError
from bertie.models.encoder import EncoderOutput
from bertie.models.generation import DECODER
from bertie.models.heads.decoder import Decoder
from bertie.models.heads.vocabulary import VocabularyHead
from bertie.models.model import EncoderInputs, TorchModel
from bertie.nn.layout import Packed, Padded

NEXT_TOKEN = "lm"


class Seq2Seq(TorchModel):
    """An encoder, a decoder, and heads on the decoder."""

    def encode(self, batch: EncoderInputs, *, read: Tensor | None = None, **flags: Any) -> EncoderOutput:
        """Returns the input of the heads: the decoder's output for the text, or the encoder's output for generation.

        `flags` are those of `Encoder.forward`. read: of no effect, since the decoder reads every state of the encoder.
        """
        memory = super().encode(batch, **flags)
        return self._read_again(memory, batch.input_ids, flags) if self._labels else memory

    def decode(self, memory: EncoderOutput, input_ids: Tensor, **flags: object) -> EncoderOutput:
        """Runs the decoder on its earlier output. `flags` are those of `Decoder.forward`."""
        output: EncoderOutput = self.heads[DECODER](memory, self.word_embeddings, input_ids, **flags)
        return output

    def teach(self, memory: EncoderOutput, targets_Q: Tensor, length_B: Tensor) -> EncoderOutput:
        """Runs the decoder on the tokens before each target (teacher forcing). targets_Q: packed, of length_B tokens.

        length_B: in main memory.
        """
        layout = Packed.from_lengths(length_B).to(targets_Q.device)
        start = self.config.decoder_start_token_id
        read_Q = targets_Q.roll(1).index_fill(0, layout.cu_seqlens[:-1].long(), start)
        return self.decode(memory, read_Q, layout=layout)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        *,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        **inputs: Any,
    ) -> dict[str, Tensor]:
        """Computes the logits of every head by head name, with the decoder's hidden states (B, Q, H) at "decoder".

        decoder_input_ids (B, Q): the tokens before the next one. Classification heads do not need it.
        """
        layout = inputs.pop("layout", None)
        if layout is None:
            layout = Padded.of(input_ids, attention_mask)
        output = self.run_encoder(input_ids, inputs.pop("token_type_ids", None), layout, **inputs)
        if decoder_input_ids is not None:
            output = self.decode(output, decoder_input_ids, attention_mask=decoder_attention_mask)
        elif self._labels:
            output = self._read_again(output, input_ids, inputs)
        else:
            raise UsageError("A model with a decoder needs decoder_input_ids, the tokens before the next one.")
        return {DECODER: output.last_hidden_state, **self.all_logits(output)}

    @property
    def _labels(self) -> bool:
        return any(not needs.word_embeddings for needs in self.needs)

    def _read_again(self, memory: EncoderOutput, input_ids: Tensor, flags: Mapping[str, object]) -> EncoderOutput:
        """Runs the decoder on the text of the encoder, with token i at position i + 1."""
        layout = memory.layout
        shifted = layout.flat(shift_right(layout.rectangle(input_ids), self.config.decoder_start_token_id))
        shown = {name: flag for name, flag in flags.items() if name.startswith("output_")}
        if any(needs.hidden_states for needs in self.needs):
            shown["output_hidden_states"] = True
        return self.decode(memory, shifted, layout=layout, **shown)


def assembled(encoder: nn.Module, heads: Mapping[str, nn.Module], **options: Any) -> TorchModel:
    """Returns the model of an encoder and heads: a `Seq2Seq` with a decoder among them. `options` are those of
    `TorchModel`."""
    kind = Seq2Seq if any(isinstance(head, Decoder) for head in heads.values()) else TorchModel
    return kind(encoder, heads, **options)


def writes(model: TorchModel) -> bool:
    """Whether a model generates text: it has a next-token head, and a decoder or causal attention."""
    head = dict(model.heads).get(NEXT_TOKEN)
    return isinstance(head, VocabularyHead) and (isinstance(model, Seq2Seq) or model.config.causal)


def shift_right(labels: Tensor, start: int) -> Tensor:
    """Returns the decoder input for `labels`: the start token, then all but the last of them. (B, Q) -> (B, Q)"""
    return torch.cat([torch.full_like(labels[:, :1], start), labels[:, :-1]], 1)
