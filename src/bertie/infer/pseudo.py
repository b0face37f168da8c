"""How well a masked language model expects a text: each token is hidden in turn, and the model says what it was.

    the cat sat   ->   [MASK] cat sat, the [MASK] sat, the cat [MASK]   ->   exp(mean of -log p(what stood there))

Salazar et al. 2020, "Masked Language Model Scoring", 2.3. Of models with different vocabularies compare `per_word`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import exp
from typing import NamedTuple

import numpy as np
import torch

from bertie.data.collate import packed
from bertie.data.order import Int
from bertie.errors import DataError, UsageError
from bertie.models.heads import MaskedLMHead
from bertie.models.model import Model
from bertie.text.tokenizer import Tokenizer

TOKENS = 4096  # of one forward pass


@dataclass(frozen=True)
class PseudoPerplexity:
    """The lower, the better expected; 1 is certainty. left_out: texts that did not fit or have no word."""

    per_token: float
    per_word: float
    tokens: int
    words: int
    texts: int
    left_out: int


@torch.inference_mode()
def pseudo_perplexity(
    model: Model, texts: Iterable[str], *, tokenizer: Tokenizer | None = None, max_length: int | None = None
) -> PseudoPerplexity:
    """The pseudo-perplexity of texts, in nats summed over all of them. Each is read as often as it has tokens.

    Texts may be a stream: no more than a batch of them is held. Those longer than max_length, which is the model's own
    when left out, are left out and counted. Raises UsageError: a model without a masked-LM head or a tokenizer;
    DataError: no text fits.
    """
    head, tokenizer = dict(model.heads).get("mlm"), tokenizer or model.tokenizer
    if not isinstance(head, MaskedLMHead) or tokenizer is None:
        raise UsageError("Pseudo-perplexity asks a masked-LM head, and a tokenizer. Use a pre-trained model's folder.")
    longest, was_training, tally = max_length or model.config.max_length, model.training, _Tally()
    model.eval()
    try:
        nats = sum(
            _score(model, head, rows, tokenizer.mask_id) for rows in _batches(tally.rows(texts, tokenizer, longest))
        )
    finally:
        model.train(was_training)
    if not tally.texts:
        raise DataError(
            f"None of the {tally.left_out:,} texts can be scored: they are empty, or longer than {longest:,} tokens."
        )
    per_token, per_word = exp(nats / tally.tokens), exp(nats / tally.words)
    return PseudoPerplexity(per_token, per_word, tally.tokens, tally.words, tally.texts, tally.left_out)


class _Row(NamedTuple):
    """A text with one of its tokens to be hidden."""

    ids: Int
    types: Int
    place: int


@dataclass
class _Tally:
    """What has been read so far."""

    tokens: int = 0
    words: int = 0
    texts: int = 0
    left_out: int = 0

    def rows(self, texts: Iterable[str], tokenizer: Tokenizer, longest: int) -> Iterator[_Row]:
        """Each text as often as it has tokens."""
        special = tokenizer.special_ids
        for text in texts:
            encoding = tokenizer.encode(text)
            places = [i for i, token in enumerate(encoding.ids) if token not in special]
            if not places or len(encoding.ids) > longest:
                self.left_out += 1
                continue
            self.tokens, self.words, self.texts = (
                self.tokens + len(places),
                self.words + len(text.split()),
                self.texts + 1,
            )
            ids, types = np.asarray(encoding.ids, np.int64), np.asarray(encoding.type_ids, np.int64)
            yield from (_Row(ids, types, place) for place in places)


def _batches(rows: Iterable[_Row]) -> Iterator[list[_Row]]:
    """Rows of several texts together, up to TOKENS."""
    batch: list[_Row] = []
    size = 0
    for row in rows:
        if batch and size + len(row.ids) > TOKENS:
            yield batch
            batch, size = [], 0
        batch.append(row)
        size += len(row.ids)
    if batch:
        yield batch


def _score(model: Model, head: MaskedLMHead, rows: list[_Row], mask_id: int) -> float:
    """The summed -log p, in nats, of the rows' hidden tokens."""
    lengths = np.array([len(row.ids) for row in rows])
    places = np.cumsum(lengths) - lengths + [row.place for row in rows]
    ids = np.concatenate([row.ids for row in rows])
    targets = torch.from_numpy(ids[places])
    ids[places] = mask_id
    device = model.word_embeddings.device
    batch = packed(ids, np.concatenate([row.types for row in rows]), lengths, np.arange(len(rows))).to(device)
    hidden = model.encode(batch).last_hidden_state[torch.from_numpy(places).to(device)]
    total, _ = head.loss(hidden, model.word_embeddings, targets.to(device))
    return float(total)
