"""Models of `sentence-transformers` in memory, both ways: the same vectors and scores, and no file is left."""

import gc
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import numpy as np
import pytest

import bertie
from bertie.errors import DataError
from toys import toy_model

theirs = pytest.importorskip("sentence_transformers")
modules = pytest.importorskip("sentence_transformers.sentence_transformer.modules")

TEXTS = ["a b c", "d e f g h i", "a"]
FLOAT = {"dtype": "float32"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(toy_model(tmp_path_factory.mktemp("model") / "model", "abcdefghi"))


def sentence_model(folder: str, *, pooling: str = "mean", dense: bool = False, normalize: bool = False, **options: Any):
    chain = [modules.Transformer(folder, model_kwargs=FLOAT), modules.Pooling(32, pooling_mode=pooling)]
    chain += [modules.Dense(32, 8)] if dense else []
    chain += [modules.Normalize()] if normalize else []
    return theirs.SentenceTransformer(modules=chain, device="cpu", **options)


CHAINS: dict[str, dict[str, Any]] = {
    "mean": {},
    "cls": {"pooling": "cls"},
    "max, normalized": {"pooling": "max", "normalize": True},
    "dense": {"dense": True, "normalize": True},
    "prompts": {"prompts": {"query": "b ", "passage": "c "}, "default_prompt_name": "passage"},
    "truncated": {"truncate_dim": 16},
}


@pytest.mark.parametrize("chain", CHAINS)
def test_vectors_are_the_same_both_ways(folder: str, chain: str) -> None:
    before = {path for path in Path(gettempdir()).iterdir() if path.name.startswith("bertie-model-")}
    other = sentence_model(folder, **CHAINS[chain])
    model = bertie.Model.from_sentence_transformers(other)
    again = model.to_sentence_transformers()
    for name in (None, *CHAINS[chain].get("prompts", ())):
        expected = other.encode(TEXTS, prompt_name=name)
        np.testing.assert_allclose(model.embed(TEXTS, prompt=name), expected, atol=2e-6)
        np.testing.assert_allclose(again.encode(TEXTS, prompt_name=name), expected, atol=1e-6)
    del model
    gc.collect()
    assert {path for path in Path(gettempdir()).iterdir() if path.name.startswith("bertie-model-")} <= before


def test_cross_encoders_go_both_ways(folder: str) -> None:
    other = theirs.CrossEncoder(folder, num_labels=1, device="cpu", model_kwargs=FLOAT)
    model = bertie.Model.from_sentence_transformers(other)
    pairs = [("a b", "c"), ("d", "e f")]
    expected = other.predict(pairs)
    np.testing.assert_allclose([answer.label for answer in model.predict(pairs)], expected, atol=2e-6)
    np.testing.assert_allclose(model.to_sentence_transformers().predict(pairs), expected, atol=1e-6)


def test_a_plain_encoder_has_mean_pooling(folder: str) -> None:
    model = bertie.load(folder)
    np.testing.assert_allclose(model.to_sentence_transformers().encode(TEXTS), model.embed(TEXTS), atol=2e-6)


def test_unknown_modules_are_refused(folder: str) -> None:
    other = sentence_model(folder)
    other.add_module("2", modules.LayerNorm(32))
    with pytest.raises(DataError, match=r"SentenceTransformer: modules.json has unknown modules: LayerNorm\.$"):
        bertie.Model.from_sentence_transformers(other)
