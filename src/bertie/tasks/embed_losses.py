"""Losses of sentence embeddings: functions of the vectors of a step's texts. torch is imported by their caller.

    cosine               (cos(a, b) - score)^2                                           Reimers and Gurevych 2019
    cosent               the order of the cosines is that of the scores                  Su 2022, kexue.fm/archives/8847
    contrastive          alike: distance^2; not alike: (margin - distance)^2 below it    Hadsell et al. 2006
    in_batch_negatives   softmax over the other texts of the step                        Henderson et al. 2017, 4.4
    triplet              the positive text is nearer than the negative one, by a margin  Schroff et al. 2015
    margin_mse           differences of scores are those of a cross-encoder              Hofstätter et al. 2020
    kl                   the softmax of scores is that of a cross-encoder                Lin et al. 2021

Each is a sum, and a count that a step knows before any vector: `fit` divides. All compare texts of one step, in however
many forward passes they are computed.

W texts of the step · E examples · N negative texts · C candidates (E + N) · H numbers of a vector
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, kl_div, log_softmax, normalize, relu, softmax

from bertie.models.batch import Batch
from bertie.models.loss import LossTerm, right
from bertie.tasks.embed_rows import ALIKE, LossName

NO_CANDIDATE = -1e4  # a score that no candidate has; finite, as rows without a candidate would be NaN


@dataclass(frozen=True)
class LossSettings:
    """Settings of a loss. scale: factor of cosines. margin: None is the default of the loss. temperature: of a
    cross-encoder's scores. symmetric: whether the anchor is searched for the positive text too."""

    scale: float = 20.0
    margin: float | None = None
    temperature: float = 1.0
    symmetric: bool = False


@dataclass(frozen=True)
class StepTexts:
    """The texts of a step: their vectors (W, H), and the batch, whose labels are read in main memory.

    The labels are the targets of embed.py: "place" (W,), "score" (W,), "key" (W,) and where there are any "label" (W,)
    and "guide" (W, G).
    """

    vectors_WH: Tensor
    batch: Batch

    @property
    def labels(self) -> Mapping[str, Tensor]:
        """What is known of the texts, in main memory."""
        return self.batch.host.labels

    @cached_property
    def example_W(self) -> Tensor:
        """The number of each text's example in the step, in main memory."""
        return (self.labels["place"] == 0).cumsum(0) - 1

    @property
    def anchors_EH(self) -> Tensor:
        """The vectors of the anchors."""
        return self.vectors_WH[self.batch.where(self.labels["place"] == 0)]

    @property
    def positives_EH(self) -> Tensor:
        """The vectors of the second texts."""
        return self.vectors_WH[self.batch.where(self.labels["place"] == 1)]

    @property
    def negatives_NH(self) -> Tensor:
        """The vectors of the negative texts."""
        return self.vectors_WH[self.batch.where(self.labels["place"] > 1)]

    @property
    def score_E(self) -> Tensor:
        """The score of each example's second text."""
        return self.batch.moved(self.labels["score"][self.labels["place"] == 1])

    @property
    def score_N(self) -> Tensor:
        """The score of each negative text."""
        return self.batch.moved(self.labels["score"][self.labels["place"] > 1])

    @property
    def owner_N(self) -> Tensor:
        """The example of each negative text."""
        return self.batch.moved(self.example_W[self.labels["place"] > 1])

    def excluded_EC(self) -> Tensor:
        """Whether a candidate is no negative of an example: its own text or positive text again, what belongs to the
        same anchor, or what the guide takes for more alike than the positive text."""
        place, key = self.labels["place"], self.labels["key"]
        anchor, positive, negative = (key[chosen] for chosen in (place == 0, place == 1, place > 1))
        candidates = torch.cat([positive, negative])
        excluded = (candidates == positive[:, None]) | (candidates == anchor[:, None])
        excluded[:, : len(positive)] |= anchor == anchor[:, None]
        excluded = self.batch.moved(excluded)
        if "guide" in self.labels:
            guide = normalize(self.batch.moved(self.labels["guide"]).float(), dim=-1)
            query, own = guide[self.batch.where(place == 0)], guide[self.batch.where(place == 1)]
            others = torch.cat([own, guide[self.batch.where(place > 1)]])
            excluded = excluded | (query @ others.T > (query * own).sum(-1, keepdim=True))
        own_E = torch.arange(len(positive), device=excluded.device)
        return excluded.index_put((own_E, own_E), torch.zeros((), dtype=torch.bool, device=excluded.device))


EmbeddingLoss = Callable[[StepTexts, LossSettings], tuple[Tensor, Tensor | None]]
"""The sum of the loss, and of how many examples are right where that can be said."""


def _cosine(texts: StepTexts, options: LossSettings) -> tuple[Tensor, None]:
    error_E = (_cosines(texts) - texts.score_E) ** 2
    return error_E.sum(), None


def _cosent(texts: StepTexts, options: LossSettings) -> tuple[Tensor, None]:
    """The mean over the examples is the loss of the step: of all pairs whose scores differ."""
    cosine_E, score_E = options.scale * _cosines(texts), texts.score_E
    wrong_EE = torch.where(score_E[:, None] < score_E, cosine_E[:, None] - cosine_E, -torch.inf)
    zero = cosine_E.new_zeros(1)
    return len(score_E) * torch.cat([zero, wrong_EE.flatten()]).logsumexp(0), None


def _contrastive(texts: StepTexts, options: LossSettings) -> tuple[Tensor, None]:
    distance_E, alike_E = 1 - _cosines(texts), (texts.score_E >= ALIKE).float()
    apart_E = relu((0.5 if options.margin is None else options.margin) - distance_E)
    return 0.5 * (alike_E * distance_E**2 + (1 - alike_E) * apart_E**2).sum(), None


