"""`bertie finetune MODEL --against OTHER`: the same seeds from both, paired differences, fresh weights named."""

import json

import pytest
from test_cli_finetune import LETTERS, rows, write

from bertie.files import read_json
from bertie.metrics.compare import SeedSummary
from bertie.models import families
from bertie.text.tokenizer import Tokenizer
from toys import toy_model

FAST = ("train.batch_size=16", "train.precision=fp32", "max_length=24", "epochs=1", "optim.lr=1e-3")


@pytest.fixture
def models(tmp_path):
    """Two models of one shape; the second has no pooler, as after pre-training without sentence pairs."""
    first = toy_model(tmp_path / "a", LETTERS, max_position_embeddings=32)
    model, _ = families.load(first)
    bare = families.build(model.config.replace(pooler=False), heads={}, seed=1)
    families.save(bare, tmp_path / "b", tokenizer=Tokenizer.load(first))
    return first, tmp_path / "b"


def test_the_same_seeds_from_both(models, bertie, tmp_path):
    table, out = write(tmp_path / "train.tsv", rows(120)), tmp_path / "both"
    command = ("finetune", models[0], "--against", models[1], "--train", table, "--seeds", "2", "-o", out, *FAST)
    found = json.loads(bertie.good(*command, "--json"))
    assert found == read_json(out / "compare.json")
    assert found["differing"] == ["model"]
    first, second = found["runs"]
    values = [
        [read_json(out / name / f"seed-{seed}/results.json")["dev"]["accuracy"] for seed in (0, 1)]
        for name in ("first", "second")
    ]
    assert first["minus_first"] == {}
    differences = [b - a for a, b in zip(*values, strict=True)]
    assert second["minus_first"]["accuracy"] == SeedSummary.over(differences).as_json()
    assert "encoder.pooler" not in " ".join(first["fresh"])
    assert set(second["fresh"]) > set(first["fresh"]), "the second has no pooler of its own"
    assert "Settings that differ" in (out / "compare.html").read_text()
    checked = json.loads(bertie.good("verify", out, "--json"))["checks"]
    assert {"first: files", "second: seed-1: model"} <= {check["name"] for check in checked}
    told = bertie.good(*command)  # finished: read, not trained again
    assert "started from random weights" in told
    code, _, err = bertie("predict", out, table)
    assert (code, f"Choose one of them: {out / 'first' / 'seed-0'}" in err) == (2, True), err


def test_a_folder_of_another_kind_is_refused(models, bertie, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").write_text("mine")
    table = write(tmp_path / "train.tsv", rows(40))
    code, _, err = bertie(
        "finetune", models[0], "--against", models[1], "--train", table, "-o", tmp_path / "mine", *FAST
    )
    assert (code, "not a comparison" in " ".join(err.split())) == (2, True)
    assert not (tmp_path / "mine/first").exists()


def test_a_second_model_that_is_not_there_is_told_before_the_first_run(models, bertie, tmp_path):
    table, out = write(tmp_path / "train.tsv", rows(40)), tmp_path / "above" / "both"
    code, _, err = bertie("finetune", models[0], "--against", "nomodel", "--train", table, "-o", out, *FAST)
    assert (code, "nomodel is not a folder" in " ".join(err.split())) == (3, True), err
    assert not out.parent.exists()


def test_an_unknown_device_replaces_no_run(models, bertie, tmp_path):
    table, out = write(tmp_path / "train.tsv", rows(40)), tmp_path / "run"
    bertie.good("finetune", models[0], "--train", table, "-o", out, *FAST)
    code, _, err = bertie(
        "finetune", models[0], "--train", table, "-o", out, "--overwrite", *FAST, "train.device=cuda:99"
    )
    assert (code, "has no device" in " ".join(err.split())) == (2, True), err
    bertie.good("verify", out)
