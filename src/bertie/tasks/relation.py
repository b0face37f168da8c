"""Relation classification: the relation of two entities in a sentence, such as born in, or no relation. KLUE-RE.

    [CLS] <subj>Ada</subj> was born in <obj>London</obj>. [SEP]      one label, as for any sentence

The entities are marked in the text before it is tokenized: with their roles, as in KLUE-baseline (Park et al. 2021,
4.3; data/klue_re.py), or with their types too (Zhou and Chen 2022, "typed entity marker (punct)").

E examples
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from bertie.io.fields import Fields, as_text
from bertie.io.lines import BadRecord
from bertie.io.table_format import Columns
from bertie.io.tables import Example
from bertie.io.tables import example as table_example
from bertie.io.words import in_characters, whole_number
from bertie.metrics.base import ScoreCounter
from bertie.metrics.relations import RelationScores
from bertie.tasks.answerer import Prediction
from bertie.tasks.render import ASKED, RenderedExample, noted
from bertie.tasks.sequence import MAX_PROBABILITIES, SequenceTask
from bertie.text.sequences import Sequences
from bertie.text.tokenizer import Tokenizer
from bertie.training_facts import TooLong

_ROLES = ("subject_entity", "object_entity")
MARKS = {
    "plain": ("<subj>{text}</subj>", "<obj>{text}</obj>"),
    "typed": ("@*{type}*{text}@", "#^{type}^{text}#"),
}


@dataclass(frozen=True)
class RelationEntity:
    """An entity: its characters in the text, and its type."""

    start: int
    end: int
    type: str


@dataclass(frozen=True)
class RelationExample(Example):
    """An example of one text with its subject and object entities."""

    entities: tuple[RelationEntity, ...] = ()


@dataclass(frozen=True)
class RelationTask(SequenceTask):
    """One of `labels` for the two entities in a text. A text without entities is read unchanged: it may have markers.

    markers: the entity markers, a row of MARKS. outside: the label for no relation.
    """

    markers: Literal["plain", "typed"] = "plain"
    outside: str = "no_relation"

    honours = SequenceTask.honours - {
        "weighted_scores",
        "optimize",
        "costs",
        "abstain",
        "coverage",
        "tabular",
        "markup",
    }
    places = True
    reads_vectors = False
    metrics = ("micro_f1", "auprc")
    most_labels = MAX_PROBABILITIES  # auprc asks for all probabilities

    @classmethod
    def example(cls, fields: Fields, columns: Columns, line: int) -> Example | BadRecord:
        """Returns the text with its two entities, each from start_idx to end_idx, inclusive."""
        row = table_example(fields, columns, line)
        if isinstance(row, BadRecord):
            return row
        for role in _ROLES:
            if isinstance(value := fields.get(role), str) and value.strip():  # as `predict` writes it into a csv
                try:
                    fields = {**fields, **{f"{role}.{name}": as_text(one) for name, one in json.loads(value).items()}}
                except (ValueError, AttributeError):
                    return BadRecord(line, f"{role} is not a JSON object")
        if not any(f"{role}.start_idx" in fields for role in _ROLES):
            return row
        text, entities = row.texts[0], []
        for role in _ROLES:
            word, kind, *offsets = (fields.get(f"{role}.{name}") for name in ("word", "type", "start_idx", "end_idx"))
            start, end = map(whole_number, offsets)
            if start is None or end is None:
                known = all(one not in (None, "") for one in offsets)
                return BadRecord(line, f"no {role} with start_idx and end_idx{' in whole numbers' if known else ''}")
            places = in_characters(text, [(start, end + 1, word)], "characters")
            if places is None:
                return BadRecord(line, f"the {role} is not at the given position")
            entities.append(RelationEntity(*places[0], str(kind or "")))
        first, second = sorted(entities, key=lambda entity: entity.start)
        if second.start < first.end:
            return BadRecord(line, "the two entities overlap")
        return RelationExample(row.texts, row.label, line, str(fields.get("guid") or ""), tuple(entities))

    def encode(
        self, examples: Sequence[Example], tokenizer: Tokenizer, *, max_length: int, too_long: TooLong
    ) -> Sequences:
        """Encodes the texts with entity markers."""
        marked = [Example((self.marked(example), *example.texts[1:])) for example in examples]
        return super().encode(marked, tokenizer, max_length=max_length, too_long=too_long)

    def marked(self, example: Example) -> str:
        """Returns the text with entity markers."""
        text = example.texts[0]
        if not isinstance(example, RelationExample):
            return text
        pairs = zip(example.entities, MARKS[self.markers], strict=True)
        for entity, mark in sorted(pairs, key=lambda pair: -pair[0].start):
            name = mark.format(text=text[entity.start : entity.end], type=entity.type)
            text = text[: entity.start] + name + text[entity.end :]
        return text

    def notes(self, train: Sequence[Example], dev: Sequence[Example]) -> list[str]:
        """Warns also if no example has the label for no relation, so that all labels count."""
        note = f"no training example has the label {self.outside!r} (task_options.outside): micro F1 counts all labels"
        return super().notes(train, dev) + [note] * (self.outside not in self.labels)

    @classmethod
    def sample(cls, texts: int) -> str:
        """Returns a text with the positions of its two entities, the last character included."""
        text, ends = "Ada lived in Paris.", ((0, 2), (13, 17))
        names = {role: {"start_idx": a, "end_idx": b} for role, (a, b) in zip(_ROLES, ends, strict=True)}
        return json.dumps({"text": text, **names})

    def render(self, example: Example, prediction: Prediction) -> RenderedExample:
        """Renders the text with its two entities marked."""
        shown = super().render(example, prediction)
        if not isinstance(example, RelationExample):
            return shown
        entities = zip(example.entities, ("subject", "object"), strict=True)
        spans = [(name.start, name.end, ASKED, f"{role} {name.type}".rstrip()) for name, role in entities]
        return replace(shown, texts=(noted(example.texts[0], sorted(spans)),))

    def scores(self) -> RelationScores:
        """Returns a counter of true and predicted labels, with probabilities."""
        return RelationScores(self.labels, self.outside)

    def count(self, scores: ScoreCounter, examples: Sequence[Example], predictions: Sequence[Prediction]) -> None:
        """Adds the labels and the probabilities of all labels."""
        super().count(scores, examples, predictions)
        assert isinstance(scores, RelationScores)
        scores.add_probabilities(
            (str(example.label) for example in examples), (answer.scores for answer in predictions)
        )
