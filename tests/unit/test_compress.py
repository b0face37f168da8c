"""A model in int8: the folder, what reads it, what refuses it, and the gate."""

import copy
import json

import numpy as np
import pytest
import torch

from bertie import embed
from bertie.apps.compress.measure import weight_bytes
from bertie.compression import gate
from bertie.compression.quantize import apply, gptq, quantize, widest
from bertie.errors import BertieError, DataError, UsageError
from bertie.infer.choose import engine_of
from bertie.infer.native.library import found_compiler
from bertie.infer.native_engine import NativeEngine
from bertie.infer.torch_engine import TorchEngine
from bertie.models import families
from bertie.models.int8 import Int8Weight, added_together, excess
from bertie.runs.weights import load_model
from bertie.text.sequences import Sequences
from bertie.training_facts import TrainingFacts
from toys import TOY_TEXTS, TOY_WORDS, toy_model, toy_vectors, toy_writer

pytestmark = pytest.mark.skipif(found_compiler() is None, reason="no C++ compiler")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    sizes = {"hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 512, "initializer_range": 0.04}
    return toy_model(tmp_path_factory.mktemp("float") / "model", TOY_WORDS, num_hidden_layers=2, **sizes)


@pytest.fixture(scope="module")
def compressed(folder, tmp_path_factory):
    model = load_model(folder)
    near = gate.CalibrationTexts.read(model, TOY_TEXTS).quantize(model)
    out = tmp_path_factory.mktemp("int8") / "model"
    model.save_pretrained(out, packed=model.packed)
    return out, near


def test_a_folder_of_a_quarter_opens_everywhere(folder, compressed):
    out, near = compressed
    assert weight_bytes(out) < weight_bytes(folder) / 3  # a toy's biases and scales weigh more than a model's
    model, before = load_model(out), load_model(folder)
    assert isinstance(engine_of(model), NativeEngine)
    assert not before.int8
    assert isinstance(engine_of(before), TorchEngine)
    exact = toy_vectors(before, TorchEngine(before))
    for engine in (engine_of(model), TorchEngine(model)):  # in whole numbers, and dequantized
        assert gate.cosines(toy_vectors(model, engine), exact).min() > 0.998  # squared relative errors of about 1 %
    assert near.texts >= 20
    assert near.mean > 0.998


def test_calls_with_a_loaded_model_build_its_encoder_once(compressed):
    model = load_model(compressed[0])
    first, same, other = engine_of(model), engine_of(model), engine_of(copy.copy(model))
    assert first.native is same.native is other.native
    with torch.no_grad():
        model.encoder.embeddings.norm.weight.add_(1)
    assert engine_of(model).native is not first.native
    assert engine_of(copy.deepcopy(model)).native is not engine_of(model).native


def test_int8_weights_refuse_another_precision(compressed, tmp_path, bertie):
    """It was ignored on a CPU."""
    out, _ = compressed
    (tmp_path / "texts.txt").write_text("\n".join(TOY_TEXTS))
    for asked in (("--precision", "bf16"), ("--precision", "bf16", "--engine", "native")):
        code, _, err = bertie("embed", out, tmp_path / "texts.txt", "-o", tmp_path / "no.npy", *asked)
        assert code == 2
        assert "CPU computes them in int8" in err
    for asked in (("--precision", "auto"), ("--precision", "bf16", "--engine", "torch")):
        assert bertie("embed", out, tmp_path / "texts.txt", "-o", tmp_path / "v.npy", "--overwrite", *asked)[0] == 0
    with pytest.raises(UsageError, match="CPU computes them in int8"):
        embed(out, TOY_TEXTS, precision="bf16")
    assert len(embed(out, TOY_TEXTS, precision="auto")) == len(TOY_TEXTS)


def test_the_way_back_is_a_float_model(compressed, tmp_path, bertie):
    out, _ = compressed
    assert bertie("compress", out, "--float", "-o", tmp_path / "float")[0] == 0
    back, model = load_model(tmp_path / "float"), load_model(out)
    assert not back.int8
    assert "quantization_config" not in back.public
    assert all(torch.equal(x, y) for x, y in zip(back.parameters(), model.parameters(), strict=True))


def test_from_the_command_line(folder, tmp_path, bertie):
    (tmp_path / "texts.txt").write_text("\n".join(TOY_TEXTS))
    command = ("compress", folder, "--texts", tmp_path / "texts.txt", "-o", tmp_path / "int8", "--force", "--json")
    told = json.loads(bertie.good(*command))
    written = (tmp_path / "int8" / "model.safetensors").stat().st_mtime_ns
    assert json.loads(bertie.good(*command)) == told  # nothing is made again
    assert (tmp_path / "int8" / "model.safetensors").stat().st_mtime_ns == written
    assert told["bytes"] < told["bytes_before"] / 3
    assert bertie("embed", tmp_path / "int8", tmp_path / "texts.txt", "-o", tmp_path / "v.npy", "-q")[0] == 0
    assert np.load(tmp_path / "v.npy").shape == (400, 256)
    code, _, err = bertie("compress", folder, "-o", tmp_path / "none")
    assert code == 2
    assert "--texts" in err
    (tmp_path / "few.txt").write_text("a\nb\n")
    code, _, err = bertie("compress", folder, "--texts", tmp_path / "few.txt", "-o", tmp_path / "none")
    assert code == 3
    assert "too few" in err
    assert not (tmp_path / "none").exists()


def test_gates_windows_and_matrices_without_biases(folder, tmp_path, bertie):
    """ModernBERT: what a bias would correct is left to the rounding of the weights."""
    (tmp_path / "texts.txt").write_text("\n".join(TOY_TEXTS))
    sizes = {"hidden_size": 128, "num_attention_heads": 2, "intermediate_size": 256, "num_hidden_layers": 3}
    tokenizer = load_model(folder).tokenizer
    model = families.build("ModernBERT-base", vocab_size=tokenizer.vocab_size, local_attention=8, **sizes)
    families.save(model, tmp_path / "modern", tokenizer=tokenizer)
    bertie.good("compress", tmp_path / "modern", "--texts", tmp_path / "texts.txt", "-o", tmp_path / "int8")
    found = load_model(tmp_path / "int8")
    engine = engine_of(found)
    assert isinstance(engine, NativeEngine)
    assert "encoder.layers.2.gate_up.weight" in found.int8
    assert not any(name.endswith(".bias") for name in dict(found.encoder.named_parameters()))
    exact = toy_vectors(load_model(tmp_path / "modern"), TorchEngine(load_model(tmp_path / "modern")))
    for one in (engine, TorchEngine(found)):
        assert gate.cosines(toy_vectors(found, one), exact).min() > 0.998


def test_what_falls_short_is_not_written(folder, tmp_path, bertie, monkeypatch):
    (tmp_path / "texts.txt").write_text("\n".join(TOY_TEXTS))
    for name in ("FIRST_PERCENTILE", "NARROW_FIRST_PERCENTILE"):
        monkeypatch.setattr(gate, name, 2.0)
    code, _, err = bertie("compress", folder, "--texts", tmp_path / "texts.txt", "-o", tmp_path / "int8")
    assert code == 3
    assert "misses the quality threshold" in err
    assert "first percentile" in err
    assert "(at least 2.0)" in err
    assert not (tmp_path / "int8").exists()


def test_an_int8_model_is_not_trained(compressed, tmp_path, bertie):
    (tmp_path / "rows.csv").write_text(
        "text,label\n" + "\n".join(f"{text},{i % 2}" for i, text in enumerate(TOY_TEXTS))
    )
    code, _, err = bertie(
        "finetune", compressed[0], "--train", tmp_path / "rows.csv", "-o", tmp_path / "run", "epochs=1"
    )
    assert code == 2
    assert "--float" in err


def test_other_schemes_and_damaged_scales_are_refused(compressed, tmp_path):
    import shutil

    from safetensors.numpy import load_file, save_file

    copy = tmp_path / "copy"
    shutil.copytree(compressed[0], copy)
    arrays = load_file(copy / "model.safetensors")
    name = next(name for name in arrays if name.endswith("_scale"))
    save_file({**arrays, name: np.full_like(arrays[name], np.nan)}, copy / "model.safetensors", {"format": "pt"})
    with pytest.raises(DataError, match="not a complete int8 weight"):
        load_model(copy)
    save_file(
        {key: array for key, array in arrays.items() if key != name}, copy / "model.safetensors", {"format": "pt"}
    )
    with pytest.raises(DataError):
        load_model(copy)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "quantization_config": {"quant_method": "gptq"}}))
    with pytest.raises(DataError, match="gptq"):
        load_model(copy)


