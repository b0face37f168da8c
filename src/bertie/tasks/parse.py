"""Dependency parsing: the head of each word of a sentence, and the relation. KLUE-DP, Universal Dependencies.

    [CLS] Ada row ##s . [SEP]      Ada -> rows (nsubj), rows -> [CLS] (root)

A word is represented by its first and its last token, and the root by [CLS]. Each word chooses its head among all
others (Park et al. 2021, 4.3; Dozat and Manning 2017). Words choose independently, so the result may not be a tree;
most are. KLUE-baseline has LSTMs after the encoder, and reads the part-of-speech tags of the file. Here, only the
encoder and the text are used.

B sequences · S longest · T tokens · N words · F size of the head's output per token · L relations
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self, cast

import numpy as np
from pydantic import Field

from bertie.errors import DataError
from bertie.files import JsonObject
from bertie.io.conll import FORMATS, is_tree, trees
from bertie.io.lines import BadRecord
from bertie.io.streams import suffix_of
from bertie.io.table_format import Columns, TableFormat
from bertie.io.tables import Example
from bertie.io.words import Span, word_spans
from bertie.metrics.parsing import Arc, ParseScores
from bertie.models.biaffine import LAST, arc_scores, relation_scores
from bertie.models.loss import LossReport, LossTerm, right
from bertie.tasks.answerer import Logits, Prediction
from bertie.tasks.base import Task
from bertie.tasks.places import SPECIAL_PLACE, encode_places
from bertie.tasks.render import GIVEN, MOST, RenderedExample, mark_text, noted
from bertie.tasks.source import Targets
from bertie.tasks.tagging import words_of
from bertie.text.sequences import Int, Sequences
from bertie.text.tokenizer import Tokenizer
from bertie.training_facts import TooLong

if TYPE_CHECKING:
    from torch import Tensor

    from bertie.models.batch import Batch
    from bertie.models.encoder import EncoderOutput
    from bertie.models.model import TorchModel

_NONE = -1


@dataclass(frozen=True)
class ParsePrediction(Prediction):
    """A prediction whose label has for each word (head, relation).

    The head is counted from 1, and 0 is the root; None where a word was not read. spans: the words' characters in
    `text`.
    """

    label: tuple[Arc, ...]
    text: str = ""
    spans: tuple[Span, ...] = ()

    def as_json(self) -> JsonObject:
        """Returns words with their characters, head and relation, and whether they form a tree."""
        words = [
            {"text": self.text[start:end], "start": start, "end": end, "head": head, "relation": relation}
            for (start, end), (head, relation) in zip(self.spans, self.label, strict=True)
        ]
        return {"words": words, "tree": is_tree([head for head, _ in self.label])}

    def render(self, texts: Sequence[str]) -> RenderedExample:
        """Returns the text with the relation and the head of each word."""

        def note(arc: Arc) -> str:
            head, relation = arc
            return (
                "not read"
                if head is None
                else f"{relation} {self.text[slice(*self.spans[head - 1])]}"
                if head
                else "root"
            )

        marks = [(*span, GIVEN, note(arc)) for span, arc in zip(self.spans, self.label, strict=True)]
        return RenderedExample((noted(self.text, marks),), "", "")


@dataclass(frozen=True)
class ParseTask(Task):
    """Predicts a head for each word, and one of `labels` as the relation. Raises DataError without relations.

    unit: how a text without given words is split: at spaces, or also at punctuation. frequent: the number of labels
    that are separate classes in las_macro_f1 (metrics/parsing.py); None: all.
    """

    reads_words = True
    reads_columns = False
    head = "parse"
    input_texts = range(1, 2)
    no_windows = "Dependency parsing does not support windows"
    metrics = ("las", "uas")
    most_labels = 500
    csv_columns = ("words", "tree")
    unit: Literal["space", "word"] = "space"
    frequent: Annotated[int, Field(ge=1)] | None = None

    def __post_init__(self) -> None:
        if not self.labels:
            raise DataError("None of the words has a relation to train on.")

    @classmethod
    def rows(
        cls, path: Path | str, format: TableFormat, *, on_columns: Callable[[Columns], None] = lambda columns: None
    ) -> Iterator[Example | BadRecord]:
        """Reads parsed sentences (io/conll.py), and for prediction also texts from tables, lines and standard
        input."""
        if not format.columns.labelled and format.file.kind not in FORMATS and suffix_of(path) != "conllu":
            yield from super().rows(path, format, on_columns=on_columns)
            return
        on_columns(Columns(("text",), "heads" if format.columns.labelled else None))
        names = format.labels.names
        for row in trees(path, format):
            if names and isinstance(row, Example) and row.label:
                row = replace(row, label=tuple((head, names.get(relation, relation)) for head, relation in row.label))
            yield row

    @classmethod
    def from_examples(cls, examples: Sequence[Example], names: tuple[str, ...], options: Mapping[str, object]) -> Self:
        """Returns the task with the relations in the data set's order where it has all; and how words are split."""
        relations = {relation for example in examples for _, relation in example.label}
        spaces = all(words_of(example, "space") == word_spans(example.texts[0], "space") for example in examples)
        labels = names if relations <= set(names) else tuple(sorted(relations))
        return cls.make(labels, {"unit": "space" if spaces else "word", **options})

    def notes(self, train: Sequence[Example], dev: Sequence[Example]) -> list[str]:
        """Warns about relations only in dev."""
        unknown = {relation for example in dev for _, relation in example.label} - set(self.labels)
        shown = ", ".join(map(repr, sorted(unknown)[:10]))
        return [f"dev has relations that do not occur in training and count as errors: {shown}"] if unknown else []

    def encode(
        self, examples: Sequence[Example], tokenizer: Tokenizer, *, max_length: int, too_long: TooLong
    ) -> Sequences:
        """Returns one sequence per sentence. Raises UsageError for windows, and for tokenizers without [CLS]."""
        self.check_windows(too_long)
        cls_id = tokenizer.cls_id  # a UsageError says that there is none
        encoded = encode_places(examples, tokenizer, max_length=max_length, too_long=too_long, stride=max_length)
        last_T = np.full(len(encoded.input_ids), _NONE, np.int64)
        last_T[(encoded.input_ids == cls_id) & (encoded.places["text"] == SPECIAL_PLACE)] = 0
        first_N, end_N = pieces_of(examples, encoded, self.unit)
        read = first_N != _NONE
        last_T[first_N[read]] = (end_N - first_N)[read]
        return replace(encoded, extra={LAST: last_T})

    def targets(self, examples: Sequence[Example], encoded: Sequences) -> Targets:
        """Returns "head" (T,) int64, the position in the sequence of the first token of a word's head; "relation" (T,)
        int64; and their weights "weighs" and "relation_weighs" (T,) float32, 1 for words that were read whose head was
        read and whose relation is known."""
        number = {label: i for i, label in enumerate(self.labels)}
        head_T, relation_T = np.zeros(len(encoded.input_ids), np.int64), np.zeros(len(encoded.input_ids), np.int64)
        weight_T, known_T = np.zeros(len(encoded.input_ids), np.float32), np.zeros(len(encoded.input_ids), np.float32)
        first_N, _ = pieces_of(examples, encoded, self.unit)
        at = 0
        for sequence, example in enumerate(examples):
            count, root = len(words_of(example, self.unit)), self._root(encoded, sequence)
            rows = np.array([root, *first_N[at : at + count]])
            at += count
            for row, (head, relation) in zip(rows[1:], example.label or (), strict=False):
                if row != _NONE and rows[head] != _NONE:
                    head_T[row], weight_T[row] = rows[head] - encoded.starts[sequence], 1.0
                    relation_T[row], known_T[row] = number.get(relation, 0), relation in number
        return Targets(token={"head": head_T, "weighs": weight_T, "relation": relation_T, "relation_weighs": known_T})

    def _root(self, encoded: Sequences, sequence: int) -> int:
        """Returns the token of the root: the first special token."""
        start, end = encoded.starts[sequence : sequence + 2]
        special = encoded.places["text"][start:end] == SPECIAL_PLACE
        return int(start + np.flatnonzero(special & (encoded.extra[LAST][start:end] == 0))[0])

    def forward(self, model: "TorchModel", batch: "Batch") -> "EncoderOutput":
        """Runs the encoder, and adds the last token of a token's word to each token."""
        from bertie.models.heads.token import with_last_pieces

        return with_last_pieces(super().forward(model, batch), batch.labels[LAST])

    def counts(self, batch: "Batch") -> dict[str, int]:
        """Returns the numbers of words in the losses of heads and of relations."""
        heads, relations = batch.labels["weighs"].sum(), batch.labels["relation_weighs"].sum()
        return {"head": round(float(heads)), "relation": round(float(relations))}

    def losses(self, logits: "Tensor", batch: "Batch") -> LossReport:
        """Returns the cross-entropy of heads among a sentence's words, and of relations to the true heads. logits
        (T, F)"""
        import torch

        square = batch.layout.rectangle
        labels = {name: square(label) for name, label in batch.labels.items()}
        logits_BSF = square(logits)
        head_BS, length = labels["head"], logits_BSF.shape[1]
        may_be_head_BS = batch.layout.mask() & (labels[LAST] != _NONE)
        itself_SS = torch.eye(length, dtype=torch.bool, device=logits.device)
        allowed_BSS = may_be_head_BS[:, None, :] & ~itself_SS
        scores_BSS = arc_scores(logits_BSF, logits_BSF).masked_fill(~allowed_BSS, -torch.inf)
        at_head_BSF = logits_BSF.gather(1, head_BS[..., None].expand_as(logits_BSF))
        counts = self.counts(batch.host)
        parts = {}
        for name, scores, target_BS, weight in (
            ("head", scores_BSS, head_BS, "weighs"),
            ("relation", relation_scores(logits_BSF, at_head_BSF), labels["relation"], "relation_weighs"),
        ):
            host = batch.host
            taught = batch.where(host.layout.rectangle(host.labels[weight]) > 0)
            scores_NX, target_N = scores.flatten(0, 1)[taught], target_BS.flatten()[taught]
            loss = torch.nn.functional.cross_entropy(scores_NX, target_N, reduction="sum")
            parts[name] = LossTerm(loss, counts[name], right(scores_NX, target_N).sum().detach())
        return parts

    def decode(self, logits: Logits, encoded: Sequences, examples: Sequence[Example]) -> list[Prediction]:
        """Returns the best head of each word, and the best relation to it. logits (T, F)"""
        answers: list[Prediction] = []
        first_N, _ = pieces_of(examples, encoded, self.unit)
        at = 0
        for sequence, example in enumerate(examples):
            spans = words_of(example, self.unit)
            rows_N = first_N[at : at + len(spans)]
            at += len(spans)
            read = np.flatnonzero(rows_N != _NONE)
            words_NF = logits[rows_N[read]]
            root_and_words = np.concatenate([logits[self._root(encoded, sequence)][None], words_NF])
            scores_NM = arc_scores(words_NF, root_and_words)
            np.fill_diagonal(scores_NM[:, 1:], -np.inf)
            best_N = scores_NM.argmax(-1)
            relations = relation_scores(words_NF, root_and_words[best_N]).argmax(-1).tolist()
            arcs: list[Arc] = [(None, None)] * len(spans)
            for word, best, relation in zip(read.tolist(), best_N.tolist(), relations, strict=True):
                arcs[word] = (int(read[best - 1]) + 1 if best else 0, self.labels[relation])
            answers.append(ParsePrediction(tuple(arcs), None, {}, example.texts[0], spans))
        return answers

    def error_score(self, example: Example, prediction: Prediction) -> float:
        """Returns the number of words with a wrong head or relation."""
        arcs = cast(ParsePrediction, prediction).label
        return float(sum(true != predicted for true, predicted in zip(example.label, arcs, strict=True)))

    def render(self, example: Example, prediction: Prediction) -> RenderedExample:
        """Renders the sentence with the wrong words marked, and their predicted arcs."""
        assert isinstance(prediction, ParsePrediction)
        text, spans = prediction.text, prediction.spans
        pairs = zip(spans, example.label, prediction.label, strict=True)
        wrong = [(span, true, predicted) for span, true, predicted in pairs if true != predicted]

        def written(span: Span, arc: Arc) -> str:
            head, relation = arc
            over = "nothing" if head is None else text[slice(*spans[head - 1])] if head else "root"
            return f"{text[slice(*span)]} → {over} ({relation})"

        truth = ", ".join(written(span, arc) for span, arc, _ in wrong)[:MOST]
        answer = ", ".join(written(span, arc) for span, _, arc in wrong)[:MOST]
        note = f"{len(wrong):,} of {len(spans):,} words"
        return RenderedExample((mark_text(text, [(*span, GIVEN) for span, _, _ in wrong]),), truth, answer, note=note)

    def scores(self) -> ParseScores:
        """Returns a counter of true and predicted arcs by sentence."""
        return ParseScores(self.labels, self.frequent)


