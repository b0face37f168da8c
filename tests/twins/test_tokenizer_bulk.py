"""Twin: the fast ways to the ids of a corpus give what the engine gives, text by text."""

import json
import os
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken

from bertie.text import bulk
from bertie.text.bulk import BulkEncoder, exact
from bertie.text.engine import wordpiece_engine
from bertie.text.formats import ALBERT_FORMAT, BERT_FORMAT, ROBERTA_FORMAT
from bertie.text.normalize import Normalizer
from bertie.text.sentences import rules
from bertie.text.tokenizer import Tokenizer
from bertie.text.vocabulary import count_words, train_vocabulary

PIECES = "[PAD] [UNK] [CLS] [SEP] [MASK] a b ##a ##b 가 ##가 각 ##각 ! . cafe ##cafe ㅋ ##ㅋ e ##é [ ] mask 中".split()
SPECIAL = PIECES[:5]


def engine(normalizer):
    return wordpiece_engine({piece: i for i, piece in enumerate(PIECES)}, normalizer, SPECIAL)


ENGINES = [engine(Normalizer(lowercase, nfc=nfc)) for lowercase in (True, False) for nfc in (True, False)]


@pytest.fixture(autouse=True, scope="module")
def fast_from_the_first_character():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bertie.text.tokenizer._FEW_CHARACTERS", 0)
        yield


def plain(engine, text):
    return engine.encode(text, add_special_tokens=False).ids


def ways(engine):
    """The encoder as it chooses, and with its first choice taken away."""
    chosen, without = BulkEncoder(engine), BulkEncoder(engine)
    without._fast = None
    return chosen, without


ODD = "ab가각!. é\u0301\u1100\u1161\u11a8ㅋ中\u200b\u00a0\u3000\x0b\x0c\x1c\x85\u2028\t\n\r\x00[MASK]"


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(alphabet=ODD, max_size=30), max_size=6))
def test_the_same_ids(texts):
    for each in ENGINES:
        expected = [plain(each, text) for text in texts]
        for way in WAYS[id(each)]:
            assert way.ids(texts) == expected
            assert way.ids(texts) == expected  # from the memory
            values, starts = way.flat(texts)
            assert [values[a:b].tolist() for a, b in pairwise(starts)] == expected


WAYS = {id(each): ways(each) for each in ENGINES}


# Added tokens -------------------------------------------------------------------------------------------------------

LINES = ["zorb lax [E1] the cat sat on a mat", "한국 국어 cafe café ab aba b a"] * 3
TRAINED = [
    train_vocabulary(count_words(LINES), size=300 if family is ROBERTA_FORMAT else 60, family=family).engine.to_str()
    for family in (BERT_FORMAT, ROBERTA_FORMAT, ALBERT_FORMAT)
] + [each.to_str() for each in ENGINES]
FLAG = st.booleans()
ADDED = st.builds(
    AddedToken,
    st.sampled_from(["zorblax", "[E1]", "ZORB", "a b", "a", "中", "é", "ab ", "한국", "<new>", "##a", "<mask>"]),
    single_word=FLAG,
    lstrip=FLAG,
    rstrip=FLAG,
    normalized=FLAG,
    special=FLAG,
)
WORDS = st.sampled_from(
    [
        " ",
        "  ",
        "a",
        "b",
        "ab",
        "zorblax",
        "Zorblax",
        "[E1]",
        "[e1]",
        "zorb",
        "ZORB",
        "é",
        "é",
        "中",
        "한국",
        "cafe",
        ".",
        "[MASK]",
        "<mask>",
        "</s>",
        "<new>",
        "##a",
        "\t",
        "_",
    ]
)


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(TRAINED),
    st.lists(ADDED, max_size=3, unique_by=lambda token: token.content),
    st.lists(st.lists(WORDS, max_size=8).map("".join), max_size=4),
    st.booleans(),
)
def test_added_tokens_count_on_every_path(file, added, texts, split):
    engine = tokenizers.Tokenizer.from_str(file)
    for token in added:
        engine.add_special_tokens([token]) if token.special else engine.add_tokens([token])
    tokenizer = Tokenizer(engine, settings={"split_special_tokens": split})
    judge = tokenizers.Tokenizer.from_str(engine.to_str())
    judge.encode_special_tokens = split
    if split and "Unigram" in str(type(engine.model)):
        return  # the engine alone would choose the special pieces of such a vocabulary: the test below
    expected = [judge.encode(text, add_special_tokens=False).ids for text in texts]
    assert tokenizer.ids(texts) == exact(tokenizer._reader, texts) == expected
    assert [pieces.ids for pieces in tokenizer.tokenize(texts)] == expected
    frame = tokenizer.frames[0]
    assert [found.ids for found in tokenizer.encode_batch(texts)] == [frame.ids([ids]) for ids in expected]
    values, starts = tokenizer.flat_ids(texts)
    assert [values[a:b].tolist() for a, b in pairwise(starts)] == expected
    without = BulkEncoder(tokenizer._reader)
    without._fast = None
    assert without.ids(texts) == expected


