"""`ModelInternals`: what is inside a model in torch, for those who explain it, probe it, or change it as it runs."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from bertie import families
from bertie.compression.importance import Importance, without_heads
from bertie.data.batch import Batch
from bertie.data.sequences import Int, Sequences
from bertie.errors import UsageError
from bertie.infer.choose import engine_of
from bertie.infer.engine import Engine, check_names
from bertie.infer.layers import Chunk, token_vectors
from bertie.infer.onnx_engine import METADATA_KEY, Signature
from bertie.infer.pipeline import TextPipeline
from bertie.infer.predict import Predictor
from bertie.io.tables import Example
from bertie.models.biaffine import LAST
from bertie.models.encoder import EncoderOutput
from bertie.models.facts import OF_ENCODER, Facts
from bertie.models.heads.token import with_last_pieces
from bertie.models.heads.vocabulary import VocabularyHead
from bertie.models.kinds import Alternating, Full, Recurrent
from bertie.models.loss import LossTerm
from bertie.models.model import TorchModel
from bertie.nn.layout import Padded
from bertie.objectives import MaskedLM
from bertie.tasks.capabilities import Spans
from bertie.tasks.parse import word_places
from bertie.tasks.span import SpanTask
from bertie.text.encoding import Encoding
from bertie.text.tokenizer import Tokenizer

_SINGLE_HEAD_OUTPUTS = {"span": ("start_logits", "end_logits")}
"""Output names of a model with one head. The default is `logits`."""
TOGETHER = {"mlm": "prediction_logits", "pair": "seq_relationship_logits"}
"""Output names of a model with several heads, as in BertForPreTraining. The default is `<head>_logits`."""
NO_GRAPH = {
    "decoder": "a decoder writes its answer token by token, which one graph cannot",
    "plm": "its answers depend on a random order of the tokens",
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


class ModelInternals:
    """The inside of a model: the output of its encoder, vectors and attention of its layers, and its heads.

    B sequences · S tokens
    """

    def __init__(self, model: TorchModel) -> None:
        self.model = model

    @classmethod
    def untrained(cls, preset: str, tokenizer: Tokenizer, *, seed: int = 0) -> TorchModel:
        """Returns a masked language model with random weights, in evaluation mode."""
        heads = MaskedLM().heads
        model = families.build(preset, heads=heads, seed=seed, vocab_size=tokenizer.vocab_size).eval()
        model.tokenizer = tokenizer
        return model

    @property
    def facts(self) -> Facts:
        """The properties of the model."""
        return Facts.of(self.model)

    @property
    def pipeline(self) -> TextPipeline:
        """What reads texts for the model, and makes answers of its arrays. Raises UsageError without a tokenizer."""
        return TextPipeline.of(self.facts, self.model.text_tokenizer)

    def engine(self, name: str = "torch") -> Engine:
        """Returns the engine that runs the model, by default the model itself. See `engine_of`."""
        return engine_of(self.model, check_names("fp32", name))

    def predictor(self, max_length: int | None = None) -> Predictor:
        """Returns what predicts with the model itself, so that changes of it are seen."""
        return Predictor(self.engine(), self.model.tokenizer, max_length=max_length)

    def predicts_tokens(self, head: str) -> bool:
        """Returns whether a head predicts tokens of the vocabulary."""
        return isinstance(self.model.heads[head], VocabularyHead)

    def token_logits(self, head: str, hidden: Tensor) -> Tensor:
        """Returns the logits of a head over the vocabulary (..., V) for hidden states (..., H)."""
        return self.model.vocabulary_head(head).logits(hidden, self.model.word_embeddings)

    def best_span(self, starts_S: NDArray[np.float32], ends_S: NDArray[np.float32]) -> tuple[int, int]:
        """Returns the first and the last token of the best answer, as the task of the model chooses it."""
        task = self.pipeline.task_or_none
        return (task if isinstance(task, Spans) else SpanTask()).best(starts_S, ends_S)

    def token_vectors(self, texts: Iterable[str | None], layers: Sequence[int]) -> Iterator[Chunk]:
        """Yields the vectors of all tokens of texts after some layers. See `token_vectors`."""
        engine = self.engine()
        return token_vectors(engine, self.model.text_tokenizer, texts, layers, max_length=engine.facts.max_length)

    def word_places(self, examples: Sequence[Example], *, max_length: int) -> tuple[Sequences, Int, Int]:
        """Returns the token ids of sentences, and the first and the last token of each word. See `word_places`."""
        return word_places(examples, self.model.text_tokenizer, max_length=max_length)

    def graph(self) -> GraphModel:
        """Returns the model as a function that an export traces. Raises UsageError where it cannot be exported."""
        if reason := GraphModel.refusal(self.model):
            family = self.model.variant.model_type if self.model.variant else "model"
            raise UsageError(f"This {family} cannot be exported to ONNX: {reason}.")
        return GraphModel(self.model)

    def importance(self, examples: Sequence[Example], *, max_length: int) -> Importance:
        """Returns the importance of the attention heads for labeled examples. Raises DataError if there are none."""
        task, tokenizer = self.pipeline.task, self.model.text_tokenizer
        return Importance.for_task(self.model, task, examples, tokenizer, max_length=max_length)

    def without_heads(self, heads: Iterable[tuple[int, int]]) -> AbstractContextManager[None]:
        """Context in which the output of some heads, pairs (layer, head) from 0, is zero."""
        return without_heads(self.model, heads)

    def masked(self, encoding: Encoding, seed: int) -> Batch:
        """Returns the batch of one text as a masked language model reads it in pre-training, (1, S)."""
        return MaskedLM().sample(encoding, self.model.text_tokenizer, seed)

    def masked_loss(self, output: EncoderOutput, batch: Batch) -> LossTerm:
        """Returns the loss of masked tokens, as in pre-training."""
        return MaskedLM().loss(self.model, output, batch)["mlm"]
