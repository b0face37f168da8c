"""Heads on whole sequences: classification, sentence pairs, multiple choice.

All read one vector per sequence: the pooler output, or the state of the token that represents the sequence. This is the
first token ([CLS]) or, with causal attention, the last one.

B sequences
"""

import torch
from torch import Tensor

from bertie.models.config import EncoderConfig
from bertie.models.encoder import EncoderOutput
from bertie.models.head_config import HeadActivation
from bertie.models.heads.base import NOTHING, Head, Needs, label_dropout
from bertie.models.heads.global_tokens import answer, first_token
from bertie.nn.dropout import dropout
from bertie.nn.layer import ACTIVATIONS
from bertie.nn.linear import Linear


class _OnSequence(Head):
    """The pooler output, or the sequence's token with a separate dense layer, and a classifier."""

    def __init__(
        self, config: EncoderConfig, outputs: int, act: HeadActivation | None, *, first_p: float, last_p: float
    ) -> None:
        super().__init__()
        name = config.hidden_act if act == "hidden_act" else act
        self.needs = Needs(pooler=True) if name is None else NOTHING
        self.first_p, self.last_p = first_p, last_p
        self.activation = None if name is None else torch.tanh if name == "tanh" else ACTIVATIONS[name]
        self.dense = None if name is None else Linear(config.hidden_size, config.hidden_size)
        self.classifier = Linear(config.hidden_size, outputs)

    def forward(self, output: EncoderOutput, word_embeddings: Tensor | None = None) -> Tensor:
        """Returns logits (B, outputs)."""
        x = output.pooler_output
        if self.dense is not None and self.activation is not None:
            x = self.activation(self.dense(dropout(output.summary(), self.first_p, self.training)))
        assert x is not None, "the head reads the pooler; its encoder needs one"
        logits: Tensor = self.classifier(dropout(x, self.last_p, self.training))
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
        self.needs = Needs(pooler=self.needs.pooler, global_tokens=first_token)


class MatrixSequenceHead(Head):
    """The same with only a matrix, on the state of the sequence's token. Radford et al. 2018."""

    needs = Needs(global_tokens=first_token)

    def __init__(self, config: EncoderConfig, num_labels: int) -> None:
        super().__init__()
        self.classifier = Linear(config.hidden_size, num_labels, bias=False)

    def forward(self, output: EncoderOutput, word_embeddings: Tensor | None = None) -> Tensor:
        """Returns logits (B, num_labels)."""
        logits: Tensor = self.classifier(output.summary())
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
        self.needs = Needs(pooler=self.needs.pooler, global_tokens=answer)

    def forward(self, output: EncoderOutput, word_embeddings: Tensor | None = None) -> Tensor:
        """Returns logits (B,). The choices of a question are sequences of the batch."""
        return super().forward(output).squeeze(-1)


def _dropout_p(config: EncoderConfig) -> float:
    own = config.heads.sequence.sequence_dropout
    return label_dropout(config) if own is None else own
