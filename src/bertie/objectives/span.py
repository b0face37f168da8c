"""Span corruption: spans of the text are removed, and a decoder generates them. Raffel et al. 2020, 3.1.4.

    thank you for inviting me to your party last week
    encoder input   thank you <0> me to your party <1> week </s>
    decoder output  <0> for inviting <1> last </s>

The sentinels <0>, <1> ... are the tokens <extra_id_0> ... of T5's vocabularies, or the [unused] tokens of others.

Labels in a batch, whose input_ids become the encoder input: span_targets (Q,) int64, the decoder output of all
sequences, concatenated; span_lengths (B,) int64, its length per sequence; span_sentinels (Q,) bool.

B sequences · T real tokens before corruption · Q tokens of the decoder output · S most spans of a sequence
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import nn

from bertie.data.masking import NEVER_CHOSEN, Bool, Int, Vocabulary
from bertie.errors import DataError, UsageError, WrongValue
from bertie.models.batch import Batch
from bertie.models.config import EncoderConfig
from bertie.models.heads import HEADS
from bertie.models.seq2seq import Seq2Seq
from bertie.objectives.base import LossReport, LossTerm, Objective
from bertie.order import Draws
from bertie.text.sequences import Sequences

if TYPE_CHECKING:
    from bertie.models.encoder import EncoderOutput
    from bertie.models.model import TorchModel

NO_DECODER = "span needs a model with a decoder: model=t5-small."
NOISE, KEPT = 5, 6  # streams of draws (data/masking.py lists them)


@dataclass(frozen=True)
class SpanCorruption(Objective):
    """Generates the removed spans. Raises UsageError for a rate or a mean length out of range."""

    name: ClassVar[str] = "span"
    on_tokens: ClassVar[bool] = True

    rate: float = 0.15
    """Fraction of a sequence's text tokens that are removed. Source: Raffel et al. 2020, 3.3.4."""
    mean_length: float = 3.0
    """Mean number of tokens of a span. Source: Raffel et al. 2020, 3.3.4."""

    def __post_init__(self) -> None:
        if not 0 < self.rate < 1:
            raise WrongValue(f"span.rate is {self.rate}; it must be between 0 and 1.")
        if not self.mean_length >= 1:
            raise WrongValue(f"span.mean_length is {self.mean_length}; it must be 1 or more.")

    def heads(self, config: EncoderConfig) -> dict[str, nn.Module]:
        """Returns a decoder and its next-token head. Raises UsageError for a model without a decoder."""
        if config.num_decoder_layers is None:
            raise UsageError(NO_DECODER)
        return {"decoder": HEADS["decoder"](config), "lm": HEADS["lm"](config)}

    def corrupt(self, batch: Sequences, rng: Draws, vocabulary: Vocabulary) -> Sequences:
        """Replaces spans of the text by sentinels."""
        _, tokens = batch.without_vectors()
        text_T = ~vocabulary.structure[tokens.input_ids]
        noise_T = np.zeros(len(text_T), bool)
        lengths_B = np.bincount(tokens.sequence[text_T], minlength=len(batch))
        noise_T[text_T] = noise_mask(lengths_B, rng, rate=self.rate, mean_length=self.mean_length)
        starts_T = noise_T & ~(np.append(False, noise_T[:-1]) & (tokens.column > 0))
        before_B = np.append(0, np.cumsum(np.bincount(tokens.sequence[starts_T], minlength=len(batch))))[:-1]
        number_T = np.cumsum(starts_T) - 1 - before_B[tokens.sequence]  # of each span in its sequence
        if number_T.max(initial=0, where=starts_T) >= len(vocabulary.sentinels):
            raise DataError(
                f"A sequence has {number_T.max(where=starts_T, initial=0) + 1} spans, but the vocabulary has "
                f"{len(vocabulary.sentinels)} sentinel tokens. Train a tokenizer with sentinels: bertie "
                "tokenizer train CORPUS --for t5 -o FOLDER (or --unused 100)."
            )
        sentinel_T = vocabulary.sentinels[np.where(starts_T, number_T, 0)]

        read_T = ~noise_T | starts_T
        shown = np.where(starts_T, sentinel_T, tokens.input_ids)[read_T]
        read_B = np.bincount(tokens.sequence[read_T], minlength=len(batch))
        last_T = np.append(tokens.column[1:] == 0, True) & ~text_T  # the end of a text is the end of what is written
        written, is_sentinel, rows = _written(tokens.input_ids, sentinel_T, starts_T, noise_T | last_T, tokens.sequence)
        corrupted = Sequences(shown, tokens.token_type_ids[read_T], read_B, sample_ids=batch.sample_ids)
        written_B = np.bincount(rows, minlength=len(batch))
        return replace(corrupted, labels=batch.labels).with_labels(
            span_targets=written, span_lengths=written_B, span_sentinels=is_sentinel
        )

    def counts(self, batch: Batch) -> dict[str, int]:
        """Returns the number of tokens of the decoder output, Q."""
        return {"span": len(batch.labels["span_targets"])}

    def answers(self, batch: Sequences) -> dict[int, list[int]]:
        """Returns the removed tokens of each sentinel."""
        answers = dict[int, list[int]]()
        ends = np.cumsum(batch.labels["span_lengths"])[:-1]
        parts = (np.split(batch.labels[f"span_{name}"], ends) for name in ("targets", "sentinels"))
        for start, stop, targets, sentinels in zip(batch.starts[:-1], batch.starts[1:], *parts, strict=True):
            place_of = dict(zip(batch.input_ids[start:stop].tolist(), range(start, stop), strict=True))
            for target, is_sentinel in zip(targets.tolist(), sentinels.tolist(), strict=True):
                if is_sentinel:
                    answer = answers.setdefault(place_of[target], [])
                else:
                    answer.append(target)
        return answers

    def loss(self, model: "TorchModel", output: "EncoderOutput", batch: Batch) -> LossReport:
        """Returns the cross-entropy of the decoder output, each token given the tokens before it."""
        targets_Q = batch.labels["span_targets"]
        if not isinstance(model, Seq2Seq):
            raise UsageError(NO_DECODER)
        decoded = model.teach(output, targets_Q, batch.host.labels["span_lengths"])
        head = model.vocabulary_head("lm")
        total, correct = head.loss(decoded.last_hidden_state, model.word_embeddings, targets_Q)
        return {"span": LossTerm(total, len(targets_Q), correct)}


