"""Compression of trained models, with a measurement of its cost."""
