"""The structural probe: a linear map under which squared distances are those of the words in the dependency tree.

The distance is d(i, j) = |B (h_i - h_j)|^2. B is trained so that the mean of |d - tree distance| over the pairs of a
sentence is small (Hewitt and Manning 2019, N19-1419; john-hewitt/structural-probes). UUAS is the share of the edges of
the tree, without punctuation, in the minimum spanning tree of the predicted distances. Spearman's correlation is
computed for each word, and averaged over words, then sentences of one length, then lengths 5 to 50.

The control task gives every word a random way to attach: to the first word, the last one, or the one before it.

B sentences of a batch · S words of a sentence · H hidden size · R rank
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse.csgraph import minimum_spanning_tree, shortest_path
from scipy.stats import rankdata
from torch import Tensor

from bertie.apps.probe.sentences import Sentence

_RANK = 128
BATCH, EPOCHS, PATIENCE = 20, 40, 4  # as in the published code
RATE, STEPS = 1e-2, 100  # steps of an epoch: few sentences are read several times
_LENGTHS = range(5, 51)
_PUNCTUATION = "PUNCT"
_WAYS = ("first", "last", "before")


@dataclass(frozen=True)
class Tree:
    """A tree over the words of a sentence: heads from 1, 0 for the root. counted: words that UUAS counts."""

    heads: tuple[int, ...]
    counted: tuple[bool, ...]

    def edges(self) -> set[tuple[int, int]]:
        """Returns the edges between counted words, from 0, the smaller number first."""
        pairs = ((word, head - 1) for word, head in enumerate(self.heads) if head)
        return {(min(pair), max(pair)) for pair in pairs if self.counted[pair[0]] and self.counted[pair[1]]}

    def distances(self) -> NDArray[np.float64]:
        """Returns the number of edges between each two words. -> (S, S)"""
        size = len(self.heads)
        near = np.zeros((size, size))
        for word, head in enumerate(self.heads):
            if head:
                near[word, head - 1] = 1
        steps: NDArray[np.float64] = shortest_path(near, directed=False, unweighted=True)
        return steps


def sentence_tree(sentence: Sentence) -> Tree:
    """Returns the dependency tree of a sentence that has one."""
    upos = sentence.upos or ("",) * len(sentence.heads)
    return Tree(sentence.heads, tuple(tag != _PUNCTUATION for tag in upos))


def control_tree(sentence: Sentence, seed: int) -> Tree:
    """Returns a tree in which every word attaches in the way that is drawn for it, the same in every sentence."""
    size, heads = len(sentence.heads), [0]
    for number, word in enumerate(sentence.words[1:], 2):
        way = random.Random(f"{seed} {word}").choice(_WAYS)
        heads.append(1 if way == "first" or number == size else size if way == "last" else number - 1)
    return Tree(tuple(heads), sentence_tree(sentence).counted)


def loss(predicted_BSS: Tensor, distance_BSS: Tensor, sizes_B: Tensor) -> Tensor:
    """Returns the mean over sentences of the mean absolute difference over pairs. Cells after a sentence must be 0."""
    return ((predicted_BSS - distance_BSS).abs().sum((1, 2)) / sizes_B**2).mean()


def squared_distances(vectors_BSH: Tensor, map_HR: Tensor) -> Tensor:
    """Returns |B (h_i - h_j)|^2 for each two words. -> (B, S, S)"""
    x_BSR = vectors_BSH @ map_HR
    square_BS = x_BSR.square().sum(-1)
    return (square_BS[:, :, None] + square_BS[:, None] - 2 * x_BSR @ x_BSR.mT).clamp_min(0)


@dataclass(frozen=True)
class _Batch:
    vectors: Tensor
    distances: Tensor
    sizes: Tensor

    def loss(self, map_HR: Tensor) -> Tensor:
        inside = torch.arange(self.vectors.shape[1])[None] < self.sizes[:, None]
        predicted = squared_distances(self.vectors, map_HR) * (inside[:, None] & inside[:, :, None])
        return loss(predicted, self.distances, self.sizes)


def _batches(vectors: Sequence[NDArray[np.float32]], trees: Sequence[Tree]) -> list[_Batch]:
    """Returns padded batches of sentences of similar length."""
    order = sorted(range(len(trees)), key=lambda i: len(trees[i].heads))
    batches = []
    for start in range(0, len(order), BATCH):
        some = order[start : start + BATCH]
        longest, width = len(trees[some[-1]].heads), vectors[some[0]].shape[1]
        padded, distances = torch.zeros(len(some), longest, width), torch.zeros(len(some), longest, longest)
        for place, i in enumerate(some):
            size = len(trees[i].heads)
            padded[place, :size] = torch.from_numpy(vectors[i])
            distances[place, :size, :size] = torch.from_numpy(trees[i].distances())
        batches.append(_Batch(padded, distances, torch.tensor([len(trees[i].heads) for i in some])))
    return batches


def fit_structural_probe(
    vectors: Sequence[NDArray[np.float32]], trees: Sequence[Tree], *, rank: int = _RANK, seed: int = 0
) -> NDArray[np.float32]:
    """Returns the map of the structural probe, trained on sentences. vectors: (S, H) of each -> (H, R)

    A tenth of the sentences is held out to choose the step, as in the published code: Adam, batches of 20 sentences, at
    most 40 epochs. The learning rate falls tenfold when the held-out loss does not, and training ends after 5 such
    epochs. The rate, 0.01, is ten times theirs: with few sentences, 0.001 stops before it has learned.
    """
    size = float(np.sqrt(np.mean([np.square(one - one.mean(0)).mean() for one in vectors]))) or 1.0
    vectors = [one / size for one in vectors]  # the learning rate suits numbers around 1
    held = max(1, len(trees) // 10)
    held_out = _batches(vectors[:held], trees[:held])
    batches = _batches(vectors[held:] or vectors, trees[held:] or trees)
    generator = torch.Generator().manual_seed(seed)
    width = vectors[0].shape[1]
    map_HR = (torch.rand(width, min(rank, width), generator=generator) - 0.5) / 10
    map_HR *= _scale(batches[len(batches) // 2], map_HR)  # the mean distance is right from the start
    map_HR.requires_grad_()
    optimizer = torch.optim.Adam([map_HR], lr=RATE)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.1, patience=0)
    best, best_HR, since = float("inf"), map_HR.detach().clone(), 0
    passes = max(1, round(STEPS / len(batches)))
    for _ in range(EPOCHS):
        for i in torch.cat([torch.randperm(len(batches), generator=generator) for _ in range(passes)]).tolist():
            optimizer.zero_grad()
            batches[i].loss(map_HR).backward()
            optimizer.step()
        with torch.no_grad():
            now = sum(float(batch.loss(map_HR)) * len(batch.sizes) for batch in held_out) / held
        schedule.step(now)
        since += 1
        if now < best - 1e-4:
            best, best_HR, since = now, map_HR.detach().clone(), 0
        elif since > PATIENCE:
            break
    result: NDArray[np.float32] = (best_HR / size).numpy()
    return result


def _scale(batch: _Batch, map_HR: Tensor) -> float:
    with torch.no_grad():
        predicted = float(squared_distances(batch.vectors, map_HR).mean())
    return float(batch.distances.mean() / predicted) ** 0.5 if predicted else 1.0


def predicted(vectors: NDArray[np.float32], map_HR: NDArray[np.float32]) -> NDArray[np.float64]:
    """Returns the predicted distances of a sentence's words. vectors (S, H) -> (S, S)"""
    x = (vectors @ map_HR).astype(np.float64)
    squares: NDArray[np.float64] = np.square(x[:, None] - x[None]).sum(-1)
    return squares


