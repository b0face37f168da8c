"""Verdicts of a pre-trained model on two texts: whether the second follows the first, or whether they are in order.

    [CLS] first [SEP] second [SEP] -> head "pair" -> P(it is so)

Next-sentence prediction (Devlin et al. 2018, 3.1) or sentence order (Lan et al. 2019, 3.1): the head is the same, the
meaning is that of the pre-training. B pairs
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, Self

from bertie.errors import DataError, UsageError, WrongModel
from bertie.files import JsonObject, read_json
from bertie.infer.batching import run_batches
from bertie.infer.engine import Array, Engine
from bertie.io.tables import Example
from bertie.tasks.answerer import softmax
from bertie.tasks.source import encode_examples
from bertie.text.tokenizer import Tokenizer

_PAIR_HEAD = "pair"
_Kind = Literal["nsp", "sop", ""]
NAMES: dict[_Kind, tuple[str, str]] = {"nsp": ("follows", "random"), "sop": ("in_order", "swapped")}
"""What the two outputs mean: the first one is "it is so"."""
ORDERED = ("albert",)  # families that are pre-trained with sentence order
PICTURED = ("visual_bert", "vilbert", "lxmert")  # families whose head says whether a picture belongs to a text


@dataclass(frozen=True)
class PairVerdict:
    """The prediction for two texts.

    probability: that of the prediction. yes: the probability that the second text follows, or that they are in order.
    """

    kind: _Kind
    verdict: str
    probability: float
    yes: float

    def as_json(self) -> JsonObject:
        """The fields, numbers rounded to six digits."""
        return {name: round(value, 6) if isinstance(value, float) else value for name, value in asdict(self).items()}


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
        """The verdict on each pair, long texts cut. Raises DataError for an empty text; UsageError without the head."""
        if _PAIR_HEAD not in engine.facts.heads:
            raise WrongModel(
                "This model has no head for pairs of texts. Use a model that was pre-trained with next-sentence "
                "prediction or sentence-order prediction. Fine-tuned models have no such head."
            )
        self.check()
        for number, pair in enumerate(pairs, 1):
            if not all(text.strip() for text in pair):
                raise DataError(f"Pair {number} has an empty text. Pass two texts that are not empty.")
        encoded = encode_examples([Example(pair) for pair in pairs], tokenizer, max_length=max_length)
        return self.verdicts(run_batches(engine, encoded, (_PAIR_HEAD,))[_PAIR_HEAD])

    def verdicts(self, logits: Array) -> list[PairVerdict]:
        """The verdicts of a batch. logits (B, 2)"""
        rows = softmax(logits).tolist()
        return [PairVerdict(self.kind, NAMES[self.kind][yes < no], max(yes, no), yes) for yes, no in rows]
