"""LoRA: the gradients of its matrices, peft's folder both ways, a plain merged model everywhere, adapters of another
base refused; gradient checkpointing and smaller micro-batches give the same weights."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import linear

import bertie as package
from bertie.errors import DataError, UsageError
from bertie.models import families
from bertie.models.lora import Adapter, Lora, list_matrices
from toys import CommandLine, toy_model

FAST: dict[str, Any] = {"epochs": 3, "lr": 3e-3, "max_length": 16, "precision": "fp32", "batch_size": 16}
SETTINGS = {"label_check": "none", "baselines": False}


def rows(count: int = 160) -> list[tuple[str, str]]:
    letters = "cdefghij"
    return [(f"{letters[i % 8]} {'ab'[i % 2]} {letters[i // 8 % 8]}", "xy"[i % 2]) for i in range(count)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_model(tmp_path_factory.mktemp("m"), "abcdefghij", num_hidden_layers=2)


@pytest.fixture(scope="module")
def run(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("r") / "run"
    package.finetune(model, rows(), lora=4, settings=SETTINGS, output=out, **{**FAST, "epochs": 8})
    return out


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_gradients_are_those_of_the_small_matrices(model: Path, dropout: float) -> None:
    plain, _ = families.load(model)
    plain.train(dropout > 0)
    for module in plain.encoder.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    lora = Lora(plain, 3, 6.0, ("attention", "feed_forward", "embeddings"), (), 0, dropout)
    torch.manual_seed(0)
    for _, _, b in lora.pairs:
        b.data.normal_(0, 0.02)
    ids, weights = torch.tensor([[2, 5, 6, 7, 3]]), torch.randn(1, 5, 32)

    def loss() -> torch.Tensor:
        torch.manual_seed(1)  # of what is left out
        return plain.encoder(ids, attention_mask=torch.ones_like(ids)).last_hidden_state.mul(weights).sum()  # type: ignore[no-any-return]

    loss().backward()
    assert len(lora._kept) == (len(lora.places) if dropout else 0)
    assert all(parameter.grad is None for name, parameter in plain.named_parameters() if "companions" not in name)
    for (place, a, b), step in ((pair, 1e-2) for pair in list(lora.pairs)[::3]):
        for one in (a, b):
            at = int(one.grad.abs().argmax())  # type: ignore[union-attr]
            before = float(one.data.view(-1)[at])
            ends = []
            for sign in (1, -1):
                with torch.no_grad():
                    one.view(-1)[at] = before + sign * step
                lora._stale = True
                ends.append(float(loss().detach()))
            with torch.no_grad():
                one.view(-1)[at] = before
            numeric = (ends[0] - ends[1]) / (2 * step)
            assert float(one.grad.view(-1)[at]) == pytest.approx(numeric, rel=0.05), place  # type: ignore[union-attr]


def test_only_small_matrices_and_the_head_change(model: Path, run: Path) -> None:
    results = json.loads((run / "results.json").read_text())
    assert any(note.startswith("lora: ") for note in results["notes"])
    assert results["dev"]["accuracy"] > 0.9
    before, _ = families.load(model)
    after, _ = families.load(run / "model")
    adapter = Adapter.read(run / "model/adapter")
    old = dict(before.named_parameters())
    changed = {place.parameter for place in list_matrices(before) if place.public in adapter.pairs}
    for name, parameter in after.named_parameters():
        if name.startswith("encoder.") and name not in changed and "pooler" not in name:
            assert torch.equal(parameter, old[name]), name
    for place in list_matrices(before):
        if place.public in adapter.pairs:
            a, b = adapter.pairs[place.public]
            expected = old[place.parameter][place.rows] + adapter.scale * (b @ a)
            torch.testing.assert_close(dict(after.named_parameters())[place.parameter][place.rows], expected)


def test_dropout_leaves_out_inputs_in_training_alone(model: Path, tmp_path: Path) -> None:
    settings = {**SETTINGS, "lora.dropout": 0.3}
    run = package.finetune(model, rows(), lora=4, settings=settings, output=tmp_path / "run", **FAST)
    again = package.finetune(model, rows(), lora=4, settings=settings, output=tmp_path / "again", **FAST)
    files = [one / "model" / "model.safetensors" for one in (tmp_path / "run", tmp_path / "again")]
    assert files[0].read_bytes() == files[1].read_bytes()
    merged = package.load(tmp_path / "run" / "model" / "adapter").predict(["c a d", "e b f"])
    np.testing.assert_allclose(merged.probabilities, run.model.predict(["c a d", "e b f"]).probabilities, atol=1e-5)
    assert json.loads((tmp_path / "run/model/adapter/adapter_config.json").read_text())["lora_dropout"] == 0.3
    plain = package.finetune(model, rows(), lora=4, settings=SETTINGS, output=tmp_path / "plain", **FAST)
    assert (
        plain.scores != again.scores
        or files[0].read_bytes() != (tmp_path / "plain/model/model.safetensors").read_bytes()
    )


def test_an_adapter_opens_as_its_model_and_merges(run: Path, model: Path, tmp_path: Path, bertie: CommandLine) -> None:
    texts = [text for text, _ in rows(20)]
    expected = package.predict(run, texts).probabilities
    np.testing.assert_allclose(package.predict(run / "model/adapter", texts).probabilities, expected, atol=1e-6)
    bertie.good("convert", model, "--adapter", run / "model/adapter", "-o", tmp_path / "merged")
    np.testing.assert_allclose(package.predict(tmp_path / "merged", texts).probabilities, expected, atol=1e-6)
    assert package.predict(tmp_path / "merged", texts).labels == package.predict(run, texts).labels


def test_an_adapter_of_another_base_is_refused(run: Path, tmp_path: Path, bertie: CommandLine) -> None:
    other = toy_model(tmp_path / "other", "abcdefghij", num_hidden_layers=2, hidden_act="relu")
    code, _, err = bertie("convert", other, "--adapter", run / "model/adapter", "-o", tmp_path / "merged")
    assert (code, "is of another base than" in " ".join(err.split())) == (3, True)
    assert not (tmp_path / "merged").exists()
    lone = tmp_path / "adapter"
    shutil.copytree(run / "model/adapter", lone)
    config = json.loads((lone / "adapter_config.json").read_text())
    (lone / "adapter_config.json").write_text(json.dumps({**config, "base_model_name_or_path": "gone"}))
    with pytest.raises(DataError, match=r"which is not here\. Pass its base"):
        package.predict(lone, ["a"])
    (lone / "adapter_config.json").write_text(json.dumps({**config, "use_dora": True}))
    with pytest.raises(DataError, match="use_dora=True, which is not read"):
        package.predict(lone, ["a"])
    (lone / "adapter_config.json").write_text(json.dumps({**config, "peft_type": "IA3"}))
    with pytest.raises(DataError, match="not of LoRA"):
        package.predict(lone, ["a"])


@pytest.fixture
def peft(monkeypatch: pytest.MonkeyPatch) -> Any:
    """peft, where it is installed."""
    return pytest.importorskip("peft")


def test_peft_opens_our_adapter(peft: Any, run: Path, model: Path) -> None:
    import transformers

    texts = [text for text, _ in rows(8)]
    tokenizer = transformers.AutoTokenizer.from_pretrained(run / "model")
    base = transformers.AutoModelForSequenceClassification.from_pretrained(model, num_labels=2)
    theirs = peft.PeftModel.from_pretrained(base, run / "model/adapter").eval()
    with torch.no_grad():
        logits = theirs(**tokenizer(texts, padding=True, return_tensors="pt")).logits
    np.testing.assert_allclose(logits.softmax(-1).numpy(), package.predict(run, texts).probabilities, atol=1e-5)


@pytest.mark.parametrize("targets", [["query", "value"], ["query", "word_embeddings"]])
def test_an_adapter_of_peft_opens_here(peft: Any, targets: list[str], model: Path, tmp_path: Path) -> None:
    import transformers

    shutil.copytree(model, tmp_path / "base")
    transformers.BertModel(transformers.AutoConfig.from_pretrained(model)).save_pretrained(tmp_path / "base")
    base = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "base", num_labels=3)
    config = peft.LoraConfig(r=2, lora_alpha=6, target_modules=targets, task_type="SEQ_CLS", init_lora_weights=False)
    theirs = peft.get_peft_model(base, config).eval()
    theirs.save_pretrained(tmp_path / "adapter")
    texts = [text for text, _ in rows(8)]
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    with torch.no_grad():
        logits = theirs(**tokenizer(texts, padding=True, return_tensors="pt")).logits
    answers = package.predict(tmp_path / "adapter", texts)
    np.testing.assert_allclose(logits.softmax(-1).numpy(), answers.probabilities, atol=1e-5)
    assert answers.classes == ("LABEL_0", "LABEL_1", "LABEL_2")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lora": 0}, "lora.rank"),
        ({"lora": 4000}, r"lora.rank is 4000; "),
        ({"settings": {"lora.dropout": 0.1}}, "lora has no effect without a rank"),
        ({"lora": 4, "settings": {"freeze": 1}}, "freeze changes the model in another way"),
        ({"lora": 4, "settings": {"from_scratch": True}}, "from_scratch changes the model"),
        ({"lora": 4, "settings": {"lora.targets": ["heads"]}}, "lora.targets"),
        ({"settings": {"freeze_names": ["bert.nothing.*"]}}, "no weight is called 'bert.nothing"),
        ({"settings": {"freeze_names": ["*.query.weight"]}}, "one matrix here"),
    ],
)
def test_bad_settings_are_refused(options: dict[str, Any], message: str, model: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        package.finetune(model, rows(), output=tmp_path / "run", **options, **FAST)
    assert not (tmp_path / "run").exists()


def test_a_resumed_run_ends_as_an_unbroken_one(model: Path, tmp_path: Path) -> None:
    from bertie.errors import Stopped

    class Stop(package.Callback):
        def on_step(self, run: Any, step: int, metrics: Any) -> None:
            if step == 12:
                raise Stopped("a signal", hint="")

    options = {"lora": 4, "settings": {**SETTINGS, "train.save_every": 5, "select": "best"}, **FAST}
    whole = package.finetune(model, rows(), output=tmp_path / "whole", **options)
    with pytest.raises(Stopped):
        package.finetune(model, rows(), output=tmp_path / "broken", callbacks=[Stop()], **options)
    package.finetune(model, rows(), output=tmp_path / "broken", **options)
    for name in ("model/model.safetensors", "model/adapter/adapter_model.safetensors"):
        assert (tmp_path / "broken" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
    assert whole.results["metrics"] == ["accuracy", "macro_f1"]


def test_names_to_freeze_are_read_from_a_text() -> None:
    for value in ("*.embeddings.*,*.layer.0.*", "[*.embeddings.*, *.layer.0.*]", ["*.embeddings.*", "*.layer.0.*"]):
        config = package.FinetuneConfig(model="x", freeze_names=value)  # type: ignore[arg-type]
        assert config.freeze_names == ("*.embeddings.*", "*.layer.0.*")


def test_weights_are_frozen_by_name(model: Path, tmp_path: Path) -> None:
    settings = {**SETTINGS, "freeze_names": ["bert.embeddings.*", "*.layer.0.*"]}
    package.finetune(model, rows(), settings=settings, output=tmp_path / "run", **FAST)
    before, _ = families.load(model)
    after, _ = families.load(tmp_path / "run/model")
    old = dict(before.named_parameters())
    for name, parameter in after.named_parameters():
        frozen = name.startswith(("encoder.embeddings.", "encoder.layers.0."))
        if name in old and ".pooler." not in name:
            assert torch.equal(parameter, old[name]) == frozen, name


def test_recomputed_layers_give_the_same_weights(model: Path, tmp_path: Path) -> None:
    weights = []
    for on in (False, True):
        settings = {**SETTINGS, "train.gradient_checkpointing": on}
        run = package.finetune(model, rows(), settings=settings, output=tmp_path / str(on), **FAST)
        weights.append((run.folder / "model/model.safetensors").read_bytes())
    assert weights[0] == weights[1], "with the same dropout"


def test_full_memory_halves_the_passes_and_keeps_the_batch(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bertie.train import loop

    plain = toy_model(tmp_path / "m", "abcdefghij", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    settings = {**SETTINGS, "train.micro_batch_size": 4}
    small = package.finetune(plain, rows(), settings=settings, output=tmp_path / "small", **FAST)
    backward, sizes = loop.backward, list[int]()

    def full(model: Any, objective: Any, batches: Any, *given: Any, **options: Any) -> Any:
        sizes.append(max(len(batch.sample_ids) for batch in batches))
        if sizes[-1] > 5:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return backward(model, objective, batches, *given, **options)

    monkeypatch.setattr(loop, "backward", full)
    settings = {**SETTINGS, "train.micro_batch_size": "auto"}
    auto = package.finetune(plain, rows(), settings=settings, output=tmp_path / "auto", **FAST)
    assert sizes[:3] == [16, 8, 4]
    assert {*sizes[3:]} == {4}
    assert "forward passes had 4 sequences" in " ".join(auto.results["notes"])
    one, other = (dict(families.load(run.folder / "model")[0].named_parameters()) for run in (small, auto))
    for name, parameter in one.items():
        torch.testing.assert_close(parameter, other[name])
    monkeypatch.setattr(loop, "backward", lambda *given, **options: (_ for _ in ()).throw(RuntimeError("no shape")))
    with pytest.raises(RuntimeError, match="no shape"):
        package.finetune(plain, rows(), settings=settings, output=tmp_path / "other", **FAST)


def test_linear_is_what_the_sum_computes() -> None:
    """W x + s B (A x) is (W + s B A) x, so that a merged model answers as one with an adapter."""
    torch.manual_seed(0)
    w, a, b, x = (torch.randn(*size, dtype=torch.float64) for size in ((5, 7), (2, 7), (5, 2), (3, 7)))
    torch.testing.assert_close(linear(x, w + 0.5 * b @ a), linear(x, w) + 0.5 * linear(linear(x, a), b))
