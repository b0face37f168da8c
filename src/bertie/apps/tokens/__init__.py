"""Measures of a tokenizer on a text: tokens per word, unknown words, and what it cannot restore."""
