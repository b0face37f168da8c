"""Multiple choice: which of several continuations or answers fits. Each choice is a separate sequence.

    [CLS] context [SEP] choice [SEP]     one logit each, softmax over the choices (Devlin et al. 2018, 4.4)

The number of choices may differ between examples.

E examples · W sequences · B sequences of a batch · G questions of a batch · C most choices
"""

import itertools
import json
import math
import re
import sys
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bertie.errors import DataError, MissingColumn, nearest
from bertie.io.columns import LookAhead, check_apart, no_rows
from bertie.io.fields import Fields, as_text
from bertie.io.header import LABEL_COLUMNS
from bertie.io.lines import BadRecord
from bertie.io.table_format import Columns
from bertie.io.tables import Example
from bertie.metrics.ranking import Accuracy
from bertie.models.loss import LossReport, LossTerm
from bertie.tasks.answerer import Logits, Prediction, softmax
from bertie.tasks.base import Task
from bertie.tasks.render import GIVEN, TRUE, RenderedExample, TextSpan, render_plain_text
from bertie.tasks.source import Targets, encode_examples
from bertie.text.sequences import Sequences
from bertie.text.tokenizer import Tokenizer
from bertie.training_facts import TooLong

if TYPE_CHECKING:
    from torch import Tensor

    from bertie.models.batch import Batch

SINGLE = ("question", "context", "ctx", "text", "premise")
CONTEXTS = (("premise", "question"), ("context", "question"), *((name,) for name in SINGLE))
BEGUN = (("sent1", "sent2"), ("ctx_a", "ctx_b"))  # SWAG, HellaSwag: the second column begins every choice
_LISTS = ("endings", "choices", "choices.text", "options", "answers")
_CHOICE_COLUMN = re.compile(r"(ending|choice|option|answer)_?\d+")
LETTERS = "ABCDEFGHIJ"
_SWAG_CHOICES = 4  # choices of a question of SWAG


