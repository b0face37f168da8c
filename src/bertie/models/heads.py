"""Heads: what the encoder found -> logits. Those over the vocabulary are given hidden states; the others read an
`EncoderOutput` and pick what they need.

N predictions · T tokens · B sequences · H hidden size · V vocabulary
"""

from collections.abc import Callable, Iterable
from functools import partial
from math import sqrt

import torch
import torch.nn.functional as F
from torch import Tensor, nn, zeros

from bertie.models.config import EncoderConfig
from bertie.models.elmo import BiLMHead
from bertie.models.encoder import EncoderOutput
from bertie.models.features import FEATURES, PREFIX, FeatureHead
from bertie.models.parsing import ParseHead
from bertie.models.seq2seq import Decoder
from bertie.nn.dropout import add_dropout, dropout
from bertie.nn.layer import ACTIVATIONS
from bertie.nn.layout import Layout, rounded, with_rows
from bertie.nn.linear import LayerNorm, Linear
from bertie.nn.loss import linear_cross_entropy
from bertie.registry import Registry


class MaskedLMHead(nn.Module):
    """Which vocabulary entry stands at a position; the decoder is the word embedding matrix, passed in at the call.

    Where word embeddings are narrow, the hidden state is made as narrow, or (config.mlm_widened) the matrix is widened
    by columns of the head's own (Sun et al. 2020; release file run_pretraining.py, get_masked_lm_output).
    Devlin et al. 2018, 3.1; release file run_pretraining.py, get_masked_lm_output.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        narrow = config.embedding_size or config.hidden_size
        size = config.hidden_size if config.mlm_widened else narrow
        self.columns = nn.Parameter(zeros(size - narrow, config.vocab_size)) if config.mlm_widened else None
        self.activation = ACTIVATIONS[config.mlm_act or config.hidden_act]
        self.dense = Linear(config.hidden_size, size)
        self.norm = LayerNorm(size, config.layer_norm_eps)
        self.bias = nn.Parameter(zeros(config.vocab_size))

    def transform(self, hidden: Tensor) -> Tensor:
        """hidden (..., H) -> what is compared with the word embeddings (..., H)"""
        transformed: Tensor = self.norm(self.activation(self.dense(hidden)))
        return transformed

    def forward(self, hidden: Tensor, word_embeddings: Tensor) -> Tensor:
        """hidden (..., H), word_embeddings (V, H) -> logits (..., V)"""
        x = self.transform(hidden)
        return F.linear(x, self.decoder(word_embeddings).to(x.dtype), self.bias.to(x.dtype))

    def loss(self, hidden: Tensor, word_embeddings: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """hidden (N, H), word_embeddings (V, H), targets (N,) int64 -> summed cross-entropy in nats, correct."""
        hidden = with_rows(hidden, rounded(len(hidden)))
        return linear_cross_entropy(self.transform(hidden), self.decoder(word_embeddings), self.bias, targets)

    def decoder(self, word_embeddings: Tensor) -> Tensor:
        """word_embeddings (V, E) -> what `transform`'s output is compared with, (V, E) or wider"""
        return word_embeddings if self.columns is None else torch.cat([word_embeddings, self.columns.T], 1)


