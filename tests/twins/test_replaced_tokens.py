"""Replaced-token detection against `transformers`: the same two models, losses and gradients."""

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from batches import laid_out
from bertie import objectives
from bertie.data.masking import Vocabulary
from bertie.models import families
from bertie.models import vocabulary_loss as chunks
from bertie.models.batch import Batch
from bertie.models.config import EncoderConfig
from bertie.models.model import TorchModel
from bertie.objectives import rtd
from bertie.objectives.rtd import Detection, sample_tokens
from bertie.order import Draws, key
from bertie.train.step import backward

V, MASK, STRUCTURE = 99, 4, 5
VOCABULARY = Vocabulary(1, 2, 0, MASK, 3, np.arange(V) < STRUCTURE, np.zeros(V, bool), np.zeros(V, bool))
LENGTHS = np.array([12, 30, 7, 21])


@pytest.fixture(scope="module")
def objective():
    return objectives.build_objective({"rtd": {"size": 0.5, "layers": 0.5, "rate": 0.3}})


@pytest.fixture(scope="module")
def batch(objective):
    rng = np.random.default_rng(0)
    ids = np.concatenate([[1, *rng.integers(STRUCTURE, STRUCTURE + 6, n - 2), 2] for n in LENGTHS])
    return Batch.of(objective.corrupt(laid_out(ids, LENGTHS), Draws(key(7, np.arange(4))), VOCABULARY))


