"""Mask filling: the predictions of a masked or a permuted language model for the masks of a text.

N masks · V vocabulary
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple, Self

import numpy as np

from bertie.errors import DataError, WrongModel
from bertie.infer.batching import chunks_of_tokens, run_batches
from bertie.infer.engine import Array, Engine, Facts
from bertie.tasks.answerer import softmax
from bertie.text.encoding import Encoding
from bertie.text.sequences import Sequences
from bertie.text.tokenizer import Tokenizer

GROUP_TOKENS = 512  # tokens read at once: bounds the memory of the logits, which have V numbers per mask


@dataclass(frozen=True)
class MaskPrediction:
    """One prediction for a mask: the token, its probability, and the text with the token instead of the mask."""

    token: str
    probability: float
    text: str


def fill(engine: Engine, tokenizer: Tokenizer, text: str, *, top: int, max_length: int) -> list[list[MaskPrediction]]:
    """Returns the most probable tokens for each mask in `text`, best first. Other masks remain masks.

    Raises:
        DataError: The text has no mask, or is too long.
        UsageError: The model has no masked-LM head.
    """
    if (head := mask_head(engine.facts)) is None:
        raise WrongModel("This model has no masked-LM head. Use the folder of a pre-trained masked language model.")
    masked = Masked.of(tokenizer, text, max_length=max_length)
    return masked.proposals(run_batches(engine, masked.ids, (head,))[head], tokenizer, top=top)


def mask_head(facts: Facts) -> str | None:
    """Returns the head that predicts a hidden token from all others, of a masked or a permuted LM; None without one."""
    return next((head for head in ("mlm", "plm") if head in facts.heads), None)


@dataclass(frozen=True)
class Masked:
    """A text with masks. ids: what the model reads, asked at the masks; spots: their characters in the text."""

    text: str
    ids: Sequences
    spots: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, tokenizer: Tokenizer, text: str, *, max_length: int) -> Self:
        """Raises DataError when the text has no mask or does not fit."""
        mask = tokenizer.special_tokens["mask"]
        encoding = join_letters_after_masks(tokenizer, tokenizer.encode(text), [text])
        if len(encoding) > max_length:
            raise DataError(
                f"The text has {len(encoding):,} tokens, more than the maximum of {max_length:,}. "
                f"Pass only the part around {mask}."
            )
        spots = tuple(spot for i, spot in zip(encoding.ids, encoding.offsets, strict=True) if i == tokenizer.mask_id)
        if not spots:
            raise DataError(
                f"The text has no {mask}. Write {mask} where a token should be predicted: 'The {mask} sat.'"
            )
        ids, types = (np.array(each, np.int64) for each in (encoding.ids, encoding.type_ids))
        return cls(text, Sequences(ids, types, np.array([len(ids)]), np.flatnonzero(ids == tokenizer.mask_id)), spots)

    @staticmethod
    def groups(texts: "Sequence[Masked]") -> "Iterator[list[Masked]]":
        """Yields the texts in order, in groups that are read at once."""
        return group_texts(texts)

    def proposals(self, logits_NV: Array, tokenizer: Tokenizer, *, top: int) -> list[list[MaskPrediction]]:
        """The most probable tokens for each mask, best first."""
        probability_NV = softmax(logits_NV)
        best_NK = np.argsort(-probability_NV, axis=-1, kind="stable")[:, :top]
        return [
            [_filled(tokenizer, self.text, spot, i, float(row[i])) for i in best.tolist()]
            for spot, row, best in zip(self.spots, probability_NV, best_NK, strict=True)
        ]


def join_letters_after_masks(tokenizer: Tokenizer, encoding: Encoding, texts: Sequence[str]) -> Encoding:
    """Returns an encoding of texts in which letters right after a mask continue its word: [MASK]이다 is [MASK], ##이다.

    A tokenizer alone begins a new word there, which never follows a word without a space in the text that was read in
    pre-training. Particles and endings of Korean are written so. Each continuing token has the offsets of all of them.
    """
    columns = (encoding.ids, encoding.type_ids, encoding.tokens, encoding.offsets, encoding.word_ids)
    rows = [_Token(*row) for row in zip(*columns, encoding.sequence_ids, strict=True)]
    pieces, at = list[_Token](), 0
    while at < len(rows):
        mask = rows[at]
        pieces.append(mask)
        at += 1
        end, text = mask.offsets[1], texts[mask.sequence or 0]
        if mask.id != tokenizer.mask_id or not text[end : end + 1].isalnum():
            continue
        after = [*next(groupby(rows[at:], lambda row: row.word))[1]]  # the tokens of the word that begins here
        ids = [row.id for row in after]
        if after[0].word is None or tokenizer.unk_id in ids:  # None: the text was truncated after the mask
            continue
        if more := tokenizer.continuation("".join(map(tokenizer.written, ids))):
            span = (after[0].offsets[0], after[-1].offsets[1])
            pieces += [after[0]._replace(id=i, token=tokenizer.id_to_token(i), offsets=span) for i in more]
            at += len(after)
    return Encoding(
        ids=[row.id for row in pieces],
        type_ids=[row.type_id for row in pieces],
        tokens=[row.token for row in pieces],
        offsets=[row.offsets for row in pieces],
        word_ids=[row.word for row in pieces],
        sequence_ids=[row.sequence for row in pieces],
        overflow=encoding.overflow,
    )


class _Token(NamedTuple):
    """A row of an `Encoding`."""

    id: int
    type_id: int
    token: str
    offsets: tuple[int, int]
    word: int | None
    sequence: int | None


def group_texts(texts: Sequence[Masked]) -> Iterator[list[Masked]]:
    """Yields the texts in order, in groups that are read at once."""
    return chunks_of_tokens(texts, GROUP_TOKENS, lambda one: len(one.ids.input_ids))


def _filled(
    tokenizer: Tokenizer, text: str, spot: tuple[int, int], token_id: int, probability: float
) -> MaskPrediction:
    token = tokenizer.id_to_token(token_id)
    before, masked, after = text[: spot[0]], text[slice(*spot)], text[spot[1] :]
    written = tokenizer.written(token_id)
    if tokenizer.continues_word(token_id):
        return MaskPrediction(token, probability, before.rstrip() + written + after)
    space = masked[: len(masked) - len(masked.lstrip())]  # a mask may have taken the space before it
    return MaskPrediction(token, probability, before + space + written + after)
