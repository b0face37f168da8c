"""Pruning: removes layers, and the attention heads and feed-forward neurons that matter least.

    labeled batches -> importance of each head and neuron, second moments of their outputs
                    -> the same number kept in every layer -> smaller matrices, refitted by least squares

Every layer keeps the same number, so a config can describe the model: `intermediate_size` for neurons,
`num_hidden_layers` for layers, `num_attention_heads` with `attention_head_size` for heads. The Hugging Face format has
no key for the last one, so only Bertie opens such a folder, and its model card says so.

Importance: Michel et al. 2019, 2.3, the mean over examples of |dL / dxi|, where xi is a factor on a head's output.
Refitting: Kwon et al. 2022, 4.3.

T tokens · B sequences · L layers · N heads of D · I neurons · K features a matrix reads
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from bertie.data.batch import Batch
from bertie.data.tables import Example
from bertie.errors import DataError, UsageError
from bertie.models.encoder import Encoder
from bertie.models.kinds import Full, Residual, Unshared
from bertie.models.model import Model
from bertie.models.surgery import rebuilt, take_layers
from bertie.nn.layer import Layer
from bertie.nn.layout import Packed
from bertie.tasks import Task
from bertie.tasks.source import TaskSource
from bertie.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from bertie.train.base import Trainable

JUDGED, BATCH = 1024, 32  # examples that say what matters
DAMPING = 1e-3  # of the least squares: of the mean of the diagonal
PARTS = ("attention.output", "down")  # the matrices of a layer that read heads and neurons


@dataclass
class Seen:
    """Statistics of the inputs of one matrix. importance (K,): sum over sequences of |sum over tokens of x dL/dx|, by
    feature or by head; moments (K + 1, K + 1): sum over tokens of x x^T, with a 1 appended to x.
    """

    importance: Tensor
    moments: Tensor
    tokens: int = 0


@dataclass
class Importance:
    """The result of `importance`, by layer and part."""

    seen: dict[tuple[int, str], Seen] = field(default_factory=dict)

    def kept(self, layer: int, part: str, count: int) -> Tensor:
        """Returns the most important ones in ascending order. -> (count,) int64"""
        return self.seen[layer, part].importance.topk(count).indices.sort().values


def spread(layers: int, kept: int) -> list[int]:
    """Returns evenly spread layers with the first and the last. 6 of 12: 0 2 4 7 9 11, as in DistilBERT."""
    if not 1 <= kept <= layers:
        raise UsageError(f"{kept} layers cannot be kept of {layers}.")
    return [round(i * (layers - 1) / (kept - 1)) for i in range(kept)] if kept > 1 else [0]


def prune(
    model: Model,
    *,
    layers: int | None = None,
    heads: int | None = None,
    neurons: int | None = None,
    learner: "Trainable | None" = None,
    batches: Sequence[Batch] = (),
) -> Model:
    """Returns a new model with fewer layers, heads per layer and neurons per layer.

    learner, batches: labeled examples to measure importance with; layers need none. Raises UsageError for a model that
    cannot be pruned, or for more than it has.
    """
    if layers is not None:
        model = take_layers(model, spread(model.config.num_hidden_layers, layers))
    if heads is None and neurons is None:
        return model
    _check(model, heads, neurons)
    if learner is None or not batches:
        raise UsageError("Heads and neurons are chosen with labeled examples. Pass a file of them: --train FILE.")
    found = importance(model, learner, batches)
    config, state = model.config, {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for number in range(config.num_hidden_layers):
        base = f"encoder.layers.{number}."
        if heads is not None:
            chosen = found.kept(number, PARTS[0], heads)
            features = (chosen[:, None] * config.head_size + torch.arange(config.head_size)).flatten()
            _narrow(state, f"{base}attention.qkv", torch.cat([features + i * config.attention_size for i in range(3)]))
            _refit(state, f"{base}attention.output", features, found.seen[number, PARTS[0]])
        if neurons is not None:
            chosen = found.kept(number, PARTS[1], neurons)
            _narrow(state, f"{base}up", chosen)
            _refit(state, f"{base}down", chosen, found.seen[number, PARTS[1]])
    changes: dict[str, object] = {} if neurons is None else {"intermediate_size": neurons}
    if heads is not None and heads < config.num_attention_heads:
        changes |= {"attention_head_size": config.head_size, "num_attention_heads": heads}
    return rebuilt(model, config.replace(**changes), state)


def judged(
    task: Task, examples: Sequence[Example], tokenizer: Tokenizer, *, max_length: int, most: int = JUDGED
) -> list[Batch]:
    """Returns batches of the first labeled examples. Raises DataError if there are none."""
    known = [example for example in examples if example.label is not None][:most]
    if not known:
        raise DataError("The examples have no labels, which pruning needs. Name the column of the labels: --label.")
    encoded = task.encode(known, tokenizer, max_length=max_length, too_long="truncate")
    targets = task.targets(known, encoded)
    source = TaskSource(encoded, targets, batch_size=BATCH, micro_batch_size=None, seed=0)
    return [batch for step in range(max(1, len(known) // BATCH)) for batch in source.batches(step)]


def _check(model: Model, heads: int | None, neurons: int | None) -> None:
    config = model.config
    plain = type(model.encoder) is Encoder and isinstance(config.layer, Residual) and isinstance(config.attention, Full)
    gated = any(getattr(layer, "gated", False) for layer in model.encoder.in_order()) if plain else False
    if not plain or gated or not isinstance(config.sharing, Unshared) or config.positions.kind == "relative":
        raise UsageError(
            "Heads and neurons of this model cannot be pruned. BERT-shaped encoders with full attention and layers of "
            "their own can."
        )
    for name, asked, most in (
        ("heads", heads, config.num_attention_heads),
        ("neurons", neurons, config.intermediate_size),
    ):
        if asked is not None and not 1 <= asked <= most:
            raise UsageError(f"{asked:,} {name} cannot be kept: each layer has {most:,}.")
    if heads is not None and config.hidden_size % heads:
        able = ", ".join(str(n) for n in range(1, config.num_attention_heads + 1) if not config.hidden_size % n)
        raise UsageError(
            f"{heads} heads cannot be kept: config.json must have a number that divides the width of the model, "
            f"{config.hidden_size}. Choose one of {able}."
        )


def importance(model: Model, learner: "Trainable", batches: Iterable[Batch]) -> Importance:
    """Measures the importance of heads and neurons for the loss of labeled, packed batches, without dropout."""
    found = Importance()
    heads = model.config.num_attention_heads
    with _watched(model) as inputs:
        for batch in batches:
            batch = batch.to(model.device)
            output = learner.forward(model, batch)
            report = learner.loss(model, output, batch)
            means = [term.weight * term.total / max(1, term.count) for term in report.values()]
            torch.stack(means).sum().backward()  # type: ignore[no-untyped-call]
            assert isinstance(batch.layout, Packed)
            lengths = batch.layout.lengths
            sequence_T = torch.repeat_interleave(torch.arange(len(lengths), device=lengths.device), lengths)
            for (layer, part), x in inputs.items():
                assert x.grad is not None
                x_TK, grad_TK = x.detach()[: len(sequence_T)], x.grad[: len(sequence_T)]
                felt_TK = x_TK * grad_TK
                if part == PARTS[0]:
                    felt_TK = felt_TK.view(len(felt_TK), heads, -1).sum(2)
                felt_BK = felt_TK.new_zeros(len(lengths), felt_TK.shape[1]).index_add_(0, sequence_T, felt_TK)
                _add(found, (layer, part), felt_BK.abs().sum(0), x_TK)
            inputs.clear()
    return found


def _add(found: Importance, key: tuple[int, str], felt_K: Tensor, x_TK: Tensor) -> None:
    ones_TK = torch.cat([x_TK, x_TK.new_ones(len(x_TK), 1)], 1).float()
    moments = ones_TK.T @ ones_TK
    if key not in found.seen:
        found.seen[key] = Seen(felt_K.cpu(), moments.cpu(), len(x_TK))
    else:
        seen = found.seen[key]
        seen.importance, seen.moments = seen.importance + felt_K.cpu(), seen.moments + moments.cpu()
        seen.tokens += len(x_TK)


@contextmanager
def _watched(model: Model) -> Iterator[dict[tuple[int, str], Tensor]]:
    """Records the inputs of the matrices in PARTS with their gradients. Weights get no gradients."""
    inputs: dict[tuple[int, str], Tensor] = {}

    def keep(layer: int, part: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def hook(module: nn.Module, read: tuple[Tensor, ...]) -> None:
            read[0].retain_grad()
            inputs[layer, part] = read[0]

        return hook

    trained = {name: one.requires_grad for name, one in model.named_parameters()}
    was_training, handles = model.training, []
    try:
        model.eval().requires_grad_(False)
        for name, one in model.encoder.embeddings.named_parameters():  # so that gradients pass through them
            one.requires_grad_(name != "word.weight")
        for number, layer in enumerate(model.encoder.in_order()):
            assert isinstance(layer, Layer)
            for part in PARTS:
                handles.append(layer.get_submodule(part).register_forward_pre_hook(keep(number, part)))
        yield inputs
    finally:
        for handle in handles:
            handle.remove()
        for name, one in model.named_parameters():
            one.requires_grad_(trained[name])
            one.grad = None
        model.train(was_training)


def _narrow(state: dict[str, Tensor], name: str, rows: Tensor) -> None:
    """Keeps some outputs of a matrix."""
    for end in ("weight", "bias"):
        if f"{name}.{end}" in state:
            state[f"{name}.{end}"] = state[f"{name}.{end}"][rows].contiguous()


def _refit(state: dict[str, Tensor], name: str, columns: Tensor, seen: Seen) -> None:
    """Keeps some inputs of a matrix, and fits weights and bias so that its outputs change least."""
    weight, bias = state[f"{name}.weight"], state.get(f"{name}.bias")
    read = torch.cat([columns, torch.tensor([weight.shape[1]])]) if bias is not None else columns
    moments = seen.moments.double() / seen.tokens
    inner = moments[read][:, read]
    pull = DAMPING * inner.diag().mean()  # towards the weights there were
    whole = weight.double() if bias is None else torch.cat([weight, bias[:, None]], 1).double()
    outputs = whole @ moments[: whole.shape[1]][:, read] + pull * whole[:, read]
    fitted = torch.linalg.solve(inner + pull * torch.eye(len(inner)), outputs.T).T.float()
    state[f"{name}.weight"] = (fitted if bias is None else fitted[:, :-1]).contiguous()
    if bias is not None:
        state[f"{name}.bias"] = fitted[:, -1].contiguous()
