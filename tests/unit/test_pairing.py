"""Instances from sentence lengths: the release's algorithm compared with ours, and properties of the corrected one."""

import errno
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertie.data import plans
from bertie.data.pairing import DocSentences, FullSentences, NextSentencePairs, SentenceOrderPairs
from bertie.data.plans import Sentences, cached_plan, choose_held_out, walk
from bertie.order import key

corpora = st.lists(st.lists(st.integers(0, 40), max_size=12), min_size=1, max_size=12)


def sentences_of(corpus):
    """A corpus given as sentence lengths per document."""
    lengths = [length for document in corpus for length in document]
    return Sentences.of(lengths, np.cumsum([0, *(len(document) for document in corpus)]))


def random_corpus(documents=2000, seed=0, mean_sentences=12):
    rng = np.random.default_rng(seed)
    sizes = rng.geometric(1 / mean_sentences, documents)
    lengths = np.minimum(rng.lognormal(3.0, 0.6, sizes.sum()).astype(int) + 1, 300)
    return Sentences.of(lengths, np.concatenate([[0], np.cumsum(sizes)]))


def ranges_of(plan):
    rows = plan.rows
    a, b = rows["a"], rows["b"]
    return a, a + rows["a_length"], b, b + rows["b_length"], rows["label"]


def documents_of(sentences, tokens):
    return sentences.document_of(np.searchsorted(sentences.stops, tokens, side="right"))


# The release's algorithm, as in create_pretraining_data.py, on lists of tokens.


class ReleaseRandom:
    """The calls the release makes, on the draws of the plan."""

    def __init__(self, seed):
        self.random = random.Random(seed).random

    def randint(self, low, high):
        return low + int(self.random() * (high - low + 1))


def release_instances(all_documents, max_seq_length, rng):
    return [
        instance
        for document_index in range(len(all_documents))
        for instance in release_document(all_documents, document_index, max_seq_length, 0.1, rng)
    ]


def release_document(all_documents, document_index, max_seq_length, short_seq_prob, rng):
    document = all_documents[document_index]
    max_num_tokens = max_seq_length - 3
    target_seq_length = max_num_tokens
    if rng.random() < short_seq_prob:
        target_seq_length = rng.randint(2, max_num_tokens)
    instances = []
    current_chunk = []
    current_length = 0
    i = 0
    while i < len(document):
        segment = document[i]
        current_chunk.append(segment)
        current_length += len(segment)
        if i == len(document) - 1 or current_length >= target_seq_length:
            if current_chunk:
                a_end = 1
                if len(current_chunk) >= 2:
                    a_end = rng.randint(1, len(current_chunk) - 1)
                tokens_a = []
                for j in range(a_end):
                    tokens_a.extend(current_chunk[j])
                tokens_b = []
                if len(current_chunk) == 1 or rng.random() < 0.5:
                    is_random_next = True
                    target_b_length = target_seq_length - len(tokens_a)
                    for _ in range(10):
                        random_document_index = rng.randint(0, len(all_documents) - 1)
                        if random_document_index != document_index:
                            break
                    random_document = all_documents[random_document_index]
                    random_start = rng.randint(0, len(random_document) - 1)
                    for j in range(random_start, len(random_document)):
                        tokens_b.extend(random_document[j])
                        if len(tokens_b) >= target_b_length:
                            break
                    num_unused_segments = len(current_chunk) - a_end
                    i -= num_unused_segments
                else:
                    is_random_next = False
                    for j in range(a_end, len(current_chunk)):
                        tokens_b.extend(current_chunk[j])
                release_truncate(tokens_a, tokens_b, max_num_tokens, rng)
                assert len(tokens_a) >= 1
                assert len(tokens_b) >= 1
                instances.append((tokens_a, tokens_b, is_random_next))
            current_chunk = []
            current_length = 0
        i += 1
    return instances


def release_truncate(tokens_a, tokens_b, max_num_tokens, rng):
    while len(tokens_a) + len(tokens_b) > max_num_tokens:
        trunc_tokens = tokens_a if len(tokens_a) > len(tokens_b) else tokens_b
        if rng.random() < 0.5:
            del trunc_tokens[0]
        else:
            trunc_tokens.pop()


@pytest.mark.promise("batches-as-published")
@given(corpus=corpora, seed=st.integers(0, 1000), max_length=st.integers(8, 64))
def test_original_is_the_release_algorithm(corpus, seed, max_length):
    sentences = sentences_of(corpus)
    tokens = iter(range(10**6))  # every token is its own number, so a token range says all
    documents = [[[next(tokens) for _ in range(n)] for n in document if n] for document in corpus]
    expected = release_instances([d for d in documents if d], max_length, ReleaseRandom(int(key(seed, 3))))
    plan = NextSentencePairs("original").plan(sentences, max_length=max_length, seed=key(seed, 3))
    ours = [
        (list(range(a, a_stop)), list(range(b, b_stop)), bool(label))
        for a, a_stop, b, b_stop, label in zip(*(column.tolist() for column in ranges_of(plan)), strict=True)
    ]
    assert ours == expected


