import random
import warnings

import numpy as np
import pytest
from sklearn.metrics import f1_score

from bertie.metrics.tags import Entity, TagScores, inside, rewrite, tag_entities

seqeval = pytest.importorskip("seqeval.metrics")

TYPES = ["PER", "creative-work"]
TAGS = ["O", *(f"{prefix}-{type}" for prefix in "BIES" for type in TYPES)]
NAMELESS = ["O", "B", "I"]
BIO = ["O", *(f"{prefix}-{type}" for prefix in "BI" for type in TYPES)]


def sentences(seed: int, tags: list[str], count: int = 30) -> tuple[list[list[str]], list[list[str]]]:
    """True tags, and predicted ones that agree with most of them."""
    rng = random.Random(seed)
    truth = [rng.choices(tags, k=rng.randint(1, 12)) for _ in range(count)]
    return truth, [[t if rng.random() < 0.8 else rng.choice(tags) for t in true] for true in truth]


@pytest.mark.parametrize("seed", range(20))
def test_entities_are_read_as_seqeval_reads_them(seed):
    for true in sentences(seed, TAGS)[0]:
        assert [(e.type, e.start, e.end - 1) for e in tag_entities(true)] == seqeval.sequence_labeling.get_entities(
            true
        )


@pytest.mark.parametrize("seed", range(5))
def test_figures_are_seqevals(seed):
    truth, given = sentences(seed, TAGS)
    scores = TagScores(tuple(TAGS))
    scores.add(truth, given)
    found = scores.compute()
    assert found["f1"] == pytest.approx(seqeval.f1_score(truth, given))
    assert found["precision"] == pytest.approx(seqeval.precision_score(truth, given))
    assert found["recall"] == pytest.approx(seqeval.recall_score(truth, given))
    assert found["macro_f1"] == pytest.approx(seqeval.f1_score(truth, given, average="macro"))
    assert found["accuracy"] == pytest.approx(seqeval.accuracy_score(truth, given))
    per_label = scores.report()["per_label"]
    theirs = seqeval.classification_report(truth, given, output_dict=True)
    for type in TYPES:
        assert per_label[type]["f1"] == pytest.approx(theirs[type]["f1-score"])
        assert per_label[type]["examples"] == theirs[type]["support"]


@pytest.mark.parametrize("seed", range(5))
def test_strict_figures_are_those_of_klue(seed):
    """KLUE-baseline: seqeval in strict mode, IOB2, all sentences in one row with O between them; macro averages."""
    from seqeval.scheme import IOB2

    truth, given = sentences(seed, BIO)
    scores = TagScores(tuple(BIO), strict=True)
    scores.add(truth, given)
    row = [[tag for sentence in side for tag in ["O", *sentence, "O"]] for side in (truth, given)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = seqeval.f1_score([row[0]], [row[1]], average="macro", mode="strict", scheme=IOB2)
    assert scores.compute()["macro_f1"] == pytest.approx(theirs)
    characters = f1_score(row[0], row[1], labels=BIO[1:], average="macro", zero_division=1.0)
    assert scores.compute()["tag_macro_f1"] == pytest.approx(characters)


@pytest.mark.parametrize("tags", [NAMELESS, [*NAMELESS, "E", "S"]])
@pytest.mark.parametrize("seed", range(5))
def test_tags_without_a_type_are_read_as_seqeval_reads_them(seed, tags):
    """As sets of key phrases have them: B I I O is one phrase, not three."""
    truth, given = sentences(seed, tags)
    for true in truth:
        assert [(e.type, e.start, e.end - 1) for e in tag_entities(true)] == seqeval.sequence_labeling.get_entities(
            true
        )
    scores = TagScores(tuple(tags))
    scores.add(truth, given)
    assert scores.compute()["f1"] == pytest.approx(seqeval.f1_score(truth, given))
    assert tag_entities(["B", "I", "I", "O"]) == [Entity("_", 0, 3)]
    assert [inside(tag) for tag in ("B", "I", "S", "O")] == ["I", "I", "I", "O"]
    assert rewrite(["B", "I", "O", "B"], "bioes") == ["B", "E", "O", "S"]


@pytest.mark.parametrize("seed", range(10))
def test_strict_bioes_is_seqevals(seed):
    """An entity that never ends is none: B-PER O."""
    from seqeval.scheme import IOBES

    truth, given = sentences(seed, TAGS)
    scores = TagScores(tuple(TAGS), strict=True)
    scores.add(truth, given)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = [
            seqeval.f1_score(truth, given, average=average, mode="strict", scheme=IOBES)
            for average in ("micro", "macro")
        ]
    assert [scores.compute()[name] for name in ("f1", "macro_f1")] == pytest.approx(theirs)
    assert tag_entities(["B-PER", "O"], strict=True, closed=True) == []


def test_parts_of_speech_are_entities_of_one_word():
    scores = TagScores(("NOUN", "VERB"))
    scores.add([["NOUN", "VERB", "X"]], [["NOUN", "NOUN", "NOUN"]])
    report = scores.report()
    assert report["accuracy"] == report["f1"] == pytest.approx(1 / 3)
    assert report["unknown_labels"] == {"X": 1}
    assert report["all_given"] == "NOUN"


@pytest.mark.parametrize("scheme", ["bio", "bioes", "iob1"])
def test_rewriting_keeps_the_entities(scheme):
    for true in sentences(3, BIO)[0]:
        written = rewrite(true, scheme)
        assert tag_entities(written) == tag_entities(true)
        assert rewrite(written, "bio") == rewrite(true, "bio")


def test_schemes_as_written():
    tags = ["B-PER", "I-PER", "B-PER", "O", "B-LOC"]
    assert rewrite(tags, "iob1") == ["I-PER", "I-PER", "B-PER", "O", "I-LOC"]
    assert rewrite(tags, "bioes") == ["B-PER", "E-PER", "S-PER", "O", "S-LOC"]
    assert rewrite(tags, "as_given") == tags
    assert tag_entities(["O", "I-PER", "B-LOC", "I-PER"], strict=True) == [Entity("LOC", 2, 3)]
    assert [inside(tag) for tag in ("B-PER", "I-PER", "S-PER", "O", "NOUN")] == ["I-PER", "I-PER", "I-PER", "O", "NOUN"]


def test_intervals_are_those_of_sentences_drawn_again():
    truth, given = sentences(1, BIO, count=60)
    scores = TagScores(tuple(BIO))
    scores.add(truth, given)
    low, high = scores.report()["interval_95"]["f1"]
    rng = np.random.default_rng(7)
    references = []
    for _ in range(300):
        rows = rng.integers(60, size=60)
        reference = TagScores(tuple(BIO))
        reference.add([truth[i] for i in rows], [given[i] for i in rows])
        references.append(reference.compute()["f1"])
    assert np.percentile(references, [2.5, 97.5]) == pytest.approx([low, high], abs=0.03)
