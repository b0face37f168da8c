"""Several adapters of LoRA on one base in one process: as numbers, as models of the server, and what is refused."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import bertie
from bertie.errors import DataError, UsageError
from bertie.infer.predict import Predictor
from bertie.infer.torch_engine import TorchEngine
from bertie.infer.traffic import Traffic
from bertie.models import families
from bertie.models.lora import Adapter, Lora
from bertie.runs.adapters import on_one_base
from bertie.runs.opening import ModelFolder
from bertie.runs.weights import load_model
from bertie.text.sequences import Sequences
from serving import Process, until
from toys import toy_model

FAST: dict[str, Any] = {"epochs": 1, "lr": 3e-3, "max_length": 16, "precision": "fp32", "batch_size": 16}
SETTINGS = {"label_check": "none", "baselines": False}
TEXTS = ["c a d", "d b e f", "g", "h a a b"]


def rows(labels: str) -> list[tuple[str, str]]:
    letters = "cdefghij"
    return [(f"{letters[i % 8]} {'ab'[i % 2]}", labels[i % len(labels)]) for i in range(48)]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base, and runs of adapters with 2, 3 and 2 labels."""
    home = tmp_path_factory.mktemp("adapters")
    toy_model(home / "base", "abcdefghij", num_hidden_layers=2)
    for name, labels, targets in (
        ("x", "xy", ["attention"]),
        ("y", "pqr", ["attention", "feed_forward", "embeddings"]),
    ):
        settings = {**SETTINGS, "lora.targets": targets, "train.seed": len(labels)}
        bertie.finetune(home / "base", rows(labels), lora=4, settings=settings, output=home / name, **FAST)
    return home


def test_the_numbers_are_those_of_the_merged_models_and_the_base_is_in_memory_once(home: Path):
    folders = {name: home / name / "model" / "adapter" for name in ("x", "y", "again")}
    folders["again"] = folders["x"]
    engines = on_one_base(home / "base", folders, device="cpu")
    for _ in range(2):
        for name, engine in engines.items():
            merged = Predictor(load_model(home / ("x" if name == "again" else name)))
            own = Predictor(engine, merged.tokenizer)
            for one, two in zip(own.predict(TEXTS), merged.predict(TEXTS), strict=True):
                assert one.label == two.label
                assert [*one.scores.values()] == pytest.approx([*two.scores.values()], abs=1e-6)
    weights = [dict(engine.model.encoder.named_parameters()) for engine in engines.values()]
    place = (
        "layers.1.down.weight"
        if "layers.1.down.weight" in weights[0]
        else next(n for n in weights[0] if "layers.1" in n)
    )
    assert len({one[place].data_ptr() for one in weights}) == 1
    base = dict(families.load(home / "base")[0].encoder.named_parameters())
    assert all(torch.equal(one[name], base[name]) for one in weights for name in base if "layers" in name)


def test_a_layer_that_fails_leaves_the_weights_of_the_base(home: Path):
    engines = on_one_base(home / "base", {"x": home / "x" / "model" / "adapter"}, device="cpu")
    base = dict(families.load(home / "base")[0].encoder.named_parameters())
    with pytest.raises(Exception, match=r"\w"):
        engines["x"].model.encoder(torch.full((1, 4), 10**6), attention_mask=torch.ones(1, 4))
    layer = engines["x"].model.encoder.layers[0]
    with pytest.raises(Exception, match=r"\w"):
        layer(None)
    own = dict(engines["x"].model.encoder.named_parameters())
    assert all(torch.equal(own[name], base[name]) for name in own if "layers" in name)


def test_an_adapter_of_another_base_is_refused_by_its_hash(home: Path, tmp_path: Path):
    other = toy_model(tmp_path / "base", "abcdefghij", num_hidden_layers=2, initializer_range=0.2)
    with pytest.raises(DataError, match="another hash"):
        on_one_base(other, {"x": home / "x" / "model" / "adapter"}, device="cpu")
    with pytest.raises(UsageError, match="run in torch"):
        ModelFolder(home / "base").open_adapters({"x": home / "x" / "model" / "adapter"}, engine="native")


def test_training_leaves_traffic_for_the_adapter(home: Path):
    adapter = home / "x" / "model" / "adapter"
    (traffic,) = Traffic.read(adapter / Traffic.FILE).values()
    assert traffic.model == Traffic.of_model(adapter).model
    assert traffic.rows > 0