def _in_batch_negatives(texts: StepTexts, options: LossSettings) -> tuple[Tensor, Tensor]:
    """Only pairs of one meaning are learned. The second texts of the others are negatives too."""
    anchors_EH, positives_EH = normalize(texts.anchors_EH, dim=-1), normalize(texts.positives_EH, dim=-1)
    candidates_CH = torch.cat([positives_EH, normalize(texts.negatives_NH, dim=-1)])
    own_E = torch.arange(len(anchors_EH), device=anchors_EH.device)
    excluded_EC, alike_E = texts.excluded_EC(), (texts.score_E >= ALIKE).float()
    scores_EC = (options.scale * anchors_EH @ candidates_CH.T).masked_fill(excluded_EC, NO_CANDIDATE)
    loss_E = cross_entropy(scores_EC, own_E, reduction="none")
    if options.symmetric:
        back_EE = scores_EC[:, : len(own_E)].T
        loss_E = (loss_E + cross_entropy(back_EE, own_E, reduction="none")) / 2
    return (alike_E * loss_E).sum(), (alike_E * right(scores_EC, own_E)).sum()


def _triplet(texts: StepTexts, options: LossSettings) -> tuple[Tensor, None]:
    margin = 5.0 if options.margin is None else options.margin
    if "label" in texts.labels:
        return _hardest(texts, margin), None
    anchors_NH, positives_NH = texts.anchors_EH[texts.owner_N], texts.positives_EH[texts.owner_N]
    near_N, far_N = _distance(anchors_NH, positives_NH), _distance(anchors_NH, texts.negatives_NH)
    return relu(near_N - far_N + margin).sum(), None


def _hardest(texts: StepTexts, margin: float) -> Tensor:
    """The farthest text of the same label against the nearest one of another (Hermans et al. 2017): the mean over
    texts that have both, times all texts."""
    label_W, vectors_WH = texts.labels["label"], texts.vectors_WH
    same_WW = label_W[:, None] == label_W
    other_WW = same_WW & ~torch.eye(len(label_W), dtype=torch.bool)
    usable_W = texts.batch.moved((other_WW.any(1) & ~same_WW.all(1)).float())
    same_WW, other_WW = (texts.batch.moved(one) for one in (same_WW, other_WW))
    distance_WW = torch.cdist(vectors_WH, vectors_WH)
    far_W = distance_WW.masked_fill(~other_WW, 0).amax(1)
    near_W = distance_WW.masked_fill(same_WW, torch.inf).amin(1).clamp(max=1e6)
    return len(label_W) * (usable_W * relu(far_W - near_W + margin)).sum() / usable_W.sum().clamp(min=1)


def _margin_mse(texts: StepTexts, options: LossSettings) -> tuple[Tensor, None]:
    owner_N = texts.owner_N
    own_E = (texts.anchors_EH * texts.positives_EH).sum(-1)
    margin_N = own_E[owner_N] - (texts.anchors_EH[owner_N] * texts.negatives_NH).sum(-1)
    return ((margin_N - (texts.score_E[owner_N] - texts.score_N)) ** 2).sum(), None


def _kl(texts: StepTexts, options: LossSettings) -> tuple[Tensor, None]:
    own_E = (texts.anchors_EH * texts.positives_EH).sum(-1)
    other_N = (texts.anchors_EH[texts.owner_N] * texts.negatives_NH).sum(-1)
    ours_EK, theirs_EK = _by_example(texts, own_E, other_N), _by_example(texts, texts.score_E, texts.score_N)
    log_EK = log_softmax(ours_EK / options.temperature, -1)
    total = kl_div(log_EK, softmax(theirs_EK / options.temperature, -1), reduction="none").sum()
    return options.temperature**2 * total, None


def _by_example(texts: StepTexts, own_E: Tensor, other_N: Tensor) -> Tensor:
    """The values of the passages of each example, the positive one first, filled up with NO_CANDIDATE. (E, K)"""
    place_N = texts.labels["place"][texts.labels["place"] > 1] - 1
    most = int(place_N.max()) if len(place_N) else 0
    values_EK = torch.cat([own_E[:, None], own_E.new_full((len(own_E), most), NO_CANDIDATE)], 1)
    return values_EK.index_put((texts.owner_N, texts.batch.moved(place_N)), other_N)


def _cosines(texts: StepTexts) -> Tensor:
    return (normalize(texts.anchors_EH, dim=-1) * normalize(texts.positives_EH, dim=-1)).sum(-1)


def _distance(a: Tensor, b: Tensor) -> Tensor:
    """Euclidean; its gradient at 0 is 0."""
    return ((a - b) ** 2).sum(-1).clamp(min=1e-12).sqrt()


EMBEDDING_LOSSES: Mapping[LossName, EmbeddingLoss] = {
    "cosine": _cosine,
    "cosent": _cosent,
    "contrastive": _contrastive,
    "in_batch_negatives": _in_batch_negatives,
    "triplet": _triplet,
    "margin_mse": _margin_mse,
    "kl": _kl,
}


def loss_term(
    name: LossName, texts: StepTexts, options: LossSettings, widths: tuple[int, ...], count: float
) -> LossTerm:
    """Returns a loss of a step. widths: it is the sum of those of the first numbers of the vectors and of all.

    Kusupati et al. 2022, "Matryoshka Representation Learning".
    """
    total, correct = EMBEDDING_LOSSES[name](texts, options)
    for width in widths:
        total = total + EMBEDDING_LOSSES[name](StepTexts(texts.vectors_WH[:, :width], texts.batch), options)[0]
    return LossTerm(total, count, None if correct is None else correct.detach())
