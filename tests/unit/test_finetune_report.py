"""The page of a fine-tuning run: what it shows of the answers, and what its folder may hold beforehand."""

import itertools
import json
import random
import re
from html import unescape

import numpy as np
import pytest
from scipy.stats import binomtest
from test_cli_finetune import FAST, model, one_thread, rows, run, settings, train, write

from bertie.infer.findings import SLICES, WORST, Findings
from bertie.infer.predict import Predictor
from bertie.io.tables import Example
from bertie.io.words import TaggedExample
from bertie.metrics.answers import QaPrediction
from bertie.metrics.base import wilson, with_intervals
from bertie.metrics.confusion import Confusion
from bertie.metrics.resample import Reservoir
from bertie.metrics.tags import TagScores
from bertie.report import sections
from bertie.report.page import Report
from bertie.runs.finetune import run_finetune
from bertie.runs.finetune_page import render_finetune_page
from bertie.tasks import Prediction
from bertie.tasks.choice import ChoiceTask
from bertie.tasks.multilabel import MultiLabelTask
from bertie.tasks.regression import RegressionTask
from bertie.tasks.render import AROUND, MOST, clipped, mark_text
from bertie.tasks.sequence import SequenceTask
from bertie.tasks.span import Span, SpanPrediction, SpanTask
from bertie.tasks.tagging import TaggingTask, TagPrediction

assert model
assert one_thread
assert run
assert train  # fixtures

SECTIONS = (
    "Training curves",
    "Metrics",
    "Confusion matrix",
    "Labels",
    "Calibration",
    "Performance by subgroup",
    "Worst answers",
    "Settings",
)
NEEDS = re.compile(r"""(src|href)=["']?(?!#|seed-)""")


def self_contained(html: str) -> bool:
    return not NEEDS.search(html.replace('xlink:href="#', "")) and "<script" not in html


def mixed(n: int, *, seed: int = 0) -> list[tuple[str, str]]:
    """Short texts and long ones, some of them too long."""
    return [(" ".join([text] * (1 + 2 * (i % 4 < 2))), label) for i, (text, label) in enumerate(rows(n, seed=seed))]


# The page of a run ---------------------------------------------------------------------------------------------------


def test_a_run_ends_with_its_page(model, tmp_path):
    hostile = {"has z": "<b>has</b> & $z$", "plain": "평범 <script>alert(1)</script>"}
    examples = [(f"{text} <i>", hostile[label]) for text, label in mixed(160)]
    often = {"eval_every": 5, "log_every": 1}
    config = settings(model, write(tmp_path / "train.tsv", examples), train=often, calibrate="temperature")
    results = run_finetune(config, tmp_path / "run")
    html = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    for heading in SECTIONS:
        assert f"<h2>{heading}</h2>" in html, heading
    assert html.count("<svg") == 5  # losses, metrics, learning rate, calibration, answered rows
    assert self_contained(html)
    assert "<b>has" not in html
    assert "<i>" not in re.sub(r'<i style="[^"]*"></i>', "", html)
    assert "&lt;b&gt;has&lt;/b&gt; &amp; $z$" in html
    assert "평범 &lt;script&gt;" in html
    low, high = results["dev"]["interval_95"]["accuracy"]
    assert f"{results['dev']['accuracy']:.3f}" in html
    assert f"{low:.3f} to {high:.3f}" in html
    assert "no dev file: 16 of 160 examples are held out" in html
    # Before and after the temperature was chosen; no answer changes by it.
    assert results["untuned"]["dev"]["ece"] != results["dev"]["ece"]
    assert results["untuned"]["dev"]["accuracy"] == results["dev"]["accuracy"]
    assert f"before, ECE {results['untuned']['dev']['ece']:.3f}" in html
    assert f"after tuning, ECE {results['dev']['ece']:.3f}" in html
    assert render_finetune_page(tmp_path / "run").render() == html  # it can be drawn again


