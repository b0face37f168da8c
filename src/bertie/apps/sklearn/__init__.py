"""Estimators of scikit-learn over texts: `TextClassifier`, `TextRegressor` and `TextEmbedder`.

    X -> rows of texts -> bertie.finetune -> a model folder -> bertie.predict

X is a list, an array or a Series of texts, or a DataFrame or a 2-D array with a column for each text. An estimator
learns from all rows that it is given, and answers with the engine and the numbers of `bertie.predict` and
`bertie.embed`.
"""

from bertie.apps.sklearn.embedder import TextEmbedder
from bertie.apps.sklearn.estimators import TextClassifier, TextRegressor
from bertie.apps.sklearn.inputs import InputError

__all__ = ["InputError", "TextClassifier", "TextEmbedder", "TextRegressor"]
