import os
import string
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bertie.errors import DataError, UsageError
from bertie.io.table_format import TableFormat
from bertie.io.tables import Example, read_examples
from bertie.models.config import EncoderConfig
from bertie.models.encoder import Encoder
from bertie.models.model import TorchModel
from bertie.nn.init import initialize
from bertie.tasks import TASKS, Prediction
from bertie.tasks.datasets import DATASETS
from bertie.tasks.embed import EmbedTask
from bertie.tasks.sequence import SequenceTask, _highest, label_names
from bertie.tasks.source import (
    Targets,
    TaskSource,
    assign_pieces,
    batch_of_examples,
    encode_examples,
    encode_one_by_one,
    encode_together,
    steps_of,
)
from bertie.text.tokenizer import Tokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = [*string.ascii_lowercase, *("##" + c for c in string.ascii_lowercase), "."]
TASK = SequenceTask(("no", "yes"))
SHORT = [Example(("the cat sat.",), "no"), Example(("a dog.", "it ran far away."), "yes"), Example(("so",), "no")]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("vocabulary")
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *LETTERS]))
    return Tokenizer.load(folder)


@pytest.fixture(scope="module")
def model(tokenizer) -> TorchModel:
    config = EncoderConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
    )
    model = TorchModel(Encoder(config), TASK.heads(config))
    initialize(model, std=0.2)
    return model.eval()


# Lengths ------------------------------------------------------------------------------------------------------------


@given(st.integers(0, 60), st.integers(0, 60), st.integers(4, 40))
def test_truncation_is_that_of_the_release(first, second, max_length):
    a, b = first, second
    while a + b > max_length - 3:  # _truncate_seq_pair of create_pretraining_data.py, less its coin toss
        if a > b:
            a -= 1
        else:
            b -= 1
    assert assign_pieces([first, second], max_length=max_length) == [(slice(0, a), slice(0, b))]


@given(st.lists(st.integers(0, 90), min_size=1, max_size=2), st.integers(12, 40))
def test_windows_cover_every_token_of_the_long_text_and_fit(sizes, max_length):
    windows = assign_pieces(sizes, max_length=max_length, windows=True)
    for window in windows:
        assert sum(part.stop - part.start for part in window) + 1 + len(sizes) <= max_length
        assert all(part.stop <= size for part, size in zip(window, sizes, strict=True))
    long = max(range(len(sizes)), key=sizes.__getitem__)
    covered = {i for window in windows for i in range(window[long].start, window[long].stop)}
    assert covered == set(range(sizes[long]))
    assert len({(w[long].start, w[long].stop) for w in windows}) == len(windows)


def test_encoded_examples_are_the_tokenizers_own(tokenizer):
    encoded = encode_examples(SHORT, tokenizer, max_length=64)
    batch = batch_of_examples(encoded, np.arange(3))
    references = tokenizer.encode_batch([e.texts[0] if len(e.texts) == 1 else e.texts for e in SHORT])
    assert batch.input_ids.tolist() == [i for reference in references for i in reference.ids]
    assert batch.token_type_ids.tolist() == [i for reference in references for i in reference.type_ids]
    assert batch.layout.lengths.tolist() == [len(reference) for reference in references]
    assert batch.sample_ids.tolist() == [0, 1, 2]


@pytest.mark.parametrize("too_long", ["truncate", "error", "window"])
def test_long_texts_are_named_under_every_policy(tokenizer, too_long):
    examples = [*SHORT, Example(("x" * 30,))]
    encoded = encode_examples(examples, tokenizer, max_length=20, too_long=too_long)
    assert encoded.too_long.tolist() == [1, 3]
    assert encoded.lengths.max() == 20
    assert np.diff(encoded.windows).tolist() == ([1, 2, 1, 2] if too_long == "window" else [1, 1, 1, 1])


# Batches ------------------------------------------------------------------------------------------------------------


def source(tokenizer, *, examples=None, batch_size=4, micro=None, seed=0, too_long="window") -> TaskSource:
    examples = examples or [Example(("ab " * (1 + i * 7 % 13),)) for i in range(10)]
    examples = [replace(example, label=TASK.labels[i % 2]) for i, example in enumerate(examples)]
    encoded = encode_examples(examples, tokenizer, max_length=16, too_long=too_long)
    return TaskSource(
        encoded, TASK.targets(examples, encoded), batch_size=batch_size, micro_batch_size=micro, seed=seed
    )


