"""What every objective promises, each on a nano model: run over the rows of OBJECTIVES."""

import tempfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from batches import padded
from bertie import objectives
from bertie.models import families
from bertie.models.batch import Batch
from bertie.models.config import EncoderConfig
from bertie.models.model import TorchModel
from bertie.objectives import OBJECTIVES, MaskedLM, Objective
from bertie.objectives.source import PretrainingSource
from bertie.text.tokenizer import Tokenizer
from bertie.train.step import backward
from bertie.train.step_metrics import measure_batches

WORDS = [f"w{i}" for i in range(60)] + [f"##p{i}" for i in range(20)]
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"[unused{i}]" for i in range(5)), *WORDS]
FIRST_WORD = 10
NANO = {
    "vocab_size": len(VOCAB),
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


@dataclass
class Case:
    """How an objective is tried: its options, and the preset and overrides of a model that can learn it."""

    options: dict[str, Any] = field(default_factory=dict)
    preset: str = "bert-tiny"
    overrides: dict[str, Any] = field(default_factory=dict)
    parts: tuple[str, ...] = ()


CASES: dict[str, Case] = {
    "mlm": Case(),
    "nsp": Case(),
    "sop": Case(),
    "rtd": Case(preset="electra-small-discriminator", overrides={"embedding_size": 8}, options={"size": 0.5}),
    "distil": Case(preset="distilbert-base-uncased", options={"teacher": "teacher"}),
    "hidden": Case(options={"teacher": "teacher"}),
    "ltr": Case(preset="gpt2", overrides={"embedding_dropout": 0.0}),
    "span": Case(preset="t5-small", overrides={"num_decoder_layers": 2, "attention_head_size": 8}),
    "plm": Case(preset="xlnet-base-cased"),
    "bilm": Case(preset="elmo-small"),
    "itm": Case(overrides={"visual_embedding_dim": 6}),
    "frames": Case(overrides={"frame_size": 6}, options={"clusters": 5}),
}
APART = ("bilm", "itm", "frames")  # which have tests of their own: the last two learn from tables with vectors
names = pytest.mark.parametrize("name", [name for name in CASES if name not in APART])


def test_objectives_corrupt_without_torch() -> None:
    """Sequences become tensors once, after corruption; nothing comes back from torch."""
    files = list(Path(objectives.__file__).parent.glob("*.py"))
    assert len(files) > 10
    assert [path.name for path in files if ".numpy()" in path.read_text(encoding="utf-8")] == []


def test_every_objective_is_tried() -> None:
    assert set(CASES) == set(OBJECTIVES)


@dataclass
class FakeShards:
    """Token shards in memory: 60 documents of drawn words."""

    fingerprint: str = "fake"
    folder: None = None

    def __post_init__(self) -> None:
        rng = np.random.default_rng(0)
        self.documents = [rng.integers(3, 15, rng.integers(2, 12)) for _ in range(60)]
        total = int(sum(document.sum() for document in self.documents))
        self.tokens = rng.integers(FIRST_WORD, len(VOCAB), total).astype(np.uint16)

    def sentence_lengths(self) -> Any:
        return np.concatenate(self.documents)

    def document_bounds(self) -> Any:
        return np.cumsum([0, *map(len, self.documents)])

    def span(self, start: int, stop: int) -> Any:
        return self.tokens[start:stop]


@cache
def vocabulary() -> Tokenizer:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "vocab.txt").write_text("\n".join(VOCAB) + "\n", encoding="utf-8")
        return Tokenizer.load(folder)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return vocabulary()


def objective_of(name: str) -> Objective:
    return objectives.build_objective({name: CASES[name].options}).load_dependencies(teacher)


def teacher(folder: str, *, states_only: bool = False) -> TorchModel:
    assert folder == "teacher"
    shape = families.config("bert-tiny", **{**NANO, "num_hidden_layers": 3})
    model = families.build(shape, heads=MaskedLM().heads, seed=9)
    model.tokenizer = vocabulary()
    return model


def source_of(objective: Objective, tokenizer: Tokenizer, **options: Any) -> PretrainingSource:
    return PretrainingSource(FakeShards(), tokenizer, objective, **({"max_length": 32, "batch_size": 8} | options))


