"""What a run took: counters of energy against made-up machines, and its place in results, report and card."""

import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_cli_finetune import model, train
from test_cli_finetune import settings as finetune_settings
from test_pretrain import home, settings, thread

from bertie.costs import catalog, meter
from bertie.costs.meter import JOULES, Meter, Rapl, Usage
from bertie.data import corpus
from bertie.files import read_json
from bertie.report.values import number
from bertie.runs import model_card
from bertie.runs.config import FinetuneConfig
from bertie.runs.finetune import run_finetune
from bertie.runs.pretrain import run_pretrain
from bertie.runs.usage import energy
from bertie.runs.verify import verify_folder
from bertie.tasks.datasets import DATASETS

assert home
assert model
assert thread
assert train  # fixtures


def zone(root: Path, folder: str, name: str, joules: float, most: float = 1000.0) -> None:
    path = root / folder
    path.mkdir(parents=True, exist_ok=True)
    for file, text in {
        "name": name,
        "energy_uj": str(int(joules * 1e6)),
        "max_energy_range_uj": str(int(most * 1e6)),
    }.items():
        (path / file).write_text(text + "\n")


def test_packages_and_memory_are_added_and_nothing_twice(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", "package-0", 100)
    zone(tmp_path, "intel-rapl:1", "package-1", 200)
    zone(tmp_path, "intel-rapl:0:0", "core", 50)  # part of the package
    zone(tmp_path, "intel-rapl:0:1", "dram", 10)
    zone(tmp_path, "intel-rapl:2", "psys", 400)  # the entire machine, packages included
    zone(tmp_path, "intel-rapl-mmio:0", "package-0", 100)  # the same package by another way
    counter = Rapl(tmp_path)
    assert counter.readable
    assert counter.joules() == 0
    for folder, name, now in (
        ("0", "package-0", 130),
        ("1", "package-1", 205),
        ("0:0", "core", 70),
        ("0:1", "dram", 11),
    ):
        zone(tmp_path, f"intel-rapl:{folder}", name, now)
    zone(tmp_path, "intel-rapl:2", "psys", 500)
    assert counter.joules() == pytest.approx(36)


def test_a_counter_that_starts_again_goes_on(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", "package-0", 990)
    counter = Rapl(tmp_path)
    for now, total in ((20, 30), (995, 1005), (5, 1015)):  # rounds end at 1,000 J
        zone(tmp_path, "intel-rapl:0", "package-0", now)
        assert counter.joules() == pytest.approx(total)


def test_counters_that_cannot_be_read_are_estimated(tmp_path: Path) -> None:
    assert not Rapl(tmp_path / "missing").readable
    zone(tmp_path, "intel-rapl:0", "package-0", 100)
    zone(tmp_path, "intel-rapl:1", "package-1", 100)
    (tmp_path / "intel-rapl:1" / "energy_uj").write_text("")  # as good as forbidden
    assert not Rapl(tmp_path).readable, "half a machine is no measurement"
    used = Meter(powercap=tmp_path).read()
    assert used.method.startswith("estimated")
    assert used.kwh is not None
    assert used.peak_bytes > 50e6
    zone(tmp_path, "intel-rapl:1", "package-1", 100)
    measured = Meter(powercap=tmp_path)
    zone(tmp_path, "intel-rapl:1", "package-1", 460)
    assert measured.read().method.startswith("measured (RAPL")
    assert measured.read().kwh == pytest.approx(360 / JOULES)
    (tmp_path / "intel-rapl:1" / "energy_uj").unlink()
    assert measured.read().kwh == pytest.approx(360 / JOULES)


def test_several_starts_are_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zone(tmp_path, "intel-rapl:0", "package-0", 0)
    again = Meter(powercap=tmp_path)
    again.resume(Usage(100.0, 90.0, 7 << 40, 0.5, again.read().method).as_json())
    zone(tmp_path, "intel-rapl:0", "package-0", 36)
    used = again.read()
    assert used.kwh == pytest.approx(0.5 + 36 / JOULES)
    assert used.seconds > 100
    assert used.peak_bytes == 7 << 40
    assert used.method.count("measured") == 1
    elsewhere = Meter(powercap=tmp_path / "none")
    elsewhere.resume(used.as_json())
    assert "; then estimated" in elsewhere.read().method
    once_more = Meter(powercap=tmp_path / "none")
    once_more.resume(elsewhere.read().as_json())
    assert once_more.read().method == elsewhere.read().method, "the same method twice is one"


def test_gpus_by_nvml_or_by_the_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter, "peak_bytes", lambda device: 1)
    monkeypatch.setitem(sys.modules, "pynvml", None)  # not installed
    assert "not in the catalog" in Meter(1, "Some GPU", tmp_path).read().method
    assert Meter(1, "Some GPU", tmp_path).read().kwh is None
    assert Meter(2, "NVIDIA H200", tmp_path).read().method == "estimated (80% of 700 W per GPU)"
    readings = iter([1000, 5000, 61_000, 65_000])  # mJ: two GPUs, twice
    nvml = SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByIndex=lambda number: number,
        nvmlDeviceGetHandleByUUID=lambda name: name,
        nvmlDeviceGetTotalEnergyConsumption=lambda handle: next(readings),
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-5a")
    used = Meter(2, "NVIDIA H200", tmp_path).read()
    assert used.kwh == pytest.approx(120 / JOULES)
    assert used.method == "measured (NVML)"


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("Tesla T4", "t4"),
    ],
)
def test_drivers_names_of_devices(name: str, key: str) -> None:
    found = catalog.find_device(name)
    assert found is not None
    assert found.name == catalog.Catalog.read().device(key).name
    assert catalog.find_device("NVIDIA GeForce GTX 1080") is None


