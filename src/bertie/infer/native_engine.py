"""The native engine: the encoder in C++ (native/), the heads in torch."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import is_not
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from bertie.infer.engine import Array, Facts
from bertie.infer.native.encoder import (
    EVERYWHERE,
    EncoderWeights,
    FloatLinear,
    Int8Linear,
    Keep,
    LayerWeights,
    NativeEncoder,
    NativeLinear,
    NativeNorm,
    NativePrecision,
)
from bertie.infer.native.fits import NATIVE_BATCH_TOKENS, misfit, positions_of, rows_read
from bertie.infer.native.library import open_library
from bertie.infer.torch_engine import TorchEngine
from bertie.models.encoder import Encoder, EncoderOutput, pick_summary
from bertie.models.facts import parse_layer_output
from bertie.models.int8 import Floats, Int8Weight
from bertie.models.layers import rotations
from bertie.models.model import TorchModel
from bertie.nn.layer import Layer
from bertie.nn.layout import Layout, Packed
from bertie.nn.rotary import TurnedAttention, turns
from bertie.text.sequences import Sequences

if TYPE_CHECKING:
    from bertie.models.batch import Batch


class NativeEngine(TorchEngine):
    """Runs the encoder of a model like BERT or ModernBERT in the native library, packed, without padding.

    Raises ValueError for a model that the library does not support (see `unsupported`), OSError where the library is
    not available.
    """

    name = "native"

    open_library = staticmethod(open_library)

    @staticmethod
    def unsupported(model: "TorchModel") -> str | None:
        """Returns why the native library cannot run a model's encoder, or None where it can."""
        return unsupported(model)

    def __init__(self, model: "TorchModel", precision: NativePrecision = "fp32", *, target: str | None = None) -> None:
        super().__init__(model)
        if reason := unsupported(model):
            raise ValueError(reason)
        is_int8 = model.int8 and precision == "int8" and target is None
        self.native = _encoder(model) if is_int8 else _built(model, precision, target)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles and copies the model. The library's own memory is filled again from its weights."""
        return type(self), (self.model, self.native.precision)

    @property
    def facts(self) -> Facts:
        """The facts of the model, with the precision of the native library."""
        precision = f"{self.native.precision} ({self.native.target})"
        return replace(super().facts, precision=precision, batch_tokens=NATIVE_BATCH_TOKENS)

    def run(self, ids: Sequences, outputs: Sequence[str]) -> Mapping[str, Array]:
        """The arrays of one batch, as `Engine.run` has them. Means need no torch, whose threads would spin beside."""
        if rows_read(self.model.config, outputs) == "means":
            return {"mean": self._states(ids, "means")}
        return super().run(ids, outputs)

    def _encode(self, batch: "Batch", ids: Sequences, outputs: Sequence[str]) -> EncoderOutput:
        """The output of all tokens, or of one row a sequence as if it had no other, where nothing else is read."""
        if any(parse_layer_output(name) is not None for name in outputs):
            return super()._encode(batch, ids, outputs)
        keep = "tokens" if ids.extra else rows_read(self.model.config, outputs)
        states = torch.from_numpy(self._states(ids, keep))
        layout = batch.layout if keep == "tokens" else Packed.from_lengths(torch.ones(len(ids), dtype=torch.long))
        pooled = self.model.encoder.pool(pick_summary(states, layout, last=False))
        return EncoderOutput(last_hidden_state=states, layout=layout, pooler_output=pooled)

    def _states(self, ids: Sequences, keep: Keep) -> Array:
        config = self.model.config
        self.model.encoder.check_length(int(ids.lengths.max(initial=0)))
        segments = ids.token_type_ids if config.type_vocab_size > 1 else None
        positions = positions_of(config, ids)
        return self.native.run(
            ids.input_ids, segments, positions, ids.lengths, threads=torch.get_num_threads(), keep=keep
        )


_INT8: Any = WeakIdKeyDictionary()
"""The encoders of loaded models, by their word embeddings, with the weights that each was built from."""


