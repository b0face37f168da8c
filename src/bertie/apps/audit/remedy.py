"""Removes a concept from a model: an affine map of its vectors (erase.py), as part of the weights that read them.

    texts with words of one group   ->   the same texts with the words exchanged
    vectors of both                 ->   r(x) = x - M (x - mean)
    weights that read the vectors   ->   V' = V (1 - M),  c' = c + V M mean

So the new folder opens anywhere, without code of Bertie. The encoder itself does not change.

H width of the vectors
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import save_file
from torch import nn

from bertie.apps.audit.base import Subject
from bertie.apps.audit.erase import Erasure, probe_accuracy, remedy
from bertie.apps.audit.pairs import aligned
from bertie.apps.perturb.swaps import Swaps
from bertie.platform import DataError, File, Sequences, TorchModel, UsageError, console

PER_TEXT = 4  # tokens of a pair of texts, so that long texts do not dominate
LEAST, MOST = 40, 2500  # pairs of texts
_CHUNK_PAIRS = 128  # pairs whose vectors are computed together
HELD = 0.2  # of the pairs, for the probe
LEACE = "leace"  # the only way that moves the mean, and so needs a bias
DENSE, NORMALIZE = "2_Dense", "Normalize"
MODULES = "modules.json"  # of sentence-transformers


@dataclass(frozen=True)
class VectorPlace:
    """Where a model reads vectors. vectors: which ones; weights: the layer that reads them, None for an added one."""

    name: str
    vectors: str
    weights: nn.Module | None


@dataclass(frozen=True)
class Removed:
    """What became of one place. rank: removed directions. The accuracies are those of a linear classifier on held-out
    pairs; the covariances are the largest ones with the concept, in the training pairs."""

    place: str
    vectors: int
    rank: int
    accuracy_before: float
    accuracy_after: float
    majority: float
    covariance_before: float
    covariance_after: float


def list_places(model: TorchModel) -> list[VectorPlace]:
    """Returns where a model reads vectors. Raises UsageError for a model with none that can be changed."""
    places = []
    if "mlm" in model.heads and hasattr(model.heads["mlm"], "dense"):
        places.append(VectorPlace("masked-LM head", "tokens", model.heads["mlm"].get_submodule("dense")))
    if getattr(model.encoder, "pooler", None) is not None and any(needs.pooler for needs in model.needs):
        places.append(VectorPlace("pooler", "cls", model.encoder.pooler))
    if len(model.sentence.pooling) == 1 and not model.sentence.dense:
        places.append(VectorPlace("sentence vectors", model.sentence.pooling[0], None))
    if not places:
        raise UsageError(
            "This model has no part that can be changed: a masked-LM head, a pooler, or one way of pooling for "
            "sentence vectors.",
            code="wrong-model",
        )
    return places


def check_removable(model: TorchModel, texts: Sequence[str], swaps: Swaps, how: str) -> None:
    """Raises the errors of `remove` that are known without any vector: DataError and UsageError."""
    _pairs(texts, swaps)
    for place in list_places(model):
        if how == LEACE and place.weights is not None and getattr(place.weights, "bias", None) is None:
            raise UsageError(
                f"The {place.name} of this model has no bias, which {LEACE} needs. Pass --how inlp or --how sentence."
            )


def remove_concept(
    model: TorchModel, subject: Subject, texts: Sequence[str], swaps: Swaps, how: str, *, seed: int = 0
) -> tuple[list[Removed], list[tuple[VectorPlace, Erasure]]]:
    """Changes a model's weights, and returns what was removed, and the maps.

    texts: of which those with words of one side of the pairs are used, at most MOST, drawn at random. how: a key of
    HOW. Raises DataError for too few texts, UsageError for an unknown way.
    """
    way = remedy(how)
    pairs = _pairs(texts, swaps)
    drawn = np.random.default_rng(seed).permutation(len(pairs))[:MOST]
    pairs = [pairs[i] for i in sorted(drawn.tolist())]
    removed, maps = list[Removed](), list[tuple[VectorPlace, Erasure]]()
    for place in list_places(model):
        vectors, sides = _vectors(subject, pairs, place, seed)
        number = len(vectors) // 2
        train = np.repeat(np.random.default_rng(seed).permutation(number) >= max(1, int(HELD * number)), 2)
        erasure = way(vectors[train], sides[train])
        after = erasure(vectors)
        (right, majority), (left, _) = (probe_accuracy(one, sides, seed=seed) for one in (vectors, after))
        spread = [_covariance(one[train], sides[train]) for one in (vectors, after)]
        removed.append(Removed(place.name, len(vectors), erasure.rank, right, left, majority, *spread))
        maps.append((place, erasure))
    for place, erasure in maps:
        if place.weights is not None:
            fold(place.weights, erasure)
    return removed, maps


def _pairs(texts: Sequence[str], swaps: Swaps) -> list[tuple[str, str, int]]:
    """Returns the texts with words of one side, the same with the words exchanged, and the sides."""
    pairs = [(text, swaps(text), side) for text in texts if (side := swaps.side(text)) is not None]
    if len(pairs) < LEAST:
        raise DataError(
            f"{len(pairs)} of {len(texts):,} texts have words of one side of the pairs. At least {LEAST} are needed. "
            "Give more texts, or other pairs."
        )
    return pairs


def fold(layer: nn.Module, erasure: Erasure) -> None:
    """Makes the map a part of the layer that reads the vectors. Raises UsageError for a layer without a bias."""
    weight, bias = layer.get_parameter("weight"), dict(layer.named_parameters()).get("bias")
    removed, mean = (torch.from_numpy(one).to(weight.device, torch.float64) for one in (erasure.removed, erasure.mean))
    shift = weight.detach().double() @ (removed @ mean)
    if bias is None and float(shift.abs().max()) > 0:
        raise UsageError("This layer has no bias, which LEACE needs. Choose --how inlp or --how sentence.")
    with torch.no_grad():
        weight.copy_(weight.double() - weight.double() @ removed)
        if bias is not None:
            bias.add_(shift.to(bias.dtype))


def write_dense(folder: Path, erasure: Erasure) -> None:
    """Adds the map to a folder of `sentence-transformers` as a Dense module before its Normalize module."""
    size = len(erasure.mean)
    (folder / DENSE).mkdir()
    weight = (np.eye(size) - erasure.removed).astype(np.float32)
    bias = (erasure.removed @ erasure.mean).astype(np.float32)
    with File(folder / DENSE / "model.safetensors").write() as file:
        save_file({"linear.weight": weight, "linear.bias": bias}, file.name)
    File(folder / DENSE / "config.json").write_json(
        {
            "in_features": size,
            "out_features": size,
            "bias": True,
            "activation_function": "torch.nn.modules.linear.Identity",
        }
    )
    modules: list[dict[str, Any]] = File(folder / MODULES).read_json()
    kind = str(modules[0]["type"]).rpartition(".")[0]
    dense = {"path": DENSE, "type": f"{kind}.Dense"}
    at = next((i for i, one in enumerate(modules) if str(one["type"]).endswith(NORMALIZE)), len(modules))
    listed = [*modules[:at], dense, *modules[at:]]
    File(folder / MODULES).write_json([{**one, "idx": n, "name": str(n)} for n, one in enumerate(listed)])


def _vectors(
    subject: Subject, pairs: Sequence[tuple[str, str, int]], place: VectorPlace, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns the vectors of both texts of each pair, one after the other, and their sides."""
    rng, parts, sides = np.random.default_rng(seed), list[NDArray[np.float64]](), list[float]()
    with console.progress(f"vectors, {place.name}", len(pairs), unit="pairs") as advance:
        for chunk in (pairs[start : start + _CHUNK_PAIRS] for start in range(0, len(pairs), _CHUNK_PAIRS)):
            vectors, of = _of_chunk(subject, chunk, place.vectors, rng)
            parts.append(vectors)
            sides += [side for i in of for side in (chunk[i][2], 1 - chunk[i][2])]
            advance(len(chunk))
    return np.concatenate(parts), np.array(sides, np.float64)


