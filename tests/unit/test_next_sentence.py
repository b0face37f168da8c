"""`bertie next-sentence`: the head on pairs, compared with `transformers`."""

import json
import shutil

import pytest
import torch

from bertie import load
from bertie.infer.pairs import EVEN, find_pair_kind
from bertie.models import families
from bertie.models.config import EncoderConfig
from bertie.objectives import build_objective
from bertie.text.tokenizer import Tokenizer
from serving import make_models
from toys import CommandLine, toy_model, toy_writer

SHAPE = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "initializer_range": 0.5,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_models(tmp_path_factory.mktemp("models"))["pretrained"]


def test_the_probability_is_that_of_transformers(folder, bertie: CommandLine):
    transformers = pytest.importorskip("transformers")
    model = transformers.BertForPreTraining.from_pretrained(folder).eval()
    tokenizer = transformers.BertTokenizerFast.from_pretrained(folder)
    with torch.no_grad():
        logits = model(**tokenizer("ab c", "d ef", return_tensors="pt")).seq_relationship_logits[0]
    found = json.loads(bertie.good("next-sentence", folder, "ab c", "d ef", "--json"))
    assert found["kind"] == "nsp"
    assert found["yes"] == pytest.approx(logits.softmax(-1)[0].item(), abs=2e-6)
    assert found["verdict"] == ("follows" if logits[0] >= logits[1] else "random")
    assert found["verdict"] in bertie.good("next-sentence", folder, "ab c", "d ef")


def test_sentence_order_is_told_by_the_family_and_by_the_run(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "run" / "model")
    assert find_pair_kind(copy) == "nsp"
    (tmp_path / "run" / "run.yaml").write_text("objectives:\n  mlm: {}\n  sop: {}\n")
    assert find_pair_kind(copy) == "sop"
    (tmp_path / "run" / "run.yaml").unlink()
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"model_type": "albert"}))
    assert find_pair_kind(copy) == "sop"


def test_a_head_for_pictures_gives_no_answer_for_texts(folder, bertie: CommandLine, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "run" / "model")
    (tmp_path / "run" / "run.yaml").write_text("objectives:\n  itm: {}\n")
    assert find_pair_kind(copy) == ""
    code, out, err = bertie("next-sentence", copy, "a", "b")
    assert (code, out, "picture" in err) == (2, "", True)


def test_without_the_head_a_masked_model_says_what_the_first_text_tells(tmp_path, bertie: CommandLine):
    folder = tmp_path / "model"
    toy_model(folder, ["a", "b", "c", "d"])
    tokenizer = Tokenizer.load(folder)
    config = EncoderConfig(vocab_size=tokenizer.vocab_size, **SHAPE)
    model = families.build(config, heads=build_objective({"mlm": {}}).heads, seed=3)
    families.save(model, folder, tokenizer=tokenizer)
    model.eval()
    first, second = tokenizer.ids(["a b a", "c d"])
    cls, sep, mask = tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id
    with torch.no_grad():
        logits = [
            model(torch.tensor([[cls, *prefix, mask, mask, sep]]))["mlm"][0, -3:-1].log_softmax(-1)
            for prefix in (first, [])
        ]
    after, alone = (float(rows[torch.arange(2), torch.tensor(second)].mean()) for rows in logits)
    found = json.loads(bertie.good("next-sentence", folder, "a b a", "c d", "--json"))
    assert found["gain"] == pytest.approx(after - alone, abs=2e-6)
    assert found["kind"] == "lm"
    assert (found["verdict"] == "follows") == (found["yes"] >= 0.5) == (found["gain"] >= EVEN)
    assert "nats per token" in bertie.good("next-sentence", folder, "a b a", "c d")
    long = json.loads(bertie.good("next-sentence", folder, "b " * 90 + "a b a", "c d", "--json", "--max-length", 8))
    assert long["gain"] == pytest.approx(
        json.loads(bertie.good("next-sentence", folder, "b a b a", "c d", "--json"))["gain"], abs=2e-6
    ), "a first text that is too long keeps its end"
    code, out, err = bertie("next-sentence", folder, "a", "c d " * 90)
    assert (code, out) == (3, "")
    assert "180 tokens" in err


def test_a_causal_model_reads_on(tmp_path, bertie: CommandLine):
    folder = toy_writer(tmp_path / "gpt", "gpt2")
    module = load(folder, device="cpu").module.eval()
    tokenizer = module.tokenizer
    first, second = tokenizer.ids(["a cat", "sat"])
    start = [tokenizer.cls_id]
    with torch.no_grad():
        rows = [
            module(torch.tensor([[*prefix, *second]]))["lm"][0, len(prefix) - 1 : -1].log_softmax(-1)
            for prefix in ([*start, *first], start)
        ]
    after, alone = (float(row[torch.arange(len(second)), torch.tensor(second)].mean()) for row in rows)
    found = json.loads(bertie.good("next-sentence", folder, "a cat", "sat", "--json"))
    assert found["gain"] == pytest.approx(after - alone, abs=2e-6)


def test_a_model_without_a_head_is_refused(folder, bertie: CommandLine, tmp_path):
    code, out, err = bertie("next-sentence", folder.parent / "sequence", "a", "b")
    assert (code, out) == (2, "")
    assert "head for pairs" in err
    code, out, err = bertie("next-sentence", folder, "a", " ")
    assert (code, out) == (3, "")
    assert "empty" in err
