"""Models that an objective reads, such as a teacher: on a CPU, in the native library where it supports them."""

from typing import Any

import torch
from torch import Tensor, nn

from bertie import families
from bertie.data.sequences import Sequences
from bertie.infer.native_engine import NativeEngine, unsupported
from bertie.models.encoder import EncoderOutput
from bertie.models.model import TorchModel
from bertie.nn.layout import Layout, Packed
from bertie.runs.models import model_folder
from bertie.text.tokenizer import Tokenizer


def open_teacher(folder: str, *, states_only: bool = False, device: torch.device) -> TorchModel:
    """Opens a model by its name or folder.

    states_only: with its tokenizer. On a CPU, the native library then runs the encoder: 1.3 times as fast as torch in
    float32, 2.5 times with int8 weights (benchmarks/log/pre-training-results.md).
    """
    path = model_folder(folder)
    model, _ = families.load(path)
    if not states_only:
        return model
    model.tokenizer = Tokenizer.load(path)
    if device.type == "cpu" and unsupported(model) is None:
        try:
            model.encoder = NativeStates(model)
        except (OSError, ValueError):  # the library is not available here
            return model
    return model


class NativeStates(nn.Module):
    """A frozen encoder in the native library, as a module for packed batches. It has no gradient."""

    def __init__(self, model: TorchModel) -> None:
        super().__init__()
        self.config, self.embeddings = model.config, model.encoder.embeddings
        inner = TorchModel(model.encoder, variant=model.variant, public=model.public)
        inner.packed = model.packed
        self._engine = NativeEngine(inner, "int8" if model.int8 else "fp32")
        self.compute_dtype: torch.dtype | None = None

    def forward(self, input_ids: Tensor, token_type_ids: Tensor | None, layout: Layout, **flags: Any) -> EncoderOutput:
        """Returns the last hidden states (T, H) of a packed batch."""
        if not isinstance(layout, Packed) or flags:
            output: EncoderOutput = self._engine.model.encoder(input_ids, token_type_ids, layout, **flags)
            return output
        types = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        lengths = layout.cu_seqlens.diff().long()
        ids = Sequences(input_ids.numpy(), types.numpy(), lengths.numpy())
        hidden = self._engine.run(ids, ["last_hidden_state"])["last_hidden_state"]
        return EncoderOutput(last_hidden_state=torch.from_numpy(hidden), layout=layout)
