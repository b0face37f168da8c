"""Perplexity of a language model: how many tokens it hesitates between, whatever it was pre-trained to predict.

    lm    the cat sat   ->   the ?, the cat ?                                  exact: from the tokens before it
    bilm  the cat sat   ->   the ?, the cat ?  and  ? sat, ? cat sat           exact: the mean of both directions
    mlm   the cat sat   ->   [MASK] cat sat, the [MASK] sat, the cat [MASK]    pseudo: from all other tokens
    plm   the cat sat   ->   ? cat sat, the ? sat, the cat ?                   pseudo: nothing attends to the token

lm: exp of the loss of `transformers`. bilm: Peters et al. 2018, 3.1. mlm: Salazar et al. 2020, "Masked Language Model
Scoring", 2.3. plm: the last step of an order; in pre-training at least five sixths of a text come before a predicted
token (Yang et al. 2019, 2.3), so an order from left to right would ask what XLNet never learned.

Compare models with different vocabularies by `per_word`. For unknown words, the model must predict [UNK], and their
characters cost 8 bits per byte, as if they were transmitted separately. A smaller vocabulary therefore gains nothing.

N predicted tokens · D directions · V vocabulary
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import log
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bertie.errors import DataError, NoRows, WrongModel
from bertie.infer.engine import Array, Engine, Facts, check_max_length
from bertie.metrics.base import Float
from bertie.models.generation import DECODER
from bertie.text.sequences import Int, Sequences
from bertie.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from bertie.models.model import TorchModel

_PASS_TOKENS = 4096  # of one forward pass
LOGITS = 1 << 24  # held at once: 64 MiB, 549 predicted tokens of BERT's vocabulary
BYTE = 8 * log(2)  # nats
_MAX_NATS = 700.0  # nats a word whose exponential a float can hold, and JSON say
READ_AT: Mapping[str, tuple[int, ...]] = {"lm": (-1,), "bilm": (-1, 1), "mlm": (0,), "plm": (0,)}
"""Head -> where the prediction of a token is read, for each direction: at the token before, after, or in its place."""


@dataclass(frozen=True)
class Perplexity:
    """Lower is better; 1 means certainty. left_out: texts that are too long, or have no word to predict.

    head: what predicted. unknown: the number of tokens that are not in the vocabulary, each counted with its bytes.
    skipped: reason -> rows that could not be read.
    """

    per_token: float
    per_word: float
    tokens: int
    words: int
    texts: int
    left_out: int
    unknown: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)
    head: str = "mlm"

    @property
    def name(self) -> str:
        """What it is called: that of a token from all others is a pseudo-perplexity."""
        return "pseudo-perplexity" if READ_AT[self.head] == (0,) else "perplexity"


def language_head(facts: Facts) -> str | None:
    """Returns the head that predicts the tokens of a text; None for a model without one, and for one of two texts."""
    return None if DECODER in facts.heads else next((head for head in READ_AT if head in facts.heads), None)


def text_perplexity(
    model: "TorchModel | Engine",
    texts: Iterable[str],
    *,
    tokenizer: Tokenizer | None = None,
    max_length: int | None = None,
) -> Perplexity:
    """Returns the perplexity of texts, from the nats of all of them. A masked or permuted LM reads a text per token.

    A first token without a start token before it is not predicted from the left. Texts may be a stream, with only one
    batch in memory. Those longer than max_length, by default the model's maximum, are skipped and counted. Raises
    UsageError for a model without a language-model head or a tokenizer, and for a max_length that the model cannot
    read. Raises DataError when no text fits.
    """
    engine: Engine
    if isinstance(model, Engine):
        engine = model
    else:
        from bertie.infer.torch_engine import TorchEngine

        engine, tokenizer = TorchEngine(model), tokenizer or model.tokenizer
    facts = engine.facts
    head = language_head(facts)
    if head is None or tokenizer is None:
        raise WrongModel(
            "Perplexity needs a language-model head and a tokenizer: mlm, lm, bilm or plm, without a decoder. Use the "
            "folder of a pre-trained model, such as BERT, GPT, ELMo or XLNet."
        )
    check_max_length(max_length, facts.max_length)
    longest, tally = max_length or facts.max_length, _Tally()
    nats_D = np.zeros(len(READ_AT[head]))
    for scores_DN in log_probabilities(engine, head, tally.rows(texts, tokenizer, longest, head), tokenizer):
        nats_D -= scores_DN.sum(-1, dtype=np.float64)
    if not tally.texts and not tally.left_out:
        raise NoRows("There is no text to score.")
    if not tally.texts:
        raise DataError(
            f"None of the {tally.left_out:,} texts can be scored: they are empty, or longer than {longest:,} tokens."
        )
    nats_D += tally.unknown_bytes * BYTE
    return Perplexity(
        _exp(nats_D / tally.tokens),
        _exp(nats_D / tally.words),
        tally.tokens,
        tally.words,
        tally.texts,
        tally.left_out,
        tally.unknown,
        head=head,
    )


class TokenQuery(NamedTuple):
    """A text that is read once, with the positions of the tokens to predict. also: other positions that are masked."""

    ids: Int
    types: Int
    positions: Int
    also: tuple[int, ...] = ()


def log_probabilities(engine: Engine, head: str, rows: Iterable[TokenQuery], tokenizer: Tokenizer) -> Iterator[Float]:
    """Yields log p of the tokens to predict in nats (D, N), one array for each batch, in the order of the rows.

    Rows may be a stream: at most TOKENS tokens are in one batch. The engine needs the head.
    """
    most = max(1, LOGITS // max(1, engine.facts.heads[head] * len(READ_AT[head])))
    mask_id = tokenizer.mask_id if head == "mlm" else None
    for batch in _batches(rows, most):
        yield _scores(engine, head, batch, mask_id)


@dataclass
class _Tally:
    """Counts of what has been read."""

    tokens: int = 0
    words: int = 0
    texts: int = 0
    left_out: int = 0
    unknown: int = 0
    unknown_bytes: int = 0

    def rows(self, texts: Iterable[str], tokenizer: Tokenizer, longest: int, head: str) -> Iterator[TokenQuery]:
        """Yields each text once, or once per token where a token is predicted from all others."""
        unknown = tokenizer.special_id("unk")
        special = tokenizer.special_ids - {unknown}
        before = min(READ_AT[head]) < 0
        for text in texts:
            encoding = tokenizer.encode(text)
            positions = [i for i, token in enumerate(encoding.ids) if token not in special and (i or not before)]
            if not positions or len(encoding.ids) > longest:
                self.left_out += 1
                continue
            for position in positions:
                if encoding.ids[position] == unknown:
                    self.unknown += 1
                    self.unknown_bytes += len(text[slice(*encoding.offsets[position])].encode("utf-8", "replace"))
            self.tokens += len(positions)
            self.words += len(text[encoding.offsets[positions[0]][0] :].split())
            self.texts += 1
            ids, types = np.asarray(encoding.ids, np.int64), np.asarray(encoding.type_ids, np.int64)
            at_once = np.array(positions)[None] if before else np.array(positions)[:, None]
            yield from (TokenQuery(ids, types, some) for some in at_once)


def _batches(rows: Iterable[TokenQuery], most: int) -> Iterator[list[TokenQuery]]:
    """Yields groups of rows of several texts, up to TOKENS tokens and `most` predictions, or one row that has more."""
    batch: list[TokenQuery] = []
    size = predictions = 0
    for row in rows:
        if batch and (size + len(row.ids) > _PASS_TOKENS or predictions + len(row.positions) > most):
            yield batch
            batch, size, predictions = [], 0, 0
        batch.append(row)
        size += len(row.ids)
        predictions += len(row.positions)
    if batch:
        yield batch


def _scores(engine: Engine, head: str, rows: list[TokenQuery], mask_id: int | None) -> Float:
    """Returns log p of the tokens to predict (D, N). mask_id: what stands in their place."""
    lengths = np.array([len(row.ids) for row in rows])
    starts = np.cumsum(lengths) - lengths
    places_N = np.concatenate([start + row.positions for start, row in zip(starts, rows, strict=True)])
    ids = np.concatenate([row.ids for row in rows])
    targets_N = ids[places_N]
    if mask_id is not None:
        ids[places_N] = mask_id
        ids[[start + place for start, row in zip(starts, rows, strict=True) for place in row.also]] = mask_id
    read_DN = np.array(READ_AT[head])[:, None] + places_N
    batch = Sequences(ids, np.concatenate([row.types for row in rows]), lengths, read_DN[0])
    logits = engine.run(batch, (head,))[head]
    logits_DNV = logits[None] if len(read_DN) == 1 else logits[read_DN, np.arange(len(read_DN))[:, None]]
    return target_log_probabilities(logits_DNV, targets_N)


def target_log_probabilities(logits: Array, targets_N: Int) -> Float:
    """Returns log p of a token in each row, in nats. logits (..., N, V) -> (..., N)"""
    highest = logits.max(-1)
    mass = np.exp(logits - highest[..., None]).sum(-1, dtype=np.float64)
    values: Float = logits[..., np.arange(len(targets_N)), targets_N] - highest - np.log(mass)
    return values


def _exp(nats_D: Float) -> float:
    """Returns the mean perplexity of the directions."""
    return float(np.exp(np.minimum(nats_D, _MAX_NATS)).mean())
