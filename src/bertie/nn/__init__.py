"""Layers and functions on tensors: layouts, attention, embeddings. They are independent of tasks."""
