"""What a pre-training run needs before it starts: disk space; and warnings."""

import shutil
from pathlib import Path

import torch

from bertie.errors import Stopped, UsageError
from bertie.files import Json
from bertie.models import machine
from bertie.report.values import quantity
from bertie.runs.config import PretrainConfig
from bertie.runs.folder import CONFIG

HOPELESS_S = 3 * 86400.0
WASTED = 0.3  # share of a corpus that an epoch may leave out unsaid: held-out documents, ends of documents
COPIES = 3  # float32 numbers a parameter in a checkpoint: the weight and AdamW's two moments


def disk(planned: Json, config: PretrainConfig) -> dict[str, int]:
    """Returns the maximum disk space of a run: all checkpoints that it keeps, the next one, and the model."""
    one = COPIES * 4 * planned["parameters"]
    saves = -(-planned["steps"] // config.train.save_every)
    return {"checkpoint": one, "most": one * min(config.train.keep + 1, saves) + 4 * planned["parameters"]}


def check_disk(planned: Json, run: Path) -> None:
    """Raises UsageError when a run does not fit on the disk, and Stopped when it has begun before."""
    here = next(path for path in [run.absolute(), *run.absolute().parents] if path.exists())
    there = sum(file.stat().st_size for file in run.glob("checkpoint-*/*"))
    needed, free = planned["disk_bytes"]["most"] - there, shutil.disk_usage(here).free
    if needed > free:
        need = f"{run} needs up to {quantity(needed, 'bytes')} of disk space"
        message = f"{need}, but {quantity(free, 'bytes')} are free. Free some space"
        if (run / CONFIG).exists():
            raise Stopped(f"{message}, and run the same command again.")
        raise UsageError(f"{message}, choose a folder on another disk, or keep fewer checkpoints: train.keep=1.")


def warnings(planned: Json, config: PretrainConfig, corpus_tokens: int) -> list[str]:
    """Returns warnings before a long run: an epoch that omits much of the corpus, a run of days."""
    lines, read = [], planned["tokens_per_epoch"]
    if read < (1 - WASTED) * corpus_tokens:
        lines.append(f"An epoch reads {quantity(read)} of the corpus's {quantity(corpus_tokens)} tokens.")
        if pairs := [name for name in ("nsp", "sop") if config.objectives.get(name) is not None]:
            lines[-1] += (
                " Sentence pairs need documents of several sentences, and the ends of documents are omitted. More text "
                f"is read without pairs: {' '.join(f'objectives.{name}=null' for name in pairs)}."
            )
    if planned["device"] == "cpu":
        rates = machine.cpu_rates()
        rate = {"float32": rates.fp32, "bfloat16": rates.bf16}[planned["precision"]]
        if (least := planned["flops"] / (1e9 * rate * torch.get_num_threads())) > HOPELESS_S:
            lines.append(
                f"This run takes at least {quantity(least, 's')} on this processor, estimated from the speed of "
                "its matrix products. Lower train.steps, choose a smaller model, pass --minutes, or use a "
                "GPU."
            )
    return lines
