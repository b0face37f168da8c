"""A tie is no answer: a model that gives every answer the same score has an accuracy of 0, wherever it is counted."""

import numpy as np
import pytest
import torch

from batches import laid_out
from bertie.models import families
from bertie.models.batch import Batch
from bertie.models.elmo import ElmoConfig
from bertie.models.loss import right
from bertie.models.vocabulary_loss import linear_cross_entropy
from bertie.nn.layout import Packed
from bertie.objectives.base import LossTerm
from bertie.objectives.distil import soft_targets_loss
from bertie.objectives.ltr import BiLanguageModel, LeftToRight
from bertie.objectives.rtd import Detection, ReplacedTokens
from nano import NanoSource, nano_model


@pytest.mark.parametrize("vocab", [7, 64, 65, 260, 30_522])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_constant_logits_are_never_right(vocab, dtype):
    hidden, targets = torch.randn(5, 4).to(dtype), torch.tensor([0, 1, 2, vocab // 2, vocab - 1])
    total, correct = linear_cross_entropy(hidden, torch.zeros(vocab, 4), torch.zeros(vocab), targets)
    assert correct == 0
    assert float(total) == pytest.approx(5 * np.log(vocab), rel=1e-2)
    assert not right(torch.zeros(5, vocab, dtype=dtype), targets).any()


def test_the_highest_is_right_and_one_of_two_highest_is_not():
    """As the plain count has it, with ties among the highest and below them, and with gradients or without."""
    bias = torch.tensor([0.0, 3.0, 1.0, 1.0, -2.0])
    twice = torch.tensor([3.0, 3.0, 1.0, 1.0, -2.0])
    for asked in (False, True):
        weight = torch.zeros(5, 2, requires_grad=asked)
        for one, expected in ((bias, 1), (twice, 0)):
            _, correct = linear_cross_entropy(torch.zeros(5, 2), weight, one, torch.arange(5))
            assert int(correct) == expected == int(right(one.expand(5, 5), torch.arange(5)).sum())
    assert right(torch.tensor([[-torch.inf, 1.0]]), torch.tensor([1])).all()


def silent(model: torch.nn.Module) -> torch.nn.Module:
    """The same model with heads that say nothing."""
    with torch.no_grad():
        for parameter in model.heads.parameters():
            parameter.zero_()
    return model.eval()


def test_masked_words_and_pairs():
    model, source = silent(nano_model()), NanoSource(batch_size=8)
    (batch,) = source.batches(0)
    with torch.no_grad():
        report = source.objective.loss(model, model.encode(batch), batch)
    assert set(report) == {"mlm", "nsp"}
    for name, part in report.items():
        assert part.count > 0
        assert part.correct == 0, name


def test_next_tokens():
    shape = families.config("bert-base-ltr", vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2)
    model = silent(families.build(shape, heads=LeftToRight().heads))
    batch = Batch.of(LeftToRight().corrupt(laid_out(np.arange(9) + 5, [9]), None, None))
    with torch.no_grad():
        assert LeftToRight().loss(model, model.encode(batch), batch)["ltr"].correct == 0


def test_an_untrained_elmo():
    """Its softmax starts at zero where it is silent: every word is as likely as any other."""
    small = {"hidden_size": 8, "intermediate_size": 8, "embedding_size": 4, "filters": ((1, 4), (2, 4))}
    objective = BiLanguageModel()
    model = silent(families.build(ElmoConfig(vocab_size=260, **small), heads=objective.heads, variant="elmo"))
    model.encoder.spell(["word"] * 260)
    batch = Batch.of(objective.corrupt(laid_out(np.arange(6), [6]), None, None))
    with torch.no_grad():
        part = objective.loss(model, model.encode(batch), batch)["bilm"]
    assert float(part.total) / part.count == pytest.approx(np.log(260))
    assert part.correct == 0


def test_replaced_tokens_and_soft_targets():
    shape = families.config(
        "electra-small-discriminator", vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2
    )
    model = silent(families.build(shape, heads=ReplacedTokens().heads, variant="electra"))
    batch = Batch.of(laid_out(np.arange(6) + 5, [6]))
    layout, nothing = Packed.from_lengths(torch.tensor([6])), LossTerm(torch.zeros(()), 1)
    output = Detection(torch.randn(6, 16), layout, generator=nothing, replaced=torch.arange(6) % 2 == 0)
    assert ReplacedTokens().loss(model, output, batch)["rtd"].correct == 0
    silence = torch.zeros(4, 3), torch.zeros(9, 3), torch.zeros(9)
    speech = torch.eye(4), torch.randn(9, 4), torch.zeros(9)
    assert soft_targets_loss(silence, speech, temperature=2.0)[1] == 0
    assert soft_targets_loss(speech, speech, temperature=2.0)[1] == 4
