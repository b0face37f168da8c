"""Audits of masked models against the published scorers, and against a plain loop with transformers."""

import json
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertie.apps.audit.base import AuditSource, Subject
from bertie.apps.audit.pairs import CrowsPairs, SentencePair, positions
from bertie.apps.audit.stereoset import BetweenSentences, InsideSentence, StereoContext, filler, scored_terms
from bertie.infer.torch_engine import TorchEngine
from bertie.models import families
from bertie.models.heads import HEADS
from bertie.runs.weights import load_model as load_module
from bertie.text.tokenizer import Tokenizer
from toys import toy_model

BIAS = Path(os.environ.get("BERTIE_DATA", "/nowhere")) / "bias"
VOCABULARY = Path(os.environ.get("BERTIE_DATA", "/nowhere")) / "vocab" / "bert-base-uncased-vocab.txt"
needs_data = pytest.mark.skipif(not BIAS.is_dir(), reason="needs BERTIE_DATA/bias")
WORDS = "the tall short old young baker farmer reads writes letter ##s ##ing every day . , bread and to a child".split()
PAIRS = [
    SentencePair("the tall baker reads every day.", "the short baker reads every day.", True, "height"),
    SentencePair(
        "the old farmer writes letters, and reads.", "the young child writes letters, and reads.", False, "age"
    ),
    SentencePair("the farmer reads to a child.", "the tall young baker reads to a child.", True, "trade"),
    SentencePair("bread and bread.", "bread.", True, "empty"),
]
PUBLISHED = {
    ("base", "race"): (83.8241, 56.2963, 73.2685, 962, 36),
    ("base", "religion"): (82.1609, 56.2759, 71.8483, 79, 3),
    ("large", "race"): (84.0167, 57.2713, 71.7985, 962, 36),
    ("large", "religion"): (85.9770, 50.1609, 85.7003, 79, 3),
}


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    folder = pretrained(tmp_path_factory.mktemp("model"))
    model = load_module(folder)
    assert model.tokenizer is not None
    return Subject(TorchEngine(model), model.tokenizer, "nsp")


def pretrained(folder: Path, pieces: Sequence[str] = WORDS) -> Path:
    """A folder of random weights with the heads of pre-training, which transformers opens too."""
    toy_model(folder, pieces)
    config = families.config(folder).replace(num_hidden_layers=2)
    heads = {name: HEADS[name](config) for name in ("mlm", "pair")}
    families.save(families.build(config, heads=heads), folder, tokenizer=Tokenizer.load(folder))
    return folder


@cache
def peer(folder: Path) -> Any:
    """The model of a folder in transformers."""
    transformers = pytest.importorskip("transformers")
    return transformers.BertForPreTraining.from_pretrained(folder).eval()


def loop(folder: Path, text: str, places: list[int]) -> list[float]:
    """log p of each token with only this token masked, by transformers, one text at a time."""
    torch, tokenizer, model = pytest.importorskip("torch"), Tokenizer.load(folder), peer(folder)
    ids, found = torch.tensor([tokenizer.encode(text).ids]), []
    for place in places:
        masked = ids.clone()
        masked[0, place] = tokenizer.mask_id
        with torch.no_grad():
            logits = model(masked).prediction_logits[0, place]
        found.append(float(logits.log_softmax(-1)[ids[0, place]]))
    return found


def test_scores_of_pairs_are_those_of_a_plain_loop(tmp_path: Path) -> None:
    folder = pretrained(tmp_path / "model")
    model = load_module(folder)
    assert model.tokenizer is not None
    found = CrowsPairs().scores(Subject(TorchEngine(model), model.tokenizer), PAIRS)
    for pair, score in zip(PAIRS, found, strict=True):
        first, second = (pair.more, pair.less) if pair.stereo else (pair.less, pair.more)
        shared, differing = positions(model.tokenizer.encode(first), model.tokenizer.encode(second))
        for side, text in ((0, first), (1, second)):
            at = side if pair.stereo else 1 - side
            assert score["shared"][at] == pytest.approx(sum(loop(folder, text, shared[side])), abs=1e-4)
            if score["differing"] is not None:
                assert score["differing"][at] == pytest.approx(np.mean(loop(folder, text, differing[side])), abs=1e-4)
    assert found[3]["differing"] is None  # one side is empty
    assert all(score["differing"] is not None for score in found[:3])


