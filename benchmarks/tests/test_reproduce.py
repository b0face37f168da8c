"""The table of results is resumed where it was stopped, and states how it was made."""

import json
from importlib.metadata import version
from pathlib import Path

import pytest

from benchmarks import results as module
from benchmarks.finetune import bertie_run, prepare
from bertie.errors import UsageError
from bertie.runs.config import FinetuneConfig
from bertie.tasks.datasets import DATASETS
from bertie.train.config import TrainConfig
from serving import make_models
from toys import CommandLine

pytest.importorskip("transformers")
pytest.importorskip("accelerate")


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, int]]:
    """Every call of a side, which answers with a number made of its seed."""
    calls: list[tuple[str, str, int]] = []

    def side(name: str, plus: float):
        def measure(row, config, train):
            calls.append((name, config.data, config.train.seed))
            quality = 0.5 + plus + 0.1 * config.train.seed
            return {"quality": quality, "processor_seconds": 3.0, "metric": "accuracy", **SIZES}

        return measure

    monkeypatch.setattr(module, "SIDES", {module.BERTIE: side("b", 0.0), module.PEER: side("t", 0.2)})
    return calls


SIZES = {"train": 2490, "dev": 277, "precision": "fp32", "rate": 9e-5}
ENGLISH = {module.ENGLISH: ["minilm"]}


def test_only_what_is_missing_is_measured(measured: list, tmp_path: Path):
    kept: list[int] = []
    run = tmp_path / "run"
    rows = module.reproduce(["rte"], ENGLISH, tmp_path, run, seeds=2, peer_seeds=2, done=lambda r: kept.append(len(r)))
    assert measured == [("b", "rte", 0), ("t", "rte", 0), ("b", "rte", 1), ("t", "rte", 1)]
    assert kept == [1], "the page is written after each row"
    again = module.reproduce(["rte", "wnli"], ENGLISH, tmp_path, run, seeds=3)
    assert len(measured) == 4 + 1 + 3 + 1
    assert [row["Bertie"]["runs"] for row in again] == [3, 3]
    assert [row["transformers"]["runs"] for row in again] == [1, 1], "the usual number of the Trainer"
    text = module.page(rows, command="python -m benchmarks reproduce results --only rte")
    assert (
        "| rte | minilm | accuracy | 2 | 0.550 ± 0.071 | 0.750 ± 0.071 | -0.200 (-0.504 to +0.104) | 56.0 | 56.8 "
        "| 66.4 | 70.1 | 93.6 |" in text
    )
    assert "| BERT-base † |" in text
    assert "| rte | minilm | 2,490, 277 | 3 | 3 |" in text
    assert "    python -m benchmarks reproduce results --only rte\n" in text
    assert "per process, fp32." in text
    assert f": Bertie {version('bertie')}, torch" in text


def test_what_is_not_as_published_is_told(measured: list, tmp_path: Path):
    rows = module.reproduce(["squad2"], ENGLISH, tmp_path, tmp_path / "run", seeds=5)
    text = module.page(rows, command="")
    assert "* squad2: training on the first four fifths of dev, evaluation on the last fifth" in text


def test_a_page_without_the_trainer_does_not_name_it(measured: list, tmp_path: Path):
    rows = module.reproduce(["stsb"], ENGLISH, tmp_path, tmp_path / "run", seeds=2, peer_seeds=0)
    assert measured == [("b", "stsb", 0), ("b", "stsb", 1)]
    text = module.page(rows, command="")
    assert "rainer" not in text
    assert "transformers" not in text
    assert "| stsb | minilm | accuracy | 2 | 0.550 ± 0.071 | 80.0 |" in text


def test_other_settings_are_not_mixed_in(measured: list, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    module.reproduce(["rte"], ENGLISH, tmp_path, tmp_path / "run", seeds=1)
    monkeypatch.setitem(module.ROWS, "rte", module.ResultSpec("rte", epochs=7))
    with pytest.raises(UsageError, match="other settings"):
        module.reproduce(["rte"], ENGLISH, tmp_path, tmp_path / "run", seeds=1)


def test_seeds_depend_on_the_examples():
    asked = {name: module.seeds_of(module.ROWS[name]) for name in ("rte", "cola", "sst2", "squad", "kornli")}
    assert asked == {"rte": 5, "cola": 5, "sst2": 3, "squad": 3, "kornli": 5}
    assert module.seeds_of(module.ROWS["sst2"], 500) == 5


def test_some_examples_are_of_the_whole_file():
    for count, most in ((1999, 1000), (7000, 1500), (5, 10)):
        found = module.spaced(list(range(count)), most)
        assert (found[0], found[-1], len(set(found))) == (0, count - 1, min(count, most))


def test_the_average_needs_all_sets():
    rows = [{"name": name, "model": "m", "Bertie": {"mean": 0.5}} for name in module.GLUE]
    assert module.glue_average(rows[1:]) == {}
    found = module.glue_average(rows)
    assert found["m"] == 50
    assert found["BERT-base"] == pytest.approx(79.1, abs=0.1), "the paper's 79.6 has MNLI twice, without its rank"


def test_rows_without_files_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "glue" / "RTE").mkdir(parents=True)
    (tmp_path / "glue" / "RTE" / "train.tsv").write_text("")
    assert module.available(tmp_path, ENGLISH) == ("rte",)
    assert "qqp" in capsys.readouterr().err