class NextTokenHead(nn.Module):
    """Which vocabulary entry comes next, by a matrix alone: the word embeddings, or one of its own.

    Radford et al. 2018, 3.1. With lm_scale what is compared is first divided by the root of H (T5 with tied weights).
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.divisor = sqrt(config.hidden_size) if config.lm_scale else 1.0
        self.weight = None if config.lm_tied else nn.Parameter(zeros(config.vocab_size, config.hidden_size))

    def forward(self, hidden: Tensor, word_embeddings: Tensor) -> Tensor:
        """hidden (..., H), word_embeddings (V, H) -> logits (..., V)"""
        weight = word_embeddings if self.weight is None else self.weight
        return F.linear(hidden / self.divisor, weight.to(hidden.dtype))

    def loss(self, hidden: Tensor, word_embeddings: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """hidden (N, H), word_embeddings (V, H), targets (N,) int64 -> summed cross-entropy in nats, correct."""
        weight = word_embeddings if self.weight is None else self.weight
        return linear_cross_entropy(hidden / self.divisor, weight, weight.new_zeros(len(weight)), targets)


class PermutationLMHead(nn.Module):
    """Which vocabulary entry stands at a position, by the word embeddings and a bias alone. Yang et al. 2019, 2.2."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.bias = nn.Parameter(zeros(config.vocab_size))

    def forward(self, hidden: Tensor, word_embeddings: Tensor) -> Tensor:
        """hidden (..., H), word_embeddings (V, H) -> logits (..., V)"""
        return F.linear(hidden, word_embeddings.to(hidden.dtype), self.bias.to(hidden.dtype))

    def loss(self, hidden: Tensor, word_embeddings: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """hidden (N, H), word_embeddings (V, H), targets (N,) int64 -> summed cross-entropy in nats, correct."""
        return linear_cross_entropy(hidden, word_embeddings, self.bias, targets)


class ReplacedTokenHead(nn.Module):
    """Whether a generator put a token there: one logit a token, above 0 if it did. Clark et al. 2020, 2."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[config.hidden_act]
        self.dense = Linear(config.hidden_size, config.hidden_size)
        self.classifier = Linear(config.hidden_size, 1)

    def forward(self, output: EncoderOutput) -> Tensor:
        """-> logits (T,) packed or (B, S) padded"""
        logits: Tensor = self.classifier(self.activation(self.dense(output.last_hidden_state)))
        return logits.squeeze(-1)


class _OnSequence(nn.Module):
    """One vector a sequence: the pooler output, or the first or `last` token through a dense layer of its own."""

    def __init__(
        self, config: EncoderConfig, outputs: int, act: str | None, *, first_p: float, last_p: float, last: bool = False
    ) -> None:
        super().__init__()
        self.last = last
        act = config.hidden_act if act == "hidden_act" else act
        self.reads_pooler = act is None
        self.first_p, self.last_p = first_p, last_p
        self.activation = None if act is None else torch.tanh if act == "tanh" else ACTIVATIONS[act]
        self.dense = None if act is None else Linear(config.hidden_size, config.hidden_size)
        self.classifier = Linear(config.hidden_size, outputs)

    def forward(self, output: EncoderOutput) -> Tensor:
        """-> logits (B, outputs)"""
        x = output.pooler_output
        if self.dense is not None and self.activation is not None:
            pick = output.layout.last if self.last else output.layout.first
            token = dropout(pick(output.last_hidden_state), self.first_p, self.training)
            x = self.activation(self.dense(token))
        assert x is not None, "the head reads the pooler; its encoder needs one"
        logits: Tensor = self.classifier(dropout(x, self.last_p, self.training))
        return logits


class PairHead(_OnSequence):
    """Whether segment B follows segment A (NSP), or the two stand in order (SOP): two logits; 0 means it is so.

    Release file run_pretraining.py; Lan et al. 2019, 3.1.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config, 2, None, first_p=0.0, last_p=_dropout_p(config) if config.pair_dropout else 0.0)


class SequenceHead(_OnSequence):
    """One label, several or a number for a whole sequence. Devlin et al. 2018, 4.1; on the last token, Radford 2018."""

    def __init__(self, config: EncoderConfig, num_labels: int) -> None:
        last_p = _sequence_dropout_p(config)
        first_p = last_p if config.sequence_input_dropout else 0.0
        last = config.sequence_last
        super().__init__(config, num_labels, config.sequence_act, first_p=first_p, last_p=last_p, last=last)
        self.alone = last and self.dense is None  # a matrix on the token itself (GPT)
        if self.alone:
            self.reads_pooler = False
            self.classifier = Linear(config.hidden_size, num_labels, bias=False)

    def forward(self, output: EncoderOutput) -> Tensor:
        """-> logits (B, num_labels)"""
        if not self.alone:
            return super().forward(output)
        logits: Tensor = self.classifier(output.layout.last(output.last_hidden_state))
        return logits


class ChoiceHead(_OnSequence):
    """How well a sequence answers: one logit, compared with those of the other choices. Devlin et al. 2018, 4.4."""

    def __init__(self, config: EncoderConfig) -> None:
        last_p = config.hidden_dropout_prob if config.choice_drops_hidden else _sequence_dropout_p(config)
        last_p = last_p if config.choice_dropout is None else config.choice_dropout
        super().__init__(config, 1, config.choice_act, first_p=0.0, last_p=last_p)

    def forward(self, output: EncoderOutput) -> Tensor:
        """-> logits (B,); a question's choices are sequences of the batch"""
        return super().forward(output).squeeze(-1)


