"""Frozen lower layers, reinitialized upper layers, learning rates that fall from layer to layer."""

import pytest
import torch

from bertie.errors import UsageError, WrongModel
from bertie.models import families
from bertie.models.config import EncoderConfig
from bertie.models.partial import freeze, reinitialize
from bertie.runs.config import FinetuneConfig
from bertie.runs.finetune import usual_seeds
from bertie.tasks.sequence import SequenceTask
from bertie.train.config import OptimConfig
from bertie.train.optim import OptimizerGroup

CONFIG = EncoderConfig(
    vocab_size=30,
    hidden_size=16,
    num_hidden_layers=3,
    num_attention_heads=2,
    intermediate_size=16,
    max_position_embeddings=16,
)
SMALLER = {"t5-small": {"num_decoder_layers": None}}
TASK = SequenceTask(("no", "yes"))


def model():
    return families.build(CONFIG, heads=TASK.heads, seed=1)


def step(built, config: OptimConfig) -> dict[str, float]:
    """How far each parameter moves in one update, all gradients being 1."""
    before = {name: tensor.clone() for name, tensor in built.state_dict().items()}
    for parameter in built.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.ones_like(parameter)
    OptimizerGroup(built, config).step(config.lr)
    return {name: float((tensor - before[name]).abs().max()) for name, tensor in built.state_dict().items()}


@pytest.mark.parametrize("name", ["adamw", "lamb"])
def test_rates_fall_from_layer_to_layer(name):
    config = OptimConfig(name=name, lr=1e-3, weight_decay=0.0, layer_decay=0.5)
    moved = step(model(), config)
    bias = "encoder.layers.{}.down.bias"
    top = moved["heads.sequence.classifier.bias"]
    assert moved["encoder.pooler.bias"] == pytest.approx(top, rel=1e-3)
    for layer, share in ((2, 0.5), (1, 0.25), (0, 0.125)):
        assert moved[bias.format(layer)] == pytest.approx(top * share, rel=1e-3)
    assert moved["encoder.embeddings.norm.bias"] == pytest.approx(top * 0.0625, rel=1e-3)


def test_frozen_layers_do_not_move():
    built = model()
    freeze(built, 2)
    moved = step(built, OptimConfig(lr=1e-3))
    assert {name for name, far in moved.items() if far == 0} == {
        name for name in moved if name.startswith(("encoder.embeddings.", "encoder.layers.0.", "encoder.layers.1."))
    }
    only = model()
    freeze(only, 0)
    still = {name for name, parameter in only.named_parameters() if not parameter.requires_grad}
    assert all(name.startswith("encoder.embeddings.") for name in still)
    assert still


@pytest.mark.parametrize("preset", ["deberta-v3-small", "mpnet-base", "t5-small"])
def test_relative_positions_are_frozen_with_the_embeddings(preset):
    sizes = {"vocab_size": 30, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16}
    found = families.build(preset, heads={}, seed=1, num_hidden_layers=2, **sizes, **SMALLER.get(preset, {}))
    freeze(found, 2)
    left = [name for name, p in found.named_parameters() if p.requires_grad and name.startswith("encoder.")]
    assert not [name for name in left if "relative" in name or "layers" in name]


@pytest.mark.parametrize("preset", ["vilbert-tiny", "lxmert-tiny"])
def test_two_streams_have_no_order_of_layers(preset):
    found = families.build(preset, heads={}, seed=1)
    with pytest.raises(UsageError, match="two streams"):
        freeze(found, 1)
    with pytest.raises(UsageError, match="two streams"):
        reinitialize(found, 1, seed=0)
    with pytest.raises(UsageError, match="two streams"):
        OptimizerGroup(found, OptimConfig(layer_decay=0.9))


def test_top_layers_start_anew_and_the_rest_stays():
    built, old = model(), model().state_dict()
    reinitialize(built, 1, seed=7)
    changed = {name for name, tensor in built.state_dict().items() if not torch.equal(tensor, old[name])}
    assert changed
    assert all(name.startswith(("encoder.layers.2.", "encoder.pooler.")) for name in changed)
    again = model()
    reinitialize(again, 1, seed=7)
    assert all(torch.equal(tensor, again.state_dict()[name]) for name, tensor in built.state_dict().items())


def test_more_layers_than_there_are_and_layers_that_are_one():
    with pytest.raises(UsageError, match="the number of layers, 3"):
        freeze(model(), 4)
    shared = families.build(CONFIG.replace(num_hidden_groups=1), heads=TASK.heads)
    with pytest.raises(WrongModel):
        reinitialize(shared, 1, seed=0)


def test_small_published_sets_have_several_seeds():
    assert usual_seeds(FinetuneConfig(model="m", data="rte")) == 5
    assert usual_seeds(FinetuneConfig(model="m", data="sst2")) == 1
    assert usual_seeds(FinetuneConfig(model="m", train_file="t.csv")) == 1


def test_what_is_below_the_layers_is_frozen_with_them_and_learns_slowest():
    """ELMo's words come from a network of their characters."""
    sizes = {
        "vocab_size": 30,
        "hidden_size": 16,
        "intermediate_size": 8,
        "embedding_size": 4,
        "filters": ((1, 4), (2, 4)),
    }
    built = families.build(families.VARIANTS["elmo"].base.replace(**sizes), heads=TASK.heads, variant="elmo")
    moved = step(built, OptimConfig(lr=1e-3, weight_decay=0.0, layer_decay=0.5))
    of_characters = {far for name, far in moved.items() if name.startswith("encoder.characters.")}
    assert max(of_characters) < moved["encoder.mix.gamma"] / 4
    freeze(built, 1)
    moved = step(built, OptimConfig(lr=1e-3))
    assert {name for name, far in moved.items() if far == 0} == {
        name for name in moved if name.startswith(("encoder.characters.", "encoder.layers.0."))
    }
