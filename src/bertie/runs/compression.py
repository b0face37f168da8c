"""`Compression`: a model, and what its smaller versions learn from, are calibrated on and are compared with."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from statistics import median

import numpy as np

from bertie.compression.gate import CalibrationTexts, Fidelity
from bertie.compression.learn import Lessons
from bertie.compression.prune import Recipe, prune
from bertie.costs.meter import Rapl
from bertie.infer.batching import run_batches
from bertie.infer.engine import Engine
from bertie.infer.predict import Predictor
from bertie.io.tables import Example
from bertie.models.model import TorchModel
from bertie.models.surgery import trim_to_texts
from bertie.text.sequences import Sequences

_ROUNDS = 5
_ROUND_TOKENS = 6_000  # of one round: seconds for a small model, a minute for BERT-base
_SINGLE_TEXTS = 100  # texts answered one at a time


@dataclass(frozen=True)
class SpeedRate:
    """tokens_per_s: in batches, without padding; faster: relative to the other model, median of rounds; p50_ms,
    p99_ms: time of one text. joules: energy per 1,000 tokens, None if the machine does not report it.
    """

    tokens_per_s: float
    faster: float
    p50_ms: float
    p99_ms: float
    joules: float | None = None

    def as_json(self) -> dict[str, float | None]:
        """The fields as JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class Compression:
    """Makes smaller versions of a model.

    Args:
        model: The model.
        examples: Examples to rank layers, heads and neurons by, and to train on.
        texts: Texts or pairs without labels, to calibrate and to train on.
        epochs: Epochs of training over both.
    """

    model: TorchModel
    examples: Sequence[Example] = ()
    texts: Sequence[tuple[str, ...]] = ()
    epochs: float = 3.0

    @cached_property
    def predictor(self) -> Predictor:
        """The model, ready to predict."""
        return Predictor(self.model)

    @cached_property
    def _calibration(self) -> CalibrationTexts:
        """The texts as the model reads them; those of the examples where there are none."""
        if self.texts:
            return CalibrationTexts.read(self.model, self.texts)
        return CalibrationTexts.of_examples(self.predictor, self.examples)

    def recipes(self, *, small: bool) -> list[Recipe]:
        """Returns the recipes to try, the cheapest first. small: there is a limit of the size."""
        int4 = small and self._calibration.suit(self.model, bits=4)
        return Recipe.to_try(self.model.config, learns=bool(self.examples), int8=self.suits_int8, int4=int4)

    @property
    def suits_int8(self) -> bool:
        """Whether there are enough texts, and the native encoder supports the model."""
        return self._calibration.suit(self.model)

    def student(self, recipe: Recipe, run: Path, answers: Path | None = None) -> TorchModel:
        """Returns the smaller model of a recipe, before quantization. A stopped training is resumed from `run`.

        answers: a folder for the answers of the model, if several students share them. Raises UsageError for a recipe
        that does not suit the model.
        """
        if not self.examples and not recipe.learned:
            return prune(self.model, layers=recipe.layers, heads=recipe.heads, neurons=recipe.neurons)
        lessons = Lessons(self.predictor, self.examples, self.texts, self.epochs)
        return lessons.student(self.model, recipe, run, answers)

    def trimmed(self) -> TorchModel:
        """Returns the model with the tokens of the texts alone."""
        return trim_to_texts(self.model, [text for one in self.texts for text in one])

    def quantize(self, recipe: Recipe, model: TorchModel | None = None) -> Fidelity:
        """Gives a version of the model, or itself, weights of fewer bits, and measures it on some of the texts.

        Raises DataError for too few texts, UsageError for a model that cannot have such weights.
        """
        return self._calibration.quantize(model or self.model, bits=recipe.bits or 8, embeddings=recipe.embeddings)

    def rate(self, small: Predictor, ids: Sequences, outputs: Sequence[str]) -> SpeedRate:
        """Measures the speed of a version on the first sequences, and on single texts of all, beside the model's.

        Both run in turns, so that a busy machine affects both.
        """
        engine, other = small.engine, self.predictor.engine
        some = ids.take(np.arange(max(1, int(np.searchsorted(np.cumsum(ids.lengths), _ROUND_TOKENS)))))
        tokens = int(some.lengths.sum())

        def seconds(one: Engine) -> float:
            began = time.perf_counter()
            run_batches(one, some, outputs)
            return time.perf_counter() - began

        seconds(engine), seconds(other)  # warm
        times = [(seconds(engine), seconds(other)) for _ in range(_ROUNDS)]
        counter = Rapl()
        seconds(engine)
        used = 1000 * counter.joules() / tokens if counter.readable else None
        alone = list[float]()
        for number in np.linspace(0, len(ids) - 1, min(_SINGLE_TEXTS, len(ids))).astype(int):
            text = ids.take(np.array([number]))
            began = time.perf_counter()
            engine.run(text, outputs)
            alone.append(1000 * (time.perf_counter() - began))
        return SpeedRate(
            tokens / median(ours for ours, _ in times),
            median(theirs / ours for ours, theirs in times),
            float(np.quantile(alone, 0.5)),
            float(np.quantile(alone, 0.99)),
            used,
        )
