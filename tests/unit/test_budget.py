"""What a run costs, said before it starts: disk, time, and how much of the corpus an epoch reads."""

import shutil
import time
from collections import deque
from types import SimpleNamespace

import pytest
from test_pretrain import documents, home, make_corpus, settings, thread

from bertie.errors import Stopped, UsageError
from bertie.models import families
from bertie.runs import domains
from bertie.runs.planning import check_disk
from bertie.runs.pretrain import plan_pretraining, run_pretrain
from bertie.runs.pretraining import PreparedRun
from bertie.runs.weights import load_model as load_module
from bertie.runs.work import _steps_of_seconds, with_minutes
from bertie.train.callbacks import EachStep
from bertie.train.loop import RECENT_S, _Loop

assert home
assert thread  # fixtures


def test_a_run_that_the_disk_cannot_hold_is_refused_before_it_begins(home, tmp_path, monkeypatch):
    needed = plan_pretraining(settings(home))["disk_bytes"]
    assert needed["most"] > needed["checkpoint"] > 0
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=needed["most"] - 1))
    with pytest.raises(UsageError, match=r"needs up to .*B of disk"):
        run_pretrain(settings(home), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.yaml").touch()
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=0))
    with pytest.raises(Stopped, match="Free some space, and run the same command again"):
        check_disk({"disk_bytes": needed}, tmp_path / "run")


def test_the_disk_that_is_foreseen_is_enough(home, tmp_path):
    sizes = []
    run = tmp_path / "run"
    measure = EachStep(lambda step: sizes.append(sum(f.stat().st_size for f in run.glob("*/*.safe*"))))
    run_pretrain(settings(home), run, callbacks=[measure])
    assert max(sizes) <= plan_pretraining(settings(home))["disk_bytes"]["most"] * 1.1  # headers of files


def test_pairs_of_short_documents_are_warned_of(home, tmp_path):
    short = make_corpus(tmp_path / "short", documents(90, sentences=1) + documents(10))
    said = plan_pretraining(settings(home, corpus=str(short)))["warnings"]
    assert any("objectives.nsp=null" in warning for warning in said)
    assert not plan_pretraining(settings(home))["warnings"]


def test_a_run_of_days_is_warned_of(home):  # on the fastest processor, too
    run = settings(home, "train.steps=1000000000", "train.batch_size=128")
    assert any("at least" in warning for warning in plan_pretraining(run)["warnings"])


def test_minutes_become_steps_which_a_resumed_run_keeps(home, tmp_path):
    config = with_minutes(settings(home), 0.05, None, PreparedRun)
    more = with_minutes(settings(home), 1.0, None, PreparedRun)
    assert 1 <= config.train.steps < more.train.steps
    run_pretrain(settings(home), tmp_path / "run")
    assert with_minutes(settings(home), 5.0, tmp_path / "run", PreparedRun).train.steps == 6


def test_minutes_count_the_steps_of_phases_at_their_own_speed(home):
    def steps(*phases: str) -> float:
        return _steps_of_seconds(100, settings(home, f"phases=[{', '.join(phases)}]"), [0.1, 2.0][: len(phases) or 1])

    assert steps() == pytest.approx(1000)
    assert steps("{steps: 200}", "{}") == pytest.approx(200 + 80 / 2)
    assert steps("{steps: 0.9}", "{}") == pytest.approx(100 / (0.9 * 0.1 + 0.1 * 2))
    with pytest.raises(UsageError, match="Pass more minutes"):
        steps("{steps: 2000}", "{}")
    with pytest.raises(UsageError, match="needs a phase without `steps`"):
        steps("{steps: 20}", "{steps: 30}")


@pytest.mark.parametrize("minutes", [float("inf"), float("nan")])
def test_minutes_without_end_are_refused(home, minutes):
    with pytest.raises(UsageError, match="it must be a number of minutes"):
        with_minutes(settings(home), minutes, None, PreparedRun)


def test_minutes_of_several_processes_are_refused_before_the_run_and_kept_in_it(home, tmp_path, monkeypatch):
    run_pretrain(settings(home), tmp_path / "run")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(UsageError, match=r"this run has 2.*--dry-run"):
        with_minutes(settings(home), 5.0, tmp_path / "new", PreparedRun)
    assert with_minutes(settings(home), 5.0, tmp_path / "run", PreparedRun).train.steps == 6


def test_minutes_and_steps_are_one_or_the_other(bertie):
    code, _, err = bertie("pretrain", "--minutes", "1", "train.steps=5", "-o", "x")
    assert code == 2
    assert "Pass only one of the two" in " ".join(err.split())


def test_the_speed_shown_is_that_of_the_last_seconds():
    now = time.monotonic()
    loop = SimpleNamespace(
        recent=deque([(now - 100, 0), (now - RECENT_S - 1, 1_000_000), (now - RECENT_S + 1, 1_000_000)]),
        metrics=SimpleNamespace(tokens=1_000_900, loss=1.0),
    )
    rate = _Loop._shown(loop)["tokens/s"]  # type: ignore[arg-type]
    assert 60 < float(rate.replace(",", "")) < 110  # of the whole time: 10,000


def test_the_figures_of_a_head_that_was_not_trained_are_left_out(home, tmp_path):
    run_pretrain(settings(home), tmp_path / "run")
    model = load_module(tmp_path / "run")
    bare = families.build(model.config)
    families.save(bare, tmp_path / "bare", tokenizer=model.tokenizer)
    config = settings(home, "pseudo_perplexity=4", model=str(tmp_path / "bare"), tokenizer="")
    config = config.model_copy(update={"model_overrides": {}})
    found = run_pretrain(config, tmp_path / "domain")["pseudo_perplexity"]
    assert all("before" not in both and both["after"]["per_word"] > 1 for both in found.values())
    assert "had no trained language-model head" in domains.format_domains(found)