def test_layers_that_share_weights_are_calibrated_on_all_passes():
    sizes = {"hidden_size": 128, "embedding_size": 64, "num_attention_heads": 4, "intermediate_size": 256}
    model = families.build("albert-base-v2", vocab_size=300, num_hidden_layers=3, initializer_range=0.1, **sizes)
    rng = np.random.default_rng(0)
    read, others = Sequences.of(rng.integers(5, 300, size=(20, 20))), Sequences.of(rng.integers(5, 300, size=(40, 20)))
    exact = TorchEngine(model).run(read, ["mean"])["mean"]
    apply(model, quantize(model, others))
    assert "encoder.embeddings.projection.weight" in model.int8
    found = NativeEngine(model, "int8").run(read, ["mean"])["mean"]
    assert gate.cosines(found, exact).min() > 0.995  # squared relative errors of about 1 % a pass


def test_weights_that_avx2_adds_up_fit_in_16_bits():
    rng = np.random.default_rng(0)
    group = np.repeat([0, 1], [96, 32])
    values = rng.integers(-127, 128, size=(40, 128)).astype(np.int8)
    values[0] = 127
    weight = Int8Weight(
        values,
        np.ones((2, 40), np.float32),
        group.astype(np.uint8),
        np.ones(128, np.float32),
        np.zeros(128, np.float32),
    )
    fits = weight.within(258)
    for sets in added_together(group):
        assert (sets.max(1) // 8 == sets.min(1) // 8).all()
        assert excess(fits.values[:, sets], 258).max() == 1
    # wider steps: an error of half a step, which is at most twice as wide
    assert np.abs(fits.dequantized() - weight.dequantized()).max() <= 1
    calm = Int8Weight(values // 4, weight.scale, weight.group, weight.inv, weight.off)
    assert (calm.within(258).values == calm.values).all()


def test_pairs_are_calibrated_as_pairs(folder, tmp_path, bertie, monkeypatch):
    """A table of pairs becomes the sequences that the model reads: both texts, with both segments."""
    pairs = list(zip(TOY_TEXTS[::2], TOY_TEXTS[1::2], strict=True))
    (tmp_path / "pairs.csv").write_text("\n".join(["sentence1,sentence2", *map(",".join, pairs)]))
    seen = []
    monkeypatch.setattr(gate, "quantize", lambda model, texts: seen.append(texts) or quantize(model, texts))
    bertie.good("compress", folder, "--texts", tmp_path / "pairs.csv", "--force", "-o", tmp_path / "int8")
    tokenizer = load_model(folder).tokenizer
    last = tokenizer.encode(pairs[-1])
    first = seen[0].take(np.array([0]))
    assert first.input_ids.tolist() == list(last.ids)
    assert first.token_type_ids.tolist() == list(last.type_ids)
    assert set(last.type_ids) == {0, 1}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--layers", 1, "--epochs", 5], "--epochs needs training"),
        (["--max-drop", 0.1], "--max-drop, --max-size, --speed and --minutes need"),
        (["--layers", 1, "--text", "a"], "--text and --label name columns"),
        (["--layers", 1, "--label", "a", "--texts", "x.txt"], "--label names a column of labeled"),
        (["--layers", 1, "--texts", "nonexistent.txt"], "--texts has no effect"),
        (["--train", "a.csv", "--dev", "b.csv", "--embeddings", 4], "--embeddings and --float"),
        (["--layers", 1, "--distil", "--train", "a.csv", "--epochs", "inf"], "--epochs is inf"),
    ],
)
def test_options_without_effect_are_refused(folder, tmp_path, bertie, options, message):
    code, _, err = bertie("compress", folder, *options, "-o", tmp_path / "out")
    assert code == 2
    assert message in " ".join(err.split())


