"""Which tokens are predicted, and what the model sees in their place. Pure numpy; randomness is passed in.

B sequences · T real tokens of the batch · S longest sequence · V vocabulary · N chosen tokens · R allowed random ids
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bertie.data.draws import Draws, unit
from bertie.errors import DataError
from bertie.registry import Registry

if TYPE_CHECKING:
    from bertie.text.tokenizer import Tokenizer

Int = NDArray[np.int64]
Bool = NDArray[np.bool_]

NEVER = np.uint64(2**64 - 1)  # the score of a token that must not be chosen: the highest there is

# Streams of draws used here; a later way of masking takes the next free number.
CHOICE, REPLACEMENT, RANDOM_ID = 0, 1, 2


@dataclass(frozen=True)
class Vocabulary:
    """What masking must know of a tokenizer. special, unused, continues (V,): [CLS] and the like; rows no text uses,
    "[unused17]"; pieces that continue a word, "##ing". -1: there is no such token."""

    cls_id: int
    sep_id: int
    pad_id: int
    mask_id: int
    unk_id: int
    special: Bool
    unused: Bool
    continues: Bool

    @classmethod
    def of(cls, tokenizer: "Tokenizer") -> "Vocabulary":
        """The facts of a tokenizer."""
        size = tokenizer.vocab_size
        found = {role: tokenizer.special_id(role) for role in ("cls", "sep", "pad", "mask", "unk")}
        ids = {role: -1 if i is None else i for role, i in found.items()}
        return cls(
            ids["cls"],
            ids["sep"],
            ids["pad"],
            ids["mask"],
            ids["unk"],
            np.isin(np.arange(size), list(tokenizer.special_ids)),
            np.isin(np.arange(size), list(tokenizer.unused_ids)),
            np.asarray(tokenizer.continues_word(np.arange(size)), bool),
        )

    @cached_property
    def random_ids(self) -> Int:
        """(R,) ids that may stand in for a masked token: no special token, no unused row."""
        ids = np.flatnonzero(~(self.special | self.unused))
        if not len(ids):
            raise DataError("The vocabulary has nothing but special tokens. Train the tokenizer on a larger corpus.")
        return ids

    @cached_property
    def structure(self) -> Bool:
        """(V,) tokens that are never predicted: the special ones, save [UNK], which is text like any other."""
        structure = self.special.copy()
        if self.unk_id >= 0:
            structure[self.unk_id] = False
        return structure


@dataclass(frozen=True)
class Ragged:
    """A batch's token ids, (T,) end to end, and lengths (B,), with what follows from them."""

    ids: Int
    lengths: Int

    @cached_property
    def rows(self) -> Int:
        """(T,) which sequence each token is in."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    @cached_property
    def columns(self) -> Int:
        """(T,) which place of its sequence each token has."""
        return np.arange(len(self.ids)) - np.repeat(np.cumsum(self.lengths) - self.lengths, self.lengths)

    def rectangle(self, values: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """(T,) scores -> (B, S), NEVER where a sequence has ended."""
        filled = np.full((len(self.lengths), int(self.lengths.max())), NEVER)
        filled[self.rows, self.columns] = values
        return filled


Choose = Callable[[Ragged, Int, Vocabulary, Draws], Int]
"""(batch, how many per sequence (B,), vocabulary, draws) -> token numbers (N,) in [0, T), ascending."""


def choose_tokens(batch: Ragged, wanted_B: Int, vocabulary: Vocabulary, rng: Draws) -> Int:
    """Each token by itself: the `wanted` lowest of random scores are chosen. Devlin et al. 2018, 3.1."""
    scores_T = rng.bits_at(CHOICE, batch.rows, batch.columns)
    allowed_T = ~vocabulary.structure[batch.ids]
    scores_T = np.where(allowed_T, scores_T, NEVER)
    ranked_BS = np.sort(batch.rectangle(scores_T), axis=1)
    bar_B = ranked_BS[np.arange(len(wanted_B)), np.maximum(wanted_B, 1) - 1]
    return np.flatnonzero((scores_T <= bar_B[batch.rows]) & allowed_T & (wanted_B > 0)[batch.rows])


def choose_words(batch: Ragged, wanted_B: Int, vocabulary: Vocabulary, rng: Draws) -> Int:
    """Whole words, in random order; a word that would pass the wanted count is skipped (the release's later models)."""
    allowed_T = ~vocabulary.structure[batch.ids]
    follows_T = vocabulary.continues[batch.ids] & allowed_T & np.concatenate([[False], allowed_T[:-1]])
    heads_W = np.flatnonzero(allowed_T & ~follows_T)  # the first token of each of W words
    word_T = np.cumsum(allowed_T & ~follows_T) - 1
    sizes_W = np.bincount(word_T[allowed_T], minlength=len(heads_W))
    rows_W = batch.rows[heads_W]
    order_W = np.lexsort((rng.bits_at(CHOICE, rows_W, batch.columns[heads_W]), rows_W))

    words_B = np.bincount(rows_W, minlength=len(wanted_B))
    first_B = np.cumsum(words_B) - words_B
    taken_W = np.zeros(len(heads_W), bool)
    room_B = wanted_B.copy()
    for turn in range(int(words_B.max(initial=0))):  # each sequence's next word in its random order, all at once
        rows = np.flatnonzero((room_B > 0) & (turn < words_B))
        if not len(rows):
            break
        words = order_W[first_B[rows] + turn]
        fits = sizes_W[words] <= room_B[rows]
        taken_W[words[fits]] = True
        room_B[rows[fits]] -= sizes_W[words[fits]]
    tokens = np.flatnonzero(allowed_T)
    chosen: Int = tokens[taken_W[word_T[tokens]]]
    return chosen


MASKINGS: Registry[Choose] = Registry("masking", [("token", choose_tokens), ("whole_word", choose_words)])


def wanted(lengths_B: Int, candidates_B: Int, *, rate: float, most: int | None) -> Int:
    """How many tokens of each sequence are predicted: min(most, max(1, round(length * rate))), if it has as many.

    The length counts special tokens, and round is to the even of two neighbours, as in create_masked_lm_predictions.
    """
    counts: Int = np.minimum(np.maximum(1, np.rint(lengths_B * rate).astype(np.int64)), candidates_B)
    return counts if most is None else counts.clip(max=most)


def replacements(
    batch: Ragged, chosen_N: Int, vocabulary: Vocabulary, rng: Draws, *, replace: tuple[float, float, float]
) -> Int:
    """What stands at the chosen places: [MASK], a random token or the token itself, in the shares of `replace`."""
    if vocabulary.mask_id < 0:
        raise DataError("The tokenizer has no mask token, so words cannot be masked. Use one of BERT's kin.")
    rows, columns = batch.rows[chosen_N], batch.columns[chosen_N]
    draw = unit(rng.bits_at(REPLACEMENT, rows, columns))
    random_ids = vocabulary.random_ids
    which = (unit(rng.bits_at(RANDOM_ID, rows, columns)) * len(random_ids)).astype(np.int64)
    masked, randomised, _ = replace
    kept_or_random = np.where(draw < masked + randomised, random_ids[which], batch.ids[chosen_N])
    return np.where(draw < masked, vocabulary.mask_id, kept_or_random)
