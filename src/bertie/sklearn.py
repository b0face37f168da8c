"""Estimators of scikit-learn over texts, which are an application: apps/sklearn/."""

from bertie.apps.sklearn import InputError, TextClassifier, TextEmbedder, TextRegressor

__all__ = ["InputError", "TextClassifier", "TextEmbedder", "TextRegressor"]
