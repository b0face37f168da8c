"""Removal of a concept from vectors by an affine map, which is then part of a model's weights.

    r(x) = x - M (x - mean)

    leace      Belrose et al. 2023: the smallest change after which no linear classifier finds the concept
    inlp       Ravfogel et al. 2020: the directions of linear classifiers are removed, one after the other
    sentence   Liang et al. 2020 (SentenceDebias): the first principal directions of the differences between pairs

N vectors, whose pairs follow each other: before and after an exchange of words · H their width
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertie.platform import DataError, UsageError, nearest

_DIRECTIONS = 1  # of SentenceDebias for a concept with two values
_ROUNDS = 40  # of INLP at most
NEAR = 0.02  # INLP ends where a classifier is this near to the share of the majority
_EPS = 1e-10  # relative: eigenvalues below are zero


@dataclass(frozen=True)
class Erasure:
    """r(x) = x - M (x - mean). removed: M (H, H); mean (H,)."""

    removed: NDArray[np.float64]
    mean: NDArray[np.float64]

    def __call__(self, vectors: NDArray[np.float64]) -> NDArray[np.float64]:
        """(..., H) -> (..., H)"""
        return vectors - (vectors - self.mean) @ self.removed.T

    @property
    def rank(self) -> int:
        """The number of removed directions."""
        return int(np.linalg.matrix_rank(self.removed, tol=1e-6))


def leace(vectors: NDArray[np.float64], sides: NDArray[np.float64]) -> Erasure:
    """Returns the LEACE map. vectors (N, H), sides (N,) 0 or 1. Belrose et al. 2023, theorem 4.3."""
    mean = vectors.mean(0)
    x, z = vectors - mean, (sides - sides.mean())[:, None]
    values, basis = np.linalg.eigh(x.T @ x / len(x))
    nonzero = values > _EPS * values.max()
    root = np.sqrt(np.where(nonzero, values, 0))
    inverse = np.divide(1, root, out=np.zeros_like(root), where=nonzero)
    whiten, back = (basis * inverse) @ basis.T, (basis * root) @ basis.T
    left, size, _ = np.linalg.svd(whiten @ (x.T @ z / len(x)), full_matrices=False)
    left = left[:, size > _EPS]
    return Erasure(back @ left @ left.T @ whiten, mean)


def inlp(vectors: NDArray[np.float64], sides: NDArray[np.float64], *, rounds: int = _ROUNDS, seed: int = 0) -> Erasure:
    """Returns the projection onto what the classifiers of all rounds do not read. P = 1 - M, P P = P."""
    from sklearn.linear_model import LogisticRegression

    held = np.random.default_rng(seed).permutation(len(vectors) // 2) < len(vectors) // 10  # both of a pair
    test = np.repeat(held, 2)
    majority = max(sides[test].mean(), 1 - sides[test].mean())
    directions, scale = np.zeros((0, vectors.shape[1])), vectors.std() or 1.0
    removed = np.zeros((vectors.shape[1],) * 2)
    for _ in range(min(rounds, vectors.shape[1] - 1)):
        x = (vectors - vectors @ removed) / scale
        classifier = LogisticRegression(max_iter=300).fit(x[~test], sides[~test])
        if classifier.score(x[test], sides[test]) <= majority + NEAR:
            break
        directions = np.concatenate([directions, classifier.coef_ - classifier.coef_ @ removed])
        basis, size, _ = np.linalg.svd(directions.T, full_matrices=False)
        basis = basis[:, size > 1e-8 * size.max()]
        removed = basis @ basis.T
    return Erasure(removed, np.zeros(vectors.shape[1]))


def sentence(vectors: NDArray[np.float64], sides: NDArray[np.float64], *, directions: int = _DIRECTIONS) -> Erasure:
    """Returns the projection without the first principal directions of the pairs, each around its own mean."""
    pairs = vectors.reshape(-1, 2, vectors.shape[1])
    around = (pairs - pairs.mean(1, keepdims=True)).reshape(vectors.shape)
    _, _, rows = np.linalg.svd(around, full_matrices=False)
    basis = rows[:directions].T
    return Erasure(basis @ basis.T, np.zeros(vectors.shape[1]))


HOW: dict[str, Callable[[NDArray[np.float64], NDArray[np.float64]], Erasure]] = {
    "leace": leace,
    "inlp": inlp,
    "sentence": sentence,
}


def remedy(how: str) -> Callable[[NDArray[np.float64], NDArray[np.float64]], Erasure]:
    """Returns a way of HOW. Raises UsageError for an unknown one."""
    if how not in HOW:
        raise UsageError(f"Unknown remedy {how!r}. {nearest(how, HOW)}")
    return HOW[how]


def probe_accuracy(vectors: NDArray[np.float64], sides: NDArray[np.float64], *, seed: int = 0) -> tuple[float, float]:
    """Returns the accuracy of a linear classifier on held-out pairs, and the share of the majority there."""
    from sklearn.linear_model import LogisticRegression

    pairs = len(vectors) // 2
    if pairs < 10:
        raise DataError(f"{pairs} pairs of texts are too few to test what is left of the concept. Give at least 10.")
    test = np.repeat(np.random.default_rng(seed).permutation(pairs) < max(2, pairs // 5), 2)
    x = (vectors - vectors[~test].mean(0)) / (vectors.std() or 1.0)  # by dimension, rounding errors would be scaled up
    classifier = LogisticRegression(max_iter=300).fit(x[~test], sides[~test])
    share = float(sides[test].mean())
    return float(classifier.score(x[test], sides[test])), max(share, 1 - share)
