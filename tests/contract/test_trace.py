"""`bertie trace`: the steps of one text, compared with transformers on the same weights; and the page that explains
them, whose shapes are those that the command prints."""

import json
import re
from importlib import import_module
from pathlib import Path

import pytest
import torch
from test_families import FAMILIES, built

from bertie.apps.trace.trace import Step, trace, untrained
from bertie.errors import DataError, UsageError, WrongModel
from bertie.models import families
from bertie.models.model import TorchModel
from bertie.models.variant import Variant
from bertie.text.tokenizer import Tokenizer
from toys import CommandLine, toy_model

PAGE = Path(__file__).parents[2] / "docs" / "bert-in-the-code.md"
TEXT = "the cat sat on the mat , and the dog slept by the door ."


@pytest.fixture
def bertie(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


def by_name(steps: list[Step]) -> dict[str, Step]:
    return {step.name: step for step in steps}


def test_the_numbers_are_those_of_transformers(tmp_path: Path):
    from transformers import BertForMaskedLM

    model = untrained(TEXT)
    families.save(model, tmp_path, tokenizer=model.tokenizer)
    steps = by_name(trace(model, TEXT, seed=1))
    tokens, masks = steps["tokenizer"].values, steps["masking"].values
    ids = torch.tensor([[row["id"] for row in tokens]])
    labels = torch.full_like(ids, -100)
    assert model.tokenizer is not None
    for row in masks:
        labels[0, row["position"]] = ids[0, row["position"]]
        ids[0, row["position"]] = model.tokenizer.token_to_id(row["becomes"])
    theirs = BertForMaskedLM.from_pretrained(tmp_path, attn_implementation="eager").eval()
    with torch.inference_mode():
        found = theirs(ids, labels=labels, output_hidden_states=True, output_attentions=True)

    assert steps["loss"].values[0]["loss"] == pytest.approx(float(found.loss), rel=1e-5)
    assert steps["loss"].values[0]["predictions"] == len(masks) == steps["head"].arrays[0].shape[0]
    place = masks[0]["position"]
    for i in range(1, model.config.num_hidden_layers + 1):
        (row,) = steps[f"layer {i}"].values
        assert row["numbers"] == pytest.approx(found.hidden_states[i][0, place, :4].tolist(), abs=1e-5)
        assert row["by"] == pytest.approx(float(found.attentions[i - 1][0].mean(0)[place].max()), rel=1e-4)
        assert steps[f"layer {i}"].arrays[0].shape == found.attentions[i - 1].shape
    parts = {row["part"]: row["numbers"] for row in steps["embeddings"].values}
    assert parts["embeddings"] == pytest.approx(found.hidden_states[0][0, place, :4].tolist(), abs=1e-5)
    assert parts["word"] == pytest.approx(theirs.bert.embeddings.word_embeddings(ids)[0, place, :4].tolist())


@pytest.mark.parametrize("variant", FAMILIES)
def test_every_family_is_traced_or_refused(variant: Variant, tmp_path: Path):
    model: TorchModel = next(
        (built(variant, name) for name, heads in variant.architectures.items() if "mlm" in heads), built(variant)
    )
    model.tokenizer = Tokenizer.load(toy_model(tmp_path / "toy", [f"w{i}" for i in range(model.config.vocab_size - 5)]))
    if "mlm" not in model.heads:
        with pytest.raises(UsageError, match="masked-LM"):
            trace(model, "w1 w2 w3")
        return
    if model.config.layer.kind in ("recurrent", "convolutional"):
        with pytest.raises(WrongModel):
            trace(model, "w1 w2 w3")
        return
    steps = by_name(trace(model, "w1 w2 w3 w4 w5"))
    assert steps["tokenizer"].arrays[0].shape == (1, 7)
    config = model.config
    sizes = {"B": 1, "S": 7, "E": config.embedding_size or config.hidden_size, "H": config.hidden_size}
    for array in steps["embeddings"].arrays:
        assert array.shape == tuple(sizes[letter] for letter in array.axes.split())
    assert {row["part"] for row in steps["embeddings"].values} == {array.name for array in steps["embeddings"].arrays}
    layers = model.config.num_hidden_layers + (model.config.get("co_layers") or 0)
    assert [name for name in steps if name.startswith("layer")] == [f"layer {i + 1}" for i in range(layers)]
    assert steps["head"].arrays[0].shape == (1, model.config.vocab_size)
    assert 0 < steps["loss"].values[0]["loss"] < 100


def test_the_command_prints_what_the_function_returns(bertie: CommandLine, tmp_path: Path):
    folder = toy_model(tmp_path / "bare", ["the", "cat"])
    model = untrained(TEXT, seed=3)
    families.save(model, tmp_path / "model", tokenizer=model.tokenizer)
    out = bertie.good("trace", TEXT, "--model", tmp_path / "model", "--json", "--seed", 3)
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["name"] for line in lines] == [step.name for step in trace(model, TEXT, seed=3)]
    code, out, err = bertie("trace", TEXT)
    assert (code, out.count("\n\n")) == (0, len(lines))
    assert "random weights" in err
    assert "untrained" not in bertie("trace", TEXT, "-m", tmp_path / "model")[2]
    assert bertie("trace", TEXT, "-m", folder)[0] == 2
    assert bertie("trace", "  ")[0] == 3
    assert bertie("trace", "cat " * 600)[0] == 3


def test_what_cannot_be_traced_is_refused():
    model = untrained(TEXT)
    with pytest.raises(DataError, match="no tokens"):
        trace(model, "")
    with pytest.raises(DataError, match="no tokens"):
        trace(model, "[SEP]")
    model.tokenizer = None
    with pytest.raises(UsageError, match="tokenizer"):
        trace(model, TEXT)


# The page ------------------------------------------------------------------------------------------------------------


def test_the_symbols_on_the_page_are_in_the_files_it_links_to():
    text = PAGE.read_text(encoding="utf-8")
    links = re.findall(r"\[`([\w.]+)`\]\(\.\./src/([\w/]+)\.py\)", text)
    assert len(links) > 12
    for symbol, path in links:
        thing = import_module(path.replace("/", "."))
        for name in symbol.split("."):
            thing = getattr(thing, name)


def test_the_steps_on_the_page_are_those_the_command_prints(bertie: CommandLine):
    text = PAGE.read_text(encoding="utf-8")
    words, seed = re.findall(r'^bertie trace "(.*?)" --seed (\d+)$', text, re.MULTILINE)[0]
    steps = re.compile(r"^(?:\d\. .*|   .*\) = \(.*|   \d+ +\S+ +\S+ +(?:masked|random|unchanged))$", re.MULTILINE)
    shown = "".join(re.findall(r"```text\n(.*?)```", text, re.DOTALL))
    assert steps.findall(shown) == steps.findall(bertie.good("trace", words, "--seed", seed))
    for step in trace(untrained(words, int(seed)), words, seed=int(seed)):
        module, name = step.symbol.split(":")
        assert f"[`{name}`](../src/{module.replace('.', '/')}.py)" in text, f"the page does not link to {step.symbol}"