def test_adapters_are_models_of_a_server_and_are_loaded_again_together(home: Path, tmp_path: Path):
    places = {name: tmp_path / name for name in ("x", "y")}
    for name, place in places.items():
        shutil.copytree(home / name / "model" / "adapter", place)
    arguments = [f"{name}={place}" for name, place in places.items()]
    log = tmp_path / "traffic.json"
    with Process(tmp_path / "log", *arguments, "--threads", "1", "--device", "cpu", "--log", log) as server:
        assert len(server.workers()) == 1
        for name in ("x", "y", "x"):
            answers = server.client.post("/answer", json={"inputs": TEXTS, "model": name}).json()["answers"]
            merged = bertie.predict(home / name / "model", TEXTS)
            for one, two in zip(answers, merged, strict=True):
                assert one["label"] == two.label
                assert np.allclose([*one["scores"].values()], [*two.scores.values()], atol=1e-5)
        answer = server.client.post("/predict", json={"inputs": "c a", "model": "y"})
        assert answer.headers["x-bertie-model"] == "y"
        assert {one["label"] for one in answer.json()} == {*"pqr"}
        info = server.client.get("/info").json()["models"]
        assert info["x"]["model_sha"] != info["y"]["model_sha"]
        server.process.send_signal(1)
        until(lambda: {*server.client.get("/info").json()["reloads"]["outcomes"].values()} == {"done"})
        assert server.client.get("/info").json()["models"]["y"]["generation"] == 2
        assert server.client.post("/predict", json={"inputs": "c a", "model": "y"}).status_code == 200
        own = json.loads((places["y"] / "bertie_adapter.json").read_text())
        (places["y"] / "bertie_adapter.json").write_text(json.dumps({**own, "base": "0" * 32}))
        server.process.send_signal(1)
        until(lambda: server.client.get("/info").json()["reloads"]["number"] == 2)
        outcomes = until(
            lambda: (r := server.client.get("/info").json()["reloads"]) and not r["running"] and r["outcomes"]
        )
        assert all("another hash" in outcome for outcome in outcomes.values())
        assert server.client.post("/predict", json={"inputs": "c a", "model": "y"}).status_code == 200
        server.process.terminate()
        server.process.wait(30)
    assert {one.model for one in Traffic.read(log).values()} == {
        Traffic.of_model(home / n / "model" / "adapter").model for n in "xy"
    }


@pytest.mark.parametrize(
    "family", ["albert", "roberta", "distilbert", "deberta-v2", "modernbert", "xlnet", "mpnet", "electra", "gpt2", "t5"]
)
def test_an_attached_adapter_computes_as_a_merged_one_in_every_family(family: str, tmp_path: Path):
    base = families.VARIANTS[family].base
    config = base.replace(
        vocab_size=40, hidden_size=32, num_attention_heads=2, intermediate_size=64, num_hidden_layers=2
    )
    trained, merged, attached = (families.build(config, variant=family, seed=0).eval() for _ in range(3))
    lora = Lora(trained, 4, 8.0, ("attention", "feed_forward"), (), 0)
    torch.manual_seed(0)
    for _, _, b in lora.pairs:
        b.data.normal_(0, 0.05)
    lora.write(trained, tmp_path / "adapter", "base", "0" * 32)
    adapter, ids = Adapter.read(tmp_path / "adapter"), Sequences.of([list(range(6, 20)), [7, 8, 9]])
    plain = TorchEngine(merged).run(ids, ("mean",))["mean"]
    adapter.merge_into(merged)
    adapter.attach(attached.requires_grad_(False))
    one, two = (TorchEngine(model).run(ids, ("mean",))["mean"] for model in (merged, attached))
    assert np.array_equal(one, two)
    assert not np.allclose(one, plain, atol=1e-3)


def test_a_log_of_an_adapter_alone_is_that_of_the_adapter(home: Path, tmp_path: Path):
    """As `drift` reads it, from the shell and from Python, and from a server of this adapter alone."""
    adapter, log = home / "x" / "model" / "adapter", tmp_path / "traffic.json"
    model = bertie.load(adapter)
    model.predict(TEXTS * 20, log=log)
    assert [*Traffic.read(log)] == [Traffic.of_model(adapter).model]
    for one in (adapter, model):
        assert bertie.drift(one, log).rows == 80
    with Process(tmp_path / "messages", f"x={adapter}", "--threads", "1", "--device", "cpu", "--log", log) as server:
        assert server.client.post("/answer", json={"inputs": TEXTS}).status_code == 200
        server.process.terminate()
        server.process.wait(30)
    assert {name: one.rows for name, one in Traffic.read(log).items()} == {Traffic.of_model(adapter).model: 84}


def test_an_adapter_that_was_trained_again_is_merged_again(home: Path, tmp_path: Path):
    """Its settings stay the same."""
    place = tmp_path / "adapter"
    shutil.copytree(home / "x" / "model" / "adapter", place)
    first = bertie.predict(place, TEXTS)[0].scores
    weights = load_file(place / "adapter_model.safetensors")
    save_file({name: one * 3 for name, one in weights.items()}, place / "adapter_model.safetensors")
    (place / "checksums.json").unlink(missing_ok=True)
    assert bertie.predict(place, TEXTS)[0].scores != first