def model_of(name: str, objective: Objective) -> TorchModel:
    case = CASES[name]
    preset = families.config(case.preset)
    nano = {name: value for name, value in NANO.items() if name not in preset.unread}
    shape: EncoderConfig = preset.replace(**{**nano, **case.overrides})
    model = families.build(shape, heads=objective.heads, variant=families.family(case.preset).model_type)
    model.tokenizer = None if name == "bilm" else vocabulary()
    objective.prepare(model, 0)
    return model


def same(a: Batch, b: Batch) -> None:
    assert torch.equal(a.input_ids, b.input_ids)
    assert a.labels.keys() == b.labels.keys()
    for name in a.labels:
        assert torch.equal(a.labels[name], b.labels[name]), name


@names
def test_a_batch_is_a_function_of_the_seed_and_the_step(name: str, tokenizer: Tokenizer) -> None:
    one, other = (source_of(objective_of(name), tokenizer, seed=5) for _ in range(2))
    ahead = [one.batches(step)[0] for step in (3, 0)]
    for batch, step in zip(ahead, (3, 0), strict=True):
        same(batch, other.batches(step)[0])
    assert not torch.equal(ahead[0].input_ids, ahead[1].input_ids)


@names
def test_counts_are_known_before_the_loss(name: str, tokenizer: Tokenizer) -> None:
    objective = objective_of(name)
    (batch,) = source_of(objective, tokenizer).batches(0)
    model = model_of(name, objective)
    report = objective.loss(model, objective.forward(model, batch), batch)
    assert {part: report[part].count for part in report} == objective.counts(batch)
    assert all(count > 0 for count in objective.counts(batch).values())
    assert all(part.total.isfinite() for part in report.values())


def step_of(name: str, objective: Objective, batches: list[Batch]) -> tuple[dict[str, float], dict[str, torch.Tensor]]:
    """The summed losses of a step, and its gradients."""
    model = model_of(name, objective)
    counts: dict[str, int] = {}
    for batch in batches:
        for part, count in objective.counts(batch).items():
            counts[part] = counts.get(part, 0) + count
    sums = backward(model, objective, batches, counts, seed=(0,), device=torch.device("cpu"))
    totals, _ = sums.read(sums.tensor().tolist())
    return totals, {n: p.grad for n, p in model.named_parameters() if p.grad is not None}


def agree(a: Any, b: Any) -> None:
    assert a[0] == pytest.approx(b[0], rel=1e-5)
    assert a[1].keys() == b[1].keys()
    for name in a[1]:
        torch.testing.assert_close(a[1][name], b[1][name], rtol=1e-4, atol=1e-5)  # another order of float32 sums


@names
def test_micro_batches_add_up_to_the_whole(name: str, tokenizer: Tokenizer) -> None:
    objective = objective_of(name)
    whole = source_of(objective, tokenizer).batches(1)
    parts = source_of(objective, tokenizer, micro_batch_size=3).batches(1)
    assert [batch.size for batch in parts] == [3, 3, 2]
    agree(step_of(name, objective, whole), step_of(name, objective, parts))


@names
def test_padded_is_packed(name: str, tokenizer: Tokenizer) -> None:
    objective = objective_of(name)
    source = source_of(objective, tokenizer)
    (batch,) = source.batches(0)
    assert not batch.layout.mask().all()
    agree(step_of(name, objective, [batch]), step_of(name, objective, [padded(batch)]))


@names
def test_training_lowers_every_part(name: str, tokenizer: Tokenizer) -> None:
    objective = objective_of(name)
    source = source_of(objective, tokenizer)
    (batch,) = source.batches(0)
    model = model_of(name, objective)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    first = measure_batches(model, objective, [batch])
    for _ in range(20):
        optimizer.zero_grad()
        counts = objective.counts(batch)
        backward(model, objective, [batch], counts, seed=(0,), device=torch.device("cpu"))
        optimizer.step()
    last = measure_batches(model, objective, [batch])
    for part in objective.counts(batch):
        assert last[f"{part}_loss"] < first[f"{part}_loss"], part
