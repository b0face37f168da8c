"""Pruning: what does not matter goes without a trace, what matters stays, and matrices really are smaller."""

import json

import numpy as np
import pytest
import torch

from bertie.compression.importance import InputStatistics, importance
from bertie.compression.prune import _refit, prune, spread_layers
from bertie.errors import UsageError
from bertie.infer.predict import Predictor
from bertie.io.tables import Example
from bertie.models import families
from bertie.models.config import EncoderConfig
from bertie.runs.weights import load_model as load_module
from bertie.tasks.sequence import SequenceTask
from bertie.tasks.source import TaskSource
from bertie.text.tokenizer import Tokenizer
from toys import toy_model

LETTERS = [*"abcdefgh", *("##" + c for c in "abcdefgh")]
TASK = SequenceTask(("no", "yes"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A model of three layers, and batches with labels for it."""
    folder = tmp_path_factory.mktemp("model")
    toy_model(folder, LETTERS, num_hidden_layers=3, num_attention_heads=4, intermediate_size=48)
    tokenizer = Tokenizer.load(folder)
    model = families.load(folder, heads=TASK.heads, seed=1)[0].eval()
    model.tokenizer, model.labels = tokenizer, TASK.labels
    rng = np.random.default_rng(0)
    texts = ["".join(rng.choice([*"abcdefgh", " "], size=rng.integers(6, 40))) + " a" for _ in range(64)]
    examples = [Example((text,), ("no", "yes")[text.count("a") > 2], i) for i, text in enumerate(texts)]
    encoded = TASK.encode(examples, tokenizer, max_length=64, too_long="truncate")
    source = TaskSource(encoded, TASK.targets(examples, encoded), batch_size=16, micro_batch_size=None, seed=0)
    return model, [source.batches(step)[0] for step in range(4)], texts


def hidden(model, batch):
    with torch.no_grad():
        return model.encode(batch).last_hidden_state


def test_importance_is_the_derivative_of_the_loss_by_a_factor_on_each_head_and_neuron(trained):
    """Against differences of the loss itself, sequence by sequence."""
    model, batches, _ = trained
    batch = batches[0]
    found = importance(model, TASK, [batch])
    assert all(one.grad is None and one.requires_grad for one in model.parameters())
    layer, head, neuron, step = 1, 2, 7, 1e-2

    def loss(columns: slice, weight: torch.Tensor, factor: float) -> torch.Tensor:
        kept = weight[:, columns].clone()
        with torch.no_grad():
            weight[:, columns] *= factor
            logits = TASK.logits(model, model.encode(batch))
            weight[:, columns] = kept
        return torch.nn.functional.cross_entropy(logits.double(), batch.labels["label"], reduction="none")

    block = model.encoder.layers[layer]
    for part, number, columns, weight in (
        ("attention.output", head, slice(head * 8, head * 8 + 8), block.attention.output.weight),
        ("down", neuron, slice(neuron, neuron + 1), block.down.weight),
    ):
        slope = (loss(columns, weight, 1 + step) - loss(columns, weight, 1 - step)) / (2 * step) / batch.size
        assert found.inputs[layer, part].importance[number] == pytest.approx(float(slope.abs().sum()), rel=0.02)


def test_what_adds_nothing_is_cut_without_a_trace(trained):
    """Heads and neurons whose outputs are ignored are those that go; the others give the same numbers."""
    model, batches, _ = trained
    model = prune(model, layers=3)  # a copy
    with torch.no_grad():
        for layer in model.encoder.layers:
            layer.attention.output.weight[:, 8:24] = 0
            layer.down.weight[:, 20:36] = 0
    small = prune(model, heads=2, neurons=32, learner=TASK, batches=batches)
    config = small.config
    assert (config.num_attention_heads, config.attention_size, config.intermediate_size) == (2, 16, 32)
    for layer in small.encoder.layers:
        assert layer.attention.qkv.weight.shape == (48, 32)
        assert layer.attention.output.weight.shape == (32, 16)
        assert layer.down.weight.shape == (32, 32)
    for batch in batches:
        assert torch.allclose(hidden(small, batch), hidden(model, batch), atol=2e-4)


def test_what_stays_takes_over_what_is_gone():
    """Features that are sums of others, and constants: the outputs stay, from fewer features."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(500, 6, generator=draw)
    x = torch.cat([x, x[:, :2] @ torch.tensor([[1.0, 0.5], [-2.0, 3.0]]), torch.full((500, 1), 7.0)], 1)
    weight, bias = torch.randn(4, 9, generator=draw), torch.randn(4, generator=draw)
    ones = torch.cat([x, torch.ones(500, 1)], 1)
    state = {"m.weight": weight.clone(), "m.bias": bias.clone()}
    _refit(state, "m", torch.arange(6), InputStatistics(torch.zeros(9), ones.T @ ones, 500))
    wanted, found = x @ weight.T + bias, x[:, :6] @ state["m.weight"].T + state["m.bias"]
    assert float((found - wanted).abs().max()) < 0.05
    assert float((x[:, :6] @ weight[:, :6].T + bias - wanted).abs().max()) > 5


def test_a_pruned_folder_opens_and_answers(trained, tmp_path, bertie):
    model, batches, texts = trained
    narrow = prune(model, neurons=24, learner=TASK, batches=batches)
    narrow.save_pretrained(tmp_path / "neurons")
    fewer = prune(model, heads=2, layers=2, learner=TASK, batches=batches)
    fewer.save_pretrained(tmp_path / "heads")
    assert "Only Bertie can open" in (tmp_path / "heads" / "README.md").read_text()
    assert "Only Bertie can open" not in (tmp_path / "neurons" / "README.md").read_text()
    for name, small in (("neurons", narrow), ("heads", fewer)):
        again = load_module(tmp_path / name)
        ours, theirs = (Predictor(one, small.tokenizer).predict(texts[:5]) for one in (small, again))
        assert ours == theirs
    transformers = pytest.importorskip("transformers")
    public = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "neurons")
    ids = torch.tensor([model.tokenizer.encode(texts[0]).ids])
    with torch.no_grad():
        assert torch.allclose(public(ids).logits, narrow(ids)["sequence"], atol=1e-5)


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_a_smaller_model_has_the_precision_of_its_source(trained, tmp_path, bertie, precision):
    trained[0].save_pretrained(tmp_path / "float32")
    bertie.good("convert", tmp_path / "float32", "-o", tmp_path / "half", "--precision", precision)
    told = json.loads(bertie.good("compress", tmp_path / "half", "--layers", "2", "-o", tmp_path / "small", "--json"))
    assert told["bytes"] < told["bytes_before"]
    small, exact = load_module(tmp_path / "small"), prune(load_module(tmp_path / "half"), layers=2)
    assert small.public["dtype"] == precision
    assert all(torch.equal(x, y) for x, y in zip(small.parameters(), exact.parameters(), strict=True))
    assert load_module(tmp_path / "small").tokenizer is not None
    bertie.good("verify", tmp_path / "small")


def test_which_layers_stay():
    assert spread_layers(12, 6) == [0, 2, 4, 7, 9, 11]  # DistilBERT's release
    assert spread_layers(6, 3) == [0, 2, 5]
    assert spread_layers(6, 1) == [0]
    with pytest.raises(UsageError, match="7 layers cannot be kept of 6"):
        spread_layers(6, 7)


def test_what_cannot_be_pruned_is_refused(trained):
    model, batches, _ = trained
    with pytest.raises(UsageError, match="100 neurons cannot be kept: each layer has 48"):
        prune(model, neurons=100, learner=TASK, batches=batches)
    with pytest.raises(UsageError, match=r"3 heads cannot be kept.*32. Choose one of 1, 2, 4"):
        prune(model, heads=3, learner=TASK, batches=batches)
    with pytest.raises(UsageError, match="--train"):
        prune(model, heads=2)
    albert = families.build(
        "albert-base-v2", vocab_size=30, hidden_size=24, num_attention_heads=2, intermediate_size=48
    )
    with pytest.raises(UsageError, match="cannot be pruned"):
        prune(albert, heads=1, learner=TASK, batches=batches)
    assert EncoderConfig().attention_size == 768
