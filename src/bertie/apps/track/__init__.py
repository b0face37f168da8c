"""Experiment trackers: a run in TensorBoard, MLflow, Weights & Biases or Trackio, as callbacks."""
