"""A model as an ONNX graph, whose inputs and outputs are named as in Hugging Face's libraries.

    input_ids, attention_mask (, token_type_ids)  ->  last_hidden_state (, pooler_output), or the logits of its heads

The graph runs on a padded rectangle of any batch size and length. Packed batches have no ONNX form.

B sequences · S longest sequence · C choices of a question
"""

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bertie import EncoderConfig
from bertie.platform import ModelInternals, TorchModel, UsageError, console

if TYPE_CHECKING:
    import onnx_ir

_MAX_SEQUENCES = 1 << 16


@console.working("tracing the graph")
def traced(model: TorchModel) -> "onnx_ir.Model":
    """Returns the graph of a model in evaluation mode, with its signature in the metadata.

    Raises UsageError with the reason if the model cannot be exported.
    """
    family = model.variant.model_type if model.variant else "model"
    graph = ModelInternals(model.eval()).graph()
    example, axes = _example(graph.inputs, model.config, choices=graph.choices)
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
    graph_model: onnx_ir.Model = program.model
    for (
        graph_input
    ) in graph_model.graph.inputs:  # where a trace fails, torch.onnx tries another one, which fixes the sizes
        if graph_input.shape is not None and any(isinstance(size, int) for size in graph_input.shape):
            raise UsageError(
                f"This {family} cannot be exported to ONNX: the graph would only read texts of one length."
            )
    _forget(graph_model)
    graph_model.metadata_props.update(graph.metadata)
    return graph_model


def _forget(model: "onnx_ir.Model") -> None:
    """Removes the exporter's notes, which contain source paths of this machine."""
    from onnx_ir.passes.common import ClearMetadataAndDocStringPass

    ClearMetadataAndDocStringPass()(model)
    model.metadata_props.clear()


def _example(
    inputs: Sequence[str], config: EncoderConfig, *, choices: bool
) -> tuple[dict[str, Tensor], dict[str, object]]:
    """Returns a batch of two to trace with, and its dynamic axes."""
    shape: tuple[int, ...] = (2, 9)
    axes: dict[int, object] = {
        0: torch.export.Dim("batch_size", min=1, max=_MAX_SEQUENCES),
        1: torch.export.Dim("sequence_length", min=1, max=config.max_length),
    }
    if choices:
        shape = (2, 3, 9)
        axes = {0: axes[0], 1: torch.export.Dim("num_choices", min=1, max=256), 2: axes[1]}
    mask = torch.ones(shape, dtype=torch.int64)
    mask[-1, ..., 6:] = 0
    example = {name: torch.zeros(shape, dtype=torch.int64) for name in inputs}
    example["input_ids"] += min(5, config.vocab_size - 1)
    example["attention_mask"] = mask
    return example, {name: dict(axes) for name in inputs}


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
