"""Attention: the fused kernel = the formula; packed = padded; a sequence is blind to its neighbors."""

import math

import pytest
import torch

from bertie.models.config import EncoderConfig
from bertie.models.encoder import Encoder
from bertie.nn import attention, dropout
from bertie.nn.attention import SelfAttention, attention_bias, formula
from bertie.nn.init import initialize
from bertie.nn.layout import Packed, Padded
from nano import rounding

LENGTHS = torch.tensor([7, 3, 11, 1])
NANO = EncoderConfig(
    vocab_size=99,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=64,
    max_position_embeddings=64,
)
PLAIN = NANO.replace(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


def encoder(config=PLAIN, std=0.2):
    made = Encoder(config)
    initialize(made, std=std, seed=1)
    return made


def packed_ids(seed=0):
    return torch.randint(5, 99, (int(LENGTHS.sum()),), generator=torch.Generator().manual_seed(seed))


def loops(q, k, v, mask):
    """The definition, one query at a time. q, k, v (S, D), mask (S, S) bool -> (S, D)"""
    out = torch.zeros_like(v)
    for i in range(len(q)):
        weights = [math.exp(float(q[i] @ k[j]) / math.sqrt(q.shape[1])) if mask[i, j] else 0.0 for j in range(len(k))]
        for j, weight in enumerate(weights):
            out[i] += weight / sum(weights) * v[j]
    return out


@pytest.mark.parametrize("causal", [False, True])
def test_the_formula_equals_the_definition(causal):
    torch.manual_seed(0)
    layout = Packed.from_lengths(torch.tensor([4, 6]))
    q, k, v = torch.randn(3, 2, 3, 6, 5)
    context, probs = formula(q, k, v, attention_bias(layout, torch.float32, causal=causal))
    torch.testing.assert_close(probs.sum(-1), torch.ones(2, 3, 6))
    for b in range(2):
        seen = layout.mask()[b][None].expand(6, 6)
        seen = seen & torch.ones(6, 6, dtype=torch.bool).tril() if causal else seen
        for n in range(3):
            torch.testing.assert_close(context[b, n], loops(q[b, n], k[b, n], v[b, n], seen), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("causal", [False, True])
def test_sdpa_equals_the_formula(causal):
    torch.manual_seed(0)
    module = SelfAttention(32, 4)
    layout = Packed.from_lengths(LENGTHS)
    hidden = torch.randn(int(LENGTHS.sum()), 32)
    bias = attention_bias(layout, torch.float32, causal=causal)
    with torch.no_grad():
        fused, none = module(hidden, layout, bias)
        by_formula, probs = module(hidden, layout, bias, output_attentions=True)
    assert none is None
    assert probs.shape == (4, 4, 11, 11)
    torch.testing.assert_close(fused, by_formula, rtol=1e-5, atol=1e-6)


def test_sdpa_trains_like_the_formula(monkeypatch):
    gradients = []
    for slow in (True, False):
        monkeypatch.setattr(attention, "_slow_fused", lambda q, slow=slow: slow)
        model = encoder()
        model(packed_ids(), layout=Packed.from_lengths(LENGTHS)).last_hidden_state.square().sum().backward()
        gradients.append([p.grad for p in model.parameters() if p.grad is not None])
    for by_formula, fused in zip(*gradients, strict=True):
        torch.testing.assert_close(by_formula, fused, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("config", [PLAIN, PLAIN.replace(norm="pre"), PLAIN.replace(embedding_size=16, causal=True)])
def test_packed_equals_padded_in_outputs_and_gradients(config):
    model = encoder(config).train()
    layout = Packed.from_lengths(LENGTHS)
    ids, weights = packed_ids(), torch.randn(int(LENGTHS.sum()), 32)
    results = []
    for packed in (True, False):
        model.zero_grad()
        if packed:
            output = model(ids, ids % 2, layout)
            hidden = output.last_hidden_state
        else:
            output = model(layout.rectangle(ids), layout.rectangle(ids % 2), attention_mask=layout.mask().long())
            hidden = output.last_hidden_state[layout.mask()]
        ((hidden * weights).sum() + output.pooler_output.sum()).backward()
        results.append([hidden.detach(), output.pooler_output.detach(), *(p.grad for p in model.parameters())])
    for by_pack, by_pad in zip(*results, strict=True):
        torch.testing.assert_close(by_pack, by_pad, rtol=1e-4, atol=1e-5)  # sums over other orders, in float32


def test_equally_long_sequences_take_the_short_way_to_the_same_result():
    model, ids = encoder().eval(), packed_ids()[:20]
    layout = Packed.from_lengths(torch.tensor([10, 10]))
    longer = Packed(layout.cu_seqlens, 12, 20)  # claims a wider rectangle, so that nothing is full
    assert layout.full
    assert not longer.full
    full, wider = (model(ids, layout=one).last_hidden_state for one in (layout, longer))
    torch.testing.assert_close(full, wider, rtol=0, atol=rounding(full))


@pytest.mark.promise("neighbors-in-a-pack")
def test_editing_one_sequence_changes_nothing_beside_it():
    model, layout = encoder().eval(), Packed.from_lengths(LENGTHS)
    before = model(packed_ids(), layout=layout).last_hidden_state
    edited = packed_ids()
    edited[:7] = torch.randint(5, 99, (7,))
    after = model(edited, layout=layout).last_hidden_state
    assert torch.equal(before[7:], after[7:])
    assert not torch.allclose(before[:7], after[:7])


@pytest.mark.promise("text-alone-or-in-a-batch")
def test_alone_in_a_batch_and_padded_far_are_the_same():
    config = PLAIN.replace(max_position_embeddings=512)
    model = encoder(config, std=0.05).eval()
    lengths = torch.randint(1, 60, (32,), generator=torch.Generator().manual_seed(0))
    ids = torch.randint(5, 99, (int(lengths.sum()),))
    layout = Packed.from_lengths(lengths)
    together = model(ids, layout=layout).last_hidden_state
    for row, (alone, among) in enumerate(
        zip(ids.split(lengths.tolist()), together.split(lengths.tolist()), strict=True)
    ):
        by_itself = model(alone[None]).last_hidden_state[0]
        torch.testing.assert_close(by_itself, among, rtol=0, atol=rounding(among))
        if row < 4:
            wide, mask = torch.zeros(1, 512, dtype=torch.int64), torch.zeros(1, 512, dtype=torch.int64)
            wide[0, : len(alone)], mask[0, : len(alone)] = alone, 1
            padded = model(wide, attention_mask=mask).last_hidden_state[0, : len(alone)]
            torch.testing.assert_close(padded, by_itself, rtol=0, atol=rounding(by_itself))


def test_an_empty_row_stays_finite():
    model = encoder().eval()
    mask = torch.tensor([[1, 1, 1], [0, 0, 0]])
    assert model(torch.full((2, 3), 7), attention_mask=mask).last_hidden_state.isfinite().all()


def test_padded_knows_when_it_is_full():
    assert Padded(torch.ones(2, 3)).full
    assert not Padded(torch.tensor([[1, 0]])).full


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_drops_at_its_rate_and_keeps_the_mean(dtype):
    torch.manual_seed(0)
    x = torch.ones(1001, 999, dtype=dtype)
    y = dropout.dropout(x, 0.1, True)
    assert abs(float((y == 0).double().mean()) - 0.1) < 0.0015  # five standard deviations of a million draws
    assert abs(float(y.double().mean()) - 1) < 0.004  # bf16 rounds 1 / 0.9 by 0.002
    assert dropout.dropout(x, 0.1, False) is x
    assert dropout.dropout(x, 0.0, True) is x
    torch.manual_seed(0)
    assert torch.equal(dropout.dropout(x, 0.1, True), y)
    assert not torch.equal(dropout.dropout(x, 0.1, True), y)
    torch.manual_seed(0)
    torch.testing.assert_close(dropout.add_dropout(x, x, 0.1, True), x + y)


def test_dropout_passes_gradients_where_it_kept():
    x = torch.ones(1000, requires_grad=True)
    y = dropout.dropout(x, 0.5, True)
    y.sum().backward()
    assert torch.equal(x.grad, y)


def test_dropout_is_seeded_and_off_in_evaluation():
    model, ids, layout = encoder(NANO).train(), packed_ids(), Packed.from_lengths(LENGTHS)

    def run():
        return model(ids, layout=layout).last_hidden_state

    torch.manual_seed(3)
    first = run()
    assert not torch.equal(first, run())
    torch.manual_seed(3)
    assert torch.equal(first, run())
    model.eval()
    assert torch.equal(run(), run())


def test_bf16_is_near_float32():
    model, ids, layout = encoder(std=0.05).eval(), packed_ids(), Packed.from_lengths(LENGTHS)
    exact = model(ids, layout=layout).last_hidden_state
    model.compute_dtype = torch.bfloat16
    quick = model(ids, layout=layout).last_hidden_state
    assert quick.dtype == torch.bfloat16
    assert float((quick - exact).detach().abs().mean()) < 0.02  # of values about 1; bf16 has 8 bits
    quick.float().sum().backward()
    assert all(p.grad is None or p.grad.dtype == torch.float32 for p in model.parameters())
