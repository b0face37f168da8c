"""`TextEmbedder`: vectors of texts for other estimators.

N rows · W numbers of a vector
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from bertie.apps.sklearn.base import ModelFiles, TextEstimator
from bertie.apps.sklearn.inputs import ColumnValues, Texts, as_input_errors, list_row_texts


class TextEmbedder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, TextEstimator):  # type: ignore[misc]
    """A transformer from texts to vectors, as `bertie.embed` computes them. Nothing is trained.

    The options are those of `bertie.embed`. The vectors of several columns stand side by side.

    Attributes:
        folder_: The folder of the model.

    Example:
        >>> from sklearn.linear_model import LogisticRegression
        >>> from sklearn.pipeline import make_pipeline
        >>> from bertie.sklearn import TextEmbedder
        >>> classifier = make_pipeline(TextEmbedder("starter-en", pooling="mean"), LogisticRegression())
        >>> classifier.fit(reviews["review"], reviews["stars"]).score(reviews["review"], reviews["stars"])
        1.0
    """

    def __init__(
        self,
        model: str | Path = "minilm-l6",
        *,
        pooling: str | Sequence[str] | None = None,
        normalize: bool = False,
        prompt: str | None = None,
        prefix: str | None = None,
        truncate_dim: int | None = None,
        max_length: int | None = None,
        device: str = "auto",
    ) -> None:
        self.model = model
        self.pooling = pooling
        self.normalize = normalize
        self.prompt = prompt
        self.prefix = prefix
        self.truncate_dim = truncate_dim
        self.max_length = max_length
        self.device = device

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []  # always float32
        return tags

    def fit(self, X: Texts, y: object = None) -> Self:
        """Opens the model, and learns how many columns X has.

        Raises:
            InputError: A row has no text.
            DataError: The model cannot be read.
        """
        rows = self._rows(X, y=y)
        list_row_texts(rows)
        files = ModelFiles.opened(self.model, self.device)
        self._n_features_out = self._vectors(rows[:1], files).shape[1]
        self._files = files
        return self

    def transform(self, X: Texts) -> NDArray[np.float32]:
        """Returns the vector of each row. (N, W) float32"""
        check_is_fitted(self)
        rows = self._rows(X)
        list_row_texts(rows)
        return self._vectors(rows, self._files)

    def _vectors(self, rows: Sequence[ColumnValues], files: ModelFiles) -> NDArray[np.float32]:
        """Returns the vectors of the columns of rows, side by side. (N, W)"""
        model = files.model(self.device)
        options = {name: value for name, value in self.get_params().items() if name not in ("model", "device")}
        with as_input_errors():
            return np.hstack([model.embed(column, **options) for column in zip(*rows, strict=True)])