def noise_mask(lengths_B: Int, rng: Draws, *, rate: float, mean_length: float) -> Bool:
    """Returns which tokens of texts of some lengths are removed: (sum of lengths,) bool, text by text.

    A text has round(length * rate) removed tokens in round(that / mean_length) spans, at least one of each. All ways to
    split the removed and the kept tokens into so many spans have the same probability. A text begins with kept tokens
    and ends with removed ones. T5's code, t5/data/preprocessors.py, random_spans_noise_mask.
    """
    long_B = np.maximum(lengths_B, 2)
    noise_B = np.clip(np.rint(long_B * rate).astype(np.int64), 1, long_B - 1)
    spans_B = np.maximum(np.rint(noise_B / mean_length).astype(np.int64), 1)
    spans_B = np.minimum(spans_B, long_B - noise_B)  # there is something between any two
    pieces_BS2 = np.stack(
        [_segments(long_B - noise_B, spans_B, rng, KEPT), _segments(noise_B, spans_B, rng, NOISE)], axis=2
    )
    is_noise = np.repeat(np.broadcast_to([False, True], pieces_BS2.shape).ravel(), pieces_BS2.ravel())
    rows = np.repeat(np.arange(len(long_B)), long_B)
    columns = np.arange(len(rows)) - np.repeat(np.cumsum(long_B) - long_B, long_B)
    inside: Bool = is_noise[columns < lengths_B[rows]]
    return inside


def _segments(items_B: Int, segments_B: Int, rng: Draws, stream: int) -> Int:
    """Splits items at random into non-empty segments. -> sizes (B, S), zero after the last segment"""
    most = int(items_B.max())
    scores_BI = rng.bits(stream, most - 1) if most > 1 else np.zeros((len(items_B), 0), np.uint64)
    scores_BI = np.where(np.arange(most - 1) < items_B[:, None] - 1, scores_BI, NEVER_CHOSEN)
    rank_BI = np.argsort(np.argsort(scores_BI, axis=1), axis=1)
    begins_BI = np.pad(rank_BI < segments_B[:, None] - 1, ((0, 0), (1, 0)))  # the first item begins no further segment
    segment_BI = np.cumsum(begins_BI, axis=1)
    size = int(segments_B.max())
    real_BI = np.arange(most) < items_B[:, None]
    cells = (segment_BI + size * np.arange(len(items_B))[:, None])[real_BI]
    return np.bincount(cells, minlength=size * len(items_B)).reshape(-1, size)


def _written(
    ids_T: Int, sentinel_T: Int, starts_T: Bool, written_T: Bool, rows_T: Int
) -> tuple[Int, Bool, NDArray[np.int64]]:
    """Returns the removed tokens, a sentinel before each span: (tokens (Q,), sentinels (Q,) bool, their sequences
    (Q,))."""
    times = 1 + starts_T[written_T]
    tokens, rows = np.repeat(ids_T[written_T], times), np.repeat(rows_T[written_T], times)
    at = (np.cumsum(times) - times)[starts_T[written_T]]
    tokens[at] = sentinel_T[starts_T]
    is_sentinel = np.zeros(len(tokens), bool)
    is_sentinel[at] = True
    return tokens.astype(np.int64), is_sentinel, rows
