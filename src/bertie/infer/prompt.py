"""Classification by a causal language model: a prompt, perhaps with examples, and the words of the labels after it.

    a dull film. It was bad                 examples with their words, if there are any
    a quiet, lovely film. It was [MASK]     log p(good | all of it), log p(bad | all of it)

Brown et al. 2020 (arXiv:2005.14165), 2.4: a word of several tokens counts by their mean. A model prefers some words and
the last examples whatever the text is. `prior` is what it says to an empty text, and is subtracted (contextual
calibration: Zhao et al. 2021, arXiv:2102.09690).

E examples · L labels · W sequences, L per example · N tokens of the words · V vocabulary
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from bertie.errors import DataError, UsageError
from bertie.io.tables import Example
from bertie.tasks.answerer import Logits, Prediction
from bertie.tasks.pattern import PatternTask
from bertie.tasks.sequence import SequenceTask
from bertie.text.sequences import Int, Sequences
from bertie.text.tokenizer import Tokenizer
from bertie.training_facts import TooLong


@dataclass(frozen=True)
class PromptTask(PatternTask):
    """One of `labels` for each text, whose word is most probable after it. It is not trained.

    Attributes:
        shown: What precedes every text: examples with their words.
        prior: The score of each label for an empty text, which is subtracted.
    """

    shown: str = ""
    prior: tuple[float, ...] = ()

    head = "lm"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pattern.partition("[MASK]")[2].strip():
            raise UsageError(
                f"The pattern is {self.pattern!r}. This model reads from left to right, so [MASK] must be its end."
            )

    def with_examples(self, examples: Sequence[Example]) -> Self:
        """Returns the task that shows examples first. Raises DataError for a label without a word."""
        for example in examples:
            if example.label not in self.words:
                raise DataError(f"The examples have the label {example.label!r}, which has no word. Add LABEL=WORD.")
        filled = (self._filled(example.texts, self.words[str(example.label)])[0] for example in examples)
        return replace(self, shown="".join(f"{text}\n" for text in filled))

    def tokens_of(self, tokenizer: Tokenizer) -> list[int]:
        """Returns nothing: words may have any number of tokens, which `encode` reads."""
        del tokenizer
        return []

    def encode(
        self, examples: Sequence[Example], tokenizer: Tokenizer, *, max_length: int, too_long: TooLong
    ) -> Sequences:
        """Returns each prompt with the word of each label, asked for its tokens. Long prompts keep their end."""
        self.check_windows(too_long)
        start = tokenizer.frames[0].gaps[0]
        before = [self.shown + text[:at] for text, _, at in (self._filled(one.texts, "") for one in examples)]
        space = " " * self.pattern.partition("[MASK]")[0].endswith(" ")
        words = tokenizer.ids([space + word for word in self.words.values()])
        if known := [
            w for w, ids in zip(self.words.values(), words, strict=True) if tokenizer.unk_id in ids or not ids
        ]:
            raise UsageError(f"{known[0]!r} is not in the vocabulary of this model. Choose another word.")
        room = max_length - len(start) - max(map(len, words))
        ids, positions, long, end = list[Int](), list[Int](), [], 0
        for number, prompt in enumerate(tokenizer.ids([text.rstrip() for text in before])):
            if len(prompt) > room:
                long.append(number)
            head = [*start, *prompt[max(0, len(prompt) - room) :]]
            if room < 1 or not head:
                raise UsageError("The pattern has no room, or no text before [MASK]. Raise max_length, or add a text.")
            for word in words:
                ids.append(np.array([*head, *word], np.int64))
                positions.append(end + len(head) - 1 + np.arange(len(word)))
                end += len(ids[-1])
        encoded = replace(Sequences.of(ids), positions=np.concatenate([np.zeros(0, np.int64), *positions]))
        grouped = encoded.grouped([len(words)] * len(examples))
        return replace(grouped, too_long=np.array(long, np.int64))

    def scores_of(self, logits: Logits, encoded: Sequences) -> Logits:
        """Returns the mean log p of the tokens of each word. logits (N, V) -> (E, L)"""
        target_N, sequence_N = encoded.input_ids[encoded.positions + 1], encoded.sequence[encoded.positions]
        mass_N = np.logaddexp.reduce(logits.astype(np.float64), axis=-1)
        nats_N = logits[np.arange(len(target_N)), target_N] - mass_N
        sums_W = np.bincount(sequence_N, nats_N, len(encoded))
        means_W: Logits = (sums_W / np.bincount(sequence_N, minlength=len(encoded))).astype(np.float32)
        return means_W.reshape(-1, len(self.labels))

    def decode(self, logits: Logits, encoded: Sequences, examples: Sequence[Example]) -> list[Prediction]:
        """Returns the label whose word is most probable, with the probabilities among the words. logits (N, V)"""
        scores_EL = self.scores_of(logits, encoded) - np.array(self.prior or 0, np.float32)
        return SequenceTask.decode(self, scores_EL, encoded, examples)