def test_a_page_can_be_drawn_while_the_run_goes_on(run, model, train, tmp_path):
    out = tmp_path / "run"
    run_finetune(settings(model, train, train={"eval_every": 5, "log_every": 5}), out)
    for name in ("results.json", "findings.json", "report.html"):
        (out / name).unlink()
    done = run("report", out)
    assert done.returncode == 0, done.stderr
    html = (out / "report.html").read_text()
    assert "100% done" in html
    assert "<h2>Training curves</h2>" in html
    assert "<h2>Metrics</h2>" not in html


@pytest.mark.parametrize("dev", [[("a z b", "has z")], [("a b", "plain"), ("b c", "plain"), ("z", "never seen")]])
def test_a_dev_set_of_one_example_or_one_class_has_a_page(model, train, tmp_path, dev):
    config = settings(model, train, dev_file=str(write(tmp_path / "dev.tsv", dev)), epochs=0.5)
    results = run_finetune(config, tmp_path / "run")
    html = (tmp_path / "run" / "report.html").read_text()
    assert results["dev"]["examples"] == len(dev)
    assert "<h2>Metrics</h2>" in html
    assert "nan" not in unescape(re.sub(r"<svg.*?</svg>|<style>.*?</style>", "", html, flags=re.DOTALL)).lower()
    assert ("never seen" in html) == (len(dev) == 3)


def test_few_dev_examples_show_nothing_whatever_the_seeds(run, model, train, tmp_path):
    dev, out = write(tmp_path / "dev.tsv", rows(6, seed=1)), tmp_path / "run"
    run("finetune", model, "--train", train, "--dev", dev, "-o", out, "--seeds", 2, "epochs=0.2", *FAST)
    assert json.loads((out / "results.json").read_text())["worth"].startswith("6 examples cannot show whether")


def test_a_metric_that_is_not_defined_is_nowhere_a_number(run, model, tmp_path):
    train = write(tmp_path / "train.tsv", [(text, str(int(label == "has z"))) for text, label in rows(40)])
    dev, out = write(tmp_path / "dev.tsv", [("a b", "1"), ("z", "1")]), tmp_path / "run"
    given = ("--task", "regression", "--train", train, "--dev", dev, "--seeds", 2)
    done = run("finetune", model, *given, "-o", out, "epochs=1", *FAST)
    assert done.returncode == 0, done.stderr
    assert "pearson on dev: not defined" in done.stdout
    assert "<h2>Seeds</h2>" in (out / "report.html").read_text()
    assert "<th>pearson</th>" not in (out / "report.html").read_text()
    assert "| pearson | not defined |" in (out / "seed-0" / "model" / "README.md").read_text()
    compared = json.loads(run("compare", out / "seed-0", out / "seed-1", "--json").stdout)
    assert compared["runs"][0]["figures"] == {}


def test_a_model_of_one_answer_has_a_banner_at_the_top(model, train, tmp_path):
    run_finetune(settings(model, train, epochs=0.2, optim={"lr": 1e-9}), tmp_path / "run")
    html = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert html.index('role="alert"') < html.index('class="tiles"')
    assert "predicts one label for every example" in html
    assert "<dd>1e-09</dd>" in html
    assert not re.search(r"<th[^>]*></th>", html)
    assert "train.tsv:" in html  # the line of a wrong answer


