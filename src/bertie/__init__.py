"""Bertie: the complete BERT system, from raw text to predictions."""
