"""`ModelInternals`: what is inside a model in torch, for those who explain it, probe it, or change it as it runs."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from bertie.compression.importance import Importance, without_heads
from bertie.errors import UsageError
from bertie.infer.choose import engine_of
from bertie.infer.engine import Engine, check_names
from bertie.infer.graph_model import GraphModel
from bertie.infer.layers import Chunk, token_vectors
from bertie.infer.pipeline import TextPipeline
from bertie.infer.predict import Predictor
from bertie.io.tables import Example
from bertie.models import families
from bertie.models.batch import Batch
from bertie.models.encoder import EncoderOutput
from bertie.models.facts import Facts
from bertie.models.heads.vocabulary import VocabularyHead
from bertie.models.loss import LossTerm
from bertie.models.model import TorchModel
from bertie.objectives import MaskedLM
from bertie.tasks.capabilities import Spans
from bertie.tasks.parse import word_places
from bertie.tasks.span import SpanTask
from bertie.text.encoding import Encoding
from bertie.text.sequences import Int, Sequences
from bertie.text.tokenizer import Tokenizer


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
