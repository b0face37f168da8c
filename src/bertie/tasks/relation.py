"""How two names in a sentence are related: born in, founded by, no relation at all. KLUE-RE.

    [CLS] <subj>Ada</subj> was born in <obj>London</obj>. [SEP]      one label, as for any sentence

The names are marked in the text before it is cut into pieces: with their roles, as KLUE-baseline marks them (Park et
al. 2021, 4.3; data/klue_re.py), or with their types too (Zhou and Chen 2022, "typed entity marker (punct)").

E examples
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from bertie.data.tables import Columns, Example, Fields, InvalidRow
from bertie.data.tables import example as table_example
from bertie.metrics.base import Scores
from bertie.metrics.relations import RelationScores
from bertie.tasks.answerer import Prediction
from bertie.tasks.render import ASKED, RenderedExample, noted
from bertie.tasks.sequence import SHOWN, SequenceTask
from bertie.tasks.source import Encoded, TooLong
from bertie.text.tokenizer import Tokenizer

ROLES = ("subject_entity", "object_entity")
MARKS = {
    "plain": ("<subj>{text}</subj>", "<obj>{text}</obj>"),
    "typed": ("@*{type}*{text}@", "#^{type}^{text}#"),
}


@dataclass(frozen=True)
class Entity:
    """A name: its characters in the text, and what kind of name it is."""

    start: int
    end: int
    type: str


@dataclass(frozen=True)
class RelationExample(Example):
    """An example of one text with the names whose relation is asked, subject and object."""

    entities: tuple[Entity, ...] = ()


@dataclass(frozen=True)
class RelationTask(SequenceTask):
    """One of `labels` for the two names in a text. A text without names is read as it is: it may be marked already.

    markers: what stands around names, a row of MARKS. outside: the label that says there is no relation.
    """

    markers: Literal["plain", "typed"] = "plain"
    outside: str = "no_relation"

    metrics = ("micro_f1", "auprc")
    most_labels = SHOWN  # auprc asks for all probabilities

    @classmethod
    def example(cls, fields: Fields, columns: Columns, line: int) -> Example | InvalidRow:
        """The text with its two names, each from start_idx to end_idx, that character too."""
        found = table_example(fields, columns, line)
        if isinstance(found, InvalidRow) or not any(f"{role}.start_idx" in fields for role in ROLES):
            return found
        text, entities = found.texts[0], []
        for role in ROLES:
            word, kind, *ends = (fields.get(f"{role}.{name}") for name in ("word", "type", "start_idx", "end_idx"))
            if not all(isinstance(end, str) and end.isdecimal() for end in ends):
                return InvalidRow(line, f"no {role} with start_idx and end_idx")
            start, end = int(str(ends[0])), int(str(ends[1])) + 1
            if not start < end <= len(text) or word not in (None, text[start:end]):
                return InvalidRow(line, f"the {role} is not at the given position")
            entities.append(Entity(start, end, str(kind or "")))
        first, second = sorted(entities, key=lambda entity: entity.start)
        if second.start < first.end:
            return InvalidRow(line, "the two entities overlap")
        return RelationExample(found.texts, found.label, line, str(fields.get("guid") or ""), tuple(entities))

    def encode(
        self, examples: Sequence[Example], tokenizer: Tokenizer, *, max_length: int, too_long: TooLong
    ) -> Encoded:
        """The texts with their names marked."""
        marked = [Example((self.marked(example), *example.texts[1:])) for example in examples]
        return super().encode(marked, tokenizer, max_length=max_length, too_long=too_long)

    def marked(self, example: Example) -> str:
        """The text with marks around its names."""
        text = example.texts[0]
        if not isinstance(example, RelationExample):
            return text
        pairs = zip(example.entities, MARKS[self.markers], strict=True)
        for entity, mark in sorted(pairs, key=lambda pair: -pair[0].start):
            name = mark.format(text=text[entity.start : entity.end], type=entity.type)
            text = text[: entity.start] + name + text[entity.end :]
        return text

    @classmethod
    def sample(cls, texts: int) -> str:
        """A text with the places of its two names, the last character included."""
        text, ends = "Ada lived in Paris.", ((0, 2), (13, 17))
        names = {role: {"start_idx": a, "end_idx": b} for role, (a, b) in zip(ROLES, ends, strict=True)}
        return json.dumps({"text": text, **names})

    def render(self, example: Example, prediction: Prediction) -> RenderedExample:
        """The text with its two names marked."""
        shown = super().render(example, prediction)
        if not isinstance(example, RelationExample):
            return shown
        named = zip(example.entities, ("subject", "object"), strict=True)
        spans = [(name.start, name.end, ASKED, f"{role} {name.type}".rstrip()) for name, role in named]
        return replace(shown, texts=(noted(example.texts[0], sorted(spans)),))

    def scores(self) -> RelationScores:
        """Counts of (true, predicted) label, and how probable each was."""
        return RelationScores(self.labels, self.outside)

    def count(self, scores: Scores, examples: Sequence[Example], predictions: Sequence[Prediction]) -> None:
        """The labels, and how probable every label was."""
        super().count(scores, examples, predictions)
        assert isinstance(scores, RelationScores)
        scores.add_probabilities(
            (str(example.label) for example in examples), (answer.scores for answer in predictions)
        )
