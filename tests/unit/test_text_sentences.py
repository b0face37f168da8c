"""The rule-based splitter on what is hard: abbreviations, initials, numbers, quotations, Korean, East Asian stops."""

import builtins

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertie.errors import UsageError
from bertie.text import sentences
from bertie.text.sentences import rules, splitter, unwrap

SEPARATE = [  # written with | where a sentence ends
    "It rained. |We left.",
    "Dr. Kim met Mrs. Lee at 3.30 p.m. on Jan. 5. |They spoke.",
    "The book by J. R. Moon and A. Park is here. |Read it.",
    "He works for Pine Inc. |The pay is good.",
    "Pine Inc. Seoul is a branch.",
    "She lives in the U.S. |She likes it. |The U.S. Army does not.",
    "Take fruit, e.g. Apples, i.e. food. |See Fig. 3 and No. 5 too.",
    "It costs $3.50. |Pi is 3.14159. |Version 2.0.1 is out.",
    '"Will it work?" she asked. |"Yes." |He nodded.',
    "(It was late.) |The end [sic]. |Done.[3] |Next one.",
    "What?! |No... |Well then.",
    "A node... then it ends.",
    "“정말 왔다.” |그는 웃었다.",
    "비가 왔다. |우산이 없어요. |그렇죠? |네! |갑시다.",
    '그는 "비가 왔다."라고 말했다. |"안 가." 하고 그가 답했다.',
    "비가 왔다.|그래서 안 갔다.",
    "2024. 3. 15. 일에 시작한다. |원주율은 3.14이다.",
    "앱이 나왔다. |iOS에서 된다.",
    "雨が降った。|とても寒い。|ところで、誰が来た。|「帰ろう。」ときいた。",
    "雨が降った。|「帰ろう。」と彼は言った。|本当？|はい！",
    "下雨了。|我们走吧！|好吗？",
    "Am 3. Oktober kam z.B. Herr Dr. Vogel. |Es war kalt.",
    "Пришёл А. С. Иванов. |Он устал.",
    "First line\n|Second line. |Third",
    "1. Take the cup. |Fill it.\n|2. Drink.",
]


@pytest.mark.parametrize("marked", SEPARATE)
def test_rules_split_where_a_reader_would(marked):
    expected = [part.strip() for part in marked.split("|")]
    assert rules(marked.replace("|", "")) == expected


def test_wrapped_lines_are_joined_and_others_are_not():
    wrapped = (
        "The harbour lies on the east side of the island, where the old walls\n"
        "meet the water. Boats come in at dawn and leave before the wind rises\n"
        "in the afternoon. Nobody knows why."
    )
    assert rules(wrapped) == [
        "The harbour lies on the east side of the island, where the old walls meet the water.",
        "Boats come in at dawn and leave before the wind rises in the afternoon.",
        "Nobody knows why.",
    ]
    poem = "The tide comes in,\nthe tide goes out,\nand nobody is there."
    assert unwrap(poem) == poem
    assert rules("A heading\n\nA paragraph here.") == ["A heading", "A paragraph here."]


@given(st.text(alphabet="aB1가다요.!?。 \n\"'”)(,…」と", max_size=60))
def test_nothing_is_lost_and_nothing_is_empty(text):
    found = rules(text)
    assert "".join("".join(found).split()) == "".join(text.split())
    assert all(piece and piece == piece.strip() for piece in found)


def test_a_long_line_of_stops_takes_no_time():
    for text in ("." * 200_000, "! " * 100_000, '."' * 100_000, "다." * 100_000, "[1]" * 100_000, "A." * 100_000):
        assert "".join("".join(rules(text)).split()) == text.replace(" ", "")


def test_every_splitter_keeps_the_text():
    text = "Dr. Lee came. She sat down. 비가 왔어요. 우산이 없죠?"
    for name in sentences.SPLITTERS:
        if name == "kiwi":
            pytest.importorskip("kiwipiepy")
        assert "".join("".join(splitter(name)(text)).split()) == "".join(text.split())


def test_unknown_splitter_names_the_choices():
    with pytest.raises(UsageError, match="Did you mean 'sentencex'"):
        splitter("sentenecx")


def test_kiwi_missing_says_what_to_install(monkeypatch):
    real = builtins.__import__

    def without_kiwi(name, *rest, **more):
        if name == "kiwipiepy":
            raise ImportError(name)
        return real(name, *rest, **more)

    sentences.load_kiwi.cache_clear()
    monkeypatch.setattr(builtins, "__import__", without_kiwi)
    with pytest.raises(UsageError, match=r"pip install \"bertie\[ko\]\""):
        splitter("kiwi")
    sentences.load_kiwi.cache_clear()
