"""Biaffine scores of pairs of words, for arrays of NumPy and of torch. Dozat and Manning 2017.

... any dimensions · N words · M possible heads · L relations · F size of a word: 2 SPACE + L + 2 RANK L
"""

from typing import Any, TypeVar

LAST = "last"
"""The batch array with the distance from a word's first token to its last token, and -1 for other tokens."""
COMPARED_WIDTH = 256  # width of what is compared; KLUE-baseline has 512 for arcs and 256 for relations
RELATION_RANK = 8  # of each relation's matrix: 38 whole ones of 256 x 256 would weigh more than a small encoder

Array = TypeVar("Array", bound=Any)


def arc_scores(dependents: Array, heads: Array) -> Array:
    """Returns the score of each word as the head of each word. dependents (..., N, F), heads (..., M, F) -> (..., N,
    M)"""
    scores: Array = dependents[..., :COMPARED_WIDTH] @ heads[..., COMPARED_WIDTH : 2 * COMPARED_WIDTH].swapaxes(-1, -2)
    return scores


def relation_scores(dependents: Array, heads: Array) -> Array:
    """Returns the score of each relation for a word and its head. dependents, heads (..., F) -> (..., L)"""
    labels = (dependents.shape[-1] - 2 * COMPARED_WIDTH) // (1 + 2 * RELATION_RANK)
    query_at = 2 * COMPARED_WIDTH + labels
    alone, query = (
        dependents[..., 2 * COMPARED_WIDTH : query_at],
        dependents[..., query_at : query_at + RELATION_RANK * labels],
    )
    products = query * heads[..., -RELATION_RANK * labels :]
    scores: Array = alone + products.reshape(*products.shape[:-1], labels, RELATION_RANK).sum(-1)
    return scores
