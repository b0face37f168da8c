"""Benchmark of training instances: Bertie and the algorithm of BERT's data script, on the same token ids.

The script's algorithm (create_pretraining_data.py; Devlin et al. 2018, appendix A.1) is plain Python. It collects two
segments sentence by sentence and truncates them token by token. It shuffles all tokens of a sequence, predicts the
first 15%, and pads the instances, which stay in memory to be shuffled. Here, tokens are ids already, and nothing is
written. Bertie makes the same instances (pairs of the form "original", static masks, at most 20 predictions) as
training batches. Both make one pass, and their instances must have the same distribution.
"""

import math
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import corpus as texts
from benchmarks import harness
from bertie.data import corpus
from bertie.data.shards import Shards
from bertie.errors import BertieError
from bertie.objectives.mlm import MaskedLM
from bertie.objectives.pair import NextSentence
from bertie.objectives.source import PretrainingSource
from bertie.text.tokenizer import Tokenizer

SHORT_SHARE, RATE, MOST = 0.1, 0.15, 20  # the script's defaults
BATCH = 256
ERRORS = 6.0  # standard errors two shares may be apart: by chance one comparison in 10^8

Document = list[list[int]]  # sentences of token ids


@dataclass(frozen=True)
class Instance:
    """One sequence of the script, padded to the length."""

    input_ids: list[int]
    input_mask: list[int]
    segment_ids: list[int]
    positions: list[int]
    targets: list[int]
    random_next: bool


# The script's algorithm ----------------------------------------------------------------------------------------------


def release(documents: list[Document], tokenizer: Tokenizer, length: int, seed: int) -> list[Instance]:
    """One pass over all documents, shuffled."""
    rng = random.Random(seed)
    words = range(tokenizer.vocab_size)
    made = []
    for number in range(len(documents)):
        for a, b, random_next in pairs(documents, number, length - 3, rng):
            made.append(instance(a, b, random_next, tokenizer, words, length, rng))
    rng.shuffle(made)
    return made


def pairs(
    documents: list[Document], number: int, room: int, rng: random.Random
) -> Iterator[tuple[list[int], list[int], bool]]:
    """The two segments of each instance of a document, and whether the second is from elsewhere."""
    document = documents[number]
    target = rng.randint(2, room) if rng.random() < SHORT_SHARE else room
    chunk: list[list[int]] = []
    size = i = 0
    while i < len(document):
        chunk.append(document[i])
        size += len(document[i])
        if i == len(document) - 1 or size >= target:
            a_end = rng.randint(1, len(chunk) - 1) if len(chunk) >= 2 else 1
            a = [token for sentence in chunk[:a_end] for token in sentence]
            random_next = len(chunk) == 1 or rng.random() < 0.5
            if random_next:
                b = elsewhere(documents, number, target - len(a), rng)
                i -= len(chunk) - a_end  # what was not used is read again
            else:
                b = [token for sentence in chunk[a_end:] for token in sentence]
            while len(a) + len(b) > room:
                longer = a if len(a) > len(b) else b
                longer.pop(0 if rng.random() < 0.5 else -1)
            yield a, b, random_next
            chunk, size = [], 0
        i += 1


def elsewhere(documents: list[Document], number: int, wanted: int, rng: random.Random) -> list[int]:
    """Returns sentences from a random position of another document, until there are enough tokens."""
    for _ in range(10):
        other = rng.randint(0, len(documents) - 1)
        if other != number:
            break
    b: list[int] = []
    for sentence in documents[other][rng.randint(0, len(documents[other]) - 1) :]:
        b.extend(sentence)
        if len(b) >= wanted:
            break
    return b


def instance(
    a: list[int], b: list[int], random_next: bool, tokenizer: Tokenizer, words: range, length: int, rng: random.Random
) -> Instance:
    """[CLS] a [SEP] b [SEP] with 15% of its tokens predicted: 80% of them masked, 10% random, 10% unchanged."""
    cls, sep = tokenizer.cls_id, tokenizer.sep_id
    tokens = [cls, *a, sep, *b, sep]
    segments = [0] * (len(a) + 2) + [1] * (len(b) + 1)
    candidates = [place for place, token in enumerate(tokens) if token not in (cls, sep)]
    rng.shuffle(candidates)
    positions = sorted(candidates[: min(MOST, max(1, round(len(tokens) * RATE)))])
    targets = [tokens[place] for place in positions]
    for place in positions:
        if rng.random() < 0.8:
            tokens[place] = tokenizer.mask_id
        elif rng.random() >= 0.5:
            tokens[place] = words[rng.randint(0, len(words) - 1)]
    fill, room = length - len(tokens), MOST - len(positions)
    mask = [1] * len(tokens) + [0] * fill
    ids, types = tokens + [tokenizer.pad_id] * fill, segments + [0] * fill
    return Instance(ids, mask, types, positions + [0] * room, targets + [0] * room, random_next)


# Both, measured ------------------------------------------------------------------------------------------------------


