"""A run that was stopped is used like a model: at its newest checkpoint, and a warning says so."""

import json
import os
import signal

import pytest
import torch
from test_pretrain import documents, home, settings, thread

import bertie as package
from bertie.errors import DataError, Stopped, UsageError
from bertie.models import families
from bertie.runs.checkpoints import write_checkpoint_model
from bertie.runs.pretrain import run_pretrain
from bertie.runs.verify import verify_folder
from bertie.runs.weights import load_model as load_module
from bertie.train import checkpoint
from bertie.train.callbacks import EachStep

assert home
assert thread  # fixtures


def killed_at(number):
    return EachStep(lambda step: step == number and os.kill(os.getpid(), signal.SIGTERM))


@pytest.fixture(scope="module")
def stopped(home, tmp_path_factory):
    """A run that SIGTERM stopped after 4 of 6 steps."""
    run = tmp_path_factory.mktemp("runs") / "stopped"
    with pytest.raises(Stopped):
        run_pretrain(settings(home), run, callbacks=[killed_at(3)])
    assert checkpoint.latest(run).step < 6
    return run


def test_it_fills_masks(stopped, bertie):
    code, out, err = bertie("fill-mask", stopped, "the small [MASK] sat", "--top", "2", "--json")
    assert code == 0, err
    step = checkpoint.latest(stopped).step
    assert f"step {step} of 6: not finished; resume it, or use it as it is" in " ".join(err.split())
    assert json.loads(out)


def test_it_is_fine_tuned_and_a_checkpoint_is_the_same(stopped, bertie, tmp_path):
    table = tmp_path / "train.tsv"
    rows = [f"{text.splitlines()[0]}\t{'ab'[number % 2]}" for number, text in enumerate(documents(40))]
    table.write_text("text\tlabel\n" + "\n".join(rows))
    newest = checkpoint.latest(stopped).folder
    fast = ["epochs=1", "max_length=24", "train.precision=fp32"]
    bertie.good("finetune", stopped, "--train", table, "-o", tmp_path / "a", *fast)
    bertie.good("finetune", newest, "--train", table, "-o", tmp_path / "b", *fast)
    assert (tmp_path / "a/model/model.safetensors").read_bytes() == (
        tmp_path / "b/model/model.safetensors"
    ).read_bytes()
    bertie.good("predict", tmp_path / "a", "-q", stdin="the small cat\n")  # RUN means RUN/model


def test_its_weights_are_those_of_the_checkpoint(stopped, bertie, tmp_path):
    bertie.good("export-checkpoint", stopped, "-o", tmp_path / "out")
    model, report = families.load(tmp_path / "out")
    assert not report.fresh
    saved = checkpoint.latest(stopped).tensors(checkpoint.MODEL)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, saved[name]), name
    bertie.good("verify", tmp_path / "out")
    made = (tmp_path / "out/config.json").stat().st_mtime_ns
    assert "nothing to do" in bertie("export-checkpoint", stopped, "-o", tmp_path / "out")[2]
    assert (tmp_path / "out/config.json").stat().st_mtime_ns == made


def test_finished_it_is_the_model_of_a_run_that_was_never_stopped(stopped, home, tmp_path):
    run_pretrain(settings(home), tmp_path / "whole")
    again = tmp_path / "again"
    with pytest.raises(Stopped):
        run_pretrain(settings(home), again, callbacks=[killed_at(2)])
    assert (again / "outline").is_dir()
    run_pretrain(settings(home), again)
    assert not (again / "outline").exists()
    one, other = (load_module(run).state_dict() for run in (tmp_path / "whole", again))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_finished_run_keeps_no_checkpoint_unless_asked(home, tmp_path):
    short = "train.keep_checkpoints=false"
    run_pretrain(settings(home, short), tmp_path / "run")
    assert not [*(tmp_path / "run").glob("checkpoint-*")]
    assert run_pretrain(settings(home, short), tmp_path / "run")["step"] == 6  # its results are read
    longer = settings(home, short, "train.steps=9")
    with pytest.raises(UsageError, match="has no checkpoint to continue from"):
        run_pretrain(longer, tmp_path / "run", allow_change=("train.steps",))
    with pytest.raises(UsageError, match=r"\nChoose another folder or pass --overwrite\.$"):
        run_pretrain(longer, tmp_path / "run")  # what cannot go on is not offered --allow-change