def test_questions_and_sentences_are_made_as_glue_made_them(tmp_path: Path):
    context = "The mill is old. Anna built the mill. It has a red door and the old mill has a roof."
    asked = [("Who built the mill?", "Anna"), ("What color is the door of the old mill?", "red"), ("Which?", "old")]
    questions = [
        {"id": str(i), "question": q, "answers": [{"text": a, "answer_start": context.index(a)}]}
        for i, (q, a) in enumerate(asked)
    ]
    (tmp_path / "squad").mkdir()
    frame = {"version": "1.1", "data": [{"title": "t", "paragraphs": [{"context": context, "qas": questions}]}]}
    (tmp_path / "squad" / "train-v1.1.json").write_text(json.dumps(frame))
    (tmp_path / "squad" / "dev-v1.1.json").write_text(json.dumps(frame))
    made = module.questions_and_sentences(tmp_path)
    assert [(e.texts[1], e.label) for e in made] == [
        ("Anna built the mill.", "entailment"),
        ("The mill is old.", "not_entailment"),
        ("The mill is old.", "entailment"),
    ]


def model_in(folder: Path, weights: str) -> str:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_text(weights)
    return str(folder)


def test_results_of_two_models_are_lines_of_one_table(measured: list, tmp_path: Path):
    first, second = (model_in(tmp_path / name / "model", name) for name in ("small", "large"))
    run = tmp_path / "run"
    module.reproduce(["rte"], {module.ENGLISH: [second]}, tmp_path, run, seeds=2, peer_seeds=0)
    assert len(measured) == 2
    both = {module.ENGLISH: [first, second]}
    rows = module.reproduce(["rte", "wnli"], both, tmp_path, run, seeds=2, peer_seeds=0)
    assert len(measured) == 2 + 6, "one of four is there already, whatever the order of the models"
    assert [(row["name"], row["model"]) for row in rows] == [
        (n, m) for n in ("rte", "wnli") for m in ("small", "large")
    ]
    text = module.page(rows, command="")
    assert "| rte | small | accuracy | 2 |" in text
    assert "| rte | large | accuracy | 2 |" in text
    module.reproduce(["rte", "wnli"], both, tmp_path, run, seeds=2, peer_seeds=0)
    assert len(measured) == 8


def test_results_of_another_model_of_the_same_name_are_not_mixed_in(measured: list, tmp_path: Path):
    a, b, c = (model_in(tmp_path / name / "model", name) for name in ("a/m", "b/m", "c/m"))
    run = tmp_path / "run"
    module.reproduce(["rte"], {module.ENGLISH: [a]}, tmp_path, run, seeds=1)
    rows = module.reproduce(["rte"], {module.ENGLISH: [b, a]}, tmp_path, run, seeds=1)
    assert [row["model"] for row in rows] == ["m", "m-2"]
    with pytest.raises(UsageError, match="another model"):
        module.reproduce(["rte"], {module.ENGLISH: [c]}, tmp_path, run, seeds=1)


def test_a_model_of_another_task_is_a_start(tmp_path: Path):
    span = make_models(tmp_path / "models", ("span",))["span"]
    table = tmp_path / "rows.tsv"
    table.write_text("text\tlabel\n" + "a good room\tyes\na bad room\tno\n" * 8)
    train = TrainConfig(batch_size=4, steps=4, eval_every=10**6)
    config = FinetuneConfig(model=str(span), train_file=str(table), dev_file=str(table), max_length=16, train=train)
    seconds, quality = bertie_run("fp32")(prepare(config), 0)
    assert seconds > 0
    assert 0 <= quality <= 1


def test_a_row_without_its_model_is_told(tmp_path: Path):
    with pytest.raises(UsageError, match="korean model"):
        module.reproduce(["nsmc"], ENGLISH, tmp_path, tmp_path / "run")


def test_an_unknown_set_is_told(tmp_path: Path):
    with pytest.raises(UsageError, match="rte"):
        module.reproduce(["rtee"], ENGLISH, tmp_path, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_every_row_is_a_published_set():
    for name in module.ROWS:
        config = module.config_of(module.ROWS[name], "minilm", Path("data"), 3)
        assert config.data in DATASETS
        assert (config.train.seed, config.train.precision) == (3, "auto"), "the machine decides"


def test_a_korean_model_needs_no_english_one(measured: list, tmp_path: Path, benchmarks: CommandLine):
    for name in ("xnli.dev.ko.tsv", "xnli.test.ko.tsv"):
        path = tmp_path / "korean" / "kornli" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    korean, options = model_in(tmp_path / "ko", "x"), ("--seeds", 1, "--peer-seeds", 0, "--data-dir", tmp_path)
    out = benchmarks.good("reproduce", "results", "--korean-model", korean, *options, "-o", tmp_path / "run")
    assert "| kornli |" in out
    assert {name for _, name, _ in measured} == {"kornli"}
    code, _, err = benchmarks("reproduce", "results", *options, "-o", tmp_path / "none")
    assert (code, "No model given" in err) == (2, True)
