"""Benchmark of the optimizations of a training step: the step with all of them, and without each of them, interleaved.

    python -m benchmarks.choices bert-mini --repeats 4

One thread and its processor time (a shared machine stretches wall time, this it hardly moves); 25 full rows of 128
tokens, 15 % predicted, masked LM only, AdamW and clipping included. One JSON line per choice.
"""

import argparse
import json
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.harness import interleave
from bertie.models import families
from bertie.models.encoder import Encoder, EncoderOutput
from bertie.models.heads.vocabulary import MaskedLMHead
from bertie.models.loss import right
from bertie.models.model import TorchModel
from bertie.nn.layout import Packed
from bertie.process import keep_memory

ROWS, LENGTH, PREDICTED = 25, 128, 480


def plain_loss(hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The reference of `linear_cross_entropy`: all logits, in float32."""
    logits = F.linear(hidden, weight.to(hidden.dtype), bias.to(hidden.dtype))
    return F.cross_entropy(logits.float(), targets, reduction="sum"), right(logits, targets).sum()


def reads_all(model: TorchModel) -> AbstractContextManager[object]:
    """The last layer computes all tokens, and not only the predicted ones."""

    def forward(input_ids: Tensor, token_type_ids: Tensor, *, layout: Packed, read: Tensor) -> EncoderOutput:
        return Encoder.forward(model.encoder, input_ids, token_type_ids, layout)

    return patch.object(model.encoder, "forward", forward)


Choice = Callable[[TorchModel], AbstractContextManager[object]]
CHOICES: dict[str, tuple[Choice, ...]] = {
    "as it is": (),
    "all tokens in the last layer": (reads_all,),
    "torch's dropout": (lambda _: patch("bertie.nn.dropout._quick", return_value=False),),
    "one rectangle": (lambda _: patch("bertie.nn.varlen.group_layout", return_value=None),),
    "SDPA": (
        lambda _: patch("bertie.nn.varlen.group_layout", return_value=None),
        lambda _: patch("bertie.nn.attention._slow_fused", return_value=False),
    ),
    "all logits in float32": (lambda _: patch("bertie.models.heads.vocabulary.linear_cross_entropy", plain_loss),),
    "autocast": (
        lambda model: patch.object(model.encoder, "compute_dtype", None),
        lambda _: torch.autocast("cpu", torch.bfloat16),
    ),
    "float32": (lambda model: patch.object(model.encoder, "compute_dtype", None),),
}


def steps(preset: str, dropout_p: float) -> Callable[[tuple[Choice, ...]], tuple[float, float]]:
    """Returns a function that runs one training step without some optimizations -> its tokens and its CPU seconds."""
    config = families.config(preset, hidden_dropout_prob=dropout_p, attention_probs_dropout_prob=dropout_p)
    head = MaskedLMHead(config)
    model = families.build(config, heads={"mlm": head}).train()
    model.compute_dtype = torch.bfloat16
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    layout = Packed.from_lengths(torch.full((ROWS,), LENGTH))
    torch.manual_seed(0)
    ids = torch.randint(5, config.vocab_size, (ROWS * LENGTH,))
    at = torch.randperm(len(ids))[:PREDICTED].sort()[0]

    def step(undone: tuple[Choice, ...]) -> tuple[float, float]:
        started = time.process_time()
        with ExitStack() as stack:
            for choice in undone:
                stack.enter_context(choice(model))
            hidden = model.encoder(ids, torch.zeros_like(ids), layout=layout, read=at).last_hidden_state[at]
            total, _ = head.loss(hidden, model.word_embeddings, ids[at])
        torch.autograd.backward(total / PREDICTED)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return len(ids), time.process_time() - started

    return step


def main() -> None:
    """Prints one JSON line per optimization: tokens per CPU second (median, spread), and the ratio of step times."""
    parser = argparse.ArgumentParser(description="Measures each optimization inside a training step.")
    parser.add_argument("preset")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--only", nargs="+", choices=CHOICES, default=list(CHOICES), metavar="CHOICE")
    parser.add_argument("--give-memory-back", action="store_true", help="without keep_memory()")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if not args.give_memory_back:
        keep_memory()
    step = steps(args.preset, args.dropout)
    cells = interleave({name: partial(step, CHOICES[name]) for name in args.only}, rounds=args.repeats)
    for cell in cells:
        row = {"tokens_per_s": round(cell.median), "spread": cell.spread}
        print(
            json.dumps(
                {"preset": args.preset, "choice": cell.name, **row, "time": round(cells[0].median / cell.median, 2)}
            )
        )


if __name__ == "__main__":
    main()