def test_original_keeps_the_quirks():
    plan = NextSentencePairs("original").plan(random_corpus(), max_length=128, seed=key(0))
    assert plan.rows["label"].mean() > 0.53  # chunks of one sentence are always random
    assert plan.report["tokens_in_no_instance"] > 0.02 * plan.report["tokens"]  # cut off by truncate_seq_pair
    one = NextSentencePairs("original").plan(sentences_of([[5] * 50]), max_length=32, seed=key(0))
    assert one.rows["label"].any()  # after ten draws the same document will do


@pytest.mark.promise("batches-as-published")
@given(corpus=corpora, seed=st.integers(0, 1000), max_length=st.integers(8, 64))
def test_corrected_invariants(corpus, seed, max_length):
    sentences = sentences_of(corpus)
    plan = NextSentencePairs("corrected").plan(sentences, max_length=max_length, seed=key(seed))
    a, a_stop, b, b_stop, label = ranges_of(plan)
    assert ((a < a_stop) & (b < b_stop)).all()
    assert (a_stop - a + b_stop - b <= max_length - 3).all()
    documents_a = documents_of(sentences, a)
    np.testing.assert_array_equal(documents_a, documents_of(sentences, a_stop - 1))
    np.testing.assert_array_equal(documents_of(sentences, b), documents_of(sentences, b_stop - 1))
    same = documents_a == documents_of(sentences, b)
    assert same[label == 0].all()
    assert (a_stop <= b)[label == 0].all()
    if sentences.num_documents >= 2:
        assert not same[label == 1].any()


@given(corpus=corpora, seed=st.integers(0, 1000))
def test_corrected_uses_every_sentence_or_counts_it(corpus, seed):
    sentences = sentences_of(corpus)
    plan = NextSentencePairs("corrected").plan(sentences, max_length=1000, seed=key(seed))  # nothing is ever cut
    used = np.zeros(sentences.stops[-1] if len(sentences) else 0, bool)
    a, a_stop, b, b_stop, _ = ranges_of(plan)
    for begin, stop in [*zip(a, a_stop, strict=True), *zip(b, b_stop, strict=True)]:
        used[begin:stop] = True
    unused = sum(not used[begin] for begin in sentences.starts)
    assert plan.report["tokens_in_no_instance"] == (~used).sum()
    assert unused <= plan.report["sentences_unused"]  # a sentence nobody took may still be drawn


def test_corrected_is_balanced_and_lengths_tell_nothing():
    sentences = random_corpus()
    plan = NextSentencePairs("corrected").plan(sentences, max_length=128, seed=key(1))
    a, a_stop, b, b_stop, label = ranges_of(plan)
    n = len(plan)
    assert abs(label.mean() - 0.5) < 3.3 * 0.5 / n**0.5
    assert plan.report["sentences_unused"] == 0
    assert plan.report["tokens_in_no_instance"] < 0.02 * plan.report["tokens"]
    for length in (a_stop - a, b_stop - b, a_stop - a + b_stop - b):
        assert abs(length[label == 0].mean() / length[label == 1].mean() - 1) < 0.04
    first = NextSentencePairs("original").plan(sentences, max_length=128, seed=key(1)).rows
    a_length = first["a_length"].astype(int)  # what it corrects: there, lengths do tell
    assert a_length[first["label"] == 0].mean() > 1.05 * a_length[first["label"] == 1].mean()


def test_corrected_draws_documents_by_their_length():
    sentences = sentences_of([[10] * 300, [10] * 10, [10] * 690, [10] * 1000])
    _, _, b, _, label = ranges_of(NextSentencePairs("corrected").plan(sentences, max_length=64, seed=key(2)))
    drawn = np.bincount(documents_of(sentences, b[label == 1]), minlength=4)
    assert drawn[1] < 0.06 * drawn.sum()
    plan = NextSentencePairs("original").plan(sentences, max_length=64, seed=key(2))
    drawn = np.bincount(documents_of(sentences, plan.rows["b"][plan.rows["label"] == 1]), minlength=4)
    assert drawn[1] > 0.15 * drawn.sum()  # the release draws the short document as often as the long ones


