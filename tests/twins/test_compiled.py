"""Layers with compiled parts (train.compile) learn as plain ones: losses and gradients of batches of many shapes."""

import pytest
import torch

from bertie import families
from bertie.errors import UsageError
from bertie.models.heads import MaskedLMHead
from bertie.models.model import Model
from bertie.nn.compiled import compiled_parts, has_compiler
from bertie.nn.layout import Packed


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


SHAPE = {"vocab_size": 120, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
BERT = {"num_hidden_layers": 2, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
MODERN = {"num_hidden_layers": 4, "local_attention": 16}


def check(preset: str, more: dict[str, float], **options: str) -> None:
    torch._dynamo.reset()  # type: ignore[no-untyped-call]
    model = families.build(preset, heads=lambda config: {"mlm": MaskedLMHead(config)}, seed=0, **SHAPE, **more).train()
    many = [13, 29, 5], [7, 7, 7, 7], [40], [3, 64, 20, 11, 9]
    plain = [gradients(model, lengths) for lengths in many]
    before = [dict(vars(module)) for module in model.modules()]
    counted = torch._dynamo.utils.counters
    counted.clear()
    with compiled_parts(model, **options):
        compiled = [gradients(model, lengths) for lengths in many]
    assert counted["stats"]["unique_graphs"] <= 4  # whatever the number of layers and of shapes
    assert [dict(vars(module)).keys() for module in model.modules()] == [one.keys() for one in before]
    for expected, got in zip(plain, compiled, strict=True):
        assert got.keys() == expected.keys()
        for name, value in expected.items():
            torch.testing.assert_close(got[name], value, rtol=1e-4, atol=1e-6, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize(("preset", "more"), [("bert-tiny", BERT), ("ModernBERT-base", MODERN)], ids=["BERT", "Modern"])
def test_losses_and_gradients_are_those_of_plain_layers(preset: str, more: dict[str, float]) -> None:
    check(preset, more, backend="aot_eager")


@pytest.mark.slow
@pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")
@pytest.mark.parametrize(("preset", "more"), [("bert-tiny", BERT), ("ModernBERT-base", MODERN)], ids=["BERT", "Modern"])
def test_compiled_code_computes_the_same(preset: str, more: dict[str, float]) -> None:
    check(preset, more)


def test_a_missing_compiler_is_an_error_before_the_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(UsageError, match="needs a C\\+\\+ compiler"), compiled_parts(torch.nn.Identity()):
        pass
