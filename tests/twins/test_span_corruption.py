"""Span corruption compared with the published algorithm for one sequence, and its loss with `transformers`."""

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

from batches import laid_out
from bertie import objectives
from bertie.data.masking import Vocabulary
from bertie.errors import DataError, UsageError
from bertie.models import families
from bertie.models.batch import Batch
from bertie.models.config import EncoderConfig
from bertie.objectives.span import KEPT, NOISE, SpanCorruption, noise_mask
from bertie.order import Draws, key
from bertie.train.step import backward

V, EOS, FIRST = 120, 1, 3
SENTINELS = np.arange(V - 1, V - 21, -1)  # <extra_id_0> is the last row
SPECIAL = np.isin(np.arange(V), [0, EOS, 2, *SENTINELS])
VOCABULARY = Vocabulary(
    -1, -1, 0, -1, 2, SPECIAL, np.zeros(V, bool), np.zeros(V, bool), sentinels=SENTINELS.astype(np.int64)
)


def random_segmentation(num_items, num_segments, scores):
    """As in the release; its shuffle puts the ones where our scores are lowest."""
    first_in_segment = np.zeros(num_items, int)
    first_in_segment[1 + np.argsort(scores[: num_items - 1])[: num_segments - 1]] = 1
    segment_id = np.cumsum(first_in_segment)
    return [int((segment_id == segment).sum()) for segment in range(num_segments)]


def random_spans_noise_mask(length, noise_density, mean_noise_span_length, draws, row):
    """t5/data/preprocessors.py, line by line."""
    orig_length = length
    length = max(length, 2)
    num_noise_tokens = round(length * noise_density)
    num_noise_tokens = min(max(num_noise_tokens, 1), length - 1)
    num_noise_spans = max(round(num_noise_tokens / mean_noise_span_length), 1)
    num_nonnoise_tokens = length - num_noise_tokens
    noise_span_lengths = random_segmentation(num_noise_tokens, num_noise_spans, draws.bits(NOISE, length)[row])
    nonnoise_span_lengths = random_segmentation(num_nonnoise_tokens, num_noise_spans, draws.bits(KEPT, length)[row])
    mask = []
    for nonnoise, noise in zip(nonnoise_span_lengths, noise_span_lengths, strict=True):
        mask += [False] * nonnoise + [True] * noise
    return mask[:orig_length]


def noise_span_to_unique_sentinel(tokens, noise_mask):
    """The same file: each run of noise becomes the next sentinel."""
    result, sentinel = [], iter(SENTINELS.tolist())
    for i, token in enumerate(tokens):
        if not noise_mask[i]:
            result.append(token)
        elif i == 0 or not noise_mask[i - 1]:
            result.append(next(sentinel))
    return result


def written(tokens, noise_mask):
    """The same file, nonnoise_span_to_unique_sentinel: what the decoder writes."""
    return noise_span_to_unique_sentinel(tokens, [not noise for noise in noise_mask])


def clean(lengths, seed=0):
    rng = np.random.default_rng(seed)
    ids = np.concatenate([[*rng.integers(FIRST, V - 20, n), EOS] for n in lengths])
    return laid_out(ids, np.array(lengths) + 1)


@given(
    lengths=st.lists(st.integers(1, 80), min_size=1, max_size=8),
    seed=st.integers(0, 1000),
    rate=st.sampled_from([0.15, 0.3, 0.5]),
    mean_length=st.sampled_from([1.0, 3.0, 8.0]),
)
def test_a_batch_is_the_published_algorithm_on_each_sequence(lengths, seed, rate, mean_length):
    if rate * 80 / mean_length > len(SENTINELS):
        return
    draws, batch = Draws(key(seed, np.arange(len(lengths)))), clean(lengths, seed)
    corrupted = SpanCorruption(rate, mean_length).corrupt(batch, draws, VOCABULARY)
    read = np.split(corrupted.input_ids, corrupted.starts[1:-1])
    wrote = np.split(corrupted.labels["span_targets"], np.cumsum(corrupted.labels["span_lengths"])[:-1])
    for row, text in enumerate(np.split(batch.input_ids, batch.starts[1:-1])):
        tokens = text[:-1].tolist()
        mask = random_spans_noise_mask(len(tokens), rate, mean_length, draws, row)
        assert read[row].tolist() == [*noise_span_to_unique_sentinel(tokens, mask), EOS]
        assert wrote[row].tolist() == [*written(tokens, mask), EOS][not any(mask) :]