def test_percentages_of_pairs_count_ties_as_the_official_script_does() -> None:
    scores = [
        {"shared": [-1.0, -2.0], "differing": [-1.0, -2.0]},
        {"shared": [-3.0, -2.0], "differing": [-3.0, -2.0]},
        {"shared": [-2.0001, -2.0002], "differing": [-2.0, -2.5]},  # equal when rounded
        {"shared": [-2.0, -9.0], "differing": None},
    ]
    found = {name: (one.value, one.items) for name, one in CrowsPairs().measures(PAIRS, scores).items()}
    assert found["shared tokens (official): all pairs"] == (50, 4)
    assert found["shared tokens (official): stereotypes"] == (100, 2)
    assert found["shared tokens (official): anti-stereotypes"] == (0, 1)
    assert found["differing tokens: all pairs"] == (200 / 3, 3)
    assert found["shared tokens (official): height"] == (100, 1)


def test_shuffled_pairs_are_near_half() -> None:
    rng = np.random.default_rng(0)
    pairs, scores = PAIRS[:1] * 400, [{"shared": [0.0, -1.0], "differing": [0.0, -1.0]}] * 400
    audited = CrowsPairs()
    assert audited.measures(pairs, scores)["differing tokens: all pairs"].value == 100
    values = [
        audited.measures(*audited.shuffled(pairs, scores, rng))["differing tokens: all pairs"].value for _ in range(50)
    ]
    assert np.mean(values) == pytest.approx(50, abs=2)


def test_a_blank_is_filled_from_the_left(subject: Subject) -> None:
    torch = pytest.importorskip("torch")
    context = StereoContext(
        "trade", "baker", "the BLANK reads.", ("the writing reads.", "the baker reads.", "the bread reads.")
    )
    (found,) = InsideSentence().scores(subject, [context])
    engine, tokenizer = subject.engine, subject.tokenizer
    assert isinstance(engine, TorchEngine)

    def p(text: list[str], place: int, wanted: str) -> float:
        ids = torch.tensor([[tokenizer.token_to_id(token) for token in text]])
        with torch.no_grad():
            logits = engine.model(ids, token_type_ids=torch.zeros_like(ids))["mlm"][0, place]
        return float(logits.softmax(-1)[tokenizer.token_to_id(wanted)])

    one = p(["[CLS]", "the", "[MASK]", "reads", ".", "[SEP]"], 2, "baker")
    assert found[1] == pytest.approx(one, rel=1e-4)
    first = p(["[CLS]", "the", "[MASK]", "reads", ".", "[SEP]"], 2, "writes")
    assert first > 0
    assert filler("a BLANK, day.", "a long, day.") == "long"
    assert filler("a long day BLANK", "a long day") == ""
    pieces = tokenizer.encode("writings").tokens
    assert "[UNK]" in pieces  # "writ" is no token, so use a word of two: letters
    (two,) = InsideSentence().scores(
        subject, [StereoContext("", "x", "a BLANK.", ("a letters.", "a letter.", "a bread."))]
    )
    start = p(["[CLS]", "a", "[MASK]", ".", "[SEP]"], 2, "letter")
    rest = p(["[CLS]", "a", "letter", "[MASK]", ".", "[SEP]"], 3, "##s")
    assert two[0] == pytest.approx((start + rest) / 2, rel=1e-4)
    assert two[1] == pytest.approx(start, rel=1e-4)


def test_next_sentences_are_scored_by_the_head_for_pairs(subject: Subject) -> None:
    context = StereoContext("", "x", "the baker reads.", ("a child reads.", "bread.", "to a letter."))
    (found,) = BetweenSentences().scores(subject, [context])
    assert len(set(found)) == 3
    assert all(0 < p < 1 for p in found)
    assert BetweenSentences().missing(subject) == ""
    assert "order" in BetweenSentences().missing(Subject(subject.engine, subject.tokenizer, "sop"))


