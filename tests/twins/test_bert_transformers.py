"""BERT against `transformers`, both directions: numbers, gradients, folders byte for byte; files of older days."""

import pytest
import torch
import transformers
from parity import TINY, check, close, inputs
from safetensors.torch import load_file, save_file

from bertie.models import families
from bertie.models.heads.sequence import PairHead
from bertie.models.heads.vocabulary import MaskedLMHead

CLASSES = sorted(families.VARIANTS["bert"].architectures)


@pytest.mark.promise("same-numbers-as-transformers")
@pytest.mark.parametrize("architecture", CLASSES)
def test_what_transformers_saves_opens_here_and_gives_the_same_numbers(architecture, tmp_path):
    check(architecture, transformers.BertConfig(**TINY), tmp_path)


@pytest.mark.parametrize("activation", ["relu", "gelu_new", "silu"])
def test_other_activations(activation, tmp_path):
    check("BertForPreTraining", transformers.BertConfig(**TINY, hidden_act=activation), tmp_path)


def small(heads=None, **overrides):
    sizes = {"vocab_size": 99, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48, **overrides}
    return families.build("bert-tiny", heads=heads, initializer_range=0.2, **sizes)


def pretraining_heads(config):
    return {"mlm": MaskedLMHead(config), "pair": PairHead(config)}


def test_what_we_build_opens_in_transformers(tmp_path):
    ours = small(pretraining_heads).eval()
    ours.save_pretrained(tmp_path)
    theirs, info = transformers.BertForPreTraining.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values()), info
    batch = inputs(ours.config)
    real = batch["attention_mask"].bool()
    with torch.no_grad():
        mine, other = ours(**batch), theirs.eval()(**batch)
    close(mine["mlm"][real], other.prediction_logits[real], "mlm")
    close(mine["pair"], other.seq_relationship_logits, "pair")


def test_files_of_older_days_open(tmp_path):
    """TensorFlow's norm names, position buffers, decoder copies, a bare encoder's names: rows of a table."""
    ours = small(pretraining_heads)
    ours.save_pretrained(tmp_path)
    state = load_file(tmp_path / "model.safetensors")
    old = {}
    for name, tensor in state.items():
        norm = "LayerNorm" in name
        old[name.replace("weight", "gamma").replace("bias", "beta") if norm else name] = tensor
    old["bert.embeddings.position_ids"] = torch.arange(512)[None]
    old["cls.predictions.decoder.weight"] = state["bert.embeddings.word_embeddings.weight"].clone()
    old["cls.predictions.decoder.bias"] = state["cls.predictions.bias"].clone()
    save_file(old, tmp_path / "model.safetensors")
    again, report = families.load(tmp_path)
    assert not report.fresh
    assert not report.unused
    for (name, mine), (_, other) in zip(ours.named_parameters(), again.named_parameters(), strict=True):
        assert torch.equal(mine, other), name

    bare = {name.removeprefix("bert."): tensor for name, tensor in state.items() if name.startswith("bert.")}
    save_file(bare, tmp_path / "model.safetensors")
    again, report = families.load(tmp_path, heads=pretraining_heads)
    assert {name.split(".")[1] for name in report.fresh} == {"mlm", "pair"}
    assert torch.equal(again.word_embeddings, ours.word_embeddings)


def test_an_untied_decoder_is_read(tmp_path):
    """Whatever config.json says: the file has a matrix of its own, and it comes back."""
    small(pretraining_heads).save_pretrained(tmp_path)
    state = load_file(tmp_path / "model.safetensors")
    own = state["bert.embeddings.word_embeddings.weight"] + 1
    save_file({**state, "cls.predictions.decoder.weight": own}, tmp_path / "model.safetensors")
    model, _ = families.load(tmp_path)
    assert torch.equal(model.get_parameter("heads.mlm.weight"), own)
    model.save_pretrained(tmp_path / "again")
    again, report = families.load(tmp_path / "again")
    assert report.unused == ()
    assert torch.equal(again.get_parameter("heads.mlm.weight"), own)
    theirs = transformers.BertForPreTraining.from_pretrained(tmp_path / "again")
    assert torch.equal(theirs.cls.predictions.decoder.weight, own)
    assert torch.equal(theirs.cls.predictions.decoder.bias, state["cls.predictions.bias"])


def test_shards_with_an_index_open(tmp_path):
    torch.manual_seed(0)
    theirs = transformers.BertModel(transformers.BertConfig(**TINY)).eval()
    theirs.save_pretrained(tmp_path, max_shard_size="20KB")
    assert not (tmp_path / "model.safetensors").exists()
    ours, report = families.load(tmp_path)
    assert not report.fresh
    batch = inputs(ours.config)
    with torch.no_grad():
        close(ours.encoder(**batch).pooler_output, theirs(**batch).pooler_output, "pooler_output")


def test_half_precision_files_open_as_float32(tmp_path):
    theirs = transformers.BertModel(transformers.BertConfig(**TINY)).to(torch.bfloat16)
    theirs.save_pretrained(tmp_path / "half")
    ours, _ = families.load(tmp_path / "half")
    assert ours.word_embeddings.dtype == torch.float32
    assert torch.equal(ours.word_embeddings, theirs.embeddings.word_embeddings.weight.float())
    ours.save_pretrained(tmp_path / "full")
    assert families.load(tmp_path / "full")[0].public["dtype"] == "float32"
