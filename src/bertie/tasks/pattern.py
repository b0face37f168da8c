"""Classification by a masked language model: a pattern with a mask, and a word for each label.

    [CLS] Best pizza ever! It was [MASK]. [SEP]   ->   the logits of "great" and "bad" at the mask

Schick and Schütze 2021 (arXiv:2001.07676), section 3. The head is that of pre-training, so no label is needed; from a
few labels the same words are trained.

E examples · W sequences, one per example · V vocabulary · L labels
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from bertie.errors import DataError, UsageError, WrongModel
from bertie.io.tables import Example
from bertie.models.facts import Facts
from bertie.models.heads import HEADS
from bertie.tasks.answerer import Logits, Prediction
from bertie.tasks.sequence import SequenceTask
from bertie.tasks.source import Targets
from bertie.text.sequences import Sequences
from bertie.text.tokenizer import Tokenizer
from bertie.training_facts import TooLong

if TYPE_CHECKING:
    from torch import Tensor, nn

    from bertie.models.batch import Batch
    from bertie.models.config import EncoderConfig
    from bertie.models.encoder import EncoderOutput
    from bertie.models.loss import LossReport
    from bertie.models.model import TorchModel

_MASK = "[MASK]"  # in a pattern: the mask token of any family
_MASK_TARGETS = "asked"  # of `Targets.token`: the masks
SAMPLE = "a"  # the text of the pattern while the words are looked up


@dataclass(frozen=True)
class PatternTask(SequenceTask):
    """One of `labels` for each text, whose word fits best into the pattern.

    Attributes:
        pattern: A text with [MASK]. With {} for each text of an example; without {}, it follows the text.
        words: The word of each label, which must be one token at the mask.
        prior: The score of each label for an empty text, which is subtracted (Zhao et al. 2021, arXiv:2102.09690).
    """

    pattern: str = ""
    words: Mapping[str, str] = field(default_factory=dict)
    prior: tuple[float, ...] = ()

    head = "mlm"
    problem_type = None
    keeps_head = True
    no_windows = "Patterns do not support windows"
    reads_vectors = False
    honours = SequenceTask.honours - {"calibrate", "coverage", "tabular"}
    at_once = 64
    tokens: ClassVar[Sequence[int]] = ()
    """The token of each label's word."""

    def __post_init__(self) -> None:
        if self.pattern.count(_MASK) != 1:
            raise UsageError(
                f"The pattern is {self.pattern!r}; it must have one {_MASK}, as 'It was {_MASK}.' has. Pass it with "
                "--pattern, or for training as task_options.pattern."
            )
        if len(self.words) < 2 or not all(map(str.strip, self.words.values())):
            raise UsageError(
                "A pattern needs a word for each of two or more labels. Pass --words good=great,bad=terrible, "
                "or for training as 'task_options.words={good: great, bad: terrible}'."
            )
        if len(set(self.words.values())) < len(self.words):
            raise UsageError(f"Two labels have the same word: {', '.join(self.words.values())}.")
        object.__setattr__(self, "labels", tuple(self.words))
        super().__post_init__()

    @classmethod
    def from_examples(cls, examples: Sequence[Example], names: tuple[str, ...], options: Mapping[str, object]) -> Self:
        """Returns the task with the words of `options`. Raises DataError for a label without a word."""
        task = cls.make((), options)
        labels = {example.label for example in examples if example.label is not None}
        if unknown := sorted(labels - set(task.labels)):
            raise DataError(f"Labels without a word: {', '.join(map(repr, unknown[:10]))}. Add LABEL=WORD for each.")
        return task

    @classmethod
    def check_head(cls, has_head: bool) -> None:
        """Raises UsageError for a model without the head of masked language models."""
        if not has_head:
            raise WrongModel("A pattern needs a masked-LM or a causal head. Use the folder of a pre-trained model.")

    @classmethod
    def of_model(cls, facts: Facts, settings: Mapping[str, object]) -> Self | None:
        """Only where the folder names the task: a masked language model has no pattern of its own."""
        return cls.make((), settings) if settings and cls.head in facts.heads else None

    def tokens_of(self, tokenizer: Tokenizer) -> list[int]:
        """Returns the token of each label's word. Raises UsageError for an unknown word, one of several tokens, or
        two words of the same token."""
        words = dict[int, str]()
        for word in self.words.values():
            if (other := words.setdefault(self._word_id(tokenizer, word), word)) != word:
                raise UsageError(f"{other!r} and {word!r} are the same token of this model. Choose different words.")
        return [*words]

    def _word_id(self, tokenizer: Tokenizer, word: str) -> int:
        """Returns the token of a word where the mask is, so that the space before it counts as the family has it."""
        text, _, at = self._filled((SAMPLE,) * max(1, self.pattern.count("{}")), word)
        encoding, end = tokenizer.encode(text), at + len(word)
        tokens = [i for i, (a, b) in zip(encoding.ids, encoding.offsets, strict=True) if a < end and b > at and a < b]
        known = tokens and tokenizer.special_id("unk") not in tokens
        if not known or len(tokens) != 1:
            raise UsageError(
                f"{word!r} {f'is {len(tokens)} tokens of' if known else 'is not in'} the vocabulary of this model. "
                "Choose a word of one token: `bertie fill-mask MODEL PATTERN` lists probable ones."
            )
        return tokens[0]

    def _filled(self, texts: Sequence[str], word: str) -> tuple[str, list[tuple[int, int]], int]:
        """Returns the pattern with texts and a word at the mask, where each text is in it, and where the word is."""
        pattern = self.pattern if "{}" in self.pattern else "{} " * len(texts) + self.pattern
        parts = pattern.split("{}")
        if len(parts) != len(texts) + 1:
            raise UsageError(
                f"The pattern needs one {{}} for each text: {self.pattern!r} has {len(parts) - 1}, and the examples "
                f"have {len(texts)}."
            )
        text, spans, at = "", list[tuple[int, int]](), -1
        for number, part in enumerate(parts):
            before, mask, after = part.partition(_MASK)
            at = len(text + before) if mask else at
            text += before + (word if mask else "") + after
            if number < len(texts):
                spans.append((len(text), len(text) + len(texts[number])))
                text += texts[number]
        return text, spans, at

    def encode(
        self, examples: Sequence[Example], tokenizer: Tokenizer, *, max_length: int, too_long: TooLong
    ) -> Sequences:
        """Returns one sequence per example. Of those too long, texts are cut and the pattern stays."""
        self.check_windows(too_long)
        mask = tokenizer.special_tokens["mask"]
        filled = [self._filled(example.texts, mask) for example in examples]
        encodings = tokenizer.encode_batch([text for text, _, _ in filled])
        ids, types, places, long = [], [], [], []
        for number, (encoding, (_, spans, at)) in enumerate(zip(encodings, filled, strict=True)):
            offsets, length = np.array(encoding.offsets).reshape(-1, 2), len(encoding.ids)
            keep = np.ones(length, bool)
            if length > max_length:
                long.append(number)
                keep[_surplus(offsets, spans, length - max_length)] = False
            token_ids = np.array(encoding.ids, np.int32)
            masks = (token_ids == tokenizer.mask_id) & (offsets[:, 0] <= at) & (offsets[:, 1] > at)
            ids.append(token_ids[keep])
            types.append(np.array(encoding.type_ids, np.uint8)[keep])
            places.append(masks[keep])
        encoded = Sequences.of_examples(ids, types, range(len(examples) + 1), long)
        return replace(encoded, positions=np.flatnonzero(np.concatenate([np.zeros(0, bool), *places])))

    # Learning

    def heads(self, config: "EncoderConfig") -> "dict[str, nn.Module]":
        """Returns the masked-LM head, whose weights are those of pre-training."""
        return {self.head: HEADS[self.head](config)}

    def targets(self, examples: Sequence[Example], encoded: Sequences) -> Targets:
        """Returns the targets of a classifier, and the masks."""
        mask = np.zeros(len(encoded.input_ids), bool)
        mask[encoded.positions] = True
        return Targets(super().targets(examples, encoded).sequence, {_MASK_TARGETS: mask})

    def loss(self, model: "TorchModel", output: "EncoderOutput", batch: "Batch") -> "LossReport":
        """Returns the cross-entropy over the words of the labels, at the masks."""
        import torch
        from torch.nn.functional import linear

        head, ids = model.vocabulary_head(self.head), torch.tensor(self.tokens, device=model.device)
        hidden_BH = output.last_hidden_state[batch.where(batch.host.labels[_MASK_TARGETS])]
        x_BE, weight_VE, bias_V = head.parts(hidden_BH, model.word_embeddings)
        logits_BL = linear(x_BE, weight_VE[ids].to(x_BE.dtype), bias_V[ids].to(x_BE.dtype))
        return self.losses(logits_BL.float(), batch)

    def dev_losses(self, model: "TorchModel", encoded: Sequences, targets: Targets, logits: "Tensor") -> "LossReport":
        """Returns the same of the engine's logits of all words. logits (W, V)"""
        return super().dev_losses(model, encoded, targets, logits[:, self.tokens])

    # Answering

    def label_scores(self, logits: Logits, encoded: Sequences) -> Logits:
        """Returns the logit of each label's word. (W, V) -> (W, L)"""
        return logits[:, self.tokens]

    def decode(self, logits: Logits, encoded: Sequences, examples: Sequence[Example]) -> list[Prediction]:
        """Returns the label whose word is most probable, with the probabilities among the words."""
        scores_EL = self.label_scores(logits, encoded) - np.array(self.prior or 0, np.float32)
        return super().decode(scores_EL, encoded, examples)


def _surplus(offsets: NDArray[np.int64], spans: Sequence[tuple[int, int]], count: int) -> list[int]:
    """Returns the tokens to remove: `count` of those inside the texts, from the end of the longer text."""
    first_T, end_T = offsets[:, 0], offsets[:, 1]
    inside = [np.flatnonzero((first_T >= a) & (end_T <= b) & (end_T > a)).tolist() for a, b in spans]
    removed = list[int]()
    while len(removed) < count:
        if not (longest := max(inside, key=len)):
            raise UsageError("The pattern alone is longer than max_length. Raise max_length.")
        removed.append(longest.pop())
    return removed
