"""Folders of version 0.1.0 are verified, used and resumed. Their layout is made of today's, file by file."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from test_finetune_starts import config as task_config
from test_finetune_starts import home as labelled
from test_pretrain import home, settings, thread

from bertie import families
from bertie.files import read_json, write_json
from bertie.runs.finetune import finetune, finetune_seeds
from bertie.runs.pretrain import pretrain
from bertie.runs.verify import shown, verify

assert home
assert labelled
assert thread  # fixtures

NEW = ("packing",)  # settings that 0.1.0 did not know


def aged(folder: Path) -> Path:
    """A folder as 0.1.0 wrote it: no lists of files, results without a format, plans without a hash."""
    for path in folder.rglob("checksums.json"):
        path.unlink()
    for path in folder.rglob("results.json"):
        results = read_json(path)
        del results["format"]
        results["identity"] = without_new(results.get("identity", {}))
        write_json(path, results)
    for path in folder.rglob("run.yaml"):
        path.write_text(yaml.safe_dump(without_new(yaml.safe_load(path.read_text())), sort_keys=False))
    for path in folder.rglob("plans/*.json"):
        write_json(path, read_json(path)["report"])
    return folder


def without_new(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in NEW}


def same_weights(one: Path, other: Path) -> bool:
    first, second = (families.load(folder / "model")[0].state_dict() for folder in (one, other))
    return first.keys() == second.keys() and all(np.array_equal(first[name], second[name]) for name in first)


def test_a_pretraining_run_is_well_and_goes_on(home: Path, tmp_path: Path) -> None:
    old = shutil.copytree(home, tmp_path / "home")
    pretrain(settings(old), tmp_path / "run")
    whole, stopped = (shutil.copytree(tmp_path / "run", tmp_path / name) for name in ("whole", "stopped"))
    for path in (stopped / "results.json", stopped / "report.html", *stopped.glob("checkpoint-6/*")):
        path.unlink()
    (stopped / "checkpoint-6").rmdir()
    shutil.rmtree(stopped / "model")
    lines = [json.loads(line) for line in (stopped / "metrics.jsonl").read_text().splitlines()]
    kept = [json.dumps(line) for line in lines if line["step"] <= 3]
    (stopped / "metrics.jsonl").write_text("\n".join(kept) + "\n")
    for folder in (old, whole, stopped):
        aged(folder)
    for folder in (whole, stopped, whole / "model", old / "corpus", old / "tokenizer"):
        report = verify(folder)
        assert report["ok"], shown(report)
    assert pretrain(settings(old), whole)["step"] == 6
    pretrain(settings(old), stopped)
    assert same_weights(stopped, tmp_path / "run")
    start = {"model": str(whole / "model"), "model_overrides": {}}
    assert pretrain(settings(old).model_copy(update=start), tmp_path / "on")["step"] == 6


@pytest.mark.parametrize("finished", [True, False])
def test_a_run_of_several_seeds_goes_on(labelled: Path, tmp_path: Path, finished: bool) -> None:
    """It has no file of its own until it has finished: the seeds' folders tell what it is."""
    made = finetune_seeds(task_config(labelled), tmp_path / "seeds", 2)
    old = aged(tmp_path / "seeds")
    (old / ".lock").unlink()
    if not finished:
        (old / "results.json").unlink()
        (old / "report.html").unlink()
        shutil.rmtree(old / "seed-1")
    again = finetune_seeds(task_config(labelled), old, 2)
    assert again["over_seeds"] == made["over_seeds"]


def test_a_fine_tuned_model_is_a_start(labelled: Path, tmp_path: Path) -> None:
    finetune(task_config(labelled), tmp_path / "first")
    first = aged(tmp_path / "first")
    assert verify(first)["ok"]
    assert finetune(task_config(labelled), first)["dev"] == read_json(first / "results.json")["dev"]
    finetune(task_config(labelled, "other.tsv", model=str(first / "model")), tmp_path / "second")
    assert families.load(tmp_path / "second" / "model")[0].labels == ("bad", "good")
