"""More than 2^31 tokens: 64-bit offsets, any place found at once, memory bounded. The files are sparse."""

import resource
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertie.data import plans, shards
from bertie.data.pairing import DocSentences, NextSentencePairs, SentenceOrderPairs
from bertie.data.plans import Sentences, choose_held_out
from bertie.data.shards import Shards
from bertie.files import seal, write_json
from bertie.order import Order

SENTENCE, DOCUMENT = 2500, 8  # tokens of a sentence, sentences of a document
SENTENCES = 1 << 20
TOKENS = SENTENCE * SENTENCES


@pytest.fixture
def folder(tmp_path):
    """Four shards of 655 million tokens each: real bounds, and sparse files of 2.6 GB, which need no space."""
    rows, each = [], SENTENCES // 4
    for number in range(4):
        name = f"shard-{number:05d}"
        with open(tmp_path / f"{name}.values", "wb") as file:
            file.truncate(each * SENTENCE)
            for place in (0, each * SENTENCE - 1):
                file.seek(place)
                file.write(bytes([number + 1]))
        (np.arange(each + 1) * SENTENCE).astype("<i8").tofile(tmp_path / f"{name}.sentences")
        np.arange(0, each + 1, DOCUMENT).astype("<i8").tofile(tmp_path / f"{name}.documents")
        counts = {"num_documents": each // DOCUMENT, "num_sentences": each, "num_values": each * SENTENCE}
        sizes = {
            kind: {"bytes": (tmp_path / f"{name}.{kind}").stat().st_size, "blocks": []} for kind in shards.ARRAY_KINDS
        }
        rows.append({"name": name, **counts, **sizes})
    manifest = {"format": shards.SHARDS_FORMAT, "dtype": "uint8", "fingerprint": "synthetic", "shards": rows}
    write_json(tmp_path / "manifest.json", {**manifest, "seal": seal(manifest)})
    return tmp_path


def peak_bytes(make):
    tracemalloc.start()
    try:
        return make(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_every_place_of_a_corpus_beyond_32_bits_is_found_without_reading_it(folder):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    corpus = Shards.open(folder, verify=False)
    assert corpus.num_values == TOKENS > 2**31
    assert corpus.num_sentences == SENTENCES
    assert corpus.span(TOKENS - 3, TOKENS).tolist() == [0, 0, 4]
    border = TOKENS // 4 * 3
    assert corpus.span(border - 1, border + 2).tolist() == [3, 4, 0]
    assert corpus.document(SENTENCES // DOCUMENT - 1) == range(SENTENCES - DOCUMENT, SENTENCES)
    assert corpus.sentence(SENTENCES - 1)[-1] == 4
    assert corpus.values(SENTENCES - 1, SENTENCES)[-1] == 4
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before  # kB on Linux
    assert grown < 64 << 10, "2.6 GB of values were not to be read"
    assert (corpus.sentence_lengths() == SENTENCE).all()


def test_plans_beyond_32_bits_hold_every_token_once(monkeypatch):
    lengths, bounds = np.full(SENTENCES, SENTENCE, np.int32), np.arange(0, SENTENCES + 1, DOCUMENT)
    monkeypatch.setattr(plans, "IN_MEMORY", 1 << 16)
    monkeypatch.setattr(plans, "PLAN_BLOCK", 1 << 16)
    out, held_peak = peak_bytes(lambda: choose_held_out(lengths, bounds))
    sentences, peak = peak_bytes(lambda: Sentences.of(lengths, bounds, ~out))
    assert 2**31 < sentences.tokens < TOKENS
    assert held_peak < 100 * len(out)  # bytes a document; nothing by sentences
    assert peak < 8 * SENTENCES  # 16 bytes a sentence lie in files

    plan, peak = peak_bytes(lambda: DocSentences().plan(sentences, max_length=4096, seed=np.uint64(1)))
    assert plan.report["tokens_read"] == plan.report["tokens"] == sentences.tokens
    assert plan.report["tokens_in_no_instance"] == 0
    assert plan.rows["a"][-1] + plan.rows["a_length"][-1] == sentences.stops[-1] > 2**31
    assert peak < 200 * len(plan)  # while it is made; kept, 21 bytes an instance in a file

    pairs = NextSentencePairs().plan(sentences, max_length=8192, seed=np.uint64(1))
    ends = np.maximum(pairs.rows["a"] + pairs.rows["a_length"], pairs.rows["b"] + pairs.rows["b_length"])
    assert 2**31 < ends.max() <= sentences.stops[-1]
    assert min(pairs.rows["a"].min(), pairs.rows["b"].min()) >= 0


@pytest.mark.parametrize("pairing", [DocSentences(), NextSentencePairs(), SentenceOrderPairs()])
def test_group_by_group_every_token_is_accounted_for_in_less_memory(pairing, monkeypatch):
    lengths = np.random.default_rng(0).integers(8, 45, 200_000)
    sentences = Sentences.of(lengths, np.arange(0, 200_001, 20))

    def make():
        return plans.plan_instances(pairing, sentences, max_length=128, seed=np.uint64(3))

    whole, whole_peak = peak_bytes(make)
    alone = pairing.plan(sentences, max_length=128, seed=np.uint64(3))
    assert (whole.rows == alone.rows).all(), "one group is the plan itself"
    monkeypatch.setattr(plans, "_GROUP", 30_000)
    monkeypatch.setattr(plans, "PLAN_BLOCK", 10_000)
    grouped, peak = peak_bytes(make)
    assert peak < whole_peak / 3
    assert (make().rows == grouped.rows).all()
    for name in ("documents", "sentences", "tokens"):
        assert grouped.report[name] == whole.report[name]
    assert grouped.report == {**plans.plan_statistics(sentences, grouped.rows), **extras(grouped.report)}
    assert abs(len(grouped) / len(whole) - 1) < 0.02


def extras(report):
    """What a pairing counts besides."""
    return {name: count for name, count in report.items() if name in ("sentences_unused", "sentences_split")}


def test_the_order_of_ten_to_the_twelve_samples_is_a_function_of_the_place():
    order = Order(10**12, 5)
    late = order.samples(10**12 * 3 // 256 - 1, 256)
    assert (late[0] == 2).all()
    assert late[1].max() > 2**32
    assert len(set(late[1].tolist())) == 256
    assert (order.samples(10**12 * 3 // 256 - 1, 256)[1] == late[1]).all()


def plain(lengths, bounds, documents):
    """`Sentences.of` over whole arrays."""
    stops = np.cumsum(lengths)
    kept = lengths > 0
    if documents is not None:
        kept &= np.repeat(documents, np.diff(bounds))
    before = np.concatenate([[0], np.cumsum(kept)])
    return (stops - lengths)[kept], stops[kept], np.unique(before[bounds])


@given(st.lists(st.lists(st.integers(0, 3), max_size=5), max_size=12), st.integers(1, 7), st.data())
@settings(max_examples=200)
def test_block_by_block_is_the_same_as_all_at_once(documents, block, data):
    lengths = np.array([n for document in documents for n in document], np.int64)
    bounds = np.cumsum([0, *map(len, documents)])
    size = len(documents)
    some = data.draw(st.none() | st.lists(st.booleans(), min_size=size, max_size=size).map(lambda x: np.array(x, bool)))
    before = plans.PLAN_BLOCK, plans.IN_MEMORY
    plans.PLAN_BLOCK, plans.IN_MEMORY = block, 4
    try:
        found = Sentences.of(lengths, bounds, some)
        tokens = [sum(document) for document in documents]
        chosen = choose_held_out(lengths, bounds)
    finally:
        plans.PLAN_BLOCK, plans.IN_MEMORY = before
    for ours, expected in zip((found.starts, found.stops, found.bounds), plain(lengths, bounds, some), strict=True):
        assert ours.tolist() == expected.tolist()
    assert sum(t for t, c in zip(tokens, chosen, strict=True) if c) <= sum(tokens) / 10
