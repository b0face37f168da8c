"""The traffic of a model: counts and vectors of what it answered, in files, and drift from its training."""

import csv
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import bertie
from bertie.apps.drift import shift
from bertie.errors import DataError, UsageError
from bertie.infer.predict import Predictor
from bertie.infer.traffic import DIMENSIONS, KEPT, Traffic, VectorSample, label_of, write_traffic
from bertie.io.tables import Example
from bertie.runs.opening import ModelFolder
from bertie.runs.weights import load_model
from bertie.tasks import Prediction
from bertie.tasks.span import QaPrediction
from bertie.tasks.tagging import TagPrediction
from bertie.text.scripts import main_script
from serving import LETTERS, make_model
from toys import CommandLine, toy_model

rng = np.random.default_rng(7)
SHORT = ["".join(rng.choice(list("abcde"), 3)) + " " + "".join(rng.choice(list("abcde"), 2)) for _ in range(300)]
LONG = [" ".join("".join(rng.choice(list("vwxyz"), 4)) for _ in range(6)) for _ in range(300)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier whose training read SHORT[:150]."""
    home = tmp_path_factory.mktemp("traffic")
    folder = make_model(toy_model(home / "start", LETTERS), home / "model", "sequence", {}, 1)
    traffic = Traffic.of_model(folder)
    [*Predictor(load_model(folder)).stream([Example((text,)) for text in SHORT[:150]], traffic=traffic)]
    write_traffic(folder / Traffic.FILE, [traffic])
    return folder


def test_counts_and_vectors_of_predictions_are_added_to_a_file(model: Path, tmp_path: Path):
    log = tmp_path / "new" / "traffic.json"
    bertie.predict(model, SHORT[:40], log=log)
    bertie.predict(model, [*LONG[:60], ""], log=log)
    (traffic,) = Traffic.read(log).values()
    assert traffic.rows == 100, "the empty text has no answer"
    assert traffic.names["script"] == Counter(Latin=100)
    assert traffic.names["label"].keys() <= {"yes", "no"}
    assert all(counts.sum() == 100 for counts in traffic.counts.values())
    assert traffic.counts.keys() == {"tokens", "unknown_tokens", "confidence"}
    assert traffic.vectors.array.shape == (100, DIMENSIONS)
    assert traffic.vectors.width == 32
    assert not any(text in log.read_text() for text in SHORT[:40] + LONG[:60])
    tokens = len(SHORT[0]) - 1 + 2  # letters and [CLS], [SEP]
    at = int(np.searchsorted(Traffic.EDGES["tokens"], tokens))
    assert traffic.counts["tokens"][at] >= 40


def test_the_counts_of_parts_add_up_to_those_of_the_whole(model: Path):
    parts = []
    for texts in (SHORT[:100], SHORT[100:], SHORT):
        bertie.predict(model, texts, log=(traffic := Traffic("x")))
        parts.append(Traffic.of_json(traffic.as_json()))
    both, whole = parts[0] + parts[1], parts[2]
    assert both.rows == whole.rows
    assert both.names == whole.names
    assert all(np.array_equal(both.counts[name], whole.counts[name]) for name in whole.counts)
    assert len(both.vectors.array) == len(whole.vectors.array) == 300


def test_a_sample_has_each_row_with_the_same_probability_and_merges_in_proportion():
    numbers = np.arange(4 * KEPT, dtype=np.float32)
    sample = VectorSample()
    for part in np.split(numbers, 8):
        rows, places = sample.draw(len(part))
        sample.rows.update(zip(places.tolist(), np.repeat(part[rows, None], DIMENSIONS, 1), strict=True))
    assert len(sample.rows) == KEPT
    thirds = np.histogram(sample.array[:, 0], 4, (0, 4 * KEPT))[0]
    assert abs(thirds - KEPT / 4).max() < 5 * (KEPT * 3 / 16) ** 0.5
    few = VectorSample(32, KEPT, {i: np.full(DIMENSIONS, -1, np.float32) for i in range(KEPT)})
    both = sample + few
    assert both.total == 5 * KEPT
    assert len(both.rows) == KEPT
    assert abs((both.array[:, 0] < 0).mean() - 1 / 5) < 0.1
    assert len((VectorSample() + few).rows) == KEPT


@pytest.mark.parametrize(
    ("answer", "name"),
    [
        (Prediction("yes"), "yes"),
        (Prediction("a text that was generated"), None),
        (Prediction(None, reason="not sure"), "no answer"),
        (Prediction(QaPrediction("Paris", "Paris", 0.0)), "answer"),
        (Prediction(QaPrediction("", "Paris", 0.0)), "no answer"),
        (Prediction(("x", "yes"), None, {"x": 0.6, "yes": 0.9}), "yes"),
        (Prediction(()), "none"),
        (Prediction(0.5), None),
        (TagPrediction(("O", "B-X", "I-X", "B-Y")), "X"),
        (TagPrediction(("O",)), "none"),
    ],
)
def test_a_label_is_one_of_the_model_and_never_a_text(answer: Prediction, name: str | None):
    assert label_of(answer, {"x", "yes", "O", "B-X", "I-X", "B-Y"}) == name


def test_the_script_of_a_text_is_that_of_most_letters():
    assert [main_script(text) for text in ("abc 한", "한국어 a", "12 !", "")] == ["Latin", "Hangul", "none", "none"]


def test_drift_finds_other_texts_and_the_rows_least_like_training(model: Path, tmp_path: Path):
    table = tmp_path / "new.jsonl"
    table.write_text("".join(json.dumps({"text": text}) + "\n" for text in [*SHORT[150:250], *LONG[:30]]))
    result = bertie.drift(model, table, top=5)
    assert result.drifted
    assert result.rows == 130
    assert result.reference_rows == 150
    by_name = {one.quantity: one for one in result.differences}
    assert by_name["tokens"].differs
    assert by_name["vectors"].differs
    assert by_name["tokens"].changes[0].share > by_name["tokens"].changes[0].reference
    assert by_name["vectors"].interval[0] < by_name["vectors"].separability < by_name["vectors"].interval[1]
    assert all(row.row > 100 and row.line == row.row and row.farther < 0.05 for row in result.unlike)
    assert [row.distance for row in result.unlike] == sorted((row.distance for row in result.unlike), reverse=True)
    assert "tokens" in repr(result)
    assert "<table>" in result._repr_html_()
    assert json.dumps(result.to_dict())
    assert len(result.to_pandas()) == len(result.differences)


def test_no_drift_of_texts_like_those_of_training(model: Path):
    result = bertie.drift(model, SHORT[150:], top=0)
    assert not result.drifted
    assert not result.unlike
    assert min(one.adjusted_p for one in result.differences) > 0.05


def test_a_reference_may_be_a_log_or_a_table(model: Path, tmp_path: Path):
    log = tmp_path / "traffic.json"
    bertie.predict(model, LONG[:100], log=log)
    assert bertie.drift(model, log).drifted
    assert not bertie.drift(model, log, reference=LONG[100:]).drifted
    assert not bertie.drift(model, LONG[100:], reference=log).drifted


def test_false_alarms_over_all_quantities_are_rarer_than_the_level():
    draws, alarms = 60, 0
    for seed in range(draws):
        rows = np.random.default_rng(seed).normal(size=(120, 8)).astype(np.float32)
        bins = [np.bincount(np.random.default_rng((seed, k)).integers(0, 6, 120), minlength=6) for k in range(2)]
        halves = [np.random.default_rng((seed, k, 1)).multivariate_hypergeometric(b, 60) for k, b in enumerate(bins)]
        tests = [shift.compare_counts(h, b - h, 400) for h, b in zip(halves, bins, strict=True)]
        tests.append(shift.compare_vectors(rows[:60], rows[60:], 400))
        alarms += min(shift.adjusted([test.p for test in tests])) <= 0.05
    assert alarms <= 7  # of 60 at 5%: 8 or more have a probability of 1%


def test_a_shift_is_found_among_many_more_rows_on_one_side():
    one, two = shift.thinned([0, 0, 200], [10_000_000, 5, 5])
    assert one.sum() == 200
    assert two.sum() == 800
    groups = shift.grouped_bins(one + two)
    assert len(groups) == 2
    assert shift.compare_counts([0, 200], [800, 0], 400).p < 0.01


def test_the_adjusted_p_values_are_those_of_holm():
    assert shift.adjusted([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])


def test_a_model_that_is_made_of_another_has_the_traffic_of_its_training(model: Path, tmp_path: Path):
    (tmp_path / "made").mkdir()
    ModelFolder(model).write_like(load_model(model), tmp_path / "made")
    result = bertie.drift(tmp_path / "made", SHORT[150:])
    assert result.reference_rows == 150
    assert not result.drifted


def test_what_drift_refuses(model: Path, tmp_path: Path):
    other = make_model(toy_model(tmp_path / "start", LETTERS[:40]), tmp_path / "other", "sequence", {}, 1)
    log, empty, damaged = (tmp_path / name for name in ("log.json", "empty.json", "damaged.json"))
    bertie.predict(other, SHORT[:5], log=log)
    write_traffic(empty, [])
    damaged.write_text('{"format": 1, "traffic": [{"model": "x", "rows": -1, "counts": {}, "names": {}}]}')
    table = tmp_path / "table.csv"
    table.write_text("number,date\n1,2020-01-01\n2,2020-01-02\n")
    for data, words in (
        (log, "other model"),
        (empty, "is empty"),
        (damaged, "damaged"),
        (table, "column"),
        ([], "no row"),
    ):
        with pytest.raises(DataError, match=words):
            bertie.drift(model, data)
    with pytest.raises(DataError, match="--reference"):
        bertie.drift(other, log)
    for level in (0.0, 0.7, float("nan")):
        with pytest.raises(UsageError, match="level"):
            bertie.drift(model, SHORT, level=level)
    with pytest.raises(DataError, match="damaged"):
        bertie.predict(model, SHORT[:5], log=damaged)
    with pytest.raises(DataError, match="cannot be written"):
        bertie.predict(model, SHORT[:5], log=table / "log.json", output=tmp_path / "labels.csv")
    assert not (tmp_path / "labels.csv").exists()
    with pytest.raises(UsageError, match="ensemble"):
        bertie.predict(model, SHORT[:5], ensemble=[model], log=tmp_path / "x.json")
    assert not (tmp_path / "x.json").exists()


def test_the_command(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    cli, log = CommandLine(monkeypatch, capsys), tmp_path / "traffic.json"
    table = tmp_path / "long.txt"
    table.write_text("\n".join(LONG[:100]))
    cli.good("predict", model, table, "--log", log)
    lines = [json.loads(line) for line in cli.good("drift", model, log).splitlines()]
    assert lines[-1] == {"drifted": True, "rows": 100, "reference_rows": 150, "level": 0.05}
    assert lines[0]["quantity"]
    code, _, error = cli("drift", model, log, "--fail-on-drift")
    assert code == 1
    assert "differs" in error
    assert cli("drift", model, tmp_path / "missing.json")[0] in (2, 3)
    rows = [json.loads(line) for line in cli.good("drift", model, table, "--top", "2").splitlines()]
    assert sum("distance" in row for row in rows) == 2


def test_fine_tuning_leaves_the_traffic_of_its_dev_examples(tmp_path: Path):
    start = toy_model(tmp_path / "start", LETTERS)
    rows = [(text, "yes" if text[0] in "ab" else "no") for text in SHORT]
    plain = {"baselines": False, "label_check": "none"}
    run = bertie.finetune(
        start, rows[:60], rows[60:100], epochs=1, max_length=32, output=tmp_path / "run", settings=plain
    )
    (traffic,) = Traffic.read(tmp_path / "run" / "model" / Traffic.FILE).values()
    assert traffic.rows == 40
    assert traffic.model == Traffic.of_model(tmp_path / "run" / "model").model
    assert not ModelFolder(tmp_path / "run" / "model").damage()
    assert bertie.drift(run.model, [text for text, _ in rows[60:100]]).rows == 40


@pytest.mark.parametrize("way", ["abstain", "folds", "nothing held out"])
def test_the_reference_is_what_the_model_answers_to_new_rows(
    way: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """With the threshold and abstentions of the saved model; no answers to rows that were learned from."""
    start = toy_model(tmp_path / "start", LETTERS)
    rows = [(text, "yes" if text[0] in "ab" else "no") for text in SHORT]
    ways = {
        "abstain": {
            "dev": rows[60:160],
            "abstain": 0.6,
            "optimize": "f1",
            "positive": "yes",
            "calibrate": "temperature",
        },
        "folds": {"folds": 2, "abstain": 0.6, "optimize": "f1", "positive": "yes", "calibrate": "temperature"},
        "nothing held out": {"settings": {"held_out": 0}},
    }
    plain = {"baselines": False, "label_check": "none"}
    options = {**ways[way], "settings": plain | ways[way].get("settings", {})}
    run = bertie.finetune(start, rows[:60], epochs=2, max_length=32, output=tmp_path / "run", **options)
    (traffic,) = Traffic.read(tmp_path / "run" / "model" / Traffic.FILE).values()
    assert traffic.model == Traffic.of_model(tmp_path / "run" / "model").model
    assert not ModelFolder(tmp_path / "run" / "model").damage()
    if way == "abstain":
        labels = Counter(label or "no answer" for label in run.model.predict([text for text, _ in rows[60:160]]).labels)
        assert traffic.names["label"] == labels
        assert not traffic.learned
        return
    assert traffic.learned
    result = bertie.drift(run.model, [text for text, _ in rows[160:260]])
    left = "vectors" if way == "folds" else "answers and vectors"
    assert f"learned from all rows of its training, so {left} are not compared" in capsys.readouterr().err
    names = {one.quantity for one in result.differences}
    assert "vectors" not in names
    if way == "folds":
        table = csv.DictReader(run.out_of_fold.open(encoding="utf-8-sig"))
        assert traffic.rows == 60
        assert traffic.names["label"].total() == 60
        sure = [float(row["probability"]) >= 0.6 for row in table]
        assert traffic.names["label"]["no answer"] == 60 - sum(sure)
    else:
        assert not names & {"label", "confidence"}