def test_several_seeds_have_a_page_that_leads_to_theirs(run, model, train, tmp_path):
    out = tmp_path / "run"
    done = run("finetune", model, "--train", train, "-o", out, "--seeds", 2, "--json", "epochs=1", *FAST)
    summed = json.loads(done.stdout)
    html = (out / "report.html").read_text()
    links = re.findall(r'<a href="([^"]*)"', html)
    assert links == ["seed-0/report.html", "seed-1/report.html"]
    assert all((out / link).exists() for link in links)
    assert f"{summed['over_seeds']['accuracy']['mean']:.3f}" in html
    for seed in ("0", "1"):
        assert f"{summed['seeds'][seed]['accuracy']:.3f}" in html
    summed["degenerate"] = {"1": "<plain>"}
    (out / "results.json").write_text(json.dumps(summed))
    assert run("report", out).returncode == 0
    html = (out / "report.html").read_text()
    assert "1 of 2 seeds failed: the model predicts one label for every dev example" in html
    assert "seed 1: &#x27;&lt;plain&gt;&#x27;" in html
    assert html.index('role="alert"') < html.index('class="tiles"')
    assert "interval of the mean" not in html, "an interval over failed seeds means nothing"
    assert "mean of the others" in html


# The page of a labelled file -----------------------------------------------------------------------------------------


def test_evaluate_draws_the_same_sections(run, model, train, tmp_path):
    dev = write(tmp_path / "dev.tsv", mixed(60, seed=1))
    run_finetune(settings(model, train, dev_file=str(dev)), tmp_path / "run")
    html = tmp_path / "pages" / "dev.html"
    command = ("evaluate", tmp_path / "run" / "model", dev, "--engine", "torch", "--report", html)
    plain = json.loads(run(*command[:5], "--json").stdout)
    done = run(*command, "--json")
    assert json.loads(done.stdout) == plain  # looking changes no figure
    drawn, of_run = html.read_text(), (tmp_path / "run" / "report.html").read_text()
    assert self_contained(drawn)
    for section in SECTIONS[1:-1]:
        both = [re.search(f"<section><h2>{section}</h2>.*?</section>", one, re.DOTALL) for one in (drawn, of_run)]
        assert both[0][0] == both[1][0], section
    again = run(*command)
    assert again.returncode == 2
    assert "exists" in again.stderr
    assert run(*command, "--overwrite").returncode == 0


# Findings ------------------------------------------------------------------------------------------------------------


def answered(count: int, labels: tuple[str, ...]) -> tuple[list[Example], list[Prediction], list[int], list[bool]]:
    rng = random.Random(1)
    examples, predictions = [], []
    for line in range(1, count + 1):
        weights = [rng.random() for _ in labels]
        scores = {label: weight / sum(weights) for label, weight in zip(labels, weights, strict=True)}
        best = max(scores, key=scores.get)
        truth = best if rng.random() < 0.6 else rng.choice(labels)
        examples.append(Example(("some text",) * (1 + line % 2), truth, line))
        predictions.append(Prediction(best, scores[best], scores))
    return examples, predictions, [rng.randint(3, 200) for _ in examples], [rng.random() < 0.7 for _ in examples]


def test_findings_of_a_stream_are_those_of_all_at_once():
    task = SequenceTask(("a", "b", "c"))
    data = answered(500, task.labels)
    findings = Findings(task)
    for start in range(0, 500, 64):
        findings.add(*(part[start : start + 64] for part in data))
    found = findings.as_json()
    examples, predictions, tokens, fits = data
    wrong = [task.error_score(e, p) for e, p in zip(examples, predictions, strict=True)]
    assert [row["line"] for row in found["worst"]] == [i + 1 for i in np.argsort(wrong)[::-1][:WORST]]
    assert wrong[3] == pytest.approx(-np.log(predictions[3].scores[examples[3].label]))
    assert set(found["slices"]) == {"tokens", "too long", "texts"}
    for kind, chosen in {
        ("tokens", "33 to 64"): [32 < n <= 64 for n in tokens],
        ("tokens", "1 to 16"): [n <= 16 for n in tokens],
        ("too long", "yes"): [not fit for fit in fits],
        ("texts", "2"): [len(e.texts) == 2 for e in examples],
    }.items():
        scores = task.scores()
        part = [*itertools.compress(examples, chosen)], [*itertools.compress(predictions, chosen)]
        task.count(scores, *part)
        (slice_,) = [one for one in found["slices"][kind[0]] if one["name"] == kind[1]]
        low, high = scores.report()["interval_95"]["accuracy"]
        expected = {"examples": sum(chosen), "value": scores.compute()["accuracy"], "low": low, "high": high}
        assert slice_ == {"name": kind[1], **expected}
    assert [one["name"] for one in found["slices"]["tokens"]] == [
        "1 to 16",
        "17 to 32",
        "33 to 64",
        "65 to 128",
        "129 to 256",
    ]
    json.dumps(found)