def test_shares_are_those_asked_for():
    lengths = np.full(500, 200)
    mask = noise_mask(lengths, Draws(key(0, np.arange(500))), rate=0.15, mean_length=3.0).reshape(500, 200)
    assert (mask.sum(1) == 30).all()
    spans = (mask & ~np.pad(mask[:, :-1], ((0, 0), (1, 0)))).sum(1)
    assert (spans == 10).all()
    assert mask[:, -1].all()
    assert not mask[:, 0].any()
    middle = mask[:, 20:180].mean(0)  # the ends aside, every place is cut out about as often
    assert abs(middle - middle.mean()).max() < 4 * np.sqrt(0.15 * 0.85 / 500)


def test_the_loss_and_gradients_are_those_of_transformers(tmp_path: Path) -> None:
    objective = objectives.build_objective({"span": {}})
    shape: EncoderConfig = families.config(
        "t5-small",
        vocab_size=V,
        hidden_size=32,
        num_hidden_layers=2,
        num_decoder_layers=2,
        num_attention_heads=2,
        attention_head_size=16,
        intermediate_size=64,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = families.build(shape, heads=objective.heads, variant="t5", seed=1).train()
    batch = Batch.of(objective.corrupt(clean([12, 40, 25]), Draws(key(0, np.arange(3))), VOCABULARY))
    model.save_pretrained(tmp_path)
    theirs = transformers.T5ForConditionalGeneration.from_pretrained(tmp_path).train()
    cut = batch.labels["span_lengths"].tolist()
    labels = torch.nn.utils.rnn.pad_sequence(
        batch.labels["span_targets"].split(cut), batch_first=True, padding_value=-100
    )
    mask = batch.layout.mask()
    expected = theirs(input_ids=batch.layout.rectangle(batch.input_ids), attention_mask=mask.long(), labels=labels)
    expected.loss.backward()

    counts = objective.counts(batch)
    assert counts == {"span": int((labels != -100).sum())}
    sums = backward(model, objective, [batch], counts, seed=(0,), device=torch.device("cpu"))
    losses, _ = sums.read(sums.tensor().tolist())
    assert losses["span"] / counts["span"] == pytest.approx(expected.loss.item(), rel=1e-5)
    decoder = model.heads["decoder"]
    for their, our in [
        (theirs.shared.weight, model.word_embeddings),
        (theirs.encoder.block[0].layer[1].DenseReluDense.wi.weight, model.encoder.layers[0].up.weight),
        (theirs.decoder.block[1].layer[2].DenseReluDense.wo.weight, decoder.layers[1].down.weight),
        (theirs.decoder.final_layer_norm.weight, decoder.final_norm.weight),
    ]:
        torch.testing.assert_close(our.grad, their.grad, rtol=1e-4, atol=1e-5)


def test_what_cannot_be_is_said():
    with pytest.raises(UsageError, match="model=t5-small"):
        SpanCorruption().heads(EncoderConfig())
    few = Vocabulary(-1, -1, 0, -1, 2, SPECIAL, np.zeros(V, bool), np.zeros(V, bool), sentinels=SENTINELS[:2])
    with pytest.raises(DataError, match="--unused 100"):
        SpanCorruption().corrupt(clean([60]), Draws(key(0, np.arange(1))), few)
    for options in ({"rate": 1.5}, {"mean_length": 0}):
        with pytest.raises(UsageError, match=f"span.{next(iter(options))}"):
            objectives.build_objective({"span": options})


def test_an_example_shows_what_was_cut_out():
    objective = SpanCorruption()
    batch = clean([30, 20])
    corrupted = objective.corrupt(batch, Draws(key(2, np.arange(2))), VOCABULARY)
    answers = objective.answers(corrupted)
    restored = []
    for place, token in enumerate(corrupted.input_ids.tolist()):
        restored += answers[place] if place in answers and answers[place][-1:] != [EOS] else answers.get(place, [token])
    texts = [i for i in batch.input_ids.tolist() if i != EOS]
    assert [i for i in restored if i != EOS] == texts