def spanning_tree(distances: NDArray[np.float64], counted: Sequence[bool]) -> set[tuple[int, int]]:
    """Returns the edges of the minimum spanning tree over counted words, the smaller number first."""
    words = np.flatnonzero(counted)
    upper = np.triu(distances[np.ix_(words, words)] + 1.0, 1)  # 0 would be no edge; a constant changes no tree
    rows, columns = minimum_spanning_tree(upper).nonzero()
    return {(int(words[i]), int(words[j])) for i, j in zip(rows, columns, strict=True)}


def uuas_counts(distances: NDArray[np.float64], tree: Tree) -> tuple[int, int]:
    """Returns the number of edges that are found, and of all."""
    edges = tree.edges()
    return len(edges & spanning_tree(distances, tree.counted)), len(edges)


def spearman(distances: NDArray[np.float64], true_distances: NDArray[np.float64]) -> float:
    """Returns Spearman's correlation of the distances from each word, averaged over words. (S, S) each"""
    a, b = (rankdata(rows, axis=1) for rows in (distances, true_distances))
    a, b = (ranks - ranks.mean(1, keepdims=True) for ranks in (a, b))
    norms = np.sqrt((a * a).sum(1) * (b * b).sum(1))
    return float(np.mean((a * b).sum(1) / np.where(norms > 0, norms, 1.0)))


def edge_counts(
    distances: Sequence[NDArray[np.float64]], trees: Sequence[Tree]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns for each sentence the edges found and all edges (S, 2), and its Spearman and 1 at its length (S, 92).

    The columns of the second are sums for lengths 5 to 50, then counts.
    """
    edges, rho = np.zeros((len(trees), 2)), np.zeros((len(trees), 2, len(_LENGTHS)))
    for i, (distance, tree) in enumerate(zip(distances, trees, strict=True)):
        edges[i] = uuas_counts(distance, tree)
        if len(tree.heads) in _LENGTHS:
            at = len(tree.heads) - _LENGTHS.start
            rho[i, :, at] = spearman(distance, tree.distances()), 1
    return edges, rho.reshape(len(trees), -1)


def mean_over_lengths(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the mean over lengths of the mean of each length. sums (..., 92) -> (...)"""
    total, number = np.split(sums, 2, axis=-1)
    present = number > 0
    means = np.divide(total, number, out=np.zeros_like(total), where=present)
    means_by_length: NDArray[np.float64] = means.sum(-1) / np.maximum(present.sum(-1), 1)
    return means_by_length
