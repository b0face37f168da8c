"""The peers of the training benchmarks: `transformers` and its Trainer, on the same sequences and weights as Bertie.

Only the benchmarks import this file; `transformers` is no run-time dependency of Bertie.

W sequences · T tokens · B sequences of a batch · S longest · L outputs of the head
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from benchmarks.harness import wait_for
from bertie.errors import UsageError
from bertie.models import families
from bertie.models.model import TorchModel
from bertie.tasks.source import Targets
from bertie.text.sequences import Sequences
from bertie.train.config import OptimConfig
from bertie.train.precision import choose_device

NO_LABEL = -100  # what transformers leaves out of a loss
Row = dict[str, Any]


def require() -> None:
    """Raise UsageError with the command to run when the peers are not installed."""
    try:
        import accelerate
        import transformers
        from transformers import BertModel, Trainer  # what they load is not to count as memory of a run
    except ImportError:
        raise UsageError(
            "The benchmark compares with transformers, which is not installed: pip install 'bertie[dev]'"
        ) from None
    assert accelerate is not None
    assert BertModel is not Trainer
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()


class Rows(torch.utils.data.Dataset[Row]):
    """Rows as the dataset a Trainer reads."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Row:
        return self.rows[index]


def train(
    model: Any,
    rows: Sequence[Row],
    collate: Callable[[list[Row]], Any],
    *,
    steps: int,
    warmup: int,
    device: str = "cpu",
    **settings: Any,
) -> float:
    """Train a model of `transformers` with its Trainer. -> the seconds of all steps but the first `warmup`.

    `settings` are those of TrainingArguments. The first steps build the optimizer and, compiled, the kernels.
    """
    from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

    clock = {"started": 0.0, "seconds": 0.0}

    class Clock(TrainerCallback):  # type: ignore[misc]
        """Measures only the steps, without the creation of the Trainer."""

        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == warmup:
                wait_for(device)
                clock["started"] = time.perf_counter()

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == steps:
                wait_for(device)
                clock["seconds"] = time.perf_counter() - clock["started"]

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=steps,
            use_cpu=device == "cpu",
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            **settings,
        )
        trainer = Trainer(
            model=model, args=arguments, train_dataset=Rows(rows), data_collator=collate, callbacks=[Clock()]
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return clock["seconds"]


@dataclass
class TrainerPeer:
    """`transformers.Trainer` on masked LM: a round trains on `steps` batches and counts the real tokens.

    Default settings: float32, rows padded to the longest of their batch, the vocabulary head at every position. Tuned
    settings: `bf16` and `compile` on, and rows that the caller has packed.
    """

    model_folder: Path
    rows: list[NDArray[np.int64]]
    batch_size: int
    steps: int
    warmup_steps: int
    bf16: bool = False
    compile: bool = False
    device: str = "cpu"

    def __post_init__(self) -> None:
        from transformers import BertForMaskedLM

        self.model: Any = BertForMaskedLM.from_pretrained(self.model_folder)

    def __call__(self) -> tuple[float, float]:
        """Train a round. -> real tokens, seconds"""
        from transformers import BertTokenizerFast, DataCollatorForLanguageModeling

        last = self.warmup_steps + self.steps
        rows = [self.rows[i % len(self.rows)] for i in range(last * self.batch_size)]
        seconds = train(
            self.model,
            [_row(ids) for ids in rows],
            DataCollatorForLanguageModeling(BertTokenizerFast.from_pretrained(self.model_folder), mlm_probability=0.15),
            steps=last,
            warmup=self.warmup_steps,
            per_device_train_batch_size=self.batch_size,
            bf16=self.bf16,
            torch_compile=self.compile,
            device=self.device,
        )
        # the Trainer shuffles: its timed batches hold the mean number of tokens, give or take
        mean_tokens = sum(map(len, rows)) / len(rows)
        return mean_tokens * self.batch_size * self.steps, seconds


def _row(ids: NDArray[Any], types: NDArray[Any] | None = None) -> Row:
    zeros = [0] * len(ids)
    return {
        "input_ids": ids.tolist(),
        "token_type_ids": zeros if types is None else types.tolist(),
        "attention_mask": [1] * len(ids),
    }


# Fine-tuning --------------------------------------------------------------------------------------------------------

CLASSES = {
    "sequence": "AutoModelForSequenceClassification",
    "token": "AutoModelForTokenClassification",
    "span": "AutoModelForQuestionAnswering",
}
"""Head -> the class of `transformers` with that head."""


@dataclass(frozen=True)
class TrainerSetup:
    """How a Trainer batches: with default (examples/pytorch/text-classification/run_glue.py) or tuned settings.

    pad_to: tokens every row is padded to, None: to the longest of the batch; by_length: whether to group similar
    lengths.
    """

    pad_to: int | None = 128
    by_length: bool = False
    bf16: bool = False


AS_IT_COMES = TrainerSetup()
AT_ITS_BEST = TrainerSetup(pad_to=None, by_length=True, bf16=True)


class FinetunePeer:
    """The class of `transformers` with the weights of `model`, heads included, and its Trainer."""

    def __init__(self, model: TorchModel, *, way: TrainerSetup = AS_IT_COMES) -> None:
        import transformers

        self.way = way
        [self.head] = model.heads
        if self.head not in CLASSES:
            raise UsageError(f"transformers has no class for the head {self.head!r}. Known: {', '.join(CLASSES)}")
        with tempfile.TemporaryDirectory() as folder:
            families.save(model, Path(folder))
            self.model: Any = getattr(transformers, CLASSES[self.head]).from_pretrained(folder)

    def train(
        self,
        encoded: Sequences,
        targets: Targets,
        *,
        optim: OptimConfig,
        batch_size: int,
        steps: int,
        seed: int,
        warmup: int,
    ) -> float:
        """Train `steps` steps with Bertie's hyper-parameters. -> the seconds of all steps but the first `warmup`"""
        return train(
            self.model,
            [row for row in rows(self.head, encoded, targets) if row],
            self.collate,
            steps=steps,
            warmup=warmup,
            per_device_train_batch_size=batch_size,
            learning_rate=optim.lr,
            warmup_steps=optim.warmup if optim.warmup >= 1 else round(optim.warmup * steps),
            lr_scheduler_type=optim.decay,
            weight_decay=optim.weight_decay,
            adam_beta1=optim.betas[0],
            adam_beta2=optim.betas[1],
            adam_epsilon=optim.eps,
            max_grad_norm=optim.max_grad_norm,
            train_sampling_strategy="group_by_length" if self.way.by_length else "random",
            bf16=self.way.bf16,
            seed=seed,
            device=str(choose_device()),
        )

    def collate(self, rows: Sequence[Row]) -> dict[str, Tensor]:
        """Rows -> padded tensors (B, S), and labels (B,) or (B, S)."""
        batch = {}
        for name, first in rows[0].items():
            if not isinstance(first, list):
                batch[name] = torch.tensor([row[name] for row in rows])
                continue
            nothing = NO_LABEL if name == "labels" else 0
            parts = [torch.tensor(row[name]) for row in rows]
            if self.way.pad_to:
                parts[0] = torch.nn.functional.pad(parts[0], (0, self.way.pad_to - len(parts[0])), value=nothing)
            batch[name] = pad_sequence(parts, batch_first=True, padding_value=nothing)
        return batch

    @torch.no_grad()
    def loss(self, encoded: Sequences, targets: Targets) -> float:
        """The mean loss of some sequences in evaluation mode."""
        batch = self.collate([row for row in rows(self.head, encoded, targets) if row])
        return float(self.model.eval()(**{name: tensor.to(self.model.device) for name, tensor in batch.items()}).loss)

    @torch.inference_mode()
    def logits(self, encoded: Sequences, *, batch_size: int = 32) -> Tensor:
        """Returns the head's logits of all sequences in order, in float32. -> (W, L), or (T, L) for heads on tokens"""
        self.model.float().eval()
        found = []
        read = [_row(ids, types) for ids, types in _sequences(encoded)]
        for start in range(0, len(read), batch_size):
            batch = self.collate(read[start : start + batch_size])
            output = self.model(**{name: tensor.to(self.model.device) for name, tensor in batch.items()})
            if self.head == "sequence":
                found.append(output.logits.float().cpu())
                continue
            logits = (
                output.logits if self.head == "token" else torch.stack([output.start_logits, output.end_logits], -1)
            )
            found.append(logits.float().cpu()[batch["attention_mask"].bool()])
        return torch.cat(found)


def rows(head: str, encoded: Sequences, targets: Targets) -> list[Row | None]:
    """Returns the Trainer's row of each sequence, with its labels; None for a sequence without labels."""
    told = {**targets.sequence, **targets.token}
    made: list[Row | None] = []
    for number, (ids, types) in enumerate(_sequences(encoded)):
        row = _row(ids, types)
        if head == "token":
            span = slice(int(encoded.starts[number]), int(encoded.starts[number + 1]))
            row["labels"] = np.where(told["weight"][span] > 0, told["tag"][span], NO_LABEL).tolist()
        elif not told["weight"][number]:
            made.append(None)
            continue
        elif head == "span":
            row |= {"start_positions": int(told["start"][number]), "end_positions": int(told["end"][number])}
        else:
            row["labels"] = (told["label"] if "label" in told else told["number"])[number].item()
        made.append(row)
    return made


def _sequences(encoded: Sequences) -> list[tuple[NDArray[Any], NDArray[Any]]]:
    cuts = encoded.starts[1:-1]
    return list(zip(np.split(encoded.input_ids, cuts), np.split(encoded.token_type_ids, cuts), strict=True))
