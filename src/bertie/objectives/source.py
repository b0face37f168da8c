"""The batches of pre-training: corrupted, labeled, and a function of (seed, step).

    step -> Order -> rows of the epoch's plan -> tokens of the shards -> Sequences -> objective.corrupt -> Batch

B sequences · T real tokens of the batch
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from bertie.console import console, counted
from bertie.data.masking import Vocabulary
from bertie.data.pairing import PACKINGS
from bertie.data.plans import (
    MAX_ROW_LENGTH,
    PLAN_BLOCK,
    Int,
    SamplePlan,
    Sentences,
    cached_plan,
    choose_held_out,
    plan_instances,
)
from bertie.data.shards import Shards
from bertie.errors import DataError, NoRows, UsageError, WrongValue
from bertie.files import home_of
from bertie.models.batch import Batch
from bertie.objectives.base import Objective
from bertie.order import Draws, Order, key, number_samples
from bertie.text.sequences import NOWHERE, STANDS, Sequences
from bertie.text.tokenizer import Tokenizer

VALIDATION_SEED = 0x7E57  # validation looks the same in every run, whatever its seed
VALIDATION_FIRST = 2**62  # and is asked as at the end of a run, whatever changes on the way there
VALIDATION_INSTANCES = 512  # some 9,000 predictions at length 128: the loss to about 0.03 nats


class CorpusSource(ABC):
    """Instances as batches for `fit`: a function of seed and step. Some are held out for `validation_batches`.

    first: the number of the first sample, when an earlier phase of the run has used others. The samples and masks do
    not depend on `micro_batch_size`, ranks and workers.
    """

    order: Order

    def __init__(
        self,
        tokenizer: Tokenizer,
        objective: Objective,
        max_length: int,
        batch_size: int,
        micro_batch_size: int | None,
        seed: int,
        first: int,
    ) -> None:
        self.tokenizer, self.objective, self.vocabulary = tokenizer, objective, Vocabulary.of(tokenizer)
        self.max_length, self.batch_size, self.micro_batch_size = max_length, batch_size, micro_batch_size
        self.seed, self.first = seed, first

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """Changes with everything that changes a batch."""

    @property
    @abstractmethod
    def instances_per_epoch(self) -> int:
        """The number of instances of the first epoch."""

    @property
    @abstractmethod
    def report(self) -> Mapping[str, int]:
        """What an epoch has, and what is held out."""

    @property
    @abstractmethod
    def held_out(self) -> Int:
        """The instances for validation, in order; none where nothing is held out."""

    @abstractmethod
    def instances(self, places: Int, sample_ids: Int) -> tuple[Sequences, Draws]:
        """Returns the instances at indices of this source's order, not corrupted yet, and the draws for their masks."""

    @abstractmethod
    def validation_instances(self, ids: Int, sample_ids: Int, draws: Draws) -> Sequences:
        """Returns some of the instances for validation, not corrupted yet."""

    @property
    def longest(self) -> int:
        """The largest number of tokens and vectors of a sequence."""
        return self.max_length

    @property
    def validates(self) -> bool:
        """Whether instances are held out."""
        return len(self.held_out) > 0

    def batches(self, step: int, *, rank: int = 0, world: int = 1) -> list[Batch]:
        """Returns the micro-batches of step `step` (from 0) on one of `world` ranks. sample_ids count from the run's
        start."""
        ids = number_samples(step, self.batch_size, rank=rank, world=world, first=self.first)
        return [self.corrupted(*self.instances(part, part)) for part in micro_batches(ids, self.micro_batch_size)]

    def validation_batches(self) -> list[Batch]:
        """Returns the held-out instances, with the same masks in every run. Empty when there are none."""
        size, chosen = self.micro_batch_size or self.batch_size, self.held_out
        batches = []
        for ids, part in zip(
            micro_batches(chosen, size), micro_batches(VALIDATION_FIRST + np.arange(len(chosen)), size), strict=True
        ):
            draws = Draws(key(VALIDATION_SEED, 0, ids))
            batches.append(self.corrupted(self.validation_instances(ids, part, draws), draws))
        return batches

    def corrupted(self, batch: Sequences, rng: Draws) -> Batch:
        """Returns sequences as input of the model, with the labels of the objective."""
        return Batch.of(self.objective.corrupt(batch, rng, self.vocabulary))

    def examples(self, count: int = 3) -> list[str]:
        """Returns the first training instances as readable text: the input, with the expected predictions in ‹›."""
        ids = np.arange(self.first, self.first + min(count, self.batch_size))
        return [
            corrupted_texts(
                self.objective.corrupt(*self.instances(one, one), self.vocabulary), self.objective, self.tokenizer
            )
            for one in micro_batches(ids, 1)
        ]

    def draws(self, epochs: Int, instances: Int) -> Draws:
        """Returns the draws for the masks of instances in some epochs."""
        cycle = self.objective.corruption_cycle
        rounds = epochs if cycle is None else epochs % cycle  # dynamic masks or static ones: this is all that differs
        return Draws(key(self.seed, rounds, instances))


