"""`bertie compare`: figures with intervals over seeds, cost, the settings that differ; a table, a page, JSON."""

import json
import re

import pytest
from test_cli_finetune import LETTERS, rows, write

from bertie.files import read_json
from bertie.metrics.compare import SeedSummary
from bertie.runs.compare import compare_runs, cost_rows, gather
from toys import toy_model

FAST = ("train.batch_size=16", "train.precision=fp32", "max_length=24", "epochs=1", "train.eval_every=4")


@pytest.fixture
def runs(bertie, tmp_path):
    model = toy_model(tmp_path / "model", LETTERS, max_position_embeddings=32)
    table = write(tmp_path / "train.tsv", rows(120))
    bertie.good("finetune", model, "--train", table, "-o", tmp_path / "a", "--seeds", "2", "optim.lr=1e-4", *FAST)
    bertie.good("finetune", model, "--train", table, "-o", tmp_path / "b", "optim.lr=3e-3", *FAST)
    return tmp_path / "a", tmp_path / "b"


def test_two_runs_side_by_side(runs, bertie, tmp_path):
    found = json.loads(bertie.good("compare", *runs, "--json"))
    assert found["differing"] == ["optim.lr"]  # not the seed: it is what the interval is over
    one, other = found["runs"]
    assert one["settings"] == {"optim.lr": 1e-4}
    values = [read_json(runs[0] / f"seed-{seed}" / "results.json")["dev"]["accuracy"] for seed in (0, 1)]
    assert one["figures"]["accuracy"] == SeedSummary.over(values).as_json()
    assert other["figures"]["accuracy"]["low"] is None
    assert one["cost"]["steps"] == 2 * other["cost"]["steps"] > 0
    assert one["cost"]["parameters"] == other["cost"]["parameters"] > 1000
    out = bertie.good("compare", *runs, "-o", tmp_path / "page.html")
    assert "optim.lr" in out
    page = (tmp_path / "page.html").read_text()
    assert "Training curves" in page
    assert "<svg" in page
    bertie.good("compare", *runs, "--card-of", runs[1] / "model")
    card = (runs[1] / "model" / "README.md").read_text()
    assert re.search(r"\| a \| 2 \| accuracy 0?\.?\d+.* \(.* to .*\)", card)
    assert card.count("## Compared runs") == 1


def test_what_cannot_be_compared_says_so(runs, bertie, tmp_path):
    code, _, err = bertie("compare", runs[1])
    assert (code, "needs at least two runs" in err) == (2, True)
    code, _, err = bertie("compare", *runs, "--card-of", tmp_path)
    assert (code, "is not a model folder" in " ".join(err.split())) == (3, True)
    code, _, err = bertie("compare", runs[1], tmp_path / "nothing")
    assert (code, "is not a run" in " ".join(err.split())) == (3, True)


def test_objectives_without_options_are_settings_that_differ(tmp_path):
    for name, objectives in (("a", "{mlm: {}, nsp: {}}"), ("b", "{mlm: {rate: 0.2}, sop: {}}")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.yaml").write_text(f"corpus: c\nobjectives: {objectives}\n")
        line = {"kind": "train", "step": 1, "loss": 1.0, "tokens": 1, "elapsed_s": 1.0}
        (tmp_path / name / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    found = compare_runs(gather([tmp_path / "a", tmp_path / "b"]))
    assert found["runs"][0]["settings"] == {"objectives.nsp": True, "objectives.mlm.rate": None, "objectives.sop": None}
    assert found["runs"][1]["settings"] == {"objectives.nsp": None, "objectives.mlm.rate": 0.2, "objectives.sop": True}


def test_a_trial_whose_weights_are_gone_has_no_parameters():
    cost = {"steps": 3, "of": 3, "tokens": 1800, "seconds": 2.0}
    _, ((*_, parameters),) = cost_rows({"runs": [{"run": "a", "cost": cost}]})
    assert parameters == "–"
