"""Masked prediction of frames: spans of feature vectors are hidden, and the model predicts their clusters.

Hsu et al. 2021 (HuBERT), 2 and 3. The clusters are found by k-means among the vectors of the table.

Labels in a batch: clusters (R,) int64, of every vector; frame_positions (N,) int64, ascending flattened positions of
the hidden ones; frame_targets (N,) int64, their clusters.

B sequences · R vectors of the batch · N hidden vectors · K clusters
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from bertie.console import counted
from bertie.data.masking import Vocabulary
from bertie.errors import DataError, UsageError, WrongModel
from bertie.models.batch import Batch
from bertie.models.config import EncoderConfig
from bertie.models.heads import HEADS
from bertie.models.loss import right
from bertie.objectives.base import LossReport, LossTerm, Objective
from bertie.order import Draws
from bertie.text.sequences import STANDS, UNSEEN, Sequences

if TYPE_CHECKING:
    from bertie.models.encoder import EncoderOutput
    from bertie.models.model import TorchModel

START_STREAM = 10  # stream of draws (data/masking.py lists them): where hidden spans begin
MOST_FITTED = 200_000  # vectors that the clusters are found among; all get one


@dataclass(frozen=True)
class MaskedFrames(Objective):
    """Predicts the clusters of hidden frames. Raises UsageError for options out of range."""

    name: ClassVar[str] = "frames"
    whole_run: ClassVar[tuple[str, ...]] = ("clusters",)

    clusters: int = 100
    """Number of clusters. Source: Hsu et al. 2021, 3.3: 100 in the first round."""
    start: float = 0.08
    """Probability of a frame to begin a hidden span. Source: Hsu et al. 2021, 4.2."""
    length: int = 10
    """Frames of a hidden span. Source: Hsu et al. 2021, 4.2."""

    def __post_init__(self) -> None:
        if self.clusters < 2 or not 0 < self.start <= 1 or self.length < 1:
            raise UsageError("frames needs clusters of 2 or more, start above 0 and up to 1, and length of 1 or more.")

    def heads(self, config: EncoderConfig) -> dict[str, nn.Module]:
        """Returns a head with a logit per cluster for each token."""
        if config.feature_size is None:
            raise WrongModel("frames needs a model with inputs=frames: model_overrides.frame_size=80.")
        return {"token": HEADS["token"](config, self.clusters)}

    def vector_labels(self, vectors: NDArray[np.float32]) -> Mapping[str, NDArray[np.generic]]:
        """Returns the cluster of every vector of a table, found by k-means with a fixed seed."""
        from sklearn.cluster import MiniBatchKMeans

        if len(vectors) < self.clusters:
            size = counted(len(vectors), "vector")
            raise DataError(f"The table has {size} for {self.clusters} clusters. Lower clusters.")
        means = MiniBatchKMeans(self.clusters, batch_size=4096, n_init=3, random_state=0)
        means.fit(vectors[:: -(-len(vectors) // MOST_FITTED)])
        return {"clusters": means.predict(vectors).astype(np.int64)}

    def corrupt(self, batch: Sequences, rng: Draws, vocabulary: Vocabulary) -> Sequences:
        """Hides spans of frames and adds their labels. A sequence with frames has at least one hidden."""
        if STANDS not in batch.extra:
            raise DataError("frames needs a table with a column of feature vectors (--features COLUMN).")
        rows_R = np.flatnonzero(batch.extra[STANDS])
        sequence_R = batch.sequence[rows_R]
        count_B = np.bincount(sequence_R, minlength=len(batch))
        first_B = np.cumsum(count_B) - count_B
        place_R = np.arange(len(rows_R)) - first_B[sequence_R]
        draws_BS = rng.uniform(START_STREAM, int(count_B.max(initial=1)))
        draws_BS[np.arange(draws_BS.shape[1]) >= count_B[:, None]] = 1  # no frame is there
        begins_BS = draws_BS < self.start
        begins_BS[np.arange(len(batch)), draws_BS.argmin(1)] = True
        hidden_BS = begins_BS.copy()
        for by in range(1, min(self.length, begins_BS.shape[1])):
            hidden_BS[:, by:] |= begins_BS[:, :-by]
        hidden_R = hidden_BS[sequence_R, place_R]
        unseen_T = np.zeros(len(batch.input_ids), np.bool_)
        unseen_T[rows_R[hidden_R]] = True
        return replace(batch, extra={**batch.extra, UNSEEN: unseen_T}).with_labels(
            frame_positions=rows_R[hidden_R], frame_targets=batch.labels["clusters"][hidden_R]
        )

    def counts(self, batch: Batch) -> dict[str, int]:
        """Returns the number of hidden frames, N."""
        return {"frames": len(batch.labels["frame_targets"])}

    def read(self, batch: Batch) -> Tensor | None:
        """Returns the positions of the hidden frames."""
        return batch.labels["frame_positions"]

    def loss(self, model: "TorchModel", output: "EncoderOutput", batch: Batch) -> LossReport:
        """Returns the cross-entropy over the clusters, at the hidden frames."""
        hidden_NH = output.last_hidden_state.flatten(0, -2)[batch.labels["frame_positions"]]
        logits_NK = model.logits("token", replace(output, last_hidden_state=hidden_NH)).float()
        targets_N = batch.labels["frame_targets"]
        total = nn.functional.cross_entropy(logits_NK, targets_N, reduction="sum")
        return {"frames": LossTerm(total, len(targets_N), right(logits_NK, targets_N).sum())}
