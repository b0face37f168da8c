"""ModernBERT against `transformers`."""

import json
from pathlib import Path
from typing import Any

import parity
import pytest
import torch
import transformers

from bertie.errors import DataError
from bertie.families.modernbert import MODERNBERT
from bertie.models import families
from bertie.text.tokenizer import Tokenizer
from toys import toy_model


def tiny(**changes: Any) -> transformers.ModernBertConfig:
    """Four layers, of which two see all; texts of 11 tokens are longer than a window of 4."""
    sizes = {name: value for name, value in parity.TINY.items() if not name.endswith("_prob")}
    told = {"num_hidden_layers": 4, "local_attention": 4, "max_position_embeddings": 64, "pad_token_id": 0}
    ids = {"bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}
    return transformers.ModernBertConfig(**{**sizes, **told, **ids, "reference_compile": False, **changes})


@pytest.mark.parametrize("architecture", MODERNBERT.architectures)
def test_same_numbers(architecture: str, tmp_path: Path) -> None:
    parity.check(architecture, tiny(), tmp_path, dtype=torch.float32)


def test_labels_from_the_mean(tmp_path: Path) -> None:
    ours = parity.check(
        "ModernBertForSequenceClassification", tiny(classifier_pooling="mean"), tmp_path, dtype=torch.float32
    )
    assert ours.config.heads.label.label_pooling == "mean"


def test_long_texts_in_chunks(tmp_path: Path) -> None:
    """Beyond a few windows a layer computes chunks, not the whole."""
    parity.check("ModernBertForMaskedLM", tiny(), tmp_path, lengths=(60, 3, 33, 1), dtype=torch.float32)


def test_other_bases_norms_and_gates(tmp_path: Path) -> None:
    rope = {"full_attention": {"rope_theta": 500.0}, "sliding_attention": {"rope_theta": 40.0}}
    told = tiny(rope_parameters=rope, norm_bias=True, hidden_activation="silu", global_attn_every_n_layers=2)
    ours = parity.check("ModernBertModel", told, tmp_path, dtype=torch.float32)
    flat = ours.config.flat()
    assert (flat["rope_theta"], flat["local_rope_theta"], flat["global_attn_every_n_layers"]) == (500.0, 40.0, 2)


@pytest.mark.parametrize("architecture", MODERNBERT.architectures)
def test_norms_with_a_bias_are_those_of_the_heads_too(architecture: str, tmp_path: Path) -> None:
    parity.check(architecture, tiny(norm_bias=True), tmp_path, dtype=torch.float32)


def test_both_layouts_of_its_config(tmp_path: Path) -> None:
    """That of the release, and that of `transformers` 5."""
    tiny().save_pretrained(tmp_path)
    new = json.loads((tmp_path / "config.json").read_text())
    assert "layer_types" in new
    old = {key: value for key, value in new.items() if key not in ("layer_types", "rope_parameters")}
    old |= {"global_attn_every_n_layers": 3, "global_rope_theta": 160_000.0, "local_rope_theta": 10_000.0}
    assert MODERNBERT.config(old, "old") == MODERNBERT.config(new, "new")
    again = MODERNBERT.public(MODERNBERT.config(new, "new").replace(num_hidden_layers=7), new)
    assert transformers.ModernBertConfig(**again).layer_types.count("full_attention") == 3
    for wrong, match in (
        ({"layer_types": ["sliding_attention"] * 4}, "layer_types"),
        ({"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, "only a base"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "only a base"),
        ({"attention_bias": True}, "attention_bias"),
    ):
        with pytest.raises(DataError, match=match):
            MODERNBERT.config({**new, **wrong}, "wrong")


def test_a_small_vocabulary_opens_without_warnings(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The ids of special tokens are those of the tokenizer, also after a fine-tuning; ids in config.json stay."""
    tokenizer = Tokenizer.load(toy_model(tmp_path / "words", "abcdefgh"))
    config = families.config("ModernBERT-base", vocab_size=tokenizer.vocab_size, hidden_size=32, num_attention_heads=4)
    config = config.replace(num_hidden_layers=2, pad_token_id=0, sep_token_id=tokenizer.sep_id)
    model = families.build(config, variant="modernbert")
    families.save(model, tmp_path / "model", tokenizer=tokenizer)
    told = json.loads((tmp_path / "model" / "config.json").read_text())
    ids = {"bos_token_id": tokenizer.cls_id, "cls_token_id": tokenizer.cls_id, "eos_token_id": tokenizer.sep_id}
    assert {key: told[key] for key in ids} == ids
    with caplog.at_level("WARNING"):
        opened = transformers.AutoConfig.from_pretrained(tmp_path / "model")
    assert opened.eos_token_id == tokenizer.sep_id
    assert not caplog.records
    model.public = {**told, "bos_token_id": 7}
    families.save(model, tmp_path / "again", tokenizer=tokenizer)
    assert json.loads((tmp_path / "again" / "config.json").read_text())["bos_token_id"] == 7


def test_dropout_stands_where_theirs_stands() -> None:
    """In training mode: the same places, by the layer's own settings."""
    config = families.config("ModernBERT-base", vocab_size=99, hidden_size=32, num_attention_heads=4)
    config = config.replace(num_hidden_layers=1, hidden_dropout_prob=0.25, attention_probs_dropout_prob=0.125)
    layer = families.build(config, variant="modernbert").encoder.layers[0]
    assert (layer.attended_dropout_p, layer.inner_dropout_p, layer.fed_dropout_p) == (0.125, 0.25, 0.0)


def test_sizes() -> None:
    """As the model cards say: 149 and 395 million."""
    sizes = {name: parity.parameters(name) for name in MODERNBERT.presets}
    assert {name: round(size / 1e6) for name, size in sizes.items()} == {
        "ModernBERT-base": 149,
        "ModernBERT-large": 395,
    }


def test_a_text_does_not_see_its_neighbors() -> None:
    config = families.config("ModernBERT-base", vocab_size=99, hidden_size=32, num_attention_heads=4)
    model = families.build(config.replace(num_hidden_layers=4, pad_token_id=0, local_attention=4), variant="modernbert")
    batch = parity.inputs(model.config, lengths=(40, 7))
    with torch.no_grad():
        together = model.eval().encoder(**batch).last_hidden_state[1, :7]
        alone = model.encoder(batch["input_ids"][1:, :7]).last_hidden_state[0]
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=0)