class TokenHead(nn.Module):
    """A label for each token. Devlin et al. 2018, 5.3."""

    def __init__(self, config: EncoderConfig, num_labels: int) -> None:
        super().__init__()
        self.dropout_p = _dropout_p(config)
        self.classifier = Linear(config.hidden_size, num_labels)

    def forward(self, output: EncoderOutput) -> Tensor:
        """-> logits (T, num_labels) packed or (B, S, num_labels) padded"""
        logits: Tensor = self.classifier(dropout(output.last_hidden_state, self.dropout_p, self.training))
        return logits


class SpanHead(nn.Module):
    """Where an answer starts and ends: two logits a token. Devlin et al. 2018, 4.2."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.dropout_p = config.hidden_dropout_prob if config.span_layer else config.span_dropout
        self.layer = _FeedForward(config) if config.span_layer else None
        self.classifier = Linear(config.hidden_size, 2)

    def forward(self, output: EncoderOutput) -> Tensor:
        """-> logits (T, 2) packed or (B, S, 2) padded: start, end"""
        hidden = output.last_hidden_state
        x = dropout(hidden, self.dropout_p, self.training)
        logits: Tensor = self.classifier(x if self.layer is None else self.layer(x, hidden))
        return logits


class _FeedForward(nn.Module):
    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.dropout_p = config.hidden_dropout_prob
        self.activation = ACTIVATIONS[config.hidden_act]
        self.up = Linear(config.hidden_size, config.intermediate_size)
        self.down = Linear(config.intermediate_size, config.hidden_size)
        self.norm = LayerNorm(config.hidden_size, config.layer_norm_eps)

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        x = self.down(self.activation(self.up(x)))
        normed: Tensor = self.norm(add_dropout(residual, x, self.dropout_p, self.training))
        return normed


def _dropout_p(config: EncoderConfig) -> float:
    return config.hidden_dropout_prob if config.classifier_dropout is None else config.classifier_dropout


def _sequence_dropout_p(config: EncoderConfig) -> float:
    return _dropout_p(config) if config.sequence_dropout is None else config.sequence_dropout


HEADS: Registry[Callable[[EncoderConfig, int], nn.Module]] = Registry(
    "head",
    [
        ("mlm", lambda config, _: MaskedLMHead(config)),
        ("lm", lambda config, _: MaskedLMHead(config) if config.lm_transform else NextTokenHead(config)),
        ("decoder", lambda config, _: Decoder(config)),
        ("plm", lambda config, _: PermutationLMHead(config)),
        ("bilm", lambda config, _: BiLMHead(config)),
        ("rtd", lambda config, _: ReplacedTokenHead(config)),
        ("pair", lambda config, _: PairHead(config)),
        ("sequence", SequenceHead),
        ("choice", lambda config, _: ChoiceHead(config)),
        ("token", TokenHead),
        ("span", lambda config, _: SpanHead(config)),
        ("parse", ParseHead),
        *((f"{PREFIX}{kind}", partial(FeatureHead, kind=kind)) for kind in FEATURES),
    ],
)
"""Head name -> what makes it from a config and a number of labels."""
LABELLED = ("sequence", "token", "parse", *(f"{PREFIX}{kind}" for kind in FEATURES))
"""The heads whose outputs have names in config.json."""
VOCABULARY = ("mlm", "lm", "plm")
"""The heads over the vocabulary, which are given hidden states and the word embeddings."""


def seen_by_all(heads: Iterable[str], input_ids: Tensor, layout: Layout, sep_token_id: int) -> Tensor | None:
    """Where attention is windowed, the tokens that are global for the sake of a head. -> bool, as input_ids, or None

    The first token of what is classified, the question (up to the first separator) for which a span is sought, the
    answer (what follows the question's separators) that is one of a choice. Beltagy et al. 2020, 3.1 and 6.
    """
    heads = set(heads) & {"sequence", "span", "choice"}
    if not heads:
        return None
    mask_BS, at_S = layout.mask(), torch.arange(layout.max_seqlen, device=input_ids.device)
    ends_BS = (layout.rectangle(input_ids) == sep_token_id) & mask_BS
    two_texts_B1, end_B1 = ends_BS.any(1, keepdim=True), ends_BS.int().argmax(1, keepdim=True)
    global_BS = torch.zeros_like(mask_BS)
    if "sequence" in heads:
        global_BS = global_BS | (at_S == 0)
    if "span" in heads:
        global_BS = global_BS | (two_texts_B1 & (at_S < end_B1))
    if "choice" in heads:
        global_BS = global_BS | (two_texts_B1 & (at_S > end_B1 + 1))
    return layout.flat(global_BS)
