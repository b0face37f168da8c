"""Replaced-token detection: predicts which tokens a small generator has replaced. Clark et al. 2020.

    the chef cooked the meal  ->  the chef [MASK] the meal  ->  generator: the chef ate the meal
                                                            ->  discriminator: 0 0 1 0 0

Both models are trained at once: the generator on the masked tokens, and the discriminator, which is the result, on all
real tokens. The replacements are sampled from the generator without a gradient. The random numbers are drawn with the
masks, by seed, epoch and instance, so the same weights give the same replacements in any batch.

Labels in a batch: those of masked LM (objectives/mlm.py), and rtd_draws (N,) float32 in [0, 1), which select the
generator's token at each predicted position.

B sequences · T real tokens of the batch · N predicted tokens · H generator's hidden size · V vocabulary
"""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize

from bertie.data.masking import Rates, Vocabulary
from bertie.errors import UsageError, WrongModel, WrongValue
from bertie.models.batch import Batch
from bertie.models.config import EncoderConfig
from bertie.models.count import forward_flops
from bertie.models.encoder import Encoder, EncoderOutput
from bertie.models.heads import HEADS
from bertie.models.heads.vocabulary import MaskedLMHead, VocabularyHead
from bertie.models.model import TorchModel
from bertie.models.vocabulary_loss import rows_at_a_time
from bertie.objectives.base import LossReport, LossTerm, Objective
from bertie.objectives.mlm import MaskedLM
from bertie.order import Draws, unit_floats
from bertie.text.sequences import Sequences

_DRAW_STREAM = 4  # stream of draws (data/masking.py lists them)


