"""Classification from a few examples of each label: contrastive training, then logistic regression.

    texts of a batch -> vectors -> cosines of all pairs: 1 for the same label, 0 for another
    vectors of all training texts -> logistic regression -> the classifier's weights

Tunstall et al. 2022 (SetFit). They draw pairs, and each pair is read by itself. Here a text is read once a step and is
compared with all others of its micro-batch, which gives more pairs for the same computation. The result is a usual
classifier on the pooled vector.

B sequences of a batch · W of all examples · H hidden size · L labels
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, get_args

import numpy as np

from bertie.errors import DataError
from bertie.files import JsonObject
from bertie.io.tables import Example
from bertie.models.config import EncoderConfig
from bertie.models.loss import LossReport, LossTerm
from bertie.models.sentence import SentenceModules
from bertie.tasks.embed import EmbedTask, Pooling
from bertie.tasks.sequence import SequenceTask
from bertie.tasks.source import Targets, batch_of_examples
from bertie.text.sequences import Sequences

if TYPE_CHECKING:
    from torch import Tensor, nn

    from bertie.models.batch import Batch
    from bertie.models.encoder import EncoderOutput
    from bertie.models.model import TorchModel

_BATCH_SEQUENCES = 64  # sequences in a forward pass of the regression's vectors
_STRENGTH = 1.0  # inverse of the regression's penalty: scikit-learn's default, as SetFit has it
LABEL_POOLING = {"cls": "first", "max": "max", "last": "last", "mean": "mean"}  # of a sentence model -> of a classifier


@dataclass(frozen=True)
class FewShotTask(SequenceTask):
    """One of `labels` for each sequence, learned from pairs of the same and of different labels."""

    saved_as = "sequence"
    reads_vectors = False
    honours = frozenset({"optimize", "costs", "calibrate", "abstain", "coverage", "markup"})

    @property
    def least_batch(self) -> int:
        """One more than there are labels, so that two sequences have the same label."""
        return len(self.labels) + 1

    def check(self, train: Sequence[Example], remedy: str = "") -> None:
        """Raises DataError for a label without two examples, since pairs of the same label need two."""
        counts = Counter(example.label for example in train)
        if rare := [f"{label!r} has {counts[label]}" for label in self.labels if counts[label] < 2]:
            raise DataError(
                f"Few-shot training needs two examples of each label at least: {', '.join(rare[:10])}. Add examples of "
                f"these labels{', or ' * bool(remedy)}{remedy}."
            )

    def continued(self, sentence: SentenceModules, explicit: Collection[str] = ()) -> tuple[Self, list[str]]:
        """Returns the task itself, and a note of the start model's settings that the classifier does not continue."""
        others = {
            "pooling": sentence.pooling and (len(sentence.pooling) > 1 or sentence.pooling[0] not in LABEL_POOLING),
            "default prompt": sentence.default_prompt,
            "Dense modules": sentence.dense,
            "truncate_dim": sentence.truncate_dim,
        }
        lost = [name for name, value in others.items() if value]
        return self, [f"few-shot training does not continue the start model's {', '.join(lost)}"] if lost else []

    def overrides(self, sentence: SentenceModules) -> JsonObject:
        """Returns a head that is a classifier on the pooled vector alone: as the sentence model pools, or the mean."""
        (pooling,) = sentence.pooling if len(sentence.pooling) == 1 else ("mean",)
        only_classifier = {
            "label_transform": None,
            "sequence_act": None,
            "sequence_matrix_only": False,
            "sequence_mlp": False,
        }
        return {"label_pooling": LABEL_POOLING.get(pooling, "mean"), **only_classifier}

    def heads(self, config: EncoderConfig) -> "dict[str, nn.Module]":
        """Returns the head. Its classifier is not trained by gradients: `settle` computes it."""
        from bertie.models.heads.sequence import SequenceHead

        head = SequenceHead(config, len(self.labels))
        head.classifier.requires_grad_(False)
        return {self.head: head}

    def counts(self, batch: "Batch") -> dict[str, float]:
        """Returns the number of pairs of the same label and of different labels."""
        return {name: int(pairs_BB.sum()) for name, pairs_BB in _pairs(batch).items()}

    def loss(self, model: "TorchModel", output: "EncoderOutput", batch: "Batch") -> LossReport:
        """Returns the squared error of the cosines, separately for both kinds of pairs, which weigh the same."""
        from torch.nn.functional import normalize

        vector_BH = normalize(_vectors(model, output), dim=-1)
        cosine_BB, target = vector_BH @ vector_BH.T, {"same": 1.0, "different": 0.0}
        return {
            name: LossTerm(
                ((cosine_BB - target[name]) ** 2 * pairs_BB.to(cosine_BB.device)).sum(), int(pairs_BB.sum()), weight=0.5
            )
            for name, pairs_BB in _pairs(batch).items()
        }

    def settle(self, model: "TorchModel", encoded: Sequences, targets: Targets) -> None:
        """Fits the classifier by logistic regression on the vectors of the training examples.

        The vectors are divided by the root of their mean squared length, one number for all, which goes into the
        weights. A length for each text could not: a classifier is a matrix.
        """
        import torch
        from sklearn.linear_model import LogisticRegression

        sequences = np.array_split(np.arange(len(encoded.lengths)), -(-len(encoded.lengths) // _BATCH_SEQUENCES))
        with torch.no_grad():
            batches = (batch_of_examples(encoded, part).to(model.device) for part in sequences)
            vector_WH = torch.cat([_vectors(model, model.encode(batch)) for batch in batches]).cpu().double().numpy()
        scale = float(np.sqrt((vector_WH**2).sum(-1).mean()))
        label_W, weight_W = targets.sequence["label"], targets.sequence["weight"]
        regression = LogisticRegression(C=_STRENGTH, max_iter=1_000).fit(
            vector_WH / scale, label_W, sample_weight=weight_W
        )
        weight_LH, bias_L = regression.coef_ / scale, regression.intercept_
        if len(self.labels) == 2:  # one row there: the difference of the two logits
            weight_LH, bias_L = np.concatenate([-weight_LH, weight_LH]) / 2, np.concatenate([-bias_L, bias_L]) / 2
        head: Any = model.heads[self.head]
        with torch.no_grad():
            head.classifier.weight.copy_(torch.from_numpy(weight_LH))
            head.classifier.bias.copy_(torch.from_numpy(bias_L))

    def files(self, config: EncoderConfig, max_length: int) -> JsonObject:
        """Returns the files of `sentence-transformers`, since the trained vectors are useful by themselves too."""
        pooling: Any = {"first": "cls", "cls": None}.get(
            config.heads.label.label_pooling, config.heads.label.label_pooling
        )
        if pooling not in get_args(Pooling) or config.heads.label.label_lstm:
            return {}
        return EmbedTask(pooling=pooling, normalize=True).files(config, max_length)


def _vectors(model: "TorchModel", output: "EncoderOutput") -> "Tensor":
    """Returns what the classifier reads. -> (B, H) float32"""
    head: Any = model.heads[FewShotTask.head]
    vector_BH: Tensor = head.vector(output).float()
    return vector_BH


def _pairs(batch: "Batch") -> "dict[str, Tensor]":
    """Returns which pairs of a batch have the same label, and which have different ones, each pair once. (B, B) bool

    Sequences of one example are no pair.
    """
    label_B, example_B = batch.host.labels["label"], batch.host.sample_ids
    pair_BB = (example_B[:, None] != example_B).triu(1)
    same_BB = label_B[:, None] == label_B
    return {"same": pair_BB & same_BB, "different": pair_BB & ~same_BB}
