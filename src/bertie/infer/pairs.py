"""Verdicts of a pre-trained model on two texts: whether the second follows the first, or whether they are in order.

    [CLS] first [SEP] second [SEP] -> head "pair" -> P(it is so)
    first [MASK] [MASK] [MASK], [MASK] [MASK] [MASK] -> head "mlm" -> how much the first tells of the second

Next-sentence prediction (Devlin et al. 2018, 3.1) or sentence order (Lan et al. 2019, 3.1): the head is the same, the
meaning is that of the pre-training. Without that head, a language model compares the second text after the first with
the second text alone: pointwise mutual information per token. A masked one hides the whole second text, since its own
words would tell each other more than the first text does. B pairs
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from math import exp
from pathlib import Path
from typing import Literal, Self

import numpy as np

from bertie.errors import DataError, UsageError, WrongModel
from bertie.files import JsonObject, read_json
from bertie.infer.batching import run_batches
from bertie.infer.engine import Array, Engine
from bertie.infer.perplexity import TokenQuery, language_head, log_probabilities
from bertie.io.tables import Example
from bertie.tasks.answerer import softmax
from bertie.tasks.source import encode_examples
from bertie.text.tokenizer import Tokenizer

_PAIR_HEAD = "pair"
_Kind = Literal["nsp", "sop", "lm", ""]
NAMES: dict[_Kind, tuple[str, str]] = {
    "nsp": ("follows", "random"),
    "sop": ("in_order", "swapped"),
    "lm": ("follows", "random"),
}
"""What the two outputs mean: the first one is "it is so"."""
ORDERED = ("albert",)  # families that are pre-trained with sentence order
PICTURED = ("visual_bert", "vilbert", "lxmert")  # families whose head says whether a picture belongs to a text


@dataclass(frozen=True)
class PairVerdict:
    """The prediction for two texts.

    probability: that of the prediction. yes: the probability that the second text follows, or that they are in order.
    gain: without a head for pairs, the nats per token of the second text that the first text saves.
    """

    kind: _Kind
    verdict: str
    probability: float
    yes: float
    gain: float | None = None

    def as_json(self) -> JsonObject:
        """The fields that have a value, numbers rounded to six digits."""
        values = {name: value for name, value in asdict(self).items() if value is not None}
        return {name: round(value, 6) if isinstance(value, float) else value for name, value in values.items()}


def find_pair_kind(folder: Path) -> _Kind:
    """Returns the objective of a model folder's pre-training: that of the run next to it, otherwise its family's.

    "" where the head says whether a picture belongs to a text.
    """
    settings, learned = folder.parent / "run.yaml", list[str]()
    if settings.is_file():
        from bertie.settings import read_yaml

        if isinstance(objectives := read_yaml(settings).get("objectives"), dict):
            learned = [name for name, options in objectives.items() if options is not None]
    for kind in NAMES:
        if kind in learned:
            return kind
    family = read_json(folder / "config.json").get("model_type")
    if "itm" in learned or family in PICTURED:
        return ""
    return "sop" if family in ORDERED else "nsp"


@dataclass(frozen=True)
class PairHead:
    """The head of pre-training that reads two texts. kind: what it tells of them."""

    kind: _Kind

    @classmethod
    def of(cls, folder: Path) -> Self:
        """Returns the head of a model folder."""
        return cls(find_pair_kind(folder))

    def check(self) -> None:
        """Raises UsageError for a head that does not compare texts."""
        if not self.kind:
            raise UsageError(
                "The head for pairs of this model compares a text with a picture. It gives no answer for texts."
            )

    def judge(
        self, engine: Engine, tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]], *, max_length: int
    ) -> list[PairVerdict]:
        """The verdict on each pair, long texts cut. Raises DataError for an empty text; UsageError without a head."""
        for number, pair in enumerate(pairs, 1):
            if not all(text.strip() for text in pair):
                raise DataError(f"Pair {number} has an empty text. Pass two texts that are not empty.")
        if _PAIR_HEAD not in engine.facts.heads:
            return [_verdict_of(gain) for gain in information(engine, tokenizer, pairs, max_length=max_length)]
        self.check()
        encoded = encode_examples([Example(pair) for pair in pairs], tokenizer, max_length=max_length)
        return self.verdicts(run_batches(engine, encoded, (_PAIR_HEAD,))[_PAIR_HEAD])

    def verdicts(self, logits: Array) -> list[PairVerdict]:
        """The verdicts of a batch. logits (B, 2)"""
        rows = softmax(logits).tolist()
        return [PairVerdict(self.kind, NAMES[self.kind][yes < no], max(yes, no), yes) for yes, no in rows]


EVEN, _SLOPE = 0.4, 5.0  # nats per token at which both verdicts are as likely, and how fast that changes
"""Logistic regression on pairs of Wikipedia by starter-en and starter-ko, rounded (benchmarks/next_sentences.py)."""


def information(
    engine: Engine, tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]], *, max_length: int
) -> list[float]:
    """Returns the nats per token of each second text that its first text saves a language model; below 0 it misleads.

    A first text that is too long keeps its end. Raises DataError for a second text that does not fit, UsageError for a
    model without a language-model head.
    """
    if (head := language_head(engine.facts)) is None:
        raise WrongModel(
            "This model has neither a head for pairs of texts nor one for masked or next tokens. Use a pre-trained "
            "model. Fine-tuned models have no such head."
        )
    readings = [*_readings(tokenizer, pairs, max_length)]
    scores = (row for nats_DN in log_probabilities(engine, head, readings, tokenizer) for row in nats_DN[0])
    sums = [np.mean([next(scores) for _ in reading.positions]) for reading in readings]
    return [float(after - alone) for after, alone in zip(sums[::2], sums[1::2], strict=True)]


def _readings(tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]], most: int) -> Iterator[TokenQuery]:
    """Yields each second text after the first, and alone; without a start token, its first token is not predicted."""
    frame = tokenizer.frames[0]
    start = len(frame.gaps[0])
    for number, (first, second) in enumerate(pairs, 1):
        before, after = (tokenizer.ids([text])[0] for text in (first, " " + second))  # the space is part of a token
        room = most - frame.size - len(after)
        if room < 1 or len(after) + start < 2:
            raise DataError(
                f"The second text of pair {number} has {len(after):,} tokens; it must have {2 - min(start, 1)} to "
                f"{most - frame.size - 1:,}."
            )
        for prefix in (before[-room:], []):
            ids, end = [*prefix, *after], start + len(prefix) + len(after)
            positions = np.arange(end - len(after) + (start == 0), end)
            yield TokenQuery(
                np.array(frame.ids([ids]), np.int64), np.array(frame.types([len(ids)]), np.int64), positions
            )


def _verdict_of(gain: float) -> PairVerdict:
    yes = 1 / (1 + exp(-_SLOPE * (gain - EVEN)))
    return PairVerdict("lm", NAMES["lm"][yes < 0.5], max(yes, 1 - yes), yes, gain)
