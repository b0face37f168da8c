"""Every optimizer does what its paper's formula says, and its state travels by name."""

import re
from typing import get_args

import pytest
import torch
from torch import nn

from bertie.errors import DataError, UsageError
from bertie.models import families, machine
from bertie.nn.linear import Linear
from bertie.train.config import OptimConfig
from bertie.train.muon import Muon, orthogonal
from bertie.train.optim import OPTIMIZERS, OptimizerGroup, param_slices
from nano import assert_same_run, nano_fit, nano_model

LR = 0.05
CONFIG = {"lr": 0.1, "betas": (0.8, 0.9), "eps": 1e-3, "weight_decay": 0.1}
NAMES = list(OPTIMIZERS)


def test_the_config_names_every_row():
    assert get_args(OptimConfig.model_fields["name"].annotation) == tuple(OPTIMIZERS)


def test_matrices_decay_and_biases_and_norms_do_not():
    model = nano_model()
    decayed, spared = OptimizerGroup(model, OptimConfig(weight_decay=0.01)).optimizers[0].param_groups
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    assert (decayed["weight_decay"], spared["weight_decay"]) == (0.01, 0.0)
    for parameter in spared["params"]:
        assert "bias" in names[id(parameter)] or "norm" in names[id(parameter)], names[id(parameter)]
    for parameter in decayed["params"]:
        assert names[id(parameter)].endswith("weight")
        assert "norm" not in names[id(parameter)]
    assert len(decayed["params"]) + len(spared["params"]) == len(list(model.parameters()))


@pytest.mark.parametrize(
    ("preset", "sizes", "biases"),
    [
        ("xlnet-base-cased", {}, r"attention\.ask_(content|distance|segment)"),
        ("t5-small", {"attention_head_size": 8}, r"relative\.bias\.weight"),
    ],
)
def test_biases_of_two_axes_do_not_decay(preset, sizes, biases):
    """What is added to queries or scores is a bias whatever its shape; the releases spare all that is called so."""
    model = families.build(
        preset, vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=8, **sizes
    )
    found = {part.name: part for part in param_slices(model)}
    added = [name for name in found if re.search(biases, name)]
    assert added
    assert all(found[name].tensor.ndim == 2 for name in added)
    spared = {name for name, part in found.items() if not part.decays}
    assert spared == {name for name, part in found.items() if part.tensor.ndim == 1} | set(added)
    for optimizer in NAMES:
        groups = [
            group
            for each in OptimizerGroup(model, OptimConfig(name=optimizer)).optimizers
            for group in each.param_groups
        ]
        still = [group for group in groups if not group["weight_decay"]]
        assert {id(x) for group in still for x in group["params"]} >= {id(found[name].owner) for name in added}


# The formulas: x (a tensor), its gradients in turn -> x after as many updates ----------------------------------------


def adamw(x, grads, decay, corrected=True):
    """Loshchilov and Hutter 2019, algorithm 2; not corrected: optimization.py of the release."""
    (beta1, beta2), eps = CONFIG["betas"], CONFIG["eps"]
    m, v = torch.zeros_like(x), torch.zeros_like(x)
    for t, g in enumerate(grads, 1):
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        m_hat, v_hat = (m / (1 - beta1**t), v / (1 - beta2**t)) if corrected else (m, v)
        x = x - LR * (m_hat / (v_hat.sqrt() + eps) + decay * x)
    return x


def bert_adam(x, grads, decay):
    return adamw(x, grads, decay, corrected=False)


def lamb(x, grads, decay):
    """You et al. 2019, algorithm 2, with phi(z) = z."""
    if x.ndim == 1:
        return adamw(x, grads, decay)
    (beta1, beta2), eps = CONFIG["betas"], CONFIG["eps"]
    m, v = torch.zeros_like(x), torch.zeros_like(x)
    for t, g in enumerate(grads, 1):
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        r = (m / (1 - beta1**t)) / ((v / (1 - beta2**t)).sqrt() + eps) + decay * x
        x = x - LR * x.norm() / r.norm() * r
    return x


def muon(x, grads, decay):
    """Jordan et al. 2024: the momentum's nearest orthogonal matrix, by five rounds of Newton and Schulz; in float64."""
    if x.ndim == 1:
        return adamw(x, grads, decay)
    x, grads = x.double(), [g.double() for g in grads]
    mu, moment = 0.95, torch.zeros_like(x)
    for g in grads:
        moment = mu * moment + (1 - mu) * g
        o = (1 - mu) * g + mu * moment
        o = o.T if len(x) > x.shape[1] else o
        o = o / o.norm()
        for _ in range(5):
            a = o @ o.T
            o = 3.4445 * o + (-4.7750 * a + 2.0315 * a @ a) @ o
        o = o.T if len(x) > x.shape[1] else o
        x = x - LR * (0.2 * max(x.shape) ** 0.5 * o + decay * x)  # Liu et al. 2025, 2.2
    return x.float()


