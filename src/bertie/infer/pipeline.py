"""`TextPipeline`: reads texts for a model, and turns the model's arrays into answers. It runs no model.

    rows -> encode -> Sequences -> (an engine) -> arrays -> decode -> Prediction, in the order of the rows

W sequences · T tokens · L outputs of the head
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Literal, get_args

import numpy as np

from bertie.errors import DataError, UnknownLabel, UnknownName, UsageError, WrongModel, nearest
from bertie.infer.engine import Array, check_max_length
from bertie.infer.fill import join_letters_after_masks
from bertie.infer.texts import Text, TextRow, WrittenWords
from bertie.io.lines import BadRecord
from bertie.io.markup import without_markup
from bertie.io.table_format import TableFormat
from bertie.io.tables import Example
from bertie.models.facts import Facts
from bertie.models.generation import GenerationConfig
from bertie.tasks import Prediction, Task, task_name, task_of
from bertie.tasks.answerer import Answerer
from bertie.tasks.capabilities import Generates, Parts, ReadsColumns
from bertie.tasks.embed import EmbedTask
from bertie.tasks.source import encode_ids, list_token_ids
from bertie.tasks.tabular import TabularTask
from bertie.text.encoding import Encoding
from bertie.text.sequences import Int, Sequences
from bertie.text.tokenizer import Tokenizer
from bertie.training_facts import TooLong, no_vectors


@dataclass
class TextCount:
    """Counts the texts that are longer than `max_length` tokens, and those with half or more of unknown tokens.

    cut: questions that are longer than what the model reads of one.
    """

    policy: TooLong
    max_length: int
    rows: int = 0
    long: int = 0
    cut: int = 0
    unknown: int = 0

    DONE: ClassVar = {"truncate": "truncated", "window": "read in windows", "error": "refused"}

    def add(self, encoded: Sequences, tokenizer: Tokenizer) -> None:
        """Counts encoded texts."""
        self.rows += encoded.examples
        self.long += len(encoded.too_long)
        self.cut += len(encoded.cut)
        unknown, words = unknown_tokens(encoded, tokenizer)
        self.unknown += int(((unknown > 0) & (2 * unknown >= words)).sum())

    @property
    def notes(self) -> list[str]:
        """What a user should know, in sentences without a period."""
        longer = (
            f"{self.long:,} of {self.rows:,} texts are longer than {self.max_length} tokens: "
            f"{self.DONE[self.policy]} (too_long={self.policy})"
        )
        cut = f"{self.cut:,} of {self.rows:,} questions are longer than the model reads them: truncated (max_question)"
        unknown = (
            f"{self.unknown:,} of {self.rows:,} texts consist mostly of words or characters that the vocabulary of the "
            "model lacks: it cannot read them"
        )
        return [note for note, count in ((longer, self.long), (cut, self.cut), (unknown, self.unknown)) if count]


def unknown_tokens(encoded: Sequences, tokenizer: Tokenizer) -> tuple[Int, Int]:
    """Returns how many tokens of each example are unknown, and how many stand for its text. -> (E,), (E,)"""
    unk = tokenizer.special_id("unk")
    if unk in {None, tokenizer.special_id("eos"), tokenizer.special_id("sep")}:  # GPT-2 has one token for all
        return np.zeros(encoded.examples, np.int64), encoded.tokens
    return encoded.count([unk]), encoded.tokens - encoded.count(tokenizer.special_ids - {unk})


def head_task(task: Task | None, head: str) -> Task:
    """Returns the task of one head of several. Raises UsageError for an unknown one."""
    if not isinstance(task, Parts):
        raise UsageError(f"This model has no head {head!r}: it was trained for one task. Omit head.")
    return task.part(head)


@dataclass(frozen=True)
class TextPipeline:
    """The task of a model, its tokenizer, and how it reads texts.

    Attributes:
        facts: The properties of the model.
        tokenizer: The tokenizer.
        task_or_none: The task; None for a model without a task head.
        max_length: Maximum number of tokens of a sequence.
        too_long: Handling of longer texts.
        texts: The number of texts of every input, None where it is not known or free.
    """

    facts: Facts
    tokenizer: Tokenizer
    task_or_none: Task | None
    max_length: int
    too_long: TooLong
    texts: int | None

    @classmethod
    def of(
        cls,
        facts: Facts,
        tokenizer: Tokenizer | None,
        *,
        max_length: int | None = None,
        too_long: TooLong | None = None,
        head: str = "",
    ) -> "TextPipeline":
        """Returns the pipeline of a model. The defaults are those of its training. Arguments as for `Predictor`."""
        if tokenizer is None:
            raise UsageError(
                "The model has no tokenizer, so it cannot read text. Copy the files of its tokenizer "
                "(tokenizer.json or vocab.txt) into its folder, and open the folder with bertie.load."
            )
        check_max_length(max_length, facts.max_length)
        task, trained = task_of(facts), facts.training_facts
        if head:
            task = head_task(task, head)
        policy = too_long or trained.too_long or (task.too_long if task else "truncate")
        if policy not in get_args(TooLong):
            raise UnknownName(f"Unknown value {policy!r} of too_long. {nearest(policy, get_args(TooLong))}")
        usual = facts.sentence.max_length or trained.max_length or tokenizer.max_length
        texts = trained.texts if facts.sentence.activation is None else 2  # what a cross-encoder scores
        return cls(
            facts,
            tokenizer,
            task.with_tokenizer(tokenizer) if task else None,
            max_length or min(facts.max_length, usual),
            policy,
            task.texts_of_inputs(texts) if task else texts,
        )

    @property
    def task(self) -> Task:
        """The task of the model. Raises UsageError for a model without a task head."""
        if self.task_or_none is None:
            raise WrongModel(
                "This model has no task head: it is a pre-trained model. Fine-tune it first: "
                "bertie finetune MODEL --train FILE -o RUN"
            )
        return self.task_or_none

    @property
    def task_name(self) -> str:
        """The name of the task, as the user gives it: "sequence", "tagging" ..."""
        return task_name(self.task)

    def for_head(self, head: str) -> "TextPipeline":
        """Returns the pipeline of one head of several. Raises UsageError for an unknown one."""
        task = head_task(self.task, head)
        return replace(self, task_or_none=task, texts=task.texts_of_inputs(self.texts))

    @property
    def embedder(self) -> EmbedTask:
        """The task of vectors: as trained, or the mean of the tokens."""
        return EmbedTask.as_trained(self.task_or_none)

    def embedding(
        self, *, prompt: str | None = None, dimensions: int | None = None, unit_length: bool = True
    ) -> "TextPipeline":
        """Returns the pipeline of vectors. None: the prompt or the number of dimensions of the training."""
        own = self.embedder
        task = replace(
            own,
            prompt=own.prompt if prompt is None else prompt,
            normalize=False,
            truncate_dim=dimensions or own.truncate_dim,
            unit_length=unit_length,
        )
        return replace(self, task_or_none=task)

    @property
    def writing(self) -> GenerationConfig:
        """The settings of generation. Raises UsageError for a model that generates no text."""
        if not isinstance(self.task_or_none, Generates):
            raise WrongModel(
                "This model generates no text. `bertie write` needs a model with a next-token head, such as GPT-2 or "
                "T5."
            )
        return self.task_or_none.writing

    def written_words(self) -> WrittenWords:
        """Returns what makes words of tokens that are generated one after another."""
        return WrittenWords(self.tokenizer)

    @property
    def plain(self) -> bool:
        """Whether the task classifies or embeds texts, so that either end of a long text may be cut."""
        return type(self.task).encode in (Answerer.encode, TabularTask.encode, EmbedTask.encode)

    def ids(self, examples: Sequence[Example]) -> Iterator[list[list[int]]]:
        """Returns the token ids of each example's one or two texts, without special tokens."""
        return list_token_ids(self.without_markup(examples), self.tokenizer)

    def encode_ends(self, examples: Sequence[Example]) -> Sequences:
        """Returns the token ids of examples, of which long texts keep their end."""
        self._check_vectors(examples)
        return self.task.with_cells(self.encode_ids(self.ids(examples), keep="end"), examples)

    def encode_ids(
        self, segments: Iterable[Sequence[Sequence[int]]], *, keep: Literal["start", "end"] = "start"
    ) -> Sequences:
        """Returns sequences of texts that are token ids already. keep: which end of a text is left when it is cut."""
        return encode_ids(segments, self.tokenizer, max_length=self.max_length, too_long=self.too_long, keep=keep)

    @property
    def fixed_texts(self) -> int | None:
        """The number of texts of every input, if it does not vary."""
        return None if self.task_or_none and self.task_or_none.texts_vary else self.texts

    def reading(self, format: TableFormat) -> TableFormat:
        """Returns the format of a table with the feature vectors, columns and names of labels of the training.

        Raises UsageError for a label name that is not a label of the model.
        """
        known = self.task.given_names
        if format.columns.weight and "weighted_scores" not in self.task.honours:
            raise UsageError("The metrics of this task have no weights of rows. Omit weight.")
        if format.columns.separator and not self.task.several_labels:
            raise UsageError("label_separator has no effect for this model, with one label a row. Omit it.")
        if unknown := next((name for name in format.labels.names.values() if name not in known), None):
            raise UnknownLabel(f"{unknown!r} of the label names is not a label of the model. {nearest(unknown, known)}")
        trained = self.facts.training_facts
        return replace(
            format,
            file=replace(format.file, usual_encoding=trained.encoding),
            columns=replace(
                format.columns,
                usual_text=trained.text_columns,
                usual_label=trained.label_column,
                markup=trained.markup,
                tabular=tuple(column.name for column in getattr(self.task, "tabular", ())),
                separator=format.columns.separator or trained.label_separator,
                features=trained.features or format.columns.features,
            ),
            labels=format.labels.for_model(self.task.labels, known),
        )

    def example(self, text: Text, number: int) -> Example:
        """Returns the example of a text or of a tuple of texts. Raises DataError for another number of texts than the
        model reads. number: of the text, from 1."""
        texts = (text,) if isinstance(text, str) else tuple(text)
        counts, wants = self._reads()
        if len(texts) not in counts:
            got = "a single text" if len(texts) == 1 else f"a tuple of {len(texts)} texts"
            raise DataError(f"The model reads {wants}, and text {number} is {got}.")
        return Example(texts, None, number)

    def _reads(self) -> tuple[range, str]:
        """Returns how many texts one input may have, and how a message calls them."""
        counts = self.task.input_texts
        if counts.start > 2:
            return counts, "a context with two or more choices"
        if (fixed := self.fixed_texts) is not None:
            return range(fixed, fixed + 1), "pairs of texts" if fixed == 2 else "single texts"
        return counts, "single texts or pairs of texts"

    @cached_property
    def _reads_columns(self) -> ReadsColumns | None:  # once, since a check for a protocol takes as long as tokenizing
        return self.task_or_none if isinstance(self.task_or_none, ReadsColumns) else None

    def readable(self, row: TextRow) -> TextRow:
        """Returns a row, as an invalid one where the model cannot read its columns or its feature vectors."""
        if isinstance(row, BadRecord):
            return row
        if self._reads_columns and (why := self._reads_columns.unreadable(row)):
            return BadRecord(row.line, why, source=row.source)
        if row.vectors is None:
            return row
        facts, (count, size), reason = self.facts, row.vectors.shape, ""
        reads, most = facts.feature_size, facts.max_together
        if reads is not None and reads != size:
            reason = f"its vectors have {size:,} numbers, and the model reads vectors of {reads:,}"
        elif most is not None and count + self.max_length > most:
            alone = self.encode([row])
            if alone.lengths.max() > most:
                reason = f"its text and vectors are longer than the model's {most:,} positions"
        return BadRecord(row.line, reason, source=row.source) if reason else row

    def encode(self, examples: Sequence[Example]) -> Sequences:
        """Returns the token ids of examples. Raises UsageError for texts without the feature vectors of training."""
        self._check_vectors(examples)
        plain = self.without_markup(examples)
        return self.task.encode(plain, self.tokenizer, max_length=self.max_length, too_long=self.too_long)

    def _check_vectors(self, examples: Sequence[Example]) -> None:
        features = self.facts.training_facts.features
        if features is not None and any(example.vectors is None for example in examples):
            raise UsageError(no_vectors(features, "a text alone is not its input"))

    def without_markup(self, examples: Sequence[Example]) -> Sequence[Example]:
        """Returns examples without the markup that was removed from those of training."""
        if not self.facts.training_facts.markup:
            return examples
        return [replace(one, texts=self.plain_texts(one.texts)) for one in examples]

    def plain_texts(self, texts: Sequence[str]) -> tuple[str, ...]:
        """Returns texts without the markup that was removed from those of training."""
        return tuple(without_markup(text, self.facts.training_facts.markup) for text in texts)

    def logits(self, arrays: Mapping[str, Array], encoded: Sequences) -> Array:
        """Returns what `decode` reads of the engine's arrays. -> (W, L), or (T, L) for a task of tokens"""
        parts = [arrays[name] for name in self.task.outputs]
        return self.task.with_columns(np.concatenate(parts, -1) if len(parts) > 1 else parts[0], encoded)

    def as_filled(self, texts: Sequence[str], encoding: Encoding, max_length: int) -> Encoding:
        """Returns what a masked language model reads of texts, where it is no longer than the maximum. See `joined`."""
        joint = join_letters_after_masks(self.tokenizer, encoding, texts)
        return joint if len(joint) <= max_length else encoding

    def decode(self, rows: Sequence[TextRow], encoded: Sequences, logits: Array | None) -> list[Prediction | BadRecord]:
        """Returns the answer to each row, or the reason why it has none.

        encoded, logits: of the rows that are examples; logits None: there are none.
        """
        examples = [row for row in rows if isinstance(row, Example)]
        answers: list[Prediction | BadRecord] = []
        if logits is not None:
            answers += self.task.decode(logits, encoded, examples)
        for number in encoded.too_long.tolist() if self.too_long == "error" else ():
            answers[number] = BadRecord(examples[number].line, f"longer than {self.max_length} tokens")
        following = iter(answers)
        return [row if isinstance(row, BadRecord) else next(following) for row in rows]
