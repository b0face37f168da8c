"""Metrics from true and predicted labels. They know nothing of models and tasks."""