@dataclass(frozen=True)
class ChoiceTask(Task):
    """`Example.texts` is the context and then each choice; `Example.label` is the number of the correct one, from
    "0"."""

    reads_columns = False
    head = "choice"
    input_texts = range(3, sys.maxsize)  # a context, and two or more choices
    no_windows = "Multiple choice does not support windows"
    metrics = ("accuracy",)
    baselines = ("first", "overlap")

    @classmethod
    def columns(cls, names: Sequence[str], columns: Columns, where: str, look: LookAhead = no_rows) -> Columns:
        """Returns the column of the context, and one column per choice (ending0, ending1 ...) or one column of lists.

        `columns.text` names them: the context first, then the choices.
        """
        context: tuple[str, ...] = next((group for group in (*BEGUN, *CONTEXTS) if set(group) <= set(names)), ())
        text = columns.text or (columns.usual_text if {*columns.usual_text} <= {*names} else ())
        further = _CHOICE_COLUMN if any(map(_CHOICE_COLUMN.fullmatch, names)) and not text[1:] else None
        choices = tuple(filter(_CHOICE_COLUMN.fullmatch, names)) or tuple(name for name in _LISTS if name in names)[:1]
        if text:
            context, choices = text[:1], text[1:] or choices
        elif not context or not choices:
            raise DataError(
                f"{where}: context and choices were not recognized among {', '.join(map(repr, names))}.",
                hint="Pass --text CONTEXT --text CHOICE --text CHOICE ...",
            )
        usual = filter(None, (columns.usual_label, *LABEL_COLUMNS))
        label = columns.label or next(filter(names.__contains__, usual), "")
        for name in (*context, *choices, *((label,) if columns.labelled else ())):
            if name not in names:
                raise MissingColumn(f"{where} has no column {name or 'label'!r}. {nearest(name, names)}")
        if columns.labelled:
            check_apart((*context, *choices), (), label, names, where)
        return Columns(context, label if columns.labelled else None, choices, further)

    @classmethod
    def example(cls, fields: Fields, columns: Columns, line: int) -> Example | BadRecord:
        """Returns an example. The label is the number of the correct choice from 0, its letter from A, its column
        name, or its name in the list `choices.label`."""
        names = columns.choices
        if columns.further:
            names += tuple(name for name in fields if columns.further.fullmatch(name) and name not in names)
        values: list[Any] = [fields.get(name) for name in names]
        context: list[Any] = [fields.get(name) for name in columns.text]
        if len(values) == 1 and isinstance(values[0], str) and values[0].startswith("["):
            try:  # a list, as `predict` writes it into a csv
                values = [[as_text(one) for one in json.loads(values[0])]]
            except ValueError:
                return BadRecord(line, f"{names[0]} begins with [ and is not a JSON list")
        choices = list(values[0]) if len(values) == 1 and isinstance(values[0], list) else values
        while choices and choices[-1] in ("", None):  # a table's columns are as many as the most choices
            choices.pop()
        for name, value in itertools.chain(zip(columns.text, context, strict=True), enumerate(choices)):
            if not isinstance(value, str):
                return BadRecord(line, f"no {name}" if isinstance(name, str) else "a choice is missing")
        if not context[0].strip() or not all(choice.strip() for choice in choices):
            return BadRecord(line, "empty text")
        if len(choices) < 2:
            return BadRecord(line, "fewer than two choices")
        if columns.text in BEGUN:
            context, choices = context[:1], [f"{context[1]} {choice}".strip() for choice in choices]
        texts = (" ".join(context), *choices)
        if columns.label is None:
            return Example(texts, None, line)
        value = str(fields.get(columns.label) or "").strip()
        number = value.removesuffix(".0")  # as pandas writes a column of whole numbers with gaps
        right = LETTERS.find(value) if len(value) == 1 else -1
        right = int(number) if number.isdecimal() and len(number) < 10 else right
        right = names.index(value) if value in names else right
        own = fields.get("choices.label") if names == ("choices.text",) else None  # ARC: A to D, or 1 to 4
        right = own.index(value) if isinstance(own, list) and value in own else right
        valid = 0 <= right < len(choices)
        return Example(texts, str(right), line) if valid else BadRecord(line, f"{columns.label} is not a choice")

    @classmethod
    def sequences(cls, examples: Sequence[Example] | None) -> float:
        """One for each choice; a published question has as many as those of SWAG."""
        return _SWAG_CHOICES if examples is None else sum(len(one.texts) - 1 for one in examples) / len(examples)

    @classmethod
    def stratify_by(cls, example: Example) -> Hashable:
        """The dev set is stratified by the position of the correct choice."""
        label: str | None = example.label
        return label

    def encode(
        self, examples: Sequence[Example], tokenizer: Tokenizer, *, max_length: int, too_long: TooLong
    ) -> Sequences:
        """Returns one sequence per choice, with the context. Raises UsageError for windows."""
        self.check_windows(too_long)
        pairs = [Example((example.texts[0], choice)) for example in examples for choice in example.texts[1:]]
        encoded = encode_examples(pairs, tokenizer, max_length=max_length, too_long=too_long)
        return encoded.grouped([len(example.texts) - 1 for example in examples])

    def targets(self, examples: Sequence[Example], encoded: Sequences) -> Targets:
        """Returns "choice" (W,) int64: its number; "right" (W,) float32: 1 for the correct choice of each question."""
        choice_W = np.arange(len(encoded.lengths)) - encoded.windows[encoded.example]
        label_E = np.array([-1 if example.label is None else int(example.label) for example in examples], np.int64)
        right_W = (choice_W == label_E[encoded.example]).astype(np.float32)
        return Targets(sequence={"choice": choice_W, "right": right_W})

    def counts(self, batch: "Batch") -> dict[str, int]:
        """Returns the number of questions."""
        return {"choice": int(batch.labels["right"].sum())}

    def losses(self, logits: "Tensor", batch: "Batch") -> LossReport:
        """Returns the cross-entropy over each question's choices. logits (B,); reads labels "choice" and "right"."""
        choice_B, right_B = batch.labels["choice"], batch.labels["right"]
        question_B = (choice_B == 0).cumsum(0) - 1  # the choices of a question are consecutive
        host_B = batch.host.labels["choice"]
        table_GC = _table(logits, question_B, choice_B, int((host_B == 0).sum()), max([0, *host_B.tolist()]) + 1)
        loss_B = table_GC.logsumexp(-1)[question_B] - logits
        above_B = (table_GC[question_B] >= logits[:, None]).sum(-1) == 1  # all the question's other choices
        correct = (right_B * above_B).sum()
        return {"choice": LossTerm((right_B * loss_B).sum(), self.counts(batch.host)["choice"], correct.detach())}

    def choice_scores(self, logits: Logits, encoded: Sequences) -> list[Logits]:
        """Returns the score of each choice, for each example. (C,)"""
        return np.split(logits, encoded.windows[1:-1])

    def decode(self, logits: Logits, encoded: Sequences, examples: Sequence[Example]) -> list[Prediction]:
        """Returns the most probable choice, the first one for a tie."""
        predictions = []
        for part in self.choice_scores(logits, encoded):
            row = softmax(part).tolist()
            best = max(range(len(row)), key=row.__getitem__)
            predictions.append(Prediction(str(best), row[best], {str(i): p for i, p in enumerate(row)}))
        return predictions

    @classmethod
    def sample(cls, texts: int) -> str:
        """Returns a context with two choices."""
        return json.dumps({"context": "It began to rain, so she", "ending0": "took a coat.", "ending1": "ate a pear."})

    def render(self, example: Example, prediction: Prediction) -> RenderedExample:
        """Renders the choices with their numbers, with the correct and the predicted one marked."""
        choices = []
        for number, choice in enumerate(map(str, range(len(example.texts) - 1))):
            kinds = [kind for kind, label in ((TRUE, example.label), (GIVEN, prediction.label)) if label == choice]
            choices.append((TextSpan(f"{choice}: "), TextSpan(example.texts[1 + number], " ".join(kinds))))
        return replace(super().render(example, prediction), texts=(render_plain_text(example.texts[0]), *choices))

    def slices(self, example: Example, prediction: Prediction, tokens: int, long: bool) -> dict[str, str]:
        """Subgroups also by the number of choices and the position of the correct one."""
        slices = super().slices(example, prediction, tokens, long)
        choices = str(int(slices.pop("texts")) - 1)
        return {**slices, "choices": choices, "right choice": str(example.label)}

    def scores(self) -> Accuracy:
        """Returns a counter of correct questions."""
        return Accuracy()


def _table(logits: "Tensor", question: "Tensor", choice: "Tensor", questions: int, most: int) -> "Tensor":
    """Arranges logits of sequences (W,) by question and choice -> (G, C), minus infinity where there is no choice.

    questions: G; most: C, the maximum number of choices.
    """
    table_GC = logits.new_full((questions, most), -math.inf)
    return table_GC.index_put((question, choice), logits)
