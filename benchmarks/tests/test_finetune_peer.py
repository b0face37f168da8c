"""The peer of the fine-tuning benchmark does what Bertie does: the same loss, and after some steps the same answers."""

from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import finetune as bench
from bertie.models import families
from bertie.models.config import EncoderConfig
from bertie.runs.config import FinetuneConfig
from bertie.runs.examples import read_examples
from bertie.tasks.source import encode_examples
from bertie.train.config import OptimConfig, TrainConfig

pytest.importorskip("transformers")
pytest.importorskip("accelerate")
from benchmarks.peers import AS_IT_COMES, AT_ITS_BEST, NO_LABEL, FinetunePeer, TrainerSetup, require, rows

SHAPE = EncoderConfig(
    vocab_size=200,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=64,
    max_position_embeddings=64,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
STEPS, EXAMPLES = 10, 8


@pytest.fixture
def prepared(tmp_path: Path) -> bench.Prepared:
    """Eight examples that are one batch, so that their order is no matter; no dropout, so that nothing is drawn.

    The rate is constant: the Trainer's first rate is 0 where ours is a step further, which ten steps would tell.
    """
    words = SHAPE.vocab_size - len(bench.SPECIAL)
    (tmp_path / "vocab.txt").write_text("\n".join([*bench.SPECIAL, *(f"w{n}" for n in range(words))]) + "\n")
    families.save(families.build(SHAPE), tmp_path)
    lines = [
        f"{' '.join(text.split()[:40])}\t{label}" for text, label in bench.made_up(np.random.default_rng(0), 8, words)
    ]
    (tmp_path / "train.tsv").write_text("\n".join(["text\tlabel", *lines]) + "\n")
    file = str(tmp_path / "train.tsv")
    return bench.prepare(
        FinetuneConfig(
            model=str(tmp_path),
            train_file=file,
            dev_file=file,
            max_length=64,
            optim=OptimConfig(lr=3e-3, warmup=0, decay="constant", max_grad_norm=0.5, weight_decay=0.1),
            train=TrainConfig(steps=STEPS, batch_size=EXAMPLES),
        )
    )


@pytest.mark.parametrize(
    "way", [TrainerSetup(pad_to=64), TrainerSetup(pad_to=None, by_length=True)], ids=["padded", "grouped"]
)
def test_some_steps_lead_to_the_same_answers(
    prepared: bench.Prepared, way: TrainerSetup, monkeypatch: pytest.MonkeyPatch
):
    require()
    assert bench.same_loss(prepared) < 1e-5
    found: list[np.ndarray] = []
    monkeypatch.setattr(prepared, "quality", lambda logits: found.append(logits) or 0.5)
    bench.bertie_run("fp32")(prepared, 3)
    bench.peer_run(way)(prepared, 3)
    ours, theirs = (torch.as_tensor(logits) for logits in found)
    before = FinetunePeer(prepared.model(3), way=way).logits(prepared.dev)
    assert (ours - before).abs().max() > 0.1, "nothing was learnt, so it says nothing that they agree"
    torch.testing.assert_close(ours, theirs, atol=1e-3, rtol=0)  # Adam's first steps blow rounding up: g / |g|


def test_the_two_ways_a_trainer_reads():
    assert (AS_IT_COMES.pad_to, AS_IT_COMES.bf16) == (128, False)
    assert (AT_ITS_BEST.pad_to, AT_ITS_BEST.by_length, AT_ITS_BEST.bf16) == (None, True, True)


def test_what_has_no_label_teaches_nothing(prepared: bench.Prepared):
    """A label of dev alone: the Trainer does not see the example, as weight 0 says to Bertie."""
    examples = read_examples(prepared.config)
    odd = [*examples.train[:2], type(examples.train[0])(("w1 w2",), "z", 9)]
    encoded = encode_examples(odd, prepared.tokenizer, max_length=64)
    made = rows("sequence", encoded, examples.task.targets(odd, encoded))
    assert [row and row["labels"] for row in made] == [0, 1, None]
    assert torch.nn.CrossEntropyLoss().ignore_index == NO_LABEL
