"""WordPiece by likelihood: the joins of a slow, plain program, and the tokenizer."""

import random
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from bertie.text.likelihood import CONTINUES, initial_pieces, learn
from bertie.text.tokenizer import Tokenizer
from bertie.text.vocabulary import count_words, train_vocabulary
from toys import CommandLine


def plain(words: dict[str, int], count: int, least: int) -> list[str]:
    """Everything counted anew for each join; of equal gains, the first by name."""
    cut = {word: initial_pieces(word) for word in words}
    found: list[str] = []
    while len(found) < count:
        pieces, pairs = Counter[str](), Counter[tuple[str, str]]()
        for word, parts in cut.items():
            for part in parts:
                pieces[part] += words[word]
            for pair in pairwise(parts):
                pairs[pair] += words[word]
        gains = {p: n / (pieces[p[0]] * pieces[p[1]]) for p, n in pairs.items() if n >= least}
        if not gains:
            break
        best = min(gains, key=lambda pair: (-gains[pair], pair))
        name = best[0] + best[1].removeprefix(CONTINUES)
        for word, parts in cut.items():
            at, joined = 0, []
            while at < len(parts):
                both = tuple(parts[at : at + 2]) == best
                joined.append(name if both else parts[at])
                at += 1 + both
            cut[word] = joined
        if name not in found:
            found.append(name)
    return found


@pytest.mark.parametrize("least", [1, 40, 200])
@pytest.mark.parametrize("letters", ["ab", "abcdef"])
def test_the_joins_of_a_plain_program(least: int, letters: str) -> None:
    draw = random.Random(least)
    drawn = {"".join(draw.choices(letters, k=draw.randint(1, 6))) for _ in range(25)}
    words = {word: draw.randint(1, 10**6) for word in sorted(drawn)}
    least = least * 10**4
    pieces = sorted({piece for word in words for piece in initial_pieces(word)})
    assert learn(words, pieces=pieces, count=60, least=least) == plain(words, 60, least)


def test_the_gain_is_not_the_count() -> None:
    """The pair "qu" is rarer than "es", and nearly always together."""
    words = {"quest": 10, "ess": 100, "sees": 90, "tests": 80, "east": 70}
    pieces = sorted({piece for word in words for piece in initial_pieces(word)})
    assert learn(words, pieces=pieces, count=1, least=5) == ["qu"]
    assert learn(words, pieces=pieces, count=1, least=11) != ["qu"]
    assert learn(words, pieces=pieces, count=9, least=10**6) == []


def test_the_tokenizer(tmp_path: Path, bertie: CommandLine) -> None:
    lines = ["the quick brown fox", "quiet queens quickly quarrel", "the foxes fought", "한국어 문장 한국어"] * 5
    found = train_vocabulary(
        count_words(lines), size=150, algorithm="wordpiece-likelihood", limit_alphabet=60, min_frequency=5
    )
    assert found.vocab_size <= 150
    assert found.decode(found.encode("the quick fox").ids) == "the quick fox"
    assert found.settings["bertie"]["algorithm"] == "wordpiece-likelihood"
    (tmp_path / "text.txt").write_text("\n".join(lines))
    options = ("--algorithm", "wordpiece-likelihood", "--size", 150, "--limit-alphabet", 60, "--min-frequency", 5)
    bertie.good("tokenizer", "train", tmp_path / "text.txt", "-o", tmp_path / "out", *options)
    assert Tokenizer.load(tmp_path / "out").fingerprint == found.fingerprint
