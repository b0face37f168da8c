"""Vectors of tokens and words by layer: equal to transformers', padding changes nothing, files read back."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
import torch
import transformers
from safetensors.numpy import load_file

import bertie as library
from bertie.apps.probe.pooling import NOT_A_WORD, pooled, words_of_tokens
from bertie.errors import DataError, UsageError
from bertie.infer.layers import token_vectors
from bertie.infer.torch_engine import TorchEngine
from bertie.models import families
from bertie.models.elmo import ElmoConfig
from bertie.models.facts import Facts
from bertie.runs.weights import load_model
from bertie.text.tokenizer import Tokenizer
from toys import CommandLine, toy_model

PIECES = [*"abcdefghijkl", "un", "##do", "##ing"]
TEXTS = ["a b c", "d", "undoing a b c d e f", "g h i j"]
FAMILIES = ("bert", "roberta", "albert", "distilbert", "electra", "mpnet", "modernbert", "deberta-v2")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_model(tmp_path_factory.mktemp("encoder"), PIECES, num_hidden_layers=3)


def of_family(name: str, tmp_path: Path) -> tuple[Any, Any]:
    """A small random model of a family, and transformers' of the same weights."""
    variant = families.VARIANTS[name]
    lacking = {*variant.base.unread}
    sizes = {"vocab_size": 24, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 48, "initializer_range": 0.2, "max_position_embeddings": 40}
    narrow = {key: 16 for key in ("embedding_size",) if variant.base.get(key)}
    if variant.base.positions.kind not in ("learned", "learned_relative", "rotary"):
        lacking.add("max_position_embeddings")
    implied = {key: n * sizes[of] for key, (n, of) in variant.implied.items() if key in sizes.keys() - variant.keys}
    kept = {key: value for key, value in sizes.items() if key not in lacking} | implied | narrow
    model = families.build(variant.base.replace(**kept), variant=name)
    families.save(model, tmp_path / name)
    public = transformers.AutoModel.from_pretrained(tmp_path / name, attn_implementation="eager")
    return model, public.eval()


@pytest.mark.parametrize("name", FAMILIES)
def test_layers_equal_those_of_transformers(name: str, tmp_path: Path, encoder: Path) -> None:
    model, public = of_family(name, tmp_path)
    model.train()  # vectors have no dropout, also of a model that is being trained
    tokenizer = Tokenizer.load(encoder)
    engine = TorchEngine(model)
    layers = engine.facts.layer_numbers()
    (chunk,) = token_vectors(engine, tokenizer, TEXTS, layers, max_length=32)
    for found in chunk.texts():
        assert found is not None
        ids = torch.tensor([[tokenizer.token_to_id(token) for token in found.tokens]])
        with torch.no_grad():
            expected = public(ids, output_hidden_states=True).hidden_states
        assert len(expected) == len(layers)
        for layer in layers:
            scale = float(expected[layer].abs().max())
            assert np.abs(found.vectors[layer] - expected[layer][0].numpy()).max() <= 2e-5 * max(1.0, scale), layer


def test_other_texts_of_the_batch_change_nothing(encoder: Path) -> None:
    together = library.embed(encoder, TEXTS, tokens=True, from_layers="all", device="cpu")
    for text, found in zip(TEXTS, together, strict=True):
        (alone,) = library.embed(encoder, [text], tokens=True, from_layers="all", device="cpu")
        assert alone.tokens == found.tokens
        for layer, vectors in alone.vectors.items():
            np.testing.assert_allclose(found.vectors[layer], vectors, atol=1e-5)


