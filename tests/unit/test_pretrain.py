"""`bertie pretrain`, from files to a model folder, on text that this file makes up."""

import json
import random
import subprocess
import sys

import pytest
import torch
from typer.testing import CliRunner

from bertie import settings as configs
from bertie.data import corpus
from bertie.errors import DataError, UsageError
from bertie.models import families
from bertie.models.count import forward_flops
from bertie.runs.config import PretrainConfig
from bertie.runs.pretrain import plan_pretraining, run_pretrain
from bertie.runs.weights import load_model
from bertie.text.normalize import Normalizer
from bertie.text.vocabulary import count_words, train_vocabulary
from bertie.train import checkpoint, log
from nano import one_thread

WORDS = "the a small old red cat dog bird house river sees likes finds leaves near under over and but".split()
NANO = ["hidden_size=64", "num_hidden_layers=2", "num_attention_heads=2", "intermediate_size=128"]


def documents(count, sentences=6, seed=0):
    chance = random.Random(seed)
    sentence = lambda: " ".join(chance.choices(WORDS, k=chance.randint(4, 12))).capitalize() + "."  # noqa: E731
    return ["\n".join(sentence() for _ in range(sentences)) for _ in range(count)]


def make_corpus(folder, texts):
    file = folder.with_suffix(".txt")
    file.write_text("\n\n".join(texts), encoding="utf-8")
    corpus.build_shards([file], folder)
    return folder


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a corpus and a tokenizer."""
    home = tmp_path_factory.mktemp("home")
    make_corpus(home / "corpus", documents(60))
    tokenizer = train_vocabulary(
        count_words(corpus.texts(home / "corpus")), size=60, normalizer=Normalizer(lowercase=True)
    )
    tokenizer.save(home / "tokenizer")
    return home


@pytest.fixture(autouse=True)
def thread():
    with one_thread():
        yield


def settings(home, *overrides, **values):
    values = {"corpus": str(home / "corpus"), "tokenizer": str(home / "tokenizer"), **values}
    nano = [f"model_overrides.{override}" for override in NANO]
    short = ["max_length=32", "train.steps=6", "train.batch_size=8", "train.save_every=3", "train.eval_every=3"]
    short += ["train.keep_checkpoints=true"]  # most tests look at them
    return configs.load_config(PretrainConfig, None, [*nano, *short, "train.device=cpu", *overrides], **values)


def test_a_corpus_and_a_tokenizer_become_a_model(home, tmp_path):
    run = tmp_path / "run"
    results = run_pretrain(settings(home), run)
    assert results["step"] == 6
    assert {"loss", "mlm_loss", "nsp_loss", "mlm_accuracy", "nsp_accuracy"} <= set(results["valid"])
    assert configs.load_config(PretrainConfig, run / "run.yaml") == settings(home)
    assert {line["kind"] for line in log.read_log(run)} == {"train", "valid"}
    last = checkpoint.latest(run)
    assert last.step == 6
    identity = last.state["identity"]
    assert identity["train.device"] == "cpu"
    assert identity["train.precision"] in ("float32", "bfloat16")  # what "auto" came to on this machine
    assert identity["corpus"] == results["identity"]["corpus"] != settings(home).corpus

    model = load_model(run / "model")
    assert set(model.heads) == {"mlm", "pair"}
    saved = checkpoint.latest(run).tensors(checkpoint.MODEL)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, saved[name]), name
    assert not torch.equal(saved["encoder.embeddings.word.weight"], fresh_word_embeddings(model))


def fresh_word_embeddings(model):
    return families.build(model.config).word_embeddings


def test_the_same_call_again_reads_the_results_and_another_one_is_refused(home, tmp_path, capsys):
    run = tmp_path / "run"
    first = run_pretrain(settings(home), run)
    files = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()}
    assert run_pretrain(settings(home), run) == json.loads(json.dumps(first))
    assert "finished already" in capsys.readouterr().err.replace("\n", " ")
    assert {path: path.stat().st_mtime_ns for path in files} == files

    with pytest.raises(UsageError, match=r"optim.lr: 0.0001 -> 0.0002\n.*--allow-change optim.lr"):
        run_pretrain(settings(home, "optim.lr=2e-4"), run)
    longer = run_pretrain(settings(home, "train.steps=8"), run, allow_change=("train.steps",))
    assert longer["step"] == 8
    assert run_pretrain(settings(home, "train.steps=2"), run, overwrite=True)["step"] == 2


def test_a_moved_corpus_is_the_same_corpus_and_a_changed_one_is_not(home, tmp_path):
    run = tmp_path / "run"
    run_pretrain(settings(home), run)
    moved = tmp_path / "moved"
    make_corpus(moved, documents(60))
    assert run_pretrain(settings(home, corpus=str(moved)), run)["step"] == 6
    other = tmp_path / "other"
    make_corpus(other, documents(60, seed=1))
    with pytest.raises(UsageError, match="corpus: "):
        run_pretrain(settings(home, corpus=str(other)), run)


def test_a_model_folder_is_gone_on_from(home, tmp_path):
    run_pretrain(settings(home, "train.steps=2"), tmp_path / "a")
    plain = ["max_length=32", "train.steps=1", "train.batch_size=8", "train.device=cpu", "optim.lr=1e-30"]
    config = configs.load_config(
        PretrainConfig,
        None,
        plain,
        corpus=str(home / "corpus"),
        tokenizer=str(home / "tokenizer"),
        model=str(tmp_path / "a" / "model"),
    )
    run_pretrain(config, tmp_path / "b")
    a, b = (load_model(tmp_path / run / "model") for run in "ab")
    torch.testing.assert_close(a.word_embeddings, b.word_embeddings, rtol=0, atol=1e-6)


def test_next_sentence_prediction_can_be_left_out(home, tmp_path):
    results = run_pretrain(settings(home, "objectives.nsp=null"), tmp_path / "run")
    assert "nsp_loss" not in results["valid"]
    assert set(load_model(tmp_path / "run" / "model").heads) == {"mlm"}


# Bad input -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overrides", "error", "message"),
    [
        (["train.batch_size=100000"], DataError, "fewer than one batch"),
        (["max_length=600"], UsageError, "512 positions"),
        (["model=bert-tinny"], UsageError, "Did you mean 'bert-tiny'"),
        (["objectives.nsb={}"], UsageError, "Did you mean 'nsp'"),
        (["model_overrides.num_layers=3"], UsageError, "no field 'num_layers'"),
        (["train.device=cuda:7"], UsageError, "This machine has no device"),
        (["corpus=/nowhere"], DataError, "/nowhere"),
        (["tokenizer=/nowhere"], DataError, "/nowhere"),
    ],
)
def test_what_cannot_work_is_one_clear_error_and_leaves_no_folder(home, tmp_path, overrides, error, message):
    with pytest.raises(error, match=message):
        run_pretrain(settings(home, *overrides), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_folder_with_files_of_the_user_is_left_as_it_is(home, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="contains files that are not a run"):
        run_pretrain(settings(home), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_one_document_cannot_teach_next_sentence_prediction(home, tmp_path):
    make_corpus(tmp_path / "one", documents(1, sentences=300))
    with pytest.raises(DataError, match=r"objectives\.nsp=null"):
        run_pretrain(settings(home, corpus=str(tmp_path / "one")), tmp_path / "run")
    assert (
        run_pretrain(settings(home, "objectives.nsp=null", corpus=str(tmp_path / "one")), tmp_path / "run")["step"] == 6
    )


# Plans and the command line ------------------------------------------------------------------------------------------


def test_the_plan_is_what_the_run_does(home):
    planned = plan_pretraining(settings(home))
    assert planned["steps"] == 6
    model = families.build(
        "bert-tiny", vocab_size=60, hidden_size=64, num_attention_heads=2, intermediate_size=128, heads={}
    )
    assert planned["parameters"] > sum(parameter.numel() for parameter in model.parameters())
    assert planned["epochs"] == pytest.approx(6 * 8 / planned["instances_per_epoch"], abs=0.01)


def test_flops_are_those_counted_by_hand():
    """BERT-BASE at length 128 with 15 % predicted: 545 MFLOP per token in training, three times the forward pass."""
    config = families.config("bert-base")
    for predicted, flops in ((0.15, 545e6), (1.0, 668e6)):
        assert 3 * sum(forward_flops(config, length=128, predicted=predicted).values()) == pytest.approx(
            flops, rel=0.01
        )


def test_the_command_prints_one_json_line_and_chats_on_stderr(home, tmp_path):
    config = tmp_path / "nano.yaml"
    configs.save_settings(settings(home), config)
    command = [sys.executable, "-m", "bertie", "pretrain", "-c", str(config), "-o", str(tmp_path / "run")]
    done = subprocess.run([*command, "train.steps=2", "--json"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    assert json.loads(line)["step"] == 2
    assert "example 1" in done.stderr


def test_the_next_commands_quote_a_folder_with_a_space(home, tmp_path):
    from bertie.apps.cli.table import app

    config, run = tmp_path / "nano.yaml", tmp_path / "a run"
    configs.save_settings(settings(home), config)
    result = CliRunner().invoke(app, ["pretrain", "-c", str(config), "-o", str(run), "train.steps=2"])
    assert result.exit_code == 0
    assert f"bertie finetune '{run / 'model'}' --train" in result.output
    assert f"bertie fill-mask '{run / 'model'}' " in result.output


def test_dry_run_shows_the_plan_and_makes_no_folder(home, tmp_path):
    from bertie.apps.cli.table import app

    config = tmp_path / "nano.yaml"
    configs.save_settings(settings(home), config)
    result = CliRunner().invoke(app, ["pretrain", "-c", str(config), "-o", str(tmp_path / "run"), "--dry-run"])
    assert result.exit_code == 0
    assert "plan: 6 steps of 8 sequences" in result.output
    assert not (tmp_path / "run").exists()


def test_what_the_name_of_a_preset_and_one_batch_size_do_not_say_is_said(home, tmp_path):
    from bertie.apps.cli.table import app

    config = tmp_path / "nano.yaml"
    configs.save_settings(
        settings(home, "phases=[{steps: 0.5}, {batch_size: 4}]", "model_overrides.num_hidden_layers=1"), config
    )
    command = ["pretrain", "-c", str(config), "--dry-run", "--trial", "0"]
    result = CliRunner().invoke(app, [*command, "train.batch_size=2"])
    assert "(layers: 1, hidden size: " in result.output
    assert "does not change the phases with a batch_size of their own (2)" in result.output
    assert "batch_size" not in CliRunner().invoke(app, command).output


def test_a_recipe_is_known_by_its_name_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    named = configs.load_config(PretrainConfig, "pretrain-small-cpu", corpus="c", tokenizer="t")
    (tmp_path / "mine.yaml").write_text("extends: pretrain-small-cpu\nmodel: bert-tiny\n")
    mine = configs.load_config(PretrainConfig, "mine.yaml", corpus="c", tokenizer="t")
    assert (named.model, mine.model) == ("bert-mini", "bert-tiny")
    assert mine.optim == named.optim
    with pytest.raises(UsageError, match="Did you mean 'pretrain-small-cpu'"):
        configs.load_config(PretrainConfig, "pretrain-smal-cpu", corpus="c", tokenizer="t")
