"""Comparison of models: seeds, baselines, significance, submissions."""