def _built(model: "TorchModel", precision: NativePrecision, target: str | None = None) -> NativeEncoder:
    return NativeEncoder(encoder_arrays(model.encoder, model.int8), precision, target=target)


def _encoder(model: "TorchModel") -> NativeEncoder:
    """Returns the encoder of a model with int8 weights, which is built once, and again after weights were changed."""
    weights = [one for one in model.encoder.parameters() if not one.is_inference()]
    state = [(one.data_ptr(), one._version) for one in weights], [*model.int8.values()]
    cached = _INT8.get(model.word_embeddings)
    if cached is None or cached[0][0] != state[0] or any(map(is_not, cached[0][1], state[1])):
        cached = _INT8[model.word_embeddings] = state, _built(model, "int8")
    native: NativeEncoder = cached[1]
    return native


def unsupported(model: "TorchModel") -> str | None:
    """Returns why the native library cannot run a model's encoder, or None where it can."""
    rules = {
        "its encoder has a class of its own": type(model.encoder) is Encoder,
        "it is not on the CPU": model.device.type == "cpu",
        "one of its heads reads all layers": not any(needs.hidden_states for needs in model.needs),
    }
    return next((reason for reason, fine in rules.items() if not fine), None) or misfit(model.config)


def encoder_arrays(encoder: Encoder, int8: Mapping[str, Int8Weight] = MappingProxyType({})) -> EncoderWeights:
    """Returns an encoder's weights as NumPy arrays. int8: the int8 weights, by the model's names."""
    names = {id(module): name for name, module in encoder.named_modules()}

    def linear(module: nn.Module) -> NativeLinear:
        weight = module.get_parameter("weight")
        bias = dict(module.named_parameters()).get("bias")
        bias_N = np.zeros(len(weight), np.float32) if bias is None else _array(bias)
        whole = int8.get(f"encoder.{names[id(module)]}.weight")
        return FloatLinear(_array(weight), bias_N) if whole is None else Int8Linear(whole, bias_N)

    positions = torch.arange(encoder.config.max_position_embeddings)
    tables: dict[float | None, Floats] = {
        theta: _array(torch.cat(turns(positions, encoder.config.head_size, theta), -1))
        for theta in rotations(encoder.config)
    }

    def layer_weights(layer: Layer) -> LayerWeights:
        attention = layer.attention
        theta, radius = (attention.theta, attention.radius) if isinstance(attention, TurnedAttention) else (None, None)
        return LayerWeights(
            qkv=linear(attention.get_submodule("qkv")),
            out=linear(attention.get_submodule("output")),
            up=linear(layer.rise),
            down=linear(layer.down),
            attention_norm=None if isinstance(layer.attention_norm, nn.Identity) else _norm(layer.attention_norm),
            output_norm=_norm(layer.output_norm),
            turns=tables.get(theta),
            radius=EVERYWHERE if radius is None else radius,
        )

    by_layer, layers = dict[int, LayerWeights](), []
    for layer in encoder.plain_layers():
        if id(layer) not in by_layer:
            by_layer[id(layer)] = layer_weights(layer)
        layers.append(by_layer[id(layer)])
    embeddings = encoder.embeddings
    return EncoderWeights(
        word=_array(embeddings.word.weight),
        position=None if embeddings.position is None else _array(embeddings.position.weight),
        segment=None if embeddings.segment is None else _array(embeddings.segment.weight),
        norm=_norm(embeddings.norm),
        projection=None if embeddings.projection is None else linear(embeddings.projection),
        layers=layers,
        num_heads=encoder.config.num_attention_heads,
        activation=encoder.config.hidden_act,
        eps=encoder.config.layer_norm_eps,
        final_norm=None if encoder.final_norm is None else _norm(encoder.final_norm),
    )


def _norm(norm: nn.Module) -> NativeNorm:
    weight, bias = _array(norm.get_parameter("weight")), dict(norm.named_parameters()).get("bias")
    return weight, np.zeros_like(weight) if bias is None else _array(bias)


def _array(tensor: torch.Tensor) -> Floats:
    return tensor.detach().float().cpu().numpy()


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