def test_what_is_kept_is_bounded():
    class Many(SequenceTask):
        def slices(self, example, prediction, tokens, long):
            return {"line": str(example.line)}

        def scatter_point(self, example, prediction):
            return float(example.line), 0.0

    findings = Findings(Many(("a", "b")))
    findings.add(*answered(3000, ("a", "b")))
    found = findings.as_json()
    assert len(found["worst"]) == WORST
    assert len(found["points"]) == 1000
    assert len(found["slices"]["line"]) == SLICES + 1
    assert found["slices"]["line"][-1]["name"] == "others"
    assert found["slices"]["line"][-1]["examples"] == 3000 - SLICES


def test_a_reservoir_keeps_each_item_as_often():
    counts = np.zeros(40)
    for seed in range(2000):
        sample = Reservoir(10, seed=seed)
        for item in range(40):
            sample.add(item)
        counts[sample.items] += 1
    assert counts.sum() == 20_000
    assert abs(counts - 500).max() < 5 * np.sqrt(2000 * 0.25 * 0.75)
    few = Reservoir(10)
    for item in "abc":
        few.add(item)
    assert few.items == ["a", "b", "c"]


def test_a_task_with_nothing_to_choose_leaves_the_stream_alone():
    def answers():
        raise AssertionError("asked for answers")
        yield

    for task in (SequenceTask(("a", "b")), SpanTask(), MultiLabelTask(("a",), threshold=0.5)):
        assert task.tune_on_dev(answers()) is task


def test_evaluation_forgets_answers_as_it_goes(model, train, tmp_path, monkeypatch):
    """At no time are there answers of more than two chunks."""
    run_finetune(settings(model, train, epochs=0.2), tmp_path / "run")
    monkeypatch.setattr("bertie.infer.predict.CHUNK_ROWS", 8)
    alive, most = [0], [0]

    class Counted(Prediction):
        def __init__(self, *values, **options):
            super().__init__(*values, **options)
            alive[0] += 1
            most[0] = max(most)

        def __del__(self):
            alive[0] -= 1

    monkeypatch.setattr("bertie.tasks.sequence.Prediction", Counted)
    from bertie.runs.weights import load_model

    predictor = Predictor(load_model(tmp_path / "run" / "model"))
    file = write(tmp_path / "long.tsv", rows(400))
    peaks = []
    add = Findings.add

    def watched(self, *values):
        add(self, *values)
        peaks.append(alive[0])

    monkeypatch.setattr(Findings, "add", watched)
    assert predictor.score(file, findings=Findings(predictor.task))["examples"] == 400
    assert max(peaks) <= 2 * 8 + WORST


# What tasks show -----------------------------------------------------------------------------------------------------


def test_words_with_another_tag_are_marked():
    task = TaggingTask(("O", "B-PER", "I-PER", "B-LOC"))
    text = "Ada sails to Ely"
    spans = ((0, 3), (4, 9), (10, 12), (13, 16))
    example = TaggedExample((text,), ("B-PER", "O", "O", "B-LOC"), 4, spans=spans)
    answer = TagPrediction(("B-PER", "O", "O", "B-PER"), None, {}, text, spans, (0.9, 0.8, 0.9, 0.7))
    shown = task.render(example, answer)
    assert "".join(part.text for part in shown.texts[0]) == text
    assert [(part.text, part.note) for part in shown.texts[0] if part.kind] == [("Ely", "B-PER, not B-LOC")]
    assert (shown.truth, shown.answer, shown.note) == ("LOC Ely", "PER Ely", "1 of 4 words")
    assert task.error_score(example, answer) == pytest.approx(0.7)


