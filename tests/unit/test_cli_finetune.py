"""Fine-tuning as a user meets it, with a model small enough to learn a toy in a second: does the text hold a z?"""

import io
import json
import os
import random
import string
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

import bertie
from bertie.console import Verbosity, console
from bertie.errors import DataError, UsageError
from bertie.io.tables import Example
from bertie.program import main
from bertie.runs import finetune_train
from bertie.runs.config import FinetuneConfig
from bertie.runs.examples import read_examples
from bertie.runs.finetune import run_finetune
from bertie.runs.finetune_assess import assess_run
from bertie.runs.finetune_prepare import prepare_run, with_steps
from bertie.runs.splits import hold_out
from bertie.runs.weights import load_model
from bertie.training_facts import read_training_facts
from toys import toy_model

LETTERS = [*string.ascii_lowercase, *("##" + c for c in string.ascii_lowercase)]
FAST = ["optim.lr=3e-3", "train.batch_size=16", "train.precision=fp32", "max_length=24"]


def rows(n: int, *, seed: int = 0) -> list[tuple[str, str]]:
    """n texts of letters, half of them with a z, which is the label."""
    rng = random.Random(seed)
    found = []
    for i in range(n):
        letters = [rng.choice("abcdef") for _ in range(rng.randint(3, 9))]
        if i % 2:
            letters[rng.randrange(len(letters))] = "z"
        found.append((" ".join(letters), "has z" if i % 2 else "plain"))
    return found


def write(path: Path, examples: list[tuple[str, str]]) -> Path:
    path.write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in examples))
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return toy_model(tmp_path_factory.mktemp("pretrained"), LETTERS, max_position_embeddings=32)