def test_a_pair_model_is_not_calibrated_on_single_texts(folder, tmp_path, bertie, monkeypatch):
    model = load_model(folder)
    model.training_facts = TrainingFacts(texts=2)
    model.save_pretrained(tmp_path / "pairs")
    (tmp_path / "texts.txt").write_text("\n".join(TOY_TEXTS))
    code, _, err = bertie("compress", tmp_path / "pairs", "--texts", tmp_path / "texts.txt", "-o", tmp_path / "out")
    assert code == 2
    assert "The model reads pairs of texts" in err


def test_gptq_beats_rounding_to_nearest():
    generator = torch.Generator().manual_seed(0)
    mix = torch.randn(64, 64, generator=generator)
    x, w = torch.randn(2000, 64, generator=generator) @ mix, torch.randn(32, 64, generator=generator)
    values, scale = gptq(w, x.T @ x / len(x), torch.zeros(64, dtype=torch.long))
    nearest = Int8Weight.rows(w.numpy()).dequantized()
    errors = [((x @ (w - found).T) ** 2).mean() for found in (values * scale.T, torch.from_numpy(nearest))]
    assert errors[0] < 0.8 * errors[1]


def test_the_widest_features_are_the_last_groups():
    ranges = torch.arange(2048.0).flip(0)
    group = widest(ranges, (448, 64))
    assert group.bincount().tolist() == [1536, 448, 64]
    assert (group[:64] == 2).all()
    assert (group[64:512] == 1).all()
    assert widest(torch.ones(128), (64,)).max() == 0  # too narrow for a group of its own


