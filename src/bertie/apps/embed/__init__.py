"""Vectors of texts and of their tokens, as files."""