def test_energy_in_words_says_how_it_is_known() -> None:
    assert "half to twice" in energy(Usage(1, 1, 1, 0.25, "estimated (4 W per busy thread)"))
    said = energy(Usage(1, 1, 1, 0.25, "measured (NVML)"))
    assert "half" not in said
    assert "0.25 kWh, 120 g CO2, measured (NVML)" in said
    assert energy(Usage(1, 1, 1, None, "not known (no counter)")) == "The energy is not known (no counter)."


def check_run(run: Path, results: Any) -> None:
    used = results["usage"]
    assert used["seconds"] > 0
    assert used["peak_bytes"] > 50e6
    assert used["method"].startswith(("estimated", "measured"))
    html = (run / "report.html").read_text()
    assert "<h2>Cost</h2>" in html
    assert used["method"].partition(" (")[0] in html
    card = (run / "model" / "README.md").read_text()
    assert card.count("## Cost of the training") == 1
    assert "| cost | forecast | measured | difference |" in card
    assert re.search(r"\d (MB|GB)", card)
    assert verify_folder(run).ok


def test_a_pretraining_run_has_its_cost(home: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    first = run_pretrain(settings(home), run)
    check_run(run, first)
    longer = run_pretrain(settings(home, "train.steps=8"), run, allow_change=("train.steps",))
    check_run(run, longer)
    state = read_json(run / "checkpoint-6" / "state.json")["usage"]
    assert longer["usage"]["seconds"] > state["seconds"] > 0


def test_a_finetuning_run_has_its_cost(model: Any, train: Any, tmp_path: Path) -> None:
    run = tmp_path / "run"
    check_run(run, run_finetune(finetune_settings(model, train), run))


def test_the_card_of_a_model_tells_its_training(home: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    run_pretrain(settings(home, "train.keep_checkpoints=true"), first)
    run_pretrain(
        settings(home).model_copy(update={"model": str(first / "checkpoint-6"), "model_overrides": {}}), second
    )
    card = (second / "model" / "README.md").read_text()
    for section in ("Training", "Use and limits", "Training text", "Cost of the training"):
        assert card.count(f"\n## {section}\n") == 1
    assert "of at most 32 tokens" in card
    assert "License: none was stated. The terms of the training text hold" in card
    assert "| started from | checkpoint-6 |" in card
    assert "Before it, first: 6 steps, " in card
    assert str(tmp_path) not in card
    assert [stage.name for stage in model_card.stages(str(second))] == ["second", "first"]
    assert [*model_card.stages("bert-tiny"), *model_card.stages(str(tmp_path))] == []


def test_the_card_of_a_fine_tuned_model_has_the_terms_of_a_published_set(tmp_path: Path) -> None:
    results = {"train_examples": 9, "metrics": ["accuracy"], "dev": {"accuracy": 0.5, "examples": 4}}
    for config, terms in (
        (FinetuneConfig(model="bert-tiny", data="nsmc"), f"The terms of nsmc ({DATASETS['nsmc'].licence}) hold"),
        (FinetuneConfig(model="bert-tiny", train_file="a/mine.csv"), "The terms of mine.csv hold"),
    ):
        for _ in range(2):  # a second call replaces the section
            model_card.write_finetuning(tmp_path, config, results)
        card = (tmp_path / "README.md").read_text()
        assert card.count("## Use and limits") == 1
        assert terms in card
        assert "the task sequence, on texts like those of the training, of at most 128 tokens" in card


def test_the_card_tells_a_named_model_from_a_preset() -> None:
    assert model_card._start("starter-en", preset="random weights of {}") == "starter-en"
    assert model_card._start("bert-tiny", preset="random weights of {}") == "random weights of bert-tiny"


def test_the_card_tells_what_evaluation_sets_share_with_the_text(home: Path, tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    shared = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"
    texts.write_text("".join(f"Sentence {i} is its own text of some words.\n\n" for i in range(40)) + f"{shared}\n\n")
    corpus.build_shards([texts], tmp_path / "corpus", evaluation={"mine": [shared]})
    settings_ = settings(home, f"corpus={tmp_path / 'corpus'}", "objectives.nsp=null", "train.batch_size=8")
    run_pretrain(settings_, tmp_path / "run")
    card = (tmp_path / "run" / "model" / "README.md").read_text()
    assert "| mine | 1 |" in card


def test_the_card_of_a_finetuned_model_tells_its_scores(model: Any, train: Any, tmp_path: Path) -> None:
    run = tmp_path / "run"
    found = run_finetune(finetune_settings(model, train), run)
    card = (run / "model" / "README.md").read_text()
    assert f"| accuracy | {number(found['dev']['accuracy'])} | " in card
    assert f"{found['train_examples']:,} of {Path(train).name}" in card
