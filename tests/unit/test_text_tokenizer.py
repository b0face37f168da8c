"""The tokenizer: offsets into what the user wrote, layout, truncation, windows, folders good and bad."""

import json
import re
import unicodedata
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertie.errors import DataError, UsageError
from bertie.text.encoding import longest_first
from bertie.text.engine import bert_engine, wordpiece_engine
from bertie.text.normalize import Normalizer
from bertie.text.tokenizer import Tokenizer
from bertie.text.vocabulary import count_words, train_vocabulary

PIECES = """[PAD] [unused1] [unused2] [UNK] [CLS] [SEP] [MASK] the cat sat on mat un ##believ ##able cafe café
! ? , . - ' 한글 한 ##글 각 ##각 학교 ##에서 ㅋ ##ㅋ ﾡ ##ﾡ 👨 ##👩 👨👩 שלום ##ם 中 国 a ##b ##c e ##́ x""".split()
VOCABULARY = {piece: i for i, piece in enumerate(PIECES)}
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


UNCASED = Normalizer(lowercase=True)


def build(normalizer=UNCASED):
    return Tokenizer(wordpiece_engine(VOCABULARY, normalizer, SPECIAL))


@pytest.fixture(scope="module")
def tokenizer():
    return build()


TEXTS = {
    "English": "The unbelievable cat, un-able!",
    "Korean": "한글 학교에서 각각",
    "Korean NFD": unicodedata.normalize("NFD", "한글 학교에서 각각"),
    "jamo by jamo": "\u1100\u1161\u11a8\u1100\u1161\u11a8 cat",
    "compatibility jamo": "ㅋㅋ cat ㅋ",
    "half-width jamo": "ﾡﾡ cat",
    "accents": "cafe\u0301 café caf\u00e9 CAFE\u0301!",
    "stacked marks": "cafe\u0301\u0316 cat\u0301",
    "emoji with joiner": "👨\u200d👩 cat 🇰🇷",
    "right to left": "שלום the cat",
    "zero width": "\u200bcat\u200b \ufeffthe c\u200bat",
    "ideographs": "中国cat",
    "controls": "the\x00 cat\tsat\r\non\x07 mat",
    "surrogate": "cat \ud83d cat",
    "full stop": "cat . cat.",
}


def same(written, piece, normalizer):
    """Whether what the user wrote at a piece's offsets, normalized, is the piece."""
    return normalizer(written.strip()).strip() == piece.removeprefix("##")


@pytest.mark.promise("offsets")
@pytest.mark.parametrize("normalizer", [Normalizer(lowercase=True), Normalizer()], ids=["uncased", "cased"])
@pytest.mark.parametrize("name", TEXTS)
def test_every_piece_is_what_stands_at_its_offsets(name, normalizer):
    text = TEXTS[name]
    encoding = build(normalizer).encode(text)
    last = 0
    for token, (start, end), sequence in zip(encoding.tokens, encoding.offsets, encoding.sequence_ids, strict=True):
        if sequence is None:
            assert (start, end) == (0, 0)
            continue
        assert last <= start < end <= len(text)
        last = end
        assert token == "[UNK]" or same(text[start:end], token, normalizer), (token, text[start:end])
    visible = [c for c in unicodedata.normalize("NFC", text) if c.isalnum() and c.isprintable()]
    covered = "".join(text[start:end] for start, end in encoding.offsets)
    assert [c for c in unicodedata.normalize("NFC", covered) if c.isalnum() and c.isprintable()] == visible


@pytest.mark.promise("offsets")
def test_a_decomposed_syllable_is_covered_whole(tokenizer):
    text = unicodedata.normalize("NFD", "각각 cafe\u0301!")
    encoding = tokenizer.encode(text)
    assert [text[start:end] for start, end in encoding.offsets[1:-1]] == [
        "\u1100\u1161\u11a8",
        "\u1100\u1161\u11a8",
        "cafe\u0301",
        "!",
    ]


@pytest.mark.promise("offsets")
@given(st.text(max_size=40))
@settings(max_examples=300)
def test_offsets_stay_inside_and_in_order(text):
    encoding = build().encode(text)
    places = encoding.offsets[1:-1]
    assert all(0 <= start <= end <= len(text) for start, end in places)
    assert all(a[1] <= b[0] for a, b in pairwise(places))
    assert len(encoding.ids) == len(encoding.type_ids) == len(encoding.tokens) == len(encoding.word_ids)


