"""The demo's task leaks nothing, its plan fits its time, its page says what the run folder holds."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from bertie.apps.demo import headline, libraries, masked, pairs, pipeline, settings
from bertie.apps.demo.page import render_demo_page
from bertie.apps.demo.pipeline import run_demo
from bertie.apps.pydocs import DocPassage, Module
from bertie.errors import DataError, UsageError
from bertie.runs.config import PretrainConfig

BEES = (
    "Count the bees that came home before the evening and write their number into the book beside the door of the hive"
)


def module(package: str, name: str, *paragraphs: str) -> Module:
    return Module(package, name, (DocPassage(f"{name}.Hive", paragraphs),))


def test_names_that_tell_are_hidden_and_prose_is_not():
    modules = [
        module("torch", "torch.hive", "A tensor of bees. Tensors of tensors hold the number of every bee."),
        module("numpy", "numpy.array", "An array of bees, the number of each."),
        Module("torch", "torch.tensor", (DocPassage("torch.tensor.number", ("A tensor.",)),)),
    ]
    telling = libraries.telling_words(modules)
    assert "tensor" in telling, "it names something in torch only, and is the only one"
    assert "tensors" in telling
    assert "number" not in telling, "it names something in torch alone, but other libraries say it too"
    assert "bees" not in telling, "it names nothing"
    hidden = libraries.hide_names(
        "NumPy's tensors: see a.b.c, snake_case, CamelCase, call() or float32 of 3 bees.", telling
    )
    assert hidden == "name's name: see name, name, name, name or name of 3 bees."


def test_no_module_and_no_paragraph_is_on_both_sides():
    modules = [
        module(
            package,
            f"{package}.m{i}",
            f"{BEES} in {package}, box {i}.",
            "Shared by all of the modules, word for word, every time.",
        )
        for package in ("numpy", "scipy")
        for i in range(40)
    ]
    train, test = libraries.labelled_passages(modules)
    assert train
    assert test
    assert not {p.module for p in train} & {p.module for p in test}
    assert not any("Shared by all" in p.text for p in [*train, *test])
    held = {m.name for m in modules if libraries.is_held_out(m)}
    assert {p.module for p in test} <= held


def test_few_passages_are_balanced_and_a_function_of_the_seed():
    passages = [libraries.LabelledPassage(f"{i}", "ab"[i % 2], "m") for i in range(40)]
    drawn = libraries.draw_passages(passages, 5, seed=1)
    assert sorted(p.label for p in drawn) == ["a"] * 5 + ["b"] * 5
    assert drawn == libraries.draw_passages(passages, 5, seed=1)
    assert drawn != libraries.draw_passages(passages, 5, seed=2)


def test_pairs_say_truly_whether_they_are_of_one_document():
    documents = [[f"Sentence {s} of document {d}." for s in range(9)] for d in range(120)]
    chosen = pairs.split_documents(documents, documents[:3])
    assert chosen is not None
    train, test, seen = chosen
    assert "has read" in seen, "three documents are too few to test on"
    assert not {tuple(d) for d in train} & {tuple(d) for d in test}
    found = pairs.draw_pairs(train, 200, seed=0)
    assert sorted(p.label for p in found) == ["other"] * 100 + ["same"] * 100
    for pair in found:
        first, second = (set(re.findall(r"document (\d+)", text)) for text in (pair.first, pair.second))
        assert len(first) == len(second) == 1
        assert (first == second) == (pair.label == "same")
        assert pair.first != pair.second
    assert pairs.split_documents(documents[:5], []) is None


def test_the_plan_fits_the_time():
    probe = settings.MachineTrial(50_000, validation_s=0.5)
    steps, seeds = settings.affordable_run(probe, seconds=400, tokens=10**8, tokens_per_step=3000)
    assert seeds == len(settings.DEMO_SEEDS)
    spent_s = (
        steps * 3000 / 50_000
        + seeds * probe.seed_s
        + probe.longer_s
        + (settings.VALIDATIONS + 1) * 0.5
        + settings.MARGIN_S
    )
    assert 0.93 * 400 < spent_s <= 400
    fewer, _ = settings.affordable_run(
        settings.MachineTrial(50_000, 2.0), seconds=400, tokens=10**8, tokens_per_step=3000
    )
    assert fewer < steps, "validations take their time too"


def test_a_slow_machine_fine_tunes_fewer_seeds_and_reads_more():
    slow = settings.MachineTrial(7_000)
    steps, seeds = settings.affordable_run(slow, seconds=380, tokens=10**8, tokens_per_step=3000)
    assert seeds == settings.FEWEST_SEEDS
    assert steps * 3000 / 7_000 > 0.5 * 380
    assert settings.affordable_run(slow, seconds=-100, tokens=10**8, tokens_per_step=3000)[0] == settings.FEWEST_STEPS
    fast = settings.affordable_run(settings.MachineTrial(1e9), seconds=1e6, tokens=3000, tokens_per_step=30)
    assert fast == (settings.MAX_DEMO_EPOCHS * 100, len(settings.DEMO_SEEDS)), "a small text is not read for ever"


def test_seeds_that_would_not_fit_are_not_begun(run: Path, monkeypatch):
    from bertie.apps.demo import pipeline

    task = json.loads((run / "task.json").read_text()) | {
        "seeds": [0, 1, 2, 3, 4],
        "bag_of_words": [0.5] * 5,
        "examples": 9,
    }
    (run / "task.json").write_text(json.dumps(task))
    begun, clock = [], [0.0]

    def finetune(config, output):
        begun.append(output.name)
        clock[0] += 20.0
        return SimpleNamespace(scores={"accuracy": 0.5})

    monkeypatch.setattr(pipeline.bertie, "finetune", finetune)
    monkeypatch.setattr(pipeline, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(pipeline.DemoPipeline, "predictions", lambda self, seed: None)
    walk = pipeline.DemoPipeline(run, text=None, minutes=3.5)
    with walk.clock("fine-tuning"):  # 147.5 s are left: three seeds of 40 s fit, a fourth does not
        walk.finetuning()
    task = json.loads((run / "task.json").read_text())
    assert task["seeds"] == [0, 1, 2]
    assert task["bag_of_words"] == [0.5] * 3
    assert begun[6:] == ["longer"], "random weights, four times as long"
    assert len(begun) == 7


@pytest.mark.parametrize(
    ("pretrained", "bag", "expected"),
    [
        (0.62, 0.54, "The pre-trained model is 8 percentage points better than counting words"),
        (0.49, 0.54, "Counting words (bag of words) is still 5 percentage points better. Give the demo more time"),
        (0.54, 0.54, "equal within the noise"),
    ],
)
def test_the_headline_is_three_figures_and_what_they_mean(pretrained: float, bag: float, expected: str):
    noise = (-0.01, 0.0, 0.01)
    found = {"pretrained": [pretrained + x for x in noise], "random": [0.37 - x / 2 for x in noise]}
    task = {"labels": list("abcdef"), "bag_of_words": [bag + x / 3 for x in noise]}
    line = headline.format_accuracies(found, task)
    for part in (f"{pretrained:.2f} from the pre-trained model", "0.37 from random weights", f"{bag:.2f} bag of words"):
        assert part in line
    meaning = " ".join(headline.meaning(found, task))
    assert "Pre-training raises the accuracy of the same network by" in meaning
    assert expected in meaning


def test_the_headline_of_own_text_has_no_bag_of_words(run: Path):
    task = json.loads((run / "task.json").read_text())
    del task["bag_of_words"]
    (run / "task.json").write_text(json.dumps(task))
    first, *rest = headline.headline(run)
    assert (
        first
        == "Accuracy on unseen examples: 0.77 from the pre-trained model, 0.51 from random weights (chance: 0.50)."
    )
    assert not any("words" in line for line in rest)
    assert rest[-1] == "With 4 times as many epochs, random weights reach 0.61 (one run)."
    (run / "task.json").write_text(json.dumps({"skipped": "Too few documents."}))
    assert headline.headline(run) == ["Too few documents."]


def test_a_corpus_of_one_document_is_pretrained_without_pairs(tmp_path: Path):
    assert settings.pretraining(tmp_path, steps=10, tokens=10**6, documents=1).objectives.keys() == {"mlm"}
    config = settings.pretraining(tmp_path, steps=10, tokens=10**6, documents=2)
    assert config.objectives.keys() == {"mlm", "nsp"}
    assert PretrainConfig.model_validate(json.loads(json.dumps(config.model_dump(mode="json")))) == config


def lines(path: Path, rows: list[dict[str, object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    masked.write_lines(path, rows)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The run folder of a demo that never ran."""
    facts = {"masked": 0.2, "parameters": 12345, "steps": 20, "tokens": 54321, "epochs": 1.5, "tokens_per_s": 99.0}
    card = {"words": 777, "about": "Made up.", "card": [["documents", 3]], "sources": [["numpy", "9.9", 3, 777, 1]]}
    files = {
        "demo.json": {
            "about": "made-up text <&>",
            "machine": {"cores": 2},
            "settings": {"model": "small"},
            "versions": {"torch": "2"},
        },
        "stages.json": {
            "corpus": {"seconds": 1.5, "facts": card},
            "pre-training": {"seconds": 61.0, "facts": facts},
        },
        "task.json": {
            "labels": ["a", "b"],
            "seeds": [0, 1],
            "bag_of_words": [0.5, 0.6],
            "about": "About.",
            "shown": "",
        },
        "predictions.json": [{"texts": ["<b>"], "label": "a", "where": "m.n", "scores": {"a": 0.25, "b": 0.75}}],
    }
    for name, value in files.items():
        (tmp_path / name).write_text(json.dumps(value))
    figures = {"mlm_loss": 2.5, "mlm_accuracy": 0.4, "lr": 1e-3}
    lines(
        tmp_path / "pretrain/metrics.jsonl",
        [{"kind": k, "step": s, **figures} for s in (10, 20) for k in ("train", "valid")],
    )
    guess = [{"token": "bees", "probability": 0.5}, {"token": "<i>", "probability": 0.25}]
    lines(
        tmp_path / "guesses.jsonl",
        [{"step": 10, "sentences": ["The [MASK] hum."], "answers": ["bees"], "guesses": [guess]}],
    )
    for start, right in (("pretrained", 0.75), ("random", 0.5)):
        for seed in (0, 1):
            folder = tmp_path / f"finetune/{start}-{seed}"
            lines(folder / "metrics.jsonl", [{"kind": "valid", "step": 5, "accuracy": right}])
            (folder / "results.json").write_text(json.dumps({"dev": {"accuracy": right + seed * right / 25}}))
    (tmp_path / "finetune/longer").mkdir()
    (tmp_path / "finetune/longer/results.json").write_text(json.dumps({"dev": {"accuracy": 0.61}}))
    return tmp_path


