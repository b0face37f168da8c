"""In a step nobody waits for an accelerator: no number is read from a tensor on it, whatever is learned.

The step runs on torch's meta device, whose tensors have shapes and no values, and whose code paths are those of an
accelerator: whatever asks for a value fails.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import torch
from test_objectives_contract import APART, NANO, model_of, objective_of, source_of, tokenizer  # noqa: F401
from torch import Tensor

from batches import padded
from bertie import objectives
from bertie.io.tables import Example
from bertie.io.words import TaggedExample
from bertie.models import families
from bertie.models.batch import Batch
from bertie.models.elmo import ElmoConfig
from bertie.models.model import TorchModel
from bertie.nn.characters import CharacterCNN, character_ids
from bertie.nn.layout import Packed
from bertie.objectives import OBJECTIVES
from bertie.objectives.captions import Captions, CaptionSource
from bertie.tasks import TASKS
from bertie.tasks.relation import RelationEntity, RelationExample
from bertie.tasks.soft import SoftLabel
from bertie.tasks.source import batch_of_examples
from bertie.text.tokenizer import Tokenizer
from bertie.train.base import Trainable
from bertie.train.step import backward

DROPOUT = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
META = torch.device("meta")


def step(model: TorchModel, learned: Trainable, batches: Iterable[Batch]) -> None:
    """A whole step on the meta device, in training, with dropout."""
    batches = list(batches)
    counts = {name: sum(learned.counts(batch)[name] for batch in batches) for name in learned.counts(batches[0])}
    model.to(META).train()
    sums = backward(model, learned, batches, counts, seed=(0,), device=META)
    assert sums.tensor().device == META
    assert any(parameter.grad is not None for parameter in model.encoder.parameters())


OTHER = [name for name in OBJECTIVES if name not in APART]  # bilm spells its words; two learn from vectors


@pytest.mark.parametrize("name", OTHER)
@pytest.mark.parametrize("layout", ["packed", "padded"])
def test_no_objective_waits(name: str, layout: str, tokenizer: Tokenizer) -> None:  # noqa: F811
    objective = objective_of(name)
    source = source_of(objective, tokenizer, micro_batch_size=4)
    batches = source.batches(0)
    if layout == "padded":
        batches = [padded(batch) for batch in batches]
    step(model_of(name, objective), objective, batches)


@pytest.mark.parametrize("name", ["itm", "frames"])
def test_no_objective_on_vectors_waits(name: str, tokenizer: Tokenizer) -> None:  # noqa: F811
    objective, rng = objective_of(name), np.random.default_rng(0)
    model = model_of(name, objective)
    size = model.config.feature_size
    vectors = [rng.normal(size=(3, size)).astype(np.float32) for _ in range(60)]
    captions = Captions([rng.integers(5, 30, 6).tolist() for _ in range(60)], vectors)
    source = CaptionSource(captions, tokenizer, objective, max_length=16, batch_size=8, micro_batch_size=4)
    step(model, objective, source.batches(0))


def test_bilm_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the one look at which words of a batch are distinct, which is left out here."""

    def read(cnn: CharacterCNN, characters: Tensor, dtype: torch.dtype | None) -> Tensor:
        width = cnn.projection.out_features
        return torch.zeros(*characters.shape[:-1], width, device=META, requires_grad=True)

    monkeypatch.setattr(CharacterCNN, "forward", read)
    objective = objectives.build_objective({"bilm": {}})
    sizes = {"vocab_size": 50, "hidden_size": 12, "intermediate_size": 10, "embedding_size": 4, "filters": ((1, 3),)}
    model = families.build(ElmoConfig(**sizes), heads=objective.heads, variant="elmo")
    layout = Packed.from_lengths(torch.tensor([3, 2]))
    words = character_ids("the cat sat too long".split())
    labels = {"bilm_words": torch.arange(5)}
    step(model, objective, [Batch(words, torch.zeros(5, dtype=torch.int64), layout, torch.arange(2), labels)])


WORDS = ("w1 w2 w3", "w4 p5 w6 w7")
SPANS = ((0, 2), (3, 5), (6, 8))
EXAMPLES: dict[str, list[Example]] = {
    "sequence": [Example((text,), label) for text, label in zip(WORDS, "ab", strict=True)],
    "regression": [Example((text,), label) for text, label in zip(WORDS, (0.5, 2.0), strict=True)],
    "multilabel": [Example((text,), label) for text, label in zip(WORDS, (("a",), ("a", "b")), strict=True)],
    "choice": [Example(("w9", *WORDS), "1"), Example(("w8", *WORDS, "w1"), "0")],
    "rank": [Example(("w9", text), label) for text, label in zip(WORDS, "01", strict=True)],
    "relation": [
        RelationExample((text,), label, entities=(RelationEntity(0, 2, "A"), RelationEntity(3, 5, "B")))
        for text, label in zip(WORDS, "ab", strict=True)
    ],
    "tagging": [
        TaggedExample((WORDS[0],), ("O", "B-A", "O"), spans=SPANS),
        TaggedExample(("w3",), ("O",), spans=((0, 2),)),
    ],
    "span": [Example(("w1", "w2 w3 w4"), (("w3", 3),)), Example(("w1", "w5"), ())],
    "parse": [TaggedExample((WORDS[0],), ((2, "x"), (0, "y"), (2, "x")), spans=SPANS)],
    "few-shot": [Example((text,), label) for text, label in zip(WORDS * 2, "abba", strict=True)],
    "soft": [
        Example((text,), SoftLabel.of("a", {"a": p, "b": 1 - p})) for text, p in zip(WORDS, (0.9, 0.6), strict=True)
    ],
    "embed": [Example(WORDS, 1.0), Example(("w1", "w2"), 0.3)],
    "text2text": [Example((text,), label) for text, label in zip(WORDS, ("w1 w2", "w3"), strict=True)],
    "pattern": [Example((text,), label) for text, label in zip(WORDS, "ab", strict=True)],
    "several": [Example(WORDS[:1], ("x", "b")), Example(WORDS[1:], ("y", 0.5))],
}
WRITERS = ("t5-small", "gpt2")
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "embed": [{"pooling": p, "loss_kind": loss} for p, loss in (("mean", "cosine"), ("max", "in_batch_negatives"))],
    "text2text": [{"label_smoothing": 0.1, "template": "w4 {}"}],
    "pattern": [{"pattern": "w9 [MASK]", "words": {"a": "w1", "b": "w2"}}],
    "several": [{"members": {"x": {"labels": ["a", "b"]}, "y": {}}}],
}
CASES = [(kind, options) for kind in TASKS for options in OPTIONS.get(kind, [{}])]


@pytest.mark.parametrize(("kind", "options"), CASES, ids=str)
def test_no_task_waits(kind: str, options: dict[str, Any], tokenizer: Tokenizer) -> None:  # noqa: F811
    examples = EXAMPLES[kind]
    task = TASKS[kind].from_examples(examples, (), options).with_tokenizer(tokenizer)
    encoded = task.encode(examples, tokenizer, max_length=32, too_long="truncate")
    batch = batch_of_examples(encoded, np.arange(len(encoded.lengths)), task.targets(examples, encoded))
    for preset in WRITERS if kind == "text2text" else ("bert-tiny",):
        own = {"num_decoder_layers": 1, "attention_head_size": 8} if preset == "t5-small" else {}
        shape = families.config(preset, **NANO | DROPOUT | own)
        variant = families.family(preset).model_type
        step(families.build(shape, heads=task.heads, variant=variant), task, [batch])
