"""The demo's settings and their reasons. They were chosen on passages of training modules, never on the test."""

from dataclasses import dataclass
from pathlib import Path

from bertie import FinetuneConfig, PretrainConfig

SHAPE = {"num_hidden_layers": 2, "hidden_size": 128, "num_attention_heads": 2, "intermediate_size": 512}
DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}  # a run this short does not overfit
INITIALIZER_RANGE = 0.05  # BERT's 0.02 is made for 768 wide; the root of 768 / 128 times that, or attention starts flat
VOCABULARY_SIZE = 8000
_MAX_LENGTH = 64  # twice the pairs of 128 from as many tokens: next sentence is learned at all, masked words sooner
MASKED = 0.2  # more to learn from each text than 0.15, while there is little time
PRETRAIN_OPTIM = {"name": "muon", "lr": 8e-3, "warmup": 0.1}  # off the plateau sooner than AdamW: benchmarks/log
PRETRAIN_BATCH = 64
FINETUNE_OPTIM = {"lr": 5e-4, "warmup": 0.1}
FINETUNE_BATCH = 16
EPOCHS = 6  # fewer leave more time for pre-training; not compared on training modules: benchmarks/log
LONGER = 4  # times EPOCHS: how far random weights come with more fine-tuning; one run
PER_LABEL = 50  # labelled examples to fine-tune on
TEST = 600  # examples to test on
DEMO_SEEDS = (0, 1, 2, 3, 4)
FEWEST_SEEDS = 3  # on a slow machine; two have no interval worth the name

START_NAMES = {"pretrained": "pre-trained", "random": "random weights"}  # folder name -> what the page calls it

TRIAL_STEPS = 36  # to learn how fast this machine is; the second half is timed
FEWEST_STEPS = 50
MAX_DEMO_EPOCHS = 40  # a small text is not read more often than that, whatever the time
FINETUNE_TOKENS = 110_000  # what a fine-tuning run costs, in tokens of pre-training: 6 of 10 epochs, which took 160,000
FINETUNE_START_S = 1.0  # and besides
MOST_FINETUNING = 0.3  # of the time that is left; above, fewer seeds are fine-tuned and more text is read
VALIDATIONS = 8  # validations during pre-training, and one after it
_STEADY_RATE = 0.96  # of the rate of a trial that lasts; caches are warm there, and the machine is not
MARGIN_S = 12.0  # for loading, saving and the report


def pretraining(run: Path, *, steps: int, tokens: int, documents: int) -> PretrainConfig:
    """Returns the pre-training config for a corpus of that size. A single document gives no pairs, so no NSP."""
    batch = max(1, min(PRETRAIN_BATCH, tokens // (2 * _MAX_LENGTH)))
    objectives: dict[str, dict[str, object]] = {"mlm": {"rate": MASKED}, "nsp": {"form": "corrected"}}
    if documents < 2:
        del objectives["nsp"]
    every = max(1, steps // VALIDATIONS)
    train = {"steps": steps, "batch_size": batch, "log_every": max(1, steps // 200), "eval_every": every}
    return PretrainConfig.read(
        corpus=str(run / "corpus"),
        tokenizer=str(run / "tokenizer"),
        model="bert-tiny",
        model_overrides=SHAPE
        | DROPOUT
        | {"initializer_range": INITIALIZER_RANGE, "max_position_embeddings": _MAX_LENGTH},
        objectives=objectives,
        max_length=_MAX_LENGTH,
        optim=PRETRAIN_OPTIM,
        train={**train, "save_every": every, "keep": 1},
    )


@dataclass(frozen=True)
class MachineTrial:
    """The result of a trial on this machine: pre-training tokens per second, and the seconds of one validation."""

    tokens_per_s: float
    validation_s: float = 0.0

    @property
    def seed_s(self) -> float:
        """Returns the seconds of fine-tuning one seed from each start."""
        return len(START_NAMES) * (FINETUNE_TOKENS / self.tokens_per_s + FINETUNE_START_S)

    @property
    def longer_s(self) -> float:
        """Returns the seconds of the longer fine-tuning of random weights."""
        return LONGER * FINETUNE_TOKENS / self.tokens_per_s + FINETUNE_START_S


def affordable_run(probe: MachineTrial, *, seconds: float, tokens: int, tokens_per_step: int) -> tuple[int, int]:
    """Returns the pre-training steps and the fine-tuning seeds that fit into `seconds`, at the speed of the trial."""
    affordable = int((MOST_FINETUNING * seconds - probe.longer_s) / probe.seed_s)
    seeds = max(FEWEST_SEEDS, min(len(DEMO_SEEDS), affordable))
    left_s = seconds - seeds * probe.seed_s - probe.longer_s - (VALIDATIONS + 1) * probe.validation_s - MARGIN_S
    steps = int(_STEADY_RATE * left_s * probe.tokens_per_s / tokens_per_step)
    return max(FEWEST_STEPS, min(steps, MAX_DEMO_EPOCHS * tokens // tokens_per_step)), seeds


def finetuning(run: Path, *, start: str, seed: int, epochs: int = EPOCHS) -> FinetuneConfig:
    """Returns the config of one fine-tuning run. Runs differ only in the start weights and the seed."""
    train = {"steps": 1, "batch_size": FINETUNE_BATCH, "log_every": 20, "eval_every": 38, "save_every": 10**6}
    return FinetuneConfig.read(
        model=str(run / "pretrain/model"),
        train_file=str(run / f"task/train-{seed}.jsonl"),
        dev_file=str(run / "task/test.jsonl"),
        from_scratch=start == "random",
        max_length=_MAX_LENGTH,
        epochs=epochs,
        baselines=False,  # the demo has its own
        optim=FINETUNE_OPTIM,
        train={**train, "keep": 1, "seed": seed},
    )


def describe_settings() -> dict[str, str]:
    """Returns the settings in words, for the page."""
    return {
        "model": f"{SHAPE['num_hidden_layers']} layers, hidden size {SHAPE['hidden_size']}, at most "
        f"{VOCABULARY_SIZE:,} tokens",
        "pre-training": f"batch {PRETRAIN_BATCH}, up to {_MAX_LENGTH} tokens, peak learning rate "
        f"{PRETRAIN_OPTIM['lr']:g}",
        "fine-tuning": f"{EPOCHS} epochs, batch {FINETUNE_BATCH}, peak learning rate {FINETUNE_OPTIM['lr']:g}",
    }
