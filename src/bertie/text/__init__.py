"""Text: normalization, sentences, vocabularies, tokenizers. Imports no torch."""
