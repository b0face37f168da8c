"""The choice of predicted tokens, and their replacements. Pure numpy; random numbers are arguments.

A mask rate can change during a run, as a function of the number of sequences read before. Sequences, not steps, so that
a rate does not depend on the batch size, also in phases.

B sequences · T real tokens of the batch · S longest sequence · V vocabulary · N chosen tokens · R allowed random ids
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from inspect import signature
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bertie.errors import DataError, UnknownName, UsageError, WrongValue, nearest
from bertie.order import Draws, unit_floats
from bertie.registry import Registry
from bertie.text.sequences import Sequences

if TYPE_CHECKING:
    from bertie.text.tokenizer import Tokenizer


_FORMS = ("linear", "steps")
Rates = float | Mapping[str, Mapping[int | str, float]]
"""A rate in a config: 0.15, {"linear": {0: 0.3, 2560000: 0.15}}, {"steps": {0: 0.3, 2560000: 0.15}}."""


@dataclass(frozen=True)
class RateCurve:
    """Rates at some numbers of sequences; between them linear, or as the previous one. Constant outside."""

    points: tuple[tuple[int, float], ...]
    form: str = "steps"

    def at(self, sequences: ArrayLike) -> NDArray[np.float64]:
        """Returns the rate of sequence number n of a run. (B,) -> (B,)"""
        where, rates = (np.array(column, np.float64) for column in zip(*self.points, strict=True))
        sequences = np.asarray(sequences, np.float64)
        if self.form == "linear":
            on_line: NDArray[np.float64] = np.interp(sequences, where, rates)
            return on_line
        reached: NDArray[np.float64] = rates[np.maximum(np.searchsorted(where, sequences, side="right") - 1, 0)]
        return reached


def rate_of(value: Rates, name: str) -> RateCurve:
    """Returns a rate from a config. Raises UsageError, with `name`, for a rate out of range, an unknown form or
    decreasing numbers."""
    if not isinstance(value, Mapping):
        form, points = "steps", {0: value}
    elif len(value) == 1 and isinstance(next(iter(value.values())), Mapping):
        form, points = next(iter(value.items()))  # type: ignore[assignment]
    else:
        raise WrongValue(
            f"{name} is {value!r}; it must be a number between 0 and 1, or one of "
            "{linear: {0: 0.3, 2560000: 0.15}}, steps."
        )
    if form not in _FORMS:
        raise UnknownName(f"Unknown kind {form!r} of {name}. {nearest(str(form), _FORMS)}")
    try:
        rate = RateCurve(tuple((int(at), float(share)) for at, share in points.items()), form)
    except (TypeError, ValueError):
        raise UsageError(f"{name} is {value!r}; it must map numbers of sequences to rates.") from None
    starts = [at for at, _ in rate.points]
    if not starts or min(starts) < 0 or sorted(set(starts)) != starts:
        raise UsageError(f"{name} has the numbers of sequences {starts}; they must be increasing and 0 or more.")
    for _, share in rate.points:
        if not 0 < share < 1:
            raise WrongValue(f"{name} is {share}; it must be between 0 and 1.")
    return rate


Int = NDArray[np.int64]
Bool = NDArray[np.bool_]

NEVER_CHOSEN = np.uint64(2**64 - 1)  # the score of a token that must not be chosen: the highest there is

# Streams of draws used here; what comes later takes the next free number (4: objectives/rtd.py, 5 and 6: span.py,
# 7: plm.py, 8 and 9: captions.py, 10: frames.py).
CHOICE, REPLACEMENT, RANDOM_ID, RUN_LENGTH = 0, 1, 2, 3


@dataclass(frozen=True)
class Vocabulary:
    """The properties of a tokenizer that masking needs.

    special, unused, continues (V,): special tokens; unused tokens, "[unused17]"; tokens that continue a word, "##ing".
    ends (V,): tokens that end a word, "ing</w>", in vocabularies that mark ends instead. sentinels (K,): sentinel
    tokens of span corruption. -1: there is no such token.
    """

    cls_id: int
    sep_id: int
    pad_id: int
    mask_id: int
    unk_id: int
    special: Bool
    unused: Bool
    continues: Bool
    ends: Bool | None = None
    sentinels: Int = field(default_factory=lambda: np.zeros(0, np.int64))

    @classmethod
    def of(cls, tokenizer: "Tokenizer") -> "Vocabulary":
        """Returns the properties of a tokenizer."""
        size = tokenizer.vocab_size
        roles = {role: tokenizer.special_id(role) for role in ("cls", "sep", "pad", "mask", "unk")}
        ids = {role: -1 if i is None else i for role, i in roles.items()}
        return cls(
            ids["cls"],
            ids["sep"],
            ids["pad"],
            ids["mask"],
            ids["unk"],
            np.isin(np.arange(size), list(tokenizer.special_ids)),
            np.isin(np.arange(size), list(tokenizer.unused_ids)),
            np.asarray(tokenizer.continues_word(np.arange(size)), bool),
            tokenizer.ends_word,
            np.array(tokenizer.sentinel_ids, np.int64),
        )

    @cached_property
    def random_ids(self) -> Int:
        """Sequences (R,) that may replace a masked token: no special and no unused tokens."""
        ids = np.flatnonzero(~(self.special | self.unused))
        if not len(ids):
            raise DataError("The vocabulary has only special tokens. Train the tokenizer on a larger corpus.")
        return ids

    @cached_property
    def structure(self) -> Bool:
        """Tokens (V,) that are never predicted: the special tokens except [UNK], which is part of the text."""
        structure = self.special.copy()
        if self.unk_id >= 0:
            structure[self.unk_id] = False
        return structure


@dataclass(frozen=True)
class Masking:
    """The random choice. unit: what is masked as a whole; lengths: the probabilities of n-grams of 1, 2 ... units.

    together: whether one draw decides for a whole n-gram if it is masked, random or kept, instead of one per token.
    """

    unit: Literal["token", "word"] = "token"
    lengths: tuple[float, ...] = (1.0,)
    together: bool = False


def ngram(longest: int = 3) -> Masking:
    """N-grams of whole words with p(n) in proportion to 1 / n. Lan et al. 2019, 4.2."""
    weights = 1 / np.arange(1, longest + 1)
    return Masking("word", tuple(weights / weights.sum()))


def span(p: float = 0.2, longest: int = 10) -> Masking:
    """Spans of n whole words, p(n) = p (1 - p)^(n - 1), up to `longest`: 3.8 words on average. Joshi et al. 2020, 3.1.

    Lengths above the maximum are drawn again. A whole span is masked, random or kept.
    """
    weights = p * (1 - p) ** np.arange(longest)
    return Masking("word", tuple(weights / weights.sum()), together=True)


MASKINGS: Registry[Callable[..., Masking]] = Registry(
    "masking",
    [("token", lambda: Masking()), ("whole_word", lambda: Masking("word")), ("ngram", ngram), ("span", span)],
)


def masking_of(value: str | Mapping[str, Mapping[str, object] | None]) -> Masking:
    """Returns a masking by name, or by name with its options: "span", {"span": {"longest": 5}}.

    Raises UsageError for an unknown name or option, or a value out of range.
    """
    if not isinstance(value, str) and len(value) != 1:
        raise WrongValue(f"mlm.masking is {value!r}; it must be one name, or one name with options.")
    name, options = (value, {}) if isinstance(value, str) else next((k, v or {}) for k, v in value.items())
    make = MASKINGS[name]
    for option in options:
        if option not in (known := list(signature(make).parameters)):
            raise UnknownName(f"Masking {name} has no option {option!r}. {nearest(option, known)}")
    longest, p = options.get("longest", 1), options.get("p", 0.5)
    if type(longest) is not int or not 1 <= longest <= 100 or type(p) is not float or not 0 < p < 1:
        raise WrongValue(
            f"mlm.masking is {value!r}; longest must be a whole number from 1 to 100, and p must be between 0 and 1."
        )
    return make(**options)


def choose_tokens(
    masking: Masking, batch: Sequences, count_B: Int, vocabulary: Vocabulary, rng: Draws
) -> tuple[Int, Int]:
    """Chooses up to count_B (B,) tokens of each sequence: (token numbers (N,) in [0, T), ascending; heads (N,)).

    heads: for each chosen token the one whose draw decides its replacement: itself, or the first of its span.
    """
    if masking.unit == "token" and len(masking.lengths) == 1:
        chosen = _choose_tokens(batch, count_B, vocabulary, rng)
        return chosen, chosen
    chosen, heads = _choose_runs(masking, batch, count_B, vocabulary, rng)
    return chosen, heads if masking.together else chosen


def _choose_tokens(batch: Sequences, count_B: Int, vocabulary: Vocabulary, rng: Draws) -> Int:
    """Chooses single tokens: the lowest of random scores. Devlin et al. 2018, 3.1."""
    scores_T = rng.bits_at(CHOICE, batch.sequence, batch.column)
    allowed_T = ~vocabulary.structure[batch.input_ids]
    scores_T = np.where(allowed_T, scores_T, NEVER_CHOSEN)
    ranked_BS = np.sort(_rectangle(batch, scores_T), axis=1)
    bar_B = ranked_BS[np.arange(len(count_B)), np.maximum(count_B, 1) - 1]
    return np.flatnonzero((scores_T <= bar_B[batch.sequence]) & allowed_T & (count_B > 0)[batch.sequence])


def _rectangle(batch: Sequences, scores_T: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """(T,) scores -> (B, S), NEVER where a sequence has ended."""
    scores_BS = np.full((len(batch), int(batch.lengths.max())), NEVER_CHOSEN)
    scores_BS[batch.sequence, batch.column] = scores_T
    return scores_BS


def _choose_runs(
    masking: Masking, batch: Sequences, count_B: Int, vocabulary: Vocabulary, rng: Draws
) -> tuple[Int, Int]:
    """Chooses n-grams of units, their starts in random order. -> (token numbers (N,), the first token of each n-gram
    (N,))

    An n-gram ends early at the end of its text, at chosen tokens, and before the count is exceeded. A unit that
    would exceed it is skipped (as in BERT's later models, and in ALBERT's).
    """
    allowed_T = ~vocabulary.structure[batch.input_ids]
    follows_T = _goes_on(batch, vocabulary) if masking.unit == "word" else np.zeros_like(allowed_T)
    heads_U = np.flatnonzero(allowed_T & ~follows_T)  # the first token of each of U units
    unit_T = np.cumsum(allowed_T & ~follows_T) - 1
    rows_U, columns_U = batch.sequence[heads_U], batch.column[heads_U]
    order_U = np.lexsort((rng.bits_at(CHOICE, rows_U, columns_U), rows_U))
    ends = np.cumsum(masking.lengths)[:-1]
    lengths_U = 1 + np.searchsorted(ends, unit_floats(rng.bits_at(RUN_LENGTH, rows_U, columns_U)), side="right")
    sizes_U = np.bincount(unit_T[allowed_T], minlength=len(heads_U) + 1)  # and one more unit, which is never free
    linked_U = np.append((columns_U > 0) & allowed_T[heads_U - 1], False)  # to the unit before

    units_B = np.bincount(rows_U, minlength=len(count_B))
    first_B = np.cumsum(units_B) - units_B
    run_U = np.append(np.full(len(heads_U), -1), 0)  # the unit at which the chosen run of each began; -1: free
    room_B = count_B.copy()
    for turn in range(int(units_B.max(initial=0))):  # each sequence's next start in its random order, all at once
        rows = np.flatnonzero((room_B > 0) & (turn < units_B))
        if not len(rows):
            break
        starts = order_U[first_B[rows] + turn]
        for further in range(len(masking.lengths)):
            units = starts + further
            fits = (further < lengths_U[starts]) & (run_U[units] < 0) & (sizes_U[units] <= room_B[rows])
            fits &= linked_U[units] | (further == 0)
            rows, starts, units = rows[fits], starts[fits], units[fits]
            run_U[units] = starts
            room_B[rows] -= sizes_U[units]
            if not len(rows):
                break
    tokens = np.flatnonzero(allowed_T)
    tokens = tokens[run_U[unit_T[tokens]] >= 0]
    return tokens, heads_U[run_U[unit_T[tokens]]]


def _goes_on(batch: Sequences, vocabulary: Vocabulary) -> Bool:
    """Returns which tokens (T,) continue the word of the previous one."""
    allowed_T = ~vocabulary.structure[batch.input_ids]
    continues_T = vocabulary.continues[batch.input_ids]
    if vocabulary.ends is not None:
        continues_T = np.concatenate([[False], ~vocabulary.ends[batch.input_ids[:-1]]])
    goes_on: Bool = continues_T & allowed_T & np.concatenate([[False], allowed_T[:-1]]) & (batch.column > 0)
    return goes_on


def prediction_counts(lengths_B: Int, candidates_B: Int, *, rate: float | NDArray[np.float64], most: int | None) -> Int:
    """Returns the number of predicted tokens per sequence: min(most, max(1, round(length * rate))), if it has as many.

    The length includes special tokens, and halves are rounded to even, as in create_masked_lm_predictions.
    """
    counts: Int = np.minimum(np.maximum(1, np.rint(lengths_B * rate).astype(np.int64)), candidates_B)
    return counts if most is None else counts.clip(max=most)


def replacements(
    batch: Sequences,
    chosen_N: Int,
    heads_N: Int,
    vocabulary: Vocabulary,
    rng: Draws,
    *,
    replace: tuple[float, float, float],
) -> Int:
    """Returns the replacements at the chosen positions: [MASK], a random token or the token itself, as in `replace`.

    heads_N: the token whose draw decides which of the three; a random token is drawn for each.
    """
    if vocabulary.mask_id < 0:
        raise DataError(
            "The tokenizer has no mask token, so tokens cannot be masked. Choose a tokenizer with a mask "
            "token (bertie tokenizer train CORPUS --for bert -o FOLDER), or another objective (ltr, span)."
        )
    draw = unit_floats(rng.bits_at(REPLACEMENT, batch.sequence[heads_N], batch.column[heads_N]))
    random_ids = vocabulary.random_ids
    at_random = unit_floats(rng.bits_at(RANDOM_ID, batch.sequence[chosen_N], batch.column[chosen_N]))
    which = (at_random * len(random_ids)).astype(np.int64)
    masked, randomised, _ = replace
    kept_or_random = np.where(draw < masked + randomised, random_ids[which], batch.input_ids[chosen_N])
    return np.where(draw < masked, vocabulary.mask_id, kept_or_random)
