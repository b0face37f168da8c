"""Heads on whole sequences: classification, sentence pairs, multiple choice.

All read one vector per sequence: the pooler output, or the state of the token that represents the sequence, which is
the first ([CLS]) or, in a causal model, the last. With label_pooling it is the mean, the largest
values or the last token of the last layer instead, and the pooler is not read.

B sequences
"""

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from bertie.models.config import EncoderConfig
from bertie.models.encoder import EncoderOutput, pick_summary
from bertie.models.head_config import HeadActivation
from bertie.models.heads.base import (
    Head,
    Needs,
    first_token,
    label_dropout,
    label_reader,
    label_transform,
    mark_answer_tokens,
)
from bertie.models.sentence import pool
from bertie.nn.attention import CrossAttention, attention_bias
from bertie.nn.dropout import dropout
from bertie.nn.layer import ACTIVATIONS
from bertie.nn.layout import Padded
from bertie.nn.linear import LayerNorm, Linear


class Pool(nn.Module):
    """A sequence's hidden states in one vector, as label_pooling says; without weights but for "attention"."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        label = config.heads.label
        self.kind, self.layers = label.label_pooling, label.label_layers
        summary_only = self.kind in ("cls", "first") and not label.label_lstm
        self.needs = Needs(hidden_states=self.kind == "cls_layers", summary_only=summary_only)
        attends = self.kind == "attention"
        self.attention = CrossAttention(config.hidden_size, config.num_attention_heads) if attends else None

    def forward(self, output: EncoderOutput) -> Tensor:
        """-> (B, H)"""
        if self.kind == "cls_layers":
            last = (output.all_states[1:] or output.all_states)[-self.layers :]
            firsts = [pick_summary(hidden, output.layout, last=output.summary_last) for hidden in last]
            return torch.stack(firsts).amax(0)
        if self.attention is None:
            return pool(output, "cls" if self.kind == "first" else self.kind)
        query_B1H = output.summary()[:, None]
        alone = Padded.of(query_B1H[..., 0], None)
        hide = attention_bias(output.layout, query_B1H.dtype)
        context, _ = self.attention(query_B1H, alone, output.last_hidden_state, output.layout, hide)
        attended: Tensor = context[:, 0]
        return attended


class Widened(nn.Module):
    """A dense layer of twice the size, GELU and a norm. Lu et al. 2019, 3.2 (the two-layer MLP of its VQA)."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.dense, self.norm = Linear(size, 2 * size), LayerNorm(2 * size, eps)

    def forward(self, x: Tensor) -> Tensor:
        """(..., H) -> (..., 2 H)"""
        states: Tensor = self.norm(gelu(self.dense(x)))
        return states


class _OnSequence(Head):
    """The pooler output, or what is pooled through a dense layer of its own, and a classifier."""

    def __init__(
        self, config: EncoderConfig, outputs: int, act: HeadActivation | None, *, first_p: float, last_p: float
    ) -> None:
        super().__init__()
        name, label = config.hidden_act if act == "hidden_act" else act, config.heads.label
        self.reader, self.pool, self.transform = label_reader(config), Pool(config), label_transform(config)
        from_pooler = (label.label_pooling, label.label_transform, label.label_lstm) == ("cls", None, 0)
        self.reads_pooler = name is None and from_pooler
        self.needs = replace(self.pool.needs, pooler=self.reads_pooler)
        self.first_p, self.last_p = first_p, last_p
        self.activation = None if name is None else torch.tanh if name == "tanh" else ACTIVATIONS[name]
        self.dense = None if name is None else Linear(config.hidden_size, config.hidden_size)
        self.classifier = Linear(config.hidden_size, outputs)

    def vector(self, output: EncoderOutput) -> Tensor:
        """Returns what the classifier reads, without its dropout. -> (B, H)"""
        x = output.pooler_output if self.reads_pooler else self.pool(self.reader(output))
        assert x is not None, "the head reads the pooler; its encoder needs one"
        if self.dense is not None and self.activation is not None:
            x = self.activation(self.dense(dropout(x, self.first_p, self.training)))
        transformed: Tensor = self.transform(x)
        return transformed

    def forward(self, output: EncoderOutput, word_embeddings: Tensor | None = None) -> Tensor:
        """-> logits (B, outputs)"""
        logits: Tensor = self.classifier(dropout(self.vector(output), self.last_p, self.training))
        return logits


class PairHead(_OnSequence):
    """Whether segment B follows segment A (NSP), or the two are in order (SOP): two logits, where 0 means yes.

    google-research/bert, run_pretraining.py; Lan et al. 2019, 3.1.
    """

    def __init__(self, config: EncoderConfig, num_labels: int = 0) -> None:
        last_p = label_dropout(config) if config.heads.pair.pair_dropout else 0.0
        super().__init__(config, 2, None, first_p=0.0, last_p=last_p)


class SequenceHead(_OnSequence):
    """One label, several labels or a number for a whole sequence. Devlin et al. 2018, 4.1."""

    def __init__(self, config: EncoderConfig, num_labels: int) -> None:
        last_p, own = _dropout_p(config), config.heads.sequence
        super().__init__(
            config, num_labels, own.sequence_act, first_p=last_p if own.sequence_input_dropout else 0.0, last_p=last_p
        )
        self.needs = replace(self.needs, global_tokens=first_token)
        if own.sequence_mlp:
            self.transform = Widened(config.hidden_size, config.layer_norm_eps)
            self.classifier = Linear(2 * config.hidden_size, num_labels)


class MatrixSequenceHead(Head):
    """The same with only a matrix, on the state of the sequence's token. Radford et al. 2018."""

    def __init__(self, config: EncoderConfig, num_labels: int) -> None:
        super().__init__()
        self.reader, self.pool = label_reader(config), Pool(config)
        self.needs = replace(self.pool.needs, global_tokens=first_token)
        self.classifier = Linear(config.hidden_size, num_labels, bias=False)

    def forward(self, output: EncoderOutput, word_embeddings: Tensor | None = None) -> Tensor:
        """-> logits (B, num_labels)"""
        logits: Tensor = self.classifier(self.pool(self.reader(output)))
        return logits


def sequence_head(config: EncoderConfig, num_labels: int) -> Head:
    """Returns the sequence head of a family."""
    kind = MatrixSequenceHead if config.heads.sequence.sequence_matrix_only else SequenceHead
    return kind(config, num_labels)


class ChoiceHead(_OnSequence):
    """One logit per choice, compared with those of the other choices. Devlin et al. 2018, 4.4."""

    def __init__(self, config: EncoderConfig, num_labels: int = 0) -> None:
        own = config.heads.choice
        last_p = config.hidden_dropout_prob if own.choice_drops_hidden else _dropout_p(config)
        super().__init__(
            config, 1, own.choice_act, first_p=0.0, last_p=last_p if own.choice_dropout is None else own.choice_dropout
        )
        self.needs = replace(self.needs, global_tokens=mark_answer_tokens)

    def forward(self, output: EncoderOutput, word_embeddings: Tensor | None = None) -> Tensor:
        """Returns logits (B,). The choices of a question are sequences of the batch."""
        return super().forward(output).squeeze(-1)


def _dropout_p(config: EncoderConfig) -> float:
    own = config.heads.sequence.sequence_dropout
    return label_dropout(config) if own is None else own
