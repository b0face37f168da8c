"""Tensors in, tensors out: layouts, attention, embeddings, layers. Knows no task."""