@pytest.fixture
def train(tmp_path) -> Path:
    return write(tmp_path / "train.tsv", rows(160))


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def run(monkeypatch, capsys):
    """Run the command line in this process."""

    def run(*arguments: object, stdin: str = "") -> Done:
        monkeypatch.setattr(console, "verbosity", Verbosity())
        monkeypatch.setattr(sys, "argv", ["bertie", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        with pytest.raises(SystemExit) as exit:
            main()
        return Done(exit.value.code, *capsys.readouterr())

    return run


def settings(model: Path, file: Path, *, train: dict = {}, **values) -> FinetuneConfig:  # noqa: B006 (only read)
    fast = {"optim": {"lr": 3e-3}, "max_length": 24, "epochs": 2}
    loop = {"batch_size": 16, "precision": "fp32", **train}
    return FinetuneConfig(model=str(model), train_file=str(file), train=loop, **(fast | values))


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Models of this size are faster in one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_from_a_table_to_predictions(run, model, train, tmp_path):
    dev = write(tmp_path / "dev.tsv", rows(60, seed=1))
    done = run("finetune", model, "--train", train, "--dev", dev, "-o", tmp_path / "run", "epochs=12", *FAST)
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["dev"]["accuracy"] > 0.9
    assert results["labels"] == ["has z", "plain"]
    saved = tmp_path / "run" / "model"
    config = json.loads((saved / "config.json").read_text())
    assert config["id2label"] == {"0": "has z", "1": "plain"}
    assert config["label2id"] == {"has z": 0, "plain": 1}
    assert config["architectures"] == ["BertForSequenceClassification"]
    assert "bertie predict" in done.stderr

    done = run("predict", saved, stdin="a b z c\na b c d e\n")
    assert [json.loads(line)["label"] for line in done.stdout.splitlines()] == ["has z", "plain"]
    # What was measured in the run is what the saved model scores.
    report = json.loads(run("evaluate", saved, dev, "--json").stdout)
    assert results["dev"].pop("baselines")
    # Probabilities come of float32 sums of batches of other shapes.
    for name in ("ece", "brier"):
        assert report[name] == pytest.approx(results["dev"].pop(name), abs=3e-6)
    assert len(report["calibration"]) == len(results["dev"].pop("calibration"))
    assert report == {**report, **results["dev"]}
    answer = bertie.predict(bertie.load(saved), ["b z"])[0]
    assert answer.label == "has z"


def test_the_stages_of_a_run_are_values(model, train, tmp_path):
    """What is fitted after training is in the assessed run, and nothing before it changes."""
    config = settings(model, train, optimize="f2", label_check="none", baselines=False)
    examples = read_examples(config)
    prepared = prepare_run(with_steps(config, len(examples.train)), examples)
    task, facts = prepared.task, prepared.model.training_facts
    assessed = assess_run(finetune_train.train_run(prepared, tmp_path / "run", "auto"))
    assert prepared.task is task
    assert prepared.model.training_facts is facts
    assert assessed.task != task, "a threshold was fitted"
    saved = read_training_facts(tmp_path / "run/model")
    assert saved.task_options["threshold"] == assessed.task.threshold
    with pytest.raises(AttributeError):
        prepared.notes = []


def test_an_interrupted_run_goes_on_to_the_same_bytes(model, train, tmp_path, monkeypatch):
    often = settings(model, train, train={"save_every": 4, "eval_every": 6})
    unbroken = run_finetune(often, tmp_path / "unbroken")
    whole = finetune_train._evaluate

    def fails(prepared, run, step):
        raise RuntimeError("power cut")

    monkeypatch.setattr(finetune_train, "_evaluate", fails)
    with pytest.raises(RuntimeError, match="power cut"):
        run_finetune(often, tmp_path / "broken")
    assert (tmp_path / "broken" / "checkpoint-4").exists()
    monkeypatch.setattr(finetune_train, "_evaluate", whole)
    resumed = run_finetune(often, tmp_path / "broken")
    measured = {"usage", "forecast"}  # of the machine and the moment
    assert {key: resumed[key] for key in resumed.keys() - measured} == {
        key: unbroken[key] for key in unbroken.keys() - measured
    }
    weights = [(tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("broken", "unbroken")]
    assert weights[0] == weights[1]


def test_a_finished_run_is_read_and_another_is_refused(run, model, train, tmp_path):
    command = ("finetune", model, "--train", train, "-o", tmp_path / "run", "--json", *FAST)
    first = run(*command, "epochs=1")
    assert first.returncode == 0, first.stderr
    before = (tmp_path / "run" / "metrics.jsonl").stat().st_mtime_ns
    moved = train.rename(tmp_path / "moved.tsv")
    again = run("finetune", model, "--train", moved, *command[4:], "epochs=1")
    assert json.loads(again.stdout) == json.loads(first.stdout)
    assert (tmp_path / "run" / "metrics.jsonl").stat().st_mtime_ns == before
    other = run("finetune", model, "--train", moved, *command[4:], "epochs=2")
    assert other.returncode == 2
    assert "epochs: 1.0 -> 2.0" in other.stderr
    write(moved, rows(158))  # the file's content is part of the run, its name is not
    changed = run("finetune", model, "--train", moved, *command[4:], "epochs=1")
    assert changed.returncode == 2
    replaced = run("finetune", model, "--train", moved, *command[4:], "epochs=1", "--overwrite")
    assert replaced.returncode == 0, replaced.stderr


def test_several_seeds_are_summed_up_on_the_same_dev_examples(run, model, train, tmp_path):
    out = tmp_path / "run"
    done = run("finetune", model, "--train", train, "-o", out, "--seeds", 3, "--json", "epochs=1", *FAST)
    assert done.returncode == 0, done.stderr
    summed = json.loads(done.stdout)
    values = [figures["accuracy"] for figures in summed["seeds"].values()]
    over = summed["over_seeds"]["accuracy"]
    assert over["runs"] == 3
    assert over["mean"] == pytest.approx(sum(values) / 3)
    assert over["low"] <= over["mean"] <= over["high"]
    runs = [json.loads((out / f"seed-{seed}" / "results.json").read_text()) for seed in range(3)]
    assert len({result["identity"]["dev_file"] for result in runs}) == 1
    assert len({(out / f"seed-{seed}" / "model" / "model.safetensors").read_bytes() for seed in range(3)}) == 3


def test_layers_can_be_frozen_begun_anew_and_given_rates_of_their_own(model, train, tmp_path):
    config = settings(model, train, freeze=0, reinit=1, optim={"lr": 3e-3, "layer_decay": 0.9})
    run_finetune(config, tmp_path / "run")
    before, after = (load_model(folder).state_dict() for folder in (model, tmp_path / "run" / "model"))
    same = {name for name in before if torch.equal(before[name], after[name])}
    assert same == {name for name in before if name.startswith("encoder.embeddings.")}


def test_two_models_are_compared_on_the_same_examples(run, model, train, tmp_path):
    for name, epochs in (("weak", 0.1), ("strong", 12)):
        run_finetune(settings(model, train, epochs=epochs), tmp_path / name)
    dev = write(tmp_path / "dev.tsv", rows(60, seed=1))
    strong, weak = (tmp_path / name / "model" for name in ("strong", "weak"))
    done = run("evaluate", strong, dev, "--against", weak)
    assert done.returncode == 0, done.stderr
    assert "accuracy minus that of" in done.stdout.replace("\n", " ")
    report = json.loads(run("evaluate", strong, dev, "--against", weak, "--json").stdout)
    other = json.loads(run("evaluate", weak, dev, "--json").stdout)
    found = report["against"]["accuracy"]
    assert found["difference"] == pytest.approx(report["accuracy"] - other["accuracy"])
    assert found["low"] <= found["difference"] <= found["high"]
    assert found["p"] < 0.05


def test_the_best_weights_are_kept_when_asked_for(model, train, tmp_path):
    dev = write(tmp_path / "dev.tsv", rows(40, seed=1))
    config = settings(
        model, train, dev_file=str(dev), select="best", epochs=6, optim={"lr": 3e-3, "decay": "constant"},
        train={"eval_every": 5},
    )  # fmt: skip
    results = run_finetune(config, tmp_path / "run")
    lines = map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
    measured = [line["accuracy"] for line in lines if line["kind"] == "valid"]
    assert results["dev"]["accuracy"] == max(measured)
    assert not (tmp_path / "run" / "model" / "score.json").exists()


def test_from_scratch_starts_elsewhere_and_learns_the_same_way(model, train, tmp_path):
    results = run_finetune(settings(model, train, from_scratch=True, epochs=10), tmp_path / "run")
    assert results["dev"]["accuracy"] > 0.8
    assert results["identity"]["from_scratch"] is True


def test_held_out_examples_have_each_label_in_proportion():
    examples = [Example((str(i),), label) for i, label in enumerate(["a"] * 100 + ["b"] * 30 + ["c"] * 2 + ["d"])]
    train, dev = hold_out(examples)
    assert sorted(train + dev, key=lambda e: int(e.texts[0])) == examples
    counts = {label: sum(e.label == label for e in dev) for label in "abcd"}
    assert counts == {"a": 10, "b": 3, "c": 1, "d": 0}
    assert hold_out(examples) == (train, dev)
    with pytest.raises(DataError, match="no label has two examples"):
        hold_out([Example(("x",), "a"), Example(("y",), "b")])
    with pytest.raises(DataError, match="a dev set: it has one"):
        hold_out([Example(("x",), "a")])
    with pytest.raises(DataError, match="all examples belong together"):
        hold_out([Example(("x",), "a"), Example(("y",), "a")], group=lambda example: "one query")


# Bad input ----------------------------------------------------------------------------------------------------------


def test_labels_of_dev_that_training_lacks_are_named_and_count_as_errors(model, train, tmp_path):
    dev = write(tmp_path / "dev.tsv", [*rows(20, seed=1), ("a b", "surprise")])
    results = run_finetune(settings(model, train, dev_file=str(dev)), tmp_path / "run")
    assert any("1 dev examples have labels that do not occur in training" in note for note in results["notes"])
    assert results["dev"]["unknown_labels"] == {"surprise": 1}
    assert results["dev"]["examples"] == 21
    assert results["dev"]["accuracy"] <= 20 / 21


def test_rows_left_out_and_texts_cut_are_reported(run, model, tmp_path):
    train = write(tmp_path / "train.tsv", [*rows(60), ("", "plain"), ("a " * 30, "plain")])
    done = run("finetune", model, "--train", train, "-o", tmp_path / "run", "epochs=1", *FAST)
    assert done.returncode == 0, done.stderr
    assert "1 of 62 rows skipped: empty text (1: line 62)" in done.stderr
    assert "texts are longer than 24 tokens: truncated" in done.stderr
    notes = json.loads((tmp_path / "run" / "results.json").read_text())["notes"]
    assert notes[0] == "train.tsv: text column `text`, label column `label`"
    assert len(notes) == 4


def test_an_error_of_the_labels_comes_after_the_rows_that_were_skipped(run, model, tmp_path):
    train = tmp_path / "train.csv"
    train.write_text("text,label\na, b,plain\nc,has z\nd\n")
    done = run("finetune", model, "--train", train, "-o", tmp_path / "run", *FAST)
    assert done.returncode == 3
    assert "2 of 3 rows skipped: 3 columns instead of 2 (1: line 2)" in done.stderr
    assert "at least two labels" in done.stderr


def test_dev_texts_that_are_training_texts_are_told(model, train, tmp_path):
    settled = settings(model, train, dev_file=str(write(tmp_path / "dev.tsv", [*rows(30), ("a e", "plain")])))
    (note,) = [note for note in read_examples(settled).notes if "training texts" in note]
    assert note.startswith("30 of 31 dev texts are also training texts")
    new = settings(model, train, dev_file=str(write(tmp_path / "new.tsv", rows(30, seed=1))))
    assert not [note for note in read_examples(new).notes if "training texts" in note]


def test_texts_that_cleaning_empties_are_named(model, tmp_path):
    train = write(tmp_path / "train.tsv", [("\u200b\u200b", "plain"), *rows(60), ("\x01", "plain")])
    dev = write(tmp_path / "dev.tsv", rows(20))
    results = run_finetune(settings(model, train, dev_file=str(dev), epochs=0.1), tmp_path / "run")
    assert "training: 2 examples are empty after cleaning (line 2, 63)" in results["notes"]


@pytest.mark.parametrize("policy", ["error", "window"])
def test_long_texts_are_refused_or_read_in_windows(run, model, tmp_path, policy):
    train = write(tmp_path / "train.tsv", [*rows(40), *[("a " * 60 + "z", "has z")] * 4])
    done = run("finetune", model, "--train", train, "-o", tmp_path / "run", "epochs=1", f"too_long={policy}", *FAST)
    if policy == "error":
        assert done.returncode == 3
        assert "longer than 24 tokens, on lines 42" in done.stderr.replace("\n", " ")
        assert not (tmp_path / "run").exists()
    else:
        assert done.returncode == 0, done.stderr
        assert "read in windows" in done.stderr
        settings = json.loads((tmp_path / "run" / "model" / "tokenizer_config.json").read_text())
        assert settings["model_max_length"] == 24
        facts = read_training_facts(tmp_path / "run" / "model")
        assert (facts.max_length, facts.too_long, facts.texts, facts.task) == (24, "window", 1, "sequence")
        assert "too_long" not in json.dumps(settings)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "no usable example"),
        ("text\tlabel\na b\tspam\nc d\tspam\n", "only 'spam'"),
        ("id\tstars\n7\t5\n", "no text column"),
        ("text\tlabel\n정말 재미있다\t1\n".encode("cp949"), "--encoding cp949"),
    ],
)
def test_unusable_files_end_with_one_clear_error(run, model, tmp_path, content, message):
    (tmp_path / "train.tsv").write_bytes(content.encode() if isinstance(content, str) else content)
    done = run("finetune", model, "--train", tmp_path / "train.tsv", "-o", tmp_path / "run", *FAST)
    assert done.returncode == 3
    assert message in done.stderr
    assert not (tmp_path / "run").exists()


