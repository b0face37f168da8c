"""The page of a fine-tuning run: what it shows of the answers, and what its folder may hold beforehand."""

import json

import pytest
from test_cli_finetune import FAST, model, one_thread, run, train

assert model
assert one_thread
assert run
assert train  # fixtures


def test_a_folder_with_other_files_is_refused_and_left_as_it_is(run, model, train, tmp_path):
    out = tmp_path / "thesis"
    out.mkdir()
    (out / "chapter-1.txt").write_text("years of work")
    for seeds in ((), ("--seeds", 2)):
        done = run("finetune", model, "--train", train, "-o", out, *seeds, "epochs=1", *FAST)
        assert done.returncode == 2
        assert "is not empty, and what it holds is no run" in done.stderr
    assert [path.name for path in out.iterdir()] == ["chapter-1.txt"]


def test_one_seed_and_several_do_not_share_a_folder(run, model, train, tmp_path):
    out = tmp_path / "run"
    command = ("finetune", model, "--train", train, "-o", out, "epochs=1", *FAST, "--json")
    one = run(*command, "--seed", 7)
    assert json.loads(one.stdout)["identity"]["train.seed"] == 7
    assert "seed: 7" in (out / "run.yaml").read_text()
    several = run(*command, "--seeds", 2)
    assert several.returncode == 2
    assert "holds a run of one seed" in several.stderr
    assert json.loads((out / "results.json").read_text()) == json.loads(one.stdout)
    summed = run(*command, "--seeds", 2, "--seed", 7, "--overwrite")
    assert [*json.loads(summed.stdout)["seeds"]] == ["7", "8"]
    assert json.loads(summed.stdout)["seeds"]["7"]["accuracy"] == pytest.approx(
        json.loads(one.stdout)["dev"]["accuracy"]
    )
    again = run(*command, "--seeds", 2, "--seed", 7)
    assert json.loads(again.stdout) == json.loads(summed.stdout)
    assert run(*command).returncode == 2
