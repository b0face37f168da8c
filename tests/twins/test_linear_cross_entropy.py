"""The chunked loss over a vocabulary against the plain one: values and gradients."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F

from bertie.models import vocabulary_loss as loss
from bertie.models.vocabulary_loss import linear_cross_entropy

N, V, H = 37, 203, 16


def plain(hidden, weight, bias, targets, z_loss=0.0):
    logits = F.linear(hidden, weight, bias)
    penalty = logits.logsumexp(1).square()[targets >= 0].sum()
    total = F.cross_entropy(logits, targets, reduction="sum", ignore_index=-1) + z_loss * penalty
    return total, (logits.argmax(1) == targets).sum()


def values_and_gradients(function, scale=0.25):
    torch.manual_seed(0)
    inputs = [torch.randn(N, H), torch.randn(V, H), torch.randn(V)]
    for x in inputs:
        x.requires_grad_()
    targets = torch.randint(0, V, (N,))
    targets[:10] = F.linear(inputs[0], inputs[1], inputs[2]).argmax(1)[:10]
    targets[-2:] = -1
    total, correct = function(*inputs, targets)
    (total * scale).backward()
    return total.detach(), correct, [x.grad for x in inputs]


@pytest.mark.parametrize("z_loss", [0, 1e-3])
@pytest.mark.parametrize("rows_at_a_time", [1, 5, N, 1000])
def test_equals_plain_cross_entropy(monkeypatch, rows_at_a_time, z_loss):
    monkeypatch.setattr(loss, "CHUNK_LOGITS", rows_at_a_time * V)
    total, correct, gradients = values_and_gradients(partial(linear_cross_entropy, z_loss=z_loss))
    wanted, wanted_correct, wanted_gradients = values_and_gradients(partial(plain, z_loss=z_loss))
    torch.testing.assert_close(total, wanted, rtol=1e-6, atol=0)
    assert int(correct) == int(wanted_correct) >= 10
    for got, want in zip(gradients, wanted_gradients, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)


def test_a_hopeless_target_costs_much_but_not_infinity():
    hidden, weight = torch.ones(1, 1), torch.tensor([[500.0], [-500.0]])
    total, correct = linear_cross_entropy(hidden, weight, torch.zeros(2), torch.tensor([1]))
    assert 80 < float(total) < 100
    assert int(correct) == 0


def test_no_predictions_cost_nothing():
    hidden = torch.zeros(0, H, requires_grad=True)
    total, correct = linear_cross_entropy(hidden, torch.zeros(V, H), torch.zeros(V), torch.zeros(0, dtype=torch.int64))
    total.backward()
    assert float(total.detach()) == 0
    assert int(correct) == 0


def test_evaluation_makes_no_gradients():
    with torch.no_grad():
        total, _ = linear_cross_entropy(torch.ones(2, H), torch.ones(V, H), torch.zeros(V), torch.tensor([0, 1]))
    assert not total.requires_grad


def test_bf16_is_near_float32():
    """Each prediction by itself: errors of many, some too high and some too low, would hide each other in a sum."""
    torch.manual_seed(0)
    hidden, weight, bias = torch.randn(64, H), torch.randn(V, H) / H**0.5, torch.zeros(V)
    targets = torch.randint(0, V, (64,))
    logits = F.linear(hidden, weight, bias)
    exact = F.cross_entropy(logits, targets, reduction="none")
    rows = [(hidden[i : i + 1].bfloat16(), weight, bias, targets[i : i + 1]) for i in range(64)]
    quick = torch.stack([linear_cross_entropy(*row)[0] for row in rows])
    # bf16 has 8 bits: hidden states, weights and logits are off by up to 2**-9 of their size each, products of H of
    # them by about the root of H less, and the probability by 2**-9 of itself.
    most = 2**-9 * (4 * float(logits.abs().max()) + 1)
    assert float((quick - exact).abs().max()) < most
    assert float((quick - exact).abs().max()) > 1e-5, "it was not computed in bf16"
