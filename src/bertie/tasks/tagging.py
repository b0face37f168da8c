"""Token classification: a tag for each word of a sentence (named entities, chunks, parts of speech). CoNLL, WNUT, UD,
KLUE.

    [CLS] Ada  sail ##s [SEP]      each word is classified from its first token (Devlin et al. 2018, 5.3)
          B-PER O

A word is a range of characters of the text. The token with its first character is classified. Where several words begin
in one token (the words of KLUE-NER are characters), the first word is classified, and the others continue its tag. Long
sentences are split into windows, and each word is classified in the window with the most context.

T tokens · P tokens of a text · N words · L tags
"""

import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, Self, cast

import numpy as np
from numpy.typing import NDArray

from bertie.console import console
from bertie.errors import DataError
from bertie.files import Json, JsonObject
from bertie.io.columns import LookAhead, no_rows
from bertie.io.fields import Fields
from bertie.io.lines import BadRecord
from bertie.io.rows import table_kind
from bertie.io.table_format import Columns, TableFormat
from bertie.io.tables import Example
from bertie.io.tagged import FOLDER_FORMAT, FORMATS, kind_of_words, sentences, word_table
from bertie.io.words import Span, TaggedExample, tag_words, word_spans
from bertie.metrics.tags import OUTSIDE, Entity, Scheme, TagScores, inside, renamed, rewrite, split_tag, tag_entities
from bertie.models.facts import Facts
from bertie.models.head_config import FEATURES_PREFIX, FeatureKind
from bertie.models.loss import LabelAxis, LossReport, LossTerm, right
from bertie.tasks.answerer import Logits, Prediction, TaggedWord, softmax
from bertie.tasks.base import Task
from bertie.tasks.places import encode_places, fullest
from bertie.tasks.render import GIVEN, MOST, RenderedExample, noted
from bertie.tasks.source import Targets, batch_of_examples
from bertie.text.sequences import Arrays, Int, Sequences, ranges, token_budget
from bertie.text.tokenizer import Tokenizer
from bertie.training_facts import TooLong

if TYPE_CHECKING:
    from torch import Tensor

    from bertie.models.batch import Batch
    from bertie.models.encoder import EncoderOutput
    from bertie.models.heads.features import FeatureHead
    from bertie.models.model import TorchModel

_FEATURES_TARGET = "features"
SPLIT = "tokens"  # column of a sentence that has been split into words
_PASS_TOKENS = 4096  # of one forward pass
ODD = re.compile(r"[BIOESULMW][_:/.].+|.+[-_:/.](?i:[BIOESULMW]|BEGIN|INSIDE|END|SINGLE|UNIT|LAST)|-")
"""A tag that looks like one of a scheme, and is not: B_PER, PER-B, and spaCy's mark for a word without a tag."""
_NONE = -1  # a word without a piece, such as a control character that the tokenizer leaves out


@dataclass(frozen=True)
class TagPrediction(Prediction):
    """A prediction whose label is the words' tags. spans: the words' characters in `text`; probabilities: of each
    tag."""

    label: tuple[str, ...]
    text: str = ""
    spans: tuple[Span, ...] = ()
    probabilities: tuple[float, ...] = ()

    @property
    def tagged_words(self) -> list[TaggedWord]:
        """The words with their tags."""
        words = zip(self.label, self.probabilities, self.spans, strict=True)
        return [TaggedWord(tag, p, start, end) for tag, p, (start, end) in words]

    @property
    def entities(self) -> list[Entity]:
        """The entities of the tags, by characters of the text."""
        entities = tag_entities(self.label)
        return [Entity(type, self.spans[start][0], self.spans[end - 1][1]) for type, start, end in entities]

    def as_json(self) -> JsonObject:
        """Returns words with their characters, tags and probabilities; and entities, unless every word is one."""
        words = [
            {"text": self.text[start:end], "start": start, "end": end, "label": tag, "probability": round(p, 6)}
            for tag, p, start, end in self.tagged_words
        ]
        entities = [
            {"type": type, "text": self.text[start:end], "start": start, "end": end}
            for type, start, end in self.entities
        ]
        return {"words": words, "entities": entities}

    def render(self, texts: Sequence[str]) -> RenderedExample:
        """Returns the text with its entities marked: each word, where the tags are parts of speech."""
        marks = [(start, end, GIVEN, type) for type, start, end in self.entities]
        return RenderedExample((noted(self.text, marks),), "", "")


