"""Features computed once are those computed on the fly; the BiLSTM over them; the encoder stays as it was."""

import string
from pathlib import Path

import numpy as np
import pytest
import torch

import bertie
from bertie.io.words import spaced
from bertie.models import families
from bertie.models.config import EncoderConfig
from bertie.models.facts import Facts
from bertie.models.heads.features import FEATURES
from bertie.models.model import TorchModel
from bertie.runs.weights import load_model
from bertie.tasks import task_of
from bertie.tasks.source import TaskSource, batch_of_examples
from bertie.tasks.tagging import TaggingTask
from bertie.text.tokenizer import Tokenizer

TAGS = ("O", "B-A")
EXAMPLES = [
    spaced(list(words), [TAGS[word > "m"] for word in words], i) for i, words in enumerate(("abxyz", "zz", "a" * 30))
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("vocabulary")
    (folder / "vocab.txt").write_text(
        "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *string.ascii_lowercase])
    )
    return Tokenizer.load(folder)


def make(task: TaggingTask, tokenizer: Tokenizer) -> TorchModel:
    config = EncoderConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=32,
        num_hidden_layers=5,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=0.04,  # more, and the BiLSTM makes much of roundings
    )
    model = families.build(config, heads=task.heads)
    model.tokenizer, model.labels = tokenizer, task.labels
    return model


OFTEN = ("last", "weighted_last_four")  # one layer, and a mixture of layers; the other kinds now and then


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[] if kind in OFTEN else [pytest.mark.slow]) for kind in FEATURES]
)
def test_computed_once_as_on_the_fly(tokenizer, kind):
    task = TaggingTask(TAGS, features=kind)
    model = make(task, tokenizer).train()
    encoded = task.encode(EXAMPLES, tokenizer, max_length=20, too_long="window")
    plain = TaskSource(encoded, task.targets(EXAMPLES, encoded), batch_size=3, micro_batch_size=2, seed=0)
    once = plain.with_computed(task.computed(model, encoded))
    assert once.fingerprint == plain.fingerprint
    gradients = []
    for source in (plain, once):
        model.zero_grad()
        for batch in source.batches(4):
            assert ("features" in batch.labels) == (source is once)
            task.loss(model, task.forward(model, batch), batch)["tag"].total.backward()
        gradients.append({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})
    assert (
        gradients[0].keys() == gradients[1].keys() == {n for n, _ in model.named_parameters() if n.startswith("heads")}
    )
    for name, gradient in gradients[0].items():
        # the batches differ, so sums are rounded differently
        torch.testing.assert_close(gradients[1][name], gradient, rtol=1e-3, atol=1e-4 * float(gradient.abs().max()))


def test_which_layers_are_read(tokenizer):
    model = make(TaggingTask(TAGS, features="last"), tokenizer).eval()
    encoded = TaggingTask(TAGS).encode(EXAMPLES[:1], tokenizer, max_length=20, too_long="window")
    output = model.encode(batch_of_examples(encoded, np.arange(1)))
    states = output.hidden_states
    assert states is not None
    expected = {
        "embeddings": states[:1],
        "second_to_last": states[-2:-1],
        "last": (output.last_hidden_state,),
        "weighted_last_four": states[2:],
        "concat_last_four": states[2:],
        "weighted_all": states[1:],
    }
    for kind, layers in expected.items():
        head = make(TaggingTask(TAGS, features=kind), tokenizer).heads[f"features_{kind}"]
        torch.testing.assert_close(head.select(output), torch.cat(layers, -1))
        assert head.lstm.input_size == (32 if FEATURES[kind].weighted else 32 * len(layers))
        assert (head.lstm.hidden_size, head.lstm.num_layers, head.lstm.bidirectional) == (768, 2, True)


def test_a_sequence_beside_others_as_alone(tokenizer):
    """Turning around starts at a sequence's own end, not at the rectangle's."""
    task = TaggingTask(TAGS, features="weighted_last_four")
    model = make(task, tokenizer).eval()
    encoded = task.encode(EXAMPLES, tokenizer, max_length=64, too_long="window")
    with torch.no_grad():
        together = task.logits(model, model.encode(batch_of_examples(encoded, np.arange(3))))
        alone = [task.logits(model, model.encode(batch_of_examples(encoded, np.array([i])))) for i in range(3)]
    torch.testing.assert_close(together, torch.cat(alone), rtol=1e-5, atol=1e-6)


def test_the_encoder_is_neither_trained_nor_dropped_out(tokenizer):
    task = TaggingTask(TAGS, features="last")
    model = make(task, tokenizer).train()
    assert model.heads["features_last"].training
    assert not model.encoder.training
    assert not any(parameter.requires_grad for parameter in model.encoder.parameters())
    assert all(parameter.requires_grad for parameter in model.heads.parameters())
    assert not model.heads["features_last"].lstm.bias_ih_l0.any()


@pytest.mark.parametrize("kind", ["concat_last_four", "weighted_all"])
def test_a_folder_gives_the_same_model_back(tokenizer, kind, tmp_path: Path):
    task = TaggingTask(TAGS, features=kind)
    model = make(task, tokenizer).eval()
    model.save_pretrained(tmp_path)
    loaded = load_model(tmp_path)
    assert task_of(Facts.of(loaded)) == task
    for (name, a), (other, b) in zip(model.state_dict().items(), loaded.state_dict().items(), strict=True):
        assert name == other
        assert torch.equal(a, b)
    assert not any(parameter.requires_grad for parameter in loaded.encoder.parameters())
    (first,) = bertie.predict(loaded, ["a b z"])
    assert len(first.label) == 3
