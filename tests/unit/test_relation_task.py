"""Relations between two names: KLUE-RE's files, marks around names, micro F1 and AUPRC against scikit-learn's."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from sklearn import metrics as sklearn_metrics

from bertie.io.lines import BadRecord
from bertie.io.table_format import TableFormat
from bertie.io.tables import Example
from bertie.metrics.relations import RelationScores, mean_area
from bertie.tasks.base import Prediction
from bertie.tasks.datasets import DATASETS
from bertie.tasks.relation import RelationEntity, RelationExample, RelationTask
from bertie.tasks.render import TextSpan
from toys import FAST, CommandLine, toy_model

LABELS = ("no_relation", "org:founded_by", "per:origin")
KLUE_JSON = TableFormat.of(("sentence",), "label", kind="json")


def entity(sentence: str, word: str, type: str) -> dict[str, object]:
    start = sentence.index(word)
    return {"word": word, "start_idx": start, "end_idx": start + len(word) - 1, "type": type}


def row(sentence: str, subject: str, object: str, label: str, number: int = 0) -> dict[str, object]:
    return {
        "guid": f"made-up-{number}",
        "sentence": sentence,
        "subject_entity": entity(sentence, subject, "PER"),
        "object_entity": entity(sentence, object, "LOC"),
        "label": label,
        "source": "made up",
    }


def write(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_text(json.dumps(rows, ensure_ascii=False), encoding="utf-8")
    return path


def test_published_fields_become_a_text_and_two_names(tmp_path: Path) -> None:
    path = write(tmp_path / "dev.json", [row("가나는 도레에서 왔다.", "가나", "도레", "per:origin", 7)])
    (found,) = RelationTask.rows(path, KLUE_JSON)
    assert isinstance(found, RelationExample)
    assert (found.texts, found.label, found.id) == (("가나는 도레에서 왔다.",), "per:origin", "made-up-7")
    assert [found.texts[0][e.start : e.end] for e in found.entities] == ["가나", "도레"]


def test_names_are_marked_whichever_comes_first(tmp_path: Path) -> None:
    rows = [row("Ada saw Rome.", "Ada", "Rome", "x"), row("Rome saw Ada.", "Ada", "Rome", "x")]
    one, two = RelationTask.rows(write(tmp_path / "dev.json", rows), KLUE_JSON)
    assert isinstance(one, RelationExample)
    assert isinstance(two, RelationExample)
    plain, typed = RelationTask(LABELS), RelationTask(LABELS, markers="typed")
    assert plain.marked(one) == "<subj>Ada</subj> saw <obj>Rome</obj>."
    assert plain.marked(two) == "<obj>Rome</obj> saw <subj>Ada</subj>."
    assert typed.marked(two) == "#^LOC^Rome# saw @*PER*Ada@."
    assert plain.marked(Example(("<subj>Ada</subj> ran.",))) == "<subj>Ada</subj> ran."


def test_the_page_marks_both_names_however_far_into_the_text_they_stand() -> None:
    text = "x" * 2000 + " Rome saw Ada." + "y" * 2000
    place, person = RelationEntity(2001, 2005, "LOC"), RelationEntity(2010, 2013, "PER")
    example = RelationExample((text,), "per:origin", 1, "", (person, place))
    answer = Prediction("no_relation", 0.7, {"no_relation": 0.7, "org:founded_by": 0.2, "per:origin": 0.1})
    task = RelationTask(LABELS)
    (parts,) = task.render(example, answer).as_json()["texts"]
    named = [(part["text"], part["kind"], part["note"]) for part in parts if part["kind"]]
    assert named == [("Rome", "asked", "object LOC"), ("Ada", "asked", "subject PER")]
    assert len("".join(part["text"] for part in parts)) < 500
    assert task.error_score(example, answer) == pytest.approx(-np.log(0.1))
    whole = "".join(part.text for part in task.render(example, answer).texts[0])
    assert whole == text
    marked_already = task.render(Example(("<subj>Ada</subj> ran.",), "per:origin"), answer)
    assert marked_already.texts == ((TextSpan("<subj>Ada</subj> ran."),),)


def test_names_are_read_from_a_csv(tmp_path: Path) -> None:
    """As `bertie predict -o FILE.csv` writes them, and as columns of numbers that pandas read with gaps."""
    made = row("Ada saw Rome.", "Ada", "Rome", "x")
    cells = {name: json.dumps(made[name]) for name in ("subject_entity", "object_entity")}
    floats = {f"{name}.{end}": f"{made[name][end]}.0" for name in cells for end in ("start_idx", "end_idx")}
    for number, fields in enumerate((cells, floats, {**cells, "object_entity": "{'word': 'Rome'}"})):
        with open(tmp_path / f"{number}.csv", "w", newline="") as file:
            writer = csv.DictWriter(file, ["sentence", "label", *fields])
            writer.writeheader()
            writer.writerow({"sentence": made["sentence"], "label": "x", **fields})
    read = [next(iter(RelationTask.rows(tmp_path / f"{number}.csv", TableFormat()))) for number in range(3)]
    assert [(name.start, name.end, name.type) for name in read[0].entities] == [(0, 3, "PER"), (8, 12, "LOC")]
    assert [(name.start, name.end) for name in read[1].entities] == [(0, 3), (8, 12)]
    assert read[2] == BadRecord(2, "object_entity is not a JSON object")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"start_idx": 1}, "the subject_entity is not at the given position"),
        ({"end_idx": 99}, "the subject_entity is not at the given position"),
        ({"start_idx": None}, "no subject_entity with start_idx and end_idx"),
        ({"start_idx": "first"}, "no subject_entity with start_idx and end_idx in whole numbers"),
        ({"word": "Rome", "start_idx": 8, "end_idx": 11}, "the two entities overlap"),
    ],
)
def test_names_out_of_place_are_told(tmp_path: Path, change: dict[str, object], reason: str) -> None:
    bad = row("Ada saw Rome.", "Ada", "Rome", "x")
    bad["subject_entity"] = {**entity("Ada saw Rome.", "Ada", "PER"), **change}
    assert list(RelationTask.rows(write(tmp_path / "dev.json", [bad]), KLUE_JSON)) == [BadRecord(1, reason)]


def drawn(examples: int, seed: int, decimals: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities (rounded, so that some are equal) and labels that agree with them now and then."""
    rng = np.random.default_rng(seed)
    scores = rng.dirichlet(np.ones(len(LABELS)), examples).round(decimals)
    truth = np.where(rng.random(examples) < 0.5, scores.argmax(1), rng.integers(len(LABELS), size=examples))
    return scores, truth


