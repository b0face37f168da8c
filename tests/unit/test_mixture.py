"""Several corpora as one source: exact shares, a pure function of the place, pairs from one corpus."""

import numpy as np
import pytest
import torch
from test_pretrain import documents, home, make_corpus, settings, thread

from bertie.errors import UsageError
from bertie.objectives.mixture import MIXTURE_BLOCK, Mixture, quotas, shares
from bertie.runs.pretrain import plan_pretraining, run_pretrain
from bertie.runs.run_data import RunData
from bertie.text.tokenizer import Tokenizer
from bertie.train import log

assert home
assert thread  # fixtures


def test_shares_by_weight_or_by_size():
    assert shares([9, 1], [5, 5], 0.3) == [0.9, 0.1]
    assert shares([None, None], [1000, 10], 1.0) == pytest.approx([1000 / 1010, 10 / 1010])
    assert shares([None, None], [1000, 10], 0.0) == [0.5, 0.5]
    large, small = 1000**0.3, 10**0.3  # Conneau et al. 2020, 3.1
    assert shares([None, None], [1000, 10], 0.3) == pytest.approx([large / (large + small), small / (large + small)])
    with pytest.raises(UsageError, match="Only some corpora have a weight"):
        shares([1, None], [5, 5], 0.3)


@pytest.mark.parametrize("given", [[0.5, 0.5], [0.9, 0.1], [1 / 3] * 3, [0.999999, 0.000001], [0.7, 0.2, 0.1, 1e-9]])
def test_quotas_add_up_and_nobody_is_left_out(given):
    found = quotas(given)
    assert found.sum() == MIXTURE_BLOCK
    assert found.min() >= 1
    assert np.abs(found - np.array(given) * MIXTURE_BLOCK).max() <= len(given)


@pytest.fixture(scope="module")
def both(home):
    make_corpus(home / "second", documents(40, seed=5))
    return [f"corpora=[{{path: {home / 'corpus'}, weight: 3}}, {{path: {home / 'second'}, weight: 1}}]"]


def reading(home, *overrides):
    config = settings(home, *overrides, corpus="")
    return RunData(config, Tokenizer.load(config.tokenizer))


def test_every_place_has_one_origin_and_shares_are_kept(home, both):
    (mixture,) = reading(home, *both).sources
    assert isinstance(mixture, Mixture)
    places = np.arange(3 * MIXTURE_BLOCK)
    which, there = mixture.at(places)
    for number, share in enumerate((0.75, 0.25)):
        mine = there[which == number]
        assert len(mine) == 3 * MIXTURE_BLOCK * share
        assert sorted(mine) == list(range(len(mine)))  # none left out, none twice
        first = (which[:1000] == number).mean()
        assert abs(first - share) < 0.05  # well mixed from the start
    shuffled = np.random.default_rng(0).permutation(places)[:500]
    assert mixture.at(shuffled)[1].tolist() == there[shuffled].tolist()


def test_batches_do_not_depend_on_how_they_are_cut(home, both):
    def samples(batches):
        found = {}
        for batch in batches:
            rows = torch.nn.utils.rnn.unpad_sequence(
                batch.layout.rectangle(batch.input_ids), batch.layout.mask().sum(1), batch_first=True
            )
            labels = batch.labels["nsp_labels"].tolist()
            found |= {i: (r.tolist(), n) for i, r, n in zip(batch.sample_ids.tolist(), rows, labels, strict=True)}
        return found

    (whole,) = reading(home, *both).sources
    (small,) = reading(home, *both, "train.micro_batch_size=3").sources
    expected = samples(whole.batches(5))
    assert sorted(expected) == list(range(40, 48))
    assert samples(small.batches(5)) == expected
    assert samples([batch for rank in range(3) for batch in small.batches(5, rank=rank, world=3)]) == expected
    assert small.fingerprint == whole.fingerprint


def test_a_run_on_two_corpora(home, both, tmp_path):
    config = settings(home, *both, corpus="")
    planned = plan_pretraining(config)
    assert [corpus["share"] for corpus in planned["corpora"]] == [0.75, 0.25]
    assert planned["corpora"][0]["epochs"] == pytest.approx(
        6 * 8 * 0.75 / planned["corpora"][0]["instances_per_epoch"], abs=0.01
    )
    results = run_pretrain(config, tmp_path / "run")
    valid = results["valid"]
    assert {"loss", "mlm_loss", "mlm_loss/corpus", "mlm_loss/second"} <= set(valid)
    assert min(valid["mlm_loss/corpus"], valid["mlm_loss/second"]) <= valid["mlm_loss"]
    assert len(results["identity"]["corpus"]) == 2
    assert log.read_log(tmp_path / "run")[-1]["mlm_loss/second"] == valid["mlm_loss/second"]
    with pytest.raises(UsageError, match="corpus: "):
        run_pretrain(settings(home, both[0].replace("weight: 3", "weight: 2"), corpus=""), tmp_path / "run")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["corpora=[{path: a, weight: 0}]"], "corpora.0.weight"),
        (["corpora=[{path: a, wieght: 1}]"], "Did you mean 'weight'"),
        (["corpora=[{path: a}, {path: a}]"], "A corpus is listed twice"),
        ([], "No corpus given"),
    ],
)
def test_corpora_that_cannot_be_are_one_clear_error(home, given, message):
    with pytest.raises(UsageError, match=message):
        reading(home, *given)
