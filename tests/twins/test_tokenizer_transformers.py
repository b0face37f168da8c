"""Twin: `transformers` opens our folders, and published vocabularies, with the same ids, segments and offsets."""

import os
import shutil
import unicodedata
from itertools import pairwise
from pathlib import Path

import pytest

from bertie.text.normalize import Normalizer
from bertie.text.tokenizer import Tokenizer
from bertie.text.vocabulary import count_words, train_vocabulary

transformers = pytest.importorskip("transformers")

SENTENCES = """The lighthouse keeper's daughter wasn't unbelievably tall; she was 1.83 m (6'0"), naïve & café-loving!
RÉSUMÉ, Straße, ﬁne, İzmir, e-mail: a_b@c.org, http://x.org/?q=1#top, $5 <tag>, C++ -- and "quotes".
등대지기는 매일 밤 불을 켠다. 안개가 짙어도 배는 길을 잃지 않았다! 띄어쓰기를안하면? ㅋㅋㅋ ㅠㅠ
日本語のテキスト、カタカナ。中文没有空格。𠀀 ｆｕｌｌ　ｗｉｄｔｈ
👨‍👩‍👧 🇰🇷 שלום مَرحبا नमस्ते ไทย \u200bzero\u200bwidth\ufeff nb\u00a0sp soft\u00adhyphen tab\tend
[MASK] of [UNK] the [SEP] ##ing \x07bell pneumonoultramicroscopicsilicovolcanoconiosis""".split("\n")
DECOMPOSED = [unicodedata.normalize("NFD", text) for text in SENTENCES]
PUBLISHED = {
    "bert-base-uncased-vocab.txt": {"do_lower_case": True},
    "bert-base-cased-vocab.txt": {"do_lower_case": False},
    "bert-base-multilingual-cased-vocab.txt": {"do_lower_case": False},
    "koelectra-v1-vocab.txt": {"do_lower_case": False},
}


def assert_same(ours, theirs, texts, *, offsets=True):
    for text in texts:
        mine = ours.encode(text)
        other = theirs(text, return_offsets_mapping=True)
        assert mine.ids == other["input_ids"], text
        assert mine.type_ids == other["token_type_ids"], text
        assert mine.tokens == other.tokens(), text
        assert mine.word_ids == other.word_ids(), text
        assert mine.sequence_ids == other.sequence_ids(), text
        if offsets:
            assert mine.offsets == other["offset_mapping"], text
    for a, b in pairwise(texts):
        mine, other = ours.encode(a, b), theirs(a, b, return_offsets_mapping=True)
        assert (mine.ids, mine.type_ids) == (other["input_ids"], other["token_type_ids"])
        assert mine.sequence_ids == other.sequence_ids()
        # Even room: an odd piece goes to the first text in BERT's release, to the second in transformers.
        cut = theirs(a, b, truncation="longest_first", max_length=13)
        assert ours.encode(a, b, max_length=13).ids == cut["input_ids"]
        second = theirs(a, b, truncation="only_first", max_length=len(theirs(b)["input_ids"]) + 4)
        kept = ours.encode(a, b, max_length=len(theirs(b)["input_ids"]) + 4, truncation="only_first")
        assert kept.ids == second["input_ids"]


@pytest.mark.skipif("BERTIE_DATA" not in os.environ, reason="BERTIE_DATA names no folder of data sets")
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_vocabularies(name, tmp_path):
    import json

    shutil.copy(Path(os.environ["BERTIE_DATA"]) / "vocab" / name, tmp_path / "vocab.txt")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(PUBLISHED[name]))
    ours = Tokenizer.load(tmp_path)
    assert_same(ours, transformers.BertTokenizerFast.from_pretrained(tmp_path), [*SENTENCES, *DECOMPOSED])
    guessed = tmp_path / "guessed"
    guessed.mkdir()
    shutil.copy(tmp_path / "vocab.txt", guessed)
    assert Tokenizer.load(guessed).fingerprint == ours.fingerprint  # casing inferred from the vocabulary alone
    ours.save(tmp_path / "saved")
    assert_same(ours, transformers.AutoTokenizer.from_pretrained(tmp_path / "saved"), SENTENCES)
    transformers.AutoTokenizer.from_pretrained(tmp_path / "saved").save_pretrained(tmp_path / "theirs")
    theirs = Tokenizer.load(tmp_path / "theirs")
    assert theirs.encode_batch(SENTENCES) == ours.encode_batch(SENTENCES)


@pytest.mark.parametrize("algorithm", ["wordpiece", "bpe", "unigram"])
@pytest.mark.parametrize("lowercase", [True, False], ids=["uncased", "cased"])
@pytest.mark.parametrize("beside_model", [True, False], ids=["in a model folder", "alone"])
def test_our_own_vocabularies(algorithm, lowercase, beside_model, tmp_path):
    words = count_words(SENTENCES * 3)
    ours = train_vocabulary(words, size=600, algorithm=algorithm, normalizer=Normalizer(lowercase=lowercase))
    ours.save(tmp_path)
    if beside_model:
        (tmp_path / "config.json").write_text('{"model_type": "bert", "architectures": ["BertForMaskedLM"]}')
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert_same(ours, theirs, SENTENCES)
    assert_same(ours, theirs, DECOMPOSED, offsets=False)  # ours cover composed characters whole
    assert (theirs.cls_token_id, theirs.mask_token_id, theirs.pad_token_id) == (ours.cls_id, ours.mask_id, ours.pad_id)
    theirs.save_pretrained(tmp_path / "theirs")
    again = Tokenizer.load(tmp_path / "theirs")
    assert again.encode_batch(SENTENCES) == ours.encode_batch(SENTENCES)


def test_a_cased_vocabulary_also_opens_as_berttokenizer(tmp_path):
    ours = train_vocabulary(count_words(SENTENCES * 3), size=600)
    ours.save(tmp_path)
    assert_same(ours, transformers.BertTokenizerFast.from_pretrained(tmp_path), SENTENCES)