def test_layout_of_one_and_two(tokenizer):
    one = tokenizer.encode("the cat")
    assert one.tokens == ["[CLS]", "the", "cat", "[SEP]"]
    assert one.type_ids == [0, 0, 0, 0]
    assert one.word_ids == [None, 0, 1, None]
    two = tokenizer.encode("the cat", "unbelievable")
    assert two.tokens == ["[CLS]", "the", "cat", "[SEP]", "un", "##believ", "##able", "[SEP]"]
    assert two.type_ids == [0, 0, 0, 0, 1, 1, 1, 1]
    assert two.sequence_ids == [None, 0, 0, None, 1, 1, 1, None]
    assert two.word_ids == [None, 0, 1, None, 0, 0, 0, None]
    assert two.offsets[4:7] == [(0, 2), (2, 8), (8, 12)]


def test_batch_equals_one_by_one_and_ids(tokenizer):
    texts = list(TEXTS.values())
    assert tokenizer.encode_batch(texts) == [tokenizer.encode(text) for text in texts]
    assert tokenizer.ids(texts) == [tokenizer.encode(text).ids[1:-1] for text in texts]
    values, starts = tokenizer.flat_ids(texts)
    assert [values[a:b].tolist() for a, b in pairwise(starts)] == tokenizer.ids(texts)
    assert tokenizer.ids([]) == []
    assert tokenizer.encode_batch([]) == []
    assert tokenizer.encode("").tokens == ["[CLS]", "[SEP]"]


def test_a_special_token_in_a_text_is_read_as_such(tokenizer):
    assert tokenizer.mask_id in tokenizer.encode("the [MASK] sat").ids
    assert {tokenizer.mask_id, tokenizer.sep_id} < set(tokenizer.ids(["the [MASK] sat [SEP]"])[0])


@pytest.mark.parametrize("room", range(12))
def test_longest_first_is_the_release_loop(room):
    for a in range(12):
        for b in range(12):
            if a + b > room:
                kept_a, kept_b = a, b
                while kept_a + kept_b > room:
                    if kept_a > kept_b:
                        kept_a -= 1
                    else:
                        kept_b -= 1
                assert longest_first(a, b, room) == (kept_a, kept_b)


def test_truncation_is_counted(tokenizer):
    whole = tokenizer.encode("the cat sat on the mat")
    assert whole.overflow == 0
    cut = tokenizer.encode("the cat sat on the mat", max_length=5)
    assert cut.tokens == ["[CLS]", "the", "cat", "sat", "[SEP]"]
    assert cut.overflow == 3
    pair = tokenizer.encode("the cat sat on", "the mat", max_length=8)
    assert pair.tokens == ["[CLS]", "the", "cat", "sat", "[SEP]", "the", "mat", "[SEP]"]
    assert pair.overflow == 1
    second = tokenizer.encode("the cat sat on", "the mat", max_length=8, truncation="only_second")
    assert second.tokens[-2:] == ["the", "[SEP]"]
    first = tokenizer.encode("the cat sat on", "the mat", max_length=8, truncation="only_first")
    assert first.tokens[3:5] == ["sat", "[SEP]"]
    with pytest.raises(DataError, match="8 tokens is longer than max_length 5"):
        tokenizer.encode("the cat sat on the mat", max_length=5, truncation="error")
    with pytest.raises(DataError, match="must be removed"):
        tokenizer.encode("the cat sat on", "the", max_length=5, truncation="only_second")
    with pytest.raises(UsageError, match="too small"):
        tokenizer.encode("the cat", max_length=1)


