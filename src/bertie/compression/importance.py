"""Importance of attention heads and feed-forward neurons for a task: a factor xi on the output of each.

    I = mean over examples of |dL / dxi| at xi = 1;  xi = 0 removes the head        Michel et al. 2019, 2.3

A head's output is a block of the inputs of its layer's output matrix, so both are changes of these inputs.

T tokens · B sequences · L layers · N heads · K features a matrix reads
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle

import torch
from torch import Tensor, nn

from bertie.console import console
from bertie.errors import DataError, UsageError
from bertie.models.batch import Batch
from bertie.models.model import TorchModel
from bertie.tasks import Example, Task
from bertie.tasks.source import TaskSource
from bertie.text.tokenizer import Tokenizer
from bertie.train.base import Trainable

JUDGED, BATCH = 1024, 32  # examples that say what matters
HEADS, NEURONS = "attention.output", "down"  # the matrices of a layer that read heads and neurons
Change = Callable[[int, Tensor], Tensor]
"""The number of a layer and the inputs (..., K) of one of its matrices -> the inputs to use instead."""


@dataclass
class InputStatistics:
    """Statistics of the inputs of one matrix. importance (K,): sum over sequences of |sum over tokens of x dL/dx|, by
    feature or by head; moments (K + 1, K + 1): sum over tokens of x x^T, with a 1 appended to x.
    """

    importance: Tensor
    moments: Tensor
    tokens: int = 0


@dataclass
class Importance:
    """The result of `importance`, by layer and matrix. examples: sequences that were read."""

    inputs: dict[tuple[int, str], InputStatistics] = field(default_factory=dict)
    examples: int = 0

    def kept(self, layer: int, part: str, count: int) -> Tensor:
        """Returns the most important ones in ascending order. -> (count,) int64"""
        return self.inputs[layer, part].importance.topk(count).indices.sort().values

    def of_heads(self) -> Tensor:
        """Returns the mean importance of each head. -> (L, N)"""
        layers = sorted(layer for layer, part in self.inputs if part == HEADS)
        return torch.stack([self.inputs[layer, HEADS].importance for layer in layers]) / max(1, self.examples)

    @classmethod
    def for_task(
        cls, model: TorchModel, task: Task, examples: Sequence[Example], tokenizer: Tokenizer, *, max_length: int
    ) -> "Importance":
        """Returns the importance of the heads for labeled examples. Raises DataError if there are none."""
        return importance(model, task, judged(task, examples, tokenizer, max_length=max_length), parts=(HEADS,))


def judged(task: Task, examples: Sequence[Example], tokenizer: Tokenizer, *, max_length: int) -> list[Batch]:
    """Returns batches of the first labeled examples. Raises DataError if there are none."""
    known = [example for example in examples if example.label is not None][:JUDGED]
    if not known:
        raise DataError("The examples have no labels, which pruning needs. Name the column of the labels: --label.")
    encoded = task.encode(known, tokenizer, max_length=max_length, too_long="truncate")
    targets = task.targets(known, encoded)
    return TaskSource(encoded, targets, batch_size=len(known), micro_batch_size=BATCH, seed=0).batches(0)


@console.working("ranking heads and neurons")
def importance(
    model: TorchModel, learner: Trainable, batches: Iterable[Batch], parts: Sequence[str] = (HEADS, NEURONS)
) -> Importance:
    """Measures the importance of heads and neurons for the loss of labeled, packed batches, without dropout."""
    result = Importance()
    heads = model.config.num_attention_heads
    with _watched(model, parts) as inputs:
        for batch in batches:
            batch = batch.to(model.device)
            output = learner.forward(model, batch)
            report = learner.loss(model, output, batch)
            means = [term.weight * term.total / max(1, term.count) for term in report.values()]
            torch.stack(means).sum().backward()  # type: ignore[no-untyped-call]
            lengths = batch.packed.lengths
            sequence_T = torch.repeat_interleave(torch.arange(len(lengths), device=lengths.device), lengths)
            for (layer, part), x in inputs.items():
                assert x.grad is not None
                x_TK, grad_TK = x.detach()[: len(sequence_T)], x.grad[: len(sequence_T)]
                felt_TK = x_TK * grad_TK
                if part == HEADS:
                    felt_TK = felt_TK.view(len(felt_TK), heads, -1).sum(2)
                felt_BK = felt_TK.new_zeros(len(lengths), felt_TK.shape[1]).index_add_(0, sequence_T, felt_TK)
                _add(result, (layer, part), felt_BK.abs().sum(0), x_TK)
            result.examples += len(lengths)
            inputs.clear()
    return result


def _add(result: Importance, key: tuple[int, str], felt_K: Tensor, x_TK: Tensor) -> None:
    ones_TK = torch.cat([x_TK, x_TK.new_ones(len(x_TK), 1)], 1).float()
    moments = ones_TK.T @ ones_TK
    if key not in result.inputs:
        result.inputs[key] = InputStatistics(felt_K.cpu(), moments.cpu(), len(x_TK))
    else:
        one = result.inputs[key]
        one.importance, one.moments = one.importance + felt_K.cpu(), one.moments + moments.cpu()
        one.tokens += len(x_TK)


@contextmanager
def _watched(model: TorchModel, parts: Sequence[str]) -> Iterator[dict[tuple[int, str], Tensor]]:
    """Records the inputs of some matrices with their gradients. Weights get no gradients."""
    inputs: dict[tuple[int, str], Tensor] = {}

    def keep(part: str, layer: int, x: Tensor) -> Tensor:
        if x.requires_grad:
            x.retain_grad()
        else:  # the first: gradients begin here
            x = x.detach().requires_grad_()
        inputs[layer, part] = x
        return x

    trained = {name: one.requires_grad for name, one in model.named_parameters()}
    was_training = model.training
    try:
        model.eval().requires_grad_(False)
        with model.computing_all(), ExitStack() as stack:
            for part in parts:
                stack.enter_context(_changed(model, part, partial(keep, part)))
            yield inputs
    finally:
        for name, one in model.named_parameters():
            one.requires_grad_(trained[name])
        model.train(was_training)


@contextmanager
def without_heads(model: TorchModel, heads: Iterable[tuple[int, int]]) -> Iterator[None]:
    """Context in which the output of some heads, pairs (layer, head) from 0, is zero, in training and inference.

    Raises UsageError for a model whose layers do not have a separate matrix after attention.
    """
    count = model.config.num_attention_heads
    kept_LN = torch.ones(model.config.num_hidden_layers, count, dtype=torch.bool, device=model.device)
    for layer, head in heads:
        kept_LN[layer, head] = False

    def change(layer: int, x: Tensor) -> Tensor:
        return (x.view(*x.shape[:-1], count, -1) * kept_LN[layer][:, None]).flatten(-2)

    with _changed(model, HEADS, change):
        yield


@contextmanager
def _changed(model: TorchModel, part: str, change: Change) -> Iterator[None]:
    """Context in which the inputs of one matrix of each layer pass through `change`.

    A layer that is used several times has a number for each time.
    """
    try:
        layers = list(model.encoder.in_order())
        matrices = dict.fromkeys(layer.get_submodule(part) for layer in layers)
    except AttributeError:
        family = model.variant.model_type if model.variant else "this"
        raise UsageError(f"The heads of {family} models cannot be ranked or removed.") from None
    number = cycle(range(len(layers)))

    def hook(matrix: nn.Module, read: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (change(next(number), read[0]), *read[1:])

    handles = [matrix.register_forward_pre_hook(hook) for matrix in matrices]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
