"""Words found from the tokens alone are the words between spaces of the text, for every vocabulary."""

import sys
from collections.abc import Iterator

import numpy as np
import pytest

from batches import sequences_of
from bertie.data.masking import Vocabulary, choose_tokens, masking_of
from bertie.errors import UsageError
from bertie.order import Draws, key
from bertie.text.tokenizer import Tokenizer
from bertie.text.vocabulary import count_words, train_vocabulary

TEXTS = """the lighthouse keeper lights a fire every night so that no ship is lost
등대지기는 매일 밤 불을 켠다 그래서 배는 길을 잃지 않는다
keepers write unbelievably long letters about naïve sailors in cafés
학교에서 돌아온 아이들은 바닷가에서 조개껍데기를 주웠다""".split("\n")


def tokenizer_of(algorithm: str) -> Tokenizer:
    return train_vocabulary(
        count_words(TEXTS), size={"bpe": 330}.get(algorithm, 160), algorithm=algorithm, min_frequency=1
    )  # type: ignore[arg-type]


def words_by_offsets(tokenizer: Tokenizer, text: str) -> list[int]:
    """For each piece of a text, which of its words, as spaces divide it, the piece is in."""
    return [text[:end].count(" ") for _, end in tokenizer.tokenize([text])[0].offsets]


def masked_words(tokenizer: Tokenizer, texts: list[str]) -> Iterator[tuple[list[int], list[bool]]]:
    """For each text the words of its pieces, by offsets, and which of the pieces are chosen."""
    encodings = [tokenizer.encode(text) for text in texts]
    vocabulary = Vocabulary.of(tokenizer)
    batch = sequences_of(encodings)
    chosen, _ = choose_tokens(
        masking_of("whole_word"), batch, batch.lengths // 3, vocabulary, Draws(key(0, np.arange(len(texts))))
    )
    flags = np.isin(np.arange(len(batch.input_ids)), chosen)
    at = 0
    for text, encoding in zip(texts, encodings, strict=True):
        mine = flags[at : at + len(encoding.ids)]
        at += len(encoding.ids)
        inside = ~vocabulary.structure[np.array(encoding.ids)]
        yield words_by_offsets(tokenizer, text), mine[inside].tolist()


@pytest.mark.parametrize("algorithm", ["wordpiece", "bpe", "unigram"])
def test_whole_words_are_hidden_whole(algorithm: str) -> None:
    tokenizer = tokenizer_of(algorithm)
    split = hidden = 0
    for words, flags in masked_words(tokenizer, TEXTS * 5):
        assert len(words) == len(flags)
        for word in set(words):
            mine = [flag for at, flag in zip(words, flags, strict=True) if at == word]
            assert len(set(mine)) == 1, (word, mine)
            split += len(mine) > 1
            hidden += mine[0]
    assert split > 20  # words of several pieces, in both scripts
    assert hidden > 20


def test_morphemes_are_the_words_of_a_tokenizer_that_cuts_at_them() -> None:
    pytest.importorskip("kiwipiepy")
    words = count_words(TEXTS * 3, word_splitter="kiwi")
    tokenizer = train_vocabulary(words, size=160, min_frequency=1, word_splitter="kiwi")
    pieces = tokenizer.tokenize(["학교에서"])[0]
    begins = ~Vocabulary.of(tokenizer).continues[pieces.ids]
    assert [start for (start, _), begin in zip(pieces.offsets, begins, strict=True) if begin] == [0, 2]  # 학교 에서


CHINESE = ["我今天在北京天安门广场看升旗。", "小明硕士毕业于中国科学院计算所", "I bought 3 books in 北京大学."]
JAPANESE = ["東京都に住んでいます。", "すもももももももものうち", "GPUで日本語を学習する。"]


@pytest.mark.parametrize(
    ("splitter", "package", "texts", "word", "starts"),
    [
        ("jieba", "rjieba", CHINESE, "我今天在北京大学", [0, 1, 3, 4]),  # 我 今天 在 北京大学
        ("mecab", "fugashi", JAPANESE, "日本語を学習する", [0, 2, 3, 4, 6]),  # 日本 語 を 学習 する
    ],
)
def test_words_of_scripts_without_spaces_are_hidden_whole(
    splitter: str, package: str, texts: list[str], word: str, starts: list[int]
) -> None:
    """A character continues its word, as ##syllables do: without the splitter, each one is a word of its own."""
    pytest.importorskip(package)
    words = count_words(texts * 3, word_splitter=splitter)
    tokenizer = train_vocabulary(words, size=400, min_frequency=1, word_splitter=splitter)
    pieces = tokenizer.tokenize([word])[0]
    begins = ~Vocabulary.of(tokenizer).continues[pieces.ids]
    assert [start for (start, _), begin in zip(pieces.offsets, begins, strict=True) if begin] == starts
    latin = tokenizer.tokenize(["don't 3.14"])[0].tokens
    plain = train_vocabulary(count_words(texts * 3), size=400, min_frequency=1)
    assert latin == plain.tokenize(["don't 3.14"])[0].tokens  # other scripts are read as ever
    alone = plain.tokenize([word])[0]
    if splitter == "jieba":
        assert (~Vocabulary.of(plain).continues[alone.ids]).all()


def test_a_splitter_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rjieba", None)
    with pytest.raises(UsageError, match=r"bertie\[zh\]"):
        count_words(CHINESE, word_splitter="jieba")