def test_windows_cover_everything(tokenizer):
    text = "the cat sat on the mat the cat sat"
    windows = tokenizer.windows(text, max_length=6, stride=3)
    assert all(len(window) <= 6 for window in windows)
    places = [place for window in windows for place in window.offsets[1:-1]]
    assert sorted(set(places)) == tokenizer.encode(text).offsets[1:-1]
    assert [window.offsets[1] for window in windows] == [tokenizer.encode(text).offsets[1 + 3 * n] for n in range(3)]
    assert windows[0].overflow == 9 - 4
    windows = tokenizer.windows("the cat", text, max_length=9, stride=2)
    assert all(window.tokens[:4] == ["[CLS]", "the", "cat", "[SEP]"] for window in windows)
    assert windows[-1].offsets[-2] == (31, 34)
    assert tokenizer.windows("the cat", max_length=6) == [tokenizer.encode("the cat")]
    with pytest.raises(DataError, match="is too small"):
        tokenizer.windows("the cat sat on", text, max_length=7)


def test_ids_of_rows(tokenizer):
    assert (tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id) == (
        0,
        3,
        4,
        5,
        6,
    )
    assert tokenizer.special_ids == {0, 3, 4, 5, 6}
    assert tokenizer.unused_ids == {1, 2}
    assert tokenizer.vocab_size == len(PIECES)
    assert tokenizer.id_to_token(7) == "the"
    assert tokenizer.token_to_id("the") == 7
    encoding = tokenizer.encode("unbelievable cat")
    assert tokenizer.continues_word(encoding.ids).tolist() == [False, False, True, True, False, False]
    assert tokenizer.decode(encoding.ids) == "unbelievable cat"
    with pytest.raises(UsageError, match="no token 99999"):
        tokenizer.id_to_token(99999)
    with pytest.raises(UsageError, match="'thee' is not in the vocabulary"):
        tokenizer.token_to_id("thee")


def test_a_folder_comes_back_equal_and_byte_equal(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "a")
    again = Tokenizer.load(tmp_path / "a")
    again.save(tmp_path / "b")
    assert again.fingerprint == tokenizer.fingerprint
    names = sorted(p.name for p in (tmp_path / "a").iterdir())
    assert names == ["special_tokens_map.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt"]
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert again.encode_batch(list(TEXTS.values())) == tokenizer.encode_batch(list(TEXTS.values()))


def test_the_fingerprint_tells_tokenizers_apart():
    assert build().fingerprint == build().fingerprint
    assert build().fingerprint != build(Normalizer()).fingerprint