def test_killed_between_its_results_and_its_last_files_it_tidies_up_later(home, tmp_path):
    run, short = tmp_path / "run", settings(home, "train.keep_checkpoints=true")
    run_pretrain(short, run)
    (run / "checksums.json").unlink()
    run_pretrain(settings(home, "train.keep_checkpoints=false"), run)
    assert (run / "checksums.json").exists()
    assert not [*run.glob("checkpoint-*")]


def test_a_stopped_extension_is_not_called_finished(home, tmp_path):
    run, kept = tmp_path / "run", "train.keep_checkpoints=true"
    run_pretrain(settings(home, kept), run)
    with pytest.raises(UsageError, match="beyond the last step"):
        run_pretrain(settings(home, kept, "train.steps=3"), run, allow_change=("train.steps",))
    assert verify_folder(run).ok, "a refused call changes nothing"
    callbacks = [EachStep(lambda step: os.kill(os.getpid(), signal.SIGTERM))]
    stop = {"allow_change": ("train.steps",), "callbacks": callbacks}
    with pytest.raises(Stopped):
        run_pretrain(settings(home, kept, "train.steps=9"), run, **stop)
    assert checkpoint.latest(run).step == 7
    assert verify_folder(run).ok, verify_folder(run).text()
    with pytest.raises(UsageError, match=r"train\.steps: 9 -> 6"):
        run_pretrain(settings(home, kept), run)
    assert checkpoint.latest(run).step == 7
    assert run_pretrain(settings(home, kept, "train.steps=9"), run)["step"] == 9


@pytest.mark.parametrize("select", ["best", "last"])
def test_an_exception_in_a_callback_loses_nothing(stopped, bertie, tmp_path, select):
    """The best weights on dev are the model, or the checkpoint of that step; the same call goes on."""
    table, run = tmp_path / "train.tsv", tmp_path / "run"
    rows = [f"{text.splitlines()[0]}\t{'ab'[number % 2]}" for number, text in enumerate(documents(40))]
    table.write_text("text\tlabel\n" + "\n".join(rows))
    loop = {"batch_size": 4, "eval_every": 2, "precision": "fp32"}
    config = package.FinetuneConfig(
        model=str(checkpoint.latest(stopped).folder), train_file=str(table), dev_file=str(table), max_length=24,
        epochs=1.0, select=select, train=loop, label_check="none",
    )  # fmt: skip

    class Enough(package.Callback):
        def on_evaluate(self, run, step, scores):
            if step / run.steps >= 0.4:
                raise RuntimeError("good enough")

    with pytest.raises(RuntimeError, match="good enough") as raised:
        package.finetune(config=config, output=run, callbacks=[Enough()])
    assert "checkpoint-4 is saved" in raised.value.__notes__[0]
    code, out, err = bertie("predict", run, stdin="the small cat\n")
    assert code == 0, err
    assert ("best weights on dev so far (accuracy" in " ".join(err.split())) == (select == "best")
    assert json.loads(out)["label"] in "ab"
    assert package.finetune(config=config, output=run).scores["examples"] == 40


def test_an_exception_in_a_callback_of_pre_training_loses_nothing(home, tmp_path):
    def stop(step):
        if step == 2:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        run_pretrain(settings(home), tmp_path / "run", callbacks=[EachStep(stop)])
    assert checkpoint.latest(tmp_path / "run").step == 2
    assert run_pretrain(settings(home), tmp_path / "run")["step"] == 6


def test_what_has_no_model_says_why(stopped, tmp_path, bertie):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.yaml").write_text((stopped / "run.yaml").read_text())
    with pytest.raises(DataError, match="has no model yet"):
        load_module(tmp_path / "run")
    (tmp_path / "run" / "model").mkdir()
    with pytest.raises(DataError, match="is finished and has no checkpoints"):
        write_checkpoint_model(tmp_path / "run", tmp_path / "out")
    with pytest.raises(DataError, match="is neither a run nor a checkpoint"):
        write_checkpoint_model(tmp_path / "nothing", tmp_path / "out")
    for command in (("report",), ("pretrain", "-o", tmp_path / "out", "--from")):
        _, _, err = bertie(*command, tmp_path / "nothing")
        assert "is not a run: it has no run.yaml" in " ".join(err.split())
    (tmp_path / "seeds" / "seed-0").mkdir(parents=True)
    with pytest.raises(UsageError, match="one run per seed"):
        load_module(tmp_path / "seeds")
