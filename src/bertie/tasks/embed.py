"""Sentence embeddings: a vector for each text, so that texts with similar meanings are close. Reimers and Gurevych
2019.

    [CLS] text [SEP] -> encoder -> pooling: the mean of the tokens, the first token, or the maximum -> vector

There is no head: only the encoder is trained, on pairs of texts. The loss "cosine" trains the cosine of a pair to equal
its label. "contrastive" uses the other pairs of the batch as negatives (Henderson et al. 2017, 4.4). The folder opens
in `sentence-transformers`, and folders of `sentence-transformers` open here.

E examples · W sequences, one or two per example · P pairs of a batch · H hidden size
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from bertie.data.tables import Example
from bertie.errors import DataError, UsageError
from bertie.files import read_json
from bertie.metrics.base import Scores
from bertie.metrics.numbers import Numbers
from bertie.models.config import EncoderConfig
from bertie.models.facts import Facts
from bertie.tasks.answerer import Logits, Prediction
from bertie.tasks.arrays import unit
from bertie.tasks.base import Task
from bertie.tasks.regression import RegressionTask
from bertie.tasks.render import RenderedExample, numbers
from bertie.tasks.source import Encoded, Targets, TooLong, encode
from bertie.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor, nn

    from bertie.data.batch import Batch
    from bertie.models.encoder import EncoderOutput
    from bertie.models.loss import LossReport
    from bertie.models.model import Model

MODULES, POOLING, LENGTH = "modules.json", "1_Pooling/config.json", "sentence_bert_config.json"
MODES = {"mean": "mean_tokens", "cls": "cls_token", "max": "max_tokens"}
Pooling = Literal["mean", "cls", "max"]


@dataclass(frozen=True)
class EmbedTask(Task):
    """Computes a vector for each text. The prediction for a pair is the cosine.

    Attributes:
        pooling: How the vectors of the tokens are combined: mean, cls or max.
        loss: cosine or contrastive.
        highest: The label of a pair with the same meaning, by default the maximum in training. Contrastive training
            uses
            the pairs from 0.8 of it as positives.
        scale: Factor of the cosines before the softmax of contrastive training.
        normalize: Whether vectors have length 1.
    """

    pooling: Pooling = "mean"
    loss_kind: Literal["cosine", "contrastive"] = "cosine"
    highest: float = 1.0
    scale: float = 20.0
    normalize: bool = False

    head = "embed"
    command = "embed"
    metrics = ("spearman", "pearson")
    baselines = ("overlap",)

    example = RegressionTask.example

    @classmethod
    def from_examples(cls, examples: Sequence[Example], names: tuple[str, ...], options: Mapping[str, Any]) -> Self:
        """Returns the task. The maximum label means the same text. Raises DataError for single texts, or no label
        above 0."""
        if any(len(example.texts) != 2 for example in examples):
            raise DataError(
                "Embeddings are trained on pairs of texts, but the examples have one text. Pass "
                "both columns with --text."
            )
        highest = max(float(example.label) for example in examples)
        if highest <= 0:
            raise DataError("No pair has a label above 0, so no texts are similar.")
        return cls.make((), {"highest": highest, **options})

    @property
    def output(self) -> str:
        """The vectors, pooled by the engine."""
        return self.pooling

    def heads(self, config: EncoderConfig) -> "dict[str, nn.Module]":
        """Returns no head, since the vectors are the encoder's."""
        return {}

    def encode(
        self, examples: Sequence[Example], tokenizer: Tokenizer, *, max_length: int, too_long: TooLong
    ) -> Encoded:
        """Returns each text as a separate sequence. Raises UsageError for windows: a text has one vector."""
        if too_long == "window":
            raise UsageError("Embeddings do not support windows. Choose too_long=truncate or too_long=error.")
        texts = [Example((text,)) for example in examples for text in example.texts]
        found = encode(texts, tokenizer, max_length=max_length, too_long=too_long)
        return found.grouped([len(example.texts) for example in examples])

    def targets(self, examples: Sequence[Example], encoded: Encoded) -> Targets:
        """Returns "alike" (W,) float32: the pair's label relative to the maximum, for both of its sequences."""
        alike_E = np.array([float(example.label or 0) / self.highest for example in examples], np.float32)
        return Targets(sequence={"alike": alike_E[encoded.example]})

    def counts(self, batch: "Batch") -> dict[str, int]:
        """Returns the number of pairs in the loss."""
        alike_P = batch.labels["alike"][::2]
        return {self.loss_kind: int((alike_P >= 0.8).sum()) if self.loss_kind == "contrastive" else len(alike_P)}

    def logits(self, model: "Model", output: "EncoderOutput") -> "Tensor":
        """Returns the vectors of the texts. -> (B, H)"""
        from bertie.models.pooling import pool

        return pool(output, self.pooling)

    def losses(self, logits: "Tensor", batch: "Batch") -> "LossReport":
        """Returns the loss. logits (B, H), with the texts of a pair in consecutive rows; reads the label "alike"."""
        import torch
        from torch import nn

        from bertie.models.loss import LossTerm
        from bertie.nn.loss import right

        if len(logits) == 0:
            return {self.loss_kind: LossTerm(logits.sum(), 0)}
        first_PH, second_PH = nn.functional.normalize(logits, dim=-1).view(-1, 2, logits.shape[-1]).unbind(1)
        alike_P, count = batch.labels["alike"][::2], self.counts(batch.host)[self.loss_kind]
        if self.loss_kind == "cosine":
            error_P = ((first_PH * second_PH).sum(-1) - alike_P) ** 2
            return {"cosine": LossTerm(error_P.sum(), count)}
        scores_PP = self.scale * first_PH @ second_PH.T
        own_P = torch.arange(len(scores_PP), device=logits.device)
        loss_P = nn.functional.cross_entropy(scores_PP, own_P, reduction="none")
        together_P = (alike_P >= 0.8).float()
        correct = (together_P * right(scores_PP, own_P)).sum()
        return {"contrastive": LossTerm((together_P * loss_P).sum(), count, correct.detach())}

    def decode(self, logits: Logits, encoded: Encoded, examples: Sequence[Example]) -> list[Prediction]:
        """Returns the cosine of each pair, or the vector of a single text."""
        unit_WH = unit(logits)
        vectors_WH, answers = unit_WH if self.normalize else logits, []
        for number, example in enumerate(examples):
            at = int(encoded.windows[number])
            pair = len(example.texts) == 2
            answers.append(Prediction(float(unit_WH[at] @ unit_WH[at + 1]) if pair else vectors_WH[at].tolist()))
        return answers

    def scores(self) -> Scores:
        """Returns a counter of labels and cosines."""
        return Numbers()

    def error_score(self, example: Example, prediction: Prediction) -> float:
        """Returns the difference between the cosine and the relative label."""
        return abs(float(prediction.label) - float(example.label) / self.highest)

    @classmethod
    def sample(cls, texts: int) -> str:
        """Returns one text, since a trained model is used for single texts."""
        return super().sample(1)

    def render(self, example: Example, prediction: Prediction) -> RenderedExample:
        """Renders the label and the cosine."""
        return numbers(example.texts, float(example.label), prediction.label, self.error_score(example, prediction))

    def scatter_point(self, example: Example, prediction: Prediction) -> tuple[float, float]:
        """Returns the relative label and the cosine."""
        return float(example.label) / self.highest, float(prediction.label)

    @classmethod
    def of_model(cls, facts: Facts, settings: Mapping[str, Any]) -> Self | None:
        """Returns the task only where the folder names it, since every encoder has vectors."""
        return cls.make((), settings) if settings and not facts.heads else None

    def files(self, config: EncoderConfig, max_length: int) -> dict[str, Any]:
        """Returns the files that `sentence-transformers` reads in addition to the model."""
        modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
        modules += [("2_Normalize", "Normalize")] if self.normalize else []
        kind = "sentence_transformers.models"
        return {
            MODULES: [
                {"idx": n, "name": str(n), "path": path, "type": f"{kind}.{name}"}
                for n, (path, name) in enumerate(modules)
            ],
            POOLING: {
                "word_embedding_dimension": config.hidden_size,
                **{f"pooling_mode_{public}": mode == self.pooling for mode, public in MODES.items()},
            },
            LENGTH: {"max_seq_length": max_length, "do_lower_case": False},
        }