def examples_of(batches) -> list[int]:
    return sorted({int(i) for batch in batches for i in batch.sample_ids})


def test_a_step_is_a_pure_function_and_an_epoch_sees_every_example_once(tokenizer):
    one, other = source(tokenizer, batch_size=5), source(tokenizer, batch_size=5)
    assert torch.equal(one.batches(7)[0].input_ids, other.batches(7)[0].input_ids)
    assert examples_of(one.batches(0) + one.batches(1)) == list(range(10))
    assert examples_of(one.batches(0)) != examples_of(source(tokenizer, batch_size=5, seed=1).batches(0))


def test_ranks_share_a_step(tokenizer):
    whole = source(tokenizer)
    parts = [examples_of(whole.batches(3, rank=rank, world=2)) for rank in range(2)]
    assert sorted(parts[0] + parts[1]) == examples_of(whole.batches(3))
    assert len(parts[0]) == len(parts[1]) == 2


def test_micro_batches_are_sorted_by_length_and_keep_windows_together(tokenizer):
    batches = source(tokenizer, micro=1).batches(0)
    assert len(batches) == 4
    tokens = [batch.tokens for batch in batches]
    assert tokens == sorted(tokens)
    assert all(len(set(batch.sample_ids.tolist())) == 1 for batch in batches)
    assert all(TASK.counts(batch) == {"label": 1} for batch in batches)
    assert any(batch.size > 1 for batch in batches)


def test_micro_batches_have_nearly_the_same_size(tokenizer):
    """A last one with a single text would have nothing to compare it with."""
    sizes = [len(set(batch.sample_ids.tolist())) for batch in source(tokenizer, batch_size=10, micro=9).batches(0)]
    assert sizes == [5, 5]


def test_micro_batches_add_up_to_the_big_batch(tokenizer, model):
    totals = {}
    for micro in (None, 1, 3):
        parts = [
            TASK.loss(model, model.encode(batch), batch)["label"] for batch in source(tokenizer, micro=micro).batches(0)
        ]
        totals[micro] = (sum(float(p.total.detach()) for p in parts), sum(p.count for p in parts))
        assert totals[micro][1] == 4
    assert totals[1] == pytest.approx(totals[None], rel=1e-5)
    assert totals[3] == pytest.approx(totals[None], rel=1e-5)


def test_the_loss_is_the_mean_of_a_texts_windows(tokenizer, model):
    batch = source(tokenizer, examples=[Example(("x" * 30,)), Example(("y",))], batch_size=2).batches(0)[0]
    logits = TASK.logits(model, model.encode(batch))
    plain = torch.zeros(())
    for example in range(2):
        of = batch.sample_ids == example
        plain = plain + torch.nn.functional.cross_entropy(logits[of], batch.labels["label"][of])
    part = TASK.loss(model, model.encode(batch), batch)["label"]
    assert part.count == pytest.approx(2)
    assert float(part.total.detach()) == pytest.approx(float(plain.detach()), rel=1e-5)


def test_the_fingerprint_follows_texts_labels_and_policy(tokenizer):
    prints = {
        source(tokenizer).fingerprint,
        source(tokenizer, too_long="truncate").fingerprint,
        source(tokenizer, examples=[Example(("other",))] * 10).fingerprint,
        TaskSource(source(tokenizer).encoded, Targets(), batch_size=4, micro_batch_size=None, seed=0).fingerprint,
    }
    assert len(prints) == 4
    assert source(tokenizer).fingerprint in prints


def test_steps_of_epochs():
    assert steps_of(1000, batch_size=32, epochs=3) == 94
    assert steps_of(10, batch_size=32, epochs=0.1) == 1


# Labels -------------------------------------------------------------------------------------------------------------


def test_labels_are_names_in_an_order_that_rows_do_not_decide():
    assert label_names({"10", "9", "-1"}) == ("-1", "9", "10")
    assert label_names({"--1", "2"}) == ("--1", "2")
    assert label_names({"yes", "no", "10"}) == ("10", "no", "yes")
    assert label_names({"긍정", "부정"}) == ("긍정", "부정")


def test_decode_gives_names_and_probabilities_that_sum_to_one(tokenizer):
    examples = [Example(("a",)), Example(("b",))]
    encoded = encode_examples(examples, tokenizer, max_length=16)
    first, second = TASK.decode(np.array([[2, 0], [0, 0]], np.float32), encoded, examples)
    assert first.label == "no"
    assert first.probability == pytest.approx(0.880797, abs=1e-6)
    assert sum(first.scores.values()) == pytest.approx(1)
    assert second.as_json() == {"label": "no", "probability": 0.5, "scores": {"no": 0.5, "yes": 0.5}}


