"""bertie convert, families and info: any family, any precision, shards, and pickles only by a process of their own."""

import json
import pickle
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from bertie.apps.cli.table import app
from bertie.errors import DataError, UsageError
from bertie.models import families
from bertie.models.convert import convert_folder, save_like
from bertie.models.heads import HEADS

SMALL = {
    "vocab_size": 120,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
}


def saved(folder: Path, preset: str = "bert-tiny", head: str = "mlm") -> Path:
    config = families.config(preset, **SMALL, pooler=False)
    heads = {head: HEADS[head](config, 2)}
    model = families.build(config, heads=heads, variant=families.family(preset).model_type, seed=3)
    model.save_pretrained(folder)
    (folder / "notes.txt").write_text("kept")
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text("{}")  # of a sentence model
    (folder / "modeling.py").write_text("raise SystemExit")
    return folder


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return dict(families.load(folder)[0].named_parameters())


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor], tolerance: float) -> None:
    assert a.keys() == b.keys()
    for name in a:
        torch.testing.assert_close(a[name], b[name], atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize(("preset", "head"), [("bert-tiny", "mlm"), ("gpt2", "lm"), ("roberta-base", "sequence")])
@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 0.0), ("bfloat16", 1e-2), ("float16", 1e-3)])
def test_precisions_and_shards(preset: str, head: str, precision: str, tolerance: float, tmp_path: Path) -> None:
    source = saved(tmp_path / "a", preset, head)
    one = convert_folder(families.family(source), source, tmp_path / "one", precision=precision)
    many = convert_folder(families.family(source), source, tmp_path / "many", precision=precision, shard_bytes=9_000)
    assert (one.files, many.files > 3) == (1, True)
    for folder in (tmp_path / "one", tmp_path / "many"):
        same(weights(folder), weights(source), tolerance)
        assert json.loads((folder / "config.json").read_text())["dtype"] == precision
        assert (folder / "notes.txt").read_text() == "kept"
        assert not (folder / "modeling.py").exists()
    stored = load_file(tmp_path / "one" / "model.safetensors")
    assert {tensor.dtype for tensor in stored.values()} == {getattr(torch, precision)}
    assert sum(t.numel() * t.element_size() for t in stored.values()) == one.bytes == many.bytes
    back = convert_folder(families.family(source), tmp_path / "many", tmp_path / "back")
    assert back.files == 1
    same(weights(tmp_path / "back"), weights(tmp_path / "many"), 0.0)


@pytest.mark.parametrize("shard_bytes", [None, 9_000])
def test_a_matrix_of_its_own_keeps_its_bias(shard_bytes: int | None, tmp_path: Path) -> None:
    """`transformers` writes the bias of a tied matrix too, which nobody reads."""
    import transformers

    torch.manual_seed(0)
    told = transformers.BertConfig(**SMALL, tie_word_embeddings=False)
    theirs = transformers.BertForMaskedLM(told).eval()
    with torch.no_grad():
        theirs.cls.predictions.decoder.bias.normal_()
    theirs.save_pretrained(tmp_path / "a")
    convert_folder(families.family("bert-tiny"), tmp_path / "a", tmp_path / "b", shard_bytes=shard_bytes)
    again, info = transformers.BertForMaskedLM.from_pretrained(tmp_path / "b", output_loading_info=True)
    assert not any(info.values()), info
    ids = torch.arange(5, 12)[None]
    assert torch.equal(again(ids).logits, theirs(ids).logits)
    same(weights(tmp_path / "b"), weights(tmp_path / "a"), 0.0)