def test_chunks_are_bounded_and_keep_the_order(encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load_model(encoder)
    assert model.tokenizer
    engine = TorchEngine(model)
    whole = list(token_vectors(engine, model.tokenizer, TEXTS, (0, 3), max_length=32))
    monkeypatch.setattr("bertie.infer.layers._VECTOR_BYTES", 4 * 32 * 2 * 10)  # ten tokens of two layers
    parts = list(token_vectors(engine, model.tokenizer, [*TEXTS[:1], None, *TEXTS[1:]], (0, 3), max_length=32))
    assert len(whole) == 1
    assert [len(part.encodings) for part in parts] == [3, 1, 1]
    assert all(part.lengths.sum() <= 11 for part in parts)
    for layer in (0, 3):
        np.testing.assert_allclose(
            np.concatenate([part.vectors[layer] for part in parts]), whole[0].vectors[layer], atol=1e-5
        )


def test_names_of_layers() -> None:
    facts = Facts(8, 4, {}, layers=6)
    assert facts.layer_numbers() == (0, 1, 2, 3, 4, 5, 6)
    assert facts.layer_numbers("-1, 0,3") == (0, 3, 6)
    assert facts.layer_numbers([2]) == (2,)
    for wrong in ("7", "-8", "two", "", "1-3"):
        with pytest.raises(UsageError):
            facts.layer_numbers(wrong)
    with pytest.raises(UsageError, match="cannot be read"):
        Facts(8, 4, {}).layer_numbers("0")


def test_words_are_the_mean_or_the_first_of_their_tokens(encoder: Path) -> None:
    encoding = Tokenizer.load(encoder).encode("undoing a b")
    assert encoding.tokens == ["[CLS]", "un", "##do", "##ing", "a", "b", "[SEP]"]
    words = words_of_tokens(encoding, [(0, 7), (10, 11)])
    assert words.tolist() == [NOT_A_WORD, 0, 0, 0, NOT_A_WORD, 1, NOT_A_WORD]
    vectors = np.arange(14, dtype=np.float32).reshape(7, 2)
    np.testing.assert_array_equal(pooled(vectors, words), [[4, 5], [10, 11]])
    np.testing.assert_array_equal(pooled(vectors, words, "first"), [[2, 3], [10, 11]])
    assert words_of_tokens(encoding, [(0, 9), (9, 11)]).tolist() == [NOT_A_WORD, 0, 0, 0, 0, 1, NOT_A_WORD]
    assert pooled(vectors, np.full(7, NOT_A_WORD)).shape == (0, 2)
    with pytest.raises(UsageError, match="mean"):
        pooled(vectors, words, "meen")


def test_files_read_back(encoder: Path, tmp_path: Path, bertie: CommandLine) -> None:
    table = tmp_path / "t.csv"
    table.write_text("text,n\na b c,1\n,2\nundoing d,3\n")
    expected = library.embed(encoder, ["a b c", "undoing d"], tokens=True, from_layers=[0, 3], device="cpu")
    flat = {layer: np.concatenate([one.vectors[layer] for one in expected]) for layer in (0, 3)}
    tokens = [token for one in expected for token in one.tokens]
    for kind in ("npz", "safetensors", "parquet"):
        path = tmp_path / f"t.{kind}"
        code, _, err = bertie(
            "embed", encoder, table, "--text", "text", "--tokens", "--from-layers", "0,-1", "-o", path
        )
        assert code == 0, err
        assert "2 of 3 texts" in err
        if kind == "parquet":
            rows = pyarrow.parquet.read_table(path).to_pydict()
            assert rows["row"] == [1] * 5 + [3] * 6
            assert rows["token"] == tokens
            assert rows["word"][:5] == [None, 0, 1, 2, None]
            assert rows["end"][5:8] == [0, 2, 4]
            np.testing.assert_allclose(np.array(rows["layer_3"]), flat[3], atol=1e-5)
            continue
        found = dict(np.load(path)) if kind == "npz" else load_file(path)
        assert found["text_starts"].tolist() == [0, 5, 5, 11]
        assert found["word_ids"][:5].tolist() == [-1, 0, 1, 2, -1]
        assert found["offsets"][6].tolist() == [0, 2]
        for layer in (0, 3):
            np.testing.assert_allclose(found[f"layer_{layer}"], flat[layer], atol=1e-5)
        if kind == "npz":
            assert found["tokens"].tolist() == tokens
        else:
            text, ends = found["tokens"].tobytes(), found["token_ends"].tolist()
            assert [text[a:b].decode() for a, b in zip([0, *ends], ends, strict=False)] == tokens
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.csv", "t.npz", "t.parquet", "t.safetensors"]


def test_bad_input_of_token_vectors(encoder: Path, tmp_path: Path, bertie: CommandLine) -> None:
    texts, out = tmp_path / "t.txt", tmp_path / "t.npz"
    texts.write_text("a b\n")
    for arguments, code, said in (
        (("--tokens", "--from-layers", "9", "-o", out), 2, "layers 0 (embeddings) to 3"),
        (("--tokens",), 2, "-o FILE.npz"),
        (("--tokens", "-o", tmp_path / "t.npy"), 2, ".safetensors"),
        (("--from-layers", "0", "-o", tmp_path / "t.npy"), 2, "--tokens"),
        (("--tokens", "--pooling", "cls", "-o", out), 2, "--tokens excludes --pooling"),
    ):
        found = bertie("embed", encoder, texts, *arguments)
        assert found[0] == code, found
        assert said in " ".join(found[2].split())
    texts.write_text("")
    code, _, err = bertie("embed", encoder, texts, "--tokens", "-o", out)
    assert code == 3, err
    assert not out.exists()
    assert library.embed(encoder, ["a", " "], tokens=True)[1] is None
    with pytest.raises(DataError, match="Text 1: empty text"):
        library.embed(encoder, [" "], tokens=True)
    with pytest.raises(UsageError, match="`tokens=True`"):
        library.embed(encoder, ["a"], from_layers="all")


def test_layers_of_xlnet(tmp_path: Path, encoder: Path) -> None:
    config = transformers.XLNetConfig(
        vocab_size=24, d_model=32, n_layer=3, n_head=2, d_inner=48, initializer_range=0.2, attn_implementation="eager"
    )
    transformers.XLNetModel(config).eval().save_pretrained(tmp_path)
    public = transformers.XLNetModel.from_pretrained(tmp_path, attn_implementation="eager").eval()
    engine, tokenizer = TorchEngine(families.load(tmp_path)[0]), Tokenizer.load(encoder)
    layers = engine.facts.layer_numbers()
    (chunk,) = token_vectors(engine, tokenizer, TEXTS, layers, max_length=32)
    for text in chunk.texts():
        assert text is not None
        ids = torch.tensor([[tokenizer.token_to_id(token) for token in text.tokens]])
        with torch.no_grad():
            expected = public(ids, token_type_ids=torch.zeros_like(ids), output_hidden_states=True).hidden_states
        assert len(expected) == len(layers)
        for layer in layers:
            scale = float(expected[layer].abs().max())
            assert np.abs(text.vectors[layer] - expected[layer][0].numpy()).max() <= 2e-5 * max(1.0, scale), layer


def test_layers_of_elmo(tmp_path: Path, bertie: CommandLine) -> None:
    """Characters, then the LSTMs; `bertie words` compares them, and there is no attention to show."""
    words = ["the", "bank", "of", "a", "river", "account", "an"]
    folder = toy_model(tmp_path / "vocabulary", words)
    tokenizer = Tokenizer.load(folder)
    shape = {"hidden_size": 12, "intermediate_size": 10, "embedding_size": 4, "filters": ((1, 3), (2, 4))}
    model = families.build(ElmoConfig(vocab_size=tokenizer.vocab_size, **shape), variant="elmo", seed=1)
    families.save(model, tmp_path / "elmo", tokenizer=tokenizer)
    texts = ["the bank of a river", "a bank account"]
    by_words = model.encoder.word_vectors([text.split() for text in texts], layers=True)
    (chunk,) = token_vectors(TorchEngine(load_model(tmp_path / "elmo")), tokenizer, texts, (0, 1, 2), max_length=32)
    for text, expected in zip(chunk.texts(), by_words, strict=True):
        assert text is not None
        for layer in range(3):
            np.testing.assert_allclose(text.vectors[layer][1:-1], expected[layer].numpy(), atol=1e-5)
    results = json.loads(bertie.good("words", tmp_path / "elmo", *texts, "--word", "bank", "--json"))
    cosines = [layer["mean_similarity"] for layer in results["layers"]]
    assert cosines[0] == pytest.approx(1, abs=1e-6), "characters do not see the sentence"
    assert cosines[1] < 1 - 1e-4
    code, out, err = bertie("attention", tmp_path / "elmo", texts[0], "-o", tmp_path / "page.html")
    assert (code, out) == (2, "")
    assert "from word to word" in err
