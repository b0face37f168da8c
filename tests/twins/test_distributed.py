"""Several ranks train the same model as one. When one is killed the others stop, and any number of ranks can resume."""

import shutil
import signal
import socket
from datetime import timedelta

import pytest
import torch
from safetensors.torch import load_file
from torch.distributed import HashStore

from bertie.errors import Stopped, UsageError
from bertie.train import checkpoint, distributed, log, rendezvous
from bertie.train.distributed import World
from nano import nano_fit, timeless
from ranks import finish, start_ranks

WAYS = ["none", pytest.param("full", marks=pytest.mark.slow)]  # every rank has the whole model, or a part of it


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    run = tmp_path_factory.mktemp("distributed") / "alone"
    nano_fit(run, dropout=0.0, keep=9)
    return run


def assert_close_runs(one, other, step):
    """Equal but for the order of float32 sums, 12 updates on; samples, masks and counts are the same."""
    for name, most in (("model", 2e-4), ("optimizer", 1e-3)):  # a wrong batch moves weights by the rate, 1e-3, a step
        a, b = (load_file(run / f"checkpoint-{step}" / f"{name}.safetensors") for run in (one, other))
        assert a.keys() == b.keys()
        for key, tensor in a.items():
            assert tensor.shape == b[key].shape
            assert (tensor - b[key]).abs().max() < most, key
    lines = list(zip(timeless(one), timeless(other), strict=True))
    for ours, theirs in lines:
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-4)
        assert ours.get("grad_norm", 0) == pytest.approx(theirs.get("grad_norm", 0), rel=1e-3)
        assert ours.get("tokens") == theirs.get("tokens")


def test_two_ranks_train_what_one_trains(alone, tmp_path):
    ends = finish(start_ranks(tmp_path, dropout=0.0))
    assert [code for code, _ in ends] == [0, 0], ends
    assert_close_runs(alone, tmp_path, 12)
    assert "training" not in ends[1][1], "rank 1 speaks"


@pytest.mark.promise("lost-process")
def test_three_ranks_lose_one_and_two_go_on(alone, tmp_path):
    """Shares of 2, 3 and 3 of the 8 sequences; then 4 and 4."""
    ends = finish(start_ranks(tmp_path, ranks=3, dropout=0.0, per_rank={2: {"kill_after": 7}}))
    assert [code for code, _ in ends] == [75, 75, -signal.SIGKILL], ends
    ends = finish(start_ranks(tmp_path, ranks=2, dropout=0.0, allow_change=["world_size"]))
    assert [code for code, _ in ends] == [0, 0], ends
    assert_close_runs(alone, tmp_path, 12)


@pytest.mark.promise("changed-settings")
@pytest.mark.promise("lost-process")
@pytest.mark.parametrize("shard", WAYS)
def test_a_rank_killed_while_the_other_saves_stops_it_and_one_alone_goes_on(alone, tmp_path, shard):
    """Rank 1 dies where rank 0 begins to write checkpoint-10: by itself, or from the parts of both."""
    (code, error), (killed, _) = finish(
        start_ranks(tmp_path, dropout=0.0, shard=shard, per_rank={1: {"kill_after": 10}})
    )
    assert killed == -signal.SIGKILL
    assert code == 75
    assert "Rank 0 of 2 lost another rank" in error
    assert_close_checkpoints(alone, tmp_path, 10 if shard == "none" else 5)

    with pytest.raises(UsageError, match="world_size: 2 -> 1"):
        nano_fit(tmp_path, dropout=0.0)
    nano_fit(tmp_path, dropout=0.0, allow_change=["world_size"])
    assert_close_runs(alone, tmp_path, 12)
    assert not [*tmp_path.glob(".checkpoint*")]


@pytest.mark.promise("lost-process")
def test_a_model_in_parts_goes_from_three_ranks_to_two_to_one(alone, tmp_path):
    """Shares of 2, 3 and 3 sequences in micro-batches of 2 make passes of 1, 2 and 2; then 2 and 2; then 4 in one."""
    options = {"dropout": 0.0, "micro_batch_size": 2, "keep": 9}
    ends = finish(start_ranks(tmp_path, ranks=3, shard="full", per_rank={2: {"kill_after": 7}}, **options))
    assert [code for code, _ in ends] == [75, 75, -signal.SIGKILL], ends
    assert all("lost another rank" in error for _, error in ends[:2])
    assert_close_checkpoints(alone, tmp_path, 5)
    options["allow_change"] = ["world_size"]
    ends = finish(start_ranks(tmp_path, ranks=2, shard="full", per_rank={0: {"kill_after": 11}}, **options))
    assert [code for code, _ in ends] == [-signal.SIGKILL, 75], ends
    assert_close_checkpoints(alone, tmp_path, 10)
    nano_fit(tmp_path, **options)
    assert_close_runs(alone, tmp_path, 12)


@pytest.mark.slow
def test_a_whole_model_goes_on_in_parts(alone, tmp_path):
    shutil.copytree(alone, tmp_path / "run")
    for step in (10, 12):
        shutil.rmtree(tmp_path / "run" / f"checkpoint-{step}")
    ends = finish(start_ranks(tmp_path / "run", shard="full", dropout=0.0, allow_change=["world_size"]))
    assert [code for code, _ in ends] == [0, 0], ends
    assert_close_runs(alone, tmp_path / "run", 12)
    assert "training" not in ends[1][1], "rank 1 speaks"