@pytest.fixture
def model(objective) -> TorchModel:
    shape: EncoderConfig = families.config(
        "electra-small-discriminator",
        vocab_size=V,
        hidden_size=32,
        embedding_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=40,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = families.build(shape, heads=objective.heads, variant="electra", seed=3)
    objective.prepare(model, 3)
    with torch.no_grad():  # a generator that is right now and then
        model.companions["generator"].mlm.bias[STRUCTURE : STRUCTURE + 6] = 4
    return model.train()


def test_losses_and_gradients_are_those_of_transformers(objective, batch, model, tmp_path: Path) -> None:
    kept = objective.models_to_save(model)
    assert set(kept) == {"model", "generator"}
    for name, each in kept.items():
        each.save_pretrained(tmp_path / name)
    discriminator = transformers.ElectraForPreTraining.from_pretrained(tmp_path / "model").train()
    generator = transformers.ElectraForMaskedLM.from_pretrained(tmp_path / "generator").train()
    assert generator.config.hidden_size == 16
    assert generator.config.num_hidden_layers == 1
    for part in ("word_embeddings", "position_embeddings", "token_type_embeddings"):
        setattr(generator.electra.embeddings, part, getattr(discriminator.electra.embeddings, part))
    generator.tie_weights()

    layout = batch.layout
    shown, mask = layout.rectangle(batch.input_ids), layout.mask()
    labels = torch.full_like(batch.input_ids, -100)
    labels[batch.labels["mlm_positions"]] = batch.labels["mlm_targets"]
    labels = layout.rectangle(labels).masked_fill(~mask, -100)
    said = generator(input_ids=shown, attention_mask=mask, labels=labels)

    filled = shown.clone()  # one token at a time, in the order of the text
    draws = iter(batch.labels["rtd_draws"].tolist())
    for row, column in (labels != -100).nonzero().tolist():
        probabilities = said.logits[row, column].double().softmax(-1).tolist()
        draw, token = next(draws), 0
        while draw >= probabilities[token]:
            draw -= probabilities[token]
            token += 1
        filled[row, column] = token
    replaced = ((labels != -100) & (filled != labels)).long()
    assert 0 < replaced.sum() < (labels != -100).sum()  # some of what the generator says is right
    found = discriminator(input_ids=filled, attention_mask=mask, labels=replaced)
    (said.loss + 50 * found.loss).backward()

    counts = objective.counts(batch)
    sums = backward(model, objective, [batch], counts, seed=(0,), device=torch.device("cpu"))
    losses, correct = sums.read(sums.tensor().tolist())
    assert losses["generator"] / counts["generator"] == pytest.approx(said.loss.item(), rel=1e-5)
    assert losses["rtd"] / counts["rtd"] == pytest.approx(found.loss.item(), rel=1e-5)
    assert correct["rtd"] == int((((found.logits > 0) == replaced.bool()) & mask).sum())
    assert counts["rtd"] == LENGTHS.sum()

    theirs, ours = discriminator.electra, model.encoder
    pairs = {
        "shared word": (theirs.embeddings.word_embeddings.weight, ours.embeddings.word.weight),
        "shared position": (theirs.embeddings.position_embeddings.weight, ours.embeddings.position.weight),
        "last layer": (theirs.encoder.layer[1].output.dense.weight, ours.layers[1].down.weight),
        "head": (discriminator.discriminator_predictions.dense.weight, model.heads["rtd"].dense.weight),
        "generator's layer": (
            generator.electra.encoder.layer[0].intermediate.dense.weight,
            model.companions["generator"].encoder.layers[0].up.weight,
        ),
        "generator's head": (
            generator.generator_predictions.dense.weight,
            model.companions["generator"].mlm.dense.weight,
        ),
        "generator's projection": (
            generator.electra.embeddings_project.weight,
            model.companions["generator"].encoder.embeddings.projection.weight,
        )
        if hasattr(generator.electra, "embeddings_project")
        else (theirs.embeddings.LayerNorm.weight, ours.embeddings.norm.weight),
    }
    for name, (their, our) in pairs.items():
        torch.testing.assert_close(our.grad, their.grad, rtol=1e-4, atol=1e-5, msg=lambda m, name=name: f"{name}: {m}")


def test_no_gradient_passes_through_what_was_drawn(objective, batch, model) -> None:
    report = objective.loss(model, objective.forward(model, batch), batch)
    report["rtd"].total.backward()
    assert model.companions["generator"].mlm.dense.weight.grad is None
    assert model.companions["generator"].encoder.layers[0].up.weight.grad is None


def test_the_discriminator_reads_what_the_generator_said(objective, batch, model) -> None:
    output = objective.forward(model, batch)
    assert isinstance(output, Detection)
    assert not output.replaced[batch.input_ids < STRUCTURE - 1].any()  # [CLS] and [SEP] are the text's own
    places = torch.zeros_like(output.replaced)
    places[batch.labels["mlm_positions"]] = True
    assert not output.replaced[~places].any()


def test_tokens_are_drawn_as_likely_as_the_generator_finds_them(model, monkeypatch) -> None:
    """50,000 even draws from one state come out in its probabilities, whatever fits in memory at once."""
    generator = model.companions["generator"]
    hidden, word = torch.randn(1, 16), generator.encoder.embeddings.word.weight
    probabilities = generator.mlm.logits(hidden, word).softmax(-1)[0]
    draws = torch.arange(50_000) / 50_000
    for room in (chunks.CHUNK_LOGITS, V * 700):
        monkeypatch.setattr(chunks, "CHUNK_LOGITS", room)
        said = sample_tokens(generator.mlm, hidden.expand(50_000, -1), word, draws)
        shares = torch.bincount(said, minlength=V) / 50_000
        torch.testing.assert_close(shares, probabilities, rtol=0, atol=5e-5)


SMALL = {
    "vocab_size": V,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


@pytest.mark.parametrize("preset", ["electra-small-discriminator", "deberta-v3-small"])
def test_disentangled_embeddings(preset: str, batch, tmp_path: Path) -> None:
    """The gradients are those of two models that share nothing: He et al. 2021, 3.3."""
    options = {"size": 1.0, "layers": 0.5, "rate": 0.3}
    objective, apart = (
        objectives.build_objective({"rtd": {**options, "tied": tied}}) for tied in ("disentangled", "none")
    )
    variant = families.family(preset).model_type
    shape = families.config(preset, **SMALL)
    model, other = (families.build(shape, heads=objective.heads, variant=variant, seed=3) for _ in range(2))
    before = model.word_embeddings.clone()
    objective.prepare(model, 3)
    apart.prepare(other, 3)
    torch.testing.assert_close(model.word_embeddings, before)  # the difference begins with zero
    names = dict(model.named_parameters())
    with torch.no_grad():
        for name, parameter in names.items():
            if name.endswith(rtd.DIFFERENCE_SUFFIX):
                parameter.copy_(torch.randn_like(parameter) * 0.1)
    assert sum(name.endswith(rtd.DIFFERENCE_SUFFIX) for name in names) == (3 if variant == "electra" else 1)
    other.load_state_dict(rtd.with_sums(model.state_dict()))
    for each, one in ((model, objective), (other, apart)):
        each.train()
        backward(each, one, [batch], one.counts(batch), seed=(0,), device=torch.device("cpu"))
    wanted = {name: parameter.grad for name, parameter in other.named_parameters()}
    for name, parameter in names.items():
        plain = f"{name.removesuffix(rtd.DIFFERENCE_SUFFIX)}.weight" if name.endswith(rtd.DIFFERENCE_SUFFIX) else name
        torch.testing.assert_close(parameter.grad, wanted[plain], atol=1e-6, rtol=1e-4, msg=name)
    for name, each in objective.models_to_save(model).items():
        each.save_pretrained(tmp_path / name)
        again, report = families.load(tmp_path / name)
        assert report.fresh + report.unused == ()
        weight = (
            other.word_embeddings if name == "model" else other.companions["generator"].encoder.embeddings.word.weight
        )
        torch.testing.assert_close(again.word_embeddings, weight)
    assert model.word_embeddings.requires_grad, "the model that trains is as it was"