def test_the_page_says_what_the_folder_holds(run: Path):
    text = render_demo_page(run).render()
    for expected in (
        "777 words",
        "12,345 parameters",
        "0.765",
        "0.510",
        "+0.255",
        "bees",
        "1 min 2 s",
        "54.3 K",
        "bag of words",
    ):
        assert expected in text
    tiles = re.findall(r'<div class="label">(.*?)</div>', text)
    assert tiles[:3] == ["accuracy, pre-trained", "accuracy, random weights", "accuracy, bag of words"]
    assert "chance" not in "".join(tiles)
    assert text.index("Does pre-training help?") < text.index("Training curves")
    assert not re.search(r"<th[^>]*></th>", text)
    assert "made-up text &lt;&amp;&gt;" in text
    assert "&lt;i&gt;" in text
    assert "<i>" not in text


def test_a_page_without_a_task_says_why(run: Path):
    (run / "task.json").write_text(json.dumps({"skipped": "Skipped: too few documents."}))
    (run / "guesses.jsonl").unlink()
    text = render_demo_page(run).render()
    assert "Skipped: too few documents." in text
    assert "Masked-token predictions" not in text


def test_a_folder_with_another_demo_is_left_alone(tmp_path: Path):
    (tmp_path / "demo.json").write_text(json.dumps({"asked": {"text": None, "minutes": 8.0}}))
    with pytest.raises(UsageError, match=r"minutes: 8\.0 -> 7\.5\n.*other\.txt\n.*--overwrite"):
        run_demo(tmp_path, text="other.txt")