def test_single_sentence_documents_become_random_texts():
    sentences = sentences_of([[9] * 40, [7], [8] * 40, [6]])
    plan = NextSentencePairs("corrected").plan(sentences, max_length=64, seed=key(0))
    _, _, b, _, _ = ranges_of(plan)
    assert {1, 3} <= set(documents_of(sentences, b).tolist())
    assert plan.report["sentences_unused"] == 0


@given(a=st.integers(1, 200), b=st.integers(1, 200), room=st.integers(5, 100))
def test_truncation_in_closed_form_is_the_loop(a, b, room):
    from bertie.data.pairing import _truncated

    tokens_a, tokens_b = list(range(a)), list(range(b))
    release_truncate(tokens_a, tokens_b, room, ReleaseRandom(0))
    begin_a, stop_a, begin_b, stop_b = _truncated(*(np.array([x]) for x in (0, a, 0, b)), room, key(0))
    assert (stop_a - begin_a, stop_b - begin_b) == (len(tokens_a), len(tokens_b))
    assert begin_a >= 0
    assert begin_b >= 0
    assert stop_a <= a
    assert stop_b <= b


@given(corpus=corpora, max_length=st.integers(8, 64))
def test_sentences_of_a_document_hold_every_token_once(corpus, max_length):
    sentences = sentences_of(corpus)
    plan = DocSentences().plan(sentences, max_length=max_length, seed=key(0))
    a, a_stop, _, _, _ = ranges_of(plan)
    assert [t for x, y in zip(a, a_stop, strict=True) for t in range(x, y)] == list(range(sentences.tokens))
    assert (a_stop - a <= max_length - 2).all()
    np.testing.assert_array_equal(documents_of(sentences, a), documents_of(sentences, a_stop - 1))
    ends = set(sentences.stops.tolist())
    for x, y in zip(a.tolist(), a_stop.tolist(), strict=True):
        if y not in ends:  # only a sentence longer than a sequence is split, and its first piece is full
            assert y - x == max_length - 2


@given(corpus=corpora, max_length=st.integers(8, 64), out=st.integers(0, 3))
def test_full_sentences_go_on_over_the_ends_of_documents(corpus, max_length, out):
    """Beside the paper's sentence, one sentence at a time (Liu et al. 2019, 4.2); some documents are held out."""
    lengths = [length for document in corpus for length in document]
    kept = np.arange(len(corpus)) % 4 != out
    sentences = Sentences.of(lengths, np.cumsum([0, *(len(document) for document in corpus)]), kept)
    expected: list[list[tuple[int, int]]] = []  # of each instance its texts' token ranges, one a document
    room, used = max_length - 2, max_length  # nothing is open
    for document in range(sentences.num_documents):
        new = True
        for i in range(sentences.bounds[document], sentences.bounds[document + 1]):
            start, stop = int(sentences.starts[i]), int(sentences.stops[i])
            if expected and used + new + stop - start <= room:
                if new:
                    expected[-1].append((start, stop))
                else:
                    expected[-1][-1] = (expected[-1][-1][0], stop)
                used += new + stop - start
            else:
                while stop - start > room:
                    expected.append([(start, start + room)])
                    start += room
                    if stop - start <= room:
                        break
                expected.append([(start, stop)])
                used = stop - start if int(sentences.stops[i] - sentences.starts[i]) <= room else max_length
            new = False
    plan = FullSentences().plan(sentences, max_length=max_length, seed=key(0))
    found = [sentences.stretches(row["a"], row["a_length"]) for row in plan.rows]
    assert found == expected
    assert plan.report["tokens_in_no_instance"] == 0


@pytest.mark.parametrize(
    "pairing",
    [DocSentences(), FullSentences(), NextSentencePairs("original"), NextSentencePairs("corrected")],
    ids=["doc_sentences", "full_sentences", "original", "corrected"],
)
def test_plans_are_functions_of_seed_and_not_of_block_size(pairing, monkeypatch):
    sentences = random_corpus(documents=100)
    plan = pairing.plan(sentences, max_length=64, seed=key(4))
    np.testing.assert_array_equal(plan.rows, pairing.plan(sentences, max_length=64, seed=key(4)).rows)
    if pairing.duplicates > 1:
        assert not np.array_equal(plan.rows, pairing.plan(sentences, max_length=64, seed=key(5)).rows)
    monkeypatch.setattr(plans, "PLAN_BLOCK", 50)
    np.testing.assert_array_equal(plan.rows, pairing.plan(sentences, max_length=64, seed=key(4)).rows)


