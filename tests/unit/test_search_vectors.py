"""Vectors of an index: the approximate index beside the exact products, and the prompts of a model."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from bertie.apps.search import models
from bertie.apps.search.check import verify_index
from bertie.apps.search.embedded import Embedded
from bertie.apps.search.index import drop_documents, index
from bertie.apps.search.models import Embedder
from bertie.errors import DataError
from bertie.infer.predict import Predictor
from bertie.runs.weights import load_model as load_module
from serving import make_models

H = 48
MODULES = {"": "Transformer", "1_Pooling": "Pooling"}
GIVEN = Embedder("given", "1", lambda: None)  # type: ignore[arg-type, return-value]


def around(seed: int, count: int) -> np.ndarray:
    """Vectors of length 1 around 40 centers, as texts of some subjects have them."""
    rng = np.random.default_rng(seed)
    centers = np.random.default_rng(7).normal(size=(40, H))
    found = centers[rng.integers(0, 40, count)] + 0.8 * rng.normal(size=(count, H))
    return (found / np.linalg.norm(found, axis=-1, keepdims=True)).astype(np.float32)


def table(path: Path, seed: int, count: int) -> str:
    path.write_text("text\n" + "".join(f"{seed} {number}\n" for number in range(count)))
    return str(path)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pytest.importorskip("usearch")
    known = {seed: around(seed, 2000) for seed in (1, 2, 3)}
    monkeypatch.setattr(
        models,
        "embed_texts",
        lambda embedder, texts: np.stack([known[int(a)][int(b)] for a, b in map(str.split, texts)]),
    )
    index([table(tmp_path / "one.csv", 1, 2000)], tmp_path / "index", embedder=GIVEN, vectors="approximate")
    return tmp_path / "index"


def recall(folder: Path, seed: int = 1) -> float:
    """The share of the exact 10 nearest that the graph finds, with the same scores."""
    store, exact = Embedded(folder), Embedded(folder)
    exact.exact, shares = True, []
    for vector in around(seed, 2000)[:40] + around(99, 40) * np.float32(0.3):
        mine, theirs = dict(store.nearest(vector, 10)), dict(exact.nearest(vector, 10))
        shares.append(len(mine.keys() & theirs.keys()) / 10)
        for passage in mine.keys() & theirs.keys():
            assert mine[passage] == pytest.approx(theirs[passage], abs=1e-5)
    store.close()
    exact.close()
    return float(np.mean(shares))


def test_the_graph_finds_nearly_all_that_exact_products_find(folder: Path, tmp_path: Path) -> None:
    assert [path.name for path in folder.glob("neighbors-*")] == ["neighbors-000001.usearch"]
    assert recall(folder) > 0.95
    index([table(tmp_path / "two.csv", 2, 150)], folder, embedder=GIVEN)
    assert [path.name for path in folder.glob("neighbors-*")] == ["neighbors-000001.usearch"], "under a tenth is new"
    assert recall(folder, 2) > 0.95, "new passages are compared exactly"
    index([table(tmp_path / "three.csv", 3, 400)], folder, embedder=GIVEN)
    assert "neighbors-000002.usearch" in {path.name for path in folder.glob("neighbors-*")}
    assert recall(folder, 3) > 0.95
    drop_documents([str(tmp_path / "one.csv")], folder)
    store = Embedded(folder)
    found = store.nearest(around(1, 2000)[0], 10)
    assert {passage.source for passage in store.passages([i for i, _ in found])} <= {
        str(tmp_path / name) for name in ("two.csv", "three.csv")
    }
    store.close()
    index([table(tmp_path / "two.csv", 2, 150)], folder, embedder=GIVEN, vectors="exact")
    index([table(tmp_path / "two.csv", 2, 150)], folder, embedder=GIVEN)
    assert not [*folder.glob("neighbors-*")], "auto makes no graph of so few"
    assert recall(folder, 2) == 1


@pytest.mark.parametrize("exact", [True, False])
def test_what_is_left_is_found_behind_many_removed_passages(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exact: bool
) -> None:
    monkeypatch.setattr("bertie.apps.search.embedded._EXTRA_ROWS", 7)
    index([table(tmp_path / "two.csv", 2, 40)], folder, embedder=GIVEN)
    drop_documents([str(tmp_path / "one.csv")], folder)
    store = Embedded(folder)
    store.exact = exact
    near, own = around(1, 2000)[0], around(2, 2000)[:40]  # of a passage that was removed
    found = store.nearest(near, 5)
    assert [score for _, score in found] == pytest.approx(sorted(own @ near, reverse=True)[:5], abs=0.02)
    store.close()


def test_a_damaged_graph_is_reported(folder: Path) -> None:
    assert verify_index(folder)["damage"] == []
    (path,) = folder.glob("neighbors-*")
    path.write_bytes(b"damaged" * 100)
    assert "neighbors-000001.usearch" in verify_index(folder)["damage"][0]
    store = Embedded(folder)
    with pytest.raises(DataError, match="is damaged"):
        store.nearest(around(1, 1)[0], 10)
    path.unlink()
    with pytest.raises(DataError, match="is missing"):
        store.nearest(around(1, 1)[0], 10)
    store.close()


def test_questions_and_passages_have_the_prompts_of_the_model(tmp_path: Path) -> None:
    plain = make_models(tmp_path / "models")["embed"]
    prompted = tmp_path / "prompted"
    shutil.copytree(plain, prompted)
    modules = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in MODULES.items()]
    (prompted / "modules.json").write_text(json.dumps(modules))
    (prompted / "1_Pooling").mkdir()
    (prompted / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    prompts = {"query": "a b ", "passage": "c d "}
    (prompted / "config_sentence_transformers.json").write_text(json.dumps({"prompts": prompts}))
    bare, model = (Predictor(load_module(one)) for one in (plain, prompted))
    for role, prompt in prompts.items():
        expected = models.embed_texts(bare, [prompt + text for text in ("e f", "g")])
        assert models.embed_texts(model, ["e f", "g"], role) == pytest.approx(expected, abs=1e-6)
        assert models.embed_texts(bare, ["e f"], role) == pytest.approx(models.embed_texts(bare, ["e f"]), abs=1e-6)
    assert model.task.prompt == "", "the predictor is not changed"
