"""Masking of a whole batch at once, beside the plain loop over its sequences; and the published shares."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from bertie.data.draws import Draws, key, unit
from bertie.data.masking import (
    CHOICE,
    MASKINGS,
    RANDOM_ID,
    REPLACEMENT,
    Ragged,
    Vocabulary,
    replacements,
    wanted,
)
from bertie.errors import DataError

PAD, UNUSED, UNK, CLS, SEP, MASK = 0, (1, 2, 3), 4, 5, 6, 7
SIZE = 60
CONTINUES = np.arange(SIZE) >= 40  # ids from 40 on are "##" pieces
SPECIAL = np.isin(np.arange(SIZE), [PAD, UNK, CLS, SEP, MASK])
VOCABULARY = Vocabulary(CLS, SEP, PAD, MASK, UNK, SPECIAL, np.isin(np.arange(SIZE), UNUSED), CONTINUES)

texts = st.lists(st.lists(st.integers(8, SIZE - 1), max_size=30), min_size=1, max_size=6)


def ragged(texts):
    sequences = [[CLS, *text, SEP] for text in texts]
    return Ragged(np.array([i for s in sequences for i in s]), np.array([len(s) for s in sequences]))


def counts_of(batch, rate=0.15, most=None):
    candidates = np.bincount(batch.rows[~VOCABULARY.structure[batch.ids]], minlength=len(batch.lengths))
    return wanted(batch.lengths, candidates, rate=rate, most=most)


def plain_choice(ids, columns, count, draws, sample, whole_words):
    """create_masked_lm_predictions of the release for one sequence, its shuffle being the order of our scores."""
    groups = []
    for column in columns:
        if ids[column] in (CLS, SEP):
            continue
        if whole_words and groups and CONTINUES[ids[column]] and ids[column - 1] not in (CLS, SEP):
            groups[-1].append(column)
        else:
            groups.append([column])
    score = draws.bits(CHOICE, len(ids))[sample]
    groups.sort(key=lambda group: score[group[0]])
    chosen = []
    for group in groups:
        if len(chosen) >= count:
            break
        if len(chosen) + len(group) > count:
            continue
        chosen += group
    return sorted(chosen)


@pytest.mark.parametrize("masking", list(MASKINGS))
@given(texts=texts, seed=st.integers(0, 10_000), rate=st.sampled_from([0.15, 0.3, 0.6]))
def test_batch_masking_is_the_plain_loop(masking, texts, seed, rate):
    batch = ragged(texts)
    draws = Draws(key(seed, np.arange(len(texts))))
    counts = counts_of(batch, rate)
    chosen = MASKINGS[masking](batch, counts, VOCABULARY, draws)
    shown = replacements(batch, chosen, VOCABULARY, draws, replace=(0.8, 0.1, 0.1))

    expected, expected_shown, start = [], [], 0
    for sample, length in enumerate(batch.lengths):
        ids = batch.ids[start : start + length]
        columns = plain_choice(ids, range(length), counts[sample], draws, sample, masking == "whole_word")
        for column in columns:
            expected.append(start + column)
            u = unit(draws.bits(REPLACEMENT, length))[sample, column]
            which = int(unit(draws.bits(RANDOM_ID, length))[sample, column] * len(VOCABULARY.random_ids))
            kept_or_random = VOCABULARY.random_ids[which] if u < 0.9 else ids[column]
            expected_shown.append(MASK if u < 0.8 else kept_or_random)
        start += length
    assert chosen.tolist() == expected
    assert shown.tolist() == expected_shown


def test_how_many_are_predicted():
    lengths = np.array([128, 512, 10, 3, 2, 50, 64])
    assert wanted(lengths, lengths - 2, rate=0.15, most=None).tolist() == [19, 77, 2, 1, 0, 8, 10]
    assert wanted(lengths, lengths - 2, rate=0.15, most=20).tolist() == [19, 20, 2, 1, 0, 8, 10]
    for length in range(2, 600):  # the release's own expression
        expected = min(20, max(1, round(length * 0.15)))
        assert wanted(np.array([length]), np.array([999]), rate=0.15, most=20) == expected


def test_80_10_10():
    batch = ragged([list(range(8, 40)) * 4] * 400)
    draws = Draws(key(3, np.arange(400)))
    chosen = MASKINGS["token"](batch, counts_of(batch), VOCABULARY, draws)
    assert len(chosen) == 400 * round(130 * 0.15)
    shown = replacements(batch, chosen, VOCABULARY, draws, replace=(0.8, 0.1, 0.1))
    n, r = len(chosen), len(VOCABULARY.random_ids)
    masked, kept = (shown == MASK).sum(), (shown == batch.ids[chosen]).sum()
    shares = np.array([0.8, 0.1 + 0.1 / r, 0.1 - 0.1 / r])  # a random token is by chance the same one
    assert chisquare([masked, kept, n - masked - kept], shares * n).pvalue > 0.001

    drawn = shown[(shown != MASK) & (shown != batch.ids[chosen])]
    assert not SPECIAL[drawn].any()
    assert not np.isin(drawn, UNUSED).any()
    assert set(drawn) == set(VOCABULARY.random_ids)  # and every other row of the vocabulary may come
    places = np.bincount(batch.columns[chosen], minlength=130)
    assert places[0] == places[129] == 0
    assert chisquare(places[1:129]).pvalue > 0.001  # every place alike


def test_special_tokens_are_never_predicted_but_unknown_words_are():
    batch = ragged([[UNK, MASK, SEP, UNK, CLS, UNK]] * 50)
    chosen = MASKINGS["token"](batch, counts_of(batch, rate=0.9), VOCABULARY, Draws(key(0, np.arange(50))))
    assert set(batch.ids[chosen]) == {UNK}
    assert len(chosen) == 150


def test_nothing_to_predict():
    batch = ragged([[], [10]])
    for masking in MASKINGS:
        chosen = MASKINGS[masking](batch, counts_of(batch), VOCABULARY, Draws(key(0, np.arange(2))))
        assert chosen.tolist() == [3]


def test_whole_words_are_never_split():
    batch = ragged([[10, 41, 42, 11, 12, 43, 13, 44, 45, 46, 14, 15] * 6] * 50)
    counts = counts_of(batch)
    chosen = MASKINGS["whole_word"](batch, counts, VOCABULARY, Draws(key(0, np.arange(50))))
    is_chosen = np.zeros(len(batch.ids), bool)
    is_chosen[chosen] = True
    follows = CONTINUES[batch.ids]
    assert (is_chosen[follows] == is_chosen[np.flatnonzero(follows) - 1]).all()
    assert (np.bincount(batch.rows[chosen], minlength=50) <= counts).all()


def test_vocabulary_of_special_tokens_alone():
    vocabulary = Vocabulary(5, 6, 0, 7, 4, np.ones(8, bool), np.zeros(8, bool), np.zeros(8, bool))
    with pytest.raises(DataError, match="nothing but special"):
        _ = vocabulary.random_ids