def test_usage_errors(run, model, train, tmp_path):
    out = ("-o", tmp_path / "run")
    for arguments, message in [
        ((model, *out), "--train FILE"),
        ((model, "--data", "sst2", *out), "needs --data-dir"),
        ((model, "--data", "sst3", "--data-dir", tmp_path, *out), "Did you mean 'sst2'"),
        ((model, "--data", "sst2", "--data-dir", tmp_path, "--train", train, *out), "--train and --data exclude"),
        ((model, "--data", "sst2", "--data-dir", tmp_path, "--dev", train, *out), "--dev and --data exclude"),
        ((model, "--train", train), "-o RUN"),
        ((model, "--train", train, *out, "epoch=3"), "Did you mean 'epochs'"),
        ((model, "--train", train, *out, "max_length=99"), "32 positions"),
        ((model, "--train", train, *out, "train.steps=3"), "Set epochs=N instead"),
        ((model, "--train", train, *out, "freeze=1", "reinit=1"), "freeze=1 and reinit=1 of 1 layers exclude"),
        ((model, "--train", train, *out, "freeze=0", "from_scratch=true"), "freeze=0 and from_scratch=true exclude"),
    ]:
        done = run("finetune", *arguments)
        assert done.returncode == 2, arguments
        assert message in done.stderr
    assert not (tmp_path / "run").exists()
    assert run("finetune", tmp_path / "absent", "--train", train, *out).returncode in (2, 3)


