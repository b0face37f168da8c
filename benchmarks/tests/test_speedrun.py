"""The table of recipes: its rows are runs that exist, and levers add up."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from filelock import FileLock

from benchmarks import speedrun
from benchmarks.cells import cell, measuring_in, write_picture
from benchmarks.speedrun import BASE, CHOSEN, LEVERS, MODERN, PUBLISHED, TOGETHER, Average, Table, rows
from bertie import objectives
from bertie.errors import UsageError
from bertie.models import families
from bertie.models.count import parameters
from bertie.objectives.base import parts_of
from bertie.report.charts import Chart
from bertie.runs.run_data import phases


@pytest.fixture
def table(monkeypatch, tmp_path):
    monkeypatch.setattr(Table, "corpus", lambda self, dedup="documents": Path(dedup))
    monkeypatch.setattr(Table, "tokenizer", lambda self, size=16_000: Path(str(size)))
    return Table(Path("text"), Path("data"), tmp_path)


@pytest.mark.parametrize("row", rows())
def test_every_row_is_a_run(table, row):
    config = table.config(row, 3, 1_000)
    shape = families.config(config.model, vocab_size=8_000, **config.model_overrides)
    parts = phases(config)
    assert sum(part.steps for part in parts) == 1_000
    assert max(part.max_length for part in parts) <= shape.max_length
    objective = objectives.build_objective(config.objectives)
    assert sum(part.on_tokens for part in parts_of(objective)) == 1, "it learns from tokens, not from pairs alone"
    assert (config.train.seed, config.train.steps) == (3, 1_000)
    assert phases(table.config(row, 0, speedrun.FEWEST)), "each phase has a step"
    assert parameters(shape)["layers"] > 0


@pytest.mark.parametrize("lever", LEVERS)
def test_a_lever_changes_only_what_it_says(table, lever):
    plain, changed = (table.config(row, 0).model_dump() for row in (BASE, lever))
    differing = {name for name in plain if plain[name] != changed[name]}
    said = LEVERS[lever]
    expected = {*(said.settings or {})}
    expected |= {"phases"} if said.phases else set()
    expected |= {"tokenizer"} if said.vocabulary else set()
    expected |= {"corpus"} if said.dedup != "documents" else set()
    assert differing == expected


def test_the_best_recipe_has_all_its_levers_and_each_row_without_one_lacks_that_one(table, monkeypatch):
    monkeypatch.setattr(speedrun, "CHOSEN", (*CHOSEN[:2], "averaged weights"))
    together = table.config(TOGETHER, 0)
    for name in speedrun.CHOSEN:
        without = table.config(f"{TOGETHER}, without {name}", 0)
        assert without != together or LEVERS[name].averaged, name
        assert name not in rows()[f"{TOGETHER}, without {name}"]
    monkeypatch.setattr(speedrun, "CHOSEN", CHOSEN[:2])
    assert not [name for name in rows() if "without" in name], "these are rows of single levers"


def test_whole_recipes_are_those_of_the_papers(table):
    published, modern = table.config(PUBLISHED, 0), table.config(MODERN, 0)
    assert (published.optim.name, published.optim.lr, published.train.batch_size) == ("adamw", 1e-4, 256)
    assert published.objectives["nsp"] is not None
    assert families.family(modern.model).model_type == "modernbert"


def test_the_last_steps_are_averaged():
    model = torch.nn.Linear(1, 1, bias=False)
    average = Average(0.4)
    run = SimpleNamespace(model=model, steps=5)
    for step, value in enumerate((1.0, 2.0, 3.0, 4.0, 8.0), 1):
        with torch.no_grad():
            model.weight.fill_(value)
        average.on_step(run, step, {})
        assert model.weight.item() == (value if step < 5 else 6.0)


@pytest.mark.parametrize("minutes", [0.1, 0.5])
def test_a_time_of_too_few_steps_is_refused(table, monkeypatch, minutes):
    monkeypatch.setattr(speedrun, "PreparedRun", lambda config: SimpleNamespace(config=config, model=lambda: None))
    monkeypatch.setattr(speedrun, "pretraining_work", lambda ready, model: SimpleNamespace(phases=[0], of=ready.config))
    monkeypatch.setattr(speedrun.torch, "get_num_threads", lambda: 2)

    def forecast_of(work, trial_s, clock):
        return SimpleNamespace(parts={"steps": 10 * work.of.train.steps})

    monkeypatch.setattr(speedrun, "forecast_of", forecast_of)
    short = Table(Path("text"), Path("data"), table.work, minutes)
    with pytest.raises(UsageError, match=rf"makes {round(minutes * 60 * 2 / 10)} steps here, .*--minutes 1\.8\."):
        short.steps(BASE)


def test_an_unknown_task_is_named():
    with pytest.raises(UsageError, match="sst2"):
        Table(Path("text"), Path("data"), Path("work"), tasks=("sst3",))


def test_two_processes_do_not_measure_in_one_folder(tmp_path):
    told = "Another process is writing to"
    with FileLock(tmp_path / ".lock"), pytest.raises(UsageError, match=told), measuring_in(tmp_path):
        pytest.fail("measured")


def test_a_picture_has_its_own_colors(tmp_path):
    write_picture(tmp_path / "a.svg", Chart.bars({"a": 1.0, "b": 2.0}, x_label="x"))
    text = (tmp_path / "a.svg").read_text()
    assert text.startswith("<svg role=")
    assert "--ink: #" in text
    assert "prefers-color-scheme: dark" in text


def test_a_cell_has_an_interval_where_there_are_several_runs():
    assert (cell([]), cell([0.5])) == ("-", "0.500")
    assert cell([0.4, 0.6], metric="accuracy") == "0.500 (0.000 to 1.000)"