def adafactor(x, grads, decay):
    """Shazeer and Stern 2018, algorithms 4 and 5, with relative steps; torch clamps the mean, not each square."""
    rows, columns, matrix = torch.zeros(()), torch.zeros(()), x.ndim > 1
    for t, g in enumerate(grads, 1):
        beta, squares = 1 - t**-0.8, g * g
        step = max(1e-3, float(x.square().mean().sqrt())) * min(LR, t**-0.5)
        rows = beta * rows + (1 - beta) * (squares.mean(-1, keepdim=True) if matrix else squares)
        columns = beta * columns + (1 - beta) * squares.mean(-2, keepdim=True) if matrix else torch.ones(1)
        v = rows * columns / rows.mean() if matrix else rows
        u = g / v.sqrt()
        u = u / max(1.0, float(u.square().mean().sqrt()))
        x = x * (1 - LR * decay) - step * u
    return x


FORMULAS = {"adamw": adamw, "bert_adam": bert_adam, "lamb": lamb, "muon": muon, "adafactor": adafactor}


# Five rounds make a small singular value, and so its rounding, up to 3.4445**5 = 485 times as large; an update is LR
# times 0.2 sqrt(5) = 0.45 of that, four of them are made here: 7e-6 * 10 in float32, eps being 1.2e-7, and in bfloat16,
# eps being 7.8e-3, no more than the size of an update, the distance of its values from 1 in any case.
MUON_ATOL = {torch.float32: 1e-5, torch.bfloat16: 5e-3}