@pytest.mark.parametrize("variables", [{"WORLD_SIZE": "2", "RANK": "0"}, {"WORLD_SIZE": "2"}, {"RANK": "x"}])
def test_several_processes_are_refused(tmp_path, monkeypatch, variables):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=r"bertie finetune runs in one process.* without torchrun"):
        run_finetune(FinetuneConfig(model="any"), tmp_path / "run")


def test_a_dry_run_says_the_plan_and_does_nothing(run, model, train, tmp_path):
    done = run("finetune", model, "--train", train, "-o", tmp_path / "run", "--dry-run", "--json", "epochs=2", *FAST)
    plan = json.loads(done.stdout)
    assert (plan["train_examples"], plan["dev_examples"], plan["steps"]) == (144, 16, 18)
    assert plan["labels"] == ["has z", "plain"]
    assert plan["seeds"] == 1
    assert not (tmp_path / "run").exists()
    done = run("finetune", model, "--train", train, "--dry-run", "--seeds", "3", "--trial", "0", *FAST)
    assert "seeds: 3" in done.stdout
    assert "each of 3 seeds:" in done.stdout


@pytest.mark.skipif("BERTIE_DATA" not in os.environ, reason="needs BERTIE_DATA")
def test_a_published_set_is_read_as_it_comes(run, model, tmp_path):
    root = Path(os.environ["BERTIE_DATA"])
    done = run("finetune", model, "--data", "rte", "--data-dir", root / "glue", "--dry-run", "--json", *FAST)
    plan = json.loads(done.stdout)
    assert (plan["train_examples"], plan["dev_examples"]) == (2490, 277)
    assert plan["labels"] == ["entailment", "not_entailment"]
