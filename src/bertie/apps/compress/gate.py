"""The quality threshold of a compressed model: the similarity of its vectors to those of the original model.

The measure is the cosine between the mean-pooled hidden states of both models, for texts outside the calibration set. A
model below the threshold is not written.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertie.apps.compress.quantize import TOKENS, apply, check_supported, quantize
from bertie.apps.compress.weights_only import quantize_weights
from bertie.platform import (
    Batches,
    DataError,
    Example,
    Sequences,
    TaskSource,
    TorchEngine,
    TorchModel,
    console,
    engine_of,
)

LEAST_TEXTS = 20  # for each of the two parts; a first percentile of fewer says nothing
MOST_TEXTS = 1000  # measured
MOST_READ = MOST_TEXTS + 4 * TOKENS  # more are never used
WEIGHTS_FIRST_PERCENTILE, WEIGHTS_MEAN = 0.975, 0.985  # with weights of 4 bits
FIRST_PERCENTILE, MEAN = 0.999, 0.9997  # STS-B's Spearman moves by 0.0002 at these (docs/log)
NARROW_FIRST_PERCENTILE, NARROW_MEAN = 0.998, 0.9995  # with activations of 7 bits, where a processor has no more


@dataclass(frozen=True)
class Fidelity:
    """Cosines to the float model over texts: minimum, first percentile, mean.

    engine: the engine of the measurement; bits: of the weights; errors: of the outputs of each matrix, relative.
    """

    texts: int
    worst: float
    first_percentile: float
    mean: float
    engine: str
    bits: int = 8
    errors: Mapping[str, float] = field(default_factory=dict)

    @property
    def enough(self) -> bool:
        """Whether the model passes the threshold."""
        narrow = "avx2" in self.engine or "neon" in self.engine
        low, mean = (NARROW_FIRST_PERCENTILE, NARROW_MEAN) if narrow else (FIRST_PERCENTILE, MEAN)
        if self.bits == 4:
            low, mean = WEIGHTS_FIRST_PERCENTILE, WEIGHTS_MEAN
        return self.first_percentile >= low and self.mean >= mean

    def __str__(self) -> str:
        return (
            f"cosine similarity to the float model over {self.texts:,} texts, {self.engine}: mean "
            f"{self.mean:z.5f}, first percentile {self.first_percentile:z.5f}, minimum {self.worst:z.5f}"
        )

    @property
    def layers(self) -> str:
        """The largest error of each layer, as a sentence."""
        found: dict[str, float] = {}
        for name, error in self.errors.items():
            if layer := re.match(r"encoder\.layers\.([\d.]+\d|\d)", name):
                found[layer[1]] = max(error, found.get(layer[1], 0))
        told = ", ".join(f"{100 * error:.1f} %" for error in found.values())
        return f"Relative error of the outputs of each layer's matrices, the largest by layer: {told}."

    def as_json(self) -> dict[str, Any]:
        """Returns the fields as JSON values."""
        return {**asdict(self), "enough": self.enough}


def read(model: TorchModel, texts: Sequence[str | tuple[str, ...]]) -> Sequences:
    """Returns the token ids of texts or of pairs of texts, as many as `quantized` can use."""
    rows = [Example((one,) if isinstance(one, str) else one) for one in texts[:MOST_READ]]
    return TaskSource.encode(rows, model.text_tokenizer, max_length=model.config.max_length)


@console.working("calibrating and measuring quantized weights")
def quantized(model: TorchModel, texts: Sequences, *, bits: int = 8, embeddings: int = 8) -> Fidelity:
    """Gives a model weights of 8 or 4 bits, calibrated on some of the texts, and measures it on the others.

    texts: token ids, as the model reads them: a pair of texts is one sequence. embeddings: bits of the word embeddings
    beside weights of 4 bits. Raises DataError for too few texts, UsageError as `quantize`.
    """
    if bits == 8:
        check_supported(model)  # before more texts are asked for
    used = calibrating(texts)
    if used is None:
        raise DataError(
            f"{len(texts):,} texts with {int(texts.lengths.sum()):,} tokens are too few. Calibration needs "
            f"{LEAST_TEXTS} texts or more with {TOKENS:,} tokens, and the measurement {LEAST_TEXTS} others. Add "
            "representative texts, one per line."
        )
    order = np.arange(len(texts))[::-1]
    calibration, measured = texts.take(order[:used]), texts.take(np.arange(min(MOST_TEXTS, len(texts) - used)))
    before = _means(TorchEngine(model), measured)
    done = quantize(model, calibration) if bits == 8 else quantize_weights(model, calibration, embeddings=embeddings)
    apply(model, done)
    engine = engine_of(model)
    found = cosines(_means(engine, measured), before)
    return Fidelity(
        len(found),
        float(found.min()),
        float(np.quantile(found, 0.01)),
        float(found.mean()),
        engine.facts.precision,
        bits,
        done.errors,
    )


def calibrating(texts: Sequences) -> int | None:
    """Returns how many of the texts, from the last, `quantized` calibrates on; None if there are too few."""
    used = max(LEAST_TEXTS, int(np.searchsorted(np.cumsum(texts.lengths[::-1]), TOKENS)) + 1)
    return used if len(texts) - used >= LEAST_TEXTS else None


def cosines(x: NDArray[np.float32], y: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns the cosine of each row of x with the same row of y."""
    lengths = np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1)
    found: NDArray[np.float32] = (x * y).sum(1) / np.maximum(lengths, 1e-12)
    return found


def size(folder: Path) -> int:
    """Returns the bytes of a model folder's weights."""
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


def _means(engine: Any, ids: Sequences) -> NDArray[np.float32]:
    found: NDArray[np.float32] = Batches.run(engine, ids, ["mean"])["mean"]
    return found
