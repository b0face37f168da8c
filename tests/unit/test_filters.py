"""Filters of documents: every measure against a plain count, every rule counted, every wrong name refused."""

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertie.data import corpus
from bertie.data.card import load_card
from bertie.data.corpus import CorpusConfig
from bertie.data.filters import FILTER_PRESETS, LINES, MEASURES, Filters, MeasuredText, repeated_ngrams, top_ngram
from bertie.errors import UsageError

ENGLISH = (
    "The mill stood beside the river for many years. People came from every village with their grain. In winter the "
    "wheel froze, and the miller told stories to the children by the fire. When spring came, the water was high."
)
KOREAN = (
    "방앗간은 오랫동안 강가에 서 있었다. 마을마다 사람들이 곡식을 가지고 왔다. "
    "겨울에는 물레방아가 얼었고, 아이들은 불가에 모였다."
)
GERMAN = "Die Mühle stand viele Jahre am Fluss. Die Leute kamen aus jedem Dorf mit ihrem Korn, und der Müller erzählte."


def measure(name, text):
    return MEASURES[name](MeasuredText(text))


def test_every_measure_of_a_small_text():
    text = "- one two\n- one two…\n\nend {x} # 12"
    assert {name: round(measure(name, text), 3) for name in MEASURES} == {
        "words": 10,
        "word_length": 2.4,
        "symbols": 0.1,
        "bullets": 0.667,
        "ellipses": 0.333,
        "letters": 0.6,
        "stop_words": 0,
        "repeated_lines": 0,
        "repeated_paragraphs": 0,
        "repeated_line_characters": 0,
        "repeated_paragraph_characters": 0,
        "top_2gram": 0.333,
        "top_3gram": 0,
        "top_4gram": 0,
        **{f"repeated_{n}grams": 0 for n in range(5, 11)},
        "sentences": 0,
        "braces": 2,
        "lorem_ipsum": 0,
    }
    assert measure("repeated_lines", "a\na\nb\na") == 0.5
    assert measure("repeated_line_characters", "aaa\naaa\nbb\nb") == pytest.approx(3 / 9)
    assert measure("repeated_paragraphs", "a\nb\n\na\nb") == 0.5
    assert measure("stop_words", "The and THE") == 2
    assert measure("sentences", 'One. "Two!" Three? 넷。 5.5 no') == 3 + 1


@given(st.lists(st.sampled_from("abc"), max_size=40), st.integers(2, 5))
def test_ngrams_equal_a_plain_count(words, n):
    text, grams = " ".join(words), [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
    top = max((grams.count(gram) for gram in grams), default=0)
    assert top_ngram(MeasuredText(text), n) == pytest.approx(n * top / max(len(words), 1) if top > 1 else 0)
    assert repeated_ngrams(MeasuredText(text), n) == pytest.approx(repeated(grams, n) / max(len(words), 1))


def repeated(grams, n, at=0, known=()):
    """Counts words in repeated n-grams, one n-gram after the other."""
    if at >= len(grams):
        return 0
    if grams[at] in known:
        return n + repeated(grams, n, at + n, known)
    return repeated(grams, n, at + 1, (*known, grams[at]))


def test_lines_of_notices_and_fragments_are_removed_and_counted():
    counts = Counter()
    text = (
        f"Home\n{ENGLISH}\nPlease enable Javascript to read all of this page.\nToo short.\nno final stop in this line"
    )
    kept, reason = Filters.of((), ("c4",)).apply(text, counts)
    assert (kept, reason) == (ENGLISH, "")
    assert counts == {"lines removed: line_end": 2, "lines removed: line_words": 1, "lines removed: line_notice": 1}


@pytest.mark.parametrize(
    ("rules", "text", "reason"),
    [
        (["words=50.."], "short", "quality: words outside 50.."),
        (["words=..3"], "one two three four", "quality: words outside ..3"),
        (["gopher"], "word " * 60, "quality: stop_words outside 2.."),
        (["gopher", "stop_words=0.."], "word " * 60, ""),  # a later rule replaces an earlier one
        (["repetition"], "word " * 60, "quality: top_2gram outside ..0.2"),
        (["c4"], f"{ENGLISH} The end of {{it}} is here.", "quality: braces outside ..0"),
        (["gopher-korean", "repetition", "words=10.."], KOREAN, ""),
    ],
)
def test_a_document_outside_a_range_is_dropped_for_that_rule(rules, text, reason):
    assert Filters.of((), rules).apply(text, Counter())[1] == reason


@pytest.mark.parametrize("text", [ENGLISH, KOREAN, GERMAN])
def test_a_language_is_kept_or_dropped_by_its_name(text):
    found = {ENGLISH: "en", KOREAN: "ko", GERMAN: "de"}[text]
    assert Filters.of([found], ()).apply(text, Counter())[1] == ""
    assert Filters.of(["fr"], ()).apply(text, Counter())[1] == f"language: {found}"
    assert Filters.of(["fr"], ()).apply("12 34", Counter())[1] == "language: uncertain"


@pytest.mark.parametrize(
    ("languages", "rules", "message"),
    [
        (["english"], [], r"unknown. Known codes \(ISO 639\): ace, .*, en, "),
        ([], ["gofer"], "Did you mean 'gopher'"),
        ([], ["word=5.."], "Did you mean 'words'"),
        ([], ["words"], "a measure with a range"),
        ([], ["words=5"], "not a range"),
        ([], ["words=9..5"], "not a range"),
        ([], ["words=a..b"], "not a range"),
    ],
)
def test_wrong_names_are_refused_before_the_work(tmp_path, languages, rules, message):
    (tmp_path / "a.txt").write_text(ENGLISH)
    with pytest.raises(UsageError, match=message):
        corpus.build_shards([tmp_path / "a.txt"], tmp_path / "c", CorpusConfig(language=languages, quality=rules))


def test_presets_name_what_exists():
    for rules in FILTER_PRESETS.values():
        assert all(rule.partition("=")[0] in (MEASURES if "=" in rule else LINES) for rule in rules.split())


def test_the_card_has_the_count_of_every_filter(tmp_path):
    texts = [ENGLISH, KOREAN, "Too short here.", f"{ENGLISH}\nHome"]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    rules = CorpusConfig(language=("en",), quality=("line_end", "words=5.."), dedup="none")
    shards = corpus.build_shards([tmp_path / "a.jsonl"], tmp_path / "c", rules)
    card = load_card(tmp_path / "c")
    assert shards.num_documents == 2
    assert card["records"] == {"in": 4, "kept": 2, "dropped": {"language: ko": 1, "quality: words outside 5..": 1}}
    assert card["inside_documents"] == {"lines removed: line_end": 1}
    assert "| language: ko " in (tmp_path / "c" / "card.md").read_text()
