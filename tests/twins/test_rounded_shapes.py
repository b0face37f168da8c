"""Rows that round a batch up to one of few shapes change nothing: outputs, losses and gradients are those without."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bertie.models.config import EncoderConfig
from bertie.models.encoder import Encoder, EncoderOutput
from bertie.models.heads.sequence import SequenceHead
from bertie.models.heads.token import ReplacedTokenHead, TokenHead
from bertie.models.heads.vocabulary import MaskedLMHead
from bertie.models.model import TorchModel
from bertie.models.vocabulary_loss import linear_cross_entropy
from bertie.nn import layout
from bertie.nn.init import initialize
from bertie.nn.layout import Packed, rounded

LENGTHS = torch.tensor([13, 29, 5, 22, 30])  # 99 tokens, 100 rows
SMALL = {
    "vocab_size": 120,
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


def test_sizes_are_few_and_close_above() -> None:
    sizes = [rounded(rows) for rows in range(100_000)]
    assert all(rows <= size <= rows * 17 / 16 for rows, size in enumerate(sizes))
    assert [rounded(rows) for rows in (0, 1, 17, 31, 33, 3_800)] == [0, 1, 17, 31, 34, 3_840]
    assert len(set(sizes[3_600:4_096])) <= 5
    assert all(rounded(size) == size for size in set(sizes))


def results(model: TorchModel, lengths: Tensor) -> dict[str, Tensor]:
    """Everything a step of masked LM and of a sentence head brings, gradients included."""
    drawn = torch.Generator().manual_seed(7)
    ids = torch.randint(5, 120, (int(lengths.sum()),), generator=drawn)
    types = torch.randint(0, 2, ids.shape, generator=drawn)
    chosen = torch.randperm(len(ids), generator=drawn)[: len(ids) // 3]
    model.zero_grad()
    output = model.encoder(ids, types, Packed.from_lengths(lengths), output_hidden_states=True, output_attentions=True)
    head = model.heads["mlm"]
    assert isinstance(head, MaskedLMHead)
    loss, correct = head.loss(output.last_hidden_state[chosen], model.word_embeddings, ids[chosen])
    (loss + model.heads["sequence"](output).square().sum()).backward()
    assert output.hidden_states
    assert output.attentions
    assert {len(states) for states in output.hidden_states} == {len(ids)}
    return {
        **{f"hidden {i}": states.detach() for i, states in enumerate(output.hidden_states)},
        **{f"attention {i}": probs.detach() for i, probs in enumerate(output.attentions)},
        "loss": loss.detach(),
        "correct": correct,
        **{name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None},
    }


@pytest.mark.parametrize("lengths", [LENGTHS, torch.full((3,), 13)], ids=["ragged", "all equally long"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"embedding_size": 16, "num_hidden_groups": 1},
        {"trigram_embeddings": True, "embedding_size": 16},
        {"causal": True, "norm": "pre"},
        {"attention_window": 8},
    ],
    ids=["bert", "factorized", "trigram", "left-to-right", "windowed"],
)
def test_with_rows_and_without(monkeypatch: pytest.MonkeyPatch, options: dict[str, object], lengths: Tensor) -> None:
    config = EncoderConfig(**SMALL).replace(**options, pooler=True)  # type: ignore[arg-type]
    heads = {"mlm": MaskedLMHead(config), "sequence": SequenceHead(config, num_labels=3)}  # of no public class together
    model = TorchModel(Encoder(config), heads).train()
    initialize(model, std=config.initializer_range, stds={}, seed=0)
    assert rounded(int(lengths.sum())) > lengths.sum()
    roomy = results(model, lengths)
    monkeypatch.setattr(layout, "rounded", lambda rows: rows)
    plain = results(model, lengths)
    assert roomy.keys() == plain.keys()
    for name, expected in plain.items():
        torch.testing.assert_close(roomy[name], expected, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize(("kind", "label"), [(TokenHead, {"label_transform": "gelu"}), (ReplacedTokenHead, {})])
def test_heads_of_tokens_compute_few_shapes(
    kind: type[TokenHead | ReplacedTokenHead], label: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = EncoderConfig(**SMALL).replace(**label)  # type: ignore[arg-type]
    torch.manual_seed(0)
    head = kind(config, 2)
    of = head.transform if isinstance(head, TokenHead) else head
    rows: set[int] = set()
    of.activation = lambda x: rows.add(len(x)) or F.gelu(x)  # type: ignore[assignment, func-returns-value]
    results = []
    for _ in range(2):
        results.append([])
        for tokens in range(1_000, 1_040):
            states = torch.linspace(-1, 1, tokens * 32).view(tokens, 32).requires_grad_()
            logits = head(EncoderOutput(states, Packed.from_lengths(torch.tensor([tokens]))))
            assert len(logits) == tokens
            results[-1] += [logits.detach(), *torch.autograd.grad(logits.square().sum(), states)]
        assert len(rows) == (2 if len(results) == 1 else 2 + 39)  # the second time, 1,024 is one of the 40
        monkeypatch.setattr(layout, "rounded", lambda rows: rows)
    for ours, plain in zip(*results, strict=True):
        torch.testing.assert_close(ours, plain)


def test_loss_of_rows_without_a_target() -> None:
    drawn = torch.Generator().manual_seed(3)
    hidden = torch.randn(33, 8, generator=drawn, requires_grad=True)  # 34 rows inside
    weight = torch.randn(50, 8, generator=drawn, requires_grad=True)
    bias = torch.randn(50, generator=drawn, requires_grad=True)
    targets = torch.randint(0, 50, (30,), generator=drawn)
    total, correct = linear_cross_entropy(hidden, weight, bias, targets)
    found = torch.autograd.grad(total, (hidden, weight, bias))
    logits = hidden[:30] @ weight.T + bias
    expected = torch.nn.functional.cross_entropy(logits, targets, reduction="sum")
    torch.testing.assert_close(total, expected)
    assert int(correct) == int((logits.argmax(1) == targets).sum())
    for got, wanted in zip(found, torch.autograd.grad(expected, (hidden, weight, bias)), strict=True):
        torch.testing.assert_close(got, wanted)
    assert not found[0][30:].any()
