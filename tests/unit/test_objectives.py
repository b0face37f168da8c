"""Objectives on batches made from shards: what a model is shown and asked, and what is refused."""

import itertools
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from batches import padded
from bertie.data.masking import Vocabulary
from bertie.data.plans import Sentences
from bertie.data.shards import Shards, ShardWriter
from bertie.errors import DataError, UsageError
from bertie.models.batch import Batch
from bertie.models.config import EncoderConfig
from bertie.models.encoder import Encoder
from bertie.models.model import TorchModel
from bertie.objectives import MaskedLM, NextSentence, SentenceOrder, build_objective
from bertie.objectives.source import PretrainingSource, corrupted_texts
from bertie.order import Draws, key
from bertie.runs.config import PretrainConfig
from bertie.settings import load_config
from bertie.text.sequences import Sequences
from bertie.text.tokenizer import Tokenizer

WORDS = [f"w{i}" for i in range(60)] + [f"##p{i}" for i in range(20)]
VOCAB = ["[PAD]", "[unused0]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
FIRST_WORD = 7
CONFIG = EncoderConfig(
    vocab_size=len(VOCAB), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
)


@dataclass
class FakeShards:
    """Token shards in memory. documents: sentence lengths of each; the tokens are drawn."""

    documents: list[list[int]]
    fingerprint: str = "fake"
    folder: None = None
    tokens: np.ndarray = field(init=False)

    def __post_init__(self):
        total = sum(map(sum, self.documents))
        self.tokens = np.random.default_rng(0).integers(FIRST_WORD, len(VOCAB), total).astype(np.uint16)

    def sentence_lengths(self):
        return np.array([n for document in self.documents for n in document], np.int64)

    def document_bounds(self):
        return np.cumsum([0, *map(len, self.documents)])

    def span(self, start, stop):
        return self.tokens[start:stop]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    (folder / "vocab.txt").write_text("\n".join(VOCAB) + "\n", encoding="utf-8")
    return Tokenizer.load(folder)


@pytest.fixture(scope="module")
def shards():
    rng = np.random.default_rng(1)
    return FakeShards([rng.integers(1, 25, rng.integers(1, 20)).tolist() for _ in range(200)])


def source_of(shards, tokenizer, objective=None, **options):
    options = {"max_length": 64, "batch_size": 16, "seed": 3} | options
    return PretrainingSource(shards, tokenizer, objective or MaskedLM() + NextSentence(), **options)


def same(a, b):
    assert torch.equal(a.input_ids, b.input_ids)
    assert torch.equal(a.token_type_ids, b.token_type_ids)
    assert torch.equal(a.sample_ids, b.sample_ids)
    assert a.labels.keys() == b.labels.keys()
    for name in a.labels:
        assert torch.equal(a.labels[name], b.labels[name]), name


def joined(batches):
    """Several packed batches as one, to compare with another cut of the same step."""
    starts = np.cumsum([0, *[len(b.input_ids) for b in batches]])
    labels = {name: torch.cat([b.labels[name] for b in batches]) for name in batches[0].labels}
    if "mlm_positions" in labels:
        shifted = [b.labels["mlm_positions"] + int(s) for b, s in zip(batches, starts, strict=False)]
        labels["mlm_positions"] = torch.cat(shifted)
    whole = Sequences.joined([b.sequences for b in batches])
    return replace(Batch.of(replace(whole, labels={})), labels=labels)


@pytest.mark.promise("batches-as-published")
@given(step=st.integers(0, 400), seed=st.integers(0, 100), form=st.sampled_from(["original", "corrected"]))
def test_invariants_of_a_batch(shards, tokenizer, step, seed, form):
    source = source_of(shards, tokenizer, MaskedLM() + NextSentence(form), seed=seed)
    (batch,) = source.batches(step)
    clean = uncorrupted(batch)
    assert batch.size == 16
    assert batch.labels["nsp_labels"].tolist() == source_labels(source, step)
    positions = set(batch.labels["mlm_positions"].tolist())
    for row, (start, length) in enumerate(zip(batch.layout.cu_seqlens.tolist(), batch.layout.lengths, strict=False)):
        ids, types = clean[start : start + length].tolist(), batch.token_type_ids[start : start + length].tolist()
        assert length <= 64
        assert ids[0] == tokenizer.cls_id
        assert ids.count(tokenizer.cls_id) == 1
        assert ids[-1] == tokenizer.sep_id
        assert ids.count(tokenizer.sep_id) == 2
        first = ids.index(tokenizer.sep_id)
        assert 1 < first < length - 2  # neither segment is empty
        assert types == [0] * (first + 1) + [1] * (int(length) - first - 1)
        predicted = [p for p in positions if start <= p < start + length]
        assert len(predicted) == min(max(1, round(int(length) * 0.15)), int(length) - 3), row
    special = torch.tensor(sorted(tokenizer.special_ids))
    changed = (batch.input_ids != clean).nonzero().flatten().tolist()
    assert set(changed) <= positions
    assert not torch.isin(batch.labels["mlm_targets"], special).any()
    shown = batch.input_ids[batch.labels["mlm_positions"]]
    assert not torch.isin(shown[shown != tokenizer.mask_id], torch.tensor([0, 1, 2, 3, 4, 5])).any()


def uncorrupted(batch):
    ids = batch.input_ids.clone()
    ids[batch.labels["mlm_positions"]] = batch.labels["mlm_targets"]
    return ids


def source_labels(source, step):
    epochs, ids = source.order.samples(step, source.batch_size)
    return [int(source.plan(e).rows["label"][i]) for e, i in zip(epochs.tolist(), ids.tolist(), strict=True)]


@pytest.mark.promise("batches-as-published")
def test_masked_share_over_an_epoch(shards, tokenizer):
    source = source_of(shards, tokenizer)
    batches = [batch for step in range(source.instances_per_epoch // 16) for batch in source.batches(step)]
    tokens = sum(batch.tokens for batch in batches)
    masked = sum(len(batch.labels["mlm_targets"]) for batch in batches)
    assert 0.145 < masked / tokens < 0.155


def test_micro_batches_ranks_and_turns_change_nothing(shards, tokenizer):
    whole = source_of(shards, tokenizer)
    for step in (7, 0, 123):
        (expected,) = whole.batches(step)
        for size in (1, 5, 16):
            cut = source_of(shards, tokenizer, micro_batch_size=size).batches(step)
            assert [b.size for b in cut] == [size] * (16 // size) + [16 % size] * bool(16 % size)
            same(joined(cut), expected)
        same(joined([b for rank in range(3) for b in whole.batches(step, rank=rank, world=3)]), expected)
    assert source_of(shards, tokenizer, micro_batch_size=5).fingerprint == whole.fingerprint


def test_fingerprint_changes_with_what_changes_batches(shards, tokenizer):
    others = [
        source_of(shards, tokenizer, MaskedLM(0.2) + NextSentence()),
        source_of(shards, tokenizer, MaskedLM() + NextSentence("original")),
        source_of(shards, tokenizer, MaskedLM()),
        source_of(shards, tokenizer, seed=4),
        source_of(shards, tokenizer, batch_size=8),
        source_of(shards, tokenizer, max_length=32),
        source_of(FakeShards(shards.documents, "other"), tokenizer),
        source_of(shards, tokenizer),
    ]
    assert len({source.fingerprint for source in others}) == 8


def test_static_masks_return_and_dynamic_ones_do_not(shards, tokenizer):
    for duplicates, returns in ((2, True), (None, False)):
        source = source_of(shards, tokenizer, MaskedLM(duplicates=duplicates) + NextSentence(duplicates=2))

        def seen_in(epoch, source=source):
            return source.corrupted(*source.in_epochs(np.array([epoch] * 5), np.arange(5), np.arange(5)))

        early = seen_in(0)
        late = seen_in(2)
        assert torch.equal(early.input_ids, late.input_ids) is returns
        assert torch.equal(uncorrupted(early), uncorrupted(late))  # the pairs are the same either way
        between = seen_in(1)
        assert between.input_ids.tolist() != early.input_ids.tolist()


def test_batches_cross_the_border_of_epochs(shards, tokenizer):
    source = source_of(shards, tokenizer, MaskedLM(), batch_size=17)
    per_epoch = source.instances_per_epoch
    assert per_epoch % 17
    (batch,) = source.batches(per_epoch // 17)
    assert batch.size == 17
    epochs, _ = source.order.samples(per_epoch // 17, 17)
    assert epochs.min() == 0
    assert epochs.max() == 1


def test_validation_is_held_out_and_the_same_for_every_seed(shards, tokenizer):
    source, other = source_of(shards, tokenizer), source_of(shards, tokenizer, seed=9)
    batches = source.validation_batches()
    assert batches
    for a, b in zip(batches, other.validation_batches(), strict=True):
        same(a, b)
    held = source._validation
    trained = source._train
    assert source.report["held_out_documents"] == held.num_documents >= 2
    assert not set(held.starts.tolist()) & set(trained.starts.tolist())
    assert held.tokens + trained.tokens == len(shards.tokens)


def test_shards_on_disk_give_the_same_batches(shards, tokenizer, tmp_path):
    at = 0
    with ShardWriter(tmp_path, "uint16", shard_values=5000) as writer:
        for document in shards.documents:
            bounds = at + np.cumsum([0, *document])
            writer.add([shards.tokens[low:high] for low, high in itertools.pairwise(bounds)])
            at = bounds[-1]
        on_disk = writer.finish()
    assert len(on_disk.manifest["shards"]) > 3
    for source in (source_of(on_disk, tokenizer), source_of(Shards.open(tmp_path), tokenizer)):  # then from its plans
        for step in (0, 50):
            same(source.batches(step)[0], source_of(shards, tokenizer).batches(step)[0])
    assert len(list((tmp_path / "plans").glob("*.npy"))) == 2  # epochs 0 and 1


def test_padded_batches_have_the_losses_of_packed_ones(tokenizer):
    clean = Sequences.of([[4, *range(10, 10 + n), 5] for n in (3, 30, 12, 1)])
    vocabulary, draws, before = Vocabulary.of(tokenizer), Draws(key(0, np.arange(4))), clean.input_ids.copy()
    for masking in ("token", "whole_word"):
        objective = MaskedLM(masking=masking)
        packed = Batch.of(objective.corrupt(clean, draws, vocabulary))
        assert np.array_equal(clean.input_ids, before)  # the sequences given are left as they were
        assert packed.input_ids.tolist() != before.tolist()
        model = TorchModel(Encoder(CONFIG), objective.heads(CONFIG)).eval()
        a, b = (objective.loss(model, model.encode(one), one)["mlm"].total for one in (packed, padded(packed)))
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)  # two orders of float32 sums


def test_losses_are_the_formula(shards, tokenizer):
    objective = MaskedLM() + NextSentence()
    (batch,) = source_of(shards, tokenizer, objective).batches(0)
    torch.manual_seed(0)
    model = TorchModel(Encoder(CONFIG), objective.heads(CONFIG)).eval()
    output = model.encode(batch)
    report = objective.loss(model, output, batch)
    assert {name: part.count for name, part in report.items()} == objective.counts(batch)

    logits = model.heads["mlm"].logits(
        output.last_hidden_state, model.word_embeddings
    )  # at every position, then choose
    chosen, targets = logits[batch.labels["mlm_positions"]], batch.labels["mlm_targets"]
    expected = F.cross_entropy(chosen, targets, reduction="sum")
    torch.testing.assert_close(report["mlm"].total, expected, rtol=1e-5, atol=1e-4)
    assert int(report["mlm"].correct) == int((chosen.argmax(-1) == targets).sum())

    pair, labels = model.heads["pair"].classifier, batch.labels["nsp_labels"]
    logits = output.pooler_output @ pair.weight.T + pair.bias
    torch.testing.assert_close(report["nsp"].total, F.cross_entropy(logits, labels, reduction="sum"))
    assert int(report["nsp"].correct) == int((logits.argmax(-1) == labels).sum())
    sum(part.total for part in report.values()).backward()
    assert all(p.grad is not None for p in model.heads.parameters())


def test_examples_can_be_read(shards, tokenizer):
    source = source_of(shards, tokenizer)
    examples = source.examples(3)
    assert len(examples) == 3
    for text in examples:
        assert text.startswith("[CLS] ")
        assert "[MASK]‹" in " ".join(examples)
        assert text.endswith(("(nsp: it follows)", "(nsp: random)"))
    (batch,) = source_of(shards, tokenizer, MaskedLM(), batch_size=1).batches(0)
    text = corrupted_texts(batch.sequences, MaskedLM(), tokenizer).split(" ")
    answered = {place for place, token in enumerate(text) if "‹" in token}
    assert answered == set(batch.labels["mlm_positions"].tolist())
    stood = [tokenizer.id_to_token(i) for i in batch.labels["mlm_targets"].tolist()]
    assert [text[place].partition("‹")[2] for place in sorted(answered)] == [f"{token}›" for token in stood]


# Options and refusals


def test_build_adds_up():
    assert build_objective({"mlm": {}, "nsp": {}}) == MaskedLM() + NextSentence()
    assert build_objective({"mlm": {"rate": 0.2, "replace": [1, 0, 0]}, "nsp": None}) == MaskedLM(0.2, (1, 0, 0))


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([], MaskedLM() + NextSentence()),
        (["objectives.nsp=null"], MaskedLM()),
        (["objectives.mlm.rate=0.3", "objectives.nsp.form=original"], MaskedLM(0.3) + NextSentence("original")),
    ],
)
def test_overrides_change_the_default_objectives(overrides, expected):
    assert (
        build_objective(load_config(PretrainConfig, None, overrides, corpus="c", tokenizer="t").objectives) == expected
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mml": {}}, "Unknown objective 'mml'. Did you mean 'mlm'"),
        ({"mlm": {"rte": 0.2}}, "Unknown option 'mlm.rte'. Did you mean 'rate'"),
        ({"mlm": {"rate": 0}}, "mlm.rate is 0"),
        ({"mlm": {"rate": "high"}}, "mlm"),
        ({"mlm": {"replace": [0.8, 0.1]}}, "mlm.replace"),
        ({"mlm": {"replace": [0.8, 0.3, -0.1]}}, "mlm.replace"),
        ({"mlm": {"masking": "whole-word"}}, "Unknown masking 'whole-word'. Did you mean 'whole_word'"),
        ({"mlm": {"max_predictions": 0}}, "mlm.max_predictions"),
        ({"mlm": {"weight": float("inf")}}, "mlm.weight is inf. Input should be a finite number"),
        ({"nsp": {"form": "orginal"}}, "Did you mean 'original'"),
        ({"nsp": {"duplicates": 0}}, "nsp.duplicates"),
        ({"mlm": None}, "No objective is left"),
        ({"mlm": {}, "npp": None}, "Unknown objective 'npp'. Did you mean 'nsp'"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(UsageError) as error:
        build_objective(options)
    assert message in str(error.value)


def test_an_objective_stands_once():
    with pytest.raises(UsageError, match="twice"):
        MaskedLM() + MaskedLM(0.3)
    with pytest.raises(UsageError, match="pooler"):
        NextSentence().heads(EncoderConfig(pooler=False))


@pytest.mark.promise("batches-as-published")
def test_unsuitable_corpora_are_refused(tokenizer):
    one = FakeShards([[10] * 500])
    with pytest.raises(DataError, match=r"objectives\.nsp=null"):
        source_of(one, tokenizer)
    assert source_of(one, tokenizer, MaskedLM()).batches(0)[0].size == 16
    lines = FakeShards([[10]] * 500)
    with pytest.raises(DataError, match="two sentences"):
        source_of(lines, tokenizer)
    with pytest.raises(DataError, match=r"fewer than one batch.*train\.batch_size=\d+"):
        source_of(FakeShards([[10] * 10] * 3), tokenizer)
    for empty in (FakeShards([]), FakeShards([[0, 0], [0]])):
        with pytest.raises(DataError, match="The corpus is empty"):
            source_of(empty, tokenizer)
    with pytest.raises(UsageError, match="max_length"):
        source_of(one, tokenizer, MaskedLM(), max_length=4)


def test_full_sentences_have_a_separator_where_a_document_ends(tokenizer):
    shards = FakeShards([[3, 4], [5], [2, 2], [40], [6]] * 8)
    whole = source_of(shards, tokenizer, MaskedLM(), packing="full_sentences", max_length=32, batch_size=4)
    sep, seen = tokenizer.sep_id, []
    for number in range(len(whole.plan(0))):
        batch, _ = whole.instances(np.array([number]), np.array([number]))
        ids = batch.input_ids.tolist()
        assert len(ids) <= 32
        assert (ids[0], ids[-1]) == (tokenizer.cls_id, sep)
        assert batch.token_type_ids.tolist() == [0] * len(ids)
        seen += [len(ids) - 2, ids[1:-1].count(sep)]
    assert max(seen[1::2]) > 2
    assert sum(seen[::2]) - sum(seen[1::2]) == whole.report["tokens"]
    alone = source_of(shards, tokenizer, MaskedLM(), max_length=32, batch_size=4)
    assert whole.instances_per_epoch < alone.instances_per_epoch
    assert whole.fingerprint != alone.fingerprint
    assert whole.validates


def test_packing_is_for_sequences_of_one_text(tokenizer):
    with pytest.raises(UsageError, match="reads pairs"):
        source_of(FakeShards([[9, 9, 9]] * 40), tokenizer, packing="full_sentences", max_length=32, batch_size=4)


@pytest.mark.parametrize(("documents", "said"), [(1, "only 1 document of one"), (2, "only 2 documents of one")])
def test_pairs_need_documents_of_two_sentences(documents, said):
    with pytest.raises(DataError, match=said):
        SentenceOrder().check(Sentences.of([3] * documents, np.arange(documents + 1)))
