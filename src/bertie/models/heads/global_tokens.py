"""The tokens with global attention that a head needs, for windowed attention.

A rule receives the positions of separators in a padded batch, and returns which tokens are global. Beltagy et al. 2020,
3.1 and 6.

B sequences · S longest sequence
"""

from collections.abc import Callable, Iterable
from functools import reduce

import torch
from torch import Tensor

from bertie.nn.layout import Layout

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
