"""How well a masked language model expects a text: each token is hidden in turn, and the model says what it was.

    the cat sat   ->   [MASK] cat sat, the [MASK] sat, the cat [MASK]   ->   exp(mean of -log p(what stood there))

Salazar et al. 2020, "Masked Language Model Scoring", 2.3. Of models with different vocabularies compare `per_word`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import exp

import numpy as np
import torch

from bertie.data.collate import packed
from bertie.data.order import Int
from bertie.errors import DataError, UsageError
from bertie.models.heads import MaskedLMHead
from bertie.models.model import Model
from bertie.text.encoding import Encoding
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
    """The pseudo-perplexity of texts, in nats summed over all of them. Costs a forward pass per token.

    Texts longer than max_length, which is the model's own when left out, are left out and counted. Raises UsageError:
    a model without a masked-LM head or a tokenizer; DataError: no text fits.
    """
    head, tokenizer = dict(model.heads).get("mlm"), tokenizer or model.tokenizer
    if not isinstance(head, MaskedLMHead) or tokenizer is None:
        raise UsageError("Pseudo-perplexity asks a masked-LM head, and a tokenizer. Use a pre-trained model's folder.")
    longest, was_training = max_length or model.config.max_length, model.training
    device = model.word_embeddings.device
    nats, tokens, words, kept, left_out = 0.0, 0, 0, 0, 0
    model.eval()
    for text in texts:
        encoding = tokenizer.encode(text)
        places = np.array([i for i, token in enumerate(encoding.ids) if token not in tokenizer.special_ids], np.int64)
        if not len(places) or len(encoding.ids) > longest:
            left_out += 1
            continue
        for some in _chunks(places, max(1, TOKENS // len(encoding.ids))):
            nats += _score(model, head, encoding, some, tokenizer.mask_id, device)
        tokens, words, kept = tokens + len(places), words + len(text.split()), kept + 1
    model.train(was_training)
    if not kept:
        raise DataError(
            f"None of the {left_out:,} texts can be scored: they are empty, or longer than {longest:,} tokens."
        )
    return PseudoPerplexity(exp(nats / tokens), exp(nats / words), tokens, words, kept, left_out)


def _chunks(places: Int, size: int) -> Iterator[Int]:
    return (places[i : i + size] for i in range(0, len(places), size))


def _score(
    model: Model, head: MaskedLMHead, encoding: Encoding, places: Int, mask_id: int, device: torch.device
) -> float:
    """The summed -log p, in nats, of the tokens at some places of a text, each hidden by itself."""
    copies, length = len(places), len(encoding.ids)
    ids = np.tile(np.asarray(encoding.ids, np.int64), (copies, 1))
    targets = torch.from_numpy(ids[0, places]).to(device)
    ids[np.arange(copies), places] = mask_id
    types = np.tile(np.asarray(encoding.type_ids, np.int64), copies)
    batch = packed(ids.ravel(), types, np.full(copies, length), np.arange(copies)).to(device)
    hidden = model.encode(batch).last_hidden_state[torch.from_numpy(np.arange(copies) * length + places).to(device)]
    total, _ = head.loss(hidden, model.word_embeddings, targets)
    return float(total)
