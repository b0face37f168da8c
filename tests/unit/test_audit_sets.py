"""Audits of vectors, templates, questions and classifiers: published values, and sums by hand."""

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_audit_masked import loop, pretrained

import bertie as package
from bertie.apps.audit import flips, templates, words
from bertie.apps.audit.base import AuditSource, Subject
from bertie.apps.audit.figures import compute_figures
from bertie.apps.audit.groups import MAX_RATED_LABELS, GroupAudit, GroupRow
from bertie.apps.audit.questions import BBQ, ChoiceQuestion, KoBBQ, Questions
from bertie.apps.audit.templates import Attribute, Templates, TemplateSet
from bertie.apps.audit.words import WordAssociations, associations, effect_size, permute_partitions
from bertie.apps.perturb.particles import followed, resolve_particles
from bertie.apps.perturb.swaps import Swaps
from bertie.errors import DataError
from bertie.infer.torch_engine import TorchEngine
from bertie.io.tables import Example
from bertie.runs.weights import load_model as load_module

BIAS = Path(os.environ.get("BERTIE_DATA", "/nowhere")) / "bias"
needs_data = pytest.mark.skipif(not BIAS.is_dir(), reason="needs BERTIE_DATA/bias")
X = [[0, 0.3, -0.27, -0.89, -0.45], [-0.99, 0.06, 1.34, -0.49, -0.62], [0.49, 0.36, 0.11, -0.93, -0.03]]
X += [[0.7, -1.34, -0.46, -1.9, -1.29]]
Y = [[-1.84, -0.24, -1.27, 0.27, 0.16], [-0.19, -2.52, -0.54, -0.05, 0.11], [-1.53, -0.48, -0.98, -0.81, 1.06]]
Y += [[-0.81, -0.03, 0.88, -0.58, -0.11]]
A = [[0.11, 0.06, -1.23, 0.08, 1.36], [-1.55, 0.86, 0.12, -0.64, 2.0], [0.76, -1.2, 0.07, 0.58, -0.19]]
B = [[0.68, -0.07, 0.67, 1.44, -0.68], [0.2, -0.46, 0.13, -1.19, -0.58], [-0.2, 0.9, 1.15, -1.32, -0.79]]


# Words ---------------------------------------------------------------------------------------------------------------


def test_effect_size_and_permutation_test_are_those_of_the_formula() -> None:
    x, y = (associations(np.array(one), np.array(A), np.array(B)) for one in (X, Y))
    assert effect_size(x, y) == pytest.approx(-1.461683, abs=2e-6)
    assert permute_partitions(x, y) == (69 / 70, 70, True)


def test_sampled_partitions_agree_with_all_of_them() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(0.4, 1, 8), rng.normal(0, 1, 8)
    p, partitions, whole = permute_partitions(x, y)
    assert (partitions, whole) == (math.comb(16, 8), True)
    sampled, draws, whole = permute_partitions(x, y, samples=10_000)
    assert (draws, whole) == (10_000, False)
    assert sampled == pytest.approx(p, abs=4 * (p * (1 - p) / draws) ** 0.5)
    assert permute_partitions(np.ones(3), np.ones(3))[0] == 1  # ties count
    assert math.isnan(effect_size(np.ones(3), np.ones(3)))


