"""`bertie audit` from files to the page: what a model can have, resuming, the card, and bad input."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest
from test_audit_masked import PAIRS, WORDS, pretrained

from bertie.apps.audit import run
from bertie.apps.audit.pairs import CROWS_COLUMNS as PAIR_COLUMNS
from bertie.apps.audit.run import Asked, audit
from bertie.apps.audit.stereoset import STEREOSET_COLUMNS as STEREO_COLUMNS
from bertie.errors import UsageError
from bertie.models import families
from bertie.models.heads import HEADS
from bertie.tasks import with_task
from bertie.tasks.sequence import SequenceTask
from bertie.text.tokenizer import Tokenizer
from bertie.training_facts import TrainingFacts
from toys import CommandLine, toy_model

TEMPLATES = """
templates:
- name: size
  groups: {tall: [tall], short: [short]}
  templates: ["the {group} {attribute} reads.", "a {attribute}, {group}, writes.", "bread to a {group} {attribute}."]
  attributes: {tall: [baker, child], short: [farmer, letter]}
tests:
- {name: sizes, X: {tall: [tall, old]}, Y: {short: [short, young]}, A: {read: [reads, writes]}, B: {eat: [bread, day]}}
swaps:
  sizes: [[tall, short], [old, young]]
"""


def write(path: Path, columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> Path:
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([columns, *rows])
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pretrained(tmp_path_factory.mktemp("masked") / "model")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    pairs = [(one.more, one.less, "stereo" if one.stereo else "antistereo", one.kind) for one in PAIRS]
    write(folder / "pairs.csv", PAIR_COLUMNS, [*pairs, ("a", "b", "both", "x"), ("a", "", "stereo", "x")])
    fillers = [
        ("trade", "baker", "the BLANK reads.", "the bread reads.", "the child reads.", "the baker reads."),
        ("trade", "farmer", "a BLANK writes.", "a day writes.", "a farmer writes.", "a baker writes."),
        ("trade", "farmer", "a farmer writes.", "bread.", "the farmer reads.", "a child reads."),
    ]
    write(folder / "stereoset.csv", STEREO_COLUMNS, fillers)
    (folder / "own.yaml").write_text(TEMPLATES, "utf-8")
    (folder / "LICENSE").write_text("none", "utf-8")
    return folder


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = toy_model(tmp_path_factory.mktemp("classifier") / "model", WORDS)
    config, tokenizer, labels = families.config(folder), Tokenizer.load(folder), ("no", "yes")
    built = families.build(config, heads={"sequence": HEADS["sequence"](config, 2)}, seed=1)
    built.training_facts = with_task(TrainingFacts(max_length=32, too_long="truncate", texts=1), SequenceTask(labels))
    families.save(built, folder, tokenizer=tokenizer, labels=labels)
    return folder


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rows = [
        (f"the {size} {who} {does}.", label, size)
        for size in ("tall", "short")
        for who in ("baker", "farmer", "child")
        for does in ("reads", "writes")
        for label in ("yes", "no")
    ]
    return write(tmp_path / "table.csv", ("text", "label", "size"), rows)


def test_a_masked_model_from_files_to_the_page(
    bertie: CommandLine, model: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    found = json.loads(bertie.good("audit", model, "--files", data, "-o", out, "--json", "--card"))
    names = [one["name"] for one in found["sets"]]
    assert names == ["crows-pairs", "stereoset", "stereoset-next", "templates", "words"]
    by_name = {one["name"]: one for one in found["sets"]}
    assert "2 of 6 rows skipped" in by_name["crows-pairs"]["notes"][0]
    for one in found["sets"]:
        assert one["criticism"]
        assert one["items"]
        for figure in one["figures"]:
            assert figure["items"] >= 1, figure
            assert figure["low"] <= figure["high"], figure
            assert figure["random"] is not None, figure
            assert figure["shuffled"] is not None, figure
    page = (out / "report.html").read_text("utf-8")
    assert len(page) < 2_000_000
    assert not re.search(r"<script|https?://(?!www\.w3\.org)|<link|@import", page)
    for one in found["sets"]:
        assert one["title"] in page
        assert one["criticism"][:40] in page.replace("&#x27;", "'")
    assert not re.search(r"\b(is|are) (fair|unbiased|biased)\b", page.replace("that a model is fair", ""))
    card = (model / "README.md").read_text("utf-8")
    assert card.count("## Audit") == 1
    bertie.good("audit", model, "--sets", "words", "--files", data / "own.yaml", "--card", "--no-controls")
    again = (model / "README.md").read_text("utf-8")
    assert again.count("## Audit") == 1
    assert "CrowS" not in again
    assert again.startswith(card[:60])
    # the same call reads the scores, and computes none
    lines = (out / "scores.jsonl").read_text("utf-8").splitlines(keepends=True)
    (out / "scores.jsonl").write_text("".join([*lines[:-1], lines[-1][:20]]), "utf-8")
    computed = list[str]()
    for one in (run.SETS[name] for name in names):
        monkeypatch.setattr(
            one, "scores", lambda *_, one=one, scores=one.scores: computed.append(one.name) or scores(*_)
        )
    assert json.loads(bertie.good("audit", model, "--files", data, "-o", out, "--json")) == found
    assert computed == ["words"]  # the last line was partially written
    code, _, err = bertie("audit", model, "--files", data, "-o", out, "--limit", 2)
    assert code == 2
    assert "an audit with other settings or data:\n  limit: None -> 2\n" in err
    code, _, err = bertie("audit", model, "--files", data, "-o", out, "--precision", "bf16")
    assert (code, "precision: fp32 -> bf16\n" in err) == (2, True)
    bertie.good("audit", model, "--files", data, "-o", out, "--limit", 2, "--overwrite")


def test_a_classifier_by_group_and_with_exchanged_words(
    bertie: CommandLine, classifier: Path, table: Path, data: Path
) -> None:
    asked = ("audit", classifier, "--table", table, "--group", "size", "--files", data / "own.yaml")
    found = json.loads(bertie.good(*asked, "--sets", "groups,flips", "--json"))
    groups, flips = ({one["name"]: one for one in each["figures"]} for each in found["sets"])
    assert groups["short: gap of the true positive rate, yes"]["items"] == 6  # of 12 rows, those with this label
    assert groups["short: accuracy"]["items"] == 12
    assert 0 <= flips["sizes: flips"]["value"] <= 100
    assert flips["sizes: flips"]["items"] == 24
    named = (*asked, "--sets", "groups", "--label-names", "yes=no,no=yes", "-o", table.with_name("audit"))
    assert bertie.good(*named) == bertie.good(*named)  # the names of labels are the same in the settings that it saved
    said = bertie.good(*asked, "--sets", "groups")
    assert "RMS gap" in said
    assert "Kleinberg" in said


def test_what_a_model_cannot_have_is_named(
    bertie: CommandLine, classifier: Path, model: Path, data: Path, table: Path, tmp_path: Path
) -> None:
    cases: list[tuple[tuple[Any, ...], int, str]] = [
        (
            (classifier, "--sets", "crows-pairs", "--files", data),
            2,
            "needs a masked-LM head. This model can have: words",
        ),
        ((classifier, "--sets", "crows"), 2, "Did you mean 'crows-pairs'?"),
        ((model, "--sets", "crows-pairs"), 2, "--files"),
        ((model, "--sets", "groups", "--table", table), 2, "needs a classifier"),
        ((classifier, "--sets", "groups", "--table", table), 2, "--group"),
        ((classifier, "--group", "size"), 2, "--table"),
        ((classifier, "--table", table, "--group", "sise"), 3, "Did you mean 'size'?"),
        ((classifier, "--table", table, "--group", "text", "--sets", "groups"), 3, "at least 10 rows"),
        ((classifier, "--table", tmp_path / "none.csv", "--group", "x"), 3, "none.csv"),
        ((model, "--files", tmp_path / "none"), 3, "does not exist"),
        ((model, "--files", data / "LICENSE"), 3, "No audit set was recognized"),
        ((tmp_path / "nothing",), 3, "nothing"),
    ]
    for arguments, code, words in cases:
        found, out, err = bertie("audit", *arguments)
        assert (found, words in " ".join(err.split())) == (code, True), (arguments, found, out, err)
    _, _, err = bertie("audit", classifier, "--files", data, "--no-controls")
    assert "crows-pairs is left out: it needs a masked-LM head" in err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sent_more,sent_less,stereo_antistereo\na,b,stereo\n", "no column 'bias_type'"),
        ("sent_more,sent_less,stereo_antistereo,bias_type\n", "no usable example"),
        ('sent_more,sent_less,stereo_antistereo,bias_type\na,"b,stereo,x\n', "no usable example"),
        ("sent_more,sent_less,stereo_antistereo,bias_type\na,b,maybe,x\n", "neither stereo nor antistereo"),
    ],
)
def test_malformed_files_are_refused(bertie: CommandLine, model: Path, tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text(text, "utf-8")
    out = tmp_path / "out"
    code, _, err = bertie("audit", model, "--files", path, "-o", out)
    assert code == 3, err
    assert words in " ".join(err.split())
    assert not (out / "report.html").exists()


def test_it_is_a_function_too(model: Path, data: Path) -> None:
    found = audit(model, Asked(data=(data / "pairs.csv",), sets=("crows-pairs",), controls=False))
    assert [one["name"] for one in found["sets"]] == ["crows-pairs"]
    with pytest.raises(UsageError, match="no data"):
        audit(model, Asked(sets=("stereoset",)))
