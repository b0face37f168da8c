"""Japanese words beside transformers' BertJapaneseTokenizer: the same ids on nasty texts, and places in the text."""

import builtins
import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from bertie.errors import BertieError
from bertie.text import japanese
from bertie.text.tokenizer import Tokenizer

pytest.importorskip("fugashi")
TEXTS = [
    "東京に住んでいます。",
    "ｶﾞｷﾞ半角ガギ がか\u3099",
    "Ｆｕｌｌ　ｗｉｄｔｈ ABC abc İstanbul ΣΑΣ ﬁne",
    "[MASK]は[CLS]食べた [mask]",
    "東京[UNK]都 ##東京 ##a",
    *("", "   ", "\t\n\r\x0b\x1c", "a\x00b", "\u200bゼロ幅\ufeff", "\u0085改行\u2028段落"),
    "㍿㌔①㈱ ㋿令和 ﷺ ー〜～−—",
    "👨‍👩‍👧 絵文字 🇯🇵 e\u0301 cafe\u0301",
    "한국어도 조금 ﾡﾤ 한글 \ud7b0\u1100\u1161\u11a8",
    *("長い" * 300, "x" * 150, "nbsp\u00a0sp\u3000全角 空白"),
]
WORDS = [
    "東京",
    "住ん",
    "##ん",
    "でい",
    "ます",
    "半角",
    "全角",
    "食べ",
    "今日",
    "です",
    "##b",
    "ab",
    "fu",
    "##ll",
    "##東",
]


@pytest.fixture(scope="module")
def vocabulary() -> list[str]:
    characters = {c for text in TEXTS for c in unicodedata.normalize("NFKC", text) if not c.isspace()} - {"、", "ｶ"}
    some = sorted(characters)
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    return list(dict.fromkeys([*special, *WORDS, *some, *("##" + c for c in some[::2])]))


def folder(path: Path, vocabulary: list[str], **settings: Any) -> Path:
    (path / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    told = {"tokenizer_class": "BertJapaneseTokenizer", "word_tokenizer_type": "mecab", **settings}
    (path / "tokenizer_config.json").write_text(json.dumps(told))
    return path


@pytest.mark.parametrize("subword", ["wordpiece", "character"])
@pytest.mark.parametrize("dictionary", ["unidic_lite", "ipadic"])
@pytest.mark.parametrize(("small", "normalize"), [(False, True), (True, True), (False, False)])
def test_the_same_ids(
    tmp_path: Path, vocabulary: list[str], subword: str, dictionary: str, small: bool, normalize: bool
) -> None:
    """By every way of reading, and from what Bertie saves, in either program."""
    pytest.importorskip(dictionary)
    from transformers import BertJapaneseTokenizer

    kwargs = {"mecab_dic": dictionary, "normalize_text": normalize}
    settings = {"subword_tokenizer_type": subword, "do_lower_case": small, "mecab_kwargs": kwargs}
    ours = Tokenizer.load(folder(tmp_path, vocabulary, **settings))
    peer = BertJapaneseTokenizer.from_pretrained(tmp_path)
    ours.save(tmp_path / "saved")
    again, there = Tokenizer.load(tmp_path / "saved"), BertJapaneseTokenizer.from_pretrained(tmp_path / "saved")
    assert again.fingerprint == ours.fingerprint
    for text in TEXTS:
        wanted = peer.encode(text, add_special_tokens=False)
        assert ours.ids([text]) == again.ids([text]) == [wanted], text
        assert ours.tokenize([text])[0].ids == wanted
        assert there.encode(text, add_special_tokens=False) == wanted
        assert ours.encode(text, text).ids == peer.encode(text, text)


def test_places(tmp_path: Path, vocabulary: list[str]) -> None:
    """In the text as it was, also of characters that are joined or taken apart."""
    ours = Tokenizer.load(folder(tmp_path, vocabulary))
    text = "か\u3099と㍿ 東京[MASK]"
    found = ours.tokenize([text])[0]
    parts = [text[start:end] for start, end in found.offsets]
    assert parts.count("㍿") > 1, "taken apart into several tokens"
    assert list(dict.fromkeys(parts)) == ["か\u3099", "と", "㍿", "東京", "[MASK]"]
    for odd in TEXTS:
        assert all(0 <= start <= end <= len(odd) for start, end in ours.tokenize([odd])[0].offsets)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"word_tokenizer_type": "sudachi"}, "sudachi and wordpiece is not supported"),
        ({"word_tokenizer_type": "basic"}, "basic and wordpiece is not supported"),
        ({"subword_tokenizer_type": "sentencepiece"}, "mecab and sentencepiece"),
        ({"do_word_tokenize": False}, "do_word_tokenize: false"),
        ({"mecab_kwargs": {"mecab_dic": "juman"}}, "mecab_dic is 'juman'"),
        ({"mecab_kwargs": {"mecab_dic": None}}, "mecab_dic is 'None'"),
        ({"mecab_kwargs": {"mecab_option": "-d /x"}}, "mecab_option"),
        ({"mecab_kwargs": ["x"]}, "mecab_kwargs"),
    ],
)
def test_other_rules_are_refused(tmp_path: Path, vocabulary: list[str], settings: dict[str, Any], told: str) -> None:
    with pytest.raises(BertieError, match=told):
        Tokenizer.load(folder(tmp_path, vocabulary, **settings))


def test_what_is_not_installed(tmp_path: Path, vocabulary: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *more: Any) -> Any:
        if name == "fugashi":
            raise ModuleNotFoundError("No module named 'fugashi'", name="fugashi")
        return real(name, *more)

    monkeypatch.setattr(builtins, "__import__", without)
    japanese.tagger.cache_clear()
    with pytest.raises(BertieError, match=r'fugashi.*pip install "bertie\[ja\]"'):
        Tokenizer.load(folder(tmp_path, vocabulary))
