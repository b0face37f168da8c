"""Masking of a whole batch, compared with a loop over its sequences; and the published shares."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from bertie.data.masking import (
    CHOICE,
    MASKINGS,
    RANDOM_ID,
    REPLACEMENT,
    RUN_LENGTH,
    Vocabulary,
    choose_tokens,
    masking_of,
    prediction_counts,
    rate_of,
    replacements,
)
from bertie.errors import DataError, UsageError
from bertie.order import Draws, key, unit_floats
from bertie.text.sequences import Sequences

PAD, UNUSED, UNK, CLS, SEP, MASK = 0, (1, 2, 3), 4, 5, 6, 7
SIZE = 60
CONTINUES = np.arange(SIZE) >= 40  # ids from 40 on are "##" pieces
SPECIAL = np.isin(np.arange(SIZE), [PAD, UNK, CLS, SEP, MASK])
VOCABULARY = Vocabulary(CLS, SEP, PAD, MASK, UNK, SPECIAL, np.isin(np.arange(SIZE), UNUSED), CONTINUES)

texts = st.lists(st.lists(st.integers(8, SIZE - 1), max_size=30), min_size=1, max_size=6)


def ragged(texts):
    sequences = [[CLS, *text, SEP] for text in texts]
    return Sequences.of(sequences)


def counts_of(batch, rate=0.15, most=None):
    candidates = np.bincount(batch.sequence[~VOCABULARY.structure[batch.input_ids]], minlength=len(batch.lengths))
    return prediction_counts(batch.lengths, candidates, rate=rate, most=most)


def plain_choice(ids, count, draws, sample, masking):
    """create_masked_lm_predictions of the releases for one sequence, its shuffle being the order of our scores.

    Runs of words as in ALBERT's: a start in random order, a length drawn, words taken while they are free and fit.
    -> {chosen column: the first column of its run}
    """
    words = []
    for column, token in enumerate(ids):
        if token in (CLS, SEP):
            words.append(None)  # nothing reaches over these
        elif masking.unit == "word" and words and words[-1] is not None and CONTINUES[token]:
            words[-1].append(column)
        else:
            words.append([column])
    score, length_of = draws.bits(CHOICE, len(ids))[sample], unit_floats(draws.bits(RUN_LENGTH, len(ids)))[sample]
    chosen, room = {}, count
    for start in sorted((w for w in range(len(words)) if words[w]), key=lambda w: score[words[w][0]]):
        if room == 0:
            break
        first = words[start][0]
        length = 1 + sum(length_of[first] >= end for end in np.cumsum(masking.lengths)[:-1])
        for word in words[start : start + length]:
            if word is None or word[0] in chosen or len(word) > room:
                break
            chosen |= dict.fromkeys(word, first)
            room -= len(word)
    return dict(sorted(chosen.items()))


@pytest.mark.parametrize("name", list(MASKINGS))
@given(texts=texts, seed=st.integers(0, 10_000), rate=st.sampled_from([0.15, 0.3, 0.6]))
def test_batch_masking_is_the_plain_loop(name, texts, seed, rate):
    batch, masking = ragged(texts), masking_of(name)
    draws = Draws(key(seed, np.arange(len(texts))))
    counts = counts_of(batch, rate)
    chosen, heads = choose_tokens(masking, batch, counts, VOCABULARY, draws)
    shown = replacements(batch, chosen, heads, VOCABULARY, draws, replace=(0.8, 0.1, 0.1))

    expected, expected_shown, start = [], [], 0
    for sample, length in enumerate(batch.lengths):
        ids = batch.input_ids[start : start + length]
        for column, first in plain_choice(ids, counts[sample], draws, sample, masking).items():
            expected.append(start + column)
            u = unit_floats(draws.bits(REPLACEMENT, length))[sample, first if masking.together else column]
            which = int(unit_floats(draws.bits(RANDOM_ID, length))[sample, column] * len(VOCABULARY.random_ids))
            kept_or_random = VOCABULARY.random_ids[which] if u < 0.9 else ids[column]
            expected_shown.append(MASK if u < 0.8 else kept_or_random)
        start += length
    assert chosen.tolist() == expected
    assert shown.tolist() == expected_shown


def chosen_of(name, batch, counts, seed=0):
    """The chosen tokens alone."""
    draws = Draws(key(seed, np.arange(len(batch.lengths))))
    return choose_tokens(masking_of(name), batch, counts, VOCABULARY, draws)[0]


@pytest.mark.parametrize(
    ("name", "weights"),
    [("ngram", [1, 1 / 2, 1 / 3]), ("span", [0.8**n for n in range(10)]), ({"ngram": {"longest": 2}}, [1, 1 / 2])],
)
def test_runs_are_as_long_as_published(name, weights):
    """The run that is drawn first in each of many sequences, where the text does not end before it could."""
    samples, longest = 4000, len(weights)
    batch, draws = ragged([list(range(8, 40)) * 4] * samples), Draws(key(1, np.arange(samples)))
    masking = replace(masking_of(name), together=True)
    _, heads = choose_tokens(masking, batch, np.full(samples, longest), VOCABULARY, draws)
    runs, lengths = np.unique(heads, return_counts=True)
    order = np.lexsort((draws.bits_at(CHOICE, batch.sequence[runs], batch.column[runs]), batch.sequence[runs]))
    first = order[np.unique(batch.sequence[runs][order], return_index=True)[1]]
    first = first[batch.column[runs[first]] + longest < 130]
    found = np.bincount(lengths[first], minlength=longest + 1)[1:]
    assert chisquare(found, np.array(weights) / sum(weights) * len(first)).pvalue > 0.001


def test_spans_are_four_words_long_on_average():
    lengths = masking_of("span").lengths
    assert np.dot(lengths, 1 + np.arange(10)) == pytest.approx(3.8, abs=0.05)  # SpanBERT, 3.1


def test_words_of_vocabularies_that_mark_ends():
    """ "ing</w>" ends a word; unmarked tokens before it are of the same word."""
    ends = np.isin(np.arange(SIZE), np.arange(20, SIZE))
    vocabulary = replace(VOCABULARY, continues=np.zeros(SIZE, bool), ends=ends)
    batch = ragged([[8, 9, 30, 31, 10, 32, 11, 12, 13, 33] * 4] * 30)
    draws = Draws(key(0, np.arange(30)))
    chosen, _ = choose_tokens(masking_of("whole_word"), batch, counts_of(batch, 0.3), vocabulary, draws)
    is_chosen = np.isin(np.arange(len(batch.input_ids)), chosen)
    inside = np.flatnonzero((batch.input_ids >= 8) & ~ends[batch.input_ids])  # the next token is of the same word
    assert (is_chosen[inside] == is_chosen[inside + 1]).all()
    assert len(chosen)


def test_bad_maskings_are_named():
    for value, message in [
        ("whole-word", "Did you mean 'whole_word'"),
        ({"span": {"longst": 3}}, "Did you mean 'longest'"),
        ({"span": {"p": 0}}, "between 0 and 1"),
        ({"span": {"p": "high"}}, "between 0 and 1"),
        ({"ngram": {"longest": 0}}, "1 to 100"),
        ({"ngram": {"longest": "yes"}}, "a whole number from 1 to 100"),
        ({"ngram": {"longest": 2.5}}, "a whole number from 1 to 100"),
        ({"span": {}, "ngram": {}}, "one name"),
    ]:
        with pytest.raises(UsageError, match=message):
            masking_of(value)


def test_rates_over_a_run():
    assert rate_of(0.15, "mlm.rate").at([0, 9, 2**62]).tolist() == [0.15] * 3
    line = rate_of({"linear": {100: 0.3, 300: 0.1}}, "mlm.rate")
    np.testing.assert_allclose(line.at([0, 100, 150, 200, 300, 999]), [0.3, 0.3, 0.25, 0.2, 0.1, 0.1])
    steps = rate_of({"steps": {"0": 0.3, "50": 0.2, "60": 0.1}}, "mlm.rate")  # as JSON keeps the keys
    assert steps.at([0, 49, 50, 59, 60, 61]).tolist() == [0.3, 0.3, 0.2, 0.2, 0.1, 0.1]
    for value, message in [
        (0, "between 0 and 1"),
        ({"linear": {0: 0.3, 10: 1.5}}, "between 0 and 1"),
        ({"linaer": {0: 0.3}}, "Did you mean 'linear'"),
        ({"steps": {9: 0.3, 0: 0.1}}, "increasing"),
        ({"steps": {}}, "increasing"),
        ({"steps": {"soon": 0.3}}, "numbers of sequences"),
        ({0: 0.3}, "it must be a number between 0 and 1, or one of"),
        ("high", "numbers of sequences"),
    ]:
        with pytest.raises(UsageError, match=message):
            rate_of(value, "mlm.rate")


def test_how_many_are_predicted():
    lengths = np.array([128, 512, 10, 3, 2, 50, 64])
    assert prediction_counts(lengths, lengths - 2, rate=0.15, most=None).tolist() == [19, 77, 2, 1, 0, 8, 10]
    assert prediction_counts(lengths, lengths - 2, rate=0.15, most=20).tolist() == [19, 20, 2, 1, 0, 8, 10]
    for length in range(2, 600):  # the release's own expression
        expected = min(20, max(1, round(length * 0.15)))
        assert prediction_counts(np.array([length]), np.array([999]), rate=0.15, most=20) == expected


@pytest.mark.promise("batches-as-published")
def test_80_10_10():
    batch = ragged([list(range(8, 40)) * 4] * 400)
    draws = Draws(key(3, np.arange(400)))
    chosen = chosen_of("token", batch, counts_of(batch), seed=3)
    assert len(chosen) == 400 * round(130 * 0.15)
    shown = replacements(batch, chosen, chosen, VOCABULARY, draws, replace=(0.8, 0.1, 0.1))
    n, r = len(chosen), len(VOCABULARY.random_ids)
    masked, kept = (shown == MASK).sum(), (shown == batch.input_ids[chosen]).sum()
    shares = np.array([0.8, 0.1 + 0.1 / r, 0.1 - 0.1 / r])  # a random token is by chance the same one
    assert chisquare([masked, kept, n - masked - kept], shares * n).pvalue > 0.001

    drawn = shown[(shown != MASK) & (shown != batch.input_ids[chosen])]
    assert not SPECIAL[drawn].any()
    assert not np.isin(drawn, UNUSED).any()
    assert set(drawn) == set(VOCABULARY.random_ids)  # and every other row of the vocabulary may come
    places = np.bincount(batch.column[chosen], minlength=130)
    assert places[0] == places[129] == 0
    assert chisquare(places[1:129]).pvalue > 0.001  # every place alike


@pytest.mark.promise("batches-as-published")
def test_special_tokens_are_never_predicted_but_unknown_words_are():
    batch = ragged([[UNK, MASK, SEP, UNK, CLS, UNK]] * 50)
    chosen = chosen_of("token", batch, counts_of(batch, rate=0.9))
    assert set(batch.input_ids[chosen]) == {UNK}
    assert len(chosen) == 150


def test_nothing_to_predict():
    batch = ragged([[], [10]])
    for masking in MASKINGS:
        chosen = chosen_of(masking, batch, counts_of(batch))
        assert chosen.tolist() == [3]


def test_whole_words_are_never_split():
    batch = ragged([[10, 41, 42, 11, 12, 43, 13, 44, 45, 46, 14, 15] * 6] * 50)
    counts = counts_of(batch)
    chosen = chosen_of("whole_word", batch, counts)
    is_chosen = np.zeros(len(batch.input_ids), bool)
    is_chosen[chosen] = True
    follows = CONTINUES[batch.input_ids]
    assert (is_chosen[follows] == is_chosen[np.flatnonzero(follows) - 1]).all()
    assert (np.bincount(batch.sequence[chosen], minlength=50) <= counts).all()


def test_vocabulary_of_special_tokens_alone():
    vocabulary = Vocabulary(5, 6, 0, 7, 4, np.ones(8, bool), np.zeros(8, bool), np.zeros(8, bool))
    with pytest.raises(DataError, match="only special"):
        _ = vocabulary.random_ids
