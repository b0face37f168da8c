"""`bertie.Model`: one object whatever engine runs it, and what it says of itself."""

import gc
import json
from pathlib import Path

import pandas
import pytest
import torch

import bertie
import bertie as library
from bertie.errors import DataError, UsageError
from bertie.infer.engine import check_names
from bertie.models import families
from bertie.models.heads import HEADS
from bertie.text.tokenizer import Tokenizer
from toys import CommandLine, toy_model

TEXTS = ["a b c", "d"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier."""
    home = tmp_path_factory.mktemp("models")
    encoder = toy_model(home / "encoder", "abcdefghijkl")
    config = families.config(encoder)
    model = families.build(config, heads={"sequence": HEADS["sequence"](config, 2)}, seed=1)
    families.save(model, home / "m", tokenizer=Tokenizer.load(encoder), labels=("bad", "good"))
    return home / "m"


@pytest.mark.parametrize("engine", ["torch", "native"])
def test_it_says_what_it_is(folder: Path, engine: str) -> None:
    model = bertie.load(folder, engine=engine)
    assert (model.engine, model.device, model.precision) == (engine, "cpu", "fp32")
    assert check_names(model.precision, model.engine) == engine  # they are values of `load`
    assert (model.task, model.labels, model.max_length) == ("sequence", ("bad", "good"), 64)
    assert repr(model) == f"Model({str(folder)!r}, sequence, 2 labels, {engine}, cpu, fp32)"
    assert "bad, good" in model._repr_html_()
    assert model.can == ("predict", "evaluate", "embed", "similarity", "rank")
    assert model.info().parameters["total"] == sum(one.numel() for one in model.module.parameters())


def test_what_it_cannot_do_says_what_it_can(folder: Path) -> None:
    model = bertie.load(folder)
    can = "It can predict, evaluate, embed, similarity, rank"
    for call in (lambda: model.fill_mask("a [MASK]"), lambda: model.perplexity(["a"]), lambda: model.write(["a"])):
        with pytest.raises(UsageError, match=can):
            call()
    with pytest.raises(UsageError, match=f"no head for pairs of texts. {can}"):
        model.next_sentence("a", "b")
    with pytest.raises(UsageError, match=r"no task head.*It can embed, similarity"):
        bertie.load(folder.parent / "encoder").predict(["a"])


def test_methods_and_functions_are_the_same_code(folder: Path) -> None:
    model = bertie.load(folder)
    for other in (folder, str(folder), model, model.module, model.runner):
        tokens = {} if other is not model.runner else {"model": bertie.Model(model.runner, model.tokenizer)}
        assert bertie.predict(tokens.get("model", other), TEXTS).labels == model.predict(TEXTS).labels


def test_a_module_that_was_trained_answers_and_is_saved(folder: Path, tmp_path: Path) -> None:
    model = bertie.load(folder, engine="torch")
    before = model.predict(TEXTS).probabilities
    with torch.no_grad():
        model.module.heads["sequence"].get_parameter("classifier.weight").mul_(3)
    after = model.predict(TEXTS).probabilities
    assert (before != after).any()
    assert (bertie.load(model.save(tmp_path / "trained"), engine="torch").predict(TEXTS).probabilities == after).all()
    assert (bertie.Model(model.module).predict(TEXTS).probabilities == after).all()
    untouched = bertie.load(folder)
    untouched.save(tmp_path / "copy")
    assert (tmp_path / "copy/model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()
    with pytest.raises(UsageError, match="copy"):
        untouched.save(tmp_path / "copy")


def test_the_model_of_a_run_lasts_longer_than_the_run(folder: Path, tmp_path: Path) -> None:
    rows = [(f"{'abcd'[i % 4]} {'efgh'[i % 3]}", ("bad", "good")[i % 2]) for i in range(24)]
    model = bertie.finetune(folder.parent / "encoder", rows, epochs=1, max_length=16).model
    gc.collect()
    assert model.module.training is False
    assert bertie.load(model.save(tmp_path / "kept")).labels == ("bad", "good")


def test_a_frame_has_its_columns_and_a_column_for_each_label(folder: Path) -> None:
    frame = pandas.DataFrame({"review": ["a b", None, "c"], "stars": [1, 2, 3]}, index=[5, 5, 2])
    table = bertie.load(folder).predict(frame, text="review").to_pandas()
    assert [*table] == ["review", "stars", "label", "probability", "scores.bad", "scores.good", "error"]
    assert table["error"].notna().tolist() == [False, True, False]
    assert [*frame] == ["review", "stars"]


def test_a_file_larger_than_memory_is_written_while_it_is_read(folder: Path, tmp_path: Path) -> None:
    written = bertie.load(folder).predict(({"text": "a b"} for _ in range(2_500)), output=tmp_path / "out.csv")
    assert (written.rows, written.answers, written.files) == (2_500, 2_500, (tmp_path / "out.csv",))
    with pytest.raises(UsageError, match="exists"):
        bertie.predict(folder, TEXTS, output=tmp_path / "out.csv")
    with pytest.raises(UsageError, match="extension"):
        bertie.predict(folder, TEXTS, output=tmp_path / "out.foo")


def test_an_explanation_is_that_of_the_command(folder: Path, bertie: CommandLine) -> None:
    model = library.load(folder)
    explanation = model.explain("a b c")
    printed = json.loads(bertie.good("explain", folder, "a b c", "--json"))
    assert json.loads(json.dumps(explanation.to_dict())) == printed
    assert [text for text, _ in explanation.words] == [one["text"] for one in printed["words"]]
    assert "<mark" in explanation._repr_html_()
    assert all(one.requires_grad for one in model.module.parameters())
    with pytest.raises(UsageError, match="Unknown method"):
        model.explain("a", method="magic")


def test_an_exported_model_is_opened_again(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    model = library.load(folder)
    texts = [f"{a} {b} {c}" for a in "abcdefg" for b in "defghi" for c in "ghijkl"]
    graph = library.load(model.export(tmp_path / "graph", texts=texts))
    assert (graph.engine, graph.labels) == ("onnx", model.labels)
    assert graph.predict(TEXTS).labels == model.predict(TEXTS).labels
    with pytest.raises(UsageError, match="Unknown format 'onx'"):
        model.export(tmp_path / "other", to="onx")


def test_a_compressed_model_is_a_copy_that_is_saved(folder: Path, tmp_path: Path) -> None:
    model = library.load(folder)
    before = model.predict(TEXTS)
    texts = [" ".join("abcdefghijkl"[(i * k + k) % 12] for k in range(1, 30)) for i in range(400)]
    small = model.compress(texts, force=True)
    assert model.predict(TEXTS) == before
    assert small.labels == model.labels
    again = library.load(small.save(tmp_path / "small"))
    assert again.predict(TEXTS).labels == small.predict(TEXTS).labels
    size = [(path / "model.safetensors").stat().st_size for path in (tmp_path / "small", folder)]
    assert size[0] < size[1]
    with pytest.raises(UsageError, match="quantized weights already"):
        again.compress(texts)
    with pytest.raises(DataError, match="too few"):
        model.compress(TEXTS)
