"""The law of configs: what is built is saved and comes back, with the same numbers, or is refused when it is built.

For every family and every field of its config, with values away from the family's own.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_families import small

from bertie.errors import BertieError
from bertie.models import families
from bertie.models.codec import BY_WEIGHTS, OWN_KEY
from bertie.models.config import EncoderConfig
from bertie.models.elmo import ElmoEncoder
from bertie.models.flat import _names
from bertie.models.heads import HEADS
from bertie.models.model import TorchModel
from bertie.models.variant import Variant

ACTS = ["gelu", "gelu_tanh", "relu", "silu"]
OTHER: dict[str, list[Any]] = {  # field -> values that a user might ask for
    **{name: [7] for name in ("pad_token_id", "sep_token_id", "eos_token_id", "decoder_start_token_id")},
    **{name: [0.0, 0.25] for name in ("hidden_dropout_prob", "attention_probs_dropout_prob", "embedding_dropout")},
    **{name: [None, 0.25] for name in ("classifier_dropout", "sequence_dropout", "choice_dropout")},
    "span_dropout": [None, 0.25],
    "vocab_size": [90],
    "hidden_size": [24],
    "num_hidden_layers": [0, 3],
    "num_attention_heads": [2],
    "intermediate_size": [20],
    "hidden_act": [*ACTS, "geglu", "reglu", "swiglu", "geglu_erf", "quick_gelu"],
    "max_position_embeddings": [30],
    "type_vocab_size": [0, 4],
    "initializer_range": [0.3],
    "layer_norm_eps": [1e-3],
    "positions": ["learned", "relative", "learned_relative", "disentangled", "sinusoidal", "none", "rotary"],
    "positions_after_pad": [True, False],
    "relative_attention_num_buckets": [8],
    "relative_attention_max_distance": [20],
    "rope_theta": [100.0],
    "local_rope_theta": [None, 50.0],
    "position_buckets": [0, 6],
    "max_relative_positions": [12],
    "local_attention": [None, 4],
    "global_attn_every_n_layers": [2],
    "conv_kernel_size": [0, 3],
    "conv_act": ACTS,
    "attended_dropout": ["hidden", "attention", "none"],
    "label_pooling": ["cls", "first", "mean", "max", "last", "cls_layers", "attention"],
    "label_layers": [1],
    "label_lstm": [1],
    "label_transform": [None, "gelu", "tanh"],
    "attention": ["full", "block_sparse"],
    "attention_window": [None, 2, (2, 4)],
    "attention_dilation": [2],
    "block_size": [2],
    "num_random_blocks": [1],
    "layer": ["residual"],
    "norm": ["pre", "post"],
    "attention_head_size": [6],
    "bottleneck_size": [None, 8],
    "num_feedforward_networks": [2],
    "sharing": ["none"],
    "num_hidden_groups": [None, 1, 2],
    "inner_group_num": [2],
    "norm_type": ["layer", "rms", "affine", "unbiased"],
    "embedding_size": [None, 10],
    "num_decoder_layers": [None, 1],
    "mlm_act": [None, *ACTS],
    "sequence_act": [None, "tanh", "relu", "hidden_act"],
    "choice_act": [None, "tanh", "relu", "hidden_act"],
    "char_vocab_size": [300],
    "max_characters_per_token": [20],
    "filters": [((1, 4), (2, 6))],
    "num_highway_layers": [3],
    "cell_clip": [0.0, 1.0],
    "state_clip": [0.0, 1.0],
}
ALIKE = {"xlm-roberta", "camembert", "longformer", "openai-gpt"}  # but for a few keys another family
OFTEN = {"bert", "t5", "elmo"}  # whose weights are saved in every run of the tests; the others in slow ones


def of(often: set[str]) -> list[Any]:
    """All families, those not in `often` marked slow."""
    marks = {name: [] if name in often else [pytest.mark.slow] for name in families.VARIANTS}
    return [pytest.param(variant, id=name, marks=marks[name]) for name, variant in families.VARIANTS.items()]


def values(config: EncoderConfig, name: str) -> list[Any]:
    """What a field is set to: the other of two, or the value above."""
    return OTHER.get(name) or [True, False]


def changes(variant: Variant) -> list[tuple[str, Any]]:
    config = small(variant)
    return [
        (name, value)
        for name in _names(type(config))
        if name != "heads"
        for value in values(config, name)
        if config.get(name, "nothing") != value
    ]


def read_back(variant: Variant, config: EncoderConfig) -> EncoderConfig:
    return variant.config(json.loads(json.dumps(variant.public(config, {}))), "config.json")


def same(one: EncoderConfig, other: EncoderConfig) -> bool:
    weights_say = dict.fromkeys(BY_WEIGHTS, True)
    return {**one.flat(), **weights_say} == {**other.flat(), **weights_say}


def logits(model: TorchModel) -> dict[str, torch.Tensor]:
    """Of every head, and the hidden states; texts are long enough that windows and blocks matter."""
    if isinstance(model.encoder, ElmoEncoder):
        model.encoder.spell(map(str, range(model.config.vocab_size)))
    ids = torch.randint(8, 80, (2, 25), generator=torch.Generator().manual_seed(0))
    ids[0, 20:] = model.config.pad_token_id
    mask = torch.arange(25)[None] < torch.tensor([[20], [25]])
    written = {"decoder_input_ids": ids} if "decoder" in model.heads else {}
    with torch.no_grad():
        output = model.encoder(ids, attention_mask=mask)
        found = {"hidden": output.last_hidden_state, **model(ids, mask, **written)}
    return found if output.pooler_output is None else {**found, "pooled": output.pooler_output}


@pytest.mark.parametrize("variant", of(OFTEN))
def test_what_is_built_comes_back(variant: Variant, tmp_path: Path) -> None:
    """One override at a time, with the heads of each of the family's classes in turn."""
    classes, kept = list(variant.architectures.values()), set()
    for number, (name, value) in enumerate(changes(variant)):
        heads = classes[number % len(classes)]
        made = lambda config, heads=heads: {head: HEADS[head](config, 3) for head in heads}  # noqa: E731
        try:
            model = families.build(small(variant).replace(**{name: value}), heads=made, variant=variant.model_type)
        except BertieError:
            continue
        folder = tmp_path / str(number)
        model.eval().save_pretrained(folder, labels=("x", "y", "z") if {"sequence", "token"} & set(heads) else ())
        again, report = families.load(folder)
        assert report.fresh + report.unused == (), f"{name}={value}: {report}"
        assert same(again.config, model.config), f"{name}={value}"
        weights, read = model.state_dict(), again.state_dict()
        assert weights.keys() == read.keys()
        assert all(torch.equal(read[key], weight) for key, weight in weights.items()), f"{name}={value}"
        if name not in kept:  # a model is a function of its config and weights: one value of each field will do
            expected, found = logits(model), logits(again)
            assert expected.keys() == found.keys()
            for head, numbers in expected.items():
                assert torch.equal(found[head], numbers), f"{name}={value}: {head}"
        kept.add(name)
        own = json.loads((folder / "config.json").read_text())
        assert own["model_type"] == ("bertie-" if OWN_KEY in own else "") + variant.model_type, f"{name}={value}"
    assert {"hidden_size", "vocab_size", "num_hidden_layers", "hidden_dropout_prob"} <= kept