def word_places(examples: Sequence[Example], tokenizer: Tokenizer, *, max_length: int) -> tuple[Sequences, Int, Int]:
    """Returns the token ids of sentences, cut at `max_length`, and the first and the last token of each word; NONE."""
    encoded = encode_places(examples, tokenizer, max_length=max_length, too_long="truncate", stride=max_length)
    return encoded, *pieces_of(examples, encoded, "word")


def pieces_of(examples: Sequence[Example], encoded: Sequences, unit: str) -> tuple[Int, Int]:
    """Returns the first and the last token of each word of all examples -> (N,), (N,) rows of T; NONE where it was not
    read.

    Each example is one sequence. When two words begin in the same token, the first one has it.
    """
    first, last = [], []
    for sequence, example in enumerate(examples):
        start, end = encoded.starts[sequence : sequence + 2]
        rows = start + np.flatnonzero(encoded.places["text"][start:end] == 0)
        rows = rows[encoded.places["end"][rows] > encoded.places["start"][rows]]
        spans = np.array(words_of(example, unit), np.int64).reshape(-1, 2)
        begins = np.searchsorted(encoded.places["end"][rows], spans[:, 0], side="right")
        ends = np.searchsorted(encoded.places["start"][rows], spans[:, 1], side="left") - 1
        read = (begins <= ends) & (begins != np.concatenate([[_NONE], begins[:-1]]))
        first.append(np.where(read, rows[np.minimum(begins, len(rows) - 1)] if len(rows) else _NONE, _NONE))
        last.append(np.where(read, rows[ends] if len(rows) else _NONE, _NONE))
    return np.concatenate([np.zeros(0, np.int64), *first]), np.concatenate([np.zeros(0, np.int64), *last])
