"""`GraphModel`: a model in torch as a function of tensors, which an export traces."""

from dataclasses import replace

from torch import Tensor, nn

from bertie.infer.onnx_engine import METADATA_KEY, Signature
from bertie.models.biaffine import LAST
from bertie.models.encoder import EncoderOutput
from bertie.models.facts import OF_ENCODER, Facts
from bertie.models.heads.token import with_last_pieces
from bertie.models.kinds import Alternating, Full, Recurrent
from bertie.models.model import TorchModel
from bertie.nn.layout import Padded

_SINGLE_HEAD_OUTPUTS = {"span": ("start_logits", "end_logits")}
"""Output names of a model with one head. The default is `logits`."""
TOGETHER = {"mlm": "prediction_logits", "pair": "seq_relationship_logits"}
"""Output names of a model with several heads, as in BertForPreTraining. The default is `<head>_logits`."""
NO_GRAPH = {
    "decoder": "a decoder writes its answer token by token, which one graph cannot",
    "plm": "no token may attend to one that it predicts",
    "bilm": "its encoder reads letters",
}
"""Heads that cannot be exported, with the reason."""


class GraphModel(nn.Module):
    """A model as a function from tensors to a tuple of tensors, on a padded batch."""

    def __init__(self, model: TorchModel) -> None:
        super().__init__()
        self.model = model
        self.choices = tuple(model.heads) == ("choice",)
        names = ["input_ids", "attention_mask"]
        names += ["token_type_ids"] * (model.config.type_vocab_size > 1)
        self.inputs = (*names, *[LAST] * ("parse" in model.heads))
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
        columns: list[Tensor] = []
        for name in self.model.heads:
            logits = self.model.logits(name, output) if last is None else self._parsed(name, output, last)
            columns += logits.unbind(-1) if self._columns(name) else [logits]
        return tuple(x.view(*batch, *x.shape[1:]) for x in columns) if self.choices else tuple(columns)

    def _columns(self, name: str) -> bool:
        return len(self.signature.outputs[name]) > 1

    def _parsed(self, name: str, output: EncoderOutput, last: Tensor) -> Tensor:
        hidden = output.last_hidden_state
        tokens = replace(output, last_hidden_state=hidden.flatten(0, 1))
        logits = self.model.logits(name, with_last_pieces(tokens, last.flatten()))
        return logits.view(*hidden.shape[:2], *logits.shape[1:])

    @property
    def metadata(self) -> dict[str, str]:
        """What an exported graph says of itself."""
        return {METADATA_KEY: self.signature.as_json()}

    @classmethod
    def refusal(cls, model: TorchModel) -> str | None:
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
        if isinstance(model.config.layer, Recurrent) and model.config.num_hidden_layers:
            return "its layers read packed sequences (layer=recurrent)"
        if not isinstance(model.config.attention, Full | Alternating):
            return "its attention works in windows or blocks, whose number depends on the text"
        return None


def _signature(model: TorchModel) -> Signature:
    facts = Facts.of(model)
    heads = tuple(model.heads)
    outputs: dict[str, tuple[str, ...]] = {name: _SINGLE_HEAD_OUTPUTS.get(name, ("logits",)) for name in heads}
    if len(heads) > 1:
        outputs = {name: (TOGETHER.get(name, f"{name}_logits"),) for name in heads}
    of_encoder = dict(OF_ENCODER) if not heads else {}
    if not heads:
        outputs = {"last_hidden_state": ("last_hidden_state",), "pooler_output": ("pooler_output",)}
        if not model.config.pooler and model.config.pooler_dense:
            del outputs["pooler_output"], of_encoder["pooler_output"]
    facts = replace(facts, of_encoder=of_encoder, device="cpu", precision="float32 (ONNX Runtime)", layers=0)
    return Signature(facts, outputs, model.config.pad_token_id, model.config.summary_last)
