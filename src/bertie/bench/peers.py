"""The peer of the training benchmarks: `transformers` and its Trainer, on the very sequences and weights Bertie gets.

Only the benchmarks import this file; `transformers` is no run-time dependency of Bertie.
"""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bertie.errors import UsageError


def require() -> None:
    """Raise UsageError with the command to run when the peers are not installed."""
    try:
        import accelerate
        import transformers
    except ImportError:
        raise UsageError("The benchmark runs transformers beside Bertie: pip install 'bertie[dev]'") from None
    assert accelerate
    transformers.logging.set_verbosity_error()


class Sequences(torch.utils.data.Dataset[dict[str, list[int]]]):
    """Token id lists as the dataset a Trainer reads."""

    def __init__(self, rows: list[NDArray[np.int64]]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, list[int]]:
        ids = [int(token) for token in self.rows[index]]
        return {"input_ids": ids, "token_type_ids": [0] * len(ids), "attention_mask": [1] * len(ids)}


@dataclass
class TrainerPeer:
    """`transformers.Trainer` on masked LM: a round trains on `steps` batches and counts the real tokens it read.

    As it comes: float32, rows padded to the longest of their batch, the vocabulary head at every position. Its best:
    `bf16` and `compile` on, and rows that the caller has packed full.
    """

    model_folder: Path
    rows: list[NDArray[np.int64]]
    batch_size: int
    steps: int
    bf16: bool = False
    compile: bool = False

    WARMUP_STEPS = 3  # of every round: a new Trainer builds its optimizer and, compiled, its kernels

    def __post_init__(self) -> None:
        from transformers import BertForMaskedLM

        self.model: Any = BertForMaskedLM.from_pretrained(self.model_folder)

    def __call__(self) -> tuple[float, float]:
        """Train a round. -> real tokens, seconds"""
        from transformers import (
            BertTokenizerFast,
            DataCollatorForLanguageModeling,
            Trainer,
            TrainerCallback,
            TrainingArguments,
        )

        clock = {"started": 0.0, "seconds": 0.0}
        last = self.WARMUP_STEPS + self.steps

        class Clock(TrainerCallback):  # type: ignore[misc]
            """Times the steps alone: building a Trainer is not training."""

            def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                if state.global_step == TrainerPeer.WARMUP_STEPS:
                    clock["started"] = time.perf_counter()

            def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                if state.global_step == last:
                    clock["seconds"] = time.perf_counter() - clock["started"]

        rows = [self.rows[i % len(self.rows)] for i in range(last * self.batch_size)]
        with tempfile.TemporaryDirectory() as folder:
            arguments = TrainingArguments(
                output_dir=folder,
                max_steps=last,
                per_device_train_batch_size=self.batch_size,
                use_cpu=not torch.cuda.is_available(),
                bf16=self.bf16,
                torch_compile=self.compile,
                report_to=[],
                save_strategy="no",
                logging_strategy="no",
                disable_tqdm=True,
            )
            trainer = Trainer(
                model=self.model,
                args=arguments,
                train_dataset=Sequences(rows),
                data_collator=DataCollatorForLanguageModeling(
                    BertTokenizerFast.from_pretrained(self.model_folder), mlm_probability=0.15
                ),
                callbacks=[Clock()],
            )
            trainer.train()
        # the Trainer shuffles: its timed batches hold the mean number of tokens, give or take
        mean_tokens = sum(map(len, rows)) / len(rows)
        return mean_tokens * self.batch_size * self.steps, clock["seconds"]
