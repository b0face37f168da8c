"""Near duplicates by signatures and bands, compared with exact Jaccard similarities of all pairs."""

import random
import re
from itertools import combinations

import numpy as np
import pytest

from bertie.data import corpus, dedup
from bertie.data.prepare import CorpusConfig
from bertie.io import sources

LEXICON = [f"{a}{b}" for a in "ba ke lo mi nu 가 나 다".split() for b in "rin sol tam 루 마 바".split()]
THRESHOLD = 0.8


def plain_words(text):
    return re.findall(
        r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]|[^\W\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]+", text.lower()
    )


def shingles(text):
    words = plain_words(text)
    return {tuple(words[i : i + 5]) for i in range(max(1, len(words) - 4))}


def jaccard(a, b):
    return len(a & b) / len(a | b)


def texts(families, rng):
    """Families of texts that differ from their first in 0 to 12 words of 120, shuffled among each other."""
    made = []
    for _ in range(families):
        first = rng.choices(LEXICON, k=120)
        for edits in (0, 1, 2, 4, 7, 12):
            words = list(first)
            for place in rng.sample(range(120), edits):
                words[place] = rng.choice(LEXICON)
            made.append(" ".join(words))
    rng.shuffle(made)
    return made


@pytest.fixture(scope="module")
def some():
    return texts(40, random.Random(3))


def test_runs_are_the_same_where_the_words_are():
    found = dedup.word_hashes("One two, THREE 四五 one two three!")
    assert len(found) == 8
    runs = dedup.runs(found, 3)
    assert runs[0] == runs[5]  # "one two three" occurs at the start and at the end
    assert dedup.runs(found, 3)[0] == dedup.runs(dedup.word_hashes("x y one  two-three"), 3)[2]
    assert len(set(runs.tolist())) == 5
    assert len(dedup.runs(found, 9)) == 0


def test_signatures_estimate_the_exact_similarity(some):
    sets, signed = [shingles(text) for text in some], np.stack([dedup.signature(text) for text in some])
    pairs = [(i, j) for i, j in combinations(range(len(some)), 2) if sets[i] & sets[j]]
    exact = np.array([jaccard(sets[i], sets[j]) for i, j in pairs])
    estimated = np.array([(signed[i] == signed[j]).mean() for i, j in pairs])
    errors = np.abs(estimated - exact)
    assert len(pairs) > 500
    assert errors.mean() < 0.04  # of 128 values the standard deviation is at most 0.044
    assert errors.max() < 0.2


def test_what_goes_and_what_stays_agrees_with_exact_similarities(some):
    sets, signed = [shingles(text) for text in some], np.stack([dedup.signature(text) for text in some])
    kept = dedup.first_alike(signed, np.ones(len(some), bool), THRESHOLD)
    assert 40 <= kept.sum() < len(some) - 60
    for i in np.flatnonzero(~kept):
        assert max(jaccard(sets[i], sets[j]) for j in range(i)) > THRESHOLD - 0.12, "unlike everything before it"
    left = [(i, j) for i, j in combinations(np.flatnonzero(kept), 2) if jaccard(sets[i], sets[j]) > THRESHOLD + 0.12]
    assert not left, "alike, and both stayed"


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.7, 0.8, 0.9, 1.0])
def test_bands_bring_pairs_at_the_threshold_together(threshold):
    rows = dedup.rows_in_band(threshold)
    assert 1 - (1 - threshold**rows) ** (dedup.PERMUTATIONS // rows) >= dedup.FOUND


def test_only_candidates_are_compared_and_blocks_change_nothing(some, monkeypatch):
    signed = np.stack([dedup.signature(text) for text in some])
    candidates = np.arange(len(some)) % 3 > 0
    whole = dedup.first_alike(signed, candidates, THRESHOLD)
    assert not (whole & ~candidates).any()
    assert (
        whole[candidates] == dedup.first_alike(signed[candidates], np.ones(candidates.sum(), bool), THRESHOLD)
    ).all()
    monkeypatch.setattr(dedup, "_BLOCK", 7)
    assert (dedup.first_alike(signed, candidates, THRESHOLD) == whole).all()
    assert (np.stack([dedup.signature(text) for text in some[:5]]) == signed[:5]).all()


def test_empty_and_wordless_texts_are_alike_only_when_the_same():
    signed = np.stack([dedup.signature(text) for text in ("...", "?!", "...", "one", "One.")])
    assert dedup.first_alike(signed, np.ones(5, bool), THRESHOLD).tolist() == [True, True, False, True, False]
    assert dedup.first_alike(signed[:0], np.ones(0, bool), THRESHOLD).tolist() == []


def test_any_number_of_workers_keeps_the_same_documents(tmp_path, some, monkeypatch):
    monkeypatch.setattr(sources, "UNIT", 20_000)
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text("\n\n".join(some[number::3]), encoding="utf-8")
    config = CorpusConfig(dedup="near", splitter="lines")
    made = [
        corpus.build_shards(
            [tmp_path / f"{n}.txt" for n in range(3)], tmp_path / f"out{workers}", config, workers=workers
        )
        for workers in (1, 2)
    ]
    assert made[0].fingerprint == made[1].fingerprint
    account = made[0].manifest["records"]
    ordered = [text for number in range(3) for text in some[number::3]]
    signed = np.stack([dedup.signature(text) for text in ordered])
    first = np.array([text not in ordered[:i] for i, text in enumerate(ordered)])
    kept = dedup.first_alike(signed, first, config.near_threshold)
    assert account["dropped"] == {"exact duplicate": int((~first).sum()), "near duplicate": int((first & ~kept).sum())}
    assert [" ".join(d) for d in corpus.documents(tmp_path / "out1")] == [
        t for t, k in zip(ordered, kept, strict=True) if k
    ]