def klue_auprc(scores: np.ndarray, truth: np.ndarray) -> float:
    """KLUE-baseline's way, with scikit-learn."""
    areas = []
    for label in range(scores.shape[1]):
        precision, recall, _ = sklearn_metrics.precision_recall_curve(truth == label, scores[:, label])
        areas.append(sklearn_metrics.auc(recall, precision))
    return float(np.mean(areas))


@pytest.mark.parametrize("decimals", [6, 1])
def test_metrics_are_the_official_ones(decimals: int) -> None:
    scores, truth = drawn(300, seed=decimals, decimals=decimals)
    given = scores.argmax(1)
    counted = RelationScores(LABELS, "no_relation")
    counted.add([LABELS[i] for i in truth], [LABELS[i] for i in given])
    counted.add_probabilities(
        [LABELS[i] for i in truth], [dict(zip(LABELS, row, strict=True)) for row in scores.tolist()]
    )
    found = counted.compute()
    assert found["micro_f1"] == pytest.approx(
        sklearn_metrics.f1_score(truth, given, average="micro", labels=[1, 2]), abs=1e-12
    )
    assert found["auprc"] == pytest.approx(klue_auprc(scores, truth), abs=1e-6)  # float32 probabilities
    report = counted.report(resamples=200)
    for name in ("micro_f1", "auprc", "accuracy"):
        low, high = report["interval_95"][name]
        assert low < report[name] < high


def test_examples_drawn_twice_count_twice() -> None:
    scores, truth = drawn(50, seed=1)
    times = np.random.default_rng(2).integers(0, 3, size=50)
    again = np.repeat(np.arange(50), times)
    weighted = mean_area(scores.astype(np.float32), truth, times[None].astype(float))[0]
    repeated = mean_area(scores[again].astype(np.float32), truth[again], np.ones((1, len(again))))[0]
    assert weighted == pytest.approx(repeated, abs=1e-12)


def test_a_label_that_never_occurs_has_no_curve() -> None:
    scores, truth = drawn(40, seed=3)
    only_two = np.where(truth == 2, 1, truth)
    wide = mean_area(scores.astype(np.float32), only_two, np.ones((1, 40)))
    narrow = mean_area(scores[:, :2].astype(np.float32), only_two, np.ones((1, 40)))
    assert wide == pytest.approx(narrow)


def test_klue_re_from_files_to_answers(tmp_path: Path, bertie: CommandLine) -> None:
    """Learnt, measured and used from the command line on files in the published format."""
    names, verbs = ["Ada", "Bo", "Cy", "Dee"], {"is from": "per:origin", "never saw": "no_relation"}
    rows = [
        row(f"{a} {verb} {b} .", a, b, label) for a in names for b in names if a != b for verb, label in verbs.items()
    ]
    for split in ("train", "dev"):
        write(tmp_path / f"klue-re-v1.1_{split}.json", rows)
    assert [checked.examples for checked in DATASETS["klue-re"].check(tmp_path)] == [24, 24]
    model = toy_model(tmp_path / "toy", [*names, *" ".join(verbs).split(), "<", "subj", "obj", "/", ">", "."])
    data = ("--data", "klue-re", "--data-dir", tmp_path)
    bertie.good("finetune", model, *data, "-o", tmp_path / "run", "--seeds", 1, "epochs=50", "max_length=32", *FAST)
    report = json.loads(bertie.good("evaluate", tmp_path / "run/model", *data, "--json"))
    assert report["micro_f1"] == 1.0
    assert report["auprc"] == 1.0
    write(tmp_path / "new.json", [{k: v for k, v in rows[0].items() if k != "label"}])
    (answer,) = map(json.loads, bertie.good("predict", tmp_path / "run/model", tmp_path / "new.json").splitlines())
    assert answer["label"] == "per:origin"
    assert len(answer["scores"]) == 30


def test_a_label_for_no_relation_that_no_example_has_is_told() -> None:
    examples = [Example(("x",), label, n) for n, label in enumerate(LABELS)]
    notes = {name: RelationTask.make(LABELS, {"outside": name}).notes(examples, []) for name in ("no_relation", "none")}
    assert any("'none' (task_options.outside)" in note for note in notes["none"])
    assert not any("outside" in note for note in notes["no_relation"])
