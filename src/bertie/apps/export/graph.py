"""A model as an ONNX graph, whose inputs and outputs are named as in Hugging Face's libraries.

    input_ids, attention_mask (, token_type_ids)  ->  last_hidden_state (, pooler_output), or the logits of its heads

The graph runs on a padded rectangle of any batch size and length. Packed batches have no ONNX form.

B sequences · S longest sequence · C choices of a question · H hidden size · L outputs of a head
"""

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from bertie.platform import (
    LAST_PIECES,
    METADATA_KEY,
    Alternating,
    EncoderOutput,
    Facts,
    Full,
    Padded,
    Signature,
    TorchModel,
    UsageError,
    console,
    with_last_pieces,
)

if TYPE_CHECKING:
    import onnx_ir

ALONE = {"span": ("start_logits", "end_logits")}
"""Output names of a model with one head. The default is `logits`."""
TOGETHER = {"mlm": "prediction_logits", "pair": "seq_relationship_logits"}
"""Output names of a model with several heads, as in BertForPreTraining. The default is `<head>_logits`."""
MOST_SEQUENCES = 1 << 16
NO_GRAPH = {
    "decoder": "a decoder writes its answer token by token, which one graph cannot",
    "plm": "its answers depend on a random order of the tokens",
    "bilm": "its encoder reads letters",
}
"""Heads that cannot be exported, with the reason."""


class Graph(nn.Module):
    """A model as a function from tensors to a tuple of tensors, on a padded batch."""

    def __init__(self, model: TorchModel) -> None:
        super().__init__()
        self.model = model
        self.choices = tuple(model.heads) == ("choice",)
        names = ["input_ids", "attention_mask"]
        names += ["token_type_ids"] * (model.config.type_vocab_size > 1)
        self.inputs = (*names, *[LAST_PIECES] * ("parse" in model.heads))
        self.signature = _signature(model)
        self.outputs = tuple(name for names in self.signature.outputs.values() for name in names)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        token_type_ids: Tensor | None = None,
        last: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """Inputs (B, S) int64, or (B, C, S) for multiple choice -> the tensors named in `outputs`."""
        batch = input_ids.shape[:2]
        if self.choices:
            input_ids, attention_mask = input_ids.flatten(0, 1), attention_mask.flatten(0, 1)
            token_type_ids = None if token_type_ids is None else token_type_ids.flatten(0, 1)
        output = self.model.run_encoder(input_ids, token_type_ids, Padded(attention_mask))
        if not self.model.heads:
            pooled = () if output.pooler_output is None else (output.pooler_output,)
            return (output.last_hidden_state, *pooled)
        found: list[Tensor] = []
        for name in self.model.heads:
            logits = self.model.logits(name, output) if last is None else self._parsed(name, output, last)
            found += logits.unbind(-1) if self._columns(name) else [logits]
        return tuple(x.view(*batch, *x.shape[1:]) for x in found) if self.choices else tuple(found)

    def _columns(self, name: str) -> bool:
        return len(self.signature.outputs[name]) > 1

    def _parsed(self, name: str, output: EncoderOutput, last: Tensor) -> Tensor:
        hidden = output.last_hidden_state
        tokens = replace(output, last_hidden_state=hidden.flatten(0, 1))
        logits = self.model.logits(name, with_last_pieces(tokens, last.flatten()))
        return logits.view(*hidden.shape[:2], *logits.shape[1:])


def _signature(model: TorchModel) -> Signature:
    facts = Facts.of(model)
    heads = tuple(model.heads)
    outputs: dict[str, tuple[str, ...]] = {name: ALONE.get(name, ("logits",)) for name in heads}
    if len(heads) > 1:
        outputs = {name: (TOGETHER.get(name, f"{name}_logits"),) for name in heads}
    of_encoder = dict(Facts.OF_ENCODER) if not heads else {}
    if not heads:
        outputs = {"last_hidden_state": ("last_hidden_state",), "pooler_output": ("pooler_output",)}
        if not model.config.pooler and model.config.pooler_dense:
            del outputs["pooler_output"], of_encoder["pooler_output"]
    facts = replace(facts, of_encoder=of_encoder, device="cpu", precision="float32 (ONNX Runtime)", layers=0)
    return Signature(facts, outputs, model.config.pad_token_id, model.config.summary_last)


