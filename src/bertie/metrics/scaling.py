"""Temperature and vector scaling: probabilities of logits * scale + shift, fitted on held-out answers.

Guo et al. 2017, 4.2. temperature: one factor for all labels. vector: a factor and a shift for each label.

W sequences · E examples, each of one or several sequences (windows) whose probabilities are averaged · L labels
"""

from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bertie.metrics.base import Float

ScalingKind = Literal["temperature", "vector"]
_MAX_FACTOR = 20.0  # of a temperature, and of its inverse; of a shift
_MIN_PROBABILITY = 1e-12  # of a probability, whose logarithm is taken


@dataclass(frozen=True)
class Scaling:
    """What logits are multiplied by, and what is added then. Empty: nothing."""

    scale: tuple[float, ...] = ()
    shift: tuple[float, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.scale or self.shift)

    def __call__(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """Returns the scaled logits. (..., L) -> (..., L)"""
        scale, shift = self._arrays
        return logits * scale + shift

    @property
    def _arrays(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return np.array(self.scale or 1.0, np.float32), np.array(self.shift or 0.0, np.float32)

    def undo(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """Returns the logits before they were scaled. (..., L) -> (..., L)"""
        scale, shift = self._arrays
        return (logits - shift) / scale

    @classmethod
    def fitted(
        cls,
        kind: ScalingKind,
        logits: ArrayLike,
        truth: ArrayLike,
        windows: ArrayLike | None = None,
        *,
        exclusive: bool = True,
    ) -> Self:
        """Returns the scaling with the highest likelihood; none if all answers are right, when there is no highest.

        Args:
            kind: temperature or vector.
            logits: (W, L).
            truth: (E, L) bool, the labels of each example.
            windows: The first sequence of each example (E,). Default: an example is one sequence.
            exclusive: Whether an example has one label (softmax) or any number of labels (sigmoid).
        """
        from scipy.optimize import minimize

        logits_WL, truth_EL = np.asarray(logits, np.float64), np.asarray(truth, bool)
        first_E = np.arange(len(logits_WL)) if windows is None else np.asarray(windows, np.int64)
        fit = _Fit(kind, logits_WL, truth_EL, first_E, exclusive)
        if not fit.has_best:
            return cls()
        start, bounds = fit.start, fit.bounds
        best = minimize(fit.loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"ftol": 1e-13}).x
        scale_L, shift_L = fit.parts(best)
        size = truth_EL.shape[1]
        return cls((float(scale_L[0]),) * size) if kind == "temperature" else cls((*scale_L,), (*shift_L,))


@dataclass(frozen=True)
class _Fit:
    """The negative log-likelihood of examples as a function of the logarithms of the scales, and of the shifts."""

    kind: ScalingKind
    logits_WL: Float
    truth_EL: NDArray[np.bool_]
    first_E: NDArray[np.int64]
    exclusive: bool

    @property
    def of_W(self) -> NDArray[np.int64]:
        """The example of each sequence."""
        counts = np.diff(np.append(self.first_E, len(self.logits_WL)))
        return np.repeat(np.arange(len(counts)), counts)

    @property
    def weight_W(self) -> Float:
        """The weights of the sequences of an example, which sum to 1."""
        of_W = self.of_W
        return 1 / np.bincount(of_W)[of_W]

    @property
    def has_best(self) -> bool:
        """Whether some answer is wrong, so that more certainty is not always better."""
        truth_WL = self.truth_EL[self.of_W]
        if self.exclusive:
            return bool((np.where(truth_WL, -np.inf, self.logits_WL).max(1) > self.logits_WL[truth_WL]).any())
        return bool(((self.logits_WL > 0) != truth_WL).any())

    @property
    def start(self) -> Float:
        """The scaling that changes nothing."""
        return np.zeros(1 if self.kind == "temperature" else 2 * self.truth_EL.shape[1])

    @property
    def bounds(self) -> list[tuple[float, float]]:
        """The bounds of each number."""
        size = self.truth_EL.shape[1]
        of_scale, of_shift = (-np.log(_MAX_FACTOR), np.log(_MAX_FACTOR)), (-_MAX_FACTOR, _MAX_FACTOR)
        return [of_scale] if self.kind == "temperature" else [of_scale] * size + [of_shift] * size

    def parts(self, x: Float) -> tuple[Float, Float]:
        """Returns the scales and the shifts, (L,) or (1,) each."""
        return (np.exp(x), np.zeros(1)) if self.kind == "temperature" else (np.exp(x[: len(x) // 2]), x[len(x) // 2 :])

    def loss(self, x: Float) -> tuple[float, Float]:
        """Returns the mean loss of the examples, in nats, and its gradient."""
        scale_L, shift_L = self.parts(x)
        scaled_WL = self.logits_WL * scale_L + shift_L
        loss, grad_WL = (self._softmax if self.exclusive else self._sigmoid)(scaled_WL)
        grad_scale_L = (grad_WL * self.logits_WL).sum(0) * scale_L
        grad = grad_scale_L.sum(keepdims=True) if self.kind == "temperature" else grad_scale_L
        return loss, grad if self.kind == "temperature" else np.concatenate([grad, grad_WL.sum(0)])

    def _softmax(self, scaled_WL: Float) -> tuple[float, Float]:
        of_W, truth_WL = self.of_W, self.truth_EL[self.of_W]
        log_WL = scaled_WL - np.logaddexp.reduce(scaled_WL, axis=1, keepdims=True)
        right_W = log_WL[truth_WL] + np.log(self.weight_W)
        right_E = np.logaddexp.reduceat(right_W, self.first_E)
        share_W = np.exp(right_W - right_E[of_W])  # of the window in the probability of its example
        return -right_E.mean(), share_W[:, None] * (np.exp(log_WL) - truth_WL) / len(right_E)

    def _sigmoid(self, scaled_WL: Float) -> tuple[float, Float]:
        of_W, truth_EL = self.of_W, self.truth_EL
        p_WL = 1 / (1 + np.exp(-np.clip(scaled_WL, -500, 500)))
        mean_EL = np.add.reduceat(p_WL * self.weight_W[:, None], self.first_E).clip(
            _MIN_PROBABILITY, 1 - _MIN_PROBABILITY
        )
        loss = -np.log(np.where(truth_EL, mean_EL, 1 - mean_EL)).sum(1).mean()
        slope_EL = (mean_EL - truth_EL) / (mean_EL * (1 - mean_EL)) / len(truth_EL)
        return float(loss), slope_EL[of_W] * self.weight_W[:, None] * p_WL * (1 - p_WL)
