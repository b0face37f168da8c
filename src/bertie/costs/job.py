"""A pre-training run as the planner sees it: the model, the phases, and the operations and memory that follow."""

import math
from dataclasses import dataclass

from bertie.models.config import EncoderConfig
from bertie.models.count import forward_flops, parameters

BACKWARD = 3  # forward and backward passes, in forward passes
STATE = 16  # bytes a parameter: weight, gradient and two moments in float32
COPY = 2  # bytes a parameter: the weights in 16 bit
ACTIVATION = 52  # bytes a hidden unit, token and layer in 16 bit; fitted, see docs/plan.md
LOGIT = 8  # bytes: a logit and its gradient in float32
_RATE = 0.77  # of a GPU's peak, that large products reach
_TRAFFIC = 217  # bytes of memory traffic beside products: of a token, hidden unit and layer
_UPDATE = 46  # the same of a parameter: optimizer, clipping, and the copy in 16 bit
_LAYER_S, _PASS_S = 0.19e-3, 1.8e-3  # seconds of small kernels: of a layer, and of everything else in a pass
_FIXED_BYTES = 80e6  # bytes: work space of kernels, and the batches


@dataclass(frozen=True)
class JobPhase:
    """Steps of one shape. predicted: share of tokens predicted over the vocabulary; extra: operations a token besides
    the model's (a generator), forward and backward; micro: sequences of a forward pass, 0 for all; decoded: tokens of a
    decoder for each token, by default those that are predicted."""

    steps: int
    sequences: int
    length: float
    predicted: float
    extra: float = 0.0
    micro: int = 0
    decoded: float | None = None

    @property
    def tokens(self) -> int:
        """Tokens of all steps, if every sequence is full."""
        return round(self.steps * self.sequences * self.length)


@dataclass(frozen=True)
class Job:
    """A run: the encoder, its phases, and whether it computes in 16 bit. head: parameters besides the encoder's."""

    config: EncoderConfig
    phases: tuple[JobPhase, ...]
    half: bool = True
    head: int = 0

    @property
    def parameters(self) -> int:
        """Parameters of the encoder and of the heads."""
        return sum(parameters(self.config).values()) + self.head

    @property
    def layer_parameters(self) -> int:
        """Parameters of the layers of the encoder."""
        return parameters(self.config)["layers"]

    @property
    def tokens(self) -> int:
        """Tokens of the entire run."""
        return sum(phase.tokens for phase in self.phases)

    @property
    def flops(self) -> float:
        """Operations of the entire run, forward and backward, a multiply-add counted as two."""
        return sum(phase.tokens * self.flops_per_token(phase) for phase in self.phases)

    def flops_per_token(self, phase: JobPhase) -> float:
        """Operations of a training step per token."""
        return sum(self.flops_parts(phase).values())

    def flops_parts(self, phase: JobPhase) -> dict[str, float]:
        """Operations of a training step per token, by part of the model, forward and backward."""
        more = {} if phase.decoded is None else {"decoded": phase.decoded}  # other encoders have no decoder
        once = forward_flops(self.config, length=phase.length, predicted=phase.predicted, **more)
        parts = {name: BACKWARD * each for name, each in once.items()}
        return {**parts, "other modules": phase.extra} if phase.extra else parts

    def gpu_seconds(self, tflops: float, memory_tb_s: float, count: int = 1) -> float:
        """Returns the time of the run in 16 bit on NVIDIA GPUs, each with its share of every step.

        The constants are fitted to steps of three sizes on an H200; see docs/plan.md. Several GPUs add no time of their
        own here, which was never measured.
        """
        config, total = self.config, 0.0
        for phase in self.phases:
            sequences = phase.sequences / count
            tokens, passes = sequences * phase.length, math.ceil(sequences / (phase.micro or sequences))
            decoded = phase.predicted if phase.decoded is None else phase.decoded
            layers = config.num_hidden_layers + (config.num_decoder_layers or 0) * decoded
            products = tokens * self.flops_per_token(phase) / (_RATE * tflops * 1e12)
            traffic = _TRAFFIC * config.hidden_size * layers * tokens + _UPDATE * self.parameters
            small = passes * (_LAYER_S * layers + _PASS_S)
            total += phase.steps * (products + traffic / (memory_tb_s * 1e12) + small)
        return total

    @property
    def peak(self) -> dict[str, float]:
        """Peak memory of the run by part, in bytes, besides the process itself."""
        parts = [self.memory_parts(phase.micro or phase.sequences, phase) for phase in self.phases]
        return max(parts, key=lambda parts: sum(parts.values()))

    def memory(self, sequences: int, phase: JobPhase) -> float:
        """Returns the peak memory of a micro-batch in bytes, besides the process itself."""
        return sum(self.memory_parts(sequences, phase).values())

    def memory_parts(self, sequences: int, phase: JobPhase) -> dict[str, float]:
        """Returns the peak memory of a micro-batch by part, in bytes: weights and their state, activations, logits.

        A layer of a decoder counts as one of the encoder, for the tokens that it reads. Attention is not stored (it is
        computed again in the backward pass). Source of the form: Korthikanti et al. 2022, 4.1; the constants are
        measured.
        """
        tokens, config = sequences * phase.length, self.config
        width = 1 if self.half else 2
        decoded = phase.predicted if phase.decoded is None else phase.decoded
        layers = config.num_hidden_layers + (config.num_decoder_layers or 0) * decoded
        return {
            "weights": 4 * self.parameters,
            "gradients": 4 * self.parameters,
            "optimizer": (STATE - 8) * self.parameters,
            "weights in 16 bit": COPY * self.half * self.parameters,
            "activations": ACTIVATION * width * config.hidden_size * layers * tokens,
            "logits": LOGIT * phase.predicted * tokens * config.vocab_size,
            "kernels and batches": _FIXED_BYTES,
        }

    def largest_batch(self, memory: float) -> int:
        """Returns the most sequences that fit into some bytes of memory in every phase; 0 where not even one does."""
        fits = []
        for phase in self.phases:
            empty, one = self.memory(0, phase), self.memory(1, phase)
            fits.append(max(0, int((memory - empty) / (one - empty))))
        return min(fits)
