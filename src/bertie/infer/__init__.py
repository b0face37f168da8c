"""Inference: batches with a token budget, predictions, mask filling, embeddings, generation."""