def _of_chunk(
    subject: Subject, pairs: Sequence[tuple[str, str, int]], kind: str, rng: np.random.Generator
) -> tuple[NDArray[np.float64], list[int]]:
    """Returns the vectors of some pairs, and the pair of each two vectors."""
    texts = [text for pair in pairs for text in pair[:2]]
    encodings = subject.tokenizer.encode_batch(texts, max_length=subject.max_length)
    lengths = np.array([len(one) for one in encodings])
    ids = np.concatenate([np.asarray(one.ids, np.int64) for one in encodings])
    types = np.concatenate([np.asarray(one.type_ids, np.int64) for one in encodings])
    output = "last_hidden_state" if kind == "tokens" else kind
    states = subject.predictor.run(Sequences(ids, types, lengths), (output,))[output].astype(np.float64)
    if kind != "tokens":
        return states, list(range(len(pairs)))
    starts, rows, of = np.cumsum(lengths) - lengths, list[int](), list[int]()
    for i in range(len(pairs)):
        shared, _ = aligned(encodings[2 * i].ids, encodings[2 * i + 1].ids)
        both = list(zip(shared[0][1:-1], shared[1][1:-1], strict=True))
        for at in rng.permutation(len(both))[:PER_TEXT].tolist():
            rows += [int(starts[2 * i + side] + both[at][side]) for side in (0, 1)]
            of.append(i)
    return states[rows], of


def _covariance(vectors: NDArray[np.float64], sides: NDArray[np.float64]) -> float:
    return float(np.abs((vectors - vectors.mean(0)).T @ (sides - sides.mean()) / len(vectors)).max())