def of_folder(folder: Path) -> tuple[EmbedTask, int | None]:
    """Returns the task and the maximum length of a folder of `sentence-transformers`; mean pooling for other folders.

    Raises DataError for an unknown pooling or module.
    """
    if not (folder / MODULES).exists():
        return EmbedTask(), None
    kinds = [str(module.get("type", "")).rpartition(".")[2] for module in read_json(folder / MODULES)]
    if unknown := set(kinds) - {"Transformer", "Pooling", "Normalize"}:
        raise DataError(f"{folder / MODULES} has modules that are not supported: {', '.join(sorted(unknown))}.")
    told = read_json(folder / POOLING)
    modes = {name for name, on in told.items() if name.startswith("pooling_mode") and on is True}
    modes |= {f"pooling_mode_{MODES.get(mode, mode)}" for mode in (told.get("pooling_mode"),) if isinstance(mode, str)}
    found = [mode for mode, public in MODES.items() if modes == {f"pooling_mode_{public}"}]
    if not found:
        raise DataError(
            f"{folder / POOLING}: pooling is {', '.join(sorted(modes)) or 'none'}. Known: {', '.join(MODES)}."
        )
    length = read_json(folder / LENGTH).get("max_seq_length") if (folder / LENGTH).exists() else None
    task = EmbedTask.make((), {"pooling": found[0], "normalize": "Normalize" in kinds})
    return task, length if isinstance(length, int) else None