def refusal(model: TorchModel) -> str | None:
    """Returns why a model cannot be exported, as far as known before tracing, or None."""
    for name in model.heads:
        if name in NO_GRAPH:
            return f"{NO_GRAPH[name]} (head {name!r})"
        if name.startswith("features"):
            return f"its head reads packed sequences with an LSTM (head {name!r})"
    if model.config.feature_size is not None:
        return "it reads feature vectors, and a graph reads token ids. bertie predict runs it in PyTorch"
    if model.config.heads.label.label_lstm and model.heads:
        return "its head reads packed sequences with an LSTM (label_lstm)"
    if not isinstance(model.config.attention, Full | Alternating):
        return "its attention works in windows or blocks, whose number depends on the text"
    return None


@console.working("tracing the graph")
def traced(model: TorchModel) -> "onnx_ir.Model":
    """Returns the graph of a model in evaluation mode, with its signature in the metadata.

    Raises UsageError with the reason if the model cannot be exported.
    """
    family = model.variant.model_type if model.variant else "model"
    if reason := refusal(model):
        raise UsageError(f"This {family} cannot be exported to ONNX: {reason}.")
    graph = Graph(model.eval())
    example, axes = _example(graph)
    try:
        with torch.no_grad(), _silent():
            program = torch.onnx.export(
                graph,
                kwargs=example,
                dynamo=True,
                input_names=list(graph.inputs),
                output_names=list(graph.outputs),
                dynamic_shapes=axes,
                verbose=False,
            )
    except (torch.onnx.OnnxExporterError, RuntimeError, ValueError) as error:
        cause = error.__cause__ or error
        reason = f"{type(cause).__name__}, {str(cause).strip().splitlines()[0][:200]}"
        raise UsageError(f"This {family} cannot be exported to ONNX. torch.export cannot trace it: {reason}") from error
    assert program is not None
    found: onnx_ir.Model = program.model
    for given in found.graph.inputs:  # where a trace fails, torch.onnx tries another one, which fixes the sizes
        if given.shape is not None and any(isinstance(size, int) for size in given.shape):
            raise UsageError(
                f"This {family} cannot be exported to ONNX: the graph would only read texts of one length."
            )
    _forget(found)
    found.metadata_props[METADATA_KEY] = graph.signature.as_json()
    return found


def _forget(model: "onnx_ir.Model") -> None:
    """Removes the exporter's notes, which contain source paths of this machine."""
    from onnx_ir.passes.common import ClearMetadataAndDocStringPass

    ClearMetadataAndDocStringPass()(model)
    model.metadata_props.clear()


def _example(graph: Graph) -> tuple[dict[str, Tensor], dict[str, object]]:
    """Returns a batch of two to trace with, and its dynamic axes."""
    shape: tuple[int, ...] = (2, 9)
    axes: dict[int, object] = {
        0: torch.export.Dim("batch_size", min=1, max=MOST_SEQUENCES),
        1: torch.export.Dim("sequence_length", min=1, max=graph.model.config.max_length),
    }
    if graph.choices:
        shape = (2, 3, 9)
        axes = {0: axes[0], 1: torch.export.Dim("num_choices", min=1, max=256), 2: axes[1]}
    mask = torch.ones(shape, dtype=torch.int64)
    mask[-1, ..., 6:] = 0
    example = {name: torch.zeros(shape, dtype=torch.int64) for name in graph.inputs}
    example["input_ids"] += min(5, graph.model.config.vocab_size - 1)
    example["attention_mask"] = mask
    return example, {name: dict(axes) for name in graph.inputs}


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Hides the messages of the exporter. Its errors contain what matters."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
