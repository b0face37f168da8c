"""The quality threshold of a compressed model: the similarity of its vectors to those of the original model.

The measure is the cosine between the mean-pooled hidden states of both models, for texts outside the calibration set. A
model below the threshold is not written.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

from bertie.compression.quantize import CALIBRATION_TOKENS, apply, check_supported, quantize
from bertie.compression.weights_only import quantize_weights
from bertie.console import console
from bertie.errors import DataError, UsageError, WrongModel
from bertie.files import JsonObject
from bertie.infer.batching import run_batches
from bertie.infer.choose import engine_of
from bertie.infer.engine import Engine
from bertie.infer.native_engine import unsupported
from bertie.infer.predict import Predictor
from bertie.infer.torch_engine import TorchEngine
from bertie.models.model import TorchModel
from bertie.tasks import Example
from bertie.tasks.source import encode_examples
from bertie.text.sequences import Sequences

LEAST_TEXTS = 20  # for each of the two parts; a first percentile of fewer says nothing
MOST_TEXTS = 1000  # measured
MOST_READ = MOST_TEXTS + 4 * CALIBRATION_TOKENS  # more are never used
WEIGHTS_FIRST_PERCENTILE, WEIGHTS_MEAN = 0.975, 0.985  # with weights of 4 bits
FIRST_PERCENTILE, MEAN = 0.999, 0.9997  # STS-B's Spearman moves by 0.0002 at these (benchmarks/log)
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
    def threshold(self) -> tuple[float, float]:
        """The least first percentile, and the least mean."""
        if self.bits == 4:
            return WEIGHTS_FIRST_PERCENTILE, WEIGHTS_MEAN
        narrow = "avx2" in self.engine or "neon" in self.engine
        return (NARROW_FIRST_PERCENTILE, NARROW_MEAN) if narrow else (FIRST_PERCENTILE, MEAN)

    @property
    def enough(self) -> bool:
        """Whether the model passes the threshold."""
        return self.first_percentile >= self.threshold[0] and self.mean >= self.threshold[1]

    def __str__(self) -> str:
        return (
            f"cosine similarity to the float model over {self.texts:,} texts, {self.engine}: mean {self.mean:z.5f} "
            f"(at least {self.threshold[1]}), first percentile {self.first_percentile:z.5f} (at least "
            f"{self.threshold[0]}), minimum {self.worst:z.5f}"
        )

    @property
    def layers(self) -> str:
        """The largest error of each layer, as a sentence."""
        errors: dict[str, float] = {}
        for name, error in self.errors.items():
            if layer := re.match(r"encoder\.layers\.([\d.]+\d|\d)", name):
                errors[layer[1]] = max(error, errors.get(layer[1], 0))
        shares = ", ".join(f"{100 * error:.1f} %" for error in errors.values())
        return f"Relative error of the outputs of each layer's matrices, the largest by layer: {shares}."

    def as_json(self) -> JsonObject:
        """Returns the fields as JSON values."""
        return {**asdict(self), "enough": self.enough}


class CalibrationTexts:
    """Token ids of representative texts: some calibrate quantized weights, the others measure them.

    ids: as the model reads them; a pair of texts is one sequence.
    """

    def __init__(self, ids: Sequences) -> None:
        self.ids = ids

    @classmethod
    def read(cls, model: TorchModel, texts: Sequence[str | tuple[str, ...]]) -> Self:
        """Returns texts, or pairs of texts, as many as can be used."""
        rows = [Example((one,) if isinstance(one, str) else one) for one in texts[:MOST_READ]]
        return cls(encode_examples(rows, model.text_tokenizer, max_length=model.config.max_length))

    @classmethod
    def of_examples(cls, predictor: Predictor, examples: Sequence[Example]) -> Self:
        """Returns the texts of examples, as a task reads them."""
        task, length = predictor.task, predictor.max_length
        return cls(task.encode(examples[:MOST_READ], predictor.tokenizer, max_length=length, too_long="truncate"))

    @property
    def _calibrating(self) -> int | None:
        """How many of the texts, from the last, calibrate; None if there are too few."""
        used = max(LEAST_TEXTS, int(np.searchsorted(np.cumsum(self.ids.lengths[::-1]), CALIBRATION_TOKENS)) + 1)
        return used if len(self.ids) - used >= LEAST_TEXTS else None

    def suit(self, model: TorchModel, *, bits: int = 8) -> bool:
        """Returns whether there are enough texts, and the model can have weights of so many bits."""
        return self._calibrating is not None and (bits != 8 or unsupported(model) is None)

    @console.working("calibrating and measuring quantized weights")
    def quantize(self, model: TorchModel, *, bits: int = 8, embeddings: int = 8) -> Fidelity:
        """Gives a model weights of 8 or 4 bits, calibrated on some of the texts, and measures it on the others.

        embeddings: bits of the word embeddings beside weights of 4 bits. Raises DataError for too few texts,
        UsageError for a model that cannot have such weights.
        """
        texts = self.ids
        if bits == 8:
            check_supported(model)  # before more texts are asked for
        if (used := self._calibrating) is None:
            raise DataError(
                f"{len(texts):,} texts with {int(texts.lengths.sum()):,} tokens are too few. Calibration needs "
                f"{LEAST_TEXTS} texts or more with {CALIBRATION_TOKENS:,} tokens, "
                f"and the measurement {LEAST_TEXTS} others. Add "
                "representative texts, one per line."
            )
        order = np.arange(len(texts))[::-1]
        calibration, measured = texts.take(order[:used]), texts.take(np.arange(min(MOST_TEXTS, len(texts) - used)))
        before = _means(TorchEngine(model), measured)
        weights = (
            quantize(model, calibration) if bits == 8 else quantize_weights(model, calibration, embeddings=embeddings)
        )
        apply(model, weights)
        engine = engine_of(model)
        near = cosines(_means(engine, measured), before)
        return Fidelity(
            len(near),
            float(near.min()),
            float(np.quantile(near, 0.01)),
            float(near.mean()),
            engine.facts.precision,
            bits,
            weights.errors,
        )


def cosines(x: NDArray[np.float32], y: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns the cosine of each row of x with the same row of y."""
    lengths = np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1)
    cosine: NDArray[np.float32] = (x * y).sum(1) / np.maximum(lengths, 1e-12)
    return cosine


def _means(engine: Engine, ids: Sequences) -> NDArray[np.float32]:
    means: NDArray[np.float32] = run_batches(engine, ids, ["mean"])["mean"]
    return means


def quantize_module(
    module: TorchModel, texts: Sequence[str | tuple[str, ...]], *, bits: int, embeddings: int, force: bool
) -> TorchModel:
    """Gives a module quantized weights, and returns it.

    Raises DataError for too few texts and for a model that misses the quality threshold; UsageError for other bits, and
    for a module without a tokenizer or with quantized weights.
    """
    if bits not in (4, 8) or embeddings not in (4, 8) or (embeddings == 4 and bits == 8):
        raise UsageError("bits is 8 or 4, and embeddings is 8 or, with 4 bits, 4.")
    if module.packed:
        raise WrongModel("The model has quantized weights already. Compress the float model that it was made from.")
    fidelity = CalibrationTexts.read(module, texts).quantize(module, bits=bits, embeddings=embeddings)
    if not fidelity.enough and not force:
        raise DataError(
            f"The int{bits} model misses the quality threshold: {fidelity}. Give more texts, or pass `force`."
        )
    return module