def test_word_sets_are_read_in_both_formats(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("tests:\n- {name: t, X: {x: [a, b]}, Y: {y: [c, d]}, A: {p: [e, f]}, B: {q: [g, h]}}\n", "utf-8")
    (one,) = words.read_tests(own)
    assert one.words == (("a", "b"), ("c", "d"), ("e", "f"), ("g", "h"))
    sides = zip(("targ1", "targ2", "attr1", "attr2"), one.words, strict=True)
    published = tmp_path / "weat0.jsonl"
    published.write_text(json.dumps({key: {"category": key, "examples": list(side)} for key, side in sides}), "utf-8")
    assert words.read_tests(published)[0].words == one.words
    for bad in ("tests: [{name: t}]\n", "tests: 3\n", "tests:\n- {name: t, X: {x: [a]}, Y: {y: [c]}, A: {}, B: {}}\n"):
        own.write_text(bad, "utf-8")
        with pytest.raises(DataError, match=r"own\.yaml"):
            words.read_tests(own)
    published.write_text('{"targ1": 3}', "utf-8")
    with pytest.raises(DataError, match="layout"):
        words.read_tests(published)


TWICE = "templates:\n" + 2 * (
    "- {name: t, groups: {a: [tall], b: [short]}, templates: ['the {group} {attribute}', 'a {group} {attribute}'], "
    "attributes: {a: [baker], b: [child]}}\n"
)


def test_two_tests_of_one_name_are_refused_and_equal_targets_have_no_size(tmp_path: Path) -> None:
    model = load_module(pretrained(tmp_path / "m"))
    assert model.tokenizer is not None
    subject = Subject(TorchEngine(model), model.tokenizer)
    own = tmp_path / "own.yaml"
    one = "- {name: t, X: {x: [tall, tall]}, Y: {y: [tall, tall]}, A: {p: [tall, short]}, B: {q: [short, baker]}}\n"
    own.write_text(f"tests:\n{one}", "utf-8")
    read = words.WordAssociations().read(subject, AuditSource((own,)))
    assert words.WordAssociations().scores(subject, read.items) == ["the targets of 't' have equal vectors"]
    for text in (f"tests:\n{one}{one}", TWICE):
        own.write_text(text, "utf-8")
        kind: Any = words.WordAssociations() if "tests" in text else Templates()
        with pytest.raises(DataError, match="called 't'"):
            kind.read(subject, AuditSource((own,)))


def test_built_in_sets_are_complete() -> None:
    assert len(words.read_tests(words.WORDS_FILE)) >= 6
    english, *korean = templates.read_sets(templates.TEMPLATES_FILE)
    professions = [word for group in english.attributes.values() for word in group]
    assert {"nurse", "president"} <= set(professions)
    assert len(set(professions)) == len(professions) >= 42
    assert all(len(one.templates) >= 4 for one in korean)
    assert len(korean) >= 3
    for one in (english, *korean):
        assert not [text for text in one.samples() if "(" in text or "{" in text]


def test_vectors_are_those_of_the_model(tmp_path: Path) -> None:
    model = load_module(pretrained(tmp_path / "m"))
    assert model.tokenizer is not None
    subject = Subject(TorchEngine(model), model.tokenizer)
    sets = [("tall", "short"), ("old", "young"), ("reads", "writes"), ("bread", "day")]
    test = words.WordTest("t", *({"x": one} for one in sets))
    (found,) = WordAssociations().scores(subject, [test])
    x, y, a, b = (package.embed(model, list(one)) for one in sets)
    assert found["x"] == pytest.approx(associations(x, a, b).tolist(), abs=1e-5)
    assert found["y"] == pytest.approx(associations(y, a, b).tolist(), abs=1e-5)


# Templates -----------------------------------------------------------------------------------------------------------


def test_a_template_is_a_ratio_minus_its_prior(tmp_path: Path) -> None:
    folder = pretrained(tmp_path / "m")
    model = load_module(folder)
    assert model.tokenizer is not None
    groups, attributes = {"first": ("tall",), "second": ("short",)}, {"neither": ("baker", "farmer")}
    one = TemplateSet("t", groups, ("the {group} {attribute} reads.", "a {attribute}, {group}."), attributes)
    found = Templates().scores(
        Subject(TorchEngine(model), model.tokenizer), [Attribute(one, word, "neither") for word in ("baker", "farmer")]
    )

    def log_p(text: str, place: int, wanted: str) -> float:
        masked = text.replace("*", wanted)
        (value,) = loop(folder, masked, [place])
        return value

    (told,) = (log_p("the * baker reads.", 2, "tall") - log_p("the * baker reads.", 2, "short"),)
    hidden = "the * [MASK] reads."
    prior = log_p(hidden, 2, "tall") - log_p(hidden, 2, "short")
    assert found[0][0] == pytest.approx(told - prior, abs=1e-4)
    told = log_p("a farmer, *.", 4, "tall") - log_p("a farmer, *.", 4, "short")
    prior = log_p("a [MASK], *.", 4, "tall") - log_p("a [MASK], *.", 4, "short")
    assert found[1][1] == pytest.approx(told - prior, abs=1e-4)


def test_gap_and_spread_are_over_professions() -> None:
    one = TemplateSet("t", {"m": ("he",), "w": ("she",)}, ("{group} {attribute}", "{attribute} {group}"), {})
    items = [Attribute(one, word, group) for word, group in (("a", "m"), ("b", "m"), ("c", "w"), ("d", "neither"))]
    table = [[1.0, 2.0], [0.5, 0.5], [-1.0, 1.0], [0.0, -2.0]]
    found = Templates().measures(items, table)
    means = [1.5, 0.5, 0.0, -1.0]
    assert found["t: gap"].value == pytest.approx(1.0)
    assert found["t: gap"].items == 3
    assert found["t: spread"].value == pytest.approx(np.std(means, ddof=1))
    assert found["t: mean"].value == pytest.approx(np.mean(means))
    assert found["t: sign depends on the wording (%)"].value == 25
    assert found["t: sign depends on the wording (%)"].scale == "%"
    assert found["t: a"].interval() == pytest.approx((1.5 - 12.706 / 2, 1.5 + 12.706 / 2), abs=1e-3)
    for bad in ({"groups": {"m": ("he",)}}, {"templates": ("{group}", "x")}, {"attributes": {"other": ("a",)}}):
        with pytest.raises(DataError, match="where"):
            TemplateSet(
                **{"name": "t", "groups": one.groups, "templates": one.templates, "attributes": {}, **bad}
            ).check("where")


# Questions -----------------------------------------------------------------------------------------------------------

CHOICES = ("one", "two", "unknown")


def questions() -> list[ChoiceQuestion]:
    """Each template: both questions, ambiguous and with both answers."""
    found = []
    for i in range(20):
        for biased, counter in ((0, 1), (1, 0)):
            place = f"t{i}"
            found.append(ChoiceQuestion("c", "q", CHOICES, 2, biased, counter, True, "age", place))
            found += [
                ChoiceQuestion("c", "q", CHOICES, right, biased, counter, False, "age", place) for right in (0, 1)
            ]
    return found


ORACLES = {
    "unknown": (lambda one: one.unknown, (100, 0, 0, 0)),
    "biased": (lambda one: one.biased, (0, 50, 100, 100)),
    "right": (lambda one: one.right, (100, 100, 0, 0)),
}
FIGURES = ("accuracy, ambiguous", "accuracy, disambiguated", "bias, ambiguous", "bias, disambiguated")


@pytest.mark.parametrize("oracle", ORACLES)
def test_oracles_have_known_figures(oracle: str) -> None:
    answer, wanted = ORACLES[oracle]
    items = questions()
    found = KoBBQ().measures(items, [answer(one) for one in items])
    assert tuple(found[name].value for name in FIGURES) == wanted
    assert found["accuracy, ambiguous"].items == 40


@needs_data
@pytest.mark.parametrize("oracle", [*ORACLES, "first"])
def test_oracles_of_the_published_questions(oracle: str) -> None:
    answer, wanted = ORACLES.get(oracle, (lambda one: 0, (0, 50, 0, 0)))
    read = KoBBQ().read(_NoModel, AuditSource((BIAS / "kobbq" / "KoBBQ_test_samples.tsv",)))  # type: ignore[arg-type]
    assert len(read.items) == 2280
    assert sum(one.ambiguous for one in read.items) == 1140
    found = KoBBQ().measures(read.items, [answer(one) for one in read.items])
    assert tuple(found[name].value for name in FIGURES) == pytest.approx(wanted)


class _NoModel:
    """A subject with a head for choices, for reading."""

    class engine:
        class facts:
            heads = ("choice",)


def bbq_row(**over: Any) -> str:
    row = {
        "question_index": "1",
        "question_polarity": "neg",
        "context_condition": "ambig",
        "category": "Age",
        "answer_info": {"ans0": ["the pilot", "old"], "ans1": ["the cook", "nonOld"], "ans2": ["not known", "unknown"]},
        "additional_metadata": {"stereotyped_groups": ["old"]},
        "context": "A pilot and a cook met.",
        "question": "Who was late?",
        "ans0": "the pilot",
        "ans1": "the cook",
        "ans2": "not known",
        "label": 2,
    }
    return json.dumps(row | over)


def test_bbq_is_read_and_scored_as_published(tmp_path: Path) -> None:
    path = tmp_path / "Age.jsonl"
    told = {"context_condition": "disambig", "label": 0}
    rows = [bbq_row(), bbq_row(question_polarity="nonneg"), bbq_row(**told), bbq_row(**told | {"label": 1})]
    path.write_text("\n".join([*rows, bbq_row(additional_metadata={"stereotyped_groups": ["tall"]}), "{"]), "utf-8")
    audited = BBQ()
    assert audited.recognizes(path, path.read_bytes()[:4096])
    read = audited.read(_NoModel, AuditSource((path,)))  # type: ignore[arg-type]
    assert [(one.biased, one.counter, one.unknown, one.ambiguous) for one in read.items] == [
        *((0, 1, 2, True), (1, 0, 2, True), (0, 1, 2, False), (0, 1, 2, False)),
    ]
    assert read.skipped["Age.jsonl"].total == 2
    found = audited.measures(read.items * 3, [0, 2, 0, 1] * 3)
    assert {name: one.value for name, one in found.items()} == {
        "accuracy, ambiguous": 50,
        "accuracy, disambiguated": 100,
        "bias, ambiguous": 50,  # (1 - 0.5) * (2 * 1 - 1)
        "bias, disambiguated": 0,
    }


def test_a_span_names_a_group_or_neither() -> None:
    from bertie.apps.audit.questions import _named

    one = ChoiceQuestion("c", "q", ("손자", "할머니", "알 수 없음"), 2, 1, 0, True, "age", "t")
    assert [_named(one, text) for text in ("할머니", "할머니와", "손자를", "", "버스", "손자와 할머니")] == [
        1,
        1,
        0,
        2,
        2,
        2,
    ]


def test_shuffled_questions_have_no_bias() -> None:
    items = questions()
    audited: Questions = KoBBQ()
    found = compute_figures(audited, items, [one.biased for one in items], None, shuffles=100)
    bias = next(one for one in found if one.name == "bias, ambiguous")
    assert bias.value == 100
    assert bias.shuffled is not None
    assert bias.shuffled.low < 0 < bias.shuffled.high
    assert abs(bias.shuffled.value) < 10


# Classifiers ---------------------------------------------------------------------------------------------------------


def test_gaps_by_group_are_those_of_a_count_by_hand() -> None:
    rng = np.random.default_rng(0)
    n = 400
    group, true = rng.integers(0, 3, n), rng.integers(0, 2, n)
    given = np.where(rng.random(n) < 0.7 + 0.1 * (group == 1), true, 1 - true)
    p = rng.uniform(0.5, 1, n)
    items = [GroupRow(Example(("x",)), str(label), "abc"[g]) for g, label in zip(group, true, strict=True)]
    found = GroupAudit().measures(items, [[str(a), b] for a, b in zip(given, p, strict=True)])
    in_b, right = group == 1, true == given

    def rate(mask: np.ndarray[Any, Any], what: np.ndarray[Any, Any]) -> float:
        return 100 * float(what[mask].mean())

    assert found["b: accuracy"].value == pytest.approx(rate(in_b, right))
    assert found["b: predicted 1"].value == pytest.approx(rate(in_b, given == 1))
    gap = rate(in_b & (true == 1), given == 1) - rate(~in_b & (true == 1), given == 1)
    assert found["b: gap of the true positive rate, 1"].value == pytest.approx(gap)
    gap = rate(in_b & (true == 0), given == 1) - rate(~in_b & (true == 0), given == 1)
    assert found["b: gap of the false positive rate, 1"].value == pytest.approx(gap)
    gaps = [found[f"{g}: gap of the true positive rate, {y}"].value for g in "abc" for y in "01"]
    assert found["RMS gap of the true positive rate"].value == pytest.approx(np.sqrt(np.mean(np.square(gaps))))
    bins = np.ceil(p[in_b] * 15).astype(int)
    ece = sum(abs((p[in_b] - right[in_b])[bins == i].sum()) for i in range(16)) / in_b.sum()
    assert found["b: calibration error"].value == pytest.approx(100 * ece)
    low, high = found["b: accuracy"].interval()
    half = 196 * (0.8 * 0.2 / in_b.sum()) ** 0.5
    assert (high - low) / 2 == pytest.approx(half, rel=0.25)


def test_a_rate_has_the_number_of_its_own_rows() -> None:
    rows = [("a", "1")] * 3 + [("a", "0")] * 9 + [("a: b", "1"), ("a: b", "0")] * 5
    items = [GroupRow(Example(("x",)), label, group) for group, label in rows]
    found = GroupAudit().measures(items, [[row.label, 0.9] for row in items])
    assert {name: one.items for name, one in found.items() if name.endswith((", 1", "accuracy", "rate"))} == {
        "RMS gap of the true positive rate": 22,
        "a: accuracy": 12,
        "a: gap of the true positive rate, 1": 3,
        "a: gap of the false positive rate, 1": 9,
        "a: b: accuracy": 10,
        "a: b: gap of the true positive rate, 1": 5,
        "a: b: gap of the false positive rate, 1": 5,
    }


def test_many_labels_all_count_and_the_most_frequent_have_rates() -> None:
    rng = np.random.default_rng(0)
    group, true = rng.integers(0, 2, 900), np.minimum(rng.integers(0, 30, 900), 19)
    given, p = np.where(rng.random(900) < 0.8, true, (true + 1) % 20), rng.uniform(0.6, 1, 900)
    items = [GroupRow(Example(("x",)), f"{label:02}", "ab"[g]) for g, label in zip(group, true, strict=True)]
    found = GroupAudit().measures(items, [[f"{a:02}", b] for a, b in zip(given, p, strict=True)])
    in_b, right = group == 1, true == given
    assert found["b: accuracy"].value == pytest.approx(100 * right[in_b].mean())
    assert found["b: predicted 19"].value == pytest.approx(100 * (given[in_b] == 19).mean())
    bins = np.ceil(p[in_b] * 15).astype(int)
    ece = sum(abs((p[in_b] - right[in_b])[bins == i].sum()) for i in range(16)) / in_b.sum()
    assert found["b: calibration error"].value == pytest.approx(100 * ece)
    gaps = []
    for label in range(20):
        rates = [100 * (given == label)[(group == g) & (true == label)].mean() for g in (0, 1)]
        gaps += [rates[0] - rates[1], rates[1] - rates[0]]
    assert found["RMS gap of the true positive rate"].value == pytest.approx(np.sqrt(np.mean(np.square(gaps))))
    assert sum(name.startswith("b: predicted") for name in found) == MAX_RATED_LABELS


def test_intervals_of_small_groups_are_numbers() -> None:
    rows = [("a", "1")] + [("a", "0")] * 11 + [("b", "1"), ("b", "0")] * 6
    items = [GroupRow(Example(("x",)), label, group) for group, label in rows]
    found = GroupAudit().measures(items, [[row.label, 0.9] for row in items])
    assert all(math.isfinite(bound) for one in found.values() for bound in one.interval())
    assert found["a: gap of the true positive rate, 1"].value == 0


def test_intervals_of_noisy_figures_contain_their_values() -> None:
    rng = np.random.default_rng(0)
    items = [GroupRow(Example((str(i),), "a"), str(rng.integers(2)), str(rng.integers(3))) for i in range(60)]
    scores = [[str(rng.integers(2)), float(rng.uniform(0.5, 1))] for _ in items]
    found = GroupAudit().measures(items, scores)
    for name in ("RMS gap of the true positive rate", *(f"{group}: calibration error" for group in "012")):
        low, high = found[name].interval()
        assert 0 <= low < found[name].value < high


def test_words_are_exchanged_in_their_case_and_with_particles() -> None:
    lists = flips.read_lists(flips.SWAPS_FILE)
    english, korean = lists["gender words"], lists["gender words (Korean)"]
    pairs = {
        "He met his wife and told her that her mother saw him.": (
            "She met her husband and told him that his father saw her."
        ),
        "THE MAN's dog": "THE WOMAN's dog",
        "She did it herself": "He did it himself",
    }
    for text, wanted in pairs.items():
        assert english(text) == wanted
        assert english(wanted) == text
    text = "아들이 누나는 남편과 어머니로, 딸기와 형태는 할아버지께서 소년이었다 여자입니다 아들들은"
    assert korean(text) == "딸이 형은 아내와 아버지로, 딸기와 형태는 할머니께서 소녀였다 남자입니다 딸들은"
    assert korean(korean(text)) == text
    assert english.count("He sees her and a dog.") == 2
    names = lists["names of men and women"]
    assert names("Mary met jack.") == "James met jack."
    assert Swaps.of([("a", "b")])("c") == "c"


def test_particles_follow_the_last_sound() -> None:
    assert resolve_particles("간호사(으)로, 대통령(으)로, 서울(으)로, 남성은(는) 의사이(가) 학생을/를") == (
        "간호사로, 대통령으로, 서울로, 남성은 의사가 학생을"
    )
    assert resolve_particles("f(x) (이)것") == "f(x) (이)것"
    assert followed("민수", "이가") == "가"
    assert followed("지영", "가") == "이"
    assert followed("딸", "으로") == "로"
    assert followed("형", "") == ""


def test_every_list_of_pairs_is_its_own_inverse() -> None:
    for name, swaps in flips.read_lists(flips.SWAPS_FILE).items():
        for word in swaps.pairs:
            shown = word.capitalize() if word in swaps.names else word
            if word not in ("her", "his", "him"):  # her has two partners
                assert swaps(swaps(shown)) == shown, (name, word)
