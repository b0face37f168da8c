"""Every preset has the sizes it was published with; first values are the release's."""

import pytest
import torch

from bertie.errors import DataError, UsageError
from bertie.models import families
from bertie.models.encoder import Encoder
from bertie.models.heads.sequence import PairHead
from bertie.models.heads.vocabulary import MaskedLMHead
from bertie.models.model import TorchModel
from bertie.nn.init import initialize


def parameters(preset, *, heads=False):
    config = families.config(preset)
    with torch.device("meta"):
        model = TorchModel(Encoder(config), {"mlm": MaskedLMHead(config), "pair": PairHead(config)} if heads else {})
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("preset", "encoder", "with_heads"),
    [("bert-base", 109_482_240, 110_106_428), ("bert-large", 335_141_888, 336_226_108)],
)
def test_parameter_counts_are_berts(preset, encoder, with_heads):
    assert parameters(preset) == encoder
    assert parameters(preset, heads=True) == with_heads


@pytest.mark.parametrize(  # millions, table 1 of Turc et al. 2019, there without the pooler and rounded
    ("preset", "millions"),
    [("bert-tiny", 4.4), ("bert-mini", 11.2), ("bert-small", 28.8), ("bert-medium", 41.4)],
)
def test_miniatures_are_as_published(preset, millions):
    assert round(parameters(preset) / 1e6, 1) == pytest.approx(millions, abs=0.11)


def test_published_names_of_miniatures():
    assert families.config("bert_uncased_L-2_H-128_A-2") == families.config("bert-tiny")
    assert sum(name.startswith("bert_uncased_L-") for name in families.PRESETS) == 24


def tiny(heads=None, **changes):
    return families.build("bert-tiny", heads=heads, **{"vocab_size": 500, **changes})


def test_initialization_is_the_releases():
    model = tiny(lambda config: {"mlm": MaskedLMHead(config)})
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            assert (parameter == 0).all(), name
        elif parameter.ndim == 1:
            assert (parameter == 1).all(), name
        else:
            assert parameter.abs().max() <= 0.04, name
            if parameter.numel() > 10_000:
                assert float(parameter.detach().std()) == pytest.approx(0.88 * 0.02, rel=0.03), name


def test_a_seed_decides_the_encoder_whatever_its_heads():
    plain, again, other = tiny(seed=5), tiny(lambda c: {"mlm": MaskedLMHead(c)}, seed=5), tiny(seed=6)
    for (name, a), (_, b) in zip(plain.encoder.named_parameters(), again.encoder.named_parameters(), strict=True):
        assert torch.equal(a, b), name
    assert not torch.equal(plain.word_embeddings, other.word_embeddings)


def test_initialize_touches_only_what_it_is_told():
    model = tiny()
    before = model.word_embeddings.clone()
    initialize(model, seed=9, only={"encoder.pooler.weight"})
    assert torch.equal(model.word_embeddings, before)


def test_too_long_a_sequence_is_named():
    with pytest.raises(DataError, match="513 tokens is longer than the model's 512 positions"):
        tiny().encoder(torch.zeros(1, 513, dtype=torch.int64))


def test_config_answers_mistakes():
    with pytest.raises(UsageError, match="num_hidden_layers"):
        families.config("bert-tiny", num_hiden_layers=3)
    with pytest.raises(UsageError, match="bert-tiny"):
        families.config("bert-tyni")
    with pytest.raises(DataError, match="must be divisible"):
        families.config("bert-tiny", num_attention_heads=3)
    with pytest.raises(DataError, match="vocab_size"):
        families.config("bert-tiny", vocab_size=0)