def test_entities_are_confused_where_they_share_words():
    scores = TagScores(("O", "B-PER", "I-PER", "B-LOC", "B-ORG"))
    true = ["B-PER", "I-PER", "O", "B-LOC", "O", "B-ORG", "O"]
    given = ["B-PER", "O", "O", "B-PER", "O", "O", "B-ORG"]
    scores.add([true], [given])
    report = scores.report()
    names = [*report["labels"], ""]
    cells = {(names[i], names[j]): n for i, row in enumerate(report["confusion"]) for j, n in enumerate(row) if n}
    assert cells == {("PER", "PER"): 1, ("LOC", "PER"): 1, ("ORG", ""): 1, ("", "ORG"): 1}
    assert report["most_confused"] == [["", "ORG", 1], ["LOC", "PER", 1], ["ORG", "", 1]]


def test_answers_in_a_context_are_marked_and_cut_to_what_matters():
    task = SpanTask(threshold=0.0)
    context = "x" * 1000 + " in 1843 by Ada " + "y" * 1000
    start = context.index("1843")
    example = Example(("When?", context), (("1843", start),), 2, "q1")
    given = SpanPrediction(
        QaPrediction("by Ada", "by Ada", -3.0), 0.8, spans=(Span("by Ada", start + 5, start + 11, 2.0, 0.8),)
    )
    shown = task.render(example, given)
    assert [(p.text, p.kind) for p in shown.texts[1] if p.kind] == [("1843", "true"), ("by Ada", "given")]
    told = "".join(part["text"] for part in shown.as_json()["texts"][1])
    assert len(told) < 3 * AROUND
    assert "in 1843 by Ada" in told
    assert (shown.truth, shown.answer) == ("1843", "by Ada")
    assert task.error_score(example, given) == pytest.approx(0.8)
    silent = SpanPrediction(QaPrediction("", "by Ada", 2.0), None, spans=given.spans)
    assert task.error_score(example, silent) == pytest.approx(1 / (1 + np.exp(-2)))
    assert task.error_score(Example(("When?", context), (), 3), silent) == 0
    slices = task.slices(example, given, 300, True)
    assert (slices["question word"], slices["words of the answer"]) == ("when", "1")
    assert task.slices(Example(("그 책은 누가 썼나?", context), (), 1), silent, 9, False)["question word"] == "누가"


def test_overlapping_marks_are_cut_where_they_begin_and_end():
    parts = mark_text("abcdef", [(1, 4, "true"), (2, 6, "given")])
    assert [(p.text, p.kind) for p in parts] == [("a", ""), ("b", "true"), ("cd", "true given"), ("ef", "given")]
    assert clipped(mark_text("a" * 5000, []))[0].text == "a" * MOST + " …"


def test_choices_label_sets_and_numbers_are_shown_as_what_they_are():
    choice = ChoiceTask().render(Example(("It rained.", "wet", "dry"), "0"), Prediction("1", 0.9, {"0": 0.1, "1": 0.9}))
    assert [[(p.text, p.kind) for p in text] for text in choice.texts[1:]] == [
        [("0: ", ""), ("wet", "true")],
        [("1: ", ""), ("dry", "given")],
    ]
    sets = MultiLabelTask(("a", "b"))
    example, answer = Example(("text",), ("b",)), Prediction((), None, {"a": 0.1, "b": 0.4})
    assert (sets.render(example, answer).truth, sets.render(example, answer).answer) == ("b", "none")
    assert sets.error_score(example, answer) == pytest.approx(-np.log(0.9) - np.log(0.4))
    number = RegressionTask()
    assert number.error_score(Example(("text",), 4.0), Prediction(1.5)) == 2.5
    assert number.scatter_point(Example(("text",), 4.0), Prediction(1.5)) == (4.0, 1.5)
    assert number.render(Example(("text",), 4.0), Prediction(1.5)).note == "off by 2.5"


