"""Weights of four bits: the arithmetic, the folder, what reads it, and what is refused."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from bertie.compression import gate
from bertie.compression.quantize import compensated
from bertie.compression.weights_only import levels, quantize_weights, round_to_levels
from bertie.errors import DataError, UsageError
from bertie.infer.native.library import found_compiler
from bertie.infer.torch_engine import TorchEngine
from bertie.models import families
from bertie.models.families import VARIANTS
from bertie.models.int4 import Int4Weight, group_features
from bertie.models.int8 import Int8Weight
from bertie.models.weights import WORD_EMBEDDINGS
from bertie.runs.weights import load_model
from bertie.text.sequences import Sequences
from toys import TOY_TEXTS, TOY_WORDS, toy_model, toy_vectors


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    sizes = {"hidden_size": 128, "num_attention_heads": 4, "intermediate_size": 256, "initializer_range": 0.04}
    return toy_model(tmp_path_factory.mktemp("float") / "model", TOY_WORDS, num_hidden_layers=2, **sizes)


@pytest.fixture(scope="module")
def small(folder, tmp_path_factory):
    (texts := tmp_path_factory.mktemp("texts") / "texts.txt").write_text("\n".join(TOY_TEXTS))
    return texts


def test_numbers_come_back_from_their_bytes():
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, 16, size=(5, 130))
    step, low = rng.normal(size=(2, 5, 5)).astype(np.float16)
    one = Int4Weight.packed(numbers, step, low)
    assert one.values.nbytes == numbers.size // 2
    assert (one.numbers() == numbers).all()
    group = np.arange(130) // 26  # five groups, since 130 features need five of at most 32
    assert (group_features(130) == group).all()
    wanted = numbers * step.astype(np.float64)[:, group] + low.astype(np.float64)[:, group]
    assert np.allclose(one.dequantized(), wanted, atol=1e-5)
    six = Int4Weight.packed(rng.integers(0, 16, size=(6, 130)), *rng.normal(size=(2, 6, 5)))
    assert (Int4Weight.fused(six.parts(3)).values == six.values).all()


def test_levels_are_nearest_and_compensation_is_better_still():
    draw = torch.Generator().manual_seed(0)
    weight = torch.randn(48, 128, generator=draw)
    step, low = levels(weight)
    group = torch.from_numpy(group_features(128))
    plain = ((weight - low[:, group]) / step[:, group]).round().clamp(0, 15) * step[:, group] + low[:, group]
    whole = (weight.view(48, 4, 32).amax(2) - weight.view(48, 4, 32).amin(2)) / 15  # of the whole range
    assert float((plain - weight).square().mean()) < 0.97 * float((whole**2 / 12).mean())
    assert np.allclose(round_to_levels(weight).dequantized(), plain, atol=1e-6)
    x = torch.randn(600, 128, generator=draw) @ torch.randn(128, 128, generator=draw)
    numbers = compensated(weight, x.T @ x / 600, step[:, group], low[:, group], (0, 15))
    assert (numbers.min(), numbers.max()) == (0, 15)
    better = numbers * step[:, group] + low[:, group]
    errors = [float((x @ (weight - found).T).square().mean()) for found in (better, plain)]
    assert errors[0] < 0.7 * errors[1]


@pytest.mark.parametrize("bits", [8, 4])
def test_a_folder_of_four_bits_opens_everywhere(folder, small, tmp_path, bertie, bits):
    out = tmp_path / "int4"
    command = ("compress", folder, "--texts", small, "--int4", "--embeddings", str(bits), "--force", "-o", out)
    told = json.loads(bertie.good(*command, "--json"))
    config = json.loads((out / "config.json").read_text())
    assert config["quantization_config"] == {"quant_method": "bertie-int4", "bits": 4}
    assert "of each layer's matrices, the largest by layer" in (out / "README.md").read_text()
    model, before = load_model(out), load_model(folder)
    assert not model.int8
    assert isinstance(model.packed[WORD_EMBEDDINGS], Int8Weight if bits == 8 else Int4Weight)
    assert model.packed["encoder.layers.0.attention.qkv.weight"].values.shape == (384, 64)
    matrices = sum(
        x.numel() for n, x in before.named_parameters() if n.endswith("weight") and "layers" in n and x.ndim > 1
    )
    words = before.word_embeddings
    floats = sum(x.numel() for n, x in before.named_parameters() if n not in model.packed)
    held = matrices * 5 / 8 + 4 * floats
    held += words.numel() * 5 / 8 if bits == 4 else words.numel() + 4 * len(words) + 9 * words.shape[1]
    arrays = load_file(out / "model.safetensors")
    assert sum(array.nbytes for array in arrays.values()) == held
    assert told["bytes"] == (out / "model.safetensors").stat().st_size
    exact, found = (toy_vectors(one, TorchEngine(one)) for one in (before, model))
    assert gate.cosines(found, exact).min() > 0.97
    assert len(told["errors"]) == 8
    assert 0 < max(told["errors"].values()) < 0.15
    bertie.good("embed", out, small, "-o", tmp_path / "v.npy", "-q")
    rows = np.load(tmp_path / "v.npy")[:40]
    assert gate.cosines(rows, found).min() > 0.999  # by any engine and precision
    bertie.good("compress", out, "--float", "-o", tmp_path / "float")
    back = load_model(tmp_path / "float")
    assert not back.packed
    assert all(torch.equal(x, y) for x, y in zip(back.parameters(), model.parameters(), strict=True))


def test_the_engine_without_torch_reads_it(folder, small, tmp_path, bertie):
    if found_compiler() is None:
        pytest.skip("no C++ compiler")
    from bertie.infer.native.folder import open_native_engine

    bertie.good("compress", folder, "--texts", small, "--int4", "--force", "-o", tmp_path / "int4")
    engine, model = open_native_engine(tmp_path / "int4", "fp32", VARIANTS), load_model(tmp_path / "int4")
    assert engine is not None
    assert engine.native.precision == "fp32"
    ours, theirs = (toy_vectors(model, one) for one in (engine, TorchEngine(model)))
    assert np.allclose(ours, theirs, atol=1e-5)


def test_layers_that_share_their_weights():
    sizes = {"hidden_size": 64, "embedding_size": 32, "num_attention_heads": 2, "intermediate_size": 128}
    model = families.build("albert-base-v2", vocab_size=300, num_hidden_layers=3, initializer_range=0.1, **sizes).eval()
    rng = np.random.default_rng(0)
    read = Sequences.of(rng.integers(5, 300, size=(20, 20)))
    exact = TorchEngine(model).run(read, ["mean"])["mean"]
    found = quantize_weights(model, read)
    assert len(found.errors) == 4
    assert gate.cosines(TorchEngine(model).run(read, ["mean"])["mean"], exact).min() > 0.9


def test_what_is_damaged_or_does_not_go_together_is_refused(folder, small, tmp_path, bertie):
    out = tmp_path / "int4"
    bertie.good("compress", folder, "--texts", small, "--int4", "--force", "-o", out)
    whole, name = load_file(out / "model.safetensors"), "bert.encoder.layer.0.output.dense.weight"
    name = name if name in whole else name.removeprefix("bert.")
    shutil.copytree(out, copy := tmp_path / "copy")
    for changed in (
        {f"{name}_step": np.full_like(whole[f"{name}_step"], np.nan)},
        {f"{name}_low": whole[f"{name}_low"][:, :1].copy()},
        {f"{name}_low": whole[f"{name}_low"].astype(np.float32)},
        {name: whole[name].astype(np.int8)},
        {name: whole[name][:, :-1].copy()},
    ):
        save_file({**whole, **changed}, copy / "model.safetensors", {"format": "pt"})
        with pytest.raises(DataError, match=r"not a complete int4 weight|belong to different models"):
            load_model(copy)
    save_file({k: v for k, v in whole.items() if k != f"{name}_low"}, copy / "model.safetensors", {"format": "pt"})
    with pytest.raises(DataError, match="not a complete int4 weight"):
        load_model(copy)
    for flags, said in (
        (("--embeddings", "4"), "--embeddings is 8 or, with --int4, 4"),
        (("--int4", "--embeddings", "2"), "--embeddings is 8 or, with --int4, 4"),
        (("--int4", "--int8"), "cannot be combined"),
    ):
        code, _, err = bertie("compress", folder, "--texts", small, *flags, "-o", tmp_path / "none")
        assert (code, said in " ".join(err.split())) == (2, True), err
    code, _, err = bertie("compress", out, "--texts", small, "-o", tmp_path / "none")
    assert (code, "quantized weights already" in " ".join(err.split())) == (2, True)
    odd = families.build("bert-tiny", vocab_size=30, hidden_size=33, num_attention_heads=3, intermediate_size=50)
    with pytest.raises(UsageError, match="even sizes"):
        quantize_weights(odd, Sequences.of([[5, 6, 7]]))
    assert not (tmp_path / "none").exists()