@pytest.mark.parametrize("dtype", MUON_ATOL, ids=str)
def test_muon_computes_in_what_the_machine_is_quicker_in(dtype, monkeypatch):
    rates = (
        machine.ProductRates(fp32=100, bf16=300) if dtype == torch.bfloat16 else machine.ProductRates(fp32=100, bf16=1)
    )
    monkeypatch.setattr(machine, "cpu_rates", lambda: rates)
    torch.manual_seed(0)
    errors = []
    for shape in ((24, 12), (12, 24), (16, 16)):
        layer, theirs = nn.Linear(*shape, bias=False), nn.Linear(*shape, bias=False)
        theirs.load_state_dict(layer.state_dict())
        before, grads = layer.weight.detach().clone(), [torch.randn(shape[::-1]) for _ in range(4)]
        updates = OptimizerGroup(layer, OptimConfig(name="muon", weight_decay=0.1))
        torchs = torch.optim.Muon(theirs.parameters(), lr=LR, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
        for layer.weight.grad in grads:
            theirs.weight.grad = layer.weight.grad.clone()
            updates.step(LR)
            torchs.step()
        assert updates.optimizers[0].dtype == dtype
        expected = muon(before, grads, 0.1)
        torch.testing.assert_close(layer.weight.detach(), expected, atol=MUON_ATOL[dtype], rtol=0)
        errors.append(float((layer.weight.detach() - expected).abs().max()))
        if dtype == torch.bfloat16:
            assert torch.equal(layer.weight, theirs.weight), "the same bits as torch's"
    assert (max(errors) < 1e-5) == (dtype == torch.float32), "bfloat16 would be seen"


@pytest.mark.parametrize("shape", [(4, 6), (6, 4)])
def test_matrices_are_orthogonalized_together_as_alone(shape):
    matrices = torch.randn(3, *shape) * torch.tensor([1.0, 1e-3, 1e3])[:, None, None]
    alone = torch.stack([orthogonal(matrix, torch.float32) for matrix in matrices])
    torch.testing.assert_close(orthogonal(matrices, torch.float32), alone, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", NAMES)
def test_it_does_what_the_formula_says(name, monkeypatch):
    """On a fused projection of three matrices, which LAMB and Muon look at one by one."""
    monkeypatch.setattr(machine, "cpu_rates", lambda: machine.ProductRates(fp32=1, bf16=1))
    torch.manual_seed(0)
    layer = Linear(5, 3 * 4, parts=3)
    weight, bias = layer.weight.detach().clone(), layer.bias.detach().clone()
    grads = [(torch.randn(12, 5), torch.randn(12)) for _ in range(4)]
    updates = OptimizerGroup(layer, OptimConfig(name=name, **CONFIG))
    for layer.weight.grad, layer.bias.grad in grads:
        updates.step(LR)
    formula = FORMULAS[name]
    expected = [formula(part, [g.chunk(3)[i] for g, _ in grads], 0.1) for i, part in enumerate(weight.chunk(3))]
    torch.testing.assert_close(layer.weight.detach(), torch.cat(expected), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(layer.bias.detach(), formula(bias, [g for _, g in grads], 0.0))
    if name in ("lamb", "muon", "adafactor"):
        whole = formula(weight, [g for g, _ in grads], 0.1)
        assert (layer.weight.detach() - whole).abs().max() > 0.01, "the three matrices were taken for one"


def test_the_release_s_first_update_is_three_times_as_large():
    moved = {}
    for name in ("adamw", "bert_adam"):
        layer = nn.Linear(1, 1, bias=False)
        before = layer.weight.item()
        layer.weight.grad = torch.ones(1, 1)
        OptimizerGroup(layer, OptimConfig(name=name, weight_decay=0.0)).step(0.01)
        moved[name] = before - layer.weight.item()
    assert moved["bert_adam"] / moved["adamw"] == pytest.approx(0.1 / 0.001**0.5, rel=1e-3)


def test_lamb_moves_what_is_all_zero():
    layer = nn.Linear(3, 2, bias=False)
    nn.init.zeros_(layer.weight)
    layer.weight.grad = torch.ones(2, 3)
    OptimizerGroup(layer, OptimConfig(name="lamb")).step(0.01)
    torch.testing.assert_close(layer.weight.detach(), torch.full((2, 3), -0.01), rtol=1e-4, atol=0)


def test_muon_takes_hidden_matrices_and_adamw_the_rest():
    first, rest = OptimizerGroup(nano_model(), OptimConfig(name="muon")).optimizers
    assert isinstance(first, Muon)
    assert isinstance(rest, torch.optim.AdamW)
    hidden = [part.name for part in param_slices(nano_model(), apart=True) if part.hidden]
    assert len(hidden) == sum(len(group["params"]) for group in first.param_groups)
    assert "encoder.layers.0.attention.qkv.weight[2]" in hidden
    assert not any("embeddings" in name or "classifier" in name or "bias" in name for name in hidden)


@pytest.mark.parametrize("name", NAMES)
def test_a_run_learns_and_a_resumed_one_is_unbroken(name, tmp_path):
    nano_fit(tmp_path / "unbroken", optimizer=name, steps=8, save_every=4)
    with pytest.raises(ZeroDivisionError):
        nano_fit(tmp_path / "broken", optimizer=name, steps=8, save_every=4, on_step=lambda step: 1 / (6 - step))
    nano_fit(tmp_path / "broken", optimizer=name, steps=8, save_every=4)
    assert_same_run(tmp_path / "unbroken", tmp_path / "broken", 8)


@pytest.mark.parametrize("name", NAMES)
def test_state_travels_by_name_and_frozen_parameters_have_none(name):
    torch.manual_seed(0)
    layer = nn.Linear(5, 3)
    layer.bias.requires_grad = False
    config = OptimConfig(name=name)
    updates = OptimizerGroup(layer, config)
    layer.weight.grad = torch.randn(3, 5)
    updates.step(0.1)
    state = updates.state()
    usual = ("exp_avg", "exp_avg_sq", "step")
    kept = {"muon": ("momentum_buffer",), "adafactor": ("row_var", "col_var", "step")}.get(name, usual)
    assert set(state) == {f"weight/{what}" for what in kept}

    other = nn.Linear(5, 3)
    other.load_state_dict(layer.state_dict())
    resumed = OptimizerGroup(other, config)
    resumed.load(state, "here")
    for one, opt in ((layer, updates), (other, resumed)):
        one.weight.grad = torch.ones(3, 5)
        opt.step(0.1)
    assert torch.equal(layer.weight, other.weight)


@pytest.mark.parametrize("name", ["lamb", "muon", "adafactor"])
def test_what_needs_whole_matrices_is_refused_when_they_are_cut(name):
    layer = nn.Linear(5, 3)
    layer.weight.placements = ()  # as a tensor has that lies in parts on several ranks
    with pytest.raises(UsageError, match=f"optim.name={name} .* train.shard=none"):
        OptimizerGroup(layer, OptimConfig(name=name))


def test_state_of_another_model_is_refused():
    updates = OptimizerGroup(nn.Linear(5, 3), OptimConfig())
    with pytest.raises(DataError, match="belongs to no parameter"):
        updates.load({"weight/exp_avg": torch.zeros(4, 4)}, "here")
    with pytest.raises(DataError, match="elsewhere/exp_avg"):
        updates.load({"elsewhere/exp_avg": torch.zeros(3, 5)}, "here")