def vocabulary_folder(path, pieces, config=None):
    path.mkdir(parents=True, exist_ok=True)
    (path / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    if config is not None:
        (path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return path


def test_vocab_txt_obeys_its_config_and_otherwise_its_letters(tmp_path):
    cased = [*PIECES, "Cat"]
    assert "Cat" in Tokenizer.load(vocabulary_folder(tmp_path / "cased", cased)).encode("Cat").tokens
    assert "cat" in Tokenizer.load(vocabulary_folder(tmp_path / "small", PIECES)).encode("Cat").tokens
    said = vocabulary_folder(tmp_path / "said", cased, {"do_lower_case": True})
    assert "cat" in Tokenizer.load(said).encode("Cat").tokens
    kept = vocabulary_folder(tmp_path / "kept", PIECES, {"do_lower_case": True, "strip_accents": False})
    assert "café" in Tokenizer.load(kept).encode("CAFÉ").tokens
    renamed = [piece.replace("[CLS]", "<s>") for piece in PIECES]
    other = vocabulary_folder(tmp_path / "other", renamed, {"cls_token": {"content": "<s>", "special": True}})
    assert Tokenizer.load(other).encode("cat").tokens == ["<s>", "cat", "[SEP]"]


def broken(change):
    tree = json.loads(build().engine.to_str())
    change(tree)
    return json.dumps(tree)


BROKEN = {
    "empty": "",
    "no JSON": "{",
    "not an object": "[]",
    "nested deep": "[" * 200_000,
    "nested in an object": '{"version":' + '{"a":' * 50_000,
    "a huge id": broken(lambda t: t["model"]["vocab"].update(far=4_294_967_295)),
    "an id no integer": broken(lambda t: t["model"]["vocab"].update(far=1e30)),
    "a negative id": broken(lambda t: t["model"]["vocab"].update(far=-1)),
    "an empty vocabulary": broken(lambda t: (t["model"].update(vocab={}), t.update(added_tokens=[]))),
    "an unknown normalizer": broken(lambda t: t.update(normalizer={"type": "Script", "code": "1"})),
    "a bad pattern": broken(
        lambda t: t.update(normalizer={"type": "Replace", "pattern": {"Regex": "((("}, "content": ""})
    ),
    "a panic": broken(lambda t: t.update(normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"})),
    "merges of nothing": broken(lambda t: t.update(model={"type": "BPE", "vocab": {"a": 0}, "merges": ["b c"]})),
}


@pytest.mark.promise("hostile-files")
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_tokenizer_json_is_one_clear_error(name, tmp_path):
    (tmp_path / "tokenizer.json").write_text(BROKEN[name], encoding="utf-8")
    with pytest.raises(DataError, match=re.escape(str(tmp_path))):
        Tokenizer.load(tmp_path)


def test_other_broken_folders(tmp_path):
    with pytest.raises(DataError, match=r"neither tokenizer.json nor vocab.txt \(found: nothing"):
        Tokenizer.load(tmp_path)
    with pytest.raises(DataError, match="is not a folder"):
        Tokenizer.load(tmp_path / "absent")
    with pytest.raises(DataError, match=r"has no \[MASK\]"):
        Tokenizer.load(vocabulary_folder(tmp_path / "a", [p for p in PIECES if p != "[MASK]"]))
    with pytest.raises(DataError, match="do_lower_case is 'yes'"):
        Tokenizer.load(vocabulary_folder(tmp_path / "b", PIECES, {"do_lower_case": "yes"}))
    with pytest.raises(DataError, match="an object of settings"):
        Tokenizer.load(vocabulary_folder(tmp_path / "c", PIECES, []))
    (vocabulary_folder(tmp_path / "d", PIECES) / "vocab.txt").write_bytes(b"\xff\xfe[PAD]")
    with pytest.raises(DataError, match="not UTF-8"):
        Tokenizer.load(tmp_path / "d")
    build().save(tmp_path / "empty")
    (tmp_path / "empty" / "vocab.txt").write_bytes(b"\n")
    with pytest.raises(DataError, match=r"vocab.txt is empty. Copy it again .* or delete it"):
        Tokenizer.load(tmp_path / "empty")
    build().save(tmp_path / "e")
    vocabulary_folder(tmp_path / "e", [*PIECES[:10], "dog", *PIECES[11:]])
    with pytest.raises(DataError, match=r"disagree: 'dog' is on line 11 .* is missing"):
        Tokenizer.load(tmp_path / "e")


def test_truncation_and_padding_stored_in_a_file_are_not_obeyed_silently(tmp_path):
    tokenizer = build()
    tokenizer.engine.enable_truncation(4)
    tokenizer.engine.enable_padding(length=16)
    (tmp_path / "tokenizer.json").write_text(tokenizer.engine.to_str(), encoding="utf-8")
    assert len(Tokenizer.load(tmp_path).encode("the cat sat on the mat")) == 8


def test_another_side_of_truncation_is_told(tokenizer, tmp_path, capsys):
    tokenizer.save(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "truncation_side": "left"}))
    Tokenizer.load(tmp_path)
    assert "truncation_side is left" in " ".join(capsys.readouterr().err.split())


@pytest.mark.promise("hostile-files")
def test_code_named_in_a_config_is_dropped(tmp_path):
    vocabulary_folder(tmp_path / "a", PIECES, {"auto_map": {"AutoTokenizer": ["evil.Tokenizer", None]}})
    Tokenizer.load(tmp_path / "a").save(tmp_path / "b")
    assert "auto_map" not in (tmp_path / "b" / "tokenizer_config.json").read_text()


def test_published_rules_are_bert_exactly():
    engine = bert_engine(VOCABULARY, {"do_lower_case": True}, "vocab.txt")
    assert engine.normalizer.normalize_str("각") == "\u1100\u1161\u11a8"


@pytest.mark.parametrize("texts", [[("a", "b", "c"), "d"], [("a",)], [None], ["a", 5], [["a", None]], "ab"])
def test_only_texts_and_pairs_are_encoded(texts: Any) -> None:
    """The third text of a tuple was read in the place of the next text."""
    tokenizer = train_vocabulary(count_words(["a b c d"] * 3), size=60)
    with pytest.raises(UsageError, match="must be a"):
        tokenizer.encode_batch(texts)