class PretrainingSource(CorpusSource):
    """Instances of a corpus of texts. Some documents are held out.

    packing: content of sequences of one text (data/pairing.py). Plans of instances are stored in plans/ next to the
    shards.

    Raises:
        DataError: The objective cannot be trained on the corpus, or the corpus is smaller than a batch.
        UsageError: max_length is too small for an instance, or the objective needs pairs and packing is set.
    """

    def __init__(
        self,
        shards: Shards,
        tokenizer: Tokenizer,
        objective: Objective,
        *,
        max_length: int = 128,
        batch_size: int = 256,
        micro_batch_size: int | None = None,
        seed: int = 0,
        first: int = 0,
        packing: str | None = None,
    ) -> None:
        if not 8 <= max_length <= MAX_ROW_LENGTH:
            raise WrongValue(f"max_length is {max_length:,}; it must be 8 to {MAX_ROW_LENGTH:,}.")
        super().__init__(tokenizer, objective, max_length, batch_size, micro_batch_size, seed, first)
        self.shards = shards
        if objective.pairing is not None and packing is not None:
            raise UsageError(
                f"packing={packing} needs sequences of one text, but {objective.name} reads pairs. Omit "
                "packing, or remove the objective: objectives.nsp=null."
            )
        self.pairing = objective.pairing or PACKINGS[packing or "doc_sentences"]()
        self.frame = tokenizer.frames[self.pairing.segments - 1]
        sep, eos = tokenizer.special_id("sep"), tokenizer.special_id("eos")
        self.separator = eos if sep is None else sep
        if self.pairing.crosses and self.separator is None:
            raise UsageError(
                f"packing={packing} puts a separator between documents, but the tokenizer has none (sep or "
                "eos). Choose packing=doc_sentences."
            )

        lengths, bounds = shards.sentence_lengths(), shards.document_bounds()
        if not len(lengths) or not lengths.any():
            raise NoRows("The corpus is empty. Rebuild it from files that contain text: bertie corpus FILES -o FOLDER")
        out = choose_held_out(lengths, bounds)
        self._train = Sentences.of(lengths, bounds, ~out)
        self._validation = Sentences.of(lengths, bounds, out) if out.any() else None
        objective.check(self._train)

        self._lock = threading.Lock()
        self._plans: dict[int, SamplePlan] = {}
        if self.instances_per_epoch < batch_size:
            raise DataError(
                f"The corpus has {counted(self.instances_per_epoch, 'instance')} of {max_length} tokens, fewer than "
                f"one batch of {batch_size:,}. Add text, or set train.batch_size={self.instances_per_epoch}."
            )
        self.order = Order(lambda epoch: len(self.plan(epoch)), seed, cycle=self.pairing.duplicates)

    @property
    def fingerprint(self) -> str:
        """Changes with everything that changes a batch: corpus, tokenizer, objective, lengths, batch size, seed."""
        parts = (self.shards.fingerprint, self.tokenizer.fingerprint, self.objective, self.pairing)
        numbers = (self.max_length, self.batch_size, self.seed, *([self.first] if self.first else []))
        return xxhash.xxh3_128_hexdigest(repr((*parts, *numbers)).encode())

    @property
    def instances_per_epoch(self) -> int:
        """The number of instances of the first epoch. With new pairs, later epochs differ by a fraction of a
        percent."""
        return len(self.plan(0))

    @property
    def report(self) -> Mapping[str, int]:
        """Returns the statistics of the first epoch's plan, and of the held-out documents."""
        held = self._validation
        return {
            **self.plan(0).report,
            "held_out_documents": held.num_documents if held else 0,
            "held_out_tokens": held.tokens if held else 0,
        }

    def plan(self, epoch: int) -> SamplePlan:
        """Returns the instances of an epoch. They are computed once, and may be requested from several threads."""
        number = epoch % self.pairing.duplicates
        with self._lock:
            if number not in self._plans:
                self._plans[number] = self._make(self._train, self.seed, number, "train")
            return self._plans[number]

    @cached_property
    def held_out(self) -> Int:
        """Some instances of the held-out documents."""
        if (plan := self._validation_plan) is None or not len(plan):
            return NOWHERE
        return Order(len(plan), VALIDATION_SEED).sample_ids(0, min(len(plan), VALIDATION_INSTANCES))

    @cached_property
    def _validation_plan(self) -> SamplePlan | None:
        held = self._validation
        return None if held is None else self._make(held, VALIDATION_SEED, 0, "validation")

    def _make(self, sentences: Sentences, seed: int, number: int, part: str) -> SamplePlan:
        # plans leave space for BERT's special tokens; a family may have more (</s></s>) or fewer
        length = self.max_length - (self.frame.size - self.pairing.segments - 1)
        identity = repr((self.shards.fingerprint, self.pairing, length, seed, number, part))

        def make() -> SamplePlan:
            drawn = key(seed, number)
            if len(sentences) <= PLAN_BLOCK:  # a second or so
                return plan_instances(self.pairing, sentences, max_length=length, seed=drawn)
            with console.progress("pairing", len(sentences), unit="sentences") as advance:
                return plan_instances(self.pairing, sentences, max_length=length, seed=drawn, advance=advance)

        folder = self.shards.folder
        return cached_plan(make, folder and home_of("plans", folder, self.shards.fingerprint[:16]), identity)

    def instances(self, places: Int, sample_ids: Int) -> tuple[Sequences, Draws]:
        """Returns the instances at indices of this source's order, not corrupted yet, and the draws for their masks."""
        return self.in_epochs(*self.order.at(places), sample_ids)

    def in_epochs(self, epochs: Int, instances: Int, sample_ids: Int) -> tuple[Sequences, Draws]:
        """Returns instances as they occur in some epochs."""
        rows = np.empty(len(instances), self.plan(0).rows.dtype)
        for epoch in np.unique(epochs):
            rows[epochs == epoch] = self.plan(int(epoch)).rows[instances[epochs == epoch]]
        return self._assembled(rows, sample_ids, self._train), self.draws(epochs, instances)

    def validation_instances(self, ids: Int, sample_ids: Int, draws: Draws) -> Sequences:
        """Returns some instances of the held-out documents, not corrupted yet."""
        plan, held = self._validation_plan, self._validation
        if plan is None or held is None:
            raise DataError("No documents are held out.")
        return self._assembled(plan.rows[ids], sample_ids, held)

    def _text(self, start: int, length: int, sentences: Sentences) -> NDArray[Any]:
        """Returns the tokens of a segment, with a separator between documents inside it."""
        if not self.pairing.crosses:
            return self.shards.span(start, start + length)
        parts = [self.shards.span(*stretch) for stretch in sentences.stretches(start, length)]
        border = np.array([self.separator], parts[0].dtype)
        return np.concatenate([part for one in parts for part in (border, one)][1:])

    def _assembled(self, rows: NDArray[Any], sample_ids: Int, sentences: Sentences) -> Sequences:
        """Returns [CLS] A [SEP], or [CLS] A [SEP] B [SEP], for each row, with the family's special tokens, and the
        label."""
        frame, two = self.frame, self.pairing.segments == 2
        gaps = [np.array(gap, np.int64) for gap in frame.gaps]
        gap_types = [np.array(types, np.int64) for types in frame.gap_types]
        text_types = [np.full(self.max_length, segment) for segment in frame.text_types]
        ids: list[NDArray[np.generic]] = []
        types: list[NDArray[np.generic]] = []
        lengths_B = np.full(len(rows), frame.size)
        for row, (a, b, a_length, b_length, _) in enumerate(rows.tolist()):
            text = self._text(a, a_length, sentences)
            lengths_B[row] += len(text) + b_length
            ids += [gaps[0], text, gaps[1]]
            types += [gap_types[0], text_types[0][: len(text)], gap_types[1]]
            if two:
                ids += [self.shards.span(b, b + b_length), gaps[2]]
                types += [text_types[1][:b_length], gap_types[2]]
        ids_T, types_T = (np.concatenate(parts).astype(np.int64, copy=False) for parts in (ids, types))
        labels = {} if self.pairing.label is None else {self.pairing.label: rows["label"].astype(np.int64)}
        return Sequences(ids_T, types_T, lengths_B, labels=labels, sample_ids=sample_ids)


def micro_batches(ids: Int, size: int | None) -> list[Int]:
    """Returns sample numbers by micro-batch. size None: all in one."""
    size = size or max(1, len(ids))
    return [ids[i : i + size] for i in range(0, len(ids), size)]


def corrupted_texts(batch: Sequences, objective: Objective, tokenizer: Tokenizer) -> str:
    """Returns corrupted sequences as text, each predicted position followed by its target: the [MASK]‹cat› sat on."""
    tokens = [tokenizer.id_to_token(i) for i in batch.input_ids.tolist()]
    for place, answer in objective.answers(batch).items():
        tokens[place] += f"‹{' '.join(map(tokenizer.id_to_token, answer))}›"
    notes = [f"({verdict})" for verdict in objective.describe_labels(batch)]
    if STANDS in batch.extra:
        rows = set(np.flatnonzero(batch.extra[STANDS]).tolist())
        tokens, notes = [token for i, token in enumerate(tokens) if i not in rows], [f"[+ {len(rows)} vectors]", *notes]
    return " ".join([*tokens, *notes])
