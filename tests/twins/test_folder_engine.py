"""Model folders in the native engine without torch, compared with torch; and which engine is chosen."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from bertie.compression import gate
from bertie.infer import choose, rates
from bertie.infer.native.folder import FolderEngine, open_native_engine
from bertie.infer.native.library import found_compiler
from bertie.infer.native_engine import NativeEngine
from bertie.infer.torch_engine import TorchEngine
from bertie.models import families
from bertie.models.families import VARIANTS
from bertie.models.heads import HEADS
from bertie.runs import opening
from bertie.runs.weights import load_model
from bertie.text.sequences import Sequences
from bertie.text.tokenizer import Tokenizer
from toys import toy_model

pytestmark = pytest.mark.skipif(found_compiler() is None, reason="no C++ compiler")
SMALL = {"vocab_size": 90, "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4}
LENGTHS = np.array([3, 1, 17, 8])
POOLINGS = ("last_hidden_state", "mean", "cls", "max", "layer_0", "layer_1", "layer_2")


def ids(types: int = 2) -> Sequences:
    rng = np.random.default_rng(0)
    total = int(LENGTHS.sum())
    return Sequences(rng.integers(6, 80, total), rng.integers(0, types, total), LENGTHS, np.array([1, 5, 20]))


@pytest.mark.parametrize(
    ("preset", "head"),
    [
        ("bert-base", "sequence"),
        ("bert-base", "token"),
        ("bert-base", "span"),
        ("bert-base", "mlm"),
        ("bert-base", None),
        ("roberta-base", "sequence"),
        ("roberta-base", "mlm"),
        ("albert-base-v2", "sequence"),
        ("albert-base-v2", "mlm"),
        ("distilbert-base-uncased", "sequence"),
        ("electra-small-discriminator", "sequence"),
    ],
)
def test_a_folder_without_torch_answers_as_torch_does(preset, head, tmp_path):
    made = (lambda config: {head: HEADS[head](config, 3)}) if head else None
    narrow = {"embedding_size": 32} if families.config(preset).embedding_size else {}
    model = families.build(preset, heads=made, intermediate_size=128, initializer_range=0.1, **SMALL, **narrow)
    families.save(model, tmp_path / "model", labels=("x", "y", "z") if head in ("sequence", "token") else ())
    engine, reference = (
        open_native_engine(tmp_path / "model", "fp32", VARIANTS),
        TorchEngine(load_model(tmp_path / "model")),
    )
    assert isinstance(engine, FolderEngine)
    ours, theirs = engine.facts, reference.facts
    assert (ours.heads, ours.labels, ours.outputs) == (theirs.heads, theirs.labels, theirs.outputs)
    outputs = (*POOLINGS, *([head] if head else []))
    read = ids(2 if model.config.type_vocab_size > 1 else 1)
    found, expected = engine.run(read, outputs), reference.run(read, outputs)
    for name in outputs:
        # hidden states are about 1; a head adds up 64 of them
        np.testing.assert_allclose(found[name], expected[name], atol=3e-5, rtol=1e-5, err_msg=name)


def test_what_torch_alone_reads_is_left_to_it(tmp_path):
    heads = {"choice": lambda config: {"choice": HEADS["choice"](config, 0)}}
    families.save(
        families.build("bert-base", heads=heads["choice"], intermediate_size=128, **SMALL), tmp_path / "choice"
    )
    families.save(families.build("mobilebert-uncased", vocab_size=90, num_hidden_layers=1), tmp_path / "other")
    for preset in ("ModernBERT-base", "nomic-bert-2048"):
        families.save(
            families.build(preset, intermediate_size=128, **SMALL | {"num_attention_heads": 2}), tmp_path / preset
        )
    families.save(families.build("bert-base", intermediate_size=128, **SMALL), tmp_path / "cut")
    assert open_native_engine(tmp_path / "cut", "fp32", VARIANTS) is not None
    weights = (tmp_path / "cut" / "model.safetensors").read_bytes()
    (tmp_path / "cut" / "model.safetensors").write_bytes(weights[:-10])
    config = json.loads((tmp_path / "choice" / "config.json").read_text())
    shutil.copytree(tmp_path / "choice", tmp_path / "sizes")
    (tmp_path / "sizes" / "config.json").write_text(json.dumps({**config, "intermediate_size": 96}))
    for name in ("choice", "other", "ModernBERT-base", "nomic-bert-2048", "cut", "sizes", "none"):
        assert open_native_engine(tmp_path / name, "fp32", VARIANTS) is None, name


def test_a_folder_that_torch_refuses_or_warns_of_is_left_to_it(tmp_path):
    masked = families.build(
        "bert-base", heads=lambda config: {"mlm": HEADS["mlm"](config, 0)}, intermediate_size=128, **SMALL
    )
    families.save(masked, tmp_path / "whole")
    for name, changes in {"layers": {"num_hidden_layers": 1}, "untied": {"tie_word_embeddings": False}}.items():
        shutil.copytree(tmp_path / "whole", tmp_path / name)
        config = json.loads((tmp_path / name / "config.json").read_text())
        (tmp_path / name / "config.json").write_text(json.dumps({**config, **changes}))
    shutil.copytree(tmp_path / "whole", tmp_path / "unread")
    weights = load_file(tmp_path / "unread" / "model.safetensors")
    more = {"bert.encoder.layer.0.attention.self.distance_embedding.weight": np.zeros((3, 2), np.float32)}
    save_file({**weights, **more}, tmp_path / "unread" / "model.safetensors")
    assert open_native_engine(tmp_path / "whole", "fp32", VARIANTS) is not None
    for name in ("layers", "untied", "unread"):
        assert open_native_engine(tmp_path / name, "fp32", VARIANTS) is None, name


@pytest.mark.parametrize("sizes", [{}, {"num_attention_heads": 1, "attention_head_size": 64}], ids=["", "fewer heads"])
def test_int8(sizes, tmp_path):
    words = [f"w{i}" for i in range(80)]
    folder = toy_model(tmp_path / "float", words)
    tokenizer = Tokenizer.load(folder)
    shape = {"vocab_size": tokenizer.vocab_size, "intermediate_size": 256, "initializer_range": 0.1, **sizes}
    families.save(families.build("bert-tiny", **shape), folder, tokenizer=tokenizer)
    model = load_model(folder)
    exact = TorchEngine(load_model(folder)).run(ids(), ["mean"])["mean"]
    texts = [" ".join(words[(i * 7 + j * 3) % 80] for j in range(9 + i % 20)) for i in range(400)]
    gate.CalibrationTexts.read(model, texts).quantize(model)
    model.save_pretrained(tmp_path / "int8", packed=model.packed)
    found = opening.without_torch(tmp_path / "int8", "fp32", "cpu", "auto")
    assert found is not None
    assert "int8" in found[0].facts.precision
    assert gate.cosines(found[0].run(ids(), ["mean"])["mean"], exact).min() > 0.99
    assert opening.without_torch(tmp_path / "int8", "fp32", "cuda", "auto") is None
    assert opening.without_torch(tmp_path / "int8", "fp32", "cpu", "torch") is None
    assert opening.without_torch(tmp_path / "int8", "int9", "cpu", "auto") is None  # torch's engine says what is wrong


def test_who_computes(tmp_path, monkeypatch):
    folder = toy_model(tmp_path, [f"w{i}" for i in range(80)], hidden_size=128, intermediate_size=256)
    faster = {"torch fp32": 1.0, "torch bf16": 1.0, "native fp32": 2.0}
    slower = {"torch fp32": 3.0, "torch bf16": 9.0, "native fp32": 2.0}
    for kept, native in ((None, False), (slower, False), (faster, True)):
        monkeypatch.setattr(rates, "read_stored_rates", lambda kept=kept: kept)
        assert (opening.without_torch(folder, "fp32", "cpu", "auto") is not None) == native
    before = load_model(folder)
    for kept, kind in ((slower, TorchEngine), (faster, NativeEngine)):
        monkeypatch.setattr(choose, "rates", lambda kept=kept: kept)
        assert type(choose.engine_of(before, "auto")) is kind
        assert choose.quickest(before, "auto") == (torch.bfloat16 if kept is slower else torch.float32)
    assert type(choose.engine_of(before, "native")) is NativeEngine
    assert type(choose.engine_of(before)) is TorchEngine
