import pytest
import torch
from torch import nn

from bertie.config import OptimConfig
from bertie.errors import DataError
from bertie.train.optim import adamw, load_state, set_lr, state_by_name
from nano import nano_model


def test_matrices_decay_and_biases_and_norms_do_not():
    model = nano_model()
    decayed, spared = adamw(model, OptimConfig(weight_decay=0.01)).param_groups
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    assert (decayed["weight_decay"], spared["weight_decay"]) == (0.01, 0.0)
    for parameter in spared["params"]:
        assert "bias" in names[id(parameter)] or "norm" in names[id(parameter)], names[id(parameter)]
    for parameter in decayed["params"]:
        assert names[id(parameter)].endswith("weight")
        assert "norm" not in names[id(parameter)]
    assert len(decayed["params"]) + len(spared["params"]) == len(list(model.parameters()))


def adamw_by_hand(w, grads, *, lr, betas, eps, weight_decay):
    """Loshchilov and Hutter 2019, algorithm 2."""
    m, v = torch.zeros_like(w), torch.zeros_like(w)
    for t, g in enumerate(grads, 1):
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g * g
        m_hat, v_hat = m / (1 - betas[0] ** t), v / (1 - betas[1] ** t)
        w = w - lr * (m_hat / (v_hat.sqrt() + eps) + weight_decay * w)
    return w


def test_the_fused_optimizer_does_what_the_formula_says():
    torch.manual_seed(0)
    layer = nn.Linear(5, 3)
    config = OptimConfig(lr=0.1, weight_decay=0.1)
    weight, bias = layer.weight.detach().clone(), layer.bias.detach().clone()
    grads = [(torch.randn(3, 5), torch.randn(3)) for _ in range(4)]
    optimizer = adamw(layer, config)
    set_lr(optimizer, 0.05)
    for layer.weight.grad, layer.bias.grad in grads:
        optimizer.step()
    options = {"lr": 0.05, "betas": config.betas, "eps": config.eps}
    by_hand = adamw_by_hand(weight, [g for g, _ in grads], weight_decay=0.1, **options)
    torch.testing.assert_close(layer.weight.detach(), by_hand)
    torch.testing.assert_close(
        layer.bias.detach(), adamw_by_hand(bias, [g for _, g in grads], weight_decay=0.0, **options)
    )


def test_state_travels_by_name_and_frozen_parameters_have_none():
    torch.manual_seed(0)
    layer = nn.Linear(5, 3)
    layer.bias.requires_grad = False
    optimizer = adamw(layer, OptimConfig())
    layer.weight.grad = torch.randn(3, 5)
    optimizer.step()
    state = state_by_name(optimizer, layer)
    assert set(state) == {"weight/exp_avg", "weight/exp_avg_sq", "weight/step"}

    other = nn.Linear(5, 3)
    other.load_state_dict(layer.state_dict())
    resumed = adamw(other, OptimConfig())
    load_state(resumed, other, state, "here")
    for one, opt in ((layer, optimizer), (other, resumed)):
        one.weight.grad = torch.ones(3, 5)
        opt.step()
    assert torch.equal(layer.weight, other.weight)


def test_state_of_another_model_is_refused():
    layer = nn.Linear(5, 3)
    with pytest.raises(DataError, match="belongs to no parameter"):
        load_state(adamw(layer, OptimConfig()), layer, {"weight/exp_avg": torch.zeros(4, 4)}, "here")
    with pytest.raises(DataError, match="elsewhere/exp_avg"):
        load_state(adamw(layer, OptimConfig()), layer, {"elsewhere/exp_avg": torch.zeros(3, 5)}, "here")