def test_one_label_or_none_is_refused():
    with pytest.raises(DataError, match="only 'spam'"):
        SequenceTask(("spam",))
    with pytest.raises(DataError, match="no label at all"):
        SequenceTask(())
    with pytest.raises(UsageError, match=r"Unknown task 'sequense'. Did you mean 'sequence'"):
        TASKS["sequense"]


# Published sets -----------------------------------------------------------------------------------------------------


def test_a_published_set_without_its_files_says_where_they_were_sought(tmp_path):
    with pytest.raises(DataError, match=r"neither .*train\.tsv nor .*SST-2.train\.tsv exists"):
        DATASETS["sst2"].table("train", tmp_path)
    with pytest.raises(DataError, match="no split 'val'"):
        DATASETS["sst2"].table("val", tmp_path)


@pytest.mark.skipif("BERTIE_DATA" not in os.environ, reason="needs BERTIE_DATA")
def test_a_file_of_pairs_with_its_own_column_names():
    path = Path(os.environ["BERTIE_DATA"]) / "glue" / "MNLI" / "mnli_dev_matched_gold_with_bert_correct_counts.tsv"
    examples, skipped = read_examples(path, TableFormat.of(label="gold_label"))
    assert len(examples) == skipped.rows == 9815
    assert {e.label for e in examples} == set(DATASETS["mnli"].labels)


def test_similarities_are_measured_against_relative_labels():
    task = EmbedTask(highest=5.0)
    counted = task.scores()
    task.count(counted, [Example(("a", "b"), 5.0), Example(("c", "d"), 2.5)], [Prediction(1.0), Prediction(0.25)])
    assert counted.compute()["mse"] == pytest.approx(0.25**2 / 2)
    for name in ("highest", "scale"):
        with pytest.raises(UsageError, match=f"{name} is 0; it must be above 0"):
            EmbedTask(**{name: 0.0})


def test_vectors_of_texts_are_measured_by_their_neighbors():
    """Texts of a label look for one another; pairs with scores and other rows are not mixed."""
    task, scores = EmbedTask(), EmbedTask().scores()
    vectors = ([1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9])
    examples = [Example((text,), text[0]) for text in ("a1", "a2", "b1", "b2")]
    task.count(scores, examples, [Prediction(vector) for vector in vectors])
    assert scores.compute()["mrr@10"] == 1
    alone = task.scores()
    task.count(alone, [Example((text,), text) for text in "ab"], [Prediction(vector) for vector in vectors[:2]])
    assert "no query has a relevant passage" in alone.report()["undefined"]["mrr@10"]
    with pytest.raises(DataError, match="Use one table for each"):
        task.count(scores, [Example(("a", "b"), 1.0)], [Prediction(0.5)])


@pytest.mark.parametrize("kinds", [2, 50, 10**6])
def test_the_highest_of_many_values_are_those_of_a_sort(kinds):
    values_EL = np.random.default_rng(0).integers(0, kinds, (20, 3000)).astype(np.float32)
    sorted_ES = np.argsort(-values_EL, axis=-1, kind="stable")[:, :400]
    assert [_highest(row, 400) for row in values_EL] == sorted_ES.tolist()


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    examples=st.lists(st.lists(st.lists(st.integers(10, 99), max_size=30), min_size=1, max_size=2), max_size=8),
    max_length=st.integers(8, 40),
    too_long=st.sampled_from(["truncate", "window", "error"]),
    keep=st.sampled_from(["start", "end"]),
)
def test_examples_are_encoded_together_as_one_by_one(
    tokenizer: Tokenizer, examples: list[list[list[int]]], max_length: int, too_long: Any, keep: Any
) -> None:
    options: dict[str, Any] = {"max_length": max_length, "too_long": too_long, "keep": keep}
    together, alone = (encode(examples, tokenizer, **options) for encode in (encode_together, encode_one_by_one))
    for name in ("input_ids", "token_type_ids", "lengths", "owners", "too_long"):
        ours, plain = getattr(together, name), getattr(alone, name)
        assert ours.dtype == plain.dtype, name
        np.testing.assert_array_equal(ours, plain, name)