def test_means_are_over_terms_and_intervals_over_terms() -> None:
    terms = [("d", "a")] * 3 + [("d", "b")]
    scores = [(0.9, 0.5, 0.1), (0.9, 0.5, 0.7), (0.2, 0.2, 0.3), (0.1, 0.2, 0.0)]
    found = scored_terms(terms, scores)
    lms = (100 * (1 + 0.5 + 0) / 3 + 100) / 2
    ss = (100 * 2 / 3 + 0) / 2  # equal scores count as anti-stereotype
    assert found["d: lms"].value == pytest.approx(lms)
    assert found["d: ss"].value == pytest.approx(ss)
    assert found["d: icat"].value == pytest.approx(lms * ss / 50)
    assert found["d: ss"].interval() == pytest.approx((0, 200 / 3))  # resamples hold either term twice
    assert found["d: ss"].items == 4


# With the published data ---------------------------------------------------------------------------------------------


@needs_data
@pytest.mark.parametrize(("size", "domain"), PUBLISHED)
def test_published_predictions_have_the_published_scores(size: str, domain: str) -> None:
    scorer = BIAS / "stereoset_scorer"
    parts = json.loads((scorer / f"predictions_bert-{size}-cased.json").read_text("utf-8"))
    given = {one["id"]: one["score"] for part in parts.values() for one in part}
    terms, scores = list[tuple[str, str]](), list[Any]()
    for one in json.loads((scorer / f"{domain}_test.json").read_text("utf-8")):
        by_label = {sentence["gold_label"]: given[sentence["id"]] for sentence in one["sentences"]}
        terms.append((domain, one["target"]))
        scores.append([by_label[label] for label in ("stereotype", "anti-stereotype", "unrelated")])
    *wanted, items, count = PUBLISHED[size, domain]
    found = scored_terms(terms, scores)
    assert [found[f"{domain}: {name}"].value for name in ("lms", "ss", "icat")] == pytest.approx(wanted, abs=5e-5)
    assert (len(terms), len(set(terms))) == (items, count)


@needs_data
def test_the_published_files_are_read(subject: Subject) -> None:
    files = sorted((BIAS / "stereoset").rglob("*.csv"))
    inside, between = (
        audited.read(subject, AuditSource(tuple(files))).items for audited in (InsideSentence(), BetweenSentences())
    )
    assert len(inside) + len(between) == 2106 + 2123
    assert abs(len(inside) - 2106) <= 3
    from_json = InsideSentence().read(subject, AuditSource((BIAS / "stereoset_scorer" / "religion_test.json",))).items
    assert len(from_json) == 79
    assert sum(not filler(one.text, sentence) for one in inside for sentence in one.sentences) < 20


@needs_data
@pytest.mark.skipif(not VOCABULARY.is_file(), reason="needs BERTIE_DATA/vocab")
def test_the_published_pairs_align_as_published(tmp_path: Path, subject: Subject) -> None:
    (tmp_path / "vocab.txt").write_bytes(VOCABULARY.read_bytes())
    tokenizer = Tokenizer.load(tmp_path)
    path = BIAS / "crows_pairs" / "crows_pairs_anonymized.csv"
    pairs = CrowsPairs().read(subject, AuditSource((path,))).items
    assert (len(pairs), sum(pair.stereo for pair in pairs)) == (1508, 1290)
    masked = differing = equal = empty = 0
    for pair in pairs:
        first, second = (pair.more, pair.less) if pair.stereo else (pair.less, pair.more)
        a, b = tokenizer.encode_batch([first, second])
        shared, apart = positions(a, b)
        masked += len(shared[0]) + len(shared[1])
        differing += len(apart[0]) + len(apart[1])
        equal += len(a) == len(b)
        empty += not (apart[0] and apart[1])
    assert (masked, differing, equal, empty) == (42_508, 4_541, 1_092, 3)