COMMON = ("norm", "scale_attention", "bias", "embedding_size", "attention_window", "causal", "mlm_act", "positions")


@pytest.mark.parametrize("family", ["bert", "roberta", "electra"])
@pytest.mark.parametrize("name", COMMON)
def test_what_was_lost_or_crashed_is_kept(family: str, name: str) -> None:
    variant = families.VARIANTS[family]
    value = {"positions": "relative", "norm": "pre", "mlm_act": "relu", "embedding_size": 10, "attention_window": 4}
    config = small(variant).replace(**{name: value.get(name, name == "causal")})
    assert read_back(variant, config) == config
    assert not same(config, small(variant))


@pytest.mark.parametrize("variant", of(set(families.VARIANTS) - ALIKE))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_several_fields_at_once_come_back(variant: Variant, data: st.DataObject) -> None:
    config = small(variant)
    names = data.draw(st.lists(st.sampled_from(sorted(set(_names(type(config))) - {"heads"})), max_size=5, unique=True))
    asked = {name: data.draw(st.sampled_from(values(config, name))) for name in names}
    try:
        config = config.replace(**asked)
        variant.own(config)  # as when a model is built: a MobileBERT narrower than the embeddings that it leaves out
    except BertieError:
        return  # refused, and nothing else
    assert same(read_back(variant, config), config)
    read = variant.public(small(variant), {})
    assert same(variant.config(json.loads(json.dumps(variant.public(config, read))), "over another"), config)


def test_a_head_without_a_place_is_refused_when_it_is_built() -> None:
    with pytest.raises(BertieError, match=r"No public roberta class has the head pair.* The nearest preset that can: "):
        families.build("roberta-base", heads=lambda c: {"pair": HEADS["pair"](c, 0)}, vocab_size=90, hidden_size=24)
