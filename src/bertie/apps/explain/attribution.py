"""Attributions of one number of a model to the tokens of a text.

    F = target(model) of the token vectors x;  x' = the same text with [PAD] for every word

    integrated gradients   (x - x') * integral over a of dF/dx at x' + a (x - x')      Sundararajan et al. 2017
    gradient x input       (x - x') * dF/dx at x
    occlusion              F(x) - F(x with [MASK] instead of the token)

The vectors are those of the word embeddings. Positions, segments and special tokens are the same in x and x'.

K copies of the text in one batch · S tokens · E embedding size
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertie.apps.explain.words import text_words
from bertie.platform import Encoding, ModelInternals, TorchModel, UsageError, nearest

NODES, MOST_NODES = 50, 512
ENOUGH = 0.05  # completeness error: above it, more nodes are taken, and then it is said
_BATCH_TOKENS = 4096

Target = Callable[[Tensor], Tensor]
"""The number to explain, for each copy of the text: the logits of K copies -> (K,)."""
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Attribution:
    """The share of each token in F(x) - F(x'), by a method. error: |sum - (F(x) - F(x'))| / |F(x) - F(x')|.

    nodes: evaluations of the integral. error and nodes are None for methods that promise no sum.
    """

    method: str
    values: Floats
    value: float
    baseline: float
    error: float | None = None
    nodes: int | None = None

    @property
    def converged(self) -> bool:
        """Whether the attributions add up to the change of the number, within 5%."""
        return self.error is None or self.error <= ENOUGH


@dataclass(frozen=True)
class ExplainedOutput:
    """A model with one of its heads, a text as tokens, and the number to explain. place: the token whose logits are
    read, of a head over the vocabulary. chance: the probability of the prediction; None where there is none, as for a
    predicted number."""

    model: TorchModel
    encoding: Encoding
    head: str
    place: int | None
    target: Target
    pad_id: int
    mask_id: int | None
    chance: Target | None = None
    words: NDArray[np.bool_] = field(init=False)  # (S,): tokens that are not special

    def __post_init__(self) -> None:
        words = np.array([sequence is not None for sequence in self.encoding.sequence_ids])
        if self.mask_id is not None:
            words &= np.array(self.encoding.ids) != self.mask_id  # a mask is what is asked, and no evidence
        object.__setattr__(self, "words", words)
        if not hasattr(getattr(self.model.encoder, "embeddings", None), "word"):
            raise UsageError("This family has no table of word embeddings, so its predictions cannot be attributed.")

    @property
    def text_ids(self) -> Tensor:
        """The token ids of the text (S,)."""
        return torch.tensor(self.encoding.ids, device=self.model.device)

    def ids(self, *rows: NDArray[np.bool_]) -> Tensor:
        """Returns copies of the token ids, with [MASK] (or [PAD]) where a row is true. -> (K, S)"""
        hidden = self.pad_id if self.mask_id is None else self.mask_id
        ids = np.array(self.encoding.ids)
        return torch.from_numpy(np.stack([np.where(row, hidden, ids) for row in rows])).to(self.model.device)

    def answers(self, ids_KS: Tensor, target: Target | None = None) -> Floats:
        """Returns the number, or another target, for some versions of the text, without gradients. (K, S) -> (K,)"""
        answers = []
        with torch.no_grad():
            for part in torch.split(ids_KS, max(1, _BATCH_TOKENS // ids_KS.shape[1])):
                number = (target or self.target)(self.logits(part))
                answers.append(number.double().cpu().numpy())
        return np.concatenate(answers)

    def gradients(self, vectors_KSE: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the numbers (K,) for token vectors, and their gradients (K, S, E)."""
        read = vectors_KSE.detach().requires_grad_()
        with torch.enable_grad(), _vectors(self.model, read):
            numbers = self.target(self.logits(self.text_ids.expand(len(read), -1)))
            (gradient,) = torch.autograd.grad(numbers.sum(), read)
        return numbers.detach(), gradient

    def logits(self, ids_KS: Tensor) -> Tensor:
        """Returns the logits of the head for versions of the text (K, S)."""
        types = torch.tensor(self.encoding.type_ids, device=ids_KS.device).expand_as(ids_KS)
        output = self.model.run_encoder(ids_KS, types)
        if self.place is None:
            return self.model.logits(self.head, output)
        return ModelInternals(self.model).token_logits(self.head, output.last_hidden_state[:, self.place])

    def ends(self) -> tuple[Tensor, Tensor]:
        """Returns the token vectors of the text and of the baseline. -> (S, E), (S, E)"""
        table = self.model.word_embeddings.detach()
        ids = self.text_ids
        blank = torch.where(torch.from_numpy(self.words).to(ids.device), self.pad_id, ids)
        return table[ids], table[blank]


@contextmanager
def _vectors(model: TorchModel, vectors_KSE: Tensor) -> Iterator[None]:
    """Context in which the word embeddings of a model are these vectors, whatever the ids."""

    def replace(module: torch.nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        return vectors_KSE.reshape(output.shape)

    handle = model.encoder.embeddings.word.register_forward_hook(replace)
    try:
        yield
    finally:
        handle.remove()


def integrated_gradients(question: ExplainedOutput, *, nodes: int = NODES) -> Attribution:
    """Returns integrated gradients by Gauss-Legendre quadrature.

    The number of nodes doubles up to 512 until the completeness error is at most 5%. Source: Sundararajan et al. 2017;
    nodes and baseline as captum's LayerIntegratedGradients.
    """
    x_SE, blank_SE = question.ends()
    (value, baseline), _ = question.gradients(torch.stack([x_SE, blank_SE]))
    while True:
        at, weights = np.polynomial.legendre.leggauss(nodes)
        steps = torch.tensor((at + 1) / 2, dtype=x_SE.dtype, device=x_SE.device)
        total_SE = torch.zeros_like(x_SE)
        size = max(1, _BATCH_TOKENS // len(x_SE))
        for part, share in zip(torch.split(steps, size), torch.split(torch.tensor(weights / 2), size), strict=True):
            _, gradient_KSE = question.gradients(blank_SE + part[:, None, None] * (x_SE - blank_SE))
            total_SE += (share.to(gradient_KSE)[:, None, None] * gradient_KSE).sum(0)
        values = ((x_SE - blank_SE) * total_SE).sum(-1).double().cpu().numpy()
        change = float(value) - float(baseline)
        error = abs(float(values.sum()) - change) / max(abs(change), 1e-12)
        if error <= ENOUGH or 2 * nodes > MOST_NODES:
            return Attribution("integrated gradients", values, float(value), float(baseline), error, nodes)
        nodes *= 2


def gradient_times_input(question: ExplainedOutput) -> Attribution:
    """Returns the gradient at the text times the difference to the baseline."""
    x_SE, blank_SE = question.ends()
    (value, baseline), gradient = question.gradients(torch.stack([x_SE, blank_SE]))
    values = ((x_SE - blank_SE) * gradient[0]).sum(-1).double().cpu().numpy()
    return Attribution("gradient x input", values, float(value), float(baseline))


def occlusion(question: ExplainedOutput) -> Attribution:
    """Returns the change of the number when each token becomes [MASK], one at a time; 0 for special tokens."""
    places = np.flatnonzero(question.words)
    none = np.zeros(len(question.words), bool)
    rows = [none, question.words, *(np.arange(len(none)) == place for place in places)]
    value, baseline, *without = question.answers(question.ids(*rows))
    values = np.zeros(len(none))
    values[places] = value - np.array(without)
    return Attribution("occlusion", values, float(value), float(baseline))


METHODS: dict[str, Callable[[ExplainedOutput], Attribution]] = {
    "ig": integrated_gradients,
    "gradient": gradient_times_input,
    "occlusion": occlusion,
}


def method(name: str) -> Callable[[ExplainedOutput], Attribution]:
    """Returns a method of METHODS. Raises UsageError for an unknown name."""
    if name not in METHODS:
        raise UsageError(f"Unknown method {name!r}. {nearest(name, METHODS)}")
    return METHODS[name]


_SHARES = (0.01, 0.05, 0.1, 0.2, 0.5)
ORDERS = 20  # random ones
MIDDLE = (0.025, 0.975)  # of the random orders


@dataclass(frozen=True)
class Faithfulness:
    """What a prediction loses without the most important tokens (comprehensiveness: high is good), and with them alone
    (sufficiency: low is good); means over SHARES. The same for random orders: mean, and the middle 95% of them.

    of: what falls, "probability" or "number". Source: DeYoung et al. 2020 (AOPC).
    """

    comprehensiveness: float
    sufficiency: float
    random_comprehensiveness: float
    random_sufficiency: float
    random_comprehensiveness_95: tuple[float, float]
    random_sufficiency_95: tuple[float, float]
    of: str

    def rows(self) -> list[tuple[str, float, float, tuple[float, float]]]:
        """Returns which words are used, what is lost then, and the mean and the middle 95% of random orders."""
        gone = (self.comprehensiveness, self.random_comprehensiveness, self.random_comprehensiveness_95)
        alone = (self.sufficiency, self.random_sufficiency, self.random_sufficiency_95)
        return [("without the most important words", *gone), ("with these words alone", *alone)]


def faithfulness(question: ExplainedOutput, values: Floats, *, seed: int = 0) -> Faithfulness:
    """Returns the faithfulness of attributions: tokens become [MASK] in their order, and in random orders."""
    places = np.flatnonzero(question.words)
    rng = np.random.default_rng(seed)
    orders = [places[np.argsort(-values[places], kind="stable")], *(rng.permutation(places) for _ in range(ORDERS))]
    rows = [np.zeros(len(question.words), bool)]
    for order in orders:
        for share in _SHARES:
            top = np.isin(np.arange(len(question.words)), order[: max(1, round(share * len(order)))])
            rows += [top, question.words & ~top]
    different, where = np.unique(np.stack(rows), axis=0, return_inverse=True)  # small shares of a short text are equal
    numbers = question.answers(question.ids(*different), question.chance)[where.reshape(-1)]
    lost = (numbers[0] - numbers[1:]).reshape(len(orders), len(_SHARES), 2).mean(1)
    gone, alone = ((float(low), float(high)) for low, high in np.quantile(lost[1:], MIDDLE, axis=0).T)
    mean = lost[1:].mean(0)
    of = "probability" if question.chance else "number"
    return Faithfulness(float(lost[0, 0]), float(lost[0, 1]), float(mean[0]), float(mean[1]), gone, alone, of)


def by_word(encoding: Encoding, values: Floats, text: Sequence[str]) -> list[tuple[str, float]]:
    """Returns the words of the texts with the sum of their tokens' values; special tokens are words of their own."""
    return [
        (encoding.tokens[one.tokens[0]] if one.text is None else text[one.text][one.start : one.end], float(total))
        for one in text_words(encoding)
        for total in [values[one.tokens].sum()]
    ]