@dataclass
class ReferenceRunner:
    """The script's algorithm; each call is one pass."""

    documents: list[Document]
    tokenizer: Tokenizer
    length: int

    def __call__(self) -> tuple[float, float]:
        """-> instances, seconds"""
        begun = time.perf_counter()
        self.made = release(self.documents, self.tokenizer, self.length, seed=0)
        return len(self.made), time.perf_counter() - begun

    def facts(self) -> Counter[str]:
        """What is counted of the instances."""
        counts = Counter(instances=len(self.made))
        for one in self.made:
            real = sum(one.input_mask)
            pairs = [(p, t) for p, t in zip(one.positions, one.targets, strict=True) if p]  # [CLS] is at 0
            shown = [one.input_ids[place] for place, _ in pairs]
            counts.update(tokens=real, random_next=one.random_next, predictions=len(pairs))
            counts.update(first=real - sum(one.segment_ids), masked=shown.count(self.tokenizer.mask_id))
            counts.update(kept=sum(seen == target for seen, (_, target) in zip(shown, pairs, strict=True)))
        return counts


@dataclass
class BertieInstances:
    """The batches `bertie pretrain` reads; each call plans new pairs and makes every batch of one pass."""

    shards: Shards
    tokenizer: Tokenizer
    length: int

    def __call__(self) -> tuple[float, float]:
        """-> instances, seconds"""
        shutil.rmtree(self.shards.folder / "plans", ignore_errors=True)
        begun = time.perf_counter()
        objective = MaskedLM(RATE, max_predictions=MOST, duplicates=1) + NextSentence("original", duplicates=1)
        source = PretrainingSource(
            self.shards, self.tokenizer, objective, max_length=self.length, batch_size=BATCH, seed=0
        )
        steps = source.instances_per_epoch // BATCH
        self.made = [batch for step in range(steps) for batch in source.batches(step)]
        return steps * BATCH, time.perf_counter() - begun

    def facts(self) -> Counter[str]:
        """What is counted of the instances."""
        counts = Counter[str]()
        for batch in self.made:
            shown, targets = batch.input_ids[batch.labels["mlm_positions"]], batch.labels["mlm_targets"]
            counts.update(instances=batch.size, tokens=batch.tokens, predictions=len(targets))
            counts.update(random_next=int(batch.labels["nsp_labels"].sum()))
            counts.update(first=int((batch.token_type_ids == 0).sum()))
            counts.update(masked=int((shown == self.tokenizer.mask_id).sum()), kept=int((shown == targets).sum()))
        return counts


SHARES = {
    "random next": ("random_next", "instances"),
    "tokens in the first segment": ("first", "tokens"),
    "masked": ("masked", "predictions"),
    "kept": ("kept", "predictions"),
    "predicted": ("predictions", "tokens"),
}


def agree(ours: Counter[str], theirs: Counter[str]) -> dict[str, tuple[float, float]]:
    """Returns the fractions of both. Raises BertieError for a significant difference."""
    shares = {}
    for name, (part, whole) in SHARES.items():
        a, b = ours[part] / ours[whole], theirs[part] / theirs[whole]
        pooled = (ours[part] + theirs[part]) / (ours[whole] + theirs[whole])
        # Tokens of one instance go together, so that instances, not tokens, are what is drawn.
        draws = [counts["instances" if whole == "tokens" else whole] for counts in (ours, theirs)]
        error = math.sqrt(pooled * (1 - pooled) * sum(1 / n for n in draws))
        if abs(a - b) > ERRORS * error:
            raise BertieError(
                f"The fraction {name} is {a:z.4f} in Bertie and {b:z.4f} in the script, so no timings are reported."
            )
        shares[name] = (a, b)
    return shares


def measure(documents: Iterable[str], about: str, *, length: int, rounds: int) -> list[dict[str, Any]]:
    """Returns one row per runner. Raises BertieError if the instances differ."""
    with tempfile.TemporaryDirectory() as work:
        path, folder = texts.write(Path(work), documents)
        tokenizer = Tokenizer.load(folder)
        corpus.build_shards([path], Path(work) / "corpus")
        shards = corpus.encode_corpus(Path(work) / "corpus", tokenizer)
        ours, script = (
            BertieInstances(shards, tokenizer, length),
            ReferenceRunner(list(documents_of(shards)), tokenizer, length),
        )
        cells = harness.interleave({"bertie": ours, "create_pretraining_data": script}, rounds=rounds)
    counted = ours.facts(), script.facts()
    shares = agree(*counted)
    return [
        {
            "bench": "instances",
            "text": about,
            "tokens": shards.num_values,
            "length": length,
            "runner": cell.name,
            "instances": facts["instances"],
            "instances_per_s": round(cell.median),
            "spread": cell.spread,
            "rates": [round(rate) for rate in cell.rates],
            "times_quicker_than": {
                cells[1].name: dict(zip(("median", "low", "high"), harness.ratios(cell, cells[1]), strict=True))
            },
            "shares": {name: round(both[number], 4) for name, both in shares.items()},
            "machine": harness.machine(),
        }
        for number, (cell, facts) in enumerate(zip(cells, counted, strict=True))
    ]


def documents_of(shards: Shards) -> Iterator[Document]:
    """The documents of shards as lists of lists; sentences without a token are left out, as the script does."""
    for number in range(shards.num_documents):
        document = [shards.sentence(j).tolist() for j in shards.document(number)]
        if kept := [sentence for sentence in document if sentence]:
            yield kept