@dataclass(frozen=True)
class TaggingTask(Task):
    """One of `labels` for each word. Raises DataError for fewer than two.

    scheme: the scheme that the tags are converted to before training. strict: how entities are counted
    (metrics/tags.py). unit: the word unit of a text without given words. features: the layers that a BiLSTM reads of a
    frozen encoder (models/heads/features.py); None: the whole model is trained. context: whether sentences around one
    in its document fill its window (Devlin et al. 2018, 5.3); loss and scores are of the sentence alone.
    """

    reads_words = True
    reads_columns = False
    head = "token"
    label_axes: ClassVar[Mapping[str, LabelAxis]] = {"tag": "token", "weight": "token"}
    input_texts = range(1, 2)
    metrics = ("f1", "accuracy")
    baselines = ("tag",)
    too_long = "window"
    most_labels = 10_000
    csv_columns = ("words", "entities")

    scheme: Scheme = "as_given"
    strict: bool = False
    unit: Literal["word", "character"] = "word"
    features: FeatureKind | None = None
    context: Literal["sentence", "document"] = "sentence"

    def __post_init__(self) -> None:
        if len(self.labels) < 2:
            have = f"only {self.labels[0]!r}" if self.labels else "no tag at all"
            raise DataError(f"Tagging needs at least two tags; the training examples have {have}.")

    @property
    def given_names(self) -> tuple[str, ...]:
        """The tags, and the types of their entities."""
        return (*self.labels, *dict.fromkeys(split_tag(tag)[1] for tag in self.labels if tag != OUTSIDE))

    @classmethod
    def rows(
        cls, path: Path | str, format: TableFormat, *, on_columns: Callable[[Columns], None] = lambda columns: None
    ) -> Iterator[Example | BadRecord]:
        """Reads tagged sentences (io/tagged.py), and for prediction also texts from tables, lines and standard
        input."""
        if format.file.kind in ("", table_kind(path)):  # as its name says; the first line may say more
            format = replace(format, file=replace(format.file, kind=kind_of_words(path) or format.file.kind))
        kind = format.file.kind
        table = word_table(path, format)
        if (
            not table
            and not format.columns.labelled
            and (kind not in (*FORMATS, FOLDER_FORMAT) or kind in ("json", "parquet"))
        ):
            yield from super().rows(path, format, on_columns=on_columns)
            return
        word = table.word if table else (*format.columns.text, "text")[0]
        tag = table.tag if table else format.columns.label or "tags"
        on_columns(Columns((word,), tag if format.columns.labelled else None))
        for row in sentences(path, format):
            if format.columns.labelled and isinstance(row, Example):
                if row.label is None:
                    row = BadRecord(row.line, "no tags and no entities")
                elif format.labels.names:
                    row = replace(row, label=tuple(renamed(tag, format.labels.names) for tag in row.label))
            yield row

    @classmethod
    def columns(cls, names: Sequence[str], columns: Columns, where: str, look: LookAhead = no_rows) -> Columns:
        """Returns the column of the text, or of its words."""
        words = SPLIT in names and "text" not in names and not (columns.text or columns.labelled)
        return Columns((SPLIT,), None) if words else super().columns(names, columns, where, look)

    @classmethod
    def example(cls, fields: Fields, columns: Columns, line: int) -> Example | BadRecord:
        """Returns the example of one row: of its words, if they are a list, or of its text."""
        words = fields.get(SPLIT)
        return tag_words(words, None, line) if isinstance(words, list) else super().example(fields, columns, line)

    @classmethod
    def from_examples(cls, examples: Sequence[Example], names: tuple[str, ...], options: Json) -> Self:
        """Returns the task with the tags in the data set's order where it has all; words are characters if all are."""
        spans = (span for example in examples for span in words_of(example, "word"))
        unit = "character" if all(end - start == 1 for start, end in spans) else "word"
        scheme = options.get("scheme", "as_given")
        tags = {tag for example in examples for tag in rewrite(example.label, scheme)}
        if options.get("context") == "document" and not any(any(_neighbors(example)) for example in examples):
            raise DataError(
                "context=document needs the documents of the sentences. Divide them in the CoNLL file by lines of "
                "-DOCSTART-, or omit it."
            )
        labels = names if tags <= set(names) else tuple(sorted(tags, key=lambda tag: (tag != OUTSIDE, tag)))
        return cls.make(labels, {"unit": unit, **options})

    def notes(self, train: Sequence[Example], dev: Sequence[Example]) -> list[str]:
        """Warns about tags only in dev, and about entities that begin or end within a word."""
        notes = []
        for name, examples in (("training", train), ("dev", dev)):
            if widened := sum(example.widened for example in examples if isinstance(example, TaggedExample)):
                notes.append(f"{widened:,} {name} entities begin or end within a word and are read as whole words")
        if odd := sorted(tag for tag in self.labels if ODD.fullmatch(tag)):
            notes.append(
                f"tags such as {', '.join(map(repr, odd[:3]))} are in none of the schemes BIO, IOB1, BIOES, BILOU and "
                "BMEWO: each is a type of its own, and no entity has several words. Write them as B-TYPE and I-TYPE"
            )
        unknown = {tag for example in dev for tag in rewrite(example.label, self.scheme)} - set(self.labels)
        if unknown:
            shown = ", ".join(map(repr, sorted(unknown)[:10]))
            notes.append(f"dev has tags that do not occur in training and count as errors: {shown}")
        return notes

    @property
    def output(self) -> str:
        """Returns a linear layer over the last hidden states, or the BiLSTM over features."""
        return f"{FEATURES_PREFIX}{self.features}" if self.features else self.head

    def forward(self, model: "TorchModel", batch: "Batch") -> "EncoderOutput":
        """Runs the encoder on a batch, or returns its stored features."""
        from bertie.models.encoder import EncoderOutput

        if _FEATURES_TARGET in batch.labels:
            return EncoderOutput(batch.labels[_FEATURES_TARGET], batch.layout)
        return super().forward(model, batch)

    def computed(self, model: "TorchModel", encoded: Sequences) -> Arrays:
        """Returns "features" (T, F) float32 of a frozen encoder, computed once for all epochs, in a temporary file."""
        if self.features is None:
            return {}
        import torch

        head = cast("FeatureHead", model.heads[self.output])
        features: NDArray[np.float32] | None = None
        with torch.inference_mode(), console.progress("features", len(encoded.lengths), unit="sequences") as advance:
            for sequences in token_budget(encoded.lengths, max_tokens=_PASS_TOKENS):
                batch = batch_of_examples(encoded, sequences).to(model.device)
                features_TF = head.select(model.encode(batch)).float().cpu().numpy()
                if features is None:
                    shape = (len(encoded.input_ids), features_TF.shape[1])
                    file = tempfile.TemporaryFile()  # noqa: SIM115 (it goes with the array)
                    features = np.memmap(file, np.float32, mode="w+", shape=shape)
                features[ranges(encoded.starts[sequences], encoded.starts[sequences + 1])] = features_TF
                advance(len(sequences))
        return {} if features is None else {_FEATURES_TARGET: features}

    def encode(
        self, examples: Sequence[Example], tokenizer: Tokenizer, *, max_length: int, too_long: TooLong
    ) -> Sequences:
        """Returns windows over the sentence, each overlapping half of the next."""
        return encode_places(
            examples,
            tokenizer,
            max_length=max_length,
            too_long=too_long,
            stride=max_length // 2,
            around=_neighbors if self.context == "document" else lambda example: ((), ()),
        )

    def targets(self, examples: Sequence[Example], encoded: Sequences) -> Targets:
        """Returns "tag" (T,) int64 and "weight" (T,) float32: 1 for the first tokens of words whose tag is known."""
        number = {tag: i for i, tag in enumerate(self.labels)}
        tag_T, weight_T = np.zeros(len(encoded.input_ids), np.int64), np.zeros(len(encoded.input_ids), np.float32)
        rows_N, _ = tokens_of_words(examples, encoded, self.unit)
        tags = [tag for example in examples for tag in rewrite(example.label, self.scheme)]
        tag_N = np.array([number.get(tag, _NONE) for tag in tags], np.int64)
        teaches = (rows_N != _NONE) & (tag_N != _NONE)
        tag_T[rows_N[teaches]], weight_T[rows_N[teaches]] = tag_N[teaches], 1.0
        return Targets(token={"tag": tag_T, "weight": weight_T})

    def counts(self, batch: "Batch") -> dict[str, int]:
        """Returns the number of classified tokens."""
        return {"tag": round(float(batch.labels["weight"].sum()))}

    def losses(self, logits: "Tensor", batch: "Batch") -> LossReport:
        """Returns the cross-entropy of the first tokens of words. logits (T, L)"""
        from torch.nn.functional import cross_entropy

        target_T, weight_T = batch.labels["tag"], batch.labels["weight"]
        loss_T = cross_entropy(logits, target_T, reduction="none")
        correct = (weight_T * right(logits, target_T)).sum()
        return {"tag": LossTerm((weight_T * loss_T).sum(), self.counts(batch.host)["tag"], correct.detach())}

    def decode(self, logits: Logits, encoded: Sequences, examples: Sequence[Example]) -> list[Prediction]:
        """Returns the most probable tag of each word. logits (T, L)"""
        rows_N, before_N = tokens_of_words(examples, encoded, self.unit)
        probability_TL = softmax(logits)
        tag_T, p_T = probability_TL.argmax(-1).tolist(), probability_TL.max(-1).tolist()
        outside = OUTSIDE if OUTSIDE in self.labels else self.labels[0]
        answers: list[Prediction] = []
        at = 0
        for example in examples:
            spans = words_of(example, self.unit)
            tags, values = [], []
            for word in range(at, at + len(spans)):
                row, before = int(rows_N[word]), int(before_N[word])
                if row != _NONE:
                    tags.append(self.labels[tag_T[row]])
                    values.append(p_T[row])
                else:
                    tags.append(outside if before == _NONE else inside(self.labels[tag_T[before]]))
                    values.append(0.0 if before == _NONE else p_T[before])
            at += len(spans)
            answers.append(TagPrediction(tuple(tags), None, {}, example.texts[0], spans, tuple(values)))
        return answers

    def error_score(self, example: Example, prediction: Prediction) -> float:
        """Returns the sum of the probabilities of wrong tags."""
        assert isinstance(prediction, TagPrediction)
        truth = rewrite(example.label, self.scheme)
        answers = zip(truth, prediction.label, prediction.probabilities, strict=True)
        return sum(p for true, predicted, p in answers if true != predicted)

    def render(self, example: Example, prediction: Prediction) -> RenderedExample:
        """Renders the sentence with the wrong words marked, and the entities that differ."""
        assert isinstance(prediction, TagPrediction)
        text, truth = example.texts[0], rewrite(example.label, self.scheme)
        answers = zip(prediction.spans, truth, prediction.label, strict=True)
        wrong = [(*span, GIVEN, f"{predicted}, not {true}") for span, true, predicted in answers if true != predicted]
        both = [replace(prediction, label=tuple(tags)).entities for tags in (truth, prediction.label)]
        missed, made_up = (
            ", ".join(f"{one.type} {text[one.start : one.end]}" for one in a if one not in b) or "nothing else"
            for a, b in (both, both[::-1])
        )
        note = f"{len(wrong):,} of {len(truth):,} words"
        return RenderedExample((noted(text, wrong),), missed[:MOST], made_up[:MOST], note=note)

    def scores(self) -> TagScores:
        """Returns a counter of true and predicted tags by sentence."""
        return TagScores(self.labels, self.strict, self.scheme)

    @classmethod
    def of_model(cls, facts: Facts, settings: Mapping[str, object]) -> Self | None:
        """Returns the task for a head on tokens, with default names of tags where config.json has none."""
        name = next((name for name in facts.heads if name == cls.head or name.startswith(FEATURES_PREFIX)), None)
        if name is None:
            return None
        features = name.removeprefix(FEATURES_PREFIX) if name.startswith(FEATURES_PREFIX) else None
        return cls.make(facts.label_names(name), {**settings, "features": features})


