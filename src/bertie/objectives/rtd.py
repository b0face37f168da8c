"""Replaced-token detection: which tokens did a small generator put there? Clark et al. 2020.

    the chef cooked the meal  ->  the chef [MASK] the meal  ->  generator: the chef ate the meal
                                                            ->  discriminator: 0 0 1 0 0

Both are trained at once: the generator on what the mask hides, the discriminator, which one keeps, on every real token.
What the generator says is drawn from it, and no gradient passes there. The draws are made with the masks, by seed,
epoch and instance; so the same weights say the same, however a batch is cut.

Labels it adds to a batch: those of masked LM (objectives/mlm.py), and rtd_draws (N,) float32 in [0, 1), which of the
generator's tokens is taken at each predicted position.

B sequences · T real tokens of the batch · N predicted tokens · H generator's hidden size · V vocabulary
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertie.data.batch import Batch
from bertie.data.draws import Draws, unit
from bertie.data.masking import Vocabulary
from bertie.data.rates import Rates
from bertie.errors import UsageError
from bertie.models.config import EncoderConfig
from bertie.models.count import forward_flops
from bertie.models.encoder import Encoder, EncoderOutput
from bertie.models.heads import HEADS, MaskedLMHead, VocabularyHead
from bertie.models.model import Model
from bertie.nn.init import initialize
from bertie.nn.loss import CHUNK_LOGITS
from bertie.objectives.base import LossReport, LossTerm, Objective
from bertie.objectives.mlm import MaskedLM, flat

DRAWN = 4  # stream of draws (data/masking.py lists them)


@dataclass(frozen=True)
class ReplacedTokens(Objective):
    """Find the tokens that a generator replaced. Raises UsageError for sizes and shares that are none."""

    name: ClassVar[str] = "rtd"
    on_tokens: ClassVar[bool] = True

    size: float = 0.25
    """Width of the generator as a share of the discriminator's (paper, table 6: small 1/4, base 1/3, large 1/4)."""
    layers: float = 1.0
    """Layers of the generator as a share of the discriminator's."""
    weight: float = 50.0
    """Of the discriminator's loss beside the generator's (paper, 3.2)."""
    tied: Literal["embeddings", "none"] = "embeddings"
    """What the two share: token, position and segment embeddings, or nothing."""
    rate: Rates = 0.15
    """Share of a sequence's tokens that are masked for the generator (paper, table 6: 0.25 for large)."""
    replace: tuple[float, float, float] = (0.85, 0.0, 0.15)
    """Of these, the shares that become [MASK], a random token, stay (release file pretrain_helpers.py, mask)."""
    max_predictions: int | None = None
    """As of masked LM."""
    masking: str = "token"
    """As of masked LM."""

    def __post_init__(self) -> None:
        if not 0 < self.size <= 1 or not 0 < self.layers <= 1:
            raise UsageError(
                f"rtd.size is {self.size} and rtd.layers is {self.layers}; both must be above 0 and at most 1."
            )
        if not self.weight > 0:
            raise UsageError(f"rtd.weight is {self.weight}; it must be above 0.")
        if self.tied not in ("embeddings", "none"):
            raise UsageError(f"rtd.tied is {self.tied!r}; it must be embeddings or none.")
        try:
            assert self.masked
        except UsageError as error:
            raise UsageError(str(error).replace("mlm.", "rtd.")) from None

    @property
    def masked(self) -> MaskedLM:
        """The generator's objective."""
        return MaskedLM(self.rate, self.replace, self.max_predictions, self.masking)

    def heads(self, config: EncoderConfig) -> dict[str, nn.Module]:
        """The discriminator's head."""
        return {"rtd": HEADS["rtd"](config)}

    def prepare(self, model: Model, seed: int) -> None:
        """Put a fresh generator beside the model. Raises UsageError for a family that has no such head."""
        if model.variant is not None and ("rtd",) not in model.variant.architectures.values():
            raise UsageError(
                f"rtd needs a head that a {model.variant.model_type} does not have. Choose an ELECTRA of any "
                "size: model=electra-small-discriminator"
            )
        model.companions["generator"] = Generator(self.smaller(model.config))
        if self.tied == "embeddings":
            tie_embeddings(_generator(model).encoder, model.encoder)
        fresh = {name for name, _ in model.named_parameters() if name.startswith("companions.generator.")}
        initialize(model, std=model.config.initializer_range, seed=seed, only=fresh)

    def smaller(self, config: EncoderConfig) -> EncoderConfig:
        """The generator's shape (release file pretrain_helpers.py, get_generator_config)."""
        hidden = max(1, round(config.hidden_size * self.size))
        return config.replace(
            embedding_size=config.embedding_size or config.hidden_size,
            hidden_size=hidden,
            num_hidden_layers=max(1, round(config.num_hidden_layers * self.layers)),
            num_attention_heads=next(heads for heads in range(max(1, hidden // 64), 0, -1) if hidden % heads == 0),
            intermediate_size=4 * hidden,
            pooler=False,
        )

    def corrupt(self, batch: Batch, rng: Draws, vocabulary: Vocabulary) -> Batch:
        """The batch as the generator shall see it."""
        places_T, tokens = flat(batch)
        batch = self.masked.corrupt(batch, rng, vocabulary)
        at = np.searchsorted(places_T, batch.labels["mlm_positions"].numpy())
        drawn = unit(rng.bits_at(DRAWN, tokens.rows[at], tokens.columns[at]))
        return batch.with_labels(rtd_draws=torch.from_numpy(drawn).float())

    def counts(self, batch: Batch) -> dict[str, int]:
        """N of the generator, T of the discriminator"""
        return {"generator": len(batch.labels["mlm_targets"]), "rtd": batch.tokens}

    def extra_cost(self, config: EncoderConfig, *, length: float, shares: Mapping[str, float]) -> dict[str, float]:
        """The generator, its vocabulary head once more to draw from it, and the discriminator's head at every token."""
        smaller, asked = self.smaller(config), shares["generator"]
        once = forward_flops(smaller, length=length, predicted=asked)
        again = sum(flops for part, flops in once.items() if part.endswith("head"))
        h = config.hidden_size
        return {"generator": 3 * sum(once.values()) + again, "replaced-token head": 3 * (2 * h * h + 2 * h)}

    def answers(self, batch: Batch) -> dict[int, list[int]]:
        """What stood at each place the generator is asked about."""
        return self.masked.answers(batch)

    def forward(self, model: Model, batch: Batch) -> EncoderOutput:
        """What the discriminator finds in the text as the generator fills it."""
        generator = _generator(model)
        generator.encoder.compute_dtype = model.compute_dtype
        found = generator.encoder(batch.input_ids, batch.token_type_ids, batch.layout)
        places_N, targets_N = batch.labels["mlm_positions"], batch.labels["mlm_targets"]
        hidden_NH, word = found.last_hidden_state.flatten(0, -2)[places_N], generator.encoder.embeddings.word.weight
        total, correct = generator.mlm.loss(hidden_NH, word, targets_N)
        said_N = sample(generator.mlm, hidden_NH, word, batch.labels["rtd_draws"])
        filled = batch.input_ids.flatten().index_copy(0, places_N, said_N).view(batch.input_ids.shape)
        replaced = torch.zeros_like(filled.flatten(), dtype=torch.bool).index_copy(0, places_N, said_N != targets_N)
        output = model.encode(replace(batch, input_ids=filled))
        return Detection(
            **{field.name: getattr(output, field.name) for field in fields(output)},
            generator=LossTerm(total, len(targets_N), correct),
            replaced=replaced.view(filled.shape),
        )

    def loss(self, model: Model, output: EncoderOutput, batch: Batch) -> LossReport:
        """The generator's cross-entropy, and the discriminator's over two answers at every real token."""
        assert isinstance(output, Detection)
        assert output.generator is not None
        assert output.replaced is not None
        logits = model.logits("rtd", output).float()
        losses = F.binary_cross_entropy_with_logits(logits, output.replaced.float(), reduction="none")
        right = torch.where(output.replaced, logits > 0, logits < 0)
        if logits.ndim == 2:  # padded
            mask_BS = batch.layout.mask()
            losses, right = losses * mask_BS, right & mask_BS
        return {"generator": output.generator, "rtd": LossTerm(losses.sum(), batch.tokens, right.sum(), self.weight)}

    def models_to_save(self, model: Model) -> dict[str, Model]:
        """The discriminator, and the generator in a folder of its own."""
        generator = _generator(model)
        return {
            "model": Model(model.encoder, dict(model.heads), variant=model.variant, public=model.public),
            "generator": Model(generator.encoder, {"mlm": generator.mlm}, variant=model.variant),
        }


@dataclass(frozen=True)
class Detection(EncoderOutput):
    """What the discriminator found, the generator's loss, and which tokens (as input_ids) are not the text's own."""

    generator: LossTerm | None = None
    replaced: Tensor | None = None


class Generator(nn.Module):
    """A small masked language model."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.encoder = Encoder(config)
        self.mlm = MaskedLMHead(config)


def _generator(model: Model) -> Generator:
    generator = model.companions["generator"]
    assert isinstance(generator, Generator)
    return generator


@torch.no_grad()
def sample(head: VocabularyHead, hidden: Tensor, word_embeddings: Tensor, draws: Tensor) -> Tensor:
    """A token from each distribution: the first at which the summed probability passes the draw. Has no gradient.

    hidden (N, H), word_embeddings (V, H), draws (N,) in [0, 1) -> (N,) int64
    """
    chunk = max(1, CHUNK_LOGITS // len(word_embeddings))
    said = [torch.zeros(0, dtype=torch.int64, device=hidden.device)]
    for hidden_CH, draws_C in zip(torch.split(hidden, chunk), torch.split(draws, chunk), strict=True):
        summed_CV = head.logits(hidden_CH, word_embeddings).float().softmax(-1).cumsum(-1)
        passed_C1 = torch.searchsorted(summed_CV, draws_C[:, None] * summed_CV[:, -1:], right=True)
        said.append(passed_C1.squeeze(1).clamp_max(summed_CV.shape[1] - 1))
    return torch.cat(said)


def tie_embeddings(generator: Encoder, discriminator: Encoder) -> None:
    """Make the two share token, position and segment embeddings, as in pre-training (paper, 3.2).

    Raises UsageError where their embeddings differ in shape.
    """
    theirs = discriminator.embeddings
    for part in ("word", "position", "segment"):
        ours, other = getattr(generator.embeddings, part), getattr(theirs, part)
        if ours is None or other is None:  # a family without them
            continue
        if ours.weight.shape != other.weight.shape:
            raise UsageError(
                f"The {part} embeddings of generator and discriminator are {tuple(ours.weight.shape)} and "
                f"{tuple(other.weight.shape)}. To share them, vocab_size and embedding_size must be equal."
            )
        setattr(generator.embeddings, part, other)
