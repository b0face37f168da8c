"""Normalization and cleaning: accents come off, Hangul stays whole, nothing is cleaned twice."""

import re
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertie.text.normalize import Normalizer, clean

STRIP = Normalizer(lowercase=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Café RÉSUMÉ", "cafe resume"),
        ("cafe\u0301", "cafe"),
        ("한글", "한글"),
        (unicodedata.normalize("NFD", "한글 각주"), "한글 각주"),
        (unicodedata.normalize("NFD", "학교 café"), "학교 cafe"),
        ("\u1112\u1161\u11ab", "한"),  # conjoining jamo typed one by one
        ("ㅋㅋㅋ ㅠㅠ", "ㅋㅋㅋ ㅠㅠ"),  # compatibility jamo
        ("ﾡﾤ", "ﾡﾤ"),  # half-width jamo
        ("a\u200bb", "ab"),
        ("中文", " 中  文 "),
    ],
)
def test_accents_come_off_and_hangul_stays_whole(text, expected):
    assert STRIP(text) == expected


def test_bert_as_published_breaks_hangul_and_the_default_does_not():
    assert Normalizer(lowercase=True, nfc=False)("각") == "\u1100\u1161\u11a8"
    assert Normalizer(lowercase=True)("각") == "각"


def test_every_syllable_survives_stripping():
    syllables = "".join(map(chr, range(0xAC00, 0xD7A4)))
    assert STRIP(syllables) == syllables
    assert STRIP(unicodedata.normalize("NFD", syllables)) == syllables


def test_cased_keeps_accents_and_case():
    assert Normalizer()("Cafe\u0301 É") == "Café É"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\r\nb\rc\u2028d", "a\nb\nc\nd"),
        ("a\n\n\n\nb", "a\n\nb"),
        ("a\u2029b", "a\n\nb"),
        (" a \t\u3000b \n c ", "a b\nc"),
        ("a\x00b\ufeffc\xadd\ud800e", "abcde"),
        ("e\u0301", "é"),
        ("👨\u200d👩", "👨\u200d👩"),
    ],
)
def test_clean(text, expected):
    assert clean(text) == expected


NOISE = "[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\xad\u200b\u2060\ufeff\ufdd0-\ufdef\ufffd-\uffff\ud800-\udfff]"
ODD = "ab.각 \n\t\r\x0b\x0c\x1c\x85\xa0\xad\u0301\u1100\u1161\u2009\u200b\u200d\u2028\u2029\u3000\ufffd\ud800"


def plainly_cleaned(text):
    """The rules of `clean` one after the other, as patterns over the whole text."""
    text = re.sub(r"\r\n|[\r\x0b\x0c\x85\u2028]", "\n", text.replace("\u2029", "\n\n"))
    text = unicodedata.normalize("NFC", re.sub(NOISE, "", text))
    text = re.sub(r" ?\n ?", "\n", re.sub(r"[^\S\n]+", " ", text))
    return re.sub(r"\n{3,}", "\n\n", text).strip()


@settings(max_examples=500)
@given(st.one_of(st.text(), st.lists(st.sampled_from([*ODD, "\r\n", "  "]), max_size=12).map("".join)))
def test_clean_is_the_rules_one_after_the_other(text):
    assert clean(text) == plainly_cleaned(text)


def test_what_clean_changes_is_not_printable():
    changed = [c for c in map(chr, range(0x110000)) if clean(f"a{c}b") != unicodedata.normalize("NFC", f"a{c}b")]
    assert [c for c in changed if c.isprintable()] == ["\ufffd"]
    assert "\u2009" in changed


@given(st.text())
def test_clean_is_done_after_once_and_composed(text):
    cleaned = clean(text)
    assert clean(cleaned) == cleaned
    assert unicodedata.is_normalized("NFC", cleaned)
    assert "\x00" not in cleaned
    assert "\r" not in cleaned
    cleaned.encode()
