"""Pseudo-perplexity of a masked language model: each token is masked in turn and predicted.

    the cat sat   ->   [MASK] cat sat, the [MASK] sat, the cat [MASK]   ->   exp(mean of -log p(original token))

Salazar et al. 2020, "Masked Language Model Scoring", 2.3. Compare models with different vocabularies by `per_word`. For
unknown words, the model must predict [UNK], and their characters cost 8 bits per byte, as if they were transmitted
separately. A smaller vocabulary therefore gains nothing.

N masked tokens · V vocabulary
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import exp, log
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bertie.errors import DataError, NoRows, WrongModel
from bertie.infer.engine import Engine, check_max_length
from bertie.metrics.base import Float
from bertie.text.sequences import Int, Sequences
from bertie.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from bertie.models.model import TorchModel

_PASS_TOKENS = 4096  # of one forward pass
LOGITS = 1 << 24  # held at once: 64 MiB, 549 hidden tokens of BERT's vocabulary
BYTE = 8 * log(2)  # nats
_MAX_NATS = 700.0  # nats a word whose exponential a float can hold, and JSON say


@dataclass(frozen=True)
class PseudoPerplexity:
    """Lower is better; 1 means certainty. left_out: texts that are too long or have no word.

    unknown: the number of tokens that are not in the vocabulary, each counted with its bytes. skipped: reason -> rows
    that could not be read.
    """

    per_token: float
    per_word: float
    tokens: int
    words: int
    texts: int
    left_out: int
    unknown: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)


def pseudo_perplexity(
    model: "TorchModel | Engine",
    texts: Iterable[str],
    *,
    tokenizer: Tokenizer | None = None,
    max_length: int | None = None,
) -> PseudoPerplexity:
    """Returns the pseudo-perplexity of texts, in nats summed over all of them. A text is read once per token.

    Texts may be a stream, with only one batch in memory. Those longer than max_length, by default the model's maximum,
    are skipped and counted. Raises UsageError for a model without a masked-LM head or a tokenizer, and for a max_length
    that the model cannot read. Raises DataError when no text fits.
    """
    engine: Engine
    if isinstance(model, Engine):
        engine = model
    else:
        from bertie.infer.torch_engine import TorchEngine

        engine, tokenizer = TorchEngine(model), tokenizer or model.tokenizer
    facts = engine.facts
    if "mlm" not in facts.heads or tokenizer is None:
        raise WrongModel(
            "Pseudo-perplexity needs a masked-LM head and a tokenizer. Use the folder of a pre-trained model."
        )
    check_max_length(max_length, facts.max_length)
    longest, tally = max_length or facts.max_length, _Tally()
    rows = tally.rows(texts, tokenizer, longest)
    nats = -sum(float(scores.sum()) for scores in log_probabilities(engine, rows, tokenizer.mask_id))
    if not tally.texts and not tally.left_out:
        raise NoRows("There is no text to score.")
    if not tally.texts:
        raise DataError(
            f"None of the {tally.left_out:,} texts can be scored: they are empty, or longer than {longest:,} tokens."
        )
    nats += tally.unknown_bytes * BYTE
    return PseudoPerplexity(
        _exp(nats / tally.tokens),
        _exp(nats / tally.words),
        tally.tokens,
        tally.words,
        tally.texts,
        tally.left_out,
        tally.unknown,
    )


class MaskedToken(NamedTuple):
    """A text with the position of the token to mask and predict. also: other positions that are masked."""

    ids: Int
    types: Int
    position: int
    also: tuple[int, ...] = ()


def log_probabilities(engine: Engine, rows: Iterable[MaskedToken], mask_id: int) -> Iterator[Float]:
    """Yields log p of the masked tokens in nats, one array for each batch, in the order of the rows.

    Rows may be a stream: at most TOKENS tokens are in one batch. The engine needs a masked-LM head.
    """
    most = max(1, LOGITS // max(1, engine.facts.heads["mlm"]))
    for batch in _batches(rows, most):
        yield _scores(engine, batch, mask_id)


@dataclass
class _Tally:
    """Counts of what has been read."""

    tokens: int = 0
    words: int = 0
    texts: int = 0
    left_out: int = 0
    unknown: int = 0
    unknown_bytes: int = 0

    def rows(self, texts: Iterable[str], tokenizer: Tokenizer, longest: int) -> Iterator[MaskedToken]:
        """Yields each text once per token."""
        unknown = tokenizer.special_id("unk")
        special = tokenizer.special_ids - {unknown}
        for text in texts:
            encoding = tokenizer.encode(text)
            positions = [i for i, token in enumerate(encoding.ids) if token not in special]
            if not positions or len(encoding.ids) > longest:
                self.left_out += 1
                continue
            for position in positions:
                if encoding.ids[position] == unknown:
                    self.unknown += 1
                    self.unknown_bytes += len(text[slice(*encoding.offsets[position])].encode("utf-8", "replace"))
            self.tokens += len(positions)
            self.words += len(text.split())
            self.texts += 1
            ids, types = np.asarray(encoding.ids, np.int64), np.asarray(encoding.type_ids, np.int64)
            yield from (MaskedToken(ids, types, position) for position in positions)


def _batches(rows: Iterable[MaskedToken], most: int) -> Iterator[list[MaskedToken]]:
    """Yields groups of rows of several texts, up to TOKENS tokens and `most` rows."""
    batch: list[MaskedToken] = []
    size = 0
    for row in rows:
        if batch and (size + len(row.ids) > _PASS_TOKENS or len(batch) == most):
            yield batch
            batch, size = [], 0
        batch.append(row)
        size += len(row.ids)
    if batch:
        yield batch


def _scores(engine: Engine, rows: list[MaskedToken], mask_id: int) -> Float:
    """Returns log p of the masked tokens (N,)."""
    lengths = np.array([len(row.ids) for row in rows])
    starts = np.cumsum(lengths) - lengths
    positions = starts + [row.position for row in rows]
    ids = np.concatenate([row.ids for row in rows])
    targets_N = ids[positions]
    ids[positions] = mask_id
    ids[[start + place for start, row in zip(starts, rows, strict=True) for place in row.also]] = mask_id
    batch = Sequences(ids, np.concatenate([row.types for row in rows]), lengths, positions)
    logits_NV = engine.run(batch, ("mlm",))["mlm"]
    highest_N = logits_NV.max(-1)
    mass_N = np.exp(logits_NV - highest_N[:, None]).sum(-1, dtype=np.float64)
    values: Float = logits_NV[np.arange(len(rows)), targets_N] - highest_N - np.log(mass_N)
    return values


def _exp(nats: float) -> float:
    return exp(min(nats, _MAX_NATS))
