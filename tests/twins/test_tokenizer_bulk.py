"""Twin: the fast ways to the ids of a corpus give what the engine gives, text by text."""

import os
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertie.text import bulk
from bertie.text.bulk import BulkEncoder
from bertie.text.engine import without_added_tokens, wordpiece_engine
from bertie.text.normalize import Normalizer
from bertie.text.sentences import rules
from bertie.text.tokenizer import Tokenizer

PIECES = "[PAD] [UNK] [CLS] [SEP] [MASK] a b ##a ##b 가 ##가 각 ##각 ! . cafe ##cafe ㅋ ##ㅋ e ##é [ ] mask 中".split()
SPECIAL = PIECES[:5]


def engine(normalizer):
    return wordpiece_engine({piece: i for i, piece in enumerate(PIECES)}, normalizer, SPECIAL)


ENGINES = [engine(Normalizer(lowercase, nfc=nfc)) for lowercase in (True, False) for nfc in (True, False)]


def plain(engine, text):
    return without_added_tokens(engine).encode(text, add_special_tokens=False).ids


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
    expected = [
        found.ids for found in without_added_tokens(tokenizer.engine).encode_batch(texts, add_special_tokens=False)
    ]
    for way in ways(tokenizer.engine):
        assert way.ids(texts) == expected
