"""The table of newer architectures: its rows are settings that exist, and it is resumed where it was stopped."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from filelock import FileLock

from benchmarks import modern
from benchmarks.cells import cell, measuring_in, write_picture
from bertie import objectives
from bertie.errors import UsageError
from bertie.models import families
from bertie.models.count import parameters
from bertie.report.charts import Chart
from bertie.runs.run_data import phases

GAINS = {"as published": 0.0, "GeGLU": 0.5, "norms before": -0.25}


def table(**changes):
    return modern.Table("corpora/mine", "tokenizers/mine", Path("data"), **changes)


@pytest.mark.parametrize("size", modern.SIZES)
def test_every_row_is_a_run_of_about_the_same_size(size):
    sizes, steps = {}, 1_000
    for name in table(size=size).rows:
        config = table(size=size).config(name, 3, steps)
        shape = families.changed_config(families.config(config.model), {"vocab_size": 8_000, **config.model_overrides})
        sizes[name] = parameters(shape)["layers"]
        parts = phases(config)
        assert sum(part.steps for part in parts) == steps
        assert max(part.max_length for part in parts) <= shape.max_length
        assert objectives.build_objective(config.objectives)
        assert (config.train.seed, config.train.steps) == (3, steps)
        assert phases(table(size=size).config(name, 0, modern.FEWEST)), "each phase has a step"
    assert sizes == {name: pytest.approx(sizes[modern.PUBLISHED], rel=0.12) for name in sizes}


def test_names_can_be_listed_on_the_command_line():
    assert not any("," in name for name in table().rows)


def test_a_single_change_is_all_that_differs():
    plain, rotary = (table().config(name, 0).model_dump() for name in (modern.PUBLISHED, "rotary positions"))
    assert rotary["model_overrides"].pop("positions") == "rotary"
    assert rotary == plain


@pytest.fixture
def calls(monkeypatch):
    found = []

    def measure(table, row, seed, folder):
        found.append((row, seed))
        gain = GAINS[row] + 0.01 * seed * (row == "GeGLU")
        return {"steps": 20, "seconds": 3.0, "tokens": 1_000_000, "loss": 6.0 - gain, "sst2": 0.5 + gain / 10}

    monkeypatch.setattr(modern, "_measure", measure)
    monkeypatch.setattr(modern, "_steps", lambda table, row: {"steps": 20})
    monkeypatch.setattr(modern.Table, "examples_of", {"sst2": None})
    return found


def test_only_what_is_missing_is_measured(calls, tmp_path):
    settings = table(tasks=("sst2",))
    rows = modern.reproduce(settings, ["GeGLU"], tmp_path, seeds=1)
    assert calls == [("as published", 0), ("GeGLU", 0)]
    text = modern.page(rows, table=settings, command="python -m benchmarks reproduce modern")
    assert "One seed, so there are no intervals" in text
    assert "better than" not in text
    rows = modern.reproduce(settings, ["GeGLU", "norms before"], tmp_path, seeds=2)
    assert calls[2:] == [("norms before", 0), ("as published", 1), ("GeGLU", 1), ("norms before", 1)]
    text = modern.page(rows, table=settings, command="python -m benchmarks reproduce modern")
    assert "| GeGLU | 20 | 3 | 1.00 | 5.495 (5.431 to 5.559) | +0.505 (+0.441 to +0.569) |" in text
    assert "* loss, better than as published: GeGLU.\n* loss, worse: norms before.\n" in text
    assert modern.pictures(rows, ("sst2",)).keys() == {"loss", "sst2"}


def test_results_of_other_settings_are_not_mixed_in(calls, tmp_path):
    modern.reproduce(table(tasks=("sst2",)), ["GeGLU"], tmp_path, seeds=1)
    with pytest.raises(UsageError, match="other settings"):
        modern.reproduce(table(tasks=("sst2",), minutes=5), ["GeGLU"], tmp_path, seeds=1)


@pytest.mark.parametrize("minutes", [0.1, 0.5])
def test_a_budget_of_too_few_steps_is_refused_before_a_row_is_measured(monkeypatch, tmp_path, minutes):
    monkeypatch.setattr(modern, "_measure", lambda *_: pytest.fail("measured"))
    monkeypatch.setattr(modern.Table, "examples_of", {"sst2": None})
    monkeypatch.setattr(modern, "PreparedRun", lambda config: SimpleNamespace(config=config, model=lambda: None))
    monkeypatch.setattr(modern, "pretraining_work", lambda ready, model: ready.config)
    monkeypatch.setattr(modern, "get_num_threads", lambda: 2)

    def forecast_of(config, trial_s, clock):  # ten seconds a step with biases, four without
        step_s = 10 if "hidden_act" not in config.model_overrides else 4
        return SimpleNamespace(parts={"steps": step_s * config.train.steps})

    monkeypatch.setattr(modern, "forecast_of", forecast_of)
    steps = round(minutes * 60 * 2 / 10)
    told = rf"makes {steps} steps here, and a run needs 20\. .*--minutes 1\.8\."
    with pytest.raises(UsageError, match=told), measuring_in(tmp_path / "a" / "run"):
        modern.reproduce(table(tasks=("sst2",), minutes=minutes), ["GeGLU"], tmp_path / "a" / "run", seeds=1)
    assert not (tmp_path / "a").exists()


def test_two_processes_do_not_measure_in_one_folder(tmp_path):
    told = "Another process is writing to"
    with FileLock(tmp_path / ".lock"), pytest.raises(UsageError, match=told), measuring_in(tmp_path):
        pytest.fail("measured")


def test_what_is_unknown_is_told(tmp_path):
    with pytest.raises(UsageError, match="GeGLU"):
        modern.reproduce(table(), ["GeGLUU"], tmp_path)
    with pytest.raises(UsageError, match="size 'large'"):
        table(size="large")
    with pytest.raises(UsageError, match="sst2"):
        table(tasks=("sst3",))


def test_a_picture_has_its_own_colors(tmp_path):
    write_picture(tmp_path / "a.svg", Chart.bars({"a": 1.0, "b": 2.0}, x_label="x"))
    text = (tmp_path / "a.svg").read_text()
    assert text.startswith("<svg role=")
    assert "--ink: #" in text
    assert "prefers-color-scheme: dark" in text


def test_a_cell_has_an_interval_where_there_are_several_runs():
    assert (cell([]), cell([0.5])) == ("-", "0.500")
    assert cell([0.4, 0.6], metric="accuracy") == "0.500 (0.000 to 1.000)"