def test_a_demo_of_a_text_that_has_changed_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pipeline.DemoPipeline, "go", lambda self: self.run / "report.html")
    text = tmp_path / "text.txt"
    text.write_text("One sentence.\n")
    assert run_demo(tmp_path / "run", text=str(text)) == run_demo(tmp_path / "run", text=str(text))
    text.write_text("Another sentence.\n")
    with pytest.raises(UsageError, match="has changed since the demo"):
        run_demo(tmp_path / "run", text=str(text))


def test_a_text_that_is_not_there_leaves_no_folder(tmp_path: Path):
    with pytest.raises(DataError, match="does not exist"):
        run_demo(tmp_path / "run", text=str(tmp_path / "nowhere"))
    assert not (tmp_path / "run").exists()


def test_documentation_is_kept_until_a_file_changes(tmp_path: Path, monkeypatch):
    package = tmp_path / "site" / "hivedocs"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(f'"""{BEES}."""\n')
    monkeypatch.syspath_prepend(package.parent)
    monkeypatch.setattr(libraries, "CACHE", tmp_path / "cache")
    found = libraries.read_libraries(["hivedocs"])
    assert [module.name for module in found] == ["hivedocs"]
    reads = []
    monkeypatch.setattr(libraries, "_read", lambda file: reads.append(file))
    assert libraries.read_libraries(["hivedocs"]) == found
    assert not reads
    (tmp_path / "cache" / "bertie" / "documentation.jsonl").write_text('{"key": 3}\n[')
    libraries.read_libraries(["hivedocs"])
    assert len(reads) == 1
    monkeypatch.undo()