@dataclass(frozen=True)
class ReplacedTokens(Objective):
    """Detects the tokens that a generator replaced. Raises UsageError for sizes and rates out of range."""

    name: ClassVar[str] = "rtd"
    on_tokens: ClassVar[bool] = True
    own_forward: ClassVar[bool] = True
    whole_run: ClassVar[tuple[str, ...]] = ("size", "layers", "weight", "tied")

    size: float = 0.25
    """Hidden size of the generator relative to the discriminator. Source: Clark et al. 2020, table 6: small 1/4, base
    1/3, large 1/4."""
    layers: float = 1.0
    """Layers of the generator relative to the discriminator. Source: Clark et al. 2020, table 6."""
    weight: float = 50.0
    """Weight of the discriminator's loss; the generator's is 1. Source: Clark et al. 2020, 3.2."""
    tied: Literal["embeddings", "disentangled", "none"] = "embeddings"
    """Shared parameters: embeddings (token, position and segment), or none. disentangled: the discriminator adds a
    difference to the generator's embeddings and trains only the difference. Source: Clark et al. 2020, 3.2; He et al.
    2021, 3.3 (disentangled, DeBERTa v3)."""
    rate: Rates = 0.15
    """Fraction of a sequence's tokens that are masked for the generator. Source: Clark et al. 2020, table 6: 0.25 for
    large."""
    replace: tuple[float, float, float] = (0.85, 0.0, 0.15)
    """Fractions of the predicted tokens that become [MASK], become a random token, and stay unchanged. Source:
    google-research/electra, pretrain_helpers.py, mask."""
    max_predictions: int | None = None
    """Maximum number of predictions per sequence, as in mlm."""
    masking: str = "token"
    """Unit of masking, as in mlm."""

    def __post_init__(self) -> None:
        if not 0 < self.size <= 1 or not 0 < self.layers <= 1:
            raise WrongValue(
                f"rtd.size is {self.size} and rtd.layers is {self.layers}; both must be above 0 and at most 1."
            )
        if not self.weight > 0:
            raise WrongValue(f"rtd.weight is {self.weight}; it must be above 0.")
        if self.tied not in ("embeddings", "disentangled", "none"):
            raise WrongValue(f"rtd.tied is {self.tied!r}; it must be embeddings, disentangled or none.")
        try:
            self.masked.check_options()
        except UsageError as error:
            raise UsageError(str(error).replace("mlm.", "rtd.")) from None

    @property
    def masked(self) -> MaskedLM:
        """The objective of the generator."""
        return MaskedLM(self.rate, self.replace, self.max_predictions, self.masking)

    def heads(self, config: EncoderConfig) -> dict[str, nn.Module]:
        """Returns the head of the discriminator."""
        return {"rtd": HEADS["rtd"](config)}

    def prepare(self, model: TorchModel, seed: int) -> None:
        """Adds a new generator to the model. Raises UsageError for a family without such a head."""
        if model.variant is not None and "heads.rtd.dense.*" not in dict(model.variant.table.rows):
            raise WrongModel(
                f"rtd needs a head that a {model.variant.model_type} does not have. Choose an ELECTRA or a "
                "DeBERTa of any size: model=electra-small-discriminator"
            )
        model.companions["generator"] = Generator(self.smaller(model.config))
        if self.tied == "embeddings":
            tie_embeddings(_generator(model).encoder, model.encoder)
        model.draw_companion("generator", seed)
        if self.tied == "disentangled":
            share_disentangled(_generator(model).encoder, model.encoder)

    def smaller(self, config: EncoderConfig) -> EncoderConfig:
        """Returns the config of the generator. google-research/electra, pretrain_helpers.py, get_generator_config."""
        hidden = max(1, round(config.hidden_size * self.size))
        return config.replace(
            embedding_size=config.embedding_size or config.hidden_size,
            hidden_size=hidden,
            num_hidden_layers=max(1, round(config.num_hidden_layers * self.layers)),
            num_attention_heads=next(heads for heads in range(max(1, hidden // 64), 0, -1) if hidden % heads == 0),
            intermediate_size=4 * hidden,
            pooler=False,
        )

    def corrupt(self, batch: Sequences, rng: Draws, vocabulary: Vocabulary) -> Sequences:
        """Returns the sequences as input of the generator."""
        places_T, tokens = batch.without_vectors()
        batch = self.masked.corrupt(batch, rng, vocabulary)
        at = np.searchsorted(places_T, batch.labels["mlm_positions"])
        draws = unit_floats(rng.bits_at(_DRAW_STREAM, tokens.sequence[at], tokens.column[at]))
        return batch.with_labels(rtd_draws=draws.astype(np.float32))

    def counts(self, batch: Batch) -> dict[str, int]:
        """Returns N for the generator and T for the discriminator."""
        return {"generator": len(batch.labels["mlm_targets"]), "rtd": batch.tokens}

    def extra_cost(self, config: EncoderConfig, *, length: float, shares: Mapping[str, float]) -> dict[str, float]:
        """Returns the operations of the generator, of its vocabulary head for sampling, and of the discriminator's
        head."""
        smaller, share = self.smaller(config), shares["generator"]
        once = forward_flops(smaller, length=length, predicted=share)
        again = sum(flops for part, flops in once.items() if part.endswith("head"))
        h = config.hidden_size
        return {"generator": 3 * sum(once.values()) + again, "replaced-token head": 3 * (2 * h * h + 2 * h)}

    def answers(self, batch: Sequences) -> dict[int, list[int]]:
        """Returns the original token at each position that the generator predicts."""
        return self.masked.answers(batch)

    def forward(self, model: TorchModel, batch: Batch) -> EncoderOutput:
        """Runs the discriminator on the text with the generator's tokens."""
        generator = _generator(model)
        generator.encoder.compute_dtype = model.compute_dtype
        places_N, targets_N = batch.labels["mlm_positions"], batch.labels["mlm_targets"]
        masked = generator.encoder(batch.input_ids, batch.token_type_ids, batch.layout, read=places_N)
        hidden_NH, word = masked.last_hidden_state.flatten(0, -2)[places_N], generator.encoder.embeddings.word.weight
        total, correct = generator.mlm.loss(hidden_NH, word, targets_N)
        said_N = sample_tokens(generator.mlm, hidden_NH, word, batch.labels["rtd_draws"])
        filled = batch.input_ids.flatten().index_copy(0, places_N, said_N).view(batch.input_ids.shape)
        replaced = torch.zeros_like(filled.flatten(), dtype=torch.bool).index_copy(0, places_N, said_N != targets_N)
        output = model.encode(replace(batch, input_ids=filled))
        return Detection(
            **{field.name: getattr(output, field.name) for field in fields(output)},
            generator=LossTerm(total, len(targets_N), correct),
            replaced=replaced.view(filled.shape),
        )

    def loss(self, model: TorchModel, output: EncoderOutput, batch: Batch) -> LossReport:
        """Returns the generator's cross-entropy, and the discriminator's binary cross-entropy at every real token."""
        if not isinstance(output, Detection):
            raise TypeError("The output is not that of `forward` of this objective.")
        logits = model.logits("rtd", output).float()
        losses = F.binary_cross_entropy_with_logits(logits, output.replaced.float(), reduction="none")
        right = torch.where(output.replaced, logits > 0, logits < 0)
        if logits.ndim == 2:  # padded
            mask_BS = batch.layout.mask()
            losses, right = losses * mask_BS, right & mask_BS
        return {"generator": output.generator, "rtd": LossTerm(losses.sum(), batch.tokens, right.sum(), self.weight)}

    def models_to_save(self, model: TorchModel) -> dict[str, TorchModel]:
        """Returns the discriminator, and the generator for its own folder."""
        generator, encoder = _generator(model), model.encoder
        if self.tied == "disentangled":
            encoder = summed(encoder)
        return {
            "model": TorchModel(encoder, dict(model.heads), variant=model.variant, public=model.public),
            "generator": TorchModel(generator.encoder, {"mlm": generator.mlm}, variant=model.variant),
        }


@dataclass(frozen=True)
class Detection(EncoderOutput):
    """The discriminator's output, the generator's loss, and the replaced tokens (same shape as input_ids)."""

    generator: LossTerm = field(kw_only=True)
    replaced: Tensor = field(kw_only=True)


class Generator(nn.Module):
    """A small masked language model."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.encoder = Encoder(config)
        self.mlm = MaskedLMHead(config)


def _generator(model: TorchModel) -> Generator:
    return model.companion("generator", Generator)


@torch.no_grad()
def sample_tokens(head: VocabularyHead, hidden: Tensor, word_embeddings: Tensor, draws: Tensor) -> Tensor:
    """Samples a token from each distribution: the first one at which the cumulative probability exceeds the draw. No
    gradient.

    hidden (N, H), word_embeddings (V, H), draws (N,) in [0, 1) -> (N,) int64
    """
    chunk = rows_at_a_time(word_embeddings)
    said = [torch.zeros(0, dtype=torch.int64, device=hidden.device)]
    for hidden_CH, draws_C in zip(torch.split(hidden, chunk), torch.split(draws, chunk), strict=True):
        summed_CV = head.logits(hidden_CH, word_embeddings).float().softmax(-1).cumsum(-1)
        passed_C1 = torch.searchsorted(summed_CV, draws_C[:, None] * summed_CV[:, -1:], right=True)
        said.append(passed_C1.squeeze(1).clamp_max(summed_CV.shape[1] - 1))
    return torch.cat(said)


_EMBEDDINGS = ("word", "position", "segment")
DIFFERENCE_SUFFIX = ".parametrizations.weight.original"  # torch's name of it


class Difference(nn.Module):
    """The discriminator's embeddings as the generator's plus a trained difference. He et al. 2021, 3.3.

    The generator's are read without a gradient: the discriminator's loss does not change them.
    """

    def __init__(self, shared: nn.Module) -> None:
        super().__init__()
        self._shared = [shared]  # in a list, so that its parameters belong to the generator alone

    def forward(self, difference: Tensor) -> Tensor:
        """-> the embeddings, as `difference`"""
        weight: Tensor = self._shared[0].weight  # type: ignore[assignment]
        return weight.detach() + difference


def share_disentangled(generator: Encoder, discriminator: Encoder) -> None:
    """Gives the generator the discriminator's embeddings, and makes those the generator's plus a difference of zero.

    Raises UsageError where their embeddings differ in shape.
    """
    for part, ours, theirs in _shared_parts(generator, discriminator):
        with torch.no_grad():
            ours.weight.copy_(theirs.weight)
            theirs.weight.zero_()
        parametrize.register_parametrization(getattr(discriminator.embeddings, part), "weight", Difference(ours))


def summed(discriminator: Encoder) -> Encoder:
    """Returns a copy whose embeddings are plain parameters again."""
    plain_encoder = copy.deepcopy(discriminator)
    for part in _EMBEDDINGS:
        module = getattr(plain_encoder.embeddings, part)
        if module is not None and parametrize.is_parametrized(module):
            weight = module.weight.detach().clone()  # to remove it here would remove it from the original's class
            plain = nn.Embedding(len(weight), weight.shape[1], device="meta")
            plain.weight = nn.Parameter(weight)
            setattr(plain_encoder.embeddings, part, plain)
    return plain_encoder


def with_sums(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns the tensors of a checkpoint with plain embeddings instead of differences."""
    plain_tensors = dict(tensors)
    for name in [name for name in tensors if name.endswith(DIFFERENCE_SUFFIX)]:
        plain = f"{name.removesuffix(DIFFERENCE_SUFFIX)}.weight"
        plain_tensors[plain] = plain_tensors.pop(name) + tensors[f"companions.generator.{plain}"]
    return plain_tensors


def _shared_parts(generator: Encoder, discriminator: Encoder) -> Iterator[tuple[str, nn.Embedding, nn.Embedding]]:
    """Yields the embeddings that both models have. Raises UsageError where they differ in shape."""
    for part in _EMBEDDINGS:
        ours, theirs = getattr(generator.embeddings, part), getattr(discriminator.embeddings, part)
        if ours is None or theirs is None:  # a family without them
            continue
        if ours.weight.shape != theirs.weight.shape:
            raise WrongValue(
                f"The {part} embeddings of generator and discriminator are {tuple(ours.weight.shape)} and "
                f"{tuple(theirs.weight.shape)}. To share them, vocab_size and embedding_size must be equal."
            )
        yield part, ours, theirs


def tie_embeddings(generator: Encoder, discriminator: Encoder) -> None:
    """Makes two models share token, position and segment embeddings, as in pre-training (Clark et al. 2020, 3.2).

    Raises UsageError where their embeddings differ in shape.
    """
    for part, _, theirs in _shared_parts(generator, discriminator):
        setattr(generator.embeddings, part, theirs)