def test_a_run_folder_that_is_not_shared_is_refused(alone, tmp_path):
    shutil.copytree(alone, tmp_path / "here")
    shutil.rmtree(tmp_path / "here" / "checkpoint-12")
    elsewhere = {1: {"run": str(tmp_path / "there")}}
    ends = finish(start_ranks(tmp_path / "here", dropout=0.0, allow_change=["world_size"], per_rank=elsewhere))
    assert [code for code, _ in ends] == [2, 2], ends
    assert all("All ranks must share the folder." in error for _, error in ends)


def test_ranks_that_were_started_apart_are_refused_and_told_every_difference(tmp_path):
    of_rank_1 = {"lr": 2e-3, "seed": 1, "identity": {"corpus": "b"}}
    ends = finish(start_ranks(tmp_path, identity={"corpus": "a"}, per_rank={1: of_rank_1}))
    assert [code for code, _ in ends] == [2, 2], ends
    for said in ("optim.lr: 0.001 on rank 0, 0.002", "train.seed: 0 on rank 0, 1", "corpus: a on rank 0, b"):
        assert all(said in error for _, error in ends), ends
    assert not list(tmp_path.glob("checkpoint-*"))


def test_a_long_look_by_rank_0_outlasts_the_limit_of_a_step(tmp_path):
    """Ranks give up on each other after 4 s, and rank 0 looks at held-out samples for 6."""
    ends = finish(start_ranks(tmp_path, steps=2, timeout_s=4, look_s=6))
    assert [code for code, _ in ends] == [0, 0], ends


def test_a_rank_0_that_shows_no_sign_of_life_is_given_up(monkeypatch):
    monkeypatch.setattr(distributed, "TIMEOUT", timedelta(seconds=0.3))
    store = HashStore()
    store.add(distributed.BEAT, 3)
    with pytest.raises(Stopped, match="rank 0 has not answered"):
        World(1, 2, torch.device("cpu"), store).by_main(lambda: pytest.fail("rank 0's own"))


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"RANK": "5", "WORLD_SIZE": "2"}, "ranks are 0 to 1"),
        ({"RANK": "-1", "WORLD_SIZE": "2"}, "ranks are 0 to 1"),
        ({"RANK": "1"}, "ranks are 0 to 0"),
        ({"RANK": "x", "WORLD_SIZE": "2"}, "RANK is 'x'"),
        ({"RANK": "0", "WORLD_SIZE": "two"}, "WORLD_SIZE is 'two'"),
        ({"RANK": "0", "WORLD_SIZE": "0"}, "WORLD_SIZE is 0"),
        ({"WORLD_SIZE": "2"}, "RANK is not"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "MASTER_ADDR and MASTER_PORT are not set"),
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "x"}, "MASTER_PORT is 'x'"),
    ],
    ids=str,
)
def test_variables_that_make_no_sense_are_named(variables, said, monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=said), rendezvous.world(torch.device("cpu")):
        pass


def alone_of(size, rank, monkeypatch):
    """This process as one of several, none of which comes; the wait is short."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for name, value in {"RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(rendezvous, "SAY_AFTER_S", 0.2)
    monkeypatch.setattr(rendezvous, "GIVE_UP_S", 1.5)


def test_who_does_not_come_is_waited_for_aloud_and_not_for_ever(monkeypatch, capsys):
    alone_of(3, 0, monkeypatch)
    with pytest.raises(Stopped, match="2 of 3 processes did not start"), rendezvous.world(torch.device("cpu")):
        pass
    assert "Waiting for 2 more of 3 processes" in capsys.readouterr().err


def test_a_rank_0_that_does_not_come_is_waited_for_aloud(monkeypatch, capsys):
    alone_of(2, 1, monkeypatch)
    with pytest.raises(Stopped, match="could not reach rank 0"), rendezvous.world(torch.device("cpu")):
        pass
    assert "Rank 1 is waiting for rank 0" in capsys.readouterr().err


def assert_close_checkpoints(one, other, step):
    """The weights of both are the same, but for the order of sums; none is newer."""
    found = checkpoint.latest(other)
    assert found is not None
    assert found.step == step
    a = load_file(one / f"checkpoint-{step}" / "model.safetensors")
    b = found.tensors(checkpoint.MODEL)
    assert a.keys() == b.keys()
    assert all((a[name] - b[name]).abs().max() < 2e-4 for name in a)


def test_a_callback_of_the_first_rank_ends_all_ranks(tmp_path):
    options = {"patience": 1, "eval_every": 2, "lr": 1e-30, "dropout": 0.0}
    ends = finish(start_ranks(tmp_path / "two", **options))
    assert [code for code, _ in ends] == [0, 0], ends
    assert "The run ends after step 4" in ends[0][1]
    assert checkpoint.latest(tmp_path / "two").step == 4
    assert [line["step"] for line in log.read_log(tmp_path / "two") if line["kind"] == "valid"] == [2, 4]
