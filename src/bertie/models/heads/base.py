"""The interface of a head: from the output of the encoder to logits, with declared requirements.

    output = encoder(...)   ->   head(output, word_embeddings)   ->   logits

For windowed attention, a head needs some tokens with global attention. A rule receives the positions of separators in a
padded batch, and returns which tokens are global. Beltagy et al. 2020, 3.1 and 6.

B sequences · S longest sequence · H hidden size · V vocabulary
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce

import torch
from torch import Tensor, nn

from bertie.models.config import EncoderConfig
from bertie.models.encoder import EncoderOutput
from bertie.models.head_config import HeadActivation, RowUnit
from bertie.nn.layer import ACTIVATIONS
from bertie.nn.layout import Layout, on_rounded
from bertie.nn.linear import NORMS, Linear
from bertie.nn.recurrent import TextLSTM, read_states

GlobalTokens = Callable[[Tensor], Tensor]
"""The positions of separators, (B, S) bool -> the global tokens, (B, S) bool."""


def first_token(ends_BS: Tensor) -> Tensor:
    """Returns the first token, for classification."""
    return torch.zeros_like(ends_BS).index_fill(1, torch.zeros(1, dtype=torch.int64, device=ends_BS.device), True)


def mark_question_tokens(ends_BS: Tensor) -> Tensor:
    """Returns the tokens before the first separator, for pairs of texts: the question."""
    at_S, end_B1 = _at(ends_BS), _end(ends_BS)
    return ends_BS.any(1, keepdim=True) & (at_S < end_B1)


def mark_answer_tokens(ends_BS: Tensor) -> Tensor:
    """Returns the tokens after the first text's separators, for pairs of texts: the choice."""
    at_S, end_B1 = _at(ends_BS), _end(ends_BS)
    return ends_BS.any(1, keepdim=True) & (at_S > end_B1 + 1)


def seen_by_all(rules: Iterable[GlobalTokens], input_ids: Tensor, layout: Layout, sep_token_id: int) -> Tensor | None:
    """Returns the tokens that are global by any of the rules -> bool, same shape as input_ids; None without a rule."""
    ends_BS = (layout.rectangle(input_ids) == sep_token_id) & layout.mask()
    masks = [rule(ends_BS) for rule in rules]
    return layout.flat(reduce(torch.logical_or, masks)) if masks else None


def _at(ends_BS: Tensor) -> Tensor:
    return torch.arange(ends_BS.shape[1], device=ends_BS.device)


def _end(ends_BS: Tensor) -> Tensor:
    return ends_BS.int().argmax(1, keepdim=True)


@dataclass(frozen=True)
class Needs:
    """The requirements of a head in addition to the last hidden states. The default is none."""

    word_embeddings: bool = False  # the matrix (V, H) must be given at the call
    pooler: bool = False  # the encoder must have one
    hidden_states: bool = False  # of all layers
    summary_only: bool = False  # of the last layer, it reads the states of the summary tokens alone
    queries: bool = False  # nothing may attend to the tokens that it predicts, which are queries (models/xlnet.py)
    frozen_encoder: bool = False  # the encoder is not trained, and runs without dropout
    global_tokens: GlobalTokens | None = None  # which tokens must see all and be seen by all


NOTHING = Needs()
Axes = tuple[str | None, ...]
"""The meaning of each axis of a weight, for widening a model (models/widen.py)."""
CLASSIFIER: Mapping[str, Axes] = {
    "dense.weight": ("written", "read"),
    "dense.bias": ("written",),
    "transform.dense.weight": ("written", "read"),
    "transform.norm.weight": ("written",),
    "classifier.weight": (None, "read"),
    "classifier.bias": (None,),
}


class Head(nn.Module):
    """A head. A subclass is made from (config, num_labels), declares what it `needs`, and has `forward`."""

    needs: Needs = NOTHING
    rows: RowUnit = "sequence"
    """The unit of a row of its logits."""
    vocabulary: Mapping[str, int] = {}
    """Its weights with a row per vocabulary entry, by name, and the axis of these rows."""
    axes: Mapping[str, Axes] | None = CLASSIFIER
    """Its weights by name, for widening; None: it compares hidden states with the word embeddings directly."""

    def forward(self, output: EncoderOutput, word_embeddings: Tensor | None = None) -> Tensor:
        """Returns logits. word_embeddings (V, H) are passed to a head that needs them."""
        raise NotImplementedError

    def fold(self, scale_L: Tensor, shift_L: Tensor) -> bool:
        """Multiplies its logits, and adds to them, by changing its weights. Returns whether it can."""
        classifier = getattr(self, "classifier", None)
        if not isinstance(classifier, Linear) or (classifier.bias is None and bool(shift_L.any())):
            return False
        with torch.no_grad():
            classifier.weight.mul_(scale_L[:, None])
            if classifier.bias is not None:
                classifier.bias.mul_(scale_L).add_(shift_L)
        return True


class Transform(nn.Module):
    """A dense layer without bias, an activation, and a norm of the encoder's kind, before a classifier.

    Warner et al. 2024 (ModernBERT).
    """

    def __init__(self, config: EncoderConfig, act: HeadActivation) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[config.hidden_act if act == "hidden_act" else act]
        self.dense = Linear(config.hidden_size, config.hidden_size, bias=False)
        self.norm = NORMS[config.norm_type](config.hidden_size, config.layer_norm_eps)

    def forward(self, x: Tensor) -> Tensor:
        """(..., H) -> (..., H)"""
        return on_rounded(lambda x: self.norm(self.activation(self.dense(x))), x)


class Reread(nn.Module):
    """A bidirectional LSTM on the last hidden states. Heads read its states instead. Devlin et al. 2018, 5.1."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.lstm = TextLSTM(config.hidden_size, config.hidden_size // 2, config.heads.label.label_lstm)

    def forward(self, output: EncoderOutput) -> EncoderOutput:
        """Returns the output with other last hidden states, and without a pooler's vector of the old ones."""
        states = read_states(self.lstm, output.last_hidden_state, output.layout)
        return replace(output, last_hidden_state=states, pooler_output=None)


def label_reader(config: EncoderConfig) -> nn.Module:
    """The module between the encoder and classification heads: none, or an LSTM. EncoderOutput -> EncoderOutput"""
    return Reread(config) if config.heads.label.label_lstm else nn.Identity()


def label_transform(config: EncoderConfig) -> nn.Module:
    """The module before the dropout and the classifier of classification heads. Most families have none."""
    act = config.heads.label.label_transform
    return nn.Identity() if act is None else Transform(config, act)


def label_dropout(config: EncoderConfig) -> float:
    """Returns the dropout of classifiers: classifier_dropout, or hidden_dropout_prob where it is not set."""
    return config.hidden_dropout_prob if config.classifier_dropout is None else config.classifier_dropout