def test_hostile_scales_are_one_error_and_never_a_crash(compressed, tmp_path):
    """Every part of the int8 weights with other shapes, types and values: a clear error, or finite vectors."""
    import shutil

    from safetensors.numpy import load_file, save_file

    copy, rng = tmp_path / "copy", np.random.default_rng(0)
    shutil.copytree(compressed[0], copy)
    whole = load_file(copy / "model.safetensors")
    names = [name for name in whole if name.rpartition("_")[2] in Int8Weight.PARTS or whole[name].dtype == np.int8]
    changes = {
        "another shape": lambda x: x[..., :-1],
        "another rank": lambda x: x.reshape(-1)[:, None],
        "another type": lambda x: x.astype(np.float64 if x.dtype != np.float32 else np.int32),
        "huge": lambda x: np.full_like(x, 3e38 if x.dtype == np.float32 else np.iinfo(x.dtype).max),
        "large": lambda x: np.full_like(x, 1e11 if x.dtype == np.float32 else np.iinfo(x.dtype).min),
        "zeros": np.zeros_like,
        "nan": lambda x: np.full_like(x, np.nan) if x.dtype == np.float32 else x[:0],
        "noise": lambda x: rng.permutation(x.reshape(-1)).reshape(x.shape),
    }
    refused = 0
    for change in changes.values():
        for name in rng.choice(names, 5, replace=False):
            changed = {**whole, name: np.ascontiguousarray(change(whole[name]))}
            save_file(changed, copy / "model.safetensors", {"format": "pt"})
            try:
                model = load_model(copy)
            except DataError:
                refused += 1
                continue
            assert np.isfinite(toy_vectors(model, engine_of(model))).all(), name
    assert refused > len(changes) * 5 // 2


def test_flipped_and_missing_bytes_are_one_error_and_never_a_crash(compressed, tmp_path):
    import shutil

    copy, rng = tmp_path / "copy", np.random.default_rng(1)
    shutil.copytree(compressed[0], copy)
    whole = (copy / "model.safetensors").read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    refused = 0
    for number in range(24):
        damaged = bytearray(whole)
        for place in rng.integers(0, header if number % 2 else len(whole), size=3):
            damaged[place] ^= 1 << int(rng.integers(8))
        if number % 6 == 0:
            del damaged[int(rng.integers(len(whole))) :]
        (copy / "model.safetensors").write_bytes(damaged)
        try:
            model = load_model(copy)
        except BertieError:
            refused += 1
            continue
        toy_vectors(model, engine_of(model))
    assert refused >= 4


def test_a_model_that_cannot_be_quantized_is_refused_whatever_the_texts(tmp_path):
    """More texts would not help."""
    model = load_model(toy_writer(tmp_path))
    with pytest.raises(UsageError, match="cannot be quantized: its positions are relative"):
        gate.CalibrationTexts.read(model, ["a b c"]).quantize(model)
