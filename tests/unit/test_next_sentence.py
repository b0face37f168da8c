"""`bertie next-sentence`: the head on pairs, compared with `transformers`."""

import json
import shutil

import pytest
import torch

from bertie.infer.pairs import find_pair_kind
from serving import make_models
from toys import CommandLine


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


def test_a_model_without_the_head_is_refused(folder, bertie: CommandLine, tmp_path):
    code, out, err = bertie("next-sentence", folder.parent / "sequence", "a", "b")
    assert (code, out) == (2, "")
    assert "head for pairs" in err
    code, out, err = bertie("next-sentence", folder, "a", " ")
    assert (code, out) == (3, "")
    assert "empty" in err
