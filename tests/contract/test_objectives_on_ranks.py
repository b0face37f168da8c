"""Every objective on two ranks, with the model whole on each or in parts on both: what one process trains.

python tests/contract/test_objectives_on_ranks.py RUN '{"shard": "full"}'        all of them, as one of the ranks
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from test_objectives_contract import APART, CASES, VOCAB, Tokenizer, model_of, objective_of, source_of

from bertie.models.elmo import ElmoEncoder
from bertie.train import rendezvous
from bertie.train.base import PhasedSource
from bertie.train.callbacks import EachStep
from bertie.train.config import OptimConfig, TrainConfig
from bertie.train.loop import fit
from bertie.train.sharding import own
from bertie.train.step_metrics import measure_batches
from nano import NanoSource, nano_fit, one_thread, timeless
from ranks import finish, start_ranks

STEPS = 4
ELMO = {"filters": ((1, 4), (3, 8)), "max_characters_per_token": 8}
PHASES, BORDER, BF16 = "two phases", 2, "bf16"


def train_all(run: Path, *, shard: str = "none") -> None:
    """A run in RUN/NAME for every objective, one in phases, one in bf16."""
    with one_thread(), tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "vocab.txt").write_text("\n".join(VOCAB) + "\n", encoding="utf-8")
        tokenizer = Tokenizer.load(folder)
        for name in CASES.keys() - {*APART[1:]}:
            train(name, run / name, tokenizer, shard=shard)
        train_in_phases(run / PHASES, shard=shard)
        nano_fit(run / BF16, precision="bf16", steps=STEPS, dropout=0.0, log_every=1, shard=shard)


def train(name: str, run: Path, tokenizer: Tokenizer, *, shard: str) -> None:
    """A few steps of 6 sequences in micro-batches of 2: two passes on each of two ranks, three in one process.

    Two ranks have half of a model in parts each, all the time.
    """
    CASES["bilm"].overrides |= ELMO
    objective = objective_of(name)
    source = source_of(objective, tokenizer, batch_size=6, micro_batch_size=2)
    model = model_of(name, objective)
    if isinstance(model.encoder, ElmoEncoder):
        model.encoder.spell(VOCAB)
    parts = rendezvous.world_size() if shard == "full" else 1

    def check(step: int) -> None:
        here, all_ = (sum(f(p).numel() for p in model.parameters()) for f in (own, lambda p: p))
        assert here == all_ if parts == 1 else 0.4 < here / all_ < 0.6, "weights are not where they should be"

    fit(
        model,
        objective,
        source,
        train=TrainConfig(batch_size=6, steps=STEPS, log_every=1, eval_every=2, precision="fp32", shard=shard),
        optim=OptimConfig(lr=1e-3, warmup=0),
        run=run,
        evaluate=lambda step: measure_batches(model, objective, source.validation_batches()),
        callbacks=[EachStep(check)],
    )
    saved = load_file(run / f"checkpoint-{STEPS}" / "model.safetensors") if rendezvous.is_main() else {}
    trained = dict(model.named_parameters())
    assert all(torch.equal(trained[key], saved[key]) for key in saved), f"{name}: another model is left than was saved"


def train_in_phases(run: Path, **options: Any) -> None:
    """2 steps of 8 sequences, then 2 of 5, which are 2 and 3 on two ranks: of 1 and 2 passes."""
    parts = [NanoSource(batch_size=8, micro_batch_size=3), NanoSource(batch_size=5, micro_batch_size=2, seed=1)]
    source: Any = PhasedSource([(BORDER, parts[0]), (STEPS - BORDER, parts[1])])
    source.batch, source.objective = parts[0].batch, parts[0].objective
    options |= {"source": source, "boundaries": source.boundaries, "optimizer": "bert_adam"}
    nano_fit(run, steps=STEPS, dropout=0.0, keep=9, log_every=3, **options)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("alone")
    train_all(run)
    return run


@pytest.fixture(scope="module", params=[pytest.param("none", marks=pytest.mark.slow), "full"])
def two_ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp(request.param)
    ends = finish(start_ranks(run, program=Path(__file__), shard=request.param), within_s=1800)
    assert [code for code, _ in ends] == [0, 0], ends
    return run


@pytest.mark.parametrize("name", [*(name for name in CASES if name not in APART[1:]), PHASES])
def test_two_ranks_learn_what_one_learns(alone: Path, two_ranks: Path, name: str) -> None:
    a, b = (load_file(run / name / f"checkpoint-{STEPS}" / "model.safetensors") for run in (alone, two_ranks))
    assert a.keys() == b.keys()
    for key, tensor in a.items():  # Adam makes much of little: a gradient of next to nothing has a sign
        assert (tensor - b[key]).abs().max() < 1e-3, key
        assert (tensor - b[key]).abs().mean() < 1e-5, key
    assert_close_lines(alone / name, two_ranks / name, rel=1e-3)


def test_in_bf16_too(alone: Path, two_ranks: Path) -> None:
    assert_close_lines(alone / BF16, two_ranks / BF16, rel=0.02)  # matrices of other shapes are rounded otherwise


def assert_close_lines(one: Path, other: Path, *, rel: float) -> None:
    for ours, theirs in zip(timeless(one), timeless(other), strict=True):
        assert ours.pop("kind") == theirs.pop("kind")
        assert ours == pytest.approx(theirs, rel=rel)


def test_what_is_due_at_the_end_is_due_at_the_border(two_ranks: Path) -> None:
    run = two_ranks / PHASES
    lines = [(line["kind"], line["step"], line["phase"]) for line in timeless(run)]
    assert lines == [("train", 2, 1), ("valid", 2, 1), ("train", 3, 2), ("train", 4, 2), ("valid", 4, 2)]
    assert (run / f"checkpoint-{BORDER}").is_dir()


if __name__ == "__main__":
    with rendezvous.world(torch.device("cpu")):  # once for all of them
        train_all(Path(sys.argv[1]), **json.loads(sys.argv[2]))
