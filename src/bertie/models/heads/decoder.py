"""The decoder of an encoder-decoder model. It attends to its own earlier output and to the encoder's output (its
memory).

    memory = encoder("translate: the cat sat")
    decoder(memory, "<start> die Katze") -> hidden states -> next-token head -> "saß"

It is in the table of heads, but other heads depend on it: models/seq2seq.py. It uses the word embeddings of the
encoder. Raffel et al. 2020, section 2.1.

B sequences · Q generated tokens · K tokens of the memory · H hidden size · V vocabulary
"""

from typing import cast

from torch import Tensor, nn

from bertie.models.config import EncoderConfig
from bertie.models.encoder import EncoderOutput
from bertie.models.layers import final_norm, make_decoder_layer, relative_positions
from bertie.nn.attention import Cache, attention_bias
from bertie.nn.dropout import dropout
from bertie.nn.layer import DecoderLayer
from bertie.nn.layout import Layout, Padded
from bertie.nn.positions import RelativePositions


class Decoder(nn.Module):
    """num_decoder_layers causal layers that also attend to the memory. Not set: as many as the encoder has."""

    def __init__(self, config: EncoderConfig, num_labels: int = 0) -> None:
        super().__init__()
        layers = config.num_hidden_layers if config.num_decoder_layers is None else config.num_decoder_layers
        self.relative = relative_positions(config, both_sides=False)
        self.layers = nn.ModuleList(make_decoder_layer(config) for _ in range(layers))
        self.final_norm = final_norm(config)
        self.dropout_p = config.hidden_dropout_prob
        self.final_dropout_p = config.hidden_dropout_prob if config.layer.dropout_inside else 0.0

    def forward(
        self,
        memory: EncoderOutput,
        word_embeddings: Tensor,
        input_ids: Tensor,
        layout: Layout | None = None,
        *,
        attention_mask: Tensor | None = None,
        cache: Cache | None = None,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
    ) -> EncoderOutput:
        """memory, word_embeddings (V, H), input_ids (Q tokens a sequence, packed or padded as in `Encoder.forward`).

        With a cache (padded batches) input_ids are the tokens after those it holds.
        """
        if layout is None:
            layout = Padded.of(input_ids, attention_mask)
        if cache is not None:
            cache.extend(layout.mask())
        keys = layout.max_seqlen if cache is None else cache.mask().shape[1]
        hidden = nn.functional.embedding(input_ids, word_embeddings).to(memory.last_hidden_state.dtype)
        hidden = dropout(hidden, self.dropout_p, self.training)
        bias = attention_bias(layout, hidden.dtype, causal=True, cache=cache)
        if self.relative is not None:
            assert isinstance(self.relative, RelativePositions), (
                "EncoderConfig allows no other positions with a decoder"
            )
            bias = self.relative.added(bias, layout.max_seqlen, keys, None, hidden.dtype)
        memory_bias = attention_bias(memory.layout, hidden.dtype)
        hidden_states, attentions, cross_attentions = [hidden], list[Tensor](), list[Tensor]()
        for i, layer in enumerate(self.layers):
            hidden, probs, cross_probs = cast(DecoderLayer, layer).decode(
                hidden,
                layout,
                bias,
                memory.last_hidden_state,
                memory.layout,
                memory_bias,
                cache=None if cache is None else cache.layer(i),
                output_attentions=output_attentions,
            )
            hidden_states.append(hidden)
            attentions += [] if probs is None else [probs]
            cross_attentions += [] if cross_probs is None else [cross_probs]
        hidden = dropout(self.final_norm(hidden), self.final_dropout_p, self.training)
        return EncoderOutput(
            last_hidden_state=hidden,
            layout=layout,
            summary_last=True,
            hidden_states=(*hidden_states[:-1], hidden) if output_hidden_states else None,
            attentions=tuple(attentions) if output_attentions else None,
            cross_attentions=tuple(cross_attentions) if output_attentions else None,
        )
