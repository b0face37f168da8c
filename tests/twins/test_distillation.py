"""DistilBERT's losses, compared with the formulas of its release (distillation/distiller.py), on all logits at once."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from batches import laid_out
from bertie import objectives
from bertie.data.masking import Vocabulary
from bertie.errors import DataError, UsageError
from bertie.models import families
from bertie.models import vocabulary_loss as loss
from bertie.models.batch import Batch
from bertie.models.count import forward_flops
from bertie.models.kinds import Bottleneck
from bertie.objectives import MaskedLM
from bertie.objectives.distil import attention_divergence
from bertie.order import Draws, key
from bertie.train.step import backward

V, STRUCTURE = 60, 5
VOCABULARY = Vocabulary(1, 2, 0, 4, 3, np.arange(V) < STRUCTURE, np.zeros(V, bool), np.zeros(V, bool))
NANO = {"vocab_size": V, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def teacher(folder="teacher", **changes):
    shape = families.config("bert-tiny", **{**NANO, "num_hidden_layers": 4, **changes})  # its dropout is never on
    return families.build(shape, heads=MaskedLM().heads, seed=5)


def student(objective, **changes):
    shape = families.config("distilbert-base-uncased", **{**NANO, **STILL, **changes})
    model = families.build(shape, heads=objective.heads, variant="distilbert", seed=6)
    objective.prepare(model, 6)
    return model.train()


def batch_of(objective):
    rng, lengths = np.random.default_rng(0), np.array([12, 30, 7])
    ids = np.concatenate([[1, *rng.integers(STRUCTURE, V, n - 2), 2] for n in lengths])
    return Batch.of(objective.corrupt(laid_out(ids, lengths), Draws(key(1, np.arange(3))), VOCABULARY))


@pytest.mark.parametrize("positions", ["all", "masked"])
def test_losses_and_gradients_are_the_formulas(positions, monkeypatch):
    monkeypatch.setattr(loss, "CHUNK_LOGITS", V * 10)  # several chunks
    options = {"mlm": {"weight": 2.0}, "distil": {"teacher": "teacher", "positions": positions}}
    objective = objectives.build_objective(options).load_dependencies(teacher)
    model, other, batch = student(objective), teacher().eval(), batch_of(objective)
    counts = objective.counts(batch)
    sums = backward(model, objective, [batch], counts, seed=(0,), device=torch.device("cpu"))
    losses, _ = sums.read(sums.tensor().tolist())
    ours = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()

    places, targets = batch.labels["mlm_positions"], batch.labels["mlm_targets"]
    hidden = model.encode(batch).last_hidden_state
    with torch.no_grad():
        seen = other.encode(batch).last_hidden_state
        t_logits = other.heads["mlm"].logits(seen, other.word_embeddings)
    s_logits = model.heads["mlm"].logits(hidden, model.word_embeddings)
    mlm = F.cross_entropy(s_logits[places], targets)
    if positions == "masked":
        s_logits, t_logits = s_logits[places], t_logits[places]
    soft = F.kl_div(F.log_softmax(s_logits / 2, -1), F.softmax(t_logits / 2, -1), reduction="batchmean") * 2**2
    cosine = F.cosine_embedding_loss(hidden, seen, torch.ones(len(hidden)))
    (5.0 * soft + 2.0 * mlm + 1.0 * cosine).backward()
    for name, expected in (("distil", soft), ("mlm", mlm), ("cosine", cosine)):
        assert losses[name] / counts[name] == pytest.approx(expected.item(), rel=1e-4), name
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(ours[name], parameter.grad, rtol=1e-4, atol=1e-5, msg=name)


def test_what_a_student_cannot_learn_from_is_named():
    with pytest.raises(UsageError, match=r"distil\.teacher is missing"):
        objectives.build_objective({"distil": {}}).load_dependencies(teacher)
    with pytest.raises(UsageError, match="no masked-LM head"):
        objectives.build_objective({"distil": {"teacher": "x"}}).load_dependencies(
            lambda _: families.build("bert-tiny", **NANO)
        )
    objective = objectives.build_objective({"distil": {"teacher": "teacher"}}).load_dependencies(teacher)
    with pytest.raises(UsageError, match=r"objectives\.distil\.cosine=0"):
        student(objective, hidden_size=16)
    with pytest.raises(DataError, match="use the teacher's tokenizer"):
        student(objective, vocab_size=V + 1)
    with pytest.raises(UsageError, match=r"needs objectives\.mlm"):
        batch_of(
            objectives.build_objective({"distil": {"teacher": "teacher", "positions": "masked"}}).load_dependencies(
                teacher
            )
        )
    with pytest.raises(UsageError, match=r"Unknown option 'distil\.loaded'"):
        objectives.build_objective({"distil": {"loaded": 1}})


def test_a_narrower_student_learns_from_soft_targets_alone():
    objective = objectives.build_objective({"distil": {"teacher": "teacher", "cosine": 0}}).load_dependencies(teacher)
    model = student(objective, hidden_size=16)
    report = objective.loss(model, objective.forward(model, batch_of(objective)), batch_of(objective))
    assert set(report) == {"distil"}


ALIKE = {"hidden_size": 32, "num_attention_heads": 2, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
OF_LAYERS = {"teacher": "teacher", "weight": 0, "cosine": 0, "features": 1.0, "attention": 2.0}


def bottleneck(folder="teacher", seed=5, **changes):
    layer = Bottleneck(**{"bottleneck_size": 16, "num_feedforward_networks": 2, **changes.pop("layer", {})})
    shape = families.config("mobilebert-uncased", **{**NANO, **ALIKE, "embedding_size": 8, **changes})
    return families.build(shape.replace(layer=layer), heads=MaskedLM().heads, variant="mobilebert", seed=seed)


def wide(folder="teacher", **changes):
    layer = {"bottleneck_size": 48, "shared_bottleneck": False, "num_feedforward_networks": 1}
    return bottleneck(
        **{"num_hidden_layers": 4, "norm_type": "layer", "layer": layer, "intermediate_size": 96} | changes
    )


def test_layers_learn_from_their_layers():
    """MobileBERT, 3.4: squared differences of feature maps and the divergence of attention, by layers that are even."""
    objective = objectives.build_objective({"mlm": {}, "distil": OF_LAYERS}).load_dependencies(wide)
    model, other, batch = bottleneck(seed=6).train(), wide().eval(), batch_of(objective)
    objective.prepare(model, 6)
    report = objective.loss(model, objective.forward(model, batch), batch)
    with torch.no_grad():
        theirs = other.encode(batch, output_hidden_states=True, output_attentions=True)
    ours = model.encode(batch, output_hidden_states=True, output_attentions=True)
    features = attention = 0
    for i, j in ((0, 1), (1, 3)):
        states, targets = (x.hidden_states[n + 1] for x, n in ((ours, i), (theirs, j)))
        features += (states - targets).square().mean(-1).sum()
        probs, wanted = ours.attentions[i], theirs.attentions[j]
        for row, length in enumerate((12, 30, 7)):
            p, q = wanted[row, :, :length, :length], probs[row, :, :length, :length]
            attention += (p * (p.log() - q.log())).sum(-1).mean(0).sum()
    torch.testing.assert_close(report["features"].total, features, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(report["attention"].total, attention, rtol=1e-4, atol=1e-5)
    assert set(report) == {"mlm", "features", "attention"}
    assert report["features"].count == report["attention"].count == 49
    assert (report["features"].weight, report["attention"].weight) == (1.0, 2.0)
    cost = objective.extra_cost(model.config, length=30, shares=dict.fromkeys(objective.counts(batch), 1.0))
    assert cost == {"teacher": sum(forward_flops(other.config, length=30).values())}, "no words are predicted"
    report["features"].total.backward(retain_graph=True)
    report["attention"].total.backward()
    assert all(p.grad is not None for name, p in model.encoder.named_parameters() if ".qk." in name)
    assert all(p.grad is None for p in objective.parts[1].loaded.parameters())


@pytest.mark.parametrize("length", [3, 12, 40])
def test_the_divergence_of_attention_in_half_precision(length):
    """In bfloat16, twelve times 1/12 are 1.002: and three times 1/3 0.998: as they are, rows diverge by less than 0."""
    scores = torch.zeros(1, 1, 1, length)
    scores[..., 0] = 0.01
    even = torch.full((1, 1, 1, length), 1 / length)
    divergence = attention_divergence(scores.softmax(-1).bfloat16(), even.bfloat16(), torch.ones(1, 1))
    assert 0 <= divergence < 1e-4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_hidden_layers": 3}, "a number that divides 4"),
        ({"hidden_size": 16}, r"objectives\.distil\.features=0"),
        ({"num_attention_heads": 4}, r"equally many heads.*objectives\.distil\.attention=0"),
        ({"attention_probs_dropout_prob": 0.1}, r"model_overrides\.attention_probs_dropout_prob=0"),
    ],
)
def test_layers_that_cannot_be_compared_are_named(changes, message):
    objective = objectives.build_objective({"distil": OF_LAYERS}).load_dependencies(wide)
    with pytest.raises(UsageError, match=message):
        objective.prepare(bottleneck(**changes), 0)


def test_weights_that_teach_nothing_are_refused():
    with pytest.raises(UsageError, match="one of them above"):
        objectives.build_objective({"distil": {"teacher": "teacher", "weight": 0, "cosine": 0}})
    with pytest.raises(UsageError, match="rtd and distil both run the model"):
        objectives.build_objective({"rtd": {}, "distil": OF_LAYERS})
