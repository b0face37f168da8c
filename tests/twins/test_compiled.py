"""A compiled encoder (train.compile) learns as the plain one: losses and gradients of batches of many shapes."""

import copy
import shutil

import pytest
import torch

from bertie import families
from bertie.models.config import EncoderConfig
from bertie.models.heads import MaskedLMHead
from bertie.models.model import Model
from bertie.nn.layout import Packed

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="needs a C++ compiler"),
]


def gradients(model: Model, lengths: list[int]) -> dict[str, torch.Tensor]:
    """The loss of masked LM on sequences of these lengths, and every parameter's gradient."""
    drawn = torch.Generator().manual_seed(sum(lengths))
    ids = torch.randint(5, 120, (sum(lengths),), generator=drawn)
    chosen = torch.randperm(len(ids), generator=drawn)[: len(ids) // 3]
    model.zero_grad()
    hidden = model.encoder(ids, torch.zeros_like(ids), Packed.from_lengths(torch.tensor(lengths))).last_hidden_state
    head = model.heads["mlm"]
    assert isinstance(head, MaskedLMHead)
    loss, _ = head.loss(hidden[chosen], model.word_embeddings, ids[chosen])
    loss.backward()
    return {
        "loss": loss.detach(),
        **{name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None},
    }


def test_losses_and_gradients_are_those_of_the_plain_encoder() -> None:
    shape = EncoderConfig(
        vocab_size=120,
        num_hidden_layers=2,
        hidden_size=32,
        num_attention_heads=2,
        intermediate_size=64,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    torch.manual_seed(0)
    plain = families.build(shape, heads=lambda config: {"mlm": MaskedLMHead(config)}).train()
    compiled = copy.deepcopy(plain)
    compiled.encoder.compile(dynamic=True)
    for lengths in ([13, 29, 5], [7, 7, 7, 7], [40], [3, 64, 20, 11, 9]):
        expected, got = gradients(plain, lengths), gradients(compiled, lengths)
        assert got.keys() == expected.keys()
        for name, value in expected.items():
            torch.testing.assert_close(got[name], value, rtol=1e-4, atol=1e-6, msg=lambda m, n=name: f"{n}: {m}")