def test_files_of_the_hub_cache_are_links(tmp_path: Path) -> None:
    """A sentence model with a matrix after the pooling, each file a link into a folder of blobs."""
    blobs, source = saved(tmp_path / "blobs"), tmp_path / "snapshots" / "commit"
    (blobs / "2_Dense").mkdir()
    shutil.copyfile(blobs / "model.safetensors", blobs / "2_Dense" / "model.safetensors")
    (blobs / "modules.json").write_text(
        json.dumps(
            [{"path": p, "type": t} for p, t in (("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Dense", "Dense"))]
        )
    )
    names = [path.relative_to(blobs) for path in blobs.rglob("*") if path.is_file()]
    for name in names:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).symlink_to(blobs / name)
    (source / "gone.txt").symlink_to(tmp_path / "nowhere")
    convert_folder(families.family(source), source, tmp_path / "out")
    copied = {path.relative_to(tmp_path / "out") for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert copied == {*names, Path("checksums.json")} - {Path("modeling.py")}
    assert not any(path.is_symlink() for path in (tmp_path / "out").rglob("*"))


def test_transformers_opens_shards_of_bfloat16(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    convert_folder(
        families.family("bert-tiny"), saved(tmp_path / "a"), tmp_path / "b", precision="bfloat16", shard_bytes=9_000
    )
    theirs, info = transformers.BertForMaskedLM.from_pretrained(tmp_path / "b", output_loading_info=True)
    assert theirs.dtype == torch.bfloat16
    assert not any(info.values()), info


def test_float32_comes_back_byte_for_byte_and_old_names_are_renewed(tmp_path: Path) -> None:
    source = saved(tmp_path / "a")
    convert_folder(families.family(source), source, tmp_path / "b")
    assert (tmp_path / "b" / "1_Pooling" / "config.json").read_text() == "{}"
    assert (tmp_path / "b" / "model.safetensors").read_bytes() == (source / "model.safetensors").read_bytes()
    old = {n.replace("Norm.weight", "Norm.gamma"): t for n, t in load_file(source / "model.safetensors").items()}
    save_file({**old, "bert.embeddings.position_ids": torch.arange(512)[None]}, source / "model.safetensors")
    convert_folder(families.family(source), source, tmp_path / "c")
    assert (tmp_path / "c" / "model.safetensors").read_bytes() == (tmp_path / "b" / "model.safetensors").read_bytes()


def test_a_smaller_model_has_the_precision_of_old_files_with_buffers(tmp_path: Path) -> None:
    source = saved(tmp_path / "a")
    convert_folder(families.family(source), source, tmp_path / "b", precision="float16")
    buffers = {"bert.embeddings.position_ids": torch.arange(512)[None]}
    save_file({**load_file(tmp_path / "b" / "model.safetensors"), **buffers}, tmp_path / "b" / "model.safetensors")
    (tmp_path / "c").mkdir()
    save_like(families.load(tmp_path / "b")[0], tmp_path / "c", tmp_path / "b")
    assert {tensor.dtype for tensor in load_file(tmp_path / "c" / "model.safetensors").values()} == {torch.float16}


def test_what_does_not_fit_float16_is_refused(tmp_path: Path) -> None:
    config = families.config("bert-tiny", **SMALL)
    model = families.build(config)
    with torch.no_grad():
        model.encoder.pooler.bias[0] = 1e5
    model.save_pretrained(tmp_path / "a")
    with pytest.raises(DataError, match="bfloat16"):
        convert_folder(families.family("bert-tiny"), tmp_path / "a", tmp_path / "b", precision="float16")
    with pytest.raises(UsageError, match="float32"):
        convert_folder(families.family("bert-tiny"), tmp_path / "a", tmp_path / "c", precision="float31")
    with pytest.raises(UsageError, match="another"):
        convert_folder(families.family("bert-tiny"), tmp_path / "a", tmp_path / "a", overwrite=True)
    config = json.loads((tmp_path / "a" / "config.json").read_text())
    (tmp_path / "a" / "config.json").write_text(
        json.dumps({**config, "quantization_config": {"quant_method": "bertie-int8"}})
    )
    with pytest.raises(UsageError, match="bertie compress"):
        convert_folder(families.family("bert-tiny"), tmp_path / "a", tmp_path / "d")
    assert not (tmp_path / "d").exists()
    assert (tmp_path / "a" / "model.safetensors").exists()


# Pickles -------------------------------------------------------------------------------------------------------------


def pickled(folder: Path, *, parts: int = 1) -> Path:
    """The same folder as it was published in older days."""
    saved(folder)
    state = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    state["cls.predictions.decoder.weight"] = state["bert.embeddings.word_embeddings.weight"]  # shared, as it was
    if parts == 1:
        torch.save(state, folder / "pytorch_model.bin")
        return folder
    names = sorted(state)
    where = {}
    for i in range(parts):
        file = f"pytorch_model-{i + 1:05}-of-{parts:05}.bin"
        torch.save({name: state[name] for name in names[i::parts]}, folder / file)
        where |= dict.fromkeys(names[i::parts], file)
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": where}))
    return folder


@pytest.mark.parametrize("parts", [1, 3])
def test_a_pickle_is_converted_once_when_asked(parts: int, tmp_path: Path) -> None:
    folder = pickled(tmp_path / "old", parts=parts)
    with pytest.raises(DataError, match="bertie convert --unsafe"):
        families.load(folder)
    with pytest.raises(DataError, match="bertie convert --unsafe"):
        convert_folder(families.family(folder), folder, tmp_path / "refused")
    convert_folder(families.family(folder), folder, tmp_path / "new", unsafe=True)
    same(weights(tmp_path / "new"), weights(saved(tmp_path / "expected")), 0.0)
    assert not list((tmp_path / "new").glob("*.bin*"))


class Hostile:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return Path.write_text, (self.marker, "gotcha")


@pytest.mark.parametrize("content", ["hostile", "hostile inside", "a list", "torn"])
def test_a_pickle_that_holds_more_than_numbers_is_refused(content: str, tmp_path: Path) -> None:
    folder, marker = pickled(tmp_path / "old"), tmp_path / "marker"
    path = folder / "pytorch_model.bin"
    if content == "hostile":
        path.write_bytes(pickle.dumps(Hostile(marker)))
    elif content == "hostile inside":
        torch.save({"a": torch.zeros(2), "b": Hostile(marker)}, path)
    elif content == "a list":
        torch.save([torch.zeros(2)], path)
    else:
        path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(DataError, match="was not converted: it ") as caught:
        convert_folder(families.family(folder), folder, tmp_path / "new", unsafe=True)
    assert "weights_only" not in str(caught.value)  # torch advises to turn its protection off
    assert not marker.exists()
    assert not (tmp_path / "new" / "config.json").exists()  # so that it is no model folder


# The commands --------------------------------------------------------------------------------------------------------


def test_the_commands(tmp_path: Path) -> None:
    source, run = saved(tmp_path / "a"), CliRunner().invoke
    done = run(app, ["convert", str(source), "-o", str(tmp_path / "b"), "--precision", "bfloat16", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["precision"] == "bfloat16"
    again = run(app, ["convert", str(source), "-o", str(tmp_path / "b")])
    assert isinstance(again.exception, UsageError)
    listed = run(app, ["families", "--json"])
    rows = {row["model_type"]: row for row in json.loads(listed.stdout)}
    assert list(rows) == [name for name, _ in families.VARIANTS.items()]
    assert {"mlm", "pair", "sequence", "span"} <= set(rows["bert"]["heads"])
    shown = run(app, ["families"])
    assert all(name in shown.stdout for name in rows)


@pytest.mark.parametrize("name", [name for name, _ in families.VARIANTS.items()])
def test_info_of_every_family(name: str, tmp_path: Path) -> None:
    """Parts add up to what there is, for a preset and for a folder."""
    from bertie.api.describe import info

    preset = next(iter(families.VARIANTS[name].presets))
    facts = info(preset, length=64).to_dict()
    assert facts["parameters"]["total"] == sum(n for part, n in facts["parameters"].items() if part != "total")
    assert facts["flops_per_token"]["forward"] > 0
    assert facts["memory_bytes"]["training AdamW"] == 16 * facts["parameters"]["total"]