def test_the_fast_encoder_is_made_after_some_text(monkeypatch):
    monkeypatch.setattr("bertie.text.tokenizer._FEW_CHARACTERS", 8)
    tokenizer, expected = Tokenizer(engine(Normalizer(True))), [plain(ENGINES[0], "a b")]
    assert tokenizer.ids(["a b"]) == tokenizer.ids(["a b"]) == expected
    assert "_bulk" not in vars(tokenizer)
    assert tokenizer.ids(["a b"]) == expected
    assert "_bulk" in vars(tokenizer)


def test_added_words_of_a_folder_are_read_in_fine_tuning_too(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(PIECES), encoding="utf-8")
    (tmp_path / "added_tokens.json").write_text(json.dumps({"zorblax": len(PIECES), "[E1]": len(PIECES) + 1}))
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.ids(["a zorblax[E1]b"]) == [[5, len(PIECES), len(PIECES) + 1, 6]]
    tokenizer.save(tmp_path / "again")
    assert Tokenizer.load(tmp_path / "again").ids(["a zorblax[E1]b"]) == tokenizer.ids(["a zorblax[E1]b"])


def test_special_tokens_in_a_text_are_characters_where_the_folder_says_so(tmp_path):
    for family in (BERT_FORMAT, ROBERTA_FORMAT, ALBERT_FORMAT):
        read = train_vocabulary(count_words(LINES), size=300 if family is ROBERTA_FORMAT else 60, family=family)
        spelled = Tokenizer(read.engine, settings={**read.settings, "split_special_tokens": True}, format=family)
        text = f"the {' '.join(read.special_tokens.values())} cat"
        structure = read.special_ids - {read.unk_id}
        assert set(read.ids([text])[0]) >= structure
        assert not set(spelled.ids([text])[0]) & structure
        assert not set(spelled.tokenize([text])[0].ids) & structure
        assert spelled.ids(["the cat"]) == read.ids(["the cat"])
        assert spelled.fingerprint != read.fingerprint
        spelled.save(tmp_path / family.model_types[0])
        assert Tokenizer.load(tmp_path / family.model_types[0]).ids([text]) == spelled.ids([text])


def test_half_a_surrogate_pair_is_read_as_an_unknown_character():
    for way in ways(ENGINES[0]):
        assert way.ids(["a \ud83d b"]) == [plain(ENGINES[0], "a \ufffd b")]
        assert way.flat(["a \ud83d b"])[0].tolist() == plain(ENGINES[0], "a \ufffd b")


def test_the_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(bulk, "CACHED_CHUNKS", 10)
    way = ways(ENGINES[0])[1]
    for number in range(50):
        way.ids([f"a{number}"])
    assert len(way._cache) <= 11


def test_a_fast_path_that_disagrees_is_not_taken(monkeypatch):
    nanotoken = pytest.importorskip("nanotoken")
    assert BulkEncoder(ENGINES[0])._fast is not None
    real = nanotoken.Tokenizer.encode_batch_list
    monkeypatch.setattr(
        nanotoken.Tokenizer, "encode_batch_list", lambda *args, **more: [row[:-1] for row in real(*args, **more)]
    )
    way = BulkEncoder(ENGINES[0])
    assert way._fast is None
    assert way.ids(["a b"]) == [plain(ENGINES[0], "a b")]


@pytest.mark.skipif("BERTIE_DATA" not in os.environ, reason="BERTIE_DATA names no folder of data sets")
@pytest.mark.parametrize(
    ("vocabulary", "wiki"),
    [
        ("bert-base-uncased-vocab.txt", "enwiki_2015_sample"),
        ("bert-base-uncased-vocab.txt", "kowiki_2020_08"),
        ("koelectra-v1-vocab.txt", "kowiki_2020_08"),
    ],
)
def test_the_same_ids_on_wikipedia(vocabulary, wiki, tmp_path):
    data = Path(os.environ["BERTIE_DATA"])
    shutil.copy(data / "vocab" / vocabulary, tmp_path / "vocab.txt")
    tokenizer = Tokenizer.load(tmp_path)
    texts = rules((data / wiki / "AA" / "wiki_01").read_text(encoding="utf-8"))
    expected = [found.ids for found in tokenizer.engine.encode_batch(texts, add_special_tokens=False)]
    for way in ways(tokenizer.engine):
        assert way.ids(texts) == expected