def test_sentences_leave_out_what_is_empty():
    sentences = sentences_of([[3, 0, 4], [0, 0], [], [5]])
    assert sentences.starts.tolist() == [0, 3, 7]
    assert sentences.stops.tolist() == [3, 7, 12]
    assert sentences.bounds.tolist() == [0, 2, 3]
    kept = Sentences.of([3, 0, 4, 5], [0, 3, 4], np.array([False, True]))
    assert (kept.starts.tolist(), kept.bounds.tolist(), kept.tokens) == ([7], [0, 1], 5)


def test_walk_follows():
    assert walk(np.array([12, 13, 13, 15, 15]), 10).tolist() == [10, 12, 13]


def test_held_out_documents():
    sizes = np.random.default_rng(0).integers(50, 500, 5000)
    bounds = np.arange(5001)
    out = choose_held_out(sizes, bounds)
    assert 0.008 < sizes[out].sum() / sizes.sum() <= 0.01
    assert not choose_held_out([5000] * 5, np.arange(6)).any()  # few long documents: none to spare
    assert choose_held_out([50] * 100, np.arange(101)).sum() == 10
    assert not choose_held_out([3, 3], [0, 1, 2]).any()


@pytest.mark.promise("damaged-shard")
def test_plans_are_kept_and_a_damaged_one_is_made_again(tmp_path, capsys):
    sentences = random_corpus(documents=20)
    made = []

    def make():
        made.append(1)
        return NextSentencePairs().plan(sentences, max_length=64, seed=key(0))

    first = cached_plan(make, tmp_path / "plans", "a")
    again = cached_plan(make, tmp_path / "plans", "a")
    assert len(made) == 1
    np.testing.assert_array_equal(first.rows, again.rows)
    assert dict(first.report) == dict(again.report)
    assert isinstance(again.rows, np.memmap)
    kept = {path: path.read_bytes() for path in (tmp_path / "plans").iterdir()}
    assert len(kept) == 2
    cached_plan(make, tmp_path / "plans", "b")
    assert len(made) == 2
    rows = np.array(first.rows)  # apart from the file
    for path, data in kept.items():
        changes = [data[: len(data) // 2], b"", *(flipped(data, bit) for bit in range(0, 8 * len(data), 97))]
        for changed in changes[:40]:
            path.write_bytes(changed)
            before = len(made)
            plan = cached_plan(make, tmp_path / "plans", "a")
            np.testing.assert_array_equal(plan.rows, rows)
            assert dict(plan.report) == dict(first.report)
            if path.suffix == ".npy":
                assert len(made) == before + 1  # a low bit of a start is no lesser damage
                assert f"{path} is damaged (it does not match its hash) and is written again" in capsys.readouterr().err
        assert path.read_bytes() == data


def flipped(data, bit):
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_a_plan_that_cannot_be_kept_lives_in_memory(tmp_path, monkeypatch):
    sentences = random_corpus(documents=20)

    def refuse(*arguments, **options):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(plans, "atomic_write", refuse)
    plan = cached_plan(lambda: NextSentencePairs().plan(sentences, max_length=64, seed=key(0)), tmp_path / "plans", "a")
    assert len(plan) > 0


# Sentence order


def test_order_pairs_are_neighbors_of_one_document_swapped_by_a_fair_coin():
    sentences = random_corpus(800, seed=4)
    plan = SentenceOrderPairs().plan(sentences, max_length=128, seed=key(1))
    a, a_stop, b, b_stop, swapped = ranges_of(plan)
    assert (plan.rows["a_length"] + plan.rows["b_length"] <= 125).all()
    assert (documents_of(sentences, a) == documents_of(sentences, b)).all()
    former_stop = np.where(swapped, b_stop, a_stop)
    latter = np.where(swapped, a, b)
    assert (former_stop <= latter).all()
    cut = former_stop != latter  # only a pair that was too long has lost tokens between its segments
    assert (plan.rows["a_length"] + plan.rows["b_length"] == 125)[cut].all()
    assert abs(swapped.mean() - 0.5) < 4 * np.sqrt(0.25 / len(swapped))
    alone = int((np.diff(sentences.bounds) == 1).sum())
    assert plan.report["sentences_unused"] == alone
    assert plan.report["tokens_in_no_instance"] < 0.01 * sentences.tokens + alone * 300


def test_a_swap_changes_nothing_but_the_order():
    """The same seed with the coin ignored cuts the same two segments."""
    sentences = sentences_of([[5, 6, 7, 8, 9, 10]] * 40)
    plan = SentenceOrderPairs().plan(sentences, max_length=64, seed=key(2))
    rows = {(int(min(r["a"], r["b"])), int(max(r["a"], r["b"]))): bool(r["label"]) for r in plan.rows}
    assert len(rows) == len(plan.rows)
    assert set(rows.values()) == {True, False}
    assert all((r["a"] > r["b"]) == bool(r["label"]) for r in plan.rows)
