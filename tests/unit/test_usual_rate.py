"""The learning rate that is chosen by size and the evaluations by length, unless they are set; slips draw a warning."""

import pytest

from bertie import settings
from bertie.files import read_json
from bertie.runs.config import FinetuneConfig
from bertie.runs.finetune_prepare import with_steps
from bertie.train.schedule import usual_rate
from toys import CommandLine, toy_model


@pytest.mark.parametrize(("width", "rate"), [(32, 5e-4), (128, 5e-4), (384, 9e-5), (768, 3e-5), (1024, 2e-5)])
def test_by_width(width, rate):
    assert usual_rate(width) == pytest.approx(rate, rel=1e-9)


def test_what_was_given_is_known():
    """A section given in part: its own settings alone count as given, the others keep this config's defaults."""
    config = settings.load_config(FinetuneConfig, None, ["optim.warmup=0.2"], model="x")
    assert config.optim.model_fields_set == {"warmup"}
    assert (config.optim.lr, config.optim.warmup) == (3e-5, 0.2)


@pytest.mark.parametrize(
    ("overrides", "examples", "every"),
    [([], 500, 100), ([], 67_349, 632), (["train.save_every=9"], 67_349, 632), (["train.eval_every=50"], 67_349, 50)],
)
def test_a_long_run_is_evaluated_ten_times(overrides, examples, every):
    config = with_steps(settings.load_config(FinetuneConfig, None, ["epochs=3", *overrides], model="x"), examples)
    assert config.train.eval_every == every
    assert with_steps(config, 10 * examples).train.eval_every == every, "known, as it is in run.yaml"


@pytest.fixture
def files(tmp_path) -> list[object]:
    toy_model(tmp_path / "model", "abcdef")
    rows = "".join(f"{'ab'[i % 2]} c\t{'xy'[i % 2]}\tid{i}\n" for i in range(40))
    (tmp_path / "train.tsv").write_text("text\tlabel\tname\n" + rows)
    return [tmp_path / "model", "--train", tmp_path / "train.tsv", "max_length=16", "train.batch_size=16"]


@pytest.mark.parametrize(
    ("options", "rate", "said"),
    [([], 5e-4, True), (["optim.warmup=0.2"], 5e-4, True), (["optim.lr=3e-5"], 3e-5, False)],
)
def test_a_run_says_what_it_chose(monkeypatch, capsys, tmp_path, files, options, rate, said):
    cli = CommandLine(monkeypatch, capsys)
    code, _, err = cli("finetune", *files, "epochs=1", "baselines=false", "-o", tmp_path / "run", *options)
    assert code == 0, err
    assert read_json(tmp_path / "run/results.json")["identity"]["optim.lr"] == rate
    assert ("optim.lr 0.0005, chosen for a model of" in err) == said


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["optim.lr=2"], "optim.lr is 2;"),
        (["optim.warmup=1000"], "it never reaches 0.0005"),
        (["epochs=90"], "epochs is 90;"),
        (["--label", "name"], "looks like an id"),
    ],
)
def test_slips_are_told_before_the_run(monkeypatch, capsys, tmp_path, files, options, word):
    cli = CommandLine(monkeypatch, capsys)
    split = ["--dev", files[2]]
    assert word in cli.good("finetune", *files, *split, "--dry-run", *options)
    assert word not in cli.good("finetune", *files, *split, "--dry-run")