def _neighbors(example: Example) -> tuple[Sequence[str], Sequence[str]]:
    """Returns the sentences before and after an example in its document."""
    document, place = (example.document, example.place) if isinstance(example, TaggedExample) else ((), 0)
    return document[:place], document[place + 1 :]


def words_of(example: Example, unit: str) -> tuple[Span, ...]:
    """Returns the characters of each word: the given ones, or those of the split text."""
    if isinstance(example, TaggedExample):
        return example.spans
    return word_spans(example.texts[0], unit)


def tokens_of_words(examples: Sequence[Example], encoded: Sequences, unit: str) -> tuple[Int, Int]:
    """Returns the token that classifies each word of all examples -> (N,) rows of T, or NONE; (N,) rows of T, or NONE

    The first array has the token of the word. For a word that begins in the token of an earlier word, the second has
    it.
    """
    rows_P = fullest(encoded, 0)
    window_P = np.searchsorted(encoded.starts, rows_P, side="right") - 1
    base = np.concatenate([[0], np.cumsum([len(example.texts[0]) + 1 for example in examples])])
    start_P, end_P = (encoded.places[name][rows_P] + base[encoded.example[window_P]] for name in ("start", "end"))
    spans: NDArray[np.int64] = np.array(
        [(base[i] + s, base[i] + e) for i, example in enumerate(examples) for s, e in words_of(example, unit)], np.int64
    ).reshape(-1, 2)
    piece_N = np.searchsorted(end_P, spans[:, 0], side="right")
    if not len(rows_P):
        return np.full(len(spans), _NONE, np.int64), np.full(len(spans), _NONE, np.int64)
    clipped_N = np.minimum(piece_N, len(rows_P) - 1)
    there_N = (piece_N < len(rows_P)) & (start_P[clipped_N] < spans[:, 1])
    token_N = np.where(there_N, rows_P[clipped_N], _NONE)
    first_N = np.zeros(len(spans), bool)
    first_N[np.unique(token_N, return_index=True)[1]] = True
    return np.where(first_N & there_N, token_N, _NONE), np.where(first_N, _NONE, token_N)
