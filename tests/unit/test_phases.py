"""Phases are one run: the batch of a step is a function of the step, and a resume across a border is exact."""

import os
import signal

import pytest
from test_pretrain import home, settings, thread

from bertie.errors import Stopped, UsageError
from bertie.runs.pretrain import plan_pretraining, run_pretrain
from bertie.runs.run_data import RunData, phases
from bertie.text.tokenizer import Tokenizer
from bertie.train import log
from bertie.train.base import PhasedSource
from nano import NanoSource, assert_same_run, nano_fit

assert home
assert thread  # fixtures


def ids(source, step, **options):
    return [i for batch in source.batches(step, **options) for i in batch.sample_ids.tolist()]


def test_a_phase_s_steps_are_those_of_its_source():
    parts = [NanoSource(batch_size=8), NanoSource(batch_size=4, seed=1), NanoSource(batch_size=6, seed=2)]
    source = PhasedSource([(3, parts[0]), (1, parts[1]), (5, parts[2])])
    assert source.boundaries == [3, 4]
    where = [(0, 0), (0, 1), (0, 2), (1, 0), (2, 0), (2, 1), (2, 4)]
    for step, (number, inside) in zip([0, 1, 2, 3, 4, 5, 8], where, strict=True):
        assert source.phase(step) == number
        assert ids(source, step) == ids(parts[number], inside)
    assert len({source.fingerprint, parts[0].fingerprint}) == 2
    assert PhasedSource([(3, parts[0])]).fingerprint == parts[0].fingerprint
    assert (
        PhasedSource([(4, parts[0]), (5, parts[1])]).fingerprint
        != PhasedSource([(5, parts[0]), (4, parts[1])]).fingerprint
    )


@pytest.mark.promise("unbroken-anywhere")
@pytest.mark.parametrize("stops", [[6], [7], [8], [3, 7, 11]])
def test_a_run_stopped_around_a_border_is_unbroken(tmp_path, stops):
    source = PhasedSource([(7, NanoSource(batch_size=8, micro_batch_size=3)), (5, NanoSource(batch_size=12, seed=1))])
    source.batch, source.objective = source.sources[0].batch, source.sources[0].objective
    options = {"source": source, "boundaries": source.boundaries, "log_every": 4, "keep": 9}
    nano_fit(tmp_path / "unbroken", **options)
    for at in stops:
        with pytest.raises(Stopped):
            nano_fit(
                tmp_path / "broken",
                on_step=lambda step, at=at: os.kill(os.getpid(), signal.SIGTERM) if step == at else None,
                **options,
            )
    nano_fit(tmp_path / "broken", **options)
    assert_same_run(tmp_path / "unbroken", tmp_path / "broken", 12)

    assert (tmp_path / "unbroken" / "checkpoint-7").is_dir()  # the border is kept
    lines = [(line["kind"], line["step"], line["phase"]) for line in log.read_log(tmp_path / "unbroken")]
    assert lines == [
        ("train", 4, 1),
        ("train", 7, 1),  # no line covers steps of two phases
        ("valid", 7, 1),
        ("train", 8, 2),
        ("valid", 10, 2),
        ("train", 12, 2),
        ("valid", 12, 2),
    ]


def test_what_a_phase_leaves_out_is_as_in_the_run(home):
    config = settings(
        home,
        "train.steps=10",
        "objectives.mlm.max_predictions=4",
        "phases=[{steps: 0.3, batch_size: 4}, {steps: 5}, {max_length: 24, objectives: {mlm: {max_predictions: 3}}}]",
    )
    one, two, three = phases(config)
    assert [phase.steps for phase in (one, two, three)] == [3, 5, 2]
    assert [phase.batch_size for phase in (one, two, three)] == [4, 8, 8]
    assert [phase.max_length for phase in (one, two, three)] == [32, 32, 24]
    assert [phase.first for phase in (one, two, three)] == [0, 12, 52]
    assert one.objectives == {"mlm": {"max_predictions": 4}, "nsp": {}}
    assert three.objectives == {"mlm": {"max_predictions": 3}, "nsp": {}}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("[{steps: 4}, {steps: 5}]", r"4 \+ 5 steps, but train.steps is 6"),
        ("[{steps: 3}, {steps: 3}, {}]", "Omit `steps` in one phase"),
        ("[{}, {}]", "Two phases have no steps"),
        ("[{steps: 0.01}, {}]", "Omit `steps` in one phase"),
        ("[{steps: 3}, {max_length: 600}]", "512 positions"),
        (
            "[{steps: 3}, {objectives: {sop: {}}}]",
            "Phase 2 sets options of 'sop', which is not an objective of the run",
        ),
        ("[{steps: 3}, {objectives: {mlm: {weight: 2}}}]", "Phase 2 sets mlm.weight, which is the same"),
        ("[{steps: 3}, {max_lenght: 24}]", "Did you mean 'max_length'"),
        ("[{steps: 3}, {max_length: 2}]", "phases.1.max_length"),
    ],
)
def test_phases_that_cannot_be_are_one_clear_error(home, tmp_path, given, message):
    with pytest.raises(UsageError, match=message):
        run_pretrain(settings(home, f"phases={given}"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_samples_are_counted_through_and_a_ramp_repeats_none(home):
    """Of the same length, the second phase continues the order where the first one stopped."""
    config = settings(home, "phases=[{steps: 3, batch_size: 4}, {steps: 3, batch_size: 8}]")
    ramp = RunData(config, Tokenizer.load(config.tokenizer)).source
    seen = [i for step in range(6) for i in ids(ramp, step)]
    assert seen == list(range(36))
    plain = RunData(settings(home, "train.batch_size=36"), Tokenizer.load(config.tokenizer)).source
    tokens = [t for step in range(6) for batch in ramp.batches(step) for t in batch.input_ids.tolist()]
    assert tokens == plain.batches(0)[0].input_ids.tolist()


def test_a_run_in_phases_is_extended_as_the_page_on_reliability_says(home, tmp_path):
    run, phased = tmp_path / "run", ("phases=[{steps: 3, max_length: 16}, {}]", "train.keep_checkpoints=true")
    run_pretrain(settings(home, *phased), run)
    longer = settings(home, *phased, "train.steps=8")
    with pytest.raises(UsageError, match="--allow-change source"):
        run_pretrain(longer, run, allow_change=("train.steps",))
    assert run_pretrain(longer, run, allow_change=("train.steps", "source"))["step"] == 8


def test_short_texts_then_long_ones(home, tmp_path):
    config = settings(home, "phases=[{steps: 0.7, max_length: 16}, {batch_size: 4, micro_batch_size: 2}]")
    planned = plan_pretraining(config)
    assert [phase["steps"] for phase in planned["phases"]] == [4, 2]
    assert planned["phases"][0]["tokens_per_step"] < 2 * planned["phases"][1]["tokens_per_step"]
    assert planned["flops"] == pytest.approx(sum(phase["flops"] for phase in planned["phases"]), rel=0.01)
    run_pretrain(config, tmp_path / "run")
    assert [line["phase"] for line in log.read_log(tmp_path / "run") if line["kind"] == "valid"] == [1, 1, 2]
    assert (tmp_path / "run" / "checkpoint-4").is_dir()
    with pytest.raises(UsageError, match="phases: "):
        run_pretrain(settings(home, "phases=[{steps: 5, max_length: 16}, {batch_size: 4}]"), tmp_path / "run")