# Many labels, intervals ----------------------------------------------------------------------------------------------


def test_of_300_labels_the_weakest_and_the_most_confused_are_shown():
    labels = tuple(f"<label {n}>" for n in range(300))
    scores = Confusion(labels)
    for n, label in enumerate(labels):
        wrong = labels[(n + 1) % 300]
        scores.add([label] * 20, [wrong] * (n % 20) + [label] * (20 - n % 20))
    report = Report("t")
    sections.add_sections(
        report,
        with_intervals(scores.report(resamples=20)),
        {"metric": "accuracy", "slices": {}, "worst": [], "points": []},
    )
    html = report.render()
    assert "&lt;label 19&gt;" in html
    assert "<label" not in html
    assert html.count("<tr>") < 80
    assert "270 more have a higher F1" in html
    assert ">95%</td>" in html
    assert 'class="heat"' not in html


def test_labels_without_an_example_do_not_hide_the_weak_ones():
    labels = tuple(f"label {n:03}" for n in range(60))
    scores = Confusion(labels)
    scores.add(["label 050"] * 5 + ["label 051"] * 5, ["label 051"] * 4 + ["label 050"] + ["label 051"] * 5)
    report = Report("t")
    sections.add_sections(
        report,
        with_intervals(scores.report(resamples=20)),
        {"metric": "accuracy", "slices": {}, "worst": [], "points": []},
    )
    html = report.render()
    assert "58 have no example here" in html
    part = re.search("<h2>Labels</h2>.*?</section>", html, re.DOTALL)[0]
    assert re.findall(r"label \d+", part) == ["label 050", "label 051"]


@pytest.mark.parametrize(("right", "total"), [(0, 5), (3, 9), (40, 40), (1, 1)])
def test_wilson_is_scipys(right, total):
    expected = binomtest(right, total).proportion_ci(0.95, method="wilson")
    assert wilson(right, total) == pytest.approx((expected.low, expected.high), abs=1e-6)


# The folder ----------------------------------------------------------------------------------------------------------


def test_a_folder_with_other_files_is_refused_and_left_as_it_is(run, model, train, tmp_path):
    out = tmp_path / "thesis"
    out.mkdir()
    (out / "chapter-1.txt").write_text("years of work")
    for seeds in ((), ("--seeds", 2)):
        done = run("finetune", model, "--train", train, "-o", out, *seeds, "epochs=1", *FAST)
        assert done.returncode == 2
        assert "contains files that are not a run" in done.stderr
    assert [path.name for path in out.iterdir()] == ["chapter-1.txt"]


def test_one_seed_and_several_do_not_share_a_folder(run, model, train, tmp_path):
    out = tmp_path / "run"
    command = ("finetune", model, "--train", train, "-o", out, "epochs=1", *FAST, "--json")
    one = run(*command, "--seed", 7)
    assert json.loads(one.stdout)["identity"]["train.seed"] == 7
    assert "seed: 7" in (out / "run.yaml").read_text()
    several = run(*command, "--seeds", 2)
    assert several.returncode == 2
    assert "contains a run of one seed" in several.stderr
    assert json.loads((out / "results.json").read_text()) == json.loads(one.stdout)
    summed = run(*command, "--seeds", 2, "--seed", 7, "--overwrite")
    assert [*json.loads(summed.stdout)["seeds"]] == ["7", "8"]
    assert json.loads(summed.stdout)["seeds"]["7"]["accuracy"] == pytest.approx(
        json.loads(one.stdout)["dev"]["accuracy"]
    )
    again = run(*command, "--seeds", 2, "--seed", 7)
    assert json.loads(again.stdout) == json.loads(summed.stdout)
    assert run(*command).returncode == 2
